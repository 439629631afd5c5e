#include "format/gguf.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Far above what any file of ours has (44 keys, 692 tensors), low enough that the lists stay
 * small. */
enum { MAX_VALUES = 1 << 16, MAX_TENSORS = 1 << 18, MAX_NAME = 255, MAX_NESTING = 4 };
enum { MAX_ALIGNMENT = 1 << 20, DEFAULT_ALIGNMENT = 32 };

/* The least that an entry takes in a file: a count above remaining / least is a lie, found out
 * before anything is allocated. */
enum { LEAST_VALUE = 8 + 4 + 1, LEAST_TENSOR = 8 + 4 + 8 + 4 + 8 };

/* ---- tensor types ---- */

static const struct {
    const char *name;
    int type; /* dg_dtype, -1: not read */
} tensor_types[] = {
    [0] = {"F32", DG_F32},
    [1] = {"F16", DG_F16},
    [2] = {"Q4_0", DG_Q4_0},
    [3] = {"Q4_1", DG_Q4_1},
    [6] = {"Q5_0", DG_Q5_0},
    [7] = {"Q5_1", DG_Q5_1},
    [8] = {"Q8_0", DG_Q8_0},
    [9] = {"Q8_1", -1},
    [10] = {"Q2_K", DG_Q2_K},
    [11] = {"Q3_K", DG_Q3_K},
    [12] = {"Q4_K", DG_Q4_K},
    [13] = {"Q5_K", DG_Q5_K},
    [14] = {"Q6_K", DG_Q6_K},
    [15] = {"Q8_K", -1},
    [16] = {"IQ2_XXS", DG_IQ2_XXS},
    [17] = {"IQ2_XS", DG_IQ2_XS},
    [18] = {"IQ3_XXS", DG_IQ3_XXS},
    [19] = {"IQ1_S", DG_IQ1_S},
    [20] = {"IQ4_NL", DG_IQ4_NL},
    [21] = {"IQ3_S", DG_IQ3_S},
    [22] = {"IQ2_S", DG_IQ2_S},
    [23] = {"IQ4_XS", DG_IQ4_XS},
    [24] = {"I8", -1},
    [25] = {"I16", -1},
    [26] = {"I32", DG_I32},
    [27] = {"I64", DG_I64},
    [28] = {"F64", DG_F64},
    [29] = {"IQ1_M", DG_IQ1_M},
    [30] = {"BF16", DG_BF16},
    [34] = {"TQ1_0", DG_TQ1_0},
    [35] = {"TQ2_0", DG_TQ2_0},
    [39] = {"MXFP4", DG_MXFP4},
    [40] = {"NVFP4", DG_NVFP4},
    [41] = {"Q1_0", -1},
    [42] = {"Q2_0", -1},
};

int dg_gguf_type_of(dg_dtype type)
{
    for (size_t i = 0; i < DG_COUNT(tensor_types); i++)
        if (tensor_types[i].name && tensor_types[i].type == (int)type)
            return (int)i;
    return -1;
}

/* ---- reading bytes ---- */

/* What is left of the file. A read past its end sets `short_of`, names what was looked for, and
 * gives 0 from then on; the status is looked at once per entry. */
typedef struct cursor {
    const unsigned char *at;
    size_t left;
    const char *short_of; /* NULL: nothing went wrong */
} cursor;

static const unsigned char *take(cursor *c, uint64_t n, const char *what)
{
    if (c->short_of || n > c->left) {
        if (!c->short_of)
            c->short_of = what;
        return NULL;
    }
    const unsigned char *p = c->at;
    c->at += n;
    c->left -= (size_t)n;
    return p;
}

static uint64_t little_endian(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint64_t take_number(cursor *c, size_t n, const char *what)
{
    const unsigned char *p = take(c, n, what);
    return p ? little_endian(p, n) : 0;
}

static dg_gguf_text take_text(cursor *c, const char *what)
{
    uint64_t len = take_number(c, 8, what);
    const unsigned char *p = take(c, len, what);
    return p ? (dg_gguf_text){(const char *)p, (size_t)len} : (dg_gguf_text){"", 0};
}

/* One file while it is being read. */
typedef struct parser {
    dg_gguf *out;
    const char *where;
    cursor c;
    const unsigned char *base;
    dgemma_error *err;
} parser;

static dgemma_status cut_off(const parser *p)
{
    return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: the file ends inside %s: it is truncated",
                   p->where, p->c.short_of);
}

/* ---- values ---- */

/* Bytes of a value; 0 for strings and arrays. */
static const size_t value_bytes[DG_GGUF_TYPES] = {
    [DG_GGUF_U8] = 1,  [DG_GGUF_I8] = 1,  [DG_GGUF_U16] = 2, [DG_GGUF_I16] = 2,
    [DG_GGUF_U32] = 4, [DG_GGUF_I32] = 4, [DG_GGUF_F32] = 4, [DG_GGUF_BOOL] = 1,
    [DG_GGUF_U64] = 8, [DG_GGUF_I64] = 8, [DG_GGUF_F64] = 8,
};

static dgemma_status skip_elements(parser *p, uint64_t type, uint64_t n, int depth);

static dgemma_status bad_type(const parser *p, uint64_t type)
{
    return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: a value of type %llu, wanted 0 to %d", p->where,
                   (unsigned long long)type, DG_GGUF_TYPES - 1);
}

static dgemma_status skip_array(parser *p, int depth)
{
    uint64_t type = take_number(&p->c, 4, "an array"), n = take_number(&p->c, 8, "an array");
    if (p->c.short_of)
        return cut_off(p);
    if (depth >= MAX_NESTING)
        return dg_fail(p->err, DGEMMA_E_LIMIT, "%s: arrays inside arrays, more than %d deep",
                       p->where, MAX_NESTING);
    return skip_elements(p, type, n, depth + 1);
}

/* Strings and arrays take at least 8 bytes each, so the loops are as short as the file. */
static dgemma_status skip_elements(parser *p, uint64_t type, uint64_t n, int depth)
{
    if (type >= DG_GGUF_TYPES)
        return bad_type(p, type);
    size_t size = value_bytes[type];
    if (size) {
        /* n * size cannot overflow when n fits the rest of the file */
        take(&p->c, n > p->c.left ? UINT64_MAX : n * size, "a value");
        return p->c.short_of ? cut_off(p) : DGEMMA_OK;
    }
    dgemma_status st = DGEMMA_OK;
    for (uint64_t i = 0; i < n && !st; i++) {
        if (type == DG_GGUF_ARRAY)
            st = skip_array(p, depth);
        else
            take_text(&p->c, "a string");
        if (!st && p->c.short_of)
            st = cut_off(p);
    }
    return st;
}

static dgemma_status read_value(parser *p, dg_gguf_value *v)
{
    v->key = take_text(&p->c, "a key");
    uint64_t type = take_number(&p->c, 4, "a value's type");
    v->is_array = type == DG_GGUF_ARRAY;
    uint64_t n = 1;
    if (v->is_array) {
        type = take_number(&p->c, 4, "an array");
        n = take_number(&p->c, 8, "an array");
    }
    if (p->c.short_of)
        return cut_off(p);
    if (v->key.len == 0 || v->key.len > 65535)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: a key of %zu bytes", p->where, v->key.len);
    if (type >= DG_GGUF_TYPES)
        return bad_type(p, type);
    v->type = (dg_gguf_type)type;
    v->data = p->c.at;
    dgemma_status st = skip_elements(p, type, n, 1);
    v->n = (size_t)n; /* at most the bytes just skipped */
    return st;
}

static int compare_text(const dg_gguf_text *a, const dg_gguf_text *b)
{
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int by_key(const void *a, const void *b)
{
    return compare_text(&((const dg_gguf_value *)a)->key, &((const dg_gguf_value *)b)->key);
}

static dgemma_status read_values(parser *p, uint64_t n)
{
    dg_gguf *g = p->out;
    g->value = dg_array((size_t)n, sizeof *g->value);
    if (!g->value)
        return dg_fail(p->err, DGEMMA_E_NOMEM, "%s: out of memory", p->where);
    for (; g->n_value < n; g->n_value++) {
        dgemma_status st = read_value(p, &g->value[g->n_value]);
        if (st)
            return st;
    }
    qsort(g->value, g->n_value, sizeof *g->value, by_key);
    for (size_t i = 1; i < g->n_value; i++)
        if (by_key(&g->value[i - 1], &g->value[i]) == 0)
            return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: the key %.*s stands there twice", p->where,
                           (int)dg_min((int)g->value[i].key.len, 200), g->value[i].key.text);
    return DGEMMA_OK;
}

/* ---- tensors ---- */

static dgemma_status read_name(parser *p, dg_tensor *t, char **names)
{
    dg_gguf_text name = take_text(&p->c, "a tensor's name");
    if (p->c.short_of)
        return cut_off(p);
    if (name.len == 0 || name.len > MAX_NAME || memchr(name.text, 0, name.len))
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s: tensor %zu has a name of %zu bytes, wanted 1 to %d and no zero byte",
                       p->where, p->out->n_tensor, name.len, MAX_NAME);
    t->name = memcpy(*names, name.text, name.len);
    (*names)[name.len] = '\0';
    *names += name.len + 1;
    return DGEMMA_OK;
}

/* Sizes come with the fastest first; ours are row-major. */
static dgemma_status read_sizes(parser *p, dg_tensor *t)
{
    uint64_t n_dim = take_number(&p->c, 4, "a tensor");
    if (p->c.short_of)
        return cut_off(p);
    if (n_dim == 0 || n_dim > DG_MAX_DIM)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: tensor %s has %llu dimensions, wanted 1 to %d",
                       p->where, t->name, (unsigned long long)n_dim, DG_MAX_DIM);
    t->n_dim = (int)n_dim;
    for (int i = t->n_dim - 1; i >= 0; i--) {
        uint64_t size = take_number(&p->c, 8, "a tensor");
        if (size == 0 || size > INT64_MAX)
            return p->c.short_of
                       ? cut_off(p)
                       : dg_fail(p->err, DGEMMA_E_FORMAT, "%s: tensor %s has a dimension of %llu",
                                 p->where, t->name, (unsigned long long)size);
        t->shape[i] = (int64_t)size;
    }
    return DGEMMA_OK;
}

static dgemma_status read_type(parser *p, dg_tensor *t)
{
    uint64_t type = take_number(&p->c, 4, "a tensor");
    bool known = type < DG_COUNT(tensor_types) && tensor_types[type].name;
    if (p->c.short_of)
        return cut_off(p);
    if (!known || tensor_types[type].type < 0)
        return dg_fail(p->err, DGEMMA_E_UNSUPPORTED, "%s: tensor %s has type %s (%llu), not read",
                       p->where, t->name, known ? tensor_types[type].name : "unknown",
                       (unsigned long long)type);
    t->type = (dg_dtype)tensor_types[type].type;
    return DGEMMA_OK;
}

/* Bytes of the tensor: rows of whole blocks. */
static dgemma_status measure(parser *p, dg_tensor *t)
{
    uint64_t row = (uint64_t)t->shape[t->n_dim - 1], block = dg_dtype_block(t->type);
    if (row % block)
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s: tensor %s has rows of %llu values, wanted a multiple of %llu for %s",
                       p->where, t->name, (unsigned long long)row, (unsigned long long)block,
                       dg_dtype_name(t->type));
    size_t n = dg_dtype_bytes(t->type, (size_t)block);
    bool fits = row / block <= SIZE_MAX && dg_size_mul(&n, n, (size_t)(row / block));
    /* the count of elements must fit too, for dg_tensor_count */
    size_t count = 1;
    for (int i = 0; i < t->n_dim && fits; i++) {
        uint64_t size = (uint64_t)t->shape[i];
        fits = size <= SIZE_MAX && dg_size_mul(&count, count, (size_t)size) &&
               (i == t->n_dim - 1 || dg_size_mul(&n, n, (size_t)size));
    }
    if (!fits)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: the shape of tensor %s overflows", p->where,
                       t->name);
    t->bytes = n;
    return DGEMMA_OK;
}

/* The offset counts from where the data starts, which is known once all entries are read. */
static dgemma_status read_tensor(parser *p, dg_tensor *t, uint64_t *offset, char **names)
{
    dgemma_status st = read_name(p, t, names);
    if (!st)
        st = read_sizes(p, t);
    if (!st)
        st = read_type(p, t);
    if (!st)
        st = measure(p, t);
    *offset = take_number(&p->c, 8, "a tensor");
    if (!st && p->c.short_of)
        st = cut_off(p);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dg_tensor *)a)->name, ((const dg_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const unsigned char *p = ((const dg_tensor *)a)->data, *q = ((const dg_tensor *)b)->data;
    return (p > q) - (p < q);
}

static dgemma_status find_alignment(const parser *p, uint64_t *out)
{
    const dg_gguf_value *v = dg_gguf_find(p->out, "general.alignment");
    int64_t n = DEFAULT_ALIGNMENT;
    if (v && (v->is_array || !dg_gguf_int(v, 0, &n) || n < 1 || n > MAX_ALIGNMENT || (n & (n - 1))))
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s: general.alignment is not a power of two up to %d", p->where,
                       MAX_ALIGNMENT);
    *out = (uint64_t)n;
    return DGEMMA_OK;
}

/* Puts every tensor in its place behind the header. */
static dgemma_status place_tensors(parser *p, const uint64_t *offset, size_t size)
{
    dg_gguf *g = p->out;
    uint64_t alignment = DEFAULT_ALIGNMENT;
    dgemma_status st = find_alignment(p, &alignment);
    if (st)
        return st;
    uint64_t start = ((uint64_t)(size - p->c.left) + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < g->n_tensor; i++) {
        dg_tensor *t = &g->tensor[i];
        if (offset[i] % alignment)
            return dg_fail(p->err, DGEMMA_E_FORMAT,
                           "%s: tensor %s lies at byte %llu, wanted a multiple of %llu", p->where,
                           t->name, (unsigned long long)offset[i], (unsigned long long)alignment);
        if (start > size || offset[i] > size - start || t->bytes > size - start - offset[i])
            return dg_fail(p->err, DGEMMA_E_FORMAT,
                           "%s: tensor %s takes %zu bytes from byte %llu of the data, which has "
                           "%llu: the file is truncated",
                           p->where, t->name, t->bytes, (unsigned long long)offset[i],
                           (unsigned long long)(start > size ? 0 : size - start));
        t->data = p->base + start + offset[i];
    }
    return DGEMMA_OK;
}

static dgemma_status check_places(const parser *p)
{
    dg_gguf *g = p->out;
    qsort(g->tensor, g->n_tensor, sizeof *g->tensor, by_place);
    for (size_t i = 1; i < g->n_tensor; i++) {
        const dg_tensor *a = &g->tensor[i - 1], *b = &g->tensor[i];
        if ((const unsigned char *)a->data + a->bytes > (const unsigned char *)b->data)
            return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: tensors %s and %s overlap", p->where,
                           a->name, b->name);
    }
    qsort(g->tensor, g->n_tensor, sizeof *g->tensor, by_name);
    for (size_t i = 1; i < g->n_tensor; i++)
        if (by_name(&g->tensor[i - 1], &g->tensor[i]) == 0)
            return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: tensor %s is there twice", p->where,
                           g->tensor[i].name);
    return DGEMMA_OK;
}

static dgemma_status read_tensors(parser *p, uint64_t n, size_t size)
{
    dg_gguf *g = p->out;
    g->names = dg_array((size_t)n, MAX_NAME + 1);
    g->tensor = dg_calloc((size_t)n, sizeof *g->tensor);
    uint64_t *offset = dg_array((size_t)n, sizeof *offset);
    dgemma_status st = g->names && g->tensor && offset
                           ? DGEMMA_OK
                           : dg_fail(p->err, DGEMMA_E_NOMEM, "%s: out of memory", p->where);
    char *names = g->names;
    for (; !st && g->n_tensor < n; g->n_tensor++)
        st = read_tensor(p, &g->tensor[g->n_tensor], &offset[g->n_tensor], &names);
    if (!st)
        st = place_tensors(p, offset, size);
    if (!st)
        st = check_places(p);
    dg_free(offset);
    return st;
}

/* ---- the file ---- */

static dgemma_status check_count(const parser *p, const char *what, uint64_t n, uint64_t max,
                                 uint64_t least)
{
    if (n > max || n > p->c.left / least)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: says it has %llu %s; at most %llu fit here",
                       p->where, (unsigned long long)n, what,
                       (unsigned long long)(p->c.left / least < max ? p->c.left / least : max));
    return DGEMMA_OK;
}

static dgemma_status read_file(parser *p, size_t size)
{
    const unsigned char *magic = take(&p->c, 4, "the header");
    uint64_t version = take_number(&p->c, 4, "the header");
    uint64_t n_tensor = take_number(&p->c, 8, "the header");
    uint64_t n_value = take_number(&p->c, 8, "the header");
    if (magic && memcmp(magic, "GGUF", 4) != 0)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: not a GGUF file", p->where);
    if (p->c.short_of)
        return cut_off(p);
    if (version != 2 && version != 3)
        return dg_fail(p->err, DGEMMA_E_UNSUPPORTED, "%s: GGUF version %llu%s; 2 and 3 are read",
                       p->where, (unsigned long long)version,
                       version & 0xFFFF ? "" : " (a big-endian file)");
    p->out->version = (int)version;

    dgemma_status st = check_count(p, "keys", n_value, MAX_VALUES, LEAST_VALUE);
    if (!st)
        st = read_values(p, n_value);
    if (!st)
        st = check_count(p, "tensors", n_tensor, MAX_TENSORS, LEAST_TENSOR);
    return st ? st : read_tensors(p, n_tensor, size);
}

dgemma_status dg_gguf_parse(dg_gguf *out, const void *data, size_t size, const char *where,
                            dgemma_error *err)
{
    *out = (dg_gguf){0};
    parser p = {
        .out = out, .where = where, .c = {.at = data, .left = size}, .base = data, .err = err};
    dgemma_status st = read_file(&p, size);
    if (st)
        dg_gguf_clear(out);
    return st;
}

void dg_gguf_clear(dg_gguf *g)
{
    dg_free(g->value);
    dg_free(g->tensor);
    dg_free(g->names);
    *g = (dg_gguf){0};
}

const dg_tensor *dg_gguf_tensor(const dg_gguf *g, const char *name)
{
    dg_tensor key = {.name = name};
    return g->n_tensor ? bsearch(&key, g->tensor, g->n_tensor, sizeof *g->tensor, by_name) : NULL;
}

const dg_gguf_value *dg_gguf_find(const dg_gguf *g, const char *key)
{
    dg_gguf_value wanted = {.key = {key, strlen(key)}};
    return g->n_value ? bsearch(&wanted, g->value, g->n_value, sizeof *g->value, by_key) : NULL;
}

/* ---- values ---- */

bool dg_gguf_int(const dg_gguf_value *v, size_t i, int64_t *out)
{
    if (!v || i >= v->n || v->type >= DG_GGUF_TYPES || v->type == DG_GGUF_F32 ||
        v->type == DG_GGUF_F64 || v->type == DG_GGUF_BOOL || !value_bytes[v->type])
        return false;
    size_t size = value_bytes[v->type];
    uint64_t bits = little_endian(v->data + i * size, size);
    bool is_signed = v->type == DG_GGUF_I8 || v->type == DG_GGUF_I16 || v->type == DG_GGUF_I32 ||
                     v->type == DG_GGUF_I64;
    uint64_t sign = is_signed ? 1ull << (8 * size - 1) : 0;
    if (bits & sign) {
        /* -(2^w - bits), put so that no step leaves the type */
        *out = -(int64_t)(sign - 1 - (bits & (sign - 1))) - 1;
        return true;
    }
    if (bits > INT64_MAX)
        return false;
    *out = (int64_t)bits;
    return true;
}

bool dg_gguf_float(const dg_gguf_value *v, size_t i, double *out)
{
    int64_t whole;
    if (dg_gguf_int(v, i, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (!v || i >= v->n)
        return false;
    if (v->type == DG_GGUF_F32) {
        uint32_t bits = (uint32_t)little_endian(v->data + i * 4, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        *out = f;
        return true;
    }
    if (v->type == DG_GGUF_F64) {
        uint64_t bits = little_endian(v->data + i * 8, 8);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    return false;
}

bool dg_gguf_bool(const dg_gguf_value *v, size_t i, bool *out)
{
    int64_t whole;
    if (v && i < v->n && v->type == DG_GGUF_BOOL)
        whole = v->data[i];
    else if (!dg_gguf_int(v, i, &whole))
        return false;
    if (whole != 0 && whole != 1)
        return false;
    *out = whole == 1;
    return true;
}

bool dg_gguf_string(const dg_gguf_value *v, dg_gguf_text *out)
{
    if (!v || v->is_array)
        return false;
    dg_gguf_strings s = dg_gguf_strings_of(v);
    return dg_gguf_strings_next(&s, out);
}

bool dg_gguf_string_is(const dg_gguf_value *v, const char *wanted)
{
    dg_gguf_text text;
    return dg_gguf_string(v, &text) && text.len == strlen(wanted) &&
           memcmp(text.text, wanted, text.len) == 0;
}

dg_gguf_strings dg_gguf_strings_of(const dg_gguf_value *v)
{
    if (!v || v->type != DG_GGUF_STRING)
        return (dg_gguf_strings){0};
    return (dg_gguf_strings){.at = v->data, .left = v->n};
}

bool dg_gguf_strings_next(dg_gguf_strings *s, dg_gguf_text *out)
{
    if (s->left == 0)
        return false;
    size_t len = (size_t)little_endian(s->at, 8); /* checked when the file was read */
    *out = (dg_gguf_text){(const char *)s->at + 8, len};
    s->at += 8 + len;
    s->left--;
    return true;
}
