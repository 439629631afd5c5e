/* The soft embedding of rows that are not sure (cuda_sure.cuh): a product of the probabilities with
 * the table, over the chunks of words that matter to some such row. A row's own probabilities are
 * zero in the chunks that do not matter to it, so that nothing of it depends on the other rows.
 * Partial sums over fixed ranges of words are added up in order. */
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* Half precision holds e^(z - max) times this: far tails stay above its subnormals. */
#define HALF_P 1024.0f

/* Block (x: piece, y: row): the row's probabilities in the chunks that some row uses. In slabs they
 * are as measure_words leaves them. */
template <int FORM, bool SLABS = false> static __global__ void write_p(dg_cuda_words_args a)
{
    int piece = (int)blockIdx.x, r = (int)blockIdx.y, chunks = chunk_count(a.n_vocab);
    piece_range range = piece_of(piece, a.n_vocab);
    dg_grid_wait();
    if (!is_multiplied(a, r))
        return;
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    double total = a.row[r].soft ? a.w.sums[2 * r] : 0;
    float max = (float)a.w.sums[2 * r + 1];
    size_t ld = (size_t)padded(a.n_vocab), first_chunk = (size_t)r * (size_t)chunks;
    int end = chunk_from(range.end);
    for (int base = chunk_from(range.first); base < end; base += ROW_THREADS / 16) {
        int chunk = base + (int)threadIdx.x / 16,
            first = chunk * CHUNK_WORDS + (int)threadIdx.x % 16 * 4;
        if (chunk >= end || !chunk_used(a, 0, chunk))
            continue;
        bool takes = SLABS || (total > 0 && takes_mass(a, a.w.mass[first_chunk + chunk], total));
        float e[4], level = SLABS ? level_of(a.w.top[first_chunk + chunk]) : 0;
        for (int i = 0; i < 4; i++) {
            float v = takes && first + i < a.n_vocab ? z[first + i] : -INFINITY;
            e[i] = SLABS ? word_share(v, level) : word_mass(v, max);
            if (FORM == DG_CUDA_F16 && !SLABS)
                e[i] *= HALF_P;
        }
        size_t at = (size_t)r * ld + (size_t)first;
        if (FORM == DG_CUDA_F32)
            *(float4 *)((float *)a.w.p + at) = make_float4(e[0], e[1], e[2], e[3]);
        else
            *(uint2 *)((uint16_t *)a.w.p + at) =
                make_uint2(pack_shares<(dg_cuda_form)FORM>(e[0], e[1]),
                           pack_shares<(dg_cuda_form)FORM>(e[2], e[3]));
    }
}

/* The transpose of 8 x 8 values, each lane's pair of one. */
static __device__ __forceinline__ uint32_t transposed(uint32_t m)
{
#ifdef __CUDACC__
    uint32_t d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(m));
    return d;
#else
    int lane = (int)threadIdx.x % 32, column = lane / 4;
    uint32_t even = __shfl_sync(DG_ALL_LANES, m, lane % 4 * 8 + column / 2);
    uint32_t odd = __shfl_sync(DG_ALL_LANES, m, lane % 4 * 8 + 4 + column / 2);
    return column % 2 ? even >> 16 | (odd & 0xFFFF0000u) : (even & 0xFFFFu) | odd << 16;
#endif
}

enum {
    SOFT_THREADS = 256,
    SOFT_COLS = 128,
    SOFT_ROWS = 256,
    SOFT_P_BYTES = SOFT_ROWS * CHUNK_WORDS * 2
};

/* Rows of p for a chunk of words: 128 bytes a row, its 16-byte pieces swapped by row so that
 * ldmatrix has no conflicts. */
static __device__ __forceinline__ int p_offset(int row, int piece)
{
    return row * 128 + ((piece ^ row % 8) * 16);
}

static __device__ __forceinline__ void fetch_p(unsigned char *stage, const dg_cuda_words_args &a,
                                               size_t ld, int chunk)
{
    for (int i = (int)threadIdx.x; i < SOFT_ROWS * 8; i += SOFT_THREADS) {
        int row = i / 8, piece = i % 8;
        const uint16_t *from = (const uint16_t *)a.w.p + (size_t)min(row, a.n_row - 1) * ld +
                               chunk * CHUNK_WORDS + piece * 8;
        dg_cp_async16_if(stage + p_offset(row, piece), from, row < a.n_row);
    }
    dg_cp_async_commit();
}

/* Block (x: 128 columns of the table, y: part of the words). Words are the k of the mma, columns
 * its M (fragments of the table, transposed), rows its N. A warp has 32 columns and 128 rows. */
template <class F>
static __global__ void __launch_bounds__(SOFT_THREADS)
    soft_parts(dg_cuda_words_args a, dg_cuda_matrix table)
{
    DG_SHARED(shared);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int col = (int)blockIdx.x * SOFT_COLS + warp % 4 * 32, row0 = warp / 4 * 128;
    int part = (int)blockIdx.y, tiles = group_tiles(table.n_out),
        n_unit = (table.n_in + F::UNIT - 1) / F::UNIT;
    int unit = min(col / F::UNIT, n_unit - 1), half = col % F::UNIT / 32;
    size_t ld = (size_t)padded(a.n_vocab);
    float acc[2][16][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                acc[i][j][k] = 0;

    dg_grid_wait();
    int i_chunk = next_used(a, 0, part, 0);
    if (i_chunk >= 0)
        fetch_p(shared, a, ld, i_chunk * PARTS + part);
    for (int turn = 0; i_chunk >= 0; turn ^= 1) {
        int chunk = i_chunk * PARTS + part, next = next_used(a, 0, part, i_chunk + 1);
        dg_cp_async_wait<0>();
        __syncthreads(); /* the chunk is there, and nobody reads the other stage any more */
        if (next >= 0)
            fetch_p(shared + (turn ^ 1) * SOFT_P_BYTES, a, ld, next * PARTS + part);
        const unsigned char *p = shared + turn * SOFT_P_BYTES;
        for (int step = 0; step < CHUNK_WORDS / 16; step++) {
            int tile = chunk * (CHUNK_WORDS / 16) + step;
            const unsigned char *at =
                (const unsigned char *)table.data +
                (((size_t)(tile / tiles) * (size_t)n_unit + (size_t)unit) * (size_t)tiles +
                 (size_t)(tile % tiles)) *
                    packed_unit<F>::BYTES;
            typename F::scales scales;
            typename F::raw raw;
            uint32_t v[2][4], w[2][4];
            F::begin(scales, at, lane);
            F::load(raw, at + F::HEAD + half / 2 * F::CHUNK, half % 2, lane);
            F::convert(v, raw, scales, half);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                w[i][0] = transposed(v[i][0]);
                w[i][1] = transposed(v[i][2]);
                w[i][2] = transposed(v[i][1]);
                w[i][3] = transposed(v[i][3]);
            }
#pragma unroll
            for (int j = 0; j < 16; j += 2) {
                uint32_t b[4];
                int row = row0 + (j + lane / 16) * 8 + lane % 8, piece = step * 2 + lane / 8 % 2;
                dg_ldmatrix_x4(b, p + p_offset(row, piece));
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    mma_of<F::FORM>(acc[i][j], w[i], b);
                    mma_of<F::FORM>(acc[i][j + 1], w[i], b + 2);
                }
            }
        }
        i_chunk = next;
    }

    float factor = factor_of(table.scale, 0);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int c = col + i * 16 + lane / 4 + k / 2 * 8,
                    r = row0 + j * 8 + lane % 4 * 2 + k % 2;
                if (c < table.n_in && is_multiplied(a, r))
                    a.w.part[((size_t)blockIdx.y * (size_t)a.n_row + (size_t)r) *
                                 (size_t)table.n_in +
                             (size_t)c] = acc[i][j][k] * factor;
            }
}

/* ---- the same out of slabs (cuda_slabs.cuh): words are the k, downwards in the table's slabs ----
 *
 * p is relative to a chunk's maximum and comes times its weight, a power of two, on the way into
 * the products: fragments of rows are multiplied in registers. */

/* A stage has a chunk of all rows, and the rows' weights behind it. A warpgroup of its own copies,
 * so that the others can have more registers. */
struct soft_shape : slab_shape<2, 2, SOFT_COLS> {
    static constexpr int WEIGHTS = slab_shape<2, 2, SOFT_COLS>::STAGE_BYTES,
                         WEIGHT_BYTES = SOFT_ROWS * (int)sizeof(float),
                         STAGE_BYTES = WEIGHTS + WEIGHT_BYTES, STAGES = (225 << 10) / STAGE_BYTES,
                         SHARED = STAGES * (STAGE_BYTES + 2 * (int)sizeof(uint64_t)),
                         THREADS = CONSUMERS + 128;
};
static_assert((int)soft_shape::TOKENS == (int)SOFT_ROWS && (int)CHUNK_WORDS == (int)SLAB_ROWS &&
                  (int)SOFT_ROWS == (int)DG_CUDA_WORD_ROWS && soft_shape::STAGE_BYTES % 1024 == 0,
              "a stage is a chunk of all rows");
static_assert((int)SOFT_COLS == 2 * (int)SLAB_VALUES, "a block has two slabs of a chunk");

/* Few copies: each takes the one thread that asks for it some time. */
static __device__ __forceinline__ void copy_chunk(const slab_ring<soft_shape> &ring, int s,
                                                  const dg_cuda_words_args &a,
                                                  const dg_cuda_matrix &table,
                                                  const dg_tensor_map &p, int chunk)
{
    int group = (int)blockIdx.x, slab = (int)blockIdx.y * 2, n_slab = slab_count(table.n_in);
    const unsigned char *words =
        (const unsigned char *)table.data + ((size_t)chunk * (size_t)n_slab + slab) * SLAB_BYTES;
    dg_tensor_g2s(ring.x(s), p, chunk * CHUNK_WORDS, group * SOFT_ROWS, ring.full(s));
    if (slab + 1 < n_slab) {
        dg_bulk_g2s(ring.w(s), words, 2 * SLAB_BYTES, ring.full(s));
    } else { /* columns behind the last are computed as those before, and not stored */
        dg_bulk_g2s(ring.w(s), words, SLAB_BYTES, ring.full(s));
        dg_bulk_g2s(ring.w(s) + SLAB_BYTES, words, SLAB_BYTES, ring.full(s));
    }
    dg_bulk_g2s(ring.x(s) + soft_shape::WEIGHTS, weights_of(a, group, chunk),
                soft_shape::WEIGHT_BYTES, ring.full(s));
}

/* The warp's fragments of 16 rows and a chunk's 64 words, times the rows' weights. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void load_shares(uint32_t p[4][4], const unsigned char *rows,
                                                   const float *weight)
{
    int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 % 4 * 16;
    float scale = FORM == DG_CUDA_F16 ? HALF_P : 1;
    float low = weight[first + lane / 4] * scale, high = weight[first + lane / 4 + 8] * scale;
    uint32_t factor[2] = {pack_shares<FORM>(low, low), pack_shares<FORM>(high, high)};
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t raw[4];
        dg_ldmatrix_x4(raw, rows + slab_offset(first + lane % 16, step * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[step][i] = FORM == DG_CUDA_F16 ? dg_half2_mul(raw[i], factor[i % 2])
                                             : dg_bf162_mul(raw[i], factor[i % 2]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        warpgroup_settle(p[i / 4][i % 4]);
}

/* acc += the products of the next n_stage stages. While the products of 64 rows run, the fragments
 * of the other 64 are made; a stage is given back when both have ended. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void multiply_chunks(float acc[2][SOFT_COLS / 8][4],
                                                       const slab_ring<soft_shape> &ring,
                                                       int n_stage)
{
    static_assert(soft_shape::MT == 2, "fragments of two tiles take turns");
    int first = (int)threadIdx.x / 128 * 2, before = -1;
    slab_turn turn = {0, 0};
    uint32_t p[2][4][4];
#pragma unroll
    for (int i = 0; i < 2 * SOFT_COLS / 2; i++)
        warpgroup_settle(acc[i / (SOFT_COLS / 2)][i / 4 % (SOFT_COLS / 8)][i % 4]);
    for (int n = 0; n < n_stage; n++) {
        int s = turn.stage;
        dg_mbar_wait(ring.full(s), turn.phase);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            load_shares<FORM>(p[m], ring.x(s) + (first + m) * SLAB_BYTES,
                              (const float *)(ring.x(s) + soft_shape::WEIGHTS) +
                                  (first + m) * SLAB_ROWS);
            warpgroup_begin();
#pragma unroll
            for (int step = 0; step < 4; step++)
                warpgroup_mma_down<FORM>(acc[m], p[m][step],
                                         operand_on(operand_at(ring.w(s), 8192), step * 2048));
            warpgroup_commit();
            warpgroup_wait<1>();
            if (m == 0 && before >= 0 && threadIdx.x % 32 == 0)
                dg_mbar_arrive(ring.empty(before));
        }
        before = s;
        slab_next<soft_shape>(turn);
    }
    warpgroup_wait<0>();
    if (before >= 0 && threadIdx.x % 32 == 0)
        dg_mbar_arrive(ring.empty(before));
}

/* By the thread that copies. */
static __device__ __forceinline__ void copy_chunks(const slab_ring<soft_shape> &ring,
                                                   const dg_cuda_words_args &a,
                                                   const dg_cuda_matrix &table,
                                                   const dg_tensor_map &p)
{
    slab_turn turn = {0, 0};
    int group = (int)blockIdx.x, part = (int)blockIdx.z;
    for (int i = next_used(a, group, part, 0); i >= 0; i = next_used(a, group, part, i + 1)) {
        slab_fill(ring, turn);
        copy_chunk(ring, turn.stage, a, table, p, i * PARTS + part);
        slab_next<soft_shape>(turn);
    }
}

/* By the others. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void sum_chunks(const slab_ring<soft_shape> &ring,
                                                  const dg_cuda_words_args &a,
                                                  const dg_cuda_matrix &table)
{
    typedef soft_shape T;
    int group = (int)blockIdx.x, part = (int)blockIdx.z, n_stage = 0;
    for (int i = 0; i < mark_count(a.n_vocab); i++)
        n_stage += __popc(marks_of(a, group, part)[i]);
    float acc[T::MT][T::N / 8][4] = {}, factor = factor_of(table.scale, 0);
    multiply_chunks<FORM>(acc, ring, n_stage);
    size_t n_in = (size_t)table.n_in;
    float *to = a.w.part + (size_t)part * (size_t)a.n_row * n_in;
    bool wanted[T::MT][2];
#pragma unroll
    for (int i = 0; i < T::MT * 2; i++)
        wanted[i / 2][i % 2] = is_multiplied(a, group * SOFT_ROWS + slab_row<T>(i / 2, i % 2 * 2));
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int j = 0; j < T::N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = group * SOFT_ROWS + slab_row<T>(m, i),
                    c = (int)blockIdx.y * SOFT_COLS + slab_column(j) + i % 2;
                if (c < table.n_in && wanted[m][i / 2])
                    to[(size_t)r * n_in + (size_t)c] = acc[m][j][i] * factor;
            }
}

/* Block (x: group of rows, y: 128 columns of the table, z: part of the words): groups side by side,
 * so that they find the same words in the second-level cache. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void sum_slabs(const dg_cuda_words_args &a,
                                                 const dg_cuda_matrix &table,
                                                 const dg_tensor_map &p)
{
    typedef soft_shape T;
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    slab_ring_init(ring);
    dg_grid_wait();
    dg_grid_launch_next();
    if (threadIdx.x >= T::CONSUMERS) {
        warpgroup_fewer_registers<40>();
        if (threadIdx.x == T::CONSUMERS)
            copy_chunks(ring, a, table, p);
    } else {
        warpgroup_more_registers<232>();
        sum_chunks<FORM>(ring, a, table);
    }
}

template <dg_cuda_form FORM>
static __global__ void __launch_bounds__(soft_shape::THREADS, 1)
    soft_slabs(dg_cuda_words_args a, dg_cuda_matrix table, const __grid_constant__ dg_tensor_map p)
{
    if constexpr (DG_WITH_GROUPS)
        sum_slabs<FORM>(a, table, p);
}

template <dg_cuda_form FORM>
static cudaError_t launch_slabs(cudaStream_t stream, const dg_cuda_words_args *a,
                                const dg_cuda_matrix *table, dim3 pieces)
{
    typedef soft_shape T;
    dg_tensor_map p;
    dim3 grid((unsigned)word_groups(a->n_row), (unsigned)(table->n_in + SOFT_COLS - 1) / SOFT_COLS,
              PARTS);
    cudaError_t error = dg_tensor_map_init(&p, a->w.p, a->n_row, padded(a->n_vocab), SOFT_ROWS);
    if (!error && !a->leaves)
        error = DG_LAUNCH((write_p<FORM, true>), pieces, ROW_THREADS, 0, stream, *a);
    if (!error)
        error =
            DG_LAUNCH(soft_slabs<FORM>, grid, T::THREADS, (size_t)T::SHARED, stream, *a, *table, p);
    return error;
}

/* The same for float tables: block (x: 256 columns, y: row, z: part). */
static __global__ void soft_floats(dg_cuda_words_args a, dg_cuda_matrix table)
{
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y,
        part = (int)blockIdx.z;
    size_t ld = (size_t)padded(a.n_vocab), table_ld = (size_t)padded(table.n_in);
    dg_grid_wait();
    const float *p = (const float *)a.w.p + (size_t)r * ld, *w = (const float *)table.data;
    if (c >= table.n_in)
        return;
    float sum = 0;
    for (int i = next_used(a, 0, part, 0); i >= 0; i = next_used(a, 0, part, i + 1)) {
        int chunk = i * PARTS + part;
        for (int v = chunk * CHUNK_WORDS; v < min((chunk + 1) * CHUNK_WORDS, a.n_vocab); v++)
            sum = fmaf(p[v], w[(size_t)v * table_ld + (size_t)c], sum);
    }
    a.w.part[((size_t)part * (size_t)a.n_row + (size_t)r) * (size_t)table.n_in + (size_t)c] = sum;
}

template <class F>
static cudaError_t launch_soft(cudaStream_t stream, const dg_cuda_words_args *a,
                               const dg_cuda_matrix *table, dim3 pieces)
{
    cudaError_t error = DG_LAUNCH(write_p<F::FORM>, pieces, ROW_THREADS, 0, stream, *a);
    unsigned blocks = (unsigned)(table->n_in + SOFT_COLS - 1) / SOFT_COLS;
    if (!error)
        error = DG_LAUNCH(soft_parts<F>, dim3(blocks, PARTS), SOFT_THREADS, 2 * SOFT_P_BYTES,
                          stream, *a, *table);
    return error;
}

extern "C" cudaError_t dg_cuda_words_soft(cudaStream_t stream, const dg_cuda_words_args *a,
                                          const dg_cuda_matrix *table, const dg_cuda_matrix *words,
                                          float scale)
{
    if (a->n_row < 1)
        return cudaSuccess;
    if (a->n_row > (a->w.z ? DG_CUDA_WORD_ROWS : DG_CUDA_WORD_GROUP) || (!a->w.z && !a->leaves))
        return cudaErrorInvalidValue;
    dim3 pieces(PIECES, (unsigned)a->n_row);
    unsigned cols = (unsigned)(table->n_in + 255) / 256;
    cudaError_t error = cudaErrorInvalidValue;
    if (table->type == DG_F32) {
        error = DG_LAUNCH(write_p<DG_CUDA_F32>, pieces, ROW_THREADS, 0, stream, *a);
        if (!error)
            error = DG_LAUNCH(soft_floats, dim3(cols, (unsigned)a->n_row, PARTS), 256, 0, stream,
                              *a, *table);
    } else if (table->type == DG_FP8) {
        if (a->leaves && a->form != DG_CUDA_F16)
            return error;
        error = a->leaves
                    ? cudaSuccess
                    : DG_LAUNCH((write_p<DG_CUDA_F16, true>), pieces, ROW_THREADS, 0, stream, *a);
        if (!error)
            error = dg_soft_bytes(stream, a, table);
        return error ? error : dg_soft_sum(stream, a, words, {scale / DG_BYTE_P, scale, false});
    } else if (table->slabs) {
        error = dg_cuda_form_of(table->type) == DG_CUDA_BF16
                    ? launch_slabs<DG_CUDA_BF16>(stream, a, table, pieces)
                    : launch_slabs<DG_CUDA_F16>(stream, a, table, pieces);
    } else {
        DG_FOR_FORMAT(table->type, error = launch_soft<F>(stream, a, table, pieces), break)
    }
    float factor = dg_cuda_form_of(table->type) == DG_CUDA_F16 ? scale / HALF_P : scale;
    return error ? error : dg_soft_sum(stream, a, words, {factor, scale, table->slabs});
}
