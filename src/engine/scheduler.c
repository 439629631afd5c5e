#include "engine/scheduler.h"
#include <pthread.h>
#include <stdio.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "engine/prefix_reuse.h"
#include "engine/request.h"
#include "engine/request_queue.h"

enum { ORDINARY_TOKENS = 8192, PEEK = 64 };

/* A request that runs. */
typedef struct running {
    dgemma_request *r;
    dg_block_loop loop;
    dg_answer answer;
    dg_picture_encoding encoding; /* of its pictures; while their features are needed */
    uint64_t tower_turn;          /* when it last had the tower */
    dg_prefix_reuse prefix;
    dg_work *work; /* its part of the pass; NULL: none */
    bool stopped;  /* somebody asked it to end */
    dgemma_status status;
    dgemma_error err;
} running;

struct dg_scheduler {
    dg_scheduler_config cfg;

    /* the thread's own */
    int n_slot;      /* max_running and max_reads */
    running *slots;  /* [n_slot] */
    running **order; /* [n_slot] all slots; the first n_running are taken, oldest first */
    int n_running;
    int n_reads;              /* of those, that read */
    int turn;                 /* who is first in the next pass */
    uint64_t tower_turn;      /* counts passes of the tower */
    size_t reserved;          /* of keys and values, by kv_bytes of running requests */
    size_t features_reserved; /* by their feature_bytes */
    dg_prefix_cache *prefix;  /* NULL: nothing is kept */
    dg_want *want;            /* [n_slot] in the order of `order`, for the next pass */
    dg_grant *grant;          /* [n_slot] likewise */
    dg_work *work;            /* [n_slot] */

    pthread_t thread;
    bool thread_started;
    dg_request_queue queue;
    pthread_mutex_t lock;            /* for what follows */
    dgemma_engine_counters counters; /* but for what the queue counts */
};

/* ---- sizes ---- */

int dg_scheduler_rows(const dg_config *cfg, const dg_backend *be, int max_running)
{
    int n = dg_min(max_running, dg_max(1, be->canvas_rows / cfg->canvas_length));
    int rows = dg_max(n * cfg->canvas_length + be->prompt_rows, 2 * cfg->canvas_length + 1);
    return cfg->vision.present ? dg_max(rows, DG_MAX_PICTURE_TOKENS) : rows;
}

/* Tokens that a request of this model adds in a pass. */
static int longest_step(const dg_config *cfg, const dg_backend *be, int longest_block)
{
    return dg_max(dg_max(be->prompt_rows, cfg->canvas_length + 1), longest_block);
}

size_t dg_scheduler_kv_bytes(const dg_config *cfg, const dg_backend *be, const dg_kv_cache *kv,
                             int n_context, int max_running)
{
    int ordinary = longest_step(cfg, be, 0),
        most = longest_step(cfg, be, cfg->vision.present ? DG_MAX_PICTURE_TOKENS : 0);
    size_t many = dg_kv_bytes_for(kv, dg_min(n_context, ORDINARY_TOKENS), ordinary);
    size_t one = dg_kv_bytes_for(kv, n_context, most);
    many *= (size_t)max_running;
    return many > one ? many : one;
}

/* What the request may come to hold: every block but the last is encoded, a cut thought gets a
 * marker. */
static size_t worst_bytes(const dg_scheduler *s, const dg_block_loop_config *cfg)
{
    int64_t most = (int64_t)cfg->n_prompt + cfg->max_tokens + cfg->canvas_length;
    return dg_kv_bytes_for(
        s->cfg.kv, most < cfg->n_context ? (int)most : cfg->n_context,
        longest_step(&s->cfg.model->cfg, s->cfg.model->be, dg_block_loop_longest_picture(cfg)));
}

/* What its pictures are to the model, until the prompt is encoded. */
static size_t feature_bytes(const dg_scheduler *s, const dgemma_request *r)
{
    return (size_t)r->prompt->pictures.n_soft * (size_t)s->cfg.model->cfg.n_embd * sizeof(float);
}

/* ---- the queue ---- */

dgemma_status dg_scheduler_submit(dg_scheduler *s, dgemma_request *r, dgemma_error *err)
{
    r->submitted = dg_clock_now();
    r->kv_bytes = worst_bytes(s, &r->cfg);
    r->feature_bytes = feature_bytes(s, r);
    if (r->kv_bytes > s->cfg.kv_bytes)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "the request may need %zu MiB of keys and values, there is room for %zu: "
                       "ask for fewer tokens or give more memory",
                       (r->kv_bytes >> 20) + 1, s->cfg.kv_bytes >> 20);
    return dg_request_queue_add(&s->queue, r, err);
}

/* Somebody is just encoding what this one begins with: it will take less to wait than to do it a
 * second time. */
static bool begins_like_another(const dg_scheduler *s, const dgemma_request *r)
{
    dg_prefix prompt = {r->cfg.prompt, r->cfg.n_prompt, &r->prompt->pictures, r->prefix_salt};
    for (int i = 0; i < s->n_running; i++)
        if (dg_prefix_reuse_worth_waiting(&s->order[i]->prefix, &s->order[i]->loop, &prompt))
            return true;
    return false;
}

/* Those who read and those who write do not wait for each other's places. */
static bool has_place(const dg_scheduler *s, const dgemma_request *r)
{
    return r->read ? s->n_reads < s->cfg.max_reads : s->n_running - s->n_reads < s->cfg.max_running;
}

/* The first in the queue that has a place and does not wait for another's prompt. A few are taken
 * at a time, so that the lock is not held while prompts are compared: whoever submits would wait
 * for it. */
static dgemma_request *first_ready(dg_scheduler *s)
{
    dgemma_request *r[PEEK], *last = NULL;
    for (int n; (n = dg_request_queue_peek(&s->queue, last, r, PEEK)) > 0; last = r[n - 1])
        for (int i = 0; i < n; i++)
            if (has_place(s, r[i]) && !begins_like_another(s, r[i]))
                return r[i];
    return NULL;
}

/* One alone may have more than the bound. */
static bool features_fit(const dg_scheduler *s, const dgemma_request *r)
{
    size_t n = s->features_reserved, most = s->cfg.feature_bytes;
    return !n || (n <= most && r->feature_bytes <= most - n);
}

/* The next request, if what it needs is there. One that waits for memory holds up those behind it:
 * a large one would else wait for ever. One that waits for another's prompt does not. */
static dgemma_request *dequeue(dg_scheduler *s)
{
    dgemma_request *r = first_ready(s);
    if (!r || r->kv_bytes > s->cfg.kv_bytes - s->reserved || !features_fit(s, r))
        return NULL;
    dg_request_queue_take(&s->queue, r);
    return r;
}

void dg_scheduler_call(dg_scheduler *s, dg_scheduler_fn *fn, void *arg)
{
    dg_request_queue_call(&s->queue, fn, arg);
}

void dg_scheduler_count(dg_scheduler *s, dgemma_engine_counters *counters)
{
    pthread_mutex_lock(&s->lock);
    *counters = s->counters;
    pthread_mutex_unlock(&s->lock);
    dg_request_queue_count(&s->queue, &counters->n_waiting, &counters->n_requests);
}

/* Nobody needs to know its pictures any more. */
static void drop_features(dg_scheduler *s, running *u)
{
    dg_picture_encoding_clear(&u->encoding);
    u->loop.cfg.features = NULL;
    s->features_reserved -= u->r->feature_bytes;
    u->r->feature_bytes = 0;
}

/* ---- the end of a request ---- */

/* Ends it and empties the slot. When its reader knows, counters do, and its prompt is given back.
 */
static void end_request(dg_scheduler *s, running *u)
{
    bool cut =
        u->loop.canvas_open && u->loop.n_read; /* a block of which something was sent already */
    pthread_mutex_lock(&s->lock);
    s->counters.n_ended[dg_answer_reason(&u->answer, u->status, u->stopped)]++;
    s->counters.n_blocks += cut;
    s->counters.n_output_tokens += cut ? (uint64_t)(u->loop.n_read - u->answer.n_behind) : 0;
    pthread_mutex_unlock(&s->lock);
    if (!u->status)
        dg_prefix_reuse_end(&u->prefix, &u->loop);
    dg_prefix_reuse_clear(&u->prefix);
    dg_picture_encoding_clear(&u->encoding);
    dg_request_drop_prompt(u->r);
    dg_answer_end(&u->answer, u->status, &u->err, u->stopped);
    dg_answer_clear(&u->answer);
    dg_block_loop_clear(&u->loop);
    dg_request_release(u->r);
    *u = (running){0};
}

static void set_running(dg_scheduler *s, int n)
{
    pthread_mutex_lock(&s->lock);
    s->counters.n_running = n;
    pthread_mutex_unlock(&s->lock);
}

static bool is_done(const running *u)
{
    return u->status || u->stopped || u->loop.end || u->answer.stop_found;
}

/* Ends those that are done, and those that somebody does not want any more. */
static void end_finished(dg_scheduler *s)
{
    bool quit = dg_request_queue_is_closed(&s->queue);
    for (dgemma_request *r; (r = dg_request_queue_take_cancelled(&s->queue));) {
        running u = {.r = r, .stopped = true};
        u.answer = (dg_answer){.loop = &u.loop, .stream = r->stream};
        u.answer.stats.queue_seconds = dg_clock_now() - r->submitted;
        end_request(s, &u);
    }
    int n = 0, turn = s->turn;
    for (int i = 0; i < s->n_running; i++) {
        running *u = s->order[i];
        if (!is_done(u))
            u->stopped = quit || dg_stream_cancelled(u->r->stream);
        if (!is_done(u)) {
            s->order[i] = s->order[n];
            s->order[n++] = u;
            continue;
        }
        s->turn -= i < turn;
        s->reserved -= u->r->kv_bytes;
        s->n_reads -= u->r->read != NULL;
        drop_features(s, u);
        set_running(s, s->counters.n_running - 1);
        end_request(s, u);
    }
    s->n_running = n;
}

/* ---- its beginning ---- */

/* What is known of the request's pictures, unless keys and values of all of them are there. */
static dgemma_status begin_encoding(dg_scheduler *s, running *u)
{
    const dg_pictures *p = &u->r->prompt->pictures;
    u->answer.stats.n_pictures = p->n;
    u->tower_turn = s->tower_turn;
    if (!p->n || p->list[p->n - 1].token < u->loop.n_encoded)
        return DGEMMA_OK;
    dgemma_status st =
        dg_picture_encoding_begin(&u->encoding, s->cfg.pictures, p, u->loop.n_encoded, &u->err);
    u->loop.cfg.features = u->encoding.features;
    return st;
}

/* Begins with what the prefix cache has. */
static dgemma_status reuse(dg_scheduler *s, running *u)
{
    const dg_block_loop_config *cfg = &u->r->cfg;
    dg_prefix prompt = {cfg->prompt, cfg->n_prompt, &u->r->prompt->pictures, u->r->prefix_salt};
    int n = dg_prefix_reuse_begin(&u->prefix, s->prefix, &u->loop, &prompt, s->cfg.turn_token);
    u->answer.stats.n_prompt_cached = n;
    dgemma_event found = {.kind = DGEMMA_EVENT_PROMPT, .n_done = n, .n_total = cfg->n_prompt};
    return !n || dg_stream_push(u->r->stream, &found)
               ? DGEMMA_OK
               : dg_fail(&u->err, DGEMMA_E_NOMEM, "no memory for the answer's events");
}

static void start(dg_scheduler *s, running *u, dgemma_request *r)
{
    double now = dg_clock_now();
    *u = (running){.r = r};
    u->answer = (dg_answer){.loop = &u->loop, .stream = r->stream};
    const dg_backend *be = s->cfg.model->be;
    u->status = be->check ? be->check(be, &u->err) : DGEMMA_OK;
    if (!u->status)
        u->status = dg_block_loop_init(&u->loop, s->cfg.model, s->cfg.kv, &r->cfg, &u->err);
    if (!u->status)
        u->status = dg_answer_init(&u->answer, &r->answer, &u->loop, r->stream, &u->err);
    u->answer.stats.queue_seconds = now - r->submitted;
    if (!u->status)
        u->status = reuse(s, u);
    if (!u->status)
        u->status = begin_encoding(s, u);
}

/* Lets in who can be. */
static void admit(dg_scheduler *s, dgemma_engine_counters *done)
{
    while (s->n_running < s->n_slot) {
        dgemma_request *r = dequeue(s);
        if (!r)
            return;
        running *u = s->order[s->n_running++];
        s->reserved += r->kv_bytes;
        s->n_reads += r->read != NULL;
        s->features_reserved += r->feature_bytes;
        start(s, u, r);
        done->n_prompt_tokens += (uint64_t)(r->cfg.n_prompt + u->loop.n_given);
        done->n_prompt_cached += (uint64_t)u->answer.stats.n_prompt_cached;
        set_running(s, s->n_running);
    }
}

/* ---- the tower ---- */

/* It takes part in no pass before the tower has seen all its pictures. */
static bool waits_for_tower(const running *u)
{
    return u->encoding.n_missing > 0;
}

/* Who has waited longest for the tower; NULL: nobody needs it. */
static running *next_for_tower(dg_scheduler *s)
{
    running *next = NULL;
    for (int i = 0; i < s->n_running; i++) {
        running *u = s->order[i];
        if (!is_done(u) && waits_for_tower(u) && (!next || u->tower_turn < next->tower_turn))
            next = u;
    }
    return next;
}

/* One pass of the tower, for one request: pictures may take far longer than a step, and a request
 * may have hundreds. True: it ran. */
static bool run_tower(dg_scheduler *s)
{
    bool ran = false;
    for (running *u; !ran && (u = next_for_tower(s));) {
        int n = u->encoding.n_encoded;
        u->tower_turn = ++s->tower_turn;
        u->status = dg_picture_encoding_run(&u->encoding, &u->err);
        u->answer.stats.n_pictures_encoded = u->encoding.n_encoded;
        ran = u->encoding.n_encoded > n;
    }
    return ran;
}

/* ---- a pass ---- */

static bool takes_part(const running *u)
{
    return !is_done(u) && !waits_for_tower(u);
}

static bool has_prompt(const running *u)
{
    return u->loop.block == 0 && u->loop.n_encoded < u->loop.n_pending;
}

/* Pages for the next n tokens of a request. They were set aside when it was let in; what stands in
 * the way is what the prefix cache keeps. */
static dgemma_status make_pages(dg_scheduler *s, running *u, int n, dgemma_engine_counters *done)
{
    dg_kv_cache *kv = s->cfg.kv;
    dg_kv_forget(kv, &u->loop.seq);
    while (s->prefix && dg_kv_bytes_missing(kv, &u->loop.seq, n) > dg_kv_bytes_left(kv) &&
           dg_prefix_evict(s->prefix))
        done->n_evictions++;
    return dg_kv_reserve(kv, &u->loop.seq, n, &u->err);
}

/* What everybody wants of the next pass, and what they get of it. */
static void share_rows(dg_scheduler *s)
{
    dg_grant_rule rule = {.max_row = dg_forward_max_row(s->cfg.forward),
                          .max_prompt = s->cfg.model->be->prompt_rows,
                          .min_prompt_room = DG_MIN_PROMPT_ROWS,
                          .min_prompt_share = DG_PAGE};
    for (int i = 0; i < s->n_running; i++) {
        s->want[i] = (dg_want){0};
        if (takes_part(s->order[i]))
            dg_block_loop_want(&s->order[i]->loop, &s->want[i]);
    }
    s->turn = dg_grants(s->grant, s->want, s->n_running, s->turn, &rule);
}

/* Fills s->work; returns how many take part. */
static int plan(dg_scheduler *s, dgemma_engine_counters *done)
{
    int n = 0;
    share_rows(s);
    for (int i = 0; i < s->n_running; i++) {
        running *u = s->order[i];
        const dg_grant *g = &s->grant[i];
        u->work = NULL;
        if (!g->n_token && !g->n_canvas)
            continue;
        u->status = make_pages(s, u, g->n_token, done);
        if (u->status)
            continue;
        dg_block_loop_plan(&u->loop, u->work = &s->work[n++], *g);
    }
    return n;
}

/* What came of the pass for one request. */
static void take(dg_scheduler *s, running *u, double seconds, dgemma_engine_counters *done)
{
    bool go_on = true;
    dg_prefix_reuse_pass(&u->prefix, &u->loop, u->work);
    u->status = dg_block_loop_take(&u->loop, &u->err);
    if (u->status)
        return;
    if (!has_prompt(u))
        drop_features(s, u);
    done->n_steps += u->loop.canvas_in_pass;
    if (u->loop.block_done) {
        done->n_blocks++;
        done->n_converged += u->loop.canvas.converged;
    }
    u->status = dg_answer_pass(&u->answer, &u->loop, seconds, &go_on, &u->err);
    if (u->loop.block_done)
        done->n_output_tokens += (uint64_t)(u->loop.n_block_token - u->answer.n_behind);
    u->stopped = !go_on;
}

static void fail(running *u, dgemma_status st, const dgemma_error *err)
{
    char where[64];
    u->status = st;
    u->err = *err;
    if (!u->loop.canvas_in_pass)
        return;
    snprintf(where, sizeof where, "block %d, step %d", u->loop.block, u->loop.canvas.step);
    dg_fail_prefix(&u->err, st, where);
}

static void publish(dg_scheduler *s, const dgemma_engine_counters *done)
{
    size_t used = dg_kv_bytes_used(s->cfg.kv), held = dg_kv_bytes_held(s->cfg.kv);
    pthread_mutex_lock(&s->lock);
    dgemma_engine_counters *c = &s->counters;
    c->kv_bytes_used = used;
    c->kv_bytes_cached = held - used;
    c->n_prompt_tokens += done->n_prompt_tokens;
    c->n_prompt_cached += done->n_prompt_cached;
    c->n_evictions += done->n_evictions;
    c->n_output_tokens += done->n_output_tokens;
    c->n_blocks += done->n_blocks;
    c->n_converged += done->n_converged;
    c->n_steps += done->n_steps;
    c->n_passes += done->n_passes;
    c->busy_seconds += done->busy_seconds;
    c->device_seconds += done->device_seconds;
    for (size_t i = 0; i < DG_COUNT(c->n_turns); i++)
        c->n_turns[i] += done->n_turns[i];
    pthread_mutex_unlock(&s->lock);
}

static void prepare(void *arg)
{
    dg_scheduler *s = arg;
    for (int i = 0; i < s->n_running; i++)
        if (s->order[i]->work)
            dg_block_loop_prepare(&s->order[i]->loop);
}

static void run_pass(dg_scheduler *s, dgemma_engine_counters *done)
{
    dgemma_error err = {0};
    double start = dg_clock_now();
    int n = plan(s, done);
    if (!n)
        return;
    dg_pass pass = {.work = s->work,
                    .n_work = n,
                    .images = s->cfg.images,
                    .meanwhile = prepare,
                    .meanwhile_arg = s};
    dgemma_status st = dg_forward_run(s->cfg.forward, &pass, &err);
    dgemma_status lost = dg_loaded_intact(s->cfg.loaded, &err);
    st = lost ? lost : st; /* weights that were not there explain whatever else went wrong */
    double seconds = dg_clock_now() - start;
    const dg_backend *be = s->cfg.model->be;
    done->device_seconds = be->device_seconds && !st ? be->device_seconds(s->cfg.model->be) : 0;
    done->n_passes++;
    for (int i = 0; i < s->n_running; i++) {
        running *u = s->order[i];
        if (!u->work)
            continue;
        dgemma_status own = st ? st : dg_work_status(u->work, &err);
        if (own)
            fail(u, own, &err);
        else
            take(s, u, seconds, done);
    }
}

static void count_turn(dgemma_engine_counters *done, double seconds)
{
    size_t i = 0;
    while (i + 1 < DG_COUNT(done->n_turns) && seconds > 1e-3 * (double)(1 << i))
        i++;
    done->busy_seconds = seconds;
    done->n_turns[i] = 1;
}

static void *scheduler_main(void *arg)
{
    dg_scheduler *s = arg;
    while (dg_request_queue_wait(&s->queue, s->n_running > 0)) {
        dgemma_engine_counters done = {0};
        if (dg_request_queue_run_call(&s->queue, s->prefix)) { /* one between two passes */
            publish(s, &done);                                 /* it may have kept something */
            if (!s->n_running && dg_request_queue_is_empty(&s->queue))
                continue;
        }
        double start = dg_clock_now();
        end_finished(s);
        admit(s, &done);
        if (run_tower(s))
            end_finished(s); /* those whom that took too long */
        run_pass(s, &done);
        count_turn(&done, dg_clock_now() - start);
        publish(s, &done);
        end_finished(s);
        publish(s, &(dgemma_engine_counters){0}); /* what they held is free */
    }
    return NULL;
}

/* ---- life cycle ---- */

dgemma_status dg_scheduler_create(dg_scheduler **out, const dg_scheduler_config *cfg,
                                  dgemma_error *err)
{
    dg_scheduler *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    s->cfg = *cfg;
    s->n_slot = cfg->max_running + cfg->max_reads;
    size_t n = (size_t)s->n_slot;
    s->counters.kv_bytes_total = cfg->kv_bytes;
    pthread_mutex_init(&s->lock, NULL);
    dg_request_queue_init(&s->queue, cfg->queue_length);
    s->slots = dg_calloc(n, sizeof *s->slots);
    s->order = dg_calloc(n, sizeof *s->order);
    s->want = dg_calloc(n, sizeof *s->want);
    s->grant = dg_calloc(n, sizeof *s->grant);
    s->work = dg_calloc(n, sizeof *s->work);
    dgemma_status st = dg_kv_cache_limit(cfg->kv, cfg->kv_bytes, err);
    if (!st && (!s->slots || !s->order || !s->want || !s->grant || !s->work))
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for %d requests", cfg->max_running);
    for (size_t i = 0; !st && i < n; i++)
        s->order[i] = &s->slots[i];
    if (!st && cfg->prefix_cache)
        st = dg_prefix_cache_create(&s->prefix, cfg->kv, DG_PREFIX_HOST_BYTES, err);
    if (!st && pthread_create(&s->thread, NULL, scheduler_main, s) != 0)
        st = dg_fail(err, DGEMMA_E_NOMEM, "cannot start the engine's thread");
    s->thread_started = !st;
    if (st) {
        dg_scheduler_free(s);
        return st;
    }
    *out = s;
    return DGEMMA_OK;
}

void dg_scheduler_free(dg_scheduler *s)
{
    if (!s)
        return;
    if (s->thread_started) {
        dg_request_queue_close(&s->queue);
        pthread_join(s->thread, NULL);
    }
    dg_prefix_cache_free(s->prefix);
    dg_free(s->slots);
    dg_free(s->order);
    dg_free(s->want);
    dg_free(s->grant);
    dg_free(s->work);
    dg_request_queue_clear(&s->queue);
    pthread_mutex_destroy(&s->lock);
    dg_free(s);
}
