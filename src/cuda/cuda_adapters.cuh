/* What the kernels of adapters share: rows as floats, products with A and with B. */
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

/* A warp's sums over its lanes, of N values each: lane i gets those of numbers N / 32 * i on. With
 * each exchange a lane hands over half of what it has. */
template <int N> static __device__ __forceinline__ void share_sums(float sum[N])
{
    int n = N;
#pragma unroll
    for (int with = 16; with > 0; with /= 2) {
        bool upper = (int)threadIdx.x & with;
        n /= 2;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            if (i < n) {
                float other = __shfl_xor_sync(DG_ALL_LANES, upper ? sum[i] : sum[i + n], with);
                sum[i] = (upper ? sum[i + n] : sum[i]) + other;
            }
    }
}

/* By a block of WARPS warps: products of LOW_LINES lines of A, from `line` on of `rank`, with
 * LOW_ROWS rows of x. Thread row * LOW_LINES + i has that of line i. Warps take values of k in
 * turn, so that the order of a sum follows from n_in alone. */
enum { LOW_ROWS = 8, LOW_LINES = 8, LOW_SUMS = LOW_ROWS * LOW_LINES };

template <dg_cuda_form FORM, int WARPS>
static __device__ __forceinline__ float lower(float part[WARPS][LOW_SUMS], const float *a, int line,
                                              int rank, int n_in, const adapt_row x[LOW_ROWS],
                                              const float *x_scale)
{
    int t = (int)threadIdx.x;
    float sum[LOW_SUMS] = {}, all = 0;
    const float *lines[LOW_LINES];
#pragma unroll
    for (int i = 0; i < LOW_LINES; i++)
        lines[i] = a + (size_t)min(line + i, rank - 1) * (size_t)n_in;
#pragma unroll 2
    for (int k = t; k < n_in; k += 32 * WARPS) {
        float of[LOW_LINES], value[LOW_ROWS];
#pragma unroll
        for (int i = 0; i < LOW_LINES; i++)
            of[i] = lines[i][k];
#pragma unroll
        for (int row = 0; row < LOW_ROWS; row++)
            value[row] = value_of<FORM>(x[row], k) * (x_scale ? x_scale[k] : 1);
#pragma unroll
        for (int i = 0; i < LOW_SUMS; i++)
            sum[i] = fmaf(of[i % LOW_LINES], value[i / LOW_LINES], sum[i]);
    }
    share_sums<LOW_SUMS>(sum);
    __syncthreads(); /* what `part` held has been read */
    part[t / 32][t % 32 * 2] = sum[0];
    part[t / 32][t % 32 * 2 + 1] = sum[1];
    __syncthreads();
    for (int warp = 0; t < LOW_SUMS && warp < WARPS; warp++)
        all += part[warp][t];
    return all;
}

/* Four values, or as many as there are, times those of another line. */
template <int V>
static __device__ __forceinline__ float add_products(float sum, const float *b, const float *low)
{
    if constexpr (V == 4) {
        float4 f = *(const float4 *)b, g = *(const float4 *)low;
        return fmaf(f.w, g.w, fmaf(f.z, g.z, fmaf(f.y, g.y, fmaf(f.x, g.x, sum))));
    } else
        return fmaf(b[0], low[0], sum);
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
