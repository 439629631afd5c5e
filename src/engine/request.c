#include "engine/request.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

size_t dg_request_bytes(const dg_config *cfg, int canvas_length)
{
    return (size_t)canvas_length * (size_t)cfg->n_embd * sizeof(float);
}

/* Tokens that thoughts may have: what was asked for, but never so many that none are left for the
 * answer. */
static int think_limit(const dg_request_config *cfg)
{
    int room = dg_min(cfg->max_tokens, cfg->n_context - cfg->n_prompt);
    int answer = dg_max(1, dg_min(cfg->canvas_length, room / 2));
    int most = dg_max(0, room - answer - 1);
    return cfg->think_budget < 0 ? most : dg_min(cfg->think_budget, most);
}

/* The longest picture in tokens: it must fit into one pass. */
int dg_request_longest_block(const dg_request_config *cfg)
{
    int longest = 1;
    for (int i = 0; cfg->block && i < cfg->n_prompt; i++)
        longest = dg_max(longest, cfg->block[i].end - cfg->block[i].first);
    return longest;
}

dgemma_status dg_fail_context(dgemma_error *err, size_t n_context, size_t n_prompt, bool counted)
{
    return dg_fail(err, DGEMMA_E_CONTEXT,
                   "This model's maximum context length is %zu tokens. However, your request has "
                   "%s%zu tokens, and the answer needs room too. Please shorten it.",
                   n_context, counted ? "" : "at least ", n_prompt);
}

dgemma_status dg_request_check(const dg_request_config *cfg, const dg_config *model,
                               dgemma_error *err)
{
    if (cfg->n_prompt < 1)
        return dg_fail(err, DGEMMA_E_ARG, "the prompt is empty");
    if (cfg->n_prompt >= cfg->n_context)
        return dg_fail_context(err, (size_t)cfg->n_context, (size_t)cfg->n_prompt, true);
    for (int i = 0; i < cfg->n_prompt; i++)
        if (cfg->prompt[i] < 0 || cfg->prompt[i] >= model->n_vocab)
            return dg_fail(err, DGEMMA_E_ARG, "token %d is not in the vocabulary of %d",
                           (int)cfg->prompt[i], model->n_vocab);
    return DGEMMA_OK;
}

dgemma_status dg_request_init(dg_request *r, const dg_model *model, dg_kv_cache *kv,
                              const dg_request_config *cfg, dgemma_error *err)
{
    *r = (dg_request){.model = model, .kv = kv, .cfg = *cfg};
    dgemma_status st = dg_request_check(cfg, &model->cfg, err);
    if (!st)
        st = dg_canvas_init(&r->canvas, cfg->canvas_length, err);
    if (!st)
        st = cfg->logprobs ? dg_logprobs_init(&r->logprobs, cfg->n_top, cfg->canvas_length, err)
                           : DGEMMA_OK;
    if (st) {
        dg_request_clear(r);
        return st;
    }
    r->options = cfg->vocabulary;
    r->options.n_top = r->logprobs.n_top;
    r->in_thought = cfg->in_thought;
    r->think_limit = think_limit(cfg);
    size_t n =
        (size_t)dg_max(cfg->n_prompt, cfg->canvas_length + 1); /* a block and a closing marker */
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
    dg_logprobs_clear(&r->logprobs);
    dg_free(r->pending);
    *r = (dg_request){0};
}

/* The canvas that comes after the pending tokens; cut where the context ends. */
static int next_canvas_length(const dg_request *r)
{
    int position = r->seq.n_token + (r->n_pending - r->n_encoded);
    return dg_min(r->cfg.canvas_length, r->cfg.n_context - position);
}

/* How many of the pending tokens go into a pass of n rows: a picture's block is seen whole by its
 * own tokens, so it is never cut. One that comes next goes in whatever the prompt's share is. */
static int chunk(const dg_request *r, int n)
{
    bool prompt = r->block == 0;
    int most = prompt && r->max_prompt ? dg_min(n, r->max_prompt) : n;
    int end = dg_min(r->n_pending, r->n_encoded + most);
    if (!prompt || !r->cfg.block || end == r->n_pending || r->cfg.block[end].first >= end)
        return end - r->n_encoded;
    dg_span picture = r->cfg.block[end];
    if (picture.first > r->n_encoded)
        return picture.first - r->n_encoded;
    return picture.end - r->n_encoded <= n ? picture.end - r->n_encoded : 0;
}

void dg_request_plan(dg_request *r, dg_work *w, int max_row)
{
    assert(!r->end);
    int left = r->n_pending - r->n_encoded;
    bool prompt = r->block == 0;
    *w = (dg_work){
        .seq = &r->seq,
        .token = r->pending + r->n_encoded,
        .n_token = chunk(r, max_row),
        .block = prompt && r->cfg.block ? r->cfg.block + r->n_encoded : NULL,
        .feature = prompt && r->cfg.feature ? r->cfg.feature + r->n_encoded : NULL,
        .features = prompt ? r->cfg.features : NULL,
    };
    r->n_token_in_pass = w->n_token;
    int n_canvas = r->canvas_open ? r->canvas.n : next_canvas_length(r);
    r->canvas_in_pass = w->n_token == left && n_canvas <= max_row - left;
    if (!r->canvas_in_pass)
        return;
    if (!r->canvas_open) {
        dg_canvas_begin(&r->canvas, &r->cfg.diffusion, &r->cfg.draws, r->block, n_canvas);
        r->canvas_open = true;
        r->n_read = 0;
    }
    dg_settle_hold(&r->canvas.settle, r->canvas.token); /* a step callback may have moved it */
    w->canvas = r->canvas.token;
    w->n_canvas = r->canvas.n;
    w->soft = r->soft;
    w->first_step = r->canvas.step == 0 || r->cfg.no_self_conditioning;
    w->temperature = dg_canvas_temperature(&r->canvas);
    w->uniform = r->canvas.uniform;
    w->options = &r->options;
    w->entropy = r->canvas.entropy;
    w->argmax = r->canvas.argmax;
    w->drawn = r->canvas.drawn;
    w->logprob = r->logprobs.step_logprob;
    w->top_id = r->logprobs.step_top;
    w->top_logprob = r->logprobs.step_top_logprob;
}

static bool is_stop(const dg_config *cfg, int32_t token)
{
    for (int i = 0; i < cfg->n_stop; i++)
        if (cfg->stop_token[i] == token)
            return true;
    return false;
}

/* Reads on up to position `end` of the block: up to the first stop token, the answer's limit, or
 * the end of the thinking budget. True: nothing behind r->n_read counts. */
static bool read_block(dg_request *r, int end)
{
    const dg_canvas *c = &r->canvas;
    const dg_request_config *cfg = &r->cfg;
    while (r->n_read < end) {
        int32_t token = c->argmax[r->n_read];
        if (is_stop(&r->model->cfg, token)) {
            r->end = DG_END_STOP;
            r->stop_token = token;
            return true;
        }
        if (r->n_output + r->n_read == cfg->max_tokens) {
            r->end = DG_END_LENGTH;
            return true;
        }
        r->n_read++;
        if (token == cfg->think_open)
            r->in_thought = true;
        else if (token == cfg->think_close)
            r->in_thought = false;
        else if (r->in_thought && ++r->n_thought >= r->think_limit) {
            r->thought_closed = true;
            return true;
        }
    }
    if (end == c->n && r->n_output + r->n_read == cfg->max_tokens)
        r->end = DG_END_LENGTH;
    return end == c->n;
}

/* What was said is encoded with the next pass, at the positions it had as a canvas; behind a
 * thought that was cut, the marker that closes it, so that the next canvas begins the answer. */
static void commit_block(dg_request *r)
{
    int n = r->thought_closed ? r->n_block_token : r->canvas.n;
    memcpy(r->pending, r->canvas.argmax, (size_t)n * sizeof *r->pending);
    if (r->thought_closed)
        r->pending[n++] = r->cfg.think_close;
    r->n_pending = n;
    r->n_encoded = 0;
    if (r->seq.n_token + n >= r->cfg.n_context)
        r->end = DG_END_CONTEXT;
}

static void finish_block(dg_request *r)
{
    r->n_block_token = r->n_read;
    r->n_output += r->n_block_token;
    if (r->thought_closed) {
        r->in_thought = false;
        r->banned[0] = r->cfg.think_open;
        r->options.banned = r->banned;
        r->options.n_banned = r->cfg.think_open >= 0;
    }
    r->block_done = true;
    r->canvas_open = false;
    r->n_block++;
    r->n_converged += r->canvas.converged;
    r->block++;
    if (!r->end)
        commit_block(r);
}

void dg_request_take(dg_request *r)
{
    dg_canvas *c = &r->canvas;
    r->block_done = false;
    r->n_encoded += r->n_token_in_pass;
    if (!r->canvas_in_pass)
        return;
    int n_pinned = c->settle.n;
    dg_canvas_advance(c, &r->cfg.draws);
    dg_logprobs_keep(&r->logprobs, c->entropy, n_pinned, c->n);
    r->n_step++;
    r->thought_closed = false;
    if (!read_block(r, c->finished ? c->n : c->settle.n))
        return;
    if (!c->finished)
        dg_canvas_end(c);
    finish_block(r);
}
