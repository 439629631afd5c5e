/* Heads and attention over pages of keys.
 *
 * Attention takes lines: a row's query of one head. The lines of a segment that share a key head
 * (row by row, in a row the heads of the group) are cut into tiles, a block each. A line's result
 * does not depend on its tile: each of its sums runs over the keys in ascending order, a block of
 * keys at a time, and a block of which it sees nothing changes no bit of it. */
#include "cuda/cuda_math.h"
#include <math.h>
#include "cuda/cuda_device.cuh"

static const float log2e = 1.44269504088896340736f;

/* ---- pages ---- */

static __host__ __device__ __forceinline__ size_t value_bytes(const dg_cuda_kv &kv)
{
    return kv.type == DG_F32 ? 4 : 2;
}

/* Keys of one head in the page that holds a slot: a position of the sequence, or of the canvas.
 * Values follow n_kv_head heads behind. */
static __device__ __forceinline__ unsigned char *page_keys(const dg_cuda_kv &kv,
                                                           const dg_cuda_segment &seg, bool canvas,
                                                           int slot, int head)
{
    size_t head_bytes = DG_CUDA_PAGE * (size_t)kv.head_dim * value_bytes(kv);
    size_t index = (size_t)slot / DG_CUDA_PAGE;
    unsigned char *page =
        canvas ? kv.canvas_slab + ((size_t)seg.canvas_page + index) * 2 * kv.n_kv_head * head_bytes
               : kv.slab + (size_t)seg.page[index] * kv.page_bytes + kv.offset;
    return page + (size_t)head * head_bytes;
}

/* ---- heads: a warp each ---- */

enum { HEAD_WARPS = 8 };

/* Value i of a head behind norm and rotation; `head` is the raw one in shared memory. */
static __device__ __forceinline__ float turned(const float *head, const float *w, float factor,
                                               const float *cosines, const float *sines, int n_pair,
                                               int half, int i)
{
    int pair = i < half ? i : i - half;
    float mine = head[i] * factor * w[i];
    if (pair >= n_pair)
        return mine;
    int other = i < half ? i + half : i - half;
    float theirs = head[other] * factor * w[other];
    return i < half ? mine * cosines[pair] - theirs * sines[pair]
                    : mine * cosines[pair] + theirs * sines[pair];
}

static __device__ __forceinline__ void store_values(const dg_cuda_kv &kv, void *to, int i,
                                                    float first, float second)
{
    if (kv.type == DG_F32)
        *(float2 *)((float *)to + i) = make_float2(first, second);
    else
        *(uint32_t *)((uint16_t *)to + i) = dg_pack_bf16(first, second);
}

static __global__ void __launch_bounds__(32 * HEAD_WARPS) finish_heads(dg_cuda_heads_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    int dim = a.kv.head_dim, half = dim / 2, lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32;
    int row = (int)blockIdx.x,
        unit = (int)blockIdx.y * HEAD_WARPS + warp; /* q heads, then k, then v */
    int n_q = a.kv.n_head, n_kv = a.kv.n_kv_head;
    bool is_q = unit < n_q, is_k = !is_q && unit < n_q + n_kv;
    if (unit >= n_q + 2 * n_kv || (is_q && row < a.first_q_row))
        return;

    int head = is_q ? unit : is_k ? unit - n_q : unit - n_q - n_kv;
    const float *raw = is_q ? a.q : is_k || !a.v ? a.k : a.v;
    raw += ((size_t)row * (is_q ? n_q : n_kv) + head) * dim;
    float *kept = (float *)shared + warp * dim, sum = 0;
    for (int i = lane; i < dim; i += 32) {
        kept[i] = raw[i];
        sum += kept[i] * kept[i];
    }
    float factor = 1.0f / sqrtf(dg_warp_sum(sum) / (float)dim + a.eps);
    __syncwarp();

    const float *w = is_q ? a.q_norm : a.k_norm;
    const float *cosines = a.cos + (size_t)row * a.n_pair, *sines = a.sin + (size_t)row * a.n_pair;
    if (is_q) {
        float *q = a.q + ((size_t)row * n_q + head) * dim;
        for (int i = lane; i < dim; i += 32)
            q[i] = turned(kept, w, factor, cosines, sines, a.n_pair, half, i);
        return;
    }
    const dg_cuda_segment &seg = a.segment[a.segment_of[row]];
    int at = row - seg.first_row, slot = seg.canvas ? at : seg.position + at;
    size_t slot_bytes = (size_t)dim * value_bytes(a.kv);
    unsigned char *to = page_keys(a.kv, seg, seg.canvas, slot, head + (is_k ? 0 : n_kv)) +
                        (size_t)(slot % DG_CUDA_PAGE) * slot_bytes;
    for (int i = 2 * lane; i < dim; i += 64)
        if (is_k)
            store_values(a.kv, to, i, turned(kept, w, factor, cosines, sines, a.n_pair, half, i),
                         turned(kept, w, factor, cosines, sines, a.n_pair, half, i + 1));
        else
            store_values(a.kv, to, i, kept[i] * factor, kept[i + 1] * factor);
}

extern "C" cudaError_t dg_cuda_heads(cudaStream_t stream, const dg_cuda_heads_args *a)
{
    size_t shared = (size_t)HEAD_WARPS * (size_t)a->kv.head_dim * sizeof(float);
    if (a->n_row == 0)
        return cudaSuccess;
    if (shared > 48 << 10 || a->kv.head_dim % 2 || a->n_pair > a->kv.head_dim / 2)
        return cudaErrorInvalidValue;
    int n_unit = a->kv.n_head + 2 * a->kv.n_kv_head;
    dim3 grid((unsigned)a->n_row, (unsigned)(n_unit + HEAD_WARPS - 1) / HEAD_WARPS);
    return DG_LAUNCH(finish_heads, grid, 32 * HEAD_WARPS, shared, stream, *a);
}

/* ---- results ---- */

/* Two neighbouring values of a row of the o projection's input. */
static __device__ __forceinline__ void store_result(dg_cuda_rows out, int row, int column,
                                                    float first, float second)
{
    size_t at = (size_t)row * (size_t)out.ld + (size_t)column;
    if (out.form == DG_CUDA_F32)
        *(float2 *)((float *)out.data + at) = make_float2(first, second);
    else
        *(uint32_t *)((uint16_t *)out.data + at) =
            out.form == DG_CUDA_F16 ? dg_store_f16(first, second) : dg_pack_bf16(first, second);
}

/* Zeros behind the last head of a row, by the lanes of a warp. */
static __device__ __forceinline__ void store_padding(dg_cuda_rows out, int row, int n)
{
    for (int i = n + 2 * ((int)threadIdx.x % 32); i < out.ld; i += 64)
        store_result(out, row, i, 0, 0);
}

/* ---- the plain kernel: a warp a line, in float; any head ---- */

enum { PLAIN_WARPS = 4 };

/* One page for one line; q, o and p in shared memory, two keys a lane. */
template <typename T>
static __device__ __forceinline__ void plain_page(const T *keys, const T *values, int dim, int low,
                                                  int high, const float *q, float *o, float *p,
                                                  float *most, float *sum)
{
    int lane = (int)threadIdx.x % 32;
    float score[2], page_most = -INFINITY;
    for (int h = 0; h < 2; h++) {
        int key = lane + 32 * h;
        score[h] = -INFINITY;
        if (key < low || key >= high)
            continue;
        float dot = 0;
        for (int i = 0; i < dim; i++)
            dot += q[i] * (sizeof(T) == 4 ? (float)keys[(size_t)key * dim + i]
                                          : dg_bf16_at((uint16_t)keys[(size_t)key * dim + i]));
        score[h] = dot;
        page_most = fmaxf(page_most, dot);
    }
    float next = fmaxf(*most, dg_warp_max(page_most));
    float factor = *most == next ? 1 : expf(*most - next), page_sum = 0;
    for (int h = 0; h < 2; h++) {
        int key = lane + 32 * h;
        p[key] = key < low || key >= high ? 0 : expf(score[h] - next);
        page_sum += p[key];
    }
    *sum = *sum * factor + dg_warp_sum(page_sum);
    *most = next;
    __syncwarp();
    for (int i = lane; i < dim; i += 32) {
        float total = 0;
        for (int key = max(low, 0); key < min(high, (int)DG_CUDA_PAGE); key++)
            total +=
                p[key] * (sizeof(T) == 4 ? (float)values[(size_t)key * dim + i]
                                         : dg_bf16_at((uint16_t)values[(size_t)key * dim + i]));
        o[i] = o[i] * factor + total;
    }
    __syncwarp();
}

/* Pages that hold slots [first, end). */
template <typename T>
static __device__ __forceinline__ void plain_span(const dg_cuda_attention_args &a,
                                                  const dg_cuda_segment &seg, bool canvas,
                                                  int first, int end, int kv_head, float *line,
                                                  float *most, float *sum)
{
    int dim = a.kv.head_dim;
    for (int begin = first / DG_CUDA_PAGE * DG_CUDA_PAGE; begin < end; begin += DG_CUDA_PAGE) {
        const T *keys = (const T *)page_keys(a.kv, seg, canvas, begin, kv_head);
        const T *values = keys + (size_t)a.kv.n_kv_head * DG_CUDA_PAGE * dim;
        plain_page<T>(keys, values, dim, first - begin, end - begin, line, line + dim,
                      line + 2 * dim, most, sum);
    }
}

template <typename T>
static __global__ void __launch_bounds__(32 * PLAIN_WARPS) plain_lines(dg_cuda_attention_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, dim = a.kv.head_dim;
    int row = a.first_row + (int)blockIdx.x, head = (int)blockIdx.y * PLAIN_WARPS + warp;
    if (head >= a.kv.n_head)
        return;
    int kv_head = head / (a.kv.n_head / a.kv.n_kv_head);
    const float *q = a.q + ((size_t)row * a.kv.n_head + head) * dim;
    float *line = (float *)shared + warp * (2 * dim + DG_CUDA_PAGE); /* q, o, p */
    for (int i = lane; i < dim; i += 32) {
        line[i] = sizeof(T) == 4 ? q[i] : dg_bf16_low(dg_pack_bf16(q[i], 0));
        line[dim + i] = 0;
    }
    __syncwarp();

    float most = -INFINITY, sum = 0;
    const dg_cuda_segment &seg = a.segment[a.segment_of[row]];
    plain_span<T>(a, seg, false, a.seen[2 * row], a.seen[2 * row + 1], kv_head, line, &most, &sum);
    if (seg.canvas)
        plain_span<T>(a, seg, true, 0, seg.n_row, kv_head, line, &most, &sum);

    float factor = sum == 0 ? 0 : 1 / sum;
    for (int i = 2 * lane; i < dim; i += 64)
        store_result(a.out, row, head * dim + i, line[dim + i] * factor,
                     line[dim + i + 1] * factor);
    if (head == a.kv.n_head - 1)
        store_padding(a.out, row, a.kv.n_head * dim);
}

static cudaError_t launch_plain(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    size_t shared = PLAIN_WARPS * (2 * (size_t)a->kv.head_dim + DG_CUDA_PAGE) * sizeof(float);
    if (shared > 48 << 10 || a->kv.head_dim % 2)
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(a->end_row - a->first_row),
              (unsigned)(a->kv.n_head + PLAIN_WARPS - 1) / PLAIN_WARPS);
    if (a->kv.type == DG_F32)
        return DG_LAUNCH(plain_lines<float>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    return DG_LAUNCH(plain_lines<uint16_t>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
}

/* ---- the tensor cores' kernel ----
 *
 * A block has 16 x MT x WM lines; KB keys and then KB values at a time come by cp.async, the keys
 * of the next turn while this one's values are added up, and the values while the scores are made.
 * A group of WN warps shares 16 x MT lines: each makes the scores of KB / WN of the keys, they
 * agree on the maxima and hand each other their weights through shared memory, and each adds up
 * head_dim / WN of the dimensions. So a lane's part of the result is 128 registers or fewer
 * whatever the head is, and a fragment that is read from shared memory serves MT products.
 *
 * Which tile it is changes no bits as long as KB, MT and WN are the same: those follow from the
 * head and the device alone. */

template <int HEAD_DIM, int KEYS, int M_TILES, int WARPS_N, int WARPS_M> struct tile {
    static constexpr int D = HEAD_DIM, KB = KEYS, MT = M_TILES, WN = WARPS_N, WM = WARPS_M;
    static constexpr int LINES = 16 * MT * WM, THREADS = 32 * WN * WM;
    static constexpr int NK = KB / WN / 8; /* a warp's tiles of 8 keys */
    static constexpr int ND = D / WN / 8;  /* and of 8 dimensions */
    /* One load brings 32 values of a key: of two tiles of keys, or of two steps of 16 dimensions.
     */
    static constexpr int KS = NK == 1 ? 2 : 1;

    /* shared memory, in bytes */
    static constexpr int Q = 0, K = Q + LINES * D * 2, V = K + KB * D * 2, P = V + KB * D * 2;
    static constexpr int STAT = P + (WN > 1 ? LINES * KB * 2 : 0), SPAN = STAT + WN * LINES * 4;
    static constexpr int TILE = SPAN + LINES * 8, BYTES = TILE + 80;
};

/* Byte offset of the 16 bytes `chunk` of a row of N 16-bit values. Chunks are exchanged so that
 * eight rows at the same chunk lie in different banks. `base` is a multiple of 8: lanes differ in
 * `row` alone, so that the fragments of a warp have one pattern. */
template <int N> static __device__ __forceinline__ int swizzled(int base, int row, int chunk)
{
    constexpr int CHUNKS = N / 8, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    return base * (N * 2) + row * (N * 2) + (chunk ^ (row & MASK)) * 16;
}

/* What a block works on; in shared memory. */
typedef struct line_tile {
    dg_cuda_segment seg;
    int first_line, n_line; /* of the segment's lines; 0: nothing */
    int first, end;         /* prefix keys that any line sees */
    int all_first, all_end; /* and that all see */
    int last;               /* this block is the last of its tile's parts to come to an end */
} line_tile;
static_assert(sizeof(line_tile) <= 80, "the room it has in shared memory");

/* Tile `at` of those that all segments are cut into, clipped to the rows that are asked for; no
 * lines if there are fewer. By one warp. */
static __device__ __forceinline__ void find_tile(const dg_cuda_attention_args &a, int group,
                                                 int tile_lines, int at, line_tile *t)
{
    int lane = (int)threadIdx.x % 32;
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

/* The spans of a tile's lines into shared memory, and their union and intersection. Lines beyond
 * the last see nothing. By the same warp. */
static __device__ __forceinline__ void find_spans(const dg_cuda_attention_args &a, int group,
                                                  int tile_lines, int2 *span, line_tile *t)
{
    int first = 0x7FFFFFFF, end = 0, all_first = 0, all_end = 0x7FFFFFFF;
    for (int line = (int)threadIdx.x % 32; line < tile_lines; line += 32) {
        int2 s = make_int2(0, 0);
        if (line < t->n_line) {
            int row = t->seg.first_row + (t->first_line + line) / group;
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

/* Begins to copy KB keys (or values) of a turn; zeros where nobody looks: what lies there may be no
 * number. */
template <typename T>
static __device__ __forceinline__ void fetch(unsigned char *to, const dg_cuda_attention_args &a,
                                             const line_tile &t, turn now, int head)
{
    /* A thread has the same chunk of every PER-th key. PER is a power of two above its first key,
     * so that the exchange of chunks changes by a constant from one of its keys to the next. */
    constexpr int CHUNKS = T::D / 8, PER = T::THREADS / CHUNKS, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    static_assert(PER > 0 && (PER & (PER - 1)) == 0 && T::KB % PER == 0, "whole sweeps");
    int key = (int)threadIdx.x / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
    int exchanged = (chunk ^ (key & MASK)) * 16;
    const unsigned char *from = page_keys(a.kv, t.seg, now.canvas, now.begin, head);
    from += (size_t)(now.begin % DG_CUDA_PAGE) * T::D * 2 + threadIdx.x * 16;
    to += key * T::D * 2;
    bool whole = now.begin >= now.low && now.begin + T::KB <= now.high;
#pragma unroll
    for (int i = 0; i < T::KB; i += PER) {
        unsigned char *at = to + i * T::D * 2 + (exchanged ^ (i & MASK) * 16);
        int slot = now.begin + key + i;
        if (whole)
            dg_cp_async16(at, from + i * T::D * 2);
        else
            dg_cp_async16_if(at, from + i * T::D * 2, slot >= now.low && slot < now.high);
    }
    dg_cp_async_commit();
}

/* The tile's queries, narrowed. */
template <typename T>
static __device__ __forceinline__ void keep_queries(unsigned char *to,
                                                    const dg_cuda_attention_args &a,
                                                    const line_tile &t, int group, int kv_head)
{
    constexpr int CHUNKS = T::D / 8;
    for (int i = (int)threadIdx.x; i < T::LINES * CHUNKS; i += T::THREADS) {
        int line = i / CHUNKS, chunk = i % CHUNKS, at = t.first_line + line;
        uint4 bits = {0, 0, 0, 0};
        if (line < t.n_line) {
            size_t row = (size_t)(t.seg.first_row + at / group),
                   head = (size_t)(kv_head * group + at % group);
            const float4 *q = (const float4 *)(a.q + (row * a.kv.n_head + head) * T::D + chunk * 8);
            float4 x = q[0], y = q[1];
            bits.x = dg_pack_bf16(x.x, x.y);
            bits.y = dg_pack_bf16(x.z, x.w);
            bits.z = dg_pack_bf16(y.x, y.y);
            bits.w = dg_pack_bf16(y.z, y.w);
        }
        *(uint4 *)(to + swizzled<T::D>(0, line, chunk)) = bits;
    }
}

/* A warp's state: its lines' results, maxima and sums. Register c of a fragment is line 8 (c / 2) +
 * lane / 4 of 16. */
template <typename T> struct lines {
    float o[T::MT][T::ND][4];
    float most[T::MT][2], sum[T::MT][2]; /* the sums: of this lane's keys alone */
};

/* s = Q K^T of this warp's lines and keys. */
template <typename T>
static __device__ __forceinline__ void make_scores(float s[T::MT][T::NK][4], const unsigned char *q,
                                                   const unsigned char *k, int first_line,
                                                   int first_key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::NK; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[m][n][c] = 0;
#pragma unroll 4
    for (int step = 0; step < T::D / 16; step += T::KS) {
        uint32_t qf[T::KS][T::MT][4], kf[T::KS][T::NK][2];
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int half = 0; half < T::KS; half++)
                dg_ldmatrix_x4(qf[half][m], q + swizzled<T::D>(first_line + 16 * m, lane % 16,
                                                               2 * (step + half) + lane / 16));
        if constexpr (T::KS == 2)
            dg_ldmatrix_x4(kf[0][0], k + swizzled<T::D>(first_key, lane % 8, 2 * step + lane / 8));
        else
#pragma unroll
            for (int n = 0; n < T::NK; n += 2)
                dg_ldmatrix_x4(kf[0][n],
                               k + swizzled<T::D>(first_key + 8 * n, lane / 16 * 8 + lane % 8,
                                                  2 * step + lane / 8 % 2));
#pragma unroll
        for (int half = 0; half < T::KS; half++)
#pragma unroll
            for (int m = 0; m < T::MT; m++)
#pragma unroll
                for (int n = 0; n < T::NK; n++)
                    dg_mma_bf16(s[m][n], qf[half][m], kf[half][n]);
    }
}

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

/* Scores to weights against the new maxima; what was added up before is scaled to them. */
template <typename T>
static __device__ __forceinline__ void soften(lines<T> *l, float s[T::MT][T::NK][4],
                                              const float next[T::MT][2])
{
    bool moved = false;
    float factor[T::MT][2];
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = fmaxf(l->most[m][h], next[m][h]);
            float shift = most == -INFINITY ? 0 : most * log2e, sum = 0;
            factor[m][h] = l->most[m][h] == most ? 1 : dg_exp2_fast((l->most[m][h] - most) * log2e);
            moved |= factor[m][h] != 1;
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
    if (!__any_sync(DG_ALL_LANES, moved)) /* a product with 1 changes nothing */
        return;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::ND; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                l->o[m][n][c] *= factor[m][c / 2];
}

/* Hands this warp's weights to the group, as rows of KB 16-bit values. */
template <typename T>
static __device__ __forceinline__ void share_weights(unsigned char *p,
                                                     const float s[T::MT][T::NK][4], int first_line,
                                                     int first_key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::NK; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int line = first_line + 16 * m + 8 * h, chunk = first_key / 8 + n;
                *(uint32_t *)(p + swizzled<T::KB>(line, lane / 4, chunk) + lane % 4 * 4) =
                    dg_pack_bf16(s[m][n][2 * h], s[m][n][2 * h + 1]);
            }
}

/* o += P V: this warp's lines and dimensions, all keys of the turn. */
template <typename T>
static __device__ __forceinline__ void add_values(lines<T> *l, const float s[T::MT][T::NK][4],
                                                  const unsigned char *p, const unsigned char *v,
                                                  int first_line, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++) {
        uint32_t pf[T::MT][4];
#pragma unroll
        for (int m = 0; m < T::MT; m++) {
            if constexpr (T::WN > 1)
                dg_ldmatrix_x4(pf[m], p + swizzled<T::KB>(first_line + 16 * m, lane % 16,
                                                          2 * step + lane / 16));
            else {
                const float *low = s[m][2 * step], *high = s[m][2 * step + 1];
                pf[m][0] = dg_pack_bf16(low[0], low[1]);
                pf[m][1] = dg_pack_bf16(low[2], low[3]);
                pf[m][2] = dg_pack_bf16(high[0], high[1]);
                pf[m][3] = dg_pack_bf16(high[2], high[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < T::ND; n += 2) {
            uint32_t vf[4];
            dg_ldmatrix_x4_trans(
                vf, v + swizzled<T::D>(16 * step, lane % 16, wn * T::ND + n + lane / 16));
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                dg_mma_bf16(l->o[m][n], pf[m], vf);
                dg_mma_bf16(l->o[m][n + 1], pf[m], vf + 2);
            }
        }
    }
}

/* The sums of whole lines: over the lanes that share one, then over the group's warps in their
 * order. The maxima were read before the last turn's second barrier: their place is free. */
template <typename T>
static __device__ __forceinline__ void join_sums(lines<T> *l, float *stat, int first_line, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = l->sum[m][h];
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
            if (lane % 4 == 0)
                stat[wn * T::LINES + first_line + 16 * m + 8 * h + lane / 4] = sum;
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l->sum[m][h] = 0;
            for (int w = 0; w < T::WN; w++)
                l->sum[m][h] += stat[w * T::LINES + first_line + 16 * m + 8 * h + lane / 4];
        }
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
 * A canvas over many keys is worked on by two blocks a tile, each with half of the turns: that
 * follows from the sequence alone. Each leaves its sums in the scratch memory; the one that comes
 * last (an integer counter says so) joins the other's to its own. The sum of two is the same in
 * both orders. */

enum { N_PART = 2, PART_KEYS = 512 };

/* Floats of a line's record: maximum and sum of each part, then the parts' results. */
enum { RECORD_STAT = 0, RECORD_VALUES = 8 };

static __host__ __device__ __forceinline__ size_t record_floats(int head_dim)
{
    return RECORD_VALUES + N_PART * (size_t)head_dim;
}

/* Heads on tensor cores have 16 values or more. */
enum { LEAST_HEAD = 16 };

extern "C" size_t dg_cuda_attention_bytes(int max_canvas_row, int max_q_dim)
{
    size_t q_dim = (size_t)max_q_dim, n_head = q_dim / LEAST_HEAD;
    return (size_t)max_canvas_row * (n_head * RECORD_VALUES + N_PART * q_dim) * sizeof(float);
}

extern "C" size_t dg_cuda_attention_counters(int max_canvas_row, int max_q_dim)
{
    return (size_t)max_canvas_row * (size_t)(max_q_dim / LEAST_HEAD);
}

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

static __device__ __forceinline__ float *record_of(const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int line)
{
    return (float *)a.scratch +
           number_of(a, t, group, kv_head, line) * record_floats(a.kv.head_dim);
}

template <typename T>
static __device__ __forceinline__ int count_parts(const dg_cuda_attention_args &a,
                                                  const line_tile &t, int n_turn)
{
    return a.counter && t.seg.canvas && n_turn * T::KB >= PART_KEYS ? N_PART : 1;
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
            float *record = record_of(a, t, group, kv_head, line);
            if (wn == 0 && lane % 4 == 0)
                *(float2 *)(record + RECORD_STAT + 2 * part) =
                    make_float2(l.most[m][h], l.sum[m][h]);
            float2 *values =
                (float2 *)(record + RECORD_VALUES + part * T::D) + wn * T::ND * 4 + lane % 4;
#pragma unroll
            for (int n = 0; n < T::ND; n++)
                values[4 * n] = make_float2(l.o[m][n][2 * h], l.o[m][n][2 * h + 1]);
        }
}

/* Says for the whole block whether the other part has been left already. */
static __device__ __forceinline__ bool comes_last(const dg_cuda_attention_args &a, line_tile *t,
                                                  int group, int kv_head)
{
    __threadfence(); /* what this thread has left is seen before the count */
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *counter = a.counter + number_of(a, *t, group, kv_head, 0); /* the tile's */
        t->last = atomicAdd(counter, 1) == N_PART - 1;
        if (t->last)
            *counter = 0; /* for the next launch */
        __threadfence();
    }
    __syncthreads();
    return t->last;
}

template <typename T>
static __device__ __forceinline__ void join_part(lines<T> *l, const dg_cuda_attention_args &a,
                                                 const line_tile &t, int group, int kv_head,
                                                 int first_line, int wn, int other)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = first_line + 16 * m + 8 * h + lane / 4;
            if (line >= t.n_line)
                continue;
            const float *record = record_of(a, t, group, kv_head, line);
            float2 stat = __ldcg((const float2 *)(record + RECORD_STAT + 2 * other));
            float most = fmaxf(l->most[m][h], stat.x);
            float mine = l->most[m][h] == most ? 1 : dg_exp2_fast((l->most[m][h] - most) * log2e);
            float theirs = stat.x == most ? 1 : dg_exp2_fast((stat.x - most) * log2e);
            l->sum[m][h] = __fadd_rn(__fmul_rn(l->sum[m][h], mine), __fmul_rn(stat.y, theirs));
            const float2 *values =
                (const float2 *)(record + RECORD_VALUES + other * T::D) + wn * T::ND * 4 + lane % 4;
#pragma unroll
            for (int n = 0; n < T::ND; n++) {
                float2 v = __ldcg(values + 4 * n);
                float *o = l->o[m][n] + 2 * h;
                o[0] = __fadd_rn(__fmul_rn(o[0], mine), __fmul_rn(v.x, theirs));
                o[1] = __fadd_rn(__fmul_rn(o[1], mine), __fmul_rn(v.y, theirs));
            }
        }
}

/* ---- the kernel ---- */

/* Turns [i, end) of a tile; the first one's keys are on their way. */
template <typename T>
static __device__ __forceinline__ void attend(lines<T> *l, unsigned char *shared,
                                              const dg_cuda_attention_args &a, const line_tile &t,
                                              int kv_head, int i, int end)
{
    unsigned char *q = shared + T::Q, *k = shared + T::K, *v = shared + T::V, *p = shared + T::P;
    float *stat = (float *)(shared + T::STAT);
    const int2 *span = (const int2 *)(shared + T::SPAN);
    int warp = (int)threadIdx.x / 32, wm = warp / T::WN, wn = warp % T::WN;
    int first_line = wm * 16 * T::MT, first_key = wn * T::NK * 8;
#pragma unroll
    for (int m = 0; m < T::MT; m++) {
        l->most[m][0] = l->most[m][1] = -INFINITY;
        l->sum[m][0] = l->sum[m][1] = 0;
#pragma unroll
        for (int n = 0; n < T::ND; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                l->o[m][n][c] = 0;
    }
    for (; i < end; i++) {
        float s[T::MT][T::NK][4], next[T::MT][2];
        dg_cp_async_wait<0>();
        __syncthreads(); /* the keys are there, and nobody reads the last turn's values any more */
        turn now = turn_at<T>(t, i);
        fetch<T>(v, a, t, now, kv_head + a.kv.n_kv_head);
        make_scores<T>(s, q, k, first_line, first_key);
        if (!now.open)
            mask_scores<T>(s, now, span, first_line, first_key);
        find_most<T>(next, s, stat, first_line, wm, wn);
        soften<T>(l, s, next);
        if (T::WN > 1)
            share_weights<T>(p, s, first_line, first_key);
        dg_cp_async_wait<0>();
        __syncthreads(); /* values and weights are there, and nobody reads the keys any more */
        if (i + 1 < end)
            fetch<T>(k, a, t, turn_at<T>(t, i + 1), kv_head);
        add_values<T>(l, s, p, v, first_line, wn);
    }
    join_sums<T>(l, stat, first_line, wn);
}

template <typename T, int BLOCKS>
static __global__ void __launch_bounds__(T::THREADS, BLOCKS) flash_lines(dg_cuda_attention_args a)
{
    DG_SHARED(shared);
    line_tile &t = *(line_tile *)(shared + T::TILE);
    dg_grid_wait();
    int group = a.kv.n_head / a.kv.n_kv_head, kv_head = (int)blockIdx.y, part = (int)blockIdx.z;
    if (threadIdx.x < 32) {
        /* the last tiles, which see the most keys, begin first */
        find_tile(a, group, T::LINES, (int)(gridDim.x - 1 - blockIdx.x), &t);
        find_spans(a, group, T::LINES, (int2 *)(shared + T::SPAN), &t);
    }
    __syncthreads();
    int n_turn = count_turns<T>(t), n_part = count_parts<T>(a, t, n_turn);
    if (t.n_line == 0 || part >= n_part)
        return;
    int begin = n_turn * part / n_part, end = n_turn * (part + 1) / n_part;
    if (begin < end)
        fetch<T>(shared + T::K, a, t, turn_at<T>(t, begin), kv_head);
    keep_queries<T>(shared + T::Q, a, t, group, kv_head);

    lines<T> l;
    attend<T>(&l, shared, a, t, kv_head, begin, end);
    int warp = (int)threadIdx.x / 32, first_line = warp / T::WN * 16 * T::MT, wn = warp % T::WN;
    if (n_part > 1) {
        leave_part<T>(l, a, t, group, kv_head, first_line, wn, part);
        if (!comes_last(a, &t, group, kv_head))
            return;
        join_part<T>(&l, a, t, group, kv_head, first_line, wn, 1 - part);
    }
    store_lines<T>(&l, a, t, group, kv_head, first_line, wn);
    if (kv_head == a.kv.n_kv_head - 1 && a.out.ld > a.kv.n_head * T::D)
        for (int line = warp; line < t.n_line; line += T::THREADS / 32)
            if ((t.first_line + line) % group == group - 1)
                store_padding(a.out, t.seg.first_row + (t.first_line + line) / group,
                              a.kv.n_head * T::D);
}

template <typename T, int BLOCKS>
static cudaError_t launch_flash(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    /* Each segment may end in a tile that is not full; blocks without a tile or part end at once.
     */
    int n_line = (a->end_row - a->first_row) * (a->kv.n_head / a->kv.n_kv_head);
    dim3 grid((unsigned)(n_line / T::LINES + a->n_segment), (unsigned)a->kv.n_kv_head,
              a->counter ? N_PART : 1);
    return DG_LAUNCH(flash_lines<T, BLOCKS>, grid, T::THREADS, T::BYTES, stream, *a);
}

/* Which tile for which head and device. KB, MT and WN must not depend on anything else. */
static cudaError_t launch_tiles(cudaStream_t stream, const dg_cuda_attention_args *a,
                                int max_shared)
{
    switch (a->kv.head_dim) {
    case 16:
        return launch_flash<tile<16, 64, 1, 1, 4>, 4>(stream, a);
    case 32:
        return launch_flash<tile<32, 64, 1, 1, 4>, 4>(stream, a);
    case 64:
        return launch_flash<tile<64, 64, 1, 1, 4>, 3>(stream, a);
    case 128:
        return launch_flash<tile<128, 64, 1, 1, 4>, 2>(stream, a);
    case 256: /* 106 KB, two blocks on an SM of 227; 85 KB */
        if (max_shared >= tile<256, 64, 2, 2, 2>::BYTES)
            return launch_flash<tile<256, 64, 2, 2, 2>, 2>(stream, a);
        return launch_flash<tile<256, 64, 2, 2, 1>, 2>(stream, a);
    case 512: /* 201 KB; 99 KB */
        if (max_shared >= tile<512, 64, 2, 4, 2>::BYTES)
            return launch_flash<tile<512, 64, 2, 4, 2>, 1>(stream, a);
        return launch_flash<tile<512, 32, 2, 4, 1>, 1>(stream, a);
    default:
        return launch_plain(stream, a);
    }
}

extern "C" cudaError_t dg_cuda_attention(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    if (a->first_row >= a->end_row)
        return cudaSuccess;
    if ((a->kv.type != DG_F32 && a->kv.type != DG_BF16) || a->kv.n_head % a->kv.n_kv_head)
        return cudaErrorInvalidValue;
    if (a->kv.type == DG_F32)
        return launch_plain(stream, a);
    int device = 0, max_shared = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error =
            cudaDeviceGetAttribute(&max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return error ? error : launch_tiles(stream, a, max_shared);
}
