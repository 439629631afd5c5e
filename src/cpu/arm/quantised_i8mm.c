/* Products on quantised weights with the matrix instruction of 8-bit integers (SMMLA): two rows of
 * x times two columns of the weight, eight values along k at a time.
 *
 * A panel is two halves of eight columns, and each half four pairs of columns:
 *     n      [half][block][eight of 32][pair] sixteen bytes: eight of each column
 *     step   [half][group][pair] four floats: both columns' steps, twice; least alike */
#include <arm_neon.h>
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cpu/arm/kernels_neon.h"
#include "cpu/arm/lanes_neon.h"
#include "cpu/numbers_body.h"

/* See gemm_neon.c. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    HALF = 8,                            /* columns of half a panel */
    PAIRS = HALF / 2,                    /* of columns */
    HALF_N = DG_QSLICE * HALF,           /* bytes of its numbers */
    HALF_STEPS = DG_QGROUPS * PAIRS * 4, /* floats of its steps */
    TILE = 3                             /* pairs of rows that are multiplied together, at most */
};

/* ---- weights ---- */

/* Integers are counted from the bits of 1.5 * 2^23 on, where a float's unit is 1: then the sum is a
 * float already, counted(t) = 1.5 * 2^23 + t. Sums are less than 2^22. */
#define COUNT_ZERO 0x1.8p23f

/* Both columns' values of a group, twice, times `scale`. */
INLINE void set_group(float *to, float a, float b, float scale)
{
    float32x2_t both = {a, b};
    both = vmul_n_f32(both, scale);
    vst1q_f32(to, vcombine_f32(both, both));
}

/* The same of four groups. */
INLINE void set_four(float *to, float32x4_t a, float32x4_t b, float scale)
{
    a = vmulq_n_f32(a, scale);
    b = vmulq_n_f32(b, scale);
    float64x2_t low = vreinterpretq_f64_f32(vzip1q_f32(a, b)),
                high = vreinterpretq_f64_f32(vzip2q_f32(a, b));
    vst1q_f32(to, vreinterpretq_f32_f64(vdupq_laneq_f64(low, 0)));
    vst1q_f32(to + PAIRS * 4, vreinterpretq_f32_f64(vdupq_laneq_f64(low, 1)));
    vst1q_f32(to + 2 * PAIRS * 4, vreinterpretq_f32_f64(vdupq_laneq_f64(high, 0)));
    vst1q_f32(to + 3 * PAIRS * 4, vreinterpretq_f32_f64(vdupq_laneq_f64(high, 1)));
}

INLINE void set_groups(float *to, const float *a, const float *b, int n_group, float scale)
{
    int g = 0;
    for (; g <= n_group - 4; g += 4, to += 4 * PAIRS * 4)
        set_four(to, vld1q_f32(a + g), vld1q_f32(b + g), scale);
    for (; g < n_group; g++, to += PAIRS * 4)
        set_group(to, a[g], b[g], scale);
}

/* t * step is fma(counted(t), step, lift) with a lift of -1.5 * 2^23 * step, to the same bits where
 * the lift is exact: where a step has at most 22 bits. Stored ones have up to 19; only a scale
 * makes more. Steps that are no numbers, or huge, go the long way too. */
INLINE bool fit_for_lift(const float *step, int n_group)
{
    bool fits = true;
    for (int g = 0; g < n_group; g++)
        fits &= fabsf(step[g]) < 0x1p100f;
    return fits;
}

/* Sixteen numbers of both columns from value k on. */
INLINE void set_numbers(int8_t *to, int k, int8x16_t a, int8x16_t b)
{
    int64x2_t x = vreinterpretq_s64_s8(a), y = vreinterpretq_s64_s8(b);
    to += k / 8 * PAIRS * 16;
    vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(to + PAIRS * 16, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
}

/* An expert has few rows for each panel, so packing counts. The types that experts mostly have go
 * from blocks to the panel without a stop in memory. */

typedef struct scales {
    float32x4_t step[2], least[2];
} scales;

INLINE float32x4_t floats_of(uint16x4_t x)
{
    return vcvtq_f32_u32(vmovl_u16(x));
}

/* Steps and least values are six bits: the first four of each are the low ones of bytes 0 to 7, the
 * others lie in halves of bytes 8 to 11 and the upper bits of the first eight. */
INLINE scales scales_of(const uint8_t *b)
{
    static const int8_t by[8] = {0, 0, 0, 0, -4, -4, -4, -4};
    uint32_t last;
    memcpy(&last, b + 12, sizeof last);
    uint8x8_t first = vld1_u8(b + 4), rest = vreinterpret_u8_u32(vdup_n_u32(last));
    rest = vand_u8(vshl_u8(rest, vld1_s8(by)), vdup_n_u8(15));
    rest = vorr_u8(rest, vshl_n_u8(vshr_n_u8(first, 6), 4));
    uint16x8_t low = vmovl_u8(vand_u8(first, vdup_n_u8(63))), high = vmovl_u8(rest);
    float d = stored_half(b), dmin = stored_half(b + 2);
    return (scales){{vmulq_n_f32(floats_of(vget_low_u16(low)), d),
                     vmulq_n_f32(floats_of(vget_low_u16(high)), d)},
                    {vmulq_n_f32(floats_of(vget_high_u16(low)), dmin),
                     vmulq_n_f32(floats_of(vget_high_u16(high)), dmin)}};
}

static void pack_straight_q4_k(dg_qpanel *panel, const dg_qpack_args *a)
{
    panel->kind = DG_Q_LEAST;
    panel->lifted = a->scale == 1;
    for (int c = 0; c < a->n_col; c += 2) {
        const uint8_t *src = (const uint8_t *)a->src + (size_t)c * a->stride,
                      *next = c + 1 < a->n_col ? src + a->stride : src;
        const int half = c / HALF, pair = c % HALF / 2, at = half * HALF_STEPS + pair * 4;
        int8_t *n = (int8_t *)panel->n + half * HALF_N + pair * 16;
        for (int i = 0; i < 8; i++) { /* 32 bytes are 32 low halves, then 32 high ones */
            uint8x16_t x = vld1q_u8(src + 16 + 16 * i), y = vld1q_u8(next + 16 + 16 * i);
            const uint8x16_t low = vdupq_n_u8(15);
            const int k = i / 2 * 64 + i % 2 * 16;
            set_numbers(n, k, vreinterpretq_s8_u8(vandq_u8(x, low)),
                        vreinterpretq_s8_u8(vandq_u8(y, low)));
            set_numbers(n, k + 32, vreinterpretq_s8_u8(vshrq_n_u8(x, 4)),
                        vreinterpretq_s8_u8(vshrq_n_u8(y, 4)));
        }
        scales s = scales_of(src), t = scales_of(next);
        for (int i = 0; i < 2; i++) {
            const int to = at + 4 * i * PAIRS * 4;
            set_four(panel->step + to, s.step[i], t.step[i], a->scale);
            set_four(panel->lift + to, s.step[i], t.step[i], -COUNT_ZERO);
            set_four(panel->least + to, s.least[i], t.least[i], a->scale);
        }
        panel->lifted &= isfinite(stored_half(src)) && isfinite(stored_half(next));
    }
}

/* Blocks of 32 values without a least value, `bytes` long; `numbers` makes them. */
typedef int8x16x2_t numbers_of_fn(const uint8_t *b);

/* The steps of four blocks from b on, which they begin with; the last one's again behind it. */
INLINE float32x4_t four_steps(const uint8_t *src, int b, int n_block, const int bytes)
{
    float16_t step[4];
    for (int i = 0; i < 4; i++)
        memcpy(&step[i], src + dg_min(b + i, n_block - 1) * bytes, sizeof step[i]);
    return vcvt_f32_f16(vld1_f16(step));
}

INLINE void pack_straight(dg_qpanel *panel, const dg_qpack_args *a, const int bytes,
                          numbers_of_fn *numbers)
{
    float32x4_t most = vdupq_n_f32(0);
    panel->kind = DG_Q_PLAIN;
    for (int c = 0; c < a->n_col; c += 2) {
        const uint8_t *src = (const uint8_t *)a->src + (size_t)c * a->stride,
                      *next = c + 1 < a->n_col ? src + a->stride : src;
        const int half = c / HALF, pair = c % HALF / 2, at = half * HALF_STEPS + pair * 4;
        int8_t *n = (int8_t *)panel->n + half * HALF_N + pair * 16;
        for (int b = 0; b < a->n_block; b++) {
            int8x16x2_t x = numbers(src + b * bytes), y = numbers(next + b * bytes);
            set_numbers(n, b * DG_QBLOCK, x.val[0], y.val[0]);
            set_numbers(n, b * DG_QBLOCK + 16, x.val[1], y.val[1]);
        }
        for (int b = 0; b < a->n_block; b += 4) {
            float32x4_t s = four_steps(src, b, a->n_block, bytes),
                        t = four_steps(next, b, a->n_block, bytes);
            set_four(panel->step + at + b * PAIRS * 4, s, t, a->scale);
            set_four(panel->lift + at + b * PAIRS * 4, s, t, -COUNT_ZERO);
            most = vmaxq_f32(most, vmaxq_f32(vabsq_f32(s), vabsq_f32(t)));
        }
    }
    panel->lifted = a->scale == 1 && isfinite(vmaxvq_f32(most)); /* NaN is the largest */
}

INLINE int8x16x2_t straight_q8_0(const uint8_t *b)
{
    return (int8x16x2_t){{vld1q_s8((const int8_t *)b + 2), vld1q_s8((const int8_t *)b + 18)}};
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

/* Four floats of four scales. */
INLINE float32x4_t scaled(int16x4_t scale, float d)
{
    return vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(scale)), d);
}

/* Sixteen numbers: four bits of `low`, two of `high` from bit `at` on. */
INLINE int8x16_t six_bits(uint8x16_t low, uint8x16_t high, const int at)
{
    uint8x16_t two = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - at)));
    uint8x16_t n = vorrq_u8(low, vandq_u8(two, vdupq_n_u8(0x30)));
    return vsubq_s8(vreinterpretq_s8_u8(n), vdupq_n_s8(32));
}

/* 128 values have 64 bytes of low halves and 32 of upper bits; sixteen share a scale. */
INLINE void numbers_of_q6_k(int8_t *n, const uint8_t *x, const uint8_t *y)
{
    const uint8x16_t low = vdupq_n_u8(15);
    for (int i = 0; i < 4; i++) {
        const int at = i / 2 * 64 + i % 2 * 16, top = 128 + i * 16, k = i / 2 * 128 + i % 2 * 16;
        uint8x16_t a = vld1q_u8(x + at), b = vld1q_u8(x + at + 32), h = vld1q_u8(x + top),
                   c = vld1q_u8(y + at), d = vld1q_u8(y + at + 32), g = vld1q_u8(y + top);
        set_numbers(n, k, six_bits(vandq_u8(a, low), h, 0), six_bits(vandq_u8(c, low), g, 0));
        set_numbers(n, k + 32, six_bits(vandq_u8(b, low), h, 2), six_bits(vandq_u8(d, low), g, 2));
        set_numbers(n, k + 64, six_bits(vshrq_n_u8(a, 4), h, 4), six_bits(vshrq_n_u8(c, 4), g, 4));
        set_numbers(n, k + 96, six_bits(vshrq_n_u8(b, 4), h, 6), six_bits(vshrq_n_u8(d, 4), g, 6));
    }
}

static void pack_straight_q6_k(dg_qpanel *panel, const dg_qpack_args *a)
{
    enum { SCALES = 192, STEP_AT = 208 };
    panel->kind = DG_Q_HALVES;
    panel->lifted = false; /* see multiply_kind */
    for (int c = 0; c < a->n_col; c += 2) {
        const uint8_t *src = (const uint8_t *)a->src + (size_t)c * a->stride,
                      *next = c + 1 < a->n_col ? src + a->stride : src;
        const int half = c / HALF, pair = c % HALF / 2, at = half * HALF_STEPS + pair * 4;
        numbers_of_q6_k((int8_t *)panel->n + half * HALF_N + pair * 16, src, next);
        const float d = stored_half(src + STEP_AT), e = stored_half(next + STEP_AT);
        for (int i = 0; i < 2; i++) {
            int16x8_t s = vmovl_s8(vld1_s8((const int8_t *)src + SCALES + 8 * i)),
                      t = vmovl_s8(vld1_s8((const int8_t *)next + SCALES + 8 * i));
            const int to = at + 8 * i * PAIRS * 4, on = to + 4 * PAIRS * 4;
            const float32x4_t s0 = scaled(vget_low_s16(s), d), s1 = scaled(vget_high_s16(s), d),
                              t0 = scaled(vget_low_s16(t), e), t1 = scaled(vget_high_s16(t), e);
            set_four(panel->step + to, s0, t0, a->scale);
            set_four(panel->step + on, s1, t1, a->scale);
        }
    }
}

/* Columns are far apart, and what is read of one at a time is short: without asking for what comes
 * behind it, every panel waits for memory. */
INLINE void fetch_next(const dg_qpack_args *a, int bytes)
{
    const uint8_t *p = a->next;
    for (int c = 0; p && c < a->n_col; c++, p += a->stride)
        for (int at = 0; at < bytes + 63; at += 64)
            __builtin_prefetch(p + at);
}

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    fetch_next(a, panel->stored);
    if (row == row_q6_k) {
        pack_straight_q6_k(panel, a);
        return;
    }
    if (row == row_q4_k) {
        pack_straight_q4_k(panel, a);
        return;
    }
    if (row == row_q8_0) {
        pack_straight(panel, a, 34, straight_q8_0);
        return;
    }
    if (row == row_q5_0) {
        pack_straight(panel, a, 22, straight_q5_0);
        return;
    }
    const int n_value = a->n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    panel->kind = kind;
    panel->lifted = a->scale == 1;
    for (int c = 0; c < a->n_col; c += 2) {
        dg_numbers w[2];
        const uint8_t *src = (const uint8_t *)a->src + (size_t)c * a->stride;
        row(&w[0], src, n_value);
        row(&w[1], c + 1 < a->n_col ? src + a->stride : src, n_value);

        const int half = c / HALF, pair = c % HALF / 2;
        int8_t *n = (int8_t *)panel->n + half * HALF_N + pair * 16;
        for (int k = 0; k < n_value; k += 16)
            set_numbers(n, k, vld1q_s8(w[0].n + k), vld1q_s8(w[1].n + k));
        const int at = half * HALF_STEPS + pair * 4;
        set_groups(panel->step + at, w[0].step, w[1].step, n_group, a->scale);
        set_groups(panel->lift + at, w[0].step, w[1].step, n_group, -COUNT_ZERO);
        panel->lifted =
            panel->lifted && fit_for_lift(w[0].step, n_group) && fit_for_lift(w[1].step, n_group);
        if (kind == DG_Q_LEAST || kind == DG_Q_HALVES_LEAST)
            set_groups(panel->least + at, w[0].least, w[1].least, n_group, a->scale);
    }
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- the product ---- */

/* A tile of results: of each pair of rows and pair of columns, row 0 with both columns, then row 1.
 */
typedef float32x4_t tile[TILE][PAIRS];
typedef int32x4_t sums[TILE][PAIRS];

/* What a block of a panel meets: the numbers, steps and so on of half its columns. */
typedef struct half_block {
    const int8_t *n;
    const float *step, *least, *lift;
} half_block;

/* Four values from memory, and from nowhere else: a compiler would load them once and copy
 * registers, but copies take the units that multiply, and loads do not. */
INLINE float32x4_t load_again(const float *p)
{
    float32x4_t v;
    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(*(const float(*)[4])p));
    return v;
}

/* sum + the products of two rows of x and two columns. Written out, since not every compiler's
 * header has it by itself. */
INLINE int32x4_t add_products(int32x4_t sum, int8x16_t x, int8x16_t w)
{
    __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}

/* sum = the products of 8 * n_eight values from eight `first` on. */
INLINE void sum_products(sums sum, const dg_qpair *const x[TILE], const int8_t *n, const int first,
                         const int n_eight, const int rows)
{
    static const float start[4] = {COUNT_ZERO, COUNT_ZERO, COUNT_ZERO, COUNT_ZERO};
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            sum[p][c] = vreinterpretq_s32_f32(load_again(start));
    for (int i = first; i < first + n_eight; i++) {
        int8x16_t w[PAIRS];
        for (int c = 0; c < PAIRS; c++)
            w[c] = vld1q_s8(n + (i * PAIRS + c) * 16);
        for (int p = 0; p < rows; p++) {
            int8x16_t both = vld1q_s8(x[p]->n[i][0]);
            for (int c = 0; c < PAIRS; c++)
                sum[p][c] = add_products(sum[p][c], both, w[c]);
        }
    }
}

INLINE float32x4_t counted(int32x4_t sum)
{
    return vreinterpretq_f32_s32(sum);
}

/* The sum as a float, exactly. */
INLINE float32x4_t uncounted(int32x4_t sum)
{
    return vsubq_f32(counted(sum), vdupq_n_f32(COUNT_ZERO));
}

/* part = sum * step. */
INLINE void scale_sums(tile part, sums sum, const half_block *w, const bool lifted, const int rows)
{
    for (int c = 0; c < PAIRS; c++) {
        float32x4_t step = vld1q_f32(w->step + 4 * c);
        for (int p = 0; p < rows; p++)
            part[p][c] = lifted ? vfmaq_f32(load_again(w->lift + 4 * c), counted(sum[p][c]), step)
                                : vmulq_f32(uncounted(sum[p][c]), step);
    }
}

/* Takes off least values times sums of x. */
INLINE void take_least(tile y, const float *least, const float32x4_t sum[TILE], const int rows)
{
    for (int c = 0; c < PAIRS; c++) {
        float32x4_t w = vld1q_f32(least + 4 * c);
        for (int p = 0; p < rows; p++)
            y[p][c] = vfmsq_f32(y[p][c], w, sum[p]);
    }
}

INLINE void add_block(tile y, const dg_qpair *const x[TILE], const half_block *w,
                      const dg_qkind kind, const bool lifted, const int rows)
{
    sums sum, second;
    float32x4_t xs[TILE];
    tile part;
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    sum_products(sum, x, w->n, 0, halves ? 2 : 4, rows);
    if (halves)
        sum_products(second, x, w->n, 2, 2, rows);
    scale_sums(part, sum, w, lifted, rows);
    for (int c = 0; c < PAIRS && halves; c++) {
        float32x4_t step = vld1q_f32(w->step + 4 * (PAIRS + c));
        for (int p = 0; p < rows; p++)
            part[p][c] = vfmaq_f32(part[p][c], uncounted(second[p][c]), step);
    }
    for (int p = 0; p < rows; p++) {
        xs[p] = vld1q_f32(x[p]->step[0]);
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = vfmaq_f32(y[p][c], part[p][c], xs[p]);
    }
    if (kind == DG_Q_LEAST) {
        for (int p = 0; p < rows; p++)
            xs[p] = vld1q_f32(x[p]->sum[0]);
        take_least(y, w->least, xs, rows);
    }
    if (kind == DG_Q_HALVES_LEAST)
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < rows; p++) { /* row 0's two halves, then row 1's */
                float32x4_t all = vld1q_f32(x[p]->half_sum[0]);
                xs[p] = half ? vtrn2q_f32(all, all) : vtrn1q_f32(all, all);
            }
            take_least(y, w->least + 4 * PAIRS * half, xs, rows);
        }
}

/* Results of rows 2p and 2p + 1 lie in y by pairs of columns, in memory row by row. */
INLINE void load_rows(float32x4_t y[PAIRS], const float *row0, const float *row1)
{
    for (int c = 0; c < PAIRS; c += 2) {
        float64x2_t low = vreinterpretq_f64_f32(vld1q_f32(row0 + 2 * c)),
                    high = vreinterpretq_f64_f32(vld1q_f32(row1 + 2 * c));
        y[c] = vreinterpretq_f32_f64(vzip1q_f64(low, high));
        y[c + 1] = vreinterpretq_f32_f64(vzip2q_f64(low, high));
    }
}

INLINE void store_rows(float *row0, float *row1, const float32x4_t y[PAIRS])
{
    for (int c = 0; c < PAIRS; c += 2) {
        float64x2_t a = vreinterpretq_f64_f32(y[c]), b = vreinterpretq_f64_f32(y[c + 1]);
        vst1q_f32(row0 + 2 * c, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
        vst1q_f32(row1 + 2 * c, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
}

/* `rows` pairs of rows times half a panel; rows of `to` are ld apart and have HALF columns. */
INLINE void multiply_half(float *to, size_t ld, const dg_qpair *const from[TILE],
                          const dg_qgemm_args *a, int half, const dg_qkind kind, const bool lifted,
                          const int rows)
{
    const int per_block = DG_QBLOCK / group_of(kind) * PAIRS * 4;
    half_block w = {
        .n = (const int8_t *)a->panel->n + half * HALF_N,
        .step = a->panel->step + half * HALF_STEPS,
        .least = a->panel->least + half * HALF_STEPS,
        .lift = a->panel->lift + half * HALF_STEPS,
    };
    const dg_qpair *x[TILE];
    tile y;
    for (int p = 0; p < rows; p++) {
        x[p] = from[p];
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = vdupq_n_f32(0);
    }
    if (a->add)
        for (int p = 0; p < rows; p++)
            load_rows(y[p], to + (size_t)(2 * p) * ld, to + (size_t)(2 * p + 1) * ld);
    for (int b = 0; b < a->n_block; b++) {
        add_block(y, x, &w, kind, lifted, rows);
        for (int p = 0; p < rows; p++)
            x[p]++;
        w.n += DG_QBLOCK * HALF;
        w.step += per_block;
        w.least += per_block;
        w.lift += per_block;
    }
    for (int p = 0; p < rows; p++)
        store_rows(to + (size_t)(2 * p) * ld, to + (size_t)(2 * p + 1) * ld, y[p]);
}

/* A tile that is not all asked for has a place of its own: `in` fills it, else the results that y
 * has room for are taken from it. Row 0 of the tile is row `at` of y. */
static void copy_tile(float spare[2 * TILE][HALF], const dg_qgemm_args *a, int at, int n_tile,
                      int c, bool in)
{
    size_t bytes = (size_t)dg_min(HALF, a->n_col - c) * sizeof(float);
    for (int i = dg_max(0, -at); i < n_tile && at + i < a->n_row; i++) {
        float *row = a->y + (size_t)(at + i) * a->ldy + c;
        memcpy(in ? spare[i] : row, in ? row : spare[i], bytes);
    }
}

/* The next rows on their way from the second-level cache. */
INLINE void fetch_ahead(const dg_qgemm_args *a, int first, const int rows)
{
    if (2 * (first + rows) > a->first_row + a->n_row)
        return;
    for (int p = 0; p < rows; p++) {
        const char *x = (const char *)(a->x + (size_t)(first + p) * a->ldx);
        for (int i = 0; i < a->n_block * (int)sizeof *a->x; i += 64)
            __builtin_prefetch(x + i, 0, 3);
    }
}

/* `rows` pairs of rows from pair `first` on, both a constant at every call. */
INLINE void multiply(const dg_qgemm_args *a, int first, const dg_qkind kind, const bool lifted,
                     const int rows)
{
    const int at = 2 * first - a->first_row;
    const bool inside = at >= 0 && at + 2 * rows <= a->n_row;
    const dg_qpair *x[TILE];
    for (int p = 0; p < rows; p++)
        x[p] = a->x + (size_t)(first + p) * a->ldx;
    fetch_ahead(a, first + rows, rows);
    for (int c = 0; c < a->n_col; c += HALF) {
        float spare[2 * TILE][HALF];
        const bool whole = inside && a->n_col - c >= HALF;
        if (!whole) {
            memset(spare, 0, sizeof spare);
            if (a->add)
                copy_tile(spare, a, at, 2 * rows, c, true);
        }
        multiply_half(whole ? a->y + (size_t)at * a->ldy + c : spare[0], whole ? a->ldy : HALF, x,
                      a, c / HALF, kind, lifted, rows);
        if (!whole)
            copy_tile(spare, a, at, 2 * rows, c, false);
    }
}

/* Three pairs of rows are 24 registers of sums and results; halves of a block need more of them. */
INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind, const bool lifted)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int tall = halves ? 2 : TILE;
    int pair = a->first_row / 2, end = dg_ceil_div(a->first_row + a->n_row, 2);
    for (; pair + tall <= end; pair += tall)
        multiply(a, pair, kind, lifted, tall);
    if (tall > 2 && pair + 2 <= end) {
        multiply(a, pair, kind, lifted, 2);
        pair += 2;
    }
    if (pair < end)
        multiply(a, pair, kind, lifted, 1);
}

/* Halves of a block have no register left for lifts: they would be copied to and fro. */
INLINE void multiply_kind(const dg_qgemm_args *a, const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    if (a->panel->lifted && !halves)
        multiply_all(a, kind, true);
    else
        multiply_all(a, kind, false);
}

static void gemm(const dg_qgemm_args *a)
{
    switch (a->panel->kind) {
    case DG_Q_PLAIN:
        multiply_kind(a, DG_Q_PLAIN);
        break;
    case DG_Q_LEAST:
        multiply_kind(a, DG_Q_LEAST);
        break;
    case DG_Q_HALVES:
        multiply_kind(a, DG_Q_HALVES);
        break;
    case DG_Q_HALVES_LEAST:
        multiply_kind(a, DG_Q_HALVES_LEAST);
        break;
    }
}

const dg_qkernels dg_quantised_i8mm = {
    .quantise = dg_quantise_neon,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
