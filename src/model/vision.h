/* The vision tower: patches of pictures in, soft tokens out, rows that stand for image tokens in
 * the prompt. Weights come from the model's own checkpoint or, beside a GGUF model, from its mmproj
 * file. */
#ifndef DG_MODEL_VISION_H
#define DG_MODEL_VISION_H

#include "backend/backend.h"
#include "format/checkpoint.h"
#include "model/config.h"

enum {
    DG_VISION_MAX_PATCH = 1120 * 9, /* of one picture: 1120 soft tokens, the largest budget, of 3 x
                                       3 patches */
    DG_VISION_MAX_TOGETHER = 64     /* pictures that share a pass */
};

typedef struct dg_vision dg_vision;

/* A picture cut into patches, in host memory. */
typedef struct dg_vision_input {
    int rows, cols;      /* patches down and across; both multiples of the pooling size */
    const float *pixels; /* [rows * cols, patch * patch * 3] in [0, 1]: patches row by row; inside a
                            patch rows, columns, channels (RGB), the channel fastest */
} dg_vision_input;

/* Rows of features that a picture of this many patches gives. */
static inline int dg_vision_n_soft(const dg_vision_config *cfg, int rows, int cols)
{
    return rows / cfg->pool * (cols / cfg->pool);
}

/* Whether a tensor of this name is the tower's. */
bool dg_vision_owns(const char *name);

/* Whether the checkpoint has weights of a tower: a conversion may keep the config's and drop them.
 */
bool dg_vision_is_in(const dg_checkpoint *ck);

/* Whether a checkpoint with a tower has the tensors that the config asks for, each in its shape.
 * Loads nothing; OK where there is no tower. */
dgemma_status dg_vision_check(const dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err);

/* cfg->vision says what to expect: of the model's own config or, for an mmproj checkpoint, from
 * dg_config_from_mmproj. *out is NULL when the config or the checkpoint has no tower. Every shape
 * is checked before anything is computed. The checkpoint and the backend must outlive the tower. */
dgemma_status dg_vision_load(dg_vision **out, const dg_config *cfg, const dg_checkpoint *ck,
                             dg_backend *be, dgemma_error *err);
void dg_vision_free(dg_vision *v); /* NULL is fine */

const dg_vision_config *dg_vision_config_of(const dg_vision *v);

/* Encodes n pictures, several together where they are small; a picture's rows do not depend on what
 * it shares a pass with. features [sum of dg_vision_n_soft, n_embd of the text] in the backend's
 * memory: pictures in order, each row by row over its pooled grid. DGEMMA_E_ARG for pictures that
 * are not whole pooling cells or have more than DG_VISION_MAX_PATCH patches. Scratch grows to the
 * largest pass seen. Not while a forward pass of the same backend runs. */
dgemma_status dg_vision_encode(dg_vision *v, const dg_vision_input *pictures, int n,
                               float *features, dgemma_error *err);

/* How many of n pictures, from the first on, share a pass of the tower; at least one of them. Who
 * encodes so many at a time can do something else in between. */
int dg_vision_together(const dg_vision *v, const dg_vision_input *pictures, int n);

/* Scratch for passes of up to n_patch patches now, not when the first of them comes. */
dgemma_status dg_vision_reserve(dg_vision *v, int n_patch, dgemma_error *err);

/* Bytes of scratch, the backend's included, that encoding takes when the largest pass has n_patch
 * patches; weights are mapped and not counted. */
size_t dg_vision_bytes(const dg_vision *v, int n_patch);

#endif
