/* Writes a vision tower of random weights, as safetensors and as an mmproj file: the same values
 * for the same config, wherever they stand. */
#ifndef DG_TESTS_WRITE_TOWER_H
#define DG_TESTS_WRITE_TOWER_H

#include "model/config.h"
#include "tensor/dtype.h"

typedef struct dg_test_tower {
    dg_vision_config cfg;
    int n_text;            /* rows of the projection */
    dg_dtype type;         /* of the layers' matrices and the projection; others are F32 */
    bool widened;          /* the very same values, stored as F32 */
    const char *omit;      /* a key of an mmproj file, or a tensor of either, to leave out */
    const char *projector; /* NULL: gemma4v */
    bool flat_patch;       /* mmproj: the patch embedding as a matrix, which is no file's way */
    bool exact;            /* read with products of floats alone */
} dg_test_tower;

/* Fail the running test when they cannot. */
void dg_test_write_tower(const char *path, const dg_test_tower *how); /* safetensors */
void dg_test_write_mmproj(const char *path, const dg_test_tower *how);

#endif
