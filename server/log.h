/* Lines for the log, written by a thread of its own: nobody who has something to say waits for who
 * reads it. What does not fit while it is not read is left out, and counted. */
#ifndef DG_SERVER_LOG_H
#define DG_SERVER_LOG_H

#include <stdint.h>
#include "base/error.h"

enum { DG_LOG_LINE = 1088, DG_LOG_LINES = 512 }; /* bytes of a line; lines that can wait */

typedef struct dg_log dg_log;

/* Writes a line, which comes without its newline, or says that there is no room for it now: then it
 * is asked again. It must not wait. */
typedef bool dg_log_write_fn(void *user, const char *line);

dgemma_status dg_log_open(dg_log **out, dg_log_write_fn *write, void *user, dgemma_error *err);

/* Waits a moment for what is left to be written. NULL is fine. */
void dg_log_close(dg_log *log);

/* A line with the time in front. Never waits; any thread. NULL is fine: nothing is written. */
void dg_log_print(dg_log *log, const char *fmt, ...) DG_PRINTF(2, 3);

uint64_t dg_log_dropped(dg_log *log); /* lines so far */

#endif
