/* Draws from a hotter, colder or filtered version of a row's probabilities: a block a row, only for
 * rows that ask for it. */
#include "cuda/cuda_words.cuh"

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

/* As the CPU's filter (backend_batch.h): ranks in steps of 1 / 128 nat below the maximum's. */
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

/* One after the other over the ranges of the threads, then over the words of one range. `drawn` is
 * far away: it is written once. */
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
    int found = argmax;
    for (int i = range * each; i < min((range + 1) * each, n_vocab) && !(mass > target); i++) {
        float e = kept_mass(s, z, i, argmax, temperature, max, filtered);
        mass += (double)e;
        if (e > 0)
            found = i;
    }
    *drawn = found;
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

cudaError_t dg_special_draws(cudaStream_t stream, const dg_cuda_words_args *a)
{
    return DG_LAUNCH(special_draws, dim3((unsigned)a->n_row), SPECIAL_THREADS,
                     sizeof(special_shared), stream, *a);
}
