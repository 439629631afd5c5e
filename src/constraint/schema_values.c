/* enum and const: values as they are written, those of them that the other keywords let be. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/utf8.h"
#include "constraint/language.h"
#include "constraint/points.h"
#include "constraint/schema_claims.h"

/* ---- writing ---- */

static bool write_string(dg_buf *out, dg_text text)
{
    bool ok = dg_buf_puts(out, "\"");
    for (size_t i = 0, n; i < text.len && ok; i += n) {
        uint32_t point;
        char spelled[6];
        n = dg_utf8_decode(text.data + i, text.len - i, &point);
        ok = n && dg_buf_append(out, spelled, dg_points_escape(spelled, point));
    }
    return ok && dg_buf_puts(out, "\"");
}

bool dg_json_write(dg_buf *out, const dg_json *value)
{
    bool object = value->kind == DG_JSON_OBJECT;
    if (value->kind == DG_JSON_STRING)
        return write_string(out, value->text);
    if (!object && value->kind != DG_JSON_ARRAY)
        return dg_buf_append(out, value->source.data, value->source.len);
    bool ok = dg_buf_puts(out, object ? "{" : "[");
    for (const dg_json *m = value->child; m && ok; m = m->next)
        ok = (m == value->child || dg_buf_puts(out, ",")) &&
             (!object || (write_string(out, m->key) && dg_buf_puts(out, ":"))) &&
             dg_json_write(out, m);
    return ok && dg_buf_puts(out, object ? "}" : "]");
}

/* ---- an object or an array that is given ---- */

static dg_node value_node(dg_schema *c, const dg_json *value);

static dg_node container_node(dg_schema *c, const dg_json *value)
{
    dg_syntax *s = c->syntax;
    bool object = value->kind == DG_JSON_OBJECT;
    size_t n = 0;
    dg_node *part = dg_array(6 * value->n_child + 4, sizeof *part);
    if (!part) {
        dg_schema_out_of_memory(c);
        return DG_NODE_NEVER;
    }
    part[n++] = dg_syntax_word(s, object ? "{" : "[");
    for (const dg_json *m = value->child; m; m = m->next) {
        bool first = m == value->child;
        part[n++] = first ? DG_NODE_EMPTY : dg_syntax_word(s, ",");
        part[n++] = dg_syntax_layout(s, first ? DG_LAYOUT_OPEN : DG_LAYOUT_COMMA);
        if (object) {
            part[n++] = dg_schema_key(c, m->key);
            part[n++] = dg_syntax_word(s, ":");
            part[n++] = dg_syntax_layout(s, DG_LAYOUT_COLON);
        }
        part[n++] = value_node(c, m);
    }
    part[n++] = value->child ? dg_syntax_layout(s, DG_LAYOUT_CLOSE) : DG_NODE_EMPTY;
    part[n++] = dg_syntax_word(s, object ? "}" : "]");
    dg_node id = dg_syntax_nest(s, dg_syntax_sequence(s, part, n));
    dg_free(part);
    return id;
}

static dg_node value_node(dg_schema *c, const dg_json *value)
{
    if (value->kind == DG_JSON_OBJECT || value->kind == DG_JSON_ARRAY)
        return container_node(c, value);
    if (value->kind == DG_JSON_STRING)
        return dg_schema_quoted(c, value->text);
    return dg_syntax_literal(c->syntax, value->source.data, value->source.len);
}

/* ---- which of them ---- */

typedef struct values {
    const dg_json **at;
    size_t n;
} values;

static bool is_among(const dg_json *list, const dg_json *value)
{
    for (const dg_json *m = list->child; m; m = m->next)
        if (dg_json_equal(m, value))
            return true;
    return false;
}

static bool all_have(const dg_claims *list, const dg_json *value)
{
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *all = dg_claim_get(&list->at[i], "enum");
        const dg_json *one = dg_claim_get(&list->at[i], "const");
        if ((all && !is_among(all, value)) || (one && !dg_json_equal(one, value)))
            return false;
    }
    return true;
}

/* The first list of values; *n_lists: how many claims have some. */
static bool find_values(dg_schema *c, const dg_claims *list, values *v, size_t *n_lists)
{
    *v = (values){0};
    *n_lists = 0;
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *all = dg_claim_get(&list->at[i], "enum");
        const dg_json *one = dg_claim_get(&list->at[i], "const");
        if (all && all->kind != DG_JSON_ARRAY)
            return dg_schema_refuse(c, DGEMMA_E_ARG, list->at[i].schema, "enum",
                                    "has to be a list of values");
        *n_lists += all && one ? 2 : all || one;
        if (v->at || (!all && !one))
            continue;
        size_t n = one ? 1 : all->n_child;
        c->n_value += n;
        if (c->n_value > DG_SCHEMA_MAX_VALUES)
            return dg_schema_refuse(c, DGEMMA_E_LIMIT, list->at[i].schema, "enum",
                                    "values are more than 10000 in all");
        v->at = dg_array(n + 1, sizeof *v->at);
        if (!v->at)
            return dg_schema_out_of_memory(c);
        if (one)
            v->at[v->n++] = one;
        for (const dg_json *m = one ? NULL : all->child; m; m = m->next)
            v->at[v->n++] = m;
    }
    return true;
}

static bool has_more_to_say(const dg_claims *list)
{
    static const char *const keywords[] = {"minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "items",
                                           "prefixItems",
                                           "minItems",
                                           "maxItems",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "patternProperties",
                                           "minProperties",
                                           "maxProperties"};
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < DG_COUNT(keywords); k++)
            if (dg_claim_get(&list->at[i], keywords[k]))
                return true;
    return false;
}

/* Keeps the values that the language has. */
static dgemma_status keep_words(dg_language *l, values *v, dgemma_error *err)
{
    size_t n = 0;
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; i < v->n && !st; i++) {
        dg_buf text;
        size_t len = 0;
        dg_edges e = {0};
        dg_place at = dg_language_start(l);
        dg_buf_init(&text, 2 * DG_SCHEMA_MAX_BYTES);
        st = dg_json_write(&text, v->at[i])
                 ? dg_language_walk(l, &at, text.data, text.len, &len, err)
                 : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        if (!st)
            st = dg_language_edges(l, at, &e, err);
        if (!st && len == text.len && e.accepts)
            v->at[n++] = v->at[i];
        dg_buf_clear(&text);
    }
    v->n = n;
    return st;
}

/* Holds the values to everything else that the claims say, by a language of its own. */
static bool keep_allowed(dg_schema *c, const dg_claims *list, values *v)
{
    dg_syntax *s = NULL;
    dg_language *l = NULL;
    dg_claims others = {0};
    dg_node node = DG_NODE_NEVER;
    dgemma_status st = dg_syntax_create(&s, DG_SCHEMA_LEVELS, c->err);
    dg_schema sub = {.syntax = s, .root = c->root, .err = c->err, .depth = c->depth};
    sub.options.lenient = c->options.lenient;
    if (!st && dg_claims_copy(&sub, &others, list)) {
        for (size_t i = 0; i < others.n; i++)
            others.at[i].done |= DG_DONE_VALUES;
        node = dg_claims_node(&sub, &others);
    }
    st = st ? st : sub.status;
    if (!st) {
        st = dg_syntax_finish(s, dg_syntax_style(s, node, 1u << DG_STYLE_COMPACT), c->err);
        if (st == DGEMMA_E_ARG) { /* nothing is allowed */
            v->n = 0;
            st = DGEMMA_OK;
        } else if (!st)
            st = dg_language_create(&l, s, c->err);
    }
    if (l)
        st = keep_words(l, v, c->err);
    dg_language_free(l);
    dg_claims_clear(&others);
    dg_schema_release(&sub);
    dg_syntax_free(s);
    if (st && !c->status)
        c->status = st;
    return !st;
}

/* ---- their node ---- */

/* Scalars that are to be written; in a call strings stand between special tokens, by themselves. */
typedef struct scalars {
    dg_word_text *word;
    size_t *end; /* of each, in `text` */
    size_t n;
    dg_buf text;
} scalars;

static bool scalars_init(scalars *w, size_t n)
{
    *w =
        (scalars){.word = dg_array(n + 1, sizeof *w->word), .end = dg_array(n + 1, sizeof *w->end)};
    dg_buf_init(&w->text, 8 * DG_SCHEMA_MAX_BYTES);
    return w->word && w->end;
}

static bool scalars_add(scalars *w, const dg_json *value, bool raw)
{
    bool ok =
        raw ? dg_buf_append(&w->text, value->text.data ? value->text.data : "", value->text.len)
            : dg_json_write(&w->text, value);
    w->end[w->n++] = w->text.len;
    return ok;
}

/* They share their beginnings. */
static dg_node scalars_node(dg_syntax *s, scalars *w)
{
    const char *text = w->text.data ? w->text.data : "";
    for (size_t i = 0, from = 0; i < w->n; from = w->end[i++])
        w->word[i] = (dg_word_text){text + from, w->end[i] - from};
    return dg_syntax_words(s, w->word, w->n);
}

static void scalars_clear(scalars *w)
{
    dg_buf_clear(&w->text);
    dg_free(w->word);
    dg_free(w->end);
}

/* Objects and arrays have white space of the style. */
static dg_node values_node(dg_schema *c, const values *v)
{
    dg_syntax *s = c->syntax;
    scalars plain, strings;
    bool ok = scalars_init(&plain, v->n), call = c->options.call;
    ok = scalars_init(&strings, call ? v->n : 0) && ok;
    dg_node *way = dg_array(v->n + 2, sizeof *way), id = DG_NODE_NEVER;
    size_t n_way = 0;
    ok = ok && way;
    for (size_t i = 0; i < v->n && ok; i++) {
        bool raw = call && v->at[i]->kind == DG_JSON_STRING;
        if (v->at[i]->kind == DG_JSON_OBJECT || v->at[i]->kind == DG_JSON_ARRAY)
            way[n_way++] = container_node(c, v->at[i]);
        else
            ok = scalars_add(raw ? &strings : &plain, v->at[i], raw);
    }
    if (ok) {
        if (plain.n)
            way[n_way++] = scalars_node(s, &plain);
        if (strings.n)
            way[n_way++] = dg_notation_between(s, true, scalars_node(s, &strings));
        id = dg_syntax_choice(s, way, n_way);
    } else
        dg_schema_out_of_memory(c);
    scalars_clear(&plain);
    scalars_clear(&strings);
    dg_free(way);
    return id;
}

bool dg_schema_values(dg_schema *c, const dg_claims *list, unsigned types, bool *there,
                      dg_node *out)
{
    values v;
    size_t n_lists, n = 0;
    *out = DG_NODE_NEVER;
    bool ok = find_values(c, list, &v, &n_lists);
    *there = ok && v.at;
    if (*there) {
        if (n_lists > 1 && v.n > 1000)
            ok = dg_schema_refuse(c, DGEMMA_E_LIMIT, list->at[0].schema, "enum",
                                  "is too long beside another one");
        for (size_t i = 0; i < v.n && ok; i++)
            if ((dg_json_types(v.at[i]) & types) && (n_lists == 1 || all_have(list, v.at[i])))
                v.at[n++] = v.at[i];
        v.n = n;
        if (ok && n && has_more_to_say(list))
            ok = keep_allowed(c, list, &v);
        if (ok)
            *out = values_node(c, &v);
    }
    dg_free(v.at);
    return ok;
}
