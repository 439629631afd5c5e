/* Whether a file of requests can be a batch, before any of them is asked. */
#ifndef DG_SERVER_BATCH_CHECK_H
#define DG_SERVER_BATCH_CHECK_H

#include <jansson.h>
#include "dgemma.h"

enum { DG_BATCH_FAULTS = 100 }; /* that are told */

/* Reads every line: a request for `endpoint`, with a name of its own. *n_line is how many there
 * are; *faults a list of {code, line, message, param}, empty when all are well, which the caller
 * owns. */
dgemma_status dg_batch_check(const char *path, const char *endpoint, size_t max_line_bytes,
                             uint64_t *n_line, json_t **faults, dgemma_error *err);

#endif
