/* Importance being made: for every matrix of a model, and for each expert's, sums of the squares of
 * its inputs over the rows that it met; then as a file. */
#ifndef DG_CONVERT_IMPORTANCE_SUMS_H
#define DG_CONVERT_IMPORTANCE_SUMS_H

#include "format/gguf_names.h"
#include "model/model.h"

typedef struct dg_importance_line {
    char name[DG_GGUF_NAME]; /* as GGUF has it */
    const dg_weight *w;      /* the model's; of experts' gate and up, which are one tensor, gate */
    double *sum;             /* [n_mat, n_in] */
    int64_t *count;          /* [n_mat] rows */
} dg_importance_line;

typedef struct dg_importance_sums {
    dg_importance_line *line; /* in the order of the file */
    dg_importance_line **by_weight;
    size_t n;
} dg_importance_sums;

/* Of a model, which outlives them: all matrices but the routers, which stay F32, and the embedding
 * table, which is looked up as well as multiplied with. */
dgemma_status dg_importance_sums_init(dg_importance_sums *s, const dg_model *m, dgemma_error *err);
void dg_importance_sums_clear(dg_importance_sums *s); /* {0} is fine */

/* Adds rows that matrix `mat` of w meets; a weight that has no line is passed over. A
 * dg_cpu_observe_fn. */
void dg_importance_sums_add(void *sums, const dg_weight *w, int mat, const float *x, size_t ldx,
                            int n_row);

/* What the file says of the text. */
typedef struct dg_importance_text {
    const char *name;
    int n_chunk, chunk_tokens;
} dg_importance_text;

/* As a GGUF file, or in the older form where the name ends in ".dat"; one that is there is replaced
 * where `replace`. DGEMMA_E_INTERNAL: a sum is no finite float. */
dgemma_status dg_importance_sums_write(const dg_importance_sums *s, const dg_importance_text *text,
                                       const char *path, bool replace, dgemma_error *err);

#endif
