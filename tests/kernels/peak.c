/* The speed of fused multiply-adds alone: what a matrix product is measured against. */
#include "kernels/check.h"
#include <string.h>
#include "base/clock.h"

/* A step is `chains` independent multiply-adds, one operand of them loaded. With no load at all in
 * the stream, and with some lengths of it, Neoverse-V1 settles on half of its units: hence three
 * lengths, many short trials, and the best one counts. */
enum { STEPS = 4000, TRIALS = 3000, N_OPERAND = 4 };

#if defined(__aarch64__)
#include <arm_neon.h>

static const char own_set[] = "neon";
enum { LANES = 4, SHORT = 16, MIDDLE = 20, LONG = 24 }; /* four units of four cycles, or more */

static inline __attribute__((always_inline)) float multiply_add(const int chains)
{
    static const float operand[N_OPERAND][LANES] = {{1}, {2}, {3}, {4}};
    float32x4_t acc[LONG], y = vdupq_n_f32(0.25f);
#pragma GCC unroll 24
    for (int i = 0; i < chains; i++)
        acc[i] = vdupq_n_f32((float)i);
    for (int s = 0; s < STEPS; s++) {
        float32x4_t x = vld1q_f32(operand[s % N_OPERAND]);
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

static float run(int chains)
{
    return chains == SHORT    ? multiply_add(SHORT)
           : chains == MIDDLE ? multiply_add(MIDDLE)
                              : multiply_add(LONG);
}

#elif defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

static const char own_set[] = "avx2";
enum { LANES = 8, SHORT = 8, MIDDLE = 10, LONG = 12 }; /* two units of four or five cycles */

static inline AVX2 __attribute__((always_inline)) float multiply_add(const int chains)
{
    static const float operand[N_OPERAND][LANES] = {{1}, {2}, {3}, {4}};
    __m256 acc[LONG], y = _mm256_set1_ps(0.25f);
#pragma GCC unroll 12
    for (int i = 0; i < chains; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++) {
        __m256 x = _mm256_loadu_ps(operand[s % N_OPERAND]);
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

static AVX2 float run(int chains)
{
    return chains == SHORT    ? multiply_add(SHORT)
           : chains == MIDDLE ? multiply_add(MIDDLE)
                              : multiply_add(LONG);
}

#else

static const char own_set[] = "";
enum { LANES = 1, SHORT = 1, MIDDLE = 1, LONG = 1 };

static float run(int chains)
{
    return (float)chains;
}

#endif

double check_peak(const char *set)
{
    static const int chains[] = {SHORT, MIDDLE, LONG};
    if (strcmp(set, own_set) != 0)
        return 0;
    double best = 0;
    for (int t = 0; t < TRIALS; t++) {
        const int n = chains[(size_t)t * DG_COUNT(chains) / TRIALS];
        double start = dg_clock_now();
        volatile float result = run(n);
        (void)result;
        double rate = 2.0 * n * STEPS * LANES / (dg_clock_now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}
