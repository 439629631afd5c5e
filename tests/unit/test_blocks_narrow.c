/* Floats to blocks: what comes back, against what rounding alone would give. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "model/presets.h"
#include "suites.h"
#include "tensor/blocks.h"
#include "tensor/blocks_narrow.h"

enum { N = 256 * 24 };

/* What a type may lose of normal values; measured, and a tenth more. */
static const struct {
    dg_dtype type;
    double normal, tailed;
} types[] = {
    {DG_Q8_0, 0.0059, 0.0081}, {DG_Q4_0, 0.088, 0.13},    {DG_Q4_1, 0.076, 0.095},
    {DG_Q5_0, 0.044, 0.066},   {DG_Q5_1, 0.037, 0.047},   {DG_Q4_K, 0.076, 0.096},
    {DG_Q5_K, 0.038, 0.048},   {DG_Q6_K, 0.019, 0.026},   {DG_IQ4_NL, 0.081, 0.105},
    {DG_MXFP4, 0.123, 0.145},  {DG_IQ4_XS, 0.081, 0.105},
};

static double draw(uint64_t seed, uint32_t i)
{
    dg_rng_key key = {.seed = seed};
    return ((double)(dg_rng_bits(&key, i) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t seed, uint32_t i)
{
    return sqrt(-2 * log(draw(seed, 2 * i))) * cos(6.283185307179586 * draw(seed, 2 * i + 1));
}

static void fill(float *x, bool tailed)
{
    for (uint32_t i = 0; i < N; i++) {
        double v = normal(1, i), chi = 0;
        for (uint64_t k = 0; k < 4; k++)
            chi += normal(2 + k, i) * normal(2 + k, i);
        x[i] = (float)(0.02 * (tailed ? v / sqrt(chi / 4) : v));
    }
}

static double error_of(const float *x, const float *y, const float *w)
{
    double off = 0, size = 0;
    for (int i = 0; i < N; i++) {
        double d = (double)x[i] - (double)y[i], k = w ? (double)w[i] : 1;
        off += k * d * d;
        size += k * (double)x[i] * (double)x[i];
    }
    return sqrt(off / size);
}

static double narrowed(const float *x, dg_dtype type, const float *by, const float *w)
{
    static unsigned char bytes[N * 4];
    static float y[N];
    dg_blocks_narrow(bytes, type, x, by, N);
    dg_blocks_widen(y, bytes, type, N);
    return error_of(x, y, w);
}

START_TEST(little_is_lost)
{
    static float x[N];
    for (int tailed = 0; tailed < 2; tailed++) {
        fill(x, tailed);
        double got = narrowed(x, types[_i].type, NULL, NULL),
               most = tailed ? types[_i].tailed : types[_i].normal;
        ck_assert_msg(got > 0 && got < most, "%s: %g, wanted below %g",
                      dg_dtype_name(types[_i].type), got, most);
    }
}
END_TEST

/* One step for 32 values from the largest one, or from the range. */
static double rounded(const float *x, int bits, bool range)
{
    static float y[N];
    const int half = 1 << (bits - 1), top = 2 * half - 1;
    for (int b = 0; b < N; b += 32) {
        float most = 0, low = x[b], high = x[b];
        for (int i = b; i < b + 32; i++) {
            most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        float step = range ? (high - low) / (float)top : most / (float)-half;
        for (int i = b; i < b + 32; i++)
            y[i] = range ? low + step * rintf((x[i] - low) / step)
                         : step * fminf(rintf(x[i] / step), (float)(half - 1));
    }
    return error_of(x, y, NULL);
}

START_TEST(searching_beats_rounding)
{
    static const struct {
        dg_dtype type;
        int bits;
        bool range;
    } plain[] = {{DG_Q4_0, 4, false}, {DG_Q5_0, 5, false}, {DG_Q4_1, 4, true}, {DG_Q5_1, 5, true}};
    static float x[N];
    for (int tailed = 0; tailed < 2; tailed++)
        for (size_t i = 0; i < DG_COUNT(plain); i++) {
            fill(x, tailed);
            double got = narrowed(x, plain[i].type, NULL, NULL),
                   simple = rounded(x, plain[i].bits, plain[i].range);
            ck_assert_msg(got < 0.97 * simple, "%s: %g, rounding alone %g",
                          dg_dtype_name(plain[i].type), got, simple);
        }
}
END_TEST

START_TEST(what_matters_is_kept)
{
    static float x[N], w[N];
    fill(x, false);
    for (uint32_t i = 0; i < N; i++)
        w[i] = (float)exp(normal(9, i));
    double with = narrowed(x, types[_i].type, w, w), without = narrowed(x, types[_i].type, NULL, w);
    if (types[_i].type == DG_Q8_0)
        ck_assert(with == without);
    else
        ck_assert_msg(with < 0.999 * without, "%s: %g, without weights %g",
                      dg_dtype_name(types[_i].type), with, without);
}
END_TEST

/* What was a block of the type stays what it is, but for steps that are not found to the last bit.
 */
START_TEST(blocks_come_back)
{
    static float x[N], y[N];
    static unsigned char bytes[N * 4];
    fill(x, false);
    dg_blocks_narrow(bytes, types[_i].type, x, NULL, N);
    dg_blocks_widen(y, bytes, types[_i].type, N);
    double again = narrowed(y, types[_i].type, NULL, NULL), once = error_of(x, y, NULL);
    ck_assert_msg(again < 0.25 * once, "%s: %g after %g", dg_dtype_name(types[_i].type), again,
                  once);
}
END_TEST

START_TEST(odd_values)
{
    static float x[N], y[N];
    static unsigned char bytes[N * 4];
    const dg_dtype type = types[_i].type;
    static const float constant[] = {0,      1,     -1,     1e-12f,  3e-38f,  60000,
                                     -2e-6f, 1e-4f, -1e-4f, 3.5e-4f, -3.5e-4f};
    for (size_t k = 0; k < DG_COUNT(constant); k++) {
        for (int i = 0; i < N; i++)
            x[i] = constant[k];
        dg_blocks_narrow(bytes, type, x, NULL, N);
        dg_blocks_widen(y, bytes, type, N);
        for (int i = 0; i < N; i++) {
            float off = fabsf(y[i] - x[i]);
            ck_assert_msg(off <= (type == DG_MXFP4 ? 0.13f : 0.04f) * fabsf(x[i]) ||
                              (fabsf(x[i]) < 1e-5f && off < 4e-6f),
                          "%s: %g became %g", dg_dtype_name(type), (double)x[i], (double)y[i]);
        }
    }
    /* one value among zeros */
    memset(x, 0, sizeof x);
    for (int i = 0; i < N; i += 32)
        x[i + i / 32 % 32] = i % 64 ? 3 : -0.5f;
    ck_assert(narrowed(x, type, NULL, NULL) < 0.05);
    /* all finite, and so large that what comes back need not be: but something does */
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? 3e38f : -3e38f;
    dg_blocks_narrow(bytes, type, x, NULL, N);
    dg_blocks_widen(y, bytes, type, N);
}
END_TEST

/* Steps that are among the smallest of halves cut nothing off. */
START_TEST(small_values)
{
    static float x[N];
    fill(x, false);
    for (int i = 0; i < N; i++)
        x[i] *= 0.005f;
    double got = narrowed(x, types[_i].type, NULL, NULL),
           most = (_i ? 1.25 : 2) * types[_i].normal; /* Q8_0 is rounded as others do */
    ck_assert_msg(got < most, "%s: %g, wanted below %g", dg_dtype_name(types[_i].type), got, most);
}
END_TEST

/* Where all values are positive, minima of K types, which are subtracted, are none. */
START_TEST(positive_values)
{
    static float x[N];
    fill(x, false);
    for (int i = 0; i < N; i++)
        x[i] = 0.2f + fabsf(x[i]);
    double got = narrowed(x, types[_i].type, NULL, NULL);
    ck_assert_msg(got < (types[_i].type == DG_MXFP4 ? 0.12 : 0.05), "%s: %g",
                  dg_dtype_name(types[_i].type), got);
}
END_TEST

/* Bytes that do not change unnoticed: those of files that people have made. */
START_TEST(bytes_stay)
{
    static const uint64_t known[] = {
        0x161F0905F5E1FAA9, 0x78DFC6B4C112992C, 0x2286C51FA4A20587, 0xB86D2BBE961F5C7A,
        0xCDF981FFF7B539B1, 0xB70AE2B118C231F8, 0x3C4CD786AA083E7F, 0x23E1008C61A712E1,
        0x7A9F03211BEEF5BA, 0x8260B5DCB3E11831, 0xB62FF2721704DD6A,
    };
    static float x[N];
    static unsigned char bytes[N * 4];
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    const size_t n = dg_dtype_bytes(types[_i].type, N);
    fill(x, true);
    for (int i = 0; i < N; i++) /* the same on machines whose logarithms differ */
        x[i] = dg_bf16_to_float(dg_float_to_bf16(x[i]));
    dg_blocks_narrow(bytes, types[_i].type, x, NULL, N);
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001B3);
    ck_assert_msg(h == known[_i], "%s: 0x%llX", dg_dtype_name(types[_i].type),
                  (unsigned long long)h);
}
END_TEST

/* Rows that no blocks of 256 fill, in all layers of the model: our mixture takes fewer bits than
 * Q4_K_M, and of values with heavy tails loses no more. */
START_TEST(down_rows_of_ours)
{
    enum { LAYERS = 30, ROWS = 8 };
    static const int64_t length[] = {704, 2112};
    static const char *const preset[] = {"Q4_K_M", "Q4_K_D"};
    static float x[N];
    dg_config cfg = {.n_layer = LAYERS};
    double bytes[2] = {0}, off[2] = {0};
    fill(x, true);
    for (int p = 0; p < 2; p++)
        for (int layer = 0; layer < LAYERS; layer++)
            for (int k = 0; k < 2; k++) {
                static unsigned char block[N * 4];
                static float y[N];
                char name[96];
                snprintf(name, sizeof name, "model.decoder.layers.%d.%s", layer,
                         k ? "mlp.down_proj.weight" : "experts.down_proj");
                dg_dtype type = dg_preset_type(dg_preset_find(preset[p]), &cfg, name, length[k]);
                const size_t n = (size_t)(length[k] * (k ? 2 : ROWS));
                dg_blocks_narrow(block, type, x, NULL, n);
                dg_blocks_widen(y, block, type, n);
                bytes[p] += (double)dg_dtype_bytes(type, n);
                for (size_t i = 0; i < n; i++)
                    off[p] += pow((double)x[i] - (double)y[i], 2);
            }
    ck_assert_msg(bytes[1] < 0.9 * bytes[0], "%g bytes, Q4_K_M %g", bytes[1], bytes[0]);
    ck_assert_msg(off[1] <= off[0], "%g, Q4_K_M %g", off[1], off[0]);
}
END_TEST

START_TEST(which_types)
{
    for (size_t i = 0; i < DG_COUNT(types); i++)
        ck_assert(dg_blocks_can_narrow(types[i].type));
    ck_assert(!dg_blocks_can_narrow(DG_F32));
    ck_assert(!dg_blocks_can_narrow(DG_IQ2_S));
    ck_assert(!dg_blocks_can_narrow(DG_I32));
}
END_TEST

Suite *blocks_narrow_suite(void)
{
    Suite *s = suite_create("blocks_narrow");
    TCase *t = tcase_create("narrow");
    const int n = (int)DG_COUNT(types);
    tcase_add_loop_test(t, little_is_lost, 0, n);
    tcase_add_test(t, searching_beats_rounding);
    tcase_add_loop_test(t, what_matters_is_kept, 0, n);
    tcase_add_loop_test(t, blocks_come_back, 0, n);
    tcase_add_loop_test(t, odd_values, 0, n);
    tcase_add_loop_test(t, small_values, 0, n);
    tcase_add_loop_test(t, positive_values, 0, n);
    tcase_add_loop_test(t, bytes_stay, 0, n);
    tcase_add_test(t, down_rows_of_ours);
    tcase_add_test(t, which_types);
    suite_add_tcase(s, t);
    return s;
}
