/* Rows of a planned tensor, made from those of its source. */
#ifndef DG_CONVERT_QUANTIZE_ROWS_H
#define DG_CONVERT_QUANTIZE_ROWS_H

#include "base/error.h"
#include "format/adapter.h"
#include "format/gguf_names.h"
#include "tensor/tensor.h"

/* What an adapter adds to rows of a source: factor * B A, B's first row to row `at` of each matrix.
 */
typedef struct dg_delta {
    struct dg_delta *next;
    dg_adapter_values values;
    float factor;
    int at;
} dg_delta;

/* What a tensor of the file is made of. */
typedef struct dg_planned {
    char name[DG_GGUF_NAME];
    dg_tensor tensor; /* as the file has it: name, type, shape, bytes */

    /* Rows of each matrix: those of the first, then those of the second, where there is one (gate
     * and up, which GGUF has in one tensor). */
    const dg_tensor *from[2];
    dg_delta *delta[2]; /* of each; adapter_merge.h. NULL: none */
    /* How much each column's errors weigh; NULL: all alike. The next matrix's are importance_step
     * on. */
    const float *importance;
    size_t importance_step;
    bool verbatim; /* no part of the model that is known here: stays byte by byte */
} dg_planned;

/* Room for the floats of some rows, before and after, and for blocks that are made of pieces. */
typedef struct dg_rows_scratch {
    float *values, *back;
    unsigned char *stored;
} dg_rows_scratch;

enum { DG_ROWS_SCRATCH_BYTES = 3 * sizeof(float) }; /* for each value */
bool dg_rows_scratch_init(dg_rows_scratch *s, size_t n_value);
void dg_rows_scratch_clear(dg_rows_scratch *s);

/* Sums of squares: of what values are off, and of the values; weighted as errors are. */
typedef struct dg_rows_error {
    double off, size;
} dg_rows_error;

/* Values of a row; a vector is one row. */
size_t dg_rows_length(const dg_planned *to);

/* Rows [first, first + n_row) of all matrices one after the other. What has the right type already
 * is copied. DGEMMA_E_FORMAT: a value is not finite, or cannot be as large as it is in the type. */
dgemma_status dg_rows_make(unsigned char *out, const dg_planned *to, int64_t first, int64_t n_row,
                           dg_rows_scratch *s, dg_rows_error *error, dgemma_error *err);

#endif
