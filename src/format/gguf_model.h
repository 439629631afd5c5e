/* A model in GGUF: one file or the shards of a split, mapped, with its tensors under the names of
 * the Hugging Face checkpoint. */
#ifndef DG_FORMAT_GGUF_MODEL_H
#define DG_FORMAT_GGUF_MODEL_H

#include "base/file.h"
#include "format/gguf.h"

typedef struct dg_gguf_file {
    char *path;
    dg_file_map map;
    dg_gguf content;
} dg_gguf_file;

typedef struct dg_gguf_model {
    dg_gguf_file *file; /* the first has the keys */
    size_t n_file;
    dg_tensor *tensor; /* in no order; a tensor the model does not have keeps its GGUF name */
    size_t n_tensor;
    char *names;
    float *scales;
    float *patch; /* an mmproj file's patch embedding in the order of the checkpoint */
} dg_gguf_model;

/* `path` is the file, or the first shard NAME-00001-of-0000N.gguf, whose others lie beside it.
 * On failure *out is empty. */
dgemma_status dg_gguf_model_open(dg_gguf_model *out, const char *path, dgemma_error *err);
void dg_gguf_model_close(dg_gguf_model *m);

/* The last part of opening, a pure function of what the files hold: fills the tensors of a model
 * whose files are there. */
dgemma_status dg_gguf_model_name(dg_gguf_model *m, dgemma_error *err);

/* Whether a file's name ends in -NNNNN-of-NNNNN.gguf; *no counts from 1. */
bool dg_gguf_is_shard(const char *path, int *no, int *count);

#endif
