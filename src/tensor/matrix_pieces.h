/* Matrices as quantised Hugging Face folders have them: values in one tensor, scales in others, an
 * expert's each in tensors of its own. Products want blocks, so rows of blocks are made of them,
 * bit by bit the same values. What the forms mean is written here, and what they become:
 *
 *     E4M3    a byte a value, times the scale of its rows and columns     E4M3
 *     NVFP4   nibbles of E2M1, the low one first, times an E4M3 scale
 *             for sixteen of them, times the matrix's factor              NVFP4, the same factor
 *     MXFP4   the same with a power of two for 32 of them                 MXFP4
 *     PLAIN   floats                                                      as they are */
#ifndef DG_TENSOR_PIECES_H
#define DG_TENSOR_PIECES_H

#include "base/error.h"
#include "tensor/tensor.h"

typedef enum dg_form { DG_FORM_PLAIN, DG_FORM_E4M3, DG_FORM_NVFP4, DG_FORM_MXFP4 } dg_form;

/* One matrix. Scale (r, c) is that of rows [r * scale_rows, …) and columns [c * scale_cols, …). */
typedef struct dg_piece {
    const void *values, *scale;
    dg_dtype scale_type;
    int64_t scale_rows, scale_cols;
    int64_t n_scale_col;
} dg_piece;

typedef struct dg_pieces {
    dg_form form;
    const dg_piece *piece; /* one for each matrix of the tensor */
} dg_pieces;

/* The type of the blocks; of floats their own. */
dg_dtype dg_form_type(dg_form form, dg_dtype stored);

/* Rows [first_row, first_row + n_row) of each matrix of a tensor that has pieces, one after the
 * other. DGEMMA_E_FORMAT: a scale or a value is not a number. */
dgemma_status dg_pieces_make(void *out, const dg_tensor *t, int64_t first_row, int64_t n_row,
                             dgemma_error *err);

#endif
