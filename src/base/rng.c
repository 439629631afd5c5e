#include "base/rng.h"

static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k[0];
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k[1];
    c[3] = (uint32_t)a;
}

uint64_t dg_rng_bits(const dg_rng_key *key, uint32_t position)
{
    uint32_t c[4] = {position, key->step, key->block, key->stream};
    uint32_t k[2] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32)};
    for (int i = 0; i < 10; i++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return (uint64_t)c[1] << 32 | c[0];
}

double dg_rng_uniform(const dg_rng_key *key, uint32_t position)
{
    return (double)(dg_rng_bits(key, position) >> 11) * 0x1p-53;
}

uint32_t dg_rng_below(const dg_rng_key *key, uint32_t position, uint32_t n)
{
    /* the high half of a 64 x 32 bit product */
    uint64_t bits = dg_rng_bits(key, position);
    uint64_t low = (bits & 0xFFFFFFFFu) * n, high = (bits >> 32) * n;
    return (uint32_t)((high + (low >> 32)) >> 32);
}
