/* base/real: how far each function is from the exact value, what it does at the edges, and that its
 * bits are the same wherever this runs. The exact value is the C library's in long double. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "base/real.h"
#include "base/rng.h"
#include "suites.h"

enum { N = 40000 };

/* |got - want| in units of the last place that `digits` bits leave want, no finer than `least`. */
static double units(double got, long double want, int digits, int least)
{
    int exponent;
    frexpl(want, &exponent);
    exponent = dg_max(exponent - digits, least);
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent));
}

static void assert_double(const char *what, double x, double got, long double want, double limit)
{
    double off = units(got, want, DBL_MANT_DIG, -1074);
    if (!(off <= limit))
        ck_abort_msg("%s(%a) is %a, %.3f units off", what, x, got, off);
}

static void assert_float(const char *what, float x, float got, long double want)
{
    double off = units((double)got, want, FLT_MANT_DIG, -149);
    if (!(off <= 0.501))
        ck_abort_msg("%s(%a) is %a, %.4f units off", what, (double)x, (double)got, off);
}

/* Number i of N draws between low and high. */
static double draw(uint32_t i, double low, double high)
{
    dg_rng_key key = {.seed = 7};
    return low + (high - low) * dg_rng_uniform(&key, i);
}

START_TEST(exp_is_within_a_unit)
{
    static const double range[][2] = {{-746, 710}, {-2, 2}, {-0x1p-20, 0x1p-20}, {-745.2, -700}};
    for (size_t r = 0; r < DG_COUNT(range); r++)
        for (uint32_t i = 0; i < N; i++) {
            double x = draw(i, range[r][0], range[r][1]);
            if (x < 709.78)
                assert_double("exp", x, dg_exp(x), expl(x), 1);
        }
    for (int n = -1000; n <= 1000; n++) { /* around the borders of the reduction */
        double x = (n + 0.5) * 0.69314718055994530942;
        if (x < 709.78)
            assert_double("exp", x, dg_exp(x), expl(x), 1);
    }
}
END_TEST

START_TEST(exp_at_the_edges)
{
    ck_assert(dg_exp(0) == 1 && dg_exp(-0.0) == 1 && dg_exp(0x1p-1074) == 1);
    ck_assert(dg_exp(0x1.62e42fefa39efp9) < INFINITY && dg_exp(0x1.62e42fefa39fp9) == INFINITY);
    ck_assert(dg_exp(-0x1.74910d52d3051p9) == 0x1p-1074 && dg_exp(-0x1.74910d52d3053p9) == 0);
    ck_assert(dg_exp(INFINITY) == INFINITY && dg_exp(DBL_MAX) == INFINITY);
    ck_assert(dg_exp(-INFINITY) == 0 && dg_exp(-DBL_MAX) == 0);
    ck_assert(isnan(dg_exp(NAN)));
}
END_TEST

START_TEST(log_is_within_a_unit)
{
    for (uint32_t i = 0; i < N; i++) {
        double size = exp2(draw(i, -1074, 1024)), near = draw(i, 0.5, 2.2);
        double close = 1 + draw(i, -0x1p-20, 0x1p-20);
        assert_double("log", size, dg_log(size), logl(size), 1);
        assert_double("log", near, dg_log(near), logl(near), 1);
        assert_double("log", close, dg_log(close), logl(close), 1);
    }
    for (int n = -1074; n < 1024; n++) {
        double x = ldexp(1, n), y = ldexp(1.4142135623730951, dg_max(n, -1022));
        assert_double("log", x, dg_log(x), logl(x), 1);
        assert_double("log", y, dg_log(y), logl(y), 1);
    }
}
END_TEST

START_TEST(log_at_the_edges)
{
    ck_assert(dg_log(1) == 0 && !signbit(dg_log(1)));
    ck_assert(dg_log(0) == -INFINITY && dg_log(-0.0) == -INFINITY);
    ck_assert(dg_log(INFINITY) == INFINITY);
    ck_assert(isnan(dg_log(-1)) && isnan(dg_log(-INFINITY)) && isnan(dg_log(NAN)));
    assert_double("log", DBL_MAX, dg_log(DBL_MAX), logl(DBL_MAX), 1);
}
END_TEST

START_TEST(tanh_is_within_three_units)
{
    for (uint32_t i = 0; i < N; i++) {
        double x = draw(i, -21, 21), small = exp2(draw(i, -60, 0));
        assert_double("tanh", x, dg_tanh(x), tanhl(x), 3);
        assert_double("tanh", small, dg_tanh(small), tanhl(small), 3);
        ck_assert(dg_tanh(-x) == -dg_tanh(x));
    }
    ck_assert(dg_tanh(INFINITY) == 1 && dg_tanh(-INFINITY) == -1 && dg_tanh(1e300) == 1);
    ck_assert(dg_tanh(0) == 0 && signbit(dg_tanh(-0.0)) && dg_tanh(0x1p-1074) == 0x1p-1074);
    ck_assert(isnan(dg_tanh(NAN)));
}
END_TEST

START_TEST(pow_is_good_for_a_float)
{
    for (uint32_t i = 0; i < N; i++) {
        double x = exp2(draw(2 * i, -20, 20)), y = draw(2 * i + 1, -3, 3);
        assert_double("pow", x, dg_pow(x, y), powl(x, y), 2 + 2 * fabs(y * log(x)));
    }
    ck_assert(dg_pow(10000, 0) == 1);

    /* the frequencies of rotations are those of the model they come from, every one of them */
    static const float theta[] = {100, 10000, 500000, 1000000};
    for (size_t t = 0; t < DG_COUNT(theta); t++)
        for (int dim = 8; dim <= 512; dim *= 2)
            for (int i = 0; i < dim / 2; i++) {
                double part = (double)((float)(2 * i) / (float)dim);
                ck_assert_float_eq((float)dg_pow(theta[t], part), (float)powl(theta[t], part));
            }
}
END_TEST

static void assert_sin_cos(float x)
{
    float s, c;
    dg_sin_cos(x, &s, &c);
    assert_float("sin", x, s, sinl(x));
    assert_float("cos", x, c, cosl(x));
}

START_TEST(sin_and_cos_are_within_half_a_unit)
{
    for (uint32_t bits = 0; bits < 0x7F800000u; bits += 40009) { /* all sizes there are */
        float x;
        memcpy(&x, &bits, sizeof x);
        assert_sin_cos(x);
        assert_sin_cos(-x);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_sin_cos((float)draw(i, -300000, 300000)); /* the angles of a context */
    for (int i = -4000; i < 4000; i++)
        assert_sin_cos((float)(i * 0.78539816339744830962)); /* near the borders of quadrants */
}
END_TEST

START_TEST(sin_and_cos_at_the_edges)
{
    float s, c;
    dg_sin_cos(-0.0f, &s, &c);
    ck_assert(s == 0 && signbit(s) && c == 1);
    dg_sin_cos(0x1p-149f, &s, &c);
    ck_assert(s == 0x1p-149f && c == 1);
    const float none[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < DG_COUNT(none); i++) {
        dg_sin_cos(none[i], &s, &c);
        ck_assert(isnan(s) && isnan(c));
    }
}
END_TEST

/* ---- the same everywhere ---- */

static uint64_t hashed(uint64_t hash, const void *value, size_t n)
{
    const unsigned char *b = value;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* Recorded once; any machine must find the same. */
START_TEST(known_bits)
{
    enum { EXP, LOG, TANH, POW, SIN, COS, N_FUNCTION };
    static const uint64_t want[N_FUNCTION] = {
        UINT64_C(0xB48C1F7A2FA92D6B), UINT64_C(0x9EC71D772B63040F), UINT64_C(0xE3C1416278CA1D3F),
        UINT64_C(0x46231DF0EAFE1C66), UINT64_C(0x5A7660E85920921D), UINT64_C(0x6280900AA57F8364)};
    uint64_t got[N_FUNCTION] = {0};
    for (uint32_t i = 0; i < N; i++) {
        double d[] = {
            [EXP] = dg_exp(draw(i, -750, 715)),
            [LOG] = dg_log(ldexp(draw(i, 1, 2), (int)(i % 2098) - 1074)),
            [TANH] = dg_tanh(draw(i, -21, 21)),
            [POW] = dg_pow(draw(i, 1, 1e6), draw(i + N, -1, 1)),
        };
        for (int k = EXP; k <= POW; k++)
            got[k] = hashed(got[k], &d[k], sizeof d[k]);
    }
    /* a float hides most of what the double behind it is: more of them */
    for (uint32_t i = 0; i < 50 * N; i++) {
        float f[2];
        dg_sin_cos((float)draw(i, -300000, 300000), &f[0], &f[1]);
        for (int k = SIN; k <= COS; k++)
            got[k] = hashed(got[k], &f[k - SIN], sizeof f[0]);
    }
    for (int k = 0; k < N_FUNCTION; k++)
        if (got[k] != want[k])
            ck_abort_msg("0x%016llX is not what was recorded for function %d",
                         (unsigned long long)got[k], k);
}
END_TEST

/* (1 + e)^2 - (1 + 2e) is e^2 when the product is not rounded, else 0. */
START_TEST(products_are_rounded_before_they_are_added)
{
    volatile float e = 0x1p-20f;
    volatile double d = 0x1p-40;
    float a = 1 + e, b = -(1 + 2 * e);
    double c = 1 + d, f = -(1 + 2 * d);
    ck_assert(a * a + b == 0);
    ck_assert(c * c + f == 0);
}
END_TEST

Suite *real_suite(void)
{
    Suite *s = suite_create("real");
    TCase *t = tcase_create("real");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, exp_is_within_a_unit);
    tcase_add_test(t, exp_at_the_edges);
    tcase_add_test(t, log_is_within_a_unit);
    tcase_add_test(t, log_at_the_edges);
    tcase_add_test(t, tanh_is_within_three_units);
    tcase_add_test(t, pow_is_good_for_a_float);
    tcase_add_test(t, sin_and_cos_are_within_half_a_unit);
    tcase_add_test(t, sin_and_cos_at_the_edges);
    tcase_add_test(t, known_bits);
    tcase_add_test(t, products_are_rounded_before_they_are_added);
    suite_add_tcase(s, t);
    return s;
}
