#include "engine/stream.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/error.h"

enum { MAX_DRAFTS = 256 };

typedef struct node {
    struct node *next;
    dgemma_event event; /* its pointers lead into the same block of memory */
} node;

struct dg_stream {
    pthread_mutex_t lock; /* for all that follows */
    pthread_cond_t arrived, call_ended;
    node *first, **last;
    int n_draft;
    node *end;     /* set aside for END, with room for an error message behind it */
    node *current; /* what the reader is looking at */
    bool ended;    /* END was delivered */
    dgemma_notify_fn *notify;
    void *notify_user;
    bool hung_up;     /* the reader is gone */
    bool in_call;     /* a function of the reader's runs, */
    pthread_t caller; /* on this thread */
    atomic_bool cancelled;

    /* the engine's alone: events that wait for dg_stream_deliver */
    bool gathering;
    node *gathered, **gathered_last;
};

dgemma_status dg_stream_create(dg_stream **out, dgemma_error *err)
{
    dg_stream *s = dg_calloc(1, sizeof *s);
    if (s)
        s->end = dg_calloc(1, sizeof *s->end + sizeof((dgemma_error){0}.msg));
    if (!s || !s->end) {
        dg_free(s);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->arrived, &attr);
    pthread_cond_init(&s->call_ended, NULL);
    pthread_condattr_destroy(&attr);
    s->last = &s->first;
    *out = s;
    return DGEMMA_OK;
}

static void free_list(node *first)
{
    while (first) {
        node *next = first->next;
        dg_free(first);
        first = next;
    }
}

void dg_stream_free(dg_stream *s)
{
    if (!s)
        return;
    free_list(s->first);
    free_list(s->gathered);
    dg_free(s->current);
    dg_free(s->end);
    pthread_cond_destroy(&s->arrived);
    pthread_cond_destroy(&s->call_ended);
    pthread_mutex_destroy(&s->lock);
    dg_free(s);
}

/* ---- the engine's side ---- */

/* Copies n bytes to *at and moves it on; entries stay aligned to 8. */
static void *put(unsigned char **at, const void *data, size_t n)
{
    void *to = *at;
    if (!data)
        return NULL;
    memcpy(to, data, n);
    *at += (n + 7) / 8 * 8;
    return to;
}

static size_t room_for(const void *data, size_t n)
{
    return data ? (n + 7) / 8 * 8 : 0;
}

static node *copy_event(const dgemma_event *e)
{
    size_t n = e->n_tokens + e->stop_token, name = e->tool_name ? strlen(e->tool_name) + 1 : 0;
    size_t n_top = n * (size_t)e->n_top;
    size_t bytes = sizeof(node) + room_for(e->tokens, n * sizeof *e->tokens) +
                   room_for(e->entropy, n * sizeof *e->entropy) + room_for(e->accepted, n) +
                   room_for(e->pinned, n) + room_for(e->logprobs, n * sizeof *e->logprobs) +
                   room_for(e->top_tokens, n_top * sizeof *e->top_tokens) +
                   room_for(e->top_logprobs, n_top * sizeof *e->top_logprobs) +
                   room_for(e->text, e->text_len + 1) + room_for(e->tool_name, name);
    node *copy = dg_malloc(bytes);
    if (!copy)
        return NULL;
    unsigned char *at = (unsigned char *)(copy + 1);
    *copy = (node){.event = *e};
    copy->event.tokens = put(&at, e->tokens, n * sizeof *e->tokens);
    copy->event.entropy = put(&at, e->entropy, n * sizeof *e->entropy);
    copy->event.accepted = put(&at, e->accepted, n);
    copy->event.pinned = put(&at, e->pinned, n);
    copy->event.logprobs = put(&at, e->logprobs, n * sizeof *e->logprobs);
    copy->event.top_tokens = put(&at, e->top_tokens, n_top * sizeof *e->top_tokens);
    copy->event.top_logprobs = put(&at, e->top_logprobs, n_top * sizeof *e->top_logprobs);
    copy->event.text = put(&at, e->text, e->text_len + 1);
    copy->event.tool_name = put(&at, e->tool_name, name);
    return copy;
}

/* Takes the oldest draft out of the list; the lock is held. */
static void drop_draft(dg_stream *s)
{
    for (node **link = &s->first; *link; link = &(*link)->next)
        if ((*link)->event.kind == DGEMMA_EVENT_DRAFT) {
            node *old = *link; /* others are behind it */
            *link = old->next;
            dg_free(old);
            s->n_draft--;
            return;
        }
}

/* A list of nodes, `last` its end, to the end of the queue; the lock is held. */
static void append(dg_stream *s, node *first, node **last)
{
    *s->last = first;
    s->last = last;
    pthread_cond_signal(&s->arrived);
    if (s->notify)
        s->notify(s->notify_user);
}

bool dg_stream_push(dg_stream *s, const dgemma_event *event)
{
    bool end = event->kind == DGEMMA_EVENT_END;
    node *n = end ? s->end : copy_event(event);
    if (!n)
        return false;
    if (s->gathering) {
        *s->gathered_last = n;
        s->gathered_last = &n->next;
        return true;
    }
    pthread_mutex_lock(&s->lock);
    if (end) {
        *n = (node){.event = *event};
        n->event.text = event->text ? memcpy(n + 1, event->text, event->text_len + 1) : NULL;
        s->end = NULL;
    }
    if (event->kind == DGEMMA_EVENT_DRAFT && ++s->n_draft > MAX_DRAFTS)
        drop_draft(s);
    append(s, n, &n->next);
    pthread_mutex_unlock(&s->lock);
    return true;
}

void dg_stream_gather(dg_stream *s)
{
    s->gathering = true;
    s->gathered = NULL;
    s->gathered_last = &s->gathered;
}

bool dg_stream_deliver(dg_stream *s, const dgemma_event *first)
{
    node *head = first ? copy_event(first) : NULL, *rest = s->gathered;
    node **last = rest ? s->gathered_last : head ? &head->next : NULL;
    s->gathering = false;
    s->gathered = NULL;
    if (head)
        head->next = rest;
    if (last) {
        pthread_mutex_lock(&s->lock);
        append(s, head ? head : rest, last);
        pthread_mutex_unlock(&s->lock);
    }
    return head || !first;
}

bool dg_stream_call_begin(dg_stream *s)
{
    pthread_mutex_lock(&s->lock);
    bool may = !s->hung_up;
    s->in_call = may;
    s->caller = pthread_self();
    pthread_mutex_unlock(&s->lock);
    return may;
}

void dg_stream_call_end(dg_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->in_call = false;
    pthread_cond_broadcast(&s->call_ended);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the reader's side ---- */

/* Waits until something is there; the lock is held. */
static bool wait_for_first(dg_stream *s, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (seconds >= 0) {
        double whole = (double)(long long)(seconds < 1e9 ? seconds : 1e9);
        until.tv_sec += (time_t)whole;
        until.tv_nsec += (long)((seconds < 1e9 ? seconds - whole : 0) * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    }
    while (!s->first) {
        int late = seconds < 0 ? pthread_cond_wait(&s->arrived, &s->lock)
                               : pthread_cond_timedwait(&s->arrived, &s->lock, &until);
        if (late)
            break;
    }
    return s->first != NULL;
}

bool dg_stream_wait(dg_stream *s, dgemma_event *event, double seconds)
{
    pthread_mutex_lock(&s->lock);
    dg_free(s->current);
    s->current = NULL;
    bool got = !s->ended && wait_for_first(s, seconds);
    if (got) {
        s->current = s->first;
        s->first = s->current->next;
        if (!s->first)
            s->last = &s->first;
        *event = s->current->event;
        s->n_draft -= event->kind == DGEMMA_EVENT_DRAFT;
        s->ended = event->kind == DGEMMA_EVENT_END;
    }
    pthread_mutex_unlock(&s->lock);
    return got;
}

void dg_stream_notify(dg_stream *s, dgemma_notify_fn *fn, void *user)
{
    pthread_mutex_lock(&s->lock);
    s->notify = fn;
    s->notify_user = user;
    bool waiting = s->first != NULL;
    pthread_mutex_unlock(&s->lock);
    if (fn && waiting)
        fn(user);
}

void dg_stream_cancel(dg_stream *s)
{
    atomic_store(&s->cancelled, true);
}

bool dg_stream_cancelled(const dg_stream *s)
{
    return atomic_load(&s->cancelled);
}

void dg_stream_hang_up(dg_stream *s)
{
    dg_stream_cancel(s);
    pthread_mutex_lock(&s->lock);
    s->notify = NULL;
    s->hung_up = true;
    while (s->in_call && !pthread_equal(s->caller, pthread_self()))
        pthread_cond_wait(&s->call_ended, &s->lock);
    pthread_mutex_unlock(&s->lock);
}
