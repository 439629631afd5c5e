#include "openai_tools.h"
#include <string.h>
#include "base/common.h"
#include "json_fields.h"
#include "json_text.h"
#include "translate.h"

static bool no_memory(dg_http_error *e)
{
    dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the request");
    e->retry_after = 5;
    return false;
}

/* ---- functions, as they were before tools ---- */

/* Calls had no ids: a result was of the call before it. */
static bool read_old_message(json_t *message, size_t index, json_t **call_id, dg_http_error *e)
{
    json_t *call = dg_field_get(message, "function_call");
    int failed = 0;
    if (call && !json_is_object(call))
        return dg_refuse(e, 400, "invalid_type", "messages",
                         "messages[%zu].function_call: wanted an object", index);
    if (call) {
        json_decref(*call_id);
        *call_id = json_sprintf("call_%zu", index);
        failed |= json_object_set_new(
            message, "tool_calls",
            json_pack("[{s:O,s:s,s:O}]", "id", *call_id, "type", "function", "function", call));
    }
    if (dg_json_says(json_object_get(message, "role"), "function")) {
        failed |= json_object_set_new(message, "role", json_string("tool"));
        if (*call_id)
            failed |= json_object_set(message, "tool_call_id", *call_id);
    }
    return !failed || no_memory(e);
}

static bool read_old_messages(const json_t *messages, dg_http_error *e)
{
    json_t *message, *call_id = NULL;
    size_t i;
    bool ok = true;
    json_array_foreach(messages, i, message)
    {
        ok = ok && (!json_is_object(message) || read_old_message(message, i, &call_id, e));
    }
    json_decref(call_id);
    return ok;
}

/* "none", "auto", or {"name": …}. */
static bool read_old_choice(json_t *root, dg_http_error *e)
{
    json_t *choice = dg_field_get(root, "function_call");
    if (!choice)
        return true;
    json_t *name = json_object_get(choice, "name");
    if (!json_is_string(name) && !dg_json_says(choice, "none") && !dg_json_says(choice, "auto"))
        return dg_refuse(e, 400, "invalid_value", "function_call",
                         "function_call: none, auto or a function by name are known");
    json_t *now = name ? json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name)
                       : json_incref(choice);
    return !json_object_set_new(root, "tool_choice", now) || no_memory(e);
}

bool dg_openai_read_functions(dg_chat *out, dg_http_error *e)
{
    json_t *functions, *function;
    size_t i;
    if (!read_old_messages(json_object_get(out->root, "messages"), e) ||
        !dg_field_list(out->root, "functions", &functions, e))
        return false;
    if (!functions || dg_field_get(out->root, "tools"))
        return true; /* who says both says them for servers that know one of them */
    json_t *tools = json_array();
    bool ok = tools != NULL;
    json_array_foreach(functions, i, function)
    {
        ok = ok && !json_array_append_new(
                       tools, json_pack("{s:s,s:O}", "type", "function", "function", function));
    }
    ok = !json_object_set_new(out->root, "tools", tools) && ok;
    out->old_functions = out->options.single_tool_call = true;
    return ok ? read_old_choice(out->root, e) : no_memory(e);
}

/* ---- tools ---- */

static const char *name_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_string_value(json_object_get(function ? function : tool, "name"));
}

/* Beside the function, or in it. */
static bool strict_is_sound(const json_t *tool)
{
    const json_t *outer = dg_field_get(tool, "strict");
    const json_t *inner = dg_field_get(json_object_get(tool, "function"), "strict");
    return (!outer || json_is_boolean(outer)) && (!inner || json_is_boolean(inner));
}

static bool check_tools(const json_t *tools, dg_http_error *e)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        const json_t *type = dg_field_get(tool, "type");
        if (type && !dg_json_says(type, "function"))
            return dg_refuse(e, 400, "unsupported", "tools",
                             "tools[%zu].type: only functions are known", i);
        if (!name_of(tool))
            return dg_refuse(e, 400, "invalid_value", "tools", "tools[%zu].function.name: missing",
                             i);
        if (!strict_is_sound(tool))
            return dg_refuse(e, 400, "invalid_type", "tools",
                             "tools[%zu], strict: wanted true or false", i);
    }
    return true;
}

static json_t *find(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        if (!strcmp(name_of(tool), name))
            return tool;
    }
    return NULL;
}

static bool wrong_choice(dg_http_error *e)
{
    return dg_refuse(e, 400, "invalid_value", "tool_choice",
                     "tool_choice: none, auto, required, a function by name and allowed_tools are "
                     "known");
}

/* Only tools that are declared can be meant. */
static bool check_name(const json_t *tools, const char *name, dg_http_error *e)
{
    if (!name)
        return wrong_choice(e);
    return find(tools, name) || dg_refuse(e, 400, "invalid_value", "tool_choice",
                                          "tool_choice: no tool is called \"%.100s\"", name);
}

/* The model is told of these alone, and can call no others. */
static bool read_allowed(json_t *tools, const json_t *allowed, dg_http_error *e)
{
    json_t *named = json_object_get(allowed, "tools"), *tool;
    size_t i;
    if (!json_is_array(named))
        return wrong_choice(e);
    json_t *left = json_array();
    bool ok = left != NULL || no_memory(e);
    json_array_foreach(named, i, tool)
    {
        const json_t *type = json_object_get(tool, "type");
        if (type && !dg_json_says(type, "function"))
            continue; /* of the service's own: not to be had here */
        ok = ok && check_name(tools, name_of(tool), e);
        if (ok && !find(left, name_of(tool)))
            ok = !json_array_append(left, find(tools, name_of(tool))) || no_memory(e);
    }
    if (ok && tools)
        ok = (!json_array_clear(tools) && !json_array_extend(tools, left)) || no_memory(e);
    json_decref(left);
    return ok;
}

static bool require_call(dg_chat *out, const json_t *tools, dg_http_error *e)
{
    size_t n = json_array_size(tools);
    if (!n)
        return dg_refuse(e, 400, "invalid_value", "tool_choice",
                         "tool_choice: a call is required, and there are no tools");
    out->options.tool_choice = n == 1 ? DGEMMA_TOOLS_NAMED : DGEMMA_TOOLS_REQUIRED;
    out->options.tool_name = n == 1 ? name_of(json_array_get(tools, 0)) : NULL;
    return true;
}

static bool read_word(dg_chat *out, const json_t *word, const json_t *tools, dg_http_error *e)
{
    if (dg_json_says(word, "required"))
        return require_call(out, tools, e);
    if (dg_json_says(word, "none"))
        out->options.tool_choice = DGEMMA_TOOLS_NONE;
    else if (!dg_json_says(word, "auto"))
        return wrong_choice(e);
    return true;
}

/* A word; {"type": "function", "function": {"name": …}}; {"type": "allowed_tools", "allowed_tools":
 * {"mode": …, "tools": […]}}. The Responses API has the inner members outside. */
static bool read_choice(dg_chat *out, json_t *tools, dg_http_error *e)
{
    const json_t *choice = dg_field_get(out->root, "tool_choice");
    if (!choice)
        return true;
    if (dg_json_says(json_object_get(choice, "type"), "allowed_tools")) {
        const json_t *inner = json_object_get(choice, "allowed_tools");
        const json_t *allowed = inner ? inner : choice;
        return read_allowed(tools, allowed, e) &&
               read_word(out, json_object_get(allowed, "mode"), tools, e);
    }
    if (!json_is_object(choice))
        return read_word(out, choice, tools, e);
    if (!check_name(tools, name_of(choice), e))
        return false;
    out->options.tool_choice = DGEMMA_TOOLS_NAMED;
    out->options.tool_name = name_of(choice);
    return true;
}

bool dg_openai_read_tools(dg_chat *out, dg_http_error *e)
{
    json_t *tools;
    const json_t *parallel = dg_field_get(out->root, "parallel_tool_calls");
    if (parallel && !json_is_boolean(parallel))
        return dg_refuse(e, 400, "invalid_type", "parallel_tool_calls",
                         "parallel_tool_calls: wanted true or false");
    if (!dg_field_list(out->root, "tools", &tools, e) || !check_tools(tools, e) ||
        !read_choice(out, tools, e))
        return false;
    out->options.single_tool_call |= json_is_false(parallel);
    if (!json_array_size(tools) || out->options.tool_choice == DGEMMA_TOOLS_NONE)
        return true;
    out->tools = dg_json_dump(tools, NULL);
    out->options.tools = out->tools;
    return out->tools || no_memory(e);
}
