#include "constraint_request.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/common.h"
#include "json_body.h"
#include "json_fields.h"
#include "json_text.h"
#include "translate.h"

enum {
    MAX_TOLD = 6000, /* bytes of a schema in the prompt: about 2,000 tokens */
    MAX_CHOICES = 10000
};

typedef struct finder {
    dg_chat *out;
    const json_t *root;
    dg_http_error *e;
    bool there;
    dgemma_constraint_kind kind;
    const json_t *value; /* borrowed from the root */
    bool lenient;
    char at[128]; /* its JSON pointer in the client's body */
} finder;

/* ---- where it is ---- */

/* The pointer as people write it: a.b.c. */
static const char *dotted(const char *pointer, char out[128])
{
    snprintf(out, 128, "%s", pointer + (pointer[0] == '/'));
    for (char *c = out; *c; c++)
        *c = *c == '/' ? '.' : *c;
    return out;
}

static bool wrong(finder *f, const char *code, const char *at, const char *what)
{
    char name[128];
    return dg_refuse(f->e, 400, code, at, "%s: %s", dotted(at, name), what);
}

static bool take(finder *f, dgemma_constraint_kind kind, const json_t *value, const char *at)
{
    char name[128], other[128];
    if (f->there)
        return dg_refuse(f->e, 400, "invalid_value", at,
                         "%s and %s: an answer is held to one of them, not to both",
                         dotted(f->at, other), dotted(at, name));
    f->there = true;
    f->kind = kind;
    f->value = value;
    snprintf(f->at, sizeof f->at, "%s", at);
    return true;
}

/* Words that are empty ask for nothing. */
static bool take_field(finder *f, const json_t *object, const char *name, const char *before,
                       dgemma_constraint_kind kind)
{
    char at[128];
    const json_t *v = dg_field_get(object, name);
    if (!v || (json_is_string(v) && !json_string_length(v)))
        return true;
    snprintf(at, sizeof at, "%s/%s", before, name);
    if (kind != DGEMMA_CONSTRAINT_JSON_OBJECT)
        return take(f, kind, v, at);
    return json_is_false(v) || take(f, kind, NULL, at);
}

/* Where a translated body had it. */
static const char *original(const finder *f, const char *at)
{
    const char *said = json_string_value(json_object_get(f->root, "constraint_at"));
    return said && json_object_get(f->root, "asked") ? said : at;
}

/* Beside a schema; `at` is the schema's pointer. */
static bool read_strict(finder *f, const json_t *object, const char *at)
{
    char strict[128];
    const json_t *v = dg_field_get(object, "strict");
    f->lenient = json_is_false(v);
    if (!v || json_is_boolean(v))
        return true;
    const char *last = strrchr(at, '/');
    snprintf(strict, sizeof strict, "%.*s/strict", (int)(last ? last - at : 0), at);
    return wrong(f, "invalid_type", strict, "wanted true or false");
}

static bool read_response_format(finder *f)
{
    json_t *format, *inner;
    if (!dg_field_object(f->root, "response_format", &format, f->e))
        return false;
    const json_t *type = json_object_get(format, "type");
    if (!format || dg_json_says(type, "text"))
        return true;
    const json_t *schema = dg_field_get(format, "schema"); /* as llama-server has it */
    if (dg_json_says(type, "json_object"))
        return schema ? take(f, DGEMMA_CONSTRAINT_JSON_SCHEMA, schema, "/response_format/schema")
                      : take(f, DGEMMA_CONSTRAINT_JSON_OBJECT, NULL, "/response_format");
    if (!dg_json_says(type, "json_schema"))
        return dg_refuse(f->e, 400, "invalid_value", "response_format",
                         "response_format.type: text, json_object and json_schema are known");
    if (!dg_field_object(format, "json_schema", &inner, f->e))
        return false;
    const char *at = inner ? "/response_format/json_schema/schema" : "/response_format/schema";
    schema = inner ? dg_field_get(inner, "schema") : schema;
    at = original(f, at);
    if (!schema)
        return wrong(f, "invalid_value", at, "wanted a schema");
    return read_strict(f, inner ? inner : format, at) &&
           take(f, DGEMMA_CONSTRAINT_JSON_SCHEMA, schema, at);
}

/* vLLM's; before 0.12 the same words stood in the body, with guided_ in front. */
static bool read_structured_outputs(finder *f)
{
    static const struct {
        const char *name;
        dgemma_constraint_kind kind;
    } fields[] = {{"json", DGEMMA_CONSTRAINT_JSON_SCHEMA},
                  {"regex", DGEMMA_CONSTRAINT_REGEX},
                  {"choice", DGEMMA_CONSTRAINT_CHOICE},
                  {"grammar", DGEMMA_CONSTRAINT_GRAMMAR},
                  {"json_object", DGEMMA_CONSTRAINT_JSON_OBJECT}};
    json_t *outer;
    if (!dg_field_object(f->root, "structured_outputs", &outer, f->e))
        return false;
    if (dg_field_get(outer, "structural_tag"))
        return wrong(f, "unsupported", "/structured_outputs/structural_tag", "not supported");
    for (size_t i = 0; i < DG_COUNT(fields); i++) {
        char old[32];
        snprintf(old, sizeof old, "guided_%s", fields[i].name);
        if (!take_field(f, outer, fields[i].name, "/structured_outputs", fields[i].kind) ||
            !take_field(f, f->root, old, "", fields[i].kind))
            return false;
    }
    return true;
}

/* llama-server's and SGLang's. */
static bool read_bare_fields(finder *f)
{
    return take_field(f, f->root, "json_schema", "", DGEMMA_CONSTRAINT_JSON_SCHEMA) &&
           take_field(f, f->root, "grammar", "", DGEMMA_CONSTRAINT_GRAMMAR) &&
           take_field(f, f->root, "ebnf", "", DGEMMA_CONSTRAINT_GRAMMAR) &&
           take_field(f, f->root, "regex", "", DGEMMA_CONSTRAINT_REGEX);
}

/* ---- what went wrong ---- */

/* The pointer in a message of the library's, '"KEYWORD" at #POINTER …', behind that of its text. */
static void find_param(char *param, size_t cap, const char *base, const char *message)
{
    const char *at = strstr(message, "\" at #");
    size_t n = (size_t)snprintf(param, cap, "%s", base);
    for (at = at ? at + strlen("\" at #") : ""; *at && *at != ' ' && n + 1 < cap; n++) {
        bool percent = !strncmp(at, "%25", 3), blank = !strncmp(at, "%20", 3);
        param[n] = percent ? '%' : blank ? ' ' : *at;
        at += percent || blank ? 3 : 1;
    }
    if (n < cap)
        param[n] = '\0';
}

/* `at` is the pointer of what was compiled. */
static bool refuse(const finder *f, const char *at, const dgemma_error *err)
{
    char name[128], param[sizeof f->e->param];
    const char *code = err->status == DGEMMA_E_UNSUPPORTED ? "unsupported_schema"
                       : err->status == DGEMMA_E_LIMIT     ? "schema_too_complex"
                                                           : "invalid_value";
    if (err->status == DGEMMA_E_NOMEM)
        return dg_refuse_status(f->e, err, NULL);
    find_param(param, sizeof param, at, err->msg);
    return dg_refuse(f->e, 400, code, param, "%s: %s", dotted(at, name), err->msg);
}

static bool no_memory(const finder *f)
{
    return refuse(f, f->at, &(dgemma_error){.status = DGEMMA_E_NOMEM, .msg = "out of memory"});
}

/* ---- compiling ---- */

/* What the library is asked for; the text and the list are to be freed. */
typedef struct asked {
    dgemma_constraint_options options;
    char *text;
    const char **choices;
} asked;

static void asked_clear(asked *a)
{
    dg_free(a->text);
    dg_free(a->choices);
}

static bool ask_choices(finder *f, asked *a)
{
    size_t i, n = json_array_size(f->value);
    json_t *v;
    if (!n || n > MAX_CHOICES)
        return wrong(f, "invalid_value", f->at, "wanted a list of texts");
    a->choices = dg_array(n, sizeof *a->choices);
    if (!a->choices)
        return no_memory(f);
    json_array_foreach(f->value, i, v)
    {
        if (!json_is_string(v))
            return wrong(f, "invalid_type", f->at, "wanted a list of texts");
        a->choices[i] = json_string_value(v);
    }
    a->options.choices = a->choices;
    a->options.n_choices = n;
    return true;
}

static bool ask(finder *f, asked *a)
{
    bool schema = f->kind == DGEMMA_CONSTRAINT_JSON_SCHEMA;
    const json_t *space = dg_field_get(f->root, "whitespace");
    *a = (asked){.options = {.kind = f->kind,
                             .lenient = f->lenient,
                             .compact = dg_json_says(space, "compact")}};
    if (f->kind == DGEMMA_CONSTRAINT_JSON_OBJECT)
        return true;
    if (f->kind == DGEMMA_CONSTRAINT_CHOICE)
        return ask_choices(f, a);
    a->options.text = json_string_value(f->value);
    a->options.text_len = json_string_length(f->value);
    if (schema && (json_is_object(f->value) || json_is_boolean(f->value))) {
        a->text = dg_json_dump(f->value, &a->options.text_len);
        a->options.text = a->text;
        if (!a->text)
            return no_memory(f);
    }
    return a->options.text ||
           wrong(f, "invalid_type", f->at, schema ? "wanted a schema" : "wanted text");
}

/* ---- tools ---- */

/* Where other dialects have the schemas of tools. */
static void rename_parameters(const finder *f, char *param)
{
    static const char ours[] = "/function/parameters";
    const char *name = json_string_value(json_object_get(f->root, "parameters_at"));
    char *at = name && json_object_get(f->root, "asked") ? strstr(param, ours) : NULL;
    char rest[sizeof f->e->param];
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(ours));
    snprintf(at, sizeof f->e->param - (size_t)(at - param), "/%s%s", name, rest);
}

/* Whether turns are held to the syntax of calls: where tools may be called, and where there are
 * some and none is to be. */
static bool holds_calls(const finder *f)
{
    const dgemma_request_options *o = &f->out->options;
    return f->out->tools || (o->tool_choice == DGEMMA_TOOLS_NONE &&
                             json_array_size(json_object_get(f->root, "tools")));
}

/* `answer` is what a turn without calls is held to, or NULL. Where one call only is wanted the
 * answer ends behind the first: a canvas that has to say in one what it wants to say in two says it
 * badly. */
static bool hold_calls(finder *f, const dg_chat_limits *limits,
                       const dgemma_constraint_options *answer)
{
    dgemma_request_options *o = &f->out->options;
    dgemma_error err = {0};
    const char *tools = f->out->tools ? f->out->tools : "[]";
    bool forced = o->tool_choice == DGEMMA_TOOLS_REQUIRED || o->tool_choice == DGEMMA_TOOLS_NAMED;
    dgemma_constraint_options options = {.kind = DGEMMA_CONSTRAINT_TOOLS,
                                         .text = tools,
                                         .text_len = strlen(tools),
                                         .choices = &o->tool_name,
                                         .n_choices = o->tool_choice == DGEMMA_TOOLS_NAMED,
                                         .tool_choice = o->tool_choice,
                                         .answer = forced ? NULL : answer};
    if (dg_constraint_cache_get(limits->constraints, &f->out->constraint, &options, &err)) {
        refuse(f, "/tools", &err);
        rename_parameters(f, f->e->param);
        return false;
    }
    if (forced) { /* the prompt need not open a call, and the model may think first */
        o->tool_choice = DGEMMA_TOOLS_AUTO;
        o->tool_name = NULL;
    }
    return true;
}

/* ---- all of it ---- */

static bool check_words(finder *f)
{
    const json_t *space = dg_field_get(f->root, "whitespace");
    const json_t *told = dg_field_get(f->root, "schema_in_prompt");
    if (space && !dg_json_says(space, "compact") && !dg_json_says(space, "usual"))
        return wrong(f, "invalid_value", "whitespace", "usual and compact are known");
    return !told || json_is_boolean(told) ||
           wrong(f, "invalid_type", "schema_in_prompt", "wanted true or false");
}

/* Compiled by itself first, so that what is wrong with it is told as its own. */
static bool hold(finder *f, const dg_chat_limits *limits, asked *a)
{
    dg_chat *out = f->out;
    dgemma_error err = {0};
    if (!ask(f, a))
        return false;
    if (dg_constraint_cache_get(limits->constraints, &out->constraint, &a->options, &err))
        return refuse(f, f->at, &err);
    if (!holds_calls(f) || out->options.tool_choice == DGEMMA_TOOLS_NONE)
        return true;
    dgemma_constraint_free(out->constraint);
    out->constraint = NULL;
    return hold_calls(f, limits, &a->options);
}

static bool find(finder *f)
{
    return check_words(f) && read_response_format(f) && read_structured_outputs(f) &&
           read_bare_fields(f);
}

bool dg_constraint_absent(const json_t *root, dg_http_error *e)
{
    finder f = {.root = root, .e = e};
    return find(&f) && (!f.there || wrong(&f, "unsupported", f.at,
                                          "what is written into a gap is held to no form"));
}

bool dg_constraint_read(dg_chat *out, const dg_chat_limits *limits, dg_http_error *e)
{
    finder f = {.out = out, .root = out->root, .e = e};
    asked a = {0};
    if (!find(&f))
        return false;
    out->any_object = f.there && f.kind == DGEMMA_CONSTRAINT_JSON_OBJECT;
    out->schema = f.there && f.kind == DGEMMA_CONSTRAINT_JSON_SCHEMA ? f.value : NULL;
    if (!f.there)
        return !holds_calls(&f) || hold_calls(&f, limits, NULL);
    bool ok = hold(&f, limits, &a);
    asked_clear(&a);
    return ok;
}

/* ---- what the model is told ---- */

/* The names of members, where all of it would be too long. */
static bool put_names(dg_buf *out, const json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *name;
    bool ok = true, first = true;
    json_object_foreach(properties, name, value)
    {
        if (out->len + strlen(name) > MAX_TOLD)
            break;
        ok = ok && dg_buf_puts(out, first ? " Its members are called " : ", ") &&
             dg_buf_puts(out, name);
        first = false;
    }
    return ok && (first || dg_buf_puts(out, "."));
}

static bool put_wish(dg_buf *out, const dg_chat *chat, const char *schema, size_t len)
{
    if (chat->any_object)
        return dg_buf_puts(out, "Answer with one JSON object and nothing else: no explanation, no "
                                "code fence.");
    if (len > MAX_TOLD)
        return dg_buf_puts(out, "Answer with JSON and nothing else: no explanation, no code "
                                "fence.") &&
               put_names(out, chat->schema);
    return dg_buf_puts(out, "Answer with JSON that this schema describes and nothing else: no "
                            "explanation, no code fence.\n") &&
           dg_buf_append(out, schema, len);
}

char *dg_constraint_wish(const dg_chat *chat, bool *ok)
{
    *ok = true;
    if ((!chat->any_object && !chat->schema) ||
        json_is_false(json_object_get(chat->root, "schema_in_prompt")))
        return NULL;
    size_t len = json_string_length(chat->schema);
    char *dumped = NULL;
    const char *text = json_string_value(chat->schema);
    if (chat->schema && !text)
        text = dumped = dg_json_dump(chat->schema, &len);
    dg_buf out;
    dg_buf_init(&out, 4 * MAX_TOLD);
    *ok = (text || !chat->schema) && put_wish(&out, chat, text, len);
    dg_free(dumped);
    if (*ok)
        return out.data;
    dg_buf_clear(&out);
    return NULL;
}
