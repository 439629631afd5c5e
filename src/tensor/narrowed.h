/* Weights made narrower when a device loads them (--weights): E4M3 and four bits. These are the
 * definitions, for the host and for kernels alike: products are fused or alone, so that every
 * compiler rounds them the same way.
 *
 * DG_FP8    a byte a value: sign, four bits of exponent (bias 7), three of mantissa, no infinity.
 *           A matrix has one factor, the power of two that brings its largest value to 224 ... 448.
 *           A factor for each row would not make errors smaller: they are those of the mantissa
 *           (2.6 % of a value) for everything down to 1/28,672 of the matrix's largest value.
 * DG_INT4   64 values in 34 bytes: the step as a bfloat16, then numbers -8 ... 7 in two's
 *           complement, of a byte the low half first. */
#ifndef DG_TENSOR_NARROWED_H
#define DG_TENSOR_NARROWED_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DG_NARROWED static __host__ __device__ __forceinline__
#else
#define DG_NARROWED static inline
#endif

enum { DG_INT4_VALUES = 64, DG_INT4_BYTES = 34 };

DG_NARROWED uint32_t dg_narrowed_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

DG_NARROWED float dg_narrowed_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* ---- E4M3 ---- */

/* Nearest, ties to even; what is beyond 448 becomes 448, NaN stays NaN. */
DG_NARROWED uint8_t dg_float_to_e4m3(float f)
{
    uint32_t bits = dg_narrowed_bits(f), sign = bits >> 24 & 0x80u, mag = bits & 0x7FFFFFFFu;
    if (mag > 0x7F800000u)
        return (uint8_t)(sign | 0x7Fu);
    if (mag >= 0x43E00000u)
        return (uint8_t)(sign | 0x7Eu);
    if (mag <
        0x3C800000u) { /* below 2^-6: a subnormal, in units of 2^-9, to which the sum rounds */
        uint32_t sum = dg_narrowed_bits(dg_narrowed_float(mag) + 16384.0f);
        return (uint8_t)(sign | (sum - 0x46800000u));
    }
    mag += 0x7FFFFu + (mag >> 20 & 1u);
    return (uint8_t)(sign | ((mag >> 20) - (120u << 3)));
}

DG_NARROWED float dg_e4m3_to_float(uint8_t b)
{
    uint32_t exponent = b >> 3 & 15u, mantissa = b & 7u, sign = (uint32_t)(b & 0x80u) << 24;
    if (exponent == 0)
        return dg_narrowed_float(dg_narrowed_bits((float)mantissa * 0x1p-9f) | sign);
    if ((b & 0x7Fu) == 0x7Fu)
        return dg_narrowed_float(sign | 0x7FC00000u);
    return dg_narrowed_float(sign | (exponent + 120u) << 23 | mantissa << 20);
}

/* What a matrix's numbers are multiplied by to be its values; `largest`: the bits of its largest
 * size. NaN where it has values that are not finite. */
DG_NARROWED float dg_fp8_factor(uint32_t largest)
{
    int exponent = (int)(largest >> 23) - 8 + ((largest & 0x7FFFFFu) > 0x600000u);
    if (largest >= 0x7F800000u)
        return dg_narrowed_float(0x7FC00000u);
    return dg_narrowed_float((uint32_t)(exponent < 1 ? 1 : exponent) << 23);
}

/* ---- four bits ---- */

DG_NARROWED float dg_int4_number(float x, float per)
{
    return fminf(fmaxf(rintf(x * per), -8.0f), 7.0f);
}

/* 64 values to a block. The largest becomes about -8 times the step, which may be negative; of
 * sixteen steps around that, each then fitted to its numbers, the one with the least squares stays.
 * Values that are not finite make the step NaN. */
DG_NARROWED void dg_int4_block(unsigned char *out, const float *x)
{
    float most = 0, best = 0, step = 0;
    bool finite = true;
    for (int i = 0; i < DG_INT4_VALUES; i++) {
        finite = finite && fabsf(x[i]) <= 3.4e38f;
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    }
    for (int n = 0; n < 16 && fabsf(most) > 1e-30f; n++) {
        float per = -fmaf((float)n, 0.15f, 7.1f) / most, with = 0, squares = 0;
        for (int i = 0; i < DG_INT4_VALUES; i++) {
            float number = dg_int4_number(x[i], per);
            with = fmaf(number, x[i], with);
            squares = fmaf(number, number, squares);
        }
        float fitted = with / squares, gain = fitted * with; /* squares that it takes away */
        step = gain > best ? fitted : step;
        best = gain > best ? gain : best;
    }
    uint32_t bits = dg_narrowed_bits(step);
    bits = finite ? (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16 : 0x7FC0u;
    step = dg_narrowed_float(bits << 16);
    float per = finite && step != 0 ? 1 / step : 0;
    out[0] = (unsigned char)(bits & 255u);
    out[1] = (unsigned char)(bits >> 8);
    for (int i = 0; i < DG_INT4_VALUES / 2; i++) {
        int low = finite ? (int)dg_int4_number(x[2 * i], per) : 0,
            high = finite ? (int)dg_int4_number(x[2 * i + 1], per) : 0;
        out[2 + i] = (unsigned char)((low & 15) | (high & 15) << 4);
    }
}

/* Number i of a block. */
DG_NARROWED int dg_int4_at(const unsigned char *block, int i)
{
    int n = block[2 + i / 2] >> i % 2 * 4 & 15;
    return n < 8 ? n : n - 16;
}

DG_NARROWED float dg_int4_step(const unsigned char *block)
{
    return dg_narrowed_float((uint32_t)(block[0] | block[1] << 8) << 16);
}

#endif
