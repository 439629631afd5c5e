/* Functions in the prompt: what they are called with, their calls and results. The order of things
 * and what is left out follow the templates' macros of the same names. */
#include "text/chat_writer.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/utf8.h"
#include "text/letter_case.h"
#include "text/python_text.h"

static void refuse(dg_chat_writer *w, const char *where, const char *what)
{
    if (!w->status)
        w->status = dg_fail(w->err, DGEMMA_E_ARG, "%s: %s", where, what);
}

/* ---- declarations ---- */

typedef struct declaration {
    dg_chat_writer *w;
    char where[32]; /* "tools[3]" */
} declaration;

/* {{ v | upper }} == word */
static bool upper_is(const dg_json *v, const char *word)
{
    if (!v || v->kind != DG_JSON_STRING || v->text.len != strlen(word))
        return false;
    for (size_t i = 0; i < v->text.len; i++)
        if (dg_letter_upper((unsigned char)v->text.data[i]) != (unsigned char)word[i])
            return false;
    return true;
}

static void put_quoted_str(dg_chat_writer *w, const dg_json *v)
{
    dg_chat_mark(w, "<|\"|>");
    dg_chat_str(w, v);
    dg_chat_mark(w, "<|\"|>");
}

static void put_characters(dg_chat_writer *w, dg_text text)
{
    for (size_t i = 0, n; i < text.len && !w->status; i += n) {
        n = dg_utf8_decode(text.data + i, text.len - i, NULL);
        n = n ? n : 1;
        dg_chat_puts(w, i ? "," : "");
        dg_chat_quoted(w, (dg_text){text.data + i, n});
    }
}

/* required:[…]. Python walks through the keys of an object and the characters of a string. */
static void put_required(const declaration *d, const dg_json *list)
{
    dg_chat_writer *w = d->w;
    dg_chat_puts(w, "required:[");
    if (list->kind == DG_JSON_STRING)
        put_characters(w, list->text);
    else if (list->kind != DG_JSON_ARRAY && list->kind != DG_JSON_OBJECT)
        refuse(w, d->where, "\"required\" is not a list");
    for (const dg_json *m = list->child; m && !w->status; m = m->next) {
        if (list->kind == DG_JSON_OBJECT)
            dg_chat_quoted(w, m->key);
        else
            put_quoted_str(w, m);
        dg_chat_puts(w, m->next ? "," : "");
    }
    dg_chat_puts(w, "]");
}

static void put_parameters(const declaration *d, const dg_json *properties, bool filter_keys);

/* "type" inside "items": one, or a list of them; what counts as false passes for an empty list. */
static void put_item_type(const declaration *d, const dg_json *type)
{
    dg_chat_writer *w = d->w;
    dg_chat_puts(w, "type:");
    if (type->kind == DG_JSON_STRING) {
        dg_chat_mark(w, "<|\"|>");
        dg_chat_upper(w, type);
        dg_chat_mark(w, "<|\"|>");
        return;
    }
    if (type->kind != DG_JSON_ARRAY && type->kind != DG_JSON_OBJECT && dg_python_truth(type))
        refuse(w, d->where, "\"type\" in \"items\" is neither text nor a list");
    dg_chat_puts(w, "[");
    for (const dg_json *m = type->child; m && !w->status; m = m->next) {
        dg_json key = {.kind = DG_JSON_STRING, .text = m->key};
        dg_chat_mark(w, "<|\"|>");
        dg_chat_upper(w, type->kind == DG_JSON_OBJECT ? &key : m);
        dg_chat_mark(w, "<|\"|>");
        dg_chat_puts(w, m->next ? "," : "");
    }
    dg_chat_puts(w, "]");
}

static void put_item(const declaration *d, const dg_json *item)
{
    dg_chat_writer *w = d->w;
    if (dg_text_is(item->key, "properties")) {
        dg_chat_puts(w, "properties:{");
        if (item->kind == DG_JSON_OBJECT)
            put_parameters(d, item, false);
        dg_chat_puts(w, "}");
    } else if (dg_text_is(item->key, "required")) {
        put_required(d, item);
    } else if (dg_text_is(item->key, "type")) {
        put_item_type(d, item);
    } else {
        dg_chat_put(w, item->key);
        dg_chat_puts(w, ":");
        dg_chat_value(w, item, true);
    }
}

static void put_items(const declaration *d, const dg_json *items)
{
    dg_chat_writer *w = d->w;
    dg_chat_puts(w, "items:{");
    dg_chat_sorted members = dg_chat_sort(w, items);
    bool first = true;
    for (size_t i = 0; i < members.n; i++) {
        if (members.at[i]->kind == DG_JSON_NULL)
            continue;
        dg_chat_puts(w, first ? "" : ",");
        first = false;
        put_item(d, members.at[i]);
    }
    dg_free(members.at);
    dg_chat_puts(w, "}");
}

static void comma(dg_chat_writer *w, bool *first)
{
    dg_chat_puts(w, *first ? "" : ",");
    *first = false;
}

/* What an object declares; without "properties" its own members count as such. */
static void put_object(const declaration *d, const dg_json *value, bool *first)
{
    dg_chat_writer *w = d->w;
    const dg_json *properties = dg_json_get(value, "properties");
    const dg_json *required = dg_json_get(value, "required");
    bool listed = properties && properties->kind == DG_JSON_OBJECT;
    comma(w, first);
    dg_chat_puts(w, "properties:{");
    put_parameters(d, listed ? properties : value, !listed);
    dg_chat_puts(w, "}");
    if (dg_python_truth(required)) {
        comma(w, first);
        put_required(d, required);
    }
}

static void put_parameter(const declaration *d, const dg_json *value)
{
    dg_chat_writer *w = d->w;
    const dg_json *type = dg_json_get(value, "type");
    const dg_json *description = dg_json_get(value, "description");
    const dg_json *choices = dg_json_get(value, "enum"), *items = dg_json_get(value, "items");
    bool first = true;
    dg_chat_put(w, value->key);
    dg_chat_puts(w, ":{");
    if (dg_python_truth(description)) {
        comma(w, &first);
        dg_chat_puts(w, "description:");
        put_quoted_str(w, description);
    }
    if (upper_is(type, "STRING") && dg_python_truth(choices)) {
        comma(w, &first);
        dg_chat_puts(w, "enum:");
        dg_chat_value(w, choices, true);
    }
    if (upper_is(type, "ARRAY") && items && items->kind == DG_JSON_OBJECT && items->n_child) {
        comma(w, &first);
        put_items(d, items);
    }
    if (dg_python_truth(dg_json_get(value, "nullable"))) {
        comma(w, &first);
        dg_chat_puts(w, "nullable:true");
    }
    if (upper_is(type, "OBJECT"))
        put_object(d, value, &first);
    comma(w, &first);
    dg_chat_puts(w, "type:");
    dg_chat_mark(w, "<|\"|>");
    dg_chat_upper(w, type);
    dg_chat_mark(w, "<|\"|>");
    dg_chat_puts(w, "}");
}

static bool is_standard_key(dg_text key)
{
    static const char *const keys[] = {"description", "type", "properties", "required", "nullable"};
    for (size_t i = 0; i < DG_COUNT(keys); i++)
        if (dg_text_is(key, keys[i]))
            return true;
    return false;
}

/* A leaves out every parameter that is called like a word of the schema, B only where the schema's
 * own members stand in for the properties. */
static void put_parameters(const declaration *d, const dg_json *properties, bool filter_keys)
{
    dg_chat_writer *w = d->w;
    if (properties->kind != DG_JSON_OBJECT) {
        refuse(w, d->where, "\"properties\" is not an object");
        return;
    }
    bool filter = filter_keys || w->revision == DG_CHAT_REVISION_A, first = true;
    dg_chat_sorted members = dg_chat_sort(w, properties);
    for (size_t i = 0; i < members.n && !w->status; i++) {
        if (filter && is_standard_key(members.at[i]->key))
            continue;
        comma(w, &first);
        put_parameter(d, members.at[i]);
    }
    dg_free(members.at);
}

/* Without a type the braces stay open, in the templates as here: the model saw it so. */
static void put_schema(const declaration *d, const dg_json *schema)
{
    dg_chat_writer *w = d->w;
    const dg_json *properties = dg_json_get(schema, "properties");
    const dg_json *required = dg_json_get(schema, "required"), *type = dg_json_get(schema, "type");
    dg_chat_puts(w, ",parameters:{");
    if (dg_python_truth(properties)) {
        dg_chat_puts(w, "properties:{");
        put_parameters(d, properties, false);
        dg_chat_puts(w, "},");
    }
    if (dg_python_truth(required)) {
        put_required(d, required);
        dg_chat_puts(w, ",");
    }
    if (dg_python_truth(type)) {
        dg_chat_puts(w, "type:");
        dg_chat_mark(w, "<|\"|>");
        dg_chat_upper(w, type);
        dg_chat_mark(w, "<|\"|>");
        dg_chat_puts(w, "}");
    }
}

static void put_response_schema(dg_chat_writer *w, const dg_json *schema)
{
    const dg_json *description = dg_json_get(schema, "description");
    dg_chat_puts(w, ",response:{");
    if (dg_python_truth(description)) {
        dg_chat_puts(w, "description:");
        put_quoted_str(w, description);
        dg_chat_puts(w, ",");
    }
    if (upper_is(dg_json_get(schema, "type"), "OBJECT")) {
        dg_chat_puts(w, "type:");
        dg_chat_quoted(w, DG_TEXT("OBJECT"));
        dg_chat_puts(w, "}");
    }
}

static void put_declaration(const declaration *d, const dg_json *tool)
{
    dg_chat_writer *w = d->w;
    const dg_json *function = dg_json_get(tool, "function");
    function = function ? function : tool;
    const dg_json *name = dg_json_get(function, "name");
    if (!name || name->kind != DG_JSON_STRING) {
        refuse(w, d->where, "not a function with a \"name\"");
        return;
    }
    dg_chat_mark(w, "<|tool>");
    dg_chat_puts(w, "declaration:");
    dg_chat_put(w, name->text);
    dg_chat_puts(w, "{description:");
    put_quoted_str(w, dg_json_get(function, "description"));
    const dg_json *parameters = dg_json_get(function, "parameters");
    const dg_json *response = dg_json_get(function, "response");
    if (dg_python_truth(parameters))
        put_schema(d, parameters);
    if (response)
        put_response_schema(w, response);
    dg_chat_puts(w, "}");
    dg_chat_mark(w, "<tool|>");
}

void dg_chat_declare(dg_chat_writer *w, const dg_json *tools)
{
    declaration d = {.w = w};
    size_t i = 0;
    for (const dg_json *tool = tools->child; tool && !w->status; tool = tool->next) {
        snprintf(d.where, sizeof d.where, "tools[%zu]", i++);
        put_declaration(&d, tool);
    }
}

dgemma_status dg_chat_find_tool(dg_text tools, const char *name, bool *found, size_t *n,
                                dgemma_error *err)
{
    *found = false;
    *n = 0;
    if (!tools.data)
        return DGEMMA_OK;
    dg_json_tree tree;
    dgemma_status st = dg_json_read(&tree, tools.data, tools.len, "tools", err);
    if (st)
        return st;
    for (const dg_json *tool = tree.root->kind == DG_JSON_ARRAY ? tree.root->child : NULL; tool;
         tool = tool->next) {
        const dg_json *function = dg_json_get(tool, "function");
        const dg_json *its = dg_json_get(function ? function : tool, "name");
        *found =
            *found || (name && its && its->kind == DG_JSON_STRING && dg_text_is(its->text, name));
        ++*n;
    }
    dg_json_tree_clear(&tree);
    return DGEMMA_OK;
}

/* ---- calls and results ---- */

void dg_chat_call(dg_chat_writer *w, const dg_tool_call *call, const char *where)
{
    if (w->status)
        return;
    dg_json_tree tree = {0};
    if (call->arguments.data)
        w->status = dg_json_read(&tree, call->arguments.data, call->arguments.len, where, w->err);
    dg_chat_mark(w, "<|tool_call>");
    dg_chat_puts(w, "call:");
    dg_chat_put(w, call->name);
    dg_chat_puts(w, "{");
    if (tree.root && tree.root->kind == DG_JSON_OBJECT)
        dg_chat_members(w, tree.root, false);
    else if (tree.root && tree.root->kind != DG_JSON_NULL)
        refuse(w, where, "the arguments of a call are not a JSON object");
    dg_chat_puts(w, "}");
    dg_chat_mark(w, "<tool_call|>");
    dg_json_tree_clear(&tree);
}

static void begin_response(dg_chat_writer *w, dg_text name)
{
    dg_chat_mark(w, "<|tool_response>");
    dg_chat_puts(w, "response:");
    dg_chat_put(w, name);
    dg_chat_puts(w, "{");
}

static void end_response(dg_chat_writer *w)
{
    dg_chat_puts(w, "}");
    dg_chat_mark(w, "<tool_response|>");
}

void dg_chat_response(dg_chat_writer *w, dg_text name, dg_text json, const char *where)
{
    dg_json_tree tree;
    if (w->status)
        return;
    w->status = dg_json_read(&tree, json.data, json.len, where, w->err);
    if (w->status)
        return;
    begin_response(w, name);
    if (tree.root->kind == DG_JSON_OBJECT) {
        dg_chat_members(w, tree.root, false);
    } else {
        dg_chat_puts(w, "value:");
        dg_chat_value(w, tree.root, false);
    }
    end_response(w);
    dg_json_tree_clear(&tree);
}

void dg_chat_response_text(dg_chat_writer *w, dg_text name, dg_text text)
{
    begin_response(w, name);
    dg_chat_puts(w, "value:");
    dg_chat_quoted(w, text);
    end_response(w);
}
