/* Products on quantised weights with AVX-512's VPDPBUSD, which adds four products of an unsigned
 * and a signed byte to 32 bits. Numbers that may be negative are kept 128 higher than they are;
 * sums start with what that adds, which quantising left beside each row (dg_qpair's bias). */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif

#define UP(kind) ((kind) == DG_Q_PLAIN || (kind) == DG_Q_HALVES ? 128 : 0)
#include "cpu/x86/pack_avx512.h"

enum { ROWS = 8 /* of a tile */ };

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    pack_columns(panel, a, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* One row of x: its blocks, and which row of the pair it is. */
typedef struct line {
    const dg_qpair *x;
    int which;
} line;

INLINE v64 four_of(const line *l, int four)
{
    int32_t bytes;
    memcpy(&bytes, &l->x->n[four / 2][l->which][four % 2 * 4], sizeof bytes);
    return v64_set32(bytes);
}

/* sum[r] = the products of one half of a block, or of all of it, for `rows` rows. */
INLINE void sum_products(v64 sum[ROWS], const line l[ROWS], const uint8_t *n, const int half,
                         const bool all, const dg_qkind kind, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int32_t *bias = l[r].x->bias[l[r].which];
        sum[r] = v64_set32(!UP(kind) ? 0 : all ? bias[0] + bias[1] : bias[half]);
    }
    const int first = 4 * half, end = all ? 8 : first + 4;
    UNROLL
    for (int i = first; i < end; i++) {
        const v64 w = v64_load(n + 64 * i);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = v64_dot(sum[r], w, four_of(&l[r], i));
    }
}

/* One block of 32: `rows` rows times sixteen columns. */
INLINE void add_block(f16v y[ROWS], const line l[ROWS], const uint8_t *n, const float *step,
                      const float *least, const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    v64 sum[ROWS];
    f16v part[ROWS];
    sum_products(sum, l, n, 0, !halves, kind, rows);
    UNROLL
    for (int r = 0; r < rows; r++)
        part[r] = f16v_mul(f16v_of_i32(sum[r]), f16v_load(step));
    if (halves) {
        sum_products(sum, l, n, 1, false, kind, rows);
        UNROLL
        for (int r = 0; r < rows; r++)
            part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(step + DG_QCOLS), part[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const dg_qpair *x = l[r].x;
        const int which = l[r].which;
        y[r] = f16v_fma(part[r], f16v_set(x->step[which][0]), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(x->sum[which][0]), y[r]);
        for (int h = 0; h < 2 && kind == DG_Q_HALVES_LEAST; h++)
            y[r] =
                f16v_fnma(f16v_load(least + h * DG_QCOLS), f16v_set(x->half_sum[which][h]), y[r]);
    }
}

/* `rows` rows from row `first` on; a constant at every call. */
INLINE void multiply(const dg_qgemm_args *a, int first, const dg_qkind kind, const int rows)
{
    const int per_block = DG_QBLOCK / group_of(kind);
    float *to = a->y + (size_t)first * a->ldy;
    f16v y[ROWS];
    line l[ROWS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        int row = a->first_row + first + r;
        l[r] = (line){a->x + (size_t)(row / 2) * a->ldx, row % 2};
        y[r] = a->add ? f16v_load_first(to + (size_t)r * a->ldy, a->n_col) : f16v_zero();
    }
    for (int b = 0; b < a->n_block; b++) {
        const int at = b * per_block * DG_QCOLS;
        add_block(y, l, a->panel->n + b * DG_QBLOCK * DG_QCOLS, a->panel->step + at,
                  a->panel->least + at, kind, rows);
        UNROLL
        for (int r = 0; r < rows; r++)
            l[r].x++;
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        f16v_store_first(to + (size_t)r * a->ldy, y[r], a->n_col);
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    int row = 0;
    for (; row + ROWS <= a->n_row; row += ROWS)
        multiply(a, row, kind, ROWS);
    for (; row + 2 <= a->n_row; row += 2)
        multiply(a, row, kind, 2);
    if (row < a->n_row)
        multiply(a, row, kind, 1);
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_vnni = {
    .quantise = QUANTISE,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
