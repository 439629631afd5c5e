/* What requests ask about the words of their rows (dg_asked), from z and its chunks' maxima: a
 * block a row, behind dg_cuda_words_find. A row's answers depend on that row alone. */
#include "cuda/cuda_words.cuh"

enum { WARP = 32, CHUNK_LANES = 16, EACH = CHUNK_WORDS / CHUNK_LANES };

/* Words that may be among the likeliest; where there are more they are looked for one by one. */
enum { MOST_NEAR = 1024 };

/* Classes whose likeliest word is so far below the row's, in nats, are weighed against their own.
 */
#define FAR_BELOW 40.0f

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

/* The chunk with the largest maximum has the next word; what is left of it gives its next. For rows
 * with so many equal words that others find no end. */
static __device__ __noinline__ void extract_likeliest(const dg_cuda_words_args &a, int r,
                                                      double log_total, float *top_of, int *found)
{
    __shared__ float tops[ROW_THREADS / 32];
    __shared__ int ats[ROW_THREADS / 32];
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab);
    const dg_cuda_asked *asked = &a.row[r].asked;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
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

/* Numbers in the order of the floats; NaN, which is never larger, below all. */
static __device__ __forceinline__ uint32_t order_of(float v)
{
    uint32_t bits = __float_as_uint(v);
    return v != v ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The largest number that at least DG_CUDA_ASKED_TOP of n values reach; 0: there are not so many.
 */
static __device__ __forceinline__ uint32_t reached(const float *value, int n, int *counts)
{
    uint32_t least = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t tried = least | 1u << bit;
        int mine = 0;
        for (int i = (int)threadIdx.x; i < n; i += ROW_THREADS)
            mine += order_of(value[i]) >= tried;
        for (int with = WARP / 2; with > 0; with /= 2)
            mine += __shfl_xor_sync(DG_ALL_LANES, mine, with);
        int *count = counts + bit % 2 * (ROW_THREADS / WARP);
        if (threadIdx.x % WARP == 0)
            count[threadIdx.x / WARP] = mine;
        __syncthreads();
        mine = 0;
        for (int i = 0; i < ROW_THREADS / WARP; i++)
            mine += count[i];
        least = mine >= DG_CUDA_ASKED_TOP ? tried : least;
    }
    return least;
}

/* The likeliest words are in the chunks with the largest maxima, and above the least of those: the
 * few words there are ranked by how many are before them. */
static __device__ __forceinline__ void list_likeliest(const dg_cuda_words_args &a, int r,
                                                      double log_total, float *top_of)
{
    __shared__ int counts[2 * (ROW_THREADS / WARP)], n_near, found[DG_CUDA_ASKED_TOP];
    __shared__ float near[MOST_NEAR];
    __shared__ int near_id[MOST_NEAR];
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab);
    const dg_cuda_asked *asked = &a.row[r].asked;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    if (t == 0)
        n_near = 0;
    for (int i = t; i < chunks; i += ROW_THREADS)
        top_of[i] = a.w.top[(size_t)r * (size_t)chunks + (size_t)i];
    __syncthreads();
    uint32_t least = max(reached(top_of, chunks, counts), order_of(-INFINITY) + 1);
    /* 16 lanes have a chunk */
    for (int chunk = t / CHUNK_LANES; chunk < chunks; chunk += ROW_THREADS / CHUNK_LANES)
        for (int i = 0; i < EACH && order_of(top_of[chunk]) >= least; i++) {
            int word = chunk * CHUNK_WORDS + t % CHUNK_LANES * EACH + i;
            if (word >= a.n_vocab || order_of(z[word]) < least)
                continue;
            int at = atomicAdd(&n_near, 1);
            if (at < MOST_NEAR) {
                near[at] = z[word];
                near_id[at] = word;
            }
        }
    __syncthreads();
    int n = n_near;
    if (n > MOST_NEAR) {
        extract_likeliest(a, r, log_total, top_of, found);
        return;
    }
    for (int i = t; i < n; i += ROW_THREADS) {
        int before = 0;
        for (int k = 0; k < n; k++)
            before += near[k] > near[i] || (near[k] == near[i] && near_id[k] < near_id[i]);
        if (before < DG_CUDA_ASKED_TOP) {
            asked->top_id[before] = near_id[i];
            asked->top_logprob[before] = (float)((double)near[i] - log_total);
        }
    }
    for (int i = n + t; i < DG_CUDA_ASKED_TOP; i += ROW_THREADS) {
        asked->top_id[i] = -1;
        asked->top_logprob[i] = -INFINITY;
    }
    __syncthreads();
}

/* ---- classes ---- */

struct class_shared {
    double share[ROW_THREADS]; /* of a thread's chunks, for the draw */
    double mass[ROW_THREADS / CHUNK_LANES], slope[ROW_THREADS / CHUNK_LANES];
    float tops[ROW_THREADS / 32];
    int ats[ROW_THREADS / 32];
};

/* The words of a lane's part of a chunk, and their classes; those that there are not have none. */
struct lane_words {
    float z[EACH];
    unsigned class_of[EACH];
};

static __device__ __forceinline__ lane_words load_words(const float *z, const uint8_t *class_of,
                                                        int first, int n_vocab, bool whole)
{
    lane_words w;
    static_assert(EACH == 4, "loaded in one piece");
    if (whole && first + EACH <= n_vocab) {
        float4 v = *(const float4 *)(z + first);
        uint32_t c = *(const uint32_t *)(class_of + first);
        w.z[0] = v.x;
        w.z[1] = v.y;
        w.z[2] = v.z;
        w.z[3] = v.w;
        for (int i = 0; i < EACH; i++)
            w.class_of[i] = c >> 8 * i & 255;
        return w;
    }
    for (int i = 0; i < EACH; i++) {
        bool there = first + i < n_vocab;
        w.z[i] = there ? z[first + i] : -INFINITY;
        w.class_of[i] = there ? (unsigned)class_of[first + i] : (unsigned)DG_CUDA_ASKED_CLASSES;
    }
    return w;
}

/* The class's likeliest word, and the mass of each chunk's words of the class against `against`,
 * for the draw that of p^power; 16 lanes have a chunk. */
static __device__ __forceinline__ float weigh_class(const dg_cuda_words_args &a, const float *z,
                                                    const uint8_t *class_of, unsigned c,
                                                    float power, float against, float *mass_of,
                                                    int *at, class_shared &s)
{
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab), lane = t % CHUNK_LANES;
    bool whole = a.n_vocab % EACH == 0;
    double masses = 0, slopes = 0;
    float top = -INFINITY;
    int top_at = 0x7FFFFFFF;
#pragma unroll 4
    for (int base = 0; base < chunks; base += ROW_THREADS / CHUNK_LANES) {
        int chunk = base + t / CHUNK_LANES, first = chunk * CHUNK_WORDS + lane * EACH;
        lane_words w = load_words(z, class_of, first, a.n_vocab, whole);
        float mass = 0, slope = 0, warm = 0;
        for (int i = 0; i < EACH; i++)
            if (w.class_of[i] == c) {
                float below = w.z[i] - against, e = word_mass(w.z[i], against);
                take_larger(top, top_at, w.z[i], first + i);
                mass += e;
                slope += e > 0 ? below * e : 0;
                warm += power == 1 ? e : expf(below * power);
            }
        for (int with = CHUNK_LANES / 2; with > 0; with /= 2) {
            mass += __shfl_xor_sync(DG_ALL_LANES, mass, with);
            slope += __shfl_xor_sync(DG_ALL_LANES, slope, with);
            warm += __shfl_xor_sync(DG_ALL_LANES, warm, with);
        }
        masses += (double)mass;
        slopes += (double)slope;
        if (lane == 0 && chunk < chunks)
            mass_of[chunk] = warm;
    }
    block_argmax(top, top_at, s.tops, s.ats);
    *at = top_at;
    if (lane == 0) {
        s.mass[t / CHUNK_LANES] = masses;
        s.slope[t / CHUNK_LANES] = slopes;
    }
    __syncthreads();
    int each = (chunks + ROW_THREADS - 1) / ROW_THREADS;
    double sum = 0;
    for (int i = t * each; i < min((t + 1) * each, chunks); i++)
        sum += (double)mass_of[i];
    s.share[t] = sum;
    __syncthreads();
    return top;
}

/* By one thread: the word of the class at which this much of its mass has gone by. */
static __device__ int draw_of_class(const dg_cuda_words_args &a, const float *z,
                                    const uint8_t *class_of, unsigned c, float power, float against,
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
        float e = power == 1 ? word_mass(z[i], against) : expf((z[i] - against) * power);
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
    dg_cuda_class_finding f = {-INFINITY, -INFINITY, 0, -INFINITY, -1, -1};
    int at;
    float against = (float)a.w.sums[2 * r + 1], power = asked->power;
    float top = weigh_class(a, z, asked->class_of, c, power, against, mass_of, &at, s);
    if (at != 0x7FFFFFFF && (against - top) * fmaxf(power, 1) > FAR_BELOW) {
        against = top;
        __syncthreads();
        weigh_class(a, z, asked->class_of, c, power, against, mass_of, &at, s);
    }
    if (threadIdx.x == 0) {
        if (at != 0x7FFFFFFF) {
            double mass = 0, slope = 0, warm = 0;
            for (int i = 0; i < ROW_THREADS; i++)
                warm += s.share[i];
            for (int i = 0; i < ROW_THREADS / CHUNK_LANES; i++) {
                mass += s.mass[i];
                slope += s.slope[i];
            }
            double scale = (double)against - log_total;
            f.best = (double)top - log_total;
            f.mass = scale + log(mass);
            f.inner = exp(scale) * (slope + scale * mass);
            f.warm = scale * power + log(warm);
            f.id = at;
            f.drawn = draw_of_class(a, z, asked->class_of, c, power, against, mass_of, s,
                                    asked->uniform[c] * warm);
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
