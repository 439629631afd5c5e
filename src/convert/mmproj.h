/* A model's vision tower as the mmproj file that goes beside a GGUF model. */
#ifndef DG_CONVERT_MMPROJ_H
#define DG_CONVERT_MMPROJ_H

#include "engine/loader.h"

/* Of a model whose tower was looked for (dg_load_tower). Matrices of types that GGUF has stay as
 * they are, others become BF16; positions, norms and ranges are F32. DGEMMA_E_UNSUPPORTED: there is
 * no tower, or one that such a file cannot tell of. Only checks where `dry`. */
dgemma_status dg_mmproj_write(const dg_loaded *l, const char *path, bool replace, bool dry,
                              dgemma_error *err);

#endif
