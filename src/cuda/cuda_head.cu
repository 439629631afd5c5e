/* The LM head on sm_90a: rows of x times the table out of slabs (cuda_slabs.cuh), and from the
 * products while they are in registers what the vocabulary end wants of them: the softcap, the
 * temperature, and each chunk's statistics (word_stats), in one order for every row. */
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* Few rows and many words: operands of wide products are read less often out of shared memory,
 * which products wait for. Tiles of the same words follow each other, so that these come once. */
typedef slab_shape<2, 1, 256> head_shape;

/* Who copies is a warpgroup, so that it can leave its registers to those that multiply. */
enum { HEAD_THREADS = head_shape::CONSUMERS + 128, HEAD_CHUNKS = head_shape::N / CHUNK_WORDS };
static_assert(HEAD_CHUNKS % 2 == 0, "statistics are left of two chunks at once");

/* The quad's lanes have a row's words of a chunk, 16 each. */
enum { LANE_WORDS = CHUNK_WORDS / 4 };

typedef struct head_job {
    dg_cuda_words_args a;
    dg_cuda_matrix table;
    dg_cuda_rows x;
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

/* tanh u = 1 - 2 / (e^2u + 1), times the cap; of two words with one division, e^2u up to 2^60 so
 * that the product of both is a number. u is v times half of a factor, as a power of two. */
static __device__ __forceinline__ void softcap_two(float z[2], float v, float w, float cap,
                                                   float factor)
{
    v *= factor;
    w *= factor;
    float e = dg_exp2_fast(v > 60 ? 60 : v) + 1, f = dg_exp2_fast(w > 60 ? 60 : w) + 1,
          both = __fdividef(2 * cap, e * f);
    z[0] = cap - both * f;
    z[1] = cap - both * e;
}

/* What becomes of a tile's products. TILE_ANY: all there is. TILE_PLAIN: the vocabulary does not
 * end in it, four words can be stored at once, and nobody wants a copy of the logits. TILE_LEAN:
 * nor z, p is left, all rows are there and have a softcap; no branch stands between a thread's
 * chunks, so that they hide each other's latencies. */
enum tile_kind { TILE_ANY, TILE_PLAIN, TILE_LEAN };

/* What the rows of a thread do to their products on the way out; fetched before these are there. A
 * row with lists has its logits changed before the temperature, by measure_words. */
struct row_way {
    float heat, factor; /* factor: of the sums, the table's, and of E4M3 the row's; with a softcap
                           as softcap_two() wants it */
    bool listed;
};

template <dg_cuda_form X>
static __device__ __forceinline__ row_way way_of(const head_job &job, int r)
{
    r = min(r, job.a.n_row - 1);
    const dg_cuda_word_row *row = &job.a.row[r];
    row_way way = {1, factor_of(job.table.scale, 0), row->n_bias || row->n_banned};
    if (!way.listed)
        way.heat = 1 / row->temperature;
    if (X == DG_CUDA_E4M3)
        way.factor *= *factor_of_row(job.x, r);
    if (job.a.softcap > 0)
        way.factor *= 2 * LOG2_E / job.a.softcap;
    return way;
}

static __device__ __forceinline__ void put_pair(float *to, int word, int n_vocab, float low,
                                                float high)
{
    if (n_vocab % 2 == 0 && word < n_vocab)
        *(float2 *)(to + word) = make_float2(low, high);
    else
        for (int i = 0; i < 2; i++)
            if (word + i < n_vocab)
                to[word + i] = i ? high : low;
}

/* Where in a chunk the four neighbours are that slab_four() makes of words i ... i + 3 of a lane's.
 */
static __device__ __forceinline__ int four_at(int i)
{
    return (i / 2 + (int)threadIdx.x % 2) * 8 + slab_four_column();
}

/* What the soft embedding wants of a row's words of a chunk. By all lanes: two lanes' pairs become
 * four neighbours, as by slab_four(). */
template <dg_cuda_form FORM, tile_kind KIND>
static __device__ __forceinline__ void leave_words(const dg_cuda_words_args &a, int r, bool there,
                                                   int chunk, const float e[LANE_WORDS])
{
    unsigned char *p = (unsigned char *)a.w.p +
                       2 * ((size_t)r * (size_t)padded(a.n_vocab) + (size_t)chunk * CHUNK_WORDS);
    bool odd = threadIdx.x % 2;
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i += 4) {
        uint32_t pair = pack_shares<FORM>(e[i], e[i + 1]),
                 next = pack_shares<FORM>(e[i + 2], e[i + 3]);
        uint32_t other = __shfl_xor_sync(DG_ALL_LANES, odd ? pair : next, 1);
        if (KIND == TILE_LEAN || there)
            *(uint2 *)(p + 2 * four_at(i)) = odd ? uint2{other, next} : uint2{pair, other};
    }
}

/* Word i of a lane's, whose first is `first`. */
static __device__ __forceinline__ int word_at(int first, int i)
{
    return first + i / 2 * 8 + i % 2;
}

/* The logits of a row's words of a chunk, divided by the temperature. */
template <bool PLAIN>
static __device__ __forceinline__ void store_words(const dg_cuda_words_args &a, int r, int chunk,
                                                   const float z[LANE_WORDS])
{
    int first = chunk * CHUNK_WORDS + (int)threadIdx.x % 4 * 2;
    bool there = r < a.n_row;
    float *to = a.w.z + (size_t)r * (size_t)a.n_vocab;
#pragma unroll
    for (int i = 0; i < LANE_WORDS && PLAIN; i += 4) {
        float4 four = slab_four(make_float2(z[i], z[i + 1]), make_float2(z[i + 2], z[i + 3]));
        if (there)
            *(float4 *)(to + chunk * CHUNK_WORDS + four_at(i)) = four;
    }
#pragma unroll
    for (int i = 0; i < LANE_WORDS && !PLAIN && there; i += 2)
        put_pair(to, first + i * 4, a.n_vocab, z[i], z[i + 1]);
}

/* Two words' logits, before the temperature. */
static __device__ __forceinline__ void put_logits(const dg_cuda_words_args &a, int r, int word,
                                                  float v, float w, float factor)
{
    float z[2] = {v * factor, w * factor};
    if (a.softcap > 0)
        softcap_two(z, v, w, a.softcap, factor);
    put_pair(a.logits + (size_t)r * (size_t)a.n_vocab, word, a.n_vocab, z[0], z[1]);
}

/* Sums of shares p = 2^b, b the logarithm below `level`, and of b p, become those of e = e^(z -
 * top) and (z - top) e: p is e times the share of the top, and b is (z - top) / ln 2 plus its b. */
static __device__ __forceinline__ void against_top(chunk_stats &stats, float level)
{
    const float ln2 = 0.69314718f;
    float below = fmaf(stats.top, LOG2_E, -level), share = dg_exp2_fast(below);
    stats.slope = __fdividef(fmaf(-below, stats.mass, stats.slope) * ln2, share);
    stats.mass = __fdividef(stats.mass, share);
}

/* One row's words of a chunk: acc[j][half] and the one behind it, for eight tiles j of columns. */
template <dg_cuda_form FORM, tile_kind KIND>
static __device__ __forceinline__ chunk_stats finish_chunk(const dg_cuda_words_args &a,
                                                           const row_way &way, int r, int chunk,
                                                           float acc[8][4], int half)
{
    constexpr bool PLAIN = KIND != TILE_ANY, LEAN = KIND == TILE_LEAN;
    float z[LANE_WORDS], cap = a.softcap * way.heat;
    int first = chunk * CHUNK_WORDS + (int)threadIdx.x % 4 * 2;
    bool there = r < a.n_row;
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i += 2) {
        float v = acc[i / 2][half * 2], w = acc[i / 2][half * 2 + 1];
        if (!PLAIN && there && a.logits && !way.listed)
            put_logits(a, r, word_at(first, i), v, w, way.factor);
        if (LEAN || a.softcap > 0) {
            softcap_two(z + i, v, w, cap, way.factor);
        } else {
            z[i] = v * way.factor * way.heat;
            z[i + 1] = w * way.factor * way.heat;
        }
    }
    /* in two chains each, which run beside each other */
    float most[2] = {-INFINITY, -INFINITY}, mass[2] = {}, slope[2] = {};
    int at[2] = {0x7FFFFFFF, 0x7FFFFFFF};
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++)
        if (PLAIN || word_at(first, i) < a.n_vocab)
            most[i % 2] = fmaxf(most[i % 2], z[i]);
    chunk_stats stats = {fmaxf(most[0], most[1]), 0, 0, 0};
#pragma unroll
    for (int i = LANE_WORDS - 1; i >= 0; i--) /* the lowest of equals */
        if (z[i] == stats.top && (PLAIN || word_at(first, i) < a.n_vocab))
            at[i % 2] = word_at(first, i);
    stats.at = min(at[0], at[1]);
#pragma unroll
    for (int with = 1; with < 4; with *= 2) {
        float top = __shfl_xor_sync(DG_ALL_LANES, stats.top, with);
        int other = __shfl_xor_sync(DG_ALL_LANES, stats.at, with);
        take_larger(stats.top, stats.at, top, other);
    }
    if (!LEAN && a.w.z)
        store_words<PLAIN>(a, r, chunk, z);
    float level = level_of(stats.top);
#pragma unroll
    for (int i = 0; i < LANE_WORDS; i++) { /* as word_share() */
        float below = fmaf(z[i], LOG2_E, -level);
        bool word = PLAIN || word_at(first, i) < a.n_vocab;
        z[i] = word ? dg_exp2_fast(below) : 0;
        if (word) {
            mass[i % 2] += z[i];
            slope[i % 2] = fmaf(below, z[i], slope[i % 2]);
        }
    }
    stats.mass = mass[0] + mass[1];
    stats.slope = slope[0] + slope[1];
#pragma unroll
    for (int with = 1; with < 4; with *= 2) {
        stats.mass += __shfl_xor_sync(DG_ALL_LANES, stats.mass, with);
        stats.slope += __shfl_xor_sync(DG_ALL_LANES, stats.slope, with);
    }
    if (LEAN || a.leaves)
        leave_words<FORM, KIND>(a, r, there, chunk, z);
    against_top(stats, level);
    return stats;
}

/* Of two chunks, the first of them even: each lane of a row's four has one of the statistics. */
static __device__ __forceinline__ void put_two_stats(const dg_cuda_words_args &a, int r, int chunk,
                                                     const chunk_stats two[2])
{
    float *to[4] = {a.w.top, (float *)a.w.top_at, a.w.mass, a.w.slope};
    int which = (int)threadIdx.x % 4;
    float of[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        of[i] = which == 0   ? two[i].top
                : which == 1 ? __int_as_float(two[i].at)
                : which == 2 ? two[i].mass
                             : two[i].slope;
    float *all = which == 0 ? to[0] : which == 1 ? to[1] : which == 2 ? to[2] : to[3];
    *(float2 *)(all + (size_t)r * (size_t)chunk_count(a.n_vocab) + (size_t)chunk) =
        make_float2(of[0], of[1]);
}

/* Two chunks of a row at a time, in a loop: as one line, the instructions of a whole tile take
 * longer to come than to do what they do. Registers have no numbers for a loop, so that results
 * move up to where it takes them: first the lower half of a thread's rows, then the upper, then the
 * next two chunks. */
template <dg_cuda_form FORM, tile_kind KIND>
static __device__ __forceinline__ void finish_tile(const dg_cuda_words_args &a,
                                                   const row_way way[2],
                                                   float acc[head_shape::N / 8][4], int first_chunk,
                                                   int first_row)
{
    typedef head_shape T;
    constexpr int TILES = 2 * CHUNK_WORDS / 8; /* of two chunks */
    static_assert(T::MT == 1 && T::N == 2 * 8 * TILES, "four turns");
#pragma unroll 1
    for (int turn = 0; turn < HEAD_CHUNKS; turn++) {
        int half = turn % 2, pair = turn / 2 * 2, r = first_row + slab_row<T>(0, half * 2);
        const row_way now = {half ? way[1].heat : way[0].heat, half ? way[1].factor : way[0].factor,
                             half ? way[1].listed : way[0].listed};
        chunk_stats stats[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int chunk = first_chunk + pair + n;
            if (KIND == TILE_ANY && chunk >= chunk_count(a.n_vocab))
                break;
            stats[n] = finish_chunk<FORM, KIND>(a, now, r, chunk, acc + n * (TILES / 2), 0);
            if (KIND != TILE_LEAN && r < a.n_row && threadIdx.x % 4 == 0)
                put_stats(a, r, chunk, stats[n]);
        }
        if (KIND == TILE_LEAN)
            put_two_stats(a, r, first_chunk + pair, stats);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                acc[j][i] = half ? acc[j + TILES][i] : acc[j][i + 2];
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 2; i < 4; i++)
                acc[j][i] = acc[j + TILES][i];
    }
}

/* The first warpgroup begins two stages before the other and stays ahead, so that one multiplies
 * while the other finishes a tile. */
enum { HEAD_LEAD = 2 };

/* X: the form of both operands; FORM: that of p. */
template <dg_cuda_form X, dg_cuda_form FORM>
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
    if (threadIdx.x >= T::CONSUMERS) {
        warpgroup_fewer_registers<24>();
        if (threadIdx.x == T::CONSUMERS)
            copy_words(ring, job, maps);
        return;
    }
    warpgroup_more_registers<240>();
    const dg_cuda_words_args &a = job.a;
    bool plain = a.n_vocab % 4 == 0 && !a.logits,
         lean = plain && !a.w.z && a.leaves && a.softcap > 0 && chunk_count(a.n_vocab) % 2 == 0;
    int lead = 0;
    if (blockIdx.x == 0)
        clear_marks(a, T::CONSUMERS);
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        int first = tile / job.n_row_block * HEAD_CHUNKS,
            first_row = tile % job.n_row_block * T::TOKENS;
        row_way way[T::MT][2];
#pragma unroll
        for (int i = 0; i < T::MT * 2; i++)
            way[i / 2][i % 2] = way_of<X>(job, first_row + slab_row<T>(i / 2, i % 2 * 2));
        float acc[T::MT][T::N / 8][4] = {};
        if (tile == (int)blockIdx.x && threadIdx.x < 128) {
            lead = min((int)HEAD_LEAD, job.n_stage);
            slab_multiply<X, SLAB_K_ALONG>(acc, ring, turn, lead);
            dg_bar_arrive(1, T::CONSUMERS);
        } else if (tile == (int)blockIdx.x) {
            dg_bar_sync(1, T::CONSUMERS);
        }
        slab_multiply<X, SLAB_K_ALONG>(acc, ring, turn, job.n_stage - lead);
        lead = 0;
        bool whole = plain && (first + HEAD_CHUNKS) * CHUNK_WORDS <= a.n_vocab;
        if (whole && lean && first_row + T::TOKENS <= a.n_row)
            finish_tile<FORM, TILE_LEAN>(a, way[0], acc[0], first, first_row);
        else if (whole)
            finish_tile<FORM, TILE_PLAIN>(a, way[0], acc[0], first, first_row);
        else
            finish_tile<FORM, TILE_ANY>(a, way[0], acc[0], first, first_row);
    }
}

template <dg_cuda_form X, dg_cuda_form FORM>
static __global__ void __launch_bounds__(HEAD_THREADS, 1)
    head_words(head_job job, const __grid_constant__ head_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_words<X, FORM>(job, maps);
}

template <dg_cuda_form X, dg_cuda_form FORM>
static cudaError_t launch_head(cudaStream_t stream, head_job job)
{
    typedef head_shape T;
    int device = 0, n_sm = 1, n_row = job.a.n_row, chunks = chunk_count(job.a.n_vocab);
    head_maps maps = {};
    job.n_stage = job.x.ld / (X == DG_CUDA_E4M3 ? 2 * SLAB_VALUES : SLAB_VALUES);
    job.n_row_block = (n_row + T::TOKENS - 1) / T::TOKENS;
    job.n_tile = job.n_row_block * ((chunks + HEAD_CHUNKS - 1) / HEAD_CHUNKS);
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaError_t error =
        slab_map_rows<T>(&maps.x, job.x.data, n_row, job.n_stage, dg_cuda_row_bytes(job.x));
    if (!error)
        error = slab_map_weights<T>(&maps.table, job.table.data, job.table.n_out, job.n_stage, 0);
    return error ? error
                 : DG_LAUNCH((head_words<X, FORM>),
                             dim3((unsigned)(job.n_tile < n_sm ? job.n_tile : n_sm)), HEAD_THREADS,
                             (size_t)T::SHARED, stream, job, maps);
}

extern "C" cudaError_t dg_cuda_words_head(cudaStream_t stream, const dg_cuda_words_args *a,
                                          const dg_cuda_matrix *table, dg_cuda_rows x)
{
    bool bytes = x.form == DG_CUDA_E4M3, bf16 = a->form == DG_CUDA_BF16;
    if (!table->slabs || (a->form != DG_CUDA_BF16 && a->form != DG_CUDA_F16) ||
        x.form != dg_cuda_rows_for(table, NULL).form || (!bytes && a->form != x.form) ||
        a->n_row > (a->w.z ? DG_CUDA_WORD_ROWS : DG_CUDA_WORD_GROUP))
        return cudaErrorInvalidValue;
    if (a->n_row < 1)
        return cudaSuccess;
    head_job job = {*a, *table, x, 0, 0, 0};
    if (bytes)
        return bf16 ? launch_head<DG_CUDA_E4M3, DG_CUDA_BF16>(stream, job)
                    : launch_head<DG_CUDA_E4M3, DG_CUDA_F16>(stream, job);
    return bf16 ? launch_head<DG_CUDA_BF16, DG_CUDA_BF16>(stream, job)
                : launch_head<DG_CUDA_F16, DG_CUDA_F16>(stream, job);
}
