/* Quantised Hugging Face folders keep a matrix in parts: "X.weight_packed", "X.weight_scale" and
 * more, and experts one by one. Here the parts become tensors under the names of the plain
 * checkpoint, "X.weight" and "experts.gate_proj" [n_expert, n_out, n_in], whose values are made
 * when they are loaded (tensor/matrix_pieces.h). Which parts are there says what a matrix is; a
 * module that the folder's `ignore` list leaves alone has none, and stays what it is.
 *
 * A pure function of names, types and shapes: nothing is read but the factors of matrices. */
#ifndef DG_FORMAT_MODULES_H
#define DG_FORMAT_MODULES_H

#include "base/error.h"
#include "format/quantisation.h"
#include "tensor/matrix_pieces.h"

typedef struct dg_modules {
    dg_tensor *tensor; /* in no order */
    size_t n_tensor;
    bool *used; /* for each tensor given: it is a part of one of those */
    dg_pieces *pieces;
    dg_piece *piece;
    float *factor;
    char *names;
} dg_modules;

/* `part` are all tensors of the folder, sorted by name; their names and data outlive *out, the
 * array need not. *out is empty on failure. */
dgemma_status dg_modules_join(dg_modules *out, const dg_tensor *part, size_t n,
                              const dg_quantisation *q, const char *where, dgemma_error *err);
void dg_modules_clear(dg_modules *m);

#endif
