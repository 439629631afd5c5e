#include "anthropic_response.h"
#include <string.h>
#include "json_body.h"
#include "json_text.h"

/* ---- what whole answers and streams share ---- */

static const char *stop_reason(const dg_choice *c)
{
    switch (c->stats.end) {
    case DGEMMA_END_LENGTH:
        return "max_tokens";
    case DGEMMA_END_CONTEXT:
        return "model_context_window_exceeded";
    default:
        return json_array_size(c->calls)  ? "tool_use"
               : c->stats.stop_string > 0 ? "stop_sequence"
                                          : "end_turn";
    }
}

static json_t *stop_sequence(const dg_generation *g, const dg_choice *c)
{
    return strcmp(stop_reason(c), "stop_sequence")
               ? json_null()
               : json_string(g->chat.stop[c->stats.stop_string - 1]);
}

/* Tokens from the cache are not counted among the input. */
static json_t *usage(const dgemma_stats *s)
{
    return json_pack("{s:i,s:i,s:i,s:i}", "input_tokens", s->n_prompt - s->n_prompt_cached,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens",
                     s->n_prompt_cached, "output_tokens", s->n_output);
}

/* Takes the content. */
static json_t *message(const dg_generation *g, json_t *content, const dgemma_stats *s)
{
    return json_pack("{s:o,s:s,s:s,s:s,s:o,s:n,s:n,s:o}", "id",
                     json_sprintf("msg_%s", g->cfg.to->id), "type", "message", "role", "assistant",
                     "model", g->cfg.model, "content", content, "stop_reason", "stop_sequence",
                     "usage", usage(s));
}

/* Thoughts come signed, and clients send signatures back; nothing hangs on them here. */
static json_t *signature(const dg_generation *g)
{
    return json_sprintf("sig_%s", g->cfg.to->id);
}

/* Takes the input. */
static json_t *call_block(const json_t *call, json_t *input)
{
    return json_pack("{s:s,s:O,s:O,s:o}", "type", "tool_use", "id", json_object_get(call, "id"),
                     "name", json_object_get(json_object_get(call, "function"), "name"), "input",
                     input);
}

static json_t *arguments_of(const json_t *call)
{
    return json_object_get(json_object_get(call, "function"), "arguments");
}

/* ---- whole answers ---- */

/* The engine writes arguments as JSON: NULL is memory that is out. */
static json_t *parsed(const json_t *text)
{
    return dg_json_load(json_string_value(text), json_string_length(text), NULL);
}

static void reply_whole(dg_generation *g)
{
    dg_choice *c = &g->choices[0];
    json_t *content = json_array(), *call;
    size_t i;
    if (c->thinking.len && !g->chat.hide_thinking)
        dg_json_add(&content, json_pack("{s:s,s:o,s:o}", "type", "thinking", "thinking",
                                        dg_json_text(c->thinking.data, c->thinking.len),
                                        "signature", signature(g)));
    if (c->text.len)
        dg_json_add(&content, json_pack("{s:s,s:o}", "type", "text", "text",
                                        dg_json_text(c->text.data, c->text.len)));
    json_array_foreach(c->calls, i, call)
        dg_json_add(&content, call_block(call, parsed(arguments_of(call))));
    json_t *body = message(g, content, &c->stats);
    dg_json_put(&body, "stop_reason", json_string(stop_reason(c)));
    dg_json_put(&body, "stop_sequence", stop_sequence(g, c));
    dg_exchange_reply(g->cfg.to, 200, body);
}

/* ---- streams ---- */

/* Takes the body, which has its type in it. */
static void send_event(dg_generation *g, json_t *body)
{
    const char *type = json_string_value(json_object_get(body, "type"));
    g->place.n_event++;
    dg_exchange_named_event(g->cfg.to, type ? type : "error", body);
}

/* The message begins with the first event, which knows how long the prompt is. */
static void begin_message(dg_generation *g, const dgemma_event *e)
{
    dgemma_stats s = {.n_prompt = e->n_total};
    if (!g->place.n_event)
        send_event(g, json_pack("{s:s,s:o}", "type", "message_start", "message",
                                message(g, json_array(), &s)));
}

static void begin_block(dg_generation *g, json_t *block)
{
    send_event(g, json_pack("{s:s,s:i,s:o}", "type", "content_block_start", "index",
                            g->place.n_item, "content_block", block));
}

static void send_delta(dg_generation *g, const char *type, const char *name, json_t *text)
{
    send_event(g, json_pack("{s:s,s:i,s:{s:s,s:o}}", "type", "content_block_delta", "index",
                            g->place.n_item, "delta", "type", type, name, text));
}

static void end_block(dg_generation *g)
{
    send_event(g, json_pack("{s:s,s:i}", "type", "content_block_stop", "index", g->place.n_item));
    g->place.n_item++;
}

/* Ends the block of text or thought that is being written, if there is one. */
static void close_open(dg_generation *g)
{
    if (g->place.open == DGEMMA_EVENT_THINKING)
        send_delta(g, "signature_delta", "signature", signature(g));
    if (g->place.open)
        end_block(g);
    g->place.open = 0;
}

static void send_text(dg_generation *g, const dgemma_event *e)
{
    bool thought = e->kind == DGEMMA_EVENT_THINKING;
    if (g->place.open != e->kind) {
        close_open(g);
        begin_block(g, thought ? json_pack("{s:s,s:s,s:s}", "type", "thinking", "thinking", "",
                                           "signature", "")
                               : json_pack("{s:s,s:s}", "type", "text", "text", ""));
        g->place.open = e->kind;
    }
    send_delta(g, thought ? "thinking_delta" : "text_delta", thought ? "thinking" : "text",
               dg_json_text(e->text, e->text_len));
}

static void send_call(dg_generation *g, const dg_choice *c)
{
    const json_t *call = json_array_get(c->calls, json_array_size(c->calls) - 1);
    close_open(g);
    begin_block(g, call_block(call, json_object()));
    send_delta(g, "input_json_delta", "partial_json", json_incref(arguments_of(call)));
    end_block(g);
}

static void begin_stream(dg_generation *g)
{
    (void)g; /* see begin_message */
}

static void stream_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    begin_message(g, e);
    switch (e->kind) {
    case DGEMMA_EVENT_THINKING:
        if (!g->chat.hide_thinking)
            send_text(g, e);
        break;
    case DGEMMA_EVENT_TEXT:
        send_text(g, e);
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        send_call(g, c);
        break;
    case DGEMMA_EVENT_END:
        close_open(g);
        break;
    case DGEMMA_EVENT_READ:
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_BLOCK:
    case DGEMMA_EVENT_DRAFT:
        break;
    }
}

static void end_stream(dg_generation *g)
{
    const dg_choice *c = &g->choices[0];
    send_event(g, json_pack("{s:s,s:{s:s,s:o},s:o}", "type", "message_delta", "delta",
                            "stop_reason", stop_reason(c), "stop_sequence", stop_sequence(g, c),
                            "usage", usage(&c->stats)));
    send_event(g, json_pack("{s:s}", "type", "message_stop"));
    dg_exchange_close(g->cfg.to);
}

static void end(dg_generation *g)
{
    (g->chat.stream ? end_stream : reply_whole)(g);
}

static void ping(dg_generation *g)
{
    dg_exchange_named_event(g->cfg.to, "ping", json_pack("{s:s}", "type", "ping"));
}

/* ---- errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* The words by which agents of this API know that they have to shorten a conversation. */
static json_t *error_text(const dg_http_error *e)
{
    return dg_error_is_context(e)
               ? json_sprintf("prompt is too long: %zu tokens > %zu maximum", e->n_prompt,
                              e->n_context - 1) /* an answer has a token at least */
               : dg_json_text(e->message, strlen(e->message));
}

static json_t *error_object(const dg_http_error *e)
{
    return json_pack("{s:s,s:{s:s,s:o}}", "type", "error", "error", "type", error_type(e->status),
                     "message", error_text(e));
}

static void fail_stream(dg_generation *g, const dg_http_error *e)
{
    send_event(g, error_object(e));
}

const dg_dialect dg_anthropic = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = fail_stream,
    .ping = ping,
    .error = error_object,
};
