/* Attention of heads of 256 and 512 with the products of warpgroups (sm_90a).
 *
 * A block has 128 lines of one key head, or 64 lines: two warpgroups, whose results are 64 lines x
 * 256 dimensions, 128 registers a thread, or x 128 where both have the same lines of a head of 256,
 * and warps that copy. Keys and values lie in pages as the products read them, so that 256
 * dimensions of a turn's 64 keys are one bulk copy, and so are those of its values. The scores of
 * the next turn are made while this turn's values are added up. With two halves of a head each
 * warpgroup makes the scores of its dimensions and both add the other's: a sum of two is the same
 * in both orders; and scores come before values, which are added up while scores are softened, so
 * that the keys' only place is free sooner. With the same lines of a head of 256 each makes all
 * scores, so that they need nothing of each other. Where pages hold bytes, four warps widen them
 * into the same places instead.
 *
 * Two parts are folded: both are scaled to their common maximum. Either a block does the parts of
 * its tile one behind the other, or two blocks have one each and all are on the device at once:
 * then each leaves what the other needs and folds its half of the dimensions. The bits are the
 * same. */
#include "cuda/cuda_attention_parts.cuh"

/* ---- the warpgroups that multiply ---- */

/* Which of the tile's lines a warpgroup has; of which half of the dimensions it multiplies queries
 * with keys, if not with all; and for which half it adds up values. */
template <typename T> static __device__ __forceinline__ int group_line(int group_index)
{
    return T::SAME_LINES ? 0 : group_index * 64;
}

template <typename T> static __device__ __forceinline__ int group_half(int group_index)
{
    return T::HALVES > 1 ? group_index : 0;
}

template <typename T> static __device__ __forceinline__ int result_half(int group_index)
{
    return T::SAME_LINES ? group_index : 0;
}

/* Where a warpgroup's queries begin in shared memory. */
template <typename T> static __device__ __forceinline__ int group_queries(int group_index)
{
    return T::Q + group_line<T>(group_index) * 128 + group_half<T>(group_index) * 4 * T::Q_PANEL;
}

/* This warpgroup's queries: 64 lines, 256 dimensions. Where both have the same, each copies half.
 */
template <typename T>
static __device__ __forceinline__ void keep_queries(unsigned char *shared,
                                                    const dg_cuda_attention_args &a,
                                                    const line_tile &t)
{
    constexpr int COPYING = T::TWICE ? 256 : 128;
    int index = (int)threadIdx.x / 128, first = group_line<T>(index),
        skipped = group_half<T>(index) * 512;
    unsigned char *q = shared + group_queries<T>(index);
    const int2 *place = (const int2 *)(shared + T::LINE); /* rows and heads */
    for (int i = (int)threadIdx.x % COPYING; i < 64 * 32; i += COPYING) {
        int line = i / 32, chunk = i % 32;
        bool there = first + line < t.n_line;
        int2 at = place[there ? first + line : 0];
        const float *query = a.q + ((size_t)at.x * a.kv.n_head + at.y) * T::D;
        dg_cp_async16_if(q + chunk / 8 * T::Q_PANEL + line * 128 + (chunk ^ line) % 8 * 16,
                         (const unsigned char *)query + skipped + chunk * 16, there);
    }
    dg_cp_async_commit();
    dg_cp_async_wait<0>();
    warpgroup_publish();
    dg_bar_sync(T::TWICE ? 1 : 1 + index, COPYING);
}

/* A warp's queries of the steps that are kept. */
template <typename T> struct kept_queries {
    uint32_t step[T::KEPT + 1][4];
};

template <typename T>
static __device__ __forceinline__ void take_queries(kept_queries<T> *kept, const unsigned char *q)
{
    int lane = (int)threadIdx.x % 32, line = (int)threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < T::KEPT; i++) {
        dg_ldmatrix_x4(kept->step[i], q + i / 4 * T::Q_PANEL + line * 128 +
                                          ((i % 4 * 2 + lane / 16) ^ line % 8) * 16);
#pragma unroll
        for (int j = 0; j < 4; j++)
            warpgroup_settle(kept->step[i][j]);
    }
}

/* Begins s = Q K^T over 256 dimensions. */
template <typename T>
static __device__ __forceinline__ void begin_scores(float s[T::NK][4], const kept_queries<T> &kept,
                                                    operand q, operand k)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < 16; step++) {
        operand keys = operand_on(k, step / 4 * T::PANEL + step % 4 * 32);
        if (step < T::KEPT)
            warpgroup_mma_kept(s, kept.step[step], keys, step > 0);
        else
            warpgroup_mma_rows(s, operand_on(q, step / 4 * T::Q_PANEL + step % 4 * 32), keys,
                               step > 0);
    }
}

/* Begins o = (add ? o : 0) + P V over this warpgroup's dimensions. */
template <typename T>
static __device__ __forceinline__ void begin_values(float o[T::ND][4], const uint32_t p[4][4],
                                                    operand v, bool add)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++)
        if constexpr (T::ND == 32)
            warpgroup_mma_columns(o, p[step], operand_on(v, step * 2048), add || step > 0);
        else
            warpgroup_mma_down<DG_CUDA_BF16>(o, p[step], operand_on(v, step * 2048),
                                             add || step > 0);
}

[[maybe_unused]] static __device__ __forceinline__ void narrow_weights(uint32_t p[4][4],
                                                                       const float s[8][4])
{
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = s[2 * step + i / 2] + i % 2 * 2;
            p[step][i] = dg_pack_bf16(pair[0], pair[1]);
        }
}

/* The warp is done with a stage. */
[[maybe_unused]] static __device__ __forceinline__ void release(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        dg_mbar_arrive(empty);
}

/* The other half's scores of this turn, which is the n-th, on top of this one's. */
template <typename T>
static __device__ __forceinline__ void add_scores(float s[T::NK][4], unsigned char *shared,
                                                  group_ring *ring, int half, int n)
{
    float4 *mine = (float4 *)(shared + T::SCORES) + half * 8 * 128 + threadIdx.x % 128;
    const float4 *theirs =
        (const float4 *)(shared + T::SCORES) + (1 - half) * 8 * 128 + threadIdx.x % 128;
    dg_mbar_wait(&ring->empty_s[half], n % 2 ^ 1);
#pragma unroll
    for (int j = 0; j < T::NK; j++)
        mine[j * 128] = make_float4(s[j][0], s[j][1], s[j][2], s[j][3]);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        dg_mbar_arrive(&ring->full_s[half]);
    dg_mbar_wait(&ring->full_s[1 - half], n % 2);
    uint32_t loaded = 0;
#pragma unroll
    for (int j = 0; j < T::NK; j++) {
        float4 other = theirs[j * 128];
        loaded |= __float_as_uint(other.x);
        s[j][0] += other.x;
        s[j][1] += other.y;
        s[j][2] += other.z;
        s[j][3] += other.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        dg_mbar_arrive_after(&ring->empty_s[1 - half], loaded);
}

/* What this turn's scores make of the lines. */
template <typename T>
static __device__ __forceinline__ void soften_turn(lines<T> *l, float factor[1][2],
                                                   float s[1][T::NK][4], const line_tile &t,
                                                   const int2 *span, int first_line, int i)
{
    float next[1][2];
    turn now = turn_at<T>(t, i);
    if (!now.open)
        mask_scores<T>(s, now, span, first_line, 0);
    find_most<T>(next, s, NULL, first_line, 0, 0);
    soften<T>(l, factor, s, next);
}

/* A block's turns [i, end) of its tile. Those from `anew` on are another part, if that is among
 * them: what the turns before came to is kept, and its maxima and sums are returned. */
template <typename T, bool ONE_PART>
static __device__ __forceinline__ kept_sums attend(lines<T> *l, unsigned char *shared,
                                                   group_ring *ring,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int first_line, int i, int end, int anew)
{
    const int index = of_the_warp((int)threadIdx.x / 128), half = group_half<T>(index);
    const unsigned char *queries = shared + group_queries<T>(index);
    const operand q = of_the_warp(operand_at(queries)), k = of_the_warp(operand_at(shared + T::K)),
                  v = of_the_warp(
                      operand_at(shared + T::V + (T::TWICE ? index * 2 * T::PANEL : 0), 8192));
    const int2 *span = (const int2 *)(shared + T::SPAN);
    float s[1][T::NK][4], factor[1][2];
    uint32_t p[4][4];
    kept_queries<T> kept;
    kept_sums first = {};
    int fresh = 0; /* the turn that a part begins with */
    const auto make_scores = [&](int n) {
        ring_place at = place_of<T>(n, half);
        dg_mbar_wait(&ring->full_k[at.at], at.parity);
        begin_scores<T>(s[0], kept, q, operand_on(k, at.at * T::PIECE));
        warpgroup_commit();
    };
    const auto have_scores = [&](int n) {
        release(&ring->empty_k[place_of<T>(n, half).at]);
        if constexpr (T::HALVES > 1)
            add_scores<T>(s[0], shared, ring, half, n);
    };
    const auto add_values = [&](int n) {
        ring_place at = place_of<T>(n, half);
        dg_mbar_wait(&ring->full_v[at.at], at.parity);
        begin_values<T>(l->o[0], p, operand_on(v, at.at * T::PIECE), n != fresh);
        warpgroup_commit();
    };
    take_queries<T>(&kept, queries);
    clear_sums<T>(l);
    make_scores(0);
    warpgroup_wait<0>();
    have_scores(0);
    soften_turn<T>(l, factor, s, t, span, first_line, i);
    narrow_weights(p, s[0]);
    int n = 0;
    for (; i + 1 < end; i++, n++) {
        const bool begins = !ONE_PART && i + 1 == anew;
        make_scores(n + 1);
        if constexpr (T::HALVES > 1) { /* one turn's room: its keys go as soon as they can */
            warpgroup_wait<0>();
            have_scores(n + 1);
            add_values(n);
        } else {
            add_values(n);
            warpgroup_wait<1>();
            have_scores(n + 1);
        }
        if (begins) {
            first = sums_of<T>(l);
            clear_sums<T>(l);
        }
        soften_turn<T>(l, factor, s, t, span, first_line, i + 1);
        warpgroup_wait<0>();
        release(&ring->empty_v[place_of<T>(n, half).at]);
        if (begins) {
            keep_part<T>(*l, a, t, group, kv_head, first_line, result_half<T>(index));
            fresh = n + 1;
        } else {
            scale_lines<T>(l, factor);
        }
        narrow_weights(p, s[0]);
    }
    add_values(n);
    warpgroup_wait<0>();
    release(&ring->empty_v[place_of<T>(n, half).at]);
    sums_of<T>(l);
    return first;
}

/* ---- a tile ---- */

/* Its parts have a block each, and both are under way at once; or one block does both. */
template <typename T, bool ONE_PART>
static __device__ __forceinline__ void attend_tile(unsigned char *shared, group_ring *ring,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t, int group, int kv_head,
                                                   int n_turn, int n_part)
{
    const int thread = (int)threadIdx.x, warp = thread / 32, half = result_half<T>(warp / 4),
              first_line = group_line<T>(warp / 4) + warp % 4 * 16;
    const int2 turns = own_turns<ONE_PART>(n_turn, n_part);
    const bool both = !ONE_PART && n_part > 1;
    result_room<T> room = {shared};
    lines<T> l;
    keep_queries<T>(shared, a, t);
    kept_sums first =
        attend<T, ONE_PART>(&l, shared, ring, a, t, group, kv_head, first_line, turns.x, turns.y,
                            both ? part_begin(n_turn, 1, n_part) : turns.y);
    if (both)
        fold_kept<T>(&l, first, a, t, group, kv_head, first_line, half);
    dg_bar_sync(3, T::CONSUMERS); /* nobody reads queries, keys and values any more */
    leave_lines<T>(room, l, first_line, half);
    dg_bar_sync(3, T::CONSUMERS);
    if (thread < t.n_line)
        plan_line<T>(room, a, t, ((const int2 *)(shared + T::LINE))[thread], thread);
    dg_bar_sync(3, T::CONSUMERS);
    if (ONE_PART && n_part > 1) {
        leave_half<T>(room, a, t, group, kv_head);
        store_half<T>(room, a, t);
    } else {
        store_whole<T>(room, a, t);
    }
    if (kv_head == a.kv.n_kv_head - 1 && a.out.ld > a.kv.n_head * T::D && blockIdx.z == 0)
        for (int line = warp; line < t.n_line; line += T::CONSUMERS / 32)
            if ((t.first_line + line) % group == group - 1)
                store_padding(a.out, t.seg.first_row + (t.first_line + line) / group,
                              a.kv.n_head * T::D);
}

/* ---- the kernel ---- */

template <typename T, bool ONE_PART, bool BYTES>
static __global__ void __launch_bounds__(T::THREADS, 1) group_lines(dg_cuda_attention_args a)
{
    if constexpr (DG_WITH_GROUPS) {
        DG_SHARED(memory);
        unsigned char *shared = memory + (1024 - (uintptr_t)memory % 1024) % 1024;
        line_tile &t = *(line_tile *)(shared + T::TILE);
        group_ring *ring = (group_ring *)(shared + T::BARS);
        int group = a.kv.n_head / a.kv.n_kv_head, kv_head = (int)blockIdx.y,
            warp = (int)threadIdx.x / 32;
        if (warp == T::CONSUMERS / 32) {
            /* what is to be done came from the host, no kernel writes it; the last tiles, which see
             * the most keys, begin first */
            find_tile(a, group, T::LINES, (int)(gridDim.x - 1 - blockIdx.x), &t);
            find_spans(a, group, kv_head, T::LINES, (int2 *)(shared + T::SPAN),
                       (int2 *)(shared + T::LINE), &t);
        }
        if (threadIdx.x == 0)
            make_ring<T>(ring, BYTES ? T::COPIERS / 32 : 1);
        __syncthreads();
        int n_turn = count_turns<T>(t), n_part = count_parts<T>(a, t, n_turn);
        if (t.n_line == 0 || n_turn == 0 || (int)blockIdx.z >= n_part)
            return; /* at once: another block may wait for this one's place */
        dg_grid_wait();
        dg_grid_launch_next();
        if (warp >= T::CONSUMERS / 32) {
            warpgroup_fewer_registers<BYTES ? 56 : 24>();
            if constexpr (BYTES)
                widen_turns<T, ONE_PART>(shared, ring, a, t, kv_head, n_turn, n_part);
            else
                copy_turns<T, ONE_PART>(shared, ring, a, t, kv_head, n_turn, n_part);
        } else {
            warpgroup_more_registers<BYTES ? 224 : 240>();
            attend_tile<T, ONE_PART>(shared, ring, a, t, group, kv_head, n_turn, n_part);
        }
    }
}

template <int HALVES, bool BYTES>
static cudaError_t launch_groups(cudaStream_t stream, const dg_cuda_attention_args *a, int n_sm)
{
    typedef group_tile<HALVES, false> alone;
    typedef group_tile<HALVES, HALVES == 1> together;
    dim3 grid(count_tiles<together>(a), (unsigned)a->kv.n_kv_head, MAX_PARTS);
    /* Blocks share a tile's parts only where all fit at once: they wait for each other. */
    if (a->counter && grid.x * grid.y * grid.z <= (unsigned)n_sm)
        return DG_LAUNCH((group_lines<together, true, BYTES>), grid, together::THREADS,
                         together::BYTES, stream, *a);
    grid = dim3(count_tiles<alone>(a), (unsigned)a->kv.n_kv_head);
    return DG_LAUNCH((group_lines<alone, false, BYTES>), grid, alone::THREADS, alone::BYTES, stream,
                     *a);
}

cudaError_t dg_cuda_attention_groups(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    int device = 0, n_sm = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    if (error)
        return error;
    if (dg_kv_in_bytes(a->kv.type))
        return a->kv.head_dim == 256 ? launch_groups<1, true>(stream, a, n_sm)
                                     : launch_groups<2, true>(stream, a, n_sm);
    return a->kv.head_dim == 256 ? launch_groups<1, false>(stream, a, n_sm)
                                 : launch_groups<2, false>(stream, a, n_sm);
}
