/* Counter-based randomness: a draw is a pure function of (seed, stream, block, step, position), so
 * a request gets the same draws whatever the batch, the thread count or the backend. The generator
 * is Philox-4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011). */
#ifndef DG_BASE_RNG_H
#define DG_BASE_RNG_H

#include <stdint.h>

typedef struct dg_rng_key {
    uint64_t seed;
    uint32_t stream; /* what the draw is for; see diffusion/canvas.h */
    uint32_t block, step;
} dg_rng_key;

/* 64 random bits for one position. */
uint64_t dg_rng_bits(const dg_rng_key *key, uint32_t position);

/* Uniform in [0, 1), 53 bits. */
double dg_rng_uniform(const dg_rng_key *key, uint32_t position);

/* Uniform in [0, n), n >= 1; the bias is below n / 2^64. */
uint32_t dg_rng_below(const dg_rng_key *key, uint32_t position, uint32_t n);

#endif
