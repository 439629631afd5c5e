/* Many requests at once: what each says does not depend on its company, and nobody waits for ever.
 * Who is let in, and the tower: test_admission.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "dgemma.h"
#include "cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/prompt.h"
#include "engine/request.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static const char picture_path[] = "tests/fixtures/golden/vision/image.png";

static dgemma_engine *open_for(int max_running)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.max_running = max_running;
    return record_engine(opt);
}

/* ---- all kinds of requests ---- */

enum { N_KIND = 12 };

static const char *const texts[] = {
    "How are you?", "Tell me about the sea and the wind, and what the sailors sing.", "x"};
static int32_t long_prompt[1500];
static const dgemma_media picture = {.path = picture_path};

/* Request number i: prompts of one to several passes, pictures, thinking, short and long answers,
 * canvases of several lengths, drafts or not. */
static dgemma_request_options kind(const dgemma_engine *e, int i)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.seed = (uint64_t)i * 7 + 1;
    opt.max_tokens = 10 + 9 * (i % 5);
    opt.drafts = i % 3 == 0;
    opt.canvas_length = i % 4 == 1 ? 5 : 16;
    opt.max_denoise_steps = 6 + i % 7;
    if (i % 6 == 2) {
        opt.tokens = long_prompt;
        opt.n_tokens = (size_t)(300 + 100 * i);
        return opt;
    }
    opt.chat_prompt = texts[i % 3];
    opt.thinking = i % 5 == 4;
    if (i % 4 == 3) {
        opt.media = &picture;
        opt.n_media = 1;
        opt.image_tokens = i % 8 == 3 ? 280 : 70;
    }
    return opt;
}

/* Each by itself, in an engine that runs one at a time. */
static void record_alone(record *alone, int n)
{
    for (int i = 0; i < (int)DG_COUNT(long_prompt); i++)
        long_prompt[i] = 20 + i * 7 % 300;
    dgemma_engine_options one_by_one = dg_test_engine_defaults();
    one_by_one.max_running = 1;
    one_by_one.no_prefix_cache = true;
    dgemma_engine *e = record_engine(one_by_one);
    for (int i = 0; i < n; i++) {
        dgemma_request_options opt = kind(e, i);
        record_listen(record_submit(e, &opt), &alone[i]);
        ck_assert_int_ge(alone[i].stats.n_steps, 1);
    }
    dgemma_engine_close(e);
}

START_TEST(company_changes_nothing)
{
    static record alone[N_KIND], together;
    record_alone(alone, N_KIND);
    static const int running[] = {16, 3};
    for (size_t k = 0; k < DG_COUNT(running); k++) {
        dgemma_engine *e = open_for(running[k]);
        dgemma_request *r[N_KIND];
        for (int i = 0; i < N_KIND; i++) {
            dgemma_request_options opt = kind(e, i);
            r[i] = record_submit(e, &opt);
        }
        for (int i = 0; i < N_KIND; i++) {
            record_listen(r[i], &together);
            record_assert_same(&alone[i], &together, "together", i);
            record_clear(&together);
        }
        dgemma_engine_counters c;
        dgemma_engine_count(e, &c);
        ck_assert_uint_eq(c.n_requests, N_KIND);
        ck_assert_uint_lt(c.n_passes, c.n_steps); /* they did share passes */
        dgemma_engine_close(e);
    }
    for (int i = 0; i < N_KIND; i++)
        record_clear(&alone[i]);
}
END_TEST

/* ---- where the images of a prompt see each other both ways ---- */

/* Of such a picture nothing may be cut, so what it needs of a pass may be more than prompts have.
 */
static const char both_ways_path[] = "tests/fixtures/golden/vision_generate/model";
enum { IMAGE_TOKEN = 380 };

static dgemma_engine *open_both_ways(int max_running, bool prefix_cache)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = both_ways_path;
    opt.max_running = max_running;
    opt.no_prefix_cache = !prefix_cache;
    return record_engine(opt);
}

/* Text, one picture, two pictures, long texts with pictures between them; from a few passes to
 * many. The model has no tokenizer. */
static dgemma_request_options both_ways_kind(const dgemma_engine *e, int i)
{
    static int32_t prompts[N_KIND][1200];
    static dgemma_media media[N_KIND][4];
    static const int soft[] = {280, 400, 70, 700};
    int32_t *ids = prompts[i];
    dgemma_request_options opt = dgemma_request_defaults(e);
    int n = i % 4 == 3 ? 600 : 4 + i;
    for (int k = 0; k < n; k++)
        ids[k] = 20 + (k * 7 + i) % 300;
    opt.n_media = i % 3 == 0 ? 0 : i % 3 == 1 ? 2 : (size_t)(1 + i % 4);
    for (size_t k = 0; k < opt.n_media; k++) {
        media[i][k] = (dgemma_media){.path = picture_path,
                                     .max_soft_tokens = soft[(k + (size_t)i) % DG_COUNT(soft)]};
        ids[(k + 1) * (size_t)n / (opt.n_media + 1)] = IMAGE_TOKEN;
    }
    opt.tokens = ids;
    opt.n_tokens = (size_t)n;
    opt.media = media[i];
    opt.seed = (uint64_t)i * 5 + 1;
    opt.max_tokens = 10 + 9 * (i % 5);
    opt.max_denoise_steps = 6 + i % 7;
    opt.drafts = i % 3 == 0;
    return opt;
}

START_TEST(company_changes_nothing_where_images_see_both_ways)
{
    static record alone[N_KIND], together;
    dgemma_engine *e = open_both_ways(1, false);
    for (int i = 0; i < N_KIND; i++) {
        dgemma_request_options opt = both_ways_kind(e, i);
        record_listen(record_submit(e, &opt), &alone[i]);
        ck_assert_int_ge(alone[i].stats.n_steps, 1);
    }
    dgemma_engine_close(e);
    static const int running[] = {16, 3};
    for (int k = 0; k < 4; k++) {
        dgemma_request *r[N_KIND];
        e = open_both_ways(running[k / 2], k % 2);
        for (int i = 0; i < N_KIND; i++) {
            dgemma_request_options opt = both_ways_kind(e, i);
            r[i] = record_submit(e, &opt);
        }
        for (int i = 0; i < N_KIND; i++) {
            record_listen(r[i], &together);
            record_assert_same(&alone[i], &together, "together", i);
            record_clear(&together);
        }
        dgemma_engine_close(e);
    }
    for (int i = 0; i < N_KIND; i++)
        record_clear(&alone[i]);
}
END_TEST

/* A host brings, all at once on the engine's thread, one with two pictures that are longer than the
 * prompts' room, and behind it a text that is in its first block by the time they were seen. */
typedef struct neighbours {
    dgemma_engine *engine;
    dgemma_request *pictures, *text;
} neighbours;

static bool bring_neighbours(void *user, const dgemma_step *step)
{
    static const int32_t pictures[] = {2, IMAGE_TOKEN, IMAGE_TOKEN, 40}, text[] = {2, 30, 31};
    neighbours *n = user;
    (void)step;
    dgemma_media two[2] = {{.path = picture_path, .max_soft_tokens = 400},
                           {.path = picture_path, .max_soft_tokens = 500}};
    dgemma_request_options opt = dgemma_request_defaults(n->engine);
    opt.tokens = pictures;
    opt.n_tokens = DG_COUNT(pictures);
    opt.media = two;
    opt.n_media = 2;
    opt.max_tokens = 16;
    n->pictures = record_submit(n->engine, &opt);
    opt.tokens = text;
    opt.n_tokens = DG_COUNT(text);
    opt.n_media = 0;
    opt.max_denoise_steps = 40;
    opt.confidence_threshold = 0; /* it takes all of them */
    n->text = record_submit(n->engine, &opt);
    return false;
}

START_TEST(two_pictures_beside_a_text)
{
    static const int32_t prompt[] = {2};
    static record host, text, pictures;
    neighbours n = {.engine = open_both_ways(3, true)};
    dgemma_request_options opt = dgemma_request_defaults(n.engine);
    opt.tokens = prompt;
    opt.n_tokens = DG_COUNT(prompt);
    opt.on_step = bring_neighbours;
    opt.step_user = &n;
    record_listen(record_submit(n.engine, &opt), &host);
    record_listen(n.text, &text);
    record_listen(n.pictures, &pictures);
    ck_assert_int_ne(text.stats.end, DGEMMA_END_FAILED);
    ck_assert_int_ge(text.stats.n_steps, 40);
    ck_assert_int_ne(pictures.stats.end, DGEMMA_END_FAILED);
    ck_assert_int_eq(pictures.stats.n_pictures_encoded, 2);
    ck_assert_int_ge(pictures.stats.n_steps, 1);
    record_clear(&host);
    record_clear(&text);
    record_clear(&pictures);
    dgemma_engine_close(n.engine);
}
END_TEST

/* ---- arrivals and cancellations at random ---- */

typedef struct visitor {
    dgemma_engine *engine;
    const record *alone;
    unsigned seed;
    int n_equal, n_cancelled;
} visitor;

static void nap(double seconds)
{
    nanosleep(&(struct timespec){0, (long)(seconds * 1e9)}, NULL);
}

static void *visit(void *arg)
{
    visitor *v = arg;
    dg_rng_key key = {.seed = v->seed};
    for (uint32_t i = 0; i < 10; i++) {
        int which = (int)(dg_rng_uniform(&key, 3 * i) * N_KIND);
        double wait = dg_rng_uniform(&key, 3 * i + 1), give_up = dg_rng_uniform(&key, 3 * i + 2);
        dgemma_request_options opt = kind(v->engine, which);
        nap(0.01 * wait);
        dgemma_request *r = record_submit(v->engine, &opt);
        if (give_up < 0.3) {
            nap(0.03 * give_up);
            dgemma_request_cancel(r);
        }
        static _Thread_local record rec;
        record_listen(r, &rec);
        const record *want = &v->alone[which];
        if (rec.stats.end == DGEMMA_END_CANCELLED) { /* it said the beginning of what it would */
            v->n_cancelled++;
            ck_assert_uint_le(rec.before_end, want->before_end);
            ck_assert(!rec.before_end ||
                      memcmp(rec.bytes.data, want->bytes.data, rec.before_end) == 0);
        } else {
            v->n_equal++;
            record_assert_same(want, &rec, "at random", which);
        }
        record_clear(&rec);
    }
    return NULL;
}

START_TEST(random_arrivals_and_cancellations)
{
    enum { N_THREAD = 6 };
    static record alone[N_KIND];
    record_alone(alone, N_KIND);
    dgemma_engine *e = open_for(4);
    visitor v[N_THREAD];
    pthread_t t[N_THREAD];
    int n_equal = 0;
    for (int i = 0; i < N_THREAD; i++) {
        v[i] = (visitor){.engine = e, .alone = alone, .seed = (unsigned)i + 1};
        ck_assert_int_eq(pthread_create(&t[i], NULL, visit, &v[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++) {
        pthread_join(t[i], NULL);
        n_equal += v[i].n_equal;
    }
    ck_assert_int_gt(n_equal, 20);
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_int_eq(c.n_running + c.n_waiting, 0);
    ck_assert_uint_eq(c.n_requests, N_THREAD * 10);
    uint64_t ended = 0;
    for (size_t i = 0; i < DG_COUNT(c.n_ended); i++)
        ended += c.n_ended[i];
    ck_assert_uint_eq(ended, c.n_requests);
    dgemma_engine_close(e);
    for (int i = 0; i < N_KIND; i++)
        record_clear(&alone[i]);
}
END_TEST

/* More canvases than a pass has rows for: all come to their turn. */
START_TEST(more_canvases_than_rows)
{
    enum { N = 220 };
    static dgemma_request *r[N];
    static record alone, one;
    dgemma_engine *e = open_for(N);
    dgemma_request_options opt = dgemma_request_defaults(e);
    ck_assert_int_gt(N * opt.canvas_length, DG_CPU_CANVAS_ROWS + DG_CPU_PROMPT_ROWS);
    opt.chat_prompt = "x";
    opt.max_tokens = 16;
    opt.max_denoise_steps = 4;
    record_listen(record_submit(e, &opt), &alone);
    for (int i = 0; i < N; i++)
        r[i] = record_submit(e, &opt);
    for (int i = 0; i < N; i++) {
        record_listen(r[i], &one);
        record_assert_same(&alone, &one, "in a crowd", i);
        record_clear(&one);
    }
    record_clear(&alone);
    dgemma_engine_close(e);
}
END_TEST

/* Of many that never end and do not fit into a pass together, none gets two steps ahead of another.
 * A host brings them all at once. */
enum { N_RIVAL = 200, RIVAL_STEPS = 12 };
typedef struct rivalry rivalry;
typedef struct rival {
    rivalry *all;
    dgemma_request *request;
    int n_step;
} rival;
struct rivalry {
    dgemma_engine *engine;
    rival rival[N_RIVAL];
    bool there, unfair;
    atomic_bool over;
};

static bool rival_steps(void *user, const dgemma_step *step)
{
    rival *r = user;
    int least = r->n_step++, n_behind = 0;
    (void)step;
    for (int i = 0; i < N_RIVAL; i++) {
        least = dg_min(least, r->all->rival[i].n_step);
        n_behind += r->all->rival[i].n_step < RIVAL_STEPS;
    }
    r->all->unfair = r->all->unfair || r->n_step - least > 2;
    if (!n_behind || r->all->unfair)
        r->all->over = true;
    return true;
}

static bool bring_rivals(void *user, const dgemma_step *step)
{
    rivalry *all = user;
    (void)step;
    if (all->there)
        return false;
    all->there = true;
    for (int i = 0; i < N_RIVAL; i++) {
        dgemma_request_options opt = record_endless(all->engine);
        all->rival[i].all = all;
        opt.on_step = rival_steps;
        opt.step_user = &all->rival[i];
        all->rival[i].request = record_submit(all->engine, &opt);
    }
    return true;
}

START_TEST(steps_are_taken_in_turns)
{
    static rivalry all;
    static record rec;
    all.engine = open_for(N_RIVAL + 1);
    dgemma_request_options opt = record_endless(all.engine);
    ck_assert_int_gt(N_RIVAL * opt.canvas_length, DG_CPU_CANVAS_ROWS + DG_CPU_PROMPT_ROWS);
    opt.on_step = bring_rivals;
    opt.step_user = &all;
    record_listen(record_submit(all.engine, &opt), &rec);
    record_clear(&rec);
    for (int i = 0; i < 60000 && !all.over; i++)
        nap(0.001);
    ck_assert(all.over && !all.unfair);
    for (int i = 0; i < N_RIVAL; i++)
        dgemma_request_free(all.rival[i].request);
    dgemma_engine_close(all.engine);
}
END_TEST

/* ---- requests that fail ---- */

/* One whose logits overflow; past the checks of the public call, which refuses it. */
static dgemma_request *submit_broken(dgemma_engine *e, int n_prompt)
{
    static const int32_t zeros[2 * DG_CPU_PROMPT_ROWS];
    dgemma_request *r = dg_calloc(1, sizeof *r);
    atomic_init(&r->n_holder, 1);
    ck_assert_int_eq(dg_stream_create(&r->stream, NULL), DGEMMA_OK);
    dgemma_request_options opt = {.tokens = zeros, .n_tokens = (size_t)n_prompt};
    ck_assert_int_eq(dg_prompt_build(&r->prompt, e, &opt, n_prompt, NULL), DGEMMA_OK);
    r->cfg = (dg_block_loop_config){
        .prompt = r->prompt->tokens.ids,
        .n_prompt = n_prompt,
        .diffusion = {4, 1e-38f, 1e-38f, 0.1f, 1, 0.005f, 0},
        .canvas_length = 16,
        .max_tokens = 16,
        .n_context = e->n_context,
        .draws = dg_draws_seeded(1, e->loaded.cfg.n_vocab),
        .think_open = -1,
        .think_close = -1,
        .think_newline = -1,
        .think_budget = -1,
    };
    dgemma_error err = {0};
    ck_assert_msg(dg_scheduler_submit(e->scheduler, r, &err) == DGEMMA_OK, "%s", err.msg);
    return r;
}

START_TEST(one_that_fails_fails_alone)
{
    enum { N = 6 };
    static record alone[N_KIND], one;
    record_alone(alone, N);
    dgemma_engine *e = open_for(2 * N);
    dgemma_request *broken[N], *good[N];
    for (int i = 0; i < N; i++) {
        dgemma_request_options opt = kind(e, i);
        good[i] = record_submit(e, &opt);
        broken[i] = submit_broken(e, 4);
    }
    for (int i = 0; i < N; i++) {
        record_listen(good[i], &one);
        record_assert_same(&alone[i], &one, "beside one that fails", i);
        record_clear(&one);
        record_clear(&alone[i]);
    }
    for (int i = 0; i < N; i++) {
        dgemma_event event;
        while (dgemma_request_wait(broken[i], &event, -1) && event.kind != DGEMMA_EVENT_END)
            ;
        ck_assert_int_eq(event.status, DGEMMA_E_INTERNAL);
        ck_assert_ptr_nonnull(strstr(event.text, "not a number (row 0)"));
        ck_assert_ptr_nonnull(strstr(event.text, "block 0, step 0"));
        dgemma_request_free(broken[i]);
    }
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_uint_eq(c.n_ended[DGEMMA_END_FAILED], N);
    dgemma_engine_close(e);
}
END_TEST

/* Nothing of what it encoded before it failed is found by another. */
START_TEST(one_that_fails_leaves_nothing)
{
    enum { N = DG_CPU_PROMPT_ROWS + 10 };
    static const int32_t prompt[N];
    static record rec;
    dgemma_engine *e = open_for(1);
    dgemma_request_options opt = dgemma_request_defaults(e);
    record_listen(submit_broken(e, N), &rec);
    ck_assert_int_eq(rec.stats.end, DGEMMA_END_FAILED);
    record_clear(&rec);
    opt.tokens = prompt;
    opt.n_tokens = N;
    opt.max_tokens = 1;
    opt.max_denoise_steps = 1;
    record_listen(record_submit(e, &opt), &rec);
    ck_assert_int_eq(rec.stats.n_prompt_cached, 0);
    record_clear(&rec);
    dgemma_engine_close(e);
}
END_TEST

/* ---- fairness ---- */

START_TEST(a_long_prompt_does_not_hold_up_canvases)
{
    static int32_t prompt[3600];
    for (int i = 0; i < 3600; i++)
        prompt[i] = i % 300;
    dgemma_engine *e = open_for(8);
    dgemma_request_options opt = record_endless(e);
    dgemma_request *canvas = record_submit(e, &opt);
    dgemma_event event;
    ck_assert(dgemma_request_wait(canvas, &event, 60)); /* its prompt is in, it denoises */
    opt = dgemma_request_defaults(e);
    opt.tokens = prompt;
    opt.n_tokens = 3600;
    opt.max_tokens = 1;
    dgemma_request *slow = record_submit(e, &opt);
    int done = 0;
    while (dgemma_request_wait(slow, &event, 60) && event.kind == DGEMMA_EVENT_PROMPT) {
        ck_assert_int_le(event.n_done - done, DG_MIN_PROMPT_ROWS);
        done = event.n_done;
    }
    ck_assert_int_eq(done, 3600);
    dgemma_request_free(slow);
    dgemma_request_free(canvas);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(prompts_share_a_pass)
{
    static int32_t prompt[3600];
    for (int i = 0; i < 3600; i++)
        prompt[i] = i % 300;
    dgemma_engine *e = open_for(8);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_request *slow[3];
    dgemma_event event;
    opt.tokens = prompt;
    opt.n_tokens = 3600;
    for (int i = 0; i < 3; i++) {
        prompt[0] = i ? 21 : 20; /* the third begins like the second, and waits for it */
        slow[i] = record_submit(e, &opt);
    }
    opt.n_tokens = 40;
    opt.max_tokens = 4;
    opt.max_denoise_steps = 4;
    static record quick;
    record_listen(record_submit(e, &opt),
                  &quick); /* behind three long ones, and done before them */
    for (int i = 0; i < 3; i++) {
        int done = 0;
        while (dgemma_request_wait(slow[i], &event, 0) && event.kind == DGEMMA_EVENT_PROMPT)
            done = event.n_done;
        ck_assert_int_lt(done, 3600);
        dgemma_request_free(slow[i]);
    }
    record_clear(&quick);
    dgemma_engine_close(e);
}
END_TEST

/* A request that denoises for ever and brings, all at once on the engine's thread, a long prompt,
 * many that begin like it and so wait for it, and behind them a short one. */
enum { N_COPY = 200, N_LONG = 3600 };
typedef struct crowd {
    dgemma_engine *engine;
    int32_t prompt[N_LONG];
    dgemma_request *first, *copy[N_COPY], *quick;
    int n_step, first_steps_at, quick_steps_at; /* counted in steps of the host's */
    atomic_bool over;
} crowd;

static bool first_steps(void *user, const dgemma_step *step)
{
    crowd *c = user;
    (void)step;
    c->first_steps_at = c->n_step;
    c->over = true;
    return false;
}

static bool quick_steps(void *user, const dgemma_step *step)
{
    crowd *c = user;
    (void)step;
    c->quick_steps_at = c->n_step;
    return false;
}

static bool bring_crowd(void *user, const dgemma_step *step)
{
    crowd *c = user;
    (void)step;
    if (c->n_step++)
        return true;
    dgemma_request_options opt = dgemma_request_defaults(c->engine);
    opt.tokens = c->prompt;
    opt.n_tokens = N_LONG;
    opt.on_step = first_steps;
    opt.step_user = c;
    c->first = record_submit(c->engine, &opt);
    opt.on_step = NULL;
    for (int i = 0; i < N_COPY; i++)
        c->copy[i] = record_submit(c->engine, &opt);
    opt.on_step = quick_steps;
    opt.tokens = c->prompt + 1;
    opt.n_tokens = 20;
    c->quick = record_submit(c->engine, &opt);
    return true;
}

START_TEST(many_that_wait_hold_up_nobody)
{
    static crowd c;
    c.engine = open_for(4);
    for (int i = 0; i < N_LONG; i++)
        c.prompt[i] = 20 + i * 7 % 300;
    dgemma_request_options opt = record_endless(c.engine);
    opt.on_step = bring_crowd;
    opt.step_user = &c;
    dgemma_request *host = record_submit(c.engine, &opt);
    while (!c.over)
        nap(0.001);
    ck_assert_int_gt(c.quick_steps_at, 0);
    ck_assert_int_lt(c.quick_steps_at, c.first_steps_at);
    for (int i = 0; i < N_COPY; i++)
        dgemma_request_free(c.copy[i]);
    dgemma_request_free(c.first);
    dgemma_request_free(c.quick);
    dgemma_request_free(host);
    dgemma_engine_close(c.engine);
}
END_TEST

Suite *scheduler_suite(void)
{
    Suite *s = suite_create("scheduler");
    TCase *t = tcase_create("scheduler");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, company_changes_nothing);
    tcase_add_test(t, company_changes_nothing_where_images_see_both_ways);
    tcase_add_test(t, two_pictures_beside_a_text);
    tcase_add_test(t, steps_are_taken_in_turns);
    tcase_add_test(t, random_arrivals_and_cancellations);
    tcase_add_test(t, more_canvases_than_rows);
    tcase_add_test(t, one_that_fails_fails_alone);
    tcase_add_test(t, one_that_fails_leaves_nothing);
    tcase_add_test(t, a_long_prompt_does_not_hold_up_canvases);
    tcase_add_test(t, prompts_share_a_pass);
    tcase_add_test(t, many_that_wait_hold_up_nobody);
    suite_add_tcase(s, t);
    return s;
}
