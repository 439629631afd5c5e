#include "model/synthetic_router.h"
#include "base/real.h"
#include "base/rng.h"
#include "tensor/dtype.h"

int dg_synthetic_router_channels(int n_embd)
{
    return n_embd / 8;
}

/* Nearly normal, variance 1. */
static float normal(const dg_rng_key *key, uint32_t at)
{
    double sum = 0;
    for (uint32_t i = 0; i < 4; i++)
        sum += dg_rng_uniform(key, 4 * at + i) - 0.5;
    return (float)(sum * 1.7320508);
}

/* An expert whose row is longer is chosen more often: 2.3 times as long, four times as often. */
static float length_of(int expert, int n_expert, bool skewed)
{
    return skewed ? 1 + 1.75f * (float)dg_exp(-10 * (double)expert / n_expert) : 1;
}

void dg_synthetic_router(uint16_t *router, int layer, int n_expert, int n_embd, bool skewed)
{
    /* so large that chances differ although the norm before makes little of these channels */
    enum { LENGTH = 25 };
    dg_rng_key key = {.seed = 0x40C7E4, .block = (uint32_t)layer};
    int n_channel = dg_synthetic_router_channels(n_embd);
    for (int e = 0; e < n_expert; e++) {
        float length = LENGTH * length_of(e, n_expert, skewed);
        uint16_t *row = router + (size_t)e * (size_t)n_embd;
        for (int i = 0; i < n_embd; i++)
            row[i] = i < n_channel
                         ? dg_float_to_bf16(length * normal(&key, (uint32_t)(e * n_channel + i)))
                         : 0;
    }
}

void dg_synthetic_post_norm(float *norm, int n_embd)
{
    for (int i = 0; i < n_embd; i++)
        norm[i] = i < dg_synthetic_router_channels(n_embd) ? 0 : 1;
}
