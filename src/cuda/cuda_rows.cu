/* Stages that treat each row by itself: norms, the embedding.
 *
 * A row belongs to one block of a fixed shape, and every sum runs in the order that follows from
 * the row's length alone. */
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_blocks.cuh"
#include "cuda/cuda_words.h"

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

/* The same as a row of E4M3. */
template <int V>
static __device__ __forceinline__ void store_normed_bytes(dg_cuda_rows out, const float *row,
                                                          const float *w, float factor, int n,
                                                          float *part)
{
    unsigned char *bytes = bytes_of_row(out, (int)blockIdx.x);
    int most = 0;
    for (int i = (int)threadIdx.x * V; i < n; i += N_THREAD * V) {
        values<V> a = load<V>(row + i), g = load_weight<V>(w, i);
        for (int j = 0; j < V; j++)
            a.v[j] = a.v[j] * factor * g.v[j];
        most = max(most, most_of<V>(a));
    }
    float of_row = dg_fp8_factor(block_most(most, part)), per = 1 / of_row;
    for (int i = (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V) {
        values<V> a = {};
        if (i < n) {
            values<V> g = load_weight<V>(w, i);
            a = load<V>(row + i);
            for (int j = 0; j < V; j++)
                a.v[j] = a.v[j] * factor * g.v[j];
        }
        store_bytes<V>(bytes, i, a, per);
    }
    if (threadIdx.x == 0)
        *factor_of_row(out, (int)blockIdx.x) = of_row;
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
    __shared__ float part[3][N_WARP];
    float *row = (float *)shared;
    dg_grid_wait();
    dg_grid_launch_next();
    float sum = keep_row<V>(row, x + (size_t)blockIdx.x * (size_t)n, n);
    float factor = dg_norm_factor(block_sum(sum, part[0]), dg_norm_share(n), eps);
    if (out.form == DG_CUDA_E4M3)
        store_normed_bytes<V>(out, row, w, factor, n, part[1]);
    else
        store_normed<V>(out, row, w, factor, n);
    if (out2.data && out2.form == DG_CUDA_E4M3)
        store_normed_bytes<V>(out2, row, w2, factor, n, part[2]);
    else if (out2.data)
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

/* ---- rows as they are ---- */

template <int V>
static __global__ void __launch_bounds__(N_THREAD)
    narrow_rows(dg_cuda_rows out, const float *x, int n)
{
    __shared__ float part[N_WARP];
    int r = (int)blockIdx.x, most = 0;
    const float *from = x + (size_t)r * (size_t)n;
    bool bytes = out.form == DG_CUDA_E4M3;
    dg_grid_wait();
    dg_grid_launch_next();
    for (int i = (int)threadIdx.x * V; bytes && i < n; i += N_THREAD * V)
        most = max(most, most_of<V>(load<V>(from + i)));
    float of_row = bytes ? dg_fp8_factor(block_most(most, part)) : 1;
    for (int i = (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V) {
        values<V> some = {};
        if (i < n)
            some = load<V>(from + i);
        if (bytes)
            store_bytes<V>(bytes_of_row(out, r), i, some, 1 / of_row);
        else
            store_form<V>(out.form, out.data, (size_t)r * (size_t)out.ld + (size_t)i, some);
    }
    if (bytes && threadIdx.x == 0)
        *factor_of_row(out, r) = of_row;
}

extern "C" cudaError_t dg_cuda_narrow(cudaStream_t stream, dg_cuda_rows out, const float *x,
                                      int n_row, int n)
{
    if (n_row < 1)
        return cudaSuccess;
    if (n % 4 == 0 && aligned(x) && aligned(out.data))
        return DG_LAUNCH(narrow_rows<4>, n_row, N_THREAD, 0, stream, out, x, n);
    return DG_LAUNCH(narrow_rows<1>, n_row, N_THREAD, 0, stream, out, x, n);
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
