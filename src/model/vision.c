#include "model/vision.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/real.h"
#include "model/weights.h"

#define TOWER     "model.encoder.vision_tower."
#define PROJECTOR "model.encoder.embed_vision."

struct dg_vision {
    dg_vision_config cfg;
    int n_embd_text;
    dg_backend *be; /* borrowed */

    dg_weight patch;             /* pixels of a patch to n_embd */
    dg_weight table;             /* position tables: columns, rows */
    dg_weight proj;              /* n_embd to the text's */
    float *std_bias, *std_scale; /* or both NULL */
    dg_vision_layer *layer;      /* [cfg.n_layer] */
    int n_angle;                 /* coordinates that have angles: what a picture may be wide */
    float *cos, *sin;            /* [n_angle, head_dim / 4] */
    float *vectors;              /* all float vectors above, in one piece */
    dg_made *made;

    float *x; /* residual stream of the largest pass so far */
    int max_patch;
};

/* ---- weights ---- */

static void clip_range(dg_weights *l, const char *prefix, const char *what, float *min, float *max)
{
    char name[16];
    snprintf(name, sizeof name, "%s_min", what);
    dg_weights_scalar(l, min, prefix, name);
    snprintf(name, sizeof name, "%s_max", what);
    dg_weights_scalar(l, max, prefix, name);
    if (!l->st && !(*min <= *max))
        l->st = dg_fail(l->err, DGEMMA_E_FORMAT, "%s: %s%s_min is %g, wanted at most %s_max, %g",
                        dg_checkpoint_dir(l->ck), prefix, what, (double)*min, what, (double)*max);
}

/* Where every matrix of the tower belongs. */
static const dg_weights_part IN_TOWER = {DG_ROLE_VISION, .layer = -1};

static void clipped(dg_weights *l, dg_clipped *c, int n_out, int n_in, const char *layer,
                    const char *name)
{
    const dg_vision *v = l->owner;
    char prefix[128];
    snprintf(prefix, sizeof prefix, "%s%s.", layer, name);
    dg_weights_matrix(l, &c->w, IN_TOWER, n_out, n_in, prefix, "linear.weight");
    c->in_min = c->out_min = -INFINITY;
    c->in_max = c->out_max = INFINITY;
    if (v->cfg.clipped) {
        clip_range(l, prefix, "input", &c->in_min, &c->in_max);
        clip_range(l, prefix, "output", &c->out_min, &c->out_max);
    }
}

static void layer(dg_weights *l, dg_vision_layer *y, int index)
{
    const dg_vision_config *cfg = &((const dg_vision *)l->owner)->cfg;
    int n = cfg->n_embd, n_ff = cfg->n_ff, heads = cfg->n_head * cfg->head_dim;
    char p[64];
    snprintf(p, sizeof p, TOWER "encoder.layers.%d.", index);
    dg_weights_vector(l, &y->norm, n, p, "input_layernorm.weight");
    clipped(l, &y->q, heads, n, p, "self_attn.q_proj");
    clipped(l, &y->k, heads, n, p, "self_attn.k_proj");
    clipped(l, &y->v, heads, n, p, "self_attn.v_proj");
    clipped(l, &y->o, n, heads, p, "self_attn.o_proj");
    dg_weights_vector(l, &y->q_norm, cfg->head_dim, p, "self_attn.q_norm.weight");
    dg_weights_vector(l, &y->k_norm, cfg->head_dim, p, "self_attn.k_norm.weight");
    dg_weights_vector(l, &y->post_norm, n, p, "post_attention_layernorm.weight");
    dg_weights_vector(l, &y->mlp_norm, n, p, "pre_feedforward_layernorm.weight");
    clipped(l, &y->gate, n_ff, n, p, "mlp.gate_proj");
    clipped(l, &y->up, n_ff, n, p, "mlp.up_proj");
    clipped(l, &y->down, n, n_ff, p, "mlp.down_proj");
    dg_weights_vector(l, &y->mlp_post_norm, n, p, "post_feedforward_layernorm.weight");
}

/* Angles coordinate * theta^(-2i / (head_dim / 2)) in float, as the reference. */
static void angles(dg_weights *l)
{
    dg_vision *v = l->owner;
    const dg_vision_config *cfg = &v->cfg;
    size_t n_pair = (size_t)cfg->head_dim / 4, n = (size_t)v->n_angle * n_pair;
    v->cos = dg_weights_place(l, n);
    v->sin = dg_weights_place(l, n);
    if (!l->load || l->st)
        return;
    float *host = dg_array(n, 2 * sizeof *host);
    if (!host) {
        l->st = dg_fail(l->err, DGEMMA_E_NOMEM, "out of memory");
        return;
    }
    for (size_t i = 0; i < n_pair; i++) {
        float part = (float)(2 * i) / (float)(2 * n_pair);
        float f = 1 / (float)dg_pow(cfg->rope_theta, (double)part);
        for (size_t at = 0; at < (size_t)v->n_angle; at++)
            dg_sin_cos((float)at * f, &host[n + at * n_pair + i], &host[at * n_pair + i]);
    }
    l->be->upload(l->be, v->cos, host, n * sizeof *host);
    l->be->upload(l->be, v->sin, host + n, n * sizeof *host);
    dg_free(host);
}

static void walk(dg_weights *l)
{
    dg_vision *v = l->owner;
    const dg_vision_config *cfg = &v->cfg;
    int n = cfg->n_embd;
    dg_weights_matrix(l, &v->patch, IN_TOWER, n, cfg->patch * cfg->patch * 3, TOWER,
                      "patch_embedder.input_proj.weight");
    dg_weights_matrices(l, &v->table, IN_TOWER, (int64_t[]){2, cfg->n_position, n}, TOWER,
                        "patch_embedder.position_embedding_table");
    for (int i = 0; i < cfg->n_layer && !l->st; i++)
        layer(l, &v->layer[i], i);
    if (cfg->standardize) {
        dg_weights_vector(l, &v->std_bias, n, TOWER, "std_bias");
        dg_weights_vector(l, &v->std_scale, n, TOWER, "std_scale");
    }
    dg_weights_matrix(l, &v->proj, IN_TOWER, v->n_embd_text, n, PROJECTOR,
                      "embedding_projection.weight");
    angles(l);
}

bool dg_vision_owns(const char *name)
{
    return strncmp(name, TOWER, sizeof TOWER - 1) == 0 ||
           strncmp(name, PROJECTOR, sizeof PROJECTOR - 1) == 0;
}

bool dg_vision_is_in(const dg_checkpoint *ck)
{
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++)
        if (strncmp(dg_checkpoint_at(ck, i)->name, TOWER, sizeof TOWER - 1) == 0)
            return true;
    return false;
}

dgemma_status dg_vision_check(const dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err)
{
    if (!cfg->vision.present || !dg_vision_is_in(ck))
        return DGEMMA_OK;
    dg_vision v = {.cfg = cfg->vision, .n_embd_text = cfg->n_embd};
    v.layer = dg_calloc((size_t)v.cfg.n_layer, sizeof *v.layer);
    if (!v.layer)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_weights_check(&(dg_weights){.owner = &v, .ck = ck, .err = err}, walk);
    dg_free(v.layer);
    return st;
}

dgemma_status dg_vision_load(dg_vision **out, const dg_config *cfg, const dg_checkpoint *ck,
                             dg_backend *be, dgemma_error *err)
{
    *out = NULL;
    if (!cfg->vision.present || !dg_vision_is_in(ck))
        return DGEMMA_OK;
    if (!be->vision_plan)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the %s backend does not run a vision tower",
                       be->name);
    dg_vision *v = dg_calloc(1, sizeof *v);
    if (!v)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    v->cfg = cfg->vision;
    v->n_embd_text = cfg->n_embd;
    v->be = be;
    v->n_angle = dg_min(cfg->vision.n_position, DG_VISION_MAX_PATCH);
    v->layer = dg_calloc((size_t)v->cfg.n_layer, sizeof *v->layer);

    dg_weights l = {.owner = v, .ck = ck, .be = be, .err = err};
    dgemma_status st =
        v->layer ? dg_weights_run(&l, walk) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    v->vectors = l.vectors;
    v->made = l.made;
    if (st) {
        dg_vision_free(v);
        return st;
    }
    *out = v;
    return DGEMMA_OK;
}

void dg_vision_free(dg_vision *v)
{
    if (!v)
        return;
    v->be->free(v->be, v->x);
    v->be->free(v->be, v->vectors);
    dg_made_free(v->made);
    dg_free(v->layer);
    dg_free(v);
}

const dg_vision_config *dg_vision_config_of(const dg_vision *v)
{
    return &v->cfg;
}

/* ---- encoding ---- */

static dg_vision_plan plan_for(const dg_vision *v, int n_patch)
{
    const dg_vision_config *cfg = &v->cfg;
    return (dg_vision_plan){
        .n_patch = n_patch,
        .n_embd = cfg->n_embd,
        .n_ff = cfg->n_ff,
        .n_head = cfg->n_head,
        .head_dim = cfg->head_dim,
        .n_pixel = cfg->patch * cfg->patch * 3,
        .clipped = cfg->clipped,
        .rms_eps = cfg->rms_eps,
    };
}

static size_t stream_bytes(const dg_vision *v, int n_patch)
{
    return (size_t)n_patch * (size_t)v->cfg.n_embd * sizeof(float);
}

size_t dg_vision_bytes(const dg_vision *v, int n_patch)
{
    dg_vision_plan plan = plan_for(v, n_patch);
    return v->be->vision_plan_bytes(v->be, &plan) + stream_bytes(v, n_patch);
}

dgemma_status dg_vision_reserve(dg_vision *v, int n_patch, dgemma_error *err)
{
    if (n_patch <= v->max_patch)
        return DGEMMA_OK;
    dg_vision_plan plan = plan_for(v, n_patch);
    v->be->free(v->be, v->x);
    v->max_patch = 0;
    v->x = v->be->alloc(v->be, stream_bytes(v, n_patch));
    if (!v->x)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for pictures of %d patches", n_patch);
    dgemma_status st = v->be->vision_plan(v->be, &plan, err);
    if (!st)
        v->max_patch = n_patch;
    return st;
}

static dgemma_status check(const dg_vision *v, const dg_vision_input *picture, int n,
                           dgemma_error *err)
{
    int pool = v->cfg.pool;
    for (int i = 0; i < n; i++) {
        const dg_vision_input *p = &picture[i];
        if (p->rows < 1 || p->cols < 1 || p->rows % pool || p->cols % pool)
            return dg_fail(err, DGEMMA_E_ARG,
                           "picture %d has %d rows of %d patches, wanted whole cells of %d x %d", i,
                           p->rows, p->cols, pool, pool);
        if (dg_max(p->rows, p->cols) > v->n_angle ||
            (int64_t)p->rows * p->cols > DG_VISION_MAX_PATCH)
            return dg_fail(err, DGEMMA_E_ARG,
                           "picture %d has %d rows of %d patches, at most %d in all and %d on a "
                           "side can be seen",
                           i, p->rows, p->cols, DG_VISION_MAX_PATCH, v->n_angle);
        if (!p->pixels)
            return dg_fail(err, DGEMMA_E_ARG, "picture %d has no pixels", i);
    }
    return DGEMMA_OK;
}

/* The pictures from `first` on that go together, at least one; returns their patches. */
static int gather(const dg_vision *v, const dg_vision_input *picture, int first, int n,
                  dg_vision_picture out[DG_VISION_MAX_TOGETHER], int *n_out)
{
    int n_patch = 0, k = 0;
    for (; first + k < n && k < DG_VISION_MAX_TOGETHER; k++) {
        const dg_vision_input *p = &picture[first + k];
        if (k && n_patch + p->rows * p->cols > v->be->picture_patches)
            break;
        out[k] = (dg_vision_picture){n_patch, p->rows, p->cols, p->pixels};
        n_patch += p->rows * p->cols;
    }
    *n_out = k;
    return n_patch;
}

int dg_vision_together(const dg_vision *v, const dg_vision_input *pictures, int n)
{
    dg_vision_picture picture[DG_VISION_MAX_TOGETHER];
    int n_shared;
    gather(v, pictures, 0, n, picture, &n_shared);
    return n_shared;
}

static dgemma_status encode_pass(dg_vision *v, const dg_vision_batch *batch, float *features,
                                 dgemma_error *err)
{
    dg_backend *be = v->be;
    dg_vision_rope rope = {v->cos, v->sin};
    float *x = v->x;

    be->vision_begin(be, batch);
    be->vision_embed(be, &(dg_vision_embed_args){x, &v->patch, &v->table});
    for (int i = 0; i < v->cfg.n_layer; i++) {
        be->vision_attention(be, &(dg_vision_attention_args){x, &v->layer[i], rope});
        be->vision_mlp(be, &(dg_vision_mlp_args){x, &v->layer[i]});
    }
    be->vision_project(be, &(dg_vision_project_args){features, x, v->cfg.pool, v->std_bias,
                                                     v->std_scale, &v->proj});
    return be->finish(be, err);
}

dgemma_status dg_vision_encode(dg_vision *v, const dg_vision_input *pictures, int n,
                               float *features, dgemma_error *err)
{
    dg_vision_picture picture[DG_VISION_MAX_TOGETHER];
    size_t n_embd = (size_t)v->n_embd_text;
    int n_shared, most = 0;
    dgemma_status st = check(v, pictures, n, err);
    for (int i = 0; !st && i < n; i += n_shared)
        most = dg_max(most, gather(v, pictures, i, n, picture, &n_shared));
    if (!st && n > 0)
        st = dg_vision_reserve(v, most, err);
    for (int i = 0; !st && i < n; i += n_shared) {
        int n_patch = gather(v, pictures, i, n, picture, &n_shared);
        st = encode_pass(v, &(dg_vision_batch){n_patch, n_shared, picture}, features, err);
        features += (size_t)(n_patch / (v->cfg.pool * v->cfg.pool)) * n_embd;
    }
    return st;
}
