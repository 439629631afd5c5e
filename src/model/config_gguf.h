/* The config out of a GGUF file's keys, for the parts of a checkpoint that config.json and
 * generation_config.json have elsewhere. */
#ifndef DG_MODEL_CONFIG_GGUF_H
#define DG_MODEL_CONFIG_GGUF_H

#include "format/checkpoint.h"
#include "model/config.h"

/* `ck` is a GGUF checkpoint. A few things follow from its tensors: the size of the vocabulary,
 * which layers have values of their own, and how many pairs global layers rotate. Other
 * architectures, tensors that the model does not have, and keys that ask for what it cannot do are
 * refused by name. */
dgemma_status dg_config_from_gguf(dg_config *cfg, dg_generation_config *gen,
                                  const dg_checkpoint *ck, dgemma_error *err);

/* The vision tower's part of the config out of an mmproj file, for a model whose rows are
 * cfg->n_embd long: sets cfg->vision. What the file does not say follows from its tensors or is as
 * published. */
dgemma_status dg_config_from_mmproj(dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err);

#endif
