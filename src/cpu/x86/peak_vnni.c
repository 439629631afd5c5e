#include <immintrin.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 4000, CHAINS = 12, LANES = 64 };

static float run_vnni(void)
{
    static const int8_t operand[4][LANES] = {{1}, {2}, {3}, {4}};
    __m512i acc[CHAINS], y = _mm512_set1_epi8(3);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_epi32(i);
    for (int s = 0; s < STEPS; s++) {
        __m512i x = _mm512_loadu_si512(operand[s % 4]);
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__("vpdpbusd %2, %1, %0"
                    : "+v"(acc[i])
                    : "v"(x), "v"(y)); /* compilers copy sums */
    }
    int sum = 0;
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum ^= _mm512_reduce_add_epi32(acc[i]);
    return (float)sum;
}

size_t dg_cpu_peaks_vnni(dg_cpu_peak *out)
{
    out[0] = (dg_cpu_peak){"int8 AVX-512 VNNI", true, 2.0 * LANES * CHAINS * STEPS, run_vnni};
    return 1;
}
