/* What the kernels that treat a row by a block share. Every sum runs in the order that follows from
 * the row's length alone. */
#ifndef DG_CUDA_CUDA_ROWS_CUH
#define DG_CUDA_CUDA_ROWS_CUH

#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_norm.cuh"

enum { N_THREAD = 256, N_WARP = N_THREAD / 32 };

/* Shared memory of a row of floats: what every card has without asking. */
enum { MAX_SHARED = 48 << 10 };

static inline bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* ---- rows of floats, V values at a time: 4 where the length allows it ---- */

template <int V> struct values {
    float v[V];
};

template <int V> static __device__ __forceinline__ values<V> load(const float *x)
{
    values<V> out;
    if constexpr (V == 4) {
        float4 f = *(const float4 *)x;
        out.v[0] = f.x, out.v[1] = f.y, out.v[2] = f.z, out.v[3] = f.w;
    } else
        out.v[0] = x[0];
    return out;
}

template <int V> static __device__ __forceinline__ void store(float *x, values<V> a)
{
    if constexpr (V == 4)
        *(float4 *)x = make_float4(a.v[0], a.v[1], a.v[2], a.v[3]);
    else
        x[0] = a.v[0];
}

/* The weight of a norm; NULL: ones. */
template <int V> static __device__ __forceinline__ values<V> load_weight(const float *w, int at)
{
    values<V> one;
    for (int i = 0; i < V; i++)
        one.v[i] = 1;
    return w ? load<V>(w + at) : one;
}

template <int V> static __device__ __forceinline__ float sum_of_squares(values<V> a)
{
    float sum = 0;
    for (int i = 0; i < V; i++)
        sum += a.v[i] * a.v[i];
    return sum;
}

/* The sum over the block of each thread's value, for all threads. Used several times in a kernel:
 * `part` holds N_WARP floats of its own each time. */
static __device__ __forceinline__ float block_sum(float x, float *part)
{
    x = dg_warp_sum(x);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = part[0];
    for (int i = 1; i < N_WARP; i++)
        sum += part[i];
    return sum;
}

/* The sum of n over the threads before this one, and over all, in a block of WARPS warps. */
template <int WARPS>
static __device__ __forceinline__ int sum_before(int n, int *all, int shared[WARPS])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, up_to = n, before = 0;
    for (int by = 1; by < 32; by *= 2) {
        int other = __shfl_up_sync(DG_ALL_LANES, up_to, by);
        up_to += lane >= by ? other : 0;
    }
    __syncthreads();
    if (lane == 31)
        shared[warp] = up_to;
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? shared[i] : 0;
        *all += shared[i];
    }
    return before + up_to - n;
}

/* The largest over the block of each thread's bits of a size, which are in the order of the sizes;
 * for all threads. `part`: as for block_sum(). */
static __device__ __forceinline__ uint32_t block_most(int most, float *part)
{
    for (int with = 16; with > 0; with /= 2)
        most = max(most, __shfl_xor_sync(DG_ALL_LANES, most, with));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = __int_as_float(most);
    __syncthreads();
    for (int i = 0; i < N_WARP; i++)
        most = max(most, __float_as_int(part[i]));
    return (uint32_t)most;
}

template <int V> static __device__ __forceinline__ int most_of(values<V> a)
{
    int most = 0;
    for (int i = 0; i < V; i++)
        most = max(most, (int)(__float_as_uint(a.v[i]) & 0x7FFFFFFFu));
    return most;
}

/* Row `row` of E4M3, and where its factor is. */
static __device__ __forceinline__ unsigned char *bytes_of_row(const dg_cuda_rows &rows, int row)
{
    return (unsigned char *)rows.data + (size_t)row * dg_cuda_row_bytes(rows);
}

static __device__ __forceinline__ float *factor_of_row(const dg_cuda_rows &rows, int row)
{
    return (float *)(bytes_of_row(rows, row) + rows.ld);
}

/* Values [at, at + V) of a row of E4M3, times `per`. */
template <int V>
static __device__ __forceinline__ void store_bytes(unsigned char *row, int at, values<V> a,
                                                   float per)
{
    if constexpr (V == 4)
        *(uint32_t *)(row + at) = dg_pack_e4m3(a.v[0] * per, a.v[1] * per) |
                                  dg_pack_e4m3(a.v[2] * per, a.v[3] * per) << 16;
    else
        row[at] = (unsigned char)dg_pack_e4m3(a.v[0] * per, 0);
}

/* Values [at, at + V) of a row in its form, not E4M3. */
template <int V>
static __device__ __forceinline__ void store_form(dg_cuda_form form, void *data, size_t at,
                                                  values<V> a)
{
    if (form == DG_CUDA_F32) {
        store<V>((float *)data + at, a);
        return;
    }
    bool half = form == DG_CUDA_F16;
    if constexpr (V == 4) {
        uint2 bits;
        bits.x = half ? dg_store_f16(a.v[0], a.v[1]) : dg_pack_bf16(a.v[0], a.v[1]);
        bits.y = half ? dg_store_f16(a.v[2], a.v[3]) : dg_pack_bf16(a.v[2], a.v[3]);
        *(uint2 *)((uint16_t *)data + at) = bits;
    } else
        ((uint16_t *)data)[at] =
            (uint16_t)(half ? dg_store_f16(a.v[0], 0) : dg_pack_bf16(a.v[0], 0));
}

#endif
