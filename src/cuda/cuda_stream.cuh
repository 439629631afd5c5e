/* One launch over all experts, gate and up or down, for experts with few rows: weights are streamed
 * and each is read once for up to 32 or 64 rows.
 *
 * A block for each multiprocessor takes items (a piece of an expert's rows, a share of its tiles),
 * experts with most rows first, to and fro over the blocks. Four warps fill a ring of stages: one
 * thread copies weights in contiguous packed pieces, three warps gather rows. (One warp for both
 * needed some 1,300 cycles a stage, however small: with four-bit weights that was the limit.) The
 * others have two 16-row tiles of weights each (gate and up of the same channels, or two of down)
 * and multiply them with up to 8 NT_MAX rows. A row's results come from its own column of the mma,
 * in one chain of ascending k: they do not depend on the rows beside it, nor on who computes the
 * item.
 *
 * Pieces of one expert are neighbours in the list, so that their weights come from the second-level
 * cache all but once.
 *
 * Down begins while gate and up end: which rows an expert has was known before those began, and
 * weights always are, so that a block fills its ring with weights before it waits for h. */
#ifndef DG_CUDA_CUDA_STREAM_CUH
#define DG_CUDA_CUDA_STREAM_CUH

#include "cuda/cuda_bytes.cuh"
#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_gated_bytes.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_int4.cuh"
#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_wgmma.cuh"

/* Warps: those that multiply, 11 of them with groups of 11 tiles; one that copies weights; those
 * that gather rows. The last four are a warpgroup and leave registers to the others. */
enum {
    CONSUMERS = 12,
    WEIGHTS_WARP = CONSUMERS,
    GATHERERS = 3,
    STREAM_THREADS = 32 * (WEIGHTS_WARP + 1 + GATHERERS),
    CONSUMER_REGISTERS = 152,
    PRODUCER_REGISTERS = 56,
    MAX_STAGES = 8,
};

template <class F> struct stream_row {
    static constexpr bool IS_BYTES = false, QUADS = false; /* QUADS: of gate and up */
    static constexpr int UNIT_BYTES = F::UNIT * 2;         /* of a row of x */
    static constexpr float STEP = 1; /* what sums have to be multiplied with */
};

template <> struct stream_row<format_q4_k_bytes> {
    static constexpr bool IS_BYTES = true, QUADS = true;
    static constexpr int UNIT_BYTES = BYTE_UNIT;
    static constexpr float STEP = 1;
};

template <> struct stream_row<format_q5_0_bytes> {
    static constexpr bool IS_BYTES = true, QUADS = false;
    static constexpr int UNIT_BYTES = BLOCKS_UNIT;
    static constexpr float STEP = format_q5_0_bytes::STEP;
};

template <> struct stream_row<format_int4> {
    static constexpr bool IS_BYTES = true, QUADS = true;
    static constexpr int UNIT_BYTES = BLOCKS_UNIT;
    static constexpr float STEP = 1;
};

/* A unit of products of bytes. */
template <class F, int NT_MAX, int NT> struct byte_unit {
    static __device__ __forceinline__ uint32_t multiply(float acc[2][NT][4],
                                                        const unsigned char *const unit[2],
                                                        const unsigned char *x)
    {
        if constexpr (F::UNIT == 64)
            return multiply_blocks<F, NT_MAX, NT>(acc, unit, x);
        else
            return multiply_bytes<NT_MAX, NT>(acc, unit, x);
    }
};

template <int NT_MAX, int NT> struct byte_unit<format_int4, NT_MAX, NT> {
    static __device__ __forceinline__ uint32_t multiply(float acc[2][NT][4],
                                                        const unsigned char *const unit[2],
                                                        const unsigned char *x)
    {
        return multiply_int4<NT_MAX, NT>(acc, unit, x);
    }
};

/* Units of k in a stage: 128 values, or the 256 of a long block. With 64 Q8_0 took 28 % longer;
 * with 256 gate and up of four bits take 76 us instead of 91 and down 50 instead of 59, Q5_0's down
 * 57 instead of 66. */
template <class F> struct stream_stage {
    static constexpr bool LONG = F::UNIT == 64 && stream_row<F>::IS_BYTES;
    static constexpr int UNITS = LONG ? 4 : F::UNIT == 64 ? 2 : 1;
    static constexpr int K16 = UNITS * stream_row<F>::UNIT_BYTES / 16; /* pieces of a row of x */
};

/* Tiles of a side that an item has at most. */
static __host__ __device__ __forceinline__ int item_tiles(const dg_stream_job &job)
{
    return job.span * job.share;
}

/* Weights of a stage: of a side, of each group of it the units one after the other. */
template <class F>
static __host__ __device__ __forceinline__ int stage_weights(const dg_stream_job &job)
{
    return 2 * stream_stage<F>::UNITS * item_tiles(job) * packed_unit<F>::BYTES;
}

template <class F, int NT_MAX>
static __host__ __device__ __forceinline__ int stage_bytes(const dg_stream_job &job)
{
    return stage_weights<F>(job) + stream_stage<F>::K16 * NT_MAX * 128;
}

/* What a block works at; the producer finds it out. */
struct stream_item {
    int expert, first, n;       /* its rows, as places; n = 0: nothing, and never again */
    int n_group;                /* so many groups from these on */
    int group[2], tile, n_tile; /* of w[0] and w[1], and the share of their tiles */
};

struct stream_ring {
    unsigned char *stages;
    uint64_t *full, *empty;
    stream_item *item; /* of each stage */
    uint32_t *most;    /* largest values, see store_gated_bytes() */
    int slot, turn;
};

/* Behind the stages. */
enum {
    RING_BYTES =
        MAX_STAGES * (2 * (int)sizeof(uint64_t) + (int)sizeof(stream_item)) + GATED_MOST_BYTES
};

static __device__ __forceinline__ void ring_advance(stream_ring &ring, int n_stage)
{
    if (++ring.slot == n_stage) {
        ring.slot = 0;
        ring.turn++;
    }
}

/* ---- items ---- */

static __host__ __device__ __forceinline__ int shares_of_group(const dg_stream_job &job)
{
    return (job.tiles + job.share - 1) / job.share;
}

/* Groups, or of down pairs of groups, one for each side. */
static __host__ __device__ __forceinline__ int columns_of(const dg_stream_job &job)
{
    return job.down ? (job.n_group + 1) / 2 : job.n_group;
}

static __host__ __device__ __forceinline__ int items_of_piece(const dg_stream_job &job)
{
    return (columns_of(job) + job.span - 1) / job.span * shares_of_group(job);
}

/* Number `number` of all items: its piece, or -1, and which of the piece's items it is. Those with
 * fewer groups than the others come last: the blocks then end together. */
struct item_place {
    int piece, within;
};

static __device__ __forceinline__ item_place place_of(const dg_stream_job &job, int number,
                                                      int n_piece)
{
    int whole = columns_of(job) / job.span * shares_of_group(job), rest = number - n_piece * whole;
    if (rest < 0)
        return item_place{number / whole, number % whole};
    return item_place{rest < n_piece && columns_of(job) % job.span ? rest : -1, whole};
}

/* That item, or nothing. */
static __device__ __forceinline__ stream_item item_at(const dg_stream_job &job, int number,
                                                      int n_piece)
{
    item_place place = place_of(job, number, n_piece);
    int shares = shares_of_group(job), column = place.within / shares * job.span;
    stream_item item = {};
    if (place.piece < 0)
        return item;
    /* past the first-level cache: it may be read before dg_grid_wait */
    uint4 words = __ldcg((const uint4 *)(job.piece + place.piece));
    item.expert = (int)words.x;
    item.first = (int)words.y;
    item.n = (int)words.z;
    item.n_group = min(job.span, columns_of(job) - column);
    item.group[0] = job.down ? 2 * column : column;
    item.group[1] = job.down ? min(2 * column + 1, job.n_group - 1) : column;
    item.tile = place.within % shares * job.share;
    item.n_tile = min(job.share, job.tiles - item.tile);
    return item;
}

/* Token tiles that are multiplied for n rows: in steps, so that there are four variants of the
 * loop. */
template <int NT_MAX> static __device__ __forceinline__ int token_tiles(int n)
{
    constexpr int STEP = NT_MAX / 4;
    return min((n + 8 * STEP - 1) / (8 * STEP) * STEP, NT_MAX);
}

/* ---- weights ---- */

/* An item's weights of the unit that comes next, of w[0] and w[1]. */
struct weight_source {
    const unsigned char *side[2];
    size_t unit_bytes, group_bytes; /* from a unit to the next, from a group */
};

template <class F>
static __device__ __forceinline__ weight_source weights_of(const dg_stream_job &job,
                                                           const stream_item &item)
{
    constexpr size_t BYTES = packed_unit<F>::BYTES;
    weight_source from;
    from.unit_bytes = (size_t)job.tiles * BYTES;
    from.group_bytes = (size_t)job.n_unit * from.unit_bytes;
    for (int side = 0; side < 2; side++)
        from.side[side] = job.w[side] + (size_t)item.expert * job.mat_bytes +
                          (size_t)item.group[side] * from.group_bytes + (size_t)item.tile * BYTES;
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
    dg_mbar_expect(full, 2 * (uint32_t)(item.n_group * n_copy) * bytes);
#pragma unroll 1
    for (int i = 0; i < 2 * item.n_group; i++) {
        int side = i & 1, group = i / 2;
        const unsigned char *units = from.side[side] + (size_t)group * from.group_bytes;
#pragma unroll 1
        for (int u = 0; u < n_copy; u++)
            dg_bulk_g2s<true>(to + ((side * job.span + group) * UNITS + u) * job.share * BYTES,
                              units + (size_t)u * from.unit_bytes, bytes, full);
    }
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
    for (int i = 0; i < 2 * item.n_group * n_unit; i++) {
        int side = i & 1, group = i / 2 / n_unit, u = i / 2 % n_unit;
        unsigned char *piece = to + ((side * job.span + group) * UNITS + u) * job.share * BYTES;
        const unsigned char *unit =
            from.side[side] + (size_t)group * from.group_bytes + (size_t)u * from.unit_bytes;
        for (int k = (int)threadIdx.x % 32 * 16; k < item.n_tile * BYTES; k += 512)
            dg_cp_async16(piece + k, unit + k);
    }
    dg_cp_async_mbar_arrive(full);
}
#endif

/* Of those that copy weights and those that gather rows. */
enum { FULL_ARRIVALS = WEIGHTS_LANES + 32 * GATHERERS };

/* The ring's next stage, when nobody reads it any more. */
static __device__ __forceinline__ void ring_take(const stream_ring &ring)
{
    if (ring.turn > 0)
        dg_mbar_wait(ring.empty + ring.slot, (ring.turn - 1) & 1);
}

/* The item's number `round` of this block's: to and fro, so that no block has the busiest expert of
 * every round. */
static __device__ __forceinline__ int item_number(int round)
{
    int block = (int)blockIdx.x, n_block = (int)gridDim.x;
    return round * n_block + (round & 1 ? n_block - 1 - block : block);
}

/* A stage is where an item begins; consumers look there. */
static __device__ __forceinline__ void ring_begin(const stream_ring &ring, const stream_item &item)
{
    if (threadIdx.x % 32 == 0)
        ring.item[ring.slot] = item;
}

template <class F, int NT_MAX>
static __device__ __forceinline__ void copy_item(stream_ring &ring, const dg_stream_job &job,
                                                 const stream_item &item)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    int bytes = stage_bytes<F, NT_MAX>(job);
    weight_source weights = weights_of<F>(job, item);
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        ring_take(ring);
        if (unit == 0)
            ring_begin(ring, item);
        copy_weights<F>(ring.stages + ring.slot * bytes, ring.full + ring.slot, job, weights, item,
                        min(UNITS, job.n_unit - unit));
        for (int side = 0; side < 2; side++)
            weights.side[side] += UNITS * weights.unit_bytes;
    }
}

/* Which item is next is asked for before this one is copied. Down's weights are on their way while
 * the kernel before still makes h. */
template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void copy_items(stream_ring &ring, const dg_stream_job &job)
{
    if (!DOWN)
        dg_grid_wait();
    int n_piece = __ldcg(job.n_piece);
    stream_item now = item_at(job, item_number(0), n_piece);
    for (int round = 1; now.n > 0; round++) {
        stream_item next = item_at(job, item_number(round), n_piece);
        copy_item<F, NT_MAX>(ring, job, now);
        now = next;
    }
    ring_take(ring);
    ring_begin(ring, stream_item{});
    dg_mbar_arrive(ring.full + ring.slot);
}

/* ---- rows of x ---- */

/* An item's rows of x, of each tile of 8 rows the lane's. */
template <int NT_MAX> struct gathered_item {
    int first, n, row[NT_MAX];
};

/* Of number `number` of all items, n = 0 where there is none; its rows are found later. */
template <int NT_MAX>
static __device__ __forceinline__ void find_piece(gathered_item<NT_MAX> &of,
                                                  const dg_stream_job &job, int number, int n_piece)
{
    int piece = place_of(job, number, n_piece).piece;
    of.n = 0;
    if (piece >= 0) {
        uint4 words = __ldcg((const uint4 *)(job.piece + piece));
        of.first = (int)words.y;
        of.n = (int)words.z;
    }
}

template <int NT_MAX>
static __device__ __forceinline__ void find_rows(gathered_item<NT_MAX> &of,
                                                 const dg_stream_job &job)
{
#pragma unroll
    for (int j = 0; j < NT_MAX; j++) {
        int place = of.first + min(j * 8 + (int)threadIdx.x % 8, max(of.n - 1, 0));
        of.row[j] = job.row ? job.row[place] : place;
    }
}

/* Rows of x in a stage: 8 rows x 16 bytes side by side, next the other tiles of 8 rows, then the
 * next 16 bytes of k. The warps take turns at 64 bytes of all rows. find_next() is called on the
 * way, so that what it loads is there when this item is done. */
template <class F, int NT_MAX, class NEXT>
static __device__ __forceinline__ void gather_item(stream_ring &ring, const dg_stream_job &job,
                                                   const gathered_item<NT_MAX> &of, NEXT find_next)
{
    constexpr int UNITS = stream_stage<F>::UNITS, ROW = stream_row<F>::UNIT_BYTES,
                  TURNS = (UNITS * ROW + 64 * GATHERERS - 1) / (64 * GATHERERS);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 - WEIGHTS_WARP - 1;
    int n = of.n, n_tile = token_tiles<NT_MAX>(n), piece = warp * 4 + lane / 8;
    int bytes = stage_bytes<F, NT_MAX>(job);
    int x_at = stage_weights<F>(job) + piece * NT_MAX * 128 + lane % 8 * 16;
    const unsigned char *from[NT_MAX];
#pragma unroll
    for (int j = 0; j < NT_MAX; j++)
        from[j] = job.x + (size_t)of.row[j] * job.x_bytes + piece * 16;
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        int n_piece = min(UNITS, job.n_unit - unit) * ROW / 16;
        unsigned char *x = ring.stages + ring.slot * bytes + x_at;
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
        if (unit == 0)
            find_next();
    }
}

template <class F, int NT_MAX>
static __device__ __forceinline__ void gather_items(stream_ring &ring, const dg_stream_job &job)
{
    gathered_item<NT_MAX> now = {}, next = {};
    dg_grid_wait();
    int n_piece = __ldcg(job.n_piece);
    find_piece(now, job, item_number(0), n_piece);
    find_rows(now, job);
    for (int round = 1; now.n > 0; round++) {
        find_piece(next, job, item_number(round), n_piece);
        gather_item<F, NT_MAX>(ring, job, now, [&](void) { find_rows(next, job); });
        now = next;
    }
    ring_take(ring);
    dg_mbar_arrive(ring.full + ring.slot);
}

/* ---- a consumer ---- */

/* Adds up 32 values of k. Returns something that needs all that it loaded. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_block(float acc[2][NT][4],
                                                          const unsigned char *const chunk[2],
                                                          const typename F::scales scales[2],
                                                          const unsigned char *x, int block)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t a[2][2][4], loaded = 0;
    typename F::raw raw[2];
#pragma unroll
    for (int m = 0; m < 2; m++)
        F::load(raw[m], chunk[m], block & 1, lane);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        F::convert(a[m], raw[m], scales[m], block);
        loaded ^= a[m][0][0] ^ a[m][1][3];
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[4];
        dg_ldmatrix_x4(b, x + j * 128);
        loaded ^= b[3];
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int m = 0; m < 2; m++)
                mma_of<F::FORM>(acc[m][j], a[m][s], b + 2 * s);
    }
    return loaded;
}

/* A unit, for the warp's tile of each side. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_unit(float acc[2][NT][4],
                                                         const unsigned char *const unit[2],
                                                         const unsigned char *x)
{
    if constexpr (stream_row<F>::IS_BYTES) {
        return byte_unit<F, NT_MAX, NT>::multiply(acc, unit, x);
    } else {
        int lane = (int)threadIdx.x % 32;
        typename F::scales scales[2];
        uint32_t loaded = 0;
        x += lane / 8 * NT_MAX * 128 + lane % 8 * 16;
#pragma unroll
        for (int m = 0; m < 2; m++)
            F::begin(scales[m], unit[m], lane);
#pragma unroll
        for (int block = 0; block < F::UNIT / 32; block++) {
            const unsigned char *chunk[2] = {unit[0] + F::HEAD + block / 2 * F::CHUNK,
                                             unit[1] + F::HEAD + block / 2 * F::CHUNK};
            loaded = multiply_block<F, NT_MAX, NT>(acc, chunk, scales, x + block * 4 * NT_MAX * 128,
                                                   block);
        }
        return loaded;
    }
}

/* Where a warp's tile of each side lies in a stage, and the next unit's behind it. */
struct tile_place {
    int side[2], step;
};

template <class F> static __device__ __forceinline__ tile_place tile_of(const dg_stream_job &job)
{
    constexpr int UNITS = stream_stage<F>::UNITS, BYTES = packed_unit<F>::BYTES;
    int warp = (int)threadIdx.x / 32,
        first = (warp / job.share * UNITS * job.share + warp % job.share) * BYTES;
    return tile_place{{first, first + stage_weights<F>(job) / 2}, job.share * BYTES};
}

/* WHOLE: the stage has all its units, so that the loads of one can go before the products of
 * another. */
template <class F, int NT_MAX, int NT, bool WHOLE>
static __device__ __forceinline__ uint32_t multiply_units(float acc[2][NT][4],
                                                          const unsigned char *stage,
                                                          const unsigned char *x,
                                                          const tile_place &tile, int n_unit)
{
    uint32_t loaded = 0;
#pragma unroll
    for (int u = 0; u < stream_stage<F>::UNITS;
         u++, x += stream_row<F>::UNIT_BYTES / 16 * NT_MAX * 128) {
        if (!WHOLE && u >= n_unit)
            break;
        const unsigned char *unit[2] = {stage + tile.side[0] + u * tile.step,
                                        stage + tile.side[1] + u * tile.step};
        loaded ^= multiply_unit<F, NT_MAX, NT>(acc, unit, x);
    }
    return loaded;
}

template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_stage(float acc[2][NT][4],
                                                          const unsigned char *stage,
                                                          const unsigned char *x,
                                                          const tile_place &tile, int n_unit)
{
    if (stream_row<F>::IS_BYTES && NT <= 4 && n_unit == stream_stage<F>::UNITS)
        return multiply_units<F, NT_MAX, NT, true>(acc, stage, x, tile, n_unit);
    return multiply_units<F, NT_MAX, NT, false>(acc, stage, x, tile, n_unit);
}

/* Two channels of a place at a time, times `all`. Every lane takes part in every exchange: only
 * stores depend on what there is. */
template <bool DOWN, dg_cuda_form FORM, int NT>
static __device__ __forceinline__ void store_results_as(const dg_stream_job &job,
                                                        const stream_item &item, float all,
                                                        const float factor[2],
                                                        const float acc[2][NT][4])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int place = lane % 4 * 2 + lane / 4 % 2, left = item.n - place;
#pragma unroll
    for (int m = 0; m < (DOWN ? 2 : 1); m++) {
        int tile = (item.group[m] + warp / job.share) * job.tiles + item.tile + warp % job.share;
        int channel = tile * 16 + (lane / 4 & ~1);
        int wide = m && item.group[1] == item.group[0] ? 0 : job.out.ld - channel;
        size_t at = (size_t)(item.first + place) * (size_t)job.out.ld + (size_t)channel;
#pragma unroll
        for (int j = 0; j < NT; j++, at += 8 * (size_t)job.out.ld)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                float v[2];
#pragma unroll
                for (int t = 0; t < 2; t++)
                    v[t] = all * (DOWN ? acc[m][j][i + t] * factor[m]
                                       : gated(acc[0][j][i + t] * factor[0],
                                               acc[1][j][i + t] * factor[1]));
                channel_pair pair = pair_channels(v[0], v[1]);
                if (j * 8 < left && i * 4 < wide)
                    store_pair(job.out.data, FORM, at + (size_t)(i * 4), pair);
            }
    }
}

/* Down's results are bfloat16. */
template <bool DOWN, int NT>
static __device__ __forceinline__ void store_results(const dg_stream_job &job,
                                                     const stream_item &item, float all,
                                                     const float factor[2],
                                                     const float acc[2][NT][4])
{
    if (DOWN || job.out.form == DG_CUDA_BF16)
        store_results_as<DOWN, DG_CUDA_BF16, NT>(job, item, all, factor, acc);
    else if (job.out.form == DG_CUDA_F16)
        store_results_as<DOWN, DG_CUDA_F16, NT>(job, item, all, factor, acc);
    else
        store_results_as<DOWN, DG_CUDA_F32, NT>(job, item, all, factor, acc);
}

/* Where a group is four warps' and its results may be wanted as bytes. */
template <class F, bool DOWN> constexpr bool in_quads = !DOWN && stream_row<F>::QUADS;

/* The item's weights with NT tiles of 8 rows. Warps without a tile only keep the ring going. */
template <class F, bool DOWN, int NT_MAX, int NT>
static __device__ __forceinline__ void consume_item(stream_ring &ring, const dg_stream_job &job,
                                                    const stream_item &item, int turn)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    int warp = (int)threadIdx.x / 32, bytes = stage_bytes<F, NT_MAX>(job),
        x_at = stage_weights<F>(job);
    bool active = warp / job.share < item.n_group && warp % job.share < item.n_tile;
    tile_place tile = tile_of<F>(job);
    float factor[2] = {factor_of(job.scale[0], item.expert), factor_of(job.scale[1], item.expert)};
    float acc[2][NT][4] = {};
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        const unsigned char *stage = ring.stages + ring.slot * bytes;
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
    }
    if (!active)
        return;
    float all = job.factor * stream_row<F>::STEP;
    if constexpr (in_quads<F, DOWN>) {
        if (job.bytes.out) {
            gated_place place = {item.first, item.n, item.group[0] + warp / 4, job.n_group};
            store_gated_bytes<NT>(job.bytes, place, all, factor, acc, ring.most, turn);
            return;
        }
    }
    store_results<DOWN, NT>(job, item, all, factor, acc);
}

template <class F, bool DOWN, int NT_MAX>
static __device__ __forceinline__ void consume(stream_ring &ring, const dg_stream_job &job)
{
    constexpr int STEP = NT_MAX / 4;
    for (int turn = 0;; turn ^= 1) {
        dg_mbar_wait(ring.full + ring.slot, ring.turn & 1);
        __syncwarp();
        stream_item item = ring.item[ring.slot];
        if (item.n == 0)
            return;
        switch (token_tiles<NT_MAX>(item.n) / STEP) {
        case 1:
            consume_item<F, DOWN, NT_MAX, STEP>(ring, job, item, turn);
            break;
        case 2:
            consume_item<F, DOWN, NT_MAX, 2 * STEP>(ring, job, item, turn);
            break;
        case 3:
            consume_item<F, DOWN, NT_MAX, 3 * STEP>(ring, job, item, turn);
            break;
        default:
            consume_item<F, DOWN, NT_MAX, 4 * STEP>(ring, job, item, turn);
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
    ring.most = (uint32_t *)(ring.empty + MAX_STAGES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.n_stage; i++) {
            dg_mbar_init(ring.full + i, FULL_ARRIVALS);
            dg_mbar_init(ring.empty + i, item_tiles(job));
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
    if (warp >= WEIGHTS_WARP) {
        warpgroup_fewer_registers<PRODUCER_REGISTERS>();
        if (warp > WEIGHTS_WARP)
            gather_items<F, NT_MAX>(ring, job);
        else if (threadIdx.x % 32 < WEIGHTS_LANES)
            copy_items<F, DOWN, NT_MAX>(ring, job);
    } else {
        warpgroup_more_registers<CONSUMER_REGISTERS>();
        dg_grid_wait();
        if (job.before_down) /* its blocks then take the places of those that are done */
            dg_grid_launch_next();
        if (warp < item_tiles(job))
            consume<F, DOWN, NT_MAX>(ring, job);
    }
    dg_grid_launch_next();
}

template <class F, bool DOWN, int NT_MAX>
static __global__ void __launch_bounds__(STREAM_THREADS, 1) stream_experts(dg_stream_job job)
{
    stream_items<F, DOWN, NT_MAX>(job);
}

/* As many groups, or as much of one, as leave room for two stages, and as many stages as there is
 * room for. */
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
    job.span = in_quads<F, DOWN> ? CONSUMERS / QUAD_TILES : 1;
    while (job.span > 1 && most / stage_bytes<F, NT_MAX>(job) < 2)
        job.span--;
    while (!in_quads<F, DOWN> && job.share > 1 && most / stage_bytes<F, NT_MAX>(job) < 2)
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

#endif
