/* Products on quantised weights with the matrix instruction of 8-bit integers (SMMLA): two rows of
 * x times two columns of the weight, eight values along k at a time.
 *
 * A panel is two halves of eight columns, and each half four pairs of columns:
 *     n      [half][block][eight of 32][pair] sixteen bytes: eight of each column
 *     step   [half][group][pair] four floats: both columns' steps, twice; least alike */
#include <arm_neon.h>
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
    TILE = 2                             /* pairs of rows that are multiplied together */
};

/* ---- weights ---- */

INLINE void set_steps(float *to, const float *a, const float *b, int n_group, float scale)
{
    for (int g = 0; g < n_group; g++, to += PAIRS * 4) {
        float32x2_t both = {a[g], b[g]};
        both = vmul_n_f32(both, scale);
        vst1q_f32(to, vcombine_f32(both, both));
    }
}

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    const int n_value = a->n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    panel->kind = kind;
    for (int c = 0; c < a->n_col; c += 2) {
        dg_numbers w[2];
        const uint8_t *src = (const uint8_t *)a->src + (size_t)c * a->stride;
        row(&w[0], src, n_value);
        row(&w[1], c + 1 < a->n_col ? src + a->stride : src, n_value);

        const int half = c / HALF, pair = c % HALF / 2;
        int8_t *n = (int8_t *)panel->n + half * HALF_N + pair * 16;
        for (int k = 0; k < n_value; k += 16, n += 2 * PAIRS * 16) {
            int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(w[0].n + k)),
                      y = vreinterpretq_s64_s8(vld1q_s8(w[1].n + k));
            vst1q_s8(n, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
            vst1q_s8(n + PAIRS * 16, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
        }
        const int at = half * HALF_STEPS + pair * 4;
        set_steps(panel->step + at, w[0].step, w[1].step, n_group, a->scale);
        if (kind == DG_Q_LEAST || kind == DG_Q_HALVES_LEAST)
            set_steps(panel->least + at, w[0].least, w[1].least, n_group, a->scale);
    }
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- the product ---- */

/* Integers are counted from the bits of 1.5 * 2^23 on, where a float's unit is 1: then the sum is a
 * float already, and one subtraction makes it right, exactly. Sums are less than 2^22. */
#define COUNT_FROM 0x4B400000
INLINE float32x4_t counted(int32x4_t sum)
{
    return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(0x1.8p23f));
}

/* A tile of results: of each pair of rows and pair of columns, row 0 with both columns, then row 1.
 */
typedef float32x4_t tile[TILE][PAIRS];

/* sum = the products of 8 * n_eight values from eight `first` on. */
INLINE void sum_products(int32x4_t sum[TILE][PAIRS], const dg_qpair *const x[TILE], const int8_t *n,
                         const int first, const int n_eight, const int rows)
{
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            sum[p][c] = vdupq_n_s32(COUNT_FROM);
    for (int i = first; i < first + n_eight; i++) {
        int8x16_t w[PAIRS];
        for (int c = 0; c < PAIRS; c++)
            w[c] = vld1q_s8(n + (i * PAIRS + c) * 16);
        for (int p = 0; p < rows; p++) {
            int8x16_t both = vld1q_s8(x[p]->n[i][0]);
            for (int c = 0; c < PAIRS; c++)
                sum[p][c] = vmmlaq_s32(sum[p][c], both, w[c]);
        }
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

INLINE void add_block(tile y, const dg_qpair *const x[TILE], const int8_t *n, const float *step,
                      const float *least, const dg_qkind kind, const int rows)
{
    int32x4_t sum[TILE][PAIRS];
    float32x4_t xs[TILE];
    tile part;
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    sum_products(sum, x, n, 0, halves ? 2 : 4, rows);
    for (int c = 0; c < PAIRS; c++) {
        float32x4_t w = vld1q_f32(step + 4 * c);
        for (int p = 0; p < rows; p++)
            part[p][c] = vmulq_f32(counted(sum[p][c]), w);
    }
    if (halves) {
        sum_products(sum, x, n, 2, 2, rows);
        for (int c = 0; c < PAIRS; c++) {
            float32x4_t w = vld1q_f32(step + 4 * (PAIRS + c));
            for (int p = 0; p < rows; p++)
                part[p][c] = vfmaq_f32(part[p][c], counted(sum[p][c]), w);
        }
    }
    for (int p = 0; p < rows; p++) {
        xs[p] = vld1q_f32(x[p]->step[0]);
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = vfmaq_f32(y[p][c], part[p][c], xs[p]);
    }
    if (kind == DG_Q_LEAST) {
        for (int p = 0; p < rows; p++)
            xs[p] = vld1q_f32(x[p]->sum[0]);
        take_least(y, least, xs, rows);
    }
    if (kind == DG_Q_HALVES_LEAST)
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < rows; p++) { /* row 0's two halves, then row 1's */
                float32x4_t all = vld1q_f32(x[p]->half_sum[0]);
                xs[p] = half ? vtrn2q_f32(all, all) : vtrn1q_f32(all, all);
            }
            take_least(y, least + 4 * PAIRS * half, xs, rows);
        }
}

/* Where rows of y go that nobody asked for, and columns beyond the last. */
typedef struct spare {
    float row[2 * TILE][HALF];
} spare;

/* `rows` pairs of rows times half a panel. row[i] has room for HALF columns. */
INLINE void multiply_half(float *const row[2 * TILE], const dg_qpair *const from[TILE],
                          const dg_qgemm_args *a, int half, const dg_qkind kind, const int rows)
{
    const int per_block = DG_QBLOCK / group_of(kind);
    const int8_t *n = (const int8_t *)a->panel->n + half * HALF_N;
    const float *step = a->panel->step + half * HALF_STEPS,
                *least = a->panel->least + half * HALF_STEPS;
    const dg_qpair *x[TILE];
    tile y;
    for (int p = 0; p < rows; p++) {
        x[p] = from[p];
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = a->add ? vcombine_f32(vld1_f32(row[2 * p] + 2 * c),
                                            vld1_f32(row[2 * p + 1] + 2 * c))
                             : vdupq_n_f32(0);
    }
    for (int b = 0; b < a->n_block; b++) {
        add_block(y, x, n, step, least, kind, rows);
        for (int p = 0; p < rows; p++)
            x[p]++;
        n += DG_QBLOCK * HALF;
        step += per_block * PAIRS * 4;
        least += per_block * PAIRS * 4;
    }
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++) {
            vst1_f32(row[2 * p] + 2 * c, vget_low_f32(y[p][c]));
            vst1_f32(row[2 * p + 1] + 2 * c, vget_high_f32(y[p][c]));
        }
}

/* `rows` pairs of rows from pair `first` on, both a constant at every call. */
INLINE void multiply(const dg_qgemm_args *a, int first, const dg_qkind kind, const int rows)
{
    const dg_qpair *x[TILE];
    for (int p = 0; p < rows; p++)
        x[p] = a->x + (size_t)(first + p) * a->ldx;
    for (int c = 0; c < a->n_col; c += HALF) {
        const int n_col = dg_min(HALF, a->n_col - c);
        spare s = {0};
        float *row[2 * TILE], *to[2 * TILE];
        for (int i = 0; i < 2 * rows; i++) {
            int at = 2 * first + i - a->first_row;
            row[i] = at >= 0 && at < a->n_row ? a->y + (size_t)at * a->ldy + c : NULL;
            to[i] = row[i] && n_col == HALF ? row[i] : s.row[i];
            if (row[i] && to[i] != row[i] && a->add)
                memcpy(to[i], row[i], (size_t)n_col * sizeof *to[i]);
        }
        multiply_half(to, x, a, c / HALF, kind, rows);
        for (int i = 0; i < 2 * rows; i++)
            if (row[i] && to[i] != row[i])
                memcpy(row[i], to[i], (size_t)n_col * sizeof *to[i]);
    }
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    int pair = a->first_row / 2, end = dg_ceil_div(a->first_row + a->n_row, 2);
    for (; pair + TILE <= end; pair += TILE)
        multiply(a, pair, kind, TILE);
    for (; pair < end; pair++)
        multiply(a, pair, kind, 1);
}

static void gemm(const dg_qgemm_args *a)
{
    switch (a->panel->kind) {
    case DG_Q_PLAIN:
        multiply_all(a, DG_Q_PLAIN);
        break;
    case DG_Q_LEAST:
        multiply_all(a, DG_Q_LEAST);
        break;
    case DG_Q_HALVES:
        multiply_all(a, DG_Q_HALVES);
        break;
    case DG_Q_HALVES_LEAST:
        multiply_all(a, DG_Q_HALVES_LEAST);
        break;
    }
}

const dg_qkernels dg_quantised_i8mm = {
    .quantise = dg_quantise_neon,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
