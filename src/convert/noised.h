/* A canvas on its way from noise to a text that is known, and a step of it through a model: how
 * tools let a model denoise what it did not write itself. */
#ifndef DG_CONVERT_NOISED_H
#define DG_CONVERT_NOISED_H

#include "engine/probe.h"

typedef struct dg_noised {
    dg_probe *probe; /* on the CPU, whose memory is the host's */
    int n;           /* tokens of the canvas */
    int32_t *canvas, *argmax, *drawn;
    float *entropy;
    float *soft; /* [n, n_embd]: what the next step sees of the last one */
    double *uniform;
} dg_noised;

/* Opens the probe's model on the CPU, with products in floats, for passes of up to n_token tokens
 * and a canvas of n. Clear *c also after a failure, before the probe. */
dgemma_status dg_noised_start(dg_noised *c, dg_probe *probe, int n, int n_token, int n_threads,
                              dgemma_error *err);
void dg_noised_clear(dg_noised *c); /* {0} is fine */

/* A step of a canvas: `text`, of which `percent` are other words. Places that are text with some
 * percentage are text with every smaller one; words follow from `number` and `percent` alone. */
typedef struct dg_noised_step {
    dg_kv_seq *seq;
    const int32_t *token; /* encoded first; n_token may be 0 */
    int n_token;
    const int32_t *text; /* [n] */
    uint32_t number;     /* of the text */
    int percent;
    bool first;    /* c->soft holds nothing yet */
    float *logits; /* [n, n_vocab], or NULL */
} dg_noised_step;
dgemma_status dg_noised_run(dg_noised *c, const dg_noised_step *step, dgemma_error *err);

#endif
