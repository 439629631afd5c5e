#include "model/synthetic.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

enum { N_LAYER = 30, GLOBAL_EVERY = 6, LAYER_TENSORS = 24, NAME_BYTES = 80 };

/* The shape of google/diffusiongemma-26B-A4B-it. */
static const char shape_json[] = "{\"model_type\": \"diffusion_gemma\", \"canvas_length\": 256, "
                                 "\"dtype\": \"bfloat16\", \"text_config\": {"
                                 "\"vocab_size\": 262144, \"hidden_size\": 2816, "
                                 "\"intermediate_size\": 2112, \"num_hidden_layers\": %d,"
                                 "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, "
                                 "\"num_global_key_value_heads\": 2, \"head_dim\": 256,"
                                 "\"global_head_dim\": 512, \"hidden_activation\": "
                                 "\"gelu_pytorch_tanh\", \"max_position_embeddings\": 262144,"
                                 "\"rms_norm_eps\": 1e-6, \"sliding_window\": 1024, "
                                 "\"layer_types\": [%s], \"final_logit_softcapping\": 30.0,"
                                 "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": "
                                 "\"default\", \"rope_theta\": 10000},"
                                 "\"full_attention\": {\"rope_type\": \"proportional\", "
                                 "\"rope_theta\": 1000000, \"partial_rotary_factor\": 0.25}},"
                                 "\"num_experts\": 128, \"top_k_experts\": 8, "
                                 "\"moe_intermediate_size\": 704, \"pad_token_id\": 0,"
                                 "\"bos_token_id\": 2, \"eos_token_id\": 1}}";

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
};

/* ---- types ---- */

typedef struct preset {
    dg_dtype table, value, wide, odd, odd_wide; /* odd: rows that are no multiple of 256 */
} preset;

static bool preset_of(preset *p, const char *type)
{
    static const struct {
        const char *name;
        preset p;
    } known[] = {
        {"BF16", {DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16}},
        {"Q8_0", {DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0}},
        {"Q4_0", {DG_Q6_K, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0}},
        {"Q4_K_M", {DG_Q6_K, DG_Q6_K, DG_Q4_K, DG_Q5_0, DG_Q8_0}},
    };
    for (size_t i = 0; i < DG_COUNT(known); i++)
        if (strcmp(known[i].name, type) == 0) {
            *p = known[i].p;
            return true;
        }
    return false;
}

/* ---- content ---- */

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void put_f16(unsigned char *at, float v)
{
    uint16_t h = dg_float_to_f16(v);
    memcpy(at, &h, sizeof h);
}

/* Random bits are numbers of any block type once its scales are sensible: here such that values
 * spread by about 0.02. */
static void set_scales(unsigned char *b, dg_dtype type, uint64_t r)
{
    float jitter = 0.75f + (float)(r & 0xFF) / 512;
    switch (type) {
    case DG_Q8_0:
        put_f16(b, 2.6e-4f * jitter);
        break;
    case DG_Q4_0:
        put_f16(b, 4.1e-3f * jitter);
        break;
    case DG_Q5_0:
        put_f16(b, 2.05e-3f * jitter);
        break;
    case DG_Q4_K:
        put_f16(b, 1.3e-4f * jitter);
        put_f16(b + 2, 9.7e-4f * jitter);
        break;
    case DG_Q6_K:
        put_f16(b + 208, 1.5e-5f * jitter);
        break;
    default:
        break;
    }
}

static void fill(shared_bytes *s, dg_dtype type)
{
    uint64_t state = 0x5EED + (uint64_t)type;
    for (size_t i = 0; i + 8 <= s->bytes; i += 8) {
        uint64_t r = mix(&state);
        memcpy(s->data + i, &r, sizeof r);
    }
    if (type == DG_BF16) {
        /* sign and mantissa stay; the exponent is one of those around 2^-6 */
        uint16_t *v = (uint16_t *)(void *)s->data;
        for (size_t i = 0; i < s->bytes / 2; i++)
            v[i] = (uint16_t)((v[i] & 0x807F) | (119 + (v[i] >> 7 & 3)) << 7);
        return;
    }
    size_t block = dg_dtype_bytes(type, dg_dtype_block(type));
    for (size_t i = 0; i + block <= s->bytes; i += block)
        set_scales(s->data + i, type, mix(&state));
}

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
        s->of[type].bytes = (t->bytes + 7) / 8 * 8;
    s->n++;
}

static void add_mlp(dg_synthetic *s, const preset *p, const char *prefix, dg_dtype down)
{
    int n = s->cfg.n_embd, n_ff = s->cfg.n_ff;
    add(s, p->wide, prefix, "gate_proj.weight", n_ff, n, 0);
    add(s, p->wide, prefix, "up_proj.weight", n_ff, n, 0);
    add(s, down, prefix, "down_proj.weight", n, n_ff, 0);
}

static void add_layer(dg_synthetic *s, const preset *p, int index)
{
    const dg_config *cfg = &s->cfg;
    const dg_layer_config *lc = &cfg->layer[index];
    int n = cfg->n_embd, q = cfg->n_head * lc->head_dim, kv = lc->n_kv_head * lc->head_dim;
    /* as the published file: every other layer, roughly, has wider values and down projections */
    bool wider = index < cfg->n_layer / 8 || index >= cfg->n_layer * 7 / 8 || index % 3 == 2;
    dg_dtype down = wider ? p->odd_wide : p->odd;
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
    for (size_t i = 0; i < DG_COUNT(norms); i++)
        add(s, DG_F32, d, norms[i], n, 0, 0);
    add(s, p->wide, d, "self_attn.q_proj.weight", q, n, 0);
    add(s, p->wide, d, "self_attn.k_proj.weight", kv, n, 0);
    if (!lc->v_from_k)
        add(s, wider ? p->value : p->wide, d, "self_attn.v_proj.weight", kv, n, 0);
    add(s, p->wide, d, "self_attn.o_proj.weight", n, q, 0);
    add(s, DG_F32, d, "self_attn.q_norm.weight", lc->head_dim, 0, 0);
    add(s, DG_F32, d, "self_attn.k_norm.weight", lc->head_dim, 0, 0);
    snprintf(m, sizeof m, "%smlp.", d);
    add_mlp(s, p, m, down);
    add(s, DG_BF16, d, "router.proj.weight", cfg->n_expert, n, 0);
    add(s, DG_F32, d, "router.per_expert_scale", cfg->n_expert, 0, 0);
    add(s, p->wide, d, "experts.gate_up_proj", cfg->n_expert, 2 * cfg->n_ff_expert, n);
    add(s, down, d, "experts.down_proj", cfg->n_expert, n, cfg->n_ff_expert);
    add(s, DG_F32, d, "layer_scalar", 1, 0, 0);
    snprintf(m, sizeof m, "model.encoder.language_model.layers.%d.", index);
    add(s, DG_F32, m, "layer_scalar", 1, 0, 0);
}

static void list_tensors(dg_synthetic *s, const preset *p)
{
    const dg_config *cfg = &s->cfg;
    const char *d = "model.decoder.";
    add(s, p->table, d, "embed_tokens.weight", cfg->n_vocab, cfg->n_embd, 0);
    add(s, DG_F32, d, "norm.weight", cfg->n_embd, 0, 0);
    s->tensor[s->n - 1].data = s->norm;
    add(s, DG_F32, d, "self_conditioning.pre_norm.weight", cfg->n_embd, 0, 0);
    add_mlp(s, p, "model.decoder.self_conditioning.", p->odd);
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
        fill(&s->of[i], (dg_dtype)i);
    }
    for (size_t i = 0; i < s->n; i++)
        if (!s->tensor[i].data)
            s->tensor[i].data = s->of[s->tensor[i].type].data;
    return DGEMMA_OK;
}

static dgemma_status read_shape(dg_config *cfg, int n_layer, dgemma_error *err)
{
    char types[N_LAYER * 24] = "", doc[sizeof shape_json + sizeof types + 16];
    for (int i = 0; i < n_layer; i++) {
        bool global =
            i % GLOBAL_EVERY == GLOBAL_EVERY - 1 || (n_layer < GLOBAL_EVERY && i == n_layer - 1);
        strcat(types, i ? ", " : "");
        strcat(types, global ? "\"full_attention\"" : "\"sliding_attention\"");
    }
    int len = snprintf(doc, sizeof doc, shape_json, n_layer, types);
    return dg_config_parse(cfg, doc, (size_t)len, "the synthetic model", err);
}

dgemma_status dg_synthetic_open(dg_synthetic **out, const char *type, int n_layer,
                                dgemma_error *err)
{
    preset p;
    n_layer = n_layer ? n_layer : N_LAYER;
    if (!preset_of(&p, type))
        return dg_fail(err, DGEMMA_E_ARG,
                       "synthetic weights of type \"%s\": BF16, Q8_0, Q4_0 and Q4_K_M are known",
                       type);
    if (n_layer < 1 || n_layer > N_LAYER)
        return dg_fail(err, DGEMMA_E_ARG, "%d layers: 1 to %d can be had", n_layer, N_LAYER);
    dg_synthetic *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = read_shape(&s->cfg, n_layer, err);
    s->cap = (size_t)(n_layer + 1) * LAYER_TENSORS;
    s->tensor = dg_calloc(s->cap, sizeof *s->tensor);
    s->name = dg_calloc(s->cap, sizeof *s->name);
    s->one = dg_array((size_t)s->cfg.n_embd, sizeof *s->one);
    s->norm = dg_array((size_t)s->cfg.n_embd, sizeof *s->norm);
    if (!st && (!s->tensor || !s->name || !s->one || !s->norm))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = 0; !st && i < s->cfg.n_embd; i++) {
        s->one[i] = 1;
        s->norm[i] = 8;
    }
    if (!st) {
        list_tensors(s, &p);
        st = make_content(s, err);
    }
    if (!st)
        st = dg_checkpoint_of(&s->ck, "synthetic", s->tensor, s->n, err);
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
