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
    const unsigned char *w;
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
    float alpha;
    slab_part part[3];
    dg_cuda_rows x, h;
} slab_job;

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

/* This block's share of one slab of k, in rows of weights that lie together: at most those of a
 * slab. Slabs behind the last are computed as the last: their rows are not stored, and of k there
 * is nothing but zeros in x. */
template <class T>
static __device__ __forceinline__ void copy_slab(unsigned char *to, const slab_job &job,
                                                 const slab_place &at, int chunk, uint64_t *full)
{
    slab_seat seat = slab_seat_of<T>();
    int end = (seat.row + 1) * T::OWN_WEIGHTS;
    for (int first = seat.row * T::OWN_WEIGHTS, rows; first < end; first += rows) {
        bool up = job.gated && first >= T::N / 2;
        const slab_part &part = job.part[up ? 1 : at.part];
        int out = at.first_out + first - (up ? T::N / 2 : 0),
            slab = min(out / SLAB_ROWS, slab_count(part.n_out) - 1);
        rows =
            min(SLAB_ROWS - out % SLAB_ROWS, (job.gated && !up ? min(end, T::N / 2) : end) - first);
        const unsigned char *from =
            part.w +
            ((size_t)slab * (size_t)job.n_chunk + (size_t)min(chunk, job.n_chunk - 1)) *
                SLAB_BYTES +
            (size_t)(out % SLAB_ROWS * SLAB_ROW_BYTES);
        uint32_t bytes = (uint32_t)(rows * SLAB_ROW_BYTES);
        if (T::ABOVE > 1)
            dg_bulk_multicast(to + first * SLAB_ROW_BYTES, from, bytes, full,
                              slab_column_mask<T>(seat));
        else
            dg_bulk_g2s(to + first * SLAB_ROW_BYTES, from, bytes, full);
    }
}

/* This block's share of the rows of x. */
template <class T>
static __device__ __forceinline__ void copy_rows(const slab_ring<T> &ring, const dg_tensor_map &x,
                                                 const slab_place &at, int stage, int step)
{
    slab_seat seat = slab_seat_of<T>();
    int first = seat.column * T::BOX_ROWS;
    for (int i = 0; i < T::KS; i++) {
        unsigned char *to = ring.x(stage, i) + first * SLAB_ROW_BYTES;
        int k = (step * T::KS + i) * SLAB_VALUES;
        if (T::BESIDE > 1)
            dg_tensor_multicast(to, x, k, at.first_row + first, ring.full(stage),
                                slab_row_mask<T>(seat));
        else
            dg_tensor_g2s(to, x, k, at.first_row, ring.full(stage));
    }
}

template <class T>
static __device__ __forceinline__ void copy_weights(const slab_ring<T> &ring, const slab_job &job,
                                                    const slab_place &at, int stage, int step)
{
    for (int i = 0; i < T::KS; i++)
        copy_slab<T>(ring.w(stage, i), job, at, step * T::KS + i, ring.full(stage));
}

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
                                                  const dg_tensor_map &x)
{
    int tile = (int)blockIdx.x / T::CLUSTER, n_cluster = (int)gridDim.x / T::CLUSTER;
    slab_place at = slab_place_of<T>(job, tile);
    slab_steps steps = slab_steps_of<T>(job);
    int ahead = min((int)T::STAGES, steps.n);
    slab_turn turn = {0, 0};
    dg_tensor_prefetch(x);
    for (int c = 0; c < ahead; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        copy_weights(ring, job, at, c, steps.first + c);
    }
    dg_grid_wait();
    for (; tile < job.n_tile; tile += n_cluster) {
        at = slab_place_of<T>(job, tile);
        for (int c = steps.first; c < steps.first + steps.n; c++) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                copy_weights(ring, job, at, turn.stage, c);
            }
            copy_rows(ring, x, at, turn.stage, c);
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
                const float *gate = acc[m][j] + i, *up = acc[m][UP + j] + i;
                channel_pair pair = {gated(gate[0] * row_gate, up[0] * row_up) * of_h,
                                     gated(gate[1] * row_gate, up[1] * row_up) * of_h};
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
static __device__ __forceinline__ void multiply_slabs(const slab_job &job, const dg_tensor_map &x)
{
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    slab_ring_init(ring);
    if (threadIdx.x > T::CONSUMERS)
        return;
    if (threadIdx.x == T::CONSUMERS) {
        copy_tiles(ring, job, x);
    } else {
        dg_grid_wait();
        multiply_tiles<FORM>(ring, job);
    }
    slab_ring_leave<T>();
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, T::RESIDENT)
    product_slabs(slab_job job, const __grid_constant__ dg_tensor_map x)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_slabs<FORM, T>(job, x);
}

/* ---- which tile ---- */

/* All that are tried; rows x weights, then the blocks of a cluster above and beside each other. */
#define SLAB_SHAPES(of)                                                                            \
    of(DG_SLAB_256X128, 2, 2, 128, 1, 1, 1);                                                       \
    of(DG_SLAB_192X128, 3, 1, 128, 1, 1, 1);                                                       \
    of(DG_SLAB_128X128, 2, 1, 128, 1, 1, 1);                                                       \
    of(DG_SLAB_128X64, 2, 1, 64, 1, 1, 1);                                                         \
    of(DG_SLAB_64X128, 1, 1, 128, 2, 1, 1);                                                        \
    of(DG_SLAB_64X64, 1, 1, 64, 1, 1, 1);                                                          \
    of(DG_SLAB_128X256, 2, 1, 256, 1, 1, 1);                                                       \
    of(DG_SLAB_64X256, 1, 1, 256, 1, 1, 1);                                                        \
    of(DG_SLAB_128X144, 2, 1, 144, 1, 1, 1);                                                       \
    of(DG_SLAB_64X96, 1, 1, 96, 2, 1, 1);                                                          \
    of(DG_SLAB_256X128_1X2, 2, 2, 128, 1, 1, 2);                                                   \
    of(DG_SLAB_128X256_2X1, 2, 1, 256, 1, 2, 1);                                                   \
    of(DG_SLAB_128X256_1X2, 2, 1, 256, 1, 1, 2);                                                   \
    of(DG_SLAB_128X128_2X1, 2, 1, 128, 1, 2, 1);                                                   \
    of(DG_SLAB_128X128_1X2, 2, 1, 128, 1, 1, 2);                                                   \
    of(DG_SLAB_128X128_2X2, 2, 1, 128, 1, 2, 2);                                                   \
    of(DG_SLAB_128X144_2X1, 2, 1, 144, 1, 2, 1);                                                   \
    of(DG_SLAB_64X128_2X1, 1, 1, 128, 2, 2, 1);                                                    \
    of(DG_SLAB_64X128_1X2, 1, 1, 128, 2, 1, 2);                                                    \
    of(DG_SLAB_64X128_4X1, 1, 1, 128, 2, 4, 1);                                                    \
    of(DG_SLAB_64X96_2X1, 1, 1, 96, 2, 2, 1);                                                      \
    of(DG_SLAB_128X128_TWICE, 2, 1, 128, 1, 1, 1, 2);                                              \
    of(DG_SLAB_128X128_2X1_TWICE, 2, 1, 128, 1, 2, 1, 2);                                          \
    of(DG_SLAB_64X128_TWICE, 1, 1, 128, 1, 1, 1, 2);                                               \
    of(DG_SLAB_64X128_SPLIT, 1, 1, 128, 2, 1, 1, 1, 2);                                            \
    of(DG_SLAB_128X96_SPLIT, 2, 1, 96, 1, 1, 1, 1, 2);                                             \
    of(DG_SLAB_128X128_SPLIT, 2, 1, 128, 1, 1, 1, 1, 2);                                           \
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
    } tile[] = {{256, 128, 640}, {192, 128, 540}, {128, 128, 380},
                {128, 64, 310},  {64, 128, 235},  {64, 64, 260}};
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

template <dg_cuda_form FORM, class T>
static cudaError_t launch_slabs(cudaStream_t stream, slab_job job, const dg_cuda_rows &x)
{
    int device = 0, at_once = 1, blocks = 0;
    dg_tensor_map map;
    cudaError_t error = dg_tensor_map_apart(&map, x.data, job.n_row, job.n_chunk * SLAB_VALUES,
                                            dg_cuda_row_bytes(x), T::BOX_ROWS);
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
        (size_t)T::SHARED, stream, job, map);
}

template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const slab_job &job, const dg_cuda_rows &x,
                               dg_slab_tile tile)
{
#define LAUNCH(name, ...)                                                                          \
    case name:                                                                                     \
        return launch_slabs<FORM, slab_shape<__VA_ARGS__>>(stream, job, x)
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
        SLAB_SHAPES(LAUNCH);
    default:
        return cudaErrorInvalidValue;
    }
#undef LAUNCH
}

/* Of E4M3: a slab takes as long as one of 16-bit values. */
static cudaError_t launch_bytes(cudaStream_t stream, const slab_job &job, const dg_cuda_rows &x,
                                dg_slab_tile tile)
{
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
    case DG_SLAB_256X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<2, 2, 128>>(stream, job, x);
    case DG_SLAB_192X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<3, 1, 128>>(stream, job, x);
    case DG_SLAB_128X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<2, 1, 128>>(stream, job, x);
    case DG_SLAB_128X64:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<2, 1, 64>>(stream, job, x);
    case DG_SLAB_64X128:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<1, 1, 128, 2>>(stream, job, x);
    case DG_SLAB_64X64:
        return launch_slabs<DG_CUDA_E4M3, slab_shape<1, 1, 64>>(stream, job, x);
    default:
        return cudaErrorInvalidValue;
    }
}

static cudaError_t launch_job(cudaStream_t stream, const slab_job &job, const dg_cuda_rows &x,
                              dg_slab_tile tile)
{
    if (x.form == DG_CUDA_F32 || !dg_cuda_has_groups())
        return cudaErrorInvalidValue;
    return x.form == DG_CUDA_BF16  ? launch_form<DG_CUDA_BF16>(stream, job, x, tile)
           : x.form == DG_CUDA_F16 ? launch_form<DG_CUDA_F16>(stream, job, x, tile)
                                   : launch_bytes(stream, job, x, tile);
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
