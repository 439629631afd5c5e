/* A checkpoint on disk, one face for every format: tensors by name, and the documents beside them.
 * Either a Hugging Face folder (plain, or a hub cache folder) with one safetensors file or shards
 * and an index, or a GGUF file or split. Tensor names are those of the Hugging Face checkpoint, in
 * both. Weights stay mapped, nothing is copied; those that a folder keeps in parts have pieces in
 * place of data (tensor/matrix_pieces.h). */
#ifndef DG_FORMAT_CHECKPOINT_H
#define DG_FORMAT_CHECKPOINT_H

#include "base/buf.h"
#include "base/error.h"
#include "format/gguf.h"
#include "tensor/tensor.h"

typedef struct dg_checkpoint dg_checkpoint;

/* `path` is a GGUF file (the first one of a split), a folder, a file in it (config.json,
 * model.safetensors), or a hub cache folder (models--ORG--NAME, whose refs/main names the snapshot;
 * without one, its only snapshot). A folder's weights are model.safetensors, else the shards of
 * model.safetensors.index.json, else the only *.safetensors, else the only GGUF model; a name
 * with "mmproj" in it is not one's. DGEMMA_E_UNSUPPORTED for other formats and element types,
 * DGEMMA_E_FORMAT where files are broken or the index and they disagree. */
dgemma_status dg_checkpoint_open(dg_checkpoint **out, const char *path, dgemma_error *err);
void dg_checkpoint_close(dg_checkpoint *ck); /* NULL is fine; every view and string from it dies */

/* Tensors that are made, not read: a checkpoint of that name over them. The list and what it points
 * to outlive it. */
dgemma_status dg_checkpoint_of(dg_checkpoint **out, const char *name, const dg_tensor *tensor,
                               size_t n, dgemma_error *err);

/* For a handler of SIGBUS: true when `address` is in one of the mapped files, which must have been
 * cut short; what is behind it there reads as zeros from now on. */
bool dg_checkpoint_patch(dg_checkpoint *ck, const void *address);

/* DGEMMA_E_IO: one of the files was cut short since it was opened. */
dgemma_status dg_checkpoint_check(const dg_checkpoint *ck, dgemma_error *err);

/* The vision tower beside a GGUF model: mmproj*.gguf in its folder, the first by name of several
 * (of the published ones that is BF16). *out is NULL when there is none, and for a folder of
 * safetensors, which has the tower among its tensors. */
dgemma_status dg_checkpoint_open_mmproj(dg_checkpoint **out, const dg_checkpoint *model,
                                        dgemma_error *err);

/* A tensor that will not be read soon: what is mapped of it is no longer in memory. Of one in
 * pieces, which lie apart, that are the files that they are in. */
void dg_checkpoint_forget(const dg_checkpoint *ck, const dg_tensor *t);

/* Whether `path` is one of the files that the model is in. */
bool dg_checkpoint_reads(const dg_checkpoint *ck, const char *path);

/* The folder the weights were found in, or the GGUF file. */
const char *dg_checkpoint_dir(const dg_checkpoint *ck);

size_t dg_checkpoint_count(const dg_checkpoint *ck);
const dg_tensor *dg_checkpoint_at(const dg_checkpoint *ck, size_t i);           /* sorted by name */
const dg_tensor *dg_checkpoint_find(const dg_checkpoint *ck, const char *name); /* or NULL */

/* The path of a document of the folder, for errors; the caller frees it. NULL: no memory. */
char *dg_checkpoint_path(const dg_checkpoint *ck, const char *name, dgemma_error *err);

/* Reads a document of the folder ("config.json") whole into *out. DGEMMA_E_IO when it is not there,
 * DGEMMA_E_LIMIT when it is larger than out->max. */
dgemma_status dg_checkpoint_document(const dg_checkpoint *ck, const char *name, dg_buf *out,
                                     dgemma_error *err);
bool dg_checkpoint_has_document(const dg_checkpoint *ck, const char *name);

/* Keys and values of a GGUF file, which has them in place of documents; NULL for a folder. */
const dg_gguf *dg_checkpoint_gguf(const dg_checkpoint *ck);

/* The chat template in memory of the caller's (dg_free), *out NULL when there is none: of a folder
 * chat_template.jinja, else what tokenizer_config.json says; of a GGUF file its key. */
dgemma_status dg_checkpoint_chat_template(const dg_checkpoint *ck, char **out, dgemma_error *err);

#endif
