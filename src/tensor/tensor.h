/* A view of a stored tensor: row-major, the last dimension fastest. It owns nothing. */
#ifndef DG_TENSOR_TENSOR_H
#define DG_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/dtype.h"

enum { DG_MAX_DIM = 4 };

struct dg_pieces;

typedef struct dg_tensor {
    const char *name; /* belongs to the file the tensor came from */
    dg_dtype type;
    int n_dim; /* 0 for a scalar */
    int64_t shape[DG_MAX_DIM];
    const void *data; /* may be unaligned; NULL where there are pieces */
    size_t bytes;
    const float *scale; /* of a block type, where it has factors of its own: one for each matrix,
                           that is [shape[0]] with three dimensions, else one; NULL: none */
    const struct dg_pieces *pieces; /* what its values are to be made of: see matrix_pieces.h. NULL:
                                       they are there */
} dg_tensor;

/* Elements; shapes are checked for overflow when a file is read. */
size_t dg_tensor_count(const dg_tensor *t);

/* Its first n values as floats, of a compute type, factors of its own included. Not for many: a
 * block that is needed in part is read whole. */
void dg_tensor_widen(float *out, const dg_tensor *t, size_t n);

/* "[384, 96]" into out; returns out. */
enum { DG_SHAPE_TEXT = 96 };
char *dg_shape_text(char out[DG_SHAPE_TEXT], const int64_t *shape, int n_dim);

#endif
