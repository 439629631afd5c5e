/* Writes a safetensors file: first the header with the place of every tensor, then their data one
 * after the other, so that a file may be larger than memory. Nobody sees it half written (see
 * base/new_file.h). The first failure sticks and is told by dg_safetensors_writer_close. */
#ifndef DG_FORMAT_SAFETENSORS_WRITE_H
#define DG_FORMAT_SAFETENSORS_WRITE_H

#include "base/buf.h"
#include "base/new_file.h"
#include "tensor/tensor.h"

typedef struct dg_safetensors_writer {
    dg_buf header; /* without its end */
    uint64_t data_bytes, written;
    dg_new_file file;
    dgemma_error error;
} dg_safetensors_writer;

void dg_safetensors_writer_init(dg_safetensors_writer *w);

/* Announces a tensor: name (of letters, digits, dots and underscores), type and shape are used. */
void dg_safetensors_put(dg_safetensors_writer *w, const dg_tensor *t);

/* Of the file as it will be. */
uint64_t dg_safetensors_writer_bytes(const dg_safetensors_writer *w);

/* Nothing more may be put; data follows in the order of the tensors, in pieces of any size. */
void dg_safetensors_writer_open(dg_safetensors_writer *w, const char *path);
void dg_safetensors_write(dg_safetensors_writer *w, const void *data, size_t bytes);

/* The file is not wanted after all: closing it fails. */
void dg_safetensors_writer_give_up(dg_safetensors_writer *w);
dgemma_status dg_safetensors_writer_close(dg_safetensors_writer *w, dgemma_error *err);

#endif
