/* The router, in float. Two launches. The first multiplies: a block has ROUTE_ROWS rows,
 * ROUTE_EXPERTS experts and ROUTE_PART values of k, all of which it asks for at once, so that a
 * canvas of 256 rows of 2816 values over 128 experts is 256 blocks, two on an SM. The norm's factor
 * is the same for a whole row and is applied behind the sums. The second adds the parts in order
 * and picks: a warp a row. Every sum runs in the order that follows from the row's length alone.
 *
 * Products are made on tensor cores, of floats in two parts of eleven bits: the first parts', and
 * the first of each with the second of the other. What is left out is below 2^-22 of a product. */
#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_device.cuh"

enum { ROUTE_ROWS = 32, ROUTE_EXPERTS = 64, ROUTE_PART = 176, ROUTE_THREAD = 128 };
enum { ROUTE_STEP = 88, ROUTE_STEPS = ROUTE_PART / ROUTE_STEP };

/* Lanes that read four neighbouring values of eight lines meet all banks once. */
enum { ROUTE_LD = ROUTE_PART + 4 };
enum { ROUTE_X = 0, ROUTE_W = ROUTE_ROWS * ROUTE_LD };
enum { ROUTE_SCALE = ROUTE_W + ROUTE_EXPERTS * ROUTE_LD, ROUTE_FLOATS = ROUTE_SCALE + ROUTE_LD };
enum { MAX_EXPERT = 1024, MAX_USED = 64 };

static __host__ __device__ __forceinline__ int route_parts(int n)
{
    return (n + ROUTE_PART - 1) / ROUTE_PART;
}

/* Sums of one row and part: n_expert products, then the squares of x. */
static __host__ __device__ __forceinline__ size_t route_ld(int n_expert)
{
    return (size_t)n_expert + 1;
}

extern "C" size_t dg_cuda_route_bytes(int max_row, int n, int n_expert)
{
    return (size_t)max_row * (size_t)route_parts(n) * route_ld(n_expert) * sizeof(float);
}

/* ---- products ---- */

/* ROUTE_STEP values of n_line lines from k on into shared memory; zeros beyond n and beyond the
 * last line. Pieces of 16 bytes by cp.async, or value by value where lines are not aligned. */
static __device__ __forceinline__ void route_fetch(float *to, const float *from, int first,
                                                   int n_line, int n_all, int k, int n)
{
    if (n % 4 == 0) {
        constexpr int PIECES = ROUTE_STEP / 4;
        for (int i = (int)threadIdx.x; i < n_line * PIECES; i += ROUTE_THREAD) {
            int line = i / PIECES, at = i % PIECES * 4;
            bool there = first + line < n_all && k + at < n;
            size_t offset = there ? (size_t)(first + line) * (size_t)n + (size_t)(k + at) : 0;
            dg_cp_async16_if(to + line * ROUTE_LD + at, from + offset, there);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < n_line * ROUTE_STEP; i += ROUTE_THREAD) {
        int line = i / ROUTE_STEP, at = i % ROUTE_STEP;
        bool there = first + line < n_all && k + at < n;
        to[line * ROUTE_LD + at] = there ? from[(size_t)(first + line) * (size_t)n + k + at] : 0;
    }
}

/* The squares of this thread's share of a step of x: a row is four threads'. */
static __device__ __forceinline__ float route_squares(const float *x)
{
    const float *row = x + (int)threadIdx.x / 4 * ROUTE_LD;
    float sum = 0;
    for (int i = (int)threadIdx.x % 4; i < ROUTE_STEP; i += 4)
        sum += row[i] * row[i];
    return sum;
}

/* The first bits of a float, and the rest. */
static __device__ __forceinline__ void split(uint32_t *high, uint32_t *low, float x)
{
    *high = __float_as_uint(x) & 0xFFFFE000u;
    *low = __float_as_uint(x - __uint_as_float(*high));
}

/* One step of the products: a warp's 32 rows x 16 experts in 2 x 2 tiles; x, w and scale point to
 * the first of this lane's. */
static __device__ __forceinline__ void route_step(float acc[2][2][4], const float *x,
                                                  const float *w, const float *scale)
{
#pragma unroll
    for (int k = 0; k < ROUTE_STEP; k += 8) {
        uint32_t high[2][4], low[2][4], w_high[2][2], w_low[2][2];
        float factor[2] = {scale[k], scale[k + 4]};
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                split(&high[m][i], &low[m][i],
                      x[(16 * m + 8 * (i % 2)) * ROUTE_LD + k + 4 * (i / 2)] * factor[i / 2]);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                split(&w_high[n][i], &w_low[n][i], w[8 * n * ROUTE_LD + k + 4 * i]);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                dg_mma_tf32(acc[m][n], low[m], w_high[n]);
                dg_mma_tf32(acc[m][n], high[m], w_low[n]);
                dg_mma_tf32(acc[m][n], high[m], w_high[n]);
            }
    }
}

/* All of a block's values are on their way; those of a step are there. */
template <int STEP> static __device__ __forceinline__ void route_await(void)
{
    dg_cp_async_wait<ROUTE_STEPS - 1 - STEP>();
    __syncthreads();
}

static __global__ void __launch_bounds__(ROUTE_THREAD) route_products(dg_cuda_route_args a)
{
    DG_SHARED(shared);
    float *kept = (float *)shared, acc[2][2][4] = {}, squares = 0;
    dg_grid_wait();
    dg_grid_launch_next();
    int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
    int first_row = (int)blockIdx.x * ROUTE_ROWS, first_expert = (int)blockIdx.y * ROUTE_EXPERTS;
    int begin = (int)blockIdx.z * ROUTE_PART;
    for (int k = 0; k < ROUTE_PART; k += ROUTE_STEP) {
        route_fetch(kept + ROUTE_X + k, a.x, first_row, ROUTE_ROWS, a.n_row, begin + k, a.n);
        route_fetch(kept + ROUTE_W + k, a.w, first_expert, ROUTE_EXPERTS, a.n_expert, begin + k,
                    a.n);
        route_fetch(kept + ROUTE_SCALE + k, a.scale, 0, 1, 1, begin + k, a.n);
        dg_cp_async_commit();
    }
    const float *x = kept + ROUTE_X + lane / 4 * ROUTE_LD + lane % 4,
                *w = kept + ROUTE_W + (16 * warp + lane / 4) * ROUTE_LD + lane % 4,
                *scale = kept + ROUTE_SCALE + lane % 4;
#define STEP(i)                                                                                    \
    route_await<i>();                                                                              \
    squares += route_squares(kept + ROUTE_X + (i)*ROUTE_STEP);                                     \
    route_step(acc, x + (i)*ROUTE_STEP, w + (i)*ROUTE_STEP, scale + (i)*ROUTE_STEP)
    STEP(0);
    STEP(1);
#undef STEP
    static_assert(ROUTE_STEPS == 2 && ROUTE_STEP % 8 == 0, "steps");

    for (int with = 2; with > 0; with /= 2)
        squares += __shfl_xor_sync(DG_ALL_LANES, squares, with);
    float *sums = (float *)a.scratch + blockIdx.z * route_ld(a.n_expert);
    size_t row_ld = (size_t)route_parts(a.n) * route_ld(a.n_expert);
    if (blockIdx.y == 0 && t % 4 == 0 && first_row + t / 4 < a.n_row)
        sums[(size_t)(first_row + t / 4) * row_ld + a.n_expert] = squares;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = first_row + 16 * m + lane / 4 + 8 * (i / 2),
                    e = first_expert + 16 * warp + 8 * n + 2 * (lane % 4) + i % 2;
                if (r < a.n_row && e < a.n_expert)
                    sums[(size_t)r * row_ld + e] = acc[m][n][i];
            }
}

/* ---- the choice ---- */

/* The largest of a warp's values and its index, lowest index on ties; for all lanes. */
static __device__ __forceinline__ void warp_argmax(float *value, int *index)
{
    for (int with = 16; with > 0; with /= 2) {
        float v = __shfl_xor_sync(DG_ALL_LANES, *value, with);
        int i = __shfl_xor_sync(DG_ALL_LANES, *index, with);
        if (v > *value || (v == *value && i < *index)) {
            *value = v;
            *index = i;
        }
    }
}

enum { PICK_WARPS = 4 };

/* The sums of a row over its parts, expert lane + 32 i in p[i], and the squares of x. */
template <int PER>
static __device__ __forceinline__ float add_parts(float p[PER], const dg_cuda_route_args &a,
                                                  int row)
{
    int lane = (int)threadIdx.x % 32, n_part = route_parts(a.n);
    size_t ld = route_ld(a.n_expert);
    const float *sums = (const float *)a.scratch + (size_t)row * (size_t)n_part * ld;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        p[i] = 0;
#pragma unroll(PER < 8 ? 16 : 1)
    for (int part = 0; part < n_part; part++, sums += ld) {
        squares += sums[a.n_expert];
#pragma unroll
        for (int i = 0; i < PER; i++)
            p[i] += lane + 32 * i < a.n_expert ? sums[lane + 32 * i] : 0;
    }
    return squares;
}

/* Logits to e^(logit - the largest): gives their sum. Beyond the last expert: taken. */
template <int PER>
static __device__ __forceinline__ float exponentials(float p[PER], float factor, int n_expert)
{
    int lane = (int)threadIdx.x % 32;
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        p[i] *= factor;
        most = lane + 32 * i < n_expert ? fmaxf(most, p[i]) : most;
    }
    most = dg_warp_max(most);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        bool there = lane + 32 * i < n_expert;
        p[i] = there ? expf(p[i] - most) : -2;
        sum += there ? p[i] : 0;
    }
    return dg_warp_sum(sum);
}

template <int PER>
static __global__ void __launch_bounds__(32 * PICK_WARPS) route_pick(dg_cuda_route_args a)
{
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, row = (int)blockIdx.x * PICK_WARPS + (int)threadIdx.x / 32;
    if (row >= a.n_row)
        return;
    float p[PER], squares = add_parts<PER>(p, a, row);
    float factor = 1.0f / sqrtf(squares / (float)a.n + a.eps) / sqrtf((float)a.n);
    float sum = exponentials<PER>(p, factor, a.n_expert);

    /* What is no number is picked last, but picked: an index is always one of an expert's. */
    float chosen_sum = 0, chosen[MAX_USED / 32] = {};
    int chosen_at[MAX_USED / 32] = {};
    for (int j = 0; j < a.n_used; j++) {
        float best = -1, mine = 0;
        int at = MAX_EXPERT;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            float v = p[i] == -2 ? -2 : p[i] >= 0 ? p[i] : -0.5f;
            if (v > best) {
                best = v;
                at = lane + 32 * i;
                mine = p[i];
            }
        }
        int own = at;
        warp_argmax(&best, &at);
        float value = __shfl_sync(DG_ALL_LANES, own == at ? mine / sum : 0, at % 32);
#pragma unroll
        for (int i = 0; i < PER; i++)
            p[i] = lane + 32 * i == at ? -2 : p[i]; /* taken */
        chosen_sum += value;
#pragma unroll
        for (int i = 0; i < MAX_USED / 32; i++)
            if (j == lane + 32 * i) {
                chosen[i] = value;
                chosen_at[i] = at;
            }
    }
#pragma unroll
    for (int i = 0; i < MAX_USED / 32; i++)
        if (lane + 32 * i < a.n_used) {
            size_t to = (size_t)row * a.n_used + lane + 32 * i;
            a.expert[to] = chosen_at[i];
            a.weight[to] = chosen[i] / chosen_sum * a.expert_scale[chosen_at[i]];
        }
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

extern "C" cudaError_t dg_cuda_route(cudaStream_t stream, const dg_cuda_route_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (a->n_expert > MAX_EXPERT || a->n_used > MAX_USED || a->n_used > a->n_expert ||
        !aligned(a->x) || !aligned(a->w) || !aligned(a->scale))
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(a->n_row + ROUTE_ROWS - 1) / ROUTE_ROWS,
              (unsigned)(a->n_expert + ROUTE_EXPERTS - 1) / ROUTE_EXPERTS,
              (unsigned)route_parts(a->n));
    cudaError_t error = DG_LAUNCH_IF(!a->follows_stream, route_products, grid, ROUTE_THREAD,
                                     ROUTE_FLOATS * sizeof(float), stream, *a);
    if (error)
        return error;
    grid = dim3((unsigned)(a->n_row + PICK_WARPS - 1) / PICK_WARPS);
    if (a->n_expert <= 128)
        return DG_LAUNCH(route_pick<4>, grid, 32 * PICK_WARPS, 0, stream, *a);
    return DG_LAUNCH(route_pick<MAX_EXPERT / 32>, grid, 32 * PICK_WARPS, 0, stream, *a);
}
