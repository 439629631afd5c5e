/* Writes GGUF files, version 3: first every key and the list of tensors, then the data of one
 * tensor after the other, so that a file may be larger than memory.
 *
 *     dg_gguf_writer w;
 *     dg_gguf_writer_init(&w, 0);
 *     dg_gguf_put_string(&w, "general.architecture", "diffusion-gemma");
 *     dg_gguf_put_tensor(&w, &tensor);
 *     dg_gguf_writer_open(&w, path);
 *     dg_gguf_write_data(&w, tensor.data, tensor.bytes);
 *     st = dg_gguf_writer_close(&w, &err);
 *
 * The first failure sticks and is told by dg_gguf_writer_close. */
#ifndef DG_FORMAT_GGUF_WRITE_H
#define DG_FORMAT_GGUF_WRITE_H

#include "base/buf.h"
#include "base/new_file.h"
#include "format/gguf.h"

typedef struct dg_gguf_writer {
    size_t alignment;
    dg_buf values, tensors; /* as they stand in the file */
    uint64_t n_value, n_tensor, data_bytes;
    dg_buf sizes; /* uint64_t of each tensor: what dg_gguf_write_data is held to */
    uint64_t n_written, part_bytes; /* tensors, and of the next one */
    dg_new_file file;
    bool only_new; /* it gets its name only where nothing has it */
    dgemma_error error;
} dg_gguf_writer;

/* alignment: a power of two; 0: 32, the default of the format. */
void dg_gguf_writer_init(dg_gguf_writer *w, size_t alignment);

/* An integer of any width, or BOOL; the value fits the type. */
void dg_gguf_put_int(dg_gguf_writer *w, const char *key, dg_gguf_type type, int64_t value);
void dg_gguf_put_float(dg_gguf_writer *w, const char *key, float value);
void dg_gguf_put_double(dg_gguf_writer *w, const char *key, double value);
void dg_gguf_put_string(dg_gguf_writer *w, const char *key, const char *value);

/* n integers of a type (from int64_t each), floats, strings. */
void dg_gguf_put_ints(dg_gguf_writer *w, const char *key, dg_gguf_type type, const int64_t *value,
                      size_t n);
void dg_gguf_put_floats(dg_gguf_writer *w, const char *key, const float *value, size_t n);
void dg_gguf_put_strings(dg_gguf_writer *w, const char *key, const dg_gguf_text *value, size_t n);

/* A value as another file has it, arrays of arrays excepted. */
void dg_gguf_put_copy(dg_gguf_writer *w, const dg_gguf_value *v);

/* Announces a tensor: name, type and row-major shape are used; its bytes follow from them. */
void dg_gguf_put_tensor(dg_gguf_writer *w, const dg_tensor *t);

/* Of the file as it will be. */
uint64_t dg_gguf_writer_bytes(const dg_gguf_writer *w);

/* Whether the file may be written: DGEMMA_E_ARG where it is there already and not to be replaced,
 * or is no plain file; DGEMMA_E_IO where the disk has no room for it. What is not to be replaced
 * is not replaced either if it comes while the file is written. */
dgemma_status dg_gguf_writer_check(dg_gguf_writer *w, const char *path, bool replace,
                                   dgemma_error *err);

/* Creates the file and writes all that was put; nothing more may be put. Until it is closed it is
 * called PATH.partial, so that nobody finds half a model; two that write the same one are a failure
 * of the second, and so is a link, a pipe or a device of that name. */
void dg_gguf_writer_open(dg_gguf_writer *w, const char *path);

/* The whole data of the next tensor, in the order they were announced. */
void dg_gguf_write_data(dg_gguf_writer *w, const void *data, size_t bytes);

/* The same piece by piece: the next bytes of the tensor that is being written. */
void dg_gguf_write_part(dg_gguf_writer *w, const void *data, size_t bytes);

/* The file is not wanted after all: closing it fails. */
void dg_gguf_writer_give_up(dg_gguf_writer *w);

/* Gives the file its name, in place of one that may be replaced, and frees everything. A tensor
 * whose data did not come is a failure too; an unfinished file is removed. */
dgemma_status dg_gguf_writer_close(dg_gguf_writer *w, dgemma_error *err);

#endif
