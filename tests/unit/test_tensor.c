/* tensor: conversions, checked on every 16-bit value against a definition that uses no bit tricks.
 */
#include "suites.h"
#include <math.h>
#include <stdbool.h>
#include "base/common.h"
#include "base/rng.h"
#include "tensor/kv_numbers.h"
#include "tensor/tensor.h"

/* A binary format with one sign bit: its width and that of its fraction. */
typedef struct layout {
    int exponent, fraction;
} layout;

static const layout f16 = {5, 10}, bf16 = {8, 7};

static double value_of(layout l, unsigned bits)
{
    unsigned fraction = bits & ((1u << l.fraction) - 1);
    unsigned exponent = bits >> l.fraction & ((1u << l.exponent) - 1);
    int bias = (1 << (l.exponent - 1)) - 1;
    double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == (1u << l.exponent) - 1)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - l.fraction);
    return sign * ldexp((double)((1u << l.fraction) + fraction), (int)exponent - bias - l.fraction);
}

/* The nearest value of the format, ties to the even one, by search among the positive ones, which
 * are in the order of their bits. Infinity stands where the next power of two would, as IEEE 754
 * rounds. */
static unsigned nearest(layout l, float f)
{
    unsigned sign = signbit(f) ? 0x8000u : 0u;
    unsigned inf = ((1u << l.exponent) - 1) << l.fraction;
    double x = fabs((double)f);
    if (isinf(x))
        return sign | inf;
    unsigned lo = 0, hi = inf; /* value(lo) <= x < value(hi) */
    double last = value_of(l, inf - 1), past = last + (last - value_of(l, inf - 2));
    if (x >= past)
        return sign | inf;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;
        if (value_of(l, mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    double below = x - value_of(l, lo), above = (hi == inf ? past : value_of(l, hi)) - x;
    if (below != above)
        return sign | (below < above ? lo : hi);
    return sign | (lo & 1 ? hi : lo);
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static bool same(float got, double want)
{
    return isnan(want) ? isnan(got) : bits_of(got) == bits_of((float)want);
}

START_TEST(widening_is_exact)
{
    for (unsigned b = 0; b <= 0xFFFF; b++) {
        float h = dg_f16_to_float((uint16_t)b), g = dg_bf16_to_float((uint16_t)b);
        if (!same(h, value_of(f16, b)) || !same(g, value_of(bf16, b)))
            ck_abort_msg("%04x gives %a as f16, %a as bf16", b, (double)h, (double)g);
    }
}
END_TEST

/* Check's own assertions are slow in long loops: only a failure calls it. */
static void check_narrow(uint32_t bits)
{
    float f = float_of(bits);
    unsigned h = dg_float_to_f16(f), b = dg_float_to_bf16(f);
    if (isnan(f)) {
        if (!isnan(value_of(f16, h)) || !isnan(value_of(bf16, b)))
            ck_abort_msg("NaN %08x became f16 %04x, bf16 %04x", bits, h, b);
        return;
    }
    if (h != nearest(f16, f))
        ck_abort_msg("f16 of %a is %04x, want %04x", (double)f, h, nearest(f16, f));
    if (b != nearest(bf16, f))
        ck_abort_msg("bf16 of %a is %04x, want %04x", (double)f, b, nearest(bf16, f));
}

/* Every value of both formats, the middle between each and the next, and the floats beside the two.
 */
START_TEST(narrowing_rounds_to_nearest_even)
{
    for (unsigned b = 0; b <= 0xFFFF; b++) {
        uint32_t wide = (uint32_t)b << 16;
        for (uint32_t low = 0; low < 3; low++) {
            check_narrow(wide + low);
            check_narrow(wide + 0x7FFFu + low);
        }
        if (isnan(value_of(f16, b)))
            continue;
        wide = bits_of((float)value_of(f16, b));
        for (uint32_t d = 0; d < 3; d++) {
            check_narrow(wide + d - 1);
            check_narrow(wide + 0x0FFFu + d);
        }
        /* between subnormal f16 values the middle is not a fixed distance in bits */
        if ((b & 0x7FFF) < 0x400) {
            float middle = (float)((value_of(f16, b) + value_of(f16, b + 1)) / 2);
            for (uint32_t d = 0; d < 3; d++)
                check_narrow(bits_of(middle) + d - 1);
        }
    }
}
END_TEST

START_TEST(narrowing_random_floats)
{
    dg_rng_key key = {.seed = 7};
    for (uint32_t i = 0; i < 200000; i++)
        check_narrow((uint32_t)dg_rng_bits(&key, i));
}
END_TEST

START_TEST(arrays_at_any_alignment)
{
    static const dg_dtype types[] = {DG_F32, DG_F16, DG_BF16};
    for (size_t t = 0; t < DG_COUNT(types); t++)
        for (size_t n = 0; n < 20; n++)
            for (size_t shift = 0; shift < 4; shift++) {
                float in[20], out[21];
                unsigned char stored[20 * 4 + 8];
                for (size_t i = 0; i < n; i++)
                    in[i] = (float)i * 0.5f - 3.0f; /* exact in each type */
                memset(stored, 0xA5, sizeof stored);
                memset(out, 0xA5, sizeof out);
                dg_narrow(stored + shift, types[t], in, n);
                ck_assert_uint_eq(stored[shift + n * dg_dtype_size(types[t])], 0xA5);
                dg_widen(out, stored + shift, types[t], n);
                for (size_t i = 0; i < n; i++)
                    ck_assert_float_eq(out[i], in[i]);
                ck_assert_uint_eq(bits_of(out[n]), 0xA5A5A5A5u);
            }
}
END_TEST

START_TEST(types_have_names_and_sizes)
{
    static const struct {
        dg_dtype type;
        const char *name;
        size_t size;
    } want[] = {
        {DG_F32, "F32", 4},         {DG_F16, "F16", 2},         {DG_BF16, "BF16", 2},
        {DG_F64, "F64", 8},         {DG_I64, "I64", 8},         {DG_I32, "I32", 4},
        {DG_I16, "I16", 2},         {DG_I8, "I8", 1},           {DG_U64, "U64", 8},
        {DG_U32, "U32", 4},         {DG_U16, "U16", 2},         {DG_U8, "U8", 1},
        {DG_F8_E4M3, "F8_E4M3", 1}, {DG_F8_E5M2, "F8_E5M2", 1}, {DG_F8_E8M0, "F8_E8M0", 1},
    };
    ck_assert_uint_eq(DG_COUNT(want) + DG_DTYPE_COMPUTE - DG_DTYPE_FLOAT, DG_DTYPE_FILE);
    for (size_t i = 0; i < DG_COUNT(want); i++) {
        ck_assert_str_eq(dg_dtype_name(want[i].type), want[i].name);
        ck_assert_uint_eq(dg_dtype_size(want[i].type), want[i].size);
        ck_assert_uint_eq(dg_dtype_block(want[i].type), 1);
        ck_assert_uint_eq(dg_dtype_bytes(want[i].type, 7), 7 * want[i].size);
    }
    for (int t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++)
        ck_assert_uint_eq(256 % dg_dtype_block((dg_dtype)t), 0);
}
END_TEST

/* ---- keys and values in bytes ---- */

static float of_byte(dg_dtype type, const uint8_t *number, const uint16_t *factor, int i)
{
    float one;
    dg_kv_widen(type, &one, number + i, factor + (type == DG_Q8_0 ? i / DG_KV_BLOCK : 0), 1);
    return one;
}

/* Values come back to half a step of their block, or half a unit of three bits of theirs, and
 * those of E4M3 a second time as they are. Small blocks have steps that are halves of few bits. */
START_TEST(heads_of_bytes_come_back)
{
    enum { MOST = 300 };
    static const int sizes[] = {1, 2, 31, 32, 33, 34, 64, 256, 272, MOST};
    const dg_dtype type = _i ? DG_FP8 : DG_Q8_0;
    dg_rng_key key = {.seed = 11};
    for (size_t s = 0; s < DG_COUNT(sizes); s++)
        for (int e = -30; e <= 22; e++) {
            const int n = sizes[s], n_factor = dg_kv_factors(type, n);
            float in[MOST], out[MOST];
            uint8_t number[MOST + 1];
            uint16_t factor[MOST / DG_KV_BLOCK + 2];
            for (int i = 0; i < n; i++)
                in[i] = ldexpf((float)(int32_t)dg_rng_bits(&key, (uint32_t)(i + 1000 * e)), e - 31);
            number[n] = 0xA5;
            factor[n_factor] = 0xA5A5;
            dg_kv_narrow(type, number, factor, in, n);
            ck_assert(number[n] == 0xA5 && factor[n_factor] == 0xA5A5);
            ck_assert_uint_eq(dg_kv_row_bytes(type, n), (size_t)(n + 2 * n_factor));
            dg_kv_widen(type, out, number, factor, n);
            for (int i = 0; i < n; i++) {
                const float d = dg_kv_factor(type, factor[type == DG_Q8_0 ? i / DG_KV_BLOCK : 0]);
                const float most = type == DG_Q8_0 ? d / 2 * (1 + 0x1p-10f)
                                                   : fmaxf(fabsf(in[i]) * 0x1p-4f, d * 0x1p-10f);
                ck_assert_float_le(fabsf(out[i] - in[i]), most);
                ck_assert_uint_eq(bits_of(of_byte(type, number, factor, i)), bits_of(out[i]));
                ck_assert_float_eq(dg_bf16_to_float(dg_float_to_bf16(d)), d);
                if (type == DG_FP8)
                    ck_assert_float_eq(dg_bf16_to_float(dg_float_to_bf16(out[i])), out[i]);
            }
            if (type == DG_FP8) {
                dg_kv_narrow(type, number, factor, out, n);
                for (int i = 0; i < n; i++)
                    ck_assert_float_eq(of_byte(type, number, factor, i), out[i]);
            }
        }
}
END_TEST

/* Nothing but zeros, numbers at the ends of what there is, and what is no number. */
START_TEST(heads_of_bytes_at_the_ends)
{
    static const float strange[] = {0, -0.0f, 0x1p-149f, 0x1p-126f, 3e38f, INFINITY, NAN};
    const dg_dtype type = _i ? DG_FP8 : DG_Q8_0;
    for (size_t s = 0; s < DG_COUNT(strange); s++) {
        float in[40], out[40];
        uint8_t number[40];
        uint16_t factor[2];
        for (int i = 0; i < 40; i++)
            in[i] = i == 3 ? strange[s] : 0;
        dg_kv_narrow(type, number, factor, in, 40);
        dg_kv_widen(type, out, number, factor, 40);
        const bool lost = !(fabsf(strange[s]) < (type == DG_FP8 ? INFINITY : 8e6f));
        for (int i = 0; i < 40; i++)
            if (lost && (type == DG_FP8 || i < DG_KV_BLOCK))
                ck_assert(isnan(out[i]));
            else
                ck_assert_float_le(fabsf(out[i] - in[i]), fabsf(in[i]));
    }
}
END_TEST

/* A few values, of whatever type: blocks in part, and the factors beside them. */
START_TEST(few_values_with_their_factors)
{
    static const float factors[] = {3, 5};
    uint16_t half[8];
    float got[40], want[64];
    for (int i = 0; i < 8; i++)
        half[i] = dg_float_to_bf16((float)i - 2);
    dg_tensor t = {.type = DG_BF16, .n_dim = 3, .shape = {2, 2, 2}, .data = half};
    dg_tensor_widen(got, &t, 8);
    ck_assert(got[0] == -2 && got[1] == -1 && got[7] == 5);
    t.scale = factors;
    dg_tensor_widen(got, &t, 8);
    ck_assert(got[0] == -6 && got[3] == 3 && got[4] == 10 && got[7] == 25);

    unsigned char blocks[2 * 34]; /* Q8_0: a half and 32 bytes */
    for (int b = 0; b < 2; b++) {
        uint16_t scale = dg_float_to_f16((float)(b + 1));
        memcpy(blocks + b * 34, &scale, 2);
        for (int i = 0; i < 32; i++)
            blocks[b * 34 + 2 + i] = (unsigned char)(i + 1);
    }
    dg_widen(want, blocks, DG_Q8_0, 64);
    t = (dg_tensor){.type = DG_Q8_0, .n_dim = 1, .shape = {64}, .data = blocks, .scale = factors};
    for (size_t n = 1; n <= 40; n += 13) {
        got[n - 1] = 0;
        float behind = got[n < 40 ? n : 39] = 1234;
        dg_tensor_widen(got, &t, n);
        for (size_t i = 0; i < n; i++)
            ck_assert(got[i] == 3 * want[i]);
        ck_assert(n == 40 || got[n] == behind); /* nothing is written beyond */
    }
}
END_TEST

START_TEST(shapes)
{
    char text[DG_SHAPE_TEXT];
    dg_tensor t = {.type = DG_F32, .n_dim = 2, .shape = {384, 96}};
    ck_assert_uint_eq(dg_tensor_count(&t), 384 * 96);
    ck_assert_str_eq(dg_shape_text(text, t.shape, t.n_dim), "[384, 96]");

    dg_tensor scalar = {.type = DG_F32};
    ck_assert_uint_eq(dg_tensor_count(&scalar), 1);
    ck_assert_str_eq(dg_shape_text(text, scalar.shape, 0), "[]");

    dg_tensor none = {.type = DG_F32, .n_dim = 3, .shape = {4, 0, 2}};
    ck_assert_uint_eq(dg_tensor_count(&none), 0);

    int64_t largest[DG_MAX_DIM] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
    dg_shape_text(text, largest, DG_MAX_DIM);
    ck_assert_uint_lt(strlen(text), DG_SHAPE_TEXT);
    ck_assert_int_eq(text[strlen(text) - 1], ']');
}
END_TEST

Suite *tensor_suite(void)
{
    Suite *s = suite_create("tensor");
    TCase *convert = tcase_create("convert");
    tcase_add_test(convert, widening_is_exact);
    tcase_add_test(convert, narrowing_rounds_to_nearest_even);
    tcase_add_test(convert, narrowing_random_floats);
    tcase_add_test(convert, arrays_at_any_alignment);
    suite_add_tcase(s, convert);

    TCase *types = tcase_create("types");
    tcase_add_test(types, types_have_names_and_sizes);
    tcase_add_loop_test(types, heads_of_bytes_come_back, 0, 2);
    tcase_add_loop_test(types, heads_of_bytes_at_the_ends, 0, 2);
    tcase_add_test(types, shapes);
    tcase_add_test(types, few_values_with_their_factors);
    suite_add_tcase(s, types);
    return s;
}
