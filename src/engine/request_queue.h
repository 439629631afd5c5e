/* Requests on their way to the scheduler's thread, and calls that are to be made on it. Any thread
 * puts them in; the scheduler's alone takes them out. */
#ifndef DG_ENGINE_REQUEST_QUEUE_H
#define DG_ENGINE_REQUEST_QUEUE_H

#include <pthread.h>
#include "base/error.h"
#include "dgemma.h"
#include "engine/prefix_cache.h"

/* What somebody waits for. */
typedef struct dg_queued_call {
    struct dg_queued_call *next;
    void (*fn)(void *arg, dg_prefix_cache *prefix);
    void *arg;
    bool done;
} dg_queued_call;

typedef struct dg_request_queue {
    int max;                        /* requests that may wait */
    pthread_mutex_t lock;           /* for what follows */
    pthread_cond_t arrived, called; /* something to do; a call was done */
    dgemma_request *first, **last;
    int n_waiting;
    uint64_t n_requests; /* that ever came */
    dg_queued_call *calls;
    bool quit;
} dg_request_queue;

void dg_request_queue_init(dg_request_queue *q, int max);
void dg_request_queue_clear(dg_request_queue *q); /* nothing is in it any more */

/* ---- any thread ---- */

/* Takes a hold on the request. DGEMMA_E_BUSY: the queue is full. */
dgemma_status dg_request_queue_add(dg_request_queue *q, dgemma_request *r, dgemma_error *err);

/* Has fn called by the scheduler's thread, and waits for its end. */
void dg_request_queue_call(dg_request_queue *q, void (*fn)(void *arg, dg_prefix_cache *prefix),
                           void *arg);

/* From now on every request counts as cancelled, and nobody waits for more. */
void dg_request_queue_close(dg_request_queue *q);

void dg_request_queue_count(dg_request_queue *q, int *n_waiting, uint64_t *n_requests);

/* ---- the scheduler's thread ---- */

/* Waits until there is something to do, unless somebody is `busy` anyway; false: the queue is
 * closed, and nothing is left to do. */
bool dg_request_queue_wait(dg_request_queue *q, bool busy);

bool dg_request_queue_is_closed(dg_request_queue *q);
bool dg_request_queue_is_empty(dg_request_queue *q); /* of requests */

/* Up to n in the queue, behind `last` (NULL: from its beginning). They stay there. */
int dg_request_queue_peek(dg_request_queue *q, const dgemma_request *last, dgemma_request **r,
                          int n);

/* Takes one out that is there. The hold on it goes to the caller. */
void dg_request_queue_take(dg_request_queue *q, dgemma_request *r);

/* Takes out one that somebody cancelled; NULL: none is left. */
dgemma_request *dg_request_queue_take_cancelled(dg_request_queue *q);

/* Makes the next call; false: there was none. */
bool dg_request_queue_run_call(dg_request_queue *q, dg_prefix_cache *prefix);

#endif
