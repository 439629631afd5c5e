/* Which tensor of a synthetic model has which type, and random bytes that are sensible weights of
 * it. */
#ifndef DG_MODEL_SYNTHETIC_TYPES_H
#define DG_MODEL_SYNTHETIC_TYPES_H

#include "tensor/dtype.h"

/* Which layers get the wider of two types, as llama.cpp chooses them. */
typedef enum dg_wider { DG_WIDER_NONE, DG_WIDER_MORE_BITS, DG_WIDER_FIRST } dg_wider;

typedef struct dg_preset {
    const char *name;
    int file_type;  /* general.file_type of GGUF */
    dg_dtype table; /* token embeddings */
    dg_dtype wide, out, value, value_wider;
    dg_dtype expert; /* gate and up; rows of n_embd values, as `wide` */
    dg_dtype down, down_wider, expert_down, expert_down_wider; /* their rows fit 32, not 256 */
    dg_wider rule;
} dg_preset;

const dg_preset *dg_preset_find(const char *name); /* or NULL */
const char *dg_preset_names(void);                 /* "BF16, F16, …", for messages */

/* Whether number `index` of `n` tensors of a kind gets the wider type. */
bool dg_preset_is_wider(const dg_preset *p, int index, int n);

/* Fills `bytes`, whole blocks, of a weight; floats are aligned. Values of either sign that spread
 * by about 0.02, and none that is not a number. The same seed gives the same bytes. */
void dg_random_weights(void *data, dg_dtype type, size_t bytes, uint64_t seed);

#endif
