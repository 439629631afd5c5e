/* What the documents of a folder say of how its weights are quantised. */
#ifndef DG_FORMAT_CHECKPOINT_QUANTISATION_H
#define DG_FORMAT_CHECKPOINT_QUANTISATION_H

#include "format/quantisation.h"

/* From config.json or, where that has nothing, hf_quant_config.json; empty where neither has. A
 * config that is no JSON is for its own reader to refuse. */
dgemma_status dg_quantisation_find(dg_quantisation *q, const char *dir, dgemma_error *err);

#endif
