/* Products on quantised weights with AVX-512's VPDPBUSD, which adds four products of an unsigned
 * and a signed byte to 32 bits. Numbers that may be negative are kept 128 higher than they are;
 * sums start with what that adds, which quantising left beside each row.
 *
 * Rows lie in the order of whoever includes this, who has defined UP(kind), as pack_avx512.h says,
 *     dot_row           one row of x, where its blocks begin
 *     dot_row_at        row `row` of a product
 *     dot_next          its next block
 *     dot_four          four numbers of the block, in every word
 *     dot_bias          what sums of each half start with
 *     dot_step, dot_sum   as in dg_qpair */
#ifndef DG_CPU_X86_DOTS_AVX512_H
#define DG_CPU_X86_DOTS_AVX512_H

#include "cpu/x86/columns_avx512.h"

enum { DOT_ROWS = 8 /* that meet the columns together */ };

/* sum[r] = the products of one half of a block, or of all of it, for `rows` rows. */
INLINE void dot_products(v64 sum[DOT_ROWS], const dot_row x[DOT_ROWS], const uint8_t *n,
                         const int half, const bool all, const dg_qkind kind, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = v64_set32(!UP(kind) ? 0
                           : all     ? dot_bias(&x[r], 0) + dot_bias(&x[r], 1)
                                     : dot_bias(&x[r], half));
    const int first = 4 * half, end = all ? 8 : first + 4;
    UNROLL
    for (int i = first; i < end; i++) {
        const v64 w = v64_load(n + 64 * i);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = v64_dot(sum[r], w, dot_four(&x[r], i));
    }
}

/* One block of 32: `rows` rows times sixteen columns. */
INLINE void dot_block(f16v y[DOT_ROWS], const dot_row x[DOT_ROWS], const uint8_t *n,
                      const float *step, const float *least, const dg_qkind kind, const int rows)
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
        y[r] = f16v_fma(part[r], f16v_set(dot_step(&x[r])), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(dot_sum(&x[r])), y[r]);
    }
}

/* `rows` rows from row `first` on; a constant at every call. */
INLINE void dot_rows(const dg_qgemm_args *a, fetch *soon, int first, const dg_qkind kind,
                     const int rows)
{
    const int per_block = DG_QBLOCK / group_of(kind);
    float *to = a->y + (size_t)first * a->ldy;
    f16v y[DOT_ROWS];
    dot_row x[DOT_ROWS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        x[r] = dot_row_at(a, a->first_row + first + r);
        y[r] = a->add ? f16v_load_first(to + (size_t)r * a->ldy, a->n_col) : f16v_zero();
    }
    for (int b = 0; b < a->n_block; b++) {
        const int at = b * per_block * DG_QCOLS;
        dot_block(y, x, a->panel->n + b * DG_QBLOCK * DG_QCOLS, a->panel->step + at,
                  a->panel->least + at, kind, rows);
        fetch_some(soon);
        UNROLL
        for (int r = 0; r < rows; r++)
            dot_next(&x[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        f16v_store_first(to + (size_t)r * a->ldy, y[r], a->n_col);
}

/* Times that dot_all asks for what comes next. */
INLINE int dot_turns(const dg_qgemm_args *a)
{
    return (a->n_row / DOT_ROWS + (a->n_row % DOT_ROWS + 1) / 2) * a->n_block;
}

/* All rows and the columns of one panel. */
INLINE void dot_all(const dg_qgemm_args *a, fetch *soon, const dg_qkind kind)
{
    int row = 0;
    for (; row + DOT_ROWS <= a->n_row; row += DOT_ROWS)
        dot_rows(a, soon, row, kind, DOT_ROWS);
    for (; row + 2 <= a->n_row; row += 2)
        dot_rows(a, soon, row, kind, 2);
    if (row < a->n_row)
        dot_rows(a, soon, row, kind, 1);
}

#endif
