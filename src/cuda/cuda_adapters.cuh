/* What the kernels of adapters share: rows as floats, products with A. */
#ifndef DG_CUDA_CUDA_ADAPTERS_CUH
#define DG_CUDA_CUDA_ADAPTERS_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_math.h"

/* A row of the form; value k of it. */
struct adapt_row {
    const unsigned char *data;
    float factor; /* of E4M3 */
};

template <dg_cuda_form FORM>
static __device__ __forceinline__ adapt_row row_at(const dg_cuda_rows &rows, int row)
{
    adapt_row r = {(const unsigned char *)rows.data + (size_t)row * dg_cuda_row_bytes(rows), 1};
    if (FORM == DG_CUDA_E4M3)
        r.factor = *(const float *)(r.data + rows.ld);
    return r;
}

template <dg_cuda_form FORM>
static __device__ __forceinline__ float value_of(const adapt_row &row, int k)
{
    switch (FORM) {
    case DG_CUDA_F32:
        return ((const float *)row.data)[k];
    case DG_CUDA_BF16:
        return dg_bf16_low(((const uint16_t *)row.data)[k]);
    case DG_CUDA_F16:
        return dg_f16_at(((const uint16_t *)row.data)[k]);
    default:
        return dg_f16_at((uint16_t)(dg_e4m3_pair(row.data[k]) & 0xFFFFu)) * row.factor;
    }
}

/* Adapter number i of the segment that a row is in, at a matrix. */
static __device__ __forceinline__ const dg_cuda_uses *uses_of(const dg_cuda_adapted &rows, int row)
{
    return rows.uses + rows.segment_of[rows.first_row + row];
}

static __device__ __forceinline__ dg_low_rank low_of(const dg_low_rank *table,
                                                     const dg_cuda_uses &uses, int i)
{
    dg_low_rank low = {};
    if (table)
        low = table[2 * uses.use[i].adapter + uses.canvas];
    return low;
}

/* Whether one of the segment's adapters changes a matrix. */
static __device__ __forceinline__ bool changes(const dg_low_rank *table, const dg_cuda_uses &uses)
{
    bool any = false;
    for (int i = 0; i < uses.n; i++)
        any = any || low_of(table, uses, i).rank > 0;
    return any;
}

/* By a warp: products of N rows of A from r on, of `rank`, with each of ROWS rows of x, of which
 * there are n; every lane has all of them. A lane adds up every 32nd value, so that the order
 * follows from n_in alone. */
template <dg_cuda_form FORM, int ROWS, int N>
static __device__ __forceinline__ void lower(float sum[ROWS][N], const float *a, int r, int rank,
                                             int n_in, const adapt_row x[ROWS], int n,
                                             const float *x_scale)
{
    const float *line[N];
    for (int i = 0; i < N; i++)
        line[i] = a + (size_t)min(r + i, rank - 1) * (size_t)n_in;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < N; i++)
            sum[row][i] = 0;
    for (int k = (int)threadIdx.x % 32; k < n_in; k += 32) {
        float of[N], scale = x_scale ? x_scale[k] : 1;
#pragma unroll
        for (int i = 0; i < N; i++)
            of[i] = line[i][k] * scale;
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            float value = row < n ? value_of<FORM>(x[row], k) : 0;
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[row][i] = fmaf(of[i], value, sum[row][i]);
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; row++)
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[row][i] = dg_warp_sum(sum[row][i]);
}

/* Does `call`, a statement that uses FORM, for the form of some rows. */
#define DG_FOR_FORM(of, call)                                                                      \
    switch (of) {                                                                                  \
    case DG_CUDA_F32: {                                                                            \
        constexpr dg_cuda_form FORM = DG_CUDA_F32;                                                 \
        call;                                                                                      \
    }                                                                                              \
    case DG_CUDA_BF16: {                                                                           \
        constexpr dg_cuda_form FORM = DG_CUDA_BF16;                                                \
        call;                                                                                      \
    }                                                                                              \
    case DG_CUDA_F16: {                                                                            \
        constexpr dg_cuda_form FORM = DG_CUDA_F16;                                                 \
        call;                                                                                      \
    }                                                                                              \
    default: {                                                                                     \
        constexpr dg_cuda_form FORM = DG_CUDA_E4M3;                                                \
        call;                                                                                      \
    }                                                                                              \
    }

#endif
