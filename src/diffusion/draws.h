/* Where a canvas gets its randomness: a pure function of (seed, block, step, position), or, in
 * tests, draws that were recorded from the reference. Steps count up from 0. */
#ifndef DG_DIFFUSION_DRAWS_H
#define DG_DIFFUSION_DRAWS_H

#include <stdint.h>

typedef struct dg_draws dg_draws;
struct dg_draws {
    /* n token ids, uniform over the whole vocabulary: the initial canvas of a block */
    void (*initial)(const dg_draws *d, int block, int32_t *ids, int n);
    /* likewise: what the positions that are not accepted in a step become */
    void (*noise)(const dg_draws *d, int block, int step, int32_t *ids, int n);
    /* one number in [0, 1) per position: picks the step's token by inverse CDF in vocabulary order
     */
    void (*uniform)(const dg_draws *d, int block, int step, double *u, int n);

    /* likewise: decides whether a token that a canvas may start with does (pins.h) */
    void (*start)(const dg_draws *d, int block, double *u, int n);

    uint64_t seed; /* dg_draws_seeded */
    int n_vocab;
    const void *recorded; /* whatever a test's functions need */
};

dg_draws dg_draws_seeded(uint64_t seed, int n_vocab);

#endif
