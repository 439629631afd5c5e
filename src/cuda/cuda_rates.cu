#include "cuda/cuda_rates.h"
#include "cuda/cuda_wgmma.cuh"

/* ---- reading ---- */

static __global__ void read_all(const uint4 *data, size_t n, uint32_t *sink)
{
    size_t all = (size_t)gridDim.x * blockDim.x, me = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (size_t i = me; i < n; i += 4 * all) {
        uint4 v[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + (size_t)k * all < n)
                v[k] = data[i + (size_t)k * all];
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    sink[me] = sum;
}

extern "C" cudaError_t dg_cuda_read_all(cudaStream_t stream, const void *data, size_t bytes,
                                        uint32_t *sink, int n_sm)
{
    return DG_LAUNCH(read_all, n_sm * DG_CUDA_RATE_BLOCKS, DG_CUDA_RATE_THREADS, 0, stream,
                     (const uint4 *)data, bytes / sizeof(uint4), sink);
}

/* ---- multiplying ---- */

enum { ROWS = 128, K_STRIDE = ROWS / 8 * 128, SHARED_BYTES = 2 * K_STRIDE, AT_ONCE = 8 };

/* Where there are no warpgroups: products of warps, operands in registers. */
static __device__ __forceinline__ void multiply_warp(float acc[ROWS / 8][4], const uint32_t a[4])
{
    const uint32_t b[2] = {a[0], a[1]};
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++)
        mma_of<DG_CUDA_BF16>(acc[j], a, b);
}

static __global__ void __launch_bounds__(DG_CUDA_RATE_THREADS, 2) multiply(float *sink, int n)
{
    DG_SHARED(rows);
    float acc[ROWS / 8][4] = {};
    uint32_t a[4] = {};
    for (int i = (int)threadIdx.x * 4; i < SHARED_BYTES; i += (int)blockDim.x * 4)
        *(uint32_t *)(void *)(rows + i) = 0;
    warpgroup_publish();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
        warpgroup_settle(a[i]);
    for (int i = 0; i < n; i += AT_ONCE) {
        warpgroup_begin();
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if constexpr (DG_WITH_GROUPS)
                warpgroup_mma<DG_CUDA_BF16, ROWS>(acc, a, rows, K_STRIDE);
            else
                multiply_warp(acc, a);
        warpgroup_commit();
        warpgroup_wait<0>();
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++)
        sum += acc[j][0] + acc[j][1] + acc[j][2] + acc[j][3];
    sink[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" cudaError_t dg_cuda_multiply(cudaStream_t stream, float *sink, int n, int n_sm)
{
    return DG_LAUNCH(multiply, 2 * n_sm, DG_CUDA_RATE_THREADS, SHARED_BYTES, stream, sink, n);
}
