#include "tensor/blocks_low.h"
#include <stdbool.h>
#include <stdint.h>
#include "tensor/dtype.h"
#include "tensor/grids.h"

/* Every value is a whole number times a step that has few bits: no product here is rounded. */

enum { VALUES = 256 };

typedef unsigned char byte;

static unsigned word_at(const byte *p)
{
    return (unsigned)(p[0] | p[1] << 8);
}

static uint32_t long_at(const byte *p)
{
    return word_at(p) | (uint32_t)word_at(p + 2) << 16;
}

static float half_at(const byte *p)
{
    return dg_f16_to_float((uint16_t)word_at(p));
}

/* Number g of four-bit numbers. */
static int nibble(const byte *p, int g)
{
    return p[g / 2] >> 4 * (g % 2) & 15;
}

/* Bit i of eight signs of which seven are stored: an even number of them is set. */
static bool seven_signs(unsigned stored, int i)
{
    unsigned odd = stored ^ stored >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (i < 7 ? stored >> i : odd) & 1;
}

/* ---- one bit ---- */

/* Values lie an eighth above or below -1, 0, 1. */
static float near_one(int index, int i, bool below)
{
    return (float)((dg_grid_iq1[index] >> 2 * i & 3) - 1) + (below ? -0.125f : 0.125f);
}

void dg_widen_iq1_s(float *out, const byte *b)
{
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        unsigned h = word_at(b + 34 + 2 * (i / 32));
        int index = b[2 + i / 8] | (int)(h >> 3 * (i % 32 / 8) & 7) << 8;
        out[i] = d * (float)(2 * (h >> 12 & 7) + 1) * near_one(index, i % 8, h >> 15);
    }
}

/* The half that scales a block is spread over the top of its four words of scales. */
void dg_widen_iq1_m(float *out, const byte *b)
{
    unsigned bits = 0;
    for (int k = 0; k < 4; k++)
        bits |= word_at(b + 48 + 2 * k) >> 12 << 4 * k;
    const float d = dg_f16_to_float((uint16_t)bits);
    for (int i = 0; i < VALUES; i++) {
        int high = nibble(b + 32, i / 8), index = b[i / 8] | (high & 7) << 8;
        unsigned scale = word_at(b + 48 + 2 * (i / 64)) >> 3 * (i / 16 % 4) & 7;
        out[i] = d * (float)(2 * scale + 1) * near_one(index, i % 8, high & 8);
    }
}

/* ---- two bits ---- */

/* Scales go up by ones from a half, and a grid's values are four times what they stand for. */
static float two_bits(const uint16_t *grid, unsigned index, int i, bool below, float d,
                      unsigned scale)
{
    static const int8_t value[4] = {8, 25, 43, 0};
    int n = value[grid[index] >> 2 * i & 3];
    return d * (0.5f + (float)scale) * 0.25f * (float)(below ? -n : n);
}

void dg_widen_iq2_xxs(float *out, const byte *b)
{
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        const byte *group = b + 2 + 8 * (i / 32);
        const int eight = i % 32 / 8;
        uint32_t a = long_at(group + 4);
        out[i] = two_bits(dg_grid_iq2_xxs, group[eight], i % 8,
                          seven_signs(a >> 7 * eight & 127, i % 8), d, a >> 28);
    }
}

void dg_widen_iq2_xs(float *out, const byte *b)
{
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        unsigned w = word_at(b + 2 + 2 * (i / 8));
        out[i] = two_bits(dg_grid_iq2_xs, w & 511, i % 8, seven_signs(w >> 9, i % 8), d,
                          (unsigned)nibble(b + 66, i / 16));
    }
}

void dg_widen_iq2_s(float *out, const byte *b)
{
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        const int eight = i / 8;
        unsigned index = b[2 + eight] | (b[66 + eight / 4] >> 2 * (eight % 4) & 3u) << 8;
        out[i] = two_bits(dg_grid_iq2_s, index, i % 8, b[34 + eight] >> i % 8 & 1, d,
                          (unsigned)nibble(b + 74, i / 16));
    }
}

/* ---- three bits ---- */

void dg_widen_iq3_xxs(float *out, const byte *b)
{
    static const int8_t value[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        uint32_t a = long_at(b + 66 + 4 * (i / 32));
        int n = value[dg_grid_iq3_xxs[b[2 + i / 4]] >> 4 * (i % 4) & 7];
        bool below = seven_signs(a >> 7 * (i % 32 / 8) & 127, i % 8);
        out[i] = d * (0.5f + (float)(a >> 28)) * 0.5f * (float)(below ? -n : n);
    }
}

void dg_widen_iq3_s(float *out, const byte *b)
{
    const float d = half_at(b);
    for (int i = 0; i < VALUES; i++) {
        const int four = i / 4;
        int index = b[2 + four] | (b[66 + four / 8] >> four % 8 & 1) << 8;
        int n = 2 * (dg_grid_iq3_s[index] >> 4 * (i % 4) & 7) + 1;
        bool below = b[74 + i / 8] >> i % 8 & 1;
        out[i] = d * (float)(1 + 2 * nibble(b + 106, i / 32)) * (float)(below ? -n : n);
    }
}

/* ---- -1, 0, 1 ---- */

/* Five to a byte, as a fraction of 256 in base three: each multiplication by three moves a digit
 * above the point. */
void dg_widen_tq1_0(float *out, const byte *b)
{
    static const byte power[5] = {1, 3, 9, 27, 81};
    const float d = half_at(b + 52);
    for (int i = 0; i < VALUES; i++) {
        int from = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        byte rest = (byte)(b[from] * power[digit]);
        out[i] = d * (float)((rest * 3 >> 8) - 1);
    }
}

void dg_widen_tq2_0(float *out, const byte *b)
{
    const float d = half_at(b + 64);
    for (int i = 0; i < VALUES; i++)
        out[i] = d * (float)((b[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
}
