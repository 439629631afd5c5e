/* Products on quantised weights with AMX: a tile of sixteen rows of bytes times one of sixteen
 * columns.
 *
 * Pairs of rows lie as eight values of one, eight of the other. A tile takes a block of sixteen
 * pairs as it lies there, and the weights stand over the values of one row with zeros over those of
 * the other: two products, for even rows and odd ones, without rearranging anything. Zeros and
 * weights take turns in a panel, two rows of each, so that both right sides are the same memory:
 *     n   [eight of 256] two rows of zeros, two of weights; then two of zeros
 * The sums of a block, or of half of one where groups have sixteen values, go through memory to
 * where they are scaled. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif

#define PANEL_ROW(j) (4 * ((j) / 2) + 2 + (j) % 2)
#define UP(kind)     0
#include "cpu/x86/pack_avx512.h"

enum {
    PAIRS = 16,       /* of rows in a tile */
    PIECES = 8,       /* groups of values whose sums are kept at a time */
    SCALED_PAIRS = 4, /* that are scaled together */
    SCALED_ROWS = 2 * SCALED_PAIRS
};

/* ---- weights ---- */

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    const v64 zero = v64_set32(0);
    for (int eight = 0; eight <= 4 * a->n_block; eight++)
        for (int i = 0; i < 2; i++)
            v64_store(panel->n + 64 * (4 * eight + i), zero);
    pack_columns(panel, a, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- sums ---- */

/* [group][which row of a pair][pair][column] */
typedef struct piece_sums {
    _Alignas(64) int32_t at[PIECES][2][PAIRS][DG_QCOLS];
} piece_sums;

/* Where a group's values lie in a block of x, and its weights in the panel. */
INLINE const int8_t *left_of(const dg_qpair *x, int group, const bool halves)
{
    return halves ? x[group / 2].n[2 * (group % 2)][0] : x[group].n[0][0];
}

INLINE const uint8_t *right_of(const dg_qpanel *p, int group, const bool halves)
{
    return p->n + 64 * (halves ? 8 : 16) * group;
}

/* Asks for part of a block of the sixteen pairs behind those at x: rows lie far apart, in memory
 * that other cores wrote. */
INLINE void fetch_pairs(const dg_qgemm_args *a, const dg_qpair *x, int block)
{
    for (int i = PAIRS; i < 2 * PAIRS; i++) {
        const dg_qpair *next = x + (size_t)i * a->ldx + block;
        __builtin_prefetch(next->n);
        __builtin_prefetch(next->step);
    }
}

/* Sums of groups [first, first + count) of the pairs from x on, as many as tiles_begin was told;
 * `more`: there are pairs behind them. */
INLINE void sum_groups(piece_sums *s, const dg_qgemm_args *a, const dg_qpair *x, int first,
                       int count, const bool halves, bool more)
{
    const size_t stride = a->ldx * sizeof *x;
    for (int i = 0; i < count; i += 2) {
        const uint8_t *w = right_of(a->panel, first + i, halves);
        for (int k = i; more && k < dg_min(i + 2, count) && (!halves || k == i); k++)
            fetch_pairs(a, x, halves ? (first + k) / 2 : first + k);
        tile_zero(0);
        tile_zero(1);
        tile_load(4, left_of(x, first + i, halves), stride);
        tile_load(6, w + 128, 64);
        tile_dot(0, 4, 6);
        tile_load(7, w, 64);
        tile_dot(1, 4, 7);
        if (i + 1 < count) {
            w = right_of(a->panel, first + i + 1, halves);
            tile_zero(2);
            tile_zero(3);
            tile_load(5, left_of(x, first + i + 1, halves), stride);
            tile_load(6, w + 128, 64);
            tile_dot(2, 5, 6);
            tile_load(7, w, 64);
            tile_dot(3, 5, 7);
        }
        tile_store(0, s->at[i][0], 64);
        tile_store(1, s->at[i][1], 64);
        if (i + 1 < count) {
            tile_store(2, s->at[i + 1][0], 64);
            tile_store(3, s->at[i + 1][1], 64);
        }
    }
}

/* ---- scaling ---- */

/* Part of what sum_groups has summed: `pairs` pairs from `pair` on, the first with blocks at x. */
typedef struct part {
    const piece_sums *s;
    const dg_qpair *x;
    int pair, first, count; /* groups */
    float *to[SCALED_ROWS]; /* results, NULL for a row that nobody asked for */
} part;

INLINE f16v sum_at(const part *p, int group, int r)
{
    return f16v_of_i32(v64_load(p->s->at[group - p->first][r % 2][p->pair + r / 2]));
}

INLINE void take_least(f16v y[SCALED_ROWS], const float *least, const dg_qpair *const x[],
                       const dg_qkind kind, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(x[r / 2]->sum[r % 2][0]), y[r]);
        for (int h = 0; h < 2 && kind == DG_Q_HALVES_LEAST; h++)
            y[r] = f16v_fnma(f16v_load(least + h * DG_QCOLS),
                             f16v_set(x[r / 2]->half_sum[r % 2][h]), y[r]);
    }
}

/* Adds the groups' sums, scaled, to the results; `pairs` is a constant at every call. */
INLINE void scale_groups(const dg_qgemm_args *a, const part *p, const dg_qkind kind,
                         const int pairs)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST, add = a->add || p->first;
    const int per_block = halves ? 2 : 1, rows = 2 * pairs;
    const dg_qpair *x[SCALED_PAIRS];
    f16v y[SCALED_ROWS];
    UNROLL
    for (int i = 0; i < pairs; i++)
        x[i] = p->x + (size_t)i * a->ldx + p->first / per_block;
    UNROLL
    for (int r = 0; r < rows; r++)
        y[r] = add && p->to[r] ? f16v_load_first(p->to[r], a->n_col) : f16v_zero();

    for (int g = p->first; g < p->first + p->count; g += per_block) {
        const float *step = a->panel->step + g * DG_QCOLS;
        UNROLL
        for (int r = 0; r < rows; r++) {
            f16v t = f16v_mul(sum_at(p, g, r), f16v_load(step));
            if (halves)
                t = f16v_fma(sum_at(p, g + 1, r), f16v_load(step + DG_QCOLS), t);
            y[r] = f16v_fma(t, f16v_set(x[r / 2]->step[r % 2][0]), y[r]);
        }
        take_least(y, a->panel->least + g * DG_QCOLS, x, kind, rows);
        UNROLL
        for (int i = 0; i < pairs; i++)
            x[i]++;
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        if (p->to[r])
            f16v_store_first(p->to[r], y[r], a->n_col);
}

/* ---- the product ---- */

/* The groups of s, for pairs [pair, pair + n_pair) of the rows. */
INLINE void scale_pairs(const dg_qgemm_args *a, const piece_sums *s, int pair, int n_pair,
                        int first, int count, const dg_qkind kind)
{
    for (int i = 0; i < n_pair;) {
        const int pairs = n_pair - i >= SCALED_PAIRS ? SCALED_PAIRS : 1;
        part p = {.s = s, .x = a->x + (size_t)(pair + i) * a->ldx, .pair = i};
        p.first = first;
        p.count = count;
        for (int r = 0; r < 2 * pairs; r++) {
            const int row = 2 * (pair + i) + r - a->first_row;
            p.to[r] = row >= 0 && row < a->n_row ? a->y + (size_t)row * a->ldy : NULL;
        }
        if (pairs == SCALED_PAIRS)
            scale_groups(a, &p, kind, SCALED_PAIRS);
        else
            scale_groups(a, &p, kind, 1);
        i += pairs;
    }
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int end = dg_ceil_div(a->first_row + a->n_row, 2),
              n_group = a->n_block * (halves ? 2 : 1);
    piece_sums s;
    int shaped = 0;
    for (int pair = a->first_row / 2; pair < end; pair += PAIRS) {
        const int n_pair = dg_min(PAIRS, end - pair);
        if (n_pair != shaped)
            tiles_begin(n_pair, halves ? 32 : 64);
        shaped = n_pair;
        for (int g = 0; g < n_group; g += PIECES) {
            const int count = dg_min(PIECES, n_group - g);
            sum_groups(&s, a, a->x + (size_t)pair * a->ldx, g, count, halves, pair + PAIRS < end);
            scale_pairs(a, &s, pair, n_pair, g, count, kind);
        }
    }
    tiles_end();
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

const dg_qkernels dg_quantised_amx = {
    .quantise = QUANTISE,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
