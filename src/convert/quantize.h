/* A model in other types, as a GGUF file: see dgemma_quantize. */
#ifndef DG_CONVERT_QUANTIZE_H
#define DG_CONVERT_QUANTIZE_H

#include "dgemma_tools.h"

dgemma_status dg_quantize(const dgemma_quantize_options *opt, dgemma_quantize_result *result,
                          dgemma_error *err);

#endif
