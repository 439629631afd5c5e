/* The router, in float. Two launches. The first multiplies: a block has ROUTE_ROWS rows,
 * ROUTE_EXPERTS experts and ROUTE_PART values of k, of which its warps take chunks in turn, from
 * memory into registers. What warps have is added up in their order through little shared memory,
 * so that a block finds room beside one of a dense product; a canvas of 256 rows of 2816 values
 * over 128 experts is 128 blocks. Many rows have a form of their own (cuda_router_many.cu), with
 * the same bits. The norm's factor is the same for a whole row and is applied behind the sums. The
 * second launch adds the parts in order and picks: a warp a row. */
#include "cuda/cuda_router.cuh"
#include <math.h>
#include "cuda/cuda_product.cuh"

enum { ROUTE_EXPERTS = 64, ROUTE_WARPS = ROUTE_SHARES, ROUTE_THREAD = 32 * ROUTE_WARPS };

typedef float route_sums[ROUTE_ROWS / 16][ROUTE_EXPERTS / 8][4];

/* Sums of warps meet ROUTE_MEET tiles of 8 experts at a time. */
enum { ROUTE_MEET = 2, ROUTE_MET = 2 * ROUTE_MEET * 4 };
enum { MAX_EXPERT = 1024, MAX_USED = 64 };

extern "C" size_t dg_cuda_route_bytes(int max_row, int n, int n_expert)
{
    return (size_t)max_row * (size_t)route_parts(n) * route_ld(n_expert) * sizeof(float);
}

/* ---- products ---- */

/* How lines lie: anyhow; in aligned fours; or so, with rows, experts and values of k that make
 * whole blocks and chunks. */
enum route_lines { ROUTE_ANY, ROUTE_FOURS, ROUTE_WHOLE };

/* Up to four values of which some are behind the last one. */
static __device__ __forceinline__ void some_of(float4 *four, const void *from, int n)
{
    const float *at = (const float *)from;
    *four = make_float4(at[0], n > 1 ? at[1] : 0, n > 2 ? at[2] : 0, n > 3 ? at[3] : 0);
}

static __device__ __forceinline__ void some_of(uint2 *four, const void *from, int n)
{
    const uint16_t *at = (const uint16_t *)from;
    *four = make_uint2(at[0] | (n > 1 ? (uint32_t)at[1] : 0) << 16,
                       (n > 2 ? at[2] : 0u) | (n > 3 ? (uint32_t)at[3] : 0) << 16);
}

/* Values k ... k + 3 of a line, zeros beyond n. */
template <route_lines LINES, class F>
static __device__ __forceinline__ F route_four(const void *lines, int line, int k, int n)
{
    const unsigned char *at =
        (const unsigned char *)lines + ((size_t)line * (size_t)n + (size_t)k) * (sizeof(F) / 4);
    F four = {};
    if (k >= n)
        return four;
    if (LINES != ROUTE_ANY)
        return __ldcg((const F *)at);
    some_of(&four, at, n - k);
    return four;
}

/* A lane's values of a chunk. Beyond the last row or expert are the last one's, of which nothing is
 * stored. */
template <class W> struct route_chunk {
    float4 x[ROUTE_ROWS / 8], scale;
    W w[ROUTE_EXPERTS / 8];
};

/* Where a lane's values begin: of whole blocks an instruction a load finds them. */
struct route_source {
    const float *x, *scale;
    const unsigned char *w;
    int n, first_row, first_expert;
};

template <class W>
static __device__ __forceinline__ route_source source_of(const dg_cuda_route_args &a, int first_row,
                                                         int first_expert)
{
    int line = (int)threadIdx.x % 32 / 4, k = (int)threadIdx.x % 4 * 4;
    size_t of_w = (size_t)(first_expert + line) * (size_t)a.n + (size_t)k;
    return route_source{a.x + (size_t)(first_row + line) * (size_t)a.n + k,
                        a.scale + k,
                        (const unsigned char *)a.w + of_w * (sizeof(W) / 4),
                        a.n,
                        first_row,
                        first_expert};
}

template <class W>
static __device__ __forceinline__ void load_whole(route_chunk<W> &c, const route_source &from,
                                                  int k)
{
    const float *x = from.x + k;
    const unsigned char *w = from.w + (size_t)k * (sizeof(W) / 4);
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++)
        c.x[i] = __ldcg((const float4 *)(x + (ptrdiff_t)from.n * (8 * i)));
#pragma unroll
    for (int i = 0; i < ROUTE_EXPERTS / 8; i++)
        c.w[i] = __ldcg((const W *)(w + (ptrdiff_t)from.n * (8 * i * (int)sizeof(W) / 4)));
    c.scale = __ldcg((const float4 *)(from.scale + k));
}

template <route_lines LINES, class W>
static __device__ __forceinline__ void load_chunk(route_chunk<W> &c, const dg_cuda_route_args &a,
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
        c.x[i] =
            route_four<LINES, float4>(a.x, min(from.first_row + 8 * i + line, a.n_row - 1), k, a.n);
#pragma unroll
    for (int i = 0; i < ROUTE_EXPERTS / 8; i++)
        c.w[i] = route_four<LINES, W>(a.w, min(from.first_expert + 8 * i + line, a.n_expert - 1), k,
                                      a.n);
    c.scale = route_four<LINES, float4>(a.scale, 0, k, a.n);
}

template <class W>
static __device__ __forceinline__ void multiply_chunk(route_sums &acc, const route_chunk<W> &c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        route_rows high, low;
        split_rows(high, low, c.x, half);
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
            store_two(a, first + 4 * i, expert, (int)blockIdx.z, sum);
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
        float of_warp = lane_squares(squares[i]);
        if (lane % 4 == 0)
            met[warp][8 * i + lane / 4] = of_warp;
    }
    __syncthreads();
    if (t >= ROUTE_ROWS || first_row + t >= a.n_row)
        return;
    float sum = met[0][t];
    for (int w = 1; w < ROUTE_WARPS; w++)
        sum += met[w][t];
    route_line(a, first_row + t, (int)blockIdx.z)[a.n_expert] = sum;
}

/* The next chunk is on its way while one is multiplied. Four warps, so that each has the registers
 * that this takes even where a product's two have their share of the same quarter of an SM. */
template <route_lines LINES, class W>
static __global__ void __launch_bounds__(ROUTE_THREAD, 2) route_products(dg_cuda_route_args a)
{
    enum { STRIDE = ROUTE_WARPS * ROUTE_CHUNK };
    float acc[ROUTE_ROWS / 16][ROUTE_EXPERTS / 8][4] = {}, squares[ROUTE_ROWS / 8] = {};
    int first_row = (int)blockIdx.x * ROUTE_ROWS, first_expert = (int)blockIdx.y * ROUTE_EXPERTS;
    int begin = (int)blockIdx.z * ROUTE_PART, end = min(begin + ROUTE_PART, a.n);
    int k = begin + (int)threadIdx.x / 32 * ROUTE_CHUNK;
    route_source from = source_of<W>(a, first_row, first_expert);
    route_chunk<W> now = {}, next;
    dg_grid_wait();
    dg_grid_launch_next();
    if (k < end)
        load_chunk<LINES>(now, a, from, k);
#pragma unroll 1
    for (; k < end; k += STRIDE, now = next) {
        load_chunk<LINES>(next, a, from, k + STRIDE < end ? k + STRIDE : k); /* or nothing new */
        scale_rows(now.x, squares, now.scale);
        multiply_chunk(acc, now);
    }
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

/* The sums of a row over its parts, and the squares of x; AT_ONCE parts are on their way at once:
 * no branch stands between them, which the compiler would put the loads behind. Beyond the last
 * part is the last one's, times nothing; beyond the last expert what happens to be there. */
template <int PER, int AT_ONCE>
static __device__ __forceinline__ float add_parts(float p[PER], const dg_cuda_route_args &a,
                                                  int row)
{
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

template <int PER, int AT_ONCE>
static __global__ void __launch_bounds__(32 * PICK_WARPS, 2) route_pick(dg_cuda_route_args a)
{
    __shared__ float expert_scale[32 * PER];
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n_expert; i += 32 * PICK_WARPS)
        expert_scale[i] = a.expert_scale[i]; /* far away, and wanted last */
    float share = dg_norm_share(a.n), root = rsqrtf((float)a.n);
    dg_find_now(share);
    dg_find_now(root);
    __syncthreads();
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, row = (int)blockIdx.x * PICK_WARPS + (int)threadIdx.x / 32;
    if (row >= a.n_row)
        return;
    uint32_t key[PER];
    float p[PER], squares = add_parts<PER, AT_ONCE>(p, a, row);
    float factor = dg_norm_factor(squares, share, a.eps) * root;
    float sum = exponentials<PER>(p, factor, a.n_expert), chosen_sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        key[i] = pick_expert(i) < a.n_expert ? key_of(p[i]) : (uint32_t)KEY_TAKEN;
    route_choices chosen = pick_largest<PER>(key, a.n_used);
#pragma unroll
    for (int i = 0; i < MAX_USED / 32; i++) {
        if (32 * i >= a.n_used)
            break;
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

/* Products of few rows, or of weights that are not bfloat16, or of any lines. */
template <class W>
static cudaError_t multiply_few(cudaStream_t stream, const dg_cuda_route_args *a, bool early)
{
    dim3 grid((unsigned)(a->n_row + ROUTE_ROWS - 1) / ROUTE_ROWS,
              (unsigned)(a->n_expert + ROUTE_EXPERTS - 1) / ROUTE_EXPERTS,
              (unsigned)route_parts(a->n));
    if (a->n % ROUTE_CHUNK == 0 && a->n_row % ROUTE_ROWS == 0 && a->n_expert % ROUTE_EXPERTS == 0)
        return DG_LAUNCH_IF(early, (route_products<ROUTE_WHOLE, W>), grid, ROUTE_THREAD, 0, stream,
                            *a);
    if (a->n % 4 == 0)
        return DG_LAUNCH_IF(early, (route_products<ROUTE_FOURS, W>), grid, ROUTE_THREAD, 0, stream,
                            *a);
    return DG_LAUNCH_IF(early, (route_products<ROUTE_ANY, W>), grid, ROUTE_THREAD, 0, stream, *a);
}

/* Two canvases: half of the multiprocessors have a block of the form for many rows, and are done
 * sooner than all of them with the other. */
enum { ROUTE_MANY = 512 };

extern "C" bool dg_cuda_route_many(const dg_cuda_route_args *a)
{
    return a->n_row >= ROUTE_MANY && a->w_type == DG_BF16 && a->n % 8 == 0 && dg_cuda_has_groups();
}

extern "C" cudaError_t dg_cuda_route_multiply(cudaStream_t stream, const dg_cuda_route_args *a)
{
    bool early = !a->follows_stream;
    if (a->n_row == 0)
        return cudaSuccess;
    if (a->n_expert > MAX_EXPERT || (a->w_type != DG_F32 && a->w_type != DG_BF16) ||
        !aligned(a->x) || !aligned(a->w) || !aligned(a->scale))
        return cudaErrorInvalidValue;
    cudaError_t error = dg_cuda_route_many(a)  ? dg_route_many(stream, a, early)
                        : a->w_type == DG_BF16 ? multiply_few<uint2>(stream, a, early)
                                               : multiply_few<float4>(stream, a, early);
    return !error && a->low ? adapt(stream, a) : error;
}

/* Of many rows the choice is made beside gate and up of the dense branch, whose blocks leave a
 * quarter of each multiprocessor no more than one warp of 32 registers: fewer parts at once. */
extern "C" cudaError_t dg_cuda_route_pick(cudaStream_t stream, const dg_cuda_route_args *a)
{
    dim3 grid((unsigned)(a->n_row + PICK_WARPS - 1) / PICK_WARPS);
    bool early = !a->follows_stream;
    if (a->n_row == 0)
        return cudaSuccess;
    if (a->n_expert > MAX_EXPERT || a->n_used > MAX_USED || a->n_used > a->n_expert)
        return cudaErrorInvalidValue;
    if (a->n_expert > 128)
        return DG_LAUNCH_IF(early, (route_pick<MAX_EXPERT / 32, 1>), grid, 32 * PICK_WARPS, 0,
                            stream, *a);
    if (a->n_row < ROUTE_MANY)
        return DG_LAUNCH_IF(early, (route_pick<4, 8>), grid, 32 * PICK_WARPS, 0, stream, *a);
    return DG_LAUNCH_IF(early, (route_pick<4, 2>), grid, 32 * PICK_WARPS, 0, stream, *a);
}

extern "C" cudaError_t dg_cuda_route(cudaStream_t stream, const dg_cuda_route_args *a)
{
    dg_cuda_route_args then = *a;
    then.follows_stream = false;
    cudaError_t error = dg_cuda_route_multiply(stream, a);
    return error ? error : dg_cuda_route_pick(stream, &then);
}
