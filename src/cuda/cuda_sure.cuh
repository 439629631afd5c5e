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

enum { SURE_WORDS = DG_CUDA_SURE_WORDS, SURE_FLOORS = 4, SURE_AHEAD = 8 };
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

/* Of a row's chunks that have a word above the lowest floor: which, their maxima, and how many of
 * their words are above each floor, a byte for one; then where the first of their words is in the
 * list. */
struct sure_chunks {
    int chunk[SURE_WORDS], words[SURE_WORDS];
    float top[SURE_WORDS];
    int before[ROW_WARPS];
    float sum[ROW_WARPS], left[SURE_FLOORS][ROW_WARPS];
};

/* The shares of their words, in memory that the block shares. */
typedef float sure_shares[CHUNK_WORDS];
enum { SURE_BYTES = SURE_WORDS * sizeof(sure_shares) };

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

/* What the shares of a chunk's words are times: of a table in slabs they become parts of 2^level of
 * the row's maximum, otherwise they are of e^maximum. */
static __device__ __forceinline__ float chunk_weight(const dg_cuda_words_args &a,
                                                     const sure_row &row, float top)
{
    return a.form == DG_CUDA_F32 ? 1 : level_share(level_of(top), level_of(row.max));
}

/* The shares of all words of the chunks, where there is p. What a thread asks memory for is on its
 * way before the first of it is needed. */
static __device__ __forceinline__ void load_p(sure_shares *share, const dg_cuda_words_args &a,
                                              const sure_row &row, const sure_chunks &s, int n)
{
    int lane = (int)threadIdx.x % 32;
    const uint32_t *p =
        (const uint32_t *)((const uint16_t *)a.w.p + (size_t)row.r * (size_t)padded(a.n_vocab));
    for (int base = (int)threadIdx.x / 32; base < n; base += SURE_AHEAD * ROW_WARPS) {
        uint32_t pair[SURE_AHEAD];
#pragma unroll
        for (int i = 0; i < SURE_AHEAD; i++)
            pair[i] = p[s.chunk[min(base + i * ROW_WARPS, n - 1)] * (CHUNK_WORDS / 2) + lane];
#pragma unroll
        for (int i = 0; i < SURE_AHEAD; i++) {
            int at = base + i * ROW_WARPS;
            if (at >= n)
                break;
            bool bf16 = a.form == DG_CUDA_BF16;
            float weight = chunk_weight(a, row, s.top[at]),
                  low = bf16 ? dg_bf16_low(pair[i]) : dg_f16_at((uint16_t)pair[i]),
                  high = bf16 ? dg_bf16_high(pair[i]) : dg_f16_at((uint16_t)(pair[i] >> 16));
            *(float2 *)&share[at][2 * lane] = make_float2(low * weight, high * weight);
        }
    }
}

/* The same where there are logits. A warp's chunks are those of load_p(). */
static __device__ __forceinline__ void load_z(sure_shares *share, const dg_cuda_words_args &a,
                                              const sure_row &row, const sure_chunks &s, int n)
{
    int lane = (int)threadIdx.x % 32;
    for (int i = (int)threadIdx.x / 32; i < n; i += ROW_WARPS)
        for (int word = lane; word < CHUNK_WORDS; word += 32)
            share[i][word] =
                word_weight(a, row.r, s.chunk[i] * CHUNK_WORDS + word, s.top[i], row.max) *
                chunk_weight(a, row, s.top[i]);
}

/* Lists the chunks that have a word above the lowest floor, by their maxima and in order; a thread
 * has those from `begin` to `end`. How many there are, 0: too many, or too much is in the others.
 * *left: how much that is. */
template <bool FOURS>
static __device__ __forceinline__ int sure_chunks_of(const dg_cuda_words_args &a,
                                                     const sure_row &row, double total,
                                                     sure_chunks &s, int begin, int end,
                                                     float *left)
{
    int chunks = chunk_count(a.n_vocab);
    size_t first = (size_t)row.r * (size_t)chunks;
    float least = row.max + logf((float)total * sure_floor(SURE_FLOORS - 1)), below = 0;
    int n = 0, all;
    for (int base = begin; base < end; base += AT_ONCE * 4) {
        float top[AT_ONCE * 4], mass[AT_ONCE * 4];
        load_chunks<FOURS>(top, a.w.top + first, base, chunks);
        load_chunks<FOURS>(mass, a.w.mass + first, base, chunks);
#pragma unroll
        for (int i = 0; i < AT_ONCE * 4; i++) {
            bool there = base + i < end, taken = there && top[i] >= least;
            n += taken;
            below += there && !taken ? mass[i] : 0;
        }
    }
    int at = sum_before<ROW_WARPS>(n, &all, s.before);
    below = threads_sum(below, s.sum);
    if (all > SURE_WORDS || below > (float)total * SURE_LEFT)
        return 0;
    for (int base = begin; base < end; base += AT_ONCE * 4) {
        float top[AT_ONCE * 4];
        load_chunks<FOURS>(top, a.w.top + first, base, chunks);
#pragma unroll
        for (int i = 0; i < AT_ONCE * 4; i++)
            if (base + i < end && top[i] >= least) {
                s.chunk[at] = base + i;
                s.top[at++] = top[i];
            }
    }
    __syncthreads();
    *left = below / (float)total * row.mass;
    return all;
}

/* How many words of chunk i are above each floor; what is not is added to `left`. By a warp. */
static __device__ __forceinline__ void count_words(sure_chunks &s, int i, const float *share,
                                                   const sure_row &row, float left[SURE_FLOORS])
{
    int lane = (int)threadIdx.x % 32;
    float first = share[lane], second = share[lane + 32];
    uint32_t words = 0;
#pragma unroll
    for (int f = 0; f < SURE_FLOORS; f++) {
        bool low = first >= row.mass * sure_floor(f), high = second >= row.mass * sure_floor(f);
        words |= (uint32_t)(__popc(__ballot_sync(DG_ALL_LANES, low)) +
                            __popc(__ballot_sync(DG_ALL_LANES, high)))
                 << 8 * f;
        left[f] += (low ? 0 : first) + (high ? 0 : second);
    }
    if (lane == 0)
        s.words[i] = (int)words;
}

/* The highest floor that leaves no more than SURE_LEFT; below 0: none does. By all threads, each
 * with what it left; left_out: what is in no listed chunk. */
static __device__ __forceinline__ int choose_floor(sure_chunks &s, const sure_row &row,
                                                   const float left[SURE_FLOORS], float left_out)
{
    int floor = -1;
#pragma unroll
    for (int f = 0; f < SURE_FLOORS; f++) {
        float of_warp = dg_warp_sum(left[f]);
        if (threadIdx.x % 32 == 0)
            s.left[f][threadIdx.x / 32] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int f = SURE_FLOORS - 1; f >= 0; f--) {
        float sum = 0;
        for (int i = 0; i < ROW_WARPS; i++)
            sum += s.left[f][i];
        if (left_out + sum <= row.mass * SURE_LEFT)
            floor = f;
    }
    return floor;
}

/* By a row's block: lists its words if it is sure, and says how many they are; 0: it is not. */
template <bool FOURS>
static __device__ __forceinline__ int list_sure_words(sure_shares *share,
                                                      const dg_cuda_words_args &a, int r, float max,
                                                      double total, int begin, int end)
{
    __shared__ sure_chunks s;
    sure_row row = sure_row_of(a, r, max, total);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t = (int)threadIdx.x, n_word;
    float left_out, left[SURE_FLOORS] = {};
    int n = sure_chunks_of<FOURS>(a, row, total, s, begin, end, &left_out);
    if (!n)
        return 0;
    if (a.w.z)
        load_z(share, a, row, s, n);
    else
        load_p(share, a, row, s, n);
    __syncwarp(); /* who wrote a chunk's reads it */
    for (int i = warp; i < n; i += ROW_WARPS)
        count_words(s, i, share[i], row, left);
    int floor = choose_floor(s, row, left, left_out);
    int of = t < n && floor >= 0 ? s.words[t] >> 8 * floor & 255 : 0;
    int at = sum_before<ROW_WARPS>(of, &n_word, s.before);
    if (floor < 0 || n_word > SURE_WORDS)
        return 0;
    s.words[t] = at;
    __syncthreads();
    size_t list = (size_t)r * SURE_WORDS;
    for (int i = warp; i < n; i += ROW_WARPS) {
        int to = s.words[i], word = s.chunk[i] * CHUNK_WORDS + lane;
        for (int half = 0; half < 2; half++) {
            float of_word = share[i][lane + 32 * half];
            bool taken = of_word >= row.mass * sure_floor(floor);
            uint32_t with = __ballot_sync(DG_ALL_LANES, taken);
            if (taken) {
                size_t mine = list + (size_t)(to + __popc(with & ((1u << lane) - 1)));
                a.w.sure_id[mine] = word + 32 * half;
                a.w.sure_share[mine] = of_word;
            }
            to += __popc(with);
        }
    }
    return n_word;
}

#endif
