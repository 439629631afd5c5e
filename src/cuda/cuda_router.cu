/* The router, in float. Two launches. The first multiplies: a block has ROUTE_ROWS rows,
 * ROUTE_EXPERTS experts and ROUTE_PART values of k, of which its warps take chunks in turn, from
 * memory into registers. What warps have is added up in their order through little shared memory,
 * so that a block finds room beside one of a dense product; a canvas of 256 rows of 2816 values
 * over 128 experts is 128 blocks. The norm's factor is the same for a whole row and is applied
 * behind the sums. The second adds the parts in order and picks: a warp a row. Every sum runs in
 * the order that follows from the row's length alone.
 *
 * Products are made on tensor cores, of floats in two parts of eleven bits: the first parts', and
 * the first of each with the second of the other. What is left out is below 2^-22 of a product. */
#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_device.cuh"

enum { ROUTE_ROWS = 32, ROUTE_EXPERTS = 64, ROUTE_PART = 352, ROUTE_CHUNK = 16 };
enum { ROUTE_WARPS = 4, ROUTE_THREAD = 32 * ROUTE_WARPS };

/* Sums of warps meet ROUTE_MEET tiles of 8 experts at a time. */
enum { ROUTE_MEET = 2, ROUTE_MET = 2 * ROUTE_MEET * 4 };
enum { MAX_EXPERT = 1024, MAX_USED = 64 };

static __host__ __device__ __forceinline__ int route_parts(int n)
{
    return (n + ROUTE_PART - 1) / ROUTE_PART;
}

/* Sums of one row and part: n_expert products, then the squares of x. */
static __host__ __device__ __forceinline__ size_t route_ld(int n_expert)
{
    return (size_t)(n_expert + 4) / 4 * 4;
}

extern "C" size_t dg_cuda_route_bytes(int max_row, int n, int n_expert)
{
    return (size_t)max_row * (size_t)route_parts(n) * route_ld(n_expert) * sizeof(float);
}

/* ---- products ---- */

/* How lines lie: anyhow; in aligned fours; or so, with rows, experts and values of k that make
 * whole blocks and chunks. */
enum route_lines { ROUTE_ANY, ROUTE_FOURS, ROUTE_WHOLE };

/* Values k ... k + 3 of a line, zeros beyond n. */
template <route_lines LINES>
static __device__ __forceinline__ float4 route_four(const float *lines, int line, int k, int n)
{
    const float *at = lines + (size_t)line * (size_t)n + (size_t)k;
    if (k >= n)
        return make_float4(0, 0, 0, 0);
    if (LINES != ROUTE_ANY)
        return __ldcg((const float4 *)at);
    return make_float4(at[0], k + 1 < n ? at[1] : 0, k + 2 < n ? at[2] : 0, k + 3 < n ? at[3] : 0);
}

/* A lane's values of a chunk: of rows lane / 4 + 8 i and of experts alike, the four values from
 * 4 (lane % 4) on. They are the fragments of two products of eight values of k, in an order of k
 * that both sides share. Beyond the last row or expert are the last one's, of which nothing is
 * stored. */
struct route_chunk {
    float4 x[ROUTE_ROWS / 8], w[ROUTE_EXPERTS / 8], scale;
};

/* Where a lane's values begin: of whole blocks an instruction a load finds them. */
struct route_source {
    const float *x, *w, *scale;
    int n, first_row, first_expert;
};

static __device__ __forceinline__ route_source source_of(const dg_cuda_route_args &a, int first_row,
                                                         int first_expert)
{
    int line = (int)threadIdx.x % 32 / 4, k = (int)threadIdx.x % 4 * 4;
    return route_source{a.x + (size_t)(first_row + line) * (size_t)a.n + k,
                        a.w + (size_t)(first_expert + line) * (size_t)a.n + k,
                        a.scale + k,
                        a.n,
                        first_row,
                        first_expert};
}

static __device__ __forceinline__ void load_whole(route_chunk &c, const route_source &from, int k)
{
    const float *x = from.x + k, *w = from.w + k;
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++)
        c.x[i] = __ldcg((const float4 *)(x + (ptrdiff_t)from.n * (8 * i)));
#pragma unroll
    for (int i = 0; i < ROUTE_EXPERTS / 8; i++)
        c.w[i] = __ldcg((const float4 *)(w + (ptrdiff_t)from.n * (8 * i)));
    c.scale = __ldcg((const float4 *)(from.scale + k));
}

template <route_lines LINES>
static __device__ __forceinline__ void load_chunk(route_chunk &c, const dg_cuda_route_args &a,
                                                  const route_source &from, int k)
{
    int line = (int)threadIdx.x % 32 / 4;
    if (LINES == ROUTE_WHOLE) {
        load_whole(c, from, k);
        return;
    }
    k += (int)threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++)
        c.x[i] = route_four<LINES>(a.x, min(from.first_row + 8 * i + line, a.n_row - 1), k, a.n);
#pragma unroll
    for (int i = 0; i < ROUTE_EXPERTS / 8; i++)
        c.w[i] =
            route_four<LINES>(a.w, min(from.first_expert + 8 * i + line, a.n_expert - 1), k, a.n);
    c.scale = route_four<LINES>(a.scale, 0, k, a.n);
}

static __device__ __forceinline__ float square_of(const float4 &v)
{
    return v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
}

/* The first bits of a float, and the rest. */
static __device__ __forceinline__ void split(uint32_t *high, uint32_t *low, float x)
{
    *high = __float_as_uint(x) & 0xFFFFE000u;
    *low = __float_as_uint(x - __uint_as_float(*high));
}

typedef float route_sums[ROUTE_ROWS / 16][ROUTE_EXPERTS / 8][4];

/* Tiles n and n + 1 of experts: four sums take turns, as each waits for its last product. */
static __device__ __forceinline__ void multiply_two(route_sums acc, int n,
                                                    const uint32_t high[ROUTE_ROWS / 16][4],
                                                    const uint32_t low[ROUTE_ROWS / 16][4],
                                                    const float4 w[2], int half)
{
    uint32_t w_high[2][2], w_low[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        split(&w_high[i][0], &w_low[i][0], half ? w[i].z : w[i].x);
        split(&w_high[i][1], &w_low[i][1], half ? w[i].w : w[i].y);
    }
#pragma unroll
    for (int turn = 0; turn < 3; turn++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int m = 0; m < ROUTE_ROWS / 16; m++)
                dg_mma_tf32(acc[m][n + i], turn == 0 ? low[m] : high[m],
                            turn == 1 ? w_low[i] : w_high[i]);
}

/* Two products of eight values of k: of each four the first two, then the others. */
static __device__ __forceinline__ void multiply_chunk(route_sums acc, const route_chunk &c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t high[ROUTE_ROWS / 16][4], low[ROUTE_ROWS / 16][4];
#pragma unroll
        for (int i = 0; i < ROUTE_ROWS / 8; i++) {
            const float4 &v = c.x[i];
            split(&high[i / 2][i % 2], &low[i / 2][i % 2], half ? v.z : v.x);
            split(&high[i / 2][2 + i % 2], &low[i / 2][2 + i % 2], half ? v.w : v.y);
        }
#pragma unroll
        for (int n = 0; n < ROUTE_EXPERTS / 8; n += 2)
            multiply_two(acc, n, high, low, c.w + n, half);
    }
}

/* What warps have is added up in the order of warps. A lane's values m, n, i of ROUTE_MEET tiles
 * are number (m ROUTE_MEET + n) 4 + i of ROUTE_MET; a warp then has one m and n. */
static __device__ __forceinline__ void store_sums(const dg_cuda_route_args &a, route_sums acc,
                                                  int first_row, int first_expert)
{
    __shared__ float met[ROUTE_WARPS][ROUTE_MET][32];
    int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
    float *sums = (float *)a.scratch + blockIdx.z * route_ld(a.n_expert);
    size_t row_ld = (size_t)route_parts(a.n) * route_ld(a.n_expert);
    int first = first_row + 16 * (warp / ROUTE_MEET) + lane / 4;
    static_assert(4 * ROUTE_WARPS == ROUTE_MET, "four values a thread");
#pragma unroll
    for (int tile = 0; tile < ROUTE_EXPERTS / 8; tile += ROUTE_MEET) {
        int expert = first_expert + 8 * (tile + warp % ROUTE_MEET) + lane % 4 * 2;
        __syncthreads();
#pragma unroll
        for (int v = 0; v < ROUTE_MET; v++)
            met[warp][v][lane] = acc[v / 4 / ROUTE_MEET][tile + v / 4 % ROUTE_MEET][v % 4];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int w = 0; w < ROUTE_WARPS; w++) {
                sum.x += met[w][4 * warp + i][lane];
                sum.y += met[w][4 * warp + i + 1][lane];
            }
            int row = first + 4 * i;
            float *to = sums + (size_t)row * row_ld + (size_t)expert;
            if (row < a.n_row && expert + 1 < a.n_expert)
                *(float2 *)to = sum;
            else if (row < a.n_row && expert < a.n_expert)
                *to = sum.x;
        }
    }
}

/* The same for the squares of rows; of row lane / 4 + 8 i in squares[i] a lane has its share. */
static __device__ __forceinline__ void store_squares(const dg_cuda_route_args &a,
                                                     float squares[ROUTE_ROWS / 8], int first_row)
{
    __shared__ float met[ROUTE_WARPS][ROUTE_ROWS];
    int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++) {
        squares[i] += __shfl_xor_sync(DG_ALL_LANES, squares[i], 2);
        squares[i] += __shfl_xor_sync(DG_ALL_LANES, squares[i], 1);
        if (lane % 4 == 0)
            met[warp][8 * i + lane / 4] = squares[i];
    }
    __syncthreads();
    if (t >= ROUTE_ROWS || first_row + t >= a.n_row)
        return;
    float sum = met[0][t];
    for (int w = 1; w < ROUTE_WARPS; w++)
        sum += met[w][t];
    size_t line = (size_t)(first_row + t) * (size_t)route_parts(a.n) + blockIdx.z;
    ((float *)a.scratch)[line * route_ld(a.n_expert) + (size_t)a.n_expert] = sum;
}

/* The next chunk is on its way while one is multiplied. Four warps, so that each has the registers
 * that this takes even where a product's two have their share of the same quarter of an SM. */
template <route_lines LINES>
static __global__ void __launch_bounds__(ROUTE_THREAD, 2) route_products(dg_cuda_route_args a)
{
    enum { STRIDE = ROUTE_WARPS * ROUTE_CHUNK };
    float acc[ROUTE_ROWS / 16][ROUTE_EXPERTS / 8][4] = {}, squares[ROUTE_ROWS / 8] = {};
    int first_row = (int)blockIdx.x * ROUTE_ROWS, first_expert = (int)blockIdx.y * ROUTE_EXPERTS;
    int begin = (int)blockIdx.z * ROUTE_PART, end = min(begin + ROUTE_PART, a.n);
    int k = begin + (int)threadIdx.x / 32 * ROUTE_CHUNK;
    route_source from = source_of(a, first_row, first_expert);
    route_chunk now = {}, next;
    dg_grid_wait();
    dg_grid_launch_next();
    if (k < end)
        load_chunk<LINES>(now, a, from, k);
#pragma unroll 1
    for (; k < end; k += STRIDE, now = next) {
        load_chunk<LINES>(next, a, from, k + STRIDE < end ? k + STRIDE : k); /* or nothing new */
#pragma unroll
        for (int i = 0; i < ROUTE_ROWS / 8; i++) {
            float4 &v = now.x[i];
            squares[i] += square_of(v);
            v = make_float4(v.x * now.scale.x, v.y * now.scale.y, v.z * now.scale.z,
                            v.w * now.scale.w);
        }
        multiply_chunk(acc, now);
    }
    static_assert(ROUTE_PART % ROUTE_CHUNK == 0, "chunks");
    if (blockIdx.y == 0)
        store_squares(a, squares, first_row);
    store_sums(a, acc, first_row, first_expert);
}

/* ---- the choice ---- */

enum { PICK_WARPS = 4 };

/* The expert whose value a lane has in place i: four neighbours each. */
static __device__ __forceinline__ int pick_expert(int i)
{
    return i / 4 * 128 + (int)threadIdx.x % 32 * 4 + i % 4;
}

/* The sums of a row over its parts, and the squares of x; eight parts are on their way at once: no
 * branch stands between them, which the compiler would put the loads behind. Beyond the last part
 * is the last one's, times nothing; beyond the last expert what happens to be there. */
template <int PER>
static __device__ __forceinline__ float add_parts(float p[PER], const dg_cuda_route_args &a,
                                                  int row)
{
    constexpr int AT_ONCE = PER > 4 ? 1 : 8;
    int n_part = route_parts(a.n), last = (a.n_expert - 1) / 4 * 4, ld = (int)route_ld(a.n_expert);
    const float *sums = (const float *)a.scratch + (size_t)row * (size_t)(n_part * ld);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        p[i] = 0;
#pragma unroll 1
    for (int first = 0; first < n_part; first += AT_ONCE) {
        float4 four[AT_ONCE][PER / 4];
        float square[AT_ONCE];
#pragma unroll
        for (int part = 0; part < AT_ONCE; part++) {
            const float *line = sums + min(first + part, n_part - 1) * ld;
            square[part] = __ldcg(line + a.n_expert);
#pragma unroll
            for (int i = 0; i < PER / 4; i++)
                four[part][i] = __ldcg((const float4 *)(line + min(pick_expert(4 * i), last)));
        }
        __syncwarp(); /* no load behind this */
#pragma unroll
        for (int part = 0; part < AT_ONCE; part++) {
            bool there = first + part < n_part;
            squares += there ? square[part] : 0;
#pragma unroll
            for (int i = 0; i < PER / 4; i++) {
                p[4 * i] += there ? four[part][i].x : 0;
                p[4 * i + 1] += there ? four[part][i].y : 0;
                p[4 * i + 2] += there ? four[part][i].z : 0;
                p[4 * i + 3] += there ? four[part][i].w : 0;
            }
        }
    }
    return squares;
}

/* Logits to e^(logit - the largest): gives their sum. */
template <int PER>
static __device__ __forceinline__ float exponentials(float p[PER], float factor, int n_expert)
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        p[i] *= factor;
        most = pick_expert(i) < n_expert ? fmaxf(most, p[i]) : most;
    }
    most = dg_warp_max(most);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        p[i] = expf(p[i] - most);
        sum += pick_expert(i) < n_expert ? p[i] : 0;
    }
    return dg_warp_sum(sum);
}

/* Values in an order of integers: taken ones lowest, then what is no number, then numbers. It is
 * picked last, but picked: an index is always one of an expert's. */
enum { KEY_TAKEN, KEY_NAN, KEY_ZERO };

static __device__ __forceinline__ uint32_t key_of(float p)
{
    return p >= 0 ? KEY_ZERO + __float_as_uint(p) : (uint32_t)KEY_NAN;
}

static __device__ __forceinline__ float value_of(uint32_t key)
{
    return key >= KEY_ZERO ? __uint_as_float(key - KEY_ZERO) : NAN;
}

/* What a lane has of a row's choices: numbers lane and lane + 32. */
struct route_choices {
    float value[MAX_USED / 32];
    int at[MAX_USED / 32];
};

/* The n_used largest, of equal ones the lowest index first. */
template <int PER>
static __device__ __forceinline__ route_choices pick_largest(uint32_t key[PER], int n_used)
{
    int lane = (int)threadIdx.x % 32;
    route_choices chosen = {};
#pragma unroll 1
    for (int j = 0; j < n_used; j++) {
        uint32_t best = key[0];
        int at = pick_expert(0);
#pragma unroll
        for (int i = 1; i < PER; i++)
            if (key[i] > best) {
                best = key[i];
                at = pick_expert(i);
            }
        uint32_t most = __reduce_max_sync(DG_ALL_LANES, best);
        at = (int)__reduce_min_sync(DG_ALL_LANES, best == most ? (uint32_t)at : DG_ALL_LANES);
#pragma unroll
        for (int i = 0; i < PER; i++)
            key[i] = pick_expert(i) == at ? (uint32_t)KEY_TAKEN : key[i];
#pragma unroll
        for (int i = 0; i < MAX_USED / 32; i++)
            if (j == lane + 32 * i) {
                chosen.value[i] = value_of(most);
                chosen.at[i] = at;
            }
    }
    return chosen;
}

template <int PER>
static __global__ void __launch_bounds__(32 * PICK_WARPS, 2) route_pick(dg_cuda_route_args a)
{
    __shared__ float expert_scale[32 * PER];
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n_expert; i += 32 * PICK_WARPS)
        expert_scale[i] = a.expert_scale[i]; /* far away, and wanted last */
    __syncthreads();
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, row = (int)blockIdx.x * PICK_WARPS + (int)threadIdx.x / 32;
    if (row >= a.n_row)
        return;
    uint32_t key[PER];
    float p[PER], squares = add_parts<PER>(p, a, row);
    float factor = 1.0f / sqrtf(squares / (float)a.n + a.eps) / sqrtf((float)a.n);
    float sum = exponentials<PER>(p, factor, a.n_expert), chosen_sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        key[i] = pick_expert(i) < a.n_expert ? key_of(p[i]) : (uint32_t)KEY_TAKEN;
    route_choices chosen = pick_largest<PER>(key, a.n_used);
#pragma unroll
    for (int i = 0; i < MAX_USED / 32; i++) {
        chosen.value[i] /= sum;
#pragma unroll 1
        for (int j = 32 * i; j < min(a.n_used, 32 * (i + 1)); j++)
            chosen_sum += __shfl_sync(DG_ALL_LANES, chosen.value[i], j % 32);
    }
#pragma unroll
    for (int i = 0; i < MAX_USED / 32; i++)
        if (lane + 32 * i < a.n_used) {
            size_t to = (size_t)row * (size_t)a.n_used + (size_t)(lane + 32 * i);
            a.expert[to] = chosen.at[i];
            a.weight[to] = chosen.value[i] / chosen_sum * expert_scale[chosen.at[i]];
        }
}

/* What adapters add, in the sums of the first part: the norm's factor comes behind them, too. */
static cudaError_t adapt(cudaStream_t stream, const dg_cuda_route_args *a)
{
    dg_cuda_adapt_args args = {};
    args.rows = a->adapted;
    args.low = a->low;
    args.n_row = a->n_row;
    args.n_in = a->n;
    args.n_out = a->n_expert;
    args.x = dg_cuda_rows{DG_CUDA_F32, (void *)a->x, a->n};
    args.x_scale = a->scale;
    args.alpha = 1;
    args.y = (float *)a->scratch;
    args.ldy = (size_t)route_parts(a->n) * route_ld(a->n_expert);
    return dg_cuda_adapt(stream, &args);
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
    bool early = !a->follows_stream;
    bool whole =
        a->n % ROUTE_CHUNK == 0 && a->n_row % ROUTE_ROWS == 0 && a->n_expert % ROUTE_EXPERTS == 0;
    cudaError_t error =
        whole ? DG_LAUNCH_IF(early, route_products<ROUTE_WHOLE>, grid, ROUTE_THREAD, 0, stream, *a)
        : a->n % 4 == 0
            ? DG_LAUNCH_IF(early, route_products<ROUTE_FOURS>, grid, ROUTE_THREAD, 0, stream, *a)
            : DG_LAUNCH_IF(early, route_products<ROUTE_ANY>, grid, ROUTE_THREAD, 0, stream, *a);
    if (!error && a->low)
        error = adapt(stream, a);
    if (error)
        return error;
    grid = dim3((unsigned)(a->n_row + PICK_WARPS - 1) / PICK_WARPS);
    if (a->n_expert <= 128)
        return DG_LAUNCH(route_pick<4>, grid, 32 * PICK_WARPS, 0, stream, *a);
    return DG_LAUNCH(route_pick<MAX_EXPERT / 32>, grid, 32 * PICK_WARPS, 0, stream, *a);
}
