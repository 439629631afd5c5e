/* What the dense products and the experts share: results on their way out, and sums of float
 * weights. */
#ifndef DG_CUDA_CUDA_TILES_CUH
#define DG_CUDA_CUDA_TILES_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_math.h"

template <dg_cuda_form FORM>
static __device__ __forceinline__ void mma_of(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    if (FORM == DG_CUDA_BF16)
        dg_mma_bf16(c, a, b);
    else
        dg_mma_f16(c, a, b);
}

/* gelu(gate) * up, gelu in its tanh form; tanh u = 1 - 2 / (e^2u + 1). */
static __device__ __forceinline__ float gated(float gate, float up)
{
    float u = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
    float e = dg_exp2_fast(2.8853900818f * fabsf(u));
    float t = copysignf(1.0f - __fdividef(2.0f, e + 1.0f), u);
    return 0.5f * gate * (1.0f + t) * up;
}

/* Lanes hold a fragment's values of channel lane / 4 for two tokens; neighbouring channels are
 * exchanged, so that each lane has two channels of one token, to be stored together: channel (lane
 * / 4) & ~1 of token 2 (lane % 4) + (lane / 4) % 2. */
struct channel_pair {
    float low, high;
};

static __device__ __forceinline__ channel_pair pair_channels(float token0, float token1)
{
    bool odd = threadIdx.x / 4 & 1;
    float other = __shfl_xor_sync(DG_ALL_LANES, odd ? token0 : token1, 4);
    channel_pair pair = {odd ? other : token0, odd ? token1 : other};
    return pair;
}

/* Two channels, the first of them even, as the form stores them. */
static __device__ __forceinline__ void store_pair(void *data, dg_cuda_form form, size_t at,
                                                  channel_pair v)
{
    if (form == DG_CUDA_F32)
        *(float2 *)((float *)data + at) = make_float2(v.low, v.high);
    else
        *(uint32_t *)((uint16_t *)data + at) =
            form == DG_CUDA_BF16 ? dg_pack_bf16(v.low, v.high) : dg_store_f16(v.low, v.high);
}

static __device__ __forceinline__ float gated_factor(dg_cuda_form form)
{
    return form == DG_CUDA_F16 ? 1 / DG_CUDA_GATED : 1;
}

static __device__ __forceinline__ float factor_of(const float *scale, int mat)
{
    return scale ? scale[mat] : 1.0f;
}

/* ---- float weights: 32 rows x 64 outputs by a block of 256 threads ---- */

enum { FLOAT_ROWS = 32, FLOAT_OUTS = 64, FLOAT_THREADS = 256 };

struct float_shared {
    const float *row[FLOAT_ROWS]; /* NULL: no such row */
    float x[FLOAT_ROWS][33], w[FLOAT_OUTS][33];
};

/* sum[i][j] of row float_row(i) and output float_out(j); w has 64 rows of ld values, ld a multiple
 * of 64. The block has written `row`; each sum is one chain of fused products in ascending k. */
static __device__ __forceinline__ int float_row(int i)
{
    return (int)threadIdx.x / 16 * 2 + i;
}

static __device__ __forceinline__ int float_out(int j)
{
    return (int)threadIdx.x % 16 + 16 * j;
}

static __device__ inline void float_sums(float sum[2][4], float_shared *s, const float *w, int ld)
{
    int t = (int)threadIdx.x;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            sum[i][j] = 0;
    for (int k0 = 0; k0 < ld; k0 += 32) {
        __syncthreads();
        for (int i = t; i < FLOAT_ROWS * 32; i += FLOAT_THREADS)
            s->x[i / 32][i % 32] = s->row[i / 32] ? s->row[i / 32][k0 + i % 32] : 0;
        for (int i = t; i < FLOAT_OUTS * 32; i += FLOAT_THREADS)
            s->w[i / 32][i % 32] = w[(size_t)(i / 32) * (size_t)ld + (size_t)(k0 + i % 32)];
        __syncthreads();
        for (int k = 0; k < 32; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(s->x[float_row(i)][k], s->w[float_out(j)][k], sum[i][j]);
    }
}

static __device__ __forceinline__ void store_one(void *data, dg_cuda_form form, size_t at, float v)
{
    if (form == DG_CUDA_F32)
        ((float *)data)[at] = v;
    else
        ((uint16_t *)data)[at] =
            (uint16_t)(form == DG_CUDA_BF16 ? dg_pack_bf16(v, 0) : dg_store_f16(v, 0));
}

/* gated() with the library's tanh. */
static __device__ __forceinline__ float gated_float(float gate, float up)
{
    float u = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
    return 0.5f * gate * (1.0f + tanhf(u)) * up;
}

#endif
