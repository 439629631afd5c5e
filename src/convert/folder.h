/* A model as a Hugging Face folder, in BF16 or with weights quantised as compressed-tensors has
 * them. */
#ifndef DG_CONVERT_FOLDER_H
#define DG_CONVERT_FOLDER_H

#include "dgemma_tools.h"

/* Whether these options ask for a folder: a type that folders have, and a name that does not end in
 * ".gguf". */
bool dg_folder_is_asked(const dgemma_quantize_options *opt);

/* See dgemma_quantize. From a folder alone: what a folder has beside its weights is copied. */
dgemma_status dg_folder_quantize(const dgemma_quantize_options *opt, dgemma_quantize_result *result,
                                 dgemma_error *err);

#endif
