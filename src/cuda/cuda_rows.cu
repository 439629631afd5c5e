/* Stages that treat each row by itself: norms, sums into the residual stream, the embedding,
 * angles.
 *
 * A row belongs to one block of a fixed shape, and every sum runs in the order that follows from
 * the row's length alone. */
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
