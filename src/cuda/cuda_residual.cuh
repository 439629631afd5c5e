/* What the kernels share that add to the residual stream and make the norms that start from it: a
 * row is kept in a block's registers, PER pieces of V values a thread. */
#ifndef DG_CUDA_CUDA_RESIDUAL_CUH
#define DG_CUDA_CUDA_RESIDUAL_CUH

#include "cuda/cuda_rows.cuh"

template <int V, int PER> struct row {
    values<V> at[PER];
};

/* Where a thread's pieces begin: from one to the next are PIECE_STEP values, and those that begin
 * in front of n are there. Addresses that differ by a constant take no instructions. */
template <int V> static constexpr int PIECE_STEP = N_THREAD *V;

template <int V> static __device__ __forceinline__ int first_of(void)
{
    return (int)threadIdx.x * V;
}

template <int V, int PER>
static __device__ __forceinline__ row<V, PER> load_row(const float *x, int n)
{
    row<V, PER> out = {};
    x += first_of<V>();
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (first_of<V>() + j * PIECE_STEP<V> < n)
            out.at[j] = load<V>(x + j * PIECE_STEP<V>);
    return out;
}

/* The same of what kernels before the last one wrote, past the first-level cache: it may be asked
 * for before dg_grid_wait. */
template <int V, int PER>
static __device__ __forceinline__ row<V, PER> load_row_early(const float *x, int n)
{
    row<V, PER> out = {};
    x += first_of<V>();
#pragma unroll
    for (int j = 0; j < PER; j++) {
        if (first_of<V>() + j * PIECE_STEP<V> >= n)
            continue;
        if constexpr (V == 4) {
            float4 f = __ldcg((const float4 *)(x + j * PIECE_STEP<V>));
            out.at[j] = {f.x, f.y, f.z, f.w};
        } else
            out.at[j].v[0] = __ldcg(x + j * PIECE_STEP<V>);
    }
    return out;
}

template <int V, int PER>
static __device__ __forceinline__ void store_row(float *x, const row<V, PER> &r, int n)
{
    x += first_of<V>();
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (first_of<V>() + j * PIECE_STEP<V> < n)
            store<V>(x + j * PIECE_STEP<V>, r.at[j]);
}

template <int V, int PER> static __device__ __forceinline__ float squares_of(const row<V, PER> &r)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
        sum += sum_of_squares<V>(r.at[j]);
    return sum;
}

/* The weight of a norm, asked for early where there is room, or when it is needed. */
template <int V, int PER> struct weight_row {
    static constexpr bool EARLY = V * PER <= 12;
    const float *w;
    row<V, EARLY ? PER : 1> kept;
};

template <int V, int PER>
static __device__ __forceinline__ weight_row<V, PER> weight_of(const float *w, int n)
{
    weight_row<V, PER> out = {};
    out.w = w;
    if constexpr (weight_row<V, PER>::EARLY) {
        if (w)
            out.kept = load_row<V, PER>(w, n);
        else
            for (int j = 0; j < PER; j++)
                out.kept.at[j] = load_weight<V>(NULL, 0);
    }
    return out;
}

/* The same of one that there is. */
template <int V, int PER>
static __device__ __forceinline__ weight_row<V, PER> sure_weight_of(const float *w, int n)
{
    weight_row<V, PER> out = {};
    out.w = w;
    if constexpr (weight_row<V, PER>::EARLY)
        out.kept = load_row<V, PER>(w, n);
    return out;
}

/* Piece j of the weight; NULL: ones. */
template <int V, int PER>
static __device__ __forceinline__ values<V> weight_at(const weight_row<V, PER> &w, int j, int n)
{
    int i = first_of<V>() + j * PIECE_STEP<V>;
    if constexpr (weight_row<V, PER>::EARLY)
        return w.kept.at[j];
    else
        return load_weight<V>(i < n ? w.w : NULL, i);
}

/* Piece j of a norm. */
template <int V, int PER>
static __device__ __forceinline__ values<V> normed_at(const row<V, PER> &r,
                                                      const weight_row<V, PER> &w, int j, int n,
                                                      float factor)
{
    values<V> a = r.at[j], g = weight_at<V, PER>(w, j, n);
    for (int v = 0; v < V; v++)
        a.v[v] = a.v[v] * factor * g.v[v];
    return a;
}

/* A norm as a row of E4M3, with the factor that its largest value asks for. */
template <int V, int PER>
static __device__ __forceinline__ void store_norm_bytes(const row<V, PER> &r,
                                                        const dg_cuda_rows &out,
                                                        const weight_row<V, PER> &w, float *part,
                                                        int at, int n, float factor)
{
    unsigned char *bytes = bytes_of_row(out, at);
    int most = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (first_of<V>() + j * PIECE_STEP<V> < n)
            most = max(most, most_of<V>(normed_at<V, PER>(r, w, j, n, factor)));
    float of_row = dg_fp8_factor(block_most(most, part)), per = 1 / of_row;
    unsigned char *to = bytes + first_of<V>();
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (first_of<V>() + j * PIECE_STEP<V> < n)
            store_bytes<V>(to, j * PIECE_STEP<V>, normed_at<V, PER>(r, w, j, n, factor), per);
    for (int i = n + (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V)
        store_bytes<V>(bytes, i, values<V>{}, 1);
    if (threadIdx.x == 0)
        *factor_of_row(out, at) = of_row;
}

/* A norm as a row of another form. */
template <int V, int PER, dg_cuda_form FORM>
static __device__ __forceinline__ void store_norm(const row<V, PER> &r, const dg_cuda_rows &out,
                                                  const weight_row<V, PER> &w, int at, int n,
                                                  float factor)
{
    size_t begin = (size_t)at * (size_t)out.ld + (size_t)first_of<V>();
    void *to = FORM == DG_CUDA_F32 ? (void *)((float *)out.data + begin)
                                   : (void *)((uint16_t *)out.data + begin);
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (first_of<V>() + j * PIECE_STEP<V> < n)
            store_form<V>(FORM, to, j * PIECE_STEP<V>, normed_at<V, PER>(r, w, j, n, factor));
    for (int i = n; first_of<V>() + i < out.ld; i += PIECE_STEP<V>)
        store_form<V>(FORM, to, (size_t)i, values<V>{});
}

/* The norms that start from a row, into rows as products read them. */
template <int V, int PER>
static __device__ __forceinline__ void store_norms(const row<V, PER> &r, const dg_cuda_next *next,
                                                   const weight_row<V, PER> *w, float *part, int at,
                                                   int n, float share, float eps)
{
    if (!next[0].out.data)
        return;
    float factor = dg_norm_factor(block_sum(squares_of<V, PER>(r), part), share, eps);
#pragma unroll
    for (int o = 0; o < 2; o++) {
        const dg_cuda_rows &out = next[o].out;
        if (!out.data)
            continue;
        if (out.form == DG_CUDA_E4M3)
            store_norm_bytes<V, PER>(r, out, w[o], part + (o + 1) * N_WARP, at, n, factor);
        else if (out.form == DG_CUDA_BF16)
            store_norm<V, PER, DG_CUDA_BF16>(r, out, w[o], at, n, factor);
        else if (out.form == DG_CUDA_F16)
            store_norm<V, PER, DG_CUDA_F16>(r, out, w[o], at, n, factor);
        else
            store_norm<V, PER, DG_CUDA_F32>(r, out, w[o], at, n, factor);
    }
}

/* ---- x + norm ---- */

template <int V, int PER>
static __device__ __forceinline__ void add_norm_to(row<V, PER> *x, const row<V, PER> &y,
                                                   const weight_row<V, PER> &w, int n, float factor)
{
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> g = weight_at<V, PER>(w, j, n);
        for (int v = 0; v < V; v++)
            x->at[j].v[v] = fmaf(y.at[j].v[v] * factor, g.v[v], x->at[j].v[v]);
    }
}

/* ---- the end of a layer ---- */

template <int V, int PER> struct join_weights {
    weight_row<V, PER> dense, experts, both, next[2];
};

template <int V, int PER>
static __device__ __forceinline__ join_weights<V, PER> join_weights_of(const dg_cuda_join_args &a)
{
    return join_weights<V, PER>{
        sure_weight_of<V, PER>(a.w_dense, a.n),
        sure_weight_of<V, PER>(a.w_experts, a.n),
        sure_weight_of<V, PER>(a.w, a.n),
        {weight_of<V, PER>(a.next[0].w, a.n), weight_of<V, PER>(a.next[1].w, a.n)}};
}

/* Of the dense branch, to which the experts' norm is added. */
template <int V, int PER>
static __device__ __forceinline__ void join_branches(row<V, PER> *dense, const row<V, PER> &experts,
                                                     const join_weights<V, PER> &w, int n,
                                                     float f_dense, float f_experts)
{
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> gd = weight_at<V, PER>(w.dense, j, n), ge = weight_at<V, PER>(w.experts, j, n);
        for (int v = 0; v < V; v++)
            dense->at[j].v[v] = fmaf(dense->at[j].v[v] * f_dense, gd.v[v],
                                     __fmul_rn(experts.at[j].v[v] * f_experts, ge.v[v]));
    }
}

/* Row `at` of the residual stream. */
template <int V, int PER>
static __device__ __forceinline__ void join_stream(row<V, PER> *x, const row<V, PER> &both,
                                                   const join_weights<V, PER> &w,
                                                   const dg_cuda_join_args &a, int at, float factor)
{
    float scalar = at < a.n_encode ? a.scalar_encode : a.scalar_canvas;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> g = weight_at<V, PER>(w.both, j, a.n);
        for (int v = 0; v < V; v++)
            x->at[j].v[v] = fmaf(both.at[j].v[v] * factor, g.v[v], x->at[j].v[v]) * scalar;
    }
}

/* ---- many rows (cuda_residual_many.cu) ---- */

/* Choices of a row at most: a warp copies each. */
enum { JOIN_CHOICES = 8 };

/* Whether rows of n values are many, and the device has room for them. */
bool dg_cuda_rows_are_many(int n_row, int n);
cudaError_t dg_cuda_add_many(cudaStream_t stream, const dg_cuda_add_args *a);
/* Of sums of choices in bfloat16. */
cudaError_t dg_cuda_join_many(cudaStream_t stream, const dg_cuda_join_args *a);

#endif
