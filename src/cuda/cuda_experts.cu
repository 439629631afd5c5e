/* The experts of a layer: rows sorted by expert, gate and up with the gated product, down, and the
 * sum over a row's experts.
 *
 * Weights are streamed: a block for each multiprocessor takes items (an expert, a share of its
 * tiles) in a fixed order, experts with most rows first. One warp fills a ring of stages, weights
 * by bulk copies of contiguous packed pieces, rows by gathering; the others have two 16-row tiles
 * of weights each (gate and up of the same channels, or two of down) and multiply them with up to 8
 * NT_MAX rows at a time. A row's results come from its own column of the mma, in one chain of
 * ascending k: they do not depend on the rows beside it, nor on who computes the item. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_wgmma.cuh"

enum {
    CONSUMERS = 11,
    STREAM_THREADS = 32 * (CONSUMERS + 1),
    MAX_STAGES = 8,
    SORT_THREADS = 256,
    SORT_EACH = 8,
    COMBINE_THREADS = 256
};

/* ---- sorting: a pair is (row, choice), numbered row * n_used + choice ---- */

typedef struct sort_job {
    const int32_t *expert; /* of a pair */
    int n_pair, n_used, n_expert;
    int32_t *start;       /* [n_expert + 1], places of an expert's pairs */
    int32_t *order;       /* [n_expert], experts by their number of pairs */
    int32_t *row;         /* [n_pair]: the row at a place */
    int32_t *place;       /* [n_pair]: where a pair went */
    dg_expert_tile *tile; /* [n_tile]: experts' rows in pieces, the rest of them empty */
    int n_tile;
} sort_job;

/* Pieces that so many pairs can have at most. */
static __host__ __device__ __forceinline__ int most_tiles(int n_pair, int n_expert)
{
    return n_pair / DG_EXPERT_TILE_ROWS + min(n_pair, n_expert);
}

static __device__ __forceinline__ int tiles_of(int n)
{
    return (n + DG_EXPERT_TILE_ROWS - 1) / DG_EXPERT_TILE_ROWS;
}

/* Expert `expert` has n pairs from `first` on, behind `before` pieces of lower experts. */
static __device__ __forceinline__ void list_tiles(const sort_job &job, int expert, int first, int n,
                                                  int before)
{
    for (int i = (int)threadIdx.x; i < tiles_of(n); i += (int)blockDim.x)
        job.tile[before + i] =
            dg_expert_tile{expert, first + i * DG_EXPERT_TILE_ROWS, first + n, 0};
    if (expert == job.n_expert - 1)
        for (int i = before + tiles_of(n) + (int)threadIdx.x; i < job.n_tile; i += (int)blockDim.x)
            job.tile[i] = dg_expert_tile{0, 0, 0, 0};
}

/* Sum of `value` over the threads before this one, and over all. */
static __device__ inline int block_scan(int value, int *total)
{
    __shared__ int warp_sum[SORT_THREADS / 32];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, sum = value, before = 0;
    for (int by = 1; by < 32; by *= 2) {
        int other = __shfl_up_sync(DG_ALL_LANES, sum, by);
        sum += lane >= by ? other : 0;
    }
    __syncthreads();
    if (lane == 31)
        warp_sum[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < SORT_THREADS / 32; w++) {
        before += w < warp ? warp_sum[w] : 0;
        *total += warp_sum[w];
    }
    return before + sum - value;
}

/* A block for each expert: counts the pairs of all, finds where its own begin and its rank among
 * experts, those with most pairs first, then places its own in the order of their numbers. */
static __global__ void __launch_bounds__(SORT_THREADS) sort_pairs(sort_job job)
{
    DG_SHARED(shared);
    int *count = (int *)shared, expert = (int)blockIdx.x, t = (int)threadIdx.x;
    int before = 0, rank = 0, tiles = 0, placed;
    for (int e = t; e < job.n_expert; e += SORT_THREADS)
        count[e] = 0;
    dg_grid_wait();
    __syncthreads();
    for (int i = t; i < job.n_pair; i += SORT_THREADS)
        atomicAdd(&count[job.expert[i]], 1);
    __syncthreads();
    int n = count[expert];
    for (int e = t; e < job.n_expert; e += SORT_THREADS) {
        before += e < expert ? count[e] : 0;
        tiles += e < expert ? tiles_of(count[e]) : 0;
        rank += count[e] > n || (count[e] == n && e < expert);
    }
    block_scan(before, &placed);
    block_scan(rank, &rank);
    block_scan(tiles, &tiles);
    list_tiles(job, expert, placed, n, tiles);
    if (t == 0) {
        job.start[expert] = placed;
        job.order[rank] = expert;
        if (expert == job.n_expert - 1)
            job.start[job.n_expert] = placed + n;
    }
    for (int base = 0; base < job.n_pair; base += SORT_THREADS * SORT_EACH) {
        int first = base + t * SORT_EACH, end = min(first + SORT_EACH, job.n_pair), mine = 0, total;
        for (int i = first; i < end; i++)
            mine += job.expert[i] == expert;
        int at = placed + block_scan(mine, &total);
        for (int i = first; i < end; i++)
            if (job.expert[i] == expert) {
                job.row[at] = i / job.n_used;
                job.place[i] = at++;
            }
        placed += total;
    }
}

/* ---- one launch over all experts: gate and up, or down ---- */

typedef struct stream_job {
    int n_expert;
    const int32_t *start, *order;
    const int32_t *row; /* of a place; NULL: x is sorted */
    const unsigned char *x;
    size_t x_bytes;            /* of a row */
    const unsigned char *w[2]; /* gate and up; down twice */
    const float *scale[2];
    size_t mat_bytes;
    int tiles, n_group, n_unit; /* of the packed matrices */
    int share;                  /* tiles of a group that an item has */
    int n_stage;
    bool down;
    float factor;
    dg_cuda_rows out; /* h, or down's results, both at places */
    uint32_t zero;    /* 0, which the compiler does not know */
} stream_job;

/* Units of k in a stage: 64 or 128 values, or the 256 of a long block. */
template <class F> struct stream_stage {
    static constexpr int UNITS = F::UNIT == 64 && F::CHUNK < 2048 ? 2 : 1;
    static constexpr int K16 = UNITS * F::UNIT / 8; /* pieces of 16 bytes in a row of x */
};

template <class F, int NT_MAX> static __host__ __device__ __forceinline__ int stage_bytes(int share)
{
    return 2 * stream_stage<F>::UNITS * share * packed_unit<F>::BYTES +
           stream_stage<F>::K16 * NT_MAX * 128;
}

struct stream_ring {
    unsigned char *stages;
    uint64_t *full, *empty;
    int slot, turn;
};

static __device__ __forceinline__ void ring_advance(stream_ring &ring, int n_stage)
{
    if (++ring.slot == n_stage) {
        ring.slot = 0;
        ring.turn++;
    }
}

struct stream_item {
    int expert, first, n;       /* its rows, as places */
    int group[2], tile, n_tile; /* of w[0] and w[1], and the share of them */
};

static __host__ __device__ __forceinline__ int items_of_expert(const stream_job &job)
{
    int pairs = job.down ? (job.n_group + 1) / 2 : job.n_group;
    return pairs * ((job.tiles + job.share - 1) / job.share);
}

/* Rounds go to and fro over the blocks: who has a long item in one has a short one in the next.
 * False: no more items. */
static __device__ __forceinline__ bool item_at(stream_item &item, const stream_job &job,
                                               const int *start, const int *order, int round)
{
    int each = items_of_expert(job), n_item = job.n_expert * each, blocks = (int)gridDim.x;
    int number = round * blocks + (round & 1 ? blocks - 1 - (int)blockIdx.x : (int)blockIdx.x);
    item.n = 0;
    if (round * blocks >= n_item)
        return false;
    if (number >= n_item)
        return true;
    int shares = (job.tiles + job.share - 1) / job.share, within = number % each,
        pair = within / shares;
    item.expert = order[number / each];
    item.first = start[item.expert];
    item.n = start[item.expert + 1] - item.first;
    item.group[0] = job.down ? 2 * pair : pair;
    item.group[1] = job.down ? min(2 * pair + 1, job.n_group - 1) : pair;
    item.tile = within % shares * job.share;
    item.n_tile = min(job.share, job.tiles - item.tile);
    return true;
}

/* Token tiles that a pass over n rows multiplies: in steps, so that there are four variants of the
 * loop. */
template <int NT_MAX> static __device__ __forceinline__ int token_tiles(int n)
{
    constexpr int STEP = NT_MAX / 4;
    return min((n + 8 * STEP - 1) / (8 * STEP) * STEP, NT_MAX);
}

/* ---- the producer ---- */

template <class F>
static __device__ __forceinline__ const unsigned char *weights_at(const stream_job &job,
                                                                  const stream_item &item, int side,
                                                                  int unit)
{
    size_t tile =
        ((size_t)item.group[side] * (size_t)job.n_unit + (size_t)unit) * (size_t)job.tiles +
        (size_t)item.tile;
    return job.w[side] + (size_t)item.expert * job.mat_bytes + tile * packed_unit<F>::BYTES;
}

#if !defined(__CUDACC__) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Bulk copies by one lane; the barrier counts it and, for rows of x, every lane. */
enum { FULL_ARRIVALS = 33 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *full,
                                                    const stream_job &job, const stream_item &item,
                                                    int unit, int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
    bool whole = item.n_tile == job.tiles;
    int n_copy = whole ? 1 : n_unit;
    uint32_t bytes = (uint32_t)((whole ? n_unit : 1) * item.n_tile * BYTES);
    if (threadIdx.x % 32 != 0)
        return;
    dg_mbar_expect(full, 2 * (uint32_t)n_copy * bytes);
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_copy; u++)
            dg_bulk_g2s(to + (side * stream_stage<F>::UNITS + u) * job.share * BYTES,
                        weights_at<F>(job, item, side, unit + u), bytes, full);
}
#else
/* Before sm_90: pieces of 16 bytes by all lanes, which arrive together with the rows of x. */
enum { FULL_ARRIVALS = 32 };

template <class F>
static __device__ __forceinline__ void copy_weights(unsigned char *to, uint64_t *full,
                                                    const stream_job &job, const stream_item &item,
                                                    int unit, int n_unit)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
    for (int side = 0; side < 2; side++)
        for (int u = 0; u < n_unit; u++) {
            unsigned char *piece = to + (side * stream_stage<F>::UNITS + u) * job.share * BYTES;
            const unsigned char *from = weights_at<F>(job, item, side, unit + u);
            for (int i = (int)threadIdx.x % 32 * 16; i < item.n_tile * BYTES; i += 512)
                dg_cp_async16(piece + i, from + i);
        }
}
#endif

/* Rows of x in a stage: 8 rows x 16 bytes side by side, next the other tiles of 8 rows, then the
 * next 16 bytes of k. */
template <class F, int NT_MAX>
static __device__ void produce_item(stream_ring &ring, const stream_job &job,
                                    const stream_item &item)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    int lane = (int)threadIdx.x % 32;
    for (int pass = 0; pass < item.n; pass += 8 * NT_MAX) {
        int n = item.n - pass, n_tile = token_tiles<NT_MAX>(n);
        const unsigned char *from[NT_MAX];
#pragma unroll
        for (int j = 0; j < NT_MAX; j++) {
            int place = item.first + pass + min(j * 8 + lane % 8, n - 1);
            from[j] =
                job.x + (size_t)(job.row ? job.row[place] : place) * job.x_bytes + lane / 8 * 16;
        }
        for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
            int n_unit = min(UNITS, job.n_unit - unit);
            uint64_t *full = ring.full + ring.slot;
            unsigned char *to = ring.stages + ring.slot * stage_bytes<F, NT_MAX>(job.share);
            if (ring.turn > 0) {
                dg_mbar_wait(ring.empty + ring.slot, (ring.turn - 1) & 1);
                __syncwarp();
            }
            copy_weights<F>(to, full, job, item, unit, n_unit);
            to += 2 * UNITS * job.share * packed_unit<F>::BYTES + lane / 8 * NT_MAX * 128 +
                  lane % 8 * 16;
#pragma unroll
            for (int j = 0; j < NT_MAX; j++)
                if (j < n_tile)
                    for (int k = 0; k < n_unit * F::UNIT / 32; k++)
                        dg_cp_async16_if(to + (k * 4 * NT_MAX + j) * 128,
                                         from[j] + unit * F::UNIT * 2 + k * 64,
                                         j * 8 + lane % 8 < n);
            dg_cp_async_mbar_arrive(full);
        }
    }
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
        loaded ^= a[m][1][2] ^ a[m][1][3];
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

/* The units of a stage, for the warp's tile of each side. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_stage(float acc[2][NT][4],
                                                          const unsigned char *stage, int share,
                                                          int n_unit)
{
    constexpr int UNITS = stream_stage<F>::UNITS, BYTES = packed_unit<F>::BYTES;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const unsigned char *x =
        stage + 2 * UNITS * share * BYTES + lane / 8 * NT_MAX * 128 + lane % 8 * 16;
    uint32_t loaded = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        if (u >= n_unit)
            break;
        const unsigned char *unit[2] = {stage + (u * share + warp) * BYTES,
                                        stage + ((UNITS + u) * share + warp) * BYTES};
        typename F::scales scales[2];
#pragma unroll
        for (int m = 0; m < 2; m++)
            F::begin(scales[m], unit[m], lane);
#pragma unroll
        for (int block = 0; block < F::UNIT / 32; block++) {
            const unsigned char *chunk[2] = {unit[0] + F::HEAD + block / 2 * F::CHUNK,
                                             unit[1] + F::HEAD + block / 2 * F::CHUNK};
            loaded = multiply_block<F, NT_MAX, NT>(
                acc, chunk, scales, x + (u * F::UNIT / 32 + block) * 4 * NT_MAX * 128, block);
        }
    }
    return loaded;
}

/* Two channels of a place at a time; `value` makes the result of side m, token tile j and fragment
 * value i. */
template <int NT>
static __device__ __forceinline__ void store_results(const stream_job &job, const stream_item &item,
                                                     float acc[2][NT][4], int place, int n)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n_side = job.down ? 2 : 1;
    float factor[2] = {factor_of(job.scale[0], item.expert), factor_of(job.scale[1], item.expert)};
    if (job.down && item.group[1] == item.group[0])
        n_side = 1;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (m >= n_side)
            break;
        int channel = (item.group[m] * job.tiles + item.tile + warp) * 16 + (lane / 4 & ~1);
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                float v[2];
#pragma unroll
                for (int t = 0; t < 2; t++)
                    v[t] = job.factor * (job.down ? acc[m][j][i + t] * factor[m]
                                                  : gated(acc[0][j][i + t] * factor[0],
                                                          acc[1][j][i + t] * factor[1]));
                channel_pair pair = pair_channels(v[0], v[1]);
                int token = j * 8 + lane % 4 * 2 + lane / 4 % 2;
                if (token < n && channel + i / 2 * 8 < job.out.ld)
                    store_pair(job.out.data, job.out.form,
                               (size_t)(place + token) * (size_t)job.out.ld +
                                   (size_t)(channel + i / 2 * 8),
                               pair);
            }
    }
}

/* One pass over the item's weights with NT tiles of 8 rows. Warps without a tile only keep the ring
 * going. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ void consume_pass(stream_ring &ring, const stream_job &job,
                                                    const stream_item &item, int place, int n)
{
    constexpr int UNITS = stream_stage<F>::UNITS;
    bool active = (int)threadIdx.x / 32 < item.n_tile;
    float acc[2][NT][4] = {};
    for (int unit = 0; unit < job.n_unit; unit += UNITS, ring_advance(ring, job.n_stage)) {
        const unsigned char *stage = ring.stages + ring.slot * stage_bytes<F, NT_MAX>(job.share);
        uint32_t loaded = 0;
        dg_mbar_wait(ring.full + ring.slot, ring.turn & 1);
        __syncwarp();
        if (active)
            loaded =
                multiply_stage<F, NT_MAX, NT>(acc, stage, job.share, min(UNITS, job.n_unit - unit));
        __syncwarp();
        /* Loads must have returned before the stage is handed back, not only been issued: the
         * address needs them. */
        if (threadIdx.x % 32 == 0)
            dg_mbar_arrive(ring.empty + ring.slot + (loaded & job.zero));
    }
    if (active)
        store_results<NT>(job, item, acc, place, n);
}

template <class F, int NT_MAX>
static __device__ __forceinline__ void consume_item(stream_ring &ring, const stream_job &job,
                                                    const stream_item &item)
{
    constexpr int STEP = NT_MAX / 4;
    for (int pass = 0; pass < item.n; pass += 8 * NT_MAX) {
        int n = item.n - pass, place = item.first + pass;
        switch (token_tiles<NT_MAX>(n) / STEP) {
        case 1:
            consume_pass<F, NT_MAX, STEP>(ring, job, item, place, n);
            break;
        case 2:
            consume_pass<F, NT_MAX, 2 * STEP>(ring, job, item, place, n);
            break;
        case 3:
            consume_pass<F, NT_MAX, 3 * STEP>(ring, job, item, place, n);
            break;
        default:
            consume_pass<F, NT_MAX, 4 * STEP>(ring, job, item, place, n);
        }
    }
}

template <class F, int NT_MAX>
static __device__ __forceinline__ void stream_items(const stream_job &job)
{
    DG_SHARED(shared);
    stream_ring ring = {
        shared, (uint64_t *)(shared + job.n_stage * stage_bytes<F, NT_MAX>(job.share)), NULL, 0, 0};
    int warp = (int)threadIdx.x / 32;
    int *order = (int *)(ring.full + 2 * MAX_STAGES), *start = order + job.n_expert;
    ring.empty = ring.full + MAX_STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.n_stage; i++) {
            dg_mbar_init(ring.full + i, FULL_ARRIVALS);
            dg_mbar_init(ring.empty + i, job.share);
        }
        dg_mbar_init_fence();
    }
    dg_grid_wait();
    for (int e = (int)threadIdx.x; e <= job.n_expert; e += STREAM_THREADS) {
        start[e] = job.start[e];
        if (e < job.n_expert)
            order[e] = job.order[e];
    }
    __syncthreads();
    stream_item item;
    for (int round = 0; item_at(item, job, start, order, round); round++) {
        if (warp == CONSUMERS)
            produce_item<F, NT_MAX>(ring, job, item);
        else if (warp < job.share)
            consume_item<F, NT_MAX>(ring, job, item);
    }
    dg_grid_launch_next();
}

template <class F, int NT_MAX>
static __global__ void __launch_bounds__(STREAM_THREADS, 1) stream_experts(stream_job job)
{
    if constexpr (DG_WITHOUT_GROUPS || NT_MAX == 4)
        stream_items<F, NT_MAX>(job);
}

/* ---- float weights ---- */

/* Block (x: 64 outputs, y: expert). */
static __global__ void __launch_bounds__(FLOAT_THREADS) float_experts(stream_job job, int ld)
{
    __shared__ float_shared s;
    int expert = (int)blockIdx.y, out0 = (int)blockIdx.x * FLOAT_OUTS, t = (int)threadIdx.x;
    dg_grid_wait();
    int first = job.start[expert], end = job.start[expert + 1];
    size_t at = (size_t)expert * job.mat_bytes + (size_t)out0 * (size_t)ld * sizeof(float);
    for (int base = first; base < end; base += FLOAT_ROWS) {
        float sum[2][4], up[2][4];
        __syncthreads();
        if (t < FLOAT_ROWS) {
            int place = min(base + t, end - 1), row = job.row ? job.row[place] : place;
            s.row[t] = base + t < end ? (const float *)(job.x + (size_t)row * job.x_bytes) : NULL;
        }
        float_sums(sum, &s, (const float *)(job.w[0] + at), ld);
        if (!job.down)
            float_sums(up, &s, (const float *)(job.w[1] + at), ld);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++) {
                int place = base + float_row(i), out = out0 + float_out(j);
                float v = job.factor * (job.down ? sum[i][j] : gated_float(sum[i][j], up[i][j]));
                if (place < end && out < job.out.ld)
                    store_one(job.out.data, job.out.form,
                              (size_t)place * (size_t)job.out.ld + (size_t)out, v);
            }
    }
}

/* ---- a row's experts, in the order of its choices ---- */

typedef struct combine_job {
    dg_cuda_rows in; /* down's results, at places */
    const int32_t *place;
    const float *weight;
    float *y;
    size_t ldy;
    int n_used, n_embd;
    bool aligned; /* rows of y to 16 bytes, and whole */
} combine_job;

static __device__ __forceinline__ float4 four_at(const dg_cuda_rows &in, size_t at)
{
    if (in.form == DG_CUDA_F32)
        return *(const float4 *)((const float *)in.data + at);
    uint2 v = *(const uint2 *)((const uint16_t *)in.data + at);
    return make_float4(dg_bf16_low(v.x), dg_bf16_high(v.x), dg_bf16_low(v.y), dg_bf16_high(v.y));
}

/* Block (x: row, y: 1024 values); in.ld is a multiple of 8. Eight choices are on their way at once.
 */
static __global__ void __launch_bounds__(COMBINE_THREADS) combine(combine_job job)
{
    size_t row = blockIdx.x, pair = row * (size_t)job.n_used;
    int c = ((int)blockIdx.y * COMBINE_THREADS + (int)threadIdx.x) * 4;
    float4 sum = {};
    dg_grid_wait();
    if (c >= job.in.ld)
        return;
    for (int first = 0; first < job.n_used; first += 8) {
        float4 v[8];
        float w[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            size_t at = pair + (size_t)min(first + j, job.n_used - 1);
            w[j] = job.weight[at];
            v[j] = four_at(job.in, (size_t)job.place[at] * (size_t)job.in.ld + (size_t)c);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (first + j >= job.n_used)
                break;
            sum.x = fmaf(w[j], v[j].x, sum.x);
            sum.y = fmaf(w[j], v[j].y, sum.y);
            sum.z = fmaf(w[j], v[j].z, sum.z);
            sum.w = fmaf(w[j], v[j].w, sum.w);
        }
    }
    float *y = job.y + row * job.ldy + (size_t)c;
    if (job.aligned) {
        *(float4 *)y = sum;
        return;
    }
    float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c + i < job.n_embd)
            y[i] = value[i];
}

/* ---- launches ---- */

/* As much of a group as leaves room for two stages, and as many stages as there is room for. */
template <class F, int NT_MAX> static cudaError_t launch_stream(cudaStream_t stream, stream_job job)
{
    int device = 0, n_sm = 1, most = 48 << 10;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    int rest = 2 * MAX_STAGES * (int)sizeof(uint64_t) + (2 * job.n_expert + 1) * (int)sizeof(int);
    job.share = job.tiles;
    while (job.share > 1 && (most - rest) / stage_bytes<F, NT_MAX>(job.share) < 2)
        job.share = (job.share + 1) / 2;
    job.n_stage = min((most - rest) / stage_bytes<F, NT_MAX>(job.share), (int)MAX_STAGES);
    if (job.n_stage < 1)
        return cudaErrorInvalidConfiguration;
    int blocks = min(n_sm, job.n_expert * items_of_expert(job));
    return DG_LAUNCH((stream_experts<F, NT_MAX>), dim3((unsigned)blocks), STREAM_THREADS,
                     (size_t)(job.n_stage * stage_bytes<F, NT_MAX>(job.share) + rest), stream, job);
}

/* 64 rows a pass where experts have many and tiles (in_tiles) are not to be had; 32 else, which
 * leave room for stages. */
template <class F>
static cudaError_t launch_format(cudaStream_t stream, stream_job job, int n_pair, int n_in)
{
    job.n_unit = (n_in + F::UNIT - 1) / F::UNIT;
    return n_pair > 24 * job.n_expert && !dg_cuda_has_groups() ? launch_stream<F, 8>(stream, job)
                                                               : launch_stream<F, 4>(stream, job);
}

static cudaError_t launch(cudaStream_t stream, stream_job job, const dg_cuda_matrix *w, int n_pair)
{
    job.n_expert = w->n_mat;
    job.mat_bytes = dg_cuda_pack_bytes(w->type, w->n_out, w->n_in);
    job.tiles = group_tiles(w->n_out);
    job.n_group = group_count(w->n_out);
    if (w->type == DG_F32) {
        dim3 grid((unsigned)((w->n_out + FLOAT_OUTS - 1) / FLOAT_OUTS), (unsigned)w->n_mat);
        return DG_LAUNCH(float_experts, grid, FLOAT_THREADS, 0, stream, job, dg_cuda_ld(w->n_in));
    }
    DG_FOR_FORMAT(w->type, return launch_format<F>(stream, job, n_pair, w->n_in), break)
    return cudaErrorInvalidValue;
}

/* ---- the contract ---- */

/* What the scratch memory holds. */
typedef struct experts_scratch {
    int32_t *start, *order, *row, *place;
    dg_expert_tile *tile;
    void *h, *result;
    size_t bytes;
} experts_scratch;

static size_t take(size_t *bytes, size_t wanted)
{
    size_t at = *bytes;
    *bytes += (wanted + 255) / 256 * 256;
    return at;
}

static experts_scratch lay_out(void *memory, size_t n_pair, int n_expert, int n_embd, int n_ff)
{
    unsigned char *base = (unsigned char *)memory;
    experts_scratch s = {};
    s.start = (int32_t *)(base + take(&s.bytes, ((size_t)n_expert + 1) * sizeof(int32_t)));
    s.order = (int32_t *)(base + take(&s.bytes, (size_t)n_expert * sizeof(int32_t)));
    s.row = (int32_t *)(base + take(&s.bytes, n_pair * sizeof(int32_t)));
    s.place = (int32_t *)(base + take(&s.bytes, n_pair * sizeof(int32_t)));
    s.tile =
        (dg_expert_tile *)(base + take(&s.bytes, (n_pair / DG_EXPERT_TILE_ROWS + (size_t)n_expert) *
                                                     sizeof(dg_expert_tile)));
    s.h = base + take(&s.bytes, n_pair * (size_t)dg_cuda_ld(n_ff) * sizeof(float));
    s.result = base + take(&s.bytes, n_pair * (size_t)dg_cuda_ld(n_embd) * sizeof(float));
    return s;
}

extern "C" size_t dg_cuda_experts_bytes(int max_row, int n_used, int n_expert, int n_embd,
                                        int n_ff_expert)
{
    return lay_out(NULL, (size_t)max_row * (size_t)n_used, n_expert, n_embd, n_ff_expert).bytes;
}

static size_t row_bytes(const dg_cuda_rows &rows)
{
    return (size_t)rows.ld * (rows.form == DG_CUDA_F32 ? 4 : 2);
}

static cudaError_t sort(cudaStream_t stream, const dg_cuda_experts_args *a,
                        const experts_scratch &s)
{
    sort_job job = {};
    job.expert = a->expert;
    job.n_pair = a->n_row * a->n_used;
    job.n_used = a->n_used;
    job.n_expert = a->gate->n_mat;
    job.start = s.start;
    job.order = s.order;
    job.row = s.row;
    job.place = s.place;
    job.tile = s.tile;
    job.n_tile = most_tiles(job.n_pair, job.n_expert);
    return DG_LAUNCH(sort_pairs, dim3((unsigned)job.n_expert), SORT_THREADS,
                     (size_t)job.n_expert * sizeof(int), stream, job);
}

/* From so many rows an expert on, products are the limit and not the reading of weights: the dense
 * kernel's tiles then are better than streaming. */
static bool in_tiles(const dg_cuda_experts_args *a, const dg_cuda_matrix *w)
{
    return w->type != DG_F32 && a->n_row * a->n_used >= 32 * w->n_mat && dg_cuda_has_groups();
}

static cudaError_t tiles_product(cudaStream_t stream, const dg_cuda_experts_args *a,
                                 const experts_scratch &s, const stream_job &job,
                                 const dg_cuda_rows &x, const dg_cuda_matrix *w,
                                 const dg_cuda_matrix *up)
{
    dg_expert_product product = {};
    product.tile = s.tile;
    product.n_tile = most_tiles(a->n_row * a->n_used, w->n_mat);
    product.row = job.row;
    product.x = x;
    product.w[0] = w;
    product.w[1] = up;
    product.factor = job.factor;
    product.out = job.out;
    return dg_cuda_product_experts(stream, &product);
}

static cudaError_t gate_and_up(cudaStream_t stream, const dg_cuda_experts_args *a,
                               const experts_scratch &s, const dg_cuda_rows &h)
{
    stream_job job = {};
    job.start = s.start;
    job.order = s.order;
    job.row = s.row;
    job.x = (const unsigned char *)a->x.data;
    job.x_bytes = row_bytes(a->x);
    job.w[0] = (const unsigned char *)a->gate->data;
    job.w[1] = (const unsigned char *)a->up->data;
    job.scale[0] = a->gate->scale;
    job.scale[1] = a->up->scale;
    job.factor = h.form == DG_CUDA_F16 ? 1 / DG_CUDA_GATED : 1;
    job.out = h;
    if (in_tiles(a, a->gate))
        return tiles_product(stream, a, s, job, a->x, a->gate, a->up);
    return launch(stream, job, a->gate, a->n_row * a->n_used);
}

static cudaError_t down(cudaStream_t stream, const dg_cuda_experts_args *a,
                        const experts_scratch &s, const dg_cuda_rows &h, const dg_cuda_rows &result)
{
    stream_job job = {};
    job.start = s.start;
    job.order = s.order;
    job.x = (const unsigned char *)h.data;
    job.x_bytes = row_bytes(h);
    job.w[0] = job.w[1] = (const unsigned char *)a->down->data;
    job.scale[0] = job.scale[1] = a->down->scale;
    job.factor = h.form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    job.down = true;
    job.out = result;
    if (in_tiles(a, a->down))
        return tiles_product(stream, a, s, job, h, a->down, NULL);
    return launch(stream, job, a->down, a->n_row * a->n_used);
}

static cudaError_t sum_choices(cudaStream_t stream, const dg_cuda_experts_args *a,
                               const experts_scratch &s, const dg_cuda_rows &result)
{
    combine_job job = {};
    job.in = result;
    job.place = s.place;
    job.weight = a->weight;
    job.y = a->y;
    job.ldy = a->ldy;
    job.n_used = a->n_used;
    job.n_embd = a->down->n_out;
    job.aligned = job.n_embd % 8 == 0 && a->ldy % 4 == 0 && (uintptr_t)a->y % 16 == 0;
    int wide = COMBINE_THREADS * 4;
    return DG_LAUNCH(combine, dim3((unsigned)a->n_row, (unsigned)((result.ld + wide - 1) / wide)),
                     COMBINE_THREADS, 0, stream, job);
}

/* Results of down wait for their sum as bfloat16 where weights are, and as floats elsewhere. */
extern "C" cudaError_t dg_cuda_experts(cudaStream_t stream, const dg_cuda_experts_args *a)
{
    if (a->gate->type != a->up->type)
        return cudaErrorInvalidValue;
    if (a->n_row == 0)
        return cudaSuccess;
    int n_embd = a->down->n_out, n_ff = a->gate->n_out;
    experts_scratch s =
        lay_out(a->scratch, (size_t)a->n_row * (size_t)a->n_used, a->gate->n_mat, n_embd, n_ff);
    dg_cuda_form form = dg_cuda_form_of(a->down->type);
    dg_cuda_rows h = {form, s.h, dg_cuda_ld(n_ff)};
    dg_cuda_rows result = {form == DG_CUDA_BF16 ? DG_CUDA_BF16 : DG_CUDA_F32, s.result,
                           (n_embd + 7) / 8 * 8};
    cudaError_t error = sort(stream, a, s);
    if (!error)
        error = gate_and_up(stream, a, s, h);
    if (!error)
        error = down(stream, a, s, h, result);
    if (error)
        return error;
    return sum_choices(stream, a, s, result);
}
