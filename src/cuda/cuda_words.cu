/* The vocabulary end behind the product with the table: statistics, a draw, the most likely words.
 *
 * measure_words, with a block for a piece of a row, applies softcap, bias, bans and temperature,
 * and finds each chunk's maximum and mass, unless the head has done so (cuda_head.cu), which may
 * leave p and no logits; then a block a row adds up, draws, and says what was found. */
#include "cuda/cuda_words.h"
#include <float.h>
#include "cuda/cuda_sure.cuh"
#include "cuda/cuda_words.cuh"

/* A word that must not come up; finite, so that its product with a probability of 0 is 0. */
#define BANNED -1e30f

/* ---- scratch ---- */

/* Laid out twice: without memory to measure. */
static size_t place_words(dg_cuda_words *w, unsigned char *memory, int max_row, int n_vocab,
                          int n_embd)
{
    max_row = min(max_row, (int)DG_CUDA_WORD_GROUP);
    size_t rows = (size_t)max_row, groups = (size_t)word_groups(max_row), at = 0,
           chunks = (size_t)chunk_count(n_vocab);
    /* z and p are one piece for p of the same rows without z: four times 16 bits */
    size_t wide = (size_t)min(max_row, (int)DG_CUDA_WORD_ROWS) * (size_t)padded(n_vocab) * 4;
    size_t bytes[] = {wide,
                      wide,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * 2 * 8,
                      PARTS * rows * (size_t)n_embd * 4,
                      rows * 4,
                      rows * DG_CUDA_SURE_WORDS * 4,
                      rows * DG_CUDA_SURE_WORDS * 4,
                      groups * PARTS * (size_t)mark_count(n_vocab) * 4,
                      groups * chunks * DG_CUDA_WORD_ROWS * 4};
    void **place[] = {(void **)&w->z,       (void **)&w->p,          (void **)&w->top,
                      (void **)&w->top_at,  (void **)&w->mass,       (void **)&w->slope,
                      (void **)&w->sums,    (void **)&w->part,       (void **)&w->n_sure,
                      (void **)&w->sure_id, (void **)&w->sure_share, (void **)&w->used,
                      (void **)&w->weight};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        *place[i] = memory ? memory + at : NULL;
        at += (bytes[i] + 255) / 256 * 256;
    }
    return at;
}

extern "C" size_t dg_cuda_words_bytes(int max_row, int n_vocab, int n_embd)
{
    dg_cuda_words none;
    return place_words(&none, NULL, max_row, n_vocab, n_embd);
}

extern "C" void dg_cuda_words_place(dg_cuda_words *w, void *memory, int max_row, int n_vocab,
                                    int n_embd)
{
    place_words(w, (unsigned char *)memory, max_row, n_vocab, n_embd);
}

/* ---- measure ---- */

/* The first index of an ascending list that is not below id. */
static __device__ __forceinline__ int lower_bound(const int32_t *list, int n, int id)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (list[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Softcap (unless the head has applied it), biases and bans, in place. */
static __device__ __forceinline__ void apply_lists(const dg_cuda_words_args &a,
                                                   const dg_cuda_word_row *row, float *z,
                                                   piece_range range)
{
    int t = (int)threadIdx.x;
    if (!a.measured && a.softcap > 0)
        for (int i = range.first + t; i < range.end; i += ROW_THREADS)
            z[i] = a.softcap * tanhf(z[i] / a.softcap);
    __syncthreads();
    for (int i = lower_bound(row->bias_id, row->n_bias, range.first) + t;
         i < row->n_bias && row->bias_id[i] < range.end; i += ROW_THREADS)
        z[row->bias_id[i]] += row->bias[i];
    __syncthreads();
    for (int i = lower_bound(row->banned, row->n_banned, range.first) + t;
         i < row->n_banned && row->banned[i] < range.end; i += ROW_THREADS)
        z[row->banned[i]] = BANNED;
    __syncthreads();
}

/* A lane's four words of a chunk, shared out among 16 lanes. */
static __device__ __forceinline__ chunk_stats four_words(const float v[4], int first, int n_vocab)
{
    chunk_stats stats = {-INFINITY, 0x7FFFFFFF, 0, 0};
    for (int i = 0; i < 4; i++)
        if (first + i < n_vocab)
            take_larger(stats.top, stats.at, v[i], first + i);
    for (int with = 8; with > 0; with /= 2) {
        float top = __shfl_xor_sync(DG_ALL_LANES, stats.top, with);
        int at = __shfl_xor_sync(DG_ALL_LANES, stats.at, with);
        take_larger(stats.top, stats.at, top, at);
    }
    for (int i = 0; i < 4; i++)
        if (first + i < n_vocab) {
            float e = word_mass(v[i], stats.top);
            stats.mass += e;
            stats.slope += (v[i] - stats.top) * e;
        }
    for (int with = 8; with > 0; with /= 2) {
        stats.mass += __shfl_xor_sync(DG_ALL_LANES, stats.mass, with);
        stats.slope += __shfl_xor_sync(DG_ALL_LANES, stats.slope, with);
    }
    return stats;
}

/* Four words of p, of a chunk with this maximum. */
static __device__ __forceinline__ void leave_four(const dg_cuda_words_args &a, int r, int first,
                                                  const float v[4], float top)
{
    float e[4], level = level_of(top);
    for (int i = 0; i < 4; i++)
        e[i] = first + i < a.n_vocab ? word_share(v[i], level) : 0;
    uint2 *to =
        (uint2 *)((uint16_t *)a.w.p + (size_t)r * (size_t)padded(a.n_vocab) + (size_t)first);
    if (a.form == DG_CUDA_BF16)
        *to = make_uint2(dg_pack_bf16(e[0], e[1]), dg_pack_bf16(e[2], e[3]));
    else
        *to = make_uint2(dg_pack_f16(e[0], e[1]), dg_pack_f16(e[2], e[3]));
}

/* Block (x: piece, y: row); 16 lanes have a chunk, four words each. */
static __global__ void measure_words(dg_cuda_words_args a)
{
    int piece = (int)blockIdx.x, r = (int)blockIdx.y, t = (int)threadIdx.x;
    piece_range range = piece_of(piece, a.n_vocab);
    dg_grid_wait();
    const dg_cuda_word_row *row = &a.row[r];
    size_t row_at = (size_t)r * (size_t)a.n_vocab;
    float *z = a.w.z + row_at;
    bool listed = !a.given && (row->n_bias || row->n_banned);
    if (piece == 0 && r == 0)
        clear_marks(a, ROW_THREADS);
    if (a.measured && !listed)
        return;
    if (listed)
        apply_lists(a, row, z, range);
    int end = chunk_from(range.end);
    for (int base = chunk_from(range.first); base < end; base += ROW_THREADS / 16) {
        int chunk = base + t / 16, first = chunk * CHUNK_WORDS + t % 16 * 4;
        float v[4] = {};
        for (int i = 0; i < 4 && chunk < end && first + i < a.n_vocab; i++) {
            v[i] = z[first + i];
            if (a.given)
                continue;
            if (!listed && a.softcap > 0)
                v[i] = a.softcap * tanhf(v[i] / a.softcap);
            if (a.logits)
                a.logits[row_at + (size_t)(first + i)] = v[i];
            v[i] /= row->temperature;
            z[first + i] = v[i];
        }
        chunk_stats stats = four_words(v, first, chunk < end ? a.n_vocab : 0);
        if (chunk < end && t % 16 == 0)
            put_stats(a, r, chunk, stats);
        if (chunk < end && a.leaves)
            leave_four(a, r, first, v, stats.top);
    }
}

/* ---- what was found ---- */

/* A place among some that have shares, and how much of its own a draw goes beyond it. */
struct draw_place {
    int at;
    double left;
};

/* By a warp: the first of n places, of which value(i) is the share, at whose end more than the
 * target is behind; rounding may leave none: then the last that has any share, and all of it. */
template <class V>
static __device__ __forceinline__ draw_place draw_from(double target, int n, V value)
{
    int lane = (int)threadIdx.x % 32;
    draw_place last = {0, INFINITY};
    for (int base = 0; base < n; base += 32) {
        double share = base + lane < n ? (double)value(base + lane) : 0, up_to = share;
        for (int by = 1; by < 32; by *= 2) {
            double other = __shfl_up_sync(DG_ALL_LANES, up_to, by);
            up_to += lane >= by ? other : 0;
        }
        unsigned beyond = __ballot_sync(DG_ALL_LANES, up_to > target),
                 any = __ballot_sync(DG_ALL_LANES, share > 0);
        if (beyond) {
            int i = __ffs((int)beyond) - 1;
            double before = __shfl_sync(DG_ALL_LANES, up_to, i > 0 ? i - 1 : 0);
            return draw_place{base + i, i > 0 ? target - before : target};
        }
        if (any)
            last.at = base + 31 - __clz((int)any);
        target -= __shfl_sync(DG_ALL_LANES, up_to, 31);
    }
    return last;
}

/* The row's maximum, and the first chunk that has it; below 0: none has any. */
template <bool FOURS>
static __device__ __forceinline__ float row_max(const float *top_of, int begin, int end, int chunks,
                                                int *where)
{
    __shared__ float tops[ROW_WARPS];
    __shared__ int ats[ROW_WARPS];
    float top = -INFINITY;
    int at = 0x7FFFFFFF;
    for (int base = begin; base < end; base += AT_ONCE * 4) {
        float some[AT_ONCE * 4];
        load_chunks<FOURS>(some, top_of, base, chunks);
#pragma unroll
        for (int i = 0; i < AT_ONCE * 4; i++)
            if (base + i < end)
                take_larger(top, at, some[i], base + i);
    }
    block_argmax(top, at, tops, ats);
    *where = at == 0x7FFFFFFF ? -1 : at;
    return top;
}

/* What a thread's chunks have together; their masses become those against the row's maximum. */
struct row_sums {
    double mass, slope;
};

template <bool FOURS>
static __device__ __forceinline__ void store_masses(float *to, int first, int end,
                                                    const float mass[AT_ONCE * 4])
{
#pragma unroll
    for (int i = 0; i < AT_ONCE * 4; i += FOURS ? 4 : 1)
        if (FOURS && first + i < end)
            *(float4 *)(to + first + i) =
                make_float4(mass[i], mass[i + 1], mass[i + 2], mass[i + 3]);
        else if (first + i < end)
            to[first + i] = mass[i];
}

/* No branch stands between chunks, so that they hide each other's latencies. */
template <bool FOURS>
static __device__ __forceinline__ row_sums sum_chunks(const dg_cuda_words_args &a, size_t row,
                                                      int begin, int end, int chunks, float max)
{
    row_sums sum = {0, 0};
    for (int base = begin; base < end; base += AT_ONCE * 4) {
        float top[AT_ONCE * 4], mass[AT_ONCE * 4], slope[AT_ONCE * 4];
        load_chunks<FOURS>(top, a.w.top + row, base, chunks);
        load_chunks<FOURS>(mass, a.w.mass + row, base, chunks);
        load_chunks<FOURS>(slope, a.w.slope + row, base, chunks);
#pragma unroll
        for (int i = 0; i < AT_ONCE * 4; i++) {
            float below = top[i] - max, factor = expf(below);
            slope[i] = fmaf(below, mass[i], slope[i]) * factor;
            mass[i] *= factor;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE * 4; i++) {
            sum.mass += base + i < end ? (double)mass[i] : 0;
            sum.slope += base + i < end ? (double)slope[i] : 0;
        }
        store_masses<FOURS>(a.w.mass + row, base, end, mass);
    }
    return sum;
}

/* What the threads of a row have found: of each its chunks' mass, of each warp the sums. */
struct row_shares {
    double share[ROW_THREADS], mass[ROW_WARPS], slope[ROW_WARPS];
};

/* Sums of a warp in one order; every lane gets them. */
static __device__ __forceinline__ double warp_sum(double v)
{
    for (int with = 16; with > 0; with /= 2)
        v += __shfl_xor_sync(DG_ALL_LANES, v, with);
    return v;
}

/* By one thread: what was found of a row. total 0: nothing. */
static __device__ __forceinline__ void tell(const dg_cuda_words_args &a, int r, double total,
                                            double slope, float max, int where)
{
    double entropy = log(total) - slope / total;
    int argmax =
        where < 0 ? 0 : a.w.top_at[(size_t)r * (size_t)chunk_count(a.n_vocab) + (size_t)where];
    a.w.sums[2 * r] = total;
    a.w.sums[2 * r + 1] = (double)max;
    a.out.entropy[r] = total > 0 ? (float)(entropy > 0 ? entropy : 0) : nanf("");
    a.out.argmax[r] = argmax;
    if (!(total > 0) || a.row[r].draw != DG_CUDA_DRAW_PLAIN)
        a.out.drawn[r] = argmax;
    if (a.listed)
        a.out.logprob[r] = total > 0 ? (float)-log(total) : nanf("");
}

/* By a warp: a word, by ever smaller pieces of the row. */
static __device__ __forceinline__ int draw_word(const dg_cuda_words_args &a, int r,
                                                const row_shares &s, int each, double target,
                                                float max)
{
    int chunks = chunk_count(a.n_vocab), lane = (int)threadIdx.x % 32;
    size_t first = (size_t)r * (size_t)chunks;
    draw_place warp = draw_from(target, ROW_WARPS, [&](int i) { return s.mass[i]; });
    draw_place thread = draw_from(warp.left, 32, [&](int i) { return s.share[warp.at * 32 + i]; });
    int begin = min((warp.at * 32 + thread.at) * each, chunks - 1);
    draw_place chunk = draw_from(thread.left, min(each, chunks - begin),
                                 [&](int i) { return a.w.mass[first + (size_t)(begin + i)]; });
    chunk.at += begin;
    float top = a.w.top[first + (size_t)chunk.at];
    double mass = (double)a.w.mass[first + (size_t)chunk.at];
    auto share = [&](int i) { return word_weight(a, r, chunk.at * CHUNK_WORDS + i, top, max); };
    double all = 0;
    for (int i = lane; i < CHUNK_WORDS; i += 32)
        all += (double)share(i);
    all = warp_sum(all);
    return chunk.at * CHUNK_WORDS + draw_from(chunk.left / mass * all, CHUNK_WORDS, share).at;
}

/* What the soft embedding takes of the row, by all warps but the first: each chunk's weight, and
 * marks of those that have one. A lane has a chunk, and a warp one word of marks at a time. */
static __device__ __forceinline__ void weigh_chunks(const dg_cuda_words_args &a, int r, float max,
                                                    double total, uint32_t *marks)
{
    enum { WEIGHING = ROW_WARPS - 1 };
    int chunks = chunk_count(a.n_vocab), n_mark = mark_count(a.n_vocab),
        group = r / DG_CUDA_WORD_ROWS, lane = (int)threadIdx.x % 32;
    size_t first = (size_t)r * (size_t)chunks;
    bool soft = a.row[r].soft && total > 0;
    for (int base = (int)threadIdx.x / 32 - 1; base < PARTS * n_mark; base += AT_ONCE * WEIGHING) {
        float mass[AT_ONCE], top[AT_ONCE];
        int chunk[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            int word = base + n * WEIGHING;
            chunk[n] = (word % n_mark * 32 + lane) * PARTS + word / n_mark;
            size_t at = first + (size_t)min(chunk[n], chunks - 1);
            mass[n] = a.w.mass[at];
            top[n] = a.w.top[at];
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            int word = base + n * WEIGHING;
            if (word >= PARTS * n_mark)
                break;
            bool there = chunk[n] < chunks, takes = there && soft && takes_mass(a, mass[n], total);
            uint32_t taken = __ballot_sync(DG_ALL_LANES, takes);
            if (there)
                weights_of(a, group, chunk[n])[r % DG_CUDA_WORD_ROWS] =
                    takes ? level_share(level_of(top[n]), level_of(max)) : 0;
            if (lane == 0)
                marks[word] = taken;
        }
    }
}

/* Block: a row. When its sums are known, and that it is not sure, the first warp draws while the
 * others weigh. */
template <bool FOURS>
static __global__ void __launch_bounds__(ROW_THREADS, 3) conclude_rows(dg_cuda_words_args a)
{
    DG_SHARED(memory);
    uint32_t *marks = (uint32_t *)memory; /* of rows that are not sure */
    __shared__ row_shares s;
    int r = (int)blockIdx.x, t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab), where;
    int each = (chunks + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS) * 4,
        n_mark = PARTS * mark_count(a.n_vocab);
    int begin = min(t * each, chunks), end = min(begin + each, chunks);
    dg_grid_wait();
    dg_grid_launch_next();
    size_t first = (size_t)r * (size_t)chunks;
    double uniform = a.row[r].uniform;
    bool draws = a.row[r].draw == DG_CUDA_DRAW_PLAIN;
    float max = row_max<FOURS>(a.w.top + first, begin, end, chunks, &where);
    row_sums sum = sum_chunks<FOURS>(a, first, begin, end, chunks, max);
    s.share[t] = sum.mass;
    sum.mass = warp_sum(sum.mass);
    sum.slope = warp_sum(sum.slope);
    if (t % 32 == 0) {
        s.mass[t / 32] = sum.mass;
        s.slope[t / 32] = sum.slope;
    }
    __syncthreads();
    double total = 0, slope = 0;
    for (int i = 0; i < ROW_WARPS; i++) {
        total += s.mass[i];
        slope += s.slope[i];
    }
    if (!(total > 0 && total <= DBL_MAX && slope == slope))
        total = 0; /* of no use */
    int n_sure = 0;
    if (a.gathers && total > 0 && a.row[r].soft)
        n_sure = list_sure_words<FOURS>((sure_shares *)memory, a, r, max, total, begin, end);
    if (t >= 32 && !n_sure) {
        weigh_chunks(a, r, max, total, marks);
    } else if (t < 32) {
        int word = draws && total > 0 ? draw_word(a, r, s, each, uniform * total, max) : 0;
        if (t == 0) {
            tell(a, r, total, slope, max, where);
            a.w.n_sure[r] = n_sure;
            if (a.out.gathered)
                a.out.gathered[r] = n_sure;
            if (draws && total > 0)
                a.out.drawn[r] = word;
        }
    }
    if (n_sure)
        return;
    __syncthreads();
    uint32_t *used = marks_of(a, r / DG_CUDA_WORD_ROWS, 0);
    for (int i = t; i < n_mark; i += ROW_THREADS)
        if (marks[i] & ~used[i])
            atomicOr(&used[i], marks[i]);
}

/* ---- the most likely words: a block a row finds the next one n_top times ---- */

static __global__ void list_words(dg_cuda_words_args a)
{
    __shared__ float tops[ROW_WARPS];
    __shared__ int ats[ROW_WARPS];
    int r = (int)blockIdx.x, t = (int)threadIdx.x;
    dg_grid_wait();
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    double total = a.w.sums[2 * r], max = a.w.sums[2 * r + 1];
    float last = INFINITY;
    int last_at = -1;
    for (int n = 0; n < DG_CUDA_MAX_TOP; n++) {
        float top = -INFINITY;
        int at = 0x7FFFFFFF;
        if (n < a.row[r].n_top && total > 0)
            for (int i = t; i < a.n_vocab; i += ROW_THREADS)
                if (z[i] < last || (z[i] == last && i > last_at))
                    take_larger(top, at, z[i], i);
        block_argmax(top, at, tops, ats);
        if (t == 0) {
            bool found = at != 0x7FFFFFFF;
            a.out.top_id[r * DG_CUDA_MAX_TOP + n] = found ? at : -1;
            a.out.top_logprob[r * DG_CUDA_MAX_TOP + n] =
                found ? (float)((double)top - max - log(total)) : -INFINITY;
        }
        last = top;
        last_at = at;
        if (at == 0x7FFFFFFF)
            last = -INFINITY; /* nothing is below */
    }
}

extern "C" cudaError_t dg_cuda_words_find(cudaStream_t stream, const dg_cuda_words_args *a)
{
    if (a->n_row < 1)
        return cudaSuccess;
    if (a->n_row > (a->w.z ? DG_CUDA_WORD_ROWS : DG_CUDA_WORD_GROUP) ||
        (!a->w.z && (!a->measured || !a->leaves || a->changed || a->special || a->listed)))
        return cudaErrorInvalidValue;
    dim3 pieces(PIECES, (unsigned)a->n_row), rows((unsigned)a->n_row);
    size_t marks = PARTS * (size_t)mark_count(a->n_vocab) * sizeof(uint32_t),
           shared = a->gathers && marks < SURE_BYTES ? (size_t)SURE_BYTES : marks;
    cudaError_t error = cudaSuccess;
    if (!a->measured || a->changed)
        error = DG_LAUNCH(measure_words, pieces, ROW_THREADS, 0, stream, *a);
    if (!error && chunk_count(a->n_vocab) % 4 == 0)
        error = DG_LAUNCH(conclude_rows<true>, rows, ROW_THREADS, shared, stream, *a);
    else if (!error)
        error = DG_LAUNCH(conclude_rows<false>, rows, ROW_THREADS, shared, stream, *a);
    if (!error && a->special)
        error = dg_special_draws(stream, a);
    if (!error && a->listed)
        error = DG_LAUNCH(list_words, rows, ROW_THREADS, 0, stream, *a);
    return error;
}
