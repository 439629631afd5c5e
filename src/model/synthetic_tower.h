/* A vision tower with random weights, to measure it without the checkpoint. Its matrices share
 * their bytes, as those of a synthetic model do (synthetic.h). */
#ifndef DG_MODEL_SYNTHETIC_TOWER_H
#define DG_MODEL_SYNTHETIC_TOWER_H

#include "format/checkpoint.h"
#include "model/config.h"

typedef struct dg_synthetic_tower dg_synthetic_tower;

/* As published, or for a model of the shape "tiny" a small one; bfloat16. cfg->vision is set for
 * it, for a text of cfg->n_embd. */
dgemma_status dg_synthetic_tower_open(dg_synthetic_tower **out, dg_config *cfg, const char *shape,
                                      dgemma_error *err);
void dg_synthetic_tower_close(dg_synthetic_tower *t); /* NULL is fine */

const dg_checkpoint *dg_synthetic_tower_checkpoint(const dg_synthetic_tower *t);

#endif
