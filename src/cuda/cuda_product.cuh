/* The dense products' kernel for experts with many rows: what cuda_experts.cu asks of
 * cuda_product.cu. */
#ifndef DG_CUDA_CUDA_PRODUCT_CUH
#define DG_CUDA_CUDA_PRODUCT_CUH

#include "cuda/cuda_math.h"

enum { DG_EXPERT_TILE_ROWS = 64 };

/* Up to 64 sorted rows of one expert: places first ... of those that end at `end`. None: end =
 * first = 0. */
struct dg_expert_tile {
    int expert, first, end, unused;
};

typedef struct dg_expert_product {
    const dg_expert_tile *tile; /* [n_tile] on the device */
    int n_tile;
    const int32_t *row; /* of x at a place; NULL: x is sorted */
    dg_cuda_rows x;
    const dg_cuda_matrix *w[2]; /* gate and up: gated into out; or one, times factor */
    float factor;
    dg_cuda_rows out; /* at places */
} dg_expert_product;

/* Only where the device has the products of warpgroups. */
bool dg_cuda_has_groups(void);
cudaError_t dg_cuda_product_experts(cudaStream_t stream, const dg_expert_product *a);

#endif
