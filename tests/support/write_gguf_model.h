/* Writes a fixture's checkpoint as GGUF, in the ways that real files differ. */
#ifndef DG_TESTS_WRITE_GGUF_MODEL_H
#define DG_TESTS_WRITE_GGUF_MODEL_H

#include <stdbool.h>
#include "tensor/dtype.h"

typedef struct dg_test_gguf {
    const char *fixture; /* a name below tests/fixtures/golden */
    dg_dtype type; /* of every matrix whose rows fit, but the router's. Q8_0 is quantised, others
                      are random blocks of small values */
    bool widened;  /* the very same values, stored as F32 */
    bool separate; /* ffn_gate_exps and ffn_up_exps in place of the fused tensor */
    bool scaled;   /* block types: with factors beside them, `.scale` */
    bool no_encoder_scalar;   /* without enc_layer_output_scale */
    bool head;                /* with an output.weight that equals token_embd.weight */
    int n_file;               /* 0, 1: one; else a split */
    size_t alignment;         /* 0: the format's own */
    const char *omit;         /* a key to leave out, or NULL */
    const char *architecture; /* NULL: diffusion-gemma */
    bool scalar_keys;         /* per-layer keys as one value where all layers agree, prefixed
                                 diffusion keys, and a period as the pattern */
} dg_test_gguf;

/* Into dir/name.gguf, or dir/name-0000I-of-0000N.gguf. Fails the running test when it cannot. */
void dg_test_write_gguf_model(const char *dir, const char *name, const dg_test_gguf *how);

#endif
