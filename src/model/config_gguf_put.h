/* The config as a GGUF file's keys: the way back from config_gguf.h. */
#ifndef DG_MODEL_CONFIG_GGUF_PUT_H
#define DG_MODEL_CONFIG_GGUF_PUT_H

#include "format/gguf_write.h"
#include "model/config.h"

/* Architecture, sizes, layers and what the sampler uses unless told. */
void dg_config_put(dg_gguf_writer *w, const dg_config *cfg, const dg_generation_config *gen);

/* Of an mmproj file for cfg->vision, whose rope_theta is the only one that such files have. */
#define DG_TOWER_ROPE_THETA 100
void dg_config_put_tower(dg_gguf_writer *w, const dg_config *cfg);

/* rope_freqs.weight, which says how many pairs global layers rotate: `values` has room for half of
 * their head, and stays while the tensor is used. */
dg_tensor dg_config_rope_freqs(float *values, const dg_config *cfg);

#endif
