/* Experts with many rows on sm_90a, gate and up or down, by warpgroups: weights go from their
 * fragments into registers, rows are the columns of wgmma, so that neither is moved about in shared
 * memory.
 *
 * A block for each multiprocessor takes items: a piece of up to 128 of an expert's rows, 8 tiles of
 * gate's weights and up's of the same channels, or 16 of down's. One warpgroup fills a ring of
 * stages of 64 values of k, weights by bulk copies and rows by gathering, or, where they lie
 * sorted, by the copy engine; two multiply. Each has four tiles of both sides and all rows, or,
 * where an item has no more tiles, half of the rows. Results go through shared memory, so that they
 * leave in whole lines.
 *
 * A result is one chain of ascending k, as in cuda_stream.cuh: it has the same bits. Down begins
 * while gate and up end, as there. */
#include "cuda/cuda_experts_ring.cuh"

/* ---- a warpgroup that multiplies ---- */

/* Its own threads wait for each other; numbers of barriers are best constants. */
static __device__ __forceinline__ void group_sync(int group)
{
    if (group)
        dg_bar_sync(2, 128);
    else
        dg_bar_sync(3, 128);
}

/* Its share of an item: four tiles of both sides from `tile` on, rows from `row` on. */
struct group_share {
    int tile, row, n;
};

[[maybe_unused]] static __device__ __forceinline__ group_share share_of(const group_item &item,
                                                                        int group)
{
    int eights = (item.n + 7) / 8, half = (eights + 1) / 2 * 8;
    if (item.n_tile[0] > GROUP_TILES)
        return group_share{group * GROUP_TILES, 0, item.n};
    return group ? group_share{0, half, max(item.n - half, 0)}
                 : group_share{0, 0, min(half, item.n)};
}

/* A warp's fragments of 32 values of k, of its tile of both sides. */
struct side_fragments {
    uint32_t a[2][2][4];
};

template <class F>
static __device__ __forceinline__ void load_sides(side_fragments &f, const group_ring<F> &ring,
                                                  int tile, int half)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const unsigned char *w = ring.w(side, tile);
        typename F::raw raw;
        typename F::scales scales;
        F::begin(scales, w, lane);
        F::load(raw, w + F::HEAD, half, lane);
        F::convert(f.a[side], raw, scales, half);
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        warpgroup_settle(f.a[i / 8][i / 4 % 2][i % 4]);
}

/* Results of both sides for up to 128 rows. */
enum { EIGHTS = DG_GROUP_ROWS / 8 };

template <class F, int N>
static __device__ __forceinline__ void multiply_half(float acc[2][EIGHTS][4],
                                                     const side_fragments &f,
                                                     const unsigned char *x, int half)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int side = 0; side < 2; side++)
            panel_mma<F::FORM, N>(acc[side], f.a[side][step], x, 2 * half + step);
    warpgroup_commit();
    warpgroup_wait<1>();
}

[[maybe_unused]] static __device__ __forceinline__ void give_back(uint64_t *empty, int slot)
{
    if (slot >= 0 && threadIdx.x % 32 == 0)
        dg_mbar_arrive(empty + slot);
}

/* The fragments of one half of a stage are loaded while the other half's products run. A stage is
 * given back when its last products have ended: with few rows at once, as reading is the limit
 * there and a stage that waits for the next one is not read into; with many while the next one's
 * run. */
template <class F, bool SORTED, int N>
static __device__ __forceinline__ void multiply_item(float acc[2][EIGHTS][4], group_ring<F> &ring,
                                                     const group_share &share, int n_unit)
{
    constexpr bool AT_ONCE = N < DG_GROUP_ROWS;
    int tile = share.tile + (int)threadIdx.x / 32 % 4, before = -1;
    side_fragments f[2];
#pragma unroll
    for (int i = 0; i < N; i++)
        warpgroup_settle(acc[i % 2][i / 8][i / 2 % 4]);
    for (int unit = 0; unit < n_unit; unit++) {
        const unsigned char *x = ring.x() + share.row * SLAB_ROW_BYTES;
        dg_mbar_wait(ring.full(), ring.turn & 1);
        if (!SORTED)
            warpgroup_publish();
        load_sides(f[0], ring, tile, 0);
        multiply_half<F, N>(acc, f[0], x, 0);
        give_back(ring.control->empty, before);
        load_sides(f[1], ring, tile, 1);
        multiply_half<F, N>(acc, f[1], x, 1);
        if (AT_ONCE) {
            warpgroup_wait<0>();
            give_back(ring.control->empty, ring.slot);
        } else {
            before = ring.slot;
        }
        ring.advance();
    }
    warpgroup_wait<0>();
    give_back(ring.control->empty, before);
}

/* Results of two rows of one channel as 16-bit values. */
template <bool DOWN, dg_cuda_form FORM>
static __device__ __forceinline__ uint32_t result_of(const dg_stream_job &job,
                                                     const float acc[2][EIGHTS][4],
                                                     const float factor[2], int side, int j, int i)
{
    float v[2];
#pragma unroll
    for (int t = 0; t < 2; t++)
        v[t] =
            job.factor * (DOWN ? acc[side][j][i + t] * factor[side]
                               : gated(acc[0][j][i + t] * factor[0], acc[1][j][i + t] * factor[1]));
    return FORM == DG_CUDA_BF16 ? dg_pack_bf16(v[0], v[1]) : dg_store_f16(v[0], v[1]);
}

/* Four squares of 8 channels x 8 rows, as products leave them, into a slab of rows: two pieces of
 * channels from `piece` on of the rows from `row` on, then of the next 8 rows. */
[[maybe_unused]] static __device__ __forceinline__ void store_squares(unsigned char *slab, int row,
                                                                      int piece,
                                                                      const uint32_t v[4])
{
    int lane = (int)threadIdx.x % 32;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const unsigned char *to =
        slab + slab_offset(row + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                     dg_shared_address(to)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
#else
    for (int i = 0; i < 8; i++) {
        int at = slab_offset(row + i / 4 * 8 + lane % 4 * 2 + i % 2, piece + i / 2 % 2);
        *(uint16_t *)(slab + at + lane / 4 * 2) = (uint16_t)(v[i / 2] >> i % 2 * 16);
    }
#endif
}

/* A side's 64 channels of n rows, or a few more, as a slab. */
template <bool DOWN, dg_cuda_form FORM, int SIDE>
static __device__ __forceinline__ void collect_side(unsigned char *slab, const dg_stream_job &job,
                                                    const float acc[2][EIGHTS][4],
                                                    const float factor[2], int n)
{
    int warp = (int)threadIdx.x / 32 % 4;
#pragma unroll
    for (int j = 0; j < EIGHTS; j += 2) {
        uint32_t v[4];
        if (j * 8 >= n)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = result_of<DOWN, FORM>(job, acc, factor, SIDE, j + i / 2, i % 2 * 2);
        store_squares(slab, j * 8, warp * 2, v);
    }
}

static __device__ __forceinline__ void send_side(const unsigned char *slab,
                                                 const dg_stream_job &job, const group_item &item,
                                                 const group_share &share, int side)
{
    int thread = (int)threadIdx.x % 128, piece = thread % 8,
        channel = (item.tile[side] + share.tile) * 16 + piece * 8;
    uint16_t *out = (uint16_t *)job.out.data + (size_t)(item.first + share.row) * job.out.ld;
    if (channel >= job.out.ld)
        return;
    for (int row = thread / 8; row < share.n; row += 16)
        *(uint4 *)(out + (size_t)row * job.out.ld + channel) =
            *(const uint4 *)(slab + slab_offset(row, piece));
}

/* Down's results are bfloat16. */
template <bool DOWN, int SIDE>
static __device__ __forceinline__ void store_side(unsigned char *slab, const dg_stream_job &job,
                                                  const group_item &item, const group_share &share,
                                                  const float factor[2],
                                                  const float acc[2][EIGHTS][4])
{
    int group = (int)threadIdx.x / 128;
    group_sync(group); /* what was there has been sent */
    if (DOWN || job.out.form == DG_CUDA_BF16)
        collect_side<DOWN, DG_CUDA_BF16, SIDE>(slab, job, acc, factor, share.n);
    else
        collect_side<DOWN, DG_CUDA_F16, SIDE>(slab, job, acc, factor, share.n);
    group_sync(group);
    send_side(slab, job, item, share, SIDE);
}

/* Without rows of its own: only keeps the ring going. */
template <class F> static __device__ __forceinline__ void pass_item(group_ring<F> &ring, int n_unit)
{
    for (int unit = 0; unit < n_unit; unit++, ring.advance()) {
        dg_mbar_wait(ring.full(), ring.turn & 1);
        __syncwarp();
        give_back(ring.control->empty, ring.slot);
    }
}

/* Products for as many rows as there are, or a few more: those read what was there before and are
 * not stored. With a fourth loop the compiler would run out of registers and have each product wait
 * for the one before. */
template <class F, bool SORTED>
static __device__ __forceinline__ void multiply_rows(float acc[2][EIGHTS][4], group_ring<F> &ring,
                                                     const group_share &share, int n_unit)
{
    if (share.n == 0)
        pass_item(ring, n_unit);
    else if (share.n <= 64)
        multiply_item<F, SORTED, 64>(acc, ring, share, n_unit);
    else if (share.n <= 96)
        multiply_item<F, SORTED, 96>(acc, ring, share, n_unit);
    else
        multiply_item<F, SORTED, 128>(acc, ring, share, n_unit);
}

template <class F, bool SORTED>
static __device__ __forceinline__ void multiply(group_ring<F> ring, const dg_stream_job &job)
{
    for (;;) {
        dg_mbar_wait(ring.full(), ring.turn & 1);
        group_item item = ring.control->item[ring.slot];
        if (item.n == 0)
            return;
        group_share share = share_of(item, (int)threadIdx.x / 128);
        float factor[2] = {factor_of(job.scale[0], item.expert),
                           factor_of(job.scale[1], item.expert)};
        float acc[2][EIGHTS][4] = {};
        multiply_rows<F, SORTED>(acc, ring, share, job.n_unit);
        unsigned char *slab = ring.results((int)threadIdx.x / 128);
        store_side<SORTED, 0>(slab, job, item, share, factor, acc);
        if (SORTED)
            store_side<SORTED, 1>(slab, job, item, share, factor, acc);
    }
}

/* ---- the launch ---- */

template <class F, bool SORTED>
static __device__ __forceinline__ void group_items(const dg_stream_job &job,
                                                   const dg_tensor_map &map)
{
    DG_SHARED(shared);
    constexpr int STAGES = group_stage<F>::STAGES;
    unsigned char *control = shared + STAGES * group_stage<F>::BYTES + 2 * OUT_BYTES;
    group_ring<F> ring = {shared, (group_control *)control, 0, 0};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            dg_mbar_init(ring.control->full + i, SORTED ? 1 : GATHERERS + 1);
            dg_mbar_init(ring.control->empty + i, MULTIPLIERS / 32);
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        warpgroup_fewer_registers<56>();
        fill<F, SORTED>(ring, job, map);
    } else {
        warpgroup_more_registers<224>();
        dg_grid_wait();
        if (job.before_down) /* its blocks then take the places of those that are done */
            dg_grid_launch_next();
        multiply<F, SORTED>(ring, job);
        dg_grid_launch_next();
    }
}

/* map: of sorted rows. */
template <class F, bool SORTED>
static __global__ void __launch_bounds__(GROUP_THREADS, 1)
    expert_groups(dg_stream_job job, const __grid_constant__ dg_tensor_map map)
{
    if constexpr (DG_WITH_GROUPS)
        group_items<F, SORTED>(job, map);
}

template <class F> static cudaError_t launch(cudaStream_t stream, const dg_stream_job &job)
{
    int device = 0, n_sm = 1;
    dg_tensor_map map = {};
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    int items = min(job.n_pair, dg_most_pieces(job.n_pair, job.n_expert)) * items_of_piece(job);
    dim3 grid((unsigned)min(n_sm, items));
    if (job.row)
        return DG_LAUNCH_IF(!job.follows_stream, (expert_groups<F, false>), grid, GROUP_THREADS,
                            (size_t)shared_bytes<F>(), stream, job, map);
    cudaError_t error =
        dg_tensor_map_init(&map, job.x, job.n_pair, (int)(job.x_bytes / 2), BOX_ROWS);
    if (error)
        return error;
    return DG_LAUNCH((expert_groups<F, true>), grid, GROUP_THREADS, (size_t)shared_bytes<F>(),
                     stream, job, map);
}

bool dg_has_expert_groups(dg_dtype type)
{
    return (type == DG_BF16 || type == DG_F16 || type == DG_FP8 || type == DG_Q8_0) &&
           dg_cuda_has_groups();
}

cudaError_t dg_expert_groups(cudaStream_t stream, const dg_stream_job *job, dg_dtype type)
{
    return type == DG_BF16   ? launch<format_bf16>(stream, *job)
           : type == DG_FP8  ? launch<format_fp8>(stream, *job)
           : type == DG_Q8_0 ? launch<format_q8_0>(stream, *job)
                             : launch<format_f16>(stream, *job);
}
