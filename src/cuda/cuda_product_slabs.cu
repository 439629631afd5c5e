/* Products of rows with dense weights on sm_90a: projections and the dense MLP, over slabs
 * (cuda_slabs.cuh).
 *
 * A block has a tile of y and goes to the next one where there are more tiles than multiprocessors;
 * its ring runs on meanwhile. A gated tile has gate's rows and up's rows of the same channels side
 * by side, whichever is first in memory: a thread holds both of a channel. Every tile adds up an
 * element in the same chain, 16 values of k at a time in ascending order, so the choice of tile
 * never changes a bit. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_slab_exit.cuh"

typedef struct slab_part {
    const float *scale;
    int n_out, first_block; /* first_block: of columns, counted over the parts */
    float *y;
    size_t ldy;
    bool fours; /* four neighbours of y can be stored at once */
} slab_part;

typedef struct slab_job {
    int n_row, n_chunk, n_token_block, n_tile, n_part;
    int n_step;         /* stages of a tile */
    int n_early;        /* of them, whose weights are asked for before there are rows */
    uint32_t per_block; /* 2^31 / n_token_block, rounded up: a product instead of a division */
    bool gated;         /* parts 0 and 1 are gate and up */
    bool up_first;      /* in a gated tile */
    float alpha;
    slab_part part[3];
    dg_cuda_rows x, h;
    dg_cuda_ahead ahead;
    uint32_t ahead_share; /* for each stage of every block's first tile */
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
    int block = (int)((uint64_t)tile * job.per_block >> 31);
    slab_place at = {0, 0, (tile - block * job.n_token_block) * T::TOKENS};
    while (!job.gated && at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
        at.part++;
    block -= job.part[at.part].first_block;
    at.first_out = job.gated
                       ? block * (T::N / 2)
                       : block / T::SHARES * T::SLABS * SLAB_ROWS + block % T::SHARES * T::SHARE;
    return at;
}

/* ---- copies, by one thread ---- */

/* Where all tiles are under way at once, those that share weights read them together and nobody
 * does again: what else the cache holds is worth more. */
static __device__ __forceinline__ uint64_t weights_policy(const slab_job &job)
{
    return dg_cache_policy(job.n_tile <= (int)gridDim.x);
}

/* Weights do not depend on the kernel before: the first stages' are on their way before it has
 * ended. */
template <class T>
static __device__ __forceinline__ void copy_early(const slab_ring<T> &ring, const slab_job &job,
                                                  const slab_maps &maps, const slab_place &at)
{
    uint64_t policy = weights_policy(job);
    for (int c = 0; c < job.n_early; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        slab_copy_weights(ring, maps.w[at.part], at.first_out, c, c, policy);
    }
}

/* The share of stage c: a little with each, so that no copy waits behind all of it. */
[[maybe_unused]] static __device__ __forceinline__ void ask_ahead(const slab_job &job, int c)
{
    size_t share = job.ahead_share, at = share * ((size_t)c * gridDim.x + blockIdx.x);
    if (at < job.ahead.bytes)
        dg_bulk_ahead((const unsigned char *)job.ahead.data + at,
                      (uint32_t)min(share, job.ahead.bytes - at));
}

template <class T>
static __device__ __forceinline__ void copy_tiles(const slab_ring<T> &ring, const slab_job &job,
                                                  const slab_maps &maps)
{
    int ahead = job.n_early;
    uint64_t policy = weights_policy(job);
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        slab_place at = slab_place_of<T>(job, tile);
        for (int c = 0; c < job.n_step; c++) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                slab_copy_weights(ring, maps.w[at.part], at.first_out, turn.stage, c, policy);
            }
            slab_copy_rows(ring, maps.x, at.first_row, turn.stage, c);
            if (tile == (int)blockIdx.x)
                ask_ahead(job, c);
            slab_next<T>(turn);
        }
    }
}

/* ---- results (cuda_slab_exit.cuh) ---- */

/* By a warp: its 16 rows, from first_row on, times a factor each; a lane has that of row lane % 16.
 */
template <class T>
static __device__ __forceinline__ void store_rows(const slab_part &part, const slab_place &at,
                                                  const unsigned char *left, int first_row,
                                                  int n_row, float factor)
{
    constexpr int FOURS = T::N / 4, AT_ONCE = FOURS % 32 ? 3 : 4, ROWS = AT_ONCE * 32 / FOURS;
    static_assert(ROWS * FOURS == AT_ONCE * 32 && slab_exit<T>::ROWS % ROWS == 0, "whole rows");
    float *y = part.y + (size_t)first_row * part.ldy + at.first_out;
    int ldy = (int)part.ldy, n_there = n_row - first_row, n_left = part.n_out - at.first_out;
    unsigned lane = lane_of();
    if (!part.fours) {
#pragma unroll 1
        for (unsigned i = lane; i < slab_exit<T>::ROWS * T::N; i += 32) {
            int row = (int)(i / T::N), column = (int)(i % T::N), out = slab_out<T>(column);
            float of_row = __shfl_sync(DG_ALL_LANES, factor, row),
                  v = *(const float *)(left + row * slab_exit<T>::PITCH +
                                       column % 2 * slab_exit<T>::APART + column / 2 * 4);
            if (row < n_there && out < n_left)
                y[row * ldy + out] = v * of_row;
        }
        return;
    }
#pragma unroll 1
    for (int first = 0; first < slab_exit<T>::ROWS; first += ROWS) {
        float4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int row = first + (int)((lane + 32u * i) / FOURS),
                column = (int)((lane + 32u * i) % FOURS * 4);
            v[i] = times(left_four<T>(left, row, column), __shfl_sync(DG_ALL_LANES, factor, row));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int row = first + (int)((lane + 32u * i) / FOURS),
                out = slab_out<T>((int)((lane + 32u * i) % FOURS * 4));
            if (row < n_there && out < n_left)
                *(float4 *)(y + row * ldy + out) = v[i];
        }
    }
}

/* Four channels, the first a multiple of 4, as the form stores them. */
static __device__ __forceinline__ void store_channels(const dg_cuda_rows &h, size_t at, float4 v)
{
    if (h.form == DG_CUDA_F32)
        *(float4 *)((float *)h.data + at) = v;
    else
        *(uint2 *)((uint16_t *)h.data + at) =
            h.form == DG_CUDA_BF16 ? make_uint2(dg_pack_bf16(v.x, v.y), dg_pack_bf16(v.z, v.w))
                                   : make_uint2(dg_store_f16(v.x, v.y), dg_store_f16(v.z, v.w));
}

/* The same of gate and up. */
template <class T>
static __device__ __forceinline__ void store_gated(const slab_job &job, const slab_place &at,
                                                   const unsigned char *left, int first_row,
                                                   float of_gate, float of_up, float factor)
{
    constexpr int CHANNELS = T::N / 2, FOURS = CHANNELS / 4, AT_ONCE = 2, ROWS = 32 / FOURS;
    unsigned lane = lane_of();
    int channel = (int)(lane % FOURS * 4), begin = (int)(lane / FOURS),
        first_up = job.up_first ? 0 : CHANNELS,
        n_there = at.first_out + channel < job.h.ld ? job.n_row - first_row : 0;
    size_t to = (size_t)first_row * (size_t)job.h.ld + (size_t)(at.first_out + channel);
    float of_h = gated_factor(job.h.form);
#pragma unroll 1
    for (int first = 0; first < slab_exit<T>::ROWS; first += AT_ONCE * ROWS) {
        float4 gate[AT_ONCE], up[AT_ONCE];
        float of_row[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int row = first + i * ROWS + begin;
            of_row[i] = __shfl_sync(DG_ALL_LANES, factor, row);
            gate[i] = left_four<T>(left, row, channel + CHANNELS - first_up);
            up[i] = left_four<T>(left, row, channel + first_up);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float4 g = times(gate[i], of_gate * of_row[i]), u = times(up[i], of_up * of_row[i]);
            gate[i] = times(
                make_float4(gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w)),
                of_h);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int row = first + i * ROWS + begin;
            if (row < n_there)
                store_channels(job.h, to + (size_t)(row * job.h.ld), gate[i]);
        }
    }
}

/* ---- the kernel ---- */

/* What can be made ready for a tile is, before the kernel before this one has ended. */
template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void multiply_slabs(const slab_job &job, const slab_maps &maps)
{
    typedef slab_exit<T> out;
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    if (threadIdx.x == T::CONSUMERS) {
        slab_place at = slab_place_of<T>(job, (int)blockIdx.x);
        dg_tensor_prefetch(maps.w[at.part]);
        dg_tensor_prefetch(maps.x);
        slab_ring_make(ring);
        copy_early(ring, job, maps, at);
    }
    __syncthreads();
    if (threadIdx.x >= T::CONSUMERS) {
        dg_grid_wait();
        if (threadIdx.x == T::CONSUMERS)
            copy_tiles(ring, job, maps);
        return;
    }
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        slab_place at = slab_place_of<T>(job, tile);
        const slab_part &part = job.part[at.part];
        bool last = tile + (int)gridDim.x >= job.n_tile;
        float acc[T::MT][T::N / 8][4] = {}, of_row[T::MT];
        float of_part = job.alpha * factor_of(part.scale, 0),
              of_up = job.gated ? factor_of(job.part[1].scale, 0) : 1;
        dg_grid_wait();
#pragma unroll
        for (int m = 0; m < T::MT; m++)
            of_row[m] = factor_of_row<FORM>(
                job.x, job.n_row, warp_row<T>(at.first_row, m) + (int)(lane_of() % out::ROWS));
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, job.n_step, out::HELD);
        unsigned char *left = exit_of_warp(ring, turn);
        dg_bar_sync(1, T::CONSUMERS); /* nobody reads these stages any more */
#pragma unroll
        for (int m = 0; m < T::MT; m++) {
#pragma unroll
            for (int j = 0; j < T::N / 8; j++)
                slab_leave(left, out::PITCH, out::APART, j, acc[m][j]);
            __syncwarp();
            if (T::N / 2 % SLAB_ROWS == 0 && job.gated)
                store_gated<T>(job, at, left, warp_row<T>(at.first_row, m), of_part, of_up,
                               of_row[m]);
            else
                store_rows<T>(part, at, left, warp_row<T>(at.first_row, m), job.n_row,
                              of_part * of_row[m]);
            __syncwarp();
        }
        if (last) {
            dg_grid_launch_next(); /* blocks that begin now would be in the way before */
        } else {
            give_exit_back(ring, turn);
        }
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

/* Whole lines of the cache. */
static uint32_t share_of(size_t bytes, size_t n_share)
{
    return (uint32_t)((bytes + n_share - 1) / n_share + 127) / 128 * 128;
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
    /* Stages behind the last value of k have zeros. */
    job.n_step = (job.n_chunk + T::KS - 1) / T::KS;
    if (job.n_step < slab_exit<T>::HELD)
        job.n_step = slab_exit<T>::HELD;
    /* q, k and v, and gate and up, begin when their rows are there, which would only queue behind
     * weights of later stages. */
    job.n_early = job.n_part > 1 ? 2 : T::STAGES;
    if (job.n_early > job.n_step)
        job.n_early = job.n_step;
    job.n_token_block = (job.n_row + T::TOKENS - 1) / T::TOKENS;
    job.n_tile = column_blocks(job, T::N, T::SHARE) * job.n_token_block;
    job.per_block =
        (uint32_t)(((1u << 31) + (unsigned)job.n_token_block - 1) / (unsigned)job.n_token_block);
    if ((int64_t)job.n_tile * job.n_token_block > INT32_MAX) /* per_block would not do */
        return cudaErrorInvalidValue;
    int n_block = job.n_tile < n_sm ? job.n_tile : n_sm;
    job.ahead_share = share_of(job.ahead.bytes, (size_t)n_block * (size_t)job.n_step);
    return DG_LAUNCH((product_slabs<FORM, T>), dim3((unsigned)n_block), T::THREADS,
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
    part->fours = ldy % 4 == 0 && w->n_out % 4 == 0 && (uintptr_t)y % sizeof(float4) == 0;
}

extern "C" cudaError_t dg_cuda_product_slabs(cudaStream_t stream, const dg_cuda_product_args *a,
                                             dg_slab_tile tile)
{
    slab_job job = job_over(a->x, a->n_row, a->alpha);
    const void *w[3] = {NULL, NULL, NULL};
    job.ahead = a->ahead;
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
    job.ahead = a->ahead;
    add_part(&job, a->gate, NULL, 0);
    add_part(&job, a->up, NULL, 0);
    return launch_job(stream, job, w, a->x, tile);
}
