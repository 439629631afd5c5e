/* Products of rows with weights in fragments: what the kernel of single warps (cuda_product.cu) and
 * that of warpgroups (cuda_product_groups.cu) have in common.
 *
 * A block makes a tile of y: weight rows are the M of the mma, rows of x its N. Packed weights and
 * x go through a ring of shared-memory stages of 64 values of k, filled by cp.async; weights are
 * dequantised in registers. A gated product has gate and up tiles of the same channels in one
 * block. */
#ifndef DG_CUDA_CUDA_PRODUCT_TILES_CUH
#define DG_CUDA_CUDA_PRODUCT_TILES_CUH

#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_wgmma.cuh"

typedef struct part_job {
    const unsigned char *w;
    const float *scale;
    size_t unit_stride;               /* from a unit of k to the next: a group of tiles */
    int n_out, n_tile, tiles, n_unit; /* tiles: of a group */
    int first_block;                  /* of weight rows, counted over the parts */
    float *y;
    size_t ldy;
} part_job;

typedef struct product_job {
    int n_row, n_chunk, n_token_block, n_part;
    bool gated;   /* parts 0 and 1 are gate and up */
    bool to_rows; /* results go to h as they are */
    float alpha;
    const unsigned char *x;
    size_t x_bytes; /* of a row */
    part_job part[3];
    dg_cuda_rows h;
    const dg_expert_tile *tile; /* rows of experts, n_token_block of them; NULL: dense */
    const int32_t *row;         /* of x, for the rows of experts; NULL: the same */
    size_t mat_bytes;           /* from an expert's weights to the next one's */
} product_job;

/* ---- shared memory: stages of weights and x, then heads of units ---- */

template <class F, class T> struct stage {
    static constexpr int W_BYTES = T::TILES * F::CHUNK, X_BYTES = T::TOKENS * 128,
                         BYTES = W_BYTES + X_BYTES;
    static constexpr int CHUNKS = F::UNIT / 64; /* of a unit */
    static constexpr int HEAD_BYTES = T::TILES * F::HEAD,
                         HEAD_SLOTS = F::HEAD ? T::STAGES / 4 + 1 : 0;
    static constexpr int SHARED = T::STAGES * BYTES + HEAD_SLOTS * HEAD_BYTES;
};

/* Rows of x in a stage: 8 rows x 16 bytes side by side, as ldmatrix reads them without conflicts;
 * next the other tiles of 8 rows, then the next 16 bytes of k. */
template <class T> static __device__ __forceinline__ int x_offset(int k16, int token)
{
    return (k16 * (T::TOKENS / 8) + token / 8) * 128 + token % 8 * 16;
}

/* ---- which tile is this ---- */

struct place {
    int part, first_tile; /* of weights: of the part, or of channels */
    int first_row, end_row;
    int expert;
};

template <class T> static __device__ __forceinline__ place place_of(const product_job &job)
{
    int block = (int)blockIdx.x / job.n_token_block, rows = (int)blockIdx.x % job.n_token_block;
    place at = {0, block * (job.gated ? T::TILES / 2 : T::TILES), rows * T::TOKENS, job.n_row, 0};
    if (job.tile) {
        dg_expert_tile tile = job.tile[rows];
        at.expert = tile.expert;
        at.first_row = tile.first;
        at.end_row = tile.end;
    } else if (!job.gated) {
        while (at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
            at.part++;
        at.first_tile -= job.part[at.part].first_block * T::TILES;
    }
    return at;
}

/* Where the first unit of the block's tile number i is. Tiles behind the last are computed as the
 * last, and not stored. */
template <class F, class T>
static __device__ __forceinline__ const unsigned char *tile_data(const product_job &job,
                                                                 const place &at, int i)
{
    const part_job &part = job.part[job.gated ? T::gated_part(i) : at.part];
    int tile = min(at.first_tile + (job.gated ? T::gated_tile(i) : i), part.n_tile - 1),
        group = tile / part.tiles;
    return part.w + (size_t)at.expert * job.mat_bytes +
           (size_t)group * (size_t)part.n_unit * part.unit_stride +
           (size_t)(tile % part.tiles) * packed_unit<F>::BYTES;
}

/* ---- copies into the ring ---- */

/* The 16-byte pieces of a chunk that a thread copies. */
template <class F, class T> struct pieces {
    static constexpr int N_W = T::TILES * F::CHUNK / 16, N_X = T::TOKENS * 8;
    static constexpr int W = (N_W + T::THREADS - 1) / T::THREADS, X = N_X / T::THREADS;
    static_assert(N_X % T::THREADS == 0, "x is shared out evenly");
    const unsigned char *w[W], *x[X];
    int x_at[X];
    unsigned x_valid;
};

template <class F, class T>
static __device__ __forceinline__ void pieces_init(pieces<F, T> &p, const product_job &job,
                                                   const place &at)
{
    int thread = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < p.W; i++) {
        int piece = min(thread + i * T::THREADS, p.N_W - 1), tile = piece / (F::CHUNK / 16);
        p.w[i] = tile_data<F, T>(job, at, tile) + F::HEAD + piece % (F::CHUNK / 16) * 16;
    }
    p.x_valid = 0;
#pragma unroll
    for (int i = 0; i < p.X; i++) {
        /* a warp copies 64 bytes of each of 8 rows */
        int warp = thread / 32 + i * (T::THREADS / 32), k16 = thread / 8 % 4 + warp % 2 * 4;
        int token = warp / 2 * 8 + thread % 8, row = min(at.first_row + token, at.end_row - 1);
        p.x_valid |= (unsigned)(at.first_row + token < at.end_row) << i;
        p.x[i] = job.x + (size_t)(job.row ? job.row[row] : row) * job.x_bytes + k16 * 16;
        p.x_at[i] = x_offset<T>(k16, token);
    }
}

template <class F, class T>
static __device__ __forceinline__ void copy_head(unsigned char *shared, const product_job &job,
                                                 const place &at, int unit)
{
    constexpr int N = F::HEAD / 16;
    unsigned char *slot = shared + T::STAGES * stage<F, T>::BYTES +
                          unit % stage<F, T>::HEAD_SLOTS * stage<F, T>::HEAD_BYTES;
    for (int piece = (int)threadIdx.x; piece < T::TILES * N; piece += T::THREADS) {
        const unsigned char *tile = tile_data<F, T>(job, at, piece / N);
        size_t offset = (size_t)unit * job.part[at.part].unit_stride + (size_t)(piece % N * 16);
        dg_cp_async16(slot + piece * 16, tile + offset);
    }
}

template <class F, class T>
static __device__ __forceinline__ void copy_chunk(unsigned char *shared, const pieces<F, T> &p,
                                                  const product_job &job, const place &at,
                                                  int chunk)
{
    constexpr int CHUNKS = stage<F, T>::CHUNKS;
    unsigned char *slot = shared + chunk % T::STAGES * stage<F, T>::BYTES;
    size_t offset = (size_t)(chunk / CHUNKS) * job.part[at.part].unit_stride +
                    (size_t)(chunk % CHUNKS * F::CHUNK);
#pragma unroll
    for (int i = 0; i < p.W; i++) {
        int piece = (int)threadIdx.x + i * T::THREADS;
        if (piece < p.N_W)
            dg_cp_async16(slot + piece * 16, p.w[i] + offset);
    }
#pragma unroll
    for (int i = 0; i < p.X; i++)
        dg_cp_async16_if(slot + stage<F, T>::W_BYTES + p.x_at[i], p.x[i] + (size_t)chunk * 128,
                         p.x_valid >> i & 1);
    if constexpr (F::HEAD != 0) {
        if (chunk % CHUNKS == 0)
            copy_head<F, T>(shared, job, at, chunk / CHUNKS);
    }
}

/* ---- results: in a fragment value i is of weight row lane / 4 + 8 (i / 2) and x row 2 (lane % 4)
 * + i % 2 ---- */

static __device__ __forceinline__ float part_factor(const product_job &job, const place &at)
{
    return job.alpha * factor_of(job.part[at.part].scale, at.expert);
}

static __device__ __forceinline__ void store_fragment(const product_job &job, const place &at,
                                                      int tile, int row0, float factor,
                                                      const float v[4])
{
    const part_job &part = job.part[at.part];
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int out = tile * 16 + lane / 4 + i / 2 * 8, row = row0 + lane % 4 * 2 + i % 2;
        if (out < part.n_out && row < at.end_row)
            part.y[(size_t)row * part.ldy + (size_t)out] = v[i] * factor;
    }
}

/* Two channels at a time into rows of a form: token0 and token1 are of neighbouring rows, `half` is
 * the tile's. */
static __device__ __forceinline__ void store_channels(const product_job &job, const place &at,
                                                      int tile, int row0, int half, float token0,
                                                      float token1)
{
    int lane = (int)threadIdx.x % 32;
    channel_pair pair = pair_channels(token0, token1);
    int channel = tile * 16 + (lane / 4 & ~1) + half * 8, row = row0 + lane % 4 * 2 + lane / 4 % 2;
    if (channel < job.h.ld && row < at.end_row)
        store_pair(job.h.data, job.h.form, (size_t)row * (size_t)job.h.ld + (size_t)channel, pair);
}

struct gated_factors {
    float gate, up, out;
};

static __device__ __forceinline__ gated_factors factors_of(const product_job &job, const place &at)
{
    gated_factors f = {factor_of(job.part[0].scale, at.expert),
                       factor_of(job.part[1].scale, at.expert), gated_factor(job.h.form)};
    return f;
}

static __device__ __forceinline__ void store_gated_fragment(const product_job &job, const place &at,
                                                            int tile, int row0,
                                                            const gated_factors &f,
                                                            const float gate[4], const float up[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        store_channels(job, at, tile, row0, i / 2, gated(gate[i] * f.gate, up[i] * f.up) * f.out,
                       gated(gate[i + 1] * f.gate, up[i + 1] * f.up) * f.out);
}

/* ---- jobs, on the host ---- */

template <class T> static unsigned place_parts(product_job *job)
{
    int blocks = 0, wide = job->gated ? T::TILES / 2 : T::TILES;
    job->n_token_block = (job->n_row + T::TOKENS - 1) / T::TOKENS;
    for (int p = 0; p < job->n_part; p++) {
        job->part[p].first_block = blocks;
        if (p == 0 || !job->gated)
            blocks += (job->part[p].n_tile + wide - 1) / wide;
    }
    return (unsigned)(blocks * job->n_token_block);
}

static void add_part(product_job *job, const dg_cuda_matrix *w, float *y, size_t ldy)
{
    part_job *part = &job->part[job->n_part++];
    part->w = (const unsigned char *)w->data;
    part->scale = w->scale;
    part->n_out = w->n_out;
    part->tiles = group_tiles(w->n_out);
    part->n_tile = group_count(w->n_out) * part->tiles;
    part->n_unit = (w->n_in + 63) / 64 * 64 / (int)(dg_dtype_block(w->type) == 256 ? 256 : 64);
    part->y = y;
    part->ldy = ldy;
}

static product_job job_over(const dg_cuda_rows &x, int n_row, float alpha)
{
    product_job job = {};
    job.n_row = n_row;
    job.n_chunk = x.ld / 64;
    job.alpha = alpha;
    job.x = (const unsigned char *)x.data;
    job.x_bytes = (size_t)x.ld * (x.form == DG_CUDA_F32 ? 4 : 2);
    return job;
}

#endif
