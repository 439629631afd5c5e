/* Models of the true shape with seeded random weights: to measure speed without the checkpoint.
 * Tensors of one type share their bytes, as many as the largest of them has, so that a model of 50
 * GB takes little memory before a backend copies it; what is read of it is as much as of a real
 * one. */
#ifndef DG_MODEL_SYNTHETIC_H
#define DG_MODEL_SYNTHETIC_H

#include "format/checkpoint.h"
#include "model/config.h"

typedef struct dg_synthetic dg_synthetic;

/* The published 26B-A4B shape with n_layer layers (0: all 30), weights as `type` says: "BF16",
 * "Q8_0", "Q4_0", or "Q4_K_M", which mixes types as the published file does. DGEMMA_E_ARG: another
 * name. */
dgemma_status dg_synthetic_open(dg_synthetic **out, const char *type, int n_layer,
                                dgemma_error *err);
void dg_synthetic_close(dg_synthetic *s);

const dg_config *dg_synthetic_config(const dg_synthetic *s);
const dg_checkpoint *dg_synthetic_checkpoint(const dg_synthetic *s);
size_t dg_synthetic_bytes(const dg_synthetic *s); /* of all tensors, as if each had its own */

#endif
