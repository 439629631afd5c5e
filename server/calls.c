/* Calls that take time: a queue of those that have something to do, and workers that do it. A call
 * is worked on by one of them at a time; whatever happens meanwhile makes it come again. */
#include "calls.h"
#include "base/alloc.h"
#include "base/clock.h"

/* ---- making and freeing ---- */

dg_call *dg_call_create(dg_server *s)
{
    dg_call *c = dg_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (!dg_exchange_init(&c->x, NULL, NULL)) {
        dg_exchange_clear(&c->x);
        dg_free(c);
        return NULL;
    }
    c->server = s;
    c->arrived = dg_clock_now();
    dg_buf_init(&c->body, s->opt.max_body_bytes);
    pthread_mutex_lock(&s->lock);
    c->next = s->calls;
    if (c->next)
        c->next->prev = c;
    s->calls = c;
    s->n_call++;
    pthread_mutex_unlock(&s->lock);
    return c;
}

static void write_log(const dg_call *c)
{
    double ms = 1e3 * (dg_clock_now() - c->arrived);
    const dgemma_stats *st = &c->stats;
    int status = c->x.status ? c->x.status : 499; /* its client went before it was known */
    if (c->route && c->route->generates && st->n_prompt)
        dg_log_print(c->server->log,
                     "%s %s %s %s %d %.0f ms, prompt %d (%d cached), output %d in %d blocks and %d "
                     "steps, queue %.0f ms, first text %.0f ms",
                     c->name, c->client, c->method, c->path, status, ms, st->n_prompt,
                     st->n_prompt_cached, st->n_output, st->n_blocks, st->n_steps,
                     1e3 * st->queue_seconds, 1e3 * st->first_text_seconds);
    else
        dg_log_print(c->server->log, "%s %s %s %s %d %.0f ms", c->name, c->client, c->method,
                     c->path, status, ms);
    dg_metrics_http(c->server->metrics, status);
}

void dg_call_forget_input(dg_call *c)
{
    atomic_fetch_sub(&c->server->body_bytes, c->n_own_input);
    dg_free(c->own_input);
    c->own_input = NULL;
    c->n_own_input = 0;
}

static void free_call(dg_call *c)
{
    dg_server *s = c->server;
    write_log(c);
    dg_call_forget_input(c);
    atomic_fetch_sub(&s->body_bytes, c->body.len + c->n_fetched);
    pthread_mutex_lock(&s->lock);
    /* off the list before anything of it goes: whoever walks the list may touch what is on it */
    *(c->prev ? &c->prev->next : &s->calls) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_admitted -= c->n_admitted;
    s->n_call--;
    s->n_accepted -= c->accepted;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    dg_buf_clear(&c->body);
    dg_free(c->query);
    dg_free(c->content_type);
    dg_exchange_clear(&c->x);
    dg_free(c);
}

/* ---- the queue ---- */

/* The lock is held. */
static void enqueue(dg_call *c)
{
    dg_server *s = c->server;
    if (c->busy)
        c->again = true;
    if (c->busy || c->queued || !c->handed_over)
        return;
    c->queued = true;
    c->next_queued = NULL;
    *s->last_queued = c;
    s->last_queued = &c->next_queued;
    pthread_cond_signal(&s->work);
}

void dg_call_accept(dg_call *c)
{
    dg_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    c->accepted = true;
    s->n_accepted++;
    pthread_mutex_unlock(&s->lock);
}

bool dg_call_hand_over(dg_call *c)
{
    dg_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    bool taken = !s->closing;
    if (taken) {
        c->handed_over = true;
        enqueue(c);
    }
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void dg_call_cancel(dg_call *c, dg_cancel why)
{
    if (c->cancel == DG_GO_ON)
        c->cancel = why;
    enqueue(c);
}

void dg_call_ping(dg_call *c)
{
    c->silent = true;
    enqueue(c);
}

void dg_call_end(dg_call *c)
{
    dg_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    c->gone = true;
    bool mine = !c->handed_over;
    enqueue(c);
    pthread_mutex_unlock(&s->lock);
    if (mine)
        free_call(c);
}

/* No request of a call rings after its END was taken, and until then the call is there. */
void dg_call_ring(void *call)
{
    dg_call *c = call;
    pthread_mutex_lock(&c->server->lock);
    enqueue(c);
    pthread_mutex_unlock(&c->server->lock);
}

/* ---- admission ---- */

bool dg_call_admit(dg_call *c, size_t n_choice, dg_http_error *e)
{
    dg_server *s = c->server;
    bool ok = true;
    pthread_mutex_lock(&s->lock);
    size_t n_others = s->n_admitted - c->n_admitted;
    if (n_others + n_choice > (size_t)s->opt.max_active) {
        ok = dg_refuse(e, 429, "queue_full", NULL, "%zu answers are running or waiting, at most %d",
                       n_others, s->opt.max_active);
        e->retry_after = 1;
    } else {
        c->n_admitted = n_choice;
        s->n_admitted = n_others + n_choice;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void leave(dg_call *c)
{
    dg_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    s->n_admitted -= c->n_admitted;
    c->n_admitted = 0;
    c->awaits = false;
    pthread_mutex_unlock(&s->lock);
}

/* ---- workers ---- */

static void explain(const dg_call *c, dg_cancel why, dg_http_error *e)
{
    if (why == DG_CANCEL_TIMEOUT)
        dg_refuse(e, 408, "answer_timeout", NULL, "the answer took longer than %g s",
                  c->server->opt.answer_seconds);
    else if (why == DG_CANCEL_STOP)
        dg_refuse(e, 503, "shutting_down", NULL, "the server is shutting down");
    else
        dg_refuse(e, 499, "client_closed_request", NULL, "the client closed the connection");
}

/* Its requests end, and the client is told why. */
static void cancel(dg_call *c, dg_cancel why)
{
    dg_http_error e;
    explain(c, why, &e);
    if (c->generation)
        dg_generation_cancel(c->generation, &e);
    if (c->deciding) {
        dg_deciding_cancel(c->deciding, &e);
        dg_deciding_free(c->deciding);
        c->deciding = NULL;
        leave(c);
    }
}

/* The place is free before the client knows that it is: one that asks again at once finds it. */
static void end_generation(dg_call *c)
{
    leave(c);
    dg_generation_end(c->generation);
    dg_generation_stats(c->generation, &c->stats);
    dg_generation_free(c->generation);
    c->generation = NULL;
    dg_call_forget_input(c);
}

static void end_deciding(dg_call *c)
{
    dg_deciding_stats(c->deciding, &c->stats);
    dg_deciding_free(c->deciding);
    c->deciding = NULL;
}

/* Does its work, if the model that it asks is there. */
static void start(dg_call *c, dg_cancel why, bool silent)
{
    dg_http_error e;
    bool waited = c->hold.model != NULL;
    const dg_asking *asks = c->route->asks;
    dg_turn turn = asks ? asks->turn(c, &e) : DG_TURN_NOW;
    c->started = true;
    if (turn == DG_TURN_NOW && !(waited && why)) {
        c->route->work(c);
    } else if (turn == DG_TURN_LATER && !why) {
        c->started = false;
        if (silent)
            asks->say_nothing(c);
    } else if (turn != DG_TURN_OVER) {
        if (turn != DG_TURN_NEVER)
            explain(c, why, &e);
        asks->refuse(c, &e);
    }
}

/* Nobody needs its model any more, nor what it said to ask for one. */
static void put_away(dg_call *c)
{
    leave(c);
    dg_hold_drop(&c->hold);
    json_decref(c->root);
    c->root = NULL;
}

/* Does what there is to do now. True: the call is over and nobody needs it any more. */
static bool work_on(dg_call *c, bool gone, dg_cancel why, bool silent)
{
    if (!c->started && gone)
        c->started = true;
    else if (!c->started)
        start(c, why, silent);
    if ((c->generation || c->deciding) && (gone || why))
        cancel(c, gone ? DG_CANCEL_HANGUP : why);
    if (c->generation && dg_generation_advance(c->generation))
        end_generation(c);
    if (c->generation && silent)
        dg_generation_ping(c->generation);
    if (c->deciding && dg_deciding_done(c->deciding)) {
        leave(c);
        dg_deciding_answer(c->deciding);
        end_deciding(c);
    }
    if (c->started && !c->generation && !c->deciding)
        put_away(c);
    return gone && !c->generation;
}

/* The next call that has something to do; NULL: the server quits. The lock is held. */
static dg_call *dequeue(dg_server *s)
{
    while (!s->first_queued && !s->quit)
        pthread_cond_wait(&s->work, &s->lock);
    dg_call *c = s->first_queued;
    if (!c)
        return NULL;
    s->first_queued = c->next_queued;
    if (!s->first_queued)
        s->last_queued = &s->first_queued;
    c->queued = false;
    c->busy = true;
    return c;
}

void *dg_worker_main(void *server)
{
    dg_server *s = server;
    pthread_mutex_lock(&s->lock);
    for (dg_call *c; (c = dequeue(s));) {
        bool gone = c->gone, silent = c->silent;
        dg_cancel why = c->cancel;
        c->silent = false;
        pthread_mutex_unlock(&s->lock);
        bool over = work_on(c, gone, why, silent);
        if (over)
            free_call(c);
        pthread_mutex_lock(&s->lock);
        if (over)
            continue;
        c->busy = false;
        if (c->again) {
            c->again = false;
            enqueue(c);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
