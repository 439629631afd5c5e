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

/* What is said in one object beside its text; the values are taken. */
typedef struct saying {
    bool thinks, calls_tools;
    json_t *thinking, *calls;
} saying;

static void put_the_rest(json_t **holder, saying s)
{
    if (s.thinks)
        dg_json_put(holder, "thinking", s.thinking);
    if (s.calls_tools)
        dg_json_put(holder, "tool_calls", s.calls);
}

/* Takes the text. */
static json_t *object(const dg_generation *g, json_t *text, saying s, bool done)
{
    json_t *body = json_pack("{s:s,s:o}", "model", g->cfg.model, "created_at", time_now());
    if (is_chat(g)) {
        json_t *message = json_pack("{s:s,s:o}", "role", "assistant", "content", text);
        put_the_rest(&message, s);
        dg_json_put(&body, "message", message);
    } else {
        dg_json_put(&body, "response", text);
        put_the_rest(&body, s);
    }
    dg_json_put(&body, "done", json_boolean(done));
    return body;
}

/* An object that adds nothing. */
static json_t *silence(const dg_generation *g, bool done)
{
    return object(g, json_string(""), (saying){0}, done);
}

/* {id, function: {index, name, arguments}}: arguments are an object here. */
static json_t *call_object(const json_t *call, size_t index)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function, "arguments");
    json_t *arguments = dg_json_load(json_string_value(text), json_string_length(text), NULL);
    return json_pack("{s:O,s:{s:I,s:O,s:o}}", "id", json_object_get(call, "id"), "function",
                     "index", (json_int_t)index, "name", json_object_get(function, "name"),
                     "arguments", arguments); /* the engine writes JSON: NULL is memory */
}

static void put_logprobs(json_t **body, const dg_generation *g, dg_choice *c)
{
    if (!g->chat.logprobs || !json_array_size(c->logprobs))
        return;
    dg_json_put(body, "logprobs", c->logprobs);
    c->logprobs = json_array();
}

static json_int_t nanoseconds(double seconds)
{
    return (json_int_t)(1e9 * seconds);
}

/* What the last object says beyond its text. */
static void put_end(json_t **body, const dg_generation *g)
{
    dgemma_stats s;
    dg_generation_stats(g, &s);
    bool cut = s.end == DGEMMA_END_LENGTH || s.end == DGEMMA_END_CONTEXT;
    const char *reason = !g->n_choice ? "load" : cut ? "length" : "stop";
    dg_json_put(body, "done_reason", json_string(reason));
    if (!g->n_choice)
        return;
    dg_json_put(body, "total_duration", json_integer(nanoseconds(dg_clock_now() - g->started)));
    dg_json_put(body, "load_duration", json_integer(0));
    dg_json_put(body, "prompt_eval_count", json_integer(s.n_prompt));
    dg_json_put(body, "prompt_eval_duration", json_integer(nanoseconds(s.prompt_seconds)));
    dg_json_put(body, "eval_count", json_integer(s.n_output));
    dg_json_put(body, "eval_duration", json_integer(nanoseconds(s.denoise_seconds)));
}

/* ---- whole answers ---- */

static json_t *all_calls(const dg_choice *c)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(c->calls, i, call) dg_json_add(&list, call_object(call, i));
    return list;
}

static json_t *whole(const dg_generation *g, dg_choice *c)
{
    saying s = {.thinks = c->thinking.len && !g->chat.hide_thinking,
                .calls_tools = json_array_size(c->calls)};
    if (s.thinks)
        s.thinking = dg_json_text(c->thinking.data, c->thinking.len);
    if (s.calls_tools)
        s.calls = all_calls(c);
    json_t *text = dg_json_buf(&c->text);
    json_t *body = object(g, text, s, true);
    put_logprobs(&body, g, c);
    return body;
}

/* ---- streams ---- */

static void begin_stream(dg_generation *g)
{
    (void)g; /* a stream is lines, and the first one has something to say */
}

static void send(dg_generation *g, dg_choice *c, json_t *text, saying s)
{
    json_t *body = object(g, text, s, false);
    put_logprobs(&body, g, c);
    dg_exchange_line(g->cfg.to, body);
}

static void stream_event(dg_generation *g, dg_choice *c, const dgemma_event *e)
{
    size_t last = json_array_size(c->calls);
    json_t *call;
    switch (e->kind) {
    case DGEMMA_EVENT_TEXT:
        send(g, c, dg_json_text(e->text, e->text_len), (saying){0});
        break;
    case DGEMMA_EVENT_THINKING:
        if (!g->chat.hide_thinking)
            send(g, c, json_string(""),
                 (saying){.thinks = true, .thinking = dg_json_text(e->text, e->text_len)});
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        call = call_object(json_array_get(c->calls, last - 1), last - 1);
        send(g, c, json_string(""), (saying){.calls_tools = true, .calls = json_pack("[o]", call)});
        break;
    case DGEMMA_EVENT_READ:
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
    json_t *body = g->n_choice && !stream ? whole(g, &g->choices[0]) : silence(g, true);
    put_end(&body, g);
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
    dg_exchange_line(g->cfg.to, silence(g, false));
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
