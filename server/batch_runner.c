#include "batch_runner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "batch.h"
#include "batch_check.h"
#include "batches.h"

enum {
    TURN_SECONDS = 60, /* of one owner's, while another's wait */
    COUNT_SECONDS = 1, /* how far it is, for those who look */
    WAIT_MS = 500
};

/* Why a batch was left. */
typedef enum why_left { LEFT_NOT, LEFT_STOPPING, LEFT_CANCELLED, LEFT_EXPIRED, LEFT_TURN } why_left;

struct dg_batch_runner {
    dg_server *server;
    dg_state *state;
    pthread_t thread;
    atomic_bool stops;

    dg_batch_row row; /* at work */
    char last_owner[DG_OWNER];
    double began, counted;
    bool others_wait;
    uint64_t n_byte; /* that it has written, as the state counts them */
    bool over;       /* its files are no longer its own */
    why_left left;
};

static bool is_stopping(const dg_batch_runner *r)
{
    return atomic_load(&r->stops) || atomic_load(&r->server->draining);
}

/* ---- while a batch runs ---- */

/* Nobody waits, nobody is being answered, it is still this owner's turn, and there is room for what
 * is written. */
static bool may_ask(void *runner)
{
    dg_batch_runner *r = runner;
    dg_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    bool quiet = !s->n_admitted;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&r->state->lock);
    bool room = r->state->bytes < r->state->limits.max_bytes;
    pthread_mutex_unlock(&r->state->lock);
    return quiet && room && !(r->others_wait && dg_clock_now() - r->began > TURN_SECONDS);
}

static void count_bytes(dg_batch_runner *r, uint64_t n_byte)
{
    if (n_byte == r->n_byte)
        return;
    pthread_mutex_lock(&r->state->lock);
    dg_state_recount(r->state, r->n_byte, n_byte);
    pthread_mutex_unlock(&r->state->lock);
    r->n_byte = n_byte;
}

static void note_progress(dg_batch_runner *r, const dg_batch_progress *p)
{
    pthread_mutex_lock(&r->state->lock);
    r->others_wait = dg_batches_others(r->state, r->row.owner);
    dg_batches_count(r->state, r->row.id, p->n_line, p->n_known + p->n_answer, p->n_failed, NULL);
    pthread_mutex_unlock(&r->state->lock);
    r->counted = dg_clock_now();
}

static bool tick(void *runner, const dg_batch_progress *p)
{
    dg_batch_runner *r = runner;
    double now = dg_clock_now();
    count_bytes(r, p->n_byte);
    if (now - r->counted > COUNT_SECONDS)
        note_progress(r, p);
    r->left = is_stopping(r)                                                     ? LEFT_STOPPING
              : atomic_load(&r->state->cancels)                                  ? LEFT_CANCELLED
              : dg_state_now() >= r->row.expires                                 ? LEFT_EXPIRED
              : r->others_wait && !p->n_running && now - r->began > TURN_SECONDS ? LEFT_TURN
                                                                                 : LEFT_NOT;
    return r->left == LEFT_NOT;
}

/* Prefixes in the cache are those of the owner's key. */
static const char *salt_of(const dg_batch_runner *r, char salt[16 + DG_OWNER])
{
    const dg_state *s = r->state;
    size_t i = 0;
    if (r->server->opt.share_cache)
        return NULL;
    while (i < s->n_owner && strcmp(s->owners[i], r->row.owner) != 0)
        i++;
    if (!r->row.owner[0])
        strcpy(salt, "key 0");
    else if (i < s->n_owner)
        snprintf(salt, 16 + DG_OWNER, "key %zu", i + 1);
    else
        snprintf(salt, 16 + DG_OWNER, "gone %s", r->row.owner);
    return salt;
}

static dgemma_status answer_lines(dg_batch_runner *r, const char *in, const char *out,
                                  const char *errors, dgemma_error *err)
{
    const dg_server_options *o = &r->server->opt;
    char salt[16 + DG_OWNER];
    dg_batch *b = NULL;
    dg_batch_progress sum;
    const dg_batch_options opt = {
        .in = in,
        .out = out,
        .errors = errors,
        .model_name = r->server->models->first->name,
        .models = r->server->models->many ? r->server->models : NULL,
        .n_ahead = o->max_running < 8 ? 1 : o->max_running / 4,
        .max_line_bytes = o->max_body_bytes,
        .max_choices = o->max_choices,
        .max_images = o->max_images,
        .decision_temperature = o->decision_temperature,
        .tick = tick,
        .may_ask = may_ask,
        .tick_user = r,
        .cache_salt = salt_of(r, salt),
        .metrics = r->server->metrics,
    };
    dgemma_status st = dg_state_make_private(out, err);
    if (!st)
        st = dg_state_make_private(errors, err);
    if (!st)
        st = dg_batch_open(&b, &opt, err);
    if (!st)
        st = dg_batch_run(b, opt.models ? NULL : r->server->models->first->engine, &sum, err);
    dg_batch_free(b);
    return st;
}

/* ---- a batch, from state to state ---- */

static dgemma_status set_status(dg_batch_runner *r, const char *status, const char *faults,
                                dgemma_error *err)
{
    pthread_mutex_lock(&r->state->lock);
    dgemma_status st = dg_batches_set(r->state, r->row.id, status, faults, err);
    pthread_mutex_unlock(&r->state->lock);
    return st;
}

static dgemma_status finish(dg_batch_runner *r, const char *status, dgemma_error *err)
{
    dg_batch_size size;
    dgemma_status st = dg_batches_measure(r->state, &r->row, &size, err);
    if (st)
        return st;
    pthread_mutex_lock(&r->state->lock);
    st = dg_batches_finish(r->state, &r->row, status, &size, r->n_byte, err);
    pthread_mutex_unlock(&r->state->lock);
    r->over = !st;
    return st;
}

/* For what no later try could mend. */
static dgemma_status fail_for(dg_batch_runner *r, const char *code, dgemma_error *err)
{
    dg_hide_folder(err->msg, r->state->path);
    json_t *list =
        json_pack("[{s:s,s:n,s:s,s:n}]", "code", code, "line", "message", err->msg, "param");
    char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;
    dgemma_status st =
        text ? set_status(r, "failed", text, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st) { /* nobody can have them */
        unlinkat(r->state->folder_fd, r->row.output, 0);
        unlinkat(r->state->folder_fd, r->row.errors, 0);
    }
    free(text);
    json_decref(list);
    return st;
}

/* Whether every line can be asked; *good is false when it has failed. */
static dgemma_status validate(dg_batch_runner *r, const char *in, bool *good, dgemma_error *err)
{
    uint64_t n_line;
    json_t *faults = NULL;
    dgemma_status st =
        dg_batch_check(in, r->row.endpoint, r->server->opt.max_body_bytes, &n_line, &faults, err);
    *good = !st && !json_array_size(faults);
    char *text = st || *good ? NULL : json_dumps(faults, JSON_COMPACT);
    json_decref(faults);
    if (!st && *good) {
        pthread_mutex_lock(&r->state->lock);
        st = dg_batches_count(r->state, r->row.id, n_line, 0, 0, err);
        pthread_mutex_unlock(&r->state->lock);
    }
    if (!st)
        st = set_status(r, *good ? "in_progress" : "failed", text, err);
    free(text);
    return st;
}

static dgemma_status run_lines(dg_batch_runner *r, const char *in, const char *out,
                               const char *errors, dgemma_error *err)
{
    r->began = r->counted = dg_clock_now();
    r->left = LEFT_NOT;
    dgemma_status st = answer_lines(r, in, out, errors, err);
    if (!st)
        st = set_status(r, "finalizing", NULL, err);
    if (!st)
        return finish(r, "completed", err);
    if (st != DGEMMA_E_CANCELLED)
        return st == DGEMMA_E_FORMAT || st == DGEMMA_E_ARG ? fail_for(r, "storage_failed", err)
                                                           : st;
    return r->left == LEFT_CANCELLED ? finish(r, "cancelled", err)
           : r->left == LEFT_EXPIRED ? finish(r, "expired", err)
                                     : DGEMMA_OK;
}

static dgemma_status work_at(dg_batch_runner *r, const char *in, const char *out,
                             const char *errors, dgemma_error *err)
{
    bool good = true;
    if (!strcmp(r->row.status, "finalizing"))
        return finish(r, "completed", err);
    if (!strcmp(r->row.status, "cancelling"))
        return finish(r, "cancelled", err);
    if (dg_state_now() >= r->row.expires)
        return finish(r, "expired", err);
    if (!dg_file_exists(in)) {
        dg_fail(err, DGEMMA_E_IO, "the file of requests is gone");
        return fail_for(r, "file_not_found", err);
    }
    if (!strcmp(r->row.status, "validating")) {
        dgemma_status st = validate(r, in, &good, err);
        if (st || !good)
            return st;
    }
    return run_lines(r, in, out, errors, err);
}

static dgemma_status run_batch(dg_batch_runner *r, dgemma_error *err)
{
    char *in = dg_path_join(r->state->folder, r->row.input);
    char *out = dg_path_join(r->state->folder, r->row.output);
    char *errors = dg_path_join(r->state->folder, r->row.errors);
    dgemma_status st = in && out && errors ? work_at(r, in, out, errors, err)
                                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(in);
    dg_free(out);
    dg_free(errors);
    return st;
}

/* ---- the thread ---- */

/* For a batch, or for a while; the lock is held. */
static void wait_a_while(dg_state *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->bell, &s->lock, &until);
}

static bool take_next(dg_batch_runner *r)
{
    dg_state *s = r->state;
    pthread_mutex_lock(&s->lock);
    bool ready = atomic_load(&r->server->ready);
    atomic_store(&s->cancels, false);
    bool found = ready && dg_batches_next(s, r->last_owner, &r->row, NULL);
    r->others_wait = found && dg_batches_others(s, r->row.owner);
    r->n_byte = found ? dg_batches_written(s, &r->row) : 0;
    r->over = false;
    if (!found)
        wait_a_while(s);
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void leave(dg_batch_runner *r, bool failed)
{
    if (!r->over)
        count_bytes(r, dg_batches_written(r->state, &r->row));
    pthread_mutex_lock(&r->state->lock);
    r->state->running[0] = '\0';
    if (failed)
        dg_batches_rest(r->state, r->row.id, NULL);
    pthread_mutex_unlock(&r->state->lock);
    memcpy(r->last_owner, r->row.owner, sizeof r->last_owner);
}

static void *runner_main(void *runner)
{
    dg_batch_runner *r = runner;
    while (!is_stopping(r)) {
        dgemma_error err = {0};
        if (!take_next(r))
            continue;
        dgemma_status st = run_batch(r, &err);
        leave(r, st != DGEMMA_OK);
        if (!st)
            continue;
        dg_log_print(r->server->log, "%s waits: %s", r->row.id, err.msg);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L / 5}, NULL);
    }
    return NULL;
}

dgemma_status dg_batch_runner_start(dg_batch_runner **out, dg_server *s, dgemma_error *err)
{
    dg_batch_runner *r = dg_calloc(1, sizeof *r);
    if (!r)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    r->server = s;
    r->state = s->state;
    if (pthread_create(&r->thread, NULL, runner_main, r)) {
        dg_free(r);
        return dg_fail(err, DGEMMA_E_NOMEM, "cannot start the server's threads");
    }
    *out = r;
    return DGEMMA_OK;
}

void dg_batch_runner_stop(dg_batch_runner *r)
{
    if (!r)
        return;
    atomic_store(&r->stops, true);
    pthread_mutex_lock(&r->state->lock);
    pthread_cond_signal(&r->state->bell);
    pthread_mutex_unlock(&r->state->lock);
    pthread_join(r->thread, NULL);
    dg_free(r);
}
