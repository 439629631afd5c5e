/* A config as Hugging Face folders have it: the way back from dg_config_parse. */
#ifndef DG_MODEL_CONFIG_JSON_PUT_H
#define DG_MODEL_CONFIG_JSON_PUT_H

#include "base/buf.h"
#include "model/config.h"

/* config.json. DGEMMA_E_UNSUPPORTED: the layers have something that it has no word for. */
dgemma_status dg_config_json(dg_buf *out, const dg_config *cfg, dgemma_error *err);

/* generation_config.json. */
dgemma_status dg_generation_config_json(dg_buf *out, const dg_config *cfg,
                                        const dg_generation_config *g, dgemma_error *err);

#endif
