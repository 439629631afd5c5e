/* Eight doubles in one AVX-512 register, for cpu/vector_body.h: what doubles_avx2.h does, to the
 * bit. */
#ifndef DG_CPU_X86_DOUBLES_AVX512_H
#define DG_CPU_X86_DOUBLES_AVX512_H

#include "cpu/x86/lanes_avx2.h"

typedef __m512d d8;

static inline d8 d8_set(double x)
{
    return _mm512_set1_pd(x);
}

static inline d8 d8_widen(f8 a)
{
    return _mm512_cvtps_pd(a);
}

static inline f8 d8_narrow(d8 a)
{
    return _mm512_cvtpd_ps(a);
}

static inline d8 d8_add(d8 a, d8 b)
{
    return _mm512_add_pd(a, b);
}

static inline d8 d8_sub(d8 a, d8 b)
{
    return _mm512_sub_pd(a, b);
}

static inline d8 d8_mul(d8 a, d8 b)
{
    return _mm512_mul_pd(a, b);
}

static inline d8 d8_div(d8 a, d8 b)
{
    return _mm512_div_pd(a, b);
}

/* a * b + c, one rounding. */
static inline d8 d8_fma(d8 a, d8 b, d8 c)
{
    return _mm512_fmadd_pd(a, b, c);
}

/* a within [low, high]; NaN stays NaN, since it is the second operand. */
static inline d8 d8_clamp(d8 a, double low, double high)
{
    return _mm512_min_pd(_mm512_set1_pd(high), _mm512_max_pd(_mm512_set1_pd(low), a));
}

static inline __m512i sign_bits(void)
{
    return _mm512_set1_epi64(INT64_MIN);
}

static inline d8 d8_abs(d8 a)
{
    return _mm512_castsi512_pd(_mm512_andnot_epi64(sign_bits(), _mm512_castpd_si512(a)));
}

static inline d8 d8_copysign(d8 size, d8 sign)
{
    __m512i of_size = _mm512_andnot_epi64(sign_bits(), _mm512_castpd_si512(size));
    __m512i of_sign = _mm512_and_epi64(sign_bits(), _mm512_castpd_si512(sign));
    return _mm512_castsi512_pd(_mm512_or_epi64(of_size, of_sign));
}

/* a, or 0 where a < limit; NaN stays NaN. */
static inline d8 d8_zero_below(d8 a, double limit)
{
    __mmask8 keep = _mm512_cmp_pd_mask(a, _mm512_set1_pd(limit), _CMP_NLT_UQ);
    return _mm512_maskz_mov_pd(keep, a);
}

/* 2^n for the whole number n in the lowest bits of a; infinity for n = 1024. */
static inline d8 d8_pow2_low(d8 a)
{
    __m512i exponent = _mm512_slli_epi64(_mm512_castpd_si512(a), 52);
    __m512i one = _mm512_castpd_si512(_mm512_set1_pd(1));
    return _mm512_castsi512_pd(_mm512_add_epi64(exponent, one));
}

/* The sum of all lanes; its order is part of the result. */
static inline double d8_sum(d8 a)
{
    __m256d fours = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d twos = _mm_add_pd(_mm256_castpd256_pd128(fours), _mm256_extractf128_pd(fours, 1));
    return _mm_cvtsd_f64(twos) + _mm_cvtsd_f64(_mm_unpackhi_pd(twos, twos));
}

#endif
