#include "anthropic_request.h"
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "json_fields.h"
#include "openai_request.h"
#include "translate.h"

/* ---- blocks of content ---- */

typedef struct message_reader {
    dg_translation *t;
    size_t message, block;
    json_t *parts;    /* owned: text and pictures */
    json_t *calls;    /* owned */
    json_t *thoughts; /* owned: blocks of thinking */
    const char *role;
} message_reader;

static bool says(const message_reader *r, const char *role)
{
    return !strcmp(r->role, role);
}

static bool wrong_block(const message_reader *r, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages.%zu.content.%zu", r->message, r->block);
    return dg_refuse(r->t->e, 400, "invalid_value", param, "%s: %s", param, what);
}

static bool read_picture(message_reader *r, const json_t *block, json_t *parts)
{
    const json_t *source = json_object_get(block, "source");
    const char *type = json_string_value(json_object_get(source, "media_type"));
    const char *data = json_string_value(json_object_get(source, "data"));
    if (!dg_json_says(json_object_get(source, "type"), "base64"))
        return wrong_block(
            r, "source.type: pictures come as base64, or from hosts that --image-host names");
    if (!type || !data)
        return wrong_block(r, "source: wanted media_type and data");
    dg_translate_add(r->t, parts, dg_translate_picture(type, data));
    return true;
}

static bool read_text(message_reader *r, const json_t *block, json_t *parts)
{
    json_t *text = json_object_get(block, "text");
    if (!json_is_string(text))
        return wrong_block(r, "text: wanted text");
    dg_translate_add(r->t, parts, json_pack("{s:s,s:O}", "type", "text", "text", text));
    return true;
}

/* Documents that are text; others would have to be read by programs that are not here. */
static bool read_document(message_reader *r, const json_t *block, json_t *parts)
{
    const json_t *source = json_object_get(block, "source");
    json_t *text = json_object_get(source, "data");
    if (!dg_json_says(json_object_get(source, "type"), "text") || !json_is_string(text))
        return wrong_block(r, "source: only documents of text are known");
    dg_translate_add(r->t, parts, json_pack("{s:s,s:O}", "type", "text", "text", text));
    return true;
}

static bool read_call(message_reader *r, const json_t *block)
{
    json_t *input = dg_field_get(block, "input"), *name = json_object_get(block, "name");
    if (!json_is_string(name) || (input && !json_is_object(input)))
        return wrong_block(r, "wanted a name, and an object as input");
    dg_translate_add(r->t, r->calls, dg_translate_call(dg_field_get(block, "id"), name, input));
    return true;
}

/* Text, or a list of blocks that have text or pictures. */
static bool read_result_content(message_reader *r, json_t *content, json_t *parts)
{
    size_t i;
    json_t *block;
    if (json_is_string(content))
        dg_translate_add(r->t, parts, json_pack("{s:s,s:O}", "type", "text", "text", content));
    else if (content && !json_is_array(content))
        return wrong_block(r, "content: wanted text or a list of blocks");
    json_array_foreach(content, i, block)
    {
        const json_t *type = json_object_get(block, "type");
        bool ok = dg_json_says(type, "text")       ? read_text(r, block, parts)
                  : dg_json_says(type, "image")    ? read_picture(r, block, parts)
                  : dg_json_says(type, "document") ? read_document(r, block, parts)
                                                   : wrong_block(r, "content: text, image and "
                                                                    "document are known in a "
                                                                    "result");
        if (!ok)
            return false;
    }
    return true;
}

static bool has_only_text(const json_t *parts)
{
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        if (!json_object_get(part, "text"))
            return false;
    }
    return true;
}

/* What came back from a tool is a message of its own. */
static bool read_result(message_reader *r, const json_t *block)
{
    json_t *id = json_object_get(block, "tool_use_id"), *parts = json_array();
    bool ok = json_is_string(id) || wrong_block(r, "tool_use_id: wanted text");
    if (json_is_true(json_object_get(block, "is_error")))
        dg_translate_add(r->t, parts, json_pack("{s:s,s:s}", "type", "text", "text", "Error: "));
    ok = ok && read_result_content(r, dg_field_get(block, "content"), parts);
    if (ok)
        dg_translate_say(r->t,
                         json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", id, "content",
                                   has_only_text(parts) ? dg_translate_text(parts, "text", "")
                                                        : json_incref(parts)));
    json_decref(parts);
    return ok;
}

static bool read_thought(message_reader *r, json_t *block)
{
    if (!json_is_string(json_object_get(block, "thinking")))
        return wrong_block(r, "thinking: wanted text");
    dg_translate_add(r->t, r->thoughts, json_incref(block));
    return true;
}

static bool read_block(message_reader *r, json_t *block)
{
    const json_t *type = json_object_get(block, "type");
    bool assistant = says(r, "assistant"), user = says(r, "user");
    if (dg_json_says(type, "text"))
        return read_text(r, block, r->parts);
    if (dg_json_says(type, "image") && user)
        return read_picture(r, block, r->parts);
    if (dg_json_says(type, "document") && user)
        return read_document(r, block, r->parts);
    if (dg_json_says(type, "tool_result") && user)
        return read_result(r, block);
    if (dg_json_says(type, "tool_use") && assistant)
        return read_call(r, block);
    if (dg_json_says(type, "thinking") && assistant)
        return read_thought(r, block);
    if (dg_json_says(type, "redacted_thinking") && assistant)
        return true; /* nobody can read it */
    return wrong_block(r, assistant ? "type: text, tool_use and thinking are known"
                          : user    ? "type: text, image, document and tool_result are known"
                                    : "type: text is known");
}

/* ---- messages ---- */

static void say_blocks(message_reader *r, bool had_results)
{
    if (had_results && !json_array_size(r->parts))
        return;
    json_t *content = says(r, "user")
                          ? json_incref(r->parts)
                          : dg_translate_text(r->parts, "text", says(r, "system") ? "\n\n" : "");
    json_t *message = json_pack("{s:s,s:o}", "role", r->role, "content", content);
    if (json_array_size(r->thoughts))
        dg_translate_set_in(r->t, message, "reasoning_content",
                            dg_translate_text(r->thoughts, "thinking", "\n"));
    if (json_array_size(r->calls))
        dg_translate_set_in(r->t, message, "tool_calls", json_incref(r->calls));
    dg_translate_say(r->t, message);
}

static bool read_blocks(dg_translation *t, size_t index, const char *role, const json_t *content)
{
    message_reader r = {.t = t,
                        .message = index,
                        .parts = json_array(),
                        .calls = json_array(),
                        .thoughts = json_array(),
                        .role = role};
    size_t before = json_array_size(t->messages);
    json_t *block;
    bool ok = true;
    json_array_foreach(content, r.block, block)
    {
        ok = read_block(&r, block);
        if (!ok)
            break;
    }
    if (ok)
        say_blocks(&r, json_array_size(t->messages) > before);
    json_decref(r.parts);
    json_decref(r.calls);
    json_decref(r.thoughts);
    return ok;
}

static bool read_message(dg_translation *t, size_t index, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content");
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
                  strcmp(role, "system") != 0))
        return dg_refuse(t->e, 400, "invalid_value", "messages",
                         "messages.%zu.role: user, assistant and system are known", index);
    if (json_is_array(content))
        return read_blocks(t, index, role, content);
    if (!json_is_string(content))
        return dg_refuse(t->e, 400, "invalid_type", "messages",
                         "messages.%zu.content: wanted text or a list of blocks", index);
    dg_translate_say(t, json_pack("{s:s,s:O}", "role", role, "content", content));
    return true;
}

/* An answer whose beginning is there goes on from it. */
static void continue_last(dg_translation *t)
{
    size_t n = json_array_size(t->messages);
    const json_t *last = json_array_get(t->messages, n - 1);
    if (n > 1 && dg_json_says(json_object_get(last, "role"), "assistant") &&
        !json_object_get(last, "tool_calls"))
        dg_translate_set(t, "continue_final_message", json_true());
}

static bool read_messages(dg_translation *t)
{
    json_t *messages, *message;
    size_t i;
    if (!dg_field_list(t->root, "messages", &messages, t->e))
        return false;
    if (!json_array_size(messages))
        return dg_refuse(t->e, 400, "invalid_value", "messages",
                         "messages: wanted a list with something in it");
    json_array_foreach(messages, i, message)
    {
        if (!read_message(t, i, message))
            return false;
    }
    continue_last(t);
    return true;
}

/* A line for the service's bookkeeping that Claude Code puts first. It says nothing to a model, and
 * a part of it is new in each request: with it no two prompts would begin alike. */
static bool is_bookkeeping(const json_t *text)
{
    static const char name[] = "x-anthropic-billing-header:";
    return json_is_string(text) && !strncmp(json_string_value(text), name, sizeof name - 1);
}

static void say_system(dg_translation *t, json_t *system)
{
    json_t *blocks = json_array(), *block;
    size_t i;
    if (is_bookkeeping(system)) {
        const char *rest = strchr(json_string_value(system), '\n');
        dg_translate_add(t, blocks, json_pack("{s:s}", "text", rest ? rest + 1 : ""));
    } else if (json_is_string(system)) {
        dg_translate_add(t, blocks, json_pack("{s:O}", "text", system));
    }
    json_array_foreach(system, i, block)
    {
        if (!is_bookkeeping(json_object_get(block, "text")))
            dg_translate_add(t, blocks, json_incref(block));
    }
    dg_translate_say(t, json_pack("{s:s,s:o}", "role", "system", "content",
                                  dg_translate_text(blocks, "text", "\n\n")));
    json_decref(blocks);
}

static bool read_system(dg_translation *t)
{
    json_t *system = dg_field_get(t->root, "system"), *block;
    size_t i;
    if (!system)
        return true;
    if (!json_is_string(system) && !json_is_array(system))
        return dg_refuse(t->e, 400, "invalid_type", "system",
                         "system: wanted text or a list of blocks");
    json_array_foreach(system, i, block)
    {
        if (!json_is_string(json_object_get(block, "text")))
            return dg_refuse(t->e, 400, "invalid_value", "system",
                             "system.%zu: only blocks of text are known", i);
    }
    say_system(t, system);
    return true;
}

/* ---- tools and thinking ---- */

static bool read_tools(dg_translation *t)
{
    json_t *tools, *tool, *list = json_array();
    size_t i;
    bool ok = dg_field_list(t->root, "tools", &tools, t->e);
    json_array_foreach(tools, i, tool)
    {
        const json_t *type = dg_field_get(tool, "type");
        if (ok && type && !dg_json_says(type, "custom"))
            ok = dg_refuse(t->e, 400, "unsupported", "tools",
                           "tools.%zu.type: only tools of the client's own are known", i);
        if (ok && !json_is_string(json_object_get(tool, "name")))
            ok = dg_refuse(t->e, 400, "invalid_value", "tools", "tools.%zu.name: wanted text", i);
        if (ok)
            dg_translate_add(t, list, dg_translate_tool(tool, "input_schema"));
    }
    dg_translate_set(t, "tools", list);
    dg_translate_set(t, "parameters_at", json_string("input_schema"));
    return ok;
}

static bool read_tool_choice(dg_translation *t)
{
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    json_t *choice;
    if (!dg_field_object(t->root, "tool_choice", &choice, t->e))
        return false;
    if (!choice)
        return true;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        dg_translate_set(t, "parallel_tool_calls", json_false());
    const json_t *type = json_object_get(choice, "type");
    for (size_t i = 0; i < DG_COUNT(words); i++)
        if (dg_json_says(type, words[i][0])) {
            dg_translate_set(t, "tool_choice", json_string(words[i][1]));
            return true;
        }
    json_t *name = json_object_get(choice, "name");
    if (!dg_json_says(type, "tool") || !json_is_string(name))
        return dg_refuse(t->e, 400, "invalid_value", "tool_choice",
                         "tool_choice.type: auto, any, none, or tool with a name are known");
    dg_translate_set(t, "tool_choice",
                     json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name));
    return true;
}

static bool read_thinking(dg_translation *t)
{
    json_t *thinking;
    if (!dg_field_object(t->root, "thinking", &thinking, t->e))
        return false;
    const json_t *type = json_object_get(thinking, "type");
    bool on = dg_json_says(type, "enabled") || dg_json_says(type, "adaptive") ||
              dg_json_says(type, "between_tools");
    if (thinking && !on && !dg_json_says(type, "disabled"))
        return dg_refuse(t->e, 400, "invalid_value", "thinking",
                         "thinking.type: enabled, adaptive, between_tools and disabled are known");
    json_t *budget = on ? dg_field_get(thinking, "budget_tokens") : NULL;
    if (budget && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return dg_refuse(t->e, 400, "invalid_value", "thinking",
                         "thinking.budget_tokens: wanted a whole number above 0");
    if (budget)
        dg_translate_set(t, "thinking_budget", json_incref(budget));
    dg_translate_set(t, "enable_thinking", json_boolean(on));
    dg_translate_set(t, "include_reasoning", json_boolean(on));
    return true;
}

/* {"type": "json_schema", "schema": …} */
static bool read_format(dg_translation *t, const json_t *format, const char *name, const char *at)
{
    if (!format)
        return true;
    if (!dg_json_says(json_object_get(format, "type"), "json_schema"))
        return dg_refuse(t->e, 400, "invalid_value", name, "%s.type: json_schema is known", name);
    if (dg_field_get(t->chat, "response_format"))
        return dg_refuse(t->e, 400, "invalid_value", name,
                         "output_config.format and output_format: one of them is enough");
    dg_translate_schema(t, dg_field_get(format, "schema"), NULL, at);
    return true;
}

/* Answers in the form of a schema are asked for here, and how much is to be thought about them:
 * whether, `thinking` says. */
static bool read_output_config(dg_translation *t)
{
    json_t *config;
    const char *effort;
    if (!dg_field_object(t->root, "output_config", &config, t->e) ||
        !dg_field_string(config, "effort", &effort, t->e))
        return false;
    if (effort && !dg_is_effort(effort))
        return dg_refuse(t->e, 400, "invalid_value", "output_config",
                         "output_config.effort: " DG_EFFORTS " are known");
    return read_format(t, dg_field_get(config, "format"), "output_config.format",
                       "/output_config/format/schema") &&
           read_format(t, dg_field_get(t->root, "output_format"), "output_format",
                       "/output_format/schema");
}

static bool read_body(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                      dg_http_error *e, bool counts)
{
    dg_translation t;
    dg_translate_begin(&t, root, limits, seed, e);
    dg_translate_copy(&t, "max_tokens", "max_tokens");
    bool ok = counts || dg_field_get(root, "max_tokens") ||
              dg_refuse(e, 400, "invalid_value", "max_tokens", "max_tokens: missing");
    ok = ok && read_system(&t) && read_messages(&t) && read_tools(&t) && read_tool_choice(&t) &&
         read_thinking(&t) && read_output_config(&t) &&
         dg_translate_stop(&t, root, "stop_sequences");
    return dg_translate_end(&t, ok, dg_openai_read_chat, out);
}

bool dg_anthropic_read(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                       dg_http_error *e)
{
    return read_body(out, root, limits, seed, e, false);
}

bool dg_anthropic_read_count(dg_chat *out, json_t *root, const dg_chat_limits *limits,
                             uint64_t seed, dg_http_error *e)
{
    return read_body(out, root, limits, seed, e, true);
}
