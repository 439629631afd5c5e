/* What products with the matrix instruction of 8-bit integers (SMMLA) share: two rows of x times
 * two columns of a weight, eight values along k at a time; how the numbers of columns lie for it,
 * and how they come out of their blocks.
 *
 * Eight columns are four pairs, and sixteen bytes of a pair are eight values of one column and
 * eight of the other:  n [eight columns][eight values][pair] sixteen bytes.
 *
 * Four columns are packed at a time, whose pairs lie side by side: stores are what packing waits
 * for, and one of two registers takes no longer than one of one. */
#ifndef DG_CPU_ARM_I8MM_H
#define DG_CPU_ARM_I8MM_H

#include <arm_neon.h>
#include <string.h>
#include "base/common.h"
#include "cpu/arm/kernels_neon.h"
#include "cpu/arm/lanes_neon.h"
#include "cpu/numbers_body.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum {
    HALF = 8,                  /* columns that lie together: half of a panel of sixteen */
    PAIRS = HALF / 2,          /* of columns */
    HALF_N = DG_QSLICE * HALF, /* bytes of their numbers */
    FOUR = 4                   /* columns that are packed together */
};

/* ---- the instruction ---- */

/* sum + the products of two rows of x and two columns. Written out, since not every compiler's
 * header has it by itself. */
INLINE int32x4_t add_products(int32x4_t sum, int8x16_t x, int8x16_t w)
{
    __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}

/* ---- into a panel ---- */

/* Where four columns' blocks are, and where their numbers go. */
typedef struct four_columns {
    const uint8_t *at[FOUR];
    int8_t *n;
} four_columns;

/* Columns from c on of n_col at src, for a panel with numbers n; behind the last column it is the
 * last again, which nobody looks at. */
INLINE four_columns columns_from(void *n, const void *src, size_t stride, int n_col, int c)
{
    four_columns f = {.n = (int8_t *)n + c / HALF * HALF_N + c % HALF / 2 * 16};
    for (int i = 0; i < FOUR; i++)
        f.at[i] = (const uint8_t *)src + (size_t)dg_min(c + i, n_col - 1) * stride;
    return f;
}

INLINE void store_two(void *to, int8x16_t a, int8x16_t b)
{
    __asm__("stp %q1, %q2, [%3]" : "=m"(*(int8_t(*)[32])to) : "w"(a), "w"(b), "r"(to));
}

/* Eight numbers of each column from value k on, and the next eight from value `next` on. */
INLINE void set_eights(int8_t *to, int k, int next, const int8x16_t v[FOUR])
{
    int8_t *first = to + k / 8 * PAIRS * 16, *second = to + next / 8 * PAIRS * 16;
    int64x2_t x[FOUR];
    for (int i = 0; i < FOUR; i++)
        x[i] = vreinterpretq_s64_s8(v[i]);
    store_two(first, vreinterpretq_s8_s64(vzip1q_s64(x[0], x[1])),
              vreinterpretq_s8_s64(vzip1q_s64(x[2], x[3])));
    store_two(second, vreinterpretq_s8_s64(vzip2q_s64(x[0], x[1])),
              vreinterpretq_s8_s64(vzip2q_s64(x[2], x[3])));
}

/* Sixteen numbers of each column from value k on. */
INLINE void set_numbers(int8_t *to, int k, const int8x16_t v[FOUR])
{
    set_eights(to, k, k + 8, v);
}

/* ---- numbers of blocks ---- */

typedef int8x16x2_t numbers_of_fn(const uint8_t *b); /* all 32 */

/* The steps of four blocks from b on; the last one's again behind it. */
INLINE float32x4_t four_steps(const uint8_t *src, int b, int n_block, const int bytes)
{
    uint64_t all = 0;
    for (int i = 0; i < 4; i++) {
        uint16_t step;
        memcpy(&step, src + dg_min(b + i, n_block - 1) * bytes, sizeof step);
        all |= (uint64_t)step << 16 * i;
    }
    return vcvt_f32_f16(vcreate_f16(all));
}

INLINE int8x16x2_t straight_q8_0(const uint8_t *b)
{
    return (int8x16x2_t){{vld1q_s8((const int8_t *)b + 2), vld1q_s8((const int8_t *)b + 18)}};
}

INLINE int8x16x2_t straight_q4_0(const uint8_t *b)
{
    const int8x16_t eight = vdupq_n_s8(8);
    uint8x16_t q = vld1q_u8(b + 2);
    return (int8x16x2_t){{vsubq_s8(vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))), eight),
                          vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(q, 4)), eight)}};
}

/* Sixteen less where a number's fifth bit is not set: bytes `at` and `at` + 1 of h have them. */
INLINE int8x16_t with_fifth_bits(uint8x16_t low, uint8x16_t h, const int at)
{
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128},
                         byte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    uint8x16_t where = vaddq_u8(vld1q_u8(byte), vdupq_n_u8((uint8_t)at)),
               set = vtstq_u8(vqtbl1q_u8(h, where), vld1q_u8(bit));
    return vreinterpretq_s8_u8(vsubq_u8(low, vbicq_u8(vdupq_n_u8(16), set)));
}

INLINE int8x16x2_t straight_q5_0(const uint8_t *b)
{
    uint32_t bits;
    memcpy(&bits, b + 2, sizeof bits);
    uint8x16_t q = vld1q_u8(b + 6), h = vreinterpretq_u8_u32(vdupq_n_u32(bits));
    return (int8x16x2_t){{with_fifth_bits(vandq_u8(q, vdupq_n_u8(15)), h, 0),
                          with_fifth_bits(vshrq_n_u8(q, 4), h, 2)}};
}

/* Sixteen numbers: four bits of `low`, two of `high` from bit `at` on. */
INLINE int8x16_t six_bits(uint8x16_t low, uint8x16_t high, const int at)
{
    uint8x16_t two = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - at)));
    uint8x16_t n = vorrq_u8(low, vandq_u8(two, vdupq_n_u8(0x30)));
    return vsubq_s8(vreinterpretq_s8_u8(n), vdupq_n_s8(32));
}

/* The steps of a block's four groups: halves of E4M3 numbers without sign, which are 2^-8 of what
 * they are when they are put where a half has its exponent. */
INLINE float32x4_t steps_of_nvfp4(const uint8_t *b)
{
    uint32_t four;
    memcpy(&four, b, sizeof four);
    const uint8x8_t s = vreinterpret_u8_u32(vdup_n_u32(four));
    const uint8x8_t number = vbic_u8(vand_u8(s, vdup_n_u8(0x7F)), vceq_u8(s, vdup_n_u8(0x7F)));
    const uint16x4_t half = vshl_n_u16(vget_low_u16(vmovl_u8(number)), 7);
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), 0x1p7f);
}

/* Sixteen numbers of 16 bits. */
typedef struct sixteen {
    uint16x8_t n[2];
} sixteen;

/* How 32 numbers of E4M3 become numbers_body.h's. Put where a half has its exponent, an E4M3 number
 * is 2^-8 of itself; `inverse` is a half, and `zero` the bits of one whose unit is a step: 2^10 and
 * a half of them. A fused multiplication rounds once, to the nearest step, and gives numbers that
 * are so much higher as these bits say, of which the lower byte is 0. */
typedef struct e4m3_way {
    float16_t inverse;
    uint16_t zero;
} e4m3_way;

enum { E4M3_ZERO = 0x3E00, E4M3_TOP_AT = 10 }; /* the largest exponent is added to its bits there */

INLINE float16x8_t moved_e4m3(int16x8_t b)
{
    return vreinterpretq_f16_s16(vandq_s16(b, vdupq_n_s16((int16_t)0xBFFF)));
}

/* Sixteen of them, in the way that is number i, a constant, of four. */
#define SIXTEEN_E4M3(b, ways, i)                                                                   \
    ((sixteen){{EIGHT_E4M3(vshll_n_s8(vget_low_s8(b), 7), ways, i),                                \
                EIGHT_E4M3(vshll_high_n_s8(b, 7), ways, i)}})
#define EIGHT_E4M3(b, ways, i)                                                                     \
    vreinterpretq_u16_f16(                                                                         \
        vfmaq_laneq_f16(vdupq_laneq_f16(ways, 2 * (i) + 1), moved_e4m3(b), ways, 2 * (i)))

#endif
