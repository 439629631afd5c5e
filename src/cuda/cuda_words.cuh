/* Shared by the files of the two ends of the model: how the vocabulary is cut. */
#ifndef DG_CUDA_CUDA_WORDS_CUH
#define DG_CUDA_CUDA_WORDS_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_words.h"

enum {
    ROW_THREADS = 256,
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

/* Words [first, end) of a piece, whole chunks. */
struct piece_range {
    int first, end;
};

static __device__ __forceinline__ piece_range piece_of(int piece, int n_vocab)
{
    int words = (chunk_count(n_vocab) + PIECES - 1) / PIECES * CHUNK_WORDS;
    piece_range r = {min(piece * words, n_vocab), min((piece + 1) * words, n_vocab)};
    return r;
}

/* e^(z - max); a row of NaN or infinity makes NaN, which the sums carry to its entropy. */
static __device__ __forceinline__ float word_mass(float z, float max)
{
    return expf(z - max);
}

#endif
