/* Which tensor gets which type: mixtures by the names that they have in llama.cpp, and one of our
 * own. */
#ifndef DG_MODEL_PRESETS_H
#define DG_MODEL_PRESETS_H

#include "model/config.h"
#include "tensor/dtype.h"

/* Which layers get the wider of two types: as llama.cpp chooses them, and the first and last
 * eighth.
 */
typedef enum dg_wider {
    DG_WIDER_NONE,
    DG_WIDER_MORE_BITS,
    DG_WIDER_FIRST,
    DG_WIDER_EDGES
} dg_wider;

/* Types as they are where rows fill their blocks. */
typedef struct dg_preset {
    const char *name;
    int file_type;  /* general.file_type of GGUF */
    dg_dtype table; /* token embeddings */
    dg_dtype wide;  /* matrices that are not named below */
    dg_dtype out, value, value_wider;
    dg_dtype expert, expert_wider; /* gate and up */
    dg_dtype down, down_wider, expert_down, expert_down_wider;
    dg_wider rule;
} dg_preset;

/* Whether two names are the same, in any case. */
bool dg_preset_same(const char *a, const char *b);

/* In any case, "q4_k_m"; or NULL. */
const dg_preset *dg_preset_find(const char *name);

/* "BF16, F16, …", for messages: all of them, and those whose every type floats are turned into. */
const char *dg_preset_names(void);
const char *dg_preset_made_names(void);

/* The type of a tensor by its name in the Hugging Face checkpoint, with rows of n_in values: F32
 * for what is no matrix, and for routers. Where rows do not fill a type's blocks, one with smaller
 * blocks takes its place. */
dg_dtype dg_preset_type(const dg_preset *p, const dg_config *cfg, const char *name, int64_t n_in);

#endif
