#include "tensor/blocks_narrow.h"
#include <assert.h>
#include <math.h>
#include "tensor/blocks.h"
#include "tensor/blocks_fit.h"
#include "tensor/blocks_narrow_k.h"

typedef unsigned char byte;

/* A half, rounded as it is stored; what reads it sees this value. */
static float put_half(byte *out, float v)
{
    uint16_t bits = dg_float_to_f16(v);
    out[0] = (byte)(bits & 255);
    out[1] = (byte)(bits >> 8);
    return dg_f16_to_float(bits);
}

/* 0 where there is no step, or one that halves cannot be: such a block has only zeros. */
static float inverse(float step)
{
    return step != 0 && isfinite(step) ? 1 / step : 0;
}

/* 32 numbers of four bits: the low halves of 16 bytes, then the high ones. */
static void put_nibbles(byte *out, const int n[32])
{
    for (int i = 0; i < 16; i++)
        out[i] = (byte)((n[i] & 15) | (n[16 + i] & 15) << 4);
}

static void put_fifth_bits(byte *out, const int n[32])
{
    for (int i = 0; i < 4; i++) {
        int bits = 0;
        for (int k = 0; k < 8; k++)
            bits |= (n[8 * i + k] >> 4 & 1) << k;
        out[i] = (byte)bits;
    }
}

/* ---- (n - half) d ---- */

static void centred(byte *out, int n[32], const float *x, const float *w, int half)
{
    float per = inverse(put_half(out, dg_fit_step(x, w, 32, -half, half - 1)));
    for (int i = 0; i < 32; i++)
        n[i] = half + (int)dg_nearest_in(x[i], per, (float)-half, (float)(half - 1));
}

static void narrow_q4_0(byte *out, const float *x, const float *w)
{
    int n[32];
    centred(out, n, x, w, 8);
    put_nibbles(out + 2, n);
}

static void narrow_q5_0(byte *out, const float *x, const float *w)
{
    int n[32];
    centred(out, n, x, w, 16);
    put_fifth_bits(out + 2, n);
    put_nibbles(out + 6, n);
}

/* ---- n d + m ---- */

static void shifted(byte *out, int n[32], const float *x, const float *w, int most)
{
    dg_fitted_range r = dg_fit_range(x, w, 32, most, false);
    float per = inverse(put_half(out, r.step)), least = put_half(out + 2, r.least);
    for (int i = 0; i < 32; i++)
        n[i] = isfinite(least) ? (int)dg_nearest_in(x[i] - least, per, 0, (float)most) : 0;
}

static void narrow_q4_1(byte *out, const float *x, const float *w)
{
    int n[32];
    shifted(out, n, x, w, 15);
    put_nibbles(out + 4, n);
}

static void narrow_q5_1(byte *out, const float *x, const float *w)
{
    int n[32];
    shifted(out, n, x, w, 31);
    put_fifth_bits(out + 4, n);
    put_nibbles(out + 8, n);
}

/* ---- levels ---- */

static void narrow_iq4_nl(byte *out, const float *x, const float *w)
{
    int n[32];
    float per = inverse(put_half(out, dg_fit_levels(x, w, 32, dg_nl_levels)));
    for (int i = 0; i < 32; i++)
        n[i] = dg_nearest_level(x[i] * per, dg_nl_levels);
    put_nibbles(out + 2, n);
}

/* Numbers of twice a four-bit float's values: 0, 1, 2, 3, 4, 6, 8, 12, and negative ones. */
static int nearest_e2m1(float x)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    static const float even[7] = {1, 0, 1, 0, 1, 0, 1}; /* in the middle: to the even number */
    float size = fabsf(x);
    int n = 0;
    for (int i = 0; i < 7; i++)
        n += size > middle[i] || (size == middle[i] && even[i] == 0);
    return n && x < 0 ? n + 8 : n;
}

static const float e2m1[8] = {0, 1, 2, 3, 4, 6, 8, 12};

static double e2m1_error(const float *x, const float *w, float step)
{
    double error = 0;
    for (int i = 0; i < 32; i++) {
        float off = fabsf(x[i]) - step * e2m1[nearest_e2m1(x[i] / step) & 7];
        error += (double)(w[i] * off) * (double)off;
    }
    return error;
}

/* The step is a power of two: that which the largest value asks for, or one of its neighbours. */
static void narrow_mxfp4(byte *out, const float *x, const float *w)
{
    float most = 0;
    int n[32], exponent, best = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    frexpf(most / 12, &exponent); /* the least power of two above */
    double least = INFINITY;
    for (int e = exponent + 127; e <= exponent + 129 && most > 0; e++) {
        int held = e < 0 ? 0 : e > 254 ? 254 : e;
        double error = e2m1_error(x, w, ldexpf(1, held - 128));
        best = error < least ? held : best;
        least = fmin(error, least);
    }
    float step = ldexpf(1, best - 128);
    out[0] = (byte)best;
    for (int i = 0; i < 32; i++)
        n[i] = most > 0 ? nearest_e2m1(x[i] / step) : 0;
    put_nibbles(out + 1, n);
}

/* ---- all of them ---- */

static void narrow_q8_0(byte *out, const float *x, const float *w)
{
    (void)w;
    dg_blocks_narrow_q8_0(out, x, 32);
}

typedef void narrow_fn(byte *out, const float *x, const float *w);

static narrow_fn *const narrow_block[DG_DTYPE_COMPUTE] = {
    [DG_Q8_0] = narrow_q8_0,    [DG_Q4_0] = narrow_q4_0,        [DG_Q4_1] = narrow_q4_1,
    [DG_Q5_0] = narrow_q5_0,    [DG_Q5_1] = narrow_q5_1,        [DG_IQ4_NL] = narrow_iq4_nl,
    [DG_MXFP4] = narrow_mxfp4,  [DG_Q4_K] = dg_narrow_q4_k,     [DG_Q5_K] = dg_narrow_q5_k,
    [DG_Q6_K] = dg_narrow_q6_k, [DG_IQ4_XS] = dg_narrow_iq4_xs,
};

bool dg_blocks_can_narrow(dg_dtype type)
{
    return dg_dtype_is_block(type) && narrow_block[type];
}

void dg_blocks_narrow(void *out, dg_dtype type, const float *in, const float *importance, size_t n)
{
    enum { MAX_BLOCK = 256 };
    const size_t block = dg_dtype_block(type), bytes = dg_dtype_bytes(type, block);
    float same[MAX_BLOCK];
    byte *b = out;
    assert(dg_blocks_can_narrow(type) && n % block == 0);
    for (size_t i = 0; i < MAX_BLOCK; i++)
        same[i] = 1;
    for (size_t i = 0; i < n; i += block, b += bytes)
        narrow_block[type](b, in + i, importance ? importance + i : same);
}
