/* Dot products and matrix products of small numbers; compiled for processors that have them all,
 * and each called only where it is there. */
#include <arm_neon.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 4000, CHAINS = 20 };

static const int8_t operand8[4][16] = {{1}, {2}, {3}, {4}};
static const uint16_t operand16[4][8] = {{0x3F80}, {0x4000}, {0x4040}, {0x4080}};

#define INTEGER_LOOP(name, instruction)                                                            \
    static float name(void)                                                                        \
    {                                                                                              \
        int32x4_t acc[CHAINS];                                                                     \
        int8x16_t y = vdupq_n_s8(3);                                                               \
        _Pragma("GCC unroll 20") for (int i = 0; i < CHAINS; i++) acc[i] = vdupq_n_s32(i);         \
        for (int s = 0; s < STEPS; s++) {                                                          \
            int8x16_t x = vld1q_s8(operand8[s % 4]);                                               \
            _Pragma("GCC unroll 20") for (int i = 0; i < CHAINS; i++) acc[i] =                     \
                instruction(acc[i], x, y);                                                         \
        }                                                                                          \
        int32_t sum = 0;                                                                           \
        _Pragma("GCC unroll 20") for (int i = 0; i < CHAINS; i++) sum ^= vaddvq_s32(acc[i]);       \
        return (float)sum;                                                                         \
    }
INTEGER_LOOP(run_dotprod, vdotq_s32)
INTEGER_LOOP(run_i8mm, vmmlaq_s32)

static float run_bf16(void)
{
    float32x4_t acc[CHAINS];
    bfloat16x8_t y = vreinterpretq_bf16_u16(vdupq_n_u16(0x3E80));
#pragma GCC unroll 20
    for (int i = 0; i < CHAINS; i++)
        acc[i] = vdupq_n_f32((float)i);
    for (int s = 0; s < STEPS; s++) {
        bfloat16x8_t x = vreinterpretq_bf16_u16(vld1q_u16(operand16[s % 4]));
#pragma GCC unroll 20
        for (int i = 0; i < CHAINS; i++)
            acc[i] = vbfmmlaq_f32(acc[i], x, y);
    }
    float sum = 0;
#pragma GCC unroll 20
    for (int i = 0; i < CHAINS; i++)
        sum += vaddvq_f32(acc[i]);
    return sum;
}

size_t dg_cpu_peaks_matrix(dg_cpu_peak *out, bool dotprod, bool i8mm, bool bf16)
{
    const double steps = (double)CHAINS * STEPS;
    size_t n = 0;
    if (bf16)
        out[n++] = (dg_cpu_peak){"bf16 bfmmla", false, 32 * steps, run_bf16};
    if (dotprod)
        out[n++] = (dg_cpu_peak){"int8 dotprod", true, 32 * steps, run_dotprod};
    if (i8mm)
        out[n++] = (dg_cpu_peak){"int8 i8mm", true, 64 * steps, run_i8mm};
    return n;
}
