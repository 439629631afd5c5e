/* Softmax for products of bfloat16 numbers, written once for all instruction sets in plain loops
 * and vectors of four lanes. bfloat.h has the contract. */
#ifndef DG_CPU_SHARES_BODY_H
#define DG_CPU_SHARES_BODY_H

#include <math.h>
#include <string.h>
#include "cpu/bfloat.h"

/* Four lanes are what every instruction set has; four of them are enough to be on their way. */
enum { SHARE_LANES = 4, SHARE_CHAINS = 4, SHARE_STEP = SHARE_LANES * SHARE_CHAINS };

typedef float lanes __attribute__((vector_size(SHARE_LANES * sizeof(float))));
typedef int32_t lane_bits __attribute__((vector_size(SHARE_LANES * sizeof(float))));

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
    lanes most[SHARE_CHAINS] = {none, none, none, none};
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

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* 2^t for t <= 0, to 2^-16 of itself; 2^-126 for all that is less. With t = n + f, |f| <= 1/2, the
 * power of f is a polynomial; adding 1.5 * 2^23 leaves n in the low bits. */
static inline float power_of_two(float t)
{
    const float shift = 0x1.8p23f;
    const uint32_t least = 0xC2FC0000u, u = bits_of(t); /* -126; bits of negative numbers grow */
    t = float_of(u < least ? u : least);
    const float rounded = t + shift, f = t - (rounded - shift);
    const float p =
        0.99999994f + f * (0.6931508f + f * (0.24022794f + f * (0.055370375f + f * 0.0096734f)));
    return p * float_of((bits_of(rounded) << 23) + 0x3F800000u);
}

/* The nearest bfloat16 number of one that is neither negative nor infinite, as a float. */
static inline float rounded_share(float f)
{
    const uint32_t u = bits_of(f);
    return float_of((u + 0x7FFFu + (u >> 16 & 1)) & 0xFFFF0000u);
}

static void exps_of(uint16_t *restrict out, float *restrict z, int n, float top)
{
    const float log2e = 0x1.715476p0f;
    for (int i = 0; i < n; i++) {
        const float share = rounded_share(power_of_two((z[i] - top) * log2e));
        out[i] = (uint16_t)(bits_of(share) >> 16);
        z[i] = share;
    }
}

static float shares_of(uint16_t *out, float *z, int n, float top)
{
    lanes sum[SHARE_CHAINS] = {{0}};
    float all = 0;
    int i = 0;
    exps_of(out, z, n, top);
    for (; i + SHARE_STEP <= n; i += SHARE_STEP)
        for (int k = 0; k < SHARE_CHAINS; k++)
            sum[k] += load_lanes(z + i + SHARE_LANES * k);
    for (int k = 1; k < SHARE_CHAINS; k++)
        sum[0] += sum[k];
    for (int k = 0; k < SHARE_LANES; k++)
        all += sum[0][k];
    for (; i < n; i++)
        all += z[i];
    return all;
}

#endif
