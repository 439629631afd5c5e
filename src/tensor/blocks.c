#include "tensor/blocks.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include "tensor/blocks_low.h"
#include "tensor/narrowed.h"

/* In every formula a product is rounded before something is added to it: it stands in a statement
 * of its own, where no compiler may fuse the two. */

typedef unsigned char byte;

static float half_at(const byte *p)
{
    return dg_f16_to_float((uint16_t)(p[0] | p[1] << 8));
}

/* 32 four-bit numbers: the low halves of 16 bytes, then the high ones. */
static void nibbles(byte n[32], const byte *q)
{
    for (int i = 0; i < 16; i++) {
        n[i] = q[i] & 15;
        n[16 + i] = q[i] >> 4;
    }
}

/* Adds bit i of h to number i as its fifth bit. */
static void fifth_bits(byte n[32], const byte *h)
{
    for (int i = 0; i < 32; i++)
        n[i] = (byte)(n[i] | (h[i / 8] >> i % 8 & 1) << 4);
}

/* ---- blocks of 32 ---- */

static void widen_q8_0(float *out, const byte *b)
{
    float d = half_at(b);
    for (int i = 0; i < 32; i++) {
        int q = b[2 + i] - (b[2 + i] >= 128 ? 256 : 0);
        out[i] = (float)q * d;
    }
}

/* (n - zero) d */
static void centred(float *out, const byte n[32], int zero, float d)
{
    for (int i = 0; i < 32; i++)
        out[i] = (float)(n[i] - zero) * d;
}

/* n d + m */
static void shifted(float *out, const byte n[32], float d, float m)
{
    for (int i = 0; i < 32; i++) {
        float product = (float)n[i] * d;
        out[i] = product + m;
    }
}

static void widen_q4_0(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 2);
    centred(out, n, 8, half_at(b));
}

static void widen_q4_1(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 4);
    shifted(out, n, half_at(b), half_at(b + 2));
}

static void widen_q5_0(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 6);
    fifth_bits(n, b + 2);
    centred(out, n, 16, half_at(b));
}

static void widen_q5_1(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 8);
    fifth_bits(n, b + 4);
    shifted(out, n, half_at(b), half_at(b + 2));
}

/* The sixteen levels of the non-linear types. */
static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

/* Twice the values of a four-bit float (one sign bit, two of exponent, one of mantissa). */
static const float e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void looked_up(float *out, const byte n[32], const float table[16], float d)
{
    for (int i = 0; i < 32; i++)
        out[i] = d * table[n[i]];
}

static void widen_iq4_nl(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 2);
    looked_up(out, n, levels, half_at(b));
}

static void widen_mxfp4(float *out, const byte *b)
{
    byte n[32];
    nibbles(n, b + 1);
    looked_up(out, n, e2m1, ldexpf(1, b[0] - 128));
}

/* Two floats, step and least value, then nibbles. */
static void widen_affine4(float *out, const byte *b)
{
    byte n[32];
    float scale[2];
    memcpy(scale, b, sizeof scale);
    nibbles(n, b + sizeof scale);
    shifted(out, n, scale[0], -scale[1]);
}

/* The same with bytes, of which 128 is zero. */
static void widen_affine8(float *out, const byte *b)
{
    float scale[2];
    memcpy(scale, b, sizeof scale);
    for (int i = 0; i < 32; i++) {
        float product = (float)(b[sizeof scale + (size_t)i] - 128) * scale[0];
        out[i] = product - scale[1];
    }
}

/* ---- blocks of 64 ---- */

/* Half of an unsigned float of eight bits: exponent in bits 3 to 6 with bias 7, mantissa below. */
static float half_e4m3(byte s)
{
    int exponent = s >> 3 & 15, mantissa = s & 7;
    if (s == 0 || s == 127)
        return 0;
    if (exponent == 0)
        return ldexpf((float)mantissa, -10);
    return ldexpf((float)(8 + mantissa), exponent - 11);
}

static void widen_nvfp4(float *out, const byte *b)
{
    for (int g = 0; g < 4; g++) {
        float d = half_e4m3(b[g]);
        const byte *q = b + 4 + 8 * g;
        for (int i = 0; i < 8; i++) {
            out[16 * g + i] = d * e2m1[q[i] & 15];
            out[16 * g + 8 + i] = d * e2m1[q[i] >> 4];
        }
    }
}

/* A float that E4M3 numbers are multiplied by, then 64 of them. */
static void widen_e4m3(float *out, const byte *b)
{
    float d;
    memcpy(&d, b, sizeof d);
    for (int i = 0; i < 64; i++)
        out[i] = dg_e4m3_to_float(b[sizeof d + (size_t)i]) * d;
}

/* A float, then 64 numbers with a sign. */
static void widen_bytes(float *out, const byte *b)
{
    float d;
    memcpy(&d, b, sizeof d);
    for (int i = 0; i < 64; i++)
        out[i] = (float)(int8_t)b[sizeof d + (size_t)i] * d;
}

/* ---- blocks of 256 ---- */

/* Two-bit numbers of Q2_K and Q3_K: 32 bytes hold 128 of them, one bit pair after the other. */
static int two_bits(const byte *q, int i)
{
    int within = i % 128;
    return q[32 * (i / 128) + within % 32] >> 2 * (within / 32) & 3;
}

static void widen_q2_k(float *out, const byte *b)
{
    const byte *scale = b, *q = b + 16;
    float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int g = 0; g < 16; g++) {
        float step = d * (float)(scale[g] & 15), least = dmin * (float)(scale[g] >> 4);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            float product = step * (float)two_bits(q, i);
            out[i] = product - least;
        }
    }
}

static void widen_q3_k(float *out, const byte *b)
{
    const byte *mask = b, *q = b + 32, *scale = b + 96;
    float d = half_at(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? scale[g] & 15 : scale[g - 8] >> 4;
        int high = scale[8 + g % 4] >> 2 * (g / 4) & 3;
        float step = d * (float)((low | high << 4) - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int set = mask[i % 32] >> i / 32 & 1;
            out[i] = step * (float)(two_bits(q, i) - (set ? 0 : 4));
        }
    }
}

/* The six-bit scale and minimum of group g, out of the twelve bytes of Q4_K and Q5_K. */
static void scale_and_min(const byte *b, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = b[g] & 63;
        *min = b[g + 4] & 63;
    } else {
        *scale = (b[g + 4] & 15) | (b[g - 4] >> 6) << 4;
        *min = b[g + 4] >> 4 | (b[g] >> 6) << 4;
    }
}

/* Q4_K, and with a fifth bit for each value Q5_K: the same but for `high`, NULL or 32 bytes. */
static void widen_scaled_groups(float *out, const byte *b, const byte *high, const byte *q)
{
    float d = half_at(b), dmin = half_at(b + 2);
    for (int g = 0; g < 8; g++) {
        int scale, min;
        scale_and_min(b + 4, g, &scale, &min);
        float step = d * (float)scale, least = dmin * (float)min;
        const byte *pair = q + 32 * (g / 2);
        for (int i = 0; i < 32; i++) {
            int n = pair[i] >> 4 * (g % 2) & 15;
            if (high)
                n |= (high[i] >> g & 1) << 4;
            float product = step * (float)n;
            out[32 * g + i] = product - least;
        }
    }
}

static void widen_q4_k(float *out, const byte *b)
{
    widen_scaled_groups(out, b, NULL, b + 16);
}

static void widen_q5_k(float *out, const byte *b)
{
    widen_scaled_groups(out, b, b + 16, b + 48);
}

static void widen_q6_k(float *out, const byte *b)
{
    const byte *low = b, *high = b + 128, *scale = b + 192;
    float d = half_at(b + 208);
    for (int g = 0; g < 16; g++) {
        int half = g / 8, quarter = g % 8 / 2;
        float step = d * (float)(scale[g] - (scale[g] >= 128 ? 256 : 0));
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int l = i % 32;
            int n = low[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15;
            n |= (high[32 * half + l] >> 2 * quarter & 3) << 4;
            out[i] = step * (float)(n - 32);
        }
    }
}

static void widen_iq4_xs(float *out, const byte *b)
{
    int high = b[2] | b[3] << 8;
    float d = half_at(b);
    for (int g = 0; g < 8; g++) {
        int scale = (b[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
        byte n[32];
        nibbles(n, b + 8 + 16 * g);
        looked_up(out + 32 * g, n, levels, d * (float)(scale - 32));
    }
}

/* ---- all of them ---- */

typedef void widen_fn(float *out, const byte *b);

static widen_fn *const widen_block[DG_DTYPE_COMPUTE] = {
    [DG_Q8_0] = widen_q8_0,      [DG_Q4_0] = widen_q4_0,          [DG_Q4_1] = widen_q4_1,
    [DG_Q5_0] = widen_q5_0,      [DG_Q5_1] = widen_q5_1,          [DG_Q2_K] = widen_q2_k,
    [DG_Q3_K] = widen_q3_k,      [DG_Q4_K] = widen_q4_k,          [DG_Q5_K] = widen_q5_k,
    [DG_Q6_K] = widen_q6_k,      [DG_IQ4_NL] = widen_iq4_nl,      [DG_IQ4_XS] = widen_iq4_xs,
    [DG_MXFP4] = widen_mxfp4,    [DG_NVFP4] = widen_nvfp4,        [DG_IQ1_S] = dg_widen_iq1_s,
    [DG_IQ1_M] = dg_widen_iq1_m, [DG_IQ2_XXS] = dg_widen_iq2_xxs, [DG_IQ2_XS] = dg_widen_iq2_xs,
    [DG_IQ2_S] = dg_widen_iq2_s, [DG_IQ3_XXS] = dg_widen_iq3_xxs, [DG_IQ3_S] = dg_widen_iq3_s,
    [DG_TQ1_0] = dg_widen_tq1_0, [DG_TQ2_0] = dg_widen_tq2_0,     [DG_E4M3] = widen_e4m3,
    [DG_BYTES] = widen_bytes,    [DG_AFFINE4] = widen_affine4,    [DG_AFFINE8] = widen_affine8,
};

void dg_blocks_widen(float *out, const void *in, dg_dtype type, size_t n)
{
    const size_t block = dg_dtype_block(type), bytes = dg_dtype_bytes(type, block);
    const byte *b = in;
    assert(dg_dtype_is_block(type) && n % block == 0);
    for (size_t i = 0; i < n; i += block, b += bytes)
        widen_block[type](out + i, b);
}

void dg_blocks_narrow_q8_0(void *out, const float *in, size_t n)
{
    byte *b = out;
    assert(n % 32 == 0);
    for (size_t at = 0; at < n; at += 32, b += 34) {
        float largest = 0;
        for (int i = 0; i < 32; i++)
            largest = fmaxf(largest, fabsf(in[at + (size_t)i]));
        float d = largest / 127;
        uint16_t bits = dg_float_to_f16(d);
        b[0] = (byte)(bits & 255);
        b[1] = (byte)(bits >> 8);
        for (int i = 0; i < 32; i++)
            b[2 + i] = (byte)(d > 0 ? lroundf(in[at + (size_t)i] / d) & 255 : 0);
    }
}
