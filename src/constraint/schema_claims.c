#include "constraint/schema_claims.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "constraint/numbers.h"

/* ---- failures, and where they are ---- */

enum { POINTER_MAX = 300 };

/* Puts a character of a name in front of path[*at …], as a URI's fragment has it. */
static void put_char(char *path, size_t *at, char c)
{
    const char plain[] = {c, '\0'};
    const char *spelled = c == '~'   ? "~0"
                          : c == '/' ? "~1"
                          : c == ' ' ? "%20"
                          : c == '%' ? "%25"
                                     : plain;
    for (size_t i = strlen(spelled); i-- > 0 && *at > 2;)
        path[--*at] = spelled[i];
}

/* Puts the path from `from` to `to` in front of path[*at …]; false: it is not below. */
static bool find_path(const dg_json *from, const dg_json *to, char *path, size_t *at)
{
    if (from == to)
        return true;
    size_t index = 0;
    for (const dg_json *c = from->child; c; c = c->next, index++) {
        /* everything below a value lies inside of its text */
        if (to->source.data < c->source.data || to->source.data >= c->source.data + c->source.len ||
            !find_path(c, to, path, at))
            continue;
        char number[24];
        snprintf(number, sizeof number, "%zu", index);
        dg_text name = c->key.data ? c->key : (dg_text){number, strlen(number)};
        for (size_t i = name.len; i-- > 0 && *at > 2;) {
            put_char(path, at, name.data[i]);
        }
        if (*at > 1)
            path[--*at] = '/';
        return true;
    }
    return false;
}

static const char *pointer_of(const dg_schema *c, const dg_json *schema, char path[POINTER_MAX])
{
    size_t at = POINTER_MAX - 1;
    path[at] = '\0';
    find_path(c->root, schema, path, &at);
    for (size_t i = c->options.base ? strlen(c->options.base) : 0; i-- > 0 && at > 1;)
        path[--at] = c->options.base[i];
    path[--at] = '#';
    return path + at;
}

bool dg_schema_refuse(dg_schema *c, dgemma_status status, const dg_json *schema,
                      const char *keyword, const char *why)
{
    char path[POINTER_MAX];
    if (!c->status)
        c->status =
            dg_fail(c->err, status, "\"%s\" at %s %s", keyword, pointer_of(c, schema, path), why);
    return false;
}

bool dg_schema_out_of_memory(dg_schema *c)
{
    if (!c->status)
        c->status = dg_fail(c->err, DGEMMA_E_NOMEM, "out of memory");
    return false;
}

bool dg_schema_skip(dg_schema *c, const dg_json *schema, const char *keyword)
{
    char path[POINTER_MAX];
    if (!c->options.lenient)
        return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, schema, keyword, "is not supported");
    dg_buf *out = c->options.ignored;
    if (out && !(dg_buf_puts(out, keyword) && dg_buf_puts(out, " at ") &&
                 dg_buf_puts(out, pointer_of(c, schema, path)) && dg_buf_puts(out, "\n")))
        return dg_schema_out_of_memory(c);
    return true;
}

/* ---- claims ---- */

const dg_json *dg_claim_get(const dg_claim *claim, const char *keyword)
{
    if (((claim->done & DG_DONE_ANY_OF) && !strcmp(keyword, "anyOf")) ||
        ((claim->done & DG_DONE_ONE_OF) && !strcmp(keyword, "oneOf")) ||
        ((claim->done & DG_DONE_VALUES) && (!strcmp(keyword, "enum") || !strcmp(keyword, "const"))))
        return NULL;
    return dg_json_get(claim->schema, keyword);
}

void dg_claims_clear(dg_claims *list)
{
    dg_free(list->at);
    *list = (dg_claims){0};
}

bool dg_claims_put(dg_schema *c, dg_claims *list, const dg_json *schema, uint8_t done)
{
    if (list->n == list->cap) {
        size_t want = list->cap ? 2 * list->cap : 4;
        dg_claim *grown = want <= 4096 ? dg_array_resize(list->at, want, sizeof *grown) : NULL;
        if (!grown)
            return dg_schema_out_of_memory(c);
        list->at = grown;
        list->cap = want;
    }
    list->at[list->n++] = (dg_claim){.schema = schema, .done = done};
    return true;
}

bool dg_claims_copy(dg_schema *c, dg_claims *out, const dg_claims *from)
{
    *out = (dg_claims){.never = from->never};
    for (size_t i = 0; i < from->n; i++)
        if (!dg_claims_put(c, out, from->at[i].schema, from->at[i].done))
            return false;
    return true;
}

/* Keywords that cannot be held to. Each has its own condition for being harmless. */
static bool check_keywords(dg_schema *c, const dg_json *schema)
{
    static const char *const refused[] = {"not",
                                          "if",
                                          "contains",
                                          "dependentRequired",
                                          "dependencies",
                                          "dependentSchemas",
                                          "propertyNames",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "$dynamicRef",
                                          "$recursiveRef",
                                          "$anchor",
                                          "$dynamicAnchor"};
    for (const dg_json *m = schema->child; m; m = m->next) {
        for (size_t i = 0; i < DG_COUNT(refused); i++)
            if (dg_text_is(m->key, refused[i]) && !dg_schema_skip(c, schema, refused[i]))
                return false;
        if (dg_text_is(m->key, "uniqueItems") && m->kind != DG_JSON_FALSE &&
            !dg_schema_skip(c, schema, "uniqueItems"))
            return false;
    }
    return true;
}

/* ---- references ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One name of a JSON pointer in a URI fragment, its escapes resolved; false: it is malformed. */
static bool read_name(dg_text ref, size_t *at, char *name, size_t *n)
{
    for (*n = 0; *at < ref.len && ref.data[*at] != '/'; ++*at) {
        char c = ref.data[*at];
        if (c == '%') {
            int hi = *at + 2 < ref.len ? hex_digit(ref.data[*at + 1]) : -1;
            int lo = *at + 2 < ref.len ? hex_digit(ref.data[*at + 2]) : -1;
            if (hi < 0 || lo < 0)
                return false;
            c = (char)(hi << 4 | lo);
            *at += 2;
        }
        name[(*n)++] = c;
    }
    size_t k = 0;
    for (size_t i = 0; i < *n; i++) {
        if (name[i] == '~') {
            if (i + 1 == *n || (name[i + 1] != '0' && name[i + 1] != '1'))
                return false;
            name[k++] = name[++i] == '0' ? '~' : '/';
        } else
            name[k++] = name[i];
    }
    *n = k;
    return true;
}

static const dg_json *child_named(const dg_json *from, const char *name, size_t n)
{
    if (from->kind == DG_JSON_OBJECT) {
        for (const dg_json *m = from->child; m; m = m->next)
            if (m->key.len == n && !memcmp(m->key.data, name, n))
                return m;
        return NULL;
    }
    if (from->kind != DG_JSON_ARRAY || !n || n > 6)
        return NULL;
    size_t index = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] < '0' || name[i] > '9')
            return NULL;
        index = 10 * index + (size_t)(name[i] - '0');
    }
    const dg_json *m = from->child;
    while (m && index--)
        m = m->next;
    return m;
}

static const dg_json *resolve(dg_schema *c, const dg_json *schema, const dg_json *ref)
{
    dg_text text = ref->text;
    if (ref->kind != DG_JSON_STRING) {
        dg_schema_refuse(c, DGEMMA_E_ARG, schema, "$ref", "has to be a string");
        return NULL;
    }
    if (!text.len || text.data[0] != '#' || (text.len > 1 && text.data[1] != '/')) {
        dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, schema, "$ref",
                         "is not supported: it does not lead to a place in this document, \"#/…\"");
        return NULL;
    }
    char *name = dg_malloc(text.len + 1);
    if (!name) {
        dg_schema_out_of_memory(c);
        return NULL;
    }
    const dg_json *at = c->root;
    size_t i = 1, n;
    while (i < text.len && at) {
        i++; /* the slash */
        at = read_name(text, &i, name, &n) ? child_named(at, name, n) : NULL;
    }
    dg_free(name);
    if (!at)
        dg_schema_refuse(c, DGEMMA_E_ARG, schema, "$ref", "leads to nothing in this document");
    return at;
}

static bool follow(dg_schema *c, dg_claims *list, const dg_json *schema)
{
    const dg_json *ref = dg_json_get(schema, "$ref"), *all = dg_json_get(schema, "allOf");
    if (ref) {
        const dg_json *target = resolve(c, schema, ref);
        if (!target || !dg_claims_add(c, list, target, 0))
            return false;
    }
    if (all && (all->kind != DG_JSON_ARRAY || !all->child))
        return dg_schema_refuse(c, DGEMMA_E_ARG, schema, "allOf", "has to be a list of schemas");
    for (const dg_json *m = all ? all->child : NULL; m; m = m->next)
        if (!dg_claims_add(c, list, m, 0))
            return false;
    return true;
}

bool dg_claims_add(dg_schema *c, dg_claims *list, const dg_json *schema, uint8_t done)
{
    if (schema->kind == DG_JSON_TRUE)
        return true;
    if (schema->kind == DG_JSON_FALSE) {
        list->never = true;
        return true;
    }
    if (schema->kind != DG_JSON_OBJECT)
        return dg_schema_refuse(c, DGEMMA_E_ARG, schema, "schema",
                                "has to be an object or a boolean");
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].schema == schema)
            /* one whose branch is being chosen would be its own reason */
            return (!list->at[i].open && (list->at[i].done & ~done) == 0) ||
                   dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, schema, "$ref",
                                    "is not supported: references lead in a circle");
    if (++c->depth > 200)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, schema, "$ref", "is nested too deep");
    size_t own = list->n;
    if (!dg_claims_put(c, list, schema, done) || !check_keywords(c, schema))
        return false;
    list->at[own].open = true;
    bool ok = follow(c, list, schema);
    list->at[own].open = false;
    c->depth--;
    return ok;
}

/* ---- keywords with simple values ---- */

bool dg_claims_count(dg_schema *c, const dg_claim *claim, const char *keyword, uint32_t most,
                     uint32_t *out)
{
    const dg_json *v = dg_claim_get(claim, keyword);
    if (!v)
        return true;
    dg_decimal d = {0};
    if (v->kind == DG_JSON_INT || v->kind == DG_JSON_REAL)
        dg_decimal_parse(&d, v->source.data, v->source.len);
    if ((v->kind != DG_JSON_INT && v->kind != DG_JSON_REAL) || d.negative || d.fraction[0] ||
        d.more)
        return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, keyword,
                                "has to be a whole number, 0 or more");
    unsigned long long n = d.beyond ? most : strtoull(d.whole, NULL, 10);
    *out = n > most ? most : (uint32_t)n;
    return true;
}

static const struct {
    const char *name;
    unsigned bits;
} type_names[] = {{"null", DG_TYPE_NULL},       {"boolean", DG_TYPE_BOOLEAN},
                  {"integer", DG_TYPE_INTEGER}, {"number", DG_TYPE_INTEGER | DG_TYPE_FRACTION},
                  {"string", DG_TYPE_STRING},   {"array", DG_TYPE_ARRAY},
                  {"object", DG_TYPE_OBJECT}};

static bool type_bits(const dg_json *v, unsigned *bits)
{
    for (size_t i = 0; i < DG_COUNT(type_names) && v->kind == DG_JSON_STRING; i++)
        if (dg_text_is(v->text, type_names[i].name)) {
            *bits |= type_names[i].bits;
            return true;
        }
    return false;
}

bool dg_claims_types(dg_schema *c, const dg_claims *list, unsigned *types)
{
    *types = DG_TYPE_ALL;
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *t = dg_claim_get(&list->at[i], "type");
        const dg_json *nullable = dg_claim_get(&list->at[i], "nullable");
        if (!t)
            continue;
        unsigned bits = nullable && nullable->kind == DG_JSON_TRUE ? DG_TYPE_NULL : 0;
        bool ok = t->kind != DG_JSON_ARRAY && type_bits(t, &bits);
        for (const dg_json *m = t->kind == DG_JSON_ARRAY ? t->child : NULL; m; m = m->next) {
            ok = type_bits(m, &bits);
            if (!ok)
                break;
        }
        if (!ok)
            return dg_schema_refuse(c, DGEMMA_E_ARG, list->at[i].schema, "type",
                                    "is not one of JSON Schema's types");
        *types &= bits;
    }
    return true;
}

/* ---- values ---- */

unsigned dg_json_types(const dg_json *value)
{
    dg_decimal d;
    switch (value->kind) {
    case DG_JSON_NULL:
        return DG_TYPE_NULL;
    case DG_JSON_FALSE:
    case DG_JSON_TRUE:
        return DG_TYPE_BOOLEAN;
    case DG_JSON_STRING:
        return DG_TYPE_STRING;
    case DG_JSON_ARRAY:
        return DG_TYPE_ARRAY;
    case DG_JSON_OBJECT:
        return DG_TYPE_OBJECT;
    default:
        dg_decimal_parse(&d, value->source.data, value->source.len);
        return d.fraction[0] || d.more ? DG_TYPE_FRACTION : DG_TYPE_INTEGER;
    }
}

static bool same_members(const dg_json *a, const dg_json *b)
{
    for (const dg_json *m = a->child; m; m = m->next) {
        const dg_json *other = child_named(b, m->key.data, m->key.len);
        if (!other || !dg_json_equal(m, other))
            return false;
    }
    return a->n_child == b->n_child;
}

bool dg_json_equal(const dg_json *a, const dg_json *b)
{
    unsigned type = dg_json_types(a);
    if (type != dg_json_types(b))
        return false;
    if (type & (DG_TYPE_INTEGER | DG_TYPE_FRACTION)) {
        dg_decimal x, y;
        dg_decimal_parse(&x, a->source.data, a->source.len);
        dg_decimal_parse(&y, b->source.data, b->source.len);
        return x.beyond || x.more ? dg_text_equal(a->source, b->source)
                                  : !dg_decimal_compare(&x, &y);
    }
    if (type == DG_TYPE_STRING)
        return dg_text_equal(a->text, b->text);
    if (type == DG_TYPE_OBJECT)
        return same_members(a, b);
    const dg_json *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next)
        if (!dg_json_equal(x, y))
            return false;
    return a->kind == b->kind && !x && !y;
}
