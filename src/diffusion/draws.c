#include "diffusion/draws.h"
#include "base/rng.h"

enum { STREAM_INITIAL, STREAM_NOISE, STREAM_TOKEN, STREAM_START };

static void random_ids(const dg_draws *d, const dg_rng_key *key, int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)dg_rng_below(key, (uint32_t)i, (uint32_t)d->n_vocab);
}

static void initial(const dg_draws *d, int block, int32_t *ids, int n)
{
    dg_rng_key key = {.seed = d->seed, .stream = STREAM_INITIAL, .block = (uint32_t)block};
    random_ids(d, &key, ids, n);
}

static void noise(const dg_draws *d, int block, int step, int32_t *ids, int n)
{
    dg_rng_key key = {d->seed, STREAM_NOISE, (uint32_t)block, (uint32_t)step};
    random_ids(d, &key, ids, n);
}

static void uniform(const dg_draws *d, int block, int step, double *u, int n)
{
    dg_rng_key key = {d->seed, STREAM_TOKEN, (uint32_t)block, (uint32_t)step};
    for (int i = 0; i < n; i++)
        u[i] = dg_rng_uniform(&key, (uint32_t)i);
}

static void start(const dg_draws *d, int block, double *u, int n)
{
    dg_rng_key key = {.seed = d->seed, .stream = STREAM_START, .block = (uint32_t)block};
    for (int i = 0; i < n; i++)
        u[i] = dg_rng_uniform(&key, (uint32_t)i);
}

dg_draws dg_draws_seeded(uint64_t seed, int n_vocab)
{
    return (dg_draws){.initial = initial,
                      .noise = noise,
                      .uniform = uniform,
                      .start = start,
                      .seed = seed,
                      .n_vocab = n_vocab};
}
