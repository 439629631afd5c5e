/* Models of the true shape with seeded random weights: to measure speed without the checkpoint. In
 * memory tensors of one type share their bytes, as many as the largest of them has, so that a model
 * of 50 GB takes little memory before a backend copies it; what is read of it is as much as of a
 * real one. In a file (src/bench/synth_file.c) each has its own. */
#ifndef DG_MODEL_SYNTHETIC_H
#define DG_MODEL_SYNTHETIC_H

#include "format/checkpoint.h"
#include "model/config.h"

typedef struct dg_synthetic dg_synthetic;

typedef struct dg_synthetic_options {
    const char *shape; /* "26b-a4b", as published, or "tiny", for tests; NULL: the first */
    const char *type;  /* a preset of synthetic_types.h, which mixes types as published files do */
    int n_layer;       /* 0: all of the shape's */
    bool skewed;       /* the busiest expert gets four times the mean; else as chance has it */
    bool listed;       /* for a writer: weights that are to be random have no data */
} dg_synthetic_options;

/* DGEMMA_E_ARG: a shape or type that is not known, or more layers than the shape has. */
dgemma_status dg_synthetic_open(dg_synthetic **out, const dg_synthetic_options *opt,
                                dgemma_error *err);
void dg_synthetic_close(dg_synthetic *s);

const dg_config *dg_synthetic_config(const dg_synthetic *s);
const dg_checkpoint *dg_synthetic_checkpoint(const dg_synthetic *s);
size_t dg_synthetic_bytes(const dg_synthetic *s); /* of all tensors, as if each had its own */

#endif
