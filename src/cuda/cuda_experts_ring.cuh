/* The ring of stages of cuda_experts_groups.cu: what a stage holds, which item of work comes next,
 * and the warpgroup that fills it. */
#ifndef DG_CUDA_CUDA_EXPERTS_RING_CUH
#define DG_CUDA_CUDA_EXPERTS_RING_CUH

#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_panels.cuh"

enum {
    SIDE_TILES = 8, /* of each of an item's two sides */
    GROUP_TILES = 4,
    FILLERS = 128,            /* two warps of them where rows lie sorted */
    GATHERERS = FILLERS - 32, /* the others: the first warp has weights to copy */
    GATHERED = GATHERERS / 8, /* rows at a time, a thread for each 16 bytes of 128 */
    MULTIPLIERS = 256,
    GROUP_THREADS = FILLERS + MULTIPLIERS,
    MOST_STAGES = 6,
    X_BYTES = DG_GROUP_ROWS * SLAB_ROW_BYTES,
    OUT_BYTES = DG_GROUP_ROWS * SLAB_ROW_BYTES, /* 64 channels of a warpgroup's rows */
    BOX_ROWS = 32,                              /* that the copy engine takes at once */
};

/* What a block works at; thread 0 of those that fill finds it out. */
struct group_item {
    int expert, first, n; /* rows, as places; n = 0: nothing, and never again */
    int tile[2], n_tile[2], unused;
};

template <class F> struct group_stage {
    static constexpr int TILE_BYTES = packed_unit<F>::BYTES,
                         BYTES = 2 * SIDE_TILES * TILE_BYTES + X_BYTES,
                         FITTING = ((226 << 10) - 2 * OUT_BYTES) / BYTES,
                         STAGES = FITTING < MOST_STAGES ? FITTING : (int)MOST_STAGES;
    static_assert(F::UNIT == 64, "a stage has a unit of k");
    static_assert(BYTES % 1024 == 0, "slabs are aligned");
};

struct group_control {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    group_item item[MOST_STAGES], next[2];
};

template <class F> struct group_ring {
    static constexpr int STAGES = group_stage<F>::STAGES;
    unsigned char *memory;
    group_control *control;
    int slot, turn;
    __device__ __forceinline__ unsigned char *x(void) const
    {
        return memory + slot * group_stage<F>::BYTES;
    }
    __device__ __forceinline__ unsigned char *w(int side, int tile) const
    {
        return x() + X_BYTES + (side * SIDE_TILES + tile) * group_stage<F>::TILE_BYTES;
    }
    __device__ __forceinline__ unsigned char *results(int group) const
    {
        return memory + STAGES * group_stage<F>::BYTES + group * OUT_BYTES;
    }
    __device__ __forceinline__ uint64_t *full(void) const
    {
        return control->full + slot;
    }
    __device__ __forceinline__ void advance(void)
    {
        if (++slot == STAGES) {
            slot = 0;
            turn++;
        }
    }
};

template <class F> static constexpr int shared_bytes(void)
{
    return group_stage<F>::STAGES * group_stage<F>::BYTES + 2 * OUT_BYTES +
           (int)sizeof(group_control);
}

/* ---- items ---- */

/* Tiles whose channels are wanted. */
static __host__ __device__ __forceinline__ int wanted_tiles(const dg_stream_job &job)
{
    return min((job.out.ld + 15) / 16, job.n_group * job.tiles);
}

static __host__ __device__ __forceinline__ int items_of_piece(const dg_stream_job &job)
{
    int each = job.down ? 2 * SIDE_TILES : SIDE_TILES;
    return (wanted_tiles(job) + each - 1) / each;
}

/* Number `number` of all items, or nothing. Those with fewer tiles than the others come last: the
 * blocks then end together. */
[[maybe_unused]] static __device__ __forceinline__ group_item item_at(const dg_stream_job &job,
                                                                      int number)
{
    int tiles = wanted_tiles(job), whole = tiles / (job.down ? 2 * SIDE_TILES : SIDE_TILES),
        n_piece = __ldcg(job.n_piece), rest = number - n_piece * whole, within = whole;
    group_item item = {};
    if (rest < 0) {
        within = number % whole;
        rest = number / whole;
    } else if (whole == items_of_piece(job) || rest >= n_piece) {
        return item;
    }
    uint4 piece = __ldcg((const uint4 *)(job.piece + rest));
    item.expert = (int)piece.x;
    item.first = (int)piece.y;
    item.n = (int)piece.z;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        item.tile[side] = (job.down ? 2 * within + side : within) * SIDE_TILES;
        item.n_tile[side] = max(0, min((int)SIDE_TILES, tiles - item.tile[side]));
    }
    return item;
}

/* ---- the warpgroup that fills the ring ---- */

/* What a thread copies of an item: the first one weights, gatherers a piece of 16 bytes of rows
 * GATHERED apart. */
struct fill_source {
    const unsigned char *w[2], *x; /* w: the first tile of each side, at the next unit */
    int room[2];                   /* tiles from there on that lie together */
    uint32_t row[(DG_GROUP_ROWS + GATHERED - 1) / GATHERED]; /* where they begin, in 16 bytes */
    int n_row;
};

template <class F>
static __device__ __forceinline__ void find_weights(fill_source &from, const dg_stream_job &job,
                                                    const group_item &item)
{
    constexpr size_t BYTES = packed_unit<F>::BYTES;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        int group = item.tile[side] / job.tiles, tile = item.tile[side] % job.tiles;
        from.room[side] = job.tiles - tile;
        from.w[side] =
            job.w[side] + (size_t)item.expert * job.mat_bytes +
            ((size_t)group * (size_t)job.n_unit * (size_t)job.tiles + (size_t)tile) * BYTES;
    }
}

[[maybe_unused]] static __device__ __forceinline__ void find_rows(fill_source &from,
                                                                  const dg_stream_job &job,
                                                                  const group_item &item,
                                                                  int thread)
{
    from.x = job.x + thread % 8 * 16;
    from.n_row = min((item.n + 7) / 8 * 8, (int)DG_GROUP_ROWS) - thread / 8;
#pragma unroll
    for (int i = 0; i * GATHERED < DG_GROUP_ROWS; i++) {
        int place = item.first + min(GATHERED * i + thread / 8, item.n - 1);
        from.row[i] = (uint32_t)job.row[place] * (uint32_t)(job.x_bytes / 16);
    }
}

template <class F> static __device__ __forceinline__ void await_empty(const group_ring<F> &ring)
{
    if (ring.turn > 0)
        dg_mbar_wait(ring.control->empty + ring.slot, (ring.turn - 1) & 1);
}

/* By one thread, in as few copies as there can be: each costs about 100 cycles before the next,
 * and one a tile took longer than the products. */
template <class F>
static __device__ __forceinline__ void fill_weights(const group_ring<F> &ring, fill_source &from,
                                                    const dg_stream_job &job,
                                                    const group_item &item)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const unsigned char *w = from.w[side];
        int room = from.room[side];
        for (int tile = 0; tile < item.n_tile[side]; tile += room, room = job.tiles) {
            int n = min(room, item.n_tile[side] - tile);
            if (job.read_once)
                dg_bulk_g2s<true>(ring.w(side, tile), w, (uint32_t)(n * BYTES), ring.full());
            else
                dg_bulk_g2s(ring.w(side, tile), w, (uint32_t)(n * BYTES), ring.full());
            w += ((size_t)room + (size_t)(job.n_unit - 1) * (size_t)job.tiles) * BYTES;
        }
        from.w[side] += (size_t)job.tiles * BYTES;
    }
}

/* By one thread: boxes of sorted rows. */
template <class F>
static __device__ __forceinline__ void fill_boxes(const group_ring<F> &ring,
                                                  const dg_tensor_map &map, const group_item &item,
                                                  int unit)
{
    for (int row = 0; row < item.n; row += BOX_ROWS)
        dg_tensor_g2s(ring.x() + row * SLAB_ROW_BYTES, map, unit * SLAB_VALUES, item.first + row,
                      ring.full());
}

template <class F>
static __device__ __forceinline__ void gather_rows(const group_ring<F> &ring, fill_source &from,
                                                   int thread)
{
    /* of every second one the pieces are exchanged alike */
    unsigned char *x[2] = {
        settled_address(ring.x() + slab_offset(thread / 8, thread % 8)),
        settled_address(ring.x() + slab_offset(thread / 8 + GATHERED, thread % 8))};
    static_assert(2 * GATHERED % 8 == 0, "pieces of rows are exchanged by their number of eight");
#pragma unroll
    for (int i = 0; i * GATHERED < DG_GROUP_ROWS; i++)
        if (i * GATHERED < from.n_row)
            dg_cp_async16(x[i % 2] + i / 2 * 2 * GATHERED * SLAB_ROW_BYTES,
                          from.x + (size_t)from.row[i] * 16);
    from.x += SLAB_ROW_BYTES;
    dg_cp_async_mbar_arrive(ring.full());
}

/* What thread 0 copies of a stage: weights, and how many bytes will come. */
template <class F>
static __device__ __forceinline__ void begin_stage(const group_ring<F> &ring, fill_source &from,
                                                   const dg_stream_job &job, const group_item &item,
                                                   uint32_t x_bytes, bool first)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
    if (first)
        ring.control->item[ring.slot] = item;
    dg_mbar_expect(ring.full(), (uint32_t)((item.n_tile[0] + item.n_tile[1]) * BYTES) + x_bytes);
    fill_weights(ring, from, job, item);
}

/* Weights of an item's first stages into an empty ring, while the kernel before still makes the
 * rows. Returns how many. */
template <class F>
static __device__ __forceinline__ int fill_ahead(group_ring<F> ring, fill_source &from,
                                                 const dg_stream_job &job, const group_item &item,
                                                 uint32_t x_bytes)
{
    int n = min((int)group_stage<F>::STAGES, job.n_unit);
    for (int i = 0; i < n; i++, ring.advance())
        begin_stage(ring, from, job, item, x_bytes, i == 0);
    return n;
}

/* The next item is asked for while this one is filled in, so that no copy waits for the answer.
 * `first`: of sorted rows nothing may be there yet but weights. */
template <class F, bool SORTED>
static __device__ __forceinline__ void fill_item(group_ring<F> &ring, const dg_stream_job &job,
                                                 const dg_tensor_map &map, const group_item &item,
                                                 group_item *next, bool first, int thread)
{
    fill_source from;
    group_item following = {};
    int ahead = 0, ask = min(2, job.n_unit - 1);
    uint32_t boxes = SORTED ? (uint32_t)((item.n + BOX_ROWS - 1) / BOX_ROWS) : 0,
             x_bytes = boxes * BOX_ROWS * SLAB_ROW_BYTES;
    if (thread == 0)
        find_weights<F>(from, job, item);
    if (SORTED && first) {
        if (thread == 0)
            ahead = fill_ahead(ring, from, job, item, x_bytes);
        dg_grid_wait();
    }
    int taken = thread == 0 ? atomicAdd(job.next, 1) : 0;
    if (!SORTED && thread >= 32)
        find_rows(from, job, item, thread - 32);
    for (int unit = 0; unit < job.n_unit; unit++, ring.advance()) {
        await_empty(ring);
        if (thread == 0 && unit >= ahead)
            begin_stage(ring, from, job, item, x_bytes, unit == 0);
        if (!SORTED && thread >= 32)
            gather_rows(ring, from, thread - 32);
        if (SORTED && thread == 32)
            fill_boxes(ring, map, item, unit);
        if (thread == 0 && unit == ask)
            following = item_at(job, (int)gridDim.x + taken);
    }
    if (thread == 0)
        *next = following;
}

/* Where rows lie sorted the first thread of each of two warps fills, and which rows an expert has
 * was known before the kernel before began. */
template <class F, bool SORTED>
static __device__ __forceinline__ void fill(group_ring<F> ring, const dg_stream_job &job,
                                            const dg_tensor_map &map)
{
    int thread = (int)threadIdx.x - MULTIPLIERS, turn = 0;
    if (SORTED && thread >= 64)
        return;
    if (!SORTED)
        dg_grid_wait();
    group_item item = item_at(job, (int)blockIdx.x);
    for (bool first = true; item.n > 0; turn ^= 1, first = false) {
        fill_item<F, SORTED>(ring, job, map, item, ring.control->next + turn, first, thread);
        dg_bar_sync(1, SORTED ? 64 : FILLERS);
        item = ring.control->next[turn];
    }
    await_empty(ring);
    if (thread == 0) {
        ring.control->item[ring.slot] = group_item{};
        dg_mbar_arrive(ring.full());
    }
    if (!SORTED && thread >= 32)
        dg_mbar_arrive(ring.full());
}

#endif
