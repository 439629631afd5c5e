/* Products on quantised weights with AVX-512's VPDPBUSD, which adds four products of an unsigned
 * and a signed byte to 32 bits. Numbers that may be negative are kept 128 higher than they are;
 * sums start with what that adds, which quantising left beside each row.
 *
 * Who includes this has defined UP(kind), as pack_avx512.h says. */
#ifndef DG_CPU_X86_DOTS_AVX512_H
#define DG_CPU_X86_DOTS_AVX512_H

#include "cpu/x86/columns_avx512.h"

/* Rows that meet the columns together, at most: an instruction's sum comes after five cycles, two
 * begin in each, and there are registers for twelve sums twice. */
enum { DOT_ROWS = 12 };

/* Such rows, by one address a pair, from which compilers reach both: the second row of a pair has
 * everything EACH bytes behind the first. One row alone may be either. */
typedef struct dot_rows {
    const uint8_t *pair[DOT_ROWS / 2];
} dot_rows;

enum { EACH = 8 };
_Static_assert(sizeof((dg_qpair *)0)->n[0][0] == EACH && sizeof((dg_qpair *)0)->step[0] == EACH &&
                   sizeof((dg_qpair *)0)->sum[0] == EACH && sizeof((dg_qpair *)0)->bias[0] == EACH,
               "of a pair");
_Static_assert(sizeof((dg_qsuper *)0)->n[0][0] == EACH &&
                   sizeof((dg_qsuper *)0)->high[0][0] == EACH &&
                   sizeof((dg_qsuper *)0)->step[0] == EACH &&
                   sizeof((dg_qsuper *)0)->bias[0][0] == EACH,
               "of a pair of super-blocks");

/* `rows` rows from `first` on, which is the first of a pair unless it is one row. */
INLINE dot_rows dot_rows_at(const dg_qgemm_args *a, int first, const int rows)
{
    const int row = a->first_row + first;
    dot_rows x;
    UNROLL
    for (int p = 0; p < (rows + 1) / 2; p++)
        x.pair[p] = (const uint8_t *)(a->x + (size_t)(row / 2 + p) * a->ldx) + row % 2 * EACH;
    return x;
}

/* What row r has `offset` bytes behind the first row's numbers. */
INLINE const uint8_t *dot_at(const dot_rows *x, int r, size_t offset)
{
    return x->pair[r / 2] + offset + r % 2 * EACH;
}

INLINE f16v dot_float(const dot_rows *x, int r, size_t offset)
{
    float f;
    memcpy(&f, dot_at(x, r, offset), sizeof f);
    return f16v_set(f);
}

INLINE v64 dot_word(const dot_rows *x, int r, size_t offset)
{
    int32_t i;
    memcpy(&i, dot_at(x, r, offset), sizeof i);
    return v64_set32(i);
}

/* Where the four numbers `four` of 32 are: the eight that they are half of have those of the pair's
 * other row behind them. */
INLINE size_t offset_of_four(int four)
{
    return (size_t)(four / 2 * 2 * EACH + four % 2 * 4);
}

/* Where results of some rows go, in values of its own: what is written could be a->anything. The
 * last row of a pair may be beyond what there is: then it is made of what is there, and no column
 * of it comes or goes. */
typedef struct dot_results {
    float *y, *last;
    size_t ldy;
    int n_col, n_last;           /* columns; of the last row */
    int n_before, n_before_last; /* that have a value already */
} dot_results;

INLINE dot_results dot_results_of(const dg_qgemm_args *a, int first, const int rows)
{
    const int end = dg_min(first + rows, a->n_row);
    const bool whole = end == first + rows;
    return (dot_results){
        .y = a->y + (size_t)first * a->ldy,
        .last = a->y + (size_t)(end - 1) * a->ldy,
        .ldy = a->ldy,
        .n_col = a->n_col,
        .n_last = whole ? a->n_col : 0,
        .n_before = a->add ? a->n_col : 0,
        .n_before_last = a->add && whole ? a->n_col : 0,
    };
}

INLINE f16v dot_before(const dot_results *to, int r, const int rows)
{
    return r + 1 < rows ? f16v_load_first(to->y + (size_t)r * to->ldy, to->n_before)
                        : f16v_load_first(to->last, to->n_before_last);
}

INLINE void dot_store(const dot_results *to, int r, const int rows, f16v value)
{
    if (r + 1 < rows)
        f16v_store_first(to->y + (size_t)r * to->ldy, value, to->n_col);
    else
        f16v_store_first(to->last, value, to->n_last);
}

/* How far behind these rows those are that follow, which come out of the second-level cache; of the
 * last ones nothing is asked for. */
INLINE size_t distance_of_next(const dg_qgemm_args *a, int first, const int rows)
{
    const bool more = rows % 2 == 0 && first + 2 * rows <= a->n_row;
    return more ? (size_t)(rows / 2) * a->ldx * sizeof(dg_qpair) : 0;
}

/* Asks for a line of the cache of each pair of them. */
INLINE void ask_for_next(const dot_rows *x, size_t distance, const int rows)
{
    if (!distance)
        return;
    UNROLL
    for (int p = 0; p < rows / 2; p++)
        __builtin_prefetch(x->pair[p] + distance);
}

/* sum[r] = the products of one half of a block, or of all of it, for `rows` rows. */
INLINE void dot_products(v64 sum[DOT_ROWS], const dot_rows *x, const uint8_t *n, const int half,
                         const bool all, const dg_qkind kind, const int rows)
{
    const size_t bias = offsetof(dg_qpair, bias);
    UNROLL
    for (int r = 0; r < rows; r++) {
        sum[r] = UP(kind) ? dot_word(x, r, bias + (size_t)half * 4) : v64_set32(0);
        if (UP(kind) && all)
            sum[r] = v64_add32(sum[r], dot_word(x, r, bias + 4));
    }
    const int first = 4 * half, end = all ? 8 : first + 4;
    UNROLL
    for (int i = first; i < end; i++) {
        const v64 w = v64_load(n + 64 * i);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = v64_dot_four(sum[r], w, dot_at(x, r, offset_of_four(i)));
    }
}

/* One block of 32: `rows` rows times sixteen columns. */
INLINE void dot_block(f16v y[DOT_ROWS], const dot_rows *x, const uint8_t *n, const float *step,
                      const float *least, const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES;
    v64 sum[DOT_ROWS];
    f16v part[DOT_ROWS];
    dot_products(sum, x, n, 0, !halves, kind, rows);
    UNROLL
    for (int r = 0; r < rows; r++)
        part[r] = f16v_mul(f16v_of_i32(sum[r]), f16v_load(step));
    if (halves) {
        dot_products(sum, x, n, 1, false, kind, rows);
        UNROLL
        for (int r = 0; r < rows; r++)
            part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(step + DG_QCOLS), part[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        y[r] = f16v_fma(part[r], dot_float(x, r, offsetof(dg_qpair, step)), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), dot_float(x, r, offsetof(dg_qpair, sum)), y[r]);
    }
}

/* `rows` rows from row `first` on; a constant at every call. */
INLINE void multiply_rows(const dg_qgemm_args *a, fetch *soon, int first, const dg_qkind kind,
                          const int rows)
{
    const int per_block = DG_QBLOCK / group_of(kind);
    const dot_results to = dot_results_of(a, first, rows);
    f16v y[DOT_ROWS];
    dot_rows x = dot_rows_at(a, first, rows);
    const size_t next = distance_of_next(a, first, rows);
    UNROLL
    for (int r = 0; r < rows; r++)
        y[r] = dot_before(&to, r, rows);
    for (int b = 0; b < a->n_block; b++) {
        const int at = b * per_block * DG_QCOLS;
        dot_block(y, &x, a->panel->n + b * DG_QBLOCK * DG_QCOLS, a->panel->step + at,
                  a->panel->least + at, kind, rows);
        ask_for_next(&x, next, rows);
        ask_for_next(&x, next ? next + 64 : 0, rows);
        fetch_some(soon);
        UNROLL
        for (int p = 0; p < (rows + 1) / 2; p++)
            x.pair[p] += sizeof(dg_qpair);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        dot_store(&to, r, rows, y[r]);
}

/* Times that what comes next is asked for, at least. */
INLINE int dot_turns(const dg_qgemm_args *a)
{
    return dg_ceil_div(a->n_row, DOT_ROWS) * a->n_block;
}

#endif
