/* Two units of four or five cycles: eight to twelve independent multiply-adds keep them busy. */
#include <immintrin.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 4000, LANES = 8, SHORT = 8, LONG = 12 };

static inline __attribute__((always_inline)) float multiply_add(const int chains)
{
    static const float operand[4][LANES] = {{1}, {2}, {3}, {4}};
    __m256 acc[LONG], y = _mm256_set1_ps(0.25f);
#pragma GCC unroll 12
    for (int i = 0; i < chains; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++) {
        __m256 x = _mm256_loadu_ps(operand[s % 4]);
#pragma GCC unroll 12
        for (int i = 0; i < chains; i++)
            acc[i] = _mm256_fmadd_ps(x, y, acc[i]);
    }
    float sum = 0;
#pragma GCC unroll 12
    for (int i = 0; i < chains; i++)
        sum += _mm256_cvtss_f32(acc[i]);
    return sum;
}

static float run_short(void)
{
    return multiply_add(SHORT);
}

static float run_long(void)
{
    return multiply_add(LONG);
}

size_t dg_cpu_peaks_avx2(dg_cpu_peak *out)
{
    static const char name[] = "f32 AVX2";
    out[0] = (dg_cpu_peak){name, false, 2.0 * LANES * SHORT * STEPS, run_short};
    out[1] = (dg_cpu_peak){name, false, 2.0 * LANES * LONG * STEPS, run_long};
    return 2;
}
