#include "generation.h"
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "json_text.h"

enum { MAX_TEXT = 64 << 20 };

/* ---- life cycle ---- */

static bool choice_init(dg_choice *c, int index)
{
    *c = (dg_choice){.index = index, .calls = json_array(), .logprobs = json_array()};
    dg_buf_init(&c->text, MAX_TEXT);
    dg_buf_init(&c->thinking, MAX_TEXT);
    return c->calls && c->logprobs;
}

void dg_generation_free(dg_generation *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_choice; i++) {
        dg_choice *c = &g->choices[i];
        dgemma_request_free(c->request);
        dg_buf_clear(&c->text);
        dg_buf_clear(&c->thinking);
        json_decref(c->calls);
        json_decref(c->logprobs);
    }
    for (size_t i = 0; i < g->n_prompt; i++)
        dgemma_prompt_free(g->prompts[i]);
    dg_free(g->prompts);
    dg_free(g->choices);
    json_decref(g->place.items);
    dg_chat_clear(&g->chat);
    dg_free(g);
}

/* What is around the gap that prompt number i is to fill, if it is one. */
static void set_gap(const dg_generation *g, size_t i, dgemma_request_options *o)
{
    if (!g->chat.n_prompt || !g->chat.prompts[i].after)
        return;
    o->answer_prefix = g->chat.prompts[i].before;
    o->passage = g->chat.prompts[i].passage;
    o->suffix = g->chat.prompts[i].after;
}

/* Rendered, tokenised and read once, for all choices. */
static bool make_prompts(dg_generation *g, size_t n, dg_http_error *e)
{
    g->prompts = dg_calloc(n + 1, sizeof *g->prompts); /* there may be none */
    if (!g->prompts)
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    while (g->n_prompt < n) {
        dgemma_request_options o = g->chat.options;
        dgemma_error err = {0};
        if (g->chat.n_prompt) {
            const dg_raw_prompt *p = &g->chat.prompts[g->n_prompt];
            o.raw_prompt = p->text;
            o.tokens = p->tokens;
            o.n_tokens = p->n_token;
        }
        if (!g->chat.n_prompt || g->chat.prompts->after)
            o.messages = g->chat.messages;
        set_gap(g, g->n_prompt, &o);
        if (dgemma_prompt_create(&g->prompts[g->n_prompt], g->cfg.engine, &o, &err))
            return dg_refuse_status(e, &err, g->chat.n_prompt ? "prompt" : "messages");
        g->n_prompt++;
    }
    return true;
}

static bool submit(dg_generation *g, dg_choice *c, dg_http_error *e)
{
    dgemma_request_options o = g->chat.options;
    dgemma_error err = {0};
    c->seed = o.seed + (uint64_t)c->index; /* every choice has one of its own */
    c->submitted = dg_clock_now();
    o.seed = c->seed;
    set_gap(g, (size_t)(c->index / g->chat.n_choice), &o);
    o.prompt = g->prompts[c->index / g->chat.n_choice];
    o.read = g->chat.reads ? &g->chat.read : NULL;
    if (dgemma_request_submit(&c->request, g->cfg.engine, &o, &err))
        return dg_refuse_status(e, &err, g->chat.n_prompt ? "prompt" : "messages");
    dgemma_request_notify(c->request, g->cfg.notify, g->cfg.notify_user);
    return true;
}

bool dg_generation_start(dg_generation **out, const dg_generation_setup *cfg, dg_chat *chat,
                         dg_http_error *e)
{
    size_t n_prompt = chat->n_prompt ? chat->n_prompt : 1, n = (size_t)chat->n_choice * n_prompt;
    dg_generation *g = dg_calloc(1, sizeof *g);
    *out = g;
    if (!g) {
        dg_chat_clear(chat);
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    }
    *g = (dg_generation){
        .cfg = *cfg, .chat = *chat, .created = (long long)time(NULL), .started = dg_clock_now()};
    *chat = (dg_chat){0};
    g->choices = dg_calloc(n + 1, sizeof *g->choices); /* there may be none */
    bool ok = g->choices != NULL;
    while (ok && g->n_choice < n) {
        ok = choice_init(&g->choices[g->n_choice], (int)g->n_choice);
        g->n_choice++;
    }
    if (!ok)
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    ok = ok && dg_adapters_choose(&g->adapters, g->chat.root, cfg->engine, cfg->model, e);
    if (ok) {
        g->cfg.model = g->adapters.model;
        g->chat.options.adapters = g->adapters.use;
        g->chat.options.n_adapters = g->adapters.n;
    }
    ok = ok && make_prompts(g, n_prompt, e);
    dg_chat_forget_prompt(&g->chat);
    for (size_t i = 0; ok && i < g->n_choice; i++)
        ok = submit(g, &g->choices[i], e);
    if (!ok) {
        dg_generation_cancel(g, NULL); /* what was submitted has to end first */
        return false;
    }
    if (g->chat.stream) {
        dg_exchange_open(cfg->to, cfg->dialect->content_type);
        cfg->dialect->begin(g);
    }
    return true;
}

/* ---- failing ---- */

static void fail(dg_generation *g, const dg_http_error *e)
{
    if (g->over)
        return;
    g->over = true;
    if (g->chat.stream) {
        g->cfg.dialect->fail(g, e);
        dg_exchange_close(g->cfg.to);
    } else {
        dg_exchange_refuse(g->cfg.to, e);
    }
}

void dg_generation_cancel(dg_generation *g, const dg_http_error *why)
{
    if (why)
        fail(g, why);
    g->over = true;
    for (size_t i = 0; i < g->n_choice; i++)
        if (g->choices[i].request)
            dgemma_request_cancel(g->choices[i].request);
}

void dg_generation_ping(dg_generation *g)
{
    if (g->chat.stream && !g->over)
        g->cfg.dialect->ping(g);
}

/* ---- events ---- */

json_t *dg_token_text(const dgemma_engine *engine, int32_t id, json_t **bytes)
{
    char *text = NULL;
    size_t len = 0;
    dgemma_status st = dgemma_detokenize(engine, &id, 1, &text, &len, NULL);
    if (st && st != DGEMMA_E_UNSUPPORTED) /* a model without a tokenizer has no texts */
        return NULL;
    for (size_t i = 0; bytes && i < len; i++)
        dg_json_add(bytes, json_integer((unsigned char)text[i]));
    json_t *out = dg_json_text(text ? text : "", len);
    dgemma_free(text);
    return out;
}

static json_t *logprob_entry(dg_generation *g, int32_t id, float logprob)
{
    json_t *bytes = json_array(), *text = dg_token_text(g->cfg.engine, id, &bytes);
    if (g->chat.tokens_as_ids) {
        json_decref(text);
        text = json_sprintf("token_id:%d", (int)id);
    }
    return json_pack("{s:o,s:f,s:o}", "token", text, "logprob", (double)logprob, "bytes", bytes);
}

/* Where ids were asked for, each position's own token comes before them, as in vLLM. */
static bool wants_own(const dg_generation *g)
{
    return g->chat.reads && g->chat.read.n_ids;
}

/* Log-probabilities of a block, or of a canvas that was read, in OpenAI's form, with what a
 * diffusion model adds. */
static bool keep_logprobs(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    bool own = wants_own(g);
    size_t n = e->n_tokens + e->stop_token;
    for (size_t i = 0; e->logprobs && i < n; i++) {
        json_t *entry = logprob_entry(g, e->tokens[i], e->logprobs[i]);
        json_t *top = json_array();
        if (own)
            dg_json_add(&top, logprob_entry(g, e->tokens[i], e->logprobs[i]));
        for (int k = 0; e->top_tokens && k < e->n_top; k++) {
            size_t at = i * (size_t)e->n_top + (size_t)k;
            if (!own || e->top_tokens[at] != e->tokens[i])
                dg_json_add(&top, logprob_entry(g, e->top_tokens[at], e->top_logprobs[at]));
        }
        dg_json_put(&entry, "top_logprobs", top);
        if (e->entropy)
            dg_json_put(&entry, "entropy", json_real((double)e->entropy[i]));
        dg_json_add(&c->logprobs, entry);
    }
    return c->logprobs != NULL;
}

/* What a canvas said: its most likely tokens as text, and what was asked of each position. */
static bool keep_read(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    char *text = NULL;
    size_t len = 0;
    if (dgemma_detokenize(g->cfg.engine, e->tokens, e->n_tokens, &text, &len, NULL))
        return false;
    bool ok = dg_buf_append(&c->text, text, len);
    dgemma_free(text);
    return ok && (!g->chat.logprobs || keep_logprobs(g, c, e));
}

static bool keep_call(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    json_t *id = json_sprintf("call_%s_%d_%d", g->cfg.to->id, c->index, e->tool_index);
    return json_array_append_new(c->calls,
                                 json_pack("{s:o,s:s,s:{s:o,s:o}}", "id", id, "type", "function",
                                           "function", "name",
                                           dg_json_text(e->tool_name, strlen(e->tool_name)),
                                           "arguments", dg_json_text(e->text, e->text_len))) == 0;
}

/* Adds the event to what is known of the choice; false: out of memory. */
static bool keep(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    switch (e->kind) {
    case DGEMMA_EVENT_BLOCK:
        dg_metrics_block(g->cfg.metrics, e);
        return !g->chat.logprobs || keep_logprobs(g, c, e);
    case DGEMMA_EVENT_THINKING:
        return dg_buf_append(&c->thinking, e->text, e->text_len);
    case DGEMMA_EVENT_TEXT:
        return dg_buf_append(&c->text, e->text, e->text_len);
    case DGEMMA_EVENT_TOOL_CALL:
        return keep_call(g, c, e);
    case DGEMMA_EVENT_READ:
        return keep_read(g, c, e);
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_DRAFT:
    case DGEMMA_EVENT_END:
        break;
    }
    return true;
}

static void tell(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    if (e->kind == DGEMMA_EVENT_DRAFT && dg_exchange_crowded(g->cfg.to))
        return;
    if (!g->chat.stream || g->over)
        return;
    g->cfg.dialect->event(g, c, e);
}

static void add_stats(dgemma_stats *sum, const dgemma_stats *s)
{
    sum->n_prompt_cached += s->n_prompt_cached;
    sum->n_prompt += s->n_prompt;
    sum->n_output += s->n_output;
    sum->n_thinking += s->n_thinking;
    sum->n_pictures += s->n_pictures;
    sum->n_pictures_encoded += s->n_pictures_encoded;
    sum->n_blocks += s->n_blocks;
    sum->n_converged += s->n_converged;
    sum->n_steps += s->n_steps;
    sum->n_tries += s->n_tries;
    sum->agreement = s->agreement;
    if (s->n_steps) /* its mean; n_steps has them already */
        sum->resistance +=
            (s->resistance - sum->resistance) * (float)s->n_steps / (float)sum->n_steps;
    sum->n_positions += s->n_positions;
    sum->queue_seconds += s->queue_seconds;
    sum->prompt_seconds += s->prompt_seconds;
    sum->denoise_seconds += s->denoise_seconds;
    sum->first_text_seconds += s->first_text_seconds;
    sum->kv_bytes += s->kv_bytes;
    sum->end = s->end;
    sum->stop_string = s->stop_string;
}

void dg_generation_stats(const dg_generation *g, dgemma_stats *sum)
{
    *sum = (dgemma_stats){0};
    for (size_t i = 0; i < g->n_choice; i++)
        add_stats(sum, &g->choices[i].stats);
}

/* ---- the end of a choice ---- */

static void fail_choice(dg_generation *g, const dgemma_event *e)
{
    dg_http_error why;
    dgemma_error err = {.status = e->status ? e->status : DGEMMA_E_INTERNAL};
    if (e->text)
        strncpy(err.msg, e->text, sizeof err.msg - 1);
    else
        strcpy(err.msg, "the answer was cancelled");
    dg_refuse_status(&why, &err, g->chat.n_prompt ? "prompt" : "messages");
    dg_generation_cancel(g, &why);
}

static void end_choice(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    dgemma_request *done = c->request; /* the event lives in it */
    c->request = NULL;
    dg_metrics_request(g->cfg.metrics, &e->stats, dg_clock_now() - c->submitted);
    c->stats = e->stats;
    if (g->over)
        ;
    else if (e->status || e->stats.end == DGEMMA_END_CANCELLED)
        fail_choice(g, e);
    else {
        g->n_ended++;
        tell(g, c, e);
    }
    dgemma_request_free(done);
}

static void fail_for_memory(dg_generation *g)
{
    dg_http_error why;
    dg_refuse(&why, 503, "out_of_memory", NULL, "out of memory for the answer");
    dg_generation_cancel(g, &why);
}

static void take(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    if (!g->over && !keep(g, c, e))
        fail_for_memory(g);
    if (e->kind == DGEMMA_EVENT_END)
        end_choice(g, c, e);
    else
        tell(g, c, e);
}

/* A call where there are no tools, as text that a reader understands. Where there are some, the
 * constraint lets only these be called. */
static void take_call_as_text(dg_generation *g, dg_choice *c, const dgemma_event *call)
{
    json_t *name = dg_json_text(call->tool_name, strlen(call->tool_name));
    char *quoted = dg_json_dump(name, NULL);
    dg_buf text;
    dg_buf_init(&text, MAX_TEXT);
    bool ok = quoted && dg_buf_puts(&text, c->text.len ? "\n{\"name\": " : "{\"name\": ") &&
              dg_buf_puts(&text, quoted) && dg_buf_puts(&text, ", \"arguments\": ") &&
              dg_buf_append(&text, call->text, call->text_len) && dg_buf_puts(&text, "}");
    dgemma_event e = {.kind = DGEMMA_EVENT_TEXT, .text = text.data, .text_len = text.len};
    if (ok)
        take(g, c, &e);
    else
        fail_for_memory(g);
    dg_buf_clear(&text);
    dg_free(quoted);
    json_decref(name);
}

bool dg_generation_advance(dg_generation *g)
{
    size_t n_running = 0;
    for (size_t i = 0; i < g->n_choice; i++) {
        dg_choice *c = &g->choices[i];
        dgemma_event e;
        while (c->request && dgemma_request_wait(c->request, &e, 0))
            if (e.kind == DGEMMA_EVENT_TOOL_CALL && !g->chat.tools)
                take_call_as_text(g, c, &e);
            else
                take(g, c, &e);
    }
    for (size_t i = 0; i < g->n_choice; i++)
        n_running += g->choices[i].request != NULL;
    return n_running == 0;
}

void dg_generation_end(dg_generation *g)
{
    if (!g->over)
        g->cfg.dialect->end(g);
    g->over = true;
}
