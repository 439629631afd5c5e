/* Rows that are sure: few words have nearly all of their mass. Their soft embedding is gathered
 * word by word (cuda_soft_sum.cu); the product with the table, which costs as much for one row as
 * for all, is for the others.
 *
 * A row decides for itself. Words are taken from a share of the mass on: of some floors the highest
 * beneath which no more is left than SURE_DROP. The lowest is SURE_DROP / SURE_WORDS: beneath it
 * SURE_WORDS words have less than SURE_DROP, so that a lower one would hardly find more rows. What
 * is left out is summed up, not what is taken: sums of 16-bit shares are off by 2^-9 of themselves,
 * which is nothing of so little. All sums are in one order.
 *
 * More words would find more rows, but whatever is gathered comes on top where some other row wants
 * the product: 256 words of 256 rows are 370 MB, a quarter of the table. */
#ifndef DG_CUDA_CUDA_SURE_CUH
#define DG_CUDA_CUDA_SURE_CUH

#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_words.cuh"

enum { SURE_WORDS = DG_CUDA_SURE_WORDS, SURE_FLOORS = 4, SURE_AHEAD = 4 };
static_assert((int)SURE_WORDS == (int)ROW_THREADS && CHUNK_WORDS == 64, "a thread has a chunk");

/* 2^-14, 2^-16, 2^-18, 2^-20 of the mass. */
static __device__ __forceinline__ float sure_floor(int i)
{
    return __int_as_float((127 - 14 - 2 * i) << 23);
}

/* What may be left out as sums have it: a 32nd less than DG_CUDA_SURE_DROP. Rounding hides 2^-9 of
 * it in bfloat16; in halves 2^-25 of their chunk's level for each of its 64 words: 2^-18 of the
 * mass, 2^-6 of it. */
#define SURE_LEFT (DG_CUDA_SURE_DROP * 31 / 32)

/* Of a row's chunks that have a word above the lowest floor: which, and how many of their words are
 * above each floor, a byte for one; then where the first of their words is in the list. */
struct sure_chunks {
    int chunk[SURE_WORDS], words[SURE_WORDS];
    int before[ROW_WARPS];
    float sum[ROW_WARPS];
};

/* A row, its maximum, and its mass in the unit of its words' shares. */
struct sure_row {
    int r;
    float max, mass;
};

static __device__ __forceinline__ sure_row sure_row_of(const dg_cuda_words_args &a, int r,
                                                       float max, double total)
{
    double unit = a.form == DG_CUDA_F32 ? 1 : (double)top_share(max);
    sure_row row = {r, max, (float)(total * unit)};
    return row;
}

/* By a warp: the shares of a chunk's words, of each lane the one of its number and the one 32
 * further. Of a table in slabs they are parts of 2^level of the row's maximum, otherwise of
 * e^maximum. */
static __device__ __forceinline__ void load_two(float share[2], const dg_cuda_words_args &a,
                                                const sure_row &row, int chunk)
{
    int word = chunk * CHUNK_WORDS + (int)threadIdx.x % 32;
    float top = a.w.top[(size_t)row.r * (size_t)chunk_count(a.n_vocab) + (size_t)chunk];
    float weight = a.form == DG_CUDA_F32 ? 1 : level_share(level_of(top), level_of(row.max));
    for (int i = 0; i < 2; i++)
        share[i] = word_weight(a, row.r, word + 32 * i, top, row.max) * weight;
}

/* Calls take(i, chunk, shares) with each of the row's chunks, a warp with one at a time. */
template <class T>
static __device__ __forceinline__ void each_chunk(const dg_cuda_words_args &a, const sure_row &row,
                                                  const sure_chunks &s, int n, T take)
{
    for (int base = (int)threadIdx.x / 32; base < n; base += SURE_AHEAD * ROW_WARPS) {
        float share[SURE_AHEAD][2];
#pragma unroll
        for (int i = 0; i < SURE_AHEAD; i++)
            load_two(share[i], a, row, s.chunk[min(base + i * ROW_WARPS, n - 1)]);
#pragma unroll
        for (int i = 0; i < SURE_AHEAD; i++)
            if (base + i * ROW_WARPS < n)
                take(base + i * ROW_WARPS, share[i]);
    }
}

/* Lists the chunks that have a word above the lowest floor, by their maxima and in order; a thread
 * has those from `begin` to `end`. How many there are, 0: too many, or too much is in the others.
 * *left: how much that is. */
static __device__ __forceinline__ int sure_chunks_of(const dg_cuda_words_args &a,
                                                     const sure_row &row, double total,
                                                     sure_chunks &s, int begin, int end,
                                                     float *left)
{
    size_t first = (size_t)row.r * (size_t)chunk_count(a.n_vocab);
    const float *top = a.w.top + first, *mass = a.w.mass + first;
    float least = row.max + logf((float)total * sure_floor(SURE_FLOORS - 1)), below = 0;
    int n = 0, all;
    for (int i = begin; i < end; i++) {
        n += top[i] >= least;
        below += top[i] >= least ? 0 : mass[i];
    }
    int at = sum_before<ROW_WARPS>(n, &all, s.before);
    below = threads_sum(below, s.sum);
    if (all > SURE_WORDS || below > (float)total * SURE_LEFT)
        return 0;
    for (int i = begin; i < end; i++)
        if (top[i] >= least)
            s.chunk[at++] = i;
    __syncthreads();
    *left = below / (float)total * row.mass;
    return all;
}

/* By a row's block: lists its words if it is sure, and says how many they are; 0: it is not. */
static __device__ __forceinline__ int list_sure_words(const dg_cuda_words_args &a, int r, float max,
                                                      double total, int begin, int end)
{
    __shared__ sure_chunks s;
    sure_row row = sure_row_of(a, r, max, total);
    int lane = (int)threadIdx.x % 32, t = (int)threadIdx.x, n_word, floor = 0;
    float left_out, left[SURE_FLOORS] = {};
    int n = sure_chunks_of(a, row, total, s, begin, end, &left_out);
    if (!n)
        return 0;
    each_chunk(a, row, s, n, [&](int i, const float share[2]) {
        uint32_t words = 0;
#pragma unroll
        for (int f = 0; f < SURE_FLOORS; f++) {
            bool low = share[0] >= row.mass * sure_floor(f),
                 high = share[1] >= row.mass * sure_floor(f);
            words |= (uint32_t)(__popc(__ballot_sync(DG_ALL_LANES, low)) +
                                __popc(__ballot_sync(DG_ALL_LANES, high)))
                     << 8 * f;
            left[f] += (low ? 0 : share[0]) + (high ? 0 : share[1]);
        }
        if (lane == 0)
            s.words[i] = (int)words;
    });
    bool enough = false;
#pragma unroll
    for (int f = 0; f < SURE_FLOORS; f++) {
        float below = left_out + threads_sum(left[f], s.sum);
        if (!enough && below <= row.mass * SURE_LEFT) {
            enough = true;
            floor = f;
        }
    }
    int of = t < n ? s.words[t] >> 8 * floor & 255 : 0;
    int at = sum_before<ROW_WARPS>(of, &n_word, s.before);
    if (!enough || n_word > SURE_WORDS)
        return 0;
    s.words[t] = at;
    __syncthreads();
    size_t list = (size_t)r * SURE_WORDS;
    each_chunk(a, row, s, n, [&](int i, const float share[2]) {
        int to = s.words[i], word = s.chunk[i] * CHUNK_WORDS + lane;
        for (int half = 0; half < 2; half++) {
            bool taken = share[half] >= row.mass * sure_floor(floor);
            uint32_t with = __ballot_sync(DG_ALL_LANES, taken);
            if (taken) {
                size_t mine = list + (size_t)(to + __popc(with & ((1u << lane) - 1)));
                a.w.sure_id[mine] = word + 32 * half;
                a.w.sure_share[mine] = share[half];
            }
            to += __popc(with);
        }
    });
    return n_word;
}

#endif
