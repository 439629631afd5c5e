#include "format/safetensors_write.h"
#include <stdio.h>
#include <string.h>
#include "format/safetensors.h"

static void fail(dg_safetensors_writer *w, dgemma_status status, const char *what)
{
    if (!w->error.status)
        dg_fail(&w->error, status, "%s: %s", w->file.path ? w->file.path : "safetensors", what);
}

static void puts_header(dg_safetensors_writer *w, const char *text)
{
    if (!dg_buf_puts(&w->header, text))
        fail(w, DGEMMA_E_LIMIT, "the list of tensors is too long, or memory is out");
}

void dg_safetensors_writer_init(dg_safetensors_writer *w)
{
    *w = (dg_safetensors_writer){0};
    dg_buf_init(&w->header, DG_SAFETENSORS_HEADER_MAX - 16);
    puts_header(w, "{\"__metadata__\":{\"format\":\"pt\"}");
}

void dg_safetensors_put(dg_safetensors_writer *w, const dg_tensor *t)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
    char text[128];
    const uint64_t end = w->data_bytes + dg_dtype_bytes(t->type, dg_tensor_count(t));
    if (strspn(t->name, plain) != strlen(t->name))
        fail(w, DGEMMA_E_UNSUPPORTED, "a tensor has a name that is not plain");
    puts_header(w, ",\"");
    puts_header(w, t->name);
    snprintf(text, sizeof text, "\":{\"dtype\":\"%s\",\"shape\":[", dg_dtype_name(t->type));
    puts_header(w, text);
    for (int i = 0; i < t->n_dim; i++) {
        snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)t->shape[i]);
        puts_header(w, text);
    }
    snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}",
             (unsigned long long)w->data_bytes, (unsigned long long)end);
    puts_header(w, text);
    w->data_bytes = end;
}

/* The header is as long as makes the data begin at a multiple of eight. */
static size_t header_bytes(const dg_safetensors_writer *w)
{
    return (w->header.len + 1 + 7) / 8 * 8;
}

uint64_t dg_safetensors_writer_bytes(const dg_safetensors_writer *w)
{
    return 8 + header_bytes(w) + w->data_bytes;
}

void dg_safetensors_writer_open(dg_safetensors_writer *w, const char *path)
{
    unsigned char length[8];
    const size_t n = header_bytes(w);
    if (w->error.status)
        return;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> 8 * i);
    dg_new_file_open(&w->file, path, true);
    dg_new_file_write(&w->file, length, sizeof length);
    dg_new_file_write(&w->file, w->header.data, w->header.len);
    dg_new_file_write(&w->file, "}       ", n - w->header.len);
    w->error = w->file.error;
}

void dg_safetensors_write(dg_safetensors_writer *w, const void *data, size_t bytes)
{
    if (w->error.status)
        return;
    dg_new_file_write(&w->file, data, bytes);
    w->written += bytes;
    w->error = w->file.error;
}

void dg_safetensors_writer_give_up(dg_safetensors_writer *w)
{
    fail(w, DGEMMA_E_CANCELLED, "given up");
}

dgemma_status dg_safetensors_writer_close(dg_safetensors_writer *w, dgemma_error *err)
{
    if (w->file.file && w->written != w->data_bytes)
        fail(w, DGEMMA_E_INTERNAL, "not every tensor got its data");
    w->file.error = w->error;
    dgemma_status st = dg_new_file_close(&w->file, err);
    dg_buf_clear(&w->header);
    *w = (dg_safetensors_writer){0};
    return st;
}
