/* The settled beginning of a canvas: what is pinned stays, and nothing else changes. */
#include <string.h>
#include "base/rng.h"
#include "diffusion/canvas.h"
#include "diffusion/sampler.h"
#include "suites.h"

START_TEST(a_beginning_settles_from_the_front)
{
    enum { N = 5 };
    int32_t token[N] = {0};
    int run[N];
    dg_settle s = {.token = token, .run = run};
    dg_settle_begin(&s, N);
    const int32_t a[N] = {1, 2, 3, 4, 5}, b[N] = {1, 2, 9, 4, 5};
    const float sure[N] = {0, 0, 0, 0, 0}, doubt[N] = {0, 0.5f, 0, 0, 0};
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 3, 0.5f), 0);
    ck_assert_int_eq(dg_settle_push(&s, a, doubt, N, 3, 0.5f), 0); /* strictly below */
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 3, 0.5f),
                     1); /* the rest waits for the second */
    ck_assert_int_eq(dg_settle_push(&s, b, sure, N, 3, 0.5f), 1); /* the third has changed */
    ck_assert_int_eq(dg_settle_push(&s, b, sure, N, 3, 0.5f), 2);
    ck_assert_int_eq(dg_settle_push(&s, b, sure, N, 3, 0.5f), N);
    int32_t canvas[N] = {0};
    dg_settle_hold(&s, canvas);
    ck_assert_mem_eq(canvas, b, sizeof b);
    dg_settle_begin(&s, N);
    ck_assert_int_eq(s.n, 0);
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 1, 0.5f),
                     N); /* one step is enough when asked */
    ck_assert_int_eq(dg_settle_push(&s, b, sure, N, 1, 0.5f), N);
    ck_assert_mem_eq(token, a, sizeof a); /* pinned */

    /* a new canvas counts from nothing, whatever was counted before */
    dg_settle_begin(&s, N);
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 3, 0.5f), 0);
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 3, 0.5f), 0);
    dg_settle_begin(&s, N);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(run[i], 0);
    ck_assert_int_eq(dg_settle_push(&s, a, sure, N, 3, 0.5f), 0);
}
END_TEST

/* A model that changes its mind: `calm` is how seldom, in 256ths. */
static void invent(dg_canvas *c, const dg_rng_key *key, uint32_t calm)
{
    for (int i = 0; i < c->n; i++) {
        uint32_t at = (uint32_t)i * 4;
        bool keep = c->step && dg_rng_below(key, at, 256) < calm;
        c->argmax[i] = keep ? c->argmax[i] : (int32_t)dg_rng_below(key, at + 1, 7);
        c->drawn[i] = (int32_t)dg_rng_below(key, at + 2, 7);
        c->entropy[i] = (float)dg_rng_uniform(key, at + 3) * (dg_rng_below(key, at, 3) ? 1 : 0.01f);
    }
}

/* Thousands of random canvases: what was read of a block is what the block says in the end. */
START_TEST(nothing_is_taken_back)
{
    enum { N_CANVAS = 4000, MOST = 24 };
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, MOST, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(3, 7);
    int n_early = 0, n_whole = 0;
    for (uint32_t k = 0; k < N_CANVAS; k++) {
        dg_rng_key shape = {.seed = 11, .block = k};
        dg_diffusion_options opt = {.max_steps = 1 + (int)dg_rng_below(&shape, 0, 30),
                                    .t_min = 0.4f,
                                    .t_max = 0.8f,
                                    .entropy_bound = 0.2f,
                                    .stability = 1,
                                    .confidence = (float)dg_rng_uniform(&shape, 1) * 1.2f,
                                    .settled_steps = 1 + (int)dg_rng_below(&shape, 2, 4)};
        dg_canvas_begin(&c, &opt, &draws, (int)k, 1 + (int)dg_rng_below(&shape, 3, MOST));
        int32_t read[MOST];
        int n_read = 0;
        uint32_t calm = dg_rng_below(&shape, 4, 257);
        while (!c.finished) {
            dg_rng_key key = {.seed = 12, .block = k, .step = (uint32_t)c.step};
            invent(&c, &key, calm);
            dg_canvas_advance(&c, &draws);
            ck_assert_int_ge(c.settle.n, n_read); /* never falls */
            for (; n_read < c.settle.n; n_read++)
                read[n_read] = c.argmax[n_read];
            if (n_read) {
                ck_assert_mem_eq(c.argmax, read, (size_t)n_read * sizeof *read);
                ck_assert_mem_eq(c.token, read, (size_t)n_read * sizeof *read);
            }
            for (int i = 0; i < n_read; i++)
                ck_assert(c.accepted[i]);
        }
        n_early += n_read > 0 && n_read < c.n;
        n_whole += n_read == c.n;
        ck_assert(n_read < c.n || c.converged);
    }
    ck_assert_int_gt(n_early, 100); /* both happen */
    ck_assert_int_gt(n_whole, 100);
    dg_canvas_clear(&c);
}
END_TEST

static dg_diffusion_options random_options(const dg_rng_key *key)
{
    return (dg_diffusion_options){.max_steps = 1 + (int)dg_rng_below(key, 0, 12),
                                  .t_min = 0.4f,
                                  .t_max = 0.8f,
                                  .entropy_bound = (float)dg_rng_uniform(key, 1) * 2,
                                  .stability = (int)dg_rng_below(key, 2, 4),
                                  .confidence = (float)dg_rng_uniform(key, 3) * 1.2f,
                                  .settled_steps = (int)dg_rng_below(key, 4, 4)};
}

/* The parts put together by hand: every canvas goes by its own options, whatever the one before it
 * had, and each of them decides what it should. */
START_TEST(a_canvas_goes_by_its_options)
{
    enum { N_CANVAS = 2000, MOST = 12 };
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, MOST, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(3, 7);
    int32_t token[MOST] = {0}, previous[MOST] = {0};
    int run[MOST], order[2 * MOST], n_stable = 0, n_pinned = 0, n_cut = 0;
    uint8_t accepted[MOST];
    dg_settle settle = {.token = token, .run = run};
    for (uint32_t k = 0; k < N_CANVAS; k++) {
        dg_rng_key shape = {.seed = 13, .block = k};
        dg_diffusion_options opt = random_options(&shape);
        dg_stability stability = {0};
        int n = 1 + (int)dg_rng_below(&shape, 5, MOST), step = 0;
        dg_canvas_begin(&c, &opt, &draws, (int)k, n);
        dg_settle_begin(&settle, n);
        ck_assert(!c.converged && !c.finished && !c.step);
        while (!c.finished) {
            dg_rng_key key = {.seed = 14, .block = k, .step = (uint32_t)step++};
            invent(&c, &key, 230);
            dg_settle_hold(&settle, c.argmax);
            dg_sampler_accept(accepted, order, c.entropy, n, opt.entropy_bound);
            dg_stability_push(&stability, c.argmax, previous, n);
            memcpy(previous, c.argmax, (size_t)n * sizeof *previous);
            bool stable = dg_stopping_reached(&stability, opt.stability,
                                              dg_mean_entropy(c.entropy, NULL, n), opt.confidence);
            if (opt.settled_steps)
                dg_settle_push(&settle, c.argmax, c.entropy, n, opt.settled_steps, opt.confidence);
            dg_canvas_advance(&c, &draws);
            ck_assert_int_eq(c.settle.n, settle.n);
            for (int i = 0; i < n; i++)
                ck_assert_int_eq(c.accepted[i], i < settle.n || accepted[i]);
            ck_assert_int_eq(c.converged, stable || settle.n == n);
            ck_assert_int_eq(c.finished, c.converged || step == opt.max_steps);
            n_stable += stable && settle.n < n;
            n_pinned += !stable && settle.n == n;
            n_cut += c.finished && !c.converged;
        }
    }
    ck_assert_int_gt(n_stable, 100); /* each way to end */
    ck_assert_int_gt(n_pinned, 20);
    ck_assert_int_gt(n_cut, 100);
    dg_canvas_clear(&c);
}
END_TEST

/* Off, a canvas knows nothing of it. */
START_TEST(off_by_default)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 8, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(3, 1000);
    dg_diffusion_options opt = {.max_steps = 6,
                                .t_min = 0.4f,
                                .t_max = 0.8f,
                                .entropy_bound = 0.1f,
                                .stability = 9,
                                .confidence = 1};
    dg_canvas_begin(&c, &opt, &draws, 0, 8);
    while (!c.finished) {
        for (int i = 0; i < 8; i++) {
            c.argmax[i] = c.drawn[i] = i < 4 ? 5 : c.step;
            c.entropy[i] = 0;
        }
        dg_canvas_advance(&c, &draws);
        ck_assert_int_eq(c.settle.n, 0);
    }
    ck_assert_int_eq(c.step, 6);
    ck_assert(!c.converged);
    dg_canvas_clear(&c);
}
END_TEST

Suite *settle_suite(void)
{
    Suite *s = suite_create("settle");
    TCase *t = tcase_create("settle");
    tcase_add_test(t, a_beginning_settles_from_the_front);
    tcase_add_test(t, nothing_is_taken_back);
    tcase_add_test(t, a_canvas_goes_by_its_options);
    tcase_add_test(t, off_by_default);
    suite_add_tcase(s, t);
    return s;
}
