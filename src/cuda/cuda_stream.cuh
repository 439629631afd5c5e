/* The experts of rows that are few for each: weights are streamed and each is read once for up to
 * 32 or 64 rows. One launch for gate and up and down, or one for each.
 *
 * A block for each multiprocessor takes items from a counter: a piece of an expert's rows and a
 * share of its tiles, gate and up before down, experts with most rows first or in turn with those
 * of few. Four warps fill a ring of stages: one thread copies weights in contiguous packed pieces,
 * three warps gather rows. (One warp for both needed some 1,300 cycles a stage, however small: with
 * four-bit weights that was the limit.) The others have two 16-row tiles of weights each (gate and
 * up of the same channels, or two of down) and multiply them with up to 8 NT_MAX rows. A row's
 * results come from its own column of the mma, in one chain of ascending k: they do not depend on
 * the rows beside it, nor on who computes the item.
 *
 * Pieces of one expert are neighbours in the list, or next but one where experts of many rows and
 * of few are taken in turn, so that their weights come from the second-level cache all but once.
 *
 * Nothing waits for weights to be asked for. Of one launch, down's follow those of gate and up in
 * the ring; h of a piece is gathered when all warps that had a part of it have counted themselves.
 * Items are taken in order, so that whoever waits waits for blocks that run. Of two launches, the
 * second begins while the first ends: which rows an expert has was known before, and a block fills
 * its ring with weights before it waits for h. */
#ifndef DG_CUDA_CUDA_STREAM_CUH
#define DG_CUDA_CUDA_STREAM_CUH

#include "cuda/cuda_stream_products.cuh"
#include "cuda/cuda_wgmma.cuh"

/* Warps: those that multiply, one of them without work; one that copies weights; those that gather
 * rows. The last four are a warpgroup and leave registers to the others. */
enum {
    CONSUMERS = 11,
    WEIGHTS_WARP = 12,
    GATHERERS = 3,
    STREAM_THREADS = 32 * (WEIGHTS_WARP + 1 + GATHERERS),
    CONSUMER_REGISTERS = 152,
    PRODUCER_REGISTERS = 56,
    MAX_STAGES = 8,
};

/* Gate and up, and down: which of them there are is in the kernel's type, `void` for none. */
struct stream_launch {
    dg_stream_job job[2];
    int stage_bytes, n_stage;
};

template <class F> constexpr bool is_there = true;
template <> constexpr bool is_there<void> = false;

/* Items in the order of their taking. Who copies weights is at most a ring of stages ahead of the
 * others, and an item has at least one: none of so many is written again while it is read. */
enum { QUEUE_ITEMS = 2 * MAX_STAGES };

struct stream_ring {
    unsigned char *stages;
    uint64_t *full, *empty, *known; /* known: of the queue */
    stream_item *item;
    int slot, turn, bytes, n_stage;
};

/* Behind the stages. */
enum {
    RING_BYTES = QUEUE_ITEMS * ((int)sizeof(uint64_t) + (int)sizeof(stream_item)) +
                 2 * MAX_STAGES * (int)sizeof(uint64_t)
};

static __device__ __forceinline__ void ring_advance(stream_ring &ring)
{
    if (++ring.slot == ring.n_stage) {
        ring.slot = 0;
        ring.turn++;
    }
}

static __device__ __forceinline__ unsigned char *ring_stage(const stream_ring &ring)
{
    return ring.stages + ring.slot * ring.bytes;
}

/* The ring's next stage, when nobody reads it any more. */
static __device__ __forceinline__ void ring_take(const stream_ring &ring)
{
    if (ring.turn > 0)
        dg_mbar_wait(ring.empty + ring.slot, (ring.turn - 1) & 1);
}

/* Item `number` of this block's. */
static __device__ __forceinline__ stream_item queue_at(const stream_ring &ring, int number)
{
    dg_mbar_wait(ring.known + number % QUEUE_ITEMS, number / QUEUE_ITEMS & 1);
    return ring.item[number % QUEUE_ITEMS];
}

/* By one thread. */
static __device__ __forceinline__ void queue_put(const stream_ring &ring, int number,
                                                 const stream_item &item)
{
    ring.item[number % QUEUE_ITEMS] = item;
    dg_mbar_arrive(ring.known + number % QUEUE_ITEMS);
}

/* ---- items ---- */

static __host__ __device__ __forceinline__ int shares_of_group(const dg_stream_job &job)
{
    return (job.tiles + job.share - 1) / job.share;
}

static __host__ __device__ __forceinline__ int items_of_piece(const dg_stream_job &job)
{
    int pairs = job.down ? (job.n_group + 1) / 2 : job.n_group;
    return pairs * shares_of_group(job);
}

/* Number `number` of all items, or nothing. */
static __device__ __forceinline__ stream_item item_at(const dg_stream_job &job, int number,
                                                      int n_piece)
{
    int each = items_of_piece(job), within = number % each, shares = shares_of_group(job),
        pair = within / shares;
    stream_item item = {};
    if (number >= n_piece * each)
        return item;
    /* past the first-level cache: it may be read before dg_grid_wait */
    uint4 words = __ldcg((const uint4 *)(job.piece + number / each));
    item.expert = (int)words.x;
    item.first = (int)words.y;
    item.n = (int)words.z;
    item.piece = number / each;
    item.down = job.down;
    item.group[0] = job.down ? 2 * pair : pair;
    item.group[1] = job.down ? min(2 * pair + 1, job.n_group - 1) : pair;
    item.tile = within % shares * job.share;
    item.n_tile = min(job.share, job.tiles - item.tile);
    return item;
}

/* Of all items of the launch. */
template <class G, class D>
static __device__ __forceinline__ stream_item find_item(const stream_launch &all, int number,
                                                        int n_piece)
{
    if constexpr (is_there<G>) {
        int n_gated = n_piece * items_of_piece(all.job[0]);
        if (!is_there<D> || number < n_gated)
            return item_at(all.job[0], number, n_piece);
        number -= n_gated;
    }
    return item_at(all.job[1], number, n_piece);
}

/* Warps that have a part of a piece's h. */
static __device__ __forceinline__ uint32_t parts_of_piece(const dg_stream_job &gate)
{
    return (uint32_t)(gate.n_group * gate.tiles);
}

/* ---- weights ---- */

/* An item's weights of the unit that comes next, of w[0] and w[1]. */
struct weight_source {
    const unsigned char *side[2];
    size_t unit_bytes; /* from a unit to the next */
};

template <class F>
static __device__ __forceinline__ weight_source weights_of(const dg_stream_job &job,
                                                           const stream_item &item)
{
    constexpr size_t BYTES = packed_unit<F>::BYTES;
    weight_source from;
    from.unit_bytes = (size_t)job.tiles * BYTES;
    for (int side = 0; side < 2; side++)
        from.side[side] = job.w[side] + (size_t)item.expert * job.mat_bytes +
                          (size_t)item.group[side] * (size_t)job.n_unit * from.unit_bytes +
                          (size_t)item.tile * BYTES;
    return from;
}

#if !defined(__CUDACC__) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Bulk copies by one thread, of what may leave the second-level cache first: rows of x then stay
 * there (gate and up of four bits 74 us instead of 76, down 47 instead of 50, of E4M3 71 instead of
 * 76). */
enum { WEIGHTS_LANES = 1 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *full,
                                                    const dg_stream_job &job,
                                                    const weight_source &from,
                                                    const stream_item &item, int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES, UNITS = stream_stage<F>::UNITS;
    bool whole = item.n_tile == job.tiles;
    int n_copy = whole ? 1 : n_unit;
    uint32_t bytes = (uint32_t)((whole ? n_unit : 1) * item.n_tile * BYTES);
    dg_mbar_expect(full, 2 * (uint32_t)n_copy * bytes);
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_copy; u++)
            dg_bulk_g2s<true>(to + (side * UNITS + u) * job.share * BYTES,
                              from.side[side] + (size_t)u * from.unit_bytes, bytes, full);
}

#else
/* Before sm_90: pieces of 16 bytes by all lanes. */
enum { WEIGHTS_LANES = 32 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *full,
                                                    const dg_stream_job &job,
                                                    const weight_source &from,
                                                    const stream_item &item, int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES, UNITS = stream_stage<F>::UNITS;
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_unit; u++) {
            unsigned char *piece = to + (side * UNITS + u) * job.share * BYTES;
            const unsigned char *unit = from.side[side] + (size_t)u * from.unit_bytes;
            for (int i = (int)threadIdx.x % 32 * 16; i < item.n_tile * BYTES; i += 512)
                dg_cp_async16(piece + i, unit + i);
        }
    dg_cp_async_mbar_arrive(full);
}
#endif

/* Of those that copy weights and those that gather rows. */
enum { FULL_ARRIVALS = WEIGHTS_LANES + 32 * GATHERERS };

/* find_next() is called when something is on its way. */
template <class F, class NEXT>
static __device__ __forceinline__ void copy_item(stream_ring &ring, const dg_stream_job &job,
                                                 const stream_item &item, NEXT find_next)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    weight_source weights = weights_of<F>(job, item);
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring)) {
        ring_take(ring);
        copy_weights<F>(ring_stage(ring), ring.full + ring.slot, job, weights, item,
                        min(UNITS, job.n_unit - unit));
        for (int side = 0; side < 2; side++)
            weights.side[side] += UNITS * weights.unit_bytes;
        if (unit == 0)
            find_next();
    }
}

/* The next number is asked for before an item is copied, and the item itself behind its first
 * stage. Down's weights are on their way before there is h. */
template <class G, class D>
static __device__ __forceinline__ void copy_items(stream_ring &ring, const stream_launch &all)
{
    const dg_stream_job &any = all.job[is_there<G> ? 0 : 1];
    bool first = threadIdx.x % 32 == 0;
    auto take = [&](void) { return first ? atomicAdd(any.next, 1) : 0; };
    auto number = [](int taken) {
        return WEIGHTS_LANES > 1 ? __shfl_sync(DG_ALL_LANES, taken, 0) : taken;
    };
    if (is_there<G>)
        dg_grid_wait();
    int n_piece = __ldcg(any.n_piece), taken = take();
    stream_item now = find_item<G, D>(all, number(taken), n_piece), next = {};
    for (int i = 0;; i++, now = next) {
        if (first)
            queue_put(ring, i, now);
        if (now.n == 0)
            return;
        taken = take();
        auto find_next = [&](void) { next = find_item<G, D>(all, number(taken), n_piece); };
        if constexpr (is_there<D>)
            if (now.down)
                copy_item<D>(ring, all.job[1], now, find_next);
        if constexpr (is_there<G>)
            if (!now.down)
                copy_item<G>(ring, all.job[0], now, find_next);
    }
}

/* ---- rows of x ---- */

/* Rows of x in a stage: 8 rows x 16 bytes side by side, next the other tiles of 8 rows, then the
 * next 16 bytes of k. The warps take turns at 64 bytes of all rows. */
template <class F, int NT_MAX>
static __device__ __forceinline__ void gather_item(stream_ring &ring, const dg_stream_job &job,
                                                   const stream_item &item)
{
    constexpr int UNITS = stream_stage<F>::UNITS, ROW = stream_row<F>::UNIT_BYTES,
                  TURNS = (UNITS * ROW + 64 * GATHERERS - 1) / (64 * GATHERERS);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 - WEIGHTS_WARP - 1;
    int n = item.n, n_tile = token_tiles<NT_MAX>(n), piece = warp * 4 + lane / 8;
    int x_at = stage_weights<F>(job) + piece * NT_MAX * 128 + lane % 8 * 16;
    const unsigned char *from[NT_MAX];
#pragma unroll
    for (int j = 0; j < NT_MAX; j++) {
        int place = item.first + min(j * 8 + lane % 8, n - 1);
        from[j] = job.x + (size_t)(job.row ? job.row[place] : place) * job.x_bytes + piece * 16;
    }
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring)) {
        int n_piece = min(UNITS, job.n_unit - unit) * ROW / 16;
        unsigned char *x = ring_stage(ring) + x_at;
        ring_take(ring);
#pragma unroll
        for (int j = 0; j < NT_MAX; j++) {
            if (j >= n_tile)
                break;
#pragma unroll
            for (int k = 0; k < TURNS; k++)
                if (k * 4 * GATHERERS + piece < n_piece)
                    dg_cp_async16_if(x + (k * 4 * GATHERERS * NT_MAX + j) * 128,
                                     from[j] + k * 64 * GATHERERS, j * 8 + lane % 8 < n);
            from[j] += UNITS * ROW;
        }
        dg_cp_async_mbar_arrive(ring.full + ring.slot);
    }
}

template <class G, class D, int NT_MAX>
static __device__ __forceinline__ void gather_items(stream_ring &ring, const stream_launch &all)
{
    dg_grid_wait();
    for (int i = 0;; i++) {
        stream_item item = queue_at(ring, i);
        if (item.n == 0)
            return;
        if constexpr (is_there<D>)
            if (item.down) {
                if (is_there<G>)
                    dg_await_count(all.job[0].done + item.piece, parts_of_piece(all.job[0]));
                gather_item<D, NT_MAX>(ring, all.job[1], item);
            }
        if constexpr (is_there<G>)
            if (!item.down)
                gather_item<G, NT_MAX>(ring, all.job[0], item);
    }
}

/* ---- those that multiply ---- */

/* A warp's part of a piece's h is there; by all its lanes. */
static __device__ __forceinline__ void count_part(const dg_stream_job &gate, int piece)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        __threadfence();
        atomicAdd(gate.done + piece, 1u);
    }
}

/* A piece whose part a warp has stored and not yet counted: to wait until stores have arrived is
 * shorter when something else was done meanwhile. */
struct stored_part {
    int piece; /* -1: none */
};

static __device__ __forceinline__ void count_stored(const dg_stream_job &gate, stored_part &stored)
{
    if (stored.piece >= 0)
        count_part(gate, stored.piece);
    stored.piece = -1;
}

/* The item's weights with NT tiles of 8 rows. Warps without a tile only keep the ring going. */
template <class F, bool DOWN, int NT_MAX, int NT>
static __device__ __forceinline__ void consume_item(stream_ring &ring, const dg_stream_job &job,
                                                    const stream_item &item, stored_part &stored)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    int x_at = stage_weights<F>(job);
    bool active = (int)threadIdx.x / 32 < item.n_tile;
    tile_place tile = tile_of<F>(job);
    float factor[2] = {factor_of(job.scale[0], item.expert), factor_of(job.scale[1], item.expert)};
    float acc[2][NT][4] = {};
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring)) {
        const unsigned char *stage = ring_stage(ring);
        uint32_t loaded = 0;
        dg_mbar_wait(ring.full + ring.slot, ring.turn & 1);
        __syncwarp();
        if (active)
            loaded = multiply_stage<F, NT_MAX, NT>(acc, stage, stage + x_at, tile,
                                                   min(UNITS, job.n_unit - unit));
        __syncwarp();
        /* Loads must have returned before the stage is handed back, not only been issued: the
         * address needs them. */
        if (threadIdx.x % 32 == 0)
            dg_mbar_arrive(ring.empty + ring.slot + (loaded & job.zero));
        if (!DOWN && unit == 0)
            count_stored(job, stored);
    }
    if (!active)
        return;
    if (!DOWN && job.done)
        stored.piece = item.piece;
    store_results<DOWN, NT>(job, item, job.factor * stream_row<F>::STEP, factor, acc);
}

template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void consume_rows(stream_ring &ring, const dg_stream_job &job,
                                                    const stream_item &item, stored_part &stored)
{
    constexpr int STEP = NT_MAX / 4;
    switch (token_tiles<NT_MAX>(item.n) / STEP) {
    case 1:
        consume_item<F, DOWN, NT_MAX, STEP>(ring, job, item, stored);
        break;
    case 2:
        consume_item<F, DOWN, NT_MAX, 2 * STEP>(ring, job, item, stored);
        break;
    case 3:
        consume_item<F, DOWN, NT_MAX, 3 * STEP>(ring, job, item, stored);
        break;
    default:
        consume_item<F, DOWN, NT_MAX, 4 * STEP>(ring, job, item, stored);
    }
}

/* What was stored is counted before anything that may wait for it. */
template <class G, class D, int NT_MAX>
static __device__ __forceinline__ void consume(stream_ring &ring, const stream_launch &all)
{
    stored_part stored = {-1};
    for (int i = 0;; i++) {
        stream_item item = queue_at(ring, i);
        if (item.down || item.n == 0)
            count_stored(all.job[0], stored);
        if (item.n == 0)
            return;
        if constexpr (is_there<D>)
            if (item.down)
                consume_rows<D, true, NT_MAX>(ring, all.job[1], item, stored);
        if constexpr (is_there<G>)
            if (!item.down)
                consume_rows<G, false, NT_MAX>(ring, all.job[0], item, stored);
    }
}

/* ---- the launch ---- */

/* By all threads of a block. */
static __device__ __forceinline__ void ring_init(stream_ring &ring, unsigned char *shared,
                                                 const stream_launch &all)
{
    ring.bytes = all.stage_bytes;
    ring.n_stage = all.n_stage;
    ring.stages = shared;
    ring.item = (stream_item *)(shared + all.n_stage * all.stage_bytes);
    ring.known = (uint64_t *)(ring.item + QUEUE_ITEMS);
    ring.full = ring.known + QUEUE_ITEMS;
    ring.empty = ring.full + MAX_STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < all.n_stage; i++) {
            dg_mbar_init(ring.full + i, FULL_ARRIVALS);
            dg_mbar_init(ring.empty + i, CONSUMERS);
        }
        for (int i = 0; i < QUEUE_ITEMS; i++)
            dg_mbar_init(ring.known + i, 1);
        dg_mbar_init_fence();
    }
    __syncthreads();
}

template <class G, class D, int NT_MAX>
static __device__ __forceinline__ void stream_items(const stream_launch &all)
{
    DG_SHARED(shared);
    stream_ring ring = {};
    int warp = (int)threadIdx.x / 32;
    ring_init(ring, shared, all);
    if (warp >= WEIGHTS_WARP) {
        warpgroup_fewer_registers<PRODUCER_REGISTERS>();
        if (warp > WEIGHTS_WARP)
            gather_items<G, D, NT_MAX>(ring, all);
        else if (threadIdx.x % 32 < WEIGHTS_LANES)
            copy_items<G, D>(ring, all);
    } else {
        warpgroup_more_registers<CONSUMER_REGISTERS>();
        dg_grid_wait();
        /* Here and not at the end, where lanes without work come without having waited. The next
         * kernel's blocks take the places of those that are done. */
        dg_grid_launch_next();
        if (warp < CONSUMERS)
            consume<G, D, NT_MAX>(ring, all);
    }
}

template <class G, class D, int NT_MAX>
static __global__ void __launch_bounds__(STREAM_THREADS, 1) stream_experts(stream_launch all)
{
    stream_items<G, D, NT_MAX>(all);
}

/* As much of a group as leaves room for two stages. Returns a stage's bytes. */
template <class F, bool DOWN, int NT_MAX> static int fit_stage(dg_stream_job &job, int most)
{
    job.down = DOWN;
    job.share = job.tiles;
    while (job.share > 1 && most / stage_bytes<F, NT_MAX>(job) < 2)
        job.share = (job.share + 1) / 2;
    return stage_bytes<F, NT_MAX>(job);
}

/* As many stages as there is room for. */
template <class G, class D, int NT_MAX>
static cudaError_t launch_stream(cudaStream_t stream, stream_launch all)
{
    int device = 0, n_sm = 1, most = 48 << 10, items = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    most -= RING_BYTES;
    if constexpr (is_there<G>) {
        all.stage_bytes = fit_stage<G, false, NT_MAX>(all.job[0], most);
        items += items_of_piece(all.job[0]);
    }
    if constexpr (is_there<D>) {
        int bytes = fit_stage<D, true, NT_MAX>(all.job[1], most);
        all.stage_bytes = bytes > all.stage_bytes ? bytes : all.stage_bytes;
        items += items_of_piece(all.job[1]);
    }
    all.n_stage = min(most / all.stage_bytes, (int)MAX_STAGES);
    if (all.n_stage < 1)
        return cudaErrorInvalidConfiguration;
    const dg_stream_job &any = all.job[is_there<G> ? 0 : 1];
    items *= min(any.n_pair, dg_most_pieces(any.n_pair, any.n_expert));
    return DG_LAUNCH_IF(!any.follows_stream, (stream_experts<G, D, NT_MAX>),
                        dim3((unsigned)min(n_sm, items)), STREAM_THREADS,
                        (size_t)(all.n_stage * all.stage_bytes + RING_BYTES), stream, all);
}

/* Gate and up alone, or down. */
template <class F, bool DOWN, int NT_MAX>
static cudaError_t launch_half(cudaStream_t stream, const dg_stream_job &job)
{
    stream_launch all = {};
    all.job[DOWN] = job;
    if constexpr (DOWN)
        return launch_stream<void, F, NT_MAX>(stream, all);
    else
        return launch_stream<F, void, NT_MAX>(stream, all);
}

#endif
