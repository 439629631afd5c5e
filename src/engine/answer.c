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

static void send_run(dg_answer *a)
{
    bool thought = a->run_kind == DG_OUTPUT_THINKING;
    if (a->run.len)
        send(a, &(dgemma_event){.kind = thought ? DGEMMA_EVENT_THINKING : DGEMMA_EVENT_TEXT,
                                .text = a->run.data,
                                .text_len = a->run.len,
                                .broken_call = a->run_kind == DG_OUTPUT_BROKEN_CALL});
    a->run.len = 0;
}

static void add_to_run(dg_answer *a, dg_output_kind kind, const char *text, size_t len)
{
    note_first_text(a);
    if (a->run_kind != kind)
        send_run(a);
    a->run_kind = kind;
    if (!dg_buf_append(&a->run, text, len))
        a->no_memory = true;
}

static bool add_text(void *user, const char *text, size_t len)
{
    dg_answer *a = user;
    add_to_run(a, DG_OUTPUT_TEXT, text, len);
    return !a->no_memory;
}

/* Blanks that were taken off the prompt's end, for the model writes them with the next word, are
 * not sent again. */
static void drop_blanks(dg_answer *a, dg_text *text)
{
    for (; a->n_blank && text->len; text->data++, text->len--, a->n_blank--)
        if (*text->data != ' ') {
            a->n_blank = 0;
            return;
        }
}

static void push_text(dg_answer *a, dg_text text)
{
    drop_blanks(a, &text);
    if (!dg_stop_strings_push(a->stop, text.data, text.len, add_text, a))
        a->no_memory = true;
    a->stop_found = dg_stop_strings_found(a->stop);
}

/* No stop string goes on behind what comes now. */
static void end_text(dg_answer *a)
{
    dg_stop_strings_flush(a->stop, add_text, a);
    a->stop_found = dg_stop_strings_found(a->stop);
}

static void send_call(dg_answer *a, const dg_output_event *e)
{
    dg_buf copy; /* events carry NUL-terminated text */
    dg_buf_init(&copy, (size_t)1 << 30);
    note_first_text(a);
    send_run(a);
    if (dg_buf_append(&copy, e->text.data, e->text.len) && dg_buf_append(&copy, "", 1) &&
        dg_buf_append(&copy, e->name.data, e->name.len))
        send(a, &(dgemma_event){
                    .kind = DGEMMA_EVENT_TOOL_CALL,
                    .text = copy.data,
                    .text_len = e->text.len,
                    .tool_name = copy.data + e->text.len + 1,
                    .tool_index = e->index,
                });
    else
        a->no_memory = true;
    dg_buf_clear(&copy);
    if (a->cfg.single_call)
        a->stop_found = a->waits_for_tools = true;
}

/* What the parser found. */
static bool on_output(void *user, const dg_output_event *e)
{
    dg_answer *a = user;
    if (e->kind == DG_OUTPUT_TEXT)
        push_text(a, e->text);
    else
        end_text(a);
    if (a->stop_found || a->no_memory)
        return false;
    if (e->kind == DG_OUTPUT_THINKING || e->kind == DG_OUTPUT_BROKEN_CALL)
        add_to_run(a, e->kind, e->text.data, e->text.len);
    else if (e->kind == DG_OUTPUT_TOOL_CALL)
        send_call(a, e);
    else if (e->kind == DG_OUTPUT_END)
        a->waits_for_tools = e->index > 0;
    return !a->stop_found && !a->no_memory;
}

/* ---- life cycle ---- */

dgemma_status dg_answer_init(dg_answer *a, const dg_answer_config *cfg, const dg_block_loop *loop,
                             dg_stream *stream, dgemma_error *err)
{
    *a = (dg_answer){.cfg = *cfg,
                     .loop = loop,
                     .stream = stream,
                     .start = dg_clock_now(),
                     .n_blank = cfg->n_blank};
    dg_buf_init(&a->run, (size_t)1 << 30);
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
        st = dg_output_parser_open(a->parser, cfg->opening, cfg->n_opening, err);
    if (st)
        dg_answer_clear(a);
    return st;
}

void dg_answer_clear(dg_answer *a)
{
    dg_output_parser_free(a->parser);
    dg_stop_strings_free(a->stop);
    dg_buf_clear(&a->run);
    a->parser = NULL;
    a->stop = NULL;
}

/* ---- passes ---- */

static void tell_progress(dg_answer *a)
{
    send(a, &(dgemma_event){.kind = DGEMMA_EVENT_PROMPT,
                            .n_done = a->loop->seq.n_token,
                            .n_total = a->loop->cfg.n_prompt});
}

/* A canvas is told from where the answer's text begins. */
static void tell_draft(dg_answer *a)
{
    const dg_canvas *c = &a->loop->canvas;
    int first = a->loop->n_given;
    const dg_guide *guide = a->loop->cfg.guide;
    send(a, &(dgemma_event){
                .kind = DGEMMA_EVENT_DRAFT,
                .block = c->block,
                .step = c->step - 1,
                .tokens = c->argmax + first,
                .n_tokens = (size_t)(c->n - first),
                .entropy = c->entropy + first,
                .accepted = c->accepted + first,
                .pinned = c->pins.n ? c->pins.at + first : NULL,
                .n_gap = a->loop->cfg.infill ? c->n - c->pins.n : 0,
                .trying = a->loop->trying,
                .mean_entropy = c->mean_entropy,
                .resistance = guide ? dg_guide_resistance(guide) : 0,
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

/* The block with its first n tokens. */
static dgemma_event block_event(const dg_answer *a, int n)
{
    const dg_block_loop *r = a->loop;
    const dg_canvas *c = &r->canvas;
    const dg_logprobs *l = &r->logprobs;
    bool top = l->n_top > 0;
    size_t first = (size_t)r->n_given;
    return (dgemma_event){
        .kind = DGEMMA_EVENT_BLOCK,
        .seconds = a->block_seconds,
        .n_canvas = c->n,
        .block = c->block,
        .step = c->step - 1,
        .tokens = c->argmax + r->n_given,
        .n_tokens = (size_t)n,
        .mean_entropy = c->mean_entropy,
        .converged = c->converged,
        .entropy = l->entropy ? l->entropy + first : NULL,
        .logprobs = l->logprob ? l->logprob + first : NULL,
        .top_tokens = top ? l->top + first * (size_t)l->n_top : NULL,
        .top_logprobs = top ? l->top_logprob + first * (size_t)l->n_top : NULL,
        .n_top = l->n_top,
    };
}

/* Hands the block's tokens up to `n` to the parser, from where it was left, one by one: where a
 * stop string ends the answer, those behind it are not part of it. */
static dgemma_status tell_tokens(dg_answer *a, int n, dgemma_error *err)
{
    const int32_t *text = a->loop->canvas.argmax + a->loop->n_given;
    dgemma_status st = DGEMMA_OK;
    while (!st && a->n_told < n)
        st = dg_output_parser_push(a->parser, &text[a->n_told++], 1, err);
    return st;
}

/* Sends what the tokens said, of which the block had n: the block first, if it is over, or if the
 * answer ended in it. */
static void deliver(dg_answer *a, int n, bool over)
{
    int n_kept = a->stop_found ? a->n_told : n;
    dgemma_event block = block_event(a, n_kept);
    block.stop_token = !a->stop_found && a->loop->end == DG_END_STOP && a->loop->stop_named;
    send_run(a);
    if (!dg_stream_deliver(a->stream, over || a->stop_found ? &block : NULL))
        a->no_memory = true;
    a->n_behind = n - n_kept;
    if (over) {
        a->n_told = 0;
        a->block_seconds = 0;
    }
}

/* What has settled of a block that goes on. Where that ends the answer, the block ends with it. */
static dgemma_status tell_settled(dg_answer *a, dgemma_error *err)
{
    if (!a->parser || a->loop->n_read == a->n_told)
        return DGEMMA_OK;
    dg_stream_gather(a->stream);
    dgemma_status st = tell_tokens(a, a->loop->n_read, err);
    deliver(a, a->loop->n_read, false);
    return a->stop_found ? DGEMMA_OK : st;
}

/* The answer was ended by a token that the request has named and that would be text. */
static bool ended_by_word(const dg_answer *a)
{
    const dg_tokenizer *t = a->cfg.tokenizer;
    int32_t id = a->loop->stop_token;
    return a->loop->stop_named &&
           (!dg_tokenizer_is_special(t, id) || id == dg_tokenizer_added_id(t, "<|\"|>"));
}

static dgemma_status tell_block(dg_answer *a, dgemma_error *err)
{
    const dg_block_loop *r = a->loop;
    dgemma_status st = DGEMMA_OK;
    dg_stream_gather(a->stream);
    if (a->parser)
        st = tell_tokens(a, r->n_block_token, err);
    if (a->parser && !st && r->thought_closed)
        st = dg_output_parser_push(a->parser, &(int32_t){r->cfg.think_close}, 1, err);
    if (a->parser && !st && r->end == DG_END_STOP && !ended_by_word(a))
        st = dg_output_parser_push(a->parser, &(int32_t){r->stop_token}, 1, err);
    if (a->parser && !st && r->end)
        st = dg_output_parser_finish(a->parser, err); /* its END event gives out all text */
    deliver(a, r->n_block_token, true);
    return a->stop_found ? DGEMMA_OK
                         : st; /* the parser reports our own wish to stop as cancelled */
}

/* What was read of a canvas. */
static void tell_read(dg_answer *a)
{
    const dg_canvas *c = &a->loop->canvas;
    const dg_read *r = a->loop->cfg.read;
    const dg_logprobs *l = &a->loop->logprobs;
    send(a, &(dgemma_event){
                .kind = DGEMMA_EVENT_READ,
                .step = c->step - 1,
                .tokens = c->argmax,
                .n_tokens = (size_t)c->n,
                .entropy = c->entropy,
                .mean_entropy = c->mean_entropy,
                .logprobs = l->logprob,
                .top_tokens = r->n_id ? r->id : l->top,
                .top_logprobs = r->n_id ? r->logprob : l->top_logprob,
                .n_top = r->n_id ? r->n_id : l->n_top,
            });
}

/* A short prompt goes in the pass that makes the first step: each has its part, by rows. */
static void count_time(dg_answer *a, const dg_block_loop *loop, int n_prompt, double seconds)
{
    int n_canvas = loop->canvas_in_pass ? loop->canvas.n : 0;
    double prompt = n_prompt ? seconds * n_prompt / (n_prompt + n_canvas) : 0;
    a->stats.n_positions += (uint64_t)n_canvas;
    a->stats.prompt_seconds += prompt;
    a->stats.denoise_seconds += seconds - prompt;
    a->block_seconds += seconds - prompt;
}

dgemma_status dg_answer_pass(dg_answer *a, dg_block_loop *loop, double seconds, bool *go_on,
                             dgemma_error *err)
{
    bool prompt = loop->n_token_in_pass > 0 && loop->seq.n_token <= loop->cfg.n_prompt;
    count_time(a, loop, prompt ? loop->n_token_in_pass : 0, seconds);
    *go_on = true;
    if (prompt)
        tell_progress(a);
    if (loop->canvas_in_pass && a->cfg.drafts)
        tell_draft(a);
    dgemma_status st = DGEMMA_OK;
    if (loop->canvas_in_pass && a->cfg.on_step)
        st = ask_step(a, loop, go_on, err);
    if (!st && *go_on && loop->cfg.read && loop->end)
        tell_read(a);
    else if (!st && *go_on && loop->block_done)
        st = tell_block(a, err);
    else if (!st && *go_on && loop->canvas_in_pass && !loop->cfg.read)
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

static float agreement(const dg_block_loop *r)
{
    const dg_pins *p = &r->canvas.pins;
    if (r->cfg.infill)
        return dg_infill_agreement(r->cfg.infill, p);
    return p->n ? (float)p->n_agree / (float)p->n : 1;
}

void dg_answer_end(dg_answer *a, dgemma_status st, const dgemma_error *err, bool cancelled)
{
    const dg_block_loop *r = a->loop;
    a->stats.end = dg_answer_reason(a, st, cancelled);
    a->stats.stop_string = a->stop ? dg_stop_strings_found(a->stop) : 0;
    a->stats.n_prompt = r->cfg.n_prompt + r->n_given;
    a->stats.n_output = r->n_output + (r->canvas_open ? r->n_read : 0) - a->n_behind;
    a->stats.n_thinking = dg_min(r->n_thought, a->stats.n_output);
    a->stats.n_blocks = r->n_block + (r->canvas_open && r->n_read);
    a->stats.n_converged = r->n_converged;
    a->stats.n_steps = r->n_step;
    a->stats.n_tries = r->n_try;
    a->stats.agreement = agreement(r);
    a->stats.resistance = r->n_step ? (float)(r->resistance / r->n_step) : 0;
    a->stats.kv_bytes = r->kv ? dg_kv_seq_bytes(r->kv, &r->seq) : 0;
    dg_stream_push(a->stream, &(dgemma_event){
                                  .kind = DGEMMA_EVENT_END,
                                  .status = st,
                                  .text = st ? err->msg : NULL,
                                  .text_len = st ? strlen(err->msg) : 0,
                                  .stats = a->stats,
                              });
}
