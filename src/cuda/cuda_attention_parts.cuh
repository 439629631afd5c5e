/* Attention with the products of warpgroups (cuda_attention_groups.cu): how the parts of a tile are
 * folded, and its results leave. */
#ifndef DG_CUDA_CUDA_ATTENTION_PARTS_CUH
#define DG_CUDA_CUDA_ATTENTION_PARTS_CUH

#include "cuda/cuda_attention_copies.cuh"

/* ---- one block does all parts of a tile ---- */

/* What has been added up of a line, and what is to come, against their common maximum. */
[[maybe_unused]] static __device__ __forceinline__ float2 fold_factors(float2 *sofar, float2 next)
{
    float most = fmaxf(sofar->x, next.x);
    float2 f = make_float2(sofar->x == most ? 1 : dg_exp2_fast((sofar->x - most) * log2e),
                           next.x == most ? 1 : dg_exp2_fast((next.x - most) * log2e));
    *sofar = make_float2(most, __fmaf_rn(next.y, f.y, __fmul_rn(sofar->y, f.x)));
    return f;
}

[[maybe_unused]] static __device__ __forceinline__ float fold(float sofar, float next, float2 f)
{
    return __fmaf_rn(next, f.y, __fmul_rn(sofar, f.x));
}

/* Where a thread that works on all parts of its lines puts what they came to so far, which nobody
 * else reads: lanes beside each other have neighbouring fours. Room for twice the lines of a canvas
 * keeps a last tile that is not full out of the next place. */
template <typename T>
static __device__ __forceinline__ float4 *kept_fours(const dg_cuda_attention_args &a,
                                                     const line_tile &t, int group, int kv_head,
                                                     int line, int half)
{
    int pages = (t.seg.n_row + DG_CUDA_PAGE - 1) / DG_CUDA_PAGE;
    size_t first = 2 * (size_t)DG_CUDA_PAGE * group *
                   ((size_t)t.seg.canvas_page * a.kv.n_kv_head + (size_t)pages * kv_head);
    float *kept = (float *)a.scratch + (first + t.first_line + line) * T::D + half * 8 * T::ND * 8;
    return (float4 *)kept + threadIdx.x % 32;
}

/* What has been added up of a thread's two lines: maximum and sum. */
struct kept_sums {
    float2 line[2];
};

/* The sums of whole lines. */
template <typename T> static __device__ __forceinline__ kept_sums sums_of(lines<T> *l)
{
    kept_sums sums;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        l->sum[0][h] += __shfl_xor_sync(DG_ALL_LANES, l->sum[0][h], 1);
        l->sum[0][h] += __shfl_xor_sync(DG_ALL_LANES, l->sum[0][h], 2);
        sums.line[h] = make_float2(l->most[0][h], l->sum[0][h]);
    }
    return sums;
}

/* Keeps what the first part came to. */
template <typename T>
static __device__ __forceinline__ void keep_part(const lines<T> &l, const dg_cuda_attention_args &a,
                                                 const line_tile &t, int group, int kv_head,
                                                 int first_line, int half)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (first_line + 8 * h >= t.n_line)
            continue;
        float4 *fours = kept_fours<T>(a, t, group, kv_head, first_line + 8 * h, half);
#pragma unroll
        for (int n = 0; n < T::ND; n += 2)
            __stcg(fours + 16 * n, make_float4(l.o[0][n][2 * h], l.o[0][n][2 * h + 1],
                                               l.o[0][n + 1][2 * h], l.o[0][n + 1][2 * h + 1]));
    }
}

/* Puts it before the other one. */
template <typename T>
static __device__ __forceinline__ void fold_kept(lines<T> *l, kept_sums kept,
                                                 const dg_cuda_attention_args &a,
                                                 const line_tile &t, int group, int kv_head,
                                                 int first_line, int half)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float2 sofar = kept.line[h],
               f = fold_factors(&sofar, make_float2(l->most[0][h], l->sum[0][h]));
        l->most[0][h] = sofar.x;
        l->sum[0][h] = sofar.y;
        if (first_line + 8 * h >= t.n_line)
            continue;
        const float4 *fours = kept_fours<T>(a, t, group, kv_head, first_line + 8 * h, half);
#pragma unroll
        for (int n = 0; n < T::ND; n += 2) {
            float4 v = __ldcg(fours + 16 * n);
            float *o = l->o[0][n] + 2 * h, *next = l->o[0][n + 1] + 2 * h;
            o[0] = fold(v.x, o[0], f);
            o[1] = fold(v.y, o[1], f);
            next[0] = fold(v.z, next[0], f);
            next[1] = fold(v.w, next[1], f);
        }
    }
}

/* ---- results by way of shared memory ----
 *
 * What a block does once takes as long as its instructions take to come: so few of them have
 * results in registers, which no loop can number. The others find them in shared memory, which has
 * room as soon as the last keys and values are used. */

/* Where these lie: lines of results; maxima and sums; how to fold two blocks', and what to multiply
 * with; and where a line goes. */
template <typename T> struct result_room {
    static constexpr int LD = T::D + 8, /* no two lines of a store share a bank */
        STAT = T::LINES * LD * 4, LAST = STAT + T::LINES * 8, GOES = LAST + T::LINES * 16,
                         END = GOES + T::LINES * 16;
    static_assert(END <= T::SPAN, "room for results");
    unsigned char *memory;

    __device__ __forceinline__ float *value(int line, int i) const
    {
        return (float *)memory + line * LD + i;
    }
    __device__ __forceinline__ float4 &four(int line, int i) const
    {
        return *(float4 *)value(line, i);
    }
    __device__ __forceinline__ float2 &stat(int line) const
    {
        return ((float2 *)(memory + STAT))[line];
    }
    __device__ __forceinline__ float4 &last(int line) const
    {
        return ((float4 *)(memory + LAST))[line];
    }
    __device__ __forceinline__ int4 &goes(int line) const /* row, column, number of the record */
    {
        return ((int4 *)(memory + GOES))[line];
    }
};

/* A warpgroup's results, of the first or the second half of the dimensions. */
template <typename T>
static __device__ __forceinline__ void leave_lines(const result_room<T> &room, const lines<T> &l,
                                                   int first_line, int half)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int line = first_line + 8 * h + lane / 4;
        float *to = room.value(line, half * 8 * T::ND + 2 * (lane % 4));
#pragma unroll
        for (int n = 0; n < T::ND; n++)
            *(float2 *)(to + 8 * n) = make_float2(l.o[0][n][2 * h], l.o[0][n][2 * h + 1]);
        if (half == 0 && lane % 4 == 0)
            room.stat(line) = make_float2(l.most[0][h], l.sum[0][h]);
    }
}

[[maybe_unused]] static __device__ __forceinline__ float4 fold_four(float4 sofar, float4 next,
                                                                    float2 f)
{
    return make_float4(fold(sofar.x, next.x, f), fold(sofar.y, next.y, f), fold(sofar.z, next.z, f),
                       fold(sofar.w, next.w, f));
}

[[maybe_unused]] static __device__ __forceinline__ float4 times(float4 v, float by)
{
    return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}

[[maybe_unused]] static __device__ __forceinline__ float inverse_of(float sum)
{
    return sum == 0 ? 0 : 1 / sum;
}

/* One thread a line: where it goes, and what with if there is no other part. */
template <typename T>
static __device__ __forceinline__ void plan_line(const result_room<T> &room,
                                                 const dg_cuda_attention_args &a,
                                                 const line_tile &t, int2 place, int line)
{
    int slot = t.seg.canvas_page * DG_CUDA_PAGE + place.x - t.seg.first_row;
    room.last(line) = make_float4(1, 0, inverse_of(room.stat(line).y), 0);
    room.goes(line) = make_int4(place.x, place.y * T::D, slot * a.kv.n_head + place.y, 0);
}

/* The record of a line that two blocks share: what block `block` left there. */
template <typename T>
static __device__ __forceinline__ float *left_by(const result_room<T> &room,
                                                 const dg_cuda_attention_args &a, int line,
                                                 int block, int i)
{
    return (float *)a.scratch + (size_t)room.goes(line).z * (RECORD_VALUES + MAX_PARTS * T::D) +
           RECORD_VALUES + block * T::D + i;
}

template <typename T>
static __device__ __forceinline__ float2 *stat_left_by(const result_room<T> &room,
                                                       const dg_cuda_attention_args &a, int line,
                                                       int block)
{
    return (float2 *)(left_by(room, a, line, 0, 0) - RECORD_VALUES + RECORD_STAT) + block;
}

/* Fours of the tile's lines and of FOURS dimensions each, a block's threads in turn. */
template <typename T, int FOURS> struct result_turns {
    static constexpr int N = T::LINES * FOURS / T::CONSUMERS;
    static __device__ __forceinline__ int line(int turn)
    {
        return ((int)threadIdx.x + turn * T::CONSUMERS) / FOURS;
    }
    static __device__ __forceinline__ int at(void)
    {
        return (int)threadIdx.x % FOURS * 4;
    }
    static_assert(T::CONSUMERS % FOURS == 0, "a thread stays with its dimensions");
};

/* Stores a thread's fours, value(line) at dimension `at`: some at a time, so that they wait for
 * shared memory together. */
template <typename T, class TURNS, class VALUE>
static __device__ __forceinline__ void store_turns(const result_room<T> &room,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t, int at, VALUE value)
{
    constexpr int SOME = 4;
    static_assert(TURNS::N % SOME == 0, "whole rounds");
#pragma unroll 1
    for (int i = 0; i < TURNS::N && TURNS::line(i) < t.n_line; i += SOME) {
        float4 v[SOME];
        int2 goes[SOME];
#pragma unroll
        for (int j = 0; j < SOME; j++) {
            int line = min(TURNS::line(i + j), t.n_line - 1);
            v[j] = value(line);
            goes[j] = make_int2(room.goes(line).x, room.goes(line).y);
        }
#pragma unroll
        for (int j = 0; j < SOME; j++)
            if (TURNS::line(i + j) < t.n_line)
                store_four_results(a.out, goes[j].x, goes[j].y + at, v[j]);
    }
}

/* By all consumers: leaves the other block its half of the dimensions, and waits for what it
 * leaves. */
template <typename T>
static __device__ __forceinline__ void leave_half(const result_room<T> &room,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t, int group, int kv_head)
{
    typedef result_turns<T, T::D / 8> turns;
    int thread = (int)threadIdx.x, block = (int)blockIdx.z,
        at = (1 - block) * (T::D / 2) + turns::at();
    if (thread < t.n_line)
        __stcg(stat_left_by(room, a, thread, block), room.stat(thread));
#pragma unroll 4
    for (int i = 0; i < turns::N; i++)
        if (turns::line(i) < t.n_line)
            __stcg((float4 *)left_by(room, a, turns::line(i), block, at),
                   room.four(turns::line(i), at));
    dg_bar_sync(3, T::CONSUMERS);
    if (thread == 0) {
        uint32_t before = count_part(a, t, group, kv_head, 2);
        const uint32_t *counter = (const uint32_t *)a.counter + number_of(a, t, group, kv_head, 0);
        dg_await_count(counter, before / COUNT_STEP * COUNT_STEP + COUNT_STEP);
    }
    dg_bar_sync(3, T::CONSUMERS);
}

/* How both blocks' results of a line are folded. */
template <typename T>
static __device__ __forceinline__ void plan_fold(const result_room<T> &room, int line, float2 other)
{
    int block = (int)blockIdx.z;
    float2 own = room.stat(line), sofar = block ? other : own,
           f = fold_factors(&sofar, block ? own : other);
    room.last(line) = make_float4(f.x, f.y, inverse_of(sofar.y), 0);
}

/* By all consumers: this block's half of the dimensions, folded with what the other block left. All
 * of that is asked for before anything is stored, as no load is moved over a store, and waits in
 * shared memory, where the other half's results were. */
template <typename T>
static __device__ __forceinline__ void store_half(const result_room<T> &room,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t)
{
    typedef result_turns<T, T::D / 8> turns;
    int thread = (int)threadIdx.x, block = (int)blockIdx.z, at = block * (T::D / 2) + turns::at(),
        over = (1 - block) * (T::D / 2) + turns::at();
    float4 other[turns::N];
    float2 stat = make_float2(0, 0);
    if (thread < t.n_line)
        stat = __ldcg(stat_left_by(room, a, thread, 1 - block));
#pragma unroll
    for (int i = 0; i < turns::N; i++) {
        int line = min(turns::line(i), t.n_line - 1);
        other[i] = __ldcg((const float4 *)left_by(room, a, line, 1 - block, at));
    }
    if (thread < t.n_line)
        plan_fold(room, thread, stat);
#pragma unroll
    for (int i = 0; i < turns::N; i++)
        room.four(turns::line(i), over) = other[i];
    dg_bar_sync(3, T::CONSUMERS);
    store_turns<T, turns>(room, a, t, at, [&](int line) {
        float4 own = room.four(line, at), left = room.four(line, over), f = room.last(line);
        return times(fold_four(block ? left : own, block ? own : left, make_float2(f.x, f.y)), f.z);
    });
}

template <typename T>
static __device__ __forceinline__ void store_whole(const result_room<T> &room,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t)
{
    typedef result_turns<T, T::D / 4> turns;
    store_turns<T, turns>(room, a, t, turns::at(), [&](int line) {
        return times(room.four(line, turns::at()), room.last(line).z);
    });
}

#endif
