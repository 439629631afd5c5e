/* A step is so many independent multiply-adds, one operand of them loaded. With no load at all in
 * the stream, and with some lengths of it, Neoverse-V1 settles on half of its units: hence three
 * lengths, many short trials, and the best one counts. */
#include <arm_neon.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 4000, LANES = 4, SHORT = 16, MIDDLE = 20, LONG = 24 };

static inline __attribute__((always_inline)) float multiply_add(const int chains)
{
    static const float operand[4][LANES] = {{1}, {2}, {3}, {4}};
    float32x4_t acc[LONG], y = vdupq_n_f32(0.25f);
#pragma GCC unroll 24
    for (int i = 0; i < chains; i++)
        acc[i] = vdupq_n_f32((float)i);
    for (int s = 0; s < STEPS; s++) {
        float32x4_t x = vld1q_f32(operand[s % 4]);
#pragma GCC unroll 24
        for (int i = 0; i < chains; i++)
            acc[i] = vfmaq_f32(acc[i], x, y);
    }
    float sum = 0;
#pragma GCC unroll 24
    for (int i = 0; i < chains; i++)
        sum += vaddvq_f32(acc[i]);
    return sum;
}

static float run_short(void)
{
    return multiply_add(SHORT);
}

static float run_middle(void)
{
    return multiply_add(MIDDLE);
}

static float run_long(void)
{
    return multiply_add(LONG);
}

size_t dg_cpu_peaks_neon(dg_cpu_peak *out)
{
    static const char name[] = "f32 NEON";
    out[0] = (dg_cpu_peak){name, false, 2.0 * LANES * SHORT * STEPS, run_short};
    out[1] = (dg_cpu_peak){name, false, 2.0 * LANES * MIDDLE * STEPS, run_middle};
    out[2] = (dg_cpu_peak){name, false, 2.0 * LANES * LONG * STEPS, run_long};
    return 3;
}
