/* One transformer layer, written once for both modes: encode and denoise differ in which keys a row
 * sees, where its own keys go, and the layer scalar, all of which the batch says. */
#ifndef DG_MODEL_LAYER_H
#define DG_MODEL_LAYER_H

#include "model/model.h"

/* Activations of one pass, in the backend's memory, for as many rows as the pass may have. */
typedef struct dg_activations {
    float *x;               /* [n_row, n_embd] the residual stream */
    float *q, *o;           /* [n_row, max n_head * head_dim] */
    float *dense, *experts; /* [n_row, n_embd] */
    int32_t *expert;        /* [n_row, n_expert_used] */
    float *expert_weight;   /* [n_row, n_expert_used] */
    dg_rope rope[DG_KV_GROUPS];
} dg_activations;

/* Runs layer `index` over all rows of the batch that the backend has begun. Rows below rows.first
 * only have their keys and values written: in the last layer nobody reads anything else of an
 * encoded row. rows.end is the end of the batch. */
void dg_layer_run(const dg_model *m, int index, dg_kv_store *kv, const dg_activations *act,
                  dg_rows rows);

#endif
