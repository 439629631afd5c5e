#include "model/forward.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "model/layer.h"

struct dg_forward {
    const dg_model *m;
    dg_kv_cache *kv;
    int max_row, max_work;

    dg_activations act;
    float *normed; /* [max_row, n_embd] after the final norm */

    /* the batch, on the host */
    int32_t *token, *position, *feature;
    dg_span *block;
    dg_segment *segment;
    double *uniform;
    float *tapped; /* [max_row, n_embd] hidden states for taps; made for the first that asks */
    float *entropy;
    int32_t *argmax, *drawn;
    float *logprob, *top_logprob;
    int32_t *top_id;
    dg_batch batch;
};

/* ---- life cycle ---- */

static dg_plan plan_for(const dg_config *cfg, dg_dtype kv_type, int max_row, int max_work)
{
    dg_plan plan = {
        .n_row = max_row,
        .n_segment = 2 * max_work,
        .kv_type = kv_type,
        .n_embd = cfg->n_embd,
        .n_ff = cfg->n_ff,
        .n_vocab = cfg->n_vocab,
        .n_expert = cfg->n_expert,
        .n_expert_used = cfg->n_expert_used,
        .n_ff_expert = cfg->n_ff_expert,
        .rms_eps = cfg->rms_eps,
    };
    for (int i = 0; i < cfg->n_layer; i++) {
        plan.max_head_dim = dg_max(plan.max_head_dim, cfg->layer[i].head_dim);
        plan.max_group = dg_max(plan.max_group, cfg->n_head / cfg->layer[i].n_kv_head);
        plan.window[dg_layer_group(&cfg->layer[i])] = cfg->layer[i].window;
        plan.max_q_dim = dg_max(plan.max_q_dim, cfg->n_head * cfg->layer[i].head_dim);
        plan.max_kv_dim = dg_max(plan.max_kv_dim, cfg->layer[i].n_kv_head * cfg->layer[i].head_dim);
    }
    return plan;
}

/* Every piece of backend memory that a pass needs, in one list: to add up, to allocate, to free. */
typedef struct piece {
    void **at;
    size_t bytes;
} piece;
enum { N_PIECE = 11 };

static void pieces(piece out[N_PIECE], dg_forward *f, const dg_config *cfg)
{
    dg_activations *a = &f->act;
    int q_dim = 0, n_pair = 1;
    for (int i = 0; i < cfg->n_layer; i++) {
        q_dim = dg_max(q_dim, cfg->n_head * cfg->layer[i].head_dim);
        n_pair = dg_max(n_pair, cfg->layer[i].n_rope_pair);
    }
    size_t line = (size_t)f->max_row * sizeof(float), stream = line * (size_t)cfg->n_embd;
    size_t used = (size_t)f->max_row * (size_t)cfg->n_expert_used;
    size_t angles = line * (size_t)n_pair;
    piece list[N_PIECE] = {
        {(void **)&a->x, stream},
        {(void **)&a->q, line * (size_t)q_dim},
        {(void **)&a->o, line * (size_t)q_dim},
        {(void **)&a->dense, stream},
        {(void **)&a->experts, stream},
        {(void **)&a->expert, used * sizeof *a->expert},
        {(void **)&a->expert_weight, used * sizeof *a->expert_weight},
        {(void **)&a->rope[DG_KV_SLIDING].cos, angles},
        {(void **)&a->rope[DG_KV_SLIDING].sin, angles},
        {(void **)&a->rope[DG_KV_GLOBAL].cos, angles},
        {(void **)&a->rope[DG_KV_GLOBAL].sin, angles},
    };
    memcpy(out, list, sizeof list);
}

size_t dg_forward_bytes(const dg_config *cfg, dg_backend *be, const dg_kv_cache *kv, int max_row,
                        int max_work)
{
    dg_forward f = {.max_row = max_row, .max_work = max_work};
    piece list[N_PIECE];
    pieces(list, &f, cfg);
    dg_plan plan = plan_for(cfg, dg_kv_config_of(kv)->type, max_row, max_work);
    size_t bytes = be->plan_bytes(be, &plan);
    for (int i = 0; i < N_PIECE; i++)
        bytes += list[i].bytes;
    return bytes;
}

static bool allocate(dg_forward *f)
{
    dg_backend *be = f->m->be;
    size_t rows = (size_t)f->max_row;
    piece list[N_PIECE];
    pieces(list, f, &f->m->cfg);
    for (int i = 0; i < N_PIECE; i++)
        if (!(*list[i].at = be->alloc(be, list[i].bytes)))
            return false;
    f->normed = f->act.dense; /* free again when the layers are done */

    f->token = dg_calloc(rows, sizeof *f->token);
    f->position = dg_calloc(rows, sizeof *f->position);
    f->feature = dg_calloc(rows, sizeof *f->feature);
    f->block = dg_calloc(rows, sizeof *f->block);
    f->segment = dg_calloc(2 * (size_t)f->max_work, sizeof *f->segment);
    f->uniform = dg_calloc(rows, sizeof *f->uniform);
    f->entropy = dg_calloc(rows, sizeof *f->entropy);
    f->argmax = dg_calloc(rows, sizeof *f->argmax);
    f->drawn = dg_calloc(rows, sizeof *f->drawn);
    f->logprob = dg_calloc(rows, sizeof *f->logprob);
    f->top_id = dg_calloc(rows * DG_MAX_TOP, sizeof *f->top_id);
    f->top_logprob = dg_calloc(rows * DG_MAX_TOP, sizeof *f->top_logprob);
    return f->token && f->position && f->feature && f->block && f->segment && f->uniform &&
           f->entropy && f->argmax && f->drawn && f->logprob && f->top_id && f->top_logprob;
}

static dgemma_status no_memory(const dg_forward *f, dgemma_error *err)
{
    dg_backend *be = f->m->be;
    size_t need = dg_forward_bytes(&f->m->cfg, be, f->kv, f->max_row, f->max_work);
    if (!be->room)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for passes of %d rows", f->max_row);
    return dg_fail(err, DGEMMA_E_NOMEM,
                   "%zu MiB for passes of %d rows do not fit on the device: %zu MiB are left",
                   (need >> 20) + 1, f->max_row, be->room(be) >> 20);
}

dgemma_status dg_forward_create(dg_forward **out, const dg_model *m, dg_kv_cache *kv, int max_row,
                                int max_work, dgemma_error *err)
{
    dg_forward *f = dg_malloc(sizeof *f);
    if (!f)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *f = (dg_forward){.m = m, .kv = kv, .max_row = max_row, .max_work = max_work};
    for (int g = 0; g < DG_KV_GROUPS; g++)
        f->act.rope[g].n_pair = m->n_rope_pair[g];
    dg_plan plan = plan_for(&m->cfg, dg_kv_config_of(kv)->type, max_row, max_work);
    dgemma_status st = m->be->plan(m->be, &plan, err);
    if (!st && !allocate(f))
        st = no_memory(f, err);
    if (st) {
        dg_forward_free(f);
        return st;
    }
    *out = f;
    return DGEMMA_OK;
}

void dg_forward_free(dg_forward *f)
{
    if (!f)
        return;
    dg_backend *be = f->m->be;
    piece list[N_PIECE];
    pieces(list, f, &f->m->cfg);
    for (int i = 0; i < N_PIECE; i++)
        be->free(be, *list[i].at);
    dg_free(f->token);
    dg_free(f->position);
    dg_free(f->feature);
    dg_free(f->block);
    dg_free(f->segment);
    dg_free(f->uniform);
    dg_free(f->tapped);
    dg_free(f->entropy);
    dg_free(f->argmax);
    dg_free(f->drawn);
    dg_free(f->logprob);
    dg_free(f->top_id);
    dg_free(f->top_logprob);
    dg_free(f);
}

int dg_forward_max_row(const dg_forward *f)
{
    return f->max_row;
}

/* ---- building the batch: encoded rows first, then canvas rows ---- */

static void add_row(dg_forward *f, int32_t token, int position, dg_span block, int32_t feature)
{
    int r = f->batch.n_row++;
    f->token[r] = token;
    f->position[r] = position;
    f->block[r] = block;
    f->feature[r] = feature;
}

static dg_segment *add_segment(dg_forward *f, const dg_work *w, int position, int n)
{
    dg_segment *seg = &f->segment[f->batch.n_segment++];
    *seg = (dg_segment){.first_row = f->batch.n_row,
                        .n_row = n,
                        .position = position,
                        .adapter = w->adapter,
                        .n_adapter = w->n_adapter};
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        seg->page[g] = w->seq->table[g].page;
        seg->n_page[g] = w->seq->table[g].n;
    }
    return seg;
}

static void add_encoded(dg_forward *f, const dg_work *w)
{
    int p = w->seq->n_token;
    dg_segment *seg = add_segment(f, w, p, w->n_token);
    seg->features = w->feature ? w->features : NULL;
    for (int i = 0; i < w->n_token; i++) {
        int32_t feature = seg->features ? w->feature[i] : -1;
        if (feature >= 0)
            f->batch.feature = f->feature;
        add_row(f, w->token[i], p + i, w->block ? w->block[i] : (dg_span){p + i, p + i + 1},
                feature);
    }
}

static void add_canvas(dg_forward *f, const dg_work *w)
{
    int p = w->seq->n_token + w->n_token;
    dg_segment *seg = add_segment(f, w, p, w->n_canvas);
    seg->canvas = true;
    seg->soft = w->soft;
    seg->first_step = w->first_step;
    seg->last_step = w->last_step;
    seg->temperature = w->temperature;
    seg->options = w->options;
    for (int i = 0; i < w->n_canvas; i++) {
        f->uniform[f->batch.n_row - f->batch.n_encode] = w->uniform[i];
        add_row(f, w->canvas[i], p + i, (dg_span){p + i, p + i + 1}, -1);
    }
}

static bool wants_logprobs(const dg_pass *pass)
{
    for (int i = 0; i < pass->n_work; i++)
        if (pass->work[i].n_canvas && pass->work[i].logprob)
            return true;
    return false;
}

static dg_findings findings(dg_forward *f, const dg_pass *pass)
{
    dg_findings out = {.entropy = f->entropy, .argmax = f->argmax, .drawn = f->drawn};
    out.logits = pass->taps ? pass->taps->logits : NULL;
    if (wants_logprobs(pass)) {
        out.logprob = f->logprob;
        out.top_id = f->top_id;
        out.top_logprob = f->top_logprob;
    }
    return out;
}

static dgemma_status check_token(const dg_forward *f, const int32_t *token, int n,
                                 dgemma_error *err)
{
    for (int i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= f->m->cfg.n_vocab)
            return dg_fail(err, DGEMMA_E_ARG, "token %d is not in the vocabulary of %d",
                           (int)token[i], f->m->cfg.n_vocab);
    return DGEMMA_OK;
}

static dgemma_status check(const dg_forward *f, const dg_pass *pass, dgemma_error *err)
{
    int64_t rows = 0;
    if (pass->n_work < 1 || pass->n_work > f->max_work)
        return dg_fail(err, DGEMMA_E_ARG, "%d sequences in a pass: 1 to %d fit", pass->n_work,
                       f->max_work);
    for (int i = 0; i < pass->n_work; i++) {
        const dg_work *w = &pass->work[i];
        rows += (int64_t)w->n_token + w->n_canvas;
        if (w->n_token < 0 || w->n_canvas < 0 || rows > f->max_row)
            return dg_fail(err, DGEMMA_E_ARG, "a pass of %lld rows: up to %d fit", (long long)rows,
                           f->max_row);
        if ((int64_t)w->seq->n_token + w->n_token + w->n_canvas > f->m->cfg.n_context)
            return dg_fail(err, DGEMMA_E_LIMIT, "%d tokens: the model's context has room for %d",
                           w->seq->n_token + w->n_token + w->n_canvas, f->m->cfg.n_context);
        dgemma_status st = check_token(f, w->token, w->n_token, err);
        if (!st)
            st = check_token(f, w->canvas, w->n_canvas, err);
        if (st)
            return st;
    }
    return rows ? DGEMMA_OK : dg_fail(err, DGEMMA_E_ARG, "a pass without rows");
}

static dgemma_status build(dg_forward *f, const dg_pass *pass, dgemma_error *err)
{
    for (int i = 0; i < pass->n_work; i++) {
        dgemma_status st = dg_kv_reserve(f->kv, pass->work[i].seq, pass->work[i].n_token, err);
        if (st)
            return st;
    }
    f->batch = (dg_batch){.token = f->token,
                          .position = f->position,
                          .block = f->block,
                          .images = pass->images,
                          .segment = f->segment,
                          .kv = dg_kv_store_of(f->kv),
                          .uniform = f->uniform,
                          .out = findings(f, pass),
                          .watched = pass->taps != NULL,
                          .meanwhile = pass->meanwhile,
                          .meanwhile_arg = pass->meanwhile_arg};
    for (int i = 0; i < pass->n_work; i++)
        if (pass->work[i].n_token)
            add_encoded(f, &pass->work[i]);
    f->batch.n_encode = f->batch.n_row;
    for (int i = 0; i < pass->n_work; i++)
        if (pass->work[i].n_canvas)
            add_canvas(f, &pass->work[i]);
    return DGEMMA_OK;
}

/* ---- the pass ---- */

/* Shows the residual stream to whoever watches, as host memory. */
static void show_hidden(dg_forward *f, const dg_taps *taps, int layer, const float *x)
{
    if (!taps || !taps->hidden)
        return;
    dg_backend *be = f->m->be;
    be->download(be, f->tapped, x, (size_t)f->batch.n_row * (size_t)f->m->cfg.n_embd * sizeof *x);
    taps->hidden(taps->hidden_arg, layer, f->tapped, f->batch.n_row);
}

static void run_layers(dg_forward *f, const dg_pass *pass)
{
    const dg_model *m = f->m;
    const dg_config *cfg = &m->cfg;
    const dg_batch *b = &f->batch;
    dg_rows all = {0, b->n_row}, canvas = {b->n_encode, b->n_row};
    dg_backend *be = m->be;

    for (int g = 0; g < DG_KV_GROUPS; g++)
        if (m->n_rope_pair[g])
            be->rope_table(be, &(dg_rope_table_args){&f->act.rope[g], m->rope_frequency[g]});
    be->embed(be, &(dg_embed_args){f->act.x, &m->embed, cfg->embed_scale});
    if (b->n_row > b->n_encode)
        be->condition(be, &(dg_condition_args){f->act.x, &m->condition, canvas});

    bool full = pass->taps && (pass->taps->encoded || pass->taps->hidden);
    for (int i = 0; i < cfg->n_layer; i++) {
        bool last = i == cfg->n_layer - 1;
        show_hidden(f, pass->taps, i, f->act.x);
        dg_layer_run(m, i, dg_kv_store_of(f->kv), &f->act, last && !full ? canvas : all);
    }
    be->norm(be, &(dg_norm_args){f->normed, f->act.x, m->norm, full ? all : canvas});
    show_hidden(f, pass->taps, cfg->n_layer, f->normed);
}

static void run_vocabulary(dg_forward *f)
{
    const dg_model *m = f->m;
    const float *x = f->normed + (size_t)f->batch.n_encode * (size_t)m->cfg.n_embd;
    m->be->vocabulary(
        m->be, &(dg_vocabulary_args){x, &m->embed, m->cfg.logit_softcap, m->cfg.embed_scale});
}

static int first_broken(const float *entropy, int n)
{
    int i = 0;
    while (i < n && !isnan(entropy[i]))
        i++;
    return i < n ? i : -1;
}

static dgemma_status fail_at(int row, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_INTERNAL,
                   "the model computed something that is not a number (row %d)", row);
}

dgemma_status dg_work_status(const dg_work *w, dgemma_error *err)
{
    return w->broken_row < 0 ? DGEMMA_OK : fail_at(w->broken_row, err);
}

/* Finds the canvases that are broken. */
static void check_canvases(const dg_forward *f, const dg_pass *pass)
{
    const float *entropy = f->entropy;
    for (int i = 0; i < pass->n_work; i++) {
        dg_work *w = &pass->work[i];
        w->broken_row = first_broken(entropy, w->n_canvas);
        entropy += w->n_canvas;
    }
}

static void hand_out(dg_forward *f, const dg_pass *pass)
{
    size_t at = 0;
    for (int i = 0; i < pass->n_work; i++) {
        const dg_work *w = &pass->work[i];
        size_t n = (size_t)w->n_canvas;
        if (n) {
            memcpy(w->entropy, f->entropy + at, n * sizeof *w->entropy);
            memcpy(w->argmax, f->argmax + at, n * sizeof *w->argmax);
            memcpy(w->drawn, f->drawn + at, n * sizeof *w->drawn);
        }
        if (n && w->logprob) {
            size_t top = n * DG_MAX_TOP;
            memcpy(w->logprob, f->logprob + at, n * sizeof *w->logprob);
            memcpy(w->top_id, f->top_id + at * DG_MAX_TOP, top * sizeof *w->top_id);
            memcpy(w->top_logprob, f->top_logprob + at * DG_MAX_TOP, top * sizeof *w->top_logprob);
        }
        at += n;
        dg_kv_advance(w->seq, w->n_token);
    }
}

dgemma_status dg_forward_run(dg_forward *f, const dg_pass *pass, dgemma_error *err)
{
    dg_backend *be = f->m->be;
    dgemma_status st = check(f, pass, err);
    if (!st && pass->taps && pass->taps->hidden && !f->tapped) {
        f->tapped = dg_array((size_t)f->max_row * (size_t)f->m->cfg.n_embd, sizeof *f->tapped);
        if (!f->tapped)
            st = dg_fail(err, DGEMMA_E_NOMEM, "no memory to show passes of %d rows", f->max_row);
    }
    if (!st)
        st = build(f, pass, err);
    if (st)
        return st;

    be->begin(be, &f->batch);
    run_layers(f, pass);
    if (pass->taps && pass->taps->encoded)
        be->download(be, pass->taps->encoded, f->normed,
                     (size_t)f->batch.n_encode * (size_t)f->m->cfg.n_embd * sizeof(float));
    if (f->batch.n_row > f->batch.n_encode)
        run_vocabulary(f);
    st = be->finish(be, err);
    if (st)
        return st;
    check_canvases(f, pass);
    if (pass->n_work == 1)
        st = dg_work_status(&pass->work[0], err);
    if (!st)
        hand_out(f, pass);
    return st;
}

dgemma_status dg_forward_read(dg_forward *f, const dg_reading *r, dgemma_error *err)
{
    if (r->n < 1 || r->n > f->max_row)
        return dg_fail(err, DGEMMA_E_ARG, "%d rows of logits: 1 to %d fit", r->n, f->max_row);
    dg_backend *be = f->m->be;
    f->segment[0] = (dg_segment){.canvas = true, .n_row = r->n, .soft = r->soft, .temperature = 1};
    f->batch = (dg_batch){.n_row = r->n,
                          .n_segment = 1,
                          .segment = f->segment,
                          .uniform = r->uniform,
                          .given = r->logits,
                          .out = {.entropy = r->entropy, .argmax = r->argmax, .drawn = r->drawn}};
    be->begin(be, &f->batch);
    be->vocabulary(
        be, &(dg_vocabulary_args){.table = &f->m->embed, .soft_scale = f->m->cfg.embed_scale});
    dgemma_status st = be->finish(be, err);
    int broken = st ? -1 : first_broken(r->entropy, r->n);
    return broken < 0 ? st : fail_at(broken, err);
}
