#include "constraint/tool_calls.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "constraint/language.h"
#include "constraint/points.h"
#include "constraint/schema.h"
#include "text/call_syntax.h"
#include "text/json_tree.h"

static dg_node mark(dg_syntax *s, const char *name)
{
    return dg_syntax_symbol(s, -1, name, strlen(name));
}

/* ---- a tool ---- */

typedef struct tool {
    dg_text name;
    const dg_json *parameters; /* NULL: it has none */
    bool strict;
    char base[64]; /* JSON pointer to the parameters */
} tool;

static bool is_true(const dg_json *v)
{
    return v && v->kind == DG_JSON_TRUE;
}

/* False: it is no function with a name. */
static bool read_tool(tool *t, const dg_json *json, size_t index)
{
    const dg_json *function = dg_json_get(json, "function");
    bool inner = function && function->kind == DG_JSON_OBJECT;
    const dg_json *of = inner ? function : json;
    const dg_json *name = dg_json_get(of, "name");
    *t = (tool){.parameters = dg_json_get(of, "parameters"),
                .strict =
                    is_true(dg_json_get(of, "strict")) || is_true(dg_json_get(json, "strict"))};
    if (t->parameters && t->parameters->kind == DG_JSON_NULL)
        t->parameters = NULL;
    snprintf(t->base, sizeof t->base, inner ? "/%zu/function/parameters" : "/%zu/parameters",
             index);
    if (!name || name->kind != DG_JSON_STRING || !name->text.len)
        return false;
    t->name = name->text;
    return true;
}

static bool is_allowed(const dg_calls_options *o, dg_text name)
{
    for (size_t i = 0; i < o->n_allowed; i++)
        if (dg_text_is(name, o->allowed[i]))
            return true;
    return !o->n_allowed;
}

/* ---- its arguments ---- */

static dgemma_status compile_arguments(dg_syntax *s, const tool *t, dg_buf *ignored, dg_node *out,
                                       dgemma_error *err)
{
    dg_schema_options options = {
        .call = true, .lenient = !t->strict, .ignored = ignored, .base = t->base};
    if (!t->parameters) {
        *out = dg_syntax_word(s, "{}");
        return DGEMMA_OK;
    }
    return dg_schema_compile(s, t->parameters->source.data, t->parameters->source.len, &options,
                             out, err);
}

/* Whether arguments can be held to the schema, found out in a syntax of its own: what goes wrong
 * there does not spoil the other tools. */
static dgemma_status try_arguments(const tool *t, dgemma_error *err)
{
    dg_syntax *s;
    dg_language *l = NULL;
    dg_node node;
    dgemma_status st = dg_syntax_create(&s, DG_SCHEMA_LEVELS, err);
    if (st)
        return st;
    st = compile_arguments(s, t, NULL, &node, err);
    if (!st)
        st = dg_syntax_finish(s, node, err);
    if (!st)
        st = dg_language_create(&l, s, err);
    if (!st)
        st = dg_language_probe(l, err);
    dg_language_free(l);
    dg_syntax_free(s);
    return st;
}

static bool note_loose(dg_buf *ignored, const tool *t)
{
    return !ignored || (dg_buf_puts(ignored, "parameters at #") &&
                        dg_buf_append(ignored, t->base, strlen(t->base) - strlen("/parameters")) &&
                        dg_buf_puts(ignored, "\n"));
}

static dgemma_status arguments_node(dg_syntax *s, const dg_calls_options *o, const tool *t,
                                    dg_node *out, dgemma_error *err)
{
    dgemma_error why = {0};
    dgemma_status st = try_arguments(t, &why);
    if (!st)
        return compile_arguments(s, t, o->ignored, out, err);
    if (st == DGEMMA_E_NOMEM || t->strict)
        return dg_fail(err, st, "%.*s: %s", (int)(t->name.len < 100 ? t->name.len : 100),
                       t->name.data, why.msg);
    *out = dg_schema_any_arguments(s);
    return note_loose(o->ignored, t) ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

/* ---- calls ---- */

/* One that who reads calls would not take for a name is never called. */
static dgemma_status can_be_called(dg_text name, bool *can, dgemma_error *err)
{
    dg_buf text, read, arguments;
    dg_buf_init(&text, DG_CALL_MAX_NAME + 8);
    dg_buf_init(&read, DG_CALL_MAX_NAME + 8);
    dg_buf_init(&arguments, 64);
    dgemma_status st = DGEMMA_E_ARG;
    if (name.len <= DG_CALL_MAX_NAME) {
        bool ok = dg_buf_puts(&text, "call:") && dg_buf_append(&text, name.data, name.len) &&
                  dg_buf_puts(&text, "{}");
        dg_text body = {text.data, text.len};
        st = ok ? dg_call_read(&body, true, &read, &arguments) : DGEMMA_E_NOMEM;
        if (!st && (body.len || read.len != name.len || memcmp(read.data, name.data, name.len)))
            st = DGEMMA_E_ARG;
    }
    *can = !st;
    dg_buf_clear(&text);
    dg_buf_clear(&read);
    dg_buf_clear(&arguments);
    return st == DGEMMA_E_NOMEM ? dg_fail(err, st, "out of memory") : DGEMMA_OK;
}

static dg_node call_node(dg_syntax *s, dg_text name, dg_node arguments)
{
    const dg_node parts[] = {dg_syntax_word(s, "call:"), dg_syntax_literal(s, name.data, name.len),
                             arguments};
    return dg_syntax_sequence(s, parts, DG_COUNT(parts));
}

/* One call of any of the tools; NEVER: none can be called. */
static dgemma_status any_call(dg_syntax *s, const dg_calls_options *o, const dg_json *tools,
                              dg_node *out, dgemma_error *err)
{
    dg_node *way = dg_array(tools->n_child + 1, sizeof *way), arguments;
    size_t n = 0, index = 0;
    dgemma_status st = way ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (const dg_json *m = tools->child; m && !st; m = m->next, index++) {
        tool t;
        bool can = false;
        if (!read_tool(&t, m, index))
            st = dg_fail(err, DGEMMA_E_ARG, "tools[%zu]: not a function with a name", index);
        else
            st = can_be_called(t.name, &can, err);
        if (st || !can || !is_allowed(o, t.name))
            continue;
        st = arguments_node(s, o, &t, &arguments, err);
        if (!st)
            way[n++] = call_node(s, t.name, arguments);
    }
    if (!st) {
        const dg_node parts[] = {mark(s, DG_CALL_MARK_OPEN), dg_syntax_choice(s, way, n),
                                 mark(s, DG_CALL_MARK_CLOSE)};
        *out = n ? dg_syntax_sequence(s, parts, DG_COUNT(parts)) : DG_NODE_NEVER;
    }
    dg_free(way);
    return st;
}

/* A name that is nobody's is a slip, and would be a tool that is never called. */
static dgemma_status check_allowed(const dg_calls_options *o, const dg_json *tools,
                                   dgemma_error *err)
{
    for (size_t i = 0; i < o->n_allowed; i++) {
        bool found = false;
        size_t index = 0;
        for (const dg_json *m = tools->child; m && !found; m = m->next, index++) {
            tool t;
            found = read_tool(&t, m, index) && dg_text_is(t.name, o->allowed[i]);
        }
        if (!found)
            return dg_fail(err, DGEMMA_E_ARG, "tools: none is called \"%.100s\"", o->allowed[i]);
    }
    return DGEMMA_OK;
}

static dgemma_status turn_node(dg_syntax *s, const dg_calls_options *o, const dg_json *tools,
                               dg_node *out, dgemma_error *err)
{
    bool held = o->answer != DG_NODE_NEVER, must = o->mode == DG_CALLS_REQUIRED;
    dg_node text = held ? o->answer : dg_points_text(s, DG_SPELL_RAW), call;
    if (tools->kind != DG_JSON_ARRAY)
        return dg_fail(err, DGEMMA_E_ARG, "tools: wanted a list");
    if (tools->n_child > DG_CALLS_MAX_TOOLS)
        return dg_fail(err, DGEMMA_E_LIMIT, "tools: more than %d", DG_CALLS_MAX_TOOLS);
    *out = text;
    if (o->mode == DG_CALLS_NONE)
        return DGEMMA_OK;
    dgemma_status st = any_call(s, o, tools, &call, err);
    if (!st)
        st = check_allowed(o, tools, err);
    if (st)
        return st;
    if (must && call == DG_NODE_NEVER && !s->status)
        return dg_fail(err, DGEMMA_E_ARG, "no tool can be called, and a call is required");
    dg_node calls = dg_syntax_repeat(s, call, must || held, o->single ? 1 : DG_CALLS_MAX);
    *out = must ? calls : held ? dg_syntax_either(s, text, calls) : dg_syntax_pair(s, text, calls);
    return DGEMMA_OK;
}

dgemma_status dg_calls_compile(dg_syntax *s, const dg_calls_options *options, dg_node *out,
                               dgemma_error *err)
{
    dg_json_tree tree;
    dgemma_status st = dg_json_read(&tree, options->tools, options->len, "tools", err);
    if (st)
        return st;
    *out = DG_NODE_NEVER;
    st = turn_node(s, options, tree.root, out, err);
    dg_json_tree_clear(&tree);
    return st;
}
