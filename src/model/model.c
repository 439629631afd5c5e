#include "model/model.h"
#include <stdio.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/real.h"
#include "model/adapters.h"
#include "model/weights.h"

static const dg_config *config_of(const dg_weights *l)
{
    return &((const dg_model *)l->owner)->cfg;
}

/* All rows of a tensor. */
static dg_weights_part whole(dg_weight_role role, int layer)
{
    return (dg_weights_part){.role = role, .layer = layer};
}

/* Experts' matrices, one tensor for all of them. */
static void experts(dg_weights *l, dg_weight *w, dg_weights_part part, int n_out, int n_in,
                    const char *prefix, const char *name)
{
    dg_weights_matrices(l, w, part, (int64_t[]){config_of(l)->n_expert, n_out, n_in}, prefix, name);
}

/* One tensor with the rows of gate, then those of up, or a tensor for each. */
static void gate_and_up(dg_weights *l, dg_expert_weights *e, int index, const char *prefix)
{
    int n = config_of(l)->n_embd, n_ff = config_of(l)->n_ff_expert;
    dg_weights_part gate = {DG_ROLE_EXPERT_GATE, index, 0, n_ff},
                    up = {DG_ROLE_EXPERT_UP, index, 0, n_ff};
    if (dg_weights_goes_by(l, prefix, "experts.gate_proj", "experts.gate_up_proj")) {
        experts(l, &e->gate, gate, n_ff, n, prefix, "experts.gate_proj");
        experts(l, &e->up, up, n_ff, n, prefix, "experts.up_proj");
        return;
    }
    up.first_row = n_ff;
    experts(l, &e->gate, gate, 2 * n_ff, n, prefix, "experts.gate_up_proj");
    experts(l, &e->up, up, 2 * n_ff, n, prefix, "experts.gate_up_proj");
}

static void mlp(dg_weights *l, dg_mlp_weights *w, int index, const char *prefix)
{
    int n = config_of(l)->n_embd, n_ff = config_of(l)->n_ff;
    dg_weights_part gate = whole(DG_ROLE_GATE, index), up = whole(DG_ROLE_UP, index),
                    down = whole(DG_ROLE_DOWN, index);
    dg_weights_matrix(l, &w->gate, gate, n_ff, n, prefix, "gate_proj.weight");
    dg_weights_matrix(l, &w->up, up, n_ff, n, prefix, "up_proj.weight");
    dg_weights_matrix(l, &w->down, down, n, n_ff, prefix, "down_proj.weight");
}

static void attention(dg_weights *l, dg_attention_weights *w, int index, const char *p)
{
    const dg_layer_config *lc = &config_of(l)->layer[index];
    int n = config_of(l)->n_embd, n_head = config_of(l)->n_head;
    int q_dim = n_head * lc->head_dim, kv_dim = lc->n_kv_head * lc->head_dim;
    dg_weights_part q = whole(DG_ROLE_QUERY, index), k = whole(DG_ROLE_KEY, index),
                    v = whole(DG_ROLE_VALUE, index), o = whole(DG_ROLE_ATTENTION_OUT, index);
    w->n_head = n_head;
    w->n_kv_head = lc->n_kv_head;
    w->head_dim = lc->head_dim;
    w->window = lc->window;
    w->v_from_k = lc->v_from_k;
    dg_weights_vector(l, &w->norm, n, p, "input_layernorm.weight");
    dg_weights_matrix(l, &w->q, q, q_dim, n, p, "self_attn.q_proj.weight");
    dg_weights_matrix(l, &w->k, k, kv_dim, n, p, "self_attn.k_proj.weight");
    if (!lc->v_from_k)
        dg_weights_matrix(l, &w->v, v, kv_dim, n, p, "self_attn.v_proj.weight");
    dg_weights_matrix(l, &w->o, o, n, q_dim, p, "self_attn.o_proj.weight");
    dg_weights_vector(l, &w->q_norm, lc->head_dim, p, "self_attn.q_norm.weight");
    dg_weights_vector(l, &w->k_norm, lc->head_dim, p, "self_attn.k_norm.weight");
    dg_weights_vector(l, &w->post_norm, n, p, "post_attention_layernorm.weight");
}

static void layer(dg_weights *l, dg_layer *y, int index)
{
    const dg_config *cfg = config_of(l);
    const dg_layer_config *lc = &cfg->layer[index];
    int n = cfg->n_embd;
    char p[48], part[64];
    snprintf(p, sizeof p, "model.decoder.layers.%d.", index);

    y->group = dg_layer_group(lc);
    attention(l, &y->attention, index, p);

    dg_weights_vector(l, &y->dense.norm, n, p, "pre_feedforward_layernorm.weight");
    snprintf(part, sizeof part, "%smlp.", p);
    mlp(l, &y->dense, index, part);
    dg_weights_vector(l, &y->dense.post_norm, n, p, "post_feedforward_layernorm_1.weight");

    y->router.n_used = cfg->n_expert_used;
    dg_weights_vector(l, &y->router.scale, n, p, "router.scale");
    dg_weights_matrix(l, &y->router.proj, whole(DG_ROLE_ROUTER, index), cfg->n_expert, n, p,
                      "router.proj.weight");
    dg_weights_vector(l, &y->router.expert_scale, cfg->n_expert, p, "router.per_expert_scale");

    dg_weights_vector(l, &y->experts.norm, n, p, "pre_feedforward_layernorm_2.weight");
    gate_and_up(l, &y->experts, index, p);
    experts(l, &y->experts.down, whole(DG_ROLE_EXPERT_DOWN, index), n, cfg->n_ff_expert, p,
            "experts.down_proj");
    dg_weights_vector(l, &y->experts.post_norm, n, p, "post_feedforward_layernorm_2.weight");

    dg_weights_vector(l, &y->post_norm, n, p, "post_feedforward_layernorm.weight");
    dg_weights_scalar(l, &y->scalar_canvas, p, "layer_scalar");
    snprintf(part, sizeof part, "model.encoder.language_model.layers.%d.", index);
    dg_weights_scalar(l, &y->scalar_encode, part, "layer_scalar");
}

/* f_i = theta^(-2i / head_dim), in float as the reference. The denominator is the whole head, also
 * where only a part of the pairs rotates. */
static void rope(dg_weights *l, const dg_layer_config *lc)
{
    dg_model *m = l->owner;
    dg_kv_group g = dg_layer_group(lc);
    m->n_rope_pair[g] = lc->n_rope_pair;
    float *at = m->rope_frequency[g] = dg_weights_place(l, (size_t)dg_max(1, lc->n_rope_pair));
    for (int i = 0; l->load && i < lc->n_rope_pair; i++) {
        float power = (float)dg_pow(lc->rope_theta, (double)((float)(2 * i) / (float)lc->head_dim));
        float f = 1 / power;
        l->be->upload(l->be, at + i, &f, sizeof f);
    }
}

static void ropes(dg_weights *l)
{
    const dg_config *cfg = config_of(l);
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

static void walk(dg_weights *l)
{
    dg_model *m = l->owner;
    const dg_config *cfg = &m->cfg;
    const char *p = "model.decoder.";
    dg_weights_matrix(l, &m->embed, whole(DG_ROLE_EMBED, -1), cfg->n_vocab, cfg->n_embd, p,
                      "embed_tokens.weight");
    dg_weights_vector(l, &m->norm, cfg->n_embd, p, "norm.weight");
    dg_weights_vector(l, &m->condition.norm, cfg->n_embd, p, "self_conditioning.pre_norm.weight");
    mlp(l, &m->condition, -1, "model.decoder.self_conditioning.");
    for (int i = 0; i < cfg->n_layer && !l->st; i++)
        layer(l, &m->layer[i], i);
    ropes(l);
}

dgemma_status dg_model_check(const dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err)
{
    dg_model m = {.cfg = *cfg};
    m.layer = dg_calloc((size_t)cfg->n_layer, sizeof *m.layer);
    if (!m.layer)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_weights_check(&(dg_weights){.owner = &m, .ck = ck, .err = err}, walk);
    dg_free(m.layer);
    return st;
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

    dg_weights l = {.owner = m, .ck = ck, .be = be, .err = err};
    dgemma_status st =
        m->layer ? dg_weights_run(&l, walk) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    m->vectors = l.vectors;
    m->made = l.made;
    if (st) {
        dg_model_free(m);
        return st;
    }
    *out = m;
    return DGEMMA_OK;
}

void dg_model_free(dg_model *m)
{
    if (!m)
        return;
    dg_model_adapters_free(m->adapters, m->be);
    m->be->free(m->be, m->vectors);
    dg_made_free(m->made);
    dg_free(m->layer);
    dg_free(m);
}
