/* Matrices as quantised Hugging Face folders have them: values in one tensor, scales in others, an
 * expert's each in tensors of its own. Products want blocks, so rows of blocks are made of them,
 * bit by bit the same values. What the forms mean is written here, and what they become:
 *
 *     E4M3    a byte a value, times the scale of its rows and columns     E4M3
 *     NVFP4   nibbles of E2M1, the low one first, times an E4M3 scale
 *             for sixteen of them, times the matrix's factor              NVFP4, the same factor
 *     MXFP4   the same with a power of two for 32 of them                 MXFP4
 *     INT8    a byte with a sign, times such a scale too                  BYTES
 *     PLAIN   floats                                                      as they are
 *
 * The first, second and fourth have blocks of 64 here; where rows do not fill them, the values
 * become F32, times the factor too.
 *
 * There are whole numbers of four bits, (n - zero) times the scale of a group of the row, where
 * zero is 8 or stored for each group. They become Q4_0 where zero is 8 and scales are halves, else
 * AFFINE4.
 *
 *     INT4    of a row eight in a word, the first one lowest; zeros of eight rows in a word
 *     GPTQ    of a column eight neighbours along the row in a word, [n_in / 8, n_out]; scales
 *             [n_group, n_out]; zeros [n_group, n_out / 8], in some files less by one
 *     AWQ     of eight columns one in a word, [n_in, n_out / 8], in the order 0 2 4 6 1 3 5 7;
 *             scales as in GPTQ, zeros in that order too
 *
 * MLX has numbers without a sign, four or eight bits each and the first one lowest, times the scale
 * of a group of the row, plus its bias: they become AFFINE4 and AFFINE8. */
#ifndef DG_TENSOR_MATRIX_PIECES_H
#define DG_TENSOR_MATRIX_PIECES_H

#include "base/error.h"
#include "tensor/tensor.h"

typedef enum dg_form {
    DG_FORM_PLAIN,
    DG_FORM_E4M3,
    DG_FORM_NVFP4,
    DG_FORM_MXFP4,
    DG_FORM_INT8,
    DG_FORM_INT4,
    DG_FORM_GPTQ,
    DG_FORM_AWQ,
    DG_FORM_MLX4,
    DG_FORM_MLX8
} dg_form;

/* One matrix. Scale (r, c) is that of rows [r * scale_rows, …) and columns [c * scale_cols, …). */
typedef struct dg_piece {
    const void *values, *scale;
    dg_dtype scale_type;
    int64_t scale_rows, scale_cols;
    int64_t n_scale_col;
    float factor; /* of NVFP4: the matrix's */

    /* of four bits */
    const void *zero;  /* NULL: 8 */
    bool symmetric;    /* 8, whatever is stored: 8, or 7 */
    int zero_less;     /* words of zeros are stored less by so much in each of the eight, with what
                          a zero of 0 borrows from the next */
    const void *bias;  /* of MLX: as many as scales, of their type */
    const void *group; /* the group of each column, which must be the usual one; NULL: it is */
} dg_piece;

typedef struct dg_pieces {
    dg_form form;
    const dg_piece *piece; /* one for each matrix of the tensor */
} dg_pieces;

/* The type of the blocks that a matrix becomes where they are full; `stored` is that of floats. */
dg_dtype dg_form_type(dg_form form, const dg_piece *piece, dg_dtype stored);

/* Rows [first_row, first_row + n_row) of each matrix of a tensor that has pieces, one after the
 * other. DGEMMA_E_FORMAT: a scale, a zero or a value cannot be; DGEMMA_E_UNSUPPORTED: columns are
 * in another order. */
dgemma_status dg_pieces_make(void *out, const dg_tensor *t, int64_t first_row, int64_t n_row,
                             dgemma_error *err);

#endif
