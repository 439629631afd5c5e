/* The model's weights in a backend's memory, found by name, their shapes held to the config before
 * anything is computed. Immutable once loaded; any number of passes may share it. */
#ifndef DG_MODEL_MODEL_H
#define DG_MODEL_MODEL_H

#include "backend/backend.h"
#include "format/checkpoint.h"
#include "model/config.h"

typedef struct dg_layer {
    dg_kv_group group;
    dg_attention_weights attention;
    dg_mlp_weights dense;
    dg_router_weights router;
    dg_expert_weights experts;
    float *post_norm;
    float scalar_encode, scalar_canvas; /* a file may give encoder and decoder different ones */
} dg_layer;

typedef struct dg_model {
    dg_config cfg;
    dg_backend *be; /* borrowed */

    dg_weight embed; /* token embedding, output head and soft-embedding table in one */
    float *norm;
    dg_mlp_weights condition; /* self-conditioning */
    dg_layer *layer;          /* [cfg.n_layer] */

    /* RoPE frequencies of sliding and global layers; every layer of a kind rotates alike */
    int n_rope_pair[DG_KV_GROUPS];
    float *rope_frequency[DG_KV_GROUPS];

    float *vectors; /* all float vectors above, in one piece */
    struct dg_made *made;
    struct dg_model_adapters *adapters; /* model/adapters.h; NULL: none */
} dg_model;

/* Whether a checkpoint has the tensors that the config asks for, each in its shape. Loads nothing.
 */
dgemma_status dg_model_check(const dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err);

/* The checkpoint and the backend must outlive the model. */
dgemma_status dg_model_load(dg_model **out, const dg_config *cfg, const dg_checkpoint *ck,
                            dg_backend *be, dgemma_error *err);
void dg_model_free(dg_model *m);

static inline dg_kv_group dg_layer_group(const dg_layer_config *cfg)
{
    return cfg->sliding ? DG_KV_SLIDING : DG_KV_GLOBAL;
}

#endif
