/* The factor of an RMSNorm, and what a kernel has at hand before it needs it. */
#ifndef DG_CUDA_CUDA_NORM_CUH
#define DG_CUDA_CUDA_NORM_CUH

#include "cuda/cuda_device.cuh"

/* 1 / n, to two units in the last place. */
static __device__ __forceinline__ float dg_norm_share(int n)
{
    return __fdividef(1.0f, (float)n);
}

/* 1 / sqrt(sum * share + eps), to four units in the last place. A root and two divisions to the
 * nearest would be seventy instructions, and a layer waits for eight norms, one behind the other,
 * in kernels that take as long as their instructions. */
static __device__ __forceinline__ float dg_norm_factor(float sum, float share, float eps)
{
    return rsqrtf(__fmaf_rn(sum, share, eps));
}

/* A value that is found here, and not where it is used: that would be behind dg_grid_wait. */
static __device__ __forceinline__ void dg_find_now(const unsigned char *&address)
{
#ifdef __CUDACC__
    asm volatile("" : "+l"(address));
#endif
    (void)address;
}

static __device__ __forceinline__ void dg_find_now(float &value)
{
#ifdef __CUDACC__
    asm volatile("" : "+f"(value));
#endif
    (void)value;
}

#endif
