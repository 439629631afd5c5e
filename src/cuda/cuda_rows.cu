/* Stages that treat each row by itself: norms, sums into the residual stream, the embedding, the
 * router, angles.
 *
 * A row belongs to one block (the router's: to one tile) of a fixed shape, and every sum runs in
 * the order that follows from the row's length alone. */
#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_blocks.cuh"
#include "cuda/cuda_device.cuh"

enum { N_THREAD = 256, N_WARP = N_THREAD / 32 };

/* Shared memory of a row of floats: what every card has without asking. */
enum { MAX_SHARED = 48 << 10 };

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* ---- rows of floats, V values at a time: 4 where the length allows it ---- */

template <int V> struct values {
    float v[V];
};

template <int V> static __device__ __forceinline__ values<V> load(const float *x)
{
    values<V> out;
    if constexpr (V == 4) {
        float4 f = *(const float4 *)x;
        out.v[0] = f.x, out.v[1] = f.y, out.v[2] = f.z, out.v[3] = f.w;
    } else
        out.v[0] = x[0];
    return out;
}

template <int V> static __device__ __forceinline__ void store(float *x, values<V> a)
{
    if constexpr (V == 4)
        *(float4 *)x = make_float4(a.v[0], a.v[1], a.v[2], a.v[3]);
    else
        x[0] = a.v[0];
}

/* The weight of a norm; NULL: ones. */
template <int V> static __device__ __forceinline__ values<V> load_weight(const float *w, int at)
{
    values<V> one;
    for (int i = 0; i < V; i++)
        one.v[i] = 1;
    return w ? load<V>(w + at) : one;
}

template <int V> static __device__ __forceinline__ float sum_of_squares(values<V> a)
{
    float sum = 0;
    for (int i = 0; i < V; i++)
        sum += a.v[i] * a.v[i];
    return sum;
}

/* The sum over the block of each thread's value, for all threads. Used several times in a kernel:
 * `part` holds N_WARP floats of its own each time. */
static __device__ __forceinline__ float block_sum(float x, float *part)
{
    x = dg_warp_sum(x);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = part[0];
    for (int i = 1; i < N_WARP; i++)
        sum += part[i];
    return sum;
}

static __device__ __forceinline__ float norm_factor(float sum, int n, float eps)
{
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* Values [at, at + V) of a row in its form. */
template <int V>
static __device__ __forceinline__ void store_form(dg_cuda_form form, void *data, size_t at,
                                                  values<V> a)
{
    if (form == DG_CUDA_F32) {
        store<V>((float *)data + at, a);
        return;
    }
    bool half = form == DG_CUDA_F16;
    if constexpr (V == 4) {
        uint2 bits;
        bits.x = half ? dg_store_f16(a.v[0], a.v[1]) : dg_pack_bf16(a.v[0], a.v[1]);
        bits.y = half ? dg_store_f16(a.v[2], a.v[3]) : dg_pack_bf16(a.v[2], a.v[3]);
        *(uint2 *)((uint16_t *)data + at) = bits;
    } else
        ((uint16_t *)data)[at] =
            (uint16_t)(half ? dg_store_f16(a.v[0], 0) : dg_pack_bf16(a.v[0], 0));
}

/* One row of rows [n_row, ld]: y is what this thread has in `row`, times a factor and w; zeros
 * behind the end. */
template <int V>
static __device__ __forceinline__ void store_normed(dg_cuda_rows out, const float *row,
                                                    const float *w, float factor, int n)
{
    size_t begin = (size_t)blockIdx.x * (size_t)out.ld;
    for (int i = (int)threadIdx.x * V; i < n; i += N_THREAD * V) {
        values<V> a = load<V>(row + i), g = load_weight<V>(w, i);
        for (int j = 0; j < V; j++)
            a.v[j] = a.v[j] * factor * g.v[j];
        store_form<V>(out.form, out.data, begin + (size_t)i, a);
    }
    values<V> zero = {};
    for (int i = n + (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V)
        store_form<V>(out.form, out.data, begin + (size_t)i, zero);
}

/* Copies a row to shared memory, each thread its own values, and gives this thread's sum of
 * squares. */
template <int V>
static __device__ __forceinline__ float keep_row(float *kept, const float *x, int n)
{
    float sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x * V; i < n; i += N_THREAD * V) {
        values<V> a = load<V>(x + i);
        store<V>(kept + i, a);
        sum += sum_of_squares<V>(a);
    }
    return sum;
}

/* ---- norms ---- */

template <int V>
static __global__ void __launch_bounds__(N_THREAD)
    norm_rows(dg_cuda_rows out, const float *w, dg_cuda_rows out2, const float *w2, const float *x,
              int n, float eps)
{
    DG_SHARED(shared);
    __shared__ float part[N_WARP];
    float *row = (float *)shared;
    dg_grid_wait();
    float sum = keep_row<V>(row, x + (size_t)blockIdx.x * (size_t)n, n);
    float factor = norm_factor(block_sum(sum, part), n, eps);
    store_normed<V>(out, row, w, factor, n);
    if (out2.data)
        store_normed<V>(out2, row, w2, factor, n);
}

extern "C" cudaError_t dg_cuda_norm2(cudaStream_t stream, dg_cuda_rows out, const float *w,
                                     dg_cuda_rows out2, const float *w2, const float *x, int n_row,
                                     int n, float eps)
{
    size_t shared = (size_t)n * sizeof(float);
    if (n_row == 0)
        return cudaSuccess;
    if (shared > MAX_SHARED || !aligned(x) || !aligned(out.data))
        return cudaErrorInvalidValue;
    if (n % 4 == 0)
        return DG_LAUNCH(norm_rows<4>, n_row, N_THREAD, shared, stream, out, w, out2, w2, x, n,
                         eps);
    return DG_LAUNCH(norm_rows<1>, n_row, N_THREAD, shared, stream, out, w, out2, w2, x, n, eps);
}

extern "C" cudaError_t dg_cuda_norm(cudaStream_t stream, dg_cuda_rows out, const float *x,
                                    const float *w, int n_row, int n, float eps)
{
    dg_cuda_rows none = {DG_CUDA_F32, NULL, 0};
    return dg_cuda_norm2(stream, out, w, none, NULL, x, n_row, n, eps);
}

/* ---- into the residual stream ---- */

template <int V>
static __global__ void __launch_bounds__(N_THREAD)
    add_norm_rows(float *x, const float *y, const float *w, int n, float eps)
{
    DG_SHARED(shared);
    __shared__ float part[N_WARP];
    float *row = (float *)shared;
    dg_grid_wait();
    size_t begin = (size_t)blockIdx.x * (size_t)n;
    float sum = keep_row<V>(row, y + begin, n);
    float factor = norm_factor(block_sum(sum, part), n, eps);
    for (int i = (int)threadIdx.x * V; i < n; i += N_THREAD * V) {
        values<V> a = load<V>(row + i), g = load_weight<V>(w, i), old = load<V>(x + begin + i);
        for (int j = 0; j < V; j++)
            old.v[j] += a.v[j] * factor * g.v[j];
        store<V>(x + begin + i, old);
    }
}

extern "C" cudaError_t dg_cuda_add_norm(cudaStream_t stream, float *x, const float *y,
                                        const float *w, int n_row, int n, float eps)
{
    size_t shared = (size_t)n * sizeof(float);
    if (n_row == 0)
        return cudaSuccess;
    if (shared > MAX_SHARED || !aligned(x) || !aligned(y))
        return cudaErrorInvalidValue;
    if (n % 4 == 0)
        return DG_LAUNCH(add_norm_rows<4>, n_row, N_THREAD, shared, stream, x, y, w, n, eps);
    return DG_LAUNCH(add_norm_rows<1>, n_row, N_THREAD, shared, stream, x, y, w, n, eps);
}

template <int V> static __global__ void __launch_bounds__(N_THREAD) join_rows(dg_cuda_join_args a)
{
    DG_SHARED(shared);
    __shared__ float part[3][N_WARP];
    float *dense = (float *)shared, *experts = dense + a.n;
    dg_grid_wait();
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    float of_dense = keep_row<V>(dense, a.dense + begin, a.n);
    float of_experts = keep_row<V>(experts, a.experts + begin, a.n);
    float f_dense = norm_factor(block_sum(of_dense, part[0]), a.n, a.eps);
    float f_experts = norm_factor(block_sum(of_experts, part[1]), a.n, a.eps);

    float sum = 0;
    for (int i = (int)threadIdx.x * V; i < a.n; i += N_THREAD * V) {
        values<V> d = load<V>(dense + i), e = load<V>(experts + i);
        values<V> wd = load_weight<V>(a.w_dense, i), we = load_weight<V>(a.w_experts, i);
        for (int j = 0; j < V; j++)
            d.v[j] = d.v[j] * f_dense * wd.v[j] + e.v[j] * f_experts * we.v[j];
        store<V>(dense + i, d);
        sum += sum_of_squares<V>(d);
    }
    float factor = norm_factor(block_sum(sum, part[2]), a.n, a.eps);
    float scalar = (int)blockIdx.x < a.n_encode ? a.scalar_encode : a.scalar_canvas;
    for (int i = (int)threadIdx.x * V; i < a.n; i += N_THREAD * V) {
        values<V> d = load<V>(dense + i), g = load_weight<V>(a.w, i), x = load<V>(a.x + begin + i);
        for (int j = 0; j < V; j++)
            x.v[j] = (x.v[j] + d.v[j] * factor * g.v[j]) * scalar;
        store<V>(a.x + begin + i, x);
    }
}

extern "C" cudaError_t dg_cuda_join(cudaStream_t stream, const dg_cuda_join_args *a)
{
    size_t shared = 2 * (size_t)a->n * sizeof(float);
    if (a->n_row == 0)
        return cudaSuccess;
    if (shared > MAX_SHARED || !aligned(a->x) || !aligned(a->dense) || !aligned(a->experts))
        return cudaErrorInvalidValue;
    if (a->n % 4 == 0)
        return DG_LAUNCH(join_rows<4>, a->n_row, N_THREAD, shared, stream, *a);
    return DG_LAUNCH(join_rows<1>, a->n_row, N_THREAD, shared, stream, *a);
}

/* ---- the embedding ---- */

template <int TYPE>
static __global__ void __launch_bounds__(N_THREAD) embed_rows(dg_cuda_embed_args a)
{
    dg_grid_wait();
    int r = (int)blockIdx.x;
    float *x = a.x + (size_t)r * (size_t)a.n;
    const float *feature = a.feature ? a.feature[r] : NULL;
    if (feature) {
        for (int i = (int)threadIdx.x; i < a.n; i += N_THREAD)
            x[i] = feature[i];
        return;
    }
    const uint8_t *row = (const uint8_t *)a.table + (size_t)a.token[r] * a.row_bytes;
    bool scaled = a.table_scale && TYPE >= DG_DTYPE_FLOAT;
    for (int i = (int)threadIdx.x; i < a.n; i += N_THREAD) {
        float value = dg_value_at<TYPE>(row, i);
        if (scaled)
            value = __fmul_rn(value, a.table_scale[0]);
        x[i] = __fmul_rn(value, a.scale);
    }
}

extern "C" cudaError_t dg_cuda_embed(cudaStream_t stream, const dg_cuda_embed_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
#define EMBED(type)                                                                                \
    case type:                                                                                     \
        return DG_LAUNCH(embed_rows<type>, a->n_row, N_THREAD, 0, stream, *a)
    switch (a->type) {
        EMBED(DG_F32);
        EMBED(DG_F16);
        EMBED(DG_BF16);
        EMBED(DG_Q8_0);
        EMBED(DG_Q4_0);
        EMBED(DG_Q4_1);
        EMBED(DG_Q5_0);
        EMBED(DG_Q5_1);
        EMBED(DG_Q2_K);
        EMBED(DG_Q3_K);
        EMBED(DG_Q4_K);
        EMBED(DG_Q5_K);
        EMBED(DG_Q6_K);
        EMBED(DG_IQ4_NL);
        EMBED(DG_IQ4_XS);
        EMBED(DG_MXFP4);
        EMBED(DG_NVFP4);
    default:
        return cudaErrorNotSupported;
    }
#undef EMBED
}

/* ---- angles ---- */

static __global__ void __launch_bounds__(N_THREAD)
    angle_rows(float *cosines, float *sines, const int32_t *position, const float *frequency,
               int n_pair)
{
    dg_grid_wait();
    size_t begin = (size_t)blockIdx.x * (size_t)n_pair;
    float p = (float)position[blockIdx.x];
    for (int i = (int)threadIdx.x; i < n_pair; i += N_THREAD) {
        float angle = __fmul_rn(p, frequency[i]);
        cosines[begin + i] = cosf(angle);
        sines[begin + i] = sinf(angle);
    }
}

extern "C" cudaError_t dg_cuda_rope_table(cudaStream_t stream, float *cosines, float *sines,
                                          const int32_t *position, const float *frequency,
                                          int n_row, int n_pair)
{
    if (n_row == 0)
        return cudaSuccess;
    return DG_LAUNCH(angle_rows, n_row, N_THREAD, 0, stream, cosines, sines, position, frequency,
                     n_pair);
}

/* ---- the router ----
 *
 * Two launches. The first multiplies: a block has ROUTE_ROWS rows, ROUTE_EXPERTS experts and one of
 * ROUTE_PARTS parts of k, so that a canvas of 256 rows over 128 experts is 256 blocks that together
 * read x twice and W eight times from L2. The norm's factor is the same for a whole row and is
 * applied behind the sums. The second adds the parts in order and picks: a warp a row. */

enum {
    ROUTE_ROWS = 32,
    ROUTE_EXPERTS = 64,
    ROUTE_PARTS = 16,
    ROUTE_K = 32,
    ROUTE_THREAD = 128,
    ROUTE_STAGES = 3
};
enum {
    ROUTE_LD = ROUTE_K + 4
}; /* eight lanes that read 16 bytes of neighbouring rows meet all banks once */
enum { ROUTE_STAGE = (ROUTE_ROWS + ROUTE_EXPERTS) * ROUTE_LD };
enum { MAX_EXPERT = 1024, MAX_USED = 64 };

/* Values of k in a part: whole steps. */
static __host__ __device__ __forceinline__ int route_part(int n)
{
    int each = (n + ROUTE_PARTS - 1) / ROUTE_PARTS;
    return (each + ROUTE_K - 1) / ROUTE_K * ROUTE_K;
}

/* Sums of one row and part: n_expert products, then the squares of x. */
static __host__ __device__ __forceinline__ size_t route_ld(int n_expert)
{
    return (size_t)n_expert + 1;
}

extern "C" size_t dg_cuda_route_bytes(int max_row, int n_expert)
{
    return (size_t)max_row * ROUTE_PARTS * route_ld(n_expert) * sizeof(float);
}

/* ROUTE_K values of n_line lines from k on into shared memory; zeros beyond n and beyond the last
 * line. Pieces of 16 bytes by cp.async, or value by value where lines are not aligned. */
static __device__ __forceinline__ void route_fetch(float *to, const float *from, int first,
                                                   int n_line, int n_all, int k, int end, int n)
{
    bool pieces = n % 4 == 0;
    int step = pieces ? 4 : 1, per_line = ROUTE_K / step;
    for (int i = (int)threadIdx.x; i < n_line * per_line; i += ROUTE_THREAD) {
        int line = i / per_line, at = i % per_line * step;
        bool there = first + line < n_all && k + at < end;
        const float *p = from + (there ? (size_t)(first + line) * (size_t)n + (size_t)(k + at) : 0);
        if (pieces)
            dg_cp_async16_if(to + line * ROUTE_LD + at, p, there);
        else
            to[line * ROUTE_LD + at] = there ? *p : 0;
    }
}

/* Multiplies a stage's x by the scale, eight values a thread, and gives the sum of their squares
 * before that. */
static __device__ __forceinline__ float route_scale(float *x, const float *scale, int k, int end)
{
    int line = (int)threadIdx.x / 4, at = (int)threadIdx.x % 4 * 8;
    float *mine = x + line * ROUTE_LD + at, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float value = mine[i], factor = k + at + i < end ? scale[k + at + i] : 0;
        sum += value * value;
        mine[i] = value * factor;
    }
    return sum;
}

static __global__ void __launch_bounds__(ROUTE_THREAD) route_products(dg_cuda_route_args a)
{
    DG_SHARED(shared);
    float *ring = (float *)shared;
    dg_grid_wait();
    int t = (int)threadIdx.x, first_row = (int)blockIdx.x * ROUTE_ROWS,
        first_expert = (int)blockIdx.y * ROUTE_EXPERTS;
    int part = route_part(a.n), begin = (int)blockIdx.z * part, end = min(a.n, begin + part);
    int n_step = (max(end - begin, 0) + ROUTE_K - 1) / ROUTE_K;
    int mine_row = t / 16,
        mine_expert = t % 16; /* rows mine + 8 i, experts mine + 16 j, four of each */
    float acc[4][4] = {}, squares = 0;

    for (int s = 0; s < ROUTE_STAGES - 1; s++) {
        float *stage = ring + s * ROUTE_STAGE;
        if (s < n_step) {
            route_fetch(stage, a.x, first_row, ROUTE_ROWS, a.n_row, begin + s * ROUTE_K, end, a.n);
            route_fetch(stage + ROUTE_ROWS * ROUTE_LD, a.w, first_expert, ROUTE_EXPERTS, a.n_expert,
                        begin + s * ROUTE_K, end, a.n);
        }
        dg_cp_async_commit();
    }
    for (int s = 0; s < n_step; s++) {
        dg_cp_async_wait<ROUTE_STAGES - 2>();
        __syncthreads(); /* this stage is there for all, and all have read the one that is filled
                            next */
        int next = s + ROUTE_STAGES - 1;
        if (next < n_step) {
            float *stage = ring + next % ROUTE_STAGES * ROUTE_STAGE;
            route_fetch(stage, a.x, first_row, ROUTE_ROWS, a.n_row, begin + next * ROUTE_K, end,
                        a.n);
            route_fetch(stage + ROUTE_ROWS * ROUTE_LD, a.w, first_expert, ROUTE_EXPERTS, a.n_expert,
                        begin + next * ROUTE_K, end, a.n);
        }
        dg_cp_async_commit();

        float *x = ring + s % ROUTE_STAGES * ROUTE_STAGE;
        const float *w = x + ROUTE_ROWS * ROUTE_LD;
        squares += route_scale(x, a.scale, begin + s * ROUTE_K, end);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ROUTE_K; k += 4) {
            values<4> xs[4], ws[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                xs[i] = load<4>(x + (mine_row + 8 * i) * ROUTE_LD + k);
                ws[i] = load<4>(w + (mine_expert + 16 * i) * ROUTE_LD + k);
            }
#pragma unroll
            for (int l = 0; l < 4; l++)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        acc[i][j] += xs[i].v[l] * ws[j].v[l];
        }
    }

    squares += __shfl_xor_sync(DG_ALL_LANES, squares, 1);
    squares += __shfl_xor_sync(DG_ALL_LANES, squares, 2);
    float *sums = (float *)a.scratch + blockIdx.z * route_ld(a.n_expert);
    size_t row_ld = ROUTE_PARTS * route_ld(a.n_expert);
    if (blockIdx.y == 0 && t % 4 == 0 && first_row + t / 4 < a.n_row)
        sums[(size_t)(first_row + t / 4) * row_ld + a.n_expert] = squares;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int row = first_row + mine_row + 8 * i, expert = first_expert + mine_expert + 16 * j;
            if (row < a.n_row && expert < a.n_expert)
                sums[(size_t)row * row_ld + expert] = acc[i][j];
        }
}

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

static __global__ void __launch_bounds__(32 * PICK_WARPS) route_pick(dg_cuda_route_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32,
        row = (int)blockIdx.x * PICK_WARPS + warp;
    if (row >= a.n_row)
        return;
    float *p =
        (float *)shared + warp * a.n_expert; /* each lane reads and writes its own entries alone */
    const float *sums = (const float *)a.scratch + (size_t)row * ROUTE_PARTS * route_ld(a.n_expert);
    size_t ld = route_ld(a.n_expert);

    float squares = sums[a.n_expert];
    for (int part = 1; part < ROUTE_PARTS; part++)
        squares += sums[part * ld + a.n_expert];
    float factor = norm_factor(squares, a.n, a.eps) / sqrtf((float)a.n);
    float most = -INFINITY;
    for (int e = lane; e < a.n_expert; e += 32) {
        float logit = sums[e];
        for (int part = 1; part < ROUTE_PARTS; part++)
            logit += sums[part * ld + e];
        p[e] = logit * factor;
        most = fmaxf(most, p[e]);
    }
    most = dg_warp_max(most);
    float sum = 0;
    for (int e = lane; e < a.n_expert; e += 32) {
        p[e] = expf(p[e] - most);
        sum += p[e];
    }
    sum = dg_warp_sum(sum);

    /* What is no number is picked last, but picked: an index is always one of an expert's. */
    float chosen_sum = 0, chosen[MAX_USED / 32] = {};
    for (int j = 0; j < a.n_used; j++) {
        float best = -1;
        int at = a.n_expert;
        for (int e = lane; e < a.n_expert; e += 32) {
            float v = p[e] == -2 ? -2 : p[e] >= 0 ? p[e] : -0.5f;
            if (v > best) {
                best = v;
                at = e;
            }
        }
        warp_argmax(&best, &at);
        float mine = at % 32 == lane ? p[at] / sum : 0;
        if (at % 32 == lane)
            p[at] = -2; /* taken */
        float value = __shfl_sync(DG_ALL_LANES, mine, at % 32);
        chosen_sum += value;
        if (j % 32 == lane) {
            chosen[j / 32] = value;
            a.expert[(size_t)row * a.n_used + j] = at;
        }
    }
    for (int j = lane; j < a.n_used; j += 32) {
        size_t to = (size_t)row * a.n_used + j;
        a.weight[to] = chosen[j / 32] / chosen_sum * a.expert_scale[a.expert[to]];
    }
}

extern "C" cudaError_t dg_cuda_route(cudaStream_t stream, const dg_cuda_route_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (a->n_expert > MAX_EXPERT || a->n_used > MAX_USED || a->n_used > a->n_expert ||
        !aligned(a->x) || !aligned(a->w))
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(a->n_row + ROUTE_ROWS - 1) / ROUTE_ROWS,
              (unsigned)(a->n_expert + ROUTE_EXPERTS - 1) / ROUTE_EXPERTS, ROUTE_PARTS);
    cudaError_t error = DG_LAUNCH(route_products, grid, ROUTE_THREAD,
                                  ROUTE_STAGES * ROUTE_STAGE * sizeof(float), stream, *a);
    if (error)
        return error;
    return DG_LAUNCH(route_pick, (unsigned)(a->n_row + PICK_WARPS - 1) / PICK_WARPS,
                     32 * PICK_WARPS, (size_t)PICK_WARPS * (size_t)a->n_expert * sizeof(float),
                     stream, *a);
}
