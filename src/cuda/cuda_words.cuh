/* Shared by the files of the two ends of the model: how the vocabulary is cut. */
#ifndef DG_CUDA_CUDA_WORDS_CUH
#define DG_CUDA_CUDA_WORDS_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_words.h"

#define LOG2_E 1.4426950409f

enum {
    ROW_THREADS = 256,
    ROW_WARPS = ROW_THREADS / 32,
    PIECES = 64,
    CHUNK_WORDS = DG_CUDA_WORD_CHUNK,
    PARTS = DG_CUDA_SOFT_PARTS
};

/* dg_cuda_ld(), here and there. */
static __host__ __device__ __forceinline__ int padded(int n)
{
    return (n + 63) / 64 * 64;
}

static __host__ __device__ __forceinline__ int chunk_count(int n_vocab)
{
    return (n_vocab + CHUNK_WORDS - 1) / CHUNK_WORDS;
}

/* ---- parts: chunks in turn, so that the words which matter are spread over them ---- */

/* Words of 32 bits in which a part's chunks are marked; chunk number i of a part is PARTS i + part.
 */
static __host__ __device__ __forceinline__ int mark_count(int n_vocab)
{
    return ((chunk_count(n_vocab) + PARTS - 1) / PARTS + 31) / 32;
}

/* DG_CUDA_WORD_ROWS rows that have marks and weights of their own. */
static __host__ __device__ __forceinline__ int word_groups(int n_row)
{
    return (n_row + DG_CUDA_WORD_ROWS - 1) / DG_CUDA_WORD_ROWS;
}

/* The marks of a part, for rows of a group. */
static __device__ __forceinline__ uint32_t *marks_of(const dg_cuda_words_args &a, int group,
                                                     int part)
{
    return a.w.used + (group * PARTS + part) * mark_count(a.n_vocab);
}

static __device__ __forceinline__ bool chunk_used(const dg_cuda_words_args &a, int group, int chunk)
{
    int i = chunk / PARTS;
    return marks_of(a, group, chunk % PARTS)[i / 32] >> i % 32 & 1;
}

/* The weights of a chunk, for rows of a group. */
static __device__ __forceinline__ float *weights_of(const dg_cuda_words_args &a, int group,
                                                    int chunk)
{
    return a.w.weight +
           ((size_t)group * (size_t)chunk_count(a.n_vocab) + (size_t)chunk) * DG_CUDA_WORD_ROWS;
}

/* The number of the part's first marked chunk from number i on; below 0: there is none. */
static __device__ __forceinline__ int next_used(const dg_cuda_words_args &a, int group, int part,
                                                int i)
{
    int marks = mark_count(a.n_vocab);
    for (; i < marks * 32; i = (i / 32 + 1) * 32) {
        uint32_t left = marks_of(a, group, part)[i / 32] >> i % 32;
        if (left)
            return i + __ffs((int)left) - 1;
    }
    return -1;
}

/* Words [first, end) of a piece, whole chunks; both may be n_vocab, which no chunk begins with. */
struct piece_range {
    int first, end;
};

/* The first chunk from a word on. */
static __device__ __forceinline__ int chunk_from(int word)
{
    return (word + CHUNK_WORDS - 1) / CHUNK_WORDS;
}

static __device__ __forceinline__ piece_range piece_of(int piece, int n_vocab)
{
    int words = (chunk_count(n_vocab) + PIECES - 1) / PIECES * CHUNK_WORDS;
    piece_range r = {min(piece * words, n_vocab), min((piece + 1) * words, n_vocab)};
    return r;
}

/* The larger value, the lower index of equals; NaN is never larger. */
static __device__ __forceinline__ void take_larger(float &top, int &at, float v, int i)
{
    if (v > top || (v == top && i < at)) {
        top = v;
        at = i;
    }
}

/* The largest of all threads' values, by all of a block. */
static __device__ __forceinline__ void block_argmax(float &top, int &at, float tops[ROW_WARPS],
                                                    int ats[ROW_WARPS])
{
    for (int with = 16; with > 0; with /= 2) {
        float v = __shfl_xor_sync(DG_ALL_LANES, top, with);
        int i = __shfl_xor_sync(DG_ALL_LANES, at, with);
        take_larger(top, at, v, i);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        tops[threadIdx.x / 32] = top;
        ats[threadIdx.x / 32] = at;
    }
    __syncthreads();
    top = tops[0];
    at = ats[0];
    for (int i = 1; i < ROW_WARPS; i++)
        take_larger(top, at, tops[i], ats[i]);
}

/* The sum over the block, the same for all threads, in one fixed order. */
static __device__ __forceinline__ float threads_sum(float x, float shared[ROW_WARPS])
{
    x = dg_warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < ROW_WARPS; i++)
        sum += shared[i];
    return sum;
}

/* What there is to say of a row's words in a chunk (dg_cuda_words). */
struct chunk_stats {
    float top;
    int at;
    float mass, slope;
};

static __device__ __forceinline__ void put_stats(const dg_cuda_words_args &a, int r, int chunk,
                                                 const chunk_stats &stats)
{
    size_t at = (size_t)r * (size_t)chunk_count(a.n_vocab) + (size_t)chunk;
    a.w.top[at] = stats.top;
    a.w.top_at[at] = stats.at;
    a.w.mass[at] = stats.mass;
    a.w.slope[at] = stats.slope;
}

/* Whether a row takes a chunk that has this much of its mass. */
static __device__ __forceinline__ bool takes_mass(const dg_cuda_words_args &a, float mass,
                                                  double total)
{
    return (double)mass * chunk_count(a.n_vocab) >= (double)a.drop * total;
}

/* ---- what chunks say of their row. A thread has `each` neighbours, a multiple of four; 16 are on
 * their way at once, as no branch stands between their loads. Beyond the last are the last ones
 * again, of which nothing is taken. FOURS: rows of chunks are aligned. ---- */

enum { AT_ONCE = 4 };

template <bool FOURS>
static __device__ __forceinline__ void load_chunks(float to[AT_ONCE * 4], const float *from,
                                                   int first, int chunks)
{
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        int at = first + 4 * i;
        float4 four;
        if (FOURS)
            four = *(const float4 *)(from + min(at, chunks - 4));
        else
            four = make_float4(from[min(at, chunks - 1)], from[min(at + 1, chunks - 1)],
                               from[min(at + 2, chunks - 1)], from[min(at + 3, chunks - 1)]);
        to[4 * i] = four.x;
        to[4 * i + 1] = four.y;
        to[4 * i + 2] = four.z;
        to[4 * i + 3] = four.w;
    }
}

/* ---- p of a table in slabs ---- */

/* The power of two that e^z is held against: not below it, and less than twice as large. */
static __device__ __forceinline__ float level_of(float z)
{
    return ceilf(z * LOG2_E);
}

/* e^top / 2^level of top. */
static __device__ __forceinline__ float top_share(float top)
{
    return dg_exp2_fast(fmaf(top, LOG2_E, -level_of(top)));
}

/* e^z / 2^level, as the head has it. */
static __device__ __forceinline__ float word_share(float z, float level)
{
    return dg_exp2_fast(fmaf(z, LOG2_E, -level));
}

/* Exactly 2^(level - row's); too small for a float, or not a number: 0. */
static __device__ __forceinline__ float level_share(float level, float row)
{
    float below = level - row;
    return below >= -126 ? __int_as_float(((int)below + 127) << 23) : 0;
}

/* e^(z - max); a row of NaN or infinity makes NaN, which the sums carry to its entropy. */
static __device__ __forceinline__ float word_mass(float z, float max)
{
    return expf(z - max);
}

/* What a word weighs among those of its chunk, whose maximum is `top`: as p has it where there is
 * such a p, so that a draw and a sure row are the same with and without z. */
static __device__ __forceinline__ float word_weight(const dg_cuda_words_args &a, int r, int word,
                                                    float top, float max)
{
    if (word >= a.n_vocab)
        return 0;
    if (!a.w.z) {
        uint16_t bits =
            ((const uint16_t *)a.w.p)[(size_t)r * (size_t)padded(a.n_vocab) + (size_t)word];
        return a.form == DG_CUDA_BF16 ? dg_bf16_at(bits) : dg_f16_at(bits);
    }
    float z = a.w.z[(size_t)r * (size_t)a.n_vocab + (size_t)word];
    if (a.form == DG_CUDA_F32)
        return word_mass(z, max);
    float share = word_share(z, level_of(top));
    return a.form == DG_CUDA_BF16 ? dg_bf16_at((uint16_t)dg_pack_bf16(share, 0))
                                  : dg_f16_at((uint16_t)dg_pack_f16(share, 0));
}

template <dg_cuda_form FORM>
static __device__ __forceinline__ uint32_t pack_shares(float low, float high)
{
    return FORM == DG_CUDA_BF16 ? dg_pack_bf16(low, high) : dg_pack_f16(low, high);
}

/* By `n` threads of one block, before any row concludes. */
static __device__ __forceinline__ void clear_marks(const dg_cuda_words_args &a, int n)
{
    for (int i = (int)threadIdx.x; i < word_groups(a.n_row) * PARTS * mark_count(a.n_vocab); i += n)
        a.w.used[i] = 0;
}

/* What the largest probability of a row is as a byte. */
#define DG_BYTE_P 256.0f

/* cuda_soft_bytes.cu: parts of the soft embedding out of a turned table; p is there, halves. */
cudaError_t dg_soft_bytes(cudaStream_t stream, const dg_cuda_words_args *a,
                          const dg_cuda_matrix *table);

/* Whether a row is one of the product's; of others nothing is read or written there. */
static __device__ __forceinline__ bool is_multiplied(const dg_cuda_words_args &a, int r)
{
    return r < a.n_row && !(a.gathers && a.w.n_sure[r]);
}

/* What sums of shares are times: of the product's, of words'; level: the product's are of 2^level
 * (level_of), not of e^maximum. */
struct dg_soft_scale {
    float product, words;
    bool level;
};

/* cuda_soft_sum.cu: each row's soft embedding, of the parts of the product or of its words. */
cudaError_t dg_soft_sum(cudaStream_t stream, const dg_cuda_words_args *a,
                        const dg_cuda_matrix *words, dg_soft_scale scale);

/* cuda_draws.cu: of the rows that do not draw plainly, behind all other findings. */
cudaError_t dg_special_draws(cudaStream_t stream, const dg_cuda_words_args *a);

#endif
