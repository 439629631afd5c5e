/* The LM head on sm_90a: rows of x times the table out of slabs (cuda_slabs.cuh), and from the
 * products while they are in registers what the vocabulary end wants of them: the softcap, the
 * temperature, and each chunk's statistics (word_stats), in one order for every row. */
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* Tiles of 256 words: with 128 and twice as many rows, products and copies together asked for an
 * eighth more than shared memory gives. */
typedef slab_shape<2, 1, 256> head_shape;

/* The quad's lanes have a row's words of a chunk, 16 each. */
enum { HEAD_CHUNKS = head_shape::N / CHUNK_WORDS, LANE_WORDS = CHUNK_WORDS / 4 };

typedef struct head_job {
    dg_cuda_words_args a;
    dg_cuda_matrix table;
    int n_stage, n_row_block, n_tile;
} head_job;

typedef struct head_maps {
    dg_tensor_map x, table;
} head_maps;

template <class T>
static __device__ __forceinline__ void copy_words(const slab_ring<T> &ring, const head_job &job,
                                                  const head_maps &maps)
{
    uint64_t policy = dg_cache_policy(false);
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        int word = tile / job.n_row_block * T::N, row = tile % job.n_row_block * T::TOKENS;
        for (int c = 0; c < job.n_stage; c++) {
            slab_fill(ring, turn);
            slab_copy_weights(ring, maps.table, word, turn.stage, c, policy);
            slab_copy_rows(ring, maps.x, row, turn.stage, c);
            slab_next<T>(turn);
        }
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

template <dg_cuda_form FORM>
static __device__ __forceinline__ void multiply_words(const head_job &job, const head_maps &maps)
{
    typedef head_shape T;
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    slab_turn turn = {0, 0};
    if (threadIdx.x == T::CONSUMERS) {
        dg_tensor_prefetch(maps.table);
        dg_tensor_prefetch(maps.x);
    }
    slab_ring_init(ring);
    dg_grid_wait();
    if (threadIdx.x == T::CONSUMERS)
        copy_words(ring, job, maps);
    if (threadIdx.x >= T::CONSUMERS)
        return;
    const dg_cuda_words_args &a = job.a;
    float factor = factor_of(job.table.scale, 0);
    int chunks = chunk_count(a.n_vocab);
    if (blockIdx.x == 0)
        clear_marks(a, T::CONSUMERS);
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        float acc[T::MT][T::N / 8][4] = {};
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, job.n_stage);
        int first = tile / job.n_row_block * HEAD_CHUNKS,
            first_row = tile % job.n_row_block * T::TOKENS;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int r = first_row + slab_row<T>(0, half * 2);
            row_way way = way_of(a, min(r, a.n_row - 1));
#pragma unroll
            for (int i = 0; i < HEAD_CHUNKS; i++)
                if (first + i < chunks)
                    finish_chunk(a, way, r, first + i, acc[0] + i * 8, half, factor);
        }
    }
}

template <dg_cuda_form FORM>
static __global__ void __launch_bounds__(head_shape::THREADS, 1)
    head_words(head_job job, const __grid_constant__ head_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_words<FORM>(job, maps);
}

extern "C" cudaError_t dg_cuda_words_head(cudaStream_t stream, const dg_cuda_words_args *a,
                                          const dg_cuda_matrix *table, dg_cuda_rows x)
{
    typedef head_shape T;
    int device = 0, n_sm = 1, n_stage = x.ld / SLAB_VALUES;
    head_maps maps = {};
    if (!table->slabs || a->n_row > DG_CUDA_WORD_ROWS)
        return cudaErrorInvalidValue;
    if (a->n_row < 1)
        return cudaSuccess;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaError_t error = slab_map_rows<T>(&maps.x, x.data, a->n_row, n_stage, dg_cuda_row_bytes(x));
    if (!error)
        error = slab_map_weights<T>(&maps.table, table->data, table->n_out, n_stage, 0);
    if (error)
        return error;
    int row_blocks = (a->n_row + T::TOKENS - 1) / T::TOKENS,
        word_blocks = (chunk_count(a->n_vocab) + HEAD_CHUNKS - 1) / HEAD_CHUNKS;
    head_job job = {*a, *table, n_stage, row_blocks, row_blocks * word_blocks};
    dim3 grid((unsigned)(job.n_tile < n_sm ? job.n_tile : n_sm));
    return x.form == DG_CUDA_BF16 ? DG_LAUNCH(head_words<DG_CUDA_BF16>, grid, T::THREADS,
                                              (size_t)T::SHARED, stream, job, maps)
                                  : DG_LAUNCH(head_words<DG_CUDA_F16>, grid, T::THREADS,
                                              (size_t)T::SHARED, stream, job, maps);
}
