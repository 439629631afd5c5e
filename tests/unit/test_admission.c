/* Who is let in: pictures between the steps of others, memory that is set aside before it is
 * needed, a queue with an end. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "base/common.h"
#include "dgemma.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";
static const char picture_path[] = "tests/fixtures/golden/vision/image.png";

static dgemma_engine *open_for(int max_running)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.max_running = max_running;
    return record_engine(opt);
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* ---- pictures ---- */

/* A request that denoises for ever and, on the engine's thread so that nothing depends on speed,
 * brings another one with pictures. */
typedef struct host {
    dgemma_engine *engine;
    const dgemma_request_options *guest_options;
    _Atomic(dgemma_request *) guest;
    int n_step; /* of the host's, since the guest is there */
    int cancel_at, guest_began_at;
} host;

static void guest_begins(void *user)
{
    host *h = user;
    if (!h->guest_began_at)
        h->guest_began_at = h->n_step;
}

static bool receive(void *user, const dgemma_step *step)
{
    host *h = user;
    (void)step;
    if (h->guest) {
        if (++h->n_step == h->cancel_at)
            dgemma_request_cancel(h->guest);
        return true;
    }
    dgemma_request *guest = record_submit(h->engine, h->guest_options);
    dgemma_request_notify(guest, guest_begins, h);
    h->guest = guest;
    return true;
}

/* Each of another size, too large to share a pass of the tower. */
enum { N_PICTURE = 6 };
static dgemma_request_options with_pictures(const dgemma_engine *e)
{
    static dgemma_media media[N_PICTURE];
    for (int i = 0; i < N_PICTURE; i++)
        media[i] = (dgemma_media){.path = picture_path, .max_soft_tokens = 50 + 25 * i};
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "What is the difference?";
    opt.media = media;
    opt.n_media = N_PICTURE;
    opt.max_tokens = 20;
    opt.drafts = true;
    return opt;
}

static void visit_host(host *h, record *rec)
{
    dgemma_request_options endless = record_endless(h->engine), guest = with_pictures(h->engine);
    h->guest_options = &guest;
    endless.on_step = receive;
    endless.step_user = h;
    dgemma_request *r = record_submit(h->engine, &endless);
    while (!h->guest)
        nap(0.001);
    record_listen(h->guest, rec);
    dgemma_request_free(r);
}

START_TEST(pictures_do_not_hold_up_canvases)
{
    static record alone, together;
    dgemma_engine *e = open_for(1);
    dgemma_request_options opt = with_pictures(e);
    record_listen(record_submit(e, &opt), &alone);
    ck_assert_int_eq(alone.stats.n_pictures_encoded, N_PICTURE);
    dgemma_engine_close(e);

    host h = {.engine = e = open_for(2)};
    visit_host(&h, &together);
    ck_assert_int_eq(together.stats.n_pictures_encoded, N_PICTURE);
    ck_assert_int_eq(h.guest_began_at, N_PICTURE); /* a step for each picture */
    record_assert_same(&alone, &together, "between steps", 0);
    record_clear(&alone);
    record_clear(&together);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(cancelling_does_not_wait_for_pictures)
{
    static record cancelled;
    dgemma_engine *e = open_for(2);
    host h = {.engine = e, .cancel_at = 2};
    visit_host(&h, &cancelled);
    ck_assert_int_eq(cancelled.stats.end, DGEMMA_END_CANCELLED);
    ck_assert_int_eq(cancelled.stats.n_pictures, N_PICTURE);
    ck_assert_int_eq(cancelled.stats.n_pictures_encoded, 2);
    record_clear(&cancelled);

    /* what the tower has seen is known from now on */
    dgemma_request_options opt = with_pictures(e);
    record_listen(record_submit(e, &opt), &cancelled);
    ck_assert_int_eq(cancelled.stats.n_pictures_encoded, N_PICTURE - 2);
    record_clear(&cancelled);
    dgemma_engine_close(e);
}
END_TEST

/* Two that arrive together: after two passes of the tower each has had one. */
typedef struct two_guests {
    dgemma_engine *engine;
    dgemma_request *guest[2];
    int n_step;
    atomic_bool over;
} two_guests;

static bool receive_two(void *user, const dgemma_step *step)
{
    enum { N_EACH = 3 };
    static dgemma_media media[2][N_EACH];
    two_guests *t = user;
    (void)step;
    if (t->n_step++ == 2) {
        for (int k = 0; k < 2; k++)
            dgemma_request_cancel(t->guest[k]);
        t->over = true;
    }
    for (int k = 0; t->n_step == 1 && k < 2; k++) {
        for (int i = 0; i < N_EACH; i++)
            media[k][i] =
                (dgemma_media){.path = picture_path, .max_soft_tokens = 60 + 30 * (2 * i + k)};
        dgemma_request_options opt = dgemma_request_defaults(t->engine);
        opt.chat_prompt = k ? "What is that?" : "Which is larger?";
        opt.media = media[k];
        opt.n_media = N_EACH;
        t->guest[k] = record_submit(t->engine, &opt);
    }
    return true;
}

START_TEST(the_tower_is_used_in_turns)
{
    static record rec;
    two_guests t = {.engine = open_for(3)};
    dgemma_request_options opt = record_endless(t.engine);
    opt.on_step = receive_two;
    opt.step_user = &t;
    dgemma_request *endless = record_submit(t.engine, &opt);
    while (!t.over)
        nap(0.001);
    for (int k = 0; k < 2; k++) {
        record_listen(t.guest[k], &rec);
        ck_assert_int_eq(rec.stats.end, DGEMMA_END_CANCELLED);
        ck_assert_int_eq(rec.stats.n_pictures_encoded, 1);
        record_clear(&rec);
    }
    dgemma_request_free(endless);
    dgemma_engine_close(t.engine);
}
END_TEST

/* One with three pictures has had the tower once when another comes: it was here first, and in the
 * next round it is the other's turn. */
typedef struct newcomer {
    dgemma_engine *engine;
    dgemma_media media[2][3];
    dgemma_request *guest[2];
    int n_step;
    atomic_bool over;
} newcomer;

static bool receive_newcomer(void *user, const dgemma_step *step)
{
    newcomer *n = user;
    int k = n->n_step++;
    (void)step;
    if (k < 2) {
        for (int i = 0; i < 3; i++)
            n->media[k][i] =
                (dgemma_media){.path = picture_path, .max_soft_tokens = 60 + 30 * (2 * i + k)};
        dgemma_request_options opt = dgemma_request_defaults(n->engine);
        opt.chat_prompt = k ? "What is that?" : "Which is larger?";
        opt.media = n->media[k];
        opt.n_media = 3;
        n->guest[k] = record_submit(n->engine, &opt);
    } else if (k == 2) {
        for (int i = 0; i < 2; i++)
            dgemma_request_cancel(n->guest[i]);
        n->over = true;
    }
    return true;
}

START_TEST(a_newcomer_is_not_first_at_the_tower)
{
    static record rec;
    static newcomer n;
    n.engine = open_for(3);
    dgemma_request_options opt = record_endless(n.engine);
    opt.on_step = receive_newcomer;
    opt.step_user = &n;
    dgemma_request *endless = record_submit(n.engine, &opt);
    while (!n.over)
        nap(0.001);
    for (int k = 0; k < 2; k++) {
        record_listen(n.guest[k], &rec);
        ck_assert_int_eq(rec.stats.n_pictures_encoded, k ? 0 : 2);
        record_clear(&rec);
    }
    dgemma_request_free(endless);
    dgemma_engine_close(n.engine);
}
END_TEST

/* Pictures whose keys and values are all there need no features. */
static size_t wanted_bytes;
static atomic_int n_wanted;
static void *(*real_alloc)(dg_backend *be, size_t bytes);

static void *counting_alloc(dg_backend *be, size_t bytes)
{
    n_wanted += bytes == wanted_bytes;
    return real_alloc(be, bytes);
}

START_TEST(known_pictures_take_no_memory)
{
    static record rec;
    static const dgemma_media picture = {.path = picture_path};
    dgemma_engine *e = open_for(1);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "What is that?";
    opt.media = &picture;
    opt.n_media = 1;
    opt.max_tokens = 4;
    real_alloc = e->be->alloc;
    e->be->alloc = counting_alloc;
    for (int i = 0; i < 3; i++) {
        dgemma_request *r = record_submit(e, &opt);
        wanted_bytes = r->feature_bytes ? r->feature_bytes : wanted_bytes;
        record_listen(r, &rec);
        ck_assert_int_ne(rec.stats.end, DGEMMA_END_FAILED);
        ck_assert_int_eq(rec.stats.n_prompt_cached > 0, i > 0);
        record_clear(&rec);
        if (!i)
            n_wanted = 0;
    }
    ck_assert_int_eq(n_wanted, 0);
    e->be->alloc = real_alloc;
    dgemma_engine_close(e);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_is_set_aside_first)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = open_for(1);
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    dgemma_engine_close(e);

    /* room for one that fills the context: smaller ones together, larger ones one by one */
    eo.kv_bytes = info.kv_bytes_full;
    e = record_engine(eo);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static int32_t prompt[3000];
    opt.tokens = prompt;
    opt.n_tokens = 3000;
    opt.max_tokens = 20;
    opt.max_denoise_steps = 3;
    dgemma_request *large[3];
    uint64_t n_steps = 0;
    for (int i = 0; i < 3; i++)
        large[i] = record_submit(e, &opt);
    for (int i = 0; i < 3; i++) {
        dgemma_engine_counters c;
        bool ended = false;
        for (dgemma_event event; dgemma_request_wait(large[i], &event, -1);) {
            dgemma_engine_count(e, &c);
            ck_assert_int_le(c.n_running, 1);
            ck_assert_uint_le(c.kv_bytes_used + c.kv_bytes_cached, c.kv_bytes_total);
            ended = event.kind == DGEMMA_EVENT_END && event.status == DGEMMA_OK;
            n_steps += ended ? (uint64_t)event.stats.n_steps : 0;
        }
        ck_assert(ended);
        dgemma_request_free(large[i]);
    }
    dgemma_engine_counters all;
    dgemma_engine_count(e, &all);
    ck_assert_uint_eq(all.n_steps, n_steps);
    ck_assert_uint_gt(all.n_passes, n_steps); /* some had rows of prompts alone */
    dgemma_engine_close(e);

    /* what can never fit is refused at once */
    eo.kv_bytes = info.kv_bytes_full / 3;
    e = record_engine(eo);
    dgemma_request *r;
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "keys and values"));
    opt.n_tokens = 100; /* an answer may be too long as well */
    opt.max_tokens = 3000;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_LIMIT);
    opt.max_tokens = 20;
    static record rec;
    record_listen(record_submit(e, &opt), &rec);
    ck_assert_int_ne(rec.stats.end, DGEMMA_END_FAILED);
    record_clear(&rec);
    dgemma_engine_close(e);
}
END_TEST

/* Requests of one prompt have its pixels in common, but features each its own until it is encoded.
 * They come all at once, and as many are let in as the bound has room for. */
enum { N_SHARING = 40 };
typedef struct sharers {
    dgemma_engine *engine;
    dgemma_prompt *prompt;
    dgemma_request *request[N_SHARING];
    size_t feature_bytes; /* of one */
    int n_step, n_let_in;
    atomic_bool over;
} sharers;

static bool receive_sharers(void *user, const dgemma_step *step)
{
    sharers *s = user;
    dgemma_engine_counters c;
    (void)step;
    if (!s->n_step++) {
        dgemma_request_options opt = dgemma_request_defaults(s->engine);
        opt.prompt = s->prompt;
        opt.max_tokens = 1;
        opt.max_denoise_steps = 1;
        for (int i = 0; i < N_SHARING; i++)
            s->request[i] = record_submit(s->engine, &opt);
        s->feature_bytes = s->request[0]->feature_bytes;
        return true;
    }
    dgemma_engine_count(s->engine, &c);
    if (!s->n_let_in)
        s->n_let_in = c.n_running - 1; /* beside this one */
    s->over = true;
    return true;
}

START_TEST(features_of_pictures_are_bounded)
{
    enum { BOUND = 600 << 10 }; /* the pixels of one picture of 70 tokens, and a little */
    static record rec;
    static const dgemma_media picture = {.path = picture_path};
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.max_running = N_SHARING + 1;
    eo.picture_bytes = BOUND;
    eo.no_prefix_cache = true;
    sharers s = {.engine = record_engine(eo)};
    dgemma_error err = {0};
    dgemma_request_options opt = dgemma_request_defaults(s.engine);
    opt.chat_prompt = "What is that?";
    opt.media = &picture;
    opt.n_media = 1;
    opt.image_tokens = 70;
    ck_assert_msg(dgemma_prompt_create(&s.prompt, s.engine, &opt, &err) == DGEMMA_OK, "%s",
                  err.msg);
    opt = record_endless(s.engine);
    opt.on_step = receive_sharers;
    opt.step_user = &s;
    dgemma_request *endless = record_submit(s.engine, &opt);
    while (!s.over)
        nap(0.001);
    int most = (int)(BOUND / s.feature_bytes);
    ck_assert_int_lt(most, N_SHARING);
    ck_assert_int_eq(s.n_let_in, most);
    for (int i = 0; i < N_SHARING; i++) { /* and all come to their turn */
        record_listen(s.request[i], &rec);
        ck_assert_int_ne(rec.stats.end, DGEMMA_END_FAILED);
        record_clear(&rec);
    }
    dgemma_request_free(endless);
    dgemma_prompt_free(s.prompt);
    dgemma_engine_close(s.engine);
}
END_TEST

/* Features may take more than the pixels that were let in: one request alone is let in always. */
START_TEST(features_of_one_are_not_bounded)
{
    static record rec;
    static const dgemma_media picture = {.path = picture_path};
    dgemma_engine *e = open_for(2);
    dg_scheduler_free(e->scheduler);
    dg_scheduler_config cfg = {.loaded = &e->loaded,
                               .model = e->model,
                               .kv = e->kv,
                               .forward = e->forward,
                               .pictures = e->pictures,
                               .feature_bytes = 1,
                               .max_running = 2,
                               .queue_length = 2,
                               .kv_bytes = (size_t)1 << 26,
                               .turn_token = -1};
    ck_assert_int_eq(dg_scheduler_create(&e->scheduler, &cfg, NULL), DGEMMA_OK);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "What is that?";
    opt.media = &picture;
    opt.n_media = 1;
    opt.max_tokens = 4;
    dgemma_request *r = record_submit(e, &opt);
    dgemma_event event;
    ck_assert(dgemma_request_wait(r, &event, 20)); /* it does not wait for ever */
    record_listen(r, &rec);
    ck_assert_int_eq(rec.stats.n_pictures_encoded, 1);
    record_clear(&rec);
    dgemma_engine_close(e);
}
END_TEST

/* Rows for the canvases that a backend takes at once, beside them those of prompts; in any case a
 * block to commit with its canvas, and a whole picture. */
START_TEST(rows_of_a_pass)
{
    dg_config cfg = {.canvas_length = 100};
    dg_backend be = {.canvas_rows = 250, .prompt_rows = 30};
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 1), 201);
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 2), 230);
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 9), 230);
    be.prompt_rows = 1000;
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 1), 1100);
    be.canvas_rows = 50;
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 9), 1100);
    cfg.vision.present = true;
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 9), DG_MAX_PICTURE_TOKENS);
    be.prompt_rows = 2000;
    ck_assert_int_eq(dg_scheduler_rows(&cfg, &be, 9), 2100);
}
END_TEST

START_TEST(options_of_scheduling_are_checked)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    eo.model_path = model_path;
    eo.max_running = -1;
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, &err), DGEMMA_E_ARG);
    eo.max_running = 1 << 20;
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, &err), DGEMMA_E_ARG);
    eo.max_running = 1;
    eo.queue_length = -1;
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, &err), DGEMMA_E_ARG);

    eo.queue_length = 2; /* one runs, two wait, the fourth is told so */
    e = record_engine(eo);
    dgemma_request_options opt = record_endless(e);
    dgemma_request *r[3], *none;
    dgemma_event event;
    r[0] = record_submit(e, &opt);
    ck_assert(dgemma_request_wait(r[0], &event, 60));
    r[1] = record_submit(e, &opt);
    r[2] = record_submit(e, &opt);
    ck_assert_int_eq(dgemma_request_submit(&none, e, &opt, &err), DGEMMA_E_BUSY);
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_int_eq(c.n_running, 1);
    ck_assert_int_eq(c.n_waiting, 2);

    /* one that waits ends when it is cancelled, though the first would run for ever */
    dgemma_request_cancel(r[2]);
    ck_assert(dgemma_request_wait(r[2], &event, 60));
    ck_assert_int_eq(event.kind, DGEMMA_EVENT_END);
    ck_assert_int_eq(event.stats.end, DGEMMA_END_CANCELLED);
    for (int i = 0; i < 3; i++)
        dgemma_request_free(r[i]);
    dgemma_engine_close(e);
}
END_TEST

/* ---- counters ---- */

/* What the engine counted since `before` is what the request says of itself. */
static void assert_counted(const dgemma_engine *e, const dgemma_engine_counters *before,
                           const dgemma_stats *stats)
{
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_int_eq(c.n_running, 0);
    ck_assert_uint_eq(c.n_requests - before->n_requests, 1);
    ck_assert_uint_eq(c.n_ended[stats->end] - before->n_ended[stats->end], 1);
    ck_assert_uint_eq(c.n_prompt_tokens - before->n_prompt_tokens, (unsigned)stats->n_prompt);
    ck_assert_uint_eq(c.n_prompt_cached - before->n_prompt_cached,
                      (unsigned)stats->n_prompt_cached);
    ck_assert_uint_eq(c.n_output_tokens - before->n_output_tokens, (unsigned)stats->n_output);
    ck_assert_uint_eq(c.n_blocks - before->n_blocks, (unsigned)stats->n_blocks);
    ck_assert_uint_eq(c.n_converged - before->n_converged, (unsigned)stats->n_converged);
    ck_assert_uint_eq(c.n_steps - before->n_steps, (unsigned)stats->n_steps);
}

static bool stop_at(void *user, const dgemma_step *step)
{
    int *left = user;
    (void)step;
    return --*left > 0;
}

START_TEST(counters_agree_with_answers)
{
    dgemma_engine *e = open_for(2);
    static const int32_t prompt[] = {2, 10, 20, 30, 40, 50, 60};
    static record rec;
    int n_converged = 0;
    for (int i = 0; i < 8; i++) {
        dgemma_request_options opt = dgemma_request_defaults(e);
        dgemma_engine_counters before;
        opt.tokens = prompt;
        opt.n_tokens = sizeof prompt / sizeof *prompt;
        opt.max_tokens = 40;
        opt.seed = (uint64_t)i % 4;
        dgemma_engine_count(e, &before);
        record_listen(record_submit(e, &opt), &rec);
        assert_counted(e, &before, &rec.stats);
        n_converged += rec.stats.n_converged;
        ck_assert_uint_gt(rec.stats.kv_bytes, 0);
        record_clear(&rec);
    }
    ck_assert_int_gt(n_converged, 0);
    dgemma_engine_close(e);
}
END_TEST

static bool take_long(void *user, const dgemma_step *step)
{
    (void)user;
    (void)step;
    nap(0.006);
    return true;
}

START_TEST(turns_are_sorted_by_how_long_they_take)
{
    enum { UP_TO_4_MS = 2 };
    dgemma_engine *e = open_for(1);
    static record rec;
    dgemma_request_options opt = dgemma_request_defaults(e);
    static const int32_t prompt[] = {2, 10, 20};
    opt.tokens = prompt;
    opt.n_tokens = 3;
    opt.max_tokens = 10;
    opt.on_step = take_long;
    record_listen(record_submit(e, &opt), &rec);
    dgemma_engine_counters c;
    uint64_t n_long = 0;
    do { /* the last turn is counted when it ends, behind the answer */
        dgemma_engine_count(e, &c);
        n_long = 0;
        for (size_t i = UP_TO_4_MS + 1; i < sizeof c.n_turns / sizeof *c.n_turns; i++)
            n_long += c.n_turns[i];
    } while (c.n_passes < (uint64_t)rec.stats.n_steps);
    ck_assert_uint_ge(n_long, (unsigned)rec.stats.n_steps);
    ck_assert(c.busy_seconds >= 0.006 * rec.stats.n_steps);
    record_clear(&rec);
    dgemma_engine_close(e);
}
END_TEST

/* Stopped in the middle of a block whose beginning has settled and was sent. */
START_TEST(what_was_sent_of_a_block_counts)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    static record rec;
    int n_cut = 0;
    eo.model_path = "models/pocket/pocket.gguf";
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, NULL), DGEMMA_OK);
    for (int step = 3; step <= 9; step += 3) {
        dgemma_request_options opt = dgemma_request_defaults(e);
        dgemma_engine_counters before;
        int left = step;
        opt.chat_prompt = "Tell me a short story about a fox.";
        opt.seed = 1;
        opt.settled_steps = 1;
        opt.on_step = stop_at;
        opt.step_user = &left;
        dgemma_engine_count(e, &before);
        record_listen(record_submit(e, &opt), &rec);
        ck_assert_int_eq(rec.stats.end, DGEMMA_END_CANCELLED);
        assert_counted(e, &before, &rec.stats);
        n_cut += rec.stats.n_output > 0;
        record_clear(&rec);
    }
    ck_assert_int_gt(n_cut, 0);
    dgemma_engine_close(e);
}
END_TEST

/* Whether an engine with so much for keys and values takes the request. */
static bool takes(size_t kv_bytes, const dgemma_request_options *opt)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    eo.model_path = model_path;
    eo.kv_bytes = kv_bytes;
    bool taken = !dgemma_engine_open(&e, &eo, &err) && !dgemma_request_submit(&r, e, opt, &err);
    dgemma_request_free(r);
    dgemma_engine_close(e);
    return taken;
}

/* Keys and values lie in pages: what a request needs at least is a whole number of them, and with
 * just that much it is taken. */
START_TEST(what_just_fits_is_taken)
{
    dgemma_engine *e = open_for(1);
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static int32_t prompt[1000];
    opt.tokens = prompt;
    opt.n_tokens = 1000;
    opt.max_tokens = 20;
    dgemma_engine_close(e);
    size_t refused = 0, taken = info.kv_bytes_full;
    ck_assert(takes(taken, &opt));
    while (taken - refused > 1) {
        size_t middle = refused + (taken - refused) / 2;
        *(takes(middle, &opt) ? &taken : &refused) = middle;
    }
    ck_assert_uint_gt(taken, info.kv_bytes_full / 100);
    ck_assert_uint_eq(taken % 256, 0);
}
END_TEST

Suite *admission_suite(void)
{
    Suite *s = suite_create("admission");
    TCase *t = tcase_create("admission");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, pictures_do_not_hold_up_canvases);
    tcase_add_test(t, cancelling_does_not_wait_for_pictures);
    tcase_add_test(t, the_tower_is_used_in_turns);
    tcase_add_test(t, a_newcomer_is_not_first_at_the_tower);
    tcase_add_test(t, known_pictures_take_no_memory);
    tcase_add_test(t, memory_is_set_aside_first);
    tcase_add_test(t, features_of_pictures_are_bounded);
    tcase_add_test(t, features_of_one_are_not_bounded);
    tcase_add_test(t, rows_of_a_pass);
    tcase_add_test(t, options_of_scheduling_are_checked);
    tcase_add_test(t, counters_agree_with_answers);
    tcase_add_test(t, turns_are_sorted_by_how_long_they_take);
    tcase_add_test(t, what_was_sent_of_a_block_counts);
    tcase_add_test(t, what_just_fits_is_taken);
    suite_add_tcase(s, t);
    return s;
}
