#include "text/json_tree.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json_values.h"
#include "base/utf8.h"

typedef struct reader {
    const char *start, *at, *end;
    dg_json *next_value;
    char *next_char;
    int depth;
    const char *where;
    dgemma_error *err;
} reader;

bool dg_text_is(dg_text text, const char *literal)
{
    return text.data && text.len == strlen(literal) && memcmp(text.data, literal, text.len) == 0;
}

bool dg_text_equal(dg_text a, dg_text b)
{
    if (!a.data || !b.data)
        return a.data == b.data;
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

const dg_json *dg_json_get(const dg_json *v, const char *key)
{
    if (!v || v->kind != DG_JSON_OBJECT)
        return NULL;
    for (const dg_json *m = v->child; m; m = m->next)
        if (dg_text_is(m->key, key))
            return m;
    return NULL;
}

/* Lines and columns as editors count them: a column is a character. */
static dgemma_status fail(const reader *r, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *c = r->start; c < r->at; c++) {
        if (*c == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*c & 0xC0) != 0x80)
            column++;
    }
    return dg_fail(r->err, DGEMMA_E_ARG, "%s: JSON: %s at line %zu, column %zu", r->where, what,
                   line, column);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after \u; -1 when they are not there. */
static int32_t read_hex(reader *r)
{
    if (r->end - r->at < 4)
        return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(r->at[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    r->at += 4;
    return value;
}

static dgemma_status read_unicode_escape(reader *r)
{
    int32_t c = read_hex(r);
    if (c >= 0xD800 && c < 0xDC00 && r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        int32_t low = read_hex(r);
        if (low < 0xDC00 || low >= 0xE000)
            return fail(r, "half of a surrogate pair");
        c = 0x10000 + (c - 0xD800) * 0x400 + (low - 0xDC00);
    }
    if (c < 0)
        return fail(r, "\\u without four hexadecimal digits");
    if (c >= 0xD800 && c < 0xE000)
        return fail(r, "half of a surrogate pair");
    r->next_char += dg_utf8_encode(r->next_char, (uint32_t)c);
    return DGEMMA_OK;
}

static dgemma_status read_escape(reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return fail(r, "unfinished string");
    char c = *r->at++;
    if (c == 'u')
        return read_unicode_escape(r);
    const char *name = c ? strchr(names, c) : NULL;
    if (!name)
        return fail(r, "unknown escape");
    *r->next_char++ = values[name - names];
    return DGEMMA_OK;
}

/* From behind the opening quote. What is written is never longer than what was read. */
static dgemma_status read_string(reader *r, dg_text *out)
{
    out->data = r->next_char;
    while (!take(r, '"')) {
        if (r->at == r->end)
            return fail(r, "unfinished string");
        if ((unsigned char)*r->at < ' ')
            return fail(r, "control character in a string");
        if (take(r, '\\')) {
            dgemma_status st = read_escape(r);
            if (st)
                return st;
            continue;
        }
        size_t n = dg_utf8_decode(r->at, (size_t)(r->end - r->at), NULL);
        if (!n)
            return fail(r, "bytes that are not UTF-8");
        memcpy(r->next_char, r->at, n);
        r->next_char += n;
        r->at += n;
    }
    out->len = (size_t)(r->next_char - out->data);
    return DGEMMA_OK;
}

/* ---- numbers and words ---- */

static bool take_digits(reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

static dgemma_status read_number(reader *r, dg_json *v)
{
    const char *start = r->at;
    v->kind = DG_JSON_INT;
    take(r, '-');
    bool ok = take(r, '0') || take_digits(r);
    if (ok && take(r, '.')) {
        v->kind = DG_JSON_REAL;
        ok = take_digits(r);
    }
    if (ok && (take(r, 'e') || take(r, 'E'))) {
        v->kind = DG_JSON_REAL;
        if (!take(r, '+'))
            take(r, '-');
        ok = take_digits(r);
    }
    if (!ok)
        return fail(r, "not a value");
    if (r->at - start > DG_JSON_MAX_DIGITS)
        return dg_fail(r->err, DGEMMA_E_LIMIT, "%s: JSON: a number of more than %d characters",
                       r->where, DG_JSON_MAX_DIGITS);
    return DGEMMA_OK;
}

static bool take_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* ---- arrays and objects ---- */

static dgemma_status read_value(reader *r, dg_json *v);

static int compare_keys(const void *va, const void *vb)
{
    const dg_json *a = *(dg_json *const *)va, *b = *(dg_json *const *)vb;
    size_t n = a->key.len < b->key.len ? a->key.len : b->key.len;
    int order = n ? memcmp(a->key.data, b->key.data, n) : 0;
    if (order)
        return order;
    if (a->key.len != b->key.len)
        return a->key.len < b->key.len ? -1 : 1;
    return a < b ? -1 : 1; /* values lie in the order of the document */
}

/* A key given twice keeps its first place and its last value, as in a Python dictionary. */
static dgemma_status drop_duplicates(const reader *r, dg_json *object)
{
    if (object->n_child < 2)
        return DGEMMA_OK;
    dg_json **sorted = dg_array(object->n_child, sizeof *sorted);
    if (!sorted)
        return dg_fail(r->err, DGEMMA_E_NOMEM, "%s: out of memory", r->where);
    size_t n = 0;
    for (dg_json *m = object->child; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof *sorted, compare_keys);
    dg_json *first = sorted[0];
    for (size_t i = 1; i < n; i++) {
        dg_json *m = sorted[i];
        if (!dg_text_equal(first->key, m->key)) {
            first = m;
            continue;
        }
        dg_json *next = first->next;
        dg_text key = first->key;
        *first = *m;
        first->next = next;
        first->key = key;
        m->key.data = NULL;
    }
    dg_free(sorted);
    for (dg_json **link = &object->child; *link;) {
        if ((*link)->key.data) {
            link = &(*link)->next;
            continue;
        }
        *link = (*link)->next;
        object->n_child--;
    }
    return DGEMMA_OK;
}

static dgemma_status read_member(reader *r, dg_json *v, bool keyed)
{
    if (keyed) {
        skip_space(r);
        if (!take(r, '"'))
            return fail(r, "no key");
        dgemma_status st = read_string(r, &v->key);
        if (st)
            return st;
        skip_space(r);
        if (!take(r, ':'))
            return fail(r, "no colon after a key");
    }
    return read_value(r, v);
}

static dgemma_status read_members(reader *r, dg_json *v, char close)
{
    bool keyed = close == '}';
    v->kind = keyed ? DG_JSON_OBJECT : DG_JSON_ARRAY;
    if (r->depth == DG_JSON_MAX_DEPTH)
        return dg_fail(r->err, DGEMMA_E_LIMIT, "%s: JSON: more than %d levels", r->where,
                       DG_JSON_MAX_DEPTH);
    skip_space(r);
    if (take(r, close))
        return DGEMMA_OK;
    r->depth++;
    dg_json **link = &v->child;
    do {
        dg_json *member = r->next_value++;
        *link = member;
        link = &member->next;
        v->n_child++;
        dgemma_status st = read_member(r, member, keyed);
        if (st)
            return st;
        skip_space(r);
    } while (take(r, ','));
    r->depth--;
    if (!take(r, close))
        return fail(r, keyed ? "neither , nor }" : "neither , nor ]");
    return keyed ? drop_duplicates(r, v) : DGEMMA_OK;
}

static dgemma_status read_value(reader *r, dg_json *v)
{
    skip_space(r);
    const char *start = r->at;
    dgemma_status st = DGEMMA_OK;
    if (take(r, '{'))
        st = read_members(r, v, '}');
    else if (take(r, '['))
        st = read_members(r, v, ']');
    else if (take(r, '"')) {
        v->kind = DG_JSON_STRING;
        st = read_string(r, &v->text);
    } else if (take_word(r, "true"))
        v->kind = DG_JSON_TRUE;
    else if (take_word(r, "false"))
        v->kind = DG_JSON_FALSE;
    else if (take_word(r, "null"))
        v->kind = DG_JSON_NULL;
    else
        st = read_number(r, v);
    v->source = (dg_text){start, (size_t)(r->at - start)};
    return st;
}

/* ---- the whole ---- */

dgemma_status dg_json_read(dg_json_tree *out, const char *json, size_t len, const char *where,
                           dgemma_error *err)
{
    *out = (dg_json_tree){0};
    size_t n_value = len > DG_JSON_MAX_BYTES ? 0 : dg_json_values(json, len);
    if (!n_value || n_value > DG_JSON_MAX_VALUES)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: JSON of %zu bytes, or with more than %d values",
                       where, len, DG_JSON_MAX_VALUES);
    out->values = dg_calloc(n_value, sizeof *out->values);
    out->strings = dg_malloc(len + 1); /* never nothing */
    if (!out->values || !out->strings) {
        dg_json_tree_clear(out);
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    }
    reader r = {.start = json,
                .at = json,
                .end = json + len,
                .next_value = out->values + 1,
                .next_char = out->strings,
                .where = where,
                .err = err};
    dgemma_status st = read_value(&r, out->values);
    if (!st) {
        skip_space(&r);
        if (r.at < r.end)
            st = fail(&r, "something after the value");
    }
    if (st)
        dg_json_tree_clear(out);
    else
        out->root = out->values;
    return st;
}

void dg_json_tree_clear(dg_json_tree *t)
{
    dg_free(t->values);
    dg_free(t->strings);
    *t = (dg_json_tree){0};
}
