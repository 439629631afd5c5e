#include "openai_response.h"
#include <stdio.h>
#include <string.h>
#include "json_text.h"
#include "schema_check.h"

static bool is_chat(const dg_generation *g)
{
    return g->cfg.dialect == &dg_openai_chat;
}

/* ---- what all objects share ---- */

static const char *finish_reason(const dg_generation *g, const dg_choice *c)
{
    switch (c->stats.end) {
    case DGEMMA_END_LENGTH:
    case DGEMMA_END_CONTEXT:
        return "length";
    default:
        return !json_array_size(c->calls) ? "stop"
               : g->chat.old_functions    ? "function_call"
                                          : "tool_calls";
    }
}

static json_t *usage(const dg_generation *g)
{
    dgemma_stats s;
    dg_generation_stats(g, &s);
    /* a prompt that is answered several times counts once */
    int n = g->chat.n_choice;
    return json_pack("{s:i,s:i,s:i,s:{s:i},s:{s:i}}", "prompt_tokens", s.n_prompt / n,
                     "completion_tokens", s.n_output, "total_tokens", s.n_prompt / n + s.n_output,
                     "prompt_tokens_details", "cached_tokens", s.n_prompt_cached / n,
                     "completion_tokens_details", "reasoning_tokens", s.n_thinking);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* What of a schema answers are not held to. */
static json_t *ignored_keywords(const dgemma_constraint *constraint)
{
    json_t *list = json_array();
    const char *line = dgemma_constraint_ignored(constraint), *end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
        dg_json_add(&list, dg_json_text(line, (size_t)(end - line)));
    return list;
}

/* Which of these, and of what they leave open, the answers violate. */
static void check_calls(json_t **list, const dg_generation *g, const dg_choice *c)
{
    json_t *tools = g->chat.tools ? json_loads(g->chat.tools, 0, NULL) : NULL, *tool, *call;
    size_t i, k;
    json_array_foreach(c->calls, i, call)
    {
        const json_t *made = json_object_get(call, "function");
        const json_t *text = json_object_get(made, "arguments");
        json_t *arguments = json_loads(json_string_value(text), JSON_DECODE_ANY, NULL);
        json_array_foreach(tools, k, tool)
        {
            const json_t *declared = json_object_get(tool, "function");
            char base[64];
            snprintf(base, sizeof base, "/%zu/function/parameters", k);
            if (arguments &&
                json_equal(json_object_get(declared, "name"), json_object_get(made, "name")))
                dg_schema_check(list, json_object_get(declared, "parameters"), arguments, base);
        }
        json_decref(arguments);
    }
    json_decref(tools);
}

static json_t *violated_keywords(const dg_generation *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->n_choice; i++) {
        const dg_choice *c = &g->choices[i];
        json_t *value = g->chat.schema && c->text.len
                            ? json_loadb(c->text.data, c->text.len, JSON_DECODE_ANY, NULL)
                            : NULL;
        if (value)
            dg_schema_check(&list, g->chat.schema, value, "");
        json_decref(value);
        check_calls(&list, g, c);
    }
    return list;
}

static json_t *constraint_timings(const dg_generation *g, const dgemma_stats *s)
{
    json_t *ignored = ignored_keywords(g->chat.constraint);
    bool checks = json_array_size(ignored) > 0;
    json_t *out = json_pack("{s:o,s:b,s:f}", "ignored", ignored, "closed_by_budget",
                            s->end == DGEMMA_END_LENGTH || s->end == DGEMMA_END_CONTEXT,
                            "resistance", (double)s->resistance);
    if (checks)
        dg_json_put(&out, "violated", violated_keywords(g));
    return out;
}

static json_t *diffusion_timings(const dg_generation *g, const dgemma_stats *s)
{
    json_t *out = json_pack(
        "{s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:i,s:I}", "n_blocks", s->n_blocks, "n_steps", s->n_steps,
        "n_converged", s->n_converged, "n_capped", s->n_blocks - s->n_converged, "steps_per_block",
        per(s->n_steps, s->n_blocks), "tokens_per_step", per(s->n_output, s->n_steps),
        "ms_per_step", 1e3 * per(s->denoise_seconds, s->n_steps), "canvas_tokens",
        s->n_blocks * g->chat.options.canvas_length, "seed", (json_int_t)g->chat.options.seed);
    if (g->chat.options.canvas || (g->chat.n_prompt && g->chat.prompts->after))
        dg_json_put(&out, "agreement", json_real((double)s->agreement));
    if (g->chat.constraint)
        dg_json_put(&out, "constraint", constraint_timings(g, s));
    return out;
}

json_t *dg_openai_timings(const dg_generation *g)
{
    dgemma_stats s;
    dg_generation_stats(g, &s);
    int encoded = s.n_prompt - s.n_prompt_cached;
    double prompt_ms = 1e3 * s.prompt_seconds, ms = 1e3 * s.denoise_seconds;
    return json_pack("{s:i,s:i,s:f,s:f,s:f,s:i,s:f,s:f,s:f,s:f,s:f,s:o}", "cache_n",
                     s.n_prompt_cached, "prompt_n", encoded, "prompt_ms", prompt_ms,
                     "prompt_per_token_ms", per(prompt_ms, encoded), "prompt_per_second",
                     per(1e3 * encoded, prompt_ms), "predicted_n", s.n_output, "predicted_ms", ms,
                     "predicted_per_token_ms", per(ms, s.n_output), "predicted_per_second",
                     per(1e3 * s.n_output, ms), "queue_ms", 1e3 * s.queue_seconds, "first_text_ms",
                     1e3 * s.first_text_seconds, "diffusion", diffusion_timings(g, &s));
}

/* {id, object, created, model, system_fingerprint, choices}; takes the choices. */
static json_t *envelope(const dg_generation *g, const char *object, json_t *choices)
{
    json_t *id = json_sprintf("%s-%s", is_chat(g) ? "chatcmpl" : "cmpl", g->cfg.to->id);
    return json_pack("{s:o,s:s,s:I,s:s,s:s,s:o}", "id", id, "object", object, "created",
                     (json_int_t)g->created, "model", g->cfg.model, "system_fingerprint",
                     "dgemma-" DGEMMA_VERSION, "choices", choices);
}

/* ---- log-probabilities ---- */

/* The shape of /v1/completions: parallel lists. */
static json_t *old_logprobs(dg_choice *c)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(),
           *offsets = json_array(), *entry, *top;
    size_t i, k;
    json_array_foreach(c->logprobs, i, entry)
    {
        json_t *best = json_object();
        dg_json_add(&tokens, json_incref(json_object_get(entry, "token")));
        dg_json_add(&values, json_incref(json_object_get(entry, "logprob")));
        json_array_foreach(json_object_get(entry, "top_logprobs"), k, top)
            dg_json_put(&best, json_string_value(json_object_get(top, "token")),
                        json_incref(json_object_get(top, "logprob")));
        dg_json_add(&tops, best);
        dg_json_add(&offsets, json_integer((json_int_t)c->n_text));
        c->n_text += json_string_length(json_object_get(entry, "token"));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", tops, "text_offset", offsets);
}

/* Those that have come since the last time; null when none were asked for or none came. */
static json_t *take_logprobs(const dg_generation *g, dg_choice *c)
{
    if (!g->chat.logprobs || !json_array_size(c->logprobs))
        return json_null();
    json_t *out =
        is_chat(g) ? json_pack("{s:O,s:n}", "content", c->logprobs, "refusal") : old_logprobs(c);
    json_decref(c->logprobs);
    c->logprobs = json_array();
    return out;
}

/* ---- whole answers ---- */

/* Servers disagree on the name of this field, and clients read one or the other. */
static void put_reasoning(json_t **message, json_t *text)
{
    dg_json_put(message, "reasoning", json_incref(text));
    dg_json_put(message, "reasoning_content", text);
}

/* What an answer has beside its text. */
static void put_the_rest(json_t **holder, const dg_generation *g, const dg_choice *c)
{
    if (c->thinking.len && !g->chat.hide_thinking)
        put_reasoning(holder, dg_json_buf(&c->thinking));
    if (!json_array_size(c->calls))
        return;
    if (g->chat.old_functions)
        dg_json_put(holder, "function_call",
                    json_incref(json_object_get(json_array_get(c->calls, 0), "function")));
    else
        dg_json_put(holder, "tool_calls", json_incref(c->calls));
}

static json_t *whole_choice(const dg_generation *g, dg_choice *c)
{
    bool has_calls = json_array_size(c->calls) > 0;
    json_t *text = has_calls && !c->text.len ? json_null() : dg_json_buf(&c->text);
    if (is_chat(g)) {
        json_t *message =
            json_pack("{s:s,s:o,s:n}", "role", "assistant", "content", text, "refusal");
        put_the_rest(&message, g, c);
        return json_pack("{s:i,s:o,s:o,s:s}", "index", c->index, "message", message, "logprobs",
                         take_logprobs(g, c), "finish_reason", finish_reason(g, c));
    }
    json_t *choice = json_pack("{s:i,s:o,s:o,s:s}", "index", c->index, "text",
                               json_is_null(text) ? json_string("") : text, "logprobs",
                               take_logprobs(g, c), "finish_reason", finish_reason(g, c));
    put_the_rest(&choice, g, c);
    return choice;
}

static void reply_whole(dg_generation *g)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < g->n_choice; i++)
        dg_json_add(&choices, whole_choice(g, &g->choices[i]));
    json_t *body = envelope(g, is_chat(g) ? "chat.completion" : "text_completion", choices);
    dg_json_put(&body, "usage", usage(g));
    dg_json_put(&body, "timings", dg_openai_timings(g));
    dg_exchange_reply(g->cfg.to, 200, body);
}

/* ---- streams ---- */

/* A chunk of one choice; takes what it says. `finish` may be NULL, `extra` goes beside choices. */
static void send_chunk(dg_generation *g, dg_choice *c, json_t *delta, const char *finish,
                       const char *extra_name, json_t *extra)
{
    json_t *choice = is_chat(g) ? json_pack("{s:o}", "delta", delta) : delta;
    dg_json_put(&choice, "index", json_integer(c->index));
    dg_json_put(&choice, "logprobs", take_logprobs(g, c));
    dg_json_put(&choice, "finish_reason", finish ? json_string(finish) : json_null());
    json_t *body = envelope(g, is_chat(g) ? "chat.completion.chunk" : "text_completion",
                            json_pack("[o]", choice));
    if (g->chat.include_usage)
        dg_json_put(&body, "usage", json_null());
    if (extra_name)
        dg_json_put(&body, extra_name, extra);
    dg_exchange_event(g->cfg.to, body);
}

static json_t *empty_delta(const dg_generation *g)
{
    return is_chat(g) ? json_object() : json_pack("{s:s}", "text", "");
}

static void begin_stream(dg_generation *g)
{
    for (size_t i = 0; is_chat(g) && i < g->n_choice; i++)
        send_chunk(g, &g->choices[i], json_pack("{s:s,s:s}", "role", "assistant", "content", ""),
                   NULL, NULL, NULL);
}

/* Whole calls: clients that read a call from several chunks disagree on what each must have. */
static json_t *call_delta(const dg_generation *g, const dg_choice *c)
{
    size_t last = json_array_size(c->calls) - 1;
    json_t *call = json_copy(json_array_get(c->calls, last)), *delta = empty_delta(g);
    if (g->chat.old_functions) {
        dg_json_put(&delta, "function_call", json_incref(json_object_get(call, "function")));
        json_decref(call);
        return delta;
    }
    dg_json_put(&call, "index", json_integer((json_int_t)last));
    dg_json_put(&delta, "tool_calls", json_pack("[o]", call));
    return delta;
}

static json_t *text_delta(const dg_generation *g, const dgemma_event *e)
{
    return json_pack("{s:o}", is_chat(g) ? "content" : "text", dg_json_text(e->text, e->text_len));
}

static json_t *token_ids(const dgemma_event *e)
{
    json_t *out = json_array();
    for (size_t i = 0; i < e->n_tokens; i++)
        dg_json_add(&out, json_integer(e->tokens[i]));
    return out;
}

static json_t *marks(const uint8_t *mark, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        dg_json_add(&out, json_integer(mark[i]));
    return out;
}

/* Clients that do not know drafts see a chunk that adds nothing. */
json_t *dg_openai_draft(const dg_generation *g, const dgemma_event *e)
{
    json_t *pieces = json_array(), *entropy = json_array(), *accepted = json_array();
    for (size_t i = 0; i < e->n_tokens; i++) {
        dg_json_add(&pieces, dg_token_text(g->cfg.engine, e->tokens[i], NULL));
        /* four digits are plenty to paint with */
        double nats = e->entropy ? (double)e->entropy[i] : 0;
        dg_json_add(&entropy, json_real((double)(long)(nats * 1e4 + 0.5) / 1e4));
        dg_json_add(&accepted, json_integer(e->accepted ? e->accepted[i] : 0));
    }
    json_t *out = json_pack("{s:s,s:i,s:i,s:i,s:f,s:o,s:o,s:o}", "type", "draft", "block", e->block,
                            "step", e->step, "max_steps", g->chat.options.max_denoise_steps,
                            "mean_entropy", (double)e->mean_entropy, "pieces", pieces, "entropy",
                            entropy, "accepted", accepted);
    if (g->chat.draft_ids)
        dg_json_put(&out, "ids", token_ids(e));
    if (g->chat.constraint)
        dg_json_put(&out, "resistance", json_real((double)e->resistance));
    if (e->pinned)
        dg_json_put(&out, "pinned", marks(e->pinned, e->n_tokens));
    if (e->n_gap)
        dg_json_put(&out, "gap", json_pack("{s:i,s:b}", "length", e->n_gap, "trying", e->trying));
    return out;
}

static void stream_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    json_t *delta;
    bool last = g->n_ended == g->n_choice;
    switch (e->kind) {
    case DGEMMA_EVENT_TEXT:
        send_chunk(g, c, text_delta(g, e), NULL, NULL, NULL);
        break;
    case DGEMMA_EVENT_THINKING:
        if (g->chat.hide_thinking)
            break;
        delta = empty_delta(g);
        put_reasoning(&delta, dg_json_text(e->text, e->text_len));
        send_chunk(g, c, delta, NULL, NULL, NULL);
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        send_chunk(g, c, call_delta(g, c), NULL, NULL, NULL);
        break;
    case DGEMMA_EVENT_DRAFT:
        send_chunk(g, c, empty_delta(g), NULL, "diffusion", dg_openai_draft(g, e));
        break;
    case DGEMMA_EVENT_END:
        send_chunk(g, c, empty_delta(g), finish_reason(g, c), last ? "timings" : NULL,
                   last ? dg_openai_timings(g) : NULL);
        break;
    case DGEMMA_EVENT_READ:
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_BLOCK:
        break;
    }
}

static void end_stream(dg_generation *g)
{
    if (g->chat.include_usage) {
        json_t *body =
            envelope(g, is_chat(g) ? "chat.completion.chunk" : "text_completion", json_array());
        dg_json_put(&body, "usage", usage(g));
        dg_exchange_event(g->cfg.to, body);
    }
    dg_exchange_write(g->cfg.to, "data: [DONE]\n\n", 14);
    dg_exchange_close(g->cfg.to);
}

static void end(dg_generation *g)
{
    (g->chat.stream ? end_stream : reply_whole)(g);
}

void dg_openai_fail(dg_generation *g, const dg_http_error *e)
{
    dg_exchange_event(g->cfg.to, dg_error_object(e));
}

void dg_sse_ping(dg_generation *g)
{
    dg_exchange_write(g->cfg.to, ": ping\n\n", 8);
}

const dg_dialect dg_openai_chat = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = dg_openai_fail,
    .ping = dg_sse_ping,
    .error = dg_error_object,
};

/* The same functions; they ask which of the two they are. */
const dg_dialect dg_openai_completion = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = dg_openai_fail,
    .ping = dg_sse_ping,
    .error = dg_error_object,
};
