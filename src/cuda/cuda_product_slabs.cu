/* Products of rows with dense weights on sm_90a: projections and the dense MLP, over slabs
 * (cuda_slabs.cuh).
 *
 * A block has a tile of y and goes to the next one where there are more tiles than multiprocessors;
 * its ring runs on meanwhile. Where blocks are in clusters the tiles of a cluster are neighbours;
 * those of them that lie outside of y are computed like the others and not stored. A gated tile has
 * gate's rows and up's rows of the same channels side by side: a thread holds both of a channel.
 * Every tile adds up an element in the same chain, 16 values of k at a time in ascending order, so
 * the choice of tile never changes a bit. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_slabs.cuh"

typedef struct slab_part {
    const float *scale;
    int n_out, first_block; /* first_block: of columns, counted over the parts */
    float *y;
    size_t ldy;
    bool paired; /* two neighbours of y can be stored at once */
} slab_part;

typedef struct slab_job {
    int n_row, n_chunk, n_part;
    int n_above, n_tile; /* clusters' tiles: above each other, all */
    bool gated;          /* parts 0 and 1 are gate and up */
    bool up_first;       /* in a gated tile */
    float alpha;
    slab_part part[3];
    dg_cuda_rows x, h;
} slab_job;

typedef struct slab_maps {
    dg_tensor_map x, w[3];
} slab_maps;

/* ---- which tile ---- */

struct slab_place {
    int part, first_out, first_row;
};

template <class T>
static __device__ __forceinline__ slab_place slab_place_of(const slab_job &job, int tile)
{
    slab_seat seat = slab_seat_of<T>();
    int block = tile / job.n_above * T::BESIDE + seat.column;
    slab_place at = {0, 0, (tile % job.n_above * T::ABOVE + seat.row) * T::TOKENS};
    while (!job.gated && at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
        at.part++;
    at.first_out = (block - job.part[at.part].first_block) * (job.gated ? T::N / 2 : T::N);
    return at;
}

/* ---- copies, by one thread ---- */

/* The stages of a tile that are this block's. */
struct slab_steps {
    int first, n;
};

template <class T> static __device__ __forceinline__ slab_steps slab_steps_of(const slab_job &job)
{
    int n = (job.n_chunk + T::KS - 1) / T::KS, half = min(slab_half(job.n_chunk) / T::KS, n);
    if (T::SPLIT == 1)
        return {0, n};
    return dg_cluster_rank() ? slab_steps{half, n - half} : slab_steps{0, half};
}

/* Weights do not depend on the kernel before: the first stages' are on their way before it has
 * ended. */
template <class T>
static __device__ __forceinline__ void copy_tiles(const slab_ring<T> &ring, const slab_job &job,
                                                  const slab_maps &maps)
{
    int tile = (int)blockIdx.x / T::CLUSTER, n_cluster = (int)gridDim.x / T::CLUSTER;
    slab_seat seat = slab_seat_of<T>();
    slab_place at = slab_place_of<T>(job, tile);
    slab_steps steps = slab_steps_of<T>(job);
    int ahead = min((int)T::STAGES, steps.n);
    slab_turn turn = {0, 0};
    dg_tensor_prefetch(maps.x);
    for (int c = 0; c < ahead; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        slab_copy_weights(ring, maps.w[at.part], seat, at.first_out / SLAB_ROWS, job.gated, c,
                          steps.first + c);
    }
    dg_grid_wait();
    for (; tile < job.n_tile; tile += n_cluster) {
        at = slab_place_of<T>(job, tile);
        int slab = at.first_out / SLAB_ROWS;
        for (int c = steps.first; c < steps.first + steps.n; c++) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                slab_copy_weights(ring, maps.w[at.part], seat, slab, job.gated, turn.stage, c);
            }
            slab_copy_rows(ring, maps.x, seat, at.first_row, turn.stage, c);
            slab_next<T>(turn);
        }
    }
}

/* ---- results ---- */

/* What a row's sums are multiplied with: of E4M3 its factor. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ float factor_of_row(const slab_job &job, int row)
{
    if (FORM != DG_CUDA_E4M3 || row >= job.n_row)
        return 1;
    return *(const float *)((const unsigned char *)job.x.data +
                            (size_t)row * dg_cuda_row_bytes(job.x) + job.x.ld);
}

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void store_rows(const slab_job &job, const slab_place &at,
                                                  const float acc[T::MT][T::N / 8][4])
{
    const slab_part &part = job.part[at.part];
    float factor = job.alpha * factor_of(part.scale, 0);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            if (!slab_stores<T>(i))
                continue;
            int row = at.first_row + slab_row<T>(m, i);
            float *y = part.y + (size_t)row * part.ldy, of_row = factor_of_row<FORM>(job, row);
#pragma unroll
            for (int j = 0; j < T::N / 8; j++) {
                int out = at.first_out + slab_column(j);
                float low = acc[m][j][i] * (factor * of_row),
                      high = acc[m][j][i + 1] * (factor * of_row);
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

template <dg_cuda_form FORM, class T>
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
            if (!slab_stores<T>(i))
                continue;
            int row = at.first_row + slab_row<T>(m, i);
            size_t first = (size_t)row * (size_t)job.h.ld;
            float of_row = factor_of_row<FORM>(job, row), row_gate = of_gate * of_row,
                  row_up = of_up * of_row;
#pragma unroll
            for (int j = 0; j < UP; j++) {
                int channel = at.first_out + slab_column(j);
                const float *first_half = acc[m][j] + i, *other = acc[m][UP + j] + i;
                float gate[2], up[2];
#pragma unroll
                for (int p = 0; p < 2; p++) {
                    gate[p] = (job.up_first ? other[p] : first_half[p]) * row_gate;
                    up[p] = (job.up_first ? first_half[p] : other[p]) * row_up;
                }
                channel_pair pair = {gated(gate[0], up[0]) * of_h, gated(gate[1], up[1]) * of_h};
                if (row < job.n_row && channel < job.h.ld)
                    store_pair(job.h.data, job.h.form, first + (size_t)channel, pair);
            }
        }
}

/* ---- the kernel ---- */

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void multiply_tiles(const slab_ring<T> &ring, const slab_job &job)
{
    int n_cluster = (int)gridDim.x / T::CLUSTER, n_step = slab_steps_of<T>(job).n, phase = 0;
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x / T::CLUSTER; tile < job.n_tile; tile += n_cluster) {
        slab_place at = slab_place_of<T>(job, tile);
        float acc[T::MT][T::N / 8][4] = {};
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, n_step);
        if (tile + n_cluster >= job.n_tile)
            dg_grid_launch_next();
        if constexpr (T::SPLIT > 1)
            slab_join(acc, ring, phase);
        if (job.gated)
            store_gated<FORM, T>(job, at, acc);
        else
            store_rows<FORM, T>(job, at, acc);
    }
}

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void multiply_slabs(const slab_job &job, const slab_maps &maps)
{
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    slab_ring_init(ring);
    if (threadIdx.x > T::CONSUMERS)
        return;
    if (threadIdx.x == T::CONSUMERS) {
        copy_tiles(ring, job, maps);
    } else {
        dg_grid_wait();
        multiply_tiles<FORM>(ring, job);
    }
    slab_ring_leave<T>();
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, T::RESIDENT)
    product_slabs(slab_job job, const __grid_constant__ slab_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_slabs<FORM, T>(job, maps);
}

/* ---- which tile ---- */

/* All that are tried; rows x weights, then the blocks of a cluster above and beside each other. */
#define SLAB_SHAPES(of)                                                                            \
    of(DG_SLAB_256X128, 2, 2, 128);                                                                \
    of(DG_SLAB_192X128, 3, 1, 128);                                                                \
    of(DG_SLAB_128X128, 2, 1, 128);                                                                \
    of(DG_SLAB_64X128, 1, 1, 128, 2);                                                              \
    of(DG_SLAB_128X256, 2, 1, 256);                                                                \
    of(DG_SLAB_128X192, 2, 1, 192);                                                                \
    of(DG_SLAB_64X192, 1, 1, 192);                                                                 \
    of(DG_SLAB_64X256, 1, 1, 256);                                                                 \
    of(DG_SLAB_256X128_1X2, 2, 2, 128, 1, 1, 2);                                                   \
    of(DG_SLAB_128X256_2X1, 2, 1, 256, 1, 2, 1);                                                   \
    of(DG_SLAB_128X128_2X1, 2, 1, 128, 1, 2, 1);                                                   \
    of(DG_SLAB_128X128_1X2, 2, 1, 128, 1, 1, 2);                                                   \
    of(DG_SLAB_64X128_2X1, 1, 1, 128, 2, 2, 1);                                                    \
    of(DG_SLAB_64X128_4X1, 1, 1, 128, 4, 4, 1);                                                    \
    of(DG_SLAB_128X128_TWICE, 2, 1, 128, 1, 1, 1, 2);                                              \
    of(DG_SLAB_64X128_TWICE, 1, 1, 128, 1, 1, 1, 2);                                               \
    of(DG_SLAB_64X128_SPLIT, 1, 1, 128, 2, 1, 1, 1, 2);                                            \
    of(DG_SLAB_64X192_SPLIT, 1, 1, 192, 1, 1, 1, 1, 2);                                            \
    of(DG_SLAB_128X128_SPLIT, 2, 1, 128, 1, 1, 1, 1, 2);                                           \
    of(DG_SLAB_128X192_SPLIT, 2, 1, 192, 1, 1, 1, 1, 2);                                           \
    of(DG_SLAB_64X256_SPLIT, 1, 1, 256, 1, 1, 1, 1, 2);                                            \
    of(DG_SLAB_128X256_SPLIT, 2, 1, 256, 1, 1, 1, 1, 2);                                           \
    of(DG_SLAB_256X128_SPLIT, 2, 2, 128, 1, 1, 1, 1, 2)

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
    } tile[] = {{256, 128, 640}, {192, 128, 540}, {128, 128, 380}, {64, 128, 235}};
    const int tile_ns = 3500; /* to begin and to end one */
    int device = 0, n_sm = 1, best = DG_SLAB_256X128;
    double least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int i = 0; i < (int)(sizeof tile / sizeof *tile); i++) {
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

/* Gate and up are one map, whichever is first in memory. */
template <class T>
static cudaError_t map_job(slab_maps *maps, slab_job *job, const void *const w[3],
                           const dg_cuda_rows &x)
{
    cudaError_t error =
        slab_map_rows<T>(&maps->x, x.data, job->n_row, job->n_chunk, dg_cuda_row_bytes(x));
    if (job->gated && !error) {
        uintptr_t gate = (uintptr_t)w[0], up = (uintptr_t)w[1];
        job->up_first = up < gate;
        return slab_map_weights<T>(&maps->w[0], w[job->up_first], job->part[0].n_out, job->n_chunk,
                                   job->up_first ? gate - up : up - gate);
    }
    for (int p = 0; p < job->n_part && !error; p++)
        error = slab_map_weights<T>(&maps->w[p], w[p], job->part[p].n_out, job->n_chunk, 0);
    return error;
}

template <dg_cuda_form FORM, class T>
static cudaError_t launch_slabs(cudaStream_t stream, slab_job job, const void *const w[3],
                                const dg_cuda_rows &x)
{
    int device = 0, at_once = 1, blocks = 0;
    slab_maps maps = {};
    if (job.gated && T::N / 2 % SLAB_ROWS)
        return cudaErrorInvalidValue;
    cudaError_t error = map_job<T>(&maps, &job, w, x);
    if (error)
        return error;
    cudaGetDevice(&device);
    if (T::CLUSTER > 1)
        at_once = dg_clusters_at_once(T::CLUSTER, product_slabs<FORM, T>, T::THREADS, T::SHARED);
    else
        cudaDeviceGetAttribute(&at_once, cudaDevAttrMultiProcessorCount, device);
    if (T::CLUSTER == 1)
        at_once *= T::RESIDENT;
    if (at_once < 1)
        return cudaErrorInvalidConfiguration;
    for (int p = 0; p < job.n_part && !job.gated; p++) {
        job.part[p].first_block = blocks;
        blocks += (job.part[p].n_out + T::N - 1) / T::N;
    }
    job.n_above = (job.n_row + T::ABOVE * T::TOKENS - 1) / (T::ABOVE * T::TOKENS);
    job.n_tile = (column_blocks(job, T::N) + T::BESIDE - 1) / T::BESIDE * job.n_above;
    return DG_LAUNCH_CLUSTERS(
        T::CLUSTER, (product_slabs<FORM, T>),
        dim3((unsigned)((job.n_tile < at_once ? job.n_tile : at_once) * T::CLUSTER)), T::THREADS,
        (size_t)T::SHARED, stream, job, maps);
}

template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const slab_job &job, const void *const w[3],
                               const dg_cuda_rows &x, dg_slab_tile tile)
{
#define LAUNCH(name, ...)                                                                          \
    case name:                                                                                     \
        return launch_slabs<FORM, slab_shape<__VA_ARGS__>>(stream, job, w, x)
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
        SLAB_SHAPES(LAUNCH);
    default:
        return cudaErrorInvalidValue;
    }
#undef LAUNCH
}

/* Of E4M3: a slab takes as long as one of 16-bit values. */
static cudaError_t launch_bytes(cudaStream_t stream, const slab_job &job, const void *const w[3],
                                const dg_cuda_rows &x, dg_slab_tile tile)
{
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
    case DG_SLAB_256X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<2, 2, 128>>(stream, job, w, x);
    case DG_SLAB_192X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<3, 1, 128>>(stream, job, w, x);
    case DG_SLAB_128X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<2, 1, 128>>(stream, job, w, x);
    case DG_SLAB_64X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<1, 1, 128, 2>>(stream, job, w, x);
    default:
        return cudaErrorInvalidValue;
    }
}

static cudaError_t launch_job(cudaStream_t stream, const slab_job &job, const void *const w[3],
                              const dg_cuda_rows &x, dg_slab_tile tile)
{
    if (x.form == DG_CUDA_F32 || !dg_cuda_has_groups())
        return cudaErrorInvalidValue;
    return x.form == DG_CUDA_BF16  ? launch_form<DG_CUDA_BF16>(stream, job, w, x, tile)
           : x.form == DG_CUDA_F16 ? launch_form<DG_CUDA_F16>(stream, job, w, x, tile)
                                   : launch_bytes(stream, job, w, x, tile);
}

static slab_job job_over(const dg_cuda_rows &x, int n_row, float alpha)
{
    slab_job job = {};
    job.n_row = n_row;
    job.n_chunk = x.ld / (x.form == DG_CUDA_E4M3 ? 2 * SLAB_VALUES : SLAB_VALUES);
    job.x = x;
    job.alpha = alpha;
    return job;
}

static void add_part(slab_job *job, const dg_cuda_matrix *w, float *y, size_t ldy)
{
    slab_part *part = &job->part[job->n_part++];
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
    const void *w[3] = {NULL, NULL, NULL};
    for (int p = 0; p < a->n_part; p++) {
        add_part(&job, a->part[p].w, a->part[p].y, a->part[p].ldy);
        w[p] = a->part[p].w->data;
    }
    return launch_job(stream, job, w, a->x, tile);
}

extern "C" cudaError_t dg_cuda_gated_slabs(cudaStream_t stream, const dg_cuda_gated_args *a,
                                           dg_slab_tile tile)
{
    slab_job job = job_over(a->x, a->n_row, 1);
    const void *w[3] = {a->gate->data, a->up->data, NULL};
    job.gated = true;
    job.h = a->h;
    add_part(&job, a->gate, NULL, 0);
    add_part(&job, a->up, NULL, 0);
    return launch_job(stream, job, w, a->x, tile);
}
