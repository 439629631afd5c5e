/* What requests ask about the words of their rows (dg_asked), from z and its chunks' maxima: a
 * block a row, behind dg_cuda_words_find. A row's answers depend on that row alone. */
#include "cuda/cuda_words.cuh"

enum { WARP = 32, CHUNK_LANES = 16, EACH = CHUNK_WORDS / CHUNK_LANES };

/* ---- the likeliest words ---- */

/* By one warp: of a chunk's words that are not among the first n found, the likeliest, the lowest
 * on ties, into *found; returns the next one's logit, or -infinity. */
static __device__ __forceinline__ float next_of_chunk(const float *z, int n_vocab, int chunk,
                                                      int *found, int n)
{
    float best[2] = {-INFINITY, -INFINITY};
    int at[2] = {0x7FFFFFFF, 0x7FFFFFFF};
    for (int round = 0; round < 2; round++) {
        for (int i = (int)threadIdx.x; i < CHUNK_WORDS; i += WARP) {
            int word = chunk * CHUNK_WORDS + i;
            bool taken = word >= n_vocab || word == at[0];
            for (int k = 0; k < n && !taken; k++)
                taken = found[k] == word;
            if (!taken)
                take_larger(best[round], at[round], z[word], word);
        }
        for (int with = WARP / 2; with > 0; with /= 2) {
            float v = __shfl_xor_sync(DG_ALL_LANES, best[round], with);
            int i = __shfl_xor_sync(DG_ALL_LANES, at[round], with);
            take_larger(best[round], at[round], v, i);
        }
    }
    __syncwarp();
    if (threadIdx.x == 0)
        found[n] = at[0];
    __syncwarp();
    return best[1];
}

/* The chunk with the largest maximum has the next word; what is left of it gives its next. */
static __device__ __forceinline__ void list_likeliest(const dg_cuda_words_args &a, int r,
                                                      double log_total, float *top_of)
{
    __shared__ float tops[ROW_THREADS / 32];
    __shared__ int ats[ROW_THREADS / 32];
    __shared__ int found[DG_CUDA_ASKED_TOP];
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab);
    const dg_cuda_asked *asked = &a.row[r].asked;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    for (int i = t; i < chunks; i += ROW_THREADS)
        top_of[i] = a.w.top[(size_t)r * (size_t)chunks + (size_t)i];
    for (int n = 0; n < DG_CUDA_ASKED_TOP; n++) {
        __syncthreads();
        float top = -INFINITY;
        int chunk = 0x7FFFFFFF;
        for (int i = t; i < chunks; i += ROW_THREADS)
            take_larger(top, chunk, top_of[i], i);
        block_argmax(top, chunk, tops, ats);
        bool more = chunk != 0x7FFFFFFF && top > -INFINITY;
        if (more && t < WARP) {
            float next = next_of_chunk(z, a.n_vocab, chunk, found, n);
            if (t == 0)
                top_of[chunk] = next;
        }
        if (t == 0) {
            if (!more)
                found[n] = -1;
            asked->top_id[n] = found[n];
            asked->top_logprob[n] = more ? (float)((double)top - log_total) : -INFINITY;
        }
    }
    __syncthreads();
}

/* ---- classes ---- */

struct class_shared {
    double share[ROW_THREADS]; /* of a thread's chunks */
    double slope[ROW_THREADS / CHUNK_LANES];
    float tops[ROW_THREADS / 32];
    int ats[ROW_THREADS / 32];
};

/* The class's likeliest word. */
static __device__ __forceinline__ float class_max(const dg_cuda_words_args &a, const float *z,
                                                  const uint8_t *class_of, unsigned c, int *at,
                                                  class_shared &s)
{
    float top = -INFINITY;
    *at = 0x7FFFFFFF;
    for (int i = (int)threadIdx.x; i < a.n_vocab; i += ROW_THREADS)
        if (class_of[i] == c)
            take_larger(top, *at, z[i], i);
    block_argmax(top, *at, s.tops, s.ats);
    return top;
}

/* Mass of each chunk's words of the class, against their maximum; 16 lanes have a chunk. */
static __device__ __forceinline__ void weigh_class(const dg_cuda_words_args &a, const float *z,
                                                   const uint8_t *class_of, unsigned c, float top,
                                                   float *mass_of, class_shared &s)
{
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab), lane = t % CHUNK_LANES;
    double slopes = 0;
    for (int base = 0; base < chunks; base += ROW_THREADS / CHUNK_LANES) {
        int chunk = base + t / CHUNK_LANES, first = chunk * CHUNK_WORDS + lane * EACH;
        float mass = 0, slope = 0;
        for (int i = 0; i < EACH; i++)
            if (first + i < a.n_vocab && class_of[first + i] == c) {
                float below = z[first + i] - top, e = word_mass(z[first + i], top);
                mass += e;
                slope += below * e;
            }
        for (int with = CHUNK_LANES / 2; with > 0; with /= 2) {
            mass += __shfl_xor_sync(DG_ALL_LANES, mass, with);
            slope += __shfl_xor_sync(DG_ALL_LANES, slope, with);
        }
        slopes += (double)slope;
        if (lane == 0 && chunk < chunks)
            mass_of[chunk] = mass;
    }
    if (lane == 0)
        s.slope[t / CHUNK_LANES] = slopes;
    __syncthreads();
    int each = (chunks + ROW_THREADS - 1) / ROW_THREADS;
    double sum = 0;
    for (int i = t * each; i < min((t + 1) * each, chunks); i++)
        sum += (double)mass_of[i];
    s.share[t] = sum;
    __syncthreads();
}

/* By one thread: the word of the class at which this much of its mass has gone by. */
static __device__ int draw_of_class(const dg_cuda_words_args &a, const float *z,
                                    const uint8_t *class_of, unsigned c, float top,
                                    const float *mass_of, const class_shared &s, double target)
{
    int chunks = chunk_count(a.n_vocab), each = (chunks + ROW_THREADS - 1) / ROW_THREADS;
    int range = 0, last = ROW_THREADS - 1, word = -1;
    while (last > 0 && !(s.share[last] > 0))
        last--;
    for (; range < last && s.share[range] <= target; range++)
        target -= s.share[range];
    int chunk = range * each, end = min(chunk + each, chunks) - 1;
    while (end > chunk && !(mass_of[end] > 0))
        end--;
    for (; chunk < end && (double)mass_of[chunk] <= target; chunk++)
        target -= (double)mass_of[chunk];
    double sum = 0;
    for (int i = chunk * CHUNK_WORDS; i < min((chunk + 1) * CHUNK_WORDS, a.n_vocab); i++) {
        if (class_of[i] != c)
            continue;
        float e = word_mass(z[i], top);
        sum += (double)e;
        if (e > 0)
            word = i;
        if (sum > target)
            break;
    }
    return word;
}

static __device__ void sum_class(const dg_cuda_words_args &a, int r, unsigned c, double log_total,
                                 float *mass_of, class_shared &s)
{
    const dg_cuda_asked *asked = &a.row[r].asked;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    dg_cuda_class_finding f = {-INFINITY, -INFINITY, 0, -1, -1};
    int at;
    float top = class_max(a, z, asked->class_of, c, &at, s);
    if (at != 0x7FFFFFFF)
        weigh_class(a, z, asked->class_of, c, top, mass_of, s);
    if (threadIdx.x == 0) {
        if (at != 0x7FFFFFFF) {
            double mass = 0, slope = 0;
            for (int i = 0; i < ROW_THREADS; i++)
                mass += s.share[i];
            for (int i = 0; i < ROW_THREADS / CHUNK_LANES; i++)
                slope += s.slope[i];
            f.best = (double)top - log_total;
            f.mass = f.best + log(mass);
            f.inner = exp(f.best) * (slope + f.best * mass);
            f.id = at;
            f.drawn =
                draw_of_class(a, z, asked->class_of, c, top, mass_of, s, asked->uniform[c] * mass);
        }
        asked->found[c] = f;
    }
    __syncthreads();
}

/* Block: a row. */
static __global__ void answer_rows(dg_cuda_words_args a)
{
    DG_SHARED(memory);
    __shared__ class_shared s;
    float *of_chunk = (float *)memory;
    int r = (int)blockIdx.x, t = (int)threadIdx.x;
    dg_grid_wait();
    const dg_cuda_asked *asked = &a.row[r].asked;
    double total = a.w.sums[2 * r];
    if (!asked->top_id || !(total > 0))
        return;
    double log_total = a.w.sums[2 * r + 1] + log(total);
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    for (int i = t; i < asked->n_id; i += ROW_THREADS)
        asked->logprob[i] = (float)((double)z[asked->id[i]] - log_total);
    list_likeliest(a, r, log_total, of_chunk);
    for (unsigned c = 0; c < DG_CUDA_ASKED_CLASSES; c++)
        if (asked->classes >> c & 1)
            sum_class(a, r, c, log_total, of_chunk, s);
}

extern "C" cudaError_t dg_cuda_words_answer(cudaStream_t stream, const dg_cuda_words_args *a)
{
    if (a->n_row < 1)
        return cudaSuccess;
    return DG_LAUNCH(answer_rows, dim3((unsigned)a->n_row), ROW_THREADS,
                     (size_t)chunk_count(a->n_vocab) * sizeof(float), stream, *a);
}
