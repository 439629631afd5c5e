/* Into the residual stream, and the norms that start from it: a block a row, which it keeps in
 * registers, PER pieces of V values a thread. What is needed behind a sum is asked for before it
 * where there is room. With MANY rows nothing is: then registers are for more blocks at a time, and
 * weights are near, as every block before wanted them. */
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_words.h"

template <int V, int PER> struct row {
    values<V> at[PER];
};

template <int V, int PER>
static __device__ __forceinline__ row<V, PER> load_row(const float *x, int n)
{
    row<V, PER> out = {};
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = ((int)threadIdx.x + j * N_THREAD) * V;
        if (i < n)
            out.at[j] = load<V>(x + i);
    }
    return out;
}

/* The same of what kernels before the last one wrote, past the first-level cache: it may be asked
 * for before dg_grid_wait. */
template <int V, int PER>
static __device__ __forceinline__ row<V, PER> load_row_early(const float *x, int n)
{
    row<V, PER> out = {};
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = ((int)threadIdx.x + j * N_THREAD) * V;
        if (i >= n)
            continue;
        if constexpr (V == 4) {
            float4 f = __ldcg((const float4 *)(x + i));
            out.at[j] = {f.x, f.y, f.z, f.w};
        } else
            out.at[j].v[0] = __ldcg(x + i);
    }
    return out;
}

template <int V, int PER>
static __device__ __forceinline__ void store_row(float *x, const row<V, PER> &r, int n)
{
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = ((int)threadIdx.x + j * N_THREAD) * V;
        if (i < n)
            store<V>(x + i, r.at[j]);
    }
}

template <int V, int PER> static __device__ __forceinline__ float squares_of(const row<V, PER> &r)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
        sum += sum_of_squares<V>(r.at[j]);
    return sum;
}

/* The weight of a norm, asked for early or when it is needed. */
template <int V, int PER, bool MANY> struct weight_row {
    static constexpr bool EARLY = !MANY && V * PER <= 12;
    const float *w;
    row<V, EARLY ? PER : 1> kept;
};

template <int V, int PER, bool MANY>
static __device__ __forceinline__ weight_row<V, PER, MANY> weight_of(const float *w, int n)
{
    weight_row<V, PER, MANY> out = {};
    out.w = w;
    if constexpr (weight_row<V, PER, MANY>::EARLY)
        if (w)
            out.kept = load_row<V, PER>(w, n);
    return out;
}

/* Piece j of the weight; NULL: ones. */
template <int V, int PER, bool MANY>
static __device__ __forceinline__ values<V> weight_at(const weight_row<V, PER, MANY> &w, int j,
                                                      int n)
{
    int i = ((int)threadIdx.x + j * N_THREAD) * V;
    if constexpr (weight_row<V, PER, MANY>::EARLY)
        if (w.w)
            return w.kept.at[j];
    return load_weight<V>(i < n ? w.w : NULL, i);
}

/* Piece j of a norm. */
template <int V, int PER, bool MANY>
static __device__ __forceinline__ values<V> normed_at(const row<V, PER> &r,
                                                      const weight_row<V, PER, MANY> &w, int j,
                                                      int n, float factor)
{
    values<V> a = r.at[j], g = weight_at<V, PER, MANY>(w, j, n);
    for (int v = 0; v < V; v++)
        a.v[v] = a.v[v] * factor * g.v[v];
    return a;
}

/* A norm as a row of E4M3, with the factor that its largest value asks for. */
template <int V, int PER, bool MANY>
static __device__ __forceinline__ void store_norm_bytes(const row<V, PER> &r,
                                                        const dg_cuda_rows &out,
                                                        const weight_row<V, PER, MANY> &w,
                                                        float *part, int n, float factor)
{
    unsigned char *bytes = bytes_of_row(out, (int)blockIdx.x);
    int most = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (((int)threadIdx.x + j * N_THREAD) * V < n)
            most = max(most, most_of<V>(normed_at<V, PER, MANY>(r, w, j, n, factor)));
    float of_row = dg_fp8_factor(block_most(most, part)), per = 1 / of_row;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = ((int)threadIdx.x + j * N_THREAD) * V;
        if (i < n)
            store_bytes<V>(bytes, i, normed_at<V, PER, MANY>(r, w, j, n, factor), per);
    }
    for (int i = n + (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V)
        store_bytes<V>(bytes, i, values<V>{}, 1);
    if (threadIdx.x == 0)
        *factor_of_row(out, (int)blockIdx.x) = of_row;
}

/* The norms that start from a row, into rows as products read them. */
template <int V, int PER, bool MANY>
static __device__ __forceinline__ void store_norms(const row<V, PER> &r, const dg_cuda_next *next,
                                                   const weight_row<V, PER, MANY> *w, float *part,
                                                   int n, float eps)
{
    if (!next[0].out.data)
        return;
    float factor = norm_factor(block_sum(squares_of<V, PER>(r), part), n, eps);
#pragma unroll
    for (int o = 0; o < 2; o++) {
        dg_cuda_rows out = next[o].out;
        if (!out.data)
            continue;
        if (out.form == DG_CUDA_E4M3) {
            store_norm_bytes<V, PER, MANY>(r, out, w[o], part + (o + 1) * N_WARP, n, factor);
            continue;
        }
        size_t begin = (size_t)blockIdx.x * (size_t)out.ld;
#pragma unroll
        for (int j = 0; j < PER; j++) {
            int i = ((int)threadIdx.x + j * N_THREAD) * V;
            if (i < n)
                store_form<V>(out.form, out.data, begin + (size_t)i,
                              normed_at<V, PER, MANY>(r, w[o], j, n, factor));
        }
        for (int i = n + (int)threadIdx.x * V; i < out.ld; i += N_THREAD * V)
            store_form<V>(out.form, out.data, begin + (size_t)i, values<V>{});
    }
}

/* ---- x + norm: the kernel before it writes y alone ---- */

/* Blocks that a multiprocessor has at least. */
template <bool MANY> static constexpr int blocks_at_least = MANY ? 4 : 1;

template <int V, int PER, bool MANY = false>
static __global__ void __launch_bounds__(N_THREAD, blocks_at_least<MANY>)
    add_rows(dg_cuda_add_args a)
{
    __shared__ float part[4][N_WARP];
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> x = load_row_early<V, PER>(a.x + begin, a.n);
    weight_row<V, PER, MANY> w = weight_of<V, PER, MANY>(a.w, a.n),
                             next[2] = {weight_of<V, PER, MANY>(a.next[0].w, a.n),
                                        weight_of<V, PER, MANY>(a.next[1].w, a.n)};
    dg_grid_wait();
    dg_grid_launch_next();
    row<V, PER> y = load_row<V, PER>(a.y + begin, a.n);
    float factor = norm_factor(block_sum(squares_of<V, PER>(y), part[0]), a.n, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> g = weight_at<V, PER, MANY>(w, j, a.n);
        for (int v = 0; v < V; v++)
            x.at[j].v[v] = fmaf(y.at[j].v[v] * factor, g.v[v], x.at[j].v[v]);
    }
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER, MANY>(x, a.next, next, part[1], a.n, a.eps);
}

/* ---- self-conditioning ---- */

/* What it starts from was there before the kernel before it. */
template <int V, int PER, bool MANY = false>
static __global__ void __launch_bounds__(N_THREAD, blocks_at_least<MANY>)
    soft_rows(dg_cuda_next out, const dg_cuda_word_row *rows, int n, float eps)
{
    __shared__ float part[2][N_WARP];
    const dg_cuda_word_row *word = rows + blockIdx.x;
    const dg_cuda_next next[2] = {out};
    int first_step = __ldcg(&word->first_step);
    const float *soft = (const float *)__ldcg((const unsigned long long *)&word->soft);
    weight_row<V, PER, MANY> w[2] = {weight_of<V, PER, MANY>(out.w, n)};
    bool is_there = soft && !first_step;
    row<V, PER> r = {};
    if (is_there)
        r = load_row_early<V, PER>(soft, n);
    dg_grid_wait();
    dg_grid_launch_next();
    store_norms<V, PER, MANY>(r, next, w, part[0], n, is_there ? eps : 1);
}

/* The kernel before it writes y alone. */
template <int V, int PER, bool MANY = false>
static __global__ void __launch_bounds__(N_THREAD, blocks_at_least<MANY>)
    soft_join_rows(dg_cuda_soft_join_args a)
{
    __shared__ float part[4][N_WARP];
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> x = load_row_early<V, PER>(a.x + begin, a.n);
    weight_row<V, PER, MANY> next[2] = {weight_of<V, PER, MANY>(a.next[0].w, a.n),
                                        weight_of<V, PER, MANY>(a.next[1].w, a.n)};
    dg_grid_wait();
    dg_grid_launch_next();
    row<V, PER> y = load_row<V, PER>(a.y + begin, a.n);
#pragma unroll
    for (int j = 0; j < PER; j++)
        for (int v = 0; v < V; v++)
            x.at[j].v[v] += y.at[j].v[v];
    float factor = norm_factor(block_sum(squares_of<V, PER>(x), part[0]), a.n, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++)
        for (int v = 0; v < V; v++)
            x.at[j].v[v] *= factor;
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER, MANY>(x, a.next, next, part[1], a.n, a.eps);
}

/* ---- the end of a layer ---- */

/* Four values as they are stored. */
template <dg_cuda_form FORM> struct stored_four {
    uint2 bits;
    static __device__ __forceinline__ stored_four at(const void *data, size_t at)
    {
        return stored_four{*(const uint2 *)((const uint16_t *)data + at)};
    }
    __device__ __forceinline__ float value(int i) const
    {
        uint32_t pair = i < 2 ? bits.x : bits.y;
        return i % 2 ? dg_bf16_high(pair) : dg_bf16_low(pair);
    }
};

template <> struct stored_four<DG_CUDA_F32> {
    values<4> four;
    static __device__ __forceinline__ stored_four at(const void *data, size_t at)
    {
        return stored_four{load<4>((const float *)data + at)};
    }
    __device__ __forceinline__ float value(int i) const
    {
        return four.v[i];
    }
};

/* Some of a row's choices: where their values begin, and their weights. */
template <int AT_ONCE> struct some_choices {
    size_t begin[AT_ONCE];
    float weight[AT_ONCE];
};

template <int AT_ONCE>
static __device__ __forceinline__ some_choices<AT_ONCE> choices_from(const dg_cuda_choices &c,
                                                                     int first)
{
    some_choices<AT_ONCE> some;
    size_t pair = (size_t)blockIdx.x * (size_t)c.n_used;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        size_t at = pair + (size_t)min(first + j, c.n_used - 1);
        some.begin[j] = (size_t)__ldcg(c.place + at) * (size_t)c.in.ld;
        some.weight[j] = __ldcg(c.weight + at);
    }
    return some;
}

/* The sum over a row's choices in their order, `now` the first of them; AT_ONCE are on their way at
 * once. */
template <dg_cuda_form FORM, int PER, int AT_ONCE>
static __device__ __forceinline__ row<4, PER> sum_choices(const dg_cuda_choices &c,
                                                          some_choices<AT_ONCE> now, int n)
{
    row<4, PER> sum = {};
#pragma unroll 1
    for (int first = 0; first < c.n_used; first += AT_ONCE) {
        stored_four<FORM> v[AT_ONCE][PER] = {};
        if (first > 0)
            now = choices_from<AT_ONCE>(c, first);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int p = 0; p < PER; p++) {
                int i = ((int)threadIdx.x + p * N_THREAD) * 4;
                if (i < n)
                    v[j][p] = stored_four<FORM>::at(c.in.data, now.begin[j] + (size_t)i);
            }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (first + j >= c.n_used)
                break;
#pragma unroll
            for (int p = 0; p < PER; p++)
                for (int i = 0; i < 4; i++)
                    sum.at[p].v[i] = fmaf(now.weight[j], v[j][p].value(i), sum.at[p].v[i]);
        }
    }
    return sum;
}

/* The kernel before it writes the experts' values alone; SUMS: they are sums of choices in this
 * form. */
enum { NO_SUMS = -1 };

template <int V, int PER, int SUMS = NO_SUMS, bool MANY = false>
static __global__ void __launch_bounds__(N_THREAD, blocks_at_least<MANY>)
    join_rows(dg_cuda_join_args a)
{
    __shared__ float part[6][N_WARP];
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> e, d, x;
    if (!MANY) {
        d = load_row_early<V, PER>(a.dense + begin, a.n);
        x = load_row_early<V, PER>(a.x + begin, a.n);
    }
    if constexpr (SUMS == NO_SUMS) {
        dg_grid_wait();
        dg_grid_launch_next();
        e = load_row<V, PER>(a.experts + begin, a.n);
    } else {
        constexpr dg_cuda_form FORM = (dg_cuda_form)SUMS;
        constexpr int AT_ONCE = MANY || FORM == DG_CUDA_F32 ? 4 : 8;
        some_choices<AT_ONCE> first = choices_from<AT_ONCE>(a.choices, 0);
        dg_grid_wait();
        dg_grid_launch_next();
        e = sum_choices<FORM, PER, AT_ONCE>(a.choices, first, a.n);
    }
    if (MANY) {
        d = load_row_early<V, PER>(a.dense + begin, a.n);
        x = load_row_early<V, PER>(a.x + begin, a.n);
    }
    weight_row<V, PER, MANY> wd = weight_of<V, PER, MANY>(a.w_dense, a.n),
                             we = weight_of<V, PER, MANY>(a.w_experts, a.n),
                             w = weight_of<V, PER, MANY>(a.w, a.n),
                             next[2] = {weight_of<V, PER, MANY>(a.next[0].w, a.n),
                                        weight_of<V, PER, MANY>(a.next[1].w, a.n)};
    float f_dense = norm_factor(block_sum(squares_of<V, PER>(d), part[0]), a.n, a.eps);
    float f_experts = norm_factor(block_sum(squares_of<V, PER>(e), part[1]), a.n, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> gd = weight_at<V, PER, MANY>(wd, j, a.n),
                  ge = weight_at<V, PER, MANY>(we, j, a.n);
        for (int v = 0; v < V; v++)
            d.at[j].v[v] =
                fmaf(d.at[j].v[v] * f_dense, gd.v[v], __fmul_rn(e.at[j].v[v] * f_experts, ge.v[v]));
    }
    float factor = norm_factor(block_sum(squares_of<V, PER>(d), part[2]), a.n, a.eps);
    float scalar = (int)blockIdx.x < a.n_encode ? a.scalar_encode : a.scalar_canvas;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        values<V> g = weight_at<V, PER, MANY>(w, j, a.n);
        for (int v = 0; v < V; v++)
            x.at[j].v[v] = fmaf(d.at[j].v[v] * factor, g.v[v], x.at[j].v[v]) * scalar;
    }
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER, MANY>(x, a.next, next, part[3], a.n, a.eps);
}

/* ---- launches ---- */

/* Rows of 3072 values at a thread's three pieces of four, longer ones, and any other length. */
enum { SHORT_ROW = 3 * 4 * N_THREAD, LONG_ROW = 12 * 4 * N_THREAD, ODD_ROW = 12 * N_THREAD };

/* From here on a multiprocessor has several blocks whatever their registers. */
enum { MANY_ROWS = 512 };

static bool rows_can(const dg_cuda_next *next, int n)
{
    return n <= (n % 4 ? (int)ODD_ROW : (int)LONG_ROW) && aligned(next[0].out.data) &&
           aligned(next[1].out.data) && aligned(next[0].w) && aligned(next[1].w);
}

extern "C" cudaError_t dg_cuda_add_norm(cudaStream_t stream, const dg_cuda_add_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (!rows_can(a->next, a->n) || !aligned(a->x) || !aligned(a->y) || !aligned(a->w))
        return cudaErrorInvalidValue;
    if (a->n % 4)
        return DG_LAUNCH((add_rows<1, 12>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n <= SHORT_ROW)
        return a->n_row >= MANY_ROWS
                   ? DG_LAUNCH((add_rows<4, 3, true>), a->n_row, N_THREAD, 0, stream, *a)
                   : DG_LAUNCH((add_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
    return DG_LAUNCH((add_rows<4, 12>), a->n_row, N_THREAD, 0, stream, *a);
}

extern "C" cudaError_t dg_cuda_soft_norm(cudaStream_t stream, dg_cuda_next out,
                                         const dg_cuda_word_row *row, int n_row, int n, float eps)
{
    const dg_cuda_next next[2] = {out};
    if (n_row == 0)
        return cudaSuccess;
    if (!rows_can(next, n))
        return cudaErrorInvalidValue;
    if (n % 4)
        return DG_LAUNCH((soft_rows<1, 12>), n_row, N_THREAD, 0, stream, out, row, n, eps);
    if (n > SHORT_ROW)
        return DG_LAUNCH((soft_rows<4, 12>), n_row, N_THREAD, 0, stream, out, row, n, eps);
    return n_row >= MANY_ROWS
               ? DG_LAUNCH((soft_rows<4, 3, true>), n_row, N_THREAD, 0, stream, out, row, n, eps)
               : DG_LAUNCH((soft_rows<4, 3>), n_row, N_THREAD, 0, stream, out, row, n, eps);
}

extern "C" cudaError_t dg_cuda_soft_join(cudaStream_t stream, const dg_cuda_soft_join_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (!rows_can(a->next, a->n) || !aligned(a->x) || !aligned(a->y))
        return cudaErrorInvalidValue;
    if (a->n % 4)
        return DG_LAUNCH((soft_join_rows<1, 12>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n > SHORT_ROW)
        return DG_LAUNCH((soft_join_rows<4, 12>), a->n_row, N_THREAD, 0, stream, *a);
    return a->n_row >= MANY_ROWS
               ? DG_LAUNCH((soft_join_rows<4, 3, true>), a->n_row, N_THREAD, 0, stream, *a)
               : DG_LAUNCH((soft_join_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
}

extern "C" bool dg_cuda_join_sums(int n)
{
    return n % 4 == 0 && n <= SHORT_ROW;
}

extern "C" cudaError_t dg_cuda_join(cudaStream_t stream, const dg_cuda_join_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (!rows_can(a->next, a->n) || !aligned(a->x) || !aligned(a->dense) || !aligned(a->experts) ||
        !aligned(a->w_dense) || !aligned(a->w_experts) || !aligned(a->w) ||
        (a->choices.place && !dg_cuda_join_sums(a->n)))
        return cudaErrorInvalidValue;
    if (a->choices.place && a->choices.in.form == DG_CUDA_F32)
        return DG_LAUNCH((join_rows<4, 3, DG_CUDA_F32>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->choices.place && a->n_row >= MANY_ROWS)
        return DG_LAUNCH((join_rows<4, 3, DG_CUDA_BF16, true>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->choices.place)
        return DG_LAUNCH((join_rows<4, 3, DG_CUDA_BF16>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n % 4)
        return DG_LAUNCH((join_rows<1, 12>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n <= SHORT_ROW)
        return DG_LAUNCH((join_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
    return DG_LAUNCH((join_rows<4, 12>), a->n_row, N_THREAD, 0, stream, *a);
}
