#include "ollama_request.h"
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "json_fields.h"
#include "openai_request.h"
#include "translate.h"

/* ---- what both routes have ---- */

static bool read_options(dg_translation *t)
{
    static const char *const same[] = {"seed", "temperature", "top_k", "top_p", "min_p"};
    json_t *options, *n;
    if (!dg_field_object(t->root, "options", &options, t->e))
        return false;
    for (size_t i = 0; i < DG_COUNT(same); i++)
        if (dg_field_get(options, same[i]))
            dg_translate_set(t, same[i], json_incref(json_object_get(options, same[i])));
    n = dg_field_get(options, "num_predict");
    if (n && !json_is_integer(n))
        return dg_refuse(t->e, 400, "invalid_type", "options.num_predict",
                         "options.num_predict: wanted a whole number");
    if (n) /* 0 and below ask for as much as there may be */
        dg_translate_set(t, "max_tokens",
                         json_integer_value(n) > 0 ? json_incref(n) : json_integer(-1));
    return dg_translate_stop(t, options, "stop");
}

/* "json", a schema, or nothing. */
static bool read_format(dg_translation *t)
{
    json_t *format = dg_field_get(t->root, "format");
    if (!format || dg_json_says(format, ""))
        return true;
    if (json_is_object(format)) {
        dg_translate_schema(t, format, NULL, "/format");
        return true;
    }
    if (!dg_json_says(format, "json"))
        return dg_refuse(t->e, 400, "invalid_value", "format",
                         "format: \"json\" and a schema are known");
    dg_translate_set(t, "response_format", json_pack("{s:s}", "type", "json_object"));
    return true;
}

/* true, false, or how much. */
static bool read_think(dg_translation *t)
{
    json_t *think = dg_field_get(t->root, "think");
    if (think && !json_is_boolean(think) &&
        !(json_is_string(think) && dg_is_effort(json_string_value(think))))
        return dg_refuse(t->e, 400, "invalid_value", "think",
                         "think: true, false, " DG_EFFORTS " are known");
    bool on = think && !json_is_false(think) && !dg_json_says(think, "none");
    dg_translate_set(t, "enable_thinking", json_boolean(on));
    dg_translate_set(t, "include_reasoning", json_boolean(on));
    return true;
}

/* Ollama streams unless it is told not to. */
static bool read_common(dg_translation *t)
{
    if (!dg_field_get(t->root, "stream"))
        dg_translate_set(t, "stream", json_true());
    dg_translate_copy(t, "logprobs", "logprobs");
    dg_translate_copy(t, "top_logprobs", "top_logprobs");
    return read_options(t) && read_format(t) && read_think(t);
}

static bool check_images(dg_translation *t, const json_t *images, const char *where)
{
    size_t i;
    json_t *image;
    json_array_foreach(images, i, image)
    {
        if (!json_is_string(image))
            return dg_refuse(t->e, 400, "invalid_type", "images",
                             "%simages[%zu]: wanted base64 text", where, i);
    }
    return true;
}

/* Text, with pictures before it when there are any; NULL: memory is out. */
static json_t *content_of(dg_translation *t, json_t *text, const json_t *images)
{
    json_t *parts, *image;
    size_t i;
    if (!json_array_size(images))
        return text ? json_incref(text) : json_string("");
    parts = json_array();
    json_array_foreach(images, i, image)
    {
        /* what kind it is, its content tells */
        dg_translate_add(t, parts, dg_translate_picture("image/png", json_string_value(image)));
    }
    if (text)
        dg_translate_add(t, parts, json_pack("{s:s,s:O}", "type", "text", "text", text));
    return parts;
}

/* ---- conversations ---- */

/* Arguments are objects here. Calls may have no id and get one, so that each result finds its
 * call: `open` has the ids by name, in the order of the calls. */
static bool read_calls(dg_translation *t, size_t index, const json_t *calls, json_t *message,
                       json_t *open)
{
    json_t *call, *list = json_array();
    size_t i;
    bool ok = true;
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        json_t *name = json_object_get(function, "name");
        if (!json_is_string(name)) {
            ok = dg_refuse(t->e, 400, "invalid_value", "messages",
                           "messages[%zu].tool_calls[%zu].function.name: wanted text", index, i);
            break;
        }
        json_t *id = dg_field_get(call, "id");
        id = id ? json_incref(id) : json_sprintf("call_%zu_%zu", index, i);
        dg_translate_add(t, list, dg_translate_call(id, name, dg_field_get(function, "arguments")));
        dg_translate_add(t, open, json_pack("{s:o,s:O}", "id", id, "name", name));
    }
    dg_translate_set_in(t, message, "tool_calls", list);
    return ok;
}

/* The id of the call that a result is of: its own, else that of the first call of the tool's name
 * without a result, else of the first at all. NULL: there is none. */
static json_t *call_of(const json_t *m, json_t *open)
{
    json_t *own = dg_field_get(m, "tool_call_id"), *name = dg_field_get(m, "tool_name"), *call;
    size_t i;
    json_array_foreach(open, i, call)
    {
        if (json_equal(json_object_get(call, own ? "id" : "name"), own ? own : name))
            break;
    }
    if (!own && i == json_array_size(open))
        i = 0;
    json_t *id = json_incref(own ? own : json_object_get(json_array_get(open, i), "id"));
    json_array_remove(open, i);
    return id;
}

static bool read_message(dg_translation *t, size_t index, const json_t *m, json_t *open)
{
    static const char *const same[][2] = {{"thinking", "reasoning_content"}, {"tool_name", "name"}};
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = dg_field_get(m, "content"), *images, *calls;
    char where[48];
    snprintf(where, sizeof where, "messages[%zu].", index);
    if (!role || (content && !json_is_string(content)))
        return dg_refuse(t->e, 400, "invalid_type", "messages",
                         "%swanted a role, and text as content", where);
    if (!dg_field_list(m, "images", &images, t->e) || !check_images(t, images, where) ||
        !dg_field_list(m, "tool_calls", &calls, t->e))
        return false;
    json_t *message =
        json_pack("{s:s,s:o}", "role", role, "content", content_of(t, content, images));
    for (size_t i = 0; i < DG_COUNT(same); i++)
        if (dg_field_get(m, same[i][0]))
            dg_translate_set_in(t, message, same[i][1],
                                json_incref(json_object_get(m, same[i][0])));
    json_t *id = !strcmp(role, "tool") ? call_of(m, open) : NULL;
    if (id)
        dg_translate_set_in(t, message, "tool_call_id", id);
    bool ok = !json_array_size(calls) || read_calls(t, index, calls, message, open);
    dg_translate_say(t, message);
    return ok;
}

static bool read_messages(dg_translation *t, const json_t *messages)
{
    json_t *open = json_array(), *message;
    size_t i;
    bool ok = true;
    json_array_foreach(messages, i, message)
    {
        if (dg_json_says(json_object_get(message, "role"), "assistant"))
            json_array_clear(open); /* results are of the calls before them */
        ok = read_message(t, i, message, open);
        if (!ok)
            break;
    }
    json_decref(open);
    return ok;
}

/* Nothing is to be answered; what was said is read all the same, so that errors are told. */
static bool end_empty(dg_translation *t, dg_chat *out)
{
    dg_translate_say(t, json_pack("{s:s,s:s}", "role", "user", "content", ""));
    if (!dg_translate_end(t, true, dg_openai_read_chat, out))
        return false;
    out->n_choice = 0;
    return true;
}

bool dg_ollama_read_chat(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                         dg_http_error *e)
{
    dg_translation t;
    json_t *messages;
    dg_translate_begin(&t, root, limits, seed, e);
    bool ok = read_common(&t) && dg_field_list(root, "messages", &messages, e);
    if (ok && !json_array_size(messages))
        return end_empty(&t, out);
    dg_translate_copy(&t, "tools", "tools");
    ok = ok && read_messages(&t, messages);
    return dg_translate_end(&t, ok, dg_openai_read_chat, out);
}

/* ---- prompts ---- */

/* What would change the prompt in ways that are not known here. */
static bool refuse_others(dg_translation *t)
{
    static const char *const names[] = {"template", "context"};
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        const json_t *v = dg_field_get(t->root, names[i]);
        if (v && json_string_length(v) + json_array_size(v) > 0)
            return dg_refuse(t->e, 400, "unsupported", names[i], "%s: not supported", names[i]);
    }
    return true;
}

/* The prompt as it stands. */
static bool end_raw(dg_translation *t, const json_t *images, dg_chat *out)
{
    bool ok = !json_array_size(images) ||
              dg_refuse(t->e, 400, "unsupported", "images", "images: not with raw");
    dg_translate_copy(t, "prompt", "prompt");
    if (json_is_true(json_object_get(t->root, "logprobs"))) /* a number in old completions */
        dg_translate_set(
            t, "logprobs",
            json_integer(json_integer_value(json_object_get(t->root, "top_logprobs"))));
    return dg_translate_end(t, ok, dg_openai_read_completion, out);
}

/* What stands before a gap and behind it. */
static bool end_suffix(dg_translation *t, json_t *prompt, const json_t *images, dg_chat *out)
{
    const json_t *think = dg_field_get(t->root, "think");
    bool ok = !json_array_size(images) ||
              dg_refuse(t->e, 400, "unsupported", "images", "images: not with a suffix");
    ok = ok && (!think || json_is_false(think) ||
                dg_refuse(t->e, 400, "unsupported", "think", "think: not with a suffix"));
    dg_translate_set(t, "prompt", prompt);
    dg_translate_copy(t, "suffix", "suffix");
    dg_translate_copy(t, "system", "system");
    ok = dg_translate_end(t, ok, dg_openai_read_completion, out);
    if (ok)
        out->options.system = json_string_value(json_object_get(out->root, "system"));
    return ok;
}

static void say_prompt(dg_translation *t, json_t *prompt, const json_t *images)
{
    json_t *system = json_object_get(t->root, "system");
    if (json_string_length(system))
        dg_translate_say(t, json_pack("{s:s,s:O}", "role", "system", "content", system));
    dg_translate_say(
        t, json_pack("{s:s,s:o}", "role", "user", "content", content_of(t, prompt, images)));
}

bool dg_ollama_read_generate(dg_chat *out, json_t *root, const dg_chat_limits *limits,
                             uint64_t seed, dg_http_error *e)
{
    dg_translation t;
    const char *text, *system, *suffix;
    json_t *images, *prompt = json_object_get(root, "prompt");
    dg_translate_begin(&t, root, limits, seed, e);
    bool ok = read_common(&t) && dg_field_string(root, "prompt", &text, e) &&
              dg_field_string(root, "system", &system, e) &&
              dg_field_string(root, "suffix", &suffix, e) &&
              dg_field_list(root, "images", &images, e) && check_images(&t, images, "") &&
              refuse_others(&t);
    if (!ok)
        return dg_translate_end(&t, false, dg_openai_read_chat, out);
    if (suffix && *suffix)
        return end_suffix(&t, json_string(text ? text : ""), images, out);
    if (!(text && *text) && !json_array_size(images))
        return end_empty(&t, out);
    if (json_is_true(json_object_get(root, "raw")))
        return end_raw(&t, images, out);
    say_prompt(&t, text ? prompt : NULL, images);
    return dg_translate_end(&t, true, dg_openai_read_chat, out);
}
