/* Schedule, acceptance, stopping, canvas: pure functions on small arrays. */
#include <math.h>
#include <string.h>
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
    int order[16];
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
    int order[16];
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0.1f), 10);
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h, 16, 0), 10);
    ck_assert_int_eq(dg_sampler_accept(accepted, order, h + 9, 1, 0), 1); /* always at least one */
}
END_TEST

START_TEST(order_is_sorted_whatever_comes)
{
    enum { N = 257 };
    float h[N];
    uint8_t accepted[N];
    int order[N];
    unsigned state = 1;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) {
            state = state * 1664525u + 1013904223u;
            h[i] = (float)(state >> 24) / (round % 2 ? 256.0f : 8.0f);
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
    const int32_t a[2] = {1, 2}, b[2] = {1, 3};
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
    tcase_add_test(t, order_is_sorted_whatever_comes);
    tcase_add_test(t, stability_counts_equal_canvases);
    tcase_add_test(t, canvas_settles);
    tcase_add_test(t, canvas_ends_at_the_cap);
    tcase_add_test(t, draws_depend_on_the_key_alone);
    suite_add_tcase(s, t);
    return s;
}
