/* Schedule, acceptance, stopping, canvas: pure functions on small arrays. */
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "diffusion/canvas.h"
#include "diffusion/sampler.h"
#include "suites.h"

static const dg_diffusion_options real = {48, 0.4f, 0.8f, 0.1f, 1, 0.005f, 0};

START_TEST(temperature_falls_from_t_max)
{
    ck_assert_float_eq_tol(dg_schedule_temperature(&real, 48), 0.8f, 1e-7f);
    ck_assert_float_eq_tol(dg_schedule_temperature(&real, 24), 0.6f, 1e-7f);
    ck_assert_float_eq_tol(dg_schedule_temperature(&real, 1), 0.4083333f, 1e-6f);
}
END_TEST

/* Entropy of a softmax over n words whose logits are 0 but for one. */
static float peaked(int n, double logit)
{
    double z = exp(logit) + n - 1;
    return (float)(log(z) - logit * exp(logit) / z);
}

START_TEST(acceptance_bounds_the_sum_of_better_ones)
{
    float sure = peaked(10000, 18), fair = peaked(10000, 14.5), flat = peaked(10000, 0);
    ck_assert_float_eq_tol(sure, 2.9e-3f, 1e-4f);
    ck_assert_float_eq_tol(fair, 7.8e-2f, 1e-3f);
    float h[16];
    for (int i = 0; i < 16; i++)
        h[i] = flat;
    h[3] = sure;
    h[7] = h[12] = fair;
    uint8_t accepted[16];
    int order[32];
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0.01f), 2);
    ck_assert(accepted[3] && accepted[7] &&
              !accepted[12]); /* equal entropies: the lower position first */
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0.1f), 3);
    ck_assert(accepted[3] && accepted[7] && accepted[12]);
}
END_TEST

START_TEST(acceptance_takes_the_one_that_crosses_the_bound)
{
    float h[16];
    for (int i = 0; i < 16; i++)
        h[i] = i < 9 ? 0 : 9;
    uint8_t accepted[16];
    int order[32];
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0.1f), 10);
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0), 10);
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h + 9, 1, 0), 1); /* always at least one */
}
END_TEST

/* Whatever its sign, so that the others are not thrown away with it. */
START_TEST(acceptance_puts_no_number_last)
{
    const float h[4] = {-NAN, 0.2f, NAN, -0.0f};
    uint8_t accepted[4];
    int order[8];
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 4, 1), 2);
    ck_assert(!accepted[0] && accepted[1] && !accepted[2] && accepted[3]);
    ck_assert(order[0] == 3 && order[1] == 1);
}
END_TEST

/* The definition, position by position: the sum over all that come before, and it, in double,
 * rounded to float, without it. */
static bool is_accepted(const float *h, int n, int at, float bound)
{
    double sum = 0;
    float last = -1; /* in order of entropy, then of position: as the sum is defined */
    for (int k = 0, from = 0; k < n; k++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            bool later = h[i] > last || (h[i] == last && i >= from);
            if (later && (best < 0 || h[i] < h[best]))
                best = i;
        }
        sum += h[best];
        if (best == at)
            return !((float)sum - h[at] > bound);
        last = h[best];
        from = best + 1;
    }
    return false;
}

START_TEST(acceptance_is_as_defined)
{
    enum { MOST = 40 };
    static const float units[] = {0.01f, 0.1f, 0.3333333f, 1};
    int n_some = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        dg_rng_key key = {.seed = 21, .block = round};
        int n = 1 + (int)dg_rng_below(&key, 0, MOST);
        float unit = units[dg_rng_below(&key, 1, DG_COUNT(units))], h[MOST];
        for (int i = 0; i < n;
             i++) /* multiples: sums fall on the bound, or beside it by rounding */
            h[i] = unit * (float)dg_rng_below(&key, 10 + (uint32_t)i, 8);
        float bound = unit * (float)dg_rng_below(&key, 2, 60);
        uint8_t accepted[MOST];
        int order[2 * MOST], n_want = 0;
        int n_got = dg_sampler_accept(accepted, order, h, n, bound);
        for (int i = 0; i < n; i++) {
            ck_assert_int_eq(accepted[i], is_accepted(h, n, i, bound));
            n_want += accepted[i];
        }
        ck_assert_int_eq(n_got, n_want);
        n_some += n_want > 1 && n_want < n;
    }
    ck_assert_int_gt(n_some, 500);
}
END_TEST

/* The sum is rounded where the reference rounds it: beside a large entropy a small sum is gone. */
START_TEST(acceptance_is_decided_rank_by_rank)
{
    const float h[4] = {1, 1e-9f, 1e-9f, 1e-9f};
    uint8_t accepted[4];
    int order[8];
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 4, 0), 2);
    ck_assert_mem_eq(accepted, ((const uint8_t[4]){1, 1, 0, 0}), sizeof accepted);
}
END_TEST

START_TEST(noise_replaces_what_is_not_accepted)
{
    int32_t canvas[4] = {1, 2, 3, 4};
    const int32_t drawn[4] = {11, 12, 13, 14}, noise[4] = {21, 22, 23, 24};
    dg_sampler_renoise(canvas, (const uint8_t[4]){1, 0, 0, 1}, drawn, noise, 4);
    ck_assert_mem_eq(canvas, ((const int32_t[4]){11, 22, 23, 14}), sizeof canvas);
}
END_TEST

START_TEST(mean_entropy_is_summed_in_double)
{
    const float h[4] = {1, 0x1p-24f, 0x1p-24f, 0};
    ck_assert(dg_mean_entropy(h, NULL, 4) == (1 + 0x1p-23f) / 4);
    ck_assert(dg_mean_entropy(h, NULL, 1) == 1);
}
END_TEST

START_TEST(order_is_sorted_whatever_comes)
{
    enum { N = 257 };
    float h[N];
    uint8_t accepted[N];
    int order[2 * N];
    unsigned state = 1;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) {
            state = state * 1664525u + 1013904223u;
            h[i] = round % 3 == 2 ? (float)state * 1e-9f - 0.5f
                                  : (float)(state >> 24) / (round % 2 ? 256.0f : 8.0f);
        }
        dg_sampler_accept(accepted, order, h, N, 1e9f);
        for (int i = 1; i < N; i++)
            ck_assert(h[order[i - 1]] < h[order[i]] ||
                      (h[order[i - 1]] == h[order[i]] && order[i - 1] < order[i]));
        for (int i = 0; i < N; i++)
            ck_assert(accepted[i]);
    }
}
END_TEST

START_TEST(stability_counts_equal_canvases)
{
    const int32_t a[2] = {1, 2}, b[2] = {1, 3}, c[2] = {2, 3};
    dg_stability s = {0};
    dg_stability_push(&s, a, NULL, 2);
    ck_assert(!dg_stopping_reached(&s, 1, 0, 1));
    ck_assert(dg_stopping_reached(&s, 0, 0, 1)); /* 0: any canvas is stable */
    dg_stability_push(&s, a, a, 2);
    ck_assert(dg_stopping_reached(&s, 1, 0, 1));
    ck_assert(!dg_stopping_reached(&s, 2, 0, 1));
    dg_stability_push(&s, a, a, 2);
    ck_assert(dg_stopping_reached(&s, 2, 0, 1));
    dg_stability_push(&s, b, a, 2);
    ck_assert(!dg_stopping_reached(&s, 1, 0, 1));
    ck_assert(!dg_stopping_reached(&s, 0, 1, 1)); /* strictly below */
    dg_stability_push(&s, c, b, 2);
    ck_assert(!dg_stopping_reached(&s, 1, 0, 1));
}
END_TEST

/* A model that knows the text and is a little surer each step. */
static void pretend(dg_canvas *c, float entropy)
{
    for (int i = 0; i < c->n; i++) {
        c->argmax[i] = 100 + i;
        c->drawn[i] = 100 + i;
        c->entropy[i] = entropy * (float)(i + 1);
    }
}

START_TEST(canvas_settles)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 8, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(5, 1000);
    dg_canvas_begin(&c, &real, &draws, 0, 8);
    int32_t first[8];
    memcpy(first, c.token, sizeof first);
    ck_assert_float_eq_tol(dg_canvas_temperature(&c), 0.8f, 1e-7f);

    pretend(&c, 1); /* unsure: only the best and the one that crosses the bound stay */
    dg_canvas_advance(&c, &draws);
    ck_assert(!c.finished);
    ck_assert_int_eq(c.token[0], 100);
    ck_assert(c.accepted[0] && !c.accepted[7]);
    for (int i = 0; i < 8; i++)
        ck_assert(c.token[i] >= 0 && c.token[i] < 1000);

    pretend(&c, 0); /* sure, and the same as before */
    dg_canvas_advance(&c, &draws);
    ck_assert(c.finished && c.converged);
    ck_assert_int_eq(c.step, 2);
    ck_assert_int_eq(c.argmax[7], 107);
    dg_canvas_clear(&c);
}
END_TEST

/* The same whether its random numbers were made beforehand or not, and however often. */
START_TEST(canvas_is_prepared)
{
    enum { N = 8, STEPS = 4 };
    dg_canvas c[3];
    dg_draws draws = dg_draws_seeded(5, 1000);
    dg_diffusion_options opt = real;
    opt.max_steps = STEPS;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(dg_canvas_init(&c[i], N, NULL), DGEMMA_OK);
        dg_canvas_begin(&c[i], &opt, &draws, 0, N);
        for (int n = 0; n < i; n++)
            dg_canvas_prepare(&c[i], &draws);
        dg_canvas_begin(&c[i], &opt, &draws, 7, N);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 3; i++) {
            for (int n = 0; n < i; n++)
                dg_canvas_prepare(&c[i], &draws);
            pretend(&c[i], 1);
            dg_canvas_advance(&c[i], &draws);
            ck_assert_mem_eq(c[i].token, c[0].token, N * sizeof *c[0].token);
            ck_assert_mem_eq(c[i].uniform, c[0].uniform, N * sizeof *c[0].uniform);
        }
    }
    for (int i = 0; i < 3; i++) {
        ck_assert(c[i].finished);
        dg_canvas_clear(&c[i]);
    }
}
END_TEST

START_TEST(canvas_ends_at_the_cap)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 4, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(5, 1000);
    dg_diffusion_options opt = real;
    opt.max_steps = 3;
    dg_canvas_begin(&c, &opt, &draws, 2, 4);
    for (int i = 0; i < 3; i++) {
        ck_assert(!c.finished);
        pretend(&c, 2);
        dg_canvas_advance(&c, &draws);
    }
    ck_assert(c.finished && !c.converged);
    dg_canvas_clear(&c);
}
END_TEST

/* Draws that say what was asked for: kind, block, step and position, and nothing at random. */
enum { INITIAL = 1, NOISE = 2 };

static int32_t label(int kind, int block, int step, int i)
{
    return kind * 1000000 + block * 10000 + step * 100 + i;
}

static void label_initial(const dg_draws *d, int block, int32_t *ids, int n)
{
    (void)d;
    for (int i = 0; i < n; i++)
        ids[i] = label(INITIAL, block, 0, i);
}

static void label_noise(const dg_draws *d, int block, int step, int32_t *ids, int n)
{
    (void)d;
    for (int i = 0; i < n; i++)
        ids[i] = label(NOISE, block, step, i);
}

static void label_uniform(const dg_draws *d, int block, int step, double *u, int n)
{
    (void)d;
    for (int i = 0; i < n; i++)
        u[i] = label(0, block, step, i);
}

static const dg_draws labels = {
    .initial = label_initial, .noise = label_noise, .uniform = label_uniform};

/* What the model says at a step, so that no two of drawn, arg-max and canvas can be mistaken. */
static void label_outcome(dg_canvas *c, int block, int step)
{
    for (int i = 0; i < c->n; i++) {
        c->argmax[i] = 50 + i + (i == c->n - 1 ? 10 * step : 0); /* the last one never rests */
        c->drawn[i] = label(0, block, step, i);
        c->entropy[i] = i % 2 ? 5 : 0.001f;
    }
}

/* Several blocks in one canvas's memory: each step sees the draws of its own block and step, keeps
 * what was drawn where it was accepted, and has noise of its own everywhere else. */
START_TEST(each_step_has_its_own_draws)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 6, NULL), DGEMMA_OK);
    dg_diffusion_options opt = real;
    opt.max_steps = 4;
    for (int block = 3; block < 6; block++) {
        dg_canvas_begin(&c, &opt, &labels, block, 6);
        for (int i = 0; i < 6; i++)
            ck_assert_int_eq(c.token[i], label(INITIAL, block, 0, i));
        for (int step = 0; step < 4; step++) {
            ck_assert(!c.finished);
            ck_assert_int_eq(c.step, step);
            ck_assert_float_eq_tol(dg_canvas_temperature(&c), 0.8f - 0.1f * (float)step, 1e-6f);
            for (int i = 0; i < 6; i++)
                ck_assert(c.uniform[i] == label(0, block, step, i));
            label_outcome(&c, block, step);
            dg_canvas_advance(&c, &labels);
            for (int i = 0; i < 6; i++) { /* 0, 2, 4 and the first that crosses the bound */
                bool kept = i % 2 == 0 || i == 1;
                ck_assert_int_eq(c.accepted[i], kept);
                ck_assert_int_eq(c.token[i],
                                 kept ? label(0, block, step, i) : label(NOISE, block, step, i));
            }
            ck_assert_float_eq_tol(c.mean_entropy, 2.5005f, 1e-6f);
        }
        ck_assert(c.finished && !c.converged);
    }
    dg_canvas_clear(&c);
}
END_TEST

/* The arg-max decides whether a canvas is stable, not what was drawn; and a canvas that begins with
 * what the one before ended with has still to be seen twice. */
START_TEST(stability_is_the_argmax_s_and_the_block_s)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 4, NULL), DGEMMA_OK);
    for (int block = 0; block < 3; block++) {
        dg_canvas_begin(&c, &real, &labels, block, 4);
        for (int step = 0; step < 2; step++) {
            ck_assert(!c.finished);
            for (int i = 0; i < 4; i++) {
                c.argmax[i] = i;
                c.drawn[i] = label(0, block, step, i);
                c.entropy[i] = 0;
            }
            dg_canvas_advance(&c, &labels);
        }
        ck_assert(c.finished && c.converged);
        ck_assert_int_eq(c.step, 2);
    }
    /* the same draws, another arg-max each time: never stable */
    dg_canvas_begin(&c, &real, &labels, 3, 4);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 4; i++) {
            c.argmax[i] = step;
            c.drawn[i] = 7;
            c.entropy[i] = 0;
        }
        dg_canvas_advance(&c, &labels);
        ck_assert(!c.finished);
    }
    dg_canvas_end(&c);
    ck_assert(c.finished && c.converged);
    dg_canvas_clear(&c);
}
END_TEST

/* The promise that a seed gives the same text everywhere and always: these numbers may not change.
 * First that the three streams are 0, 1 and 2 of the generator, then some as they are. */
START_TEST(seeds_have_known_draws)
{
    dg_draws d = dg_draws_seeded(0x123456789ABCDEFu, 262144);
    int32_t initial[8], noise[8];
    double uniform[8];
    d.initial(&d, 3, initial, 8);
    d.noise(&d, 3, 5, noise, 8);
    d.uniform(&d, 3, 5, uniform, 8);
    dg_rng_key key = {.seed = 0x123456789ABCDEFu, .block = 3};
    dg_rng_key noise_key = {.seed = key.seed, .stream = 1, .block = 3, .step = 5};
    dg_rng_key token_key = {.seed = key.seed, .stream = 2, .block = 3, .step = 5};
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_int_eq(initial[i], (int)dg_rng_below(&key, i, 262144));
        ck_assert_int_eq(noise[i], (int)dg_rng_below(&noise_key, i, 262144));
        ck_assert(uniform[i] == dg_rng_uniform(&token_key, i));
    }
    static const int32_t known_initial[4] = {66982, 186852, 125891, 190517},
                         known_noise[4] = {65319, 26706, 256252, 22630};
    static const double known_uniform[4] = {0x1.800b06ce4e04dp-1, 0x1.4ef081b2d9757p-1,
                                            0x1.4136038f0027cp-3, 0x1.1e207e6f557c0p-1};
    ck_assert_mem_eq(initial, known_initial, sizeof known_initial);
    ck_assert_mem_eq(noise, known_noise, sizeof known_noise);
    ck_assert_mem_eq(uniform, known_uniform, sizeof known_uniform);
}
END_TEST

/* Every word can come, the last one too. */
START_TEST(small_vocabularies_are_used_up)
{
    dg_draws d = dg_draws_seeded(1, 3);
    int32_t ids[64];
    int count[3] = {0};
    d.noise(&d, 0, 0, ids, 64);
    for (int i = 0; i < 64; i++)
        count[ids[i]]++;
    for (int k = 0; k < 3; k++)
        ck_assert_int_gt(count[k], 5);
}
END_TEST

START_TEST(draws_depend_on_the_key_alone)
{
    dg_draws a = dg_draws_seeded(7, 262144), b = dg_draws_seeded(8, 262144);
    int32_t x[64], y[64];
    a.initial(&a, 3, x, 64);
    a.initial(&a, 3, y, 16); /* a shorter canvas has the same beginning */
    ck_assert_mem_eq(x, y, 16 * sizeof *x);
    b.initial(&b, 3, y, 64);
    ck_assert_mem_ne(x, y, sizeof x);
    a.initial(&a, 4, y, 64);
    ck_assert_mem_ne(x, y, sizeof x);
    a.noise(&a, 3, 0, y, 64);
    ck_assert_mem_ne(x, y, sizeof x);
    int32_t most = 0;
    for (int block = 0; block < 200; block++) {
        a.initial(&a, block, x, 64);
        for (int i = 0; i < 64; i++) {
            ck_assert(x[i] >= 0 && x[i] < 262144);
            most = x[i] > most ? x[i] : most;
        }
    }
    ck_assert_int_gt(most, 261000); /* the whole vocabulary, special tokens too */
}
END_TEST

Suite *diffusion_suite(void)
{
    Suite *s = suite_create("diffusion");
    TCase *t = tcase_create("diffusion");
    tcase_add_test(t, temperature_falls_from_t_max);
    tcase_add_test(t, acceptance_bounds_the_sum_of_better_ones);
    tcase_add_test(t, acceptance_takes_the_one_that_crosses_the_bound);
    tcase_add_test(t, acceptance_puts_no_number_last);
    tcase_add_test(t, acceptance_is_as_defined);
    tcase_add_test(t, acceptance_is_decided_rank_by_rank);
    tcase_add_test(t, noise_replaces_what_is_not_accepted);
    tcase_add_test(t, mean_entropy_is_summed_in_double);
    tcase_add_test(t, order_is_sorted_whatever_comes);
    tcase_add_test(t, stability_counts_equal_canvases);
    tcase_add_test(t, canvas_settles);
    tcase_add_test(t, canvas_is_prepared);
    tcase_add_test(t, canvas_ends_at_the_cap);
    tcase_add_test(t, each_step_has_its_own_draws);
    tcase_add_test(t, stability_is_the_argmax_s_and_the_block_s);
    tcase_add_test(t, seeds_have_known_draws);
    tcase_add_test(t, small_vocabularies_are_used_up);
    tcase_add_test(t, draws_depend_on_the_key_alone);
    suite_add_tcase(s, t);
    return s;
}
