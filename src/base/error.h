/* Errors are made once, where the facts are, in a struct the caller owns and may leave out. */
#ifndef DG_BASE_ERROR_H
#define DG_BASE_ERROR_H

#include "dgemma.h"

#if defined(__GNUC__)
#define DG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define DG_PRINTF(fmt, args)
#endif

/* Fills *err (NULL is fine) and returns `status`, so that a function can end with `return
 * dg_fail(…)`. */
dgemma_status dg_fail(dgemma_error *err, dgemma_status status, const char *fmt, ...)
    DG_PRINTF(3, 4);

/* Puts "prefix: " in front of the message already in *err. Returns err's status. */
dgemma_status dg_fail_prefix(dgemma_error *err, dgemma_status status, const char *prefix);

#endif
