/* Activations to whole numbers, over NEON registers. */
#include "cpu/arm/kernels_neon.h"
#include <arm_neon.h>
#include <math.h>
#include "base/common.h"

/* The largest magnitude as bits: a NaN is larger than infinity, and infinity than any number. */
static inline int32_t largest_of(const float *x, int n)
{
    int32x4_t most = vdupq_n_s32(0);
    for (int i = 0; i < n; i += 4)
        most = vmaxq_s32(most, vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(x + i))));
    return vmaxvq_s32(most);
}

/* How n values become numbers. */
typedef struct measure {
    float inverse, step;
    bool some;
} measure;

static inline measure measure_of(const float *x, int n)
{
    int32_t bits = largest_of(x, n);
    float largest = vgetq_lane_f32(vreinterpretq_f32_s32(vdupq_n_s32(bits)), 0);
    bool finite = bits < 0x7F800000, some = finite && largest >= 0x1p-100f;
    return (measure){some ? 127 / largest : 0, some ? largest / 127 : finite ? 0 : NAN, some};
}

static inline int8x8_t eight(float32x4_t low, float32x4_t high, float inverse)
{
    int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(low, inverse)),
              b = vcvtnq_s32_f32(vmulq_n_f32(high, inverse));
    return vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b)));
}

/* Eight numbers; returns their sum. */
static inline int set_eight(int8_t to[8], const float *x, const measure *m)
{
    int8x8_t n = m->some ? eight(vld1q_f32(x), vld1q_f32(x + 4), m->inverse) : vdup_n_s8(0);
    vst1_s8(to, n);
    return vaddlv_s8(n);
}

static inline void set_block(dg_qpair *out, int which, const float *x)
{
    const measure m = measure_of(x, DG_QBLOCK);
    const float step = m.step;
    int sum[2] = {0, 0};
    for (int i = 0; i < 4; i++)
        sum[i / 2] += set_eight(out->n[i][which], x + 8 * i, &m);
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

void dg_quantise_super_neon(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b += DG_QBLOCKS, out += DG_QSUPER, x += DG_QSLICE) {
        dg_qsuper *to = (dg_qsuper *)out;
        const measure m = measure_of(x, DG_QSLICE);
        int sum[DG_QGROUPS] = {0};
        for (int i = 0; i < DG_QSLICE / 8; i++)
            sum[i / 2] += set_eight(to->n[i][which], x + 8 * i, &m);
        dg_qsuper_sums(to, which, sum, m.step);
    }
}
