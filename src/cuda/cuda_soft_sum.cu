/* The end of the soft embedding: the parts of the product added up, or, of a row that is sure
 * (cuda_sure.cuh), the table's rows of its words, each times its share, in ascending order, over
 * the sum of the shares. */
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* A thread has so many columns, and so many words of them on their way. */
enum { SUM_COLS = 8, SUM_THREADS = 192, SUM_AHEAD = 8 };

/* ---- a thread's columns of a table: in pairs of neighbours, from column(0 ... 3) on ---- */

template <dg_cuda_form FORM>
static __device__ __forceinline__ void widen_pair(float v[2], uint32_t pair)
{
    v[0] = FORM == DG_CUDA_BF16 ? dg_bf16_low(pair) : dg_f16_at((uint16_t)pair);
    v[1] = FORM == DG_CUDA_BF16 ? dg_bf16_high(pair) : dg_f16_at((uint16_t)(pair >> 16));
}

/* In slabs. */
template <dg_cuda_form FORM> struct slab_columns {
    typedef uint4 raw;
    const unsigned char *data;
    int n_slab, first; /* slabs of 64 rows, the thread's first column */

    __device__ __forceinline__ slab_columns(const dg_cuda_matrix &table, int thread)
        : data((const unsigned char *)table.data), n_slab(slab_count(table.n_in)),
          first(min(thread * SUM_COLS, n_slab * SLAB_VALUES - SUM_COLS))
    {
    }
    static __device__ __forceinline__ int column(int thread, int pair)
    {
        return thread * SUM_COLS + pair * 2;
    }
    __device__ __forceinline__ void load(raw &to, int word) const
    {
        size_t slab = (size_t)(word / SLAB_ROWS) * (size_t)n_slab + (size_t)(first / SLAB_VALUES);
        to = *(const uint4 *)(data + slab * SLAB_BYTES +
                              slab_offset(word % SLAB_ROWS, first % SLAB_VALUES / 8));
    }
    __device__ __forceinline__ void widen(float v[SUM_COLS], const raw &from, int) const
    {
        widen_pair<FORM>(v, from.x);
        widen_pair<FORM>(v + 2, from.y);
        widen_pair<FORM>(v + 4, from.z);
        widen_pair<FORM>(v + 6, from.w);
    }
};

/* In the packed form of F: four threads have 32 columns, of which each loads what the lane of the
 * word's row would. */
template <class F> struct packed_columns {
    struct raw {
        typename F::scales scales;
        typename F::raw values;
    };
    const unsigned char *data;
    int tiles, n_unit, unit, half, lane;

    __device__ __forceinline__ packed_columns(const dg_cuda_matrix &table, int thread)
        : data((const unsigned char *)table.data), tiles(group_tiles(table.n_out)),
          n_unit((table.n_in + F::UNIT - 1) / F::UNIT), unit(thread / 4 * 32 / F::UNIT),
          half(thread / 4 * 32 % F::UNIT / 32), lane(thread % 4)
    {
        if (unit >= n_unit) { /* nobody wants them */
            unit = n_unit - 1;
            half = 0;
        }
    }
    static __device__ __forceinline__ int column(int thread, int pair)
    {
        return thread / 4 * 32 + pair * 8 + thread % 4 * 2;
    }
    __device__ __forceinline__ void load(raw &to, int word) const
    {
        int tile = word / 16, as = word % 8 * 4 + lane;
        const unsigned char *at =
            data + (((size_t)(tile / tiles) * (size_t)n_unit + (size_t)unit) * (size_t)tiles +
                    (size_t)(tile % tiles)) *
                       packed_unit<F>::BYTES;
        F::begin(to.scales, at, as);
        F::load(to.values, at + F::HEAD + half / 2 * F::CHUNK, half % 2, as);
    }
    __device__ __forceinline__ void widen(float v[SUM_COLS], const raw &from, int word) const
    {
        uint32_t pairs[2][4];
        F::convert(pairs, from.values, from.scales, half);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t upper = pairs[i / 2][2 * (i % 2)], lower = pairs[i / 2][2 * (i % 2) + 1];
            widen_pair<F::FORM>(v + 2 * i, word % 16 < 8 ? upper : lower);
        }
    }
};

/* ---- rows ---- */

/* By all threads of a block, which has a sure row. */
template <class C>
static __device__ __forceinline__ void gather_row(const dg_cuda_words_args &a,
                                                  const dg_cuda_matrix &words, float scale, int r,
                                                  int n)
{
    __shared__ int id[DG_CUDA_SURE_WORDS + SUM_AHEAD];
    __shared__ float share[DG_CUDA_SURE_WORDS + SUM_AHEAD];
    int thread = (int)(blockIdx.x * SUM_THREADS + threadIdx.x);
    const C columns(words, thread);
    for (int i = (int)threadIdx.x; i < n + SUM_AHEAD; i += SUM_THREADS) {
        size_t at = (size_t)r * DG_CUDA_SURE_WORDS + (size_t)min(i, n - 1);
        id[i] = a.w.sure_id[at];
        share[i] =
            i < n ? a.w.sure_share[at] : 0; /* behind the last it is there again, as nothing */
    }
    __syncthreads();
    float sum[SUM_COLS] = {}, all = 0;
    for (int base = 0; base < n; base += SUM_AHEAD) {
        typename C::raw raw[SUM_AHEAD];
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; i++)
            columns.load(raw[i], id[base + i]);
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; i++) {
            float v[SUM_COLS];
            columns.widen(v, raw[i], id[base + i]);
            all += share[base + i];
#pragma unroll
            for (int c = 0; c < SUM_COLS; c++)
                sum[c] = fmaf(share[base + i], v[c], sum[c]);
        }
    }
    float factor = scale * factor_of(words.scale, 0) / all, *soft = a.row[r].soft;
#pragma unroll
    for (int i = 0; i < SUM_COLS; i++) {
        int c = C::column(thread, i / 2) + i % 2;
        if (c < words.n_in)
            soft[c] = sum[i] * factor;
    }
}

/* V columns of a row out of its parts. */
template <int V>
static __device__ __forceinline__ void add_parts(const dg_cuda_words_args &a, int r, int c,
                                                 int n_embd, float factor)
{
    values<V> part[PARTS], sum = {};
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        part[i] = load<V>(a.w.part + ((size_t)i * (size_t)a.n_row + (size_t)r) * (size_t)n_embd +
                          (size_t)c);
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            sum.v[v] += part[i].v[v];
        sum.v[v] *= factor;
    }
    store<V>(a.row[r].soft + c, sum);
}

/* Block (x: columns, y: row). `soft` of rows are whole rows one after the other (dg_cuda_word_row).
 * In slabs the shares are of 2^level, not of e^max. */
template <class C>
static __global__ void __launch_bounds__(SUM_THREADS)
    soft_sum(dg_cuda_words_args a, dg_cuda_matrix words, dg_soft_scale scale)
{
    int r = (int)blockIdx.y, n_embd = words.n_in;
    dg_grid_wait();
    dg_grid_launch_next();
    if (!a.row[r].soft)
        return;
    if (a.gathers && a.w.n_sure[r]) {
        gather_row<C>(a, words, scale.words, r, a.w.n_sure[r]);
        return;
    }
    double total = a.w.sums[2 * r];
    if (scale.level) {
        float max = (float)a.w.sums[2 * r + 1];
        total *= (double)top_share(max);
    }
    float factor = total > 0 ? (float)((double)scale.product / total) : nanf("");
    int each = n_embd % 4 ? 1 : 4, first = (int)blockIdx.x * SUM_THREADS * SUM_COLS,
        end = min(first + SUM_THREADS * SUM_COLS, n_embd);
    for (int c = first + (int)threadIdx.x * each; c < end; c += SUM_THREADS * each)
        if (each == 4)
            add_parts<4>(a, r, c, n_embd, factor);
        else
            add_parts<1>(a, r, c, n_embd, factor);
}

template <class C>
static cudaError_t launch_sum(cudaStream_t stream, const dg_cuda_words_args *a,
                              const dg_cuda_matrix *words, dg_soft_scale scale)
{
    int threads = (words->n_in + SUM_COLS - 1) / SUM_COLS;
    dim3 grid((unsigned)((threads + SUM_THREADS - 1) / SUM_THREADS), (unsigned)a->n_row);
    return DG_LAUNCH(soft_sum<C>, grid, SUM_THREADS, 0, stream, *a, *words, scale);
}

cudaError_t dg_soft_sum(cudaStream_t stream, const dg_cuda_words_args *a,
                        const dg_cuda_matrix *words, dg_soft_scale scale)
{
    if (words->type == DG_F32) /* nothing is gathered from it */
        return a->gathers ? cudaErrorInvalidValue
                          : launch_sum<slab_columns<DG_CUDA_BF16>>(stream, a, words, scale);
    if (words->slabs)
        return dg_cuda_form_of(words->type) == DG_CUDA_BF16
                   ? launch_sum<slab_columns<DG_CUDA_BF16>>(stream, a, words, scale)
                   : launch_sum<slab_columns<DG_CUDA_F16>>(stream, a, words, scale);
    DG_FOR_FORMAT(words->type, return launch_sum<packed_columns<F>>(stream, a, words, scale), break)
    return cudaErrorInvalidValue;
}
