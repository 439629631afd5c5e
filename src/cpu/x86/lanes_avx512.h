/* Registers of 64 bytes: the operations that the AVX-512 and AMX products are written in. tests/
 * have the same ones in plain C (kernels/lanes_plain.h), so that those products are also checked
 * where a processor does not have the instructions. */
#ifndef DG_CPU_X86_LANES_AVX512_H
#define DG_CPU_X86_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include "cpu/x86/kernels_avx2.h"
#include "cpu/x86/lanes_avx2.h"

typedef __m512i v64; /* bytes, or sixteen words of 32 bits */
typedef __m512 f16v; /* sixteen floats */

#define QUANTISE       dg_quantise_avx2
#define QUANTISE_SUPER dg_quantise_super_avx2
#define INLINE         static inline __attribute__((always_inline))
#define UNROLL         _Pragma("GCC unroll 16")

/* No load and no store needs alignment. */
static inline v64 v64_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void v64_store(void *p, v64 a)
{
    _mm512_storeu_si512(p, a);
}

/* Sixteen bytes from each of four places. */
static inline v64 v64_load_quarters(const void *a, const void *b, const void *c, const void *d)
{
    v64 v = _mm512_castsi128_si512(_mm_loadu_si128(a));
    v = _mm512_inserti32x4(v, _mm_loadu_si128(b), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128(c), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128(d), 3);
}

/* 32 bytes twice; sixteen bytes from each of two places, twice each. */
static inline v64 v64_load_twice(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
}

static inline v64 v64_load_two_twice(const void *a, const void *b)
{
    const v64 first = _mm512_broadcast_i32x4(_mm_loadu_si128(a));
    return _mm512_mask_broadcast_i32x4(first, 0xFF00, _mm_loadu_si128(b));
}

/* The first n of sixteen numbers of 16 bits, in a word each; 0 behind them. Nothing else is read.
 */
static inline v64 v64_widen16_first(const void *p, int n)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}

/* Word i from p + at[i] bytes. */
static inline v64 v64_gather(const void *p, v64 at)
{
    return _mm512_i32gather_epi32(at, p, 1);
}

static inline v64 v64_set8(int a)
{
    return _mm512_set1_epi8((char)a);
}

static inline v64 v64_set32(int32_t a)
{
    return _mm512_set1_epi32(a);
}

/* Words of each quarter: a0 b0 a1 b1, and a2 b2 a3 b3; pairs of words alike. */
static inline v64 v64_low32(v64 a, v64 b)
{
    return _mm512_unpacklo_epi32(a, b);
}

static inline v64 v64_high32(v64 a, v64 b)
{
    return _mm512_unpackhi_epi32(a, b);
}

static inline v64 v64_low64(v64 a, v64 b)
{
    return _mm512_unpacklo_epi64(a, b);
}

static inline v64 v64_high64(v64 a, v64 b)
{
    return _mm512_unpackhi_epi64(a, b);
}

static inline v64 v64_and(v64 a, v64 b)
{
    return _mm512_and_si512(a, b);
}

static inline v64 v64_or(v64 a, v64 b)
{
    return _mm512_or_si512(a, b);
}

static inline v64 v64_add8(v64 a, v64 b)
{
    return _mm512_add_epi8(a, b);
}

static inline v64 v64_add32(v64 a, v64 b)
{
    return _mm512_add_epi32(a, b);
}

/* Halves of words. */
static inline v64 v64_mul16(v64 a, v64 b)
{
    return _mm512_mullo_epi16(a, b);
}

/* The nearest of products of signed halves over 2^15. */
static inline v64 v64_mul_round16(v64 a, v64 b)
{
    return _mm512_mulhrs_epi16(a, b);
}

static inline v64 v64_sub16(v64 a, v64 b)
{
    return _mm512_sub_epi16(a, b);
}

static inline v64 v64_add16(v64 a, v64 b)
{
    return _mm512_add_epi16(a, b);
}

/* Shifted by a byte. */
static inline v64 v64_byte_right16(v64 a)
{
    return _mm512_srli_epi16(a, 8);
}

/* Words shifted; `right_signed` keeps the sign. */
static inline v64 v64_left32(v64 a, int by)
{
    return _mm512_slli_epi32(a, (unsigned)by);
}

static inline v64 v64_right32(v64 a, int by)
{
    return _mm512_srli_epi32(a, (unsigned)by);
}

static inline v64 v64_right_signed32(v64 a, int by)
{
    return _mm512_srai_epi32(a, (unsigned)by);
}

/* Each 64 bits shifted by as much as those of `by` say. */
static inline v64 v64_left64_each(v64 a, v64 by)
{
    return _mm512_sllv_epi64(a, by);
}

static inline v64 v64_right64_each(v64 a, v64 by)
{
    return _mm512_srlv_epi64(a, by);
}

/* a + by in bytes whose bit is set in `where`, a elsewhere. */
static inline v64 v64_add8_where(v64 a, v64 by, uint64_t where)
{
    return _mm512_mask_add_epi8(a, (__mmask64)where, a, by);
}

/* The larger ones of unsigned bytes. */
static inline v64 v64_max8(v64 a, v64 b)
{
    return _mm512_max_epu8(a, b);
}

/* 0 in bytes that are equal, a elsewhere. */
static inline v64 v64_clear8_where_equal(v64 a, v64 b)
{
    return _mm512_maskz_mov_epi8(_mm512_cmpneq_epi8_mask(a, b), a);
}

/* Halves of words shifted by as much as those of `by` say. */
static inline v64 v64_right16_each(v64 a, v64 by)
{
    return _mm512_srlv_epi16(a, by);
}

/* Half of each half of a word, one half up. */
static inline v64 v64_half_up16(v64 a)
{
    return _mm512_avg_epu16(a, _mm512_setzero_si512());
}

/* Halves of words of the other sign where those of `of` are below 0. */
static inline v64 v64_minus16_where_minus(v64 a, v64 of)
{
    return _mm512_mask_sub_epi16(a, _mm512_movepi16_mask(of), _mm512_setzero_si512(), a);
}

/* Byte i of each quarter becomes byte order[i] of it. */
static inline v64 v64_shuffle8(v64 a, v64 order)
{
    return _mm512_shuffle_epi8(a, order);
}

/* a - by in bytes where no bit of `bits` is set in `of`, a elsewhere. */
static inline v64 v64_sub8_where_clear(v64 a, v64 by, v64 of, v64 bits)
{
    return _mm512_mask_sub_epi8(a, _mm512_testn_epi8_mask(of, bits), a, by);
}

static inline f16v f16v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline f16v f16v_set(float a)
{
    return _mm512_set1_ps(a);
}

static inline f16v f16v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void f16v_store(float *p, f16v a)
{
    _mm512_storeu_ps(p, a);
}

/* The first n of sixteen; nothing else is touched. */
static inline f16v f16v_load_first(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static inline void f16v_store_first(float *p, f16v a, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}

static inline f16v f16v_of_i32(v64 a)
{
    return _mm512_cvtepi32_ps(a);
}

/* The nearest whole numbers. */
static inline v64 v64_of_f16v(f16v a)
{
    return _mm512_cvtps_epi32(a);
}

/* The same bits. */
static inline f16v f16v_of_bits(v64 a)
{
    return _mm512_castsi512_ps(a);
}

static inline v64 bits_of_f16v(f16v a)
{
    return _mm512_castps_si512(a);
}

/* Of the half-precision number in the lower half of each word. */
static inline f16v f16v_of_f16(v64 a)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}

static inline f16v f16v_add(f16v a, f16v b)
{
    return _mm512_add_ps(a, b);
}

static inline f16v f16v_sub(f16v a, f16v b)
{
    return _mm512_sub_ps(a, b);
}

/* a > b ? a : b. */
static inline f16v f16v_max(f16v a, f16v b)
{
    return _mm512_max_ps(a, b);
}

static inline f16v f16v_mul(f16v a, f16v b)
{
    return _mm512_mul_ps(a, b);
}

static inline f16v f16v_div(f16v a, f16v b)
{
    return _mm512_div_ps(a, b);
}

static inline f16v f16v_abs(f16v a)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF)));
}

/* a where it is larger than b, else b. */
static inline f16v f16v_larger(f16v a, f16v b)
{
    return _mm512_max_ps(a, b);
}

/* b where a is at least `least`, else 0. */
static inline f16v f16v_where_least(f16v a, f16v least, f16v b)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, least, _CMP_GE_OQ), b);
}

/* a * b + c, one rounding. */
static inline f16v f16v_fma(f16v a, f16v b, f16v c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a * b, one rounding. */
static inline f16v f16v_fnma(f16v a, f16v b, f16v c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

#ifdef __AVX512VNNI__
/* sum + four products of bytes in each word: unsigned ones of a, signed ones of b. Compilers copy
 * the sums of unrolled loops to and fro; so the instruction is ours. */
static inline v64 v64_dot_bytes(v64 sum, v64 a, v64 b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* sum + four products of bytes in each word: unsigned ones of a, and four signed ones of memory.
 * The instruction takes these from there, which compilers do not find: a load of its own for each
 * would be half of what is begun. */
static inline v64 v64_dot_four(v64 sum, v64 a, const void *four)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*(const char(*)[4])four));
    return sum;
}
#endif

static inline float f16v_largest(f16v a)
{
    return _mm512_reduce_max_ps(a);
}

static inline float f16v_total(f16v a)
{
    return _mm512_reduce_add_ps(a);
}

#ifdef __AVX512BF16__
/* The nearest bfloat16 numbers of a, then of b; 0 for what is below 2^-126. */
static inline v64 v64_of_bfloats(f16v a, f16v b)
{
    return (v64)_mm512_cvtne2ps_pbh(b, a);
}

/* Adds bfloat16 numbers 2 i and 2 i + 1 to each sum i. */
static inline f16v f16v_add_bfloats(f16v sum, v64 numbers)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)numbers, (__m512bh)_mm512_set1_epi16(0x3F80));
}
#endif

#endif
