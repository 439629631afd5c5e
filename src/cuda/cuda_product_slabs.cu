/* Products of rows with dense weights on sm_90a: projections and the dense MLP, over slabs
 * (cuda_slabs.cuh).
 *
 * A block has a tile of y and goes to the next one where there are more tiles than multiprocessors;
 * its ring runs on meanwhile. A gated tile has gate's rows and up's rows of the same channels side
 * by side: a thread holds both of a channel. Every tile adds up an element in the same chain, 16
 * values of k at a time in ascending order, so the choice of tile never changes a bit. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_slabs.cuh"

typedef struct slab_part {
    const unsigned char *w;
    const float *scale;
    int n_out, first_block; /* first_block: of columns, counted over the parts */
    float *y;
    size_t ldy;
    bool paired; /* two neighbours of y can be stored at once */
} slab_part;

typedef struct slab_job {
    int n_row, n_chunk, n_token_block, n_tile, n_part;
    bool gated; /* parts 0 and 1 are gate and up */
    float alpha;
    slab_part part[3];
    dg_cuda_rows h;
} slab_job;

/* ---- which tile ---- */

struct slab_place {
    int part, first_out, first_row;
};

template <class T>
static __device__ __forceinline__ slab_place slab_place_of(const slab_job &job, int tile)
{
    int block = tile / job.n_token_block;
    slab_place at = {0, 0, tile % job.n_token_block * T::TOKENS};
    while (!job.gated && at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
        at.part++;
    at.first_out = (block - job.part[at.part].first_block) * (job.gated ? T::N / 2 : T::N);
    return at;
}

/* ---- copies, by one thread ---- */

/* One slab of k, in rows of weights that lie together: at most those of a slab. Slabs behind the
 * last are computed as the last: their rows are not stored, and of k there is nothing but zeros in
 * x. */
template <class T>
static __device__ __forceinline__ void copy_slab(unsigned char *to, const slab_job &job,
                                                 const slab_place &at, int chunk, uint64_t *full)
{
    int rows = job.gated && T::N / 2 % SLAB_ROWS ? SLAB_ROWS / 2 : SLAB_ROWS;
    for (int first = 0; first < T::N; first += rows) {
        bool up = job.gated && first >= T::N / 2;
        const slab_part &part = job.part[up ? 1 : at.part];
        int out = at.first_out + first - (up ? T::N / 2 : 0),
            slab = min(out / SLAB_ROWS, slab_count(part.n_out) - 1);
        const unsigned char *from =
            part.w +
            ((size_t)slab * (size_t)job.n_chunk + (size_t)min(chunk, job.n_chunk - 1)) *
                SLAB_BYTES +
            (size_t)(out % SLAB_ROWS * SLAB_ROW_BYTES);
        dg_bulk_g2s(to + first * SLAB_ROW_BYTES, from, (uint32_t)(rows * SLAB_ROW_BYTES), full);
    }
}

template <class T>
static __device__ __forceinline__ void copy_weights(const slab_ring<T> &ring, const slab_job &job,
                                                    const slab_place &at, int stage, int step)
{
    for (int i = 0; i < T::KS; i++)
        copy_slab<T>(ring.w(stage, i), job, at, step * T::KS + i, ring.full(stage));
}

/* Weights do not depend on the kernel before: the first stages' are on their way before it has
 * ended. */
template <class T>
static __device__ __forceinline__ void copy_tiles(const slab_ring<T> &ring, const slab_job &job,
                                                  const dg_tensor_map &x)
{
    slab_place at = slab_place_of<T>(job, (int)blockIdx.x);
    int n_step = (job.n_chunk + T::KS - 1) / T::KS, ahead = min((int)T::STAGES, n_step);
    slab_turn turn = {0, 0};
    dg_tensor_prefetch(x);
    for (int c = 0; c < ahead; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        copy_weights(ring, job, at, c, c);
    }
    dg_grid_wait();
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        at = slab_place_of<T>(job, tile);
        for (int c = 0; c < n_step; c++) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                copy_weights(ring, job, at, turn.stage, c);
            }
            for (int i = 0; i < T::KS; i++)
                dg_tensor_g2s(ring.x(turn.stage, i), x, (c * T::KS + i) * SLAB_VALUES, at.first_row,
                              ring.full(turn.stage));
            slab_next<T>(turn);
        }
    }
}

/* ---- results ---- */

template <class T>
static __device__ __forceinline__ void store_rows(const slab_job &job, const slab_place &at,
                                                  const float acc[T::MT][T::N / 8][4])
{
    const slab_part &part = job.part[at.part];
    float factor = job.alpha * factor_of(part.scale, 0);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            int row = at.first_row + slab_row<T>(m, i);
            float *y = part.y + (size_t)row * part.ldy;
#pragma unroll
            for (int j = 0; j < T::N / 8; j++) {
                int out = at.first_out + slab_column(j);
                float low = acc[m][j][i] * factor, high = acc[m][j][i + 1] * factor;
                if (row >= job.n_row || out >= part.n_out)
                    continue;
                if (part.paired && out + 1 < part.n_out) {
                    *(float2 *)(y + out) = make_float2(low, high);
                } else {
                    y[out] = low;
                    if (out + 1 < part.n_out)
                        y[out + 1] = high;
                }
            }
        }
}

template <class T>
static __device__ __forceinline__ void store_gated(const slab_job &job, const slab_place &at,
                                                   const float acc[T::MT][T::N / 8][4])
{
    constexpr int UP = T::N / 16;
    float of_gate = factor_of(job.part[0].scale, 0), of_up = factor_of(job.part[1].scale, 0),
          of_h = gated_factor(job.h.form);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            int row = at.first_row + slab_row<T>(m, i);
            size_t first = (size_t)row * (size_t)job.h.ld;
#pragma unroll
            for (int j = 0; j < UP; j++) {
                int channel = at.first_out + slab_column(j);
                const float *gate = acc[m][j] + i, *up = acc[m][UP + j] + i;
                channel_pair pair = {gated(gate[0] * of_gate, up[0] * of_up) * of_h,
                                     gated(gate[1] * of_gate, up[1] * of_up) * of_h};
                if (row < job.n_row && channel < job.h.ld)
                    store_pair(job.h.data, job.h.form, first + (size_t)channel, pair);
            }
        }
}

/* ---- the kernel ---- */

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void multiply_slabs(const slab_job &job, const dg_tensor_map &x)
{
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    slab_ring_init(ring);
    if (threadIdx.x >= T::CONSUMERS) {
        if (threadIdx.x == T::CONSUMERS)
            copy_tiles(ring, job, x);
        return;
    }
    dg_grid_wait();
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        slab_place at = slab_place_of<T>(job, tile);
        float acc[T::MT][T::N / 8][4] = {};
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, (job.n_chunk + T::KS - 1) / T::KS);
        if (tile + (int)gridDim.x >= job.n_tile)
            dg_grid_launch_next();
        if (job.gated)
            store_gated<T>(job, at, acc);
        else
            store_rows<T>(job, at, acc);
    }
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, 1)
    product_slabs(slab_job job, const __grid_constant__ dg_tensor_map x)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_slabs<FORM, T>(job, x);
}

/* ---- which tile ---- */

typedef slab_shape<2, 2, 128> slab_256x128;
typedef slab_shape<3, 1, 128> slab_192x128;
typedef slab_shape<2, 1, 128> slab_128x128;
typedef slab_shape<2, 1, 64> slab_128x64;
typedef slab_shape<1, 1, 128, 2> slab_64x128;
typedef slab_shape<1, 1, 64> slab_64x64;

static int column_blocks(const slab_job &job, int columns)
{
    int blocks = 0;
    if (job.gated) /* what lies behind h's channels is written, too */
        return (job.h.ld + columns / 2 - 1) / (columns / 2);
    for (int p = 0; p < job.n_part; p++)
        blocks += (job.part[p].n_out + columns - 1) / columns;
    return blocks;
}

/* The tile by which the fullest multiprocessor has the least to do. `ns` is what 64 values of k of
 * a tile take it on an H200, measured: two thirds are the arithmetic's share in the large tiles and
 * half in the small ones, the rest is what goes in and out of shared memory. With tiles
 * of 192 rows 1,024 rows by 2,816 columns keep all of its multiprocessors busy once. */
static dg_slab_tile choose_tile(const slab_job &job)
{
    static const struct {
        int tokens, columns, ns;
    } tile[DG_SLAB_TILES] = {{256, 128, 640}, {192, 128, 540}, {128, 128, 380},
                             {128, 64, 310},  {64, 128, 235},  {64, 64, 260}};
    const int tile_ns = 3500; /* to begin and to end one */
    int device = 0, n_sm = 1, best = DG_SLAB_256X128;
    double least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int i = 0; i < DG_SLAB_TILES; i++) {
        int blocks = column_blocks(job, tile[i].columns) *
                     ((job.n_row + tile[i].tokens - 1) / tile[i].tokens),
            rounds = (blocks + n_sm - 1) / n_sm;
        double cost = (double)rounds * ((double)tile[i].ns * job.n_chunk + tile_ns);
        if (i == 0 || cost < least) {
            least = cost;
            best = i;
        }
    }
    return (dg_slab_tile)best;
}

/* ---- launches ---- */

template <dg_cuda_form FORM, class T>
static cudaError_t launch_slabs(cudaStream_t stream, slab_job job, const dg_cuda_rows &x)
{
    int device = 0, n_sm = 1, blocks = 0;
    dg_tensor_map map;
    cudaError_t error = dg_tensor_map_init(&map, x.data, job.n_row, x.ld, T::TOKENS);
    if (error)
        return error;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int p = 0; p < job.n_part && !job.gated; p++) {
        job.part[p].first_block = blocks;
        blocks += (job.part[p].n_out + T::N - 1) / T::N;
    }
    job.n_token_block = (job.n_row + T::TOKENS - 1) / T::TOKENS;
    job.n_tile = column_blocks(job, T::N) * job.n_token_block;
    return DG_LAUNCH((product_slabs<FORM, T>),
                     dim3((unsigned)(job.n_tile < n_sm ? job.n_tile : n_sm)), T::THREADS,
                     (size_t)T::SHARED, stream, job, map);
}

template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const slab_job &job, const dg_cuda_rows &x,
                               dg_slab_tile tile)
{
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
    case DG_SLAB_256X128:
        return launch_slabs<FORM, slab_256x128>(stream, job, x);
    case DG_SLAB_192X128:
        return launch_slabs<FORM, slab_192x128>(stream, job, x);
    case DG_SLAB_128X128:
        return launch_slabs<FORM, slab_128x128>(stream, job, x);
    case DG_SLAB_128X64:
        return launch_slabs<FORM, slab_128x64>(stream, job, x);
    case DG_SLAB_64X128:
        return launch_slabs<FORM, slab_64x128>(stream, job, x);
    default:
        return launch_slabs<FORM, slab_64x64>(stream, job, x);
    }
}

static cudaError_t launch_job(cudaStream_t stream, const slab_job &job, const dg_cuda_rows &x,
                              dg_slab_tile tile)
{
    if (x.form == DG_CUDA_F32 || !dg_cuda_has_groups())
        return cudaErrorInvalidValue;
    return x.form == DG_CUDA_BF16 ? launch_form<DG_CUDA_BF16>(stream, job, x, tile)
                                  : launch_form<DG_CUDA_F16>(stream, job, x, tile);
}

static slab_job job_over(const dg_cuda_rows &x, int n_row, float alpha)
{
    slab_job job = {};
    job.n_row = n_row;
    job.n_chunk = x.ld / SLAB_VALUES;
    job.alpha = alpha;
    return job;
}

static void add_part(slab_job *job, const dg_cuda_matrix *w, float *y, size_t ldy)
{
    slab_part *part = &job->part[job->n_part++];
    part->w = (const unsigned char *)w->data;
    part->scale = w->scale;
    part->n_out = w->n_out;
    part->y = y;
    part->ldy = ldy;
    part->paired = ldy % 2 == 0 && (uintptr_t)y % sizeof(float2) == 0;
}

extern "C" cudaError_t dg_cuda_product_slabs(cudaStream_t stream, const dg_cuda_product_args *a,
                                             dg_slab_tile tile)
{
    slab_job job = job_over(a->x, a->n_row, a->alpha);
    for (int p = 0; p < a->n_part; p++)
        add_part(&job, a->part[p].w, a->part[p].y, a->part[p].ldy);
    return launch_job(stream, job, a->x, tile);
}

extern "C" cudaError_t dg_cuda_gated_slabs(cudaStream_t stream, const dg_cuda_gated_args *a,
                                           dg_slab_tile tile)
{
    slab_job job = job_over(a->x, a->n_row, 1);
    job.gated = true;
    job.h = a->h;
    add_part(&job, a->gate, NULL, 0);
    add_part(&job, a->up, NULL, 0);
    return launch_job(stream, job, a->x, tile);
}
