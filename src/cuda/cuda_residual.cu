/* Into the residual stream, and the norms that start from it: a block a row. What is needed behind
 * a sum is asked for before it where there is room. Many rows have kernels of their own
 * (cuda_residual_many.cu), with the same bits. */
#include "cuda/cuda_residual.cuh"
#include "cuda/cuda_words.h"

/* ---- x + norm: the kernel before it writes y alone ---- */

template <int V, int PER>
static __global__ void __launch_bounds__(N_THREAD) add_rows(dg_cuda_add_args a)
{
    __shared__ float part[4][N_WARP];
    float share = dg_norm_share(a.n);
    dg_find_now(share);
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> x = load_row_early<V, PER>(a.x + begin, a.n);
    weight_row<V, PER> w = sure_weight_of<V, PER>(a.w, a.n),
                       next[2] = {weight_of<V, PER>(a.next[0].w, a.n),
                                  weight_of<V, PER>(a.next[1].w, a.n)};
    dg_grid_wait();
    dg_grid_launch_next();
    row<V, PER> y = load_row<V, PER>(a.y + begin, a.n);
    float factor = dg_norm_factor(block_sum(squares_of<V, PER>(y), part[0]), share, a.eps);
    add_norm_to<V, PER>(&x, y, w, a.n, factor);
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER>(x, a.next, next, part[1], (int)blockIdx.x, a.n, share, a.eps);
}

/* ---- self-conditioning ---- */

/* What it starts from was there before the kernel before it. */
template <int V, int PER>
static __global__ void __launch_bounds__(N_THREAD)
    soft_rows(dg_cuda_next out, const dg_cuda_word_row *rows, int n, float eps)
{
    __shared__ float part[2][N_WARP];
    float share = dg_norm_share(n);
    dg_find_now(share);
    const dg_cuda_word_row *word = rows + blockIdx.x;
    const dg_cuda_next next[2] = {out};
    int first_step = __ldcg(&word->first_step);
    const float *soft = (const float *)__ldcg((const unsigned long long *)&word->soft);
    weight_row<V, PER> w[2] = {weight_of<V, PER>(out.w, n)};
    bool is_there = soft && !first_step;
    row<V, PER> r = {};
    if (is_there)
        r = load_row_early<V, PER>(soft, n);
    dg_grid_wait();
    dg_grid_launch_next();
    store_norms<V, PER>(r, next, w, part[0], (int)blockIdx.x, n, share, is_there ? eps : 1);
}

/* The kernel before it writes y alone. */
template <int V, int PER>
static __global__ void __launch_bounds__(N_THREAD) soft_join_rows(dg_cuda_soft_join_args a)
{
    __shared__ float part[4][N_WARP];
    float share = dg_norm_share(a.n);
    dg_find_now(share);
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> x = load_row_early<V, PER>(a.x + begin, a.n);
    weight_row<V, PER> next[2] = {weight_of<V, PER>(a.next[0].w, a.n),
                                  weight_of<V, PER>(a.next[1].w, a.n)};
    dg_grid_wait();
    dg_grid_launch_next();
    row<V, PER> y = load_row<V, PER>(a.y + begin, a.n);
#pragma unroll
    for (int j = 0; j < PER; j++)
        for (int v = 0; v < V; v++)
            x.at[j].v[v] += y.at[j].v[v];
    float factor = dg_norm_factor(block_sum(squares_of<V, PER>(x), part[0]), share, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++)
        for (int v = 0; v < V; v++)
            x.at[j].v[v] *= factor;
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER>(x, a.next, next, part[1], (int)blockIdx.x, a.n, share, a.eps);
}

/* ---- the end of a layer ---- */

/* Four values as they are stored. */
template <dg_cuda_form FORM> struct stored_four {
    uint2 bits;
    static __device__ __forceinline__ stored_four at(const unsigned char *data)
    {
        return stored_four{*(const uint2 *)data};
    }
    __device__ __forceinline__ float value(int i) const
    {
        uint32_t pair = i < 2 ? bits.x : bits.y;
        return i % 2 ? dg_bf16_high(pair) : dg_bf16_low(pair);
    }
};

template <> struct stored_four<DG_CUDA_F32> {
    values<4> four;
    static __device__ __forceinline__ stored_four at(const unsigned char *data)
    {
        return stored_four{load<4>((const float *)data)};
    }
    __device__ __forceinline__ float value(int i) const
    {
        return four.v[i];
    }
};

/* Some of a row's choices: where this thread's values of them begin, and their weights. */
template <int AT_ONCE> struct some_choices {
    const unsigned char *begin[AT_ONCE];
    float weight[AT_ONCE];
};

/* SIZE: bytes of a value. */
template <int AT_ONCE, int SIZE>
static __device__ __forceinline__ some_choices<AT_ONCE> choices_from(const dg_cuda_choices &c,
                                                                     int first)
{
    some_choices<AT_ONCE> some;
    size_t pair = (size_t)blockIdx.x * (size_t)c.n_used;
    const unsigned char *data = (const unsigned char *)c.in.data + threadIdx.x * 4 * SIZE;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        size_t at = pair + (size_t)min(first + j, c.n_used - 1);
        some.begin[j] = data + (size_t)__ldcg(c.place + at) * ((size_t)c.in.ld * SIZE);
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
    constexpr int SIZE = FORM == DG_CUDA_F32 ? 4 : 2;
    row<4, PER> sum = {};
#pragma unroll 1
    for (int first = 0; first < c.n_used; first += AT_ONCE) {
        stored_four<FORM> v[AT_ONCE][PER] = {};
        if (first > 0)
            now = choices_from<AT_ONCE, SIZE>(c, first);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int p = 0; p < PER; p++)
                if (first_of<4>() + p * PIECE_STEP<4> < n)
                    v[j][p] = stored_four<FORM>::at(now.begin[j] + p * PIECE_STEP<4> * SIZE);
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

/* The kernel before it writes the experts' values alone, so that the dense branch's norm is made
 * while that one ends; SUMS: they are sums of choices in this form. */
enum { NO_SUMS = -1 };

template <int V, int PER, int SUMS = NO_SUMS>
static __global__ void __launch_bounds__(N_THREAD) join_rows(dg_cuda_join_args a)
{
    __shared__ float part[6][N_WARP];
    float share = dg_norm_share(a.n);
    dg_find_now(share);
    size_t begin = (size_t)blockIdx.x * (size_t)a.n;
    row<V, PER> e, d = load_row_early<V, PER>(a.dense + begin, a.n),
                   x = load_row_early<V, PER>(a.x + begin, a.n);
    float f_dense = dg_norm_factor(block_sum(squares_of<V, PER>(d), part[0]), share, a.eps);
    if constexpr (SUMS == NO_SUMS) {
        dg_grid_wait();
        dg_grid_launch_next();
        e = load_row<V, PER>(a.experts + begin, a.n);
    } else {
        constexpr dg_cuda_form FORM = (dg_cuda_form)SUMS;
        constexpr int AT_ONCE = FORM == DG_CUDA_F32 ? 4 : 8, SIZE = FORM == DG_CUDA_F32 ? 4 : 2;
        some_choices<AT_ONCE> first = choices_from<AT_ONCE, SIZE>(a.choices, 0);
        for (int j = 0; j < AT_ONCE; j++)
            dg_find_now(first.begin[j]);
        dg_grid_wait();
        dg_grid_launch_next();
        e = sum_choices<FORM, PER, AT_ONCE>(a.choices, first, a.n);
    }
    join_weights<V, PER> w = join_weights_of<V, PER>(a);
    float f_experts = dg_norm_factor(block_sum(squares_of<V, PER>(e), part[1]), share, a.eps);
    join_branches<V, PER>(&d, e, w, a.n, f_dense, f_experts);
    float factor = dg_norm_factor(block_sum(squares_of<V, PER>(d), part[2]), share, a.eps);
    join_stream<V, PER>(&x, d, w, a, (int)blockIdx.x, factor);
    store_row<V, PER>(a.x + begin, x, a.n);
    store_norms<V, PER>(x, a.next, w.next, part[3], (int)blockIdx.x, a.n, share, a.eps);
}

/* ---- launches ---- */

/* Rows of 3072 values at a thread's three pieces of four, longer ones, and any other length. */
enum { SHORT_ROW = 3 * 4 * N_THREAD, LONG_ROW = 12 * 4 * N_THREAD, ODD_ROW = 12 * N_THREAD };

static bool rows_can(const dg_cuda_next *next, int n)
{
    return n <= (n % 4 ? (int)ODD_ROW : (int)LONG_ROW) && aligned(next[0].out.data) &&
           aligned(next[1].out.data) && aligned(next[0].w) && aligned(next[1].w);
}

extern "C" cudaError_t dg_cuda_add_norm(cudaStream_t stream, const dg_cuda_add_args *a)
{
    if (a->n_row == 0)
        return cudaSuccess;
    if (!rows_can(a->next, a->n) || !aligned(a->x) || !aligned(a->y) || !a->w || !aligned(a->w))
        return cudaErrorInvalidValue;
    if (a->n % 4)
        return DG_LAUNCH((add_rows<1, 12>), a->n_row, N_THREAD, 0, stream, *a);
    if (dg_cuda_rows_are_many(a->n_row, a->n))
        return dg_cuda_add_many(stream, a);
    if (a->n <= SHORT_ROW)
        return DG_LAUNCH((add_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
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
    return DG_LAUNCH((soft_rows<4, 3>), n_row, N_THREAD, 0, stream, out, row, n, eps);
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
    return DG_LAUNCH((soft_join_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
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
        !a->w_dense || !aligned(a->w_dense) || !a->w_experts || !aligned(a->w_experts) || !a->w ||
        !aligned(a->w) || (a->choices.place && !dg_cuda_join_sums(a->n)))
        return cudaErrorInvalidValue;
    if (a->choices.place && a->choices.in.form == DG_CUDA_F32)
        return DG_LAUNCH((join_rows<4, 3, DG_CUDA_F32>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->choices.place && a->choices.n_used <= JOIN_CHOICES && a->choices.in.ld % 8 == 0 &&
        aligned(a->choices.in.data) && dg_cuda_rows_are_many(a->n_row, a->n))
        return dg_cuda_join_many(stream, a);
    if (a->choices.place)
        return DG_LAUNCH((join_rows<4, 3, DG_CUDA_BF16>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n % 4)
        return DG_LAUNCH((join_rows<1, 12>), a->n_row, N_THREAD, 0, stream, *a);
    if (a->n <= SHORT_ROW)
        return DG_LAUNCH((join_rows<4, 3>), a->n_row, N_THREAD, 0, stream, *a);
    return DG_LAUNCH((join_rows<4, 12>), a->n_row, N_THREAD, 0, stream, *a);
}
