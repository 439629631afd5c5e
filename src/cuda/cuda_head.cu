/* The LM head on sm_90a: rows of x times the table out of slabs (cuda_slabs.cuh), and from the
 * products while they are in registers what the vocabulary end wants of them: the softcap, the
 * temperature, and each chunk's statistics (word_stats), in one order for every row. */
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* A cluster has all rows and neighbouring words. */
enum { HEAD_ROWS = 256 };
typedef slab_shape<2, 2, 128> head_shape;
typedef slab_shape<2, 2, 128, 1, 1, 2> head_shape_beside;
typedef slab_shape<2, 1, 256, 1, 2, 1> head_shape_wide;
typedef slab_shape<2, 1, 128, 1, 2, 1, 2> head_shape_twice;

/* The quad's lanes have a row's words of a chunk, 16 each. */
enum { LANE_WORDS = CHUNK_WORDS / 4 };
template <class T> static constexpr int head_chunks = T::N / CHUNK_WORDS;

typedef struct head_job {
    dg_cuda_words_args a;
    dg_cuda_matrix table;
    int n_stage, n_tile;
} head_job;

/* Blocks above each other have the same words; beside each other, the next ones. */
template <class T> static __device__ __forceinline__ int first_tile(void)
{
    return (int)blockIdx.x / T::ABOVE;
}

typedef struct head_maps {
    dg_tensor_map x, table;
} head_maps;

template <class T>
static __device__ __forceinline__ void copy_words(const slab_ring<T> &ring, const head_job &job,
                                                  const head_maps &maps)
{
    slab_turn turn = {0, 0};
    slab_seat seat = slab_seat_of<T>();
    for (int tile = first_tile<T>(); tile < job.n_tile; tile += (int)gridDim.x / T::ABOVE)
        for (int c = 0; c < job.n_stage; c++) {
            slab_fill(ring, turn);
            slab_copy_weights(ring, maps.table, seat, tile * head_chunks<T>, false, turn.stage, c);
            slab_copy_rows(ring, maps.x, seat, seat.row * T::TOKENS, turn.stage, c);
            slab_next<T>(turn);
        }
}

/* tanh u = 1 - 2 / (e^2u + 1), times the cap. */
static __device__ __forceinline__ float softcap_fast(float v, float cap, float two_over_cap)
{
    float e = dg_exp2_fast(v * two_over_cap);
    return cap - __fdividef(2 * cap, e + 1);
}

/* What a row does to its logits on the way out. A row with lists has them changed before the
 * temperature, by measure_words. */
struct row_way {
    float *z, *logits;
    float cap, two_over_cap, heat;
    bool paired;
};

[[maybe_unused]] static __device__ __forceinline__ row_way way_of(const dg_cuda_words_args &a,
                                                                  int r)
{
    const dg_cuda_word_row *row = &a.row[r];
    bool listed = row->n_bias || row->n_banned;
    size_t at = (size_t)r * (size_t)a.n_vocab;
    row_way way = {a.w.z + at,
                   a.logits && !listed ? a.logits + at : NULL,
                   a.softcap,
                   a.softcap > 0 ? 2 * LOG2_E / a.softcap : 0,
                   listed ? 1 : 1 / row->temperature,
                   a.n_vocab % 2 == 0};
    return way;
}

static __device__ __forceinline__ void put_pair(float *to, int word, int n_vocab, bool paired,
                                                float low, float high)
{
    if (paired && word < n_vocab)
        *(float2 *)(to + word) = make_float2(low, high);
    else
        for (int i = 0; i < 2; i++)
            if (word + i < n_vocab)
                to[word + i] = i ? high : low;
}

/* What the soft embedding wants of a row's words of a chunk: e of each is against its maximum. */
static __device__ __forceinline__ void leave_words(const dg_cuda_words_args &a, int r, int first,
                                                   const float e[LANE_WORDS], float top)
{
    uint32_t *p =
        (uint32_t *)((uint16_t *)a.w.p + (size_t)r * (size_t)padded(a.n_vocab) + (size_t)first);
    float share = top_share(top);
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i += 2)
        p[i * 2] = a.leaves == DG_CUDA_BF16 ? dg_pack_bf16(e[i] * share, e[i + 1] * share)
                                            : dg_pack_f16(e[i] * share, e[i + 1] * share);
}

/* One row's words of a chunk: acc[j][half] and the one behind it, for eight tiles j of columns. */
[[maybe_unused]] static __device__ __forceinline__ void finish_chunk(const dg_cuda_words_args &a,
                                                                     const row_way &way, int r,
                                                                     int chunk, float acc[8][4],
                                                                     int half, float factor)
{
    float z[LANE_WORDS];
    int first = chunk * CHUNK_WORDS + (int)threadIdx.x % 4 * 2;
    bool there = r < a.n_row;
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++) {
        float v = acc[i / 2][half * 2 + i % 2] * factor;
        z[i] = way.cap > 0 ? softcap_fast(v, way.cap, way.two_over_cap) : v;
    }
    if (there && way.logits)
#pragma unroll
        for (int i = 0; i < LANE_WORDS; i += 2)
            put_pair(way.logits, first + i * 4, a.n_vocab, way.paired, z[i], z[i + 1]);
    chunk_stats stats = {-INFINITY, 0x7FFFFFFF, 0, 0};
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++) {
        int word = first + i / 2 * 8 + i % 2;
        z[i] *= way.heat;
        if (word < a.n_vocab)
            take_larger(stats.top, stats.at, z[i], word);
    }
    for (int with = 1; with < 4; with *= 2) {
        float top = __shfl_xor_sync(DG_ALL_LANES, stats.top, with);
        int at = __shfl_xor_sync(DG_ALL_LANES, stats.at, with);
        take_larger(stats.top, stats.at, top, at);
    }
    if (there)
#pragma unroll
        for (int i = 0; i < LANE_WORDS; i += 2)
            put_pair(way.z, first + i * 4, a.n_vocab, way.paired, z[i], z[i + 1]);
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++) {
        float below = z[i] - stats.top;
        bool word = first + i / 2 * 8 + i % 2 < a.n_vocab;
        z[i] = word ? dg_exp2_fast(below * LOG2_E) : 0;
        if (word) {
            stats.mass += z[i];
            stats.slope = fmaf(below, z[i], stats.slope);
        }
    }
    for (int with = 1; with < 4; with *= 2) {
        stats.mass += __shfl_xor_sync(DG_ALL_LANES, stats.mass, with);
        stats.slope += __shfl_xor_sync(DG_ALL_LANES, stats.slope, with);
    }
    if (!there)
        return;
    if (a.leaves != DG_CUDA_F32)
        leave_words(a, r, first, z, stats.top); /* by now e^(z - top) */
    if (threadIdx.x % 4 == 0)
        put_stats(a, r, chunk, stats);
}

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void multiply_words(const slab_ring<T> &ring, const head_job &job)
{
    const dg_cuda_words_args &a = job.a;
    float factor = factor_of(job.table.scale, 0);
    int chunks = chunk_count(a.n_vocab), first_row = slab_seat_of<T>().row * T::TOKENS;
    slab_turn turn = {0, 0};
    if (blockIdx.x == 0)
        clear_marks(a, T::CONSUMERS);
    for (int tile = first_tile<T>(); tile < job.n_tile; tile += (int)gridDim.x / T::ABOVE) {
        float acc[T::MT][T::N / 8][4] = {};
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, job.n_stage);
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int r = first_row + slab_row<T>(m, half * 2);
                row_way way = way_of(a, min(r, a.n_row - 1));
#pragma unroll
                for (int i = 0; i < head_chunks<T>; i++)
                    if (tile * head_chunks<T> + i < chunks)
                        finish_chunk(a, way, r, tile * head_chunks<T> + i, acc[m] + i * 8, half,
                                     factor);
            }
    }
}

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void head_of(const head_job &job, const head_maps &maps)
{
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    if (threadIdx.x == T::CONSUMERS)
        dg_tensor_prefetch(maps.x);
    slab_ring_init(ring);
    dg_grid_wait();
    if (threadIdx.x > T::CONSUMERS)
        return;
    if (threadIdx.x == T::CONSUMERS)
        copy_words(ring, job, maps);
    else
        multiply_words<FORM>(ring, job);
    slab_ring_leave<T>();
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, T::RESIDENT)
    head_words(head_job job, const __grid_constant__ head_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        head_of<FORM, T>(job, maps);
}

template <dg_cuda_form FORM, class T>
static cudaError_t launch_head(cudaStream_t stream, const dg_cuda_words_args *a,
                               const dg_cuda_matrix *table, dg_cuda_rows x)
{
    int device = 0, at_once = 1;
    head_maps maps = {};
    cudaError_t error =
        slab_map_rows<T>(&maps.x, x.data, a->n_row, x.ld / SLAB_VALUES, dg_cuda_row_bytes(x));
    if (!error)
        error = slab_map_weights<T>(&maps.table, table->data, table->n_out, x.ld / SLAB_VALUES, 0);
    if (error)
        return error;
    cudaGetDevice(&device);
    if (T::CLUSTER > 1)
        at_once = dg_clusters_at_once(T::CLUSTER, head_words<FORM, T>, T::THREADS, T::SHARED);
    else
        cudaDeviceGetAttribute(&at_once, cudaDevAttrMultiProcessorCount, device);
    if (at_once < 1)
        return cudaErrorInvalidConfiguration;
    int tiles = (chunk_count(a->n_vocab) + head_chunks<T> - 1) / head_chunks<T>,
        clusters = (tiles + T::BESIDE - 1) / T::BESIDE;
    head_job job = {*a, *table, x.ld / SLAB_VALUES, clusters * T::BESIDE};
    return DG_LAUNCH_CLUSTERS(
        T::CLUSTER, (head_words<FORM, T>),
        dim3((unsigned)((clusters < at_once ? clusters : at_once) * T::CLUSTER)), T::THREADS,
        (size_t)T::SHARED, stream, job, maps);
}

template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const dg_cuda_words_args *a,
                               const dg_cuda_matrix *table, dg_cuda_rows x, int form)
{
    return form == 3   ? launch_head<FORM, head_shape_twice>(stream, a, table, x)
           : form == 2 ? launch_head<FORM, head_shape_wide>(stream, a, table, x)
           : form == 1 ? launch_head<FORM, head_shape_beside>(stream, a, table, x)
                       : launch_head<FORM, head_shape>(stream, a, table, x);
}

extern "C" cudaError_t dg_cuda_words_head_as(cudaStream_t stream, const dg_cuda_words_args *a,
                                             const dg_cuda_matrix *table, dg_cuda_rows x, int form)
{
    if (!table->slabs || a->n_row > HEAD_ROWS)
        return cudaErrorInvalidValue;
    if (a->n_row < 1)
        return cudaSuccess;
    return x.form == DG_CUDA_BF16 ? launch_form<DG_CUDA_BF16>(stream, a, table, x, form)
                                  : launch_form<DG_CUDA_F16>(stream, a, table, x, form);
}

extern "C" cudaError_t dg_cuda_words_head(cudaStream_t stream, const dg_cuda_words_args *a,
                                          const dg_cuda_matrix *table, dg_cuda_rows x)
{
    return dg_cuda_words_head_as(stream, a, table, x, 0);
}
