/* Products on quantised weights with the matrix instruction of 8-bit integers (SMMLA): two rows of
 * x times two columns of the weight, eight values along k at a time.
 *
 * A panel is two halves of eight columns, and each half four pairs of columns:
 *     n      [half][block][eight of 32][pair] sixteen bytes: eight of each column
 *     step   [half][group][pair] four floats: both columns' steps, twice; least alike
 *     times  [half][group][pair] four words, alike; less [half][eight groups][pair] sixteen bytes
 */
#include <math.h>
#include "cpu/arm/i8mm.h"

/* See gemm_neon.c. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

enum { TILE = 3 }; /* pairs of rows that are multiplied together, at most */
#include "cpu/arm/pack_i8mm.h"

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

/* sum += the products of eights [first, first + n_eight) of x and n. */
INLINE void add_eights(sums sum, const int8_t (*const x[TILE])[2][8], const int8_t *n,
                       const int first, const int n_eight, const int rows)
{
    for (int i = first; i < first + n_eight; i++) {
        int8x16_t w[PAIRS];
        for (int c = 0; c < PAIRS; c++)
            w[c] = vld1q_s8(n + (i * PAIRS + c) * 16);
        for (int p = 0; p < rows; p++) {
            int8x16_t both = vld1q_s8(x[p][i][0]);
            for (int c = 0; c < PAIRS; c++)
                sum[p][c] = add_products(sum[p][c], both, w[c]);
        }
    }
}

INLINE void start_sums(sums sum, const float start[4], const int rows)
{
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            sum[p][c] = vreinterpretq_s32_f32(load_again(start));
}

/* sum = the products of 8 * n_eight values from eight `first` on. */
INLINE void sum_products(sums sum, const dg_qpair *const x[TILE], const int8_t *n, const int first,
                         const int n_eight, const int rows)
{
    static const float start[4] = {COUNT_ZERO, COUNT_ZERO, COUNT_ZERO, COUNT_ZERO};
    const int8_t(*from[TILE])[2][8];
    for (int p = 0; p < rows; p++)
        from[p] = x[p]->n;
    start_sums(sum, start, rows);
    add_eights(sum, from, n, first, n_eight, rows);
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
    const bool halves = kind == DG_Q_HALVES;
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
}

/* ---- super-blocks ---- */

static const float no_sum[4] = {0, 0, 0, 0};

/* least = the sum over groups of their sums of numbers times `less`. */
INLINE void sum_least(sums least, const dg_qsuper *const x[TILE], const int8_t *less,
                      const bool halves, const int rows)
{
    const int8_t(*high[TILE])[2][8], (*low[TILE])[2][8];
    const int first = halves ? 1 : 0;
    for (int p = 0; p < rows; p++) {
        high[p] = x[p]->high + first;
        low[p] = x[p]->low + first;
    }
    start_sums(least, no_sum, rows);
    add_eights(least, high, less, 0, halves ? 2 : 1, rows);
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            least[p][c] = vshlq_n_s32(least[p][c], 6);
    add_eights(least, low, less, 0, halves ? 2 : 1, rows);
}

/* all = the sum over groups of their sums of products times `times`. */
INLINE void sum_super(sums all, const dg_qsuper *const from[TILE], const int8_t *n,
                      const int32_t *times, const int eights, const int rows)
{
    const int8_t(*x[TILE])[2][8];
    for (int p = 0; p < rows; p++)
        x[p] = from[p]->n;
    start_sums(all, no_sum, rows);
    for (int i = 0; i < DG_QSLICE / 8; i += eights) {
        sums sum;
        start_sums(sum, no_sum, rows);
        add_eights(sum, x, n, 0, eights, rows);
        for (int c = 0; c < PAIRS; c++) {
            const int32x4_t t = vld1q_s32(times + 4 * c);
            for (int p = 0; p < rows; p++)
                all[p][c] = vmlaq_s32(all[p][c], sum[p][c], t);
        }
        for (int p = 0; p < rows; p++)
            x[p] += eights;
        n += eights * PAIRS * 16;
        times += PAIRS * 4;
    }
}

/* t = what a super-block's sums come to before the step of x. */
INLINE void super_part(tile t, const dg_qsuper *const x[TILE], const dg_qpanel *panel, int half,
                       const dg_qkind kind, const int rows)
{
    const bool halves = group_of(kind) == 16;
    const float *step = panel->step + half * HALF_STEPS, *least = panel->least + half * HALF_STEPS;
    sums sum;
    sum_super(sum, x, (const int8_t *)panel->n + half * HALF_N, panel->times + half * HALF_STEPS,
              halves ? 2 : 4, rows);
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            t[p][c] = vmulq_f32(vcvtq_f32_s32(sum[p][c]), vld1q_f32(step + 4 * c));
    if (!has_least(kind))
        return;
    sum_least(sum, x, (const int8_t *)panel->less + half * HALF * DG_QGROUPS, halves, rows);
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < PAIRS; c++)
            t[p][c] = vfmsq_f32(t[p][c], vcvtq_f32_s32(sum[p][c]), vld1q_f32(least + 4 * c));
}

/* ---- results ---- */

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
    tile y, part;
    if (dg_qkind_super(kind))
        super_part(part, (const dg_qsuper *const *)from, a->panel, half, kind, rows);
    for (int p = 0; p < rows; p++) {
        x[p] = from[p];
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = vdupq_n_f32(0);
    }
    if (a->add)
        for (int p = 0; p < rows; p++)
            load_rows(y[p], to + (size_t)(2 * p) * ld, to + (size_t)(2 * p + 1) * ld);
    for (int p = 0; p < rows && dg_qkind_super(kind); p++) {
        const float32x4_t xs = vld1q_f32(((const dg_qsuper *)from[p])->step[0]);
        for (int c = 0; c < PAIRS; c++)
            y[p][c] = vfmaq_f32(y[p][c], part[p][c], xs);
    }
    for (int b = 0; b < a->n_block && !dg_qkind_super(kind); b++) {
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
INLINE void fetch_ahead(const dg_qgemm_args *a, int first, const dg_qkind kind, const int rows)
{
    const int n_pair = dg_qkind_super(kind) ? DG_QSUPER : a->n_block;
    if (2 * (first + rows) > a->first_row + a->n_row)
        return;
    for (int p = 0; p < rows; p++) {
        const char *x = (const char *)(a->x + (size_t)(first + p) * a->ldx);
        for (int i = 0; i < n_pair * (int)sizeof *a->x; i += 64)
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
    fetch_ahead(a, first + rows, kind, rows);
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
    const bool halves = kind == DG_Q_HALVES;
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
    if (a->panel->lifted && (kind == DG_Q_PLAIN || kind == DG_Q_LEAST))
        multiply_all(a, kind, true);
    else
        multiply_all(a, kind, false);
}

DG_GEMM_OF_KINDS(multiply_kind)

const dg_qkernels dg_quantised_i8mm = {
    .quantise = dg_quantise_neon,
    .quantise_super = dg_quantise_super_neon,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
