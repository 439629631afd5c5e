/* Products on quantised weights as bytes, for instructions that multiply many of them: what
 * docs/quantised-products.md explains. Each slice of 256 values, or what is left at the end, has
 * one step in a row and one in a column, so that nothing has to be scaled before its end.
 *
 * Rows lie one by one: their numbers, slices filled up with zeros, behind them the steps of the
 * slices, and behind these for each slice -128 times the sum of its numbers, which is what sums
 * start with where a column's bytes are 128 higher than they are. Or they lie in pairs: eight
 * numbers of one row, eight of the other, and behind them for each slice both rows' steps, each
 * twice. Numbers and steps are those of dg_qsuper.
 *
 * A column's value is n * a - b, with the steps a and least values b of its groups. `reach` is what
 * no value of the column's slice exceeds: of types without least values the largest up * |a|, of
 * the others the largest of |b| and |most * a - b|, fused; up and most as in DG_NUMBER_TYPES. Below
 * 2^-100 it counts as 0. The column's step is reach / 127, and with
 *
 *     A = a * (32512 / reach), B = b * (32512 / reach), to the nearest whole number,
 *     byte = (n * A - B + 128) >> 8
 *
 * which is off by less than 0.76 of the step: half for rounding, and 127 / 512 for A and B. For
 * each slice in ascending order, t being the sum of products of a row's numbers and a column's
 * bytes,
 *
 *     y = fma(t * column step, row step, y)
 *
 * the column's step times `scale`; it is NaN where an a or b of the slice is not finite. */
#ifndef DG_CPU_BYTES_H
#define DG_CPU_BYTES_H

#include <stdint.h>
#include "cpu/quantised.h"

#define DG_BYTE_LEAST 0x1p-100f
enum { DG_BYTE_FULL = 127 << 8 /* 32512 */ };

/* 32 columns of a weight, a slice of each: what the product packs. */
enum { DG_BYTE_COLS = 2 * DG_QCOLS };
typedef struct dg_byte_panel {
    _Alignas(64) uint8_t n[DG_BYTE_COLS * DG_QSLICE];
    _Alignas(64) float step[DG_BYTE_COLS];
} dg_byte_panel;

/* y[i][c] = the product of row first_row + i of x with row c of the matrix at w, whose rows are
 * `stride` bytes apart and need no alignment; i < n_row <= DG_BYTE_ROWS, c < n_col, and of both
 * there is one at least. */
typedef struct dg_byte_args {
    float *y;
    size_t ldy;
    const dg_qpair *x;
    int first_row, n_row;
    const void *w;
    size_t stride;
    int type, n_in, n_col;
    float scale;
    dg_byte_panel *panel; /* [DG_BYTE_PANELS] to work with … */
    float *sums;          /* … and [n_row + 2][DG_BYTE_COLS] */
    const void *soon;     /* bytes that the next product begins with; NULL: not known … */
    size_t soon_bytes;    /* … its first DG_BYTE_COLS columns at most */
    bool asked;           /* this one's were named so by the last */
} dg_byte_args;
enum { DG_BYTE_ROWS = 512, DG_BYTE_PANELS = 3 };
typedef void dg_byte_product_fn(const dg_byte_args *a);

typedef struct dg_byte_kernels {
    const char *profile;      /* of numerics with them: see dg_backend's byte_profile */
    dg_qway way;              /* how its rows lie */
    dg_quantise_fn *quantise; /* a row by itself */
    dg_byte_product_fn *product;
} dg_byte_kernels;

/* The steps of a row of n_in values. */
static inline float *dg_byte_steps(dg_qpair *row, int n_in)
{
    return (float *)((int8_t *)row + (n_in + DG_QSLICE - 1) / DG_QSLICE * DG_QSLICE);
}

/* What its sums start with. */
static inline int32_t *dg_byte_starts(dg_qpair *row, int n_in)
{
    return (int32_t *)(dg_byte_steps(row, n_in) + (n_in + DG_QSLICE - 1) / DG_QSLICE);
}

/* The definition, in plain C. */
extern const dg_byte_kernels dg_bytes_ref;

#endif
