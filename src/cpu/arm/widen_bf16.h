/* dg_bwiden_fn with NEON, sixteen bytes at a time. */
#include "tensor/kv_numbers.h"

INLINE float32x4_t times(float32x4_t numbers, const float *factor)
{
    return vmulq_f32(numbers, vld1q_f32(factor));
}

/* Four whole numbers. */
INLINE float32x4_t whole(int16x4_t n, const float *factor)
{
    return times(vcvtq_f32_s32(vmovl_s16(n)), factor);
}

INLINE void widen_steps(uint16_t *out, const uint8_t *in, const float *factor)
{
    const int8x16_t n = vreinterpretq_s8_u8(vld1q_u8(in));
    const int16x8_t low = vmovl_s8(vget_low_s8(n)), high = vmovl_high_s8(n);
    vst1q_u16(out,
              bfloats_of(whole(vget_low_s16(low), factor), whole(vget_high_s16(low), factor + 4)));
    vst1q_u16(out + 8, bfloats_of(whole(vget_low_s16(high), factor + 8),
                                  whole(vget_high_s16(high), factor + 12)));
}

/* Eight of E4M3, their bits in the places that bfloat16 has for them: the product with 2^120 makes
 * up for the other bias. Results are exact: their upper halves are all of them. */
INLINE uint16x8_t e4m3(uint16x8_t b, const float *factor)
{
    const uint16x8_t bits = vorrq_u16(vshlq_n_u16(vandq_u16(b, vdupq_n_u16(0x7F)), 4),
                                      vshlq_n_u16(vandq_u16(b, vdupq_n_u16(0x80)), 8));
    const float32x4_t bias = vdupq_n_f32(0x1p120f),
                      low = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
                      high = vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16));
    return vuzp2q_u16(vreinterpretq_u16_f32(times(vmulq_f32(low, bias), factor)),
                      vreinterpretq_u16_f32(times(vmulq_f32(high, bias), factor + 4)));
}

static void widen_lines(uint16_t *out, const uint8_t *in, dg_dtype type, const float *factor,
                        size_t stride, int n)
{
    for (; n > 0; n--, out += stride, in += stride)
        for (int i = 0; i < LINE; i += 16)
            if (type == DG_Q8_0) {
                widen_steps(out + i, in + i, factor + i);
            } else {
                const uint8x16_t b = vld1q_u8(in + i);
                vst1q_u16(out + i, e4m3(vmovl_u8(vget_low_u8(b)), factor + i));
                vst1q_u16(out + i + 8, e4m3(vmovl_high_u8(b), factor + i + 8));
            }
}
