/* narrowed: what E4M3 and four bits mean, and what they cost: the results of an expert beside those
 * of Q4_K_M on the same weights. */
#include "suites.h"
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "tensor/dtype.h"
#include "support/rounded.h"
#include "tensor/narrowed.h"

static float normal(uint32_t stream, uint32_t i)
{
    dg_rng_key key = {.seed = 11, .stream = stream};
    double r = sqrt(-2 * log(1 - dg_rng_uniform(&key, 2 * i)));
    return (float)(r * cos(6.283185307179586 * dg_rng_uniform(&key, 2 * i + 1)));
}

/* ---- E4M3 ---- */

static double e4m3_value(unsigned bits)
{
    int exponent = (int)(bits >> 3 & 15), fraction = (int)(bits & 7);
    double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return bits & 128 ? -size : size;
}

START_TEST(every_byte_of_e4m3)
{
    for (unsigned b = 0; b < 256; b++) {
        float v = dg_e4m3_to_float((uint8_t)b);
        if ((b & 127) == 127) {
            ck_assert(isnan(v));
            continue;
        }
        ck_assert(v == e4m3_value(b) && !signbit(v) == !(b & 128));
        ck_assert_uint_eq(dg_float_to_e4m3(v), b);
        if ((b & 127) >= 126)
            continue;
        /* between it and the next: the nearer one, and of both the even one */
        double next = e4m3_value(b + 1), middle = (v + next) / 2;
        ck_assert_uint_eq(dg_float_to_e4m3((float)middle), b & 1 ? b + 1 : b);
        ck_assert_uint_eq(dg_float_to_e4m3(nextafterf((float)middle, v)), b);
        ck_assert_uint_eq(dg_float_to_e4m3(nextafterf((float)middle, (float)next)), b + 1);
    }
    ck_assert_uint_eq(dg_float_to_e4m3(1e9f), 0x7E);
    ck_assert_uint_eq(dg_float_to_e4m3(-INFINITY), 0xFE);
    ck_assert_uint_eq(dg_float_to_e4m3(NAN) & 127, 127);
}
END_TEST

START_TEST(factors_are_powers_of_two)
{
    for (float largest = 1e-30f; largest < 1e30f; largest *= 1.7f) {
        float factor = dg_fp8_factor(dg_narrowed_bits(largest));
        int exponent;
        ck_assert(frexpf(factor, &exponent) == 0.5f);
        ck_assert(largest / factor > 224 * 0.999f && largest / factor <= 448);
    }
    ck_assert(dg_fp8_factor(0) > 0);
    ck_assert(isnan(dg_fp8_factor(dg_narrowed_bits(INFINITY))));
    ck_assert(isnan(dg_fp8_factor(dg_narrowed_bits(NAN))));
}
END_TEST

static double relative_error(const float *got, const float *want, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    return sqrt(off / all);
}

START_TEST(what_rounding_costs)
{
    static const struct {
        rounding_fn *round;
        double least, most;
    } want[] = {
        {round_to_fp8, 0.024, 0.028}, {round_to_int4, 0.08, 0.092}, {round_to_q4_k, 0.065, 0.08}};
    static float plain[256 * 64], x[256 * 64];
    for (uint32_t i = 0; i < DG_COUNT(plain); i++)
        plain[i] = 0.02f * normal(1, i);
    for (size_t t = 0; t < DG_COUNT(want); t++) {
        memcpy(x, plain, sizeof x);
        want[t].round(x, DG_COUNT(x));
        double error = relative_error(x, plain, DG_COUNT(x));
        ck_assert_msg(error > want[t].least && error < want[t].most, "%zu: %g", t, error);
    }
}
END_TEST

START_TEST(odd_groups)
{
    float x[DG_INT4_VALUES] = {0}, back[DG_INT4_VALUES];
    unsigned char block[DG_INT4_BYTES];
    dg_int4_block(block, x);
    dg_widen(back, block, DG_INT4, DG_INT4_VALUES);
    for (int i = 0; i < DG_INT4_VALUES; i++)
        ck_assert(back[i] == 0);
    for (int i = 0; i < DG_INT4_VALUES; i++) /* all numbers there are, times a power of two */
        x[i] = (float)(i % 16 - 8) * 0.125f;
    dg_int4_block(block, x);
    dg_widen(back, block, DG_INT4, DG_INT4_VALUES);
    for (int i = 0; i < DG_INT4_VALUES; i++)
        ck_assert(back[i] == x[i]);
    x[7] = -INFINITY;
    dg_int4_block(block, x);
    dg_widen(back, block, DG_INT4, DG_INT4_VALUES);
    for (int i = 0; i < DG_INT4_VALUES; i++)
        ck_assert(isnan(back[i]));
}
END_TEST

/* ---- an expert of random weights ---- */

enum { N_EMBD = 256, N_FF = 256, N_ROW = 4 };

static void multiply(float *y, const float *w, const float *x, size_t n_out, size_t n_in)
{
    for (size_t o = 0; o < n_out; o++) {
        double sum = 0;
        for (size_t k = 0; k < n_in; k++)
            sum += (double)w[o * n_in + k] * x[k];
        y[o] = (float)sum;
    }
}

static void make_weights(float *w, uint32_t stream, size_t n, rounding_fn *round)
{
    for (uint32_t i = 0; i < n; i++)
        w[i] = normal(stream, i) / 16;
    if (round)
        round(w, n);
}

static void run_expert(float y[N_ROW][N_EMBD], rounding_fn *gate_up, rounding_fn *down)
{
    static float gate[N_FF * N_EMBD], up[N_FF * N_EMBD], out[N_EMBD * N_FF];
    float x[N_EMBD], g[N_FF], u[N_FF];
    make_weights(gate, 2, DG_COUNT(gate), gate_up);
    make_weights(up, 3, DG_COUNT(up), gate_up);
    make_weights(out, 4, DG_COUNT(out), down);
    for (uint32_t row = 0; row < N_ROW; row++) {
        for (uint32_t i = 0; i < N_EMBD; i++)
            x[i] = normal(5, row * N_EMBD + i);
        multiply(g, gate, x, N_FF, N_EMBD);
        multiply(u, up, x, N_FF, N_EMBD);
        for (size_t i = 0; i < N_FF; i++) {
            double v = 0.7978845608 * (g[i] + 0.044715 * g[i] * g[i] * g[i]);
            g[i] = (float)(0.5 * g[i] * (1 + tanh(v)) * u[i]);
        }
        multiply(y[row], out, g, N_EMBD, N_FF);
    }
}

/* Q4_K_M has down of half the layers in Q5_0 or Q6_K and of the others in Q8_0; here Q5_0. What
 * int4 does not make narrower, Q4_K_M does: its logits are nearer to int4's than this. */
START_TEST(int4_beside_q4_k_m)
{
    static float plain[N_ROW][N_EMBD], fp8[N_ROW][N_EMBD], int4[N_ROW][N_EMBD],
        q4_k_m[N_ROW][N_EMBD];
    run_expert(plain, NULL, NULL);
    run_expert(fp8, round_to_fp8, round_to_fp8);
    run_expert(int4, round_to_int4, round_to_int4);
    run_expert(q4_k_m, round_to_q4_k, round_to_q5_0);
    double narrow = relative_error(int4[0], plain[0], N_ROW * N_EMBD),
           bytes = relative_error(fp8[0], plain[0], N_ROW * N_EMBD),
           published = relative_error(q4_k_m[0], plain[0], N_ROW * N_EMBD);
    ck_assert_msg(narrow < 1.6 * published, "int4 %g, Q4_K_M %g", narrow, published);
    ck_assert_msg(bytes < 0.5 * published, "fp8 %g, Q4_K_M %g", bytes, published);
}
END_TEST

Suite *narrowed_suite(void)
{
    Suite *s = suite_create("narrowed");
    TCase *forms = tcase_create("forms");
    tcase_add_test(forms, every_byte_of_e4m3);
    tcase_add_test(forms, factors_are_powers_of_two);
    tcase_add_test(forms, odd_groups);
    suite_add_tcase(s, forms);

    TCase *errors = tcase_create("errors");
    tcase_add_test(errors, what_rounding_costs);
    tcase_add_test(errors, int4_beside_q4_k_m);
    suite_add_tcase(s, errors);
    return s;
}
