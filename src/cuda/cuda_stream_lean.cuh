/* The stream of weights (cuda_stream.cuh) where products are of bytes: gate and up, or down, with
 * one warp that copies weights and gathers rows, and all registers for those that multiply. With
 * the other form, whose warps have fewer registers, gate and up of four bits took 87 us instead of
 * 74, down of Q5_0 68 instead of 57. */
#ifndef DG_CUDA_CUDA_STREAM_LEAN_CUH
#define DG_CUDA_CUDA_STREAM_LEAN_CUH

#include "cuda/cuda_stream.cuh"

namespace lean
{

enum { STREAM_THREADS = 32 * (CONSUMERS + 1), NEXT_STEPS = 3 };

struct stream_ring {
    unsigned char *stages;
    uint64_t *full, *empty;
    stream_item *item; /* of each stage */
    int slot, turn;
};

/* Behind the stages. */
enum { RING_BYTES = MAX_STAGES * (2 * (int)sizeof(uint64_t) + (int)sizeof(stream_item)) };

static __device__ __forceinline__ void ring_advance(stream_ring &ring, int n_stage)
{
    if (++ring.slot == n_stage) {
        ring.slot = 0;
        ring.turn++;
    }
}

/* The piece that item `number` is of; past the first-level cache, as it may be read before
 * dg_grid_wait. `each`: items_of_piece(). */
static __device__ __forceinline__ uint4 piece_at(const dg_stream_job &job, int number, int each)
{
    return __ldcg((const uint4 *)(job.piece + number / each));
}

static __device__ __forceinline__ stream_item item_of(const dg_stream_job &job, uint4 piece,
                                                      int number, int each)
{
    int within = number % each, shares = shares_of_group(job), pair = within / shares;
    stream_item item = {};
    item.expert = (int)piece.x;
    item.first = (int)piece.y;
    item.n = (int)piece.z;
    item.group[0] = job.down ? 2 * pair : pair;
    item.group[1] = job.down ? min(2 * pair + 1, job.n_group - 1) : pair;
    item.tile = within % shares * job.share;
    item.n_tile = min(job.share, job.tiles - item.tile);
    return item;
}

/* Number `number` of all items, or nothing. */
static __device__ __forceinline__ stream_item item_at(const dg_stream_job &job, int number,
                                                      int each, int n_item)
{
    if (number >= n_item)
        return stream_item{};
    return item_of(job, piece_at(job, number, each), number, each);
}

/* A block's first, asked for together with the number of all: the list has room for at least as
 * many as there are blocks. */
static __device__ __forceinline__ stream_item first_item(const dg_stream_job &job, int each,
                                                         int *n_item)
{
    int number = (int)blockIdx.x;
    uint4 piece = piece_at(job, number, each);
    *n_item = __ldcg(job.n_piece) * each;
    return number < *n_item ? item_of(job, piece, number, each) : stream_item{};
}

/* ---- the producer: one warp, whose instructions take longer than those of many would; what can be
 * known before a stage is ---- */

#if !defined(__CUDACC__) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Bulk copies by one lane, of what may leave the second-level cache first: rows of x then stay
 * there (gate and up of four bits 74 us instead of 76, down 47 instead of 50, of E4M3 71 instead of
 * 76). The barrier counts it and, for rows of x, every lane. */
enum { FULL_ARRIVALS = 33 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *full,
                                                    const dg_stream_job &job,
                                                    const weight_source &from, int n_tile,
                                                    int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES, UNITS = stream_stage<F>::UNITS;
    bool whole = n_tile == job.tiles;
    int n_copy = whole ? 1 : n_unit;
    uint32_t bytes = (uint32_t)((whole ? n_unit : 1) * n_tile * BYTES);
    if (threadIdx.x % 32 != 0)
        return;
    dg_mbar_expect(full, 2 * (uint32_t)n_copy * bytes);
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_copy; u++)
            dg_bulk_g2s<true>(to + (side * UNITS + u) * job.share * BYTES,
                              from.side[side] + (size_t)u * from.unit_bytes, bytes, full);
}

static __device__ __forceinline__ void arrive_without_copies(uint64_t *full)
{
    dg_mbar_arrive(full);
    if (threadIdx.x % 32 == 0)
        dg_mbar_arrive(full);
}
#else
/* Before sm_90: pieces of 16 bytes by all lanes, which arrive together with the rows of x. */
enum { FULL_ARRIVALS = 32 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *,
                                                    const dg_stream_job &job,
                                                    const weight_source &from, int n_tile,
                                                    int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_unit; u++) {
            unsigned char *piece = to + (side * stream_stage<F>::UNITS + u) * job.share * BYTES;
            const unsigned char *unit = from.side[side] + (size_t)u * from.unit_bytes;
            for (int i = (int)threadIdx.x % 32 * 16; i < n_tile * BYTES; i += 512)
                dg_cp_async16(piece + i, unit + i);
        }
}

static __device__ __forceinline__ void arrive_without_copies(uint64_t *full)
{
    dg_mbar_arrive(full);
}
#endif

/* The ring's next stage, when nobody reads it any more. */
static __device__ __forceinline__ void ring_take(const stream_ring &ring)
{
    if (ring.turn > 0)
        dg_mbar_wait(ring.empty + ring.slot, (ring.turn - 1) & 1);
    __syncwarp();
}

/* A stage is where an item begins; consumers look there. */
static __device__ __forceinline__ void ring_begin(const stream_ring &ring, const stream_item &item)
{
    if (threadIdx.x % 32 == 0)
        ring.item[ring.slot] = item;
    __syncwarp();
}

/* Weights of an item's first stages, at most `most`, into an empty ring, before its rows of x are
 * found or, of down, made by the kernel before. Returns how many. */
template <class F, int NT_MAX>
static __device__ __forceinline__ int produce_ahead(const stream_ring &ring,
                                                    const dg_stream_job &job,
                                                    const stream_item &item, int most)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    int n_stage = min(most, (job.n_unit + UNITS - 1) / UNITS);
    weight_source weights = weights_of<F>(job, item);
    for (int i = 0; i < n_stage; i++) {
        copy_weights<F>(ring.stages + i * stage_bytes<F, NT_MAX>(job), ring.full + i, job, weights,
                        item.n_tile, min(UNITS, job.n_unit - i * UNITS));
        for (int side = 0; side < 2; side++)
            weights.side[side] += UNITS * weights.unit_bytes;
    }
    return n_stage;
}

/* An item and its rows of x, of each tile of 8 rows the lane's. */
template <int NT_MAX> struct producer_item {
    stream_item item;
    int row[NT_MAX];
};

template <int NT_MAX>
static __device__ __forceinline__ void find_rows(producer_item<NT_MAX> &of,
                                                 const dg_stream_job &job)
{
#pragma unroll
    for (int j = 0; j < NT_MAX; j++) {
        int place = of.item.first + min(j * 8 + (int)threadIdx.x % 8, max(of.item.n - 1, 0));
        of.row[j] = job.row ? job.row[place] : place;
    }
}

/* Rows of x in a stage: 8 rows x 16 bytes side by side, next the other tiles of 8 rows, then the
 * next 16 bytes of k. `ahead`: stages whose weights are on their way. find_next(0 ... 2) is called
 * on the way, so that what it loads is there when this item is done. */
template <class F, int NT_MAX, class NEXT>
static __device__ __forceinline__ void produce_item(stream_ring &ring, const dg_stream_job &job,
                                                    const producer_item<NT_MAX> &of, int ahead,
                                                    NEXT find_next)
{
    constexpr int UNITS = stream_stage<F>::UNITS, ROW = stream_row<F>::UNIT_BYTES;
    const stream_item &item = of.item;
    int lane = (int)threadIdx.x % 32, n_tile = token_tiles<NT_MAX>(item.n);
    int bytes = stage_bytes<F, NT_MAX>(job), step = 0;
    int x_at = stage_weights<F>(job) + lane / 8 * NT_MAX * 128 + lane % 8 * 16;
    weight_source weights = weights_of<F>(job, item);
    const unsigned char *from[NT_MAX];
#pragma unroll
    for (int j = 0; j < NT_MAX; j++)
        from[j] = job.x + (size_t)of.row[j] * job.x_bytes + lane / 8 * 16;
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        int n_unit = min(UNITS, job.n_unit - unit);
        uint64_t *full = ring.full + ring.slot;
        unsigned char *to = ring.stages + ring.slot * bytes, *x = to + x_at;
        if (ahead <= 0)
            ring_take(ring);
        if (unit == 0)
            ring_begin(ring, item);
        if (ahead-- <= 0)
            copy_weights<F>(to, full, job, weights, item.n_tile, n_unit);
#pragma unroll
        for (int j = 0; j < NT_MAX; j++) {
            if (j >= n_tile)
                break;
#pragma unroll
            for (int k = 0; k < (UNITS * ROW + 63) / 64; k++)
                if (k * 4 + lane / 8 < n_unit * ROW / 16)
                    dg_cp_async16_if(x + (k * 4 * NT_MAX + j) * 128, from[j] + k * 64,
                                     j * 8 + lane % 8 < item.n);
            from[j] += UNITS * ROW;
        }
        dg_cp_async_mbar_arrive(full);
        for (int side = 0; side < 2; side++)
            weights.side[side] += UNITS * weights.unit_bytes;
        find_next(step++);
    }
    for (; step < NEXT_STEPS; step++)
        find_next(step);
}

/* The next item is asked for while this one is filled in: its number in the first stage, who it is
 * in the second, its rows in the third. Of gate and up only the first stage's weights go before
 * rows of x: behind all of them rows came late, and the first stage was whole after 6 us instead of
 * 3.5. */
template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void produce(stream_ring &ring, const dg_stream_job &job)
{
    int each = items_of_piece(job), lane = (int)threadIdx.x % 32, n_item, ahead = 0;
    producer_item<NT_MAX> now = {}, next = {};
    if (!DOWN)
        dg_grid_wait();
    now.item = first_item(job, each, &n_item);
    if (now.item.n > 0)
        ahead = produce_ahead<F, NT_MAX>(ring, job, now.item, DOWN ? job.n_stage : 1);
    if (DOWN)
        dg_grid_wait();
    find_rows(now, job);
    while (now.item.n > 0) {
        int taken = lane == 0 ? atomicAdd(job.next, 1) : 0;
        produce_item<F, NT_MAX>(ring, job, now, ahead, [&](int step) {
            if (step == 1)
                next.item = item_at(job, (int)gridDim.x + __shfl_sync(DG_ALL_LANES, taken, 0), each,
                                    n_item);
            if (step == 2)
                find_rows(next, job);
        });
        ahead = 0;
        now = next;
    }
    ring_take(ring);
    ring_begin(ring, stream_item{});
    arrive_without_copies(ring.full + ring.slot);
}

/* ---- those that multiply ---- */

/* The item's weights with NT tiles of 8 rows. Warps without a tile only keep the ring going. */
template <class F, bool DOWN, int NT_MAX, int NT>
static __device__ __forceinline__ void consume_item(stream_ring &ring, const dg_stream_job &job,
                                                    const stream_item &item)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    bool active = (int)threadIdx.x / 32 < item.n_tile;
    float factor[2] = {factor_of(job.scale[0], item.expert), factor_of(job.scale[1], item.expert)};
    float acc[2][NT][4] = {};
    tile_place tile = tile_of<F>(job);
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        const unsigned char *stage = ring.stages + ring.slot * stage_bytes<F, NT_MAX>(job);
        uint32_t loaded = 0;
        dg_mbar_wait(ring.full + ring.slot, ring.turn & 1);
        __syncwarp();
        if (active)
            loaded = multiply_stage<F, NT_MAX, NT>(acc, stage, stage + stage_weights<F>(job), tile,
                                                   min(UNITS, job.n_unit - unit));
        __syncwarp();
        /* Loads must have returned before the stage is handed back, not only been issued: the
         * address needs them. */
        if (threadIdx.x % 32 == 0)
            dg_mbar_arrive(ring.empty + ring.slot + (loaded & job.zero));
    }
    if (active)
        store_results<DOWN, NT>(job, item, job.factor * stream_row<F>::STEP, factor, acc);
}

template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void consume(stream_ring &ring, const dg_stream_job &job)
{
    constexpr int STEP = NT_MAX / 4;
    for (;;) {
        dg_mbar_wait(ring.full + ring.slot, ring.turn & 1);
        __syncwarp();
        stream_item item = ring.item[ring.slot];
        if (item.n == 0)
            return;
        switch (token_tiles<NT_MAX>(item.n) / STEP) {
        case 1:
            consume_item<F, DOWN, NT_MAX, STEP>(ring, job, item);
            break;
        case 2:
            consume_item<F, DOWN, NT_MAX, 2 * STEP>(ring, job, item);
            break;
        case 3:
            consume_item<F, DOWN, NT_MAX, 3 * STEP>(ring, job, item);
            break;
        default:
            consume_item<F, DOWN, NT_MAX, 4 * STEP>(ring, job, item);
        }
    }
}

/* ---- the launch ---- */

template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void stream_items(const dg_stream_job &job)
{
    DG_SHARED(shared);
    stream_ring ring = {};
    int warp = (int)threadIdx.x / 32;
    ring.stages = shared;
    ring.item = (stream_item *)(shared + job.n_stage * stage_bytes<F, NT_MAX>(job));
    ring.full = (uint64_t *)(ring.item + MAX_STAGES);
    ring.empty = ring.full + MAX_STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.n_stage; i++) {
            dg_mbar_init(ring.full + i, FULL_ARRIVALS);
            dg_mbar_init(ring.empty + i, job.share);
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
    if (warp == CONSUMERS) {
        produce<F, DOWN, NT_MAX>(ring, job);
    } else {
        dg_grid_wait();
        if (job.before_down) /* its blocks then take the places of those that are done */
            dg_grid_launch_next();
        if (warp < job.share)
            consume<F, DOWN, NT_MAX>(ring, job);
    }
    dg_grid_launch_next();
}

template <class F, bool DOWN, int NT_MAX>
static __global__ void __launch_bounds__(STREAM_THREADS, 1) stream_experts(dg_stream_job job)
{
    stream_items<F, DOWN, NT_MAX>(job);
}

/* As much of a group as leaves room for two stages, and as many stages as there is room for. */
template <class F, bool DOWN, int NT_MAX>
static cudaError_t launch_stream(cudaStream_t stream, dg_stream_job job)
{
    int device = 0, n_sm = 1, most = 48 << 10;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    most -= RING_BYTES;
    job.down = DOWN;
    job.share = job.tiles;
    while (job.share > 1 && most / stage_bytes<F, NT_MAX>(job) < 2)
        job.share = (job.share + 1) / 2;
    job.n_stage = min(most / stage_bytes<F, NT_MAX>(job), (int)MAX_STAGES);
    if (job.n_stage < 1)
        return cudaErrorInvalidConfiguration;
    int items = min(job.n_pair, dg_most_pieces(job.n_pair, job.n_expert)) * items_of_piece(job);
    return DG_LAUNCH_IF(!job.follows_stream, (stream_experts<F, DOWN, NT_MAX>),
                        dim3((unsigned)min(n_sm, items)), STREAM_THREADS,
                        (size_t)(job.n_stage * stage_bytes<F, NT_MAX>(job) + RING_BYTES), stream,
                        job);
}

} // namespace lean

#endif
