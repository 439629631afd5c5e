#include "format/gguf_write.h"
#include <assert.h>
#include <string.h>

static const size_t header_max = (size_t)1 << 30;

void dg_gguf_writer_init(dg_gguf_writer *w, size_t alignment)
{
    *w = (dg_gguf_writer){.alignment = alignment ? alignment : 32};
    assert((w->alignment & (w->alignment - 1)) == 0);
    dg_buf_init(&w->values, header_max);
    dg_buf_init(&w->tensors, header_max);
    dg_buf_init(&w->sizes, header_max);
    if (alignment)
        dg_gguf_put_int(w, "general.alignment", DG_GGUF_U32, (int64_t)alignment);
}

static void fail(dg_gguf_writer *w, dgemma_status status, const char *what)
{
    if (!w->error.status)
        dg_fail(&w->error, status, "%s: %s", w->file.path ? w->file.path : "GGUF", what);
}

static void append(dg_gguf_writer *w, dg_buf *to, const void *data, size_t n)
{
    if (!dg_buf_append(to, data, n))
        fail(w, DGEMMA_E_NOMEM, "no memory for the header");
}

/* The low n bytes of v, least first. */
static void append_number(dg_gguf_writer *w, dg_buf *to, uint64_t v, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(v >> 8 * i);
    append(w, to, bytes, n);
}

static void append_text(dg_gguf_writer *w, dg_buf *to, const char *text, size_t len)
{
    append_number(w, to, len, 8);
    append(w, to, text, len);
}

static void begin_value(dg_gguf_writer *w, const char *key, dg_gguf_type type)
{
    append_text(w, &w->values, key, strlen(key));
    append_number(w, &w->values, type, 4);
    w->n_value++;
}

static void begin_array(dg_gguf_writer *w, const char *key, dg_gguf_type type, size_t n)
{
    begin_value(w, key, DG_GGUF_ARRAY);
    append_number(w, &w->values, type, 4);
    append_number(w, &w->values, n, 8);
}

static size_t int_bytes(dg_gguf_type type)
{
    switch (type) {
    case DG_GGUF_U8:
    case DG_GGUF_I8:
    case DG_GGUF_BOOL:
        return 1;
    case DG_GGUF_U16:
    case DG_GGUF_I16:
        return 2;
    case DG_GGUF_U32:
    case DG_GGUF_I32:
        return 4;
    default:
        assert(type == DG_GGUF_U64 || type == DG_GGUF_I64);
        return 8;
    }
}

static size_t number_bytes(dg_gguf_type type)
{
    return type == DG_GGUF_F32 ? 4 : type == DG_GGUF_F64 ? 8 : int_bytes(type);
}

static uint32_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

void dg_gguf_put_int(dg_gguf_writer *w, const char *key, dg_gguf_type type, int64_t value)
{
    begin_value(w, key, type);
    append_number(w, &w->values, (uint64_t)value, int_bytes(type));
}

void dg_gguf_put_float(dg_gguf_writer *w, const char *key, float value)
{
    begin_value(w, key, DG_GGUF_F32);
    append_number(w, &w->values, float_bits(value), 4);
}

void dg_gguf_put_double(dg_gguf_writer *w, const char *key, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    begin_value(w, key, DG_GGUF_F64);
    append_number(w, &w->values, bits, 8);
}

void dg_gguf_put_string(dg_gguf_writer *w, const char *key, const char *value)
{
    begin_value(w, key, DG_GGUF_STRING);
    append_text(w, &w->values, value, strlen(value));
}

void dg_gguf_put_ints(dg_gguf_writer *w, const char *key, dg_gguf_type type, const int64_t *value,
                      size_t n)
{
    begin_array(w, key, type, n);
    for (size_t i = 0; i < n; i++)
        append_number(w, &w->values, (uint64_t)value[i], int_bytes(type));
}

void dg_gguf_put_floats(dg_gguf_writer *w, const char *key, const float *value, size_t n)
{
    begin_array(w, key, DG_GGUF_F32, n);
    for (size_t i = 0; i < n; i++)
        append_number(w, &w->values, float_bits(value[i]), 4);
}

void dg_gguf_put_strings(dg_gguf_writer *w, const char *key, const dg_gguf_text *value, size_t n)
{
    begin_array(w, key, DG_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        append_text(w, &w->values, value[i].text, value[i].len);
}

void dg_gguf_put_copy(dg_gguf_writer *w, const dg_gguf_value *v)
{
    append_text(w, &w->values, v->key.text, v->key.len);
    w->n_value++;
    if (v->is_array)
        append_number(w, &w->values, DG_GGUF_ARRAY, 4);
    append_number(w, &w->values, v->type, 4);
    if (v->is_array)
        append_number(w, &w->values, v->n, 8);
    if (v->type == DG_GGUF_STRING) {
        dg_gguf_strings s = dg_gguf_strings_of(v);
        for (dg_gguf_text text; dg_gguf_strings_next(&s, &text);)
            append_text(w, &w->values, text.text, text.len);
    } else if (v->type == DG_GGUF_ARRAY)
        fail(w, DGEMMA_E_UNSUPPORTED, "an array of arrays is not copied");
    else
        append(w, &w->values, v->data, v->n * number_bytes(v->type));
}

void dg_gguf_put_tensor(dg_gguf_writer *w, const dg_tensor *t)
{
    int type = dg_gguf_type_of(t->type);
    uint64_t bytes = dg_dtype_bytes(t->type, dg_tensor_count(t));
    if (type < 0) {
        fail(w, DGEMMA_E_UNSUPPORTED, "a tensor of a type that GGUF does not have");
        return;
    }
    append_text(w, &w->tensors, t->name, strlen(t->name));
    append_number(w, &w->tensors, (uint64_t)t->n_dim, 4);
    for (int i = t->n_dim - 1; i >= 0; i--)
        append_number(w, &w->tensors, (uint64_t)t->shape[i], 8);
    append_number(w, &w->tensors, (uint64_t)type, 4);
    append_number(w, &w->tensors, w->data_bytes, 8);
    append(w, &w->sizes, &bytes, sizeof bytes);
    w->n_tensor++;
    w->data_bytes += (bytes + w->alignment - 1) / w->alignment * w->alignment;
}

/* ---- the file ---- */

static void write_bytes(dg_gguf_writer *w, const void *data, size_t n)
{
    if (w->error.status)
        return;
    dg_new_file_write(&w->file, data, n);
    w->error = w->file.error;
}

/* Zeros from `size` up to the next aligned place. */
static void write_padding(dg_gguf_writer *w, uint64_t size)
{
    static const unsigned char zero[64];
    uint64_t n = (w->alignment - size % w->alignment) % w->alignment;
    for (; n; n -= n < sizeof zero ? n : sizeof zero)
        write_bytes(w, zero, n < sizeof zero ? (size_t)n : sizeof zero);
}

static uint64_t aligned(const dg_gguf_writer *w, uint64_t size)
{
    return (size + w->alignment - 1) / w->alignment * w->alignment;
}

enum { HEAD_BYTES = 24 }; /* the magic number, the version, two counts */

uint64_t dg_gguf_writer_bytes(const dg_gguf_writer *w)
{
    return aligned(w, HEAD_BYTES + w->values.len + w->tensors.len) + w->data_bytes;
}

dgemma_status dg_gguf_writer_check(dg_gguf_writer *w, const char *path, bool replace,
                                   dgemma_error *err)
{
    w->only_new = !replace;
    return dg_new_file_check(path, dg_gguf_writer_bytes(w), replace, err);
}

void dg_gguf_writer_open(dg_gguf_writer *w, const char *path)
{
    dg_buf head;
    dg_buf_init(&head, 64);
    append(w, &head, "GGUF", 4);
    append_number(w, &head, 3, 4);
    append_number(w, &head, w->n_tensor, 8);
    append_number(w, &head, w->n_value, 8);
    if (!w->error.status) {
        dg_new_file_open(&w->file, path, !w->only_new);
        w->error = w->file.error;
    }
    write_bytes(w, head.data, head.len);
    write_bytes(w, w->values.data, w->values.len);
    write_bytes(w, w->tensors.data, w->tensors.len);
    write_padding(w, head.len + w->values.len + w->tensors.len);
    dg_buf_clear(&head);
}

/* Bytes that the tensor which is being written still wants. */
static uint64_t bytes_wanted(const dg_gguf_writer *w)
{
    uint64_t bytes = 0;
    if (w->n_written < w->n_tensor)
        memcpy(&bytes, w->sizes.data + w->n_written * sizeof bytes, sizeof bytes);
    return bytes - w->part_bytes;
}

void dg_gguf_write_part(dg_gguf_writer *w, const void *data, size_t bytes)
{
    if (w->error.status)
        return;
    uint64_t wanted = bytes_wanted(w);
    if (bytes > wanted) {
        fail(w, DGEMMA_E_INTERNAL, "the data of a tensor does not have the announced size");
        return;
    }
    write_bytes(w, data, bytes);
    w->part_bytes += bytes;
    if (bytes == wanted) {
        write_padding(w, w->part_bytes);
        w->part_bytes = 0;
        w->n_written++;
    }
}

void dg_gguf_write_data(dg_gguf_writer *w, const void *data, size_t bytes)
{
    if (!w->error.status && bytes != bytes_wanted(w))
        fail(w, DGEMMA_E_INTERNAL, "the data of a tensor does not have the announced size");
    dg_gguf_write_part(w, data, bytes);
}

void dg_gguf_writer_give_up(dg_gguf_writer *w)
{
    fail(w, DGEMMA_E_CANCELLED, "given up");
}

dgemma_status dg_gguf_writer_close(dg_gguf_writer *w, dgemma_error *err)
{
    if (w->n_written != w->n_tensor)
        fail(w, DGEMMA_E_INTERNAL, "not every tensor got its data");
    w->file.error = w->error;
    dgemma_status st = dg_new_file_close(&w->file, err);
    dg_buf_clear(&w->values);
    dg_buf_clear(&w->tensors);
    dg_buf_clear(&w->sizes);
    *w = (dg_gguf_writer){0};
    return st;
}
