/* Eight floats in an AVX2 register: the operations that cpu/vector_body.h is written in, beside
 * those of doubles_*.h. cpu/arm/lanes_neon.h offers the same ones, with the same results bit for
 * bit. */
#ifndef DG_CPU_X86_LANES_AVX2_H
#define DG_CPU_X86_LANES_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef __m256 f8;

static inline f8 f8_set(float x)
{
    return _mm256_set1_ps(x);
}

/* No load and no store needs alignment. */
static inline f8 f8_load_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}

static inline void f8_store_f32(void *p, f8 a)
{
    _mm256_storeu_ps(p, a);
}

static inline f8 f8_load_bf16(const void *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Nearest even in the upper half of the word; NaN keeps its upper half and is made quiet. */
static inline void f8_store_bf16(void *p, f8 a)
{
    __m256i bits = _mm256_castps_si256(a), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, is_nan);
    __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128(p, _mm_packus_epi32(low, high));
}

static inline f8 f8_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline void f8_store_f16(void *p, f8 a)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline float float_of_f16(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

static inline f8 f8_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Sixteen numbers below 16 become what the table has for them; out may be n. */
static inline void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    __m128i from = _mm_loadu_si128((const __m128i *)table);
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(from, _mm_loadu_si128((const __m128i *)n)));
}

/* Sixteen rows of sixteen bytes become columns; rows of out are `stride` bytes apart. */
static inline void i8_turn16(int8_t *out, size_t stride, const int8_t *in)
{
    __m128i a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(in + 16 * i));
    for (int round = 0; round < 4; round++) { /* each one brings rows i and i + 8 together */
        for (int i = 0; i < 8; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
        for (int i = 0; i < 16; i++)
            a[i] = b[i];
    }
    for (int i = 0; i < 16; i++)
        _mm_storeu_si128((__m128i *)(out + (size_t)i * stride), a[i]);
}

static inline f8 f8_sub(f8 a, f8 b)
{
    return _mm256_sub_ps(a, b);
}

static inline f8 f8_mul(f8 a, f8 b)
{
    return _mm256_mul_ps(a, b);
}

static inline f8 f8_div(f8 a, f8 b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, one rounding. */
static inline f8 f8_fma(f8 a, f8 b, f8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a * b, one rounding. */
static inline f8 f8_fnma(f8 a, f8 b, f8 c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* The larger one; `so_far` where a is NaN: the instruction then gives its second operand. */
static inline f8 f8_max(f8 so_far, f8 a)
{
    return _mm256_max_ps(a, so_far);
}

static inline bool f8_any_equal(f8 a, f8 b)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0;
}

/* In each half of the registers: four rows of four become four columns. */
static inline void transpose4(f8 *r0, f8 *r1, f8 *r2, f8 *r3)
{
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(*r0, *r1));
    __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(*r0, *r1));
    __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(*r2, *r3));
    __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(*r2, *r3));
    *r0 = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    *r1 = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    *r2 = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    *r3 = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
}

/* Eight rows of eight become eight columns. */
static inline void f8_transpose(f8 r[8])
{
    transpose4(&r[0], &r[1], &r[2], &r[3]);
    transpose4(&r[4], &r[5], &r[6], &r[7]);
    for (int i = 0; i < 4; i++) {
        f8 low = r[i], high = r[i + 4];
        r[i] = _mm256_permute2f128_ps(low, high, 0x20);
        r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

#endif
