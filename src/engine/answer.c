#include "engine/answer.h"
#include <string.h>
#include "base/clock.h"
#include "base/common.h"

/* ---- text on its way out ---- */

static bool send(dg_answer *a, const dgemma_event *event)
{
    if (!dg_stream_push(a->stream, event))
        a->no_memory = true;
    return !a->no_memory;
}

static void note_first_text(dg_answer *a)
{
    if (a->stats.first_text_seconds == 0)
        a->stats.first_text_seconds = dg_clock_now() - a->start;
}

static bool send_text(void *user, const char *text, size_t len)
{
    dg_answer *a = user;
    note_first_text(a);
    return send(a, &(dgemma_event){.kind = DGEMMA_EVENT_TEXT, .text = text, .text_len = len});
}

/* What the parser found. */
static bool on_output(void *user, const dg_output_event *e)
{
    dg_answer *a = user;
    dg_buf copy; /* events carry NUL-terminated text */
    bool ok = true;
    if (e->kind == DG_OUTPUT_TEXT) {
        a->stop_found =
            a->stop_found || dg_stop_strings_push(a->stop, e->text.data, e->text.len, send_text, a);
        return !a->stop_found && !a->no_memory;
    }
    if (e->kind == DG_OUTPUT_END) {
        a->waits_for_tools = e->index > 0;
        return true;
    }
    dg_buf_init(&copy, (size_t)1 << 30);
    note_first_text(a);
    ok = dg_buf_append(&copy, e->text.data, e->text.len) && dg_buf_append(&copy, "", 1) &&
         dg_buf_append(&copy, e->name.data, e->name.len);
    bool call = e->kind == DG_OUTPUT_TOOL_CALL;
    if (call && a->cfg.single_call)
        dg_stop_strings_flush(a->stop, send_text, a); /* no text comes after it */
    if (ok)
        send(a, &(dgemma_event){
                    .kind = call ? DGEMMA_EVENT_TOOL_CALL : DGEMMA_EVENT_THINKING,
                    .text = copy.data,
                    .text_len = e->text.len,
                    .tool_name = call ? copy.data + e->text.len + 1 : NULL,
                    .tool_index = call ? e->index : 0,
                });
    else
        a->no_memory = true;
    dg_buf_clear(&copy);
    if (call && a->cfg.single_call)
        a->stop_found = a->waits_for_tools = true;
    return !a->stop_found && !a->no_memory;
}

/* ---- life cycle ---- */

dgemma_status dg_answer_init(dg_answer *a, const dg_answer_config *cfg, const dg_block_loop *loop,
                             dg_stream *stream, dgemma_error *err)
{
    *a = (dg_answer){.cfg = *cfg, .loop = loop, .stream = stream, .start = dg_clock_now()};
    if (!cfg->tokenizer)
        return DGEMMA_OK;
    dgemma_status st =
        dg_stop_strings_create(&a->stop, (const char *const *)cfg->stop, cfg->n_stop, err);
    if (!st)
        st = dg_output_parser_create(
            &a->parser, cfg->tokenizer,
            &(dg_output_options){.in_thought = cfg->in_thought, .in_text = cfg->in_text}, on_output,
            a, err);
    if (!st && cfg->n_opening)
        st = dg_output_parser_push(a->parser, cfg->opening, cfg->n_opening, err);
    if (st)
        dg_answer_clear(a);
    return st;
}

void dg_answer_clear(dg_answer *a)
{
    dg_output_parser_free(a->parser);
    dg_stop_strings_free(a->stop);
    a->parser = NULL;
    a->stop = NULL;
}

/* ---- passes ---- */

static void tell_progress(dg_answer *a)
{
    int total = a->loop->cfg.n_prompt;
    send(a, &(dgemma_event){.kind = DGEMMA_EVENT_PROMPT,
                            .n_done = dg_min(a->loop->seq.n_token, total),
                            .n_total = total});
}

static void tell_draft(dg_answer *a)
{
    const dg_canvas *c = &a->loop->canvas;
    send(a, &(dgemma_event){
                .kind = DGEMMA_EVENT_DRAFT,
                .block = c->block,
                .step = c->step - 1,
                .tokens = c->argmax,
                .n_tokens = (size_t)c->n,
                .entropy = c->entropy,
                .accepted = c->accepted,
                .mean_entropy = c->mean_entropy,
            });
}

/* Lets the caller's callback look at the step and change the canvas. */
static dgemma_status ask_step(dg_answer *a, dg_block_loop *loop, bool *go_on, dgemma_error *err)
{
    dg_canvas *c = &loop->canvas;
    *go_on = dg_stream_call_begin(a->stream);
    if (!*go_on)
        return DGEMMA_OK;
    *go_on = a->cfg.on_step(a->cfg.step_user, &(dgemma_step){
                                                  .block = c->block,
                                                  .step = c->step - 1,
                                                  .n = c->n,
                                                  .finished = c->finished,
                                                  .canvas = c->token,
                                                  .argmax = c->argmax,
                                                  .entropy = c->entropy,
                                                  .accepted = c->accepted,
                                              });
    dg_stream_call_end(a->stream);
    for (int i = 0; i < c->n; i++)
        if (c->token[i] < 0 || c->token[i] >= loop->model->cfg.n_vocab)
            return dg_fail(err, DGEMMA_E_ARG,
                           "block %d, step %d: the step callback put token %d at position %d",
                           c->block, c->step - 1, (int)c->token[i], i);
    return DGEMMA_OK;
}

static void send_block(dg_answer *a)
{
    const dg_block_loop *r = a->loop;
    const dg_canvas *c = &r->canvas;
    const dg_logprobs *l = &r->logprobs;
    bool top = l->n_top > 0;
    send(a, &(dgemma_event){
                .kind = DGEMMA_EVENT_BLOCK,
                .block = c->block,
                .step = c->step - 1,
                .tokens = c->argmax,
                .n_tokens = (size_t)r->n_read,
                .mean_entropy = c->mean_entropy,
                .converged = c->converged,
                .entropy = l->entropy,
                .logprobs = l->logprob,
                .top_tokens = top ? l->top : NULL,
                .top_logprobs = top ? l->top_logprob : NULL,
                .n_top = l->n_top,
            });
}

/* Hands the block's tokens up to `n` to the parser, from where it was left. */
static dgemma_status tell_tokens(dg_answer *a, int n, dgemma_error *err)
{
    int first = a->n_told;
    a->n_told = n;
    return dg_output_parser_push(a->parser, a->loop->canvas.argmax + first, (size_t)(n - first),
                                 err);
}

/* What has settled of a block that goes on. Where that ends the answer, the block ends with it. */
static dgemma_status tell_settled(dg_answer *a, dgemma_error *err)
{
    if (!a->parser || a->loop->n_read == a->n_told)
        return DGEMMA_OK;
    dgemma_status st = tell_tokens(a, a->loop->n_read, err);
    if (a->stop_found)
        send_block(a);
    return a->stop_found ? DGEMMA_OK : st;
}

static dgemma_status tell_block(dg_answer *a, dgemma_error *err)
{
    const dg_block_loop *r = a->loop;
    send_block(a);
    if (!a->parser)
        return DGEMMA_OK;
    dgemma_status st = tell_tokens(a, r->n_block_token, err);
    a->n_told = 0;
    if (!st && r->thought_closed)
        st = dg_output_parser_push(a->parser, &(int32_t){r->cfg.think_close}, 1, err);
    if (!st && r->end == DG_END_STOP)
        st = dg_output_parser_push(a->parser, &(int32_t){r->stop_token}, 1, err);
    if (!st && r->end)
        st = dg_output_parser_finish(a->parser, err);
    if (!st && r->end && !a->stop_found)
        dg_stop_strings_flush(a->stop, send_text, a);
    return a->stop_found ? DGEMMA_OK
                         : st; /* the parser reports our own wish to stop as cancelled */
}

dgemma_status dg_answer_pass(dg_answer *a, dg_block_loop *loop, double seconds, bool *go_on,
                             dgemma_error *err)
{
    bool prompt = loop->n_token_in_pass > 0 && loop->seq.n_token <= loop->cfg.n_prompt;
    *(loop->canvas_in_pass ? &a->stats.denoise_seconds : &a->stats.prompt_seconds) += seconds;
    *go_on = true;
    if (prompt)
        tell_progress(a);
    if (loop->canvas_in_pass && a->cfg.drafts)
        tell_draft(a);
    dgemma_status st = DGEMMA_OK;
    if (loop->canvas_in_pass && a->cfg.on_step)
        st = ask_step(a, loop, go_on, err);
    if (!st && *go_on && loop->block_done)
        st = tell_block(a, err);
    else if (!st && *go_on && loop->canvas_in_pass)
        st = tell_settled(a, err);
    if (a->no_memory) /* the parser was told to stop, and reports that */
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for the answer's events");
    return st;
}

dgemma_end dg_answer_reason(const dg_answer *a, dgemma_status st, bool cancelled)
{
    if (st)
        return DGEMMA_END_FAILED;
    if (a->stop_found)
        return a->waits_for_tools ? DGEMMA_END_TOOL_CALLS : DGEMMA_END_STOP;
    if (cancelled || !a->loop->end)
        return DGEMMA_END_CANCELLED;
    if (a->loop->end == DG_END_STOP)
        return a->waits_for_tools ? DGEMMA_END_TOOL_CALLS : DGEMMA_END_STOP;
    return a->loop->end == DG_END_LENGTH ? DGEMMA_END_LENGTH : DGEMMA_END_CONTEXT;
}

void dg_answer_end(dg_answer *a, dgemma_status st, const dgemma_error *err, bool cancelled)
{
    const dg_block_loop *r = a->loop;
    a->stats.end = dg_answer_reason(a, st, cancelled);
    a->stats.stop_string = a->stop ? dg_stop_strings_found(a->stop) : 0;
    a->stats.n_prompt = r->cfg.n_prompt;
    a->stats.n_output = r->n_output + (r->canvas_open ? r->n_read : 0);
    a->stats.n_thinking = r->n_thought;
    a->stats.n_blocks = r->n_block + (r->canvas_open && r->n_read);
    a->stats.n_converged = r->n_converged;
    a->stats.n_steps = r->n_step;
    a->stats.kv_bytes = r->kv ? dg_kv_seq_bytes(r->kv, &r->seq) : 0;
    dg_stream_push(a->stream, &(dgemma_event){
                                  .kind = DGEMMA_EVENT_END,
                                  .status = st,
                                  .text = st ? err->msg : NULL,
                                  .text_len = st ? strlen(err->msg) : 0,
                                  .stats = a->stats,
                              });
}
