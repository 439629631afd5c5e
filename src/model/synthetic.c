#include "model/synthetic.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "model/presets.h"
#include "model/synthetic_router.h"
#include "model/synthetic_types.h"

enum { GLOBAL_EVERY = 6, LAYER_TENSORS = 24, NAME_BYTES = 80 };

/* The first is that of google/diffusiongemma-26B-A4B-it. */
typedef struct model_shape {
    const char *name;
    int n_vocab, n_embd, n_ff, n_layer, n_head, n_kv_head, n_global_kv_head, head_dim,
        global_head_dim, n_context, window, n_expert, n_expert_used, n_ff_expert, canvas;
} model_shape;

static const model_shape shapes[] = {
    {"26b-a4b", 262144, 2816, 2112, 30, 16, 8, 2, 256, 512, 262144, 1024, 128, 8, 704, 256},
    {"tiny", 1024, 256, 96, 12, 4, 2, 1, 64, 128, 4096, 64, 8, 2, 32, 32},
};

/* Bytes that all tensors of a type have in common. */
typedef struct shared_bytes {
    unsigned char *data;
    size_t bytes;
} shared_bytes;

struct dg_synthetic {
    dg_config cfg;
    dg_checkpoint *ck;
    dg_tensor *tensor;
    char (*name)[NAME_BYTES];
    size_t n, cap;
    shared_bytes of[DG_DTYPE_COMPUTE];
    float *one,
        *norm; /* [n_embd] ones; and the last norm, so large that the model is sure of some words */
    float *post_norm; /* [n_embd] */
    float *soft_norm; /* [n_embd] self-conditioning's */
    uint16_t *router; /* [n_layer][n_expert, n_embd] */
};

/* ---- the list ---- */

static void add(dg_synthetic *s, dg_dtype type, const char *prefix, const char *name, int a, int b,
                int c)
{
    dg_tensor *t = &s->tensor[s->n];
    snprintf(s->name[s->n], NAME_BYTES, "%s%s", prefix, name);
    *t = (dg_tensor){.name = s->name[s->n], .type = type};
    int64_t shape[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (shape[i])
            t->shape[t->n_dim++] = shape[i];
    t->bytes = dg_dtype_bytes(type, dg_tensor_count(t));
    if (type == DG_F32)
        t->data = s->one;
    else if (t->bytes > s->of[type].bytes)
        s->of[type].bytes = t->bytes;
    s->n++;
}

/* [a, b], or with c matrices [a, b, c]. */
static void add_matrix(dg_synthetic *s, const dg_preset *p, const char *prefix, const char *name,
                       int a, int b, int c)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    add(s, dg_preset_type(p, &s->cfg, full, c ? c : b), prefix, name, a, b, c);
}

static void add_mlp(dg_synthetic *s, const dg_preset *p, const char *prefix)
{
    int n = s->cfg.n_embd, n_ff = s->cfg.n_ff;
    add_matrix(s, p, prefix, "gate_proj.weight", n_ff, n, 0);
    add_matrix(s, p, prefix, "up_proj.weight", n_ff, n, 0);
    add_matrix(s, p, prefix, "down_proj.weight", n, n_ff, 0);
}

static void add_layer(dg_synthetic *s, const dg_preset *p, int index)
{
    const dg_config *cfg = &s->cfg;
    const dg_layer_config *lc = &cfg->layer[index];
    int n = cfg->n_embd, q = cfg->n_head * lc->head_dim, kv = lc->n_kv_head * lc->head_dim;
    char d[48], m[64];
    static const char *const norms[] = {"input_layernorm.weight",
                                        "post_attention_layernorm.weight",
                                        "pre_feedforward_layernorm.weight",
                                        "pre_feedforward_layernorm_2.weight",
                                        "post_feedforward_layernorm.weight",
                                        "post_feedforward_layernorm_1.weight",
                                        "post_feedforward_layernorm_2.weight",
                                        "router.scale"};
    snprintf(d, sizeof d, "model.decoder.layers.%d.", index);
    for (size_t i = 0; i < DG_COUNT(norms); i++) {
        add(s, DG_F32, d, norms[i], n, 0, 0);
        if (i == 1 || i == 4) /* what they give is added to the residual stream */
            s->tensor[s->n - 1].data = s->post_norm;
    }
    add_matrix(s, p, d, "self_attn.q_proj.weight", q, n, 0);
    add_matrix(s, p, d, "self_attn.k_proj.weight", kv, n, 0);
    if (!lc->v_from_k)
        add_matrix(s, p, d, "self_attn.v_proj.weight", kv, n, 0);
    add_matrix(s, p, d, "self_attn.o_proj.weight", n, q, 0);
    add(s, DG_F32, d, "self_attn.q_norm.weight", lc->head_dim, 0, 0);
    add(s, DG_F32, d, "self_attn.k_norm.weight", lc->head_dim, 0, 0);
    snprintf(m, sizeof m, "%smlp.", d);
    add_mlp(s, p, m);
    add(s, DG_BF16, d, "router.proj.weight", cfg->n_expert, n, 0);
    s->tensor[s->n - 1].data = s->router + (size_t)index * (size_t)cfg->n_expert * (size_t)n;
    add(s, DG_F32, d, "router.per_expert_scale", cfg->n_expert, 0, 0);
    add_matrix(s, p, d, "experts.gate_up_proj", cfg->n_expert, 2 * cfg->n_ff_expert, n);
    add_matrix(s, p, d, "experts.down_proj", cfg->n_expert, n, cfg->n_ff_expert);
    add(s, DG_F32, d, "layer_scalar", 1, 0, 0);
    snprintf(m, sizeof m, "model.encoder.language_model.layers.%d.", index);
    add(s, DG_F32, m, "layer_scalar", 1, 0, 0);
}

static void list_tensors(dg_synthetic *s, const dg_preset *p)
{
    const dg_config *cfg = &s->cfg;
    const char *d = "model.decoder.";
    add_matrix(s, p, d, "embed_tokens.weight", cfg->n_vocab, cfg->n_embd, 0);
    add(s, DG_F32, d, "norm.weight", cfg->n_embd, 0, 0);
    s->tensor[s->n - 1].data = s->norm;
    add(s, DG_F32, d, "self_conditioning.pre_norm.weight", cfg->n_embd, 0, 0);
    s->tensor[s->n - 1].data = s->soft_norm;
    add_mlp(s, p, "model.decoder.self_conditioning.");
    for (int i = 0; i < cfg->n_layer; i++)
        add_layer(s, p, i);
}

static dgemma_status make_content(dg_synthetic *s, dgemma_error *err)
{
    for (int i = 0; i < DG_DTYPE_COMPUTE; i++) {
        if (!s->of[i].bytes)
            continue;
        s->of[i].data = dg_malloc_aligned(s->of[i].bytes);
        if (!s->of[i].data)
            return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu MiB of weights",
                           s->of[i].bytes >> 20);
        dg_random_weights(s->of[i].data, (dg_dtype)i, s->of[i].bytes, 0x5EED + (uint64_t)i);
    }
    for (size_t i = 0; i < s->n; i++)
        if (!s->tensor[i].data)
            s->tensor[i].data = s->of[s->tensor[i].type].data;
    return DGEMMA_OK;
}

/* Every sixth layer is global, and the last. */
static dgemma_status read_shape(dg_config *cfg, const model_shape *sh, int n_layer,
                                dgemma_error *err)
{
    dg_buf doc;
    char text[1024];
    dg_buf_init(&doc, 1 << 16);
    snprintf(text, sizeof text,
             "{\"model_type\": \"diffusion_gemma\", \"canvas_length\": %d, \"dtype\": "
             "\"bfloat16\", \"text_config\": {\"vocab_size\": %d, \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"num_global_key_value_heads\": %d, \"head_dim\": %d, "
             "\"global_head_dim\": %d, \"hidden_activation\": \"gelu_pytorch_tanh\", "
             "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-6, \"sliding_window\": %d, "
             "\"final_logit_softcapping\": 30.0, \"num_experts\": %d, \"top_k_experts\": %d, "
             "\"moe_intermediate_size\": %d, \"pad_token_id\": 0, \"bos_token_id\": 2, "
             "\"eos_token_id\": 1, \"layer_types\": [",
             sh->canvas, sh->n_vocab, sh->n_embd, sh->n_ff, n_layer, sh->n_head, sh->n_kv_head,
             sh->n_global_kv_head, sh->head_dim, sh->global_head_dim, sh->n_context, sh->window,
             sh->n_expert, sh->n_expert_used, sh->n_ff_expert);
    bool ok = dg_buf_puts(&doc, text);
    for (int i = 0; i < n_layer; i++) {
        bool global = i % GLOBAL_EVERY == GLOBAL_EVERY - 1 || i == n_layer - 1;
        ok = ok && dg_buf_puts(&doc, i ? ", " : "") &&
             dg_buf_puts(&doc, global ? "\"full_attention\"" : "\"sliding_attention\"");
    }
    ok = ok && dg_buf_puts(&doc, "], \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": "
                                 "\"default\", \"rope_theta\": 10000}, \"full_attention\": "
                                 "{\"rope_type\": \"proportional\", \"rope_theta\": 1000000, "
                                 "\"partial_rotary_factor\": 0.25}}}}");
    dgemma_status st = ok ? dg_config_parse(cfg, doc.data, doc.len, "the synthetic model", err)
                          : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_buf_clear(&doc);
    return st;
}

static const model_shape *find_shape(const char *name)
{
    for (size_t i = 0; name && i < DG_COUNT(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return name ? NULL : shapes;
}

/* What some tensors hold that are not random bits of their type. */
static dgemma_status make_special(dg_synthetic *s, bool skewed, dgemma_error *err)
{
    const dg_config *cfg = &s->cfg;
    size_t n = (size_t)cfg->n_embd, each = (size_t)cfg->n_expert * n;
    s->one = dg_array(n, sizeof *s->one);
    s->norm = dg_array(n, sizeof *s->norm);
    s->post_norm = dg_array(n, sizeof *s->post_norm);
    s->soft_norm = dg_array(n, sizeof *s->soft_norm);
    s->router = dg_array((size_t)cfg->n_layer * each, sizeof *s->router);
    if (!s->one || !s->norm || !s->post_norm || !s->soft_norm || !s->router)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        s->one[i] = 1;
        s->norm[i] = 8;
        s->soft_norm[i] = DG_SYNTHETIC_SOFT_NORM;
    }
    dg_synthetic_post_norm(s->post_norm, cfg->n_embd);
    for (int i = 0; i < cfg->n_layer; i++)
        dg_synthetic_router(s->router + (size_t)i * each, i, cfg->n_expert, cfg->n_embd, skewed);
    return DGEMMA_OK;
}

static dgemma_status make(dg_synthetic *s, const dg_preset *p, const dg_synthetic_options *opt,
                          dgemma_error *err)
{
    s->cap = (size_t)(s->cfg.n_layer + 1) * LAYER_TENSORS;
    s->tensor = dg_calloc(s->cap, sizeof *s->tensor);
    s->name = dg_calloc(s->cap, sizeof *s->name);
    if (!s->tensor || !s->name)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = make_special(s, opt->skewed, err);
    if (st)
        return st;
    list_tensors(s, p);
    st = opt->listed ? DGEMMA_OK : make_content(s, err);
    return st ? st : dg_checkpoint_of(&s->ck, "synthetic", s->tensor, s->n, err);
}

dgemma_status dg_synthetic_open(dg_synthetic **out, const dg_synthetic_options *opt,
                                dgemma_error *err)
{
    const dg_preset *p = dg_preset_find(opt->type);
    const model_shape *sh = find_shape(opt->shape);
    int n_layer = opt->n_layer || !sh ? opt->n_layer : sh->n_layer;
    if (!p)
        return dg_fail(err, DGEMMA_E_ARG, "the type \"%.40s\" is not known: %s are", opt->type,
                       dg_preset_names());
    if (!sh)
        return dg_fail(err, DGEMMA_E_ARG, "the shape \"%.40s\" is not known: 26b-a4b and tiny are",
                       opt->shape);
    if (n_layer < 1 || n_layer > sh->n_layer)
        return dg_fail(err, DGEMMA_E_ARG, "%d layers: the shape %s has 1 to %d", n_layer, sh->name,
                       sh->n_layer);
    dg_synthetic *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = read_shape(&s->cfg, sh, n_layer, err);
    if (!st)
        st = make(s, p, opt, err);
    if (st) {
        dg_synthetic_close(s);
        return st;
    }
    *out = s;
    return DGEMMA_OK;
}

void dg_synthetic_close(dg_synthetic *s)
{
    if (!s)
        return;
    dg_checkpoint_close(s->ck);
    for (int i = 0; i < DG_DTYPE_COMPUTE; i++)
        dg_free(s->of[i].data);
    dg_free(s->tensor);
    dg_free(s->name);
    dg_free(s->one);
    dg_free(s->norm);
    dg_free(s->post_norm);
    dg_free(s->soft_norm);
    dg_free(s->router);
    dg_free(s);
}

const dg_config *dg_synthetic_config(const dg_synthetic *s)
{
    return &s->cfg;
}

const dg_checkpoint *dg_synthetic_checkpoint(const dg_synthetic *s)
{
    return s->ck;
}

size_t dg_synthetic_bytes(const dg_synthetic *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->tensor[i].bytes;
    return bytes;
}
