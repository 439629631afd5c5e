/* Activations to whole numbers, over NEON registers. */
#include "cpu/arm/kernels_neon.h"
#include <arm_neon.h>
#include <math.h>
#include "base/common.h"

enum { QUADS = DG_QBLOCK / 4 };

/* The largest magnitude as bits: a NaN is larger than infinity, and infinity than any number. */
static inline int32_t largest_of(const float32x4_t x[QUADS])
{
    int32x4_t most = vdupq_n_s32(0);
    for (int q = 0; q < QUADS; q++)
        most = vmaxq_s32(most, vreinterpretq_s32_f32(vabsq_f32(x[q])));
    return vmaxvq_s32(most);
}

static inline int8x8_t eight(float32x4_t low, float32x4_t high, float inverse)
{
    int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(low, inverse)),
              b = vcvtnq_s32_f32(vmulq_n_f32(high, inverse));
    return vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b)));
}

static inline void set_block(dg_qpair *out, int which, const float *from)
{
    float32x4_t x[QUADS];
    for (int q = 0; q < QUADS; q++)
        x[q] = vld1q_f32(from + 4 * q);
    int32_t bits = largest_of(x);
    float largest = vgetq_lane_f32(vreinterpretq_f32_s32(vdupq_n_s32(bits)), 0);
    bool finite = bits < 0x7F800000, some = finite && largest >= 0x1p-100f;
    float inverse = some ? 127 / largest : 0, step = some ? largest / 127 : finite ? 0 : NAN;
    int sum[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        int8x8_t n = some ? eight(x[2 * i], x[2 * i + 1], inverse) : vdup_n_s8(0);
        vst1_s8(out->n[i][which], n);
        sum[i / 2] += vaddlv_s8(n);
    }
    for (int i = 0; i < 2; i++) {
        out->step[which][i] = step;
        out->sum[which][i] = step * (float)(sum[0] + sum[1]);
        out->bias[which][i] = -128 * sum[i];
    }
}

void dg_quantise_neon(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b++)
        set_block(&out[b], which, x + b * DG_QBLOCK);
}
