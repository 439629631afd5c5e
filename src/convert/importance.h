/* Importance files ("imatrix"): for the inputs of each matrix, the mean of their squares over some
 * text, by which the errors of its columns weigh. Those of llama.cpp are read, in GGUF and in the
 * older form; importance_sums.h makes them. */
#ifndef DG_CONVERT_IMPORTANCE_H
#define DG_CONVERT_IMPORTANCE_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

/* The GGUF form: of each matrix two tensors of F32, NAME.in_sum2 [n_mat, n_in] and NAME.counts
 * [n_mat, 1], and keys. */
#define DG_IMPORTANCE_SUMS       ".in_sum2"
#define DG_IMPORTANCE_COUNTS     ".counts"
#define DG_IMPORTANCE_TYPE_KEY   "general.type"
#define DG_IMPORTANCE_TYPE       "imatrix"
#define DG_IMPORTANCE_TEXTS_KEY  "imatrix.datasets"
#define DG_IMPORTANCE_CHUNKS_KEY "imatrix.chunk_count"
#define DG_IMPORTANCE_CHUNK_KEY  "imatrix.chunk_size"

/* The older form: numbers of four bytes, least first. How many entries; of each the length of its
 * name, the name, a count, how many values, means times the count; then perhaps how many chunks,
 * and the name of the text with its length before it. */

typedef struct dg_importance_entry {
    const char *name; /* of a matrix, as GGUF has it; not ended by a NUL */
    size_t name_len;
    float *weight; /* [n], matrix by matrix; of each a mean of 1 before small ones
                      were raised */
    size_t n, n_mat;
} dg_importance_entry;

typedef struct dg_importance {
    dg_importance_entry *entry; /* sorted by name */
    size_t n_entry;
    int64_t n_chunk; /* of the text that it was made with; 0: not known */
    char *names, *data_set;
} dg_importance;

/* DGEMMA_E_FORMAT: it is not such a file, or a value in it cannot be. Empty after a failure. */
dgemma_status dg_importance_open(dg_importance *out, const char *path, dgemma_error *err);
dgemma_status dg_importance_parse(dg_importance *out, const void *data, size_t size,
                                  const char *where, dgemma_error *err);
void dg_importance_clear(dg_importance *imp);

/* NULL: the file has nothing for this matrix. */
const dg_importance_entry *dg_importance_find(const dg_importance *imp, const char *name);

#endif
