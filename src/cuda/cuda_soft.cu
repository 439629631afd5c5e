/* The soft embedding: a product of the probabilities with the table, over the chunks of words that
 * matter to some row. A row's own probabilities are zero in the chunks that do not matter to it, so
 * that nothing of it depends on the other rows. Partial sums over fixed ranges of words are added
 * up in order. */
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_words.cuh"

/* Half precision holds e^(z - max) times this: far tails stay above its subnormals. */
#define HALF_P 1024.0f

static __device__ __forceinline__ bool takes_chunk(const dg_cuda_words_args &a, int r, int chunk,
                                                   int chunks)
{
    double total = a.w.sums[2 * r];
    return a.row[r].soft && total > 0 &&
           (double)a.w.mass[(size_t)r * (size_t)chunks + (size_t)chunk] * chunks >=
               (double)a.drop * total;
}

/* A thread a chunk. */
static __global__ void used_chunks(dg_cuda_words_args a)
{
    int chunks = chunk_count(a.n_vocab), chunk = (int)(blockIdx.x * blockDim.x + threadIdx.x),
        used = 0;
    dg_grid_wait();
    if (chunk >= chunks)
        return;
    for (int r = 0; r < a.n_row; r++)
        used |= takes_chunk(a, r, chunk, chunks);
    a.w.used[chunk] = used;
}

/* Block (x: piece, y: row): the row's probabilities in the chunks that some row uses. */
template <int FORM> static __global__ void write_p(dg_cuda_words_args a)
{
    int piece = (int)blockIdx.x, r = (int)blockIdx.y, chunks = chunk_count(a.n_vocab);
    piece_range range = piece_of(piece, a.n_vocab);
    dg_grid_wait();
    const float *z = a.w.z + (size_t)r * (size_t)a.n_vocab;
    float max = (float)a.w.sums[2 * r + 1];
    size_t ld = (size_t)padded(a.n_vocab);
    int end = (range.end + CHUNK_WORDS - 1) / CHUNK_WORDS;
    for (int base = range.first / CHUNK_WORDS; base < end; base += ROW_THREADS / 16) {
        int chunk = base + (int)threadIdx.x / 16,
            first = chunk * CHUNK_WORDS + (int)threadIdx.x % 16 * 4;
        if (chunk >= end || !a.w.used[chunk])
            continue;
        bool takes = takes_chunk(a, r, chunk, chunks);
        float e[4];
        for (int i = 0; i < 4; i++)
            e[i] = takes && first + i < a.n_vocab ? word_mass(z[first + i], max) : 0;
        size_t at = (size_t)r * ld + (size_t)first;
        if (FORM == DG_CUDA_F32)
            *(float4 *)((float *)a.w.p + at) = make_float4(e[0], e[1], e[2], e[3]);
        else if (FORM == DG_CUDA_BF16)
            *(uint2 *)((uint16_t *)a.w.p + at) =
                make_uint2(dg_pack_bf16(e[0], e[1]), dg_pack_bf16(e[2], e[3]));
        else
            *(uint2 *)((uint16_t *)a.w.p + at) =
                make_uint2(dg_pack_f16(e[0] * HALF_P, e[1] * HALF_P),
                           dg_pack_f16(e[2] * HALF_P, e[3] * HALF_P));
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

/* Chunks of words that a part has. */
static __device__ __forceinline__ int part_begin(int part, int chunks)
{
    return (int)((long long)chunks * part / PARTS);
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
    int chunks = chunk_count(a.n_vocab), chunk = part_begin((int)blockIdx.y, chunks),
        end = part_begin((int)blockIdx.y + 1, chunks);
    int tiles = group_tiles(table.n_out), n_unit = (table.n_in + F::UNIT - 1) / F::UNIT;
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
    while (chunk < end && !a.w.used[chunk])
        chunk++;
    if (chunk < end)
        fetch_p(shared, a, ld, chunk);
    for (int turn = 0; chunk < end; turn ^= 1) {
        int next = chunk + 1;
        while (next < end && !a.w.used[next])
            next++;
        dg_cp_async_wait<0>();
        __syncthreads(); /* the chunk is there, and nobody reads the other stage any more */
        if (next < end)
            fetch_p(shared + (turn ^ 1) * SOFT_P_BYTES, a, ld, next);
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
        chunk = next;
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
                if (c < table.n_in && r < a.n_row)
                    a.w.part[((size_t)blockIdx.y * (size_t)a.n_row + (size_t)r) *
                                 (size_t)table.n_in +
                             (size_t)c] = acc[i][j][k] * factor;
            }
}

/* The same for float tables: block (x: 256 columns, y: row, z: part). */
static __global__ void soft_floats(dg_cuda_words_args a, dg_cuda_matrix table)
{
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y,
        chunks = chunk_count(a.n_vocab);
    size_t ld = (size_t)padded(a.n_vocab), table_ld = (size_t)padded(table.n_in);
    dg_grid_wait();
    const float *p = (const float *)a.w.p + (size_t)r * ld, *w = (const float *)table.data;
    if (c >= table.n_in)
        return;
    float sum = 0;
    for (int chunk = part_begin((int)blockIdx.z, chunks);
         chunk < part_begin((int)blockIdx.z + 1, chunks); chunk++) {
        if (!a.w.used[chunk])
            continue;
        for (int v = chunk * CHUNK_WORDS; v < min((chunk + 1) * CHUNK_WORDS, a.n_vocab); v++)
            sum = fmaf(p[v], w[(size_t)v * table_ld + (size_t)c], sum);
    }
    a.w.part[((size_t)blockIdx.z * (size_t)a.n_row + (size_t)r) * (size_t)table.n_in + (size_t)c] =
        sum;
}

/* Block (x: columns, y: row). */
static __global__ void soft_sum(dg_cuda_words_args a, int n_embd, float scale)
{
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    dg_grid_wait();
    float *soft = a.row[r].soft;
    if (!soft || c >= n_embd)
        return;
    float sum = 0;
    for (int i = 0; i < PARTS; i++)
        sum += a.w.part[((size_t)i * (size_t)a.n_row + (size_t)r) * (size_t)n_embd + (size_t)c];
    double total = a.w.sums[2 * r];
    soft[c] = total > 0 ? sum * (float)((double)scale / total) : nanf("");
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
                                          const dg_cuda_matrix *table, float scale)
{
    if (a->n_row < 1)
        return cudaSuccess;
    dim3 pieces(PIECES, (unsigned)a->n_row);
    unsigned cols = (unsigned)(table->n_in + 255) / 256;
    cudaError_t error = DG_LAUNCH(
        used_chunks, dim3((unsigned)(chunk_count(a->n_vocab) + 127) / 128), 128, 0, stream, *a);
    if (error)
        return error;
    if (table->type == DG_F32) {
        error = DG_LAUNCH(write_p<DG_CUDA_F32>, pieces, ROW_THREADS, 0, stream, *a);
        if (!error)
            error = DG_LAUNCH(soft_floats, dim3(cols, (unsigned)a->n_row, PARTS), 256, 0, stream,
                              *a, *table);
    } else {
        error = cudaErrorInvalidValue;
        DG_FOR_FORMAT(table->type, error = launch_soft<F>(stream, a, table, pieces), break)
    }
    float factor = dg_cuda_form_of(table->type) == DG_CUDA_F16 ? scale / HALF_P : scale;
    return error ? error
                 : DG_LAUNCH(soft_sum, dim3(cols, (unsigned)a->n_row), 256, 0, stream, *a,
                             table->n_in, factor);
}
