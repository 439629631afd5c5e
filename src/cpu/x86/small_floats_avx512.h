/* Numbers and steps that are small floats, of sixteen columns side by side, with AVX-512: words as
 * columns_avx512.h turns them. */
#ifndef DG_CPU_X86_SMALL_FLOATS_AVX512_H
#define DG_CPU_X86_SMALL_FLOATS_AVX512_H

#include "cpu/x86/columns_avx512.h"

/* ---- four bits: places in a table ---- */

INLINE v64 table_of(const int8_t numbers[16])
{
    return v64_load_quarters(numbers, numbers, numbers, numbers);
}

/* Steps 2^(byte - 128) from the lowest byte of each word. Below 2^-126 they are subnormal numbers:
 * of the second one's bits those of 0 and 1 are right, and all others too small. */
INLINE f16v steps_of_mxfp4(v64 w)
{
    const v64 e = v64_and(w, v64_set32(255));
    return f16v_larger(f16v_of_bits(v64_left32(v64_add32(e, v64_set32(-1)), 23)),
                       f16v_of_bits(v64_left32(v64_add32(e, v64_set32(1)), 21)));
}

/* The step of group g from the bytes of four: half of an E4M3 number without sign, which is 2^-7 of
 * what it is when it is put where a half has its exponent. */
INLINE f16v step_of_nvfp4(v64 four, const int g)
{
    const v64 number = v64_clear8_where_equal(four, v64_set8(0x7F)),
              s = v64_and(v64_right32(number, 8 * g), v64_set32(0x7F));
    return f16v_mul(f16v_of_f16(v64_left32(s, 7)), f16v_set(0x1p7f));
}

/* Sixteen bytes of NVFP4 are two groups of sixteen values: eight low halves, then eight high ones.
 * Row j of eight, of four words. */
INLINE v64 row_of_nvfp4(const v64 w[4], const int j)
{
    const v64 from = w[j / 4 * 2 + j % 2];
    return j % 4 < 2 ? low_halves(from) : high_halves(from);
}

/* ---- E4M3 ---- */

/* How 32 numbers of each column become whole steps: numbers_body.h's e4m3_scale. */
typedef struct e4m3_way {
    v64 top;     /* the largest exponent and 7, in all bytes of a word */
    v64 inverse; /* in both halves */
} e4m3_way;

/* The largest size of 32 numbers, of eight words; in the lowest byte. */
INLINE v64 largest_e4m3(const v64 w[8])
{
    v64 most = v64_and(w[0], v64_set8(0x7F));
    UNROLL
    for (int j = 1; j < 8; j++)
        most = v64_max8(most, v64_and(w[j], v64_set8(0x7F)));
    most = v64_max8(most, v64_right32(most, 16));
    most = v64_max8(most, v64_right32(most, 8));
    return v64_and(most, v64_set32(255));
}

/* From that; returns the step of numbers that nothing multiplies. */
INLINE f16v scale_of_e4m3(e4m3_way *way, v64 most)
{
#define LOWER(n) (n) & 255
#define UPPER(n) (n) >> 8
    static const uint8_t lower[16] = {DG_E4M3_INVERSES(LOWER)},
                         upper[16] = {DG_E4M3_INVERSES(UPPER)};
    const v64 top = v64_max8(v64_right32(most, 3), v64_set32(1)),
              part = v64_sub16(v64_add32(most, v64_set32(8)), v64_left32(top, 3)),
              inverse = v64_or(v64_shuffle8(table_of((const int8_t *)lower), part),
                               v64_left32(v64_shuffle8(table_of((const int8_t *)upper), part), 8));
    way->top = v64_shuffle8(v64_add32(top, v64_set32(7)), v64_load(fourfold[0]));
    way->inverse = v64_or(inverse, v64_left32(inverse, 16));
    const f16v unit = f16v_of_bits(v64_left32(v64_add32(top, v64_set32(117)), 23));
    return f16v_mul(f16v_mul(unit, f16v_of_i32(part)), f16v_set(1.0f / 127));
}

/* numbers_body.h's eight_e4m3, of four numbers of each column: of each half of a word the lower
 * byte's, then the upper one's. */
INLINE void numbers_of_e4m3(v64 n[2], v64 w, const e4m3_way *way)
{
    static const int8_t whole[16] = {0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    const v64 low = v64_set32(0x00FF00FF), exponent = v64_and(v64_right32(w, 3), v64_set8(15)),
              part = v64_or(v64_and(w, v64_set8(7)), v64_shuffle8(table_of(whole), exponent)),
              by = v64_sub16(way->top, v64_max8(exponent, v64_set8(1)));
    const v64 even =
                  v64_right16_each(v64_mul16(v64_and(part, low), way->inverse), v64_and(by, low)),
              odd = v64_right16_each(v64_mul16(v64_byte_right16(part), way->inverse),
                                     v64_byte_right16(by));
    n[0] = v64_minus16_where_minus(v64_half_up16(even), v64_left32(w, 8));
    n[1] = v64_minus16_where_minus(v64_half_up16(odd), w);
}

#endif
