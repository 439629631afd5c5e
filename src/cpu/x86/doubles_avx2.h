/* Eight doubles in two AVX2 registers, for cpu/vector_body.h. */
#ifndef DG_CPU_X86_DOUBLES_AVX2_H
#define DG_CPU_X86_DOUBLES_AVX2_H

#include "cpu/x86/lanes_avx2.h"

typedef struct d8 {
    __m256d v[2];
} d8;

#define D8(op, ...)        ((d8){{op(0, __VA_ARGS__), op(1, __VA_ARGS__)}})
#define AT1(i, f, a)       f((a).v[i])
#define AT2(i, f, a, b)    f((a).v[i], (b).v[i])
#define AT3(i, f, a, b, c) f((a).v[i], (b).v[i], (c).v[i])

static inline d8 d8_set(double x)
{
    __m256d v = _mm256_set1_pd(x);
    return (d8){{v, v}};
}

static inline d8 d8_widen(f8 a)
{
    return (d8){
        {_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))}};
}

static inline f8 d8_narrow(d8 a)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(a.v[1]), _mm256_cvtpd_ps(a.v[0]));
}

static inline d8 d8_add(d8 a, d8 b)
{
    return D8(AT2, _mm256_add_pd, a, b);
}

static inline d8 d8_sub(d8 a, d8 b)
{
    return D8(AT2, _mm256_sub_pd, a, b);
}

static inline d8 d8_mul(d8 a, d8 b)
{
    return D8(AT2, _mm256_mul_pd, a, b);
}

static inline d8 d8_div(d8 a, d8 b)
{
    return D8(AT2, _mm256_div_pd, a, b);
}

/* a * b + c, one rounding. */
static inline d8 d8_fma(d8 a, d8 b, d8 c)
{
    return D8(AT3, _mm256_fmadd_pd, a, b, c);
}

/* a within [low, high]; NaN stays NaN, since it is the second operand. */
static inline d8 d8_clamp(d8 a, double low, double high)
{
    return D8(AT2, _mm256_min_pd, d8_set(high), D8(AT2, _mm256_max_pd, d8_set(low), a));
}

static inline d8 d8_abs(d8 a)
{
    return D8(AT2, _mm256_andnot_pd, d8_set(-0.0), a);
}

static inline __m256d copysign4(__m256d size, __m256d sign)
{
    __m256d bit = _mm256_set1_pd(-0.0);
    return _mm256_or_pd(_mm256_andnot_pd(bit, size), _mm256_and_pd(bit, sign));
}

static inline d8 d8_copysign(d8 size, d8 sign)
{
    return D8(AT2, copysign4, size, sign);
}

static inline __m256d zero_below4(__m256d a, __m256d limit)
{
    return _mm256_andnot_pd(_mm256_cmp_pd(a, limit, _CMP_LT_OQ), a);
}

/* a, or 0 where a < limit; NaN stays NaN. */
static inline d8 d8_zero_below(d8 a, double limit)
{
    return D8(AT2, zero_below4, a, d8_set(limit));
}

static inline __m256d pow2_low4(__m256d a)
{
    __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(a), 52);
    __m256i one = _mm256_castpd_si256(_mm256_set1_pd(1));
    return _mm256_castsi256_pd(_mm256_add_epi64(exponent, one));
}

/* 2^n for the whole number n in the lowest bits of a; infinity for n = 1024. */
static inline d8 d8_pow2_low(d8 a)
{
    return D8(AT1, pow2_low4, a);
}

/* The sum of all lanes; its order is part of the result. */
static inline double d8_sum(d8 a)
{
    __m256d fours = _mm256_add_pd(a.v[0], a.v[1]);
    __m128d twos = _mm_add_pd(_mm256_castpd256_pd128(fours), _mm256_extractf128_pd(fours, 1));
    return _mm_cvtsd_f64(twos) + _mm_cvtsd_f64(_mm_unpackhi_pd(twos, twos));
}

#undef D8
#undef AT1
#undef AT2
#undef AT3

#endif
