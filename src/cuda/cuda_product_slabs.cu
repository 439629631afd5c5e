/* Products of rows with dense weights on sm_90a: projections and the dense MLP, over slabs
 * (cuda_slabs.cuh).
 *
 * A block has a tile of y and goes to the next one where there are more tiles than multiprocessors;
 * its ring runs on meanwhile. A gated tile has gate's rows and up's rows of the same channels side
 * by side, whichever is first in memory: a thread holds both of a channel. Every tile adds up an
 * element in the same chain, 16 values of k at a time in ascending order, so the choice of tile
 * never changes a bit. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_slabs.cuh"

typedef struct slab_part {
    const float *scale;
    int n_out, first_block; /* first_block: of columns, counted over the parts */
    float *y;
    size_t ldy;
    bool paired, fours; /* two, four neighbours of y can be stored at once */
} slab_part;

typedef struct slab_job {
    int n_row, n_chunk, n_token_block, n_tile, n_part;
    bool gated;    /* parts 0 and 1 are gate and up */
    bool up_first; /* in a gated tile */
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
    int block = tile / job.n_token_block;
    slab_place at = {0, 0, tile % job.n_token_block * T::TOKENS};
    while (!job.gated && at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
        at.part++;
    block -= job.part[at.part].first_block;
    at.first_out = job.gated
                       ? block * (T::N / 2)
                       : block / T::SHARES * T::SLABS * SLAB_ROWS + block % T::SHARES * T::SHARE;
    return at;
}

/* ---- copies, by one thread ---- */

/* Weights do not depend on the kernel before: the first stages' are on their way before it has
 * ended. Where all tiles are under way at once, those that share weights read them together and
 * nobody does again: what else the cache holds is worth more. */
template <class T>
static __device__ __forceinline__ void copy_tiles(const slab_ring<T> &ring, const slab_job &job,
                                                  const slab_maps &maps)
{
    slab_place at = slab_place_of<T>(job, (int)blockIdx.x);
    int n_step = (job.n_chunk + T::KS - 1) / T::KS, ahead = min((int)T::STAGES, n_step);
    uint64_t policy = dg_cache_policy(job.n_tile <= (int)gridDim.x);
    slab_turn turn = {0, 0};
    for (int c = 0; c < ahead; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        slab_copy_weights(ring, maps.w[at.part], at.first_out, c, c, policy);
    }
    dg_grid_wait();
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        at = slab_place_of<T>(job, tile);
        for (int c = 0; c < n_step; c++) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                slab_copy_weights(ring, maps.w[at.part], at.first_out, turn.stage, c, policy);
            }
            slab_copy_rows(ring, maps.x, at.first_row, turn.stage, c);
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

static __device__ __forceinline__ void store_two(const slab_part &part, float *y, int out, float2 v)
{
    if (part.paired && out + 1 < part.n_out) {
        *(float2 *)(y + out) = v;
    } else {
        if (out < part.n_out)
            y[out] = v.x;
        if (out + 1 < part.n_out)
            y[out + 1] = v.y;
    }
}

/* By all lanes: one row's results i of two tiles of eight columns, which begin at these. */
static __device__ __forceinline__ void store_fours(const slab_part &part, float *y, bool there,
                                                   int out, int next_out, float2 v, float2 next)
{
    if (part.fours) {
        float4 four = slab_four(v, next);
        int first = (threadIdx.x % 2 ? next_out : out) + slab_four_column();
        if (there && first < part.n_out)
            *(float4 *)(y + first) = four;
    } else if (there) {
        store_two(part, y, out + slab_column(0), v);
        store_two(part, y, next_out + slab_column(0), next);
    }
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
            int row = at.first_row + slab_row<T>(m, i);
            float *y = part.y + (size_t)row * part.ldy,
                  of_all = factor * factor_of_row<FORM>(job, row);
#pragma unroll
            for (int j = 0; j < T::N / 8; j += 2)
                store_fours(part, y, row < job.n_row, at.first_out + slab_out<T>(j),
                            at.first_out + slab_out<T>(j + 1),
                            make_float2(acc[m][j][i] * of_all, acc[m][j][i + 1] * of_all),
                            make_float2(acc[m][j + 1][i] * of_all, acc[m][j + 1][i + 1] * of_all));
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
static __device__ __forceinline__ void multiply_slabs(const slab_job &job, const slab_maps &maps)
{
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    if (threadIdx.x == T::CONSUMERS) {
        dg_tensor_prefetch(maps.w[slab_place_of<T>(job, (int)blockIdx.x).part]);
        dg_tensor_prefetch(maps.x);
    }
    slab_ring_init(ring);
    if (threadIdx.x >= T::CONSUMERS) {
        if (threadIdx.x == T::CONSUMERS)
            copy_tiles(ring, job, maps);
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
            store_gated<FORM, T>(job, at, acc);
        else
            store_rows<FORM, T>(job, at, acc);
    }
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, 1)
    product_slabs(slab_job job, const __grid_constant__ slab_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_slabs<FORM, T>(job, maps);
}

/* ---- which tile ---- */

typedef slab_shape<2, 2, 128> slab_256x128;
typedef slab_shape<3, 1, 128> slab_192x128;
typedef slab_shape<2, 1, 192> slab_128x192;
typedef slab_shape<2, 1, 128> slab_128x128;
typedef slab_shape<1, 1, 128, 2> slab_64x128;
typedef slab_shape<1, 1, 96, 2, 32> slab_64x96;

/* Tiles of so many columns, `share` rows each of some slabs, over n_out. */
static int part_blocks(int n_out, int columns, int share)
{
    int slabs = columns / share;
    return (slab_count(n_out) + slabs - 1) / slabs * (SLAB_ROWS / share);
}

static int column_blocks(const slab_job &job, int columns, int share)
{
    int blocks = 0;
    if (job.gated) /* what lies behind h's channels is written, too */
        return (job.h.ld + columns / 2 - 1) / (columns / 2);
    for (int p = 0; p < job.n_part; p++)
        blocks += part_blocks(job.part[p].n_out, columns, share);
    return blocks;
}

/* The tile by which the fullest multiprocessor has the least to do. `ns` is what 64 values of k of
 * a tile take it on an H200, measured. With tiles of 192 rows 1,024 rows by 2,816 columns keep all
 * of its multiprocessors busy once; with 192 columns 256 rows by 9,216 do. A gated tile has whole
 * slabs of gate and of up. */
static dg_slab_tile choose_tile(const slab_job &job)
{
    static const struct {
        int tokens, columns, share, ns;
    } tile[DG_SLAB_TILES] = {{256, 128, 64, 700}, {192, 128, 64, 525}, {128, 192, 64, 525},
                             {128, 128, 64, 355}, {64, 128, 64, 225},  {64, 96, 32, 190}};
    const int tile_ns = 3500; /* to begin and to end one */
    int device = 0, n_sm = 1, best = DG_SLAB_256X128;
    double least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int i = 0; i < DG_SLAB_TILES; i++) {
        int blocks = column_blocks(job, tile[i].columns, tile[i].share) *
                     ((job.n_row + tile[i].tokens - 1) / tile[i].tokens),
            rounds = (blocks + n_sm - 1) / n_sm;
        double cost = (double)rounds * ((double)tile[i].ns * job.n_chunk + tile_ns);
        if (job.gated && tile[i].columns / 2 % SLAB_ROWS)
            continue;
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
    int device = 0, n_sm = 1, blocks = 0;
    slab_maps maps = {};
    if (job.gated && T::N / 2 % SLAB_ROWS)
        return cudaErrorInvalidValue;
    cudaError_t error = map_job<T>(&maps, &job, w, x);
    if (error)
        return error;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int p = 0; p < job.n_part && !job.gated; p++) {
        job.part[p].first_block = blocks;
        blocks += part_blocks(job.part[p].n_out, T::N, T::SHARE);
    }
    job.n_token_block = (job.n_row + T::TOKENS - 1) / T::TOKENS;
    job.n_tile = column_blocks(job, T::N, T::SHARE) * job.n_token_block;
    return DG_LAUNCH((product_slabs<FORM, T>),
                     dim3((unsigned)(job.n_tile < n_sm ? job.n_tile : n_sm)), T::THREADS,
                     (size_t)T::SHARED, stream, job, maps);
}

template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const slab_job &job, const void *const w[3],
                               const dg_cuda_rows &x, dg_slab_tile tile)
{
    switch (tile == DG_SLAB_BEST ? choose_tile(job) : tile) {
    case DG_SLAB_256X128:
        return launch_slabs<FORM, slab_256x128>(stream, job, w, x);
    case DG_SLAB_192X128:
        return launch_slabs<FORM, slab_192x128>(stream, job, w, x);
    case DG_SLAB_128X192:
        return launch_slabs<FORM, slab_128x192>(stream, job, w, x);
    case DG_SLAB_128X128:
        return launch_slabs<FORM, slab_128x128>(stream, job, w, x);
    case DG_SLAB_64X128:
        return launch_slabs<FORM, slab_64x128>(stream, job, w, x);
    default:
        return launch_slabs<FORM, slab_64x96>(stream, job, w, x);
    }
}

static cudaError_t launch_job(cudaStream_t stream, const slab_job &job, const void *const w[3],
                              const dg_cuda_rows &x, dg_slab_tile tile)
{
    if (x.form == DG_CUDA_F32 || !dg_cuda_has_groups())
        return cudaErrorInvalidValue;
    return x.form == DG_CUDA_BF16  ? launch_form<DG_CUDA_BF16>(stream, job, w, x, tile)
           : x.form == DG_CUDA_F16 ? launch_form<DG_CUDA_F16>(stream, job, w, x, tile)
                                   : launch_form<DG_CUDA_E4M3>(stream, job, w, x, tile);
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
    part->fours = ldy % 4 == 0 && w->n_out % 4 == 0 && (uintptr_t)y % sizeof(float4) == 0;
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
