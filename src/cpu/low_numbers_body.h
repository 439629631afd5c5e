/* Numbers and steps of the types of one to three bits, for numbers_body.h: eight values at a time
 * in a word of 64 bits, the first one lowest. src/tensor/blocks_low.c says what the blocks mean. */
#ifndef DG_CPU_LOW_NUMBERS_BODY_H
#define DG_CPU_LOW_NUMBERS_BODY_H

#include <string.h>
#include "tensor/grids.h"

static inline uint64_t each_byte(uint64_t b)
{
    return b * UINT64_C(0x0101010101010101);
}

static inline unsigned stored_word(const uint8_t *p)
{
    return (unsigned)(p[0] | p[1] << 8);
}

static inline uint32_t stored_long(const uint8_t *p)
{
    return stored_word(p) | (uint32_t)stored_word(p + 2) << 16;
}

static inline int stored_nibble(const uint8_t *p, int g)
{
    return p[g / 2] >> 4 * (g % 2) & 15;
}

static inline void put_eight(int8_t *n, uint64_t eight)
{
    memcpy(n, &eight, sizeof eight);
}

/* Eight numbers of two bits, a byte for each. */
static inline uint64_t spread_twos(uint64_t v)
{
    v = (v | v << 24) & UINT64_C(0x000000FF000000FF);
    v = (v | v << 12) & UINT64_C(0x000F000F000F000F);
    return (v | v << 6) & each_byte(3);
}

/* Four numbers of four bits. */
static inline uint64_t spread_fours(uint64_t v)
{
    v = (v | v << 8) & 0x00FF00FFu;
    return (v | v << 4) & 0x0F0F0F0Fu;
}

/* Negates the bytes whose bit of `signs` is set. None of them is 0. */
static inline uint64_t negate_some(uint64_t n, unsigned signs)
{
    uint64_t bits = each_byte(signs) & UINT64_C(0x8040201008040201);
    uint64_t ones = (bits + each_byte(0x7F)) >> 7 & each_byte(1);
    return (n ^ ones * 0xFF) + ones;
}

/* Eight signs, of which seven are stored: an even number of them is set. */
static inline unsigned all_signs(unsigned seven)
{
    unsigned odd = seven ^ seven >> 4;
    return seven | (0x6996u >> (odd & 15) & 1) << 7;
}

/* ---- one bit ---- */

/* Eight times the values: -9, -7, -1, 1, 7, 9. */
static inline void near_ones(int8_t *n, int index, bool below)
{
    int8_t v[8];
    put_eight(v, spread_twos(dg_grid_iq1[index]));
    for (int i = 0; i < 8; i++)
        n[i] = (int8_t)(8 * v[i] - (below ? 9 : 7));
}

static inline void numbers_iq1_s(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    const float d = stored_half(b);
    for (int g = 0; g < 8; g++) {
        const unsigned h = stored_word(b + 34 + 2 * g);
        step[g] = d * (float)(2 * (h >> 12 & 7) + 1) * 0.125f;
        for (int k = 0; k < 4; k++)
            near_ones(n + 32 * g + 8 * k, b[2 + 4 * g + k] | (int)(h >> 3 * k & 7) << 8, h >> 15);
    }
}

static inline void numbers_iq1_m(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    unsigned bits = 0;
    for (int k = 0; k < 4; k++)
        bits |= stored_word(b + 48 + 2 * k) >> 12 << 4 * k;
    const float d = float_of_f16((uint16_t)bits);
    for (int g = 0; g < 16; g++) {
        const unsigned scale = stored_word(b + 48 + g / 4 * 2) >> 3 * (g % 4) & 7;
        step[g] = d * (float)(2 * scale + 1) * 0.125f;
    }
    for (int j = 0; j < 32; j++) {
        const int high = stored_nibble(b + 32, j);
        near_ones(n + 8 * j, b[j] | (high & 7) << 8, high & 8);
    }
}

/* ---- two bits ---- */

/* 8, 25 and 43: seventeen apart, and one. */
static inline void two_bit_eight(int8_t *n, unsigned entry, unsigned signs)
{
    const uint64_t v = spread_twos(entry);
    put_eight(n, negate_some(v * 17 + (v >> 1 & each_byte(1)) + each_byte(8), signs));
}

static inline void numbers_iq2_xxs(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    const float d = stored_half(b);
    for (int g = 0; g < 8; g++) {
        const uint8_t *group = b + 2 + 8 * g;
        const uint32_t a = stored_long(group + 4);
        step[g] = d * (0.5f + (float)(a >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++)
            two_bit_eight(n + 32 * g + 8 * k, dg_grid_iq2_xxs[group[k]],
                          all_signs(a >> 7 * k & 127));
    }
}

static inline void two_bit_steps(float *step, float d, const uint8_t *scales)
{
    for (int g = 0; g < 16; g++)
        step[g] = d * (0.5f + (float)stored_nibble(scales, g)) * 0.25f;
}

static inline void numbers_iq2_xs(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    two_bit_steps(step, stored_half(b), b + 66);
    for (int j = 0; j < 32; j++) {
        const unsigned w = stored_word(b + 2 + 2 * j);
        two_bit_eight(n + 8 * j, dg_grid_iq2_xs[w & 511], all_signs(w >> 9));
    }
}

static inline void numbers_iq2_s(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    two_bit_steps(step, stored_half(b), b + 74);
    for (int j = 0; j < 32; j++) {
        const int index = b[2 + j] | (b[66 + j / 4] >> j % 4 * 2 & 3) << 8;
        two_bit_eight(n + 8 * j, dg_grid_iq2_s[index], b[34 + j]);
    }
}

/* ---- three bits ---- */

/* 4, 12, … 52, 62: eight apart, and two at the end. */
static inline void numbers_iq3_xxs(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    const float d = stored_half(b);
    for (int g = 0; g < 8; g++) {
        const uint32_t a = stored_long(b + 66 + 4 * g);
        step[g] = d * (0.5f + (float)(a >> 28)) * 0.5f;
        for (int k = 0; k < 4; k++) {
            const uint8_t *q = b + 2 + 8 * g + 2 * k;
            const uint64_t v =
                spread_fours(dg_grid_iq3_xxs[q[0]]) | spread_fours(dg_grid_iq3_xxs[q[1]]) << 32;
            const uint64_t last = v & v >> 1 & v >> 2 & each_byte(1);
            put_eight(n + 32 * g + 8 * k,
                      negate_some(8 * v + 2 * last + each_byte(4), all_signs(a >> 7 * k & 127)));
        }
    }
}

static inline void numbers_iq3_s(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    const float d = stored_half(b);
    for (int g = 0; g < 8; g++)
        step[g] = d * (float)(1 + 2 * stored_nibble(b + 106, g));
    for (int j = 0; j < 32; j++) {
        const uint8_t *q = b + 2 + 2 * j;
        const int high = b[66 + j / 4] >> j % 4 * 2;
        const uint64_t v = spread_fours(dg_grid_iq3_s[q[0] | (high & 1) << 8]) |
                           spread_fours(dg_grid_iq3_s[q[1] | (high & 2) << 7]) << 32;
        put_eight(n + 8 * j, negate_some(2 * v + each_byte(1), b[74 + j]));
    }
}

/* ---- -1, 0, 1 ---- */

static inline void one_step(float *step, float d)
{
    for (int g = 0; g < 8; g++)
        step[g] = d;
}

/* The digit that multiplication by three moves out of each of `count` bytes. */
static inline void base_three(int8_t *n, const uint8_t *q, int count, int power)
{
    for (int i = 0; i < count; i++)
        n[i] = (int8_t)(((uint8_t)(q[i] * power) * 3 >> 8) - 1);
}

static inline void numbers_tq1_0(int8_t *n, float *step, float *least, const uint8_t *b)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    (void)least;
    one_step(step, stored_half(b + 52));
    for (int k = 0; k < 5; k++) {
        base_three(n + 32 * k, b, 32, power[k]);
        base_three(n + 160 + 16 * k, b + 32, 16, power[k]);
    }
    for (int k = 0; k < 4; k++)
        base_three(n + 240 + 4 * k, b + 48, 4, power[k]);
}

static inline void numbers_tq2_0(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    one_step(step, stored_half(b + 64));
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 32; i++)
                n[128 * half + 32 * k + i] = (int8_t)((b[32 * half + i] >> 2 * k & 3) - 1);
}

#endif
