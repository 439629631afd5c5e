#include "engine/engine.h"
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

/* ---- opening ---- */

static dgemma_status open_backend(dgemma_engine *e, const dgemma_engine_options *opt,
                                  dgemma_error *err)
{
    unsigned flags = dg_cpu_flags(), wanted = flags;
    if (opt->cpu && !dg_cpu_flags_parse(&wanted, opt->cpu))
        return dg_fail(err, DGEMMA_E_ARG, "unknown instruction set \"%s\"", opt->cpu);
    if (wanted & ~flags)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "this processor does not have %s", opt->cpu);
    e->n_thread = opt->n_threads ? opt->n_threads : dg_cpu_count();
    return dg_cpu_open(&e->be, &(dg_cpu_options){e->n_thread, wanted}, err);
}

static dgemma_status open_parts(dgemma_engine *e, const dgemma_engine_options *opt,
                                dgemma_error *err)
{
    dgemma_status st = dg_load(&e->loaded, opt->model_path, err);
    if (!st)
        st = open_backend(e, opt, err);
    if (!st)
        st = dg_model_load(&e->model, &e->loaded.cfg, e->loaded.checkpoint, e->be, err);
    if (st)
        return st;
    e->n_context = opt->context_length ? dg_min(opt->context_length, e->loaded.cfg.n_context)
                                       : e->loaded.cfg.n_context;
    dg_dtype type = opt->kv_type == DGEMMA_KV_F32 ? DG_F32 : DG_BF16;
    st = dg_kv_cache_create(&e->kv, &e->loaded.cfg, e->be, type, 0, err);
    int rows = dg_max(DG_MIN_PASS_ROWS, 2 * e->loaded.cfg.canvas_length);
    return st ? st : dg_forward_create(&e->forward, e->model, e->kv, rows, 1, err);
}

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err)
{
    dgemma_engine *e = dg_calloc(1, sizeof *e);
    if (!e)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = open_parts(e, opt, err);
    if (st) {
        dg_engine_close(e);
        return st;
    }
    *out = e;
    return DGEMMA_OK;
}

void dg_engine_close(dgemma_engine *e)
{
    if (!e)
        return;
    dg_forward_free(e->forward);
    dg_kv_cache_free(e->kv);
    dg_model_free(e->model);
    if (e->be)
        e->be->close(e->be);
    dg_loaded_clear(&e->loaded);
    dg_free(e);
}

/* ---- generating ---- */

/* A request under way, with what its events need. */
typedef struct run {
    dgemma_engine *e;
    dg_request req;
    dg_decoder decoder;
    dg_buf text;
    dgemma_event_fn *on_event;
    void *user;
} run;

/* No block can be longer than this as text: a canvas of the longest pieces. */
enum { BLOCK_TEXT_MAX = 64 << 20 };

static bool tell(run *r, const dgemma_event *event)
{
    return !r->on_event || r->on_event(r->user, event);
}

static bool tell_draft(run *r, int step)
{
    const dg_canvas *c = &r->req.canvas;
    return tell(r, &(dgemma_event){
                       .kind = DGEMMA_EVENT_DRAFT,
                       .block = c->block,
                       .step = step,
                       .tokens = c->argmax,
                       .n_tokens = (size_t)c->n,
                       .entropy = c->entropy,
                       .accepted = c->accepted,
                       .mean_entropy = c->mean_entropy,
                   });
}

static dgemma_status tell_block(run *r, bool *go_on, dgemma_error *err)
{
    const dg_canvas *c = &r->req.canvas;
    bool fits = true;
    if (r->e->loaded.tokenizer) {
        r->text.len = 0;
        for (int i = 0; fits && i < r->req.n_block_token; i++)
            fits = dg_decoder_push(&r->decoder, c->argmax[i], &r->text);
        if (r->req.end)
            fits = fits && dg_decoder_flush(&r->decoder, &r->text);
        if (!fits || !dg_buf_append(&r->text, "", 0))
            return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a block's text");
    }
    *go_on = tell(r, &(dgemma_event){
                         .kind = DGEMMA_EVENT_BLOCK,
                         .block = c->block,
                         .step = c->step - 1,
                         .tokens = c->argmax,
                         .n_tokens = (size_t)r->req.n_block_token,
                         .mean_entropy = c->mean_entropy,
                         .text = r->e->loaded.tokenizer ? r->text.data : NULL,
                         .text_len = r->text.len,
                     });
    return DGEMMA_OK;
}

/* One pass, and its events. */
static dgemma_status pass(run *r, dgemma_stats *stats, bool *go_on, dgemma_error *err)
{
    dg_request *req = &r->req;
    dg_work work;
    double start = dg_clock_now();
    bool prompt = req->block == 0 && req->n_encoded < req->n_pending;
    dg_request_plan(req, &work, dg_forward_max_row(r->e->forward));
    dgemma_status st = dg_forward_run(r->e->forward, &(dg_pass){.work = &work, .n_work = 1}, err);
    if (st)
        return st;
    int step = req->canvas.step;
    dg_request_take(req);
    *(req->canvas_in_pass ? &stats->denoise_seconds : &stats->prompt_seconds) +=
        dg_clock_now() - start;

    if (prompt)
        *go_on = tell(r, &(dgemma_event){.kind = DGEMMA_EVENT_PROMPT,
                                         .n_done = dg_min(req->seq.n_token, req->cfg.n_prompt),
                                         .n_total = req->cfg.n_prompt});
    if (*go_on && req->canvas_in_pass)
        *go_on = tell_draft(r, step);
    if (*go_on && req->block_done)
        st = tell_block(r, go_on, err);
    return st;
}

static dgemma_end end_reason(dg_request_end end)
{
    return end == DG_END_STOP     ? DGEMMA_END_STOP
           : end == DG_END_LENGTH ? DGEMMA_END_LENGTH
                                  : DGEMMA_END_CONTEXT;
}

dgemma_status dg_engine_generate(dgemma_engine *e, const dg_request_config *cfg,
                                 dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                                 dgemma_error *err)
{
    run r = {.e = e, .on_event = on_event, .user = user};
    dgemma_status st = dg_request_init(&r.req, e->model, e->kv, cfg, err);
    if (st)
        return st;
    dg_buf_init(&r.text, BLOCK_TEXT_MAX);
    if (e->loaded.tokenizer)
        dg_decoder_init(&r.decoder, e->loaded.tokenizer, false);

    bool go_on = true;
    while (!st && go_on && !r.req.end)
        st = pass(&r, stats, &go_on, err);

    stats->end = go_on ? end_reason(r.req.end) : DGEMMA_END_CANCELLED;
    stats->n_prompt = cfg->n_prompt;
    stats->n_output = r.req.n_output;
    stats->n_blocks = r.req.n_block;
    stats->n_converged = r.req.n_converged;
    stats->n_steps = r.req.n_step;
    stats->kv_bytes = dg_kv_bytes_used(e->kv);
    dg_buf_clear(&r.text);
    dg_request_clear(&r.req);
    return st;
}
