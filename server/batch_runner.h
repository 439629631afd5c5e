/* Who works at batches: one thread, one batch at a time, with the code of `dgemma batch`. A line is
 * asked only while no request over HTTP is being answered or waits, and few of them at once, so
 * that who comes meanwhile finds room. Owners take turns. What it had not finished when the server
 * ended, in whatever way, goes on at the next start. */
#ifndef DG_SERVER_BATCH_RUNNER_H
#define DG_SERVER_BATCH_RUNNER_H

#include "calls.h"

typedef struct dg_batch_runner dg_batch_runner;

/* The server has a state; its engine may come later. */
dgemma_status dg_batch_runner_start(dg_batch_runner **out, dg_server *s, dgemma_error *err);

/* Ends within a step of the model. NULL is fine. */
void dg_batch_runner_stop(dg_batch_runner *r);

#endif
