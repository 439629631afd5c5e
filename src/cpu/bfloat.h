/* Products of bfloat16 numbers with the machine's own matrix instructions: weights as they are
 * stored, activations rounded to the nearest.
 *
 * What an instruction adds up at a time, and how it rounds that, is its own affair; each result is
 * a chain over ascending k all the same, which knows of no other row or column. Held against the
 * true product of the rounded numbers a result is off by at most
 *
 *     DG_BFLOAT_LOSS * n_k * sum over k of |x[k]| * |w[k]|
 *
 * and rounding x itself adds 2^-8 of that sum. Numbers below 2^-126 may count as 0. */
#ifndef DG_CPU_BFLOAT_H
#define DG_CPU_BFLOAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/dtype.h"

/* A unit of a float for each term: sums may be rounded away from the nearest. */
#define DG_BFLOAT_LOSS 0x1p-23

/* DG_PANEL columns of a matrix, n_k values of each: [n_k / beside][DG_PANEL][beside], what fills
 * n_k up to a multiple of the step being 0. `stride` is the distance of the rows of src in bytes;
 * src needs no alignment, panel 64 bytes. */
typedef void dg_bpack_fn(uint16_t *panel, const void *src, size_t stride, int n_k, int n_col);

/* Rows of x lie `rows` together, as the instruction takes them: such a group begins at its first
 * row's number times ldx, and value k of it `rows` * k further on, k being a multiple of the step.
 * place() puts n numbers, a multiple of the step, from there on into row `which` of the group.
 * Where the last group is not full the others have memory as well. */
typedef void dg_bplace_fn(uint16_t *to, int which, const uint16_t *from, int n);

/* What is multiplied after a product, which asks for it with its last columns: the first `each`
 * numbers of n parts. */
typedef struct dg_bsoon {
    const uint16_t *const *part;
    size_t each;
    int n;
} dg_bsoon;

/* y[r][c] = (add ? y[r][c] : 0) + sum over k of x[r][k] * w[k][c], as dg_gemm_args says. Rows of x
 * have zeros from n_k on up to a multiple of the step, too. w lies in parts of part_k values along
 * k, a multiple of the step or all of them; or, where part_col is not 0, of so many columns, whole
 * panels in twos. In a part a panel lies `next` numbers behind the last one. */
typedef struct dg_bgemm_args {
    float *y;
    const uint16_t *x;
    const uint16_t *const *part;
    size_t ldy, ldx, next;
    int n_row, n_k, part_k, n_col, part_col;
    bool add;
    dg_bsoon soon;
    float *sum; /* NULL, or the sum of each row of x, as shares() has it; where there is soften() */
} dg_bgemm_args;
typedef void dg_bgemm_fn(const dg_bgemm_args *a);

/* A product, without `add` and of whole pairs of panels, whose results are scores that become
 * shares as soon as they are there: those of row r against top[r] go to where row r of an x with an
 * ldx of n_col has its numbers. The bits are those of gemm(), shares() and place(); y is not looked
 * at. False where a score is more than `slack` above its row's top, the difference being rounded to
 * a float: shares are of no use then. Their sums come with the product that spends them. */
typedef bool dg_bsoften_fn(const dg_bgemm_args *a, uint16_t *share, const float *top);

/* The largest of n numbers; -infinity where all are NaN. */
typedef float dg_blargest_fn(const float *z, int n);

/* out[i] = exp(z[i] - top) as a bfloat16 number, z[i] <= top + slack, to DG_SHARE_LOSS of itself
 * and 2^-126 at least; returns the sum of those numbers. What becomes of NaN is not said. */
typedef float dg_bshares_fn(uint16_t *out, const float *z, int n, float top);
#define DG_SHARE_LOSS (0x1p-8 + 0x1p-13)

/* n lines of DG_PANEL * beside numbers, `stride` numbers apart: bytes of type DG_Q8_0 or DG_FP8
 * (kv_numbers.h), each times the factor of its place in the line, to the nearest. */
typedef void dg_bwiden_fn(uint16_t *out, const uint8_t *in, dg_dtype type, const float *factor,
                          size_t stride, int n);

typedef struct dg_bkernels {
    const char *profile,
        *block_profile; /* of numerics with them: see dg_backend's bfloat_profile */
    int step;           /* values along k that are taken together; divides DG_BFLOAT_STEP */
    int rows;           /* of x that lie together; divides DG_BFLOAT_ROWS */
    int beside;         /* values along k of a panel's column that lie side by side */
    int block;          /* rows of x that a panel meets before the next one does */
    int keys;           /* that attention takes together: whole pages, ATTENTION_RUN at most */
    int lines;          /* of a task of attention: ATTENTION_LINES at most */
    float slack;        /* by how much a score may exceed what its line's shares are against */
    dg_bplace_fn *place;
    dg_bpack_fn *pack_cols; /* rows of src become columns */
    dg_bpack_fn *pack_rows; /* rows of src run along k already */
    dg_bgemm_fn *gemm;
    dg_bsoften_fn *soften; /* NULL: no faster than the three by themselves */
    dg_blargest_fn *largest;
    dg_bshares_fn *shares;
    dg_bwiden_fn *widen;
} dg_bkernels;
enum { DG_BFLOAT_STEP = 32, DG_BFLOAT_ROWS = 16 };

#endif
