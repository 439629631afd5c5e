#include "model/model.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Walks over all tensors twice: first to check them and to count the floats of the vectors, then to
 * load. A failure sticks, so that the walk below reads as a list of what the model is made of. */
typedef struct loader {
    dg_model *m;
    const dg_checkpoint *ck;
    bool load; /* second walk */
    size_t n_float;
    dgemma_status st;
    dgemma_error *err;
} loader;

enum { NAME_MAX_BYTES = 160 };

static const dg_tensor *find(loader *l, const char *name, const int64_t *shape, int n_dim)
{
    if (l->st)
        return NULL;
    const dg_tensor *t = dg_checkpoint_find(l->ck, name);
    if (!t) {
        l->st = dg_fail(l->err, DGEMMA_E_FORMAT, "%s: tensor %s is missing",
                        dg_checkpoint_dir(l->ck), name);
        return NULL;
    }
    if (t->n_dim != n_dim || memcmp(t->shape, shape, (size_t)n_dim * sizeof *shape) != 0) {
        char got[DG_SHAPE_TEXT], want[DG_SHAPE_TEXT];
        l->st = dg_fail(l->err, DGEMMA_E_FORMAT, "%s: %s has shape %s, the config asks for %s",
                        dg_checkpoint_dir(l->ck), name, dg_shape_text(got, t->shape, t->n_dim),
                        dg_shape_text(want, shape, n_dim));
        return NULL;
    }
    if (t->type >= DG_DTYPE_COMPUTE) {
        l->st =
            dg_fail(l->err, DGEMMA_E_UNSUPPORTED, "%s: %s is of type %s, which weights cannot have",
                    dg_checkpoint_dir(l->ck), name, dg_dtype_name(t->type));
        return NULL;
    }
    return t;
}

static void matrices(loader *l, dg_weight *w, const int64_t *shape, int n_dim, const char *name)
{
    const dg_tensor *t = find(l, name, shape, n_dim);
    if (t && l->load)
        l->st = l->m->be->weight_init(l->m->be, w, t, l->err);
}

static void matrix(loader *l, dg_weight *w, int n_out, int n_in, const char *prefix,
                   const char *name)
{
    char full[NAME_MAX_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    matrices(l, w, (int64_t[]){n_out, n_in}, 2, full);
}

static void experts(loader *l, dg_weight *w, int n_out, int n_in, const char *prefix,
                    const char *name)
{
    char full[NAME_MAX_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    matrices(l, w, (int64_t[]){l->m->cfg.n_expert, n_out, n_in}, 3, full);
}

/* The place of the next n floats in the common block. */
static float *place(loader *l, int n)
{
    float *at = l->load ? l->m->vectors + l->n_float : NULL;
    l->n_float += ((size_t)n + 15) / 16 * 16;
    return at;
}

static void put(loader *l, float *at, const dg_tensor *t, int n)
{
    float *host = dg_array((size_t)n, sizeof *host);
    if (!host) {
        l->st = dg_fail(l->err, DGEMMA_E_NOMEM, "out of memory");
        return;
    }
    dg_widen(host, t->data, t->type, (size_t)n);
    for (int i = 0; i < n && t->scale; i++)
        host[i] *= t->scale[0];
    l->m->be->upload(l->m->be, at, host, (size_t)n * sizeof *host);
    dg_free(host);
}

static void vector(loader *l, float **out, int n, const char *prefix, const char *name)
{
    char full[NAME_MAX_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    *out = place(l, n);
    const dg_tensor *t = find(l, full, (int64_t[]){n}, 1);
    if (t && l->load)
        put(l, *out, t, n);
}

static void scalar(loader *l, float *out, const char *prefix, const char *name)
{
    char full[NAME_MAX_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const dg_tensor *t = find(l, full, (int64_t[]){1}, 1);
    if (t)
        dg_widen(out, t->data, t->type, 1);
}

/* One tensor with the rows of gate, then those of up, or a tensor for each. */
static void gate_and_up(loader *l, dg_expert_weights *e, const char *prefix)
{
    int n = l->m->cfg.n_embd, n_ff = l->m->cfg.n_ff_expert;
    char gate[NAME_MAX_BYTES];
    snprintf(gate, sizeof gate, "%sexperts.gate_proj", prefix);
    if (dg_checkpoint_find(l->ck, gate)) {
        experts(l, &e->gate, n_ff, n, prefix, "experts.gate_proj");
        experts(l, &e->up, n_ff, n, prefix, "experts.up_proj");
        return;
    }
    dg_weight both;
    experts(l, &both, 2 * n_ff, n, prefix, "experts.gate_up_proj");
    if (l->load && !l->st) {
        e->gate = dg_weight_rows(&both, 0, n_ff);
        e->up = dg_weight_rows(&both, n_ff, n_ff);
    }
}

static void mlp(loader *l, dg_mlp_weights *m, const char *prefix)
{
    const dg_config *cfg = &l->m->cfg;
    matrix(l, &m->gate, cfg->n_ff, cfg->n_embd, prefix, "gate_proj.weight");
    matrix(l, &m->up, cfg->n_ff, cfg->n_embd, prefix, "up_proj.weight");
    matrix(l, &m->down, cfg->n_embd, cfg->n_ff, prefix, "down_proj.weight");
}

static void attention(loader *l, dg_attention_weights *w, const dg_layer_config *lc, const char *p)
{
    int n = l->m->cfg.n_embd, n_head = l->m->cfg.n_head;
    int q_dim = n_head * lc->head_dim, kv_dim = lc->n_kv_head * lc->head_dim;
    w->n_head = n_head;
    w->n_kv_head = lc->n_kv_head;
    w->head_dim = lc->head_dim;
    w->window = lc->window;
    w->v_from_k = lc->v_from_k;
    vector(l, &w->norm, n, p, "input_layernorm.weight");
    matrix(l, &w->q, q_dim, n, p, "self_attn.q_proj.weight");
    matrix(l, &w->k, kv_dim, n, p, "self_attn.k_proj.weight");
    if (!lc->v_from_k)
        matrix(l, &w->v, kv_dim, n, p, "self_attn.v_proj.weight");
    matrix(l, &w->o, n, q_dim, p, "self_attn.o_proj.weight");
    vector(l, &w->q_norm, lc->head_dim, p, "self_attn.q_norm.weight");
    vector(l, &w->k_norm, lc->head_dim, p, "self_attn.k_norm.weight");
    vector(l, &w->post_norm, n, p, "post_attention_layernorm.weight");
}

static void layer(loader *l, dg_layer *y, int index)
{
    const dg_config *cfg = &l->m->cfg;
    const dg_layer_config *lc = &cfg->layer[index];
    int n = cfg->n_embd;
    char p[48], part[64];
    snprintf(p, sizeof p, "model.decoder.layers.%d.", index);

    y->group = dg_layer_group(lc);
    attention(l, &y->attention, lc, p);

    vector(l, &y->dense.norm, n, p, "pre_feedforward_layernorm.weight");
    snprintf(part, sizeof part, "%smlp.", p);
    mlp(l, &y->dense, part);
    vector(l, &y->dense.post_norm, n, p, "post_feedforward_layernorm_1.weight");

    y->router.n_used = cfg->n_expert_used;
    vector(l, &y->router.scale, n, p, "router.scale");
    matrix(l, &y->router.proj, cfg->n_expert, n, p, "router.proj.weight");
    vector(l, &y->router.expert_scale, cfg->n_expert, p, "router.per_expert_scale");

    vector(l, &y->experts.norm, n, p, "pre_feedforward_layernorm_2.weight");
    gate_and_up(l, &y->experts, p);
    experts(l, &y->experts.down, n, cfg->n_ff_expert, p, "experts.down_proj");
    vector(l, &y->experts.post_norm, n, p, "post_feedforward_layernorm_2.weight");

    vector(l, &y->post_norm, n, p, "post_feedforward_layernorm.weight");
    scalar(l, &y->scalar_canvas, p, "layer_scalar");
    snprintf(part, sizeof part, "model.encoder.language_model.layers.%d.", index);
    scalar(l, &y->scalar_encode, part, "layer_scalar");
}

/* f_i = theta^(-2i / head_dim), in float as the reference. The denominator is the whole head, also
 * where only a part of the pairs rotates. */
static void rope(loader *l, const dg_layer_config *lc)
{
    dg_kv_group g = dg_layer_group(lc);
    l->m->n_rope_pair[g] = lc->n_rope_pair;
    float *at = l->m->rope_frequency[g] = place(l, dg_max(1, lc->n_rope_pair));
    for (int i = 0; l->load && i < lc->n_rope_pair; i++) {
        float power = (float)pow(lc->rope_theta, (double)((float)(2 * i) / (float)lc->head_dim));
        float f = 1 / power;
        l->m->be->upload(l->m->be, at + i, &f, sizeof f);
    }
}

static void ropes(loader *l)
{
    const dg_config *cfg = &l->m->cfg;
    const dg_layer_config *seen[DG_KV_GROUPS] = {0};
    for (int i = 0; i < cfg->n_layer && !l->st; i++) {
        const dg_layer_config *lc = &cfg->layer[i];
        const dg_layer_config **first = &seen[dg_layer_group(lc)];
        if (!*first) {
            *first = lc;
            rope(l, lc);
        } else if (lc->head_dim != (*first)->head_dim || lc->n_rope_pair != (*first)->n_rope_pair ||
                   lc->rope_theta != (*first)->rope_theta)
            l->st =
                dg_fail(l->err, DGEMMA_E_UNSUPPORTED,
                        "layer %d rotates %d pairs of heads of %d, others of its kind %d of %d", i,
                        lc->n_rope_pair, lc->head_dim, (*first)->n_rope_pair, (*first)->head_dim);
    }
}

static dgemma_status walk(loader *l)
{
    dg_model *m = l->m;
    const dg_config *cfg = &m->cfg;
    const char *p = "model.decoder.";
    l->n_float = 0;
    matrix(l, &m->embed, cfg->n_vocab, cfg->n_embd, p, "embed_tokens.weight");
    vector(l, &m->norm, cfg->n_embd, p, "norm.weight");
    vector(l, &m->condition.norm, cfg->n_embd, p, "self_conditioning.pre_norm.weight");
    mlp(l, &m->condition, "model.decoder.self_conditioning.");
    for (int i = 0; i < cfg->n_layer && !l->st; i++)
        layer(l, &m->layer[i], i);
    ropes(l);
    return l->st;
}

dgemma_status dg_model_load(dg_model **out, const dg_config *cfg, const dg_checkpoint *ck,
                            dg_backend *be, dgemma_error *err)
{
    dg_model *m = dg_calloc(1, sizeof *m);
    if (!m)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    m->cfg = *cfg;
    m->be = be;
    m->layer = dg_calloc((size_t)cfg->n_layer, sizeof *m->layer);

    loader l = {.m = m, .ck = ck, .err = err};
    l.st = m->layer ? walk(&l) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!l.st) {
        m->vectors = be->alloc(be, l.n_float * sizeof *m->vectors);
        l.load = true;
        l.st = m->vectors ? walk(&l) : dg_fail(err, DGEMMA_E_NOMEM, "no memory for the norms");
    }
    if (l.st) {
        dg_model_free(m);
        return l.st;
    }
    *out = m;
    return DGEMMA_OK;
}

void dg_model_free(dg_model *m)
{
    if (!m)
        return;
    m->be->free(m->be, m->vectors);
    dg_free(m->layer);
    dg_free(m);
}
