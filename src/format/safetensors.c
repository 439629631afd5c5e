#include "format/safetensors.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/json_values.h"

enum { LENGTH_BYTES = 8 };

/* The format allows 100 MB; the parsed tree takes up to 45 times the text, and the header of the
 * published model has 0.1 MB, so this is where we stop. */
static const uint64_t header_max = DG_SAFETENSORS_HEADER_MAX;

/* One file while it is being read. */
typedef struct image {
    const char *where;
    const unsigned char *data; /* what follows the header; offsets count from here */
    size_t size;
} image;

static bool dtype_from_name(dg_dtype *out, const char *name)
{
    for (int t = 0; t < DG_DTYPE_FILE; t++)
        if (!dg_dtype_is_block((dg_dtype)t) && strcmp(name, dg_dtype_name((dg_dtype)t)) == 0) {
            *out = (dg_dtype)t;
            return true;
        }
    if (strcmp(name, "BOOL") == 0) { /* one byte an element, 0 or 1 */
        *out = DG_U8;
        return true;
    }
    return false;
}

static dgemma_status read_dtype(dg_tensor *t, const json_t *info, const image *img,
                                dgemma_error *err)
{
    const char *name = json_string_value(json_object_get(info, "dtype"));
    if (!name)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: tensor %.200s has no dtype", img->where, t->name);
    if (!dtype_from_name(&t->type, name))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s: tensor %.200s has dtype %.40s, which is not read", img->where, t->name,
                       name);
    return DGEMMA_OK;
}

/* Sets the shape and, from it, the bytes that the elements take. */
static dgemma_status read_shape(dg_tensor *t, const json_t *info, const image *img,
                                dgemma_error *err)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: tensor %.200s has no list \"shape\"", img->where,
                       t->name);
    size_t n_dim = json_array_size(shape);
    if (n_dim > DG_MAX_DIM)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s: tensor %.200s has %zu dimensions, at most %d are read", img->where,
                       t->name, n_dim, DG_MAX_DIM);

    t->n_dim = (int)n_dim;
    t->bytes = dg_dtype_size(t->type);
    for (size_t i = 0; i < n_dim; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: dimension %zu of tensor %.200s is not a whole number from 0 up",
                           img->where, i, t->name);
        t->shape[i] = json_integer_value(dim);
        if ((uint64_t)t->shape[i] > SIZE_MAX ||
            !dg_size_mul(&t->bytes, t->bytes, (size_t)t->shape[i]))
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: the shape of tensor %.200s overflows",
                           img->where, t->name);
    }
    return DGEMMA_OK;
}

static dgemma_status read_offsets(dg_tensor *t, const json_t *info, const image *img,
                                  dgemma_error *err)
{
    const json_t *list = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(list, 0), *last = json_array_get(list, 1);
    if (json_array_size(list) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: tensor %.200s has no \"data_offsets\" of two whole numbers", img->where,
                       t->name);

    long long begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: tensor %.200s has \"data_offsets\" of %lld and %lld, wanted where it "
                       "begins and where it ends",
                       img->where, t->name, begin, end);
    if ((unsigned long long)end > img->size)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: tensor %.200s lies at bytes %lld to %lld of %zu: the file is truncated",
                       img->where, t->name, begin, end, img->size);
    if ((size_t)(end - begin) != t->bytes) {
        char text[DG_SHAPE_TEXT];
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: tensor %.200s has %lld bytes, its shape %s in %s takes %zu", img->where,
                       t->name, end - begin, dg_shape_text(text, t->shape, t->n_dim),
                       dg_dtype_name(t->type), t->bytes);
    }
    t->data = img->data + begin;
    return DGEMMA_OK;
}

static bool is_metadata(const char *key)
{
    return strcmp(key, "__metadata__") == 0;
}

static dgemma_status reserve(dg_safetensors *st, json_t *root, const image *img, dgemma_error *err)
{
    size_t n_tensor = 0, name_bytes = 0; /* both below the header's length */
    const char *key;
    json_t *info;
    json_object_foreach(root, key, info)
    {
        if (is_metadata(key))
            continue;
        n_tensor++;
        name_bytes += strlen(key) + 1;
    }
    st->tensor = dg_calloc(n_tensor, sizeof *st->tensor);
    st->names = dg_malloc(name_bytes);
    if (!st->tensor || !st->names)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: no memory for %zu tensors", img->where, n_tensor);
    return DGEMMA_OK;
}

static dgemma_status read_tensors(dg_safetensors *st, json_t *root, const image *img,
                                  dgemma_error *err)
{
    dgemma_status status = reserve(st, root, img, err);
    if (status)
        return status;

    char *name = st->names;
    const char *key;
    json_t *info;
    json_object_foreach(root, key, info)
    {
        if (is_metadata(key))
            continue;
        dg_tensor *t = &st->tensor[st->n_tensor++];
        size_t len = strlen(key) + 1;
        t->name = memcpy(name, key, len);
        name += len;

        status = read_dtype(t, info, img, err);
        if (!status)
            status = read_shape(t, info, img, err);
        if (!status)
            status = read_offsets(t, info, img, err);
        if (status)
            return status;
    }
    return DGEMMA_OK;
}

static int by_place(const void *a, const void *b)
{
    const dg_tensor *x = a, *y = b;
    const unsigned char *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    const dg_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The format asks for tensors end to end, from the header to the end of the file: what two tensors
 * share, or none owns, is damage. */
static dgemma_status check_layout(dg_safetensors *st, const image *img, dgemma_error *err)
{
    qsort(st->tensor, st->n_tensor, sizeof *st->tensor, by_place);
    size_t at = 0;
    for (size_t i = 0; i < st->n_tensor; i++) {
        const dg_tensor *t = &st->tensor[i];
        size_t begin = (size_t)((const unsigned char *)t->data - img->data);
        if (begin < at)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: tensors %.200s and %.200s overlap",
                           img->where, st->tensor[i - 1].name, t->name);
        if (begin > at)
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: %zu bytes before tensor %.200s belong to no tensor", img->where,
                           begin - at, t->name);
        at += t->bytes;
    }
    if (at != img->size)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %zu bytes at the end belong to no tensor",
                       img->where, img->size - at);
    return DGEMMA_OK;
}

/* What is wrong with a header that the parser refused; not all of it is bad JSON. */
static dgemma_status refuse_header(const json_error_t *at, const image *img, dgemma_error *err)
{
    const char *wrong = "is not JSON";
    switch (json_error_code(at)) {
    case json_error_numeric_overflow:
        wrong = "has a number that is too large";
        break;
    case json_error_duplicate_key:
        wrong = "has a name twice";
        break;
    case json_error_null_character:
    case json_error_null_byte_in_key:
        wrong = "has a NUL in a text";
        break;
    default:
        break;
    }
    return dg_fail(err, DGEMMA_E_FORMAT, "%s: the safetensors header %s: %s, byte %d", img->where,
                   wrong, at->text, at->position);
}

static dgemma_status read_header(dg_safetensors *st, const char *header, size_t len,
                                 const image *img, dgemma_error *err)
{
    dgemma_status status = dg_json_check(header, len, DG_DOCUMENT_VALUES, img->where, err);
    if (status)
        return status;
    json_error_t at;
    json_t *root = json_loadb(header, len, JSON_REJECT_DUPLICATES, &at);
    if (!root && !at.text[0]) /* jansson is silent when its memory is out */
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: no memory for the header", img->where);
    if (!root)
        return refuse_header(&at, img, err);
    status = json_is_object(root)
                 ? read_tensors(st, root, img, err)
                 : dg_fail(err, DGEMMA_E_FORMAT, "%s: the safetensors header is not a JSON object",
                           img->where);
    json_decref(root);
    return status;
}

dgemma_status dg_safetensors_parse(dg_safetensors *out, const void *data, size_t size,
                                   const char *where, dgemma_error *err)
{
    *out = (dg_safetensors){0};
    if (size < LENGTH_BYTES)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %zu bytes are not a safetensors file", where,
                       size);
    const unsigned char *p = data;
    uint64_t header = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        header |= (uint64_t)p[i] << 8 * i;
    if (header > size - LENGTH_BYTES)
        return dg_fail(
            err, DGEMMA_E_FORMAT,
            "%s: not a safetensors file, or a truncated one: a header of %llu bytes, %zu follow",
            where, (unsigned long long)header, size - LENGTH_BYTES);
    if (header > header_max)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: a header of %llu bytes, at most %llu are read",
                       where, (unsigned long long)header, (unsigned long long)header_max);

    const char *text = (const char *)p + LENGTH_BYTES;
    image img = {
        .where = where,
        .data = p + LENGTH_BYTES + header,
        .size = size - LENGTH_BYTES - (size_t)header,
    };
    dgemma_status status = read_header(out, text, (size_t)header, &img, err);
    if (!status)
        status = check_layout(out, &img, err);
    if (status) {
        dg_safetensors_clear(out);
        return status;
    }
    qsort(out->tensor, out->n_tensor, sizeof *out->tensor, by_name);
    return DGEMMA_OK;
}

void dg_safetensors_clear(dg_safetensors *st)
{
    dg_free(st->tensor);
    dg_free(st->names);
    *st = (dg_safetensors){0};
}

const dg_tensor *dg_safetensors_find(const dg_safetensors *st, const char *name)
{
    dg_tensor key = {.name = name};
    return bsearch(&key, st->tensor, st->n_tensor, sizeof *st->tensor, by_name);
}
