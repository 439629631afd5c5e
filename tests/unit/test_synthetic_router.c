/* How evenly synthetic routers spread tokens over experts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "model/synthetic_router.h"
#include "suites.h"
#include "tensor/dtype.h"

enum { N_EXPERT = 128, N_USED = 8, N_EMBD = 2816, N_TOKEN = 256 };

typedef struct spread {
    int least, most, differ; /* differ: choices that another layer does not make */
} spread;

/* A token's experts, best first. */
static void choose(int chosen[N_USED], const float *router, const float *x, int n_channel)
{
    float logit[N_EXPERT];
    for (int e = 0; e < N_EXPERT; e++) {
        logit[e] = 0;
        for (int i = 0; i < n_channel; i++)
            logit[e] += router[(size_t)e * N_EMBD + (size_t)i] * x[i];
    }
    for (int j = 0; j < N_USED; j++) {
        int best = 0;
        for (int e = 1; e < N_EXPERT; e++)
            best = logit[e] > logit[best] ? e : best;
        chosen[j] = best;
        logit[best] = -1e30f;
    }
}

static float *router_of(int layer, bool skewed)
{
    size_t n = (size_t)N_EXPERT * N_EMBD;
    uint16_t *stored = malloc(n * sizeof *stored);
    float *router = malloc(n * sizeof *router);
    ck_assert(stored && router);
    dg_synthetic_router(stored, layer, N_EXPERT, N_EMBD, skewed);
    dg_widen(router, stored, DG_BF16, n);
    free(stored);
    return router;
}

static spread spread_of(int layer, bool skewed)
{
    float *router = router_of(layer, skewed), *other = router_of(layer + 1, skewed), x[N_EMBD];
    int n_channel = dg_synthetic_router_channels(N_EMBD), load[N_EXPERT] = {0};
    dg_rng_key key = {.seed = 77};
    spread s = {N_TOKEN, 0, 0};
    for (int t = 0; t < N_TOKEN; t++) {
        int chosen[N_USED], elsewhere[N_USED];
        for (int i = 0; i < n_channel; i++)
            x[i] = (float)dg_rng_uniform(&key, (uint32_t)(t * N_EMBD + i)) - 0.5f;
        choose(chosen, router, x, n_channel);
        choose(elsewhere, other, x, n_channel);
        for (int j = 0; j < N_USED; j++) {
            load[chosen[j]]++;
            s.differ += chosen[j] != elsewhere[j];
        }
    }
    for (int e = 0; e < N_EXPERT; e++) {
        s.least = load[e] < s.least ? load[e] : s.least;
        s.most = load[e] > s.most ? load[e] : s.most;
    }
    free(router);
    free(other);
    return s;
}

START_TEST(tokens_spread_over_the_experts)
{
    for (int layer = 0; layer < 3; layer++) {
        spread s = spread_of(layer, false);
        ck_assert_int_ge(s.least, 3);
        ck_assert_int_ge(s.most, 24);
        ck_assert_int_le(s.most, 34);
        ck_assert_int_gt(s.differ, N_TOKEN * N_USED * 9 / 10);
    }
}
END_TEST

START_TEST(the_busiest_expert_has_four_times_the_mean)
{
    for (int layer = 0; layer < 3; layer++) {
        spread s = spread_of(layer, true);
        ck_assert_int_ge(s.most, 56);
        ck_assert_int_le(s.most, 76);
    }
}
END_TEST

START_TEST(no_layer_adds_to_the_routers_channels)
{
    float norm[N_EMBD];
    uint16_t *router = calloc((size_t)N_EXPERT * N_EMBD, sizeof *router);
    int n_channel = dg_synthetic_router_channels(N_EMBD);
    dg_synthetic_post_norm(norm, N_EMBD);
    dg_synthetic_router(router, 5, N_EXPERT, N_EMBD, false);
    for (int i = 0; i < N_EMBD; i++) {
        ck_assert(norm[i] == (i < n_channel ? 0.0f : 1.0f));
        if (i >= n_channel)
            ck_assert_int_eq(router[(size_t)3 * N_EMBD + (size_t)i], 0);
    }
    free(router);
}
END_TEST

Suite *router_suite(void)
{
    Suite *s = suite_create("router");
    TCase *t = tcase_create("router");
    tcase_add_test(t, tokens_spread_over_the_experts);
    tcase_add_test(t, the_busiest_expert_has_four_times_the_mean);
    tcase_add_test(t, no_layer_adds_to_the_routers_channels);
    suite_add_tcase(s, t);
    return s;
}
