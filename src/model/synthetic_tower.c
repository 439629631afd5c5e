#include "model/synthetic_tower.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "model/synthetic_types.h"

#define TOWER "model.encoder.vision_tower."

enum { LAYER_TENSORS = 13, COMMON_TENSORS = 5, NAME_BYTES = 112 };

struct dg_synthetic_tower {
    dg_checkpoint *ck;
    dg_tensor *tensor;
    char (*name)[NAME_BYTES];
    size_t n;
    float *one;     /* [n_embd] */
    void *random;   /* of the matrices */
    size_t n_bytes; /* of the largest */
};

static const dg_vision_config published = {.present = true,
                                           .n_embd = 1152,
                                           .n_ff = 4304,
                                           .n_layer = 27,
                                           .n_head = 16,
                                           .head_dim = 72,
                                           .patch = 16,
                                           .pool = 3,
                                           .n_position = 10240,
                                           .max_soft = 280,
                                           .standardize = true,
                                           .rms_eps = 1e-6f,
                                           .rope_theta = 100};

static const dg_vision_config tiny = {.present = true,
                                      .n_embd = 96,
                                      .n_ff = 160,
                                      .n_layer = 2,
                                      .n_head = 4,
                                      .head_dim = 24,
                                      .patch = 4,
                                      .pool = 3,
                                      .n_position = 128,
                                      .max_soft = 70,
                                      .standardize = true,
                                      .rms_eps = 1e-6f,
                                      .rope_theta = 100};

/* A matrix of a x b, or two of them; b 0: a vector of ones. */
static void add(dg_synthetic_tower *t, const char *prefix, const char *name, int n_mat, int a,
                int b)
{
    dg_tensor *x = &t->tensor[t->n];
    snprintf(t->name[t->n], NAME_BYTES, "%s%s", prefix, name);
    *x = (dg_tensor){.name = t->name[t->n], .type = b ? DG_BF16 : DG_F32};
    if (n_mat > 1)
        x->shape[x->n_dim++] = n_mat;
    x->shape[x->n_dim++] = a;
    if (b)
        x->shape[x->n_dim++] = b;
    x->bytes = dg_dtype_bytes(x->type, dg_tensor_count(x));
    x->data = b ? NULL : t->one;
    if (b && x->bytes > t->n_bytes)
        t->n_bytes = x->bytes;
    t->n++;
}

static void add_layer(dg_synthetic_tower *t, const dg_vision_config *v, int index)
{
    static const char *const norm[] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                                       "pre_feedforward_layernorm.weight",
                                       "post_feedforward_layernorm.weight"};
    int heads = v->n_head * v->head_dim;
    char p[64];
    snprintf(p, sizeof p, TOWER "encoder.layers.%d.", index);
    for (size_t i = 0; i < DG_COUNT(norm); i++)
        add(t, p, norm[i], 1, v->n_embd, 0);
    add(t, p, "self_attn.q_proj.linear.weight", 1, heads, v->n_embd);
    add(t, p, "self_attn.k_proj.linear.weight", 1, heads, v->n_embd);
    add(t, p, "self_attn.v_proj.linear.weight", 1, heads, v->n_embd);
    add(t, p, "self_attn.o_proj.linear.weight", 1, v->n_embd, heads);
    add(t, p, "self_attn.q_norm.weight", 1, v->head_dim, 0);
    add(t, p, "self_attn.k_norm.weight", 1, v->head_dim, 0);
    add(t, p, "mlp.gate_proj.linear.weight", 1, v->n_ff, v->n_embd);
    add(t, p, "mlp.up_proj.linear.weight", 1, v->n_ff, v->n_embd);
    add(t, p, "mlp.down_proj.linear.weight", 1, v->n_embd, v->n_ff);
}

static void list_tensors(dg_synthetic_tower *t, const dg_config *cfg)
{
    const dg_vision_config *v = &cfg->vision;
    add(t, TOWER, "patch_embedder.input_proj.weight", 1, v->n_embd, 3 * v->patch * v->patch);
    add(t, TOWER, "patch_embedder.position_embedding_table", 2, v->n_position, v->n_embd);
    add(t, TOWER, "std_bias", 1, v->n_embd, 0);
    add(t, TOWER, "std_scale", 1, v->n_embd, 0);
    add(t, "model.encoder.embed_vision.", "embedding_projection.weight", 1, cfg->n_embd, v->n_embd);
    for (int i = 0; i < v->n_layer; i++)
        add_layer(t, v, i);
}

static dgemma_status make(dg_synthetic_tower *t, const dg_config *cfg, dgemma_error *err)
{
    size_t n_tensor = (size_t)cfg->vision.n_layer * LAYER_TENSORS + COMMON_TENSORS;
    size_t n_embd = (size_t)cfg->vision.n_embd;
    t->tensor = dg_calloc(n_tensor, sizeof *t->tensor);
    t->name = dg_calloc(n_tensor, sizeof *t->name);
    t->one = dg_array(n_embd, sizeof *t->one);
    if (!t->tensor || !t->name || !t->one)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n_embd; i++)
        t->one[i] = 1;
    list_tensors(t, cfg);
    t->random = dg_malloc_aligned(t->n_bytes);
    if (!t->random)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu MiB of weights", t->n_bytes >> 20);
    dg_random_weights(t->random, DG_BF16, t->n_bytes, 0x70E8);
    for (size_t i = 0; i < t->n; i++)
        if (!t->tensor[i].data)
            t->tensor[i].data = t->random;
    return dg_checkpoint_of(&t->ck, "synthetic tower", t->tensor, t->n, err);
}

dgemma_status dg_synthetic_tower_open(dg_synthetic_tower **out, dg_config *cfg, const char *shape,
                                      dgemma_error *err)
{
    dg_synthetic_tower *t = dg_calloc(1, sizeof *t);
    if (!t)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    cfg->vision = shape && strcmp(shape, "tiny") == 0 ? tiny : published;
    dgemma_status st = make(t, cfg, err);
    if (st) {
        dg_synthetic_tower_close(t);
        return st;
    }
    *out = t;
    return DGEMMA_OK;
}

void dg_synthetic_tower_close(dg_synthetic_tower *t)
{
    if (!t)
        return;
    dg_checkpoint_close(t->ck);
    dg_free(t->tensor);
    dg_free(t->name);
    dg_free(t->one);
    dg_free(t->random);
    dg_free(t);
}

const dg_checkpoint *dg_synthetic_tower_checkpoint(const dg_synthetic_tower *t)
{
    return t->ck;
}
