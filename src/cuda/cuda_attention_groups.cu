/* Attention of heads of 256 with the products of warpgroups (sm_90a).
 *
 * A block has 128 lines of one key head: two warpgroups of 64 lines, whose results are 128
 * registers a thread, and a warp that copies. Keys and values lie in pages as the products read
 * them, so that a turn's 64 keys are one bulk copy, and so are its values; two turns of each are
 * under way. The scores of the next turn are made while this turn's values are added up. A block
 * does one or more parts of its tile: which, and how many blocks there are, changes no bits. */
#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_wgmma.cuh"

/* As the kernels with mma.sync see a warp: 16 lines, all keys and dimensions. */
struct group_tile {
    static constexpr int D = 256, KB = 64, MT = 1, WN = 1, WM = 8, LINES = 128;
    static constexpr int NK = KB / 8, ND = D / 8, PARTS = 4;
    static constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 128, STAGES = 2;

    /* shared memory, in bytes; the first three in panels of 64 dimensions */
    static constexpr int PANEL = KB * 128, KEYS = D / 64 * PANEL, Q_PANEL = LINES * 128;
    static constexpr int Q = 0, K = Q + D / 64 * Q_PANEL, V = K + STAGES * KEYS,
                         SPAN = V + STAGES * KEYS, TILE = SPAN + LINES * 8, BARS = TILE + 80;
    static constexpr int BYTES = BARS + 4 * STAGES * 8 + 1024; /* to begin at a multiple of 1024 */
};
using T = group_tile;

/* The ring's barriers: each stage is full, and empty, in turn. */
struct group_ring {
    uint64_t full_k[T::STAGES], empty_k[T::STAGES], full_v[T::STAGES], empty_v[T::STAGES];
};

static __device__ __forceinline__ void make_ring(group_ring *ring)
{
    for (int i = 0; i < T::STAGES; i++) {
        dg_mbar_init(&ring->full_k[i], 1);
        dg_mbar_init(&ring->full_v[i], 1);
        dg_mbar_init(&ring->empty_k[i], T::CONSUMERS / 32);
        dg_mbar_init(&ring->empty_v[i], T::CONSUMERS / 32);
    }
    dg_mbar_init_fence();
}

/* The turns of part `part` of n_part: [x, y). */
static __device__ __forceinline__ int2 turns_of(int n_turn, int part, int n_part)
{
    return make_int2(n_turn * part / n_part, n_turn * (part + 1) / n_part);
}

/* ---- the warp that copies ---- */

/* A turn's values; zeros where nobody looks: what lies there may be no number. By the whole warp.
 */
static __device__ __forceinline__ void copy_values(unsigned char *to, const unsigned char *values,
                                                   turn now, uint64_t *full)
{
    int lane = (int)threadIdx.x % 32, low = max(now.low - now.begin, 0),
        high = min(now.high - now.begin, (int)T::KB);
    if (low == 0 && high == T::KB) {
        if (lane == 0) {
            dg_mbar_expect(full, T::KEYS);
            dg_bulk_g2s(to, values, T::KEYS, full);
        }
        return;
    }
    for (int i = lane; i < T::KEYS / 16; i += 32) {
        int slot = i * 16 % T::PANEL / 128;
        if (slot < low || slot >= high)
            *(uint4 *)(to + i * 16) = uint4{0, 0, 0, 0};
    }
    warpgroup_publish();
    __syncwarp();
    if (lane > 0)
        return;
    dg_mbar_expect(full, (uint32_t)(T::D / 64 * (high - low) * 128));
    for (int panel = 0; panel < T::D / 64; panel++) {
        int at = panel * T::PANEL + low * 128;
        dg_bulk_g2s(to + at, values + at, (uint32_t)((high - low) * 128), full);
    }
}

static __device__ __forceinline__ void copy_turns(unsigned char *shared, group_ring *ring,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t, int kv_head, int n_turn,
                                                  int n_part)
{
    int n = 0;
    size_t head_bytes = (size_t)a.kv.n_kv_head * T::KEYS;
    for (int part = (int)blockIdx.z; part < n_part; part += (int)gridDim.z) {
        int2 turns = turns_of(n_turn, part, n_part);
        for (int i = turns.x; i < turns.y; i++, n++) {
            int stage = n % T::STAGES, parity = n / T::STAGES % 2 ^ 1;
            turn now = turn_at<T>(t, i);
            const unsigned char *keys = page_keys(a.kv, t.seg, now.canvas, now.begin, kv_head);
            dg_mbar_wait(&ring->empty_k[stage], parity);
            if (threadIdx.x % 32 == 0) {
                dg_mbar_expect(&ring->full_k[stage], T::KEYS);
                dg_bulk_g2s(shared + T::K + stage * T::KEYS, keys, T::KEYS, &ring->full_k[stage]);
            }
            dg_mbar_wait(&ring->empty_v[stage], parity);
            copy_values(shared + T::V + stage * T::KEYS, keys + head_bytes, now,
                        &ring->full_v[stage]);
            __syncwarp();
        }
    }
}

/* ---- the warpgroups that multiply ---- */

/* This warpgroup's 64 queries. */
static __device__ __forceinline__ void keep_queries(unsigned char *q,
                                                    const dg_cuda_attention_args &a,
                                                    const line_tile &t, int group, int kv_head,
                                                    int first_line)
{
    constexpr int CHUNKS = T::D / 8;
    for (int i = (int)threadIdx.x % 128; i < 64 * CHUNKS; i += 128) {
        int line = first_line + i / CHUNKS, chunk = i % CHUNKS;
        dg_cp_async16_if(q + chunk / 8 * T::Q_PANEL + line * 128 + (chunk ^ line) % 8 * 16,
                         query_at(a, t, group, kv_head, line) + chunk * 16, line < t.n_line);
    }
    dg_cp_async_commit();
    dg_cp_async_wait<0>();
    warpgroup_publish();
    dg_bar_sync(1 + first_line / 64, 128);
}

/* Begins s = Q K^T. */
static __device__ __forceinline__ void begin_scores(float s[T::NK][4], const unsigned char *q,
                                                    const unsigned char *k)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < T::D / 16; step++)
        warpgroup_mma_rows(s, q + step / 4 * T::Q_PANEL + step % 4 * 32,
                           k + step / 4 * T::PANEL + step % 4 * 32, step > 0);
    warpgroup_commit();
}

/* Begins o += P V. */
static __device__ __forceinline__ void begin_values(float o[T::ND][4], const uint32_t p[4][4],
                                                    const unsigned char *v)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++)
        warpgroup_mma_columns(o, p[step], v + step * 2048);
    warpgroup_commit();
}

static __device__ __forceinline__ void narrow_weights(uint32_t p[4][4], const float s[T::NK][4])
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
static __device__ __forceinline__ void release(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        dg_mbar_arrive(empty);
}

/* What this turn's scores make of the lines. */
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

/* Turns [i, end) of a tile, which are turns n ... of the ring. */
static __device__ __forceinline__ void attend(lines<T> *l, const unsigned char *shared,
                                              group_ring *ring, const line_tile &t, int first_line,
                                              int i, int end, int n)
{
    const unsigned char *q = shared + T::Q + first_line / 64 * 8192, *k = shared + T::K,
                        *v = shared + T::V;
    const int2 *span = (const int2 *)(shared + T::SPAN);
    float s[1][T::NK][4], factor[1][2];
    uint32_t p[4][4];
    clear_lines<T>(l);
    dg_mbar_wait(&ring->full_k[n % T::STAGES], n / T::STAGES % 2);
    begin_scores(s[0], q, k + n % T::STAGES * T::KEYS);
    warpgroup_wait<0>();
    release(&ring->empty_k[n % T::STAGES]);
    soften_turn(l, factor, s, t, span, first_line, i);
    narrow_weights(p, s[0]);
    for (; i + 1 < end; i++, n++) {
        int stage = n % T::STAGES, next = (n + 1) % T::STAGES;
        dg_mbar_wait(&ring->full_k[next], (n + 1) / T::STAGES % 2);
        begin_scores(s[0], q, k + next * T::KEYS);
        dg_mbar_wait(&ring->full_v[stage], n / T::STAGES % 2);
        begin_values(l->o[0], p, v + stage * T::KEYS);
        warpgroup_wait<1>();
        release(&ring->empty_k[next]);
        soften_turn(l, factor, s, t, span, first_line, i + 1);
        warpgroup_wait<0>();
        release(&ring->empty_v[stage]);
        scale_lines<T>(l, factor);
        narrow_weights(p, s[0]);
    }
    dg_mbar_wait(&ring->full_v[n % T::STAGES], n / T::STAGES % 2);
    begin_values(l->o[0], p, v + n % T::STAGES * T::KEYS);
    warpgroup_wait<0>();
    release(&ring->empty_v[n % T::STAGES]);
    for (int h = 0; h < 2; h++) {
        l->sum[0][h] += __shfl_xor_sync(DG_ALL_LANES, l->sum[0][h], 1);
        l->sum[0][h] += __shfl_xor_sync(DG_ALL_LANES, l->sum[0][h], 2);
    }
}

static __device__ __forceinline__ void attend_parts(unsigned char *shared, group_ring *ring,
                                                    const dg_cuda_attention_args &a, line_tile &t,
                                                    int group, int kv_head, int n_turn, int n_part)
{
    int warp = (int)threadIdx.x / 32, n = 0, n_done = 0, part = (int)blockIdx.z;
    int half = warp / 4 * 64, first_line = warp * 16;
    lines<T> l;
    keep_queries(shared + T::Q, a, t, group, kv_head, half);
    for (;;) {
        int2 turns = turns_of(n_turn, part, n_part);
        attend(&l, shared, ring, t, first_line, turns.x, turns.y, n);
        n += turns.y - turns.x;
        n_done++;
        if (n_part > 1)
            leave_part<T>(l, a, t, group, kv_head, first_line, 0, part);
        if (part + (int)gridDim.z >= n_part)
            break;
        part += (int)gridDim.z;
    }
    if (n_part > 1) {
        if (!comes_last(a, &t, group, kv_head, n_part, n_done,
                        [] { dg_bar_sync(3, T::CONSUMERS); }))
            return;
        join_parts<T>(&l, a, t, group, kv_head, first_line, 0, n_part, part);
    }
    store_lines<T>(&l, a, t, group, kv_head, first_line, 0);
    if (kv_head == a.kv.n_kv_head - 1 && a.out.ld > a.kv.n_head * T::D)
        for (int line = warp; line < t.n_line; line += T::CONSUMERS / 32)
            if ((t.first_line + line) % group == group - 1)
                store_padding(a.out, t.seg.first_row + (t.first_line + line) / group,
                              a.kv.n_head * T::D);
}

/* ---- the kernel ---- */

static __global__ void __launch_bounds__(T::THREADS, 1) group_lines(dg_cuda_attention_args a)
{
    if constexpr (DG_WITH_GROUPS) {
        DG_SHARED(memory);
        unsigned char *shared = memory + (1024 - (uintptr_t)memory % 1024) % 1024;
        line_tile &t = *(line_tile *)(shared + T::TILE);
        group_ring *ring = (group_ring *)(shared + T::BARS);
        dg_grid_wait();
        int group = a.kv.n_head / a.kv.n_kv_head, kv_head = (int)blockIdx.y,
            warp = (int)threadIdx.x / 32;
        if (warp == T::CONSUMERS / 32) {
            /* the last tiles, which see the most keys, begin first */
            find_tile(a, group, T::LINES, (int)(gridDim.x - 1 - blockIdx.x), &t);
            find_spans(a, group, T::LINES, (int2 *)(shared + T::SPAN), &t);
        }
        if (threadIdx.x == 0)
            make_ring(ring);
        __syncthreads();
        int n_turn = count_turns<T>(t), n_part = count_parts<T>(a, t, n_turn);
        if (t.n_line == 0 || n_turn == 0 || (int)blockIdx.z >= n_part)
            return;
        if (warp >= T::CONSUMERS / 32) {
            warpgroup_fewer_registers<24>();
            if (warp == T::CONSUMERS / 32)
                copy_turns(shared, ring, a, t, kv_head, n_turn, n_part);
        } else {
            warpgroup_more_registers<240>();
            attend_parts(shared, ring, a, t, group, kv_head, n_turn, n_part);
        }
    }
}

cudaError_t dg_cuda_attention_groups(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    int device = 0, n_sm = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    if (error)
        return error;
    /* As many blocks a tile as there is room for at once: a further round costs more. */
    dim3 grid(count_tiles<T>(a), (unsigned)a->kv.n_kv_head);
    while (a->counter && grid.z < T::PARTS && 2 * grid.x * grid.y * grid.z <= (unsigned)n_sm)
        grid.z *= 2;
    return DG_LAUNCH(group_lines, grid, T::THREADS, T::BYTES, stream, *a);
}
