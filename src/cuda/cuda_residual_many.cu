/* Into the residual stream, and the norms that start from it, where rows are many: blocks go from
 * row to row, and copy those to come into shared memory, so that memory is busy while a row's sums
 * are made. The bits are those of a block a row (cuda_residual.cu). */
#include "cuda/cuda_residual.cuh"

/* Pieces of a row that a thread has, and from how many rows on they are many. */
enum { PER = 3, MANY_FROM = 512 };

/* Rows of floats, of which a thread copies what it needs itself, and choices of an expert's values,
 * of which it copies what others need: 8 bytes would not go past the first-level cache, which is
 * too small for them. */
template <int N_FLOAT, int N_CHOICE> struct row_place {
    static constexpr int CHOICES = N_FLOAT * PER * N_THREAD * 16, CHOICE = PER * N_THREAD * 8,
                         BYTES = CHOICES + N_CHOICE * CHOICE;
    unsigned char *memory;

    /* This thread's piece of each. */
    __device__ __forceinline__ float4 *floats(int which, int piece) const
    {
        return (float4 *)memory + (which * PER + piece) * N_THREAD + threadIdx.x;
    }
    __device__ __forceinline__ unsigned char *choice(int which) const
    {
        return memory + CHOICES + which * CHOICE;
    }
};

/* Where a thread's piece of a row begins. */
static __device__ __forceinline__ int begin_of_piece(int piece)
{
    return ((int)threadIdx.x + piece * N_THREAD) * 4;
}

template <class PLACE>
static __device__ __forceinline__ void ask_floats(const PLACE &to, int which, const float *x, int n)
{
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (begin_of_piece(j) < n)
            dg_cp_async16(to.floats(which, j), x + begin_of_piece(j));
}

template <class PLACE>
static __device__ __forceinline__ row<4, PER> take_floats(const PLACE &from, int which, int n)
{
    row<4, PER> out = {};
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (begin_of_piece(j) < n) {
            float4 f = *from.floats(which, j);
            out.at[j] = {f.x, f.y, f.z, f.w};
        }
    return out;
}

/* ---- x + norm ---- */

/* Rows under way, and blocks of a multiprocessor, as many as keep memory busy. */
enum { ADD_PLACES = 3, ADD_BLOCKS = 2 };
typedef row_place<2, 0> add_place;

static __global__ void __launch_bounds__(N_THREAD, ADD_BLOCKS) add_many(dg_cuda_add_args a)
{
    DG_SHARED(shared);
    __shared__ float part[2][4][N_WARP]; /* rows in turn */
    const int first = (int)blockIdx.x, step = (int)gridDim.x;
    const float share = dg_norm_share(a.n);
    const weight_row<4, PER> w = sure_weight_of<4, PER>(a.w, a.n),
                             next[2] = {weight_of<4, PER>(a.next[0].w, a.n),
                                        weight_of<4, PER>(a.next[1].w, a.n)};
    const auto place_at = [&](int turn) {
        return add_place{shared + turn % ADD_PLACES * add_place::BYTES};
    };
    const auto ask = [&](int which, const float *of, int turn) {
        int at = first + turn * step;
        if (at < a.n_row)
            ask_floats(place_at(turn), which, of + (size_t)at * (size_t)a.n, a.n);
    };
    for (int turn = 0; turn < ADD_PLACES; turn++)
        ask(0, a.x, turn);
    dg_grid_wait();
    dg_grid_launch_next();
    for (int turn = 0; turn < ADD_PLACES; turn++) {
        ask(1, a.y, turn);
        dg_cp_async_commit();
    }
    for (int at = first, turn = 0; at < a.n_row; at += step, turn++) {
        float(*sums)[N_WARP] = part[turn % 2];
        dg_cp_async_wait<ADD_PLACES - 1>();
        row<4, PER> x = take_floats(place_at(turn), 0, a.n),
                    y = take_floats(place_at(turn), 1, a.n);
        float factor = dg_norm_factor(block_sum(squares_of<4, PER>(y), sums[0]), share, a.eps);
        ask(0, a.x, turn + ADD_PLACES);
        ask(1, a.y, turn + ADD_PLACES);
        dg_cp_async_commit();
        add_norm_to<4, PER>(&x, y, w, a.n, factor);
        store_row<4, PER>(a.x + (size_t)at * (size_t)a.n, x, a.n);
        store_norms<4, PER>(x, a.next, next, sums[1], at, a.n, share, a.eps);
    }
}

/* ---- the end of a layer ---- */

enum { JOIN_BLOCKS = 2 }; /* of a multiprocessor */
typedef row_place<2, JOIN_CHOICES> join_place;

static_assert((int)JOIN_CHOICES <= (int)N_WARP, "a choice has a warp that copies it");

/* A warp copies the values of one choice. */
static __device__ __forceinline__ void ask_choice(const join_place &to, const dg_cuda_choices &c,
                                                  int32_t place, int n)
{
    constexpr int EACH = 8, TURNS = PER * 4 * N_THREAD / (32 * EACH); /* EACH: 16 bytes a lane */
    const int warp = (int)threadIdx.x / 32, begin = (int)threadIdx.x % 32 * EACH;
    const uint16_t *values = (const uint16_t *)c.in.data + (size_t)place * (size_t)c.in.ld + begin;
    unsigned char *mine = to.choice(warp) + begin * 2;
    if (warp >= c.n_used)
        return;
#pragma unroll
    for (int i = 0; i < TURNS; i++)
        if (begin + i * 32 * EACH < n)
            dg_cp_async16(mine + i * 64 * EACH, values + i * 32 * EACH);
}

/* The sum over a row's choices in their order; lane j has the weight of choice j. */
static __device__ __forceinline__ row<4, PER> take_choices(const join_place &from, float weight,
                                                           int n_used, int n)
{
    row<4, PER> sum = {};
#pragma unroll 1
    for (int j = 0; j < n_used; j++) {
        const float by = __shfl_sync(DG_ALL_LANES, weight, j);
        const unsigned char *choice = from.choice(j) + begin_of_piece(0) * 2;
#pragma unroll
        for (int p = 0; p < PER; p++) {
            if (begin_of_piece(p) >= n)
                continue;
            uint2 bits = *(const uint2 *)(choice + p * N_THREAD * 8);
            float value[4] = {dg_bf16_low(bits.x), dg_bf16_high(bits.x), dg_bf16_low(bits.y),
                              dg_bf16_high(bits.y)};
            for (int i = 0; i < 4; i++)
                sum.at[p].v[i] = fmaf(by, value[i], sum.at[p].v[i]);
        }
    }
    return sum;
}

/* Entry `which` of a row's list of choices; 0 where there is none. */
template <class T>
static __device__ __forceinline__ T entry_of(const T *list, int which, int at,
                                             const dg_cuda_join_args &a)
{
    bool there = at < a.n_row && which < a.choices.n_used;
    return there ? __ldcg(list + (size_t)at * (size_t)a.choices.n_used + which) : T(0);
}

/* The next row is copied as soon as this one is in registers; another block of the multiprocessor
 * works meanwhile. Where choices lie, and their weights, is asked for a row ahead of when it is
 * needed. What is in the loop is short: instructions of a long one come more slowly than rows. */
static __global__ void __launch_bounds__(N_THREAD, JOIN_BLOCKS) join_many(dg_cuda_join_args a)
{
    DG_SHARED(shared);
    __shared__ float part[2][6][N_WARP];
    const int step = (int)gridDim.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const float share = dg_norm_share(a.n);
    const join_weights<4, PER> w = join_weights_of<4, PER>(a);
    const join_place place = {shared};
    const auto ask_early = [&](int at) {
        if (at >= a.n_row)
            return;
        ask_floats(place, 0, a.dense + (size_t)at * (size_t)a.n, a.n);
        ask_floats(place, 1, a.x + (size_t)at * (size_t)a.n, a.n);
    };
    const auto ask_late = [&](int at, int32_t choice) {
        if (at < a.n_row)
            ask_choice(place, a.choices, choice, a.n);
        dg_cp_async_commit();
    };
    int at = (int)blockIdx.x;
    int32_t choice = entry_of(a.choices.place, warp, at, a);
    float weight = entry_of(a.choices.weight, lane, at, a);
    ask_early(at);
    dg_grid_wait();
    dg_grid_launch_next();
    ask_late(at, choice);
    choice = entry_of(a.choices.place, warp, at + step, a);
#pragma unroll 1
    for (int turn = 0; at < a.n_row; at += step, turn++) {
        float(*sums)[N_WARP] = part[turn % 2];
        dg_cp_async_wait<0>();
        __syncthreads();
        row<4, PER> e = take_choices(place, weight, a.choices.n_used, a.n),
                    d = take_floats(place, 0, a.n), x = take_floats(place, 1, a.n);
        weight = entry_of(a.choices.weight, lane, at + step, a);
        float f_dense = dg_norm_factor(block_sum(squares_of<4, PER>(d), sums[0]), share, a.eps);
        ask_early(at + step);
        ask_late(at + step, choice);
        choice = entry_of(a.choices.place, warp, at + 2 * step, a);
        float f_experts = dg_norm_factor(block_sum(squares_of<4, PER>(e), sums[1]), share, a.eps);
        join_branches<4, PER>(&d, e, w, a.n, f_dense, f_experts);
        float factor = dg_norm_factor(block_sum(squares_of<4, PER>(d), sums[2]), share, a.eps);
        join_stream<4, PER>(&x, d, w, a, at, factor);
        store_row<4, PER>(a.x + (size_t)at * (size_t)a.n, x, a.n);
        store_norms<4, PER>(x, a.next, w.next, sums[3], at, a.n, share, a.eps);
    }
}

/* ---- launches ---- */

enum { ADD_BYTES = ADD_PLACES * add_place::BYTES, JOIN_BYTES = join_place::BYTES };

static_assert((int)JOIN_BYTES <= (int)ADD_BYTES, "what is asked for below");

bool dg_cuda_rows_are_many(int n_row, int n)
{
    /* one block alone, for which smaller GPUs have room, would have too few warps */
    int device = 0, room = 0;
    return n_row >= MANY_FROM && n % 8 == 0 && n <= PER * 4 * N_THREAD && !cudaGetDevice(&device) &&
           !cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) &&
           room >= ADD_BLOCKS * (ADD_BYTES + 1024);
}

/* So many blocks of a multiprocessor as there are rows for. */
static unsigned blocks_for(int n_row, int n_block)
{
    int device = 0, n_sm = 1;
    if (!cudaGetDevice(&device))
        cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    return (unsigned)(n_row < n_sm * n_block ? n_row : n_sm * n_block);
}

cudaError_t dg_cuda_add_many(cudaStream_t stream, const dg_cuda_add_args *a)
{
    return DG_LAUNCH(add_many, blocks_for(a->n_row, ADD_BLOCKS), N_THREAD, ADD_BYTES, stream, *a);
}

cudaError_t dg_cuda_join_many(cudaStream_t stream, const dg_cuda_join_args *a)
{
    return DG_LAUNCH(join_many, blocks_for(a->n_row, JOIN_BLOCKS), N_THREAD, JOIN_BYTES, stream,
                     *a);
}
