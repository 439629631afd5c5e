/* The vision tower's own arithmetic on the device, beside its products and norms (cuda_math.h). As
 * there everything is enqueued, allocates nothing and never waits, and a picture's results do not
 * depend on its company.
 *
 * Queries, keys and values are halves on tensor cores: an RMSNorm bounds them to the square root of
 * the head's size times its weight, so that the range is not at stake and three bits more count
 * than bfloat16 has. Where exact results are wanted they are floats. */
#ifndef DG_CUDA_CUDA_VISION_H
#define DG_CUDA_CUDA_VISION_H

#include "cuda/cuda_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The pictures of a pass: arguments of kernels, by value. */
enum { DG_CUDA_PICTURES = 64 };

typedef struct dg_cuda_picture {
    int first_patch, rows, cols;
    int first_slot; /* of its heads: a multiple of DG_CUDA_SLOTS */
    int first_cell; /* of the pooled grids */
} dg_cuda_picture;

typedef struct dg_cuda_pictures {
    int n, n_patch, n_slot, n_cell;
    dg_cuda_picture at[DG_CUDA_PICTURES];
} dg_cuda_pictures;

/* Slots that the heads of a picture's patches take: rows of values across begin at multiples of 16
 * bytes. */
enum { DG_CUDA_SLOTS = 8 };
static inline int dg_cuda_slots(int n_patch)
{
    return (n_patch + DG_CUDA_SLOTS - 1) / DG_CUDA_SLOTS * DG_CUDA_SLOTS;
}

/* out[r] = 2 (pixels[r] - 0.5). */
cudaError_t dg_cuda_vision_pixels(cudaStream_t stream, dg_cuda_rows out, const float *pixels,
                                  int n_row, int n);

/* x[r] += table[0][column] + table[1][row] of the patch. The table's rows lie as in files, of type
 * float, half or bfloat16. */
typedef struct dg_cuda_positions_args {
    float *x; /* [n_patch, n] */
    const void *table;
    dg_dtype type;
    int n_position, n;
    dg_cuda_pictures pictures;
} dg_cuda_positions_args;
cudaError_t dg_cuda_vision_positions(cudaStream_t stream, const dg_cuda_positions_args *a);

/* ---- attention ---- */

/* Heads as attention reads them: [n_head, n_slot, ld] each, zeros behind dim. `across`: values are
 * [n_head, dim rounded up to 8, n_slot], zeros behind a picture's last patch, where there are
 * slots. */
typedef struct dg_cuda_vision_qkv {
    bool exact, across; /* exact: floats; else halves */
    int n_head, dim, ld;
    void *q, *k, *v; /* aligned to 16 bytes */
} dg_cuda_vision_qkv;

int dg_cuda_vision_ld(int dim);
bool dg_cuda_vision_across(bool exact, int dim); /* of what this device likes */

/* From the raw products, raw [n_patch, 3 n_head dim]: q, then k, then v of a patch. q =
 * RoPE(RMSNorm(head) * q_norm), k likewise, v = RMSNorm(head). Angles of a coordinate: cos, sin
 * [n, dim / 4]; the first half of a head turns by the column, the second by the row. */
typedef struct dg_cuda_vision_heads_args {
    const float *raw;
    const float *q_norm, *k_norm, *cos, *sin;
    float eps;
    dg_cuda_vision_qkv to;
    dg_cuda_pictures pictures;
} dg_cuda_vision_heads_args;
cudaError_t dg_cuda_vision_heads(cudaStream_t stream, const dg_cuda_vision_heads_args *a);

/* out[r] = softmax(q k^T) v over the patches of the same picture, scale 1. Keys in blocks of 32,
 * or where values lie across of 64, from the picture's first, in ascending order. */
typedef struct dg_cuda_vision_attention_args {
    dg_cuda_rows out;
    dg_cuda_vision_qkv from;
    dg_cuda_pictures pictures;
} dg_cuda_vision_attention_args;
cudaError_t dg_cuda_vision_attention(cudaStream_t stream, const dg_cuda_vision_attention_args *a);

/* ---- soft tokens ---- */

/* out[cell] = RMSNorm((h - bias) * scale), h = mean of the cell's pool x pool patches * sqrt(n);
 * bias and scale NULL: of h itself. */
typedef struct dg_cuda_pool_args {
    dg_cuda_rows out;
    const float *x, *bias, *scale;
    int pool, n;
    float eps;
    dg_cuda_pictures pictures;
} dg_cuda_pool_args;
cudaError_t dg_cuda_vision_pool(cudaStream_t stream, const dg_cuda_pool_args *a);

/* ---- ranges, of towers whose matrices have some ---- */

/* A value held in [min, max]; NaN stays NaN. */
typedef struct dg_cuda_range {
    float min, max;
} dg_cuda_range;

/* out[r] = in[r], rows of n values of the same form, each held in the range. */
cudaError_t dg_cuda_hold_rows(cudaStream_t stream, dg_cuda_rows out, dg_cuda_rows in, int n_row,
                              int n, dg_cuda_range range);

/* n_row rows of n floats, ld apart, in place. */
cudaError_t dg_cuda_hold(cudaStream_t stream, float *y, size_t ld, int n_row, int n,
                         dg_cuda_range range);

/* h[r][i] = gelu(gate[r][i]) * up[r][i], held in the range, as dg_cuda_gated() stores it; gate and
 * up float [n_row, n]. */
cudaError_t dg_cuda_gelu(cudaStream_t stream, dg_cuda_rows h, const float *gate, const float *up,
                         int n_row, int n, dg_cuda_range range);

#ifdef __cplusplus
}
#endif

#endif
