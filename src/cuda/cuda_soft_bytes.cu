/* The soft embedding of weights that were made narrower: probabilities and table as E4M3, which are
 * multiplied twice as fast as 16 bits.
 *
 * Products of bytes want both operands along k, which are the words here: the table lies turned,
 * chunk by chunk, of each column the chunk's 64 words. Probabilities come as the head leaves them,
 * halves relative to their chunk's maximum, and become bytes on their way into the products, so
 * that a row's largest is 256, exactly: a row that is sure of its word has that word's embedding.
 * The others lose what three bits of mantissa lose; below 2^-17 of the largest nothing is left. */
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* Few rows and many columns, as the head has few rows and many words. A stage has a chunk of these
 * rows, of the columns, and the weights of all rows of a group. A warpgroup of its own copies, so
 * that the others can have more registers. */
struct soft_bytes_shape : slab_shape<2, 1, DG_TURNED_COLUMNS> {
    static constexpr int TABLE_BYTES = N * CHUNK_WORDS, WEIGHTS = X_BYTES + TABLE_BYTES,
                         WEIGHT_BYTES = DG_CUDA_WORD_ROWS * (int)sizeof(float),
                         STAGE_BYTES = WEIGHTS + WEIGHT_BYTES, STAGES = (225 << 10) / STAGE_BYTES,
                         SHARED = STAGES * (STAGE_BYTES + 2 * (int)sizeof(uint64_t)),
                         THREADS = CONSUMERS + 128;
};
static_assert(soft_bytes_shape::STAGE_BYTES % 1024 == 0 && (int)CHUNK_WORDS == (int)SLAB_ROWS &&
                  DG_CUDA_WORD_ROWS % soft_bytes_shape::TOKENS == 0,
              "a stage is a chunk of some rows of a group");

typedef slab_ring<soft_bytes_shape> soft_ring;

/* Whose rows, columns and words a block has. */
struct soft_place {
    int first_row, group, first_column, part;
};

static __device__ __forceinline__ soft_place soft_place_of(void)
{
    typedef soft_bytes_shape T;
    int first_row = (int)blockIdx.x * T::TOKENS;
    soft_place at = {first_row, first_row / DG_CUDA_WORD_ROWS, (int)blockIdx.y * T::N,
                     (int)blockIdx.z};
    return at;
}

static __host__ __device__ __forceinline__ int turned_columns(int n_in)
{
    return (n_in + DG_TURNED_COLUMNS - 1) / DG_TURNED_COLUMNS * DG_TURNED_COLUMNS;
}

/* ---- the table, turned ---- */

/* The word of a chunk that lies at byte `at` of a column's 64: fragments of bytes have four
 * neighbours where those of halves, which they are made of, have two and the two eight behind. */
static __device__ __forceinline__ int turned_word(int at)
{
    int pair = at % 16 / 4 * 2 + at % 2;
    return at / 16 * 16 + pair + (at % 4 / 2) * 8;
}

/* Block (x: 128 columns, y: chunk of words). */
static __global__ void turn_slabs(unsigned char *turned, const unsigned char *slabs, int n_slab)
{
    const unsigned char *slab =
        slabs + ((size_t)blockIdx.y * (size_t)n_slab + blockIdx.x) * SLAB_BYTES;
    unsigned char *out = turned + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * SLAB_BYTES;
    dg_grid_wait();
    for (int i = (int)threadIdx.x; i < SLAB_BYTES / 16; i += (int)blockDim.x) {
        int column = i / 4, piece = i % 4;
        uint32_t word[4] = {0, 0, 0, 0};
        for (int n = 0; n < 16 && (int)blockIdx.x < n_slab; n++)
            word[n / 4] |=
                (uint32_t)slab[slab_offset(turned_word(piece * 16 + n), column / 16) + column % 16]
                << n % 4 * 8;
        *(uint4 *)(out + turned_offset(column, piece)) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
}

extern "C" size_t dg_cuda_turned_bytes(int n_out, int n_in)
{
    return (size_t)slab_count(n_out) * (size_t)turned_columns(n_in) * CHUNK_WORDS;
}

extern "C" cudaError_t dg_cuda_turn_slabs(cudaStream_t stream, void *turned, const void *slabs,
                                          int n_out, int n_in)
{
    dim3 grid((unsigned)turned_columns(n_in) / 128, (unsigned)slab_count(n_out));
    return DG_LAUNCH(turn_slabs, grid, 256, 0, stream, (unsigned char *)turned,
                     (const unsigned char *)slabs, slab_count((n_in + 1) / 2));
}

/* ---- products ---- */

/* By the thread that copies. */
static __device__ __forceinline__ void copy_chunks(const soft_ring &ring,
                                                   const dg_cuda_words_args &a,
                                                   const dg_cuda_matrix &table,
                                                   const dg_tensor_map &p, const soft_place &at)
{
    typedef soft_bytes_shape T;
    slab_turn turn = {0, 0};
    size_t columns = (size_t)turned_columns(table.n_in);
    for (int i = next_used(a, at.group, at.part, 0); i >= 0;
         i = next_used(a, at.group, at.part, i + 1)) {
        int chunk = i * PARTS + at.part, s = turn.stage;
        const unsigned char *words =
            (const unsigned char *)table.data +
            ((size_t)chunk * columns + (size_t)at.first_column) * CHUNK_WORDS;
        slab_fill(ring, turn);
        dg_tensor_g2s(ring.x(s), p, chunk * CHUNK_WORDS, at.first_row, ring.full(s));
        dg_bulk_g2s(ring.w(s), words, T::TABLE_BYTES, ring.full(s));
        dg_bulk_g2s(ring.x(s) + T::WEIGHTS, weights_of(a, at.group, chunk), T::WEIGHT_BYTES,
                    ring.full(s));
        slab_next<T>(turn);
    }
}

/* The warp's fragments of 16 rows and a chunk's 64 words, times the rows' weights. `largest`: what
 * makes the largest of the thread's two rows 256. */
static __device__ __forceinline__ void load_bytes(uint32_t p[2][4], const unsigned char *rows,
                                                  const float *weight, const float largest[2])
{
    int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 % 4 * 16;
    float low = weight[first + lane / 4] * largest[0],
          high = weight[first + lane / 4 + 8] * largest[1];
    uint32_t factor[2] = {dg_pack_f16(low, low), dg_pack_f16(high, high)};
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t raw[4];
        dg_ldmatrix_x4(raw, rows + slab_offset(first + lane % 16, step * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < 2; i++)
            p[step / 2][step % 2 * 2 + i] = dg_e4m3_of_halves(dg_half2_mul(raw[i], factor[i]),
                                                              dg_half2_mul(raw[2 + i], factor[i]));
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        warpgroup_settle(p[i / 4][i % 4]);
}

/* Stage `turn`: its fragments are made while the products of the one before it run, which is given
 * back when these have ended. */
static __device__ __forceinline__ void multiply_stage(float acc[DG_TURNED_COLUMNS / 8][4],
                                                      uint32_t p[2][4], const soft_ring &ring,
                                                      slab_turn &turn, int &before,
                                                      const soft_place &at, const float largest[2])
{
    typedef soft_bytes_shape T;
    int s = turn.stage, first = (int)threadIdx.x / 128;
    dg_mbar_wait(ring.full(s), turn.phase);
    load_bytes(p, ring.x(s) + first * SLAB_BYTES,
               (const float *)(ring.x(s) + T::WEIGHTS) + at.first_row % DG_CUDA_WORD_ROWS +
                   first * SLAB_ROWS,
               largest);
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < 2; step++)
        turned_mma(acc, p[step], ring.w(s), step);
    warpgroup_commit();
    warpgroup_wait<1>();
    if (before >= 0 && threadIdx.x % 32 == 0)
        dg_mbar_arrive(ring.empty(before));
    before = s;
    slab_next<T>(turn);
}

static __device__ __forceinline__ void sum_chunks(const soft_ring &ring,
                                                  const dg_cuda_words_args &a,
                                                  const dg_cuda_matrix &table, const soft_place &at)
{
    typedef soft_bytes_shape T;
    int n_stage = 0, before = -1;
    slab_turn turn = {0, 0};
    for (int i = 0; i < mark_count(a.n_vocab); i++)
        n_stage += __popc(marks_of(a, at.group, at.part)[i]);
    float acc[1][T::N / 8][4] = {}, largest[2], factor = factor_of(table.scale, 0);
    uint32_t p[2][2][4];
    bool wanted[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int r = at.first_row + slab_row<T>(0, 2 * i);
        wanted[i] = is_multiplied(a, r);
        largest[i] = DG_BYTE_P / top_share((float)a.w.sums[2 * min(r, a.n_row - 1) + 1]);
    }
    slab_settle<T>(acc);
    for (int n = 0; n + 1 < n_stage; n += 2) {
        multiply_stage(acc[0], p[0], ring, turn, before, at, largest);
        multiply_stage(acc[0], p[1], ring, turn, before, at, largest);
    }
    if (n_stage % 2)
        multiply_stage(acc[0], p[0], ring, turn, before, at, largest);
    warpgroup_wait<0>();
    slab_settle<T>(acc);
    float *to = a.w.part + (size_t)at.part * (size_t)a.n_row * (size_t)table.n_in;
#pragma unroll
    for (int j = 0; j < T::N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = at.first_row + slab_row<T>(0, i), c = at.first_column + slab_column(j) + i % 2;
            if (c < table.n_in && wanted[i / 2])
                to[(size_t)r * (size_t)table.n_in + (size_t)c] = acc[0][j][i] * factor;
        }
}

/* Block (x: 128 rows, y: columns of the table, z: part of the words). */
static __device__ __forceinline__ void sum_bytes(const dg_cuda_words_args &a,
                                                 const dg_cuda_matrix &table,
                                                 const dg_tensor_map &p)
{
    typedef soft_bytes_shape T;
    DG_SHARED(shared);
    soft_ring ring = {shared};
    soft_place at = soft_place_of();
    slab_ring_init(ring);
    dg_grid_wait();
    dg_grid_launch_next();
    if (threadIdx.x >= T::CONSUMERS) {
        warpgroup_fewer_registers<40>();
        if (threadIdx.x == T::CONSUMERS)
            copy_chunks(ring, a, table, p, at);
    } else {
        warpgroup_more_registers<232>();
        sum_chunks(ring, a, table, at);
    }
}

static __global__ void __launch_bounds__(soft_bytes_shape::THREADS, 1)
    soft_bytes(dg_cuda_words_args a, dg_cuda_matrix table, const __grid_constant__ dg_tensor_map p)
{
    if constexpr (DG_WITH_GROUPS)
        sum_bytes(a, table, p);
}

cudaError_t dg_soft_bytes(cudaStream_t stream, const dg_cuda_words_args *a,
                          const dg_cuda_matrix *table)
{
    typedef soft_bytes_shape T;
    dg_tensor_map p;
    dim3 grid((unsigned)((a->n_row + T::TOKENS - 1) / T::TOKENS),
              (unsigned)turned_columns(table->n_in) / T::N, PARTS);
    cudaError_t error = dg_tensor_map_init(&p, a->w.p, a->n_row, padded(a->n_vocab), T::TOKENS);
    return error
               ? error
               : DG_LAUNCH(soft_bytes, grid, T::THREADS, (size_t)T::SHARED, stream, *a, *table, p);
}
