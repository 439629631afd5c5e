#include "responses_request.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "json_fields.h"
#include "openai_request.h"
#include "translate.h"

/* The items of one turn of the assistant, thoughts, text and calls, become one message; so do the
 * instructions at the beginning. They are kept here until the next item shows that they are all. */
typedef struct input_reader {
    dg_translation *t;
    size_t item;
    json_t *system;   /* owned, as the others: texts, as a list of parts */
    json_t *thoughts; /* parts */
    json_t *calls;
    json_t *said; /* the assistant's text; NULL: none yet */
    bool started; /* something other than instructions was said */
} input_reader;

static bool wrong_item(const input_reader *r, const char *what)
{
    return dg_refuse(r->t->e, 400, "invalid_value", "input", "input[%zu]%s", r->item, what);
}

/* ---- what is kept is said ---- */

static void say_system(input_reader *r)
{
    r->started = true;
    if (!json_array_size(r->system))
        return;
    dg_translate_say(r->t, json_pack("{s:s,s:o}", "role", "system", "content",
                                     dg_translate_text(r->system, "text", "\n\n")));
    json_array_clear(r->system);
}

static void say_assistant(input_reader *r)
{
    if (!r->said && !json_array_size(r->calls) && !json_array_size(r->thoughts))
        return;
    json_t *message =
        json_pack("{s:s,s:o}", "role", "assistant", "content", r->said ? r->said : json_string(""));
    r->said = NULL;
    if (json_array_size(r->thoughts))
        dg_translate_set_in(r->t, message, "reasoning_content",
                            dg_translate_text(r->thoughts, "text", "\n"));
    if (json_array_size(r->calls)) {
        dg_translate_set_in(r->t, message, "tool_calls", r->calls);
        r->calls = json_array();
    }
    json_array_clear(r->thoughts);
    dg_translate_say(r->t, message);
}

/* Thoughts or text of the assistant's come. While calls wait for their results its turn is not
 * over, whatever else it says: results stand right behind their calls. */
static void begin_part(input_reader *r)
{
    if (r->said && !json_array_size(r->calls))
        say_assistant(r);
    say_system(r);
}

static void add_said(input_reader *r, const json_t *content)
{
    json_t *more = dg_translate_text(content, "text", ""), *before = r->said;
    if (before && more) {
        json_t *both = json_pack("[{s:O},{s:O}]", "text", before, "text", more);
        r->said = dg_translate_text(both, "text", "\n");
        json_decref(both);
        json_decref(more);
        json_decref(before);
    } else {
        json_decref(before);
        r->said = more;
    }
    r->t->no_memory |= !r->said;
}

/* ---- items ---- */

/* Text and pictures are the only parts there can be; the names of their types are known to the
 * reader of conversations too. */
static bool check_parts(const input_reader *r, const json_t *content)
{
    static const char *const names[] = {"input_text", "output_text", "text", "input_image"};
    size_t i, k;
    json_t *part;
    json_array_foreach(content, i, part)
    {
        const json_t *type = json_object_get(part, "type");
        for (k = 0; k < DG_COUNT(names) && !dg_json_says(type, names[k]);)
            k++;
        if (k == DG_COUNT(names))
            return wrong_item(r, ".content: text and input_image are known");
        if (dg_json_says(type, "input_image") &&
            !json_is_string(json_object_get(part, "image_url")))
            return wrong_item(r, ".content: an input_image needs an image_url with its data");
    }
    return true;
}

static bool read_message(input_reader *r, const json_t *item)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *content = json_object_get(item, "content");
    if (!role)
        return wrong_item(r, ".role: wanted text");
    if (!json_is_string(content) && !json_is_array(content))
        return wrong_item(r, ".content: wanted text or a list of parts");
    if (!check_parts(r, content))
        return false;
    if (!strcmp(role, "assistant")) {
        begin_part(r);
        add_said(r, content);
        return true;
    }
    say_assistant(r);
    bool instructs = !strcmp(role, "system") || !strcmp(role, "developer");
    if (instructs && !r->started) {
        dg_translate_add(r->t, r->system,
                         json_pack("{s:o}", "text", dg_translate_text(content, "text", "")));
        return true;
    }
    say_system(r);
    dg_translate_say(r->t, json_pack("{s:s,s:O}", "role", role, "content", content));
    return true;
}

static bool read_call(input_reader *r, const json_t *item)
{
    json_t *name = json_object_get(item, "name"), *id = json_object_get(item, "call_id");
    json_t *arguments = json_object_get(item, "arguments");
    if (!json_is_string(name) || !json_is_string(id) || !json_is_string(arguments))
        return wrong_item(r, ": a function_call needs call_id, name and arguments, all text");
    say_system(r);
    dg_translate_add(r->t, r->calls, dg_translate_call(id, name, arguments));
    return true;
}

static bool read_output(input_reader *r, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    if (!json_is_string(id) || (!json_is_string(output) && !json_is_array(output)))
        return wrong_item(r, ": a function_call_output needs call_id and output");
    if (!check_parts(r, output))
        return false;
    say_system(r);
    say_assistant(r);
    dg_translate_say(
        r->t, json_pack("{s:s,s:O,s:O}", "role", "tool", "tool_call_id", id, "content", output));
    return true;
}

/* Thoughts are in the content; a summary stands in for them where that is all there is. */
static bool read_reasoning(input_reader *r, const json_t *item)
{
    json_t *parts = dg_field_get(item, "content"), *part;
    size_t i;
    if (!json_array_size(parts))
        parts = dg_field_get(item, "summary");
    begin_part(r);
    json_array_foreach(parts, i, part)
    {
        if (!json_is_string(json_object_get(part, "text")))
            return wrong_item(r, ": reasoning without text");
        dg_translate_add(r->t, r->thoughts, json_incref(part));
    }
    return true;
}

static bool read_item(input_reader *r, const json_t *item)
{
    const json_t *type = dg_field_get(item, "type");
    if (!json_is_object(item))
        return wrong_item(r, ": no object");
    if (!type || dg_json_says(type, "message"))
        return read_message(r, item);
    if (dg_json_says(type, "function_call"))
        return read_call(r, item);
    if (dg_json_says(type, "function_call_output"))
        return read_output(r, item);
    if (dg_json_says(type, "reasoning"))
        return read_reasoning(r, item);
    return wrong_item(r, ".type: message, function_call, function_call_output and reasoning are "
                         "known");
}

static bool read_items(input_reader *r, const json_t *input)
{
    const char *instructions;
    json_t *item;
    if (!dg_field_string(r->t->root, "instructions", &instructions, r->t->e))
        return false;
    if (instructions && *instructions)
        dg_translate_add(r->t, r->system, json_pack("{s:s}", "text", instructions));
    if (json_is_string(input)) {
        say_system(r);
        dg_translate_say(r->t, json_pack("{s:s,s:O}", "role", "user", "content", input));
        return true;
    }
    if (!json_array_size(input))
        return dg_refuse(r->t->e, 400, "invalid_type", "input",
                         "input: wanted text or a list of items");
    json_array_foreach(input, r->item, item)
    {
        if (!read_item(r, item))
            return false;
    }
    say_assistant(r);
    say_system(r);
    return true;
}

static bool read_input(dg_translation *t)
{
    input_reader r = {
        .t = t, .system = json_array(), .thoughts = json_array(), .calls = json_array()};
    bool ok = read_items(&r, dg_field_get(t->root, "input"));
    json_decref(r.system);
    json_decref(r.thoughts);
    json_decref(r.calls);
    json_decref(r.said);
    return ok;
}

/* ---- the other fields ---- */

/* What asks for a memory of the server's, or for work while nobody listens. */
static bool refuse_stored(dg_translation *t)
{
    static const char *const names[] = {"previous_response_id", "conversation", "prompt",
                                        "background"};
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        const json_t *v = dg_field_get(t->root, names[i]);
        if (v && !json_is_false(v))
            return dg_refuse(
                t->e, 400, "unsupported", names[i],
                i ? "%s: there are none here; send the whole input"
                  : "%s: nothing is kept here between requests, as without --state, or "
                    "in a batch; send the whole input",
                names[i]);
    }
    return true;
}

static bool read_tools(dg_translation *t)
{
    json_t *tools, *tool, *list = json_array();
    size_t i;
    bool ok = dg_field_list(t->root, "tools", &tools, t->e);
    json_array_foreach(tools, i, tool)
    {
        if (ok && !json_is_string(json_object_get(tool, "type")))
            ok = dg_refuse(t->e, 400, "invalid_value", "tools", "tools[%zu].type: wanted text", i);
        if (ok && !dg_json_says(json_object_get(tool, "type"), "function"))
            continue; /* one of the service's own, which Codex always offers: not to be had here */
        if (ok && !json_is_string(json_object_get(tool, "name")))
            ok = dg_refuse(t->e, 400, "invalid_value", "tools", "tools[%zu].name: wanted text", i);
        if (ok)
            dg_translate_add(t, list, dg_translate_tool(tool, "parameters"));
    }
    dg_translate_set(t, "tools", list);
    dg_translate_set(t, "parameters_at", json_string("parameters"));
    dg_translate_copy(t, "tool_choice", "tool_choice");
    dg_translate_copy(t, "parallel_tool_calls", "parallel_tool_calls");
    return ok;
}

static bool read_format(dg_translation *t)
{
    json_t *text, *format;
    if (!dg_field_object(t->root, "text", &text, t->e) ||
        !dg_field_object(text, "format", &format, t->e))
        return false;
    const json_t *type = json_object_get(format, "type");
    if (!format || dg_json_says(type, "text"))
        return true;
    if (dg_json_says(type, "json_schema")) {
        dg_translate_schema(t, dg_field_get(format, "schema"), dg_field_get(format, "strict"),
                            "/text/format/schema");
        return true;
    }
    if (!dg_json_says(type, "json_object"))
        return dg_refuse(t->e, 400, "invalid_value", "text.format",
                         "text.format.type: text, json_object and json_schema are known");
    dg_translate_set(t, "response_format", json_incref(format));
    return true;
}

static bool read_reasoning_wish(dg_translation *t)
{
    json_t *reasoning;
    const char *effort;
    if (!dg_field_object(t->root, "reasoning", &reasoning, t->e) ||
        !dg_field_string(reasoning, "effort", &effort, t->e))
        return false;
    if (effort)
        dg_translate_set(t, "reasoning_effort", json_string(effort));
    dg_translate_copy(t, "thinking_budget", "thinking_budget");
    return true;
}

/* Log-probabilities are asked for in a list of what is to be included. */
static bool read_include(dg_translation *t)
{
    json_t *include, *name;
    size_t i;
    if (!dg_field_list(t->root, "include", &include, t->e))
        return false;
    json_array_foreach(include, i, name)
    {
        if (!dg_json_says(name, "message.output_text.logprobs"))
            continue;
        dg_translate_set(t, "logprobs", json_true());
        dg_translate_copy(t, "top_logprobs", "top_logprobs");
    }
    return true;
}

static bool read_length(dg_translation *t)
{
    const json_t *n = dg_field_get(t->root, "max_output_tokens");
    if (n && (!json_is_integer(n) || json_integer_value(n) < 1 || json_integer_value(n) > INT_MAX))
        return dg_refuse(t->e, 400, "invalid_value", "max_output_tokens",
                         "max_output_tokens: wanted a whole number above 0");
    dg_translate_copy(t, "max_output_tokens", "max_tokens");
    return true;
}

bool dg_responses_read(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                       dg_http_error *e)
{
    dg_translation t;
    dg_translate_begin(&t, root, limits, seed, e);
    bool ok = refuse_stored(&t) && read_input(&t) && read_tools(&t) && read_format(&t) &&
              read_reasoning_wish(&t) && read_include(&t) && read_length(&t);
    return dg_translate_end(&t, ok, dg_openai_read_chat, out);
}
