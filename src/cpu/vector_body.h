/* Every kernel but the matrix product, written once over eight lanes: include cpu/arm/lanes_neon.h
 * or one of cpu/x86/doubles_*.h first. All give the same bits.
 *
 * A vector is walked in blocks of eight, and the last block is filled up from the stack: a tail
 * goes through the arithmetic of the body, so what an element becomes does not depend on where in a
 * vector it stands.
 *
 * What is not a plain product is done in double, like the reference: it settles overflow,
 * cancellation and rounding at once, and beside the matrix products these kernels are cheap. */
#ifndef DG_CPU_VECTOR_BODY_H
#define DG_CPU_VECTOR_BODY_H

#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cpu/kernels.h"

enum { LANES = 8 };

static inline const unsigned char *bytes_at(const void *p, size_t offset)
{
    return (const unsigned char *)p + offset;
}

/* The next block of a vector with n >= 1 elements left, and back: whole, or the first n lanes. */
#define BLOCKS(name, size)                                                                         \
    static inline f8 load_##name(const void *p, int n)                                             \
    {                                                                                              \
        if (n >= LANES)                                                                            \
            return f8_load_##name(p);                                                              \
        unsigned char block[LANES * (size)] = {0};                                                 \
        memcpy(block, p, (size_t)n *(size));                                                       \
        return f8_load_##name(block);                                                              \
    }                                                                                              \
    static inline void store_##name(void *p, f8 a, int n)                                          \
    {                                                                                              \
        if (n >= LANES) {                                                                          \
            f8_store_##name(p, a);                                                                 \
            return;                                                                                \
        }                                                                                          \
        unsigned char block[LANES * (size)];                                                       \
        f8_store_##name(block, a);                                                                 \
        memcpy(p, block, (size_t)n *(size));                                                       \
    }

BLOCKS(f32, 4)
BLOCKS(f16, 2)
BLOCKS(bf16, 2)

/* Half a panel at a time: eight columns by eight k are turned in registers; an edge is filled up
 * first. */
#define STORED_TYPE(name, size)                                                                    \
    static inline void turn_##name(float *panel, const unsigned char *src, size_t stride, int n_k) \
    {                                                                                              \
        f8 r[LANES];                                                                               \
        for (int c = 0; c < LANES; c++)                                                            \
            r[c] = f8_load_##name(src + (size_t)c * stride);                                       \
        f8_transpose(r);                                                                           \
        for (int k = 0; k < n_k; k++)                                                              \
            f8_store_f32(panel + k * DG_PANEL, r[k]);                                              \
    }                                                                                              \
    static void turn_edge_##name(float *panel, const unsigned char *src, size_t stride, int n_k,   \
                                 int n_col)                                                        \
    {                                                                                              \
        unsigned char block[LANES * LANES * (size)] = {0};                                         \
        for (int c = 0; c < n_col; c++)                                                            \
            memcpy(block + c * LANES * (size), src + (size_t)c * stride, (size_t)n_k * (size));    \
        turn_##name(panel, block, LANES *(size), n_k);                                             \
    }                                                                                              \
    static void pack_cols_##name(float *panel, const void *src, size_t stride, int n_k, int n_col) \
    {                                                                                              \
        for (int c = 0; c < DG_PANEL; c += LANES) {                                                \
            const int n = dg_max(0, dg_min(n_col - c, LANES));                                     \
            const unsigned char *from = bytes_at(src, n ? (size_t)c * stride : 0);                 \
            for (int k = 0; k < n_k; k += LANES) {                                                 \
                const unsigned char *at = from + (size_t)k * (size);                               \
                float *to = panel + (size_t)k * DG_PANEL + c;                                      \
                if (n == LANES && n_k - k >= LANES)                                                \
                    turn_##name(to, at, stride, LANES);                                            \
                else                                                                               \
                    turn_edge_##name(to, at, stride, dg_min(n_k - k, LANES), n);                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void pack_rows_##name(float *panel, const void *src, size_t stride, int n_k, int n_col) \
    {                                                                                              \
        for (int k = 0; k < n_k; k++)                                                              \
            for (int c = 0; c < DG_PANEL; c += LANES) {                                            \
                const void *at = bytes_at(src, (size_t)k * stride + (size_t)c * (size));           \
                f8 v = c < n_col ? load_##name(at, n_col - c) : f8_set(0);                         \
                f8_store_f32(panel + (size_t)k * DG_PANEL + c, v);                                 \
            }                                                                                      \
    }                                                                                              \
    static void widen_##name(float *out, const void *in, int n)                                    \
    {                                                                                              \
        for (int i = 0; i < n; i += LANES)                                                         \
            store_f32(out + i, load_##name(bytes_at(in, (size_t)i * (size)), n - i), n - i);       \
    }                                                                                              \
    static void narrow_##name(void *out, const float *in, int n)                                   \
    {                                                                                              \
        for (int i = 0; i < n; i += LANES)                                                         \
            store_##name((unsigned char *)out + (size_t)i * (size), load_f32(in + i, n - i),       \
                         n - i);                                                                   \
    }                                                                                              \
    static void axpy_##name(float *y, float a, const void *x, int n)                               \
    {                                                                                              \
        for (int i = 0; i < n; i += LANES) {                                                       \
            f8 v = load_##name(bytes_at(x, (size_t)i * (size)), n - i);                            \
            store_f32(y + i, f8_fma(f8_set(a), v, load_f32(y + i, n - i)), n - i);                 \
        }                                                                                          \
    }

STORED_TYPE(f32, 4)
STORED_TYPE(f16, 2)
STORED_TYPE(bf16, 2)

/* Columns that are added up in registers. */
enum { ADD_BLOCKS = 8, ADD_COLS = ADD_BLOCKS * LANES };

static void add_rows(float *y, const dg_likely *word, int n, const float *rows, int n_col)
{
    int c = 0;
    for (; n && n_col - c >= ADD_COLS; c += ADD_COLS) {
        f8 sum[ADD_BLOCKS];
        for (int b = 0; b < ADD_BLOCKS; b++)
            sum[b] = f8_load_f32(y + c + b * LANES);
        for (int i = 0; i < n; i++) {
            const float *row = rows + (size_t)word[i].id * (size_t)n_col + c;
            const f8 p = f8_set(word[i].p);
            for (int b = 0; b < ADD_BLOCKS; b++)
                sum[b] = f8_fma(p, f8_load_f32(row + b * LANES), sum[b]);
        }
        for (int b = 0; b < ADD_BLOCKS; b++)
            f8_store_f32(y + c + b * LANES, sum[b]);
    }
    for (int i = 0; i < n && c < n_col; i++)
        axpy_f32(y + c, word[i].p, rows + (size_t)word[i].id * (size_t)n_col + c, n_col - c);
}

static inline d8 load_wide(const float *x, int n)
{
    return d8_widen(load_f32(x, n));
}

/* Lane i takes the elements i, i + 8, …: the order depends on nothing. */
static double sum(const float *x, int n)
{
    d8 s = d8_set(0);
    for (int i = 0; i < n; i += LANES)
        s = d8_add(s, load_wide(x + i, n - i));
    return d8_sum(s);
}

static double dot(const float *x, const float *y, int n)
{
    d8 s = d8_set(0);
    for (int i = 0; i < n; i += LANES)
        s = d8_fma(load_wide(x + i, n - i), load_wide(y + i, n - i), s);
    return d8_sum(s);
}

static void rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    d8 scale = d8_set(1 / sqrt(dot(x, x, n) / n + (double)eps));
    for (int i = 0; i < n; i += LANES) {
        d8 v = d8_mul(load_wide(x + i, n - i), scale);
        if (w)
            v = d8_mul(v, load_wide(w + i, n - i));
        store_f32(y + i, d8_narrow(v), n - i);
    }
}

static void rope(float *x, const float *cosine, const float *sine, int n_pair, int half)
{
    float *z = x + half;
    for (int i = 0; i < n_pair; i += LANES) {
        int n = n_pair - i;
        f8 c = load_f32(cosine + i, n), s = load_f32(sine + i, n);
        f8 a = load_f32(x + i, n), b = load_f32(z + i, n);
        store_f32(x + i, f8_fnma(b, s, f8_mul(a, c)), n);
        store_f32(z + i, f8_fma(a, s, f8_mul(b, c)), n);
    }
}

static inline float largest_lane(f8 lanes)
{
    float x[LANES], largest = -INFINITY;
    f8_store_f32(x, lanes);
    for (int j = 0; j < LANES; j++)
        largest = x[j] > largest ? x[j] : largest;
    return largest;
}

/* The largest value first, then where it stands: two plain passes, the second one stops early. */
static int argmax(const float *x, int n, float *max)
{
    f8 lanes = f8_set(-INFINITY);
    int i = 0;
    for (; n - i >= LANES; i += LANES)
        lanes = f8_max(lanes, f8_load_f32(x + i));
    float largest = largest_lane(lanes);
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;

    i = 0;
    while (n - i >= LANES && !f8_any_equal(f8_load_f32(x + i), f8_set(largest)))
        i += LANES;
    while (i < n && x[i] != largest)
        i++;
    *max = i < n ? x[i] : NAN;
    return i < n ? i : 0;
}

/* (c[0] + c[1] r) + (c[2] + c[3] r) r^2: two steps deep, where Horner's rule is three. */
static inline d8 cubic(const double c[4], d8 r, d8 r2)
{
    d8 low = d8_fma(d8_set(c[1]), r, d8_set(c[0])), high = d8_fma(d8_set(c[3]), r, d8_set(c[2]));
    return d8_fma(high, r2, low);
}

/* e^x = 2^n (1 + q) with |x - n ln 2| <= ln 2 / 2: returns q, leaves 2^n in *scale. Past 709 the
 * scale is infinite, below -700 it stays at e^-700: both far outside of float. */
static inline d8 exp_parts(d8 x, d8 *scale)
{
    /* Taylor's coefficients 1/2! … 1/9!; the rest is below 2^-36 of q. */
    static const double c[] = {0x1p-1,
                               0x1.5555555555555p-3,
                               0x1.5555555555555p-5,
                               0x1.1111111111111p-7,
                               0x1.6c16c16c16c17p-10,
                               0x1.a01a01a01a01ap-13,
                               0x1.a01a01a01a01ap-16,
                               0x1.71de3a556c734p-19};
    /* Adding it rounds to a whole number, which then stands in the lowest bits. */
    const d8 round = d8_set(0x1.8p52);
    x = d8_clamp(x, -700, 710);
    d8 t = d8_fma(x, d8_set(0x1.71547652b82fep+0), round); /* 1 / ln 2 */
    d8 r = d8_fma(d8_sub(t, round), d8_set(-0x1.62e42fefa39efp-1), x);
    d8 r2 = d8_mul(r, r);
    d8 p = d8_fma(cubic(c + 4, r, r2), d8_mul(r2, r2), cubic(c, r, r2));
    *scale = d8_pow2_low(t);
    return d8_fma(r2, p, r);
}

static inline d8 exp8(d8 x)
{
    d8 scale, q = exp_parts(x, &scale);
    return d8_mul(d8_add(q, d8_set(1)), scale);
}

/* From m = e^(-2|x|) - 1, whose relative error stays small near 0: tanh |x| = -m / (2 + m). */
static inline d8 tanh8(d8 x)
{
    d8 scale, q = exp_parts(d8_mul(d8_abs(x), d8_set(-2)), &scale);
    d8 m = d8_fma(scale, q, d8_sub(scale, d8_set(1)));
    return d8_copysign(d8_div(m, d8_sub(d8_set(-2), m)), x);
}

static void exp_shift(float *e, const float *z, int n, float shift)
{
    for (int i = 0; i < n; i += LANES) {
        d8 v = exp8(d8_sub(load_wide(z + i, n - i), d8_set(shift)));
        store_f32(e + i, d8_narrow(d8_zero_below(v, 0x1p-126)), n - i);
    }
}

/* What is left of a vector may be less than eight: the other lanes count for nothing. */
static dg_exp_sums exp_sums(float *e, const float *z, int n, float shift)
{
    const f8 by = f8_set(shift);
    d8 mass = d8_set(0), slope = d8_set(0);
    f8 most = f8_set(0);
    for (int i = 0; i < n; i += LANES) {
        f8 d = f8_sub(load_f32(z + i, n - i), by);
        f8 v = d8_narrow(d8_zero_below(exp8(d8_widen(d)), 0x1p-126));
        store_f32(e + i, v, n - i);
        if (n - i < LANES)
            v = load_f32(e + i, n - i);
        mass = d8_add(mass, d8_widen(v));
        slope = d8_fma(d8_widen(v), d8_widen(d), slope);
        most = f8_max(most, v);
    }
    return (dg_exp_sums){d8_sum(mass), d8_sum(slope), largest_lane(most)};
}

static void softcap(float *z, int n, float cap, float temperature)
{
    const f8 cold = f8_set(temperature);
    const d8 up = d8_set(cap), down = d8_set(1 / (double)cap);
    for (int i = 0; i < n; i += LANES) {
        d8 v = tanh8(d8_mul(load_wide(z + i, n - i), down));
        store_f32(z + i, f8_div(d8_narrow(d8_mul(v, up)), cold), n - i);
    }
}

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), which loses nothing for negative u. */
static void gelu_mul(float *y, const float *gate, const float *up, int n)
{
    const d8 linear = d8_set(-2 * 0.79788456080286535588); /* -2 sqrt(2 / pi) */
    const d8 cube = d8_set(-2 * 0.79788456080286535588 * 0.044715);
    for (int i = 0; i < n; i += LANES) {
        d8 g = load_wide(gate + i, n - i);
        d8 e = exp8(d8_mul(g, d8_fma(d8_mul(g, g), cube, linear)));
        d8 v = d8_mul(g, d8_div(load_wide(up + i, n - i), d8_add(d8_set(1), e)));
        store_f32(y + i, d8_narrow(v), n - i);
    }
}

#define SET_BY_TYPE(k, type, name)                                                                 \
    do {                                                                                           \
        (k)->pack_cols[type] = pack_cols_##name;                                                   \
        (k)->pack_rows[type] = pack_rows_##name;                                                   \
        (k)->widen[type] = widen_##name;                                                           \
        (k)->narrow[type] = narrow_##name;                                                         \
        (k)->axpy[type] = axpy_##name;                                                             \
    } while (0)

/* All of the above into *k. */
static void set_vector_kernels(dg_kernels *k)
{
    SET_BY_TYPE(k, DG_F32, f32);
    SET_BY_TYPE(k, DG_F16, f16);
    SET_BY_TYPE(k, DG_BF16, bf16);
    k->rmsnorm = rmsnorm;
    k->rope = rope;
    k->gelu_mul = gelu_mul;
    k->softcap = softcap;
    k->exp_shift = exp_shift;
    k->exp_sums = exp_sums;
    k->add_rows = add_rows;
    k->sum = sum;
    k->dot = dot;
    k->argmax = argmax;
}

#undef BLOCKS
#undef STORED_TYPE
#undef SET_BY_TYPE

#endif
