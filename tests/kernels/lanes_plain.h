/* What cpu/x86/lanes_avx512.h offers, in plain C. */
#ifndef DG_TESTS_KERNELS_LANES_PLAIN_H
#define DG_TESTS_KERNELS_LANES_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"

typedef union v64 {
    int8_t b[64];
    uint8_t u[64];
    int32_t i[16];
    uint32_t w[16];
    uint16_t h[32];
    uint64_t d[8];
} v64;

typedef struct f16v {
    float f[16];
} f16v;

/* Functions stay functions: what is made of them is checked, not timed. */
#define INLINE static __attribute__((noinline, unused))
#define UNROLL
#define QUANTISE       quantise_plain
#define QUANTISE_SUPER quantise_super_plain
#define float_of_f16   dg_f16_to_float

static inline void quantise_plain(dg_qpair *out, int which, const float *x, int n_block)
{
    dg_quantised_ref.quantise(out, which, x, n_block);
}

static inline void quantise_super_plain(dg_qpair *out, int which, const float *x, int n_block)
{
    dg_quantised_ref.quantise_super(out, which, x, n_block);
}

INLINE void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    for (int k = 0; k < 16; k++)
        out[k] = table[n[k]];
}

INLINE v64 v64_load(const void *p)
{
    v64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void v64_store(void *p, v64 a)
{
    memcpy(p, &a, sizeof a);
}

INLINE v64 v64_load_quarters(const void *a, const void *b, const void *c, const void *d)
{
    v64 v;
    const void *from[] = {a, b, c, d};
    for (int k = 0; k < 4; k++)
        memcpy(v.b + 16 * k, from[k], 16);
    return v;
}

INLINE v64 v64_load_twice(const void *p)
{
    v64 v;
    memcpy(v.b, p, 32);
    memcpy(v.b + 32, p, 32);
    return v;
}

INLINE v64 v64_load_two_twice(const void *a, const void *b)
{
    return v64_load_quarters(a, a, b, b);
}

INLINE v64 v64_widen16_first(const void *p, int n)
{
    v64 v = {.b = {0}};
    for (int k = 0; k < n; k++)
        memcpy(&v.b[4 * k], (const uint8_t *)p + 2 * k, 2);
    return v;
}

INLINE v64 v64_gather(const void *p, v64 at)
{
    v64 v;
    for (int k = 0; k < 16; k++)
        memcpy(&v.i[k], (const uint8_t *)p + at.i[k], 4);
    return v;
}

INLINE v64 v64_set8(int a)
{
    v64 v;
    memset(&v, a & 255, sizeof v);
    return v;
}

INLINE v64 v64_set32(int32_t a)
{
    v64 v;
    for (int k = 0; k < 16; k++)
        v.i[k] = a;
    return v;
}

INLINE v64 unpacked32(v64 a, v64 b, int first)
{
    v64 v;
    for (int k = 0; k < 16; k++)
        v.w[k] = (k % 2 ? b : a).w[k / 4 * 4 + first + k % 4 / 2];
    return v;
}

INLINE v64 unpacked64(v64 a, v64 b, int first)
{
    v64 v;
    for (int k = 0; k < 8; k++)
        v.d[k] = (k % 2 ? b : a).d[k / 2 * 2 + first];
    return v;
}

INLINE v64 v64_low32(v64 a, v64 b)
{
    return unpacked32(a, b, 0);
}

INLINE v64 v64_high32(v64 a, v64 b)
{
    return unpacked32(a, b, 2);
}

INLINE v64 v64_low64(v64 a, v64 b)
{
    return unpacked64(a, b, 0);
}

INLINE v64 v64_high64(v64 a, v64 b)
{
    return unpacked64(a, b, 1);
}

INLINE v64 v64_and(v64 a, v64 b)
{
    for (int k = 0; k < 8; k++)
        a.d[k] &= b.d[k];
    return a;
}

INLINE v64 v64_or(v64 a, v64 b)
{
    for (int k = 0; k < 8; k++)
        a.d[k] |= b.d[k];
    return a;
}

INLINE v64 v64_add8(v64 a, v64 b)
{
    for (int k = 0; k < 64; k++)
        a.u[k] = (uint8_t)(a.u[k] + b.u[k]);
    return a;
}

INLINE v64 v64_add32(v64 a, v64 b)
{
    for (int k = 0; k < 16; k++)
        a.w[k] += b.w[k];
    return a;
}

INLINE v64 v64_mul16(v64 a, v64 b)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)((uint32_t)a.h[k] * b.h[k]);
    return a;
}

INLINE v64 v64_mul_round16(v64 a, v64 b)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)(((int16_t)a.h[k] * (int16_t)b.h[k] + (1 << 14)) >> 15);
    return a;
}

INLINE v64 v64_sub16(v64 a, v64 b)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)(a.h[k] - b.h[k]);
    return a;
}

INLINE v64 v64_add16(v64 a, v64 b)
{
    for (int i = 0; i < 32; i++)
        a.h[i] = (uint16_t)(a.h[i] + b.h[i]);
    return a;
}

INLINE v64 v64_byte_right16(v64 a)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)(a.h[k] >> 8);
    return a;
}

INLINE v64 v64_left32(v64 a, int by)
{
    for (int k = 0; k < 16; k++)
        a.w[k] <<= by;
    return a;
}

INLINE v64 v64_right32(v64 a, int by)
{
    for (int k = 0; k < 16; k++)
        a.w[k] >>= by;
    return a;
}

INLINE v64 v64_right_signed32(v64 a, int by)
{
    for (int k = 0; k < 16; k++)
        a.i[k] >>= by;
    return a;
}

INLINE v64 v64_left64_each(v64 a, v64 by)
{
    for (int k = 0; k < 8; k++)
        a.d[k] <<= by.d[k];
    return a;
}

INLINE v64 v64_right64_each(v64 a, v64 by)
{
    for (int k = 0; k < 8; k++)
        a.d[k] >>= by.d[k];
    return a;
}

INLINE v64 v64_add8_where(v64 a, v64 by, uint64_t where)
{
    for (int k = 0; k < 64; k++)
        a.u[k] = (uint8_t)(a.u[k] + (where >> k & 1 ? by.u[k] : 0));
    return a;
}

INLINE v64 v64_max8(v64 a, v64 b)
{
    for (int k = 0; k < 64; k++)
        a.u[k] = a.u[k] > b.u[k] ? a.u[k] : b.u[k];
    return a;
}

INLINE v64 v64_clear8_where_equal(v64 a, v64 b)
{
    for (int k = 0; k < 64; k++)
        a.u[k] = a.u[k] == b.u[k] ? 0 : a.u[k];
    return a;
}

INLINE v64 v64_right16_each(v64 a, v64 by)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = by.h[k] < 16 ? (uint16_t)(a.h[k] >> by.h[k]) : 0;
    return a;
}

INLINE v64 v64_half_up16(v64 a)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)((a.h[k] + 1) >> 1);
    return a;
}

INLINE v64 v64_minus16_where_minus(v64 a, v64 of)
{
    for (int k = 0; k < 32; k++)
        a.h[k] = (uint16_t)(of.h[k] & 0x8000 ? -a.h[k] : a.h[k]);
    return a;
}

INLINE v64 v64_shuffle8(v64 a, v64 order)
{
    v64 v;
    for (int k = 0; k < 64; k++)
        v.u[k] = order.u[k] & 128 ? 0 : a.u[k / 16 * 16 + order.u[k] % 16];
    return v;
}

INLINE v64 v64_sub8_where_clear(v64 a, v64 by, v64 of, v64 bits)
{
    for (int k = 0; k < 64; k++)
        a.u[k] = (uint8_t)(a.u[k] - (of.u[k] & bits.u[k] ? 0 : by.u[k]));
    return a;
}

INLINE f16v f16v_set(float a)
{
    f16v v;
    for (int k = 0; k < 16; k++)
        v.f[k] = a;
    return v;
}

INLINE f16v f16v_zero(void)
{
    return f16v_set(0);
}

INLINE f16v f16v_load(const float *p)
{
    f16v v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void f16v_store(float *p, f16v a)
{
    memcpy(p, &a, sizeof a);
}

INLINE f16v f16v_load_first(const float *p, int n)
{
    f16v v = f16v_zero();
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

INLINE void f16v_store_first(float *p, f16v a, int n)
{
    memcpy(p, &a, (size_t)n * sizeof *p);
}

INLINE f16v f16v_of_i32(v64 a)
{
    f16v v;
    for (int k = 0; k < 16; k++)
        v.f[k] = (float)a.i[k];
    return v;
}

/* What has no place among the integers becomes the least of them, as the instruction has it. */
INLINE v64 v64_of_f16v(f16v a)
{
    v64 v;
    for (int k = 0; k < 16; k++)
        v.i[k] = fabsf(a.f[k]) < 0x1p31f ? (int32_t)rintf(a.f[k]) : INT32_MIN;
    return v;
}

INLINE f16v f16v_of_bits(v64 a)
{
    f16v v;
    memcpy(&v, &a, sizeof v);
    return v;
}

INLINE v64 bits_of_f16v(f16v a)
{
    v64 v;
    memcpy(&v, &a, sizeof v);
    return v;
}

INLINE f16v f16v_of_f16(v64 a)
{
    f16v v;
    for (int k = 0; k < 16; k++)
        v.f[k] = dg_f16_to_float((uint16_t)a.w[k]);
    return v;
}

INLINE f16v f16v_add(f16v a, f16v b)
{
    for (int k = 0; k < 16; k++)
        a.f[k] += b.f[k];
    return a;
}

INLINE f16v f16v_sub(f16v a, f16v b)
{
    for (int k = 0; k < 16; k++)
        a.f[k] -= b.f[k];
    return a;
}

INLINE f16v f16v_max(f16v a, f16v b)
{
    for (int k = 0; k < 16; k++)
        a.f[k] = a.f[k] > b.f[k] ? a.f[k] : b.f[k];
    return a;
}

INLINE f16v f16v_mul(f16v a, f16v b)
{
    for (int k = 0; k < 16; k++)
        a.f[k] *= b.f[k];
    return a;
}

INLINE f16v f16v_div(f16v a, f16v b)
{
    for (int i = 0; i < 16; i++)
        a.f[i] = b.f[i] == 0 ? INFINITY : a.f[i] / b.f[i]; /* nobody divides 0 by it */
    return a;
}

INLINE f16v f16v_abs(f16v a)
{
    for (int i = 0; i < 16; i++)
        a.f[i] = fabsf(a.f[i]);
    return a;
}

INLINE f16v f16v_larger(f16v a, f16v b)
{
    for (int i = 0; i < 16; i++)
        a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}

INLINE f16v f16v_where_least(f16v a, f16v least, f16v b)
{
    for (int i = 0; i < 16; i++)
        a.f[i] = a.f[i] >= least.f[i] ? b.f[i] : 0;
    return a;
}

INLINE f16v f16v_fma(f16v a, f16v b, f16v c)
{
    for (int k = 0; k < 16; k++)
        c.f[k] = fmaf(a.f[k], b.f[k], c.f[k]);
    return c;
}

INLINE f16v f16v_fnma(f16v a, f16v b, f16v c)
{
    for (int k = 0; k < 16; k++)
        c.f[k] = fmaf(-a.f[k], b.f[k], c.f[k]);
    return c;
}

INLINE v64 v64_dot_bytes(v64 sum, v64 a, v64 b)
{
    for (int k = 0; k < 64; k++)
        sum.i[k / 4] += a.u[k] * b.b[k];
    return sum;
}

INLINE v64 v64_dot_four(v64 sum, v64 a, const void *four)
{
    const int8_t *b = four;
    for (int k = 0; k < 64; k++)
        sum.i[k / 4] += a.u[k] * b[k % 4];
    return sum;
}

INLINE float f16v_largest(f16v a)
{
    float most = a.f[0];
    for (int k = 1; k < 16; k++)
        most = a.f[k] > most ? a.f[k] : most;
    return most;
}

INLINE float f16v_total(f16v a)
{
    float sum = 0;
    for (int k = 0; k < 16; k++)
        sum += a.f[k];
    return sum;
}

INLINE uint16_t bfloat_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return fabsf(f) < 0x1p-126f ? 0 : (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

INLINE v64 v64_of_bfloats(f16v a, f16v b)
{
    v64 v;
    for (int k = 0; k < 32; k++)
        v.h[k] = bfloat_of((k < 16 ? a : b).f[k % 16]);
    return v;
}

INLINE f16v f16v_add_bfloats(f16v sum, v64 numbers)
{
    for (int k = 0; k < 32; k++) {
        const uint32_t bits = (uint32_t)numbers.h[k ^ 1] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        sum.f[k / 2] += f;
    }
    return sum;
}

#endif
