/* Between the files of products: the contract's products over slabs (cuda_product_slabs.cu), and
 * those of experts with many rows (cuda_product_groups.cu). */
#ifndef DG_CUDA_CUDA_PRODUCT_CUH
#define DG_CUDA_CUDA_PRODUCT_CUH

#include "cuda/cuda_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- over slabs: parts that are all of one form; or gate and up ---- */

/* Tiles of a block: rows of x, then rows of weights. */
typedef enum dg_slab_tile {
    DG_SLAB_256X128,
    DG_SLAB_192X128,
    DG_SLAB_128X192, /* not gated */
    DG_SLAB_128X128,
    DG_SLAB_64X128, /* 128 values of k a stage */
    DG_SLAB_64X96,  /* likewise; not gated */
    DG_SLAB_TILES,
    DG_SLAB_BEST = DG_SLAB_TILES /* what choose_tile says */
} dg_slab_tile;
cudaError_t dg_cuda_product_slabs(cudaStream_t stream, const dg_cuda_product_args *a,
                                  dg_slab_tile tile);
cudaError_t dg_cuda_gated_slabs(cudaStream_t stream, const dg_cuda_gated_args *a,
                                dg_slab_tile tile);

/* ---- experts ---- */

enum { DG_EXPERT_TILE_ROWS = 64 };

/* Up to 64 sorted rows of one expert: places first ... of those that end at `end`. None: end =
 * first = 0. */
typedef struct dg_expert_tile {
    int expert, first, end, unused;
} dg_expert_tile;

typedef struct dg_expert_product {
    const dg_expert_tile *tile; /* [n_tile] on the device */
    int n_tile;
    const int32_t *row; /* of x at a place; NULL: x is sorted */
    dg_cuda_rows x;
    const dg_cuda_matrix *w[2]; /* gate and up: gated into out; or one, times factor */
    float factor;
    dg_cuda_rows out; /* at places */
} dg_expert_product;

/* Only where dg_cuda_has_groups(). */
cudaError_t dg_cuda_product_experts(cudaStream_t stream, const dg_expert_product *a);

#ifdef __cplusplus
}
#endif

#endif
