#include "convert/importance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "format/gguf.h"

enum { ENTRIES_MAX = 1 << 20, NAME_MAX_BYTES = 255, TEXT_MAX = 4096 };

typedef struct reading {
    dg_importance *imp;
    const char *where;
    dgemma_error *err;
} reading;

static dgemma_status no_memory(const reading *r)
{
    return dg_fail(r->err, DGEMMA_E_NOMEM, "%s: out of memory", r->where);
}

static dgemma_status wrong(const reading *r, const char *name, size_t len, const char *what)
{
    return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: %.*s %s", r->where,
                   (int)(len < NAME_MAX_BYTES ? len : NAME_MAX_BYTES), name, what);
}

/* Weights of one matrix from sums and what to divide them by. They get a mean of 1, so that all
 * matrices count alike in sums, and are at least a thousandth of it: text that never uses an input
 * says little about the next. An expert that saw nothing has ones. */
static bool set_weights(float *out, const float *sum, size_t n, float count)
{
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(sum[i]) || sum[i] < 0)
            return false;
        total += (double)sum[i];
    }
    const double mean = total / (double)n;
    const bool used = count > 0 && mean > 0;
    for (size_t i = 0; i < n; i++)
        out[i] = used ? (float)fmax((double)sum[i] / mean, 1e-3) : 1;
    return isfinite(count) && count >= 0;
}

static int by_name(const void *a, const void *b)
{
    const dg_importance_entry *x = a, *y = b;
    size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, n);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

/* Takes sums [n_mat][n / n_mat] as a new entry. */
static dgemma_status add(reading *r, const char *name, size_t len, const void *sums, size_t n,
                         const float *count, size_t n_mat)
{
    dg_importance_entry *e = &r->imp->entry[r->imp->n_entry];
    if (n < 1 || n_mat < 1 || n % n_mat || len < 1 || len > NAME_MAX_BYTES)
        return wrong(r, name, len, "has no weights, or not as many for each expert");
    *e = (dg_importance_entry){name, len, dg_array(n, sizeof(float)), n, n_mat};
    float *sum = dg_array(n, sizeof *sum);
    dgemma_status st = DGEMMA_OK;
    if (!e->weight || !sum)
        st = no_memory(r);
    else
        memcpy(sum, sums, n * sizeof *sum); /* which need not be aligned */
    for (size_t m = 0, each = n / n_mat; !st && m < n_mat; m++)
        if (!set_weights(e->weight + m * each, sum + m * each, each, count[m]))
            st = wrong(r, name, len, "has a weight that is negative or not finite");
    dg_free(sum);
    r->imp->n_entry += e->weight != NULL;
    return st;
}

/* Names are copied at last: the file is gone when they are looked for. */
static dgemma_status keep_names(reading *r)
{
    dg_importance *imp = r->imp;
    size_t bytes = 1;
    for (size_t i = 0; i < imp->n_entry; i++)
        bytes += imp->entry[i].name_len;
    char *at = dg_malloc(bytes);
    if (!at)
        return no_memory(r);
    char *names = at;
    for (size_t i = 0; i < imp->n_entry; i++) {
        dg_importance_entry *e = &imp->entry[i];
        e->name = memcpy(at, e->name, e->name_len);
        at += e->name_len;
    }
    imp->names = names;
    return DGEMMA_OK;
}

/* ---- GGUF: NAME.in_sum2 and NAME.counts ---- */

static dgemma_status add_gguf(reading *r, const dg_gguf *g, const dg_tensor *sums)
{
    static const char end[] = DG_IMPORTANCE_SUMS;
    char counts_name[NAME_MAX_BYTES + 16];
    const size_t len = strlen(sums->name) - (sizeof end - 1);
    if (len > NAME_MAX_BYTES)
        return wrong(r, sums->name, len, "is too long a name");
    memcpy(counts_name, sums->name, len);
    strcpy(counts_name + len, DG_IMPORTANCE_COUNTS);
    const dg_tensor *counts = dg_gguf_tensor(g, counts_name);
    const size_t n = dg_tensor_count(sums), n_mat = counts ? dg_tensor_count(counts) : 0;
    if (!counts || counts->type != DG_F32 || sums->type != DG_F32 || n_mat < 1)
        return wrong(r, sums->name, len, "has no sums and counts of F32");
    float *count = dg_array(n_mat, sizeof *count);
    if (!count)
        return no_memory(r);
    memcpy(count, counts->data, n_mat * sizeof *count);
    dgemma_status st = add(r, sums->name, len, sums->data, n, count, n_mat);
    dg_free(count);
    return st;
}

static bool is_sums(const dg_tensor *t)
{
    static const char end[] = DG_IMPORTANCE_SUMS;
    size_t n = strlen(t->name);
    return n > sizeof end - 1 && strcmp(t->name + n - (sizeof end - 1), end) == 0;
}

static dgemma_status read_text(reading *r, const char *text, size_t len)
{
    r->imp->data_set = dg_strndup(text, len < TEXT_MAX ? len : TEXT_MAX);
    return r->imp->data_set ? DGEMMA_OK : no_memory(r);
}

static dgemma_status read_gguf(reading *r, const void *data, size_t size)
{
    dg_gguf g;
    dgemma_status st = dg_gguf_parse(&g, data, size, r->where, r->err);
    if (st)
        return st;
    if (!dg_gguf_string_is(dg_gguf_find(&g, DG_IMPORTANCE_TYPE_KEY), DG_IMPORTANCE_TYPE))
        st = dg_fail(r->err, DGEMMA_E_FORMAT,
                     "%s: " DG_IMPORTANCE_TYPE_KEY " is not \"" DG_IMPORTANCE_TYPE
                     "\": it is no importance file",
                     r->where);
    r->imp->entry = dg_calloc(g.n_tensor + 1, sizeof *r->imp->entry);
    if (!st && !r->imp->entry)
        st = no_memory(r);
    for (size_t i = 0; !st && i < g.n_tensor; i++)
        if (is_sums(&g.tensor[i]))
            st = add_gguf(r, &g, &g.tensor[i]);
    if (!st)
        st = keep_names(r);
    dg_gguf_int(dg_gguf_find(&g, DG_IMPORTANCE_CHUNKS_KEY), 0, &r->imp->n_chunk);
    dg_gguf_text text;
    dg_gguf_strings sets = dg_gguf_strings_of(dg_gguf_find(&g, DG_IMPORTANCE_TEXTS_KEY));
    if (!st && dg_gguf_strings_next(&sets, &text))
        st = read_text(r, text.text, text.len);
    dg_gguf_clear(&g);
    return st;
}

/* ---- the older form ---- */

typedef struct cursor {
    const unsigned char *at;
    size_t left;
    bool ok;
} cursor;

static const unsigned char *take(cursor *c, size_t n)
{
    if (!c->ok || n > c->left) {
        c->ok = false;
        return NULL;
    }
    const unsigned char *p = c->at;
    c->at += n;
    c->left -= n;
    return p;
}

/* -1: there is none, or one that is negative or beyond `most`. */
static int64_t take_int(cursor *c, int64_t most)
{
    const unsigned char *p = take(c, 4);
    int64_t v = p ? (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24)
                  : -1;
    c->ok = c->ok && v <= most;
    return c->ok ? v : -1;
}

/* A line of weights. How many matrices they are for is only known from the model. */
static dgemma_status add_old(reading *r, cursor *c)
{
    const int64_t len = take_int(c, NAME_MAX_BYTES);
    const char *name = (const char *)take(c, len < 0 ? SIZE_MAX : (size_t)len);
    const int64_t n_call = take_int(c, INT32_MAX), n = take_int(c, INT32_MAX);
    const void *values = take(c, n < 0 ? SIZE_MAX : (size_t)n * sizeof(float));
    if (!c->ok || len < 1)
        return dg_fail(r->err, DGEMMA_E_FORMAT,
                       "%s: it ends within its %zu. entry, or is no importance file", r->where,
                       r->imp->n_entry + 1);
    const float count = (float)n_call;
    return add(r, name, (size_t)len, values, (size_t)n, &count, 1);
}

static dgemma_status read_old(reading *r, const void *data, size_t size)
{
    cursor c = {data, size, true};
    const int64_t n = take_int(&c, ENTRIES_MAX);
    if (n < 1 || (size_t)n > size / 16)
        return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: it is no importance file", r->where);
    r->imp->entry = dg_calloc((size_t)n, sizeof *r->imp->entry);
    dgemma_status st = r->imp->entry ? DGEMMA_OK : no_memory(r);
    for (int64_t i = 0; !st && i < n; i++)
        st = add_old(r, &c);
    if (!st)
        st = keep_names(r);
    if (st || !c.left)
        return st;
    r->imp->n_chunk = take_int(&c, INT32_MAX);
    const int64_t len = take_int(&c, INT32_MAX);
    const char *text = (const char *)take(&c, len < 0 ? SIZE_MAX : (size_t)len);
    if (!c.ok)
        return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: it ends within the name of its text",
                       r->where);
    return read_text(r, text, (size_t)len);
}

/* ---- both ---- */

dgemma_status dg_importance_parse(dg_importance *out, const void *data, size_t size,
                                  const char *where, dgemma_error *err)
{
    reading r = {out, where, err};
    *out = (dg_importance){0};
    bool gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    dgemma_status st = gguf ? read_gguf(&r, data, size) : read_old(&r, data, size);
    if (!st && out->n_entry == 0)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: there are no weights in it", where);
    if (st) {
        dg_importance_clear(out);
        return st;
    }
    qsort(out->entry, out->n_entry, sizeof *out->entry, by_name);
    for (size_t i = 1; i < out->n_entry; i++)
        if (by_name(&out->entry[i - 1], &out->entry[i]) == 0) {
            st = wrong(&r, out->entry[i].name, out->entry[i].name_len, "is in it twice");
            dg_importance_clear(out);
            return st;
        }
    return DGEMMA_OK;
}

dgemma_status dg_importance_open(dg_importance *out, const char *path, dgemma_error *err)
{
    dg_file_map map;
    *out = (dg_importance){0};
    dgemma_status st = dg_file_map_open(&map, path, err);
    if (st)
        return st;
    st = dg_importance_parse(out, map.data ? map.data : (const unsigned char *)"", map.size, path,
                             err);
    dg_file_map_close(&map);
    return st;
}

void dg_importance_clear(dg_importance *imp)
{
    for (size_t i = 0; i < imp->n_entry; i++)
        dg_free(imp->entry[i].weight);
    dg_free(imp->entry);
    dg_free(imp->names);
    dg_free(imp->data_set);
    *imp = (dg_importance){0};
}

const dg_importance_entry *dg_importance_find(const dg_importance *imp, const char *name)
{
    dg_importance_entry key = {.name = name, .name_len = strlen(name)};
    return imp->n_entry ? bsearch(&key, imp->entry, imp->n_entry, sizeof key, by_name) : NULL;
}
