/* Shared by the vision tower's kernels: where a patch is. */
#ifndef DG_CUDA_CUDA_VISION_CUH
#define DG_CUDA_CUDA_VISION_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_vision.h"

struct patch_place {
    int picture, row, col;
};

static __device__ __forceinline__ patch_place find_patch(const dg_cuda_pictures &all, int patch)
{
    patch_place at = {0, 0, 0};
    while (at.picture + 1 < all.n && patch >= all.at[at.picture + 1].first_patch)
        at.picture++;
    int within = patch - all.at[at.picture].first_patch, cols = all.at[at.picture].cols;
    at.row = within / cols;
    at.col = within % cols;
    return at;
}

static __host__ __device__ __forceinline__ int patch_count(const dg_cuda_picture &p)
{
    return p.rows * p.cols;
}

#endif
