#include "support/write_safetensors.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *make_header(const dg_tensor *tensor, size_t n)
{
    json_t *root = json_object();
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const dg_tensor *t = &tensor[i];
        size_t end = at + dg_tensor_count(t) * dg_dtype_size(t->type);
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dim; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dg_dtype_name(t->type),
                                      "shape", shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)end));
        at = end;
    }
    return root;
}

static bool write_header(FILE *f, const char *header)
{
    size_t len = strlen(header);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)len >> 8 * i);
    return fwrite(length, 1, sizeof length, f) == sizeof length && fwrite(header, 1, len, f) == len;
}

static bool write_data(FILE *f, const dg_tensor *t)
{
    size_t bytes = dg_tensor_count(t) * dg_dtype_size(t->type);
    if (t->data)
        return fwrite(t->data, 1, bytes, f) == bytes;
    return fseeko(f, (off_t)bytes, SEEK_CUR) == 0;
}

/* A hole at the end of a file needs the length to be set. */
static bool finish(FILE *f, bool ok)
{
    off_t end = ftello(f);
    ok = ok && end >= 0 && fflush(f) == 0 && ftruncate(fileno(f), end) == 0;
    return fclose(f) == 0 && ok;
}

bool dg_test_write_safetensors(const char *path, const dg_tensor *tensor, size_t n)
{
    json_t *root = make_header(tensor, n);
    char *header = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    FILE *f = header ? fopen(path, "wb") : NULL;
    bool ok = f && write_header(f, header);
    free(header);
    for (size_t i = 0; ok && i < n; i++)
        ok = write_data(f, &tensor[i]);
    return f && finish(f, ok);
}

bool dg_test_write_safetensors_raw(const char *path, const char *header, size_t n_data)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    bool ok = write_header(f, header) && fseeko(f, (off_t)n_data, SEEK_CUR) == 0;
    return finish(f, ok);
}
