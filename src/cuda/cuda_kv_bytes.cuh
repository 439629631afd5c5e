/* Keys and values in bytes (tensor/kv_numbers.h). In a head's part of a page its numbers lie slot
 * by slot, then the factors of all slots. Products take them as bfloat16: of fp8 exactly, of q8_0
 * each rounded once. */
#ifndef DG_CUDA_CUDA_KV_BYTES_CUH
#define DG_CUDA_CUDA_KV_BYTES_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_math.h"

/* The factor of value i of a slot. */
static __device__ __forceinline__ uint16_t *kv_factor_at(unsigned char *head, dg_dtype type,
                                                         int dim, int slot, int i)
{
    uint16_t *factors = (uint16_t *)(head + (size_t)DG_CUDA_PAGE * dim);
    return factors + slot * dg_kv_factors(type, dim) + (type == DG_Q8_0 ? i / DG_KV_BLOCK : 0);
}

/* Factors are bfloat16 numbers in either type. */
static __device__ __forceinline__ float kv_factor(dg_dtype type, uint16_t bits)
{
    return type == DG_Q8_0 ? dg_f16_at(bits) : dg_bf16_at(bits);
}

/* Pairs of bfloat16 numbers, a b + c, each rounded once. */
static __device__ __forceinline__ uint32_t kv_pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d = 0;
#ifdef __CUDACC__
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
#else
    for (int i = 0; i < 32; i += 16) {
        const float sum = fmaf(dg_bf16_at((uint16_t)(a >> i)), dg_bf16_at((uint16_t)(b >> i)),
                               dg_bf16_at((uint16_t)(c >> i)));
        d |= (dg_pack_bf16(sum, 0) & 0xFFFFu) << i;
    }
#endif
    return d;
}

/* Two numbers of q8_0 as bfloat16: 128 and the low seven bits, less 128 or 256. */
static __device__ __forceinline__ uint32_t kv_whole_pair(uint32_t bytes, uint32_t which)
{
    const uint32_t pair = __byte_perm(bytes, 0x43434343u, which ? 0x4342u : 0x4140u);
    return kv_pair_fma(pair & 0xFF80FF80u, 0xBF80BF80u, pair & 0xFF7FFF7Fu);
}

/* Two of E4M3: the bits in their places, and the other bias. */
static __device__ __forceinline__ uint32_t kv_e4m3_pair(uint32_t bytes, uint32_t which)
{
    const uint32_t pair = __byte_perm(bytes, 0, which ? 0x3424u : 0x1404u);
    return kv_pair_fma((pair >> 4 & 0x07F007F0u) | (pair & 0x80008000u), 0x7B807B80u, 0x80008000u);
}

/* Eight values with one factor as bfloat16. */
static __device__ __forceinline__ uint4 kv_widen_eight(dg_dtype type, uint2 bytes, uint16_t bits)
{
    const float f = kv_factor(type, bits);
    const uint32_t factor = dg_pack_bf16(f, f);
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t word = i / 2 ? bytes.y : bytes.x;
        out[i] = type == DG_Q8_0 ? kv_whole_pair(word, i % 2) : kv_e4m3_pair(word, i % 2);
        out[i] = kv_pair_fma(out[i], factor, 0x80008000u);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* ---- and back ---- */

/* The bits of a value's size. Those of values that are not finite are larger than others. */
static __device__ __forceinline__ uint32_t kv_size_of(float x)
{
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

/* The largest of some lanes' sizes: of those that share all but the low bits of their number. */
static __device__ __forceinline__ uint32_t kv_largest(uint32_t size, int n_lane)
{
    for (int with = 1; with < n_lane; with *= 2)
        size = max(size, __shfl_xor_sync(DG_ALL_LANES, size, with));
    return size;
}

/* What values are multiplied by to be numbers, from the largest size of those that share a factor;
 * the factor's bits. What is not finite makes it NaN, and all numbers 0. */
static __device__ __forceinline__ float kv_narrow_by(dg_dtype type, uint32_t largest,
                                                     uint16_t *bits)
{
    const bool finite = largest < 0x7F800000u;
    if (type == DG_FP8) {
        const float f = dg_fp8_factor(largest);
        *bits = (uint16_t)(__float_as_uint(f) >> 16);
        return finite ? 1 / f : 0;
    }
    const float least = dg_kv_least_step(__uint_as_float(largest));
    *bits = finite ? dg_kv_step(dg_pack_f16(least, 0) & 0xFFFFu) : 0x7C00u;
    const float step = dg_f16_at(*bits);
    if (*bits >= 0x7C00u)
        *bits = 0x7E00u;
    return *bits < 0x7C00u && step > 0 ? 1 / step : 0;
}

static __device__ __forceinline__ uint32_t kv_narrow(dg_dtype type, float x, float by)
{
    if (by == 0)
        return 0;
    return type == DG_FP8 ? dg_float_to_e4m3(x * by) : (uint32_t)(int)rintf(x * by) & 255u;
}

#endif
