#include "responses_response.h"
#include <string.h>
#include "json_fields.h"
#include "json_text.h"
#include "openai_response.h"

/* ---- items ---- */

static json_t *item_id(const dg_generation *g, const char *kind)
{
    return json_sprintf("%s_%s_%d", kind, g->cfg.to->id, g->place.n_item);
}

/* Takes the text; `entries` is NULL where there is nothing to say of log-probabilities. */
static json_t *part_object(bool thought, json_t *text, json_t *entries)
{
    if (thought)
        return json_pack("{s:s,s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s,s:o,s:[],s:o}", "type", "output_text", "text", text, "annotations",
                     "logprobs", entries ? entries : json_array());
}

/* An item of thought or text; takes the list of its parts. */
static json_t *text_item(const dg_generation *g, bool thought, const char *status, json_t *parts)
{
    if (thought)
        return json_pack("{s:o,s:s,s:s,s:[],s:o}", "id", item_id(g, "rs"), "type", "reasoning",
                         "status", status, "summary", "content", parts);
    return json_pack("{s:o,s:s,s:s,s:s,s:o}", "id", item_id(g, "msg"), "type", "message", "status",
                     status, "role", "assistant", "content", parts);
}

/* Takes the arguments. */
static json_t *call_item(const dg_generation *g, const json_t *call, const char *status,
                         json_t *arguments)
{
    const json_t *function = json_object_get(call, "function");
    return json_pack("{s:o,s:s,s:s,s:O,s:O,s:o}", "id", item_id(g, "fc"), "type", "function_call",
                     "status", status, "call_id", json_object_get(call, "id"), "name",
                     json_object_get(function, "name"), "arguments", arguments);
}

static json_t *arguments_of(const json_t *call)
{
    return json_object_get(json_object_get(call, "function"), "arguments");
}

static json_t *take_logprobs(const dg_generation *g, dg_choice *c)
{
    if (!g->chat.logprobs)
        return NULL;
    json_t *taken = c->logprobs;
    c->logprobs = json_array();
    return taken;
}

/* ---- the response ---- */

static json_t *usage(const dgemma_stats *s)
{
    return json_pack("{s:i,s:{s:i},s:i,s:{s:i},s:i}", "input_tokens", s->n_prompt,
                     "input_tokens_details", "cached_tokens", s->n_prompt_cached, "output_tokens",
                     s->n_output, "output_tokens_details", "reasoning_tokens", s->n_thinking,
                     "total_tokens", s->n_prompt + s->n_output);
}

/* What the client asked for and expects to find again. */
static void echo(json_t **body, const dg_generation *g)
{
    static const struct {
        const char *name, *otherwise;
    } fields[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"reasoning", "{}"},
        {"temperature", "1.0"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"top_p", "1.0"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"truncation", "\"disabled\""},
        {"user", "null"},
    };
    const json_t *asked = json_object_get(g->chat.root, "asked");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *v = dg_field_get(asked, fields[i].name);
        dg_json_put(body, fields[i].name,
                    v ? json_incref(v) : json_loads(fields[i].otherwise, JSON_DECODE_ANY, NULL));
    }
}

/* Takes the items. */
static json_t *response(const dg_generation *g, const char *status, json_t *items)
{
    json_t *body =
        json_pack("{s:o,s:s,s:I,s:s,s:n,s:n,s:s,s:o,s:s?,s:b,s:n}", "id",
                  json_sprintf("resp_%s", g->cfg.to->id), "object", "response", "created_at",
                  (json_int_t)g->created, "status", status, "error", "incomplete_details", "model",
                  g->cfg.model, "output", items, "previous_response_id", g->cfg.keeping.previous,
                  "store", g->cfg.keeping.keep != NULL, "usage");
    echo(&body, g);
    return body;
}

static bool is_cut(const dg_choice *c)
{
    return c->stats.end == DGEMMA_END_LENGTH || c->stats.end == DGEMMA_END_CONTEXT;
}

static json_t *finished_response(const dg_generation *g, json_t *items)
{
    const dg_choice *c = &g->choices[0];
    json_t *body = response(g, is_cut(c) ? "incomplete" : "completed", items);
    if (is_cut(c))
        dg_json_put(&body, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    dg_json_put(&body, "usage", usage(&c->stats));
    dg_json_put(&body, "timings", dg_openai_timings(g));
    return body;
}

/* Keeps it, where that is wanted. False: *e says why it could not be, and its client insists. */
static bool keep(const dg_generation *g, json_t **body, dg_http_error *e)
{
    const dg_keeping *k = &g->cfg.keeping;
    if (!k->keep || !*body || k->keep(k->user, *body, e))
        return true;
    dg_json_put(body, "store", json_false());
    return !k->insists;
}

/* ---- whole answers ---- */

static void add_text(json_t **items, dg_generation *g, bool thought, const dg_buf *text,
                     const char *status, json_t *entries)
{
    if (!text->len) {
        json_decref(entries);
        return;
    }
    json_t *part = part_object(thought, dg_json_text(text->data, text->len), entries);
    dg_json_add(items, text_item(g, thought, status, json_pack("[o]", part)));
    g->place.n_item++;
}

static void reply_whole(dg_generation *g)
{
    dg_choice *c = &g->choices[0];
    json_t *items = json_array(), *call;
    size_t i;
    /* calls are whole, or not there; what comes before the last item is */
    const char *last = is_cut(c) && !json_array_size(c->calls) ? "incomplete" : "completed";
    add_text(&items, g, true, &c->thinking, c->text.len ? "completed" : last, NULL);
    add_text(&items, g, false, &c->text, last, take_logprobs(g, c));
    json_array_foreach(c->calls, i, call)
    {
        dg_json_add(&items, call_item(g, call, "completed", json_incref(arguments_of(call))));
        g->place.n_item++;
    }
    dg_http_error e;
    json_t *body = finished_response(g, items);
    if (keep(g, &body, &e)) {
        dg_exchange_reply(g->cfg.to, 200, body);
    } else {
        json_decref(body);
        dg_exchange_refuse(g->cfg.to, &e);
    }
}

/* ---- streams ---- */

/* Takes the body. */
static void send_event(dg_generation *g, const char *type, json_t *body)
{
    dg_json_put(&body, "type", json_string(type));
    dg_json_put(&body, "sequence_number", json_integer(g->place.n_event++));
    dg_exchange_named_event(g->cfg.to, type, body);
}

/* An event about the item that is being written. */
static void send_item_event(dg_generation *g, const char *type, const char *id_kind, json_t *body)
{
    dg_json_put(&body, "output_index", json_integer(g->place.n_item));
    if (id_kind)
        dg_json_put(&body, "item_id", item_id(g, id_kind));
    send_event(g, type, body);
}

/* Likewise about its one part of text. */
static void send_part_event(dg_generation *g, const char *type, bool thought, json_t *body)
{
    dg_json_put(&body, "content_index", json_integer(0));
    send_item_event(g, type, thought ? "rs" : "msg", body);
}

static void finish_item(dg_generation *g, json_t *item)
{
    dg_json_add(&g->place.items, json_incref(item));
    send_item_event(g, "response.output_item.done", NULL, json_pack("{s:o}", "item", item));
    g->place.n_item++;
    g->place.open = 0;
}

static void open_text(dg_generation *g, dgemma_event_kind kind, size_t from)
{
    bool thought = kind == DGEMMA_EVENT_THINKING;
    g->place.open = kind;
    g->place.from = from;
    send_item_event(g, "response.output_item.added", NULL,
                    json_pack("{s:o}", "item", text_item(g, thought, "in_progress", json_array())));
    send_part_event(g, "response.content_part.added", thought,
                    json_pack("{s:o}", "part", part_object(thought, json_string(""), NULL)));
}

static void close_text(dg_generation *g, dg_choice *c, const char *status)
{
    bool thought = g->place.open == DGEMMA_EVENT_THINKING;
    const dg_buf *all = thought ? &c->thinking : &c->text;
    if (!g->place.open)
        return;
    json_t *text = dg_json_text(all->data + g->place.from, all->len - g->place.from);
    json_t *part = part_object(thought, text, thought ? NULL : take_logprobs(g, c));
    json_t *done = json_pack("{s:O}", "text", text);
    if (!thought)
        dg_json_put(&done, "logprobs", json_incref(json_object_get(part, "logprobs")));
    send_part_event(g, thought ? "response.reasoning_text.done" : "response.output_text.done",
                    thought, done);
    send_part_event(g, "response.content_part.done", thought, json_pack("{s:O}", "part", part));
    finish_item(g, text_item(g, thought, status, json_pack("[o]", part)));
}

static void send_text(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    bool thought = e->kind == DGEMMA_EVENT_THINKING;
    if (g->place.open != e->kind) {
        close_text(g, c, "completed");
        open_text(g, e->kind, (thought ? c->thinking.len : c->text.len) - e->text_len);
    }
    json_t *delta = json_pack("{s:o}", "delta", dg_json_text(e->text, e->text_len));
    if (!thought)
        dg_json_put(&delta, "logprobs", json_array());
    send_part_event(g, thought ? "response.reasoning_text.delta" : "response.output_text.delta",
                    thought, delta);
}

static void send_call(dg_generation *g, dg_choice *c)
{
    const json_t *call = json_array_get(c->calls, json_array_size(c->calls) - 1);
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    close_text(g, c, "completed");
    send_item_event(g, "response.output_item.added", NULL,
                    json_pack("{s:o}", "item", call_item(g, call, "in_progress", json_string(""))));
    send_item_event(g, "response.function_call_arguments.delta", "fc",
                    json_pack("{s:O}", "delta", arguments_of(call)));
    send_item_event(g, "response.function_call_arguments.done", "fc",
                    json_pack("{s:O,s:O}", "name", name, "arguments", arguments_of(call)));
    finish_item(g, call_item(g, call, "completed", json_incref(arguments_of(call))));
}

static void begin_stream(dg_generation *g)
{
    g->place.items = json_array();
    send_event(g, "response.created",
               json_pack("{s:o}", "response", response(g, "in_progress", json_array())));
    send_event(g, "response.in_progress",
               json_pack("{s:o}", "response", response(g, "in_progress", json_array())));
}

static void stream_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    switch (e->kind) {
    case DGEMMA_EVENT_THINKING:
    case DGEMMA_EVENT_TEXT:
        send_text(g, c, e);
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        send_call(g, c);
        break;
    case DGEMMA_EVENT_END:
        close_text(g, c, is_cut(c) ? "incomplete" : "completed");
        break;
    case DGEMMA_EVENT_READ:
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_BLOCK:
    case DGEMMA_EVENT_DRAFT:
        break;
    }
}

/* ---- errors ---- */

/* The client's own name for a field of a chat completion. */
static void rename_param(dg_http_error *e)
{
    static const char *const names[][2] = {{"messages", "input"},
                                           {"max_tokens", "max_output_tokens"},
                                           {"reasoning_effort", "reasoning.effort"},
                                           {"response_format", "text.format"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(e->param, names[i][0]))
            strcpy(e->param, names[i][1]);
}

static json_t *error_object(const dg_http_error *e)
{
    dg_http_error renamed = *e;
    rename_param(&renamed);
    return dg_error_object(&renamed);
}

/* Told twice: some clients look for a response that failed, others for an error. */
static void fail_stream(dg_generation *g, const dg_http_error *e)
{
    const char *code = e->code ? e->code : "server_error";
    json_t *failed = response(g, "failed", json_incref(g->place.items));
    json_t *message = dg_json_text(e->message, strlen(e->message));
    dg_json_put(&failed, "error", json_pack("{s:s,s:O}", "code", code, "message", message));
    send_event(g, "response.failed", json_pack("{s:o}", "response", failed));
    json_t *error = error_object(e);
    dg_json_put(&error, "code", json_string(code));
    dg_json_put(&error, "message", message);
    dg_json_put(&error, "param",
                json_incref(json_object_get(json_object_get(error, "error"), "param")));
    send_event(g, "error", error);
}

/* ---- the end ---- */

static void end(dg_generation *g)
{
    dg_http_error e;
    if (!g->chat.stream) {
        reply_whole(g);
        return;
    }
    json_t *body = finished_response(g, json_incref(g->place.items));
    if (keep(g, &body, &e)) {
        send_event(g, is_cut(&g->choices[0]) ? "response.incomplete" : "response.completed",
                   json_pack("{s:o}", "response", body));
    } else {
        json_decref(body);
        fail_stream(g, &e);
    }
    dg_exchange_close(g->cfg.to);
}

const dg_dialect dg_responses = {
    .content_type = "text/event-stream",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = fail_stream,
    .ping = dg_sse_ping,
    .error = error_object,
};
