/* The vocabulary end behind the product with the table: statistics, a draw, the most likely words.
 *
 * z is kept for up to 256 rows. measure_words, with a block for a piece of a row, applies softcap,
 * bias, bans and temperature, and finds each chunk's maximum and mass, unless the head has done so
 * (cuda_head.cu); then a block a row adds up, draws, and says what was found. */
#include "cuda/cuda_words.h"
#include <float.h>
#include "cuda/cuda_words.cuh"

/* A word that must not come up; finite, so that its product with a probability of 0 is 0. */
#define BANNED -1e30f

/* ---- scratch ---- */

/* Laid out twice: without memory to measure. */
static size_t place_words(dg_cuda_words *w, unsigned char *memory, int max_row, int n_vocab,
                          int n_embd)
{
    size_t rows = (size_t)max_row, at = 0, chunks = (size_t)chunk_count(n_vocab);
    size_t bytes[] = {rows * (size_t)n_vocab * 4,
                      rows * (size_t)padded(n_vocab) * 4,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * chunks * 4,
                      rows * 2 * 8,
                      PARTS * rows * (size_t)n_embd * 4,
                      PARTS * (size_t)mark_count(n_vocab) * 4,
                      chunks * DG_CUDA_WORD_ROWS * 4};
    void **place[] = {(void **)&w->z,    (void **)&w->p,     (void **)&w->top,  (void **)&w->top_at,
                      (void **)&w->mass, (void **)&w->slope, (void **)&w->sums, (void **)&w->part,
                      (void **)&w->used, (void **)&w->weight};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        *place[i] = memory ? memory + at : NULL;
        at += (bytes[i] + 255) / 256 * 256;
    }
    return at;
}

extern "C" size_t dg_cuda_words_bytes(int max_row, int n_vocab, int n_embd)
{
    dg_cuda_words none;
    return place_words(&none, NULL, max_row < DG_CUDA_WORD_ROWS ? max_row : DG_CUDA_WORD_ROWS,
                       n_vocab, n_embd);
}

extern "C" void dg_cuda_words_place(dg_cuda_words *w, void *memory, int max_row, int n_vocab,
                                    int n_embd)
{
    place_words(w, (unsigned char *)memory,
                max_row < DG_CUDA_WORD_ROWS ? max_row : DG_CUDA_WORD_ROWS, n_vocab, n_embd);
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
    float e[4], share = top_share(top);
    for (int i = 0; i < 4; i++)
        e[i] = first + i < a.n_vocab ? word_share(v[i], top, share) : 0;
    uint2 *to =
        (uint2 *)((uint16_t *)a.w.p + (size_t)r * (size_t)padded(a.n_vocab) + (size_t)first);
    if (a.leaves == DG_CUDA_BF16)
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
        if (chunk < end && a.leaves != DG_CUDA_F32)
            leave_four(a, r, first, v, stats.top);
    }
}

/* ---- what was found ---- */

/* Where a draw is: by thread 0, for all of a block. */
struct draw_place {
    int range, chunk; /* of a thread's chunks; of all */
    double target;    /* the mass that is left to go */
};

/* The first chunk from `chunk` on, and below `end`, at whose end less than the target is left. */
static __device__ __forceinline__ bool find_chunk(draw_place &at, const float *mass, int n)
{
    for (int i = 0; i < n; i++) {
        if ((double)mass[i] > at.target) {
            at.chunk += i;
            return true;
        }
        at.target -= (double)mass[i];
    }
    at.chunk += n;
    return false;
}

/* The chunk of a draw whose range of chunks is known. Rounding may leave the target at the very end
 * of a range: then further on, and behind all of them the last chunk that has any mass. By all
 * threads; `near` has room for their loads. */
static __device__ __forceinline__ void settle_chunk(draw_place &at, const float *mass, int chunks,
                                                    int each, float near[ROW_THREADS])
{
    int t = (int)threadIdx.x, first = at.range * each, n = min(each, (int)ROW_THREADS);
    if (t < n)
        near[t] = first + t < chunks ? mass[first + t] : 0;
    __syncthreads();
    if (t == 0) {
        at.chunk = first;
        if (!find_chunk(at, near, min(n, chunks - first)) &&
            !find_chunk(at, mass + at.chunk, chunks - at.chunk)) {
            do
                at.chunk--;
            while (at.chunk > 0 && !(mass[at.chunk] > 0));
            at.target = INFINITY;
        }
    }
    __syncthreads();
}

/* The first word of the chunk whose cumulative mass exceeds the target, or the last that has any.
 */
static __device__ __forceinline__ int settle_word(const draw_place &at, const float *z, int n_vocab,
                                                  float max, float near[ROW_THREADS])
{
    int t = (int)threadIdx.x, first = at.chunk * CHUNK_WORDS, word = first;
    if (t < CHUNK_WORDS)
        near[t] = first + t < n_vocab ? word_mass(z[first + t], max) : 0;
    __syncthreads();
    double sum = 0;
    for (int i = 0; t == 0 && i < CHUNK_WORDS && !(sum > at.target); i++) {
        sum += (double)near[i];
        if (near[i] > 0)
            word = first + i;
    }
    return word;
}

/* The row's maximum, from its chunks'. */
static __device__ __forceinline__ float row_max(const dg_cuda_words_args &a, int r, int *argmax)
{
    __shared__ float tops[ROW_THREADS / 32];
    __shared__ int ats[ROW_THREADS / 32];
    int chunks = chunk_count(a.n_vocab), at = 0x7FFFFFFF;
    size_t first = (size_t)r * (size_t)chunks;
    float top = -INFINITY;
    for (int i = (int)threadIdx.x; i < chunks; i += ROW_THREADS)
        take_larger(top, at, a.w.top[first + (size_t)i], a.w.top_at[first + (size_t)i]);
    block_argmax(top, at, tops, ats);
    *argmax = at == 0x7FFFFFFF ? 0 : at;
    return top;
}

enum { ROW_WARPS = ROW_THREADS / 32 };

/* What the threads of a row have found: of each its chunks' mass, of each warp the sums. */
struct row_shares {
    double share[ROW_THREADS], mass[ROW_WARPS], slope[ROW_WARPS];
    double total; /* 0: of no use */
};

/* Sums of a warp in one order; every lane gets them. */
static __device__ __forceinline__ double warp_sum(double v)
{
    for (int with = 16; with > 0; with /= 2)
        v += __shfl_xor_sync(DG_ALL_LANES, v, with);
    return v;
}

/* By one thread: what the shares of all say of the row. Gives the range of a plain draw, or less
 * than 0. */
static __device__ __forceinline__ draw_place conclude_row(const dg_cuda_words_args &a, int r,
                                                          float max, int argmax, row_shares &s)
{
    draw_place at = {-1, 0, 0};
    double total = 0, slope = 0;
    for (int i = 0; i < ROW_WARPS; i++) {
        total += s.mass[i];
        slope += s.slope[i];
    }
    bool right = total > 0 && total <= DBL_MAX && slope == slope;
    double entropy = log(total) - slope / total;
    s.total = right ? total : 0;
    a.w.sums[2 * r] = s.total;
    a.w.sums[2 * r + 1] = (double)max;
    a.out.entropy[r] = right ? (float)(entropy > 0 ? entropy : 0) : nanf("");
    a.out.argmax[r] = argmax;
    a.out.drawn[r] = argmax;
    if (a.listed)
        a.out.logprob[r] = (float)-log(total);
    if (!right || a.row[r].draw != DG_CUDA_DRAW_PLAIN)
        return at;
    int warp = 0;
    at.target = a.row[r].uniform * total;
    for (; warp < ROW_WARPS - 1 && s.mass[warp] <= at.target; warp++)
        at.target -= s.mass[warp];
    int last = warp * 32 + 31;
    for (at.range = warp * 32; at.range < last && s.share[at.range] <= at.target; at.range++)
        at.target -= s.share[at.range];
    return at;
}

/* What the soft embedding takes of the row, by all threads: each chunk's weight, and a mark on
 * those that have one. */
static __device__ __forceinline__ void weigh_chunks(const dg_cuda_words_args &a, int r, float max,
                                                    double total)
{
    DG_SHARED(memory);
    uint32_t *marks = (uint32_t *)memory;
    int t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab), n_mark = mark_count(a.n_vocab);
    size_t first = (size_t)r * (size_t)chunks;
    bool soft = a.row[r].soft && total > 0;
    for (int i = t; i < PARTS * n_mark; i += ROW_THREADS)
        marks[i] = 0;
    __syncthreads();
    for (int i = t; i < chunks; i += ROW_THREADS) {
        bool takes = soft && takes_mass(a, a.w.mass[first + (size_t)i], total);
        a.w.weight[(size_t)i * DG_CUDA_WORD_ROWS + (size_t)r] =
            takes ? level_share(level_of(a.w.top[first + (size_t)i]), level_of(max)) : 0;
        if (takes)
            atomicOr(&marks[i % PARTS * n_mark + i / PARTS / 32], 1u << i / PARTS % 32);
    }
    __syncthreads();
    for (int i = t; i < PARTS * n_mark; i += ROW_THREADS)
        if (marks[i] & ~a.w.used[i])
            atomicOr(&a.w.used[i], marks[i]);
}

/* Block: a row. */
static __global__ void conclude_rows(dg_cuda_words_args a)
{
    __shared__ row_shares s;
    __shared__ float near[ROW_THREADS];
    __shared__ draw_place at;
    int r = (int)blockIdx.x, t = (int)threadIdx.x, chunks = chunk_count(a.n_vocab);
    int each = (chunks + ROW_THREADS - 1) / ROW_THREADS, argmax;
    dg_grid_wait();
    dg_grid_launch_next();
    size_t first = (size_t)r * (size_t)chunks;
    float *mass = a.w.mass + first, max = row_max(a, r, &argmax);
    double sum = 0, slope = 0;
    for (int i = t * each; i < min((t + 1) * each, chunks); i++) {
        float below = a.w.top[first + (size_t)i] - max, factor = expf(below), m = mass[i];
        mass[i] = m * factor;
        sum += (double)mass[i];
        slope += ((double)below * m + a.w.slope[first + (size_t)i]) * factor;
    }
    s.share[t] = sum;
    sum = warp_sum(sum);
    slope = warp_sum(slope);
    if (t % 32 == 0) {
        s.mass[t / 32] = sum;
        s.slope[t / 32] = slope;
    }
    __syncthreads();
    if (t == 0)
        at = conclude_row(a, r, max, argmax, s);
    __syncthreads();
    weigh_chunks(a, r, max, s.total);
    if (at.range < 0)
        return;
    settle_chunk(at, mass, chunks, each, near);
    int word = settle_word(at, a.w.z + (size_t)r * (size_t)a.n_vocab, a.n_vocab, max, near);
    if (t == 0)
        a.out.drawn[r] = word;
}

/* ---- draws from a hotter, colder or filtered version: a block a row, only for rows that ask for
 * it ---- */

enum { BINS_A_NAT = 128, BINS = 128 * 32, SPECIAL_THREADS = 256 };

struct special_shared {
    unsigned long long mass[BINS]; /* of a rank, in 2^-32: whole numbers add up in any order */
    unsigned count[BINS];
    double share[SPECIAL_THREADS];
    unsigned before[SPECIAL_THREADS / 32];
    double edge, sure, least, quota;
    double target;
    int chunk, alone, last_id;
    unsigned taken;
};

/* A cut between the words that stay and the others: `quota` words of bin `bin`, all above it. */
struct word_cut {
    int bin;
    double quota, n, mass;
};

/* As the CPU's filter (backend.h): ranks in steps of 1 / 128 nat below the maximum's. */
static __device__ word_cut cut_words(const special_shared *s, double top_bin, double max,
                                     double least, double max_n, double max_mass)
{
    word_cut c = {0, 0, 1, 1};
    for (; c.bin < BINS; c.bin++) {
        double edge = (top_bin - c.bin) / BINS_A_NAT;
        double words = s->count[c.bin], mass = (double)s->mass[c.bin] * 0x1p-32;
        if (c.bin == 0) {
            words -= 1;
            mass = fmax(0.0, mass - exp(max - edge));
        }
        if (c.n >= max_n || c.mass >= max_mass || edge + 1.0 / BINS_A_NAT <= least)
            return c;
        if (words <= 0)
            continue;
        double one = mass / words * exp(edge - max), take = fmin(words, max_n - c.n);
        if (c.mass + take * one > max_mass)
            take = fmin(take, ceil((max_mass - c.mass) / one));
        c.n += take;
        c.mass += take * one;
        if (take < words) {
            c.quota = take;
            return c;
        }
    }
    return c;
}

static __device__ void find_cut(special_shared *s, const dg_cuda_word_row *row, double top_bin,
                                double max)
{
    double max_n = row->top_k > 0 ? (double)row->top_k : (double)INFINITY, none = -(double)INFINITY;
    double max_mass =
        row->top_p < 1 ? (double)row->top_p * cut_words(s, top_bin, max, none, max_n, INFINITY).mass
                       : (double)INFINITY;
    s->least = row->min_p > 0 ? max + log((double)row->min_p) : none;
    word_cut c = cut_words(s, top_bin, max, s->least, max_n, max_mass);
    s->alone = c.n <= 1;
    s->quota = c.quota;
    s->edge = (top_bin - c.bin) / BINS_A_NAT;
    s->sure = (top_bin - c.bin + 1) / BINS_A_NAT;
}

/* Counts the words of each rank. */
static __device__ void count_ranks(special_shared *s, const float *z, int n_vocab,
                                   float temperature, double top_bin)
{
    for (int i = (int)threadIdx.x; i < BINS; i += SPECIAL_THREADS) {
        s->mass[i] = 0;
        s->count[i] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_vocab; i += SPECIAL_THREADS) {
        float y = z[i] / temperature;
        double bin = floor((double)(y * BINS_A_NAT)), below = top_bin - bin;
        if (!(below >= 0 && below < BINS))
            continue;
        double e = exp((double)y - bin / BINS_A_NAT);
        atomicAdd(&s->mass[(int)below], (unsigned long long)(e * 0x1p32));
        atomicAdd(&s->count[(int)below], 1u);
    }
    __syncthreads();
}

/* Finds the id of the last word of the cut's bin that stays: the quota's last by id. */
static __device__ void find_last_id(special_shared *s, const float *z, int n_vocab, int argmax,
                                    float temperature)
{
    int t = (int)threadIdx.x;
    if (t == 0) {
        s->taken = 0;
        s->last_id = -1;
    }
    __syncthreads();
    for (int base = 0; base < n_vocab; base += SPECIAL_THREADS) {
        int i = base + t;
        double y = i < n_vocab ? (double)(z[i] / temperature) : -(double)INFINITY;
        bool in = i < n_vocab && i != argmax && y >= s->edge && y < s->sure;
        unsigned lanes = __ballot_sync(DG_ALL_LANES, in);
        if (t % 32 == 0)
            s->before[t / 32] = (unsigned)__popc(lanes);
        __syncthreads();
        unsigned rank = s->taken + (unsigned)__popc(lanes & ((1u << t % 32) - 1));
        for (int w = 0; w < t / 32; w++)
            rank += s->before[w];
        if (in && (double)rank + 1 == floor(s->quota))
            s->last_id = i;
        __syncthreads();
        if (t == 0)
            for (int w = 0; w < SPECIAL_THREADS / 32; w++)
                s->taken += s->before[w];
        __syncthreads();
        if ((double)s->taken >= s->quota)
            break;
    }
    __syncthreads();
}

/* e^(y - max) of a word that stays, 0 of another. */
static __device__ __forceinline__ float kept_mass(const special_shared *s, const float *z, int i,
                                                  int argmax, float temperature, float max,
                                                  bool filtered)
{
    float y = z[i] / temperature;
    double wide = (double)y;
    if (filtered && i != argmax) {
        bool stays = wide >= s->sure || (wide >= s->edge && i <= s->last_id);
        if (!stays || wide < s->least)
            return 0;
    }
    return expf(y - max);
}

/* One after the other over the ranges of the threads, then over the words of one range. */
static __device__ void draw_special(special_shared *s, const float *z, int n_vocab, int argmax,
                                    float temperature, float max, bool filtered, double uniform,
                                    int32_t *drawn)
{
    int t = (int)threadIdx.x, each = (n_vocab + SPECIAL_THREADS - 1) / SPECIAL_THREADS;
    double sum = 0;
    for (int i = t * each; i < min((t + 1) * each, n_vocab); i++)
        sum += (double)kept_mass(s, z, i, argmax, temperature, max, filtered);
    s->share[t] = sum;
    __syncthreads();
    if (t)
        return;
    double total = 0;
    for (int i = 0; i < SPECIAL_THREADS; i++)
        total += s->share[i];
    double target = uniform * total;
    int range = 0, last = 0;
    for (; range < SPECIAL_THREADS; range++) {
        if (s->share[range] > 0)
            last = range;
        if (s->share[range] > target)
            break;
        target -= s->share[range];
    }
    if (range == SPECIAL_THREADS) {
        range = last;
        target = INFINITY;
    }
    double mass = 0;
    for (int i = range * each; i < min((range + 1) * each, n_vocab); i++) {
        float e = kept_mass(s, z, i, argmax, temperature, max, filtered);
        mass += (double)e;
        if (e > 0)
            *drawn = i;
        if (mass > target)
            return;
    }
}

static __global__ void special_draws(dg_cuda_words_args a)
{
    DG_SHARED(memory);
    special_shared *s = (special_shared *)memory;
    int r = (int)blockIdx.x;
    dg_grid_wait();
    const dg_cuda_word_row *row = &a.row[r];
    if (row->draw < DG_CUDA_DRAW_HEATED || !(a.w.sums[2 * r] > 0))
        return;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    int argmax = a.out.argmax[r];
    float temperature = row->draw_temperature, max = (float)a.w.sums[2 * r + 1] / temperature;
    bool filtered = row->draw == DG_CUDA_DRAW_FILTERED;
    if (filtered) {
        if (!(fabsf(max) < 1e12f))
            return; /* ranks mean nothing there: the arg-max stays */
        double top_bin = floor((double)(max * BINS_A_NAT));
        count_ranks(s, z, a.n_vocab, temperature, top_bin);
        if (threadIdx.x == 0)
            find_cut(s, row, top_bin, (double)max);
        __syncthreads();
        if (s->alone)
            return;
        find_last_id(s, z, a.n_vocab, argmax, temperature);
    }
    draw_special(s, z, a.n_vocab, argmax, temperature, max, filtered, row->uniform,
                 &a.out.drawn[r]);
}

/* ---- the most likely words: a block a row finds the next one n_top times ---- */

static __global__ void list_words(dg_cuda_words_args a)
{
    __shared__ float tops[ROW_THREADS / 32];
    __shared__ int ats[ROW_THREADS / 32];
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
    dim3 pieces(PIECES, (unsigned)a->n_row), rows((unsigned)a->n_row);
    cudaError_t error = cudaSuccess;
    if (!a->measured || a->changed)
        error = DG_LAUNCH(measure_words, pieces, ROW_THREADS, 0, stream, *a);
    if (!error)
        error = DG_LAUNCH(conclude_rows, rows, ROW_THREADS,
                          PARTS * (size_t)mark_count(a->n_vocab) * sizeof(uint32_t), stream, *a);
    if (!error && a->special)
        error = DG_LAUNCH(special_draws, rows, SPECIAL_THREADS, sizeof(special_shared), stream, *a);
    if (!error && a->listed)
        error = DG_LAUNCH(list_words, rows, ROW_THREADS, 0, stream, *a);
    return error;
}
