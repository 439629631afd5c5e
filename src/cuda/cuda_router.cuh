/* What the router's two forms of products have in common: where sums lie, and how a warp multiplies
 * ROUTE_ROWS rows by experts.
 *
 * An element's sum has one order, which follows from the row's length alone: parts of ROUTE_PART
 * values of k; of a part's chunks of ROUTE_CHUNK values each of four shares has every fourth, in
 * turn; a part is the sum of its shares in their order, and the whole is that of the parts.
 *
 * Products are made on tensor cores, of floats in two parts of eleven bits: the first parts', and
 * the first of each with the second of the other. What is left out is below 2^-22 of a product. Of
 * weights that are bfloat16 the second part is nothing, and so is its product: to leave that out
 * changes no bit. */
#ifndef DG_CUDA_CUDA_ROUTER_CUH
#define DG_CUDA_CUDA_ROUTER_CUH

#include "cuda/cuda_math.h"
#include "cuda/cuda_norm.cuh"

enum { ROUTE_ROWS = 32, ROUTE_PART = 352, ROUTE_CHUNK = 16, ROUTE_SHARES = 4 };
static_assert(ROUTE_PART % ROUTE_CHUNK == 0, "chunks");

static __host__ __device__ __forceinline__ int route_parts(int n)
{
    return (n + ROUTE_PART - 1) / ROUTE_PART;
}

/* Sums of one row and part: n_expert products, then the squares of x. */
static __host__ __device__ __forceinline__ size_t route_ld(int n_expert)
{
    return (size_t)(n_expert + 4) / 4 * 4;
}

/* Where part `part` of a row's sums begins. */
static __device__ __forceinline__ float *route_line(const dg_cuda_route_args &a, int row, int part)
{
    size_t line = (size_t)row * (size_t)route_parts(a.n) + (size_t)part;
    return (float *)a.scratch + line * route_ld(a.n_expert);
}

/* Two neighbours' sums, where those are. */
static __device__ __forceinline__ void store_two(const dg_cuda_route_args &a, int row, int expert,
                                                 int part, float2 sum)
{
    if (row >= a.n_row || expert >= a.n_expert)
        return;
    float *to = route_line(a, row, part) + expert;
    if (expert + 1 < a.n_expert)
        *(float2 *)to = sum;
    else
        *to = sum.x;
}

/* ---- products of a warp ---- */

/* A lane has, of rows lane / 4 + 8 i and of experts alike, the four values of a chunk from
 * 4 (lane % 4) on. They are the fragments of two products of eight values of k, in an order of k
 * that both sides share: of each four the first two, then the others. Weights are float4, or uint2
 * of bfloat16. */
typedef uint32_t route_rows[ROUTE_ROWS / 16][4];

/* The first bits of a float, and the rest. */
static __device__ __forceinline__ void split(uint32_t *high, uint32_t *low, float x)
{
    *high = __float_as_uint(x) & 0xFFFFE000u;
    *low = __float_as_uint(x - __uint_as_float(*high));
}

/* Half of a chunk's rows, times their scale, for one product. */
static __device__ __forceinline__ void split_rows(route_rows high, route_rows low,
                                                  const float4 x[ROUTE_ROWS / 8], int half)
{
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++) {
        split(&high[i / 2][i % 2], &low[i / 2][i % 2], half ? x[i].z : x[i].x);
        split(&high[i / 2][2 + i % 2], &low[i / 2][2 + i % 2], half ? x[i].w : x[i].y);
    }
}

static __device__ __forceinline__ void split_weights(uint32_t high[2], uint32_t low[2],
                                                     const float4 &w, int half)
{
    split(&high[0], &low[0], half ? w.z : w.x);
    split(&high[1], &low[1], half ? w.w : w.y);
}

static __device__ __forceinline__ void split_weights(uint32_t high[2], uint32_t low[2],
                                                     const uint2 &w, int half)
{
    uint32_t pair = half ? w.y : w.x;
    high[0] = pair << 16;
    high[1] = pair & 0xFFFF0000u;
    low[0] = low[1] = 0;
}

/* Tiles n and n + 1 of experts: four sums take turns, as each waits for its last product. */
template <int TILES, class W>
static __device__ __forceinline__ void multiply_two(float (&acc)[ROUTE_ROWS / 16][TILES][4], int n,
                                                    const route_rows high, const route_rows low,
                                                    const W w[2], int half)
{
    constexpr bool SHORT = sizeof(W) == sizeof(uint2);
    uint32_t w_high[2][2], w_low[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        split_weights(w_high[i], w_low[i], w[i], half);
#pragma unroll
    for (int turn = 0; turn < 3; turn++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int m = 0; m < ROUTE_ROWS / 16; m++)
                if (turn != 1 || !SHORT)
                    dg_mma_tf32(acc[m][n + i], turn == 0 ? low[m] : high[m],
                                turn == 1 ? w_low[i] : w_high[i]);
}

/* Adds the squares of rows and gives them their scale. Each operation is one that the compiler may
 * not join with another: every form has the same bits. */
static __device__ __forceinline__ void scale_rows(float4 x[ROUTE_ROWS / 8],
                                                  float squares[ROUTE_ROWS / 8],
                                                  const float4 &scale)
{
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++) {
        float4 &v = x[i];
        squares[i] += fmaf(v.x, v.x, __fmul_rn(v.y, v.y)) + fmaf(v.z, v.z, __fmul_rn(v.w, v.w));
        v = make_float4(__fmul_rn(v.x, scale.x), __fmul_rn(v.y, scale.y), __fmul_rn(v.z, scale.z),
                        __fmul_rn(v.w, scale.w));
    }
}

/* A row's squares, of what its four lanes have. */
static __device__ __forceinline__ float lane_squares(float squares)
{
    squares += __shfl_xor_sync(DG_ALL_LANES, squares, 2);
    return squares + __shfl_xor_sync(DG_ALL_LANES, squares, 1);
}

/* ---- products of many rows (cuda_router_many.cu) ---- */

cudaError_t dg_route_many(cudaStream_t stream, const dg_cuda_route_args *a, bool early);

#endif
