#include "ollama_response.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "json_body.h"
#include "json_text.h"

static bool is_chat(const dg_generation *g)
{
    return g->cfg.dialect == &dg_ollama_chat;
}

/* ---- what all objects share ---- */

static json_t *time_now(void)
{
    struct timespec now;
    struct tm utc;
    char day[32];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    return json_sprintf("%s.%06ldZ", day, now.tv_nsec / 1000);
}

/* What is said in one object; the values are taken, and NULL ones left out. */
typedef struct saying {
    json_t *text, *thinking, *calls;
} saying;

static json_t *object(const dg_generation *g, saying s, bool done)
{
    json_t *text = s.text ? s.text : json_string("");
    json_t *body = json_pack("{s:s,s:o}", "model", g->cfg.model, "created_at", time_now());
    json_t *holder = body;
    if (is_chat(g)) {
        holder = json_pack("{s:s,s:o}", "role", "assistant", "content", text);
        json_object_set_new(body, "message", holder);
    } else {
        json_object_set_new(body, "response", text);
    }
    if (s.thinking)
        json_object_set_new(holder, "thinking", s.thinking);
    if (s.calls)
        json_object_set_new(holder, "tool_calls", s.calls);
    json_object_set_new(body, "done", json_boolean(done));
    return body;
}

/* {id, function: {index, name, arguments}}: arguments are an object here. */
static json_t *call_object(const json_t *call, size_t index)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function, "arguments");
    json_t *arguments = dg_json_load(json_string_value(text), json_string_length(text), NULL);
    return json_pack("{s:O,s:{s:I,s:O,s:o}}", "id", json_object_get(call, "id"), "function",
                     "index", (json_int_t)index, "name", json_object_get(function, "name"),
                     "arguments", arguments ? arguments : json_object());
}

static void add_logprobs(const dg_generation *g, dg_choice *c, json_t *body)
{
    if (!g->chat.logprobs || !json_array_size(c->logprobs))
        return;
    json_object_set_new(body, "logprobs", c->logprobs);
    c->logprobs = json_array();
}

static json_int_t nanoseconds(double seconds)
{
    return (json_int_t)(1e9 * seconds);
}

/* What the last object says beyond its text. */
static void add_end(const dg_generation *g, json_t *body)
{
    dgemma_stats s;
    dg_generation_stats(g, &s);
    bool cut = s.end == DGEMMA_END_LENGTH || s.end == DGEMMA_END_CONTEXT;
    const char *reason = !g->n_choice ? "load" : cut ? "length" : "stop";
    json_object_set_new(body, "done_reason", json_string(reason));
    if (!g->n_choice)
        return;
    json_t *counts =
        json_pack("{s:I,s:i,s:i,s:I,s:i,s:I}", "total_duration",
                  nanoseconds(dg_clock_now() - g->started), "load_duration", 0, "prompt_eval_count",
                  s.n_prompt, "prompt_eval_duration", nanoseconds(s.prompt_seconds), "eval_count",
                  s.n_output, "eval_duration", nanoseconds(s.denoise_seconds));
    json_object_update(body, counts);
    json_decref(counts);
}

/* ---- whole answers ---- */

static json_t *all_calls(const dg_choice *c)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(c->calls, i, call) json_array_append_new(list, call_object(call, i));
    return list;
}

static json_t *whole(const dg_generation *g, dg_choice *c)
{
    saying s = {.text = dg_json_text(c->text.data ? c->text.data : "", c->text.len)};
    if (c->thinking.len && !g->chat.hide_thinking)
        s.thinking = dg_json_text(c->thinking.data, c->thinking.len);
    if (json_array_size(c->calls))
        s.calls = all_calls(c);
    json_t *body = object(g, s, true);
    add_logprobs(g, c, body);
    return body;
}

/* ---- streams ---- */

static void begin_stream(dg_generation *g)
{
    (void)g; /* a stream is lines, and the first one has something to say */
}

static void send(dg_generation *g, dg_choice *c, saying s)
{
    json_t *body = object(g, s, false);
    add_logprobs(g, c, body);
    dg_exchange_line(g->cfg.to, body);
}

static void stream_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    size_t last = json_array_size(c->calls);
    switch (e->kind) {
    case DGEMMA_EVENT_TEXT:
        send(g, c, (saying){.text = dg_json_text(e->text, e->text_len)});
        break;
    case DGEMMA_EVENT_THINKING:
        if (!g->chat.hide_thinking)
            send(g, c, (saying){.thinking = dg_json_text(e->text, e->text_len)});
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        send(g, c,
             (saying){.calls = json_pack(
                          "[o]", call_object(json_array_get(c->calls, last - 1), last - 1))});
        break;
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_BLOCK:
    case DGEMMA_EVENT_DRAFT:
    case DGEMMA_EVENT_END:
        break;
    }
}

static void end(dg_generation *g)
{
    bool stream = g->chat.stream;
    json_t *body = g->n_choice && !stream ? whole(g, &g->choices[0]) : object(g, (saying){0}, true);
    add_end(g, body);
    if (!stream) {
        dg_exchange_reply(g->cfg.to, 200, body);
        return;
    }
    dg_exchange_line(g->cfg.to, body);
    dg_exchange_close(g->cfg.to);
}

/* A piece of nothing: there are no comments between lines of JSON. */
static void ping(dg_generation *g)
{
    dg_exchange_line(g->cfg.to, object(g, (saying){0}, false));
}

/* ---- errors ---- */

static json_t *error_object(const dg_http_error *e)
{
    json_t *text = dg_error_is_context(e)
                       ? json_sprintf("the input length exceeds the context length: %s", e->message)
                       : dg_json_text(e->message, strlen(e->message));
    return json_pack("{s:o}", "error", text);
}

static void fail_stream(dg_generation *g, const dg_http_error *e)
{
    dg_exchange_line(g->cfg.to, error_object(e));
}

const dg_dialect dg_ollama_chat = {
    .content_type = "application/x-ndjson",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = fail_stream,
    .ping = ping,
    .error = error_object,
};

/* The same functions; they ask which of the two they are. */
const dg_dialect dg_ollama_generate = {
    .content_type = "application/x-ndjson",
    .begin = begin_stream,
    .event = stream_event,
    .end = end,
    .fail = fail_stream,
    .ping = ping,
    .error = error_object,
};
