/* What the kernels of attention share: pages, tiles of lines and the turns over their keys, a
 * warp's lines in registers, parts.
 *
 * Attention takes lines: a row's query of one head. The lines of a segment that share a key head
 * (row by row, in a row the heads of the group) are cut into tiles, a block each. A line's result
 * does not depend on its tile: each of its sums runs over the keys in ascending order, a block of
 * keys at a time, and a block of which it sees nothing changes no bit of it. */
#ifndef DG_CUDA_CUDA_ATTENTION_CUH
#define DG_CUDA_CUDA_ATTENTION_CUH

#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_kv_bytes.cuh"

static const float log2e = 1.44269504088896340736f;

/* ---- pages ---- */

/* Bytes of one head's keys, or values, in a page. */
static __host__ __device__ __forceinline__ size_t head_bytes(const dg_cuda_kv &kv, bool canvas)
{
    return DG_CUDA_PAGE *
           dg_kv_row_bytes(canvas ? dg_kv_canvas_type(kv.type) : kv.type, kv.head_dim);
}

/* Keys of one head in the page that holds a slot: a position of the sequence, or of the canvas.
 * Values follow n_kv_head heads behind. dg_cuda_slot_at() finds the slot in it. */
static __device__ __forceinline__ unsigned char *page_keys(const dg_cuda_kv &kv,
                                                           const dg_cuda_segment &seg, bool canvas,
                                                           int slot, int head)
{
    size_t bytes = head_bytes(kv, canvas);
    size_t index = (size_t)slot / DG_CUDA_PAGE;
    unsigned char *page =
        canvas ? kv.canvas_slab + ((size_t)seg.canvas_page + index) * 2 * kv.n_kv_head * bytes
               : kv.slab + (size_t)seg.page[index] * kv.page_bytes + kv.offset;
    return page + (size_t)head * bytes;
}

/* ---- results ---- */

#define BYTE_RESULT 16.0f

/* Two neighbouring values of a row of E4M3. The values that they are means of have a mean square of
 * one, so that none is beyond the root of a head's width: 1/16 is a factor for heads up to 784. Who
 * has the first values writes it. */
static __device__ __forceinline__ void store_byte_result(dg_cuda_rows out, int row, int column,
                                                         float first, float second)
{
    unsigned char *bytes = (unsigned char *)out.data + (size_t)row * dg_cuda_row_bytes(out);
    *(uint16_t *)(bytes + column) =
        (uint16_t)dg_pack_e4m3(first * BYTE_RESULT, second * BYTE_RESULT);
    if (column == 0)
        *(float *)(bytes + out.ld) = 1.0f / BYTE_RESULT;
}

/* Two neighbouring values of a row of the o projection's input. */
static __device__ __forceinline__ void store_result(dg_cuda_rows out, int row, int column,
                                                    float first, float second)
{
    size_t at = (size_t)row * (size_t)out.ld + (size_t)column;
    if (out.form == DG_CUDA_E4M3)
        store_byte_result(out, row, column, first, second);
    else if (out.form == DG_CUDA_F32)
        *(float2 *)((float *)out.data + at) = make_float2(first, second);
    else
        *(uint32_t *)((uint16_t *)out.data + at) =
            out.form == DG_CUDA_F16 ? dg_store_f16(first, second) : dg_pack_bf16(first, second);
}

/* Four of them. */
[[maybe_unused]] static __device__ __forceinline__ void store_four_results(dg_cuda_rows out,
                                                                           int row, int column,
                                                                           float4 v)
{
    size_t at = (size_t)row * (size_t)out.ld + (size_t)column;
    if (out.form == DG_CUDA_E4M3) {
        unsigned char *bytes = (unsigned char *)out.data + (size_t)row * dg_cuda_row_bytes(out);
        *(uint32_t *)(bytes + column) = dg_pack_e4m3(v.x * BYTE_RESULT, v.y * BYTE_RESULT) |
                                        dg_pack_e4m3(v.z * BYTE_RESULT, v.w * BYTE_RESULT) << 16;
        if (column == 0)
            *(float *)(bytes + out.ld) = 1.0f / BYTE_RESULT;
    } else if (out.form == DG_CUDA_F32) {
        *(float4 *)((float *)out.data + at) = v;
    } else if (out.form == DG_CUDA_F16) {
        *(uint2 *)((uint16_t *)out.data + at) =
            uint2{dg_store_f16(v.x, v.y), dg_store_f16(v.z, v.w)};
    } else {
        *(uint2 *)((uint16_t *)out.data + at) =
            uint2{dg_pack_bf16(v.x, v.y), dg_pack_bf16(v.z, v.w)};
    }
}

/* Zeros behind the last head of a row, by the lanes of a warp. */
static __device__ __forceinline__ void store_padding(dg_cuda_rows out, int row, int n)
{
    for (int i = n + 2 * ((int)threadIdx.x % 32); i < out.ld; i += 64)
        store_result(out, row, i, 0, 0);
}

/* ---- tiles ---- */

/* What a block works on; in shared memory. */
typedef struct line_tile {
    dg_cuda_segment seg;
    int first_line, n_line; /* of the segment's lines; 0: nothing */
    int first, end;         /* prefix keys that any line sees */
    int all_first, all_end; /* and that all see */
    int last;               /* this block is the last of its tile's to come to an end */
} line_tile;
static_assert(sizeof(line_tile) <= 80, "the room it has in shared memory");

/* Tile `at` of those that all segments are cut into, clipped to the rows that are asked for; no
 * lines if there are fewer. By one warp. */
static __device__ __forceinline__ void find_tile(const dg_cuda_attention_args &a, int group,
                                                 int tile_lines, int at, line_tile *t)
{
    int lane = (int)threadIdx.x % 32;
    if (a.n_segment == 1) { /* what is usual: fewer instructions to wait for */
        const dg_cuda_segment &seg = a.segment[0];
        int first = max(a.first_row - seg.first_row, 0),
            end = min(a.end_row - seg.first_row, seg.n_row);
        if (lane == 0) {
            t->seg = seg;
            t->first_line = first * group + at * tile_lines;
            t->n_line = max(min(tile_lines, end * group - t->first_line), 0);
        }
        __syncwarp();
        return;
    }
    t->n_line = 0;
    __syncwarp();
    for (int base = 0; base < a.n_segment; base += 32) {
        int first = 0, n = 0;
        if (base + lane < a.n_segment) {
            const dg_cuda_segment &seg = a.segment[base + lane];
            first = max(seg.first_row, a.first_row);
            n = max(min(seg.first_row + seg.n_row, a.end_row) - first, 0);
            first -= seg.first_row;
        }
        int n_tile = (n * group + tile_lines - 1) / tile_lines, upto = n_tile;
        for (int by = 1; by < 32; by *= 2) {
            int before = __shfl_up_sync(DG_ALL_LANES, upto, by);
            upto += lane >= by ? before : 0;
        }
        uint32_t beyond = __ballot_sync(DG_ALL_LANES, upto > at);
        if (beyond) {
            int found = __ffs((int)beyond) - 1;
            int within = at - __shfl_sync(DG_ALL_LANES, upto - n_tile, found);
            first = __shfl_sync(DG_ALL_LANES, first, found);
            n = __shfl_sync(DG_ALL_LANES, n, found);
            if (lane == 0) {
                t->seg = a.segment[base + found];
                t->first_line = first * group + within * tile_lines;
                t->n_line = min(tile_lines, (first + n) * group - t->first_line);
            }
            break;
        }
        at -= __shfl_sync(DG_ALL_LANES, upto, 31);
    }
    __syncwarp();
}

/* The query of a line of the tile, bfloat16; of one beyond the last: some address. */
static __device__ __forceinline__ const unsigned char *query_at(const dg_cuda_attention_args &a,
                                                                const line_tile &t, int group,
                                                                int kv_head, int line)
{
    int at = t.first_line + (line < t.n_line ? line : 0);
    size_t row = (size_t)(t.seg.first_row + at / group),
           head = (size_t)(kv_head * group + at % group);
    return (const unsigned char *)(a.q + (row * a.kv.n_head + head) * a.kv.head_dim);
}

/* The spans of a tile's lines into shared memory, and their union and intersection. Lines beyond
 * the last see nothing. `place`, if any: rows and heads of the lines. By the same warp. */
static __device__ __forceinline__ void find_spans(const dg_cuda_attention_args &a, int group,
                                                  int kv_head, int tile_lines, int2 *span,
                                                  int2 *place, line_tile *t)
{
    int first = 0x7FFFFFFF, end = 0, all_first = 0, all_end = 0x7FFFFFFF;
    for (int line = (int)threadIdx.x % 32; line < tile_lines; line += 32) {
        int2 s = make_int2(0, 0);
        if (line < t->n_line) {
            int at = t->first_line + line, row = t->seg.first_row + at / group;
            if (place)
                place[line] = make_int2(row, kv_head * group + at % group);
            s = make_int2(a.seen[2 * row], a.seen[2 * row + 1]);
            if (s.x < s.y) {
                first = min(first, s.x);
                end = max(end, s.y);
            }
            all_first = max(all_first, s.x);
            all_end = min(all_end, s.y);
        }
        span[line] = s;
    }
    for (int with = 16; with > 0; with /= 2) {
        first = min(first, __shfl_xor_sync(DG_ALL_LANES, first, with));
        end = max(end, __shfl_xor_sync(DG_ALL_LANES, end, with));
        all_first = max(all_first, __shfl_xor_sync(DG_ALL_LANES, all_first, with));
        all_end = min(all_end, __shfl_xor_sync(DG_ALL_LANES, all_end, with));
    }
    if (threadIdx.x % 32 == 0) {
        t->first = first;
        t->end = end;
        t->all_first = all_first;
        t->all_end = all_end;
    }
}

/* One turn: KB keys, of the prefix or of the canvas. Slots outside [low, high) are nobody's;
 * `open`: every line sees all of them. */
typedef struct turn {
    bool canvas, open;
    int begin, low, high;
} turn;

template <typename T> static __device__ __forceinline__ int count_turns(const line_tile &t)
{
    int prefix = t.end > t.first ? (t.end + T::KB - 1) / T::KB - t.first / T::KB : 0;
    return prefix + (t.seg.canvas ? (t.seg.n_row + T::KB - 1) / T::KB : 0);
}

template <typename T> static __device__ __forceinline__ turn turn_at(const line_tile &t, int i)
{
    int prefix = t.end > t.first ? (t.end + T::KB - 1) / T::KB - t.first / T::KB : 0;
    turn out;
    out.canvas = i >= prefix;
    out.begin = out.canvas ? (i - prefix) * T::KB : (t.first / T::KB + i) * T::KB;
    out.low = out.canvas ? 0 : t.first;
    out.high = out.canvas ? t.seg.n_row : t.end;
    out.open = out.canvas ? out.begin + T::KB <= t.seg.n_row
                          : out.begin >= t.all_first && out.begin + T::KB <= t.all_end;
    return out;
}

/* A warp's state: its lines' results, maxima and sums. Register c of a fragment is line 8 (c / 2) +
 * lane / 4 of 16. */
template <typename T> struct lines {
    float o[T::MT][T::ND][4];
    float most[T::MT][2], sum[T::MT][2]; /* the sums: of this lane's keys alone */
};

/* Takes out what a line does not see. */
template <typename T>
static __device__ __forceinline__ void mask_scores(float s[T::MT][T::NK][4], turn now,
                                                   const int2 *span, int first_line, int first_key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int2 seen =
                now.canvas ? make_int2(0, now.high) : span[first_line + 16 * m + 8 * h + lane / 4];
#pragma unroll
            for (int n = 0; n < T::NK; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int slot = now.begin + first_key + 8 * n + 2 * (lane % 4) + e;
                    if (slot < seen.x || slot >= seen.y)
                        s[m][n][2 * h + e] = -INFINITY;
                }
        }
}

/* The maxima of this warp's keys, and with WN > 1 of the whole group's: next[m][h]. */
template <typename T>
static __device__ __forceinline__ void find_most(float next[T::MT][2],
                                                 const float s[T::MT][T::NK][4], float *stat,
                                                 int first_line, int wm, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = -INFINITY;
#pragma unroll
            for (int n = 0; n < T::NK; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(DG_ALL_LANES, most, 1));
            next[m][h] = fmaxf(most, __shfl_xor_sync(DG_ALL_LANES, most, 2));
            if (T::WN > 1 && lane % 4 == 0)
                stat[wn * T::LINES + first_line + 16 * m + 8 * h + lane / 4] = next[m][h];
        }
    if constexpr (T::WN > 1) {
        dg_bar_sync(1 + wm, 32 * T::WN);
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int w = 0; w < T::WN; w++)
                    next[m][h] = fmaxf(next[m][h],
                                       stat[w * T::LINES + first_line + 16 * m + 8 * h + lane / 4]);
    }
}

/* Scores to weights against the new maxima; what was added up before is to be scaled by factor. */
template <typename T>
static __device__ __forceinline__ void soften(lines<T> *l, float factor[T::MT][2],
                                              float s[T::MT][T::NK][4], const float next[T::MT][2])
{
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = fmaxf(l->most[m][h], next[m][h]);
            float shift = most == -INFINITY ? 0 : most * log2e, sum = 0;
            factor[m][h] = l->most[m][h] == most ? 1 : dg_exp2_fast((l->most[m][h] - most) * log2e);
#pragma unroll
            for (int n = 0; n < T::NK; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float p = dg_exp2_fast(__fmaf_rn(s[m][n][2 * h + e], log2e, -shift));
                    s[m][n][2 * h + e] = p;
                    sum += p;
                }
            l->sum[m][h] = l->sum[m][h] * factor[m][h] + sum;
            l->most[m][h] = most;
        }
}

/* Where no line of the warp has a new maximum, which is soon, there is nothing to scale. */
template <typename T>
static __device__ __forceinline__ void scale_lines(lines<T> *l, const float factor[T::MT][2])
{
    bool same = true;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
        same = same && factor[m][0] == 1 && factor[m][1] == 1;
    if (__all_sync(DG_ALL_LANES, same))
        return;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::ND; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                l->o[m][n][c] *= factor[m][c / 2];
}

template <typename T> static __device__ __forceinline__ void clear_sums(lines<T> *l)
{
#pragma unroll
    for (int m = 0; m < T::MT; m++) {
        l->most[m][0] = l->most[m][1] = -INFINITY;
        l->sum[m][0] = l->sum[m][1] = 0;
    }
}

template <typename T> static __device__ __forceinline__ void clear_lines(lines<T> *l)
{
    clear_sums<T>(l);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::ND; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                l->o[m][n][c] = 0;
}

template <typename T>
static __device__ __forceinline__ void store_lines(const lines<T> *l,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int first_line, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = first_line + 16 * m + 8 * h + lane / 4, at = t.first_line + line;
            if (line >= t.n_line)
                continue;
            int row = t.seg.first_row + at / group, head = kv_head * group + at % group;
            float factor = l->sum[m][h] == 0 ? 0 : 1 / l->sum[m][h];
#pragma unroll
            for (int n = 0; n < T::ND; n++)
                store_result(a.out, row, head * T::D + (wn * T::ND + n) * 8 + 2 * (lane % 4),
                             l->o[m][n][2 * h] * factor, l->o[m][n][2 * h + 1] * factor);
        }
}

/* ---- parts ----
 *
 * A canvas over many keys is worked on in parts, each with its share of the turns: how many follows
 * from the sequence alone. Parts meet in the scratch memory and are added up in their order, by
 * whichever block: that changes no bits. Blocks that share a tile count in one integer; each launch
 * adds COUNT_STEP to it, so that it need not be cleared. */

enum { MAX_PARTS = 2, PART_KEYS = 192, COUNT_STEP = 2 };

/* Floats of a line's record: maximum and sum of each part, then the parts' results. */
enum { RECORD_STAT = 0, RECORD_VALUES = 2 * MAX_PARTS };

/* Heads on tensor cores have 16 values or more. */
enum { LEAST_HEAD = 16 };

/* The number of a line of the tile. Canvas pages are nobody else's, so that their slots number the
 * lines. */
static __device__ __forceinline__ size_t number_of(const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int line)
{
    int at = t.first_line + line, head = kv_head * group + at % group;
    size_t slot = (size_t)t.seg.canvas_page * DG_CUDA_PAGE + (size_t)(at / group);
    return slot * a.kv.n_head + head;
}

template <typename T>
static __device__ __forceinline__ float *record_of(const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int line)
{
    return (float *)a.scratch +
           number_of(a, t, group, kv_head, line) * (RECORD_VALUES + MAX_PARTS * T::D);
}

template <typename T>
static __device__ __forceinline__ int count_parts(const dg_cuda_attention_args &a,
                                                  const line_tile &t, int n_turn)
{
    bool many = n_turn * T::KB >= MAX_PARTS * PART_KEYS;
    return a.counter && t.seg.canvas && many ? MAX_PARTS : 1;
}

template <typename T>
static __device__ __forceinline__ void leave_part(const lines<T> &l,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t, int group, int kv_head,
                                                  int first_line, int wn, int part)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = first_line + 16 * m + 8 * h + lane / 4;
            if (line >= t.n_line)
                continue;
            float *record = record_of<T>(a, t, group, kv_head, line);
            if (wn == 0 && lane % 4 == 0)
                __stcg((float2 *)(record + RECORD_STAT) + part,
                       make_float2(l.most[m][h], l.sum[m][h]));
            float2 *values =
                (float2 *)(record + RECORD_VALUES + part * T::D) + wn * T::ND * 4 + lane % 4;
#pragma unroll
            for (int n = 0; n < T::ND; n++)
                __stcg(values + 4 * n, make_float2(l.o[m][n][2 * h], l.o[m][n][2 * h + 1]));
        }
}

/* Counts one part of a tile, and gives the count before. By one thread, behind a barrier for all
 * that have left something. */
static __device__ __forceinline__ uint32_t count_part(const dg_cuda_attention_args &a,
                                                      const line_tile &t, int group, int kv_head,
                                                      int n_part)
{
    uint32_t *counter = (uint32_t *)a.counter + number_of(a, t, group, kv_head, 0);
    __threadfence(); /* what was left is seen before the count */
    return atomicAdd(counter, (uint32_t)(COUNT_STEP / n_part));
}

/* Says for the whole block whether all other parts have been left already. */
static __device__ __forceinline__ bool comes_last(const dg_cuda_attention_args &a, line_tile *t,
                                                  int group, int kv_head, int n_part)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t before = count_part(a, *t, group, kv_head, n_part);
        t->last = (before + COUNT_STEP / n_part) % COUNT_STEP == 0;
        __threadfence();
    }
    __syncthreads();
    return t->last;
}

/* What each part's results of one line count for, from their maxima and sums; gives the line's sum.
 */
[[maybe_unused]] static __device__ __forceinline__ float weigh_parts(float weight[MAX_PARTS],
                                                                     const float2 *stat, int n_part)
{
    float2 of[MAX_PARTS];
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int p = 0; p < MAX_PARTS; p++) {
        of[p] = p < n_part ? __ldcg(stat + p) : make_float2(-INFINITY, 0);
        most = fmaxf(most, of[p].x);
    }
#pragma unroll
    for (int p = 0; p < MAX_PARTS; p++) {
        weight[p] = of[p].x == most ? 1 : dg_exp2_fast((of[p].x - most) * log2e);
        sum = __fmaf_rn(of[p].y, p < n_part ? weight[p] : 0, sum);
    }
    return sum;
}

/* The sum of all parts; `own` is the one that this thread still has. */
template <typename T>
static __device__ __forceinline__ void join_parts(lines<T> *l, const dg_cuda_attention_args &a,
                                                  const line_tile &t, int group, int kv_head,
                                                  int first_line, int wn, int n_part, int own)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = first_line + 16 * m + 8 * h + lane / 4;
            if (line >= t.n_line)
                continue;
            const float *record = record_of<T>(a, t, group, kv_head, line);
            float weight[MAX_PARTS];
            l->sum[m][h] = weigh_parts(weight, (const float2 *)(record + RECORD_STAT), n_part);
            const float2 *values =
                (const float2 *)(record + RECORD_VALUES) + wn * T::ND * 4 + lane % 4;
#pragma unroll
            for (int n = 0; n < T::ND; n++) {
                float *o = l->o[m][n] + 2 * h;
                float2 sum = make_float2(0, 0);
#pragma unroll
                for (int p = 0; p < MAX_PARTS; p++) {
                    float2 v = p == own     ? make_float2(o[0], o[1])
                               : p < n_part ? __ldcg(values + p * (T::D / 2) + 4 * n)
                                            : make_float2(0, 0);
                    sum.x = __fmaf_rn(v.x, weight[p], sum.x);
                    sum.y = __fmaf_rn(v.y, weight[p], sum.y);
                }
                o[0] = sum.x;
                o[1] = sum.y;
            }
        }
}

/* ---- launches ---- */

/* Tiles of LINES lines that all rows may be cut into: each segment may end in one that is not full;
 * blocks without a tile or part end at once. */
template <typename T> static unsigned count_tiles(const dg_cuda_attention_args *a)
{
    int n_line = (a->end_row - a->first_row) * (a->kv.n_head / a->kv.n_kv_head);
    int most = n_line / T::LINES + a->n_segment;
    return (unsigned)(a->n_segment == 1 ? (n_line + T::LINES - 1) / T::LINES : most);
}

/* The kernels by family. */
cudaError_t dg_cuda_attention_mma(cudaStream_t stream, const dg_cuda_attention_args *a);
cudaError_t dg_cuda_attention_groups(cudaStream_t stream, const dg_cuda_attention_args *a);

#endif
