#include "engine/request_queue.h"
#include "engine/request.h"

void dg_request_queue_init(dg_request_queue *q, int max)
{
    *q = (dg_request_queue){.max = max};
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->arrived, NULL);
    pthread_cond_init(&q->called, NULL);
}

void dg_request_queue_clear(dg_request_queue *q)
{
    pthread_cond_destroy(&q->arrived);
    pthread_cond_destroy(&q->called);
    pthread_mutex_destroy(&q->lock);
}

/* ---- any thread ---- */

dgemma_status dg_request_queue_add(dg_request_queue *q, dgemma_request *r, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    pthread_mutex_lock(&q->lock);
    if (q->n_waiting >= q->max)
        st = dg_fail(err, DGEMMA_E_BUSY, "%d requests are waiting already", q->n_waiting);
    else {
        atomic_fetch_add(&r->n_holder, 1);
        *q->last = r;
        q->last = &r->next;
        q->n_waiting++;
        q->n_requests++;
        pthread_cond_signal(&q->arrived);
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

void dg_request_queue_call(dg_request_queue *q, void (*fn)(void *arg, dg_prefix_cache *prefix),
                           void *arg)
{
    dg_queued_call mine = {.fn = fn, .arg = arg};
    pthread_mutex_lock(&q->lock);
    dg_queued_call **last = &q->calls;
    while (*last)
        last = &(*last)->next;
    *last = &mine;
    pthread_cond_signal(&q->arrived);
    while (!mine.done)
        pthread_cond_wait(&q->called, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

void dg_request_queue_close(dg_request_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->quit = true;
    pthread_cond_signal(&q->arrived);
    pthread_mutex_unlock(&q->lock);
}

void dg_request_queue_count(dg_request_queue *q, int *n_waiting, uint64_t *n_requests)
{
    pthread_mutex_lock(&q->lock);
    *n_waiting = q->n_waiting;
    *n_requests = q->n_requests;
    pthread_mutex_unlock(&q->lock);
}

/* ---- the scheduler's thread ---- */

bool dg_request_queue_wait(dg_request_queue *q, bool busy)
{
    pthread_mutex_lock(&q->lock);
    while (!busy && !q->first && !q->calls && !q->quit)
        pthread_cond_wait(&q->arrived, &q->lock);
    bool more = busy || q->first || q->calls;
    pthread_mutex_unlock(&q->lock);
    return more;
}

bool dg_request_queue_is_closed(dg_request_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool quit = q->quit;
    pthread_mutex_unlock(&q->lock);
    return quit;
}

bool dg_request_queue_is_empty(dg_request_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool empty = !q->first;
    pthread_mutex_unlock(&q->lock);
    return empty;
}

int dg_request_queue_peek(dg_request_queue *q, const dgemma_request *last, dgemma_request **r,
                          int n)
{
    int found = 0;
    pthread_mutex_lock(&q->lock);
    for (dgemma_request *at = last ? last->next : q->first; at && found < n; at = at->next)
        r[found++] = at;
    pthread_mutex_unlock(&q->lock);
    return found;
}

/* Takes *link out; the lock is held. */
static dgemma_request *unlink_request(dg_request_queue *q, dgemma_request **link)
{
    dgemma_request *r = *link;
    *link = r->next;
    if (q->last == &r->next)
        q->last = link;
    q->n_waiting--;
    return r;
}

void dg_request_queue_take(dg_request_queue *q, dgemma_request *r)
{
    pthread_mutex_lock(&q->lock);
    dgemma_request **link = &q->first;
    while (*link != r)
        link = &(*link)->next;
    unlink_request(q, link);
    pthread_mutex_unlock(&q->lock);
}

dgemma_request *dg_request_queue_take_cancelled(dg_request_queue *q)
{
    dgemma_request *r = NULL;
    pthread_mutex_lock(&q->lock);
    dgemma_request **link = &q->first;
    while (*link && !q->quit && !dg_stream_cancelled((*link)->stream))
        link = &(*link)->next;
    if (*link)
        r = unlink_request(q, link);
    pthread_mutex_unlock(&q->lock);
    return r;
}

bool dg_request_queue_run_call(dg_request_queue *q, dg_prefix_cache *prefix)
{
    pthread_mutex_lock(&q->lock);
    dg_queued_call *c = q->calls;
    q->calls = c ? c->next : NULL;
    pthread_mutex_unlock(&q->lock);
    if (!c)
        return false;
    c->fn(c->arg, prefix);
    pthread_mutex_lock(&q->lock);
    c->done = true;
    pthread_cond_broadcast(&q->called);
    pthread_mutex_unlock(&q->lock);
    return true;
}
