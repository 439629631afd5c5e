/* Softmax for products of bfloat16 numbers, written once for all instruction sets in plain loops
 * and vectors of four lanes. bfloat.h has the contract. */
#ifndef DG_CPU_SHARES_BODY_H
#define DG_CPU_SHARES_BODY_H

#include <math.h>
#include <string.h>
#include "cpu/bfloat.h"

/* Four lanes are what every instruction set has; eight of them hide how long each step takes. */
enum { SHARE_LANES = 4, SHARE_CHAINS = 8, SHARE_STEP = SHARE_LANES * SHARE_CHAINS };

typedef float lanes __attribute__((vector_size(SHARE_LANES * sizeof(float))));
typedef int32_t lane_bits __attribute__((vector_size(SHARE_LANES * sizeof(float))));
typedef uint16_t lane_halves __attribute__((vector_size(SHARE_LANES * sizeof(uint16_t))));

static inline lanes load_lanes(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline lanes larger(lanes a, lanes b)
{
    const lane_bits more = a > b;
    return (lanes)(((lane_bits)a & more) | ((lane_bits)b & ~more));
}

static float largest_of(const float *z, int n)
{
    const lanes none = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    lanes most[SHARE_CHAINS] = {none, none, none, none, none, none, none, none};
    float all = -INFINITY;
    int i = 0;
    for (; i + SHARE_STEP <= n; i += SHARE_STEP)
        for (int k = 0; k < SHARE_CHAINS; k++)
            most[k] = larger(load_lanes(z + i + SHARE_LANES * k), most[k]);
    for (int k = 1; k < SHARE_CHAINS; k++)
        most[0] = larger(most[k], most[0]);
    for (int k = 0; k < SHARE_LANES; k++)
        all = most[0][k] > all ? most[0][k] : all;
    for (; i < n; i++)
        all = z[i] > all ? z[i] : all;
    return all;
}

/* A step of all chains: what follows in one waits for the last step, so they go side by side. */
#define EACH for (int k = 0; k < SHARE_CHAINS; k++)

/* 2^t for t <= 0, to 2^-16 of itself; 2^-126 for all that is less. With t = n + f, |f| <= 1/2, the
 * power of f is a polynomial; adding 1.5 * 2^23 leaves n in the low bits. */
static inline void take_powers(lanes t[SHARE_CHAINS])
{
    const float shift = 0x1.8p23f;
    const lanes least = {-126, -126, -126, -126};
    lanes rounded[SHARE_CHAINS], p[SHARE_CHAINS];
    EACH t[k] = larger(t[k], least);
    EACH rounded[k] = t[k] + shift;
    EACH t[k] = t[k] - (rounded[k] - shift);
    EACH p[k] = 0.055370375f + t[k] * 0.0096734f;
    EACH p[k] = 0.24022794f + t[k] * p[k];
    EACH p[k] = 0.6931508f + t[k] * p[k];
    EACH p[k] = 0.99999994f + t[k] * p[k];
    EACH t[k] = p[k] * (lanes)(((lane_bits)rounded[k] << 23) + 0x3F800000);
}

/* The nearest bfloat16 numbers of some that are neither negative nor infinite, as floats. */
static inline void round_shares(lanes f[SHARE_CHAINS])
{
    lane_bits u[SHARE_CHAINS];
    EACH u[k] = (lane_bits)f[k] + 0x7FFF + ((lane_bits)f[k] >> 16 & 1);
    EACH f[k] = (lanes)(u[k] & (lane_bits){-65536, -65536, -65536, -65536});
}

/* SHARE_STEP shares: as numbers in out, as floats in share. */
static inline void some_shares(uint16_t *out, lanes share[SHARE_CHAINS], const float *z, float top)
{
    const float log2e = 0x1.715476p0f;
    EACH share[k] = (load_lanes(z + SHARE_LANES * k) - top) * log2e;
    take_powers(share);
    round_shares(share);
    EACH
    {
        const lane_halves number = __builtin_convertvector((lane_bits)share[k] >> 16, lane_halves);
        memcpy(out + SHARE_LANES * k, &number, sizeof number);
    }
}

static float shares_of(uint16_t *out, const float *z, int n, float top)
{
    lanes sum[SHARE_CHAINS] = {{0}}, share[SHARE_CHAINS];
    float all = 0, last[SHARE_STEP] = {0};
    uint16_t number[SHARE_STEP];
    int i = 0;
    for (; i + SHARE_STEP <= n; i += SHARE_STEP) {
        some_shares(out + i, share, z + i, top);
        EACH sum[k] += share[k];
    }
    for (int k = 1; k < SHARE_CHAINS; k++)
        sum[0] += sum[k];
    for (int k = 0; k < SHARE_LANES; k++)
        all += sum[0][k];
    if (i == n)
        return all;
    memcpy(last, z + i, (size_t)(n - i) * sizeof *last);
    some_shares(number, share, last, top);
    memcpy(out + i, number, (size_t)(n - i) * sizeof *number);
    for (int k = 0; k < n - i; k++)
        all += share[k / SHARE_LANES][k % SHARE_LANES];
    return all;
}

#endif
