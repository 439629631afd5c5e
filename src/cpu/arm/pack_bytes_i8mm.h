/* Panels of bytes for the matrix instruction of 8-bit integers: cpu/bytes.h says what a byte is,
 * arm/i8mm.h how they lie. An expert has few rows for each panel, so packing counts, and on the
 * processors that it was written on conversions between integers and floats start once a cycle,
 * shifts and multiplications twice, all else four times. So floats become integers, and integers
 * floats, by the bits of a large float whose unit is 1. */
#ifndef DG_CPU_ARM_PACK_BYTES_I8MM_H
#define DG_CPU_ARM_PACK_BYTES_I8MM_H

#include "cpu/arm/i8mm.h"
#include "cpu/bytes.h"

/* What is packed: n_value values of n_col columns at src. */
typedef struct packing {
    dg_byte_panel *panel;
    const uint8_t *src;
    size_t stride;
    int n_value, n_col;
    float scale;
} packing;

/* The steps of four columns' groups, side by side, and their least values. */
typedef struct group_steps {
    float32x4_t a[DG_QGROUPS], b[DG_QGROUPS];
} group_steps;

/* Of each group and column what its numbers are multiplied with, A, and what is added: numbers are
 * `up` higher than they are, so it is 128 - B - up * A. Small floats have other things in them. */
typedef struct factors {
    uint16_t of[DG_QGROUPS][2 * FOUR];
} factors;

/* What no value of each column exceeds. Where a step is not finite this is not either: then the
 * column's step is NaN, or infinite with bytes that are all 0, and what is made of it NaN. */
INLINE float32x4_t reach_of(const group_steps *s, const int n_group, const bool least, const int up,
                            const int most)
{
    float32x4_t all = vdupq_n_f32(0);
    for (int g = 0; g < n_group; g++)
        if (least)
            all = vmaxq_f32(all, vmaxq_f32(vabsq_f32(s->b[g]),
                                           vabsq_f32(vfmsq_n_f32(s->b[g], s->a[g], (float)most))));
        else
            all = vmaxq_f32(all, vabsq_f32(s->a[g]));
    return least ? all : vmulq_n_f32(all, (float)up);
}

/* The nearest whole number in the lower half of each word: whatever the upper half is. */
INLINE int32x4_t nearest(float32x4_t v)
{
    return vreinterpretq_s32_f32(vaddq_f32(v, vdupq_n_f32(0x1.8p23f)));
}

/* The steps of columns from c on; returns what makes whole numbers of their groups' steps. */
INLINE float32x4_t set_steps(const packing *p, int c, float32x4_t reach)
{
    const float32x4_t step = vdivq_f32(reach, vdupq_n_f32(127)),
                      all = vdivq_f32(vdupq_n_f32(DG_BYTE_FULL), reach);
    const uint32x4_t some = vcgeq_f32(reach, vdupq_n_f32(DG_BYTE_LEAST));
    vst1q_f32(p->panel->step + c, vmulq_n_f32(step, p->scale));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(all), some));
}

/* The same, and the factors of the groups. */
INLINE void set_factors(factors *by, const packing *p, int c, const group_steps *s,
                        const int n_group, const bool least, const int up, const int most)
{
    const float32x4_t ratio = set_steps(p, c, reach_of(s, n_group, least, up, most));
    for (int g = 0; g < n_group; g++) {
        const int32x4_t times = nearest(vmulq_f32(s->a[g], ratio));
        int32x4_t lift = vdupq_n_s32(128);
        if (least)
            lift = vsubq_s32(lift, nearest(vmulq_f32(s->b[g], ratio)));
        if (up)
            lift = vmlsq_n_s32(lift, times, up);
        vst1q_s32((int32_t *)by->of[g], vsliq_n_s32(times, lift, 16));
    }
}

/* ---- numbers to bytes ---- */

/* Factors of a group's four columns as they lie: a lane is multiplied with where it is, and only
 * `lift` has to be put everywhere. */
INLINE uint16x8_t group_factors(const factors *by, int g)
{
    return vld1q_u16(by->of[g]);
}

/* x * A + lift of column i, a constant, of which the upper bytes are kept: x are sixteen numbers,
 * as halves. */
#define UPPER_BYTES(x, f, i)                                                                       \
    vreinterpretq_s8_u8(vaddhn_high_u16(                                                           \
        vaddhn_u16(vmulq_laneq_u16((x).n[0], f, 2 * (i)), vdupq_laneq_u16(f, 2 * (i) + 1)),        \
        vmulq_laneq_u16((x).n[1], f, 2 * (i)), vdupq_laneq_u16(f, 2 * (i) + 1)))

INLINE sixteen as_halves(uint8x16_t n)
{
    const uint8x16_t zero = vdupq_n_u8(0);
    return (sixteen){
        {vreinterpretq_u16_u8(vzip1q_u8(n, zero)), vreinterpretq_u16_u8(vzip2q_u8(n, zero))}};
}

INLINE void all_upper_bytes(int8x16_t out[FOUR], uint16x8_t f, const sixteen x[FOUR])
{
    out[0] = UPPER_BYTES(x[0], f, 0);
    out[1] = UPPER_BYTES(x[1], f, 1);
    out[2] = UPPER_BYTES(x[2], f, 2);
    out[3] = UPPER_BYTES(x[3], f, 3);
}

/* Sixteen numbers of each column, `up` higher than they are. */
INLINE void to_bytes(int8x16_t out[FOUR], uint16x8_t f, const uint8x16_t n[FOUR])
{
    const sixteen x[FOUR] = {as_halves(n[0]), as_halves(n[1]), as_halves(n[2]), as_halves(n[3])};
    all_upper_bytes(out, f, x);
}

/* ---- four bits: a table of sixteen bytes for each group ---- */

INLINE sixteen ascending(void)
{
    static const uint16_t n[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (sixteen){{vld1q_u16(n), vld1q_u16(n + 8)}};
}

INLINE void set_tables(int8x16_t table[FOUR], uint16x8_t f, sixteen n)
{
    const sixteen x[FOUR] = {n, n, n, n};
    all_upper_bytes(table, f, x);
}

/* Sixteen bytes of numbers: from value `low` on, and from `high` on. */
INLINE void look_up(const four_columns *f, const uint8x16_t q[FOUR], const int8x16_t first[FOUR],
                    const int8x16_t second[FOUR], int low, int high)
{
    uint8x16_t low_half[FOUR], high_half[FOUR];
    int8x16_t a[FOUR], b[FOUR];
    for (int i = 0; i < FOUR; i++) {
        low_half[i] = vandq_u8(q[i], vdupq_n_u8(15));
        high_half[i] = vshrq_n_u8(q[i], 4);
    }
    for (int i = 0; i < FOUR; i++) {
        a[i] = vqtbl1q_s8(first[i], low_half[i]);
        b[i] = vqtbl1q_s8(second[i], high_half[i]);
    }
    set_numbers(f->n, low, a);
    set_numbers(f->n, high, b);
}

/* ---- Q4_K ---- */

/* Byte g of each word as a float. */
INLINE float32x4_t byte_as_float(uint8x16_t words, const int g)
{
    static const uint8_t from[4][16] = {
        {0, 255, 255, 19, 4, 255, 255, 19, 8, 255, 255, 19, 12, 255, 255, 19},
        {1, 255, 255, 19, 5, 255, 255, 19, 9, 255, 255, 19, 13, 255, 255, 19},
        {2, 255, 255, 19, 6, 255, 255, 19, 10, 255, 255, 19, 14, 255, 255, 19},
        {3, 255, 255, 19, 7, 255, 255, 19, 11, 255, 255, 19, 15, 255, 255, 19},
    };
    const float32x4_t zero = vdupq_n_f32(0x1p23f); /* byte 19: what its exponent is in */
    const uint8x16x2_t both = {{words, vreinterpretq_u8_f32(zero)}};
    return vsubq_f32(vreinterpretq_f32_u8(vqtbl2q_u8(both, vld1q_u8(from[g]))), zero);
}

/* Word i of each column in out[i]. */
INLINE void turn_words(uint32x4_t out[4], const four_columns *f)
{
    uint32x4_t w[FOUR];
    for (int i = 0; i < FOUR; i++)
        w[i] = vreinterpretq_u32_u8(vld1q_u8(f->at[i]));
    const uint32x4_t a = vzip1q_u32(w[0], w[2]), b = vzip1q_u32(w[1], w[3]),
                     c = vzip2q_u32(w[0], w[2]), d = vzip2q_u32(w[1], w[3]);
    out[0] = vzip1q_u32(a, b);
    out[1] = vzip2q_u32(a, b);
    out[2] = vzip1q_u32(c, d);
    out[3] = vzip2q_u32(c, d);
}

/* Steps and least values of eight groups: numbers_body.h's six_bit_scales. */
INLINE void factors_of_q4_k(factors *by, const packing *p, int c, const four_columns *f,
                            const int up, const int most)
{
    const uint8x16_t six = vdupq_n_u8(63), four = vdupq_n_u8(15), two = vdupq_n_u8(0x30);
    uint32x4_t w[4];
    uint8x16_t a, b, last;
    group_steps s;
    turn_words(w, f);
    a = vreinterpretq_u8_u32(w[1]);
    b = vreinterpretq_u8_u32(w[2]);
    last = vreinterpretq_u8_u32(w[3]);
    const float32x4_t step = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(w[0]))),
                      least = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(w[0], 16)));
    const uint8x16_t times[2] = {vandq_u8(a, six),
                                 vbslq_u8(two, vshrq_n_u8(a, 2), vandq_u8(last, four))},
                     less[2] = {vandq_u8(b, six),
                                vbslq_u8(two, vshrq_n_u8(b, 2), vshrq_n_u8(last, 4))};
    for (int i = 0; i < 2; i++) {
        s.a[4 * i] = vmulq_f32(byte_as_float(times[i], 0), step);
        s.a[4 * i + 1] = vmulq_f32(byte_as_float(times[i], 1), step);
        s.a[4 * i + 2] = vmulq_f32(byte_as_float(times[i], 2), step);
        s.a[4 * i + 3] = vmulq_f32(byte_as_float(times[i], 3), step);
        s.b[4 * i] = vmulq_f32(byte_as_float(less[i], 0), least);
        s.b[4 * i + 1] = vmulq_f32(byte_as_float(less[i], 1), least);
        s.b[4 * i + 2] = vmulq_f32(byte_as_float(less[i], 2), least);
        s.b[4 * i + 3] = vmulq_f32(byte_as_float(less[i], 3), least);
    }
    set_factors(by, p, c, &s, DG_QBLOCKS, true, up, most);
}

INLINE void pack_q4_k(const four_columns *f, const factors *by)
{
    const sixteen n = ascending();
    for (int g = 0; g < DG_QBLOCKS; g += 2) { /* 32 bytes are 32 low halves, then 32 high ones */
        int8x16_t first[FOUR], second[FOUR];
        set_tables(first, group_factors(by, g), n);
        set_tables(second, group_factors(by, g + 1), n);
        for (int m = 0; m < 2; m++) {
            uint8x16_t q[FOUR];
            for (int i = 0; i < FOUR; i++)
                q[i] = vld1q_u8(f->at[i] + 16 + 16 * g + 16 * m);
            look_up(f, q, first, second, 32 * g + 16 * m, 32 * g + 32 + 16 * m);
        }
    }
}

/* ---- blocks of 32 with a half for their step ---- */

/* The word at `from` of each column. */
INLINE uint32x4_t words_at(const four_columns *f, int from)
{
    uint32_t w[FOUR];
    for (int i = 0; i < FOUR; i++)
        memcpy(&w[i], f->at[i] + from, sizeof w[i]);
    return vcombine_u32(vcreate_u32(w[0] | (uint64_t)w[1] << 32),
                        vcreate_u32(w[2] | (uint64_t)w[3] << 32));
}

/* The half at `from` of each column, as floats. */
INLINE float32x4_t halves_at(const four_columns *f, int from)
{
    uint64_t all = 0;
    for (int i = 0; i < FOUR; i++) {
        uint16_t half;
        memcpy(&half, f->at[i] + from, sizeof half);
        all |= (uint64_t)half << 16 * i;
    }
    return vcvt_f32_f16(vcreate_f16(all));
}

INLINE void factors_of_blocks(factors *by, const packing *p, int c, const four_columns *f,
                              const int bytes, const int up)
{
    const int last = p->n_value / DG_QBLOCK - 1;
    group_steps s;
    for (int b = 0; b < DG_QBLOCKS; b++) /* behind the last one it is the last again */
        s.a[b] = halves_at(f, dg_min(b, last) * bytes);
    set_factors(by, p, c, &s, DG_QBLOCKS, false, up, 0);
}

/* Whose numbers are four bits each, `bytes` from block to block and the first ones at `from`. */
INLINE void pack_nibbles(const four_columns *f, const factors *by, int n_block, const int from,
                         const int bytes, sixteen n)
{
    for (int b = 0; b < n_block; b++) {
        int8x16_t table[FOUR];
        uint8x16_t q[FOUR];
        set_tables(table, group_factors(by, b), n);
        for (int i = 0; i < FOUR; i++)
            q[i] = vld1q_u8(f->at[i] + from + b * bytes);
        look_up(f, q, table, table, 32 * b, 32 * b + 16);
    }
}

INLINE sixteen levels(void)
{
    return as_halves(veorq_u8(vreinterpretq_u8_s8(vld1q_s8(nl_levels)), vdupq_n_u8(128)));
}

/* ---- blocks of 32 with a least value ---- */

/* The float at `from` of each column. */
INLINE float32x4_t floats_at(const four_columns *f, int from)
{
    return vreinterpretq_f32_u32(words_at(f, from));
}

/* A half for the step, and one that is the least value with another sign. */
INLINE void factors_of_least(factors *by, const packing *p, int c, const four_columns *f,
                             const int bytes, const int most)
{
    const int last = p->n_value / DG_QBLOCK - 1;
    group_steps s;
    for (int b = 0; b < DG_QBLOCKS; b++) {
        const int at = dg_min(b, last) * bytes;
        s.a[b] = halves_at(f, at);
        s.b[b] = vnegq_f32(halves_at(f, at + 2));
    }
    set_factors(by, p, c, &s, DG_QBLOCKS, true, 0, most);
}

INLINE void factors_of_affine4(factors *by, const packing *p, int c, const four_columns *f,
                               const int most)
{
    const int last = p->n_value / DG_QBLOCK - 1;
    group_steps s;
    for (int b = 0; b < DG_QBLOCKS; b++) {
        s.a[b] = floats_at(f, dg_min(b, last) * 24);
        s.b[b] = floats_at(f, dg_min(b, last) * 24 + 4);
    }
    set_factors(by, p, c, &s, DG_QBLOCKS, true, 0, most);
}

/* ---- IQ4_XS ---- */

INLINE void factors_of_iq4_xs(factors *by, const packing *p, int c, const four_columns *f,
                              const int up)
{
    const float32x4_t d = halves_at(f, 0);
    uint32_t high[FOUR], low[FOUR];
    group_steps s;
    for (int i = 0; i < FOUR; i++) {
        uint16_t bits;
        memcpy(&bits, f->at[i] + 2, sizeof bits);
        memcpy(&low[i], f->at[i] + 4, sizeof low[i]);
        high[i] = bits;
    }
    uint32x4_t four = vld1q_u32(low), two = vld1q_u32(high);
    for (int g = 0; g < DG_QBLOCKS; g++) {
        const uint32x4_t scale =
            vsliq_n_u32(vandq_u32(four, vdupq_n_u32(15)), vandq_u32(two, vdupq_n_u32(3)), 4);
        s.a[g] =
            vmulq_f32(d, vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(scale), vdupq_n_s32(32))));
        four = vshrq_n_u32(four, 4);
        two = vshrq_n_u32(two, 2);
    }
    set_factors(by, p, c, &s, DG_QBLOCKS, false, up, 0);
}

/* ---- numbers that are not looked up ---- */

/* Sixteen numbers of each column's block, the first or the second ones, so much higher than they
 * are that none is below 0. */
typedef void higher_of_fn(uint8x16_t n[FOUR], const four_columns *f, int at, const int second);

INLINE void higher_q8_0(uint8x16_t n[FOUR], const four_columns *f, int at, const int second)
{
    for (int i = 0; i < FOUR; i++)
        n[i] = veorq_u8(vld1q_u8(f->at[i] + at + 2 + 16 * second), vdupq_n_u8(128));
}

/* The fifth bits of sixteen numbers are two bytes of the four from `at` on, which nibbles follow:
 * each becomes a half of all or no bits, and the lower bytes of these are taken. */
INLINE void higher_q5(uint8x16_t n[FOUR], const four_columns *f, int at, const int second)
{
    static const uint16_t bit[16] = {1,       2,       4,       8,      16,      32,
                                     64,      128,     1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                     1 << 12, 1 << 13, 1 << 14, 1 << 15};
    for (int i = 0; i < FOUR; i++) {
        const uint8x16_t q = vld1q_u8(f->at[i] + at + 4);
        uint16_t bits;
        memcpy(&bits, f->at[i] + at + 2 * second, sizeof bits);
        const uint16x8_t h = vld1q_dup_u16(&bits);
        n[i] = vbslq_u8(vdupq_n_u8(16),
                        vuzp1q_u8(vreinterpretq_u8_u16(vtstq_u16(h, vld1q_u16(bit))),
                                  vreinterpretq_u8_u16(vtstq_u16(h, vld1q_u16(bit + 8)))),
                        second ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15)));
    }
}

INLINE void higher_q5_0(uint8x16_t n[FOUR], const four_columns *f, int at, const int second)
{
    higher_q5(n, f, at + 2, second);
}

INLINE void higher_q5_1(uint8x16_t n[FOUR], const four_columns *f, int at, const int second)
{
    higher_q5(n, f, at + 4, second);
}

INLINE void pack_blocks(const four_columns *f, const factors *by, int n_block, const int bytes,
                        higher_of_fn *numbers)
{
    for (int b = 0; b < n_block; b++) {
        uint8x16_t first[FOUR], second[FOUR];
        int8x16_t v[FOUR], w[FOUR];
        numbers(first, f, b * bytes, 0);
        numbers(second, f, b * bytes, 1);
        to_bytes(v, group_factors(by, b), first);
        to_bytes(w, group_factors(by, b), second);
        set_numbers(f->n, b * DG_QBLOCK, v);
        set_numbers(f->n, b * DG_QBLOCK + 16, w);
    }
}

/* ---- Q6_K ---- */

INLINE void factors_of_q6_k(factors *by, const packing *p, int c, const four_columns *f,
                            const int up)
{
    const float32x4_t step = halves_at(f, 208);
    group_steps s;
    for (int k = 0; k < 4; k++) {
        /* four groups of each column; `times` has a sign: 128 higher, and then less */
        const uint8x16_t times =
            veorq_u8(vreinterpretq_u8_u32(words_at(f, 192 + 4 * k)), vdupq_n_u8(128));
        const float32x4_t zero = vdupq_n_f32(128);
        s.a[4 * k] = vmulq_f32(vsubq_f32(byte_as_float(times, 0), zero), step);
        s.a[4 * k + 1] = vmulq_f32(vsubq_f32(byte_as_float(times, 1), zero), step);
        s.a[4 * k + 2] = vmulq_f32(vsubq_f32(byte_as_float(times, 2), zero), step);
        s.a[4 * k + 3] = vmulq_f32(vsubq_f32(byte_as_float(times, 3), zero), step);
    }
    set_factors(by, p, c, &s, DG_QGROUPS, false, up, 0);
}

/* Numbers: four bits of `low`, two of `high` from bit 2 q on. */
INLINE void six_higher(uint8x16_t n[FOUR], const uint8x16_t low[FOUR], const uint8x16_t high[FOUR],
                       const int q)
{
    for (int i = 0; i < FOUR; i++)
        n[i] = q < 2 ? vandq_u8(low[i], vdupq_n_u8(15)) : vshrq_n_u8(low[i], 4);
    for (int i = 0; i < FOUR; i++) {
        const uint8x16_t two = q == 0   ? vshlq_n_u8(high[i], 4)
                               : q == 1 ? vshlq_n_u8(high[i], 2)
                               : q == 2 ? high[i]
                                        : vshrq_n_u8(high[i], 2);
        n[i] = vbslq_u8(vdupq_n_u8(0x30), two, n[i]);
    }
}

/* 128 values have 64 bytes of low halves and 32 of upper bits. */
INLINE void pack_q6_k(const four_columns *f, const factors *by)
{
    for (int m = 0; m < 4; m++) {
        const int half = m / 2, odd = m % 2, at = 64 * half + 16 * odd;
        uint8x16_t low[2][FOUR], high[FOUR], n[FOUR];
        for (int i = 0; i < FOUR; i++) {
            low[0][i] = vld1q_u8(f->at[i] + at);
            low[1][i] = vld1q_u8(f->at[i] + at + 32);
            high[i] = vld1q_u8(f->at[i] + 128 + 16 * m);
        }
        for (int q = 0; q < 4; q++) {
            int8x16_t v[FOUR];
            six_higher(n, low[q % 2], high, q);
            to_bytes(v, group_factors(by, 8 * half + 2 * q + odd), n);
            set_numbers(f->n, 128 * half + 16 * odd + 32 * q, v);
        }
    }
}

#include "cpu/arm/pack_bytes_floats_i8mm.h"

/* ---- all the others, column by column ---- */

INLINE void pack_numbers(const packing *p, int c, const four_columns *f, const dg_qkind kind,
                         const int up, const int most, dg_numbers_fn *row)
{
    const int group = group_of(kind), n_group = DG_QSLICE / group;
    dg_numbers w[FOUR];
    group_steps s;
    factors by;
    for (int i = 0; i < FOUR; i++) {
        memset(w[i].step, 0, sizeof w[i].step);
        memset(w[i].least, 0, sizeof w[i].least);
        row(&w[i], f->at[i], p->n_value);
    }
    for (int g = 0; g < n_group; g++) {
        const float a[FOUR] = {w[0].step[g], w[1].step[g], w[2].step[g], w[3].step[g]},
                    b[FOUR] = {w[0].least[g], w[1].least[g], w[2].least[g], w[3].least[g]};
        s.a[g] = vld1q_f32(a);
        s.b[g] = vld1q_f32(b);
    }
    set_factors(&by, p, c, &s, n_group, has_least(kind), up, most);
    for (int k = 0; k < p->n_value; k += 16) {
        uint8x16_t n[FOUR];
        int8x16_t v[FOUR];
        for (int i = 0; i < FOUR; i++)
            n[i] = vaddq_u8(vreinterpretq_u8_s8(vld1q_s8(w[i].n + k)), vdupq_n_u8((uint8_t)up));
        to_bytes(v, group_factors(&by, k / group), n);
        set_numbers(f->n, k, v);
    }
}

/* ---- four columns ---- */

INLINE four_columns columns_of(const packing *p, int c)
{
    return columns_from(p->panel->n, p->src, p->stride, p->n_col, c);
}

/* What comes first, for all columns: nothing waits for divisions then. */
INLINE void set_four(factors *by, const packing *p, int c, const int up, const int most,
                     dg_numbers_fn *row)
{
    const four_columns f = columns_of(p, c);
    if (row == row_q4_k)
        factors_of_q4_k(by, p, c, &f, up, most);
    else if (row == row_q6_k)
        factors_of_q6_k(by, p, c, &f, up);
    else if (row == row_q4_0 || row == row_iq4_nl)
        factors_of_blocks(by, p, c, &f, 18, up);
    else if (row == row_q5_0)
        factors_of_blocks(by, p, c, &f, 22, up);
    else if (row == row_q8_0)
        factors_of_blocks(by, p, c, &f, 34, up);
    else if (row == row_q4_1)
        factors_of_least(by, p, c, &f, 20, most);
    else if (row == row_q5_1)
        factors_of_least(by, p, c, &f, 24, most);
    else if (row == row_affine4)
        factors_of_affine4(by, p, c, &f, most);
    else if (row == row_iq4_xs)
        factors_of_iq4_xs(by, p, c, &f, up);
    else if (row == row_mxfp4)
        factors_of_mxfp4(by, p, c, &f, up);
    else if (row == row_nvfp4)
        factors_of_nvfp4(by, p, c, &f, up);
    else if (row == row_e4m3)
        factors_of_e4m3(by, p, c, &f, up);
}

INLINE void pack_four(const factors *by, const packing *p, int c, const dg_qkind kind, const int up,
                      const int most, dg_numbers_fn *row)
{
    const four_columns f = columns_of(p, c);
    const int n_block = p->n_value / DG_QBLOCK;
    if (row == row_q4_k)
        pack_q4_k(&f, by);
    else if (row == row_q6_k)
        pack_q6_k(&f, by);
    else if (row == row_q4_0)
        pack_nibbles(&f, by, n_block, 2, 18, ascending());
    else if (row == row_q4_1)
        pack_nibbles(&f, by, n_block, 4, 20, ascending());
    else if (row == row_affine4)
        pack_nibbles(&f, by, n_block, 8, 24, ascending());
    else if (row == row_iq4_nl)
        pack_nibbles(&f, by, n_block, 2, 18, levels());
    else if (row == row_iq4_xs)
        pack_nibbles(&f, by, n_block, 8, 16, levels());
    else if (row == row_mxfp4)
        pack_mxfp4(&f, by, n_block);
    else if (row == row_nvfp4)
        pack_nvfp4(&f, by, p->n_value);
    else if (row == row_e4m3)
        pack_e4m3(&f, by, n_block);
    else if (row == row_q5_0)
        pack_blocks(&f, by, n_block, 22, higher_q5_0);
    else if (row == row_q5_1)
        pack_blocks(&f, by, n_block, 24, higher_q5_1);
    else if (row == row_q8_0)
        pack_blocks(&f, by, n_block, 34, higher_q8_0);
    else
        pack_numbers(p, c, &f, kind, up, most, row);
}

#endif
