/* A persistent pool of worker threads. What a task computes must not depend on which worker runs it
 * or on how many there are: tasks write disjoint results. One caller at a time. */
#ifndef DG_BASE_POOL_H
#define DG_BASE_POOL_H

#include "base/error.h"

typedef struct dg_pool dg_pool;

/* The caller's thread is worker 0, so n_thread - 1 threads are started. 1 <= n_thread <= 1024. */
dgemma_status dg_pool_create(dg_pool **out, int n_thread, dgemma_error *err);
void dg_pool_free(dg_pool *pool);

int dg_pool_threads(const dg_pool *pool);

/* Runs fn(arg, task, worker) for each task in [0, n_task) and returns when all are done. Workers
 * take the next task as they become free. */
typedef void dg_task_fn(void *arg, int task, int worker);
void dg_pool_run(dg_pool *pool, int n_task, dg_task_fn *fn, void *arg);

/* The same, and each task is told which one its worker takes next, behind the last one -1: what
 * that will need can be asked for in time. */
typedef void dg_ahead_fn(void *arg, int task, int next, int worker);
void dg_pool_run_ahead(dg_pool *pool, int n_task, dg_ahead_fn *fn, void *arg);

/* Processors this process may run on. */
int dg_cpu_count(void);

#endif
