/* Products of bfloat16 numbers with BFMMLA: two rows of x times two columns, four values along k.
 *
 * A panel is   [four of k][pair of columns] eight numbers: four of each column. Rows of x are pairs
 * alike: with a row after the other, putting two of them together took a fifth of the time. */
#include <arm_neon.h>
#include <string.h>
#include "base/common.h"
#include "cpu/arm/kernels_neon.h"
#include "cpu/arm/shares_bf16.h"

/* See gemm_neon.c. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    STEP = 8,             /* values along k: a register */
    BESIDE = 4,           /* of a column */
    PAIRS = DG_PANEL / 2, /* of columns */
    FOUR = PAIRS * 8,     /* numbers of a panel for four values along k */
    TILE = 3,             /* pairs of rows: 24 registers of sums */
    LINE = DG_PANEL * BESIDE
};

#include "cpu/arm/widen_bf16.h"

/* ---- weights ---- */

INLINE uint16x8_t first_of(uint16x8_t a, uint16x8_t b)
{
    return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

INLINE uint16x8_t second_of(uint16x8_t a, uint16x8_t b)
{
    return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

/* The first n of eight numbers, then zeros. */
INLINE uint16x8_t load_first(const uint8_t *p, int n)
{
    uint16_t eight[STEP] = {0};
    if (n >= STEP)
        return vreinterpretq_u16_u8(vld1q_u8(p));
    memcpy(eight, p, (size_t)dg_max(n, 0) * sizeof *eight);
    return vld1q_u16(eight);
}

static void pack_cols(uint16_t *panel, const void *src, size_t stride, int n_k, int n_col)
{
    for (int c = 0; c < DG_PANEL; c += 2) {
        const uint8_t *a = (const uint8_t *)src + (size_t)dg_min(c, n_col - 1) * stride,
                      *b = (const uint8_t *)src + (size_t)dg_min(c + 1, n_col - 1) * stride;
        uint16_t *to = panel + c / 2 * 8;
        for (int k = 0; k < n_k; k += STEP, to += 2 * FOUR) {
            uint16x8_t x = load_first(a + 2 * k, n_k - k), y = load_first(b + 2 * k, n_k - k);
            vst1q_u16(to, first_of(x, y));
            vst1q_u16(to + FOUR, second_of(x, y));
        }
    }
}

/* Four rows of eight columns to four pairs of columns. */
INLINE void turn_four(uint16_t *to, const uint16x8_t r[4])
{
    uint32x4_t a[2], b[2];
    a[0] = vreinterpretq_u32_u16(vzip1q_u16(r[0], r[1]));
    a[1] = vreinterpretq_u32_u16(vzip2q_u16(r[0], r[1]));
    b[0] = vreinterpretq_u32_u16(vzip1q_u16(r[2], r[3]));
    b[1] = vreinterpretq_u32_u16(vzip2q_u16(r[2], r[3]));
    for (int i = 0; i < 2; i++) {
        vst1q_u16(to + 16 * i, vreinterpretq_u16_u32(vzip1q_u32(a[i], b[i])));
        vst1q_u16(to + 16 * i + 8, vreinterpretq_u16_u32(vzip2q_u32(a[i], b[i])));
    }
}

/* Sixteen columns of four whole rows. */
INLINE void pack_four(uint16_t *panel, const uint8_t *src, size_t stride)
{
    for (int c = 0; c < DG_PANEL; c += 8) {
        uint16x8_t r[4];
        for (int i = 0; i < 4; i++)
            r[i] = vreinterpretq_u16_u8(vld1q_u8(src + (size_t)i * stride + 2 * c));
        turn_four(panel + 4 * c, r);
    }
}

static void pack_rows(uint16_t *panel, const void *src, size_t stride, int n_k, int n_col)
{
    const int end = dg_ceil_div(n_k, STEP) * STEP;
    int k = 0;
    for (; k + 4 <= n_k && n_col == DG_PANEL; k += 4, panel += FOUR)
        pack_four(panel, (const uint8_t *)src + (size_t)k * stride, stride);
    for (; k < end; k += 4, panel += FOUR)
        for (int c = 0; c < DG_PANEL; c += 8) {
            uint16x8_t r[4];
            for (int i = 0; i < 4; i++)
                r[i] = load_first((const uint8_t *)src + (size_t)dg_min(k + i, n_k - 1) * stride +
                                      2 * c,
                                  k + i < n_k ? n_col - c : 0);
            turn_four(panel + 4 * c, r);
        }
}

/* ---- rows ---- */

void dg_narrow_bf16(void *out, const float *in, int n)
{
    uint16_t *to = out;
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        vst1q_u16(to + i, bfloats_of(vld1q_f32(in + i), vld1q_f32(in + i + 4)));
    for (; i < n; i++) {
        const float32x4_t one = vdupq_n_f32(in[i]);
        to[i] = vgetq_lane_u16(bfloats_of(one, one), 0);
    }
}

static void place(uint16_t *to, int which, const uint16_t *from, int n)
{
    to += 4 * which;
    for (int k = 0; k < n; k += 4, to += 8)
        vst1_u16(to, vld1_u16(from + k));
}

/* ---- the product ---- */

/* sum + the products of two rows of x and two columns; of rows' numbers the first four are one's,
 * the others the other's. Written out, since not every compiler's header has it by itself. */
INLINE float32x4_t add_products(float32x4_t sum, uint16x8_t x, uint16x8_t w)
{
    __asm__("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}

/* Two rows of y to pairs of columns, and back. */
INLINE void load_rows(float32x4_t acc[PAIRS], const float *row0, const float *row1)
{
    for (int c = 0; c < PAIRS; c += 2) {
        float64x2_t a = vreinterpretq_f64_f32(vld1q_f32(row0 + 2 * c)),
                    b = vreinterpretq_f64_f32(vld1q_f32(row1 + 2 * c));
        acc[c] = vreinterpretq_f32_f64(vzip1q_f64(a, b));
        acc[c + 1] = vreinterpretq_f32_f64(vzip2q_f64(a, b));
    }
}

INLINE void store_rows(float *row0, float *row1, const float32x4_t acc[PAIRS])
{
    for (int c = 0; c < PAIRS; c += 2) {
        float64x2_t a = vreinterpretq_f64_f32(acc[c]), b = vreinterpretq_f64_f32(acc[c + 1]);
        vst1q_f32(row0 + 2 * c, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
        vst1q_f32(row1 + 2 * c, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
}

INLINE void add_four(float32x4_t acc[TILE][PAIRS], const uint16x8_t x[TILE], const uint16_t *panel,
                     const int pairs)
{
    for (int c = 0; c < PAIRS; c++) {
        uint16x8_t w = vld1q_u16(panel + 8 * c);
        for (int p = 0; p < pairs; p++)
            acc[p][c] = add_products(acc[p][c], x[p], w);
    }
}

INLINE void add_step(float32x4_t acc[TILE][PAIRS], const uint16_t *const x[TILE], int k,
                     const uint16_t *panel, const int pairs)
{
    uint16x8_t first[TILE], second[TILE];
    for (int p = 0; p < pairs; p++) {
        first[p] = vld1q_u16(x[p] + 2 * k);
        second[p] = vld1q_u16(x[p] + 2 * k + 8);
    }
    add_four(acc, first, panel, pairs);
    add_four(acc, second, panel + FOUR, pairs);
}

/* n_k values along k; rows that come next are `on` numbers away, and two steps are a line of the
 * cache. */
INLINE void add_panel(float32x4_t acc[TILE][PAIRS], const uint16_t *const x[TILE],
                      const uint16_t *panel, int n_k, size_t on, const int pairs)
{
    int k = 0;
    for (; k + STEP < n_k; k += 2 * STEP, panel += 4 * FOUR) {
        for (int p = 0; p < pairs; p++)
            __builtin_prefetch(x[p] + on + 2 * k, 0, 3);
        add_step(acc, x, k, panel, pairs);
        add_step(acc, x, k + STEP, panel + 2 * FOUR, pairs);
    }
    if (k < n_k)
        add_step(acc, x, k, panel, pairs);
}

/* A panel's columns times `pairs` pairs of rows from r on, a constant at every call; results to y.
 */
INLINE void tile(const dg_bgemm_args *a, const uint16_t *panel, float *y, size_t ldy, int r,
                 const int pairs)
{
    float32x4_t acc[TILE][PAIRS];
    const uint16_t *x[TILE];
    for (int p = 0; p < pairs; p++)
        x[p] = a->x + (size_t)(r + 2 * p) * a->ldx;
    for (int p = 0; p < pairs; p++)
        for (int c = 0; c < PAIRS; c++)
            acc[p][c] = vdupq_n_f32(0);
    if (a->add)
        for (int p = 0; p < pairs; p++)
            load_rows(acc[p], y + (size_t)(2 * p) * ldy, y + (size_t)(2 * p + 1) * ldy);
    for (int i = 0; i < 2 * pairs; i++) /* what comes next */
        __builtin_prefetch(y + (size_t)(2 * pairs + i) * ldy, 1, 3);
    add_panel(acc, x, panel, a->n_k, (size_t)(2 * pairs) * a->ldx, pairs);
    for (int p = 0; p < pairs; p++)
        store_rows(y + (size_t)(2 * p) * ldy, y + (size_t)(2 * p + 1) * ldy, acc[p]);
}

/* Rows [r, r + n_row), at most 2 * TILE, of all columns; the last pair has both rows. */
static void multiply_to(const dg_bgemm_args *a, const uint16_t *panel, float *y, size_t ldy, int r,
                        int n_row)
{
    if (n_row > 4)
        tile(a, panel, y, ldy, r, TILE);
    else if (n_row > 2)
        tile(a, panel, y, ldy, r, 2);
    else
        tile(a, panel, y, ldy, r, 1);
}

/* The same where a row of the last pair or some of the columns are not asked for: results pass
 * through a place of their own, which leaves a whole tile's code without branches between its
 * registers. */
static void multiply_some(const dg_bgemm_args *a, const uint16_t *panel, int r, int n_row)
{
    float spare[2 * TILE][DG_PANEL] = {{0}}, *y = a->y + (size_t)r * a->ldy;
    const size_t bytes = (size_t)a->n_col * sizeof *y;
    for (int i = 0; i < n_row && a->add; i++)
        memcpy(spare[i], y + (size_t)i * a->ldy, bytes);
    multiply_to(a, panel, spare[0], DG_PANEL, r, n_row);
    for (int i = 0; i < n_row; i++)
        memcpy(y + (size_t)i * a->ldy, spare[i], bytes);
}

/* All rows of the columns of one panel. */
static void multiply_panel(const dg_bgemm_args *a, const uint16_t *panel)
{
    for (int r = 0; r < a->n_row; r += 2 * TILE) {
        const int n_row = dg_min(2 * TILE, a->n_row - r);
        if (n_row % 2 || a->n_col < DG_PANEL)
            multiply_some(a, panel, r, n_row);
        else
            multiply_to(a, panel, a->y + (size_t)r * a->ldy, a->ldy, r, n_row);
    }
}

/* A panel whose parts lie in several pages, from number `at` on in each, is put together first:
 * pages are a power of two apart, and parts drove each other out of the first-level cache. */
static void multiply_parts(const dg_bgemm_args *a, size_t at)
{
    enum { SOME = 256 };
    uint16_t panel[SOME * DG_PANEL];
    dg_bgemm_args some = *a;
    for (int k = 0; k < a->n_k; k += some.n_k) {
        some.n_k = 0;
        for (int n; k + some.n_k < a->n_k && some.n_k < SOME; some.n_k += n) {
            const int from = k + some.n_k, in_part = from % a->part_k;
            n = dg_min(dg_min(a->part_k - in_part, SOME - some.n_k), a->n_k - from);
            memcpy(panel + some.n_k * DG_PANEL, a->part[from / a->part_k] + at + in_part * DG_PANEL,
                   (size_t)(dg_ceil_div(n, STEP) * STEP * DG_PANEL) * sizeof *panel);
        }
        some.x = a->x + 2 * k;
        some.add = a->add || k > 0;
        multiply_panel(&some, panel);
    }
}

static void gemm(const dg_bgemm_args *a)
{
    dg_bgemm_args one = *a;
    for (int c = 0; c < a->n_col; c += DG_PANEL) {
        const int in_part = a->part_col ? c % a->part_col : c;
        const size_t at = (size_t)(in_part / DG_PANEL) * a->next;
        one.y = a->y + c;
        one.n_col = dg_min(DG_PANEL, a->n_col - c);
        if (a->n_k > a->part_k)
            multiply_parts(&one, at);
        else
            multiply_panel(&one, a->part[a->part_col ? c / a->part_col : 0] + at);
    }
}

const dg_bkernels dg_bfloat_neon = {
    .profile = "portable-bfmmla",
    .block_profile = "integer-2-bfmmla",
    .step = STEP,
    .rows = 2,
    .beside = BESIDE,
    .block = 24, /* 24 KiB of 512 values each: the first-level cache has 64 and a panel 16 */
    .keys = 256,
    .lines = 128,
    .place = place,
    .pack_cols = pack_cols,
    .pack_rows = pack_rows,
    .gemm = gemm,
    .largest = largest_of,
    .shares = shares_of,
    .widen = widen_lines,
};
