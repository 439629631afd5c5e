/* Shared by the vision tower's kernels: where a patch is. */
#ifndef DG_CUDA_CUDA_VISION_CUH
#define DG_CUDA_CUDA_VISION_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_vision.h"

struct patch_place {
    int picture, row, col, slot;
};

static __device__ __forceinline__ patch_place find_patch(const dg_cuda_pictures &all, int patch)
{
    patch_place at = {0, 0, 0, 0};
    while (at.picture + 1 < all.n && patch >= all.at[at.picture + 1].first_patch)
        at.picture++;
    int within = patch - all.at[at.picture].first_patch, cols = all.at[at.picture].cols;
    at.row = within / cols;
    at.col = within % cols;
    at.slot = all.at[at.picture].first_slot + within;
    return at;
}

static __host__ __device__ __forceinline__ int patch_count(const dg_cuda_picture &p)
{
    return p.rows * p.cols;
}

/* ---- what a block of attention works on ---- */

struct patch_tile {
    int first_patch, first_slot, n_patch; /* of the picture */
    int line;                             /* the tile's first, counted from first_patch */
};

/* Tile `at` of those that all pictures are cut into. */
static __device__ __forceinline__ patch_tile find_tile(const dg_cuda_pictures &all, int lines,
                                                       int at)
{
    patch_tile t = {0, 0, 0, 0};
    for (int p = 0; p < all.n; p++) {
        int n = patch_count(all.at[p]), n_tile = (n + lines - 1) / lines;
        if (at < n_tile) {
            t.first_patch = all.at[p].first_patch;
            t.first_slot = all.at[p].first_slot;
            t.n_patch = n;
            t.line = at * lines;
            break;
        }
        at -= n_tile;
    }
    return t;
}

static inline int tile_count(const dg_cuda_pictures *all, int lines)
{
    int n = 0;
    for (int p = 0; p < all->n; p++)
        n += (patch_count(all->at[p]) + lines - 1) / lines;
    return n;
}

/* Whether so many blocks leave few of the multiprocessors without one. */
static inline bool fills_device(int n_block)
{
    int device = 0, n_sm = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    return n_block * 4 > n_sm * 3;
}

/* The kernels by family: sm_90a with values across, and others. */
typedef enum dg_picture_tile {
    DG_PICTURE_SMALL,
    DG_PICTURE_LARGE,
    DG_PICTURE_BEST
} dg_picture_tile;
extern "C" cudaError_t dg_cuda_vision_groups(cudaStream_t stream,
                                             const dg_cuda_vision_attention_args *a,
                                             dg_picture_tile tile);
extern "C" cudaError_t dg_cuda_vision_mma(cudaStream_t stream,
                                          const dg_cuda_vision_attention_args *a,
                                          dg_picture_tile tile);

#endif
