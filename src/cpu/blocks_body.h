/* The block types of GGUF files to floats, written once over eight lanes: include cpu/vector_body.h
 * first. A block's numbers are unpacked to bytes by plain loops, which compilers turn into vectors,
 * and then widened and scaled. src/tensor/blocks.c says what the blocks mean; the results are the
 * same to the bit, so a product is rounded before something is taken from it. */
#ifndef DG_CPU_BLOCKS_BODY_H
#define DG_CPU_BLOCKS_BODY_H

#include "tensor/dtype.h"

static inline float half_at(const uint8_t *p)
{
    return float_of_f16((uint16_t)(p[0] | p[1] << 8));
}

/* out[i] = n[i] * d for a multiple of eight. */
static inline void scaled(float *out, const int8_t *n, int count, float d)
{
    for (int i = 0; i < count; i += LANES)
        f8_store_f32(out + i, f8_mul(f8_load_i8(n + i), f8_set(d)));
}

/* out[i] = n[i] * d - least */
static inline void scaled_above(float *out, const int8_t *n, int count, float d, float least)
{
    for (int i = 0; i < count; i += LANES)
        f8_store_f32(out + i, f8_sub(f8_mul(f8_load_i8(n + i), f8_set(d)), f8_set(least)));
}

/* Four-bit numbers: the low halves of `count` bytes, then the high ones. */
static inline void nibbles(int8_t *n, const uint8_t *q, int count)
{
    for (int i = 0; i < count; i++) {
        n[i] = (int8_t)(q[i] & 15);
        n[count + i] = (int8_t)(q[i] >> 4);
    }
}

static inline void lower_all(int8_t *n, int count, int by)
{
    for (int i = 0; i < count; i++)
        n[i] = (int8_t)(n[i] - by);
}

/* ---- blocks of 32 ---- */

static inline void block_q8_0(float *out, const uint8_t *b)
{
    int8_t n[32];
    memcpy(n, b + 2, sizeof n);
    scaled(out, n, 32, half_at(b));
}

static inline void block_q4_0(float *out, const uint8_t *b)
{
    int8_t n[32];
    nibbles(n, b + 2, 16);
    lower_all(n, 32, 8);
    scaled(out, n, 32, half_at(b));
}

static inline void block_q4_1(float *out, const uint8_t *b)
{
    int8_t n[32];
    nibbles(n, b + 4, 16);
    scaled_above(out, n, 32, half_at(b), -half_at(b + 2));
}

/* Adds bit i of h to number i as its fifth bit. */
static inline void fifth_bits(int8_t n[32], const uint8_t *h)
{
    static const uint8_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++)
            n[8 * k + i] = (int8_t)(n[8 * k + i] | (h[k] & bit[i] ? 16 : 0));
}

static inline void block_q5_0(float *out, const uint8_t *b)
{
    int8_t n[32];
    nibbles(n, b + 6, 16);
    fifth_bits(n, b + 2);
    lower_all(n, 32, 16);
    scaled(out, n, 32, half_at(b));
}

static inline void block_q5_1(float *out, const uint8_t *b)
{
    int8_t n[32];
    nibbles(n, b + 8, 16);
    fifth_bits(n, b + 4);
    scaled_above(out, n, 32, half_at(b), -half_at(b + 2));
}

/* ---- types whose numbers are places in a table ---- */

static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void looked_up(float *out, const uint8_t *q, const int8_t table[16], float d)
{
    int8_t n[32];
    nibbles(n, q, 16);
    i8_look_up(n, n, table);
    i8_look_up(n + 16, n + 16, table);
    scaled(out, n, 32, d);
}

static inline void block_iq4_nl(float *out, const uint8_t *b)
{
    looked_up(out, b + 2, levels, half_at(b));
}

static inline void block_mxfp4(float *out, const uint8_t *b)
{
    looked_up(out, b + 1, e2m1, ldexpf(1, b[0] - 128));
}

static inline void block_iq4_xs(float *out, const uint8_t *b)
{
    const int high = b[2] | b[3] << 8;
    const float d = half_at(b);
    for (int g = 0; g < 8; g++) {
        int scale = (b[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
        looked_up(out + 32 * g, b + 8 + 16 * g, levels, d * (float)(scale - 32));
    }
}

/* ---- blocks of 256 ---- */

/* The 16 two-bit numbers of group g: 32 bytes hold 128 of them, one bit pair after the other. */
static inline void two_bits(int8_t n[16], const uint8_t *q, int g)
{
    const uint8_t *from = q + 32 * (g / 8) + 16 * (g % 2);
    const int shift = g % 8 / 2 * 2;
    for (int i = 0; i < 16; i++)
        n[i] = (int8_t)(from[i] >> shift & 3);
}

static inline void block_q2_k(float *out, const uint8_t *b)
{
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int g = 0; g < 16; g++) {
        int8_t n[16];
        two_bits(n, b + 16, g);
        scaled_above(out + 16 * g, n, 16, d * (float)(b[g] & 15), dmin * (float)(b[g] >> 4));
    }
}

static inline void block_q3_k(float *out, const uint8_t *b)
{
    const uint8_t *scale = b + 96;
    const float d = half_at(b + 108);
    for (int g = 0; g < 16; g++) {
        const uint8_t *mask = b + 16 * (g % 2);
        int low = g < 8 ? scale[g] & 15 : scale[g - 8] >> 4;
        int high = scale[8 + g % 4] >> g / 4 * 2 & 3;
        int8_t n[16];
        two_bits(n, b + 32, g);
        for (int i = 0; i < 16; i++)
            n[i] = (int8_t)(n[i] - 4 + (mask[i] >> g / 2 & 1) * 4);
        scaled(out + 16 * g, n, 16, d * (float)((low | high << 4) - 32));
    }
}

/* What the eight groups of a block of Q4_K or Q5_K are multiplied by, and their least values. */
typedef struct group_scales {
    float step[8], least[8];
} group_scales;

static inline group_scales scales_of(const uint8_t *b)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *s = b + 4;
    group_scales out;
    for (int g = 0; g < 4; g++) {
        out.step[g] = d * (float)(s[g] & 63);
        out.least[g] = dmin * (float)(s[g + 4] & 63);
        out.step[g + 4] = d * (float)((s[g + 8] & 15) | s[g] >> 6 << 4);
        out.least[g + 4] = dmin * (float)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
    }
    return out;
}

static inline void scaled_pair(float *out, const int8_t n[64], const group_scales *s, int pair)
{
    for (int g = 2 * pair; g < 2 * pair + 2; g++)
        scaled_above(out + 32 * g, n + 32 * (g % 2), 32, s->step[g], s->least[g]);
}

static inline void block_q4_k(float *out, const uint8_t *b)
{
    const group_scales s = scales_of(b);
    for (int pair = 0; pair < 4; pair++) {
        int8_t n[64];
        nibbles(n, b + 16 + 32 * pair, 32);
        scaled_pair(out, n, &s, pair);
    }
}

static inline void block_q5_k(float *out, const uint8_t *b)
{
    const group_scales s = scales_of(b);
    const uint8_t *high = b + 16;
    for (int pair = 0; pair < 4; pair++) {
        int8_t n[64];
        nibbles(n, b + 48 + 32 * pair, 32);
        for (int i = 0; i < 32; i++) {
            n[i] = (int8_t)(n[i] | (high[i] >> 2 * pair & 1) << 4);
            n[32 + i] = (int8_t)(n[32 + i] | (high[i] >> (2 * pair + 1) & 1) << 4);
        }
        scaled_pair(out, n, &s, pair);
    }
}

/* 32 values; `by` and `pair` are constants at every call, so that the shifts are. */
static inline __attribute__((always_inline)) void part_q6_k(float *out, const uint8_t *low, int by,
                                                            const uint8_t *high, int pair, float d,
                                                            const uint8_t *scale)
{
    int8_t n[32];
    for (int i = 0; i < 32; i++)
        n[i] = (int8_t)(((low[i] >> by & 15) | (high[i] >> pair & 3) << 4) - 32);
    for (int k = 0; k < 2; k++)
        scaled(out + 16 * k, n + 16 * k, 16, d * (float)(int8_t)scale[k]);
}

static inline void block_q6_k(float *out, const uint8_t *b)
{
    const float d = half_at(b + 208);
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half,
                      *scale = b + 192 + 8 * half;
        float *to = out + 128 * half;
        part_q6_k(to, low, 0, high, 0, d, scale);
        part_q6_k(to + 32, low + 32, 0, high, 2, d, scale + 2);
        part_q6_k(to + 64, low, 4, high, 4, d, scale + 4);
        part_q6_k(to + 96, low + 32, 4, high, 6, d, scale + 6);
    }
}

/* ---- all of them ---- */

/* Type, name, values and bytes of a block. NVFP4 stays with the reference: its scales are a format
 * of their own. */
#define BLOCK_TYPES(X)                                                                             \
    X(Q8_0, q8_0, 32, 34)                                                                          \
    X(Q4_0, q4_0, 32, 18)                                                                          \
    X(Q4_1, q4_1, 32, 20)                                                                          \
    X(Q5_0, q5_0, 32, 22)                                                                          \
    X(Q5_1, q5_1, 32, 24)                                                                          \
    X(Q2_K, q2_k, 256, 84)                                                                         \
    X(Q3_K, q3_k, 256, 110)                                                                        \
    X(Q4_K, q4_k, 256, 144)                                                                        \
    X(Q5_K, q5_k, 256, 176)                                                                        \
    X(Q6_K, q6_k, 256, 210)                                                                        \
    X(IQ4_NL, iq4_nl, 32, 18)                                                                      \
    X(IQ4_XS, iq4_xs, 256, 136)                                                                    \
    X(MXFP4, mxfp4, 32, 17)

#define WIDEN(type, name, values, bytes)                                                           \
    static void widen_##name(float *out, const void *in, int n)                                    \
    {                                                                                              \
        const uint8_t *b = in;                                                                     \
        for (int i = 0; i < n; i += (values), b += (bytes))                                        \
            block_##name(out + i, b);                                                              \
    }
BLOCK_TYPES(WIDEN)

#define SET(type, name, values, bytes) k->widen[DG_##type] = widen_##name;
static void set_block_kernels(dg_kernels *k)
{
    BLOCK_TYPES(SET)
}

#undef BLOCK_TYPES
#undef WIDEN
#undef SET

#endif
