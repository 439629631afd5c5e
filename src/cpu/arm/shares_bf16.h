/* Softmax for products of bfloat16 numbers, with the instruction that rounds to them. bfloat.h has
 * the contract. */
#ifndef DG_CPU_ARM_SHARES_BF16_H
#define DG_CPU_ARM_SHARES_BF16_H

#include <arm_neon.h>
#include <math.h>
#include <string.h>
#include "cpu/bfloat.h"

/* Four registers side by side: what follows in one waits for the last step. */
enum { SHARE_LANES = 4, SHARE_CHAINS = 4, SHARE_STEP = SHARE_LANES * SHARE_CHAINS };
#define EACH for (int k = 0; k < SHARE_CHAINS; k++)

static float largest_of(const float *z, int n)
{
    float32x4_t most[SHARE_CHAINS];
    int i = 0;
    EACH most[k] = vdupq_n_f32(-INFINITY);
    for (; i + SHARE_STEP <= n; i += SHARE_STEP)
        EACH most[k] = vmaxnmq_f32(most[k], vld1q_f32(z + i + SHARE_LANES * k));
    float all =
        vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(most[0], most[1]), vmaxnmq_f32(most[2], most[3])));
    for (; i < n; i++)
        all = z[i] > all ? z[i] : all;
    return all;
}

/* 2^t for t <= 0, to 2^-13 of itself; at most 2^-126 for all that is less. With t = n + f, |f| <=
 * 1/2, the power of f is a polynomial; adding 1.5 * 2^23 leaves n in the low bits, from where it
 * goes to the exponent. */
static inline void take_powers(float32x4_t t[SHARE_CHAINS])
{
    const float32x4_t shift = vdupq_n_f32(0x1.8p23f), least = vdupq_n_f32(-126),
                      c0 = vdupq_n_f32(0.99992807f), c1 = vdupq_n_f32(0.69326103f),
                      c2 = vdupq_n_f32(0.24261117f), c3 = vdupq_n_f32(0.05517134f);
    float32x4_t rounded[SHARE_CHAINS], low[SHARE_CHAINS], high[SHARE_CHAINS];
    EACH t[k] = vmaxq_f32(t[k], least);
    EACH rounded[k] = vaddq_f32(t[k], shift);
    EACH t[k] = vsubq_f32(t[k], vsubq_f32(rounded[k], shift));
    EACH low[k] = vfmaq_f32(c0, t[k], c1);
    EACH high[k] = vfmaq_f32(c2, t[k], c3);
    EACH low[k] = vfmaq_f32(low[k], vmulq_f32(t[k], t[k]), high[k]);
    EACH t[k] = vreinterpretq_f32_s32(vaddq_s32(
        vreinterpretq_s32_f32(low[k]), vshlq_n_s32(vreinterpretq_s32_f32(rounded[k]), 23)));
}

/* The nearest numbers. Written out, since not every compiler's header has it by itself. */
static inline uint16x8_t bfloats_of(float32x4_t a, float32x4_t b)
{
    uint16x8_t out;
    __asm__("bfcvtn %0.4h, %1.4s\n\tbfcvtn2 %0.8h, %2.4s" : "=&w"(out) : "w"(a), "w"(b));
    return out;
}

/* SHARE_STEP shares. */
static inline void some_shares(uint16x8_t out[SHARE_CHAINS / 2], const float *z, float32x4_t top)
{
    const float32x4_t log2e = vdupq_n_f32(0x1.715476p0f);
    float32x4_t t[SHARE_CHAINS];
    EACH t[k] = vmulq_f32(vsubq_f32(vld1q_f32(z + SHARE_LANES * k), top), log2e);
    take_powers(t);
    for (int k = 0; k < SHARE_CHAINS; k += 2)
        out[k / 2] = bfloats_of(t[k], t[k + 1]);
}

/* sum + the numbers of which they are the upper halves. */
static inline void add_shares(float32x4_t sum[SHARE_CHAINS], const uint16x8_t s[SHARE_CHAINS / 2])
{
    for (int k = 0; k < SHARE_CHAINS; k += 2) {
        const uint32x4_t a = vshll_n_u16(vget_low_u16(s[k / 2]), 16),
                         b = vshll_high_n_u16(s[k / 2], 16);
        sum[k] = vaddq_f32(sum[k], vreinterpretq_f32_u32(a));
        sum[k + 1] = vaddq_f32(sum[k + 1], vreinterpretq_f32_u32(b));
    }
}

static float shares_of(uint16_t *out, const float *z, int n, float top)
{
    const float32x4_t most = vdupq_n_f32(top);
    float32x4_t sum[SHARE_CHAINS];
    uint16x8_t share[SHARE_CHAINS / 2];
    int i = 0;
    EACH sum[k] = vdupq_n_f32(0);
    for (; i + SHARE_STEP <= n; i += SHARE_STEP) {
        some_shares(share, z + i, most);
        vst1q_u16(out + i, share[0]);
        vst1q_u16(out + i + 8, share[1]);
        add_shares(sum, share);
    }
    if (i < n) {
        float last[SHARE_STEP] = {0};
        uint16_t number[SHARE_STEP];
        memcpy(last, z + i, (size_t)(n - i) * sizeof *last);
        some_shares(share, last, most);
        vst1q_u16(number, share[0]);
        vst1q_u16(number + 8, share[1]);
        memset(number + (n - i), 0, (size_t)(SHARE_STEP - (n - i)) * sizeof *number);
        memcpy(out + i, number, (size_t)(n - i) * sizeof *number);
        add_shares(sum, (uint16x8_t[]){vld1q_u16(number), vld1q_u16(number + 8)});
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

#undef EACH

#endif
