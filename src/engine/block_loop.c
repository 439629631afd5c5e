#include "engine/block_loop.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

size_t dg_block_loop_bytes(const dg_config *cfg, int canvas_length)
{
    return (size_t)canvas_length * (size_t)cfg->n_embd * sizeof(float);
}

/* One of those that the request has named. */
static bool is_named_stop(const dg_block_loop *l, int32_t token)
{
    bool found = false;
    for (int i = 0; i < l->cfg.n_stop_token; i++)
        found |= l->cfg.stop_token[i] == token;
    return found;
}

static bool is_stop(const dg_block_loop *l, int32_t token)
{
    const dg_config *model = &l->model->cfg;
    bool found = is_named_stop(l, token);
    for (int i = 0; i < model->n_stop; i++)
        found |= model->stop_token[i] == token;
    return found;
}

/* Tokens that thoughts may have: what was asked for, but never so many that none are left for the
 * answer, if one is to come behind them. Where there is hardly any room the words before a thought
 * count too. */
static void limit_thoughts(dg_block_loop *l)
{
    const dg_block_loop_config *cfg = &l->cfg;
    int room = dg_min(cfg->max_tokens, cfg->n_context - cfg->n_prompt);
    int answer = dg_max(dg_min(cfg->canvas_length, room / 2), dg_min(cfg->n_least, room));
    int most = is_stop(l, cfg->think_close) ? room : room - answer - 1;
    l->n_head = most >= cfg->n_think_head ? cfg->n_think_head : 0;
    most = dg_max(0, most - l->n_head);
    l->think_limit = cfg->think_budget < 0 ? most : dg_min(cfg->think_budget, most);
}

static void ban_thoughts(dg_block_loop *l)
{
    l->banned[0] = l->cfg.think_open;
    l->options.banned = l->banned;
    l->options.n_banned = l->cfg.think_open >= 0;
}

/* The longest picture in tokens: it must fit into one pass. */
int dg_block_loop_longest_picture(const dg_block_loop_config *cfg)
{
    int longest = 1;
    for (int i = 0; cfg->block && i < cfg->n_prompt; i++)
        longest = dg_max(longest, cfg->block[i].end - cfg->block[i].first);
    return longest;
}

dgemma_status dg_fail_context(dgemma_error *err, size_t n_context, size_t n_prompt, bool counted)
{
    if (err) {
        err->n_context = n_context;
        err->n_prompt = n_prompt;
    }
    return dg_fail(err, DGEMMA_E_CONTEXT,
                   "This model's maximum context length is %zu tokens. However, your request has "
                   "%s%zu tokens, and the answer needs room too. Please shorten it.",
                   n_context, counted ? "" : "at least ", n_prompt);
}

dgemma_status dg_block_loop_check(const dg_block_loop_config *cfg, const dg_config *model,
                                  dgemma_error *err)
{
    if (cfg->n_prompt < 1)
        return dg_fail(err, DGEMMA_E_ARG, "the prompt is empty");
    if (cfg->n_prompt >= cfg->n_context ||
        (cfg->read && cfg->read->n > cfg->n_context - cfg->n_prompt))
        return dg_fail_context(err, (size_t)cfg->n_context, (size_t)cfg->n_prompt, true);
    for (int i = 0; i < cfg->n_prompt; i++)
        if (cfg->prompt[i] < 0 || cfg->prompt[i] >= model->n_vocab)
            return dg_fail(err, DGEMMA_E_ARG, "token %d is not in the vocabulary of %d",
                           (int)cfg->prompt[i], model->n_vocab);
    return DGEMMA_OK;
}

/* The model itself says where it ends. */
static bool open_ended(const dg_infill *f)
{
    return f->whole && !f->n_after && !f->length;
}

/* No thought opens in a gap. */
static void begin_gap(dg_block_loop *l)
{
    const dg_infill *f = l->cfg.infill;
    if (f->length)
        l->gap = (dg_gap){.length = f->length, .found = true};
    else if (open_ended(f))
        l->gap = (dg_gap){.length = DG_GAP_MOST, .found = true};
    else
        dg_gap_begin(&l->gap, f->most);
    l->n_given = f->n_before;
    ban_thoughts(l);
}

dgemma_status dg_block_loop_init(dg_block_loop *l, const dg_model *model, dg_kv_cache *kv,
                                 const dg_block_loop_config *cfg, dgemma_error *err)
{
    *l = (dg_block_loop){.model = model, .kv = kv, .cfg = *cfg};
    dgemma_status st = dg_block_loop_check(cfg, &model->cfg, err);
    if (!st)
        st = dg_canvas_init(&l->canvas, cfg->canvas_length, err);
    if (!st)
        st = cfg->logprobs ? dg_logprobs_init(&l->logprobs, cfg->n_top, cfg->canvas_length, err)
                           : DGEMMA_OK;
    if (st) {
        dg_block_loop_clear(l);
        return st;
    }
    l->options = cfg->vocabulary;
    l->options.n_top = l->logprobs.n_top;
    l->in_thought = cfg->in_thought;
    limit_thoughts(l);
    size_t n =
        (size_t)dg_max(cfg->n_prompt, cfg->canvas_length + 2); /* a block and a thought's end */
    l->pending = dg_array(n, sizeof *l->pending);
    l->soft = model->be->alloc(model->be, dg_block_loop_bytes(&model->cfg, cfg->canvas_length));
    if (cfg->infill) {
        l->start_token = dg_array((size_t)cfg->canvas_length, sizeof *l->start_token);
        l->start_pinned = dg_array((size_t)cfg->canvas_length, sizeof *l->start_pinned);
        begin_gap(l);
    }
    if (!l->pending || !l->soft || (cfg->infill && (!l->start_token || !l->start_pinned))) {
        dg_block_loop_clear(l);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for the request");
    }
    memcpy(l->pending, cfg->prompt, (size_t)cfg->n_prompt * sizeof *l->pending);
    l->n_pending = cfg->n_prompt;
    l->cfg.prompt = NULL;
    return DGEMMA_OK;
}

void dg_block_loop_clear(dg_block_loop *l)
{
    if (!l->model)
        return;
    dg_kv_seq_clear(l->kv, &l->seq);
    l->model->be->free(l->model->be, l->soft);
    dg_canvas_clear(&l->canvas);
    dg_logprobs_clear(&l->logprobs);
    dg_free(l->start_token);
    dg_free(l->start_pinned);
    dg_free(l->pending);
    *l = (dg_block_loop){0};
}

/* The canvas behind the pending tokens, open or to come; cut where the context ends. */
static int canvas_length(const dg_block_loop *l)
{
    int position = l->seq.n_token + (l->n_pending - l->n_encoded);
    int most = dg_min(l->cfg.canvas_length, l->cfg.n_context - position);
    return l->cfg.infill ? dg_infill_positions(l->cfg.infill, l->gap.length, most) : most;
}

static bool encodes_prompt(const dg_block_loop *l)
{
    return l->block == 0;
}

void dg_block_loop_want(const dg_block_loop *l, dg_want *w)
{
    assert(!l->end);
    bool prompt = encodes_prompt(l);
    *w = (dg_want){
        .n_token = l->n_pending - l->n_encoded,
        .n_canvas = canvas_length(l),
        .prompt = prompt,
        .picture = prompt && l->cfg.block ? l->cfg.block + l->n_encoded : NULL,
        .first = l->n_encoded,
    };
}

/* Of a length that is only tried nothing is sent. */
static void begin_canvas(dg_block_loop *l, int n)
{
    const dg_block_loop_config *cfg = &l->cfg;
    dg_diffusion_options opt = cfg->diffusion;
    dg_start start = cfg->start;
    if (cfg->infill) {
        start = dg_infill_start(cfg->infill, l->gap.length, n, l->start_token, l->start_pinned);
        opt.settled_steps = l->gap.found ? opt.settled_steps : 0;
    } else if (start.n > l->n_placed) {
        start.token += l->n_placed;
        start.pinned += start.pinned ? l->n_placed : 0;
        start.n -= l->n_placed;
    } else {
        start.n = 0;
    }
    dg_canvas_begin(&l->canvas, &opt, &cfg->draws, l->block, n);
    if (start.n)
        dg_canvas_start(&l->canvas, &cfg->draws, &start);
}

void dg_block_loop_plan(dg_block_loop *l, dg_work *w, dg_grant grant)
{
    assert(!l->end);
    bool prompt = encodes_prompt(l);
    *w = (dg_work){
        .seq = &l->seq,
        .adapter = l->cfg.adapter,
        .n_adapter = l->cfg.n_adapter,
        .token = l->pending + l->n_encoded,
        .n_token = grant.n_token,
        .block = prompt && l->cfg.block ? l->cfg.block + l->n_encoded : NULL,
        .feature = prompt && l->cfg.feature ? l->cfg.feature + l->n_encoded : NULL,
        .features = prompt ? l->cfg.features : NULL,
    };
    l->n_token_in_pass = grant.n_token;
    l->canvas_in_pass = grant.n_canvas > 0;
    if (!l->canvas_in_pass)
        return;
    if (!l->canvas_open) {
        begin_canvas(l, grant.n_canvas);
        if (l->cfg.read)
            dg_read_begin(l->cfg.read, l->canvas.token);
        l->canvas_open = true;
        l->n_read = 0;
    }
    dg_canvas_hold(&l->canvas); /* a step callback may have moved it */
    w->canvas = l->canvas.token;
    w->n_canvas = l->canvas.n;
    w->soft = l->soft;
    w->first_step = l->canvas.step == l->canvas.first_step || l->cfg.no_self_conditioning;
    w->last_step = l->canvas.step + 1 == l->cfg.diffusion.max_steps || l->cfg.no_self_conditioning;
    w->temperature = dg_canvas_temperature(&l->canvas);
    w->uniform = l->canvas.uniform;
    if (l->cfg.guide)
        l->options.asked =
            dg_guide_ask(l->cfg.guide, l->canvas.uniform, l->canvas.n, l->options.draw);
    if (l->cfg.read) {
        dg_read_hold(l->cfg.read, l->canvas.token);
        l->options.asked = &l->cfg.read->asked;
    }
    w->options = &l->options;
    w->entropy = l->canvas.entropy;
    w->argmax = l->canvas.argmax;
    w->drawn = l->canvas.drawn;
    w->logprob = l->logprobs.step_logprob;
    w->top_id = l->logprobs.step_top;
    w->top_logprob = l->logprobs.step_top_logprob;
}

void dg_block_loop_prepare(dg_block_loop *l)
{
    if (l->canvas_in_pass)
        dg_canvas_prepare(&l->canvas, &l->cfg.draws);
}

/* The word is the next of those before a thought. */
static bool takes_head(dg_block_loop *l, int32_t token)
{
    bool next = l->n_head_left && token == l->cfg.think_head[l->n_head - l->n_head_left];
    l->n_head_left = next ? l->n_head_left - 1 : 0;
    return next;
}

/* Takes in one more token; true when thoughts have had their tokens. */
static bool thinks_too_long(dg_block_loop *l, int32_t token)
{
    const dg_block_loop_config *cfg = &l->cfg;
    if (token == cfg->think_open) {
        l->in_thought = true;
        l->n_head_left = l->n_head;
        return false;
    }
    if (token == cfg->think_close)
        l->in_thought = false;
    if (!l->in_thought)
        return false;
    l->n_thought += !takes_head(l, token);
    return !l->n_head_left && l->n_thought >= l->think_limit;
}

/* Positions of the canvas, from n_given on, that can be text of the answer: where it fills a gap,
 * those. */
static int text_length(const dg_block_loop *l)
{
    int n = l->canvas.n - l->n_given;
    return l->cfg.infill ? dg_min(l->gap.length, n) : n;
}

/* Reads on up to position `end` of the block: up to the first stop token, the answer's limit, or
 * the end of the thinking budget. True: nothing behind l->n_read counts. */
static bool read_block(dg_block_loop *l, int end)
{
    const dg_canvas *c = &l->canvas;
    const dg_block_loop_config *cfg = &l->cfg;
    int n_text = text_length(l);
    end = dg_min(end - l->n_given, n_text);
    while (l->n_read < end) {
        int32_t token = c->argmax[l->n_given + l->n_read];
        if (is_stop(l, token)) {
            l->end = DG_END_STOP;
            l->stop_token = token;
            l->stop_named = is_named_stop(l, token);
            return true;
        }
        if (l->n_output + l->n_read == cfg->max_tokens) {
            l->end = DG_END_LENGTH;
            return true;
        }
        l->n_read++;
        if (thinks_too_long(l, token)) {
            l->thought_closed = true;
            if (is_stop(l, cfg->think_close)) { /* which is put there now */
                l->end = DG_END_STOP;
                l->stop_token = cfg->think_close;
            }
            return true;
        }
    }
    if (cfg->infill && end == n_text && open_ended(cfg->infill)) {
        l->end = DG_END_LENGTH; /* the canvas is full, and the model has not ended */
    } else if (cfg->infill && end == n_text) {
        l->end = DG_END_STOP;
        l->stop_token = cfg->infill->close >= 0 ? cfg->infill->close : l->model->cfg.pad_token;
    } else if (end == n_text && l->n_output + l->n_read == cfg->max_tokens) {
        l->end = DG_END_LENGTH;
    }
    return end == n_text;
}

/* What was said is encoded with the next pass, at the positions it had as a canvas; behind a
 * thought that was cut, what closes it, as the model learnt it, so that the next canvas begins the
 * answer. */
static void commit_block(dg_block_loop *l)
{
    int n = l->thought_closed ? l->n_block_token : l->canvas.n;
    memcpy(l->pending, l->canvas.argmax, (size_t)n * sizeof *l->pending);
    if (l->thought_closed) {
        if (l->cfg.think_newline >= 0 && l->pending[n - 1] != l->cfg.think_newline)
            l->pending[n++] = l->cfg.think_newline;
        l->pending[n++] = l->cfg.think_close;
    }
    l->n_pending = n;
    l->n_encoded = 0;
    l->n_placed += n;
    if (l->seq.n_token + n >= l->cfg.n_context)
        l->end = DG_END_CONTEXT;
}

/* The model has nothing more to say, and would go on saying it in every block to come. */
static bool is_padding(const dg_block_loop *l)
{
    int n = l->n_given;
    while (n < l->canvas.n && l->canvas.argmax[n] == l->model->cfg.pad_token)
        n++;
    return n == l->canvas.n;
}

/* A text that is whole when its tokens are used up ends like any other, unless the model would have
 * said more. */
static dgemma_status end_guided(dg_block_loop *l, dgemma_error *err)
{
    bool complete;
    dgemma_status st = dg_guide_complete(l->cfg.guide, &complete, err);
    if (st || !complete || !l->end)
        return st;
    bool bounded = dg_guide_bounded(l->cfg.guide);
    if (l->end != DG_END_STOP && !bounded)
        l->stop_token = l->model->cfg.stop_token[0];
    if (l->end == DG_END_STOP && bounded)
        l->end = DG_END_LENGTH;
    else if (!bounded)
        l->end = DG_END_STOP;
    return DGEMMA_OK;
}

static dgemma_status finish_block(dg_block_loop *l, dgemma_error *err)
{
    l->n_block_token = l->n_read;
    l->n_output += l->n_block_token;
    if (l->thought_closed) {
        l->in_thought = false;
        ban_thoughts(l);
    }
    l->block_done = true;
    l->canvas_open = false;
    l->n_block++;
    l->n_converged += l->canvas.converged;
    l->block++;
    if (!l->end)
        commit_block(l);
    if (!l->cfg.guide)
        return DGEMMA_OK;
    dgemma_status st = dg_guide_commit(l->cfg.guide, l->n_read, l->thought_closed, err);
    return st ? st : end_guided(l, err);
}

/* The most probable text of the language takes the place of the most probable tokens. */
static dgemma_status guide_canvas(dg_block_loop *l, dgemma_error *err)
{
    dg_canvas *c = &l->canvas;
    dg_guide_step s = {
        .first = c->settle.n,
        .n = c->n,
        .room = dg_min(l->cfg.max_tokens - l->n_output, l->cfg.n_context - l->seq.n_token),
        .canvas = c->token,
        .accepted = c->step > c->first_step ? c->accepted : NULL,
        .uniform = c->uniform,
        .draw = l->options.draw,
        .argmax = c->argmax,
        .drawn = c->drawn,
        .entropy = c->entropy,
        .forced = c->forced,
        .logprob = l->logprobs.step_logprob,
    };
    return dg_guide_take(l->cfg.guide, &s, err);
}

/* What was read is no text: nothing of it is kept. */
static void take_read(dg_block_loop *l)
{
    if (!l->canvas.finished)
        return;
    dg_read_take(l->cfg.read);
    l->canvas_open = false;
    l->end = DG_END_STOP;
}

/* While the gap's length is looked for, a canvas has a few steps, and the next one another length.
 */
static bool tries_length(dg_block_loop *l)
{
    const dg_canvas *c = &l->canvas;
    l->trying = l->cfg.infill && !l->gap.found;
    if (!l->trying)
        return false;
    if (c->step - c->first_step == DG_GAP_STEPS || c->finished) {
        dg_gap_push(&l->gap, c->pins.n - c->pins.n_agree, c->mean_entropy + c->pins.doubt,
                    dg_infill_seen(l->cfg.infill, c->argmax + l->n_given, l->gap.length));
        l->canvas_open = false;
        l->n_try++;
    }
    return true;
}

dgemma_status dg_block_loop_take(dg_block_loop *l, dgemma_error *err)
{
    dg_canvas *c = &l->canvas;
    const dg_draw_options *draw = l->options.draw;
    l->block_done = false;
    l->n_encoded += l->n_token_in_pass;
    if (!l->canvas_in_pass)
        return DGEMMA_OK;
    dgemma_status st = l->cfg.guide ? guide_canvas(l, err) : DGEMMA_OK;
    if (st)
        return st;
    if (l->cfg.read)
        dg_read_narrow(l->cfg.read, &(dg_read_step){.uniform = c->uniform,
                                                    .entropy = c->entropy,
                                                    .logprob = l->logprobs.step_logprob,
                                                    .argmax = c->argmax,
                                                    .drawn = c->drawn,
                                                    .cold = draw && draw->temperature == 0});
    int n_pinned = c->settle.n;
    dg_canvas_advance(c, &l->cfg.draws);
    dg_logprobs_keep(&l->logprobs, c->entropy, n_pinned, c->n);
    l->n_step++;
    if (l->cfg.guide)
        l->resistance += (double)dg_guide_resistance(l->cfg.guide);
    if (l->cfg.read) {
        take_read(l);
        return DGEMMA_OK;
    }
    if (tries_length(l))
        return DGEMMA_OK;
    l->thought_closed = false;
    if (c->finished && is_padding(l)) {
        l->end = DG_END_STOP;
        l->stop_token = l->model->cfg.pad_token;
        l->stop_named = l->n_read < text_length(l) && is_named_stop(l, l->stop_token);
    } else if (!read_block(l, c->finished ? c->n : c->settle.n)) {
        return DGEMMA_OK;
    }
    if (!c->finished)
        dg_canvas_end(c);
    return finish_block(l, err);
}
