#include "engine/request.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

size_t dg_request_bytes(const dg_config *cfg, int canvas_length)
{
    return (size_t)canvas_length * (size_t)cfg->n_embd * sizeof(float);
}

dgemma_status dg_request_init(dg_request *r, const dg_model *model, dg_kv_cache *kv,
                              const dg_request_config *cfg, dgemma_error *err)
{
    *r = (dg_request){.model = model, .kv = kv, .cfg = *cfg};
    if (cfg->n_prompt < 1)
        return dg_fail(err, DGEMMA_E_ARG, "the prompt is empty");
    if (cfg->n_prompt >= cfg->n_context)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "the prompt has %d tokens, the context has room for %d with the answer",
                       cfg->n_prompt, cfg->n_context);
    dgemma_status st = dg_canvas_init(&r->canvas, cfg->canvas_length, err);
    if (st)
        return st;
    size_t n = (size_t)dg_max(cfg->n_prompt, cfg->canvas_length);
    r->pending = dg_array(n, sizeof *r->pending);
    r->soft = model->be->alloc(model->be, dg_request_bytes(&model->cfg, cfg->canvas_length));
    if (!r->pending || !r->soft) {
        dg_request_clear(r);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for the request");
    }
    memcpy(r->pending, cfg->prompt, (size_t)cfg->n_prompt * sizeof *r->pending);
    r->n_pending = cfg->n_prompt;
    r->cfg.prompt = NULL;
    return DGEMMA_OK;
}

void dg_request_clear(dg_request *r)
{
    if (!r->model)
        return;
    dg_kv_seq_clear(r->kv, &r->seq);
    r->model->be->free(r->model->be, r->soft);
    dg_canvas_clear(&r->canvas);
    dg_free(r->pending);
    *r = (dg_request){0};
}

/* The canvas that comes after the pending tokens; cut where the context ends. */
static int next_canvas_length(const dg_request *r)
{
    int position = r->seq.n_token + (r->n_pending - r->n_encoded);
    return dg_min(r->cfg.canvas_length, r->cfg.n_context - position);
}

void dg_request_plan(dg_request *r, dg_work *w, int max_row)
{
    assert(!r->end);
    int left = r->n_pending - r->n_encoded;
    *w = (dg_work){
        .seq = &r->seq,
        .token = r->pending + r->n_encoded,
        .n_token = dg_min(left, max_row),
    };
    r->n_token_in_pass = w->n_token;
    int n_canvas = r->canvas_open ? r->canvas.n : next_canvas_length(r);
    r->canvas_in_pass = w->n_token == left && n_canvas <= max_row - left;
    if (!r->canvas_in_pass)
        return;
    if (!r->canvas_open) {
        dg_canvas_begin(&r->canvas, &r->cfg.diffusion, &r->cfg.draws, r->block, n_canvas);
        r->canvas_open = true;
    }
    w->canvas = r->canvas.token;
    w->n_canvas = r->canvas.n;
    w->soft = r->soft;
    w->first_step = r->canvas.step == 0;
    w->temperature = dg_canvas_temperature(&r->canvas);
    w->uniform = r->canvas.uniform;
    w->entropy = r->canvas.entropy;
    w->argmax = r->canvas.argmax;
    w->drawn = r->canvas.drawn;
}

static bool is_stop(const dg_config *cfg, int32_t token)
{
    for (int i = 0; i < cfg->n_stop; i++)
        if (cfg->stop_token[i] == token)
            return true;
    return false;
}

/* The block's text: up to the first stop token, and no more than the answer may have. */
static void finish_block(dg_request *r)
{
    const dg_canvas *c = &r->canvas;
    int n = 0;
    while (n < c->n && !is_stop(&r->model->cfg, c->argmax[n]))
        n++;
    if (n < c->n)
        r->end = DG_END_STOP;
    int room = r->cfg.max_tokens - r->n_output;
    if (n > room || (n == room && !r->end)) {
        n = room;
        r->end = DG_END_LENGTH;
    }
    r->n_block_token = n;
    r->n_output += n;
    r->block_done = true;
    r->canvas_open = false;
    r->n_block++;
    r->n_converged += c->converged;
    r->block++;
    if (!r->end && r->seq.n_token + c->n >= r->cfg.n_context)
        r->end = DG_END_CONTEXT;
    if (r->end)
        return;
    /* the whole block is committed with the next pass, at the positions it had as a canvas */
    memcpy(r->pending, c->argmax, (size_t)c->n * sizeof *r->pending);
    r->n_pending = c->n;
    r->n_encoded = 0;
}

void dg_request_take(dg_request *r)
{
    r->block_done = false;
    r->n_encoded += r->n_token_in_pass;
    if (!r->canvas_in_pass)
        return;
    dg_canvas_advance(&r->canvas, &r->cfg.draws);
    r->n_step++;
    if (r->canvas.finished)
        finish_block(r);
}
