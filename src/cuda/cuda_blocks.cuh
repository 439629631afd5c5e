/* One value of a stored row, for every type that can be a weight: what tensor/blocks.c defines, bit
 * for bit. For places where rows are few (the embedding) or speed is not at stake; bytes may lie at
 * any address. */
#ifndef DG_CUDA_CUDA_BLOCKS_CUH
#define DG_CUDA_CUDA_BLOCKS_CUH

#include "cuda/cuda_device.cuh"
#include "tensor/dtype.h"

static __device__ __forceinline__ float dg_half_at(const uint8_t *p)
{
    return dg_f16_at((uint16_t)(p[0] | p[1] << 8));
}

/* Number i of 32 four-bit ones: the low halves of 16 bytes, then the high ones. */
static __device__ __forceinline__ int dg_nibble_at(const uint8_t *q, int i)
{
    return q[i % 16] >> 4 * (i / 16) & 15;
}

static __device__ __forceinline__ int dg_bit_at(const uint8_t *h, int i)
{
    return h[i / 8] >> i % 8 & 1;
}

static __device__ __forceinline__ int dg_signed_byte(uint8_t b)
{
    return b - (b >= 128 ? 256 : 0);
}

/* Products are rounded before something is added to them. */
static __device__ __forceinline__ float dg_shifted(int n, float step, float least)
{
    return __fadd_rn(__fmul_rn((float)n, step), least);
}

static __constant__ const float dg_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

/* Twice the value of a four-bit float: one sign bit, two of exponent, one of mantissa. */
static __device__ __forceinline__ float dg_e2m1(int n)
{
    int e = n >> 1 & 3, m = n & 1;
    float size = (float)(e ? (2 + m) << (e - 1) : m);
    return n & 8 ? -size : size;
}

/* 2^e for -149 <= e <= 127. */
static __device__ __forceinline__ float dg_power_of_two(int e)
{
    return e < -126 ? __uint_as_float(1u << (e + 149)) : __uint_as_float((uint32_t)(e + 127) << 23);
}

/* Half of an unsigned float of eight bits: exponent in bits 3 to 6 with bias 7, mantissa below. */
static __device__ __forceinline__ float dg_half_e4m3(uint8_t s)
{
    int exponent = s >> 3 & 15, mantissa = s & 7;
    if (s == 0 || s == 127)
        return 0;
    if (exponent == 0)
        return (float)mantissa * dg_power_of_two(-10);
    return (float)(8 + mantissa) * dg_power_of_two(exponent - 11);
}

static __device__ __forceinline__ int dg_two_bits(const uint8_t *q, int i)
{
    int within = i % 128;
    return q[32 * (i / 128) + within % 32] >> 2 * (within / 32) & 3;
}

static __device__ __forceinline__ float dg_q2_k_at(const uint8_t *b, int i)
{
    uint8_t scale = b[i / 16];
    float step = __fmul_rn(dg_half_at(b + 80), (float)(scale & 15));
    float least = __fmul_rn(dg_half_at(b + 82), (float)(scale >> 4));
    return dg_shifted(dg_two_bits(b + 16, i), step, -least);
}

static __device__ __forceinline__ float dg_q3_k_at(const uint8_t *b, int i)
{
    const uint8_t *mask = b, *scale = b + 96;
    int g = i / 16, low = g < 8 ? scale[g] & 15 : scale[g - 8] >> 4,
        high = scale[8 + g % 4] >> 2 * (g / 4) & 3;
    float step = __fmul_rn(dg_half_at(b + 108), (float)((low | high << 4) - 32));
    int set = mask[i % 32] >> i / 32 & 1;
    return __fmul_rn(step, (float)(dg_two_bits(b + 32, i) - (set ? 0 : 4)));
}

/* Q4_K, and with a fifth bit for each value Q5_K: `high` is NULL or 32 bytes. */
static __device__ __forceinline__ float dg_scaled_group_at(const uint8_t *b, const uint8_t *high,
                                                           const uint8_t *q, int i)
{
    const uint8_t *s = b + 4;
    int g = i / 32, l = i % 32;
    int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    int n = q[32 * (g / 2) + l] >> 4 * (g % 2) & 15;
    if (high)
        n |= (high[l] >> g & 1) << 4;
    float step = __fmul_rn(dg_half_at(b), (float)scale),
          least = __fmul_rn(dg_half_at(b + 2), (float)min);
    return dg_shifted(n, step, -least);
}

static __device__ __forceinline__ float dg_q6_k_at(const uint8_t *b, int i)
{
    int g = i / 16, half = g / 8, quarter = g % 8 / 2, l = i % 32;
    int n = b[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15;
    n |= (b[128 + 32 * half + l] >> 2 * quarter & 3) << 4;
    float step = __fmul_rn(dg_half_at(b + 208), (float)dg_signed_byte(b[192 + g]));
    return __fmul_rn(step, (float)(n - 32));
}

static __device__ __forceinline__ float dg_iq4_xs_at(const uint8_t *b, int i)
{
    int g = i / 32, high = b[2] | b[3] << 8;
    int scale = (b[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
    float step = __fmul_rn(dg_half_at(b), (float)(scale - 32));
    return __fmul_rn(step, dg_levels[dg_nibble_at(b + 8 + 16 * g, i % 32)]);
}

static __device__ __forceinline__ float dg_nvfp4_at(const uint8_t *b, int i)
{
    int g = i / 16, l = i % 16;
    int n = b[4 + 8 * g + l % 8] >> 4 * (l / 8) & 15;
    return __fmul_rn(dg_half_e4m3(b[g]), dg_e2m1(n));
}

/* Value i of a row. */
template <int TYPE> static __device__ __forceinline__ float dg_value_at(const uint8_t *row, int i)
{
    const uint8_t *b = row;
    switch (TYPE) {
    case DG_F32:
        b += (size_t)4 * i;
        return __uint_as_float((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                               (uint32_t)b[3] << 24);
    case DG_F16:
        return dg_half_at(b + (size_t)2 * i);
    case DG_BF16:
        b += (size_t)2 * i;
        return dg_bf16_at((uint16_t)(b[0] | b[1] << 8));
    case DG_Q8_0:
        b += (size_t)34 * (i / 32);
        return __fmul_rn((float)dg_signed_byte(b[2 + i % 32]), dg_half_at(b));
    case DG_Q4_0:
        b += (size_t)18 * (i / 32);
        return __fmul_rn((float)(dg_nibble_at(b + 2, i % 32) - 8), dg_half_at(b));
    case DG_Q4_1:
        b += (size_t)20 * (i / 32);
        return dg_shifted(dg_nibble_at(b + 4, i % 32), dg_half_at(b), dg_half_at(b + 2));
    case DG_Q5_0:
        b += (size_t)22 * (i / 32);
        i %= 32;
        return __fmul_rn((float)((dg_nibble_at(b + 6, i) | dg_bit_at(b + 2, i) << 4) - 16),
                         dg_half_at(b));
    case DG_Q5_1:
        b += (size_t)24 * (i / 32);
        i %= 32;
        return dg_shifted(dg_nibble_at(b + 8, i) | dg_bit_at(b + 4, i) << 4, dg_half_at(b),
                          dg_half_at(b + 2));
    case DG_Q2_K:
        return dg_q2_k_at(b + (size_t)84 * (i / 256), i % 256);
    case DG_Q3_K:
        return dg_q3_k_at(b + (size_t)110 * (i / 256), i % 256);
    case DG_Q4_K:
        b += (size_t)144 * (i / 256);
        return dg_scaled_group_at(b, NULL, b + 16, i % 256);
    case DG_Q5_K:
        b += (size_t)176 * (i / 256);
        return dg_scaled_group_at(b, b + 16, b + 48, i % 256);
    case DG_Q6_K:
        return dg_q6_k_at(b + (size_t)210 * (i / 256), i % 256);
    case DG_IQ4_NL:
        b += (size_t)18 * (i / 32);
        return __fmul_rn(dg_half_at(b), dg_levels[dg_nibble_at(b + 2, i % 32)]);
    case DG_IQ4_XS:
        return dg_iq4_xs_at(b + (size_t)136 * (i / 256), i % 256);
    case DG_MXFP4:
        b += (size_t)17 * (i / 32);
        return __fmul_rn(dg_power_of_two(b[0] - 128), dg_e2m1(dg_nibble_at(b + 1, i % 32)));
    case DG_NVFP4:
        return dg_nvfp4_at(b + (size_t)36 * (i / 64), i % 64);
    }
    return 0;
}

#endif
