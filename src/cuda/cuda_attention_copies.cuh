/* Attention with the products of warpgroups (cuda_attention_groups.cu): what a block has in shared
 * memory, and the warp that copies keys and values there. */
#ifndef DG_CUDA_CUDA_ATTENTION_COPIES_CUH
#define DG_CUDA_CUDA_ATTENTION_COPIES_CUH

#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_wgmma.cuh"

/* As the kernels with mma.sync see a warp: 16 lines, all keys, 256 dimensions. */
template <int N_HALF> struct group_tile {
    static constexpr int HALVES = N_HALF, D = 256 * HALVES, KB = 64, LINES = 128 / HALVES;
    static constexpr int MT = 1, WN = 1, NK = KB / 8, ND = 32, PARTS = 4 / HALVES;
    static constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 128;

    /* Of the 16 steps of 16 dimensions, those whose queries stay in registers, as many as there
     * are registers for: products of scores take all that shared memory can give, these half of
     * it. */
    static constexpr int KEPT = HALVES > 1 ? 4 : 0;

    /* Keys, and values, have two places: for two turns, or for the two halves of one. */
    static constexpr int PLACES = 2, READERS = CONSUMERS / 32 / HALVES;

    /* shared memory, in bytes; the first three in panels of 64 dimensions */
    static constexpr int PANEL = KB * 128, PIECE = 4 * PANEL, Q_PANEL = LINES * 128;
    static constexpr int Q = 0, K = Q + D / 64 * Q_PANEL, V = K + PLACES * PIECE,
                         SCORES = V + PLACES * PIECE,
                         SPAN = SCORES + (HALVES - 1) * 2 * 64 * KB * 4, TILE = SPAN + LINES * 8,
                         BARS = TILE + 80;
    static constexpr int BYTES = BARS + 6 * PLACES * 8 + 1024; /* to begin at a multiple of 1024 */
};

/* Barriers of the places: each is full, and empty, in turn; and of the halves' scores. */
struct group_ring {
    uint64_t full_k[2], empty_k[2], full_v[2], empty_v[2], full_s[2], empty_s[2];
};

template <typename T> static __device__ __forceinline__ void make_ring(group_ring *ring)
{
    for (int i = 0; i < T::PLACES; i++) {
        dg_mbar_init(&ring->full_k[i], 1);
        dg_mbar_init(&ring->full_v[i], 1);
        dg_mbar_init(&ring->empty_k[i], T::READERS);
        dg_mbar_init(&ring->empty_v[i], T::READERS);
        dg_mbar_init(&ring->full_s[i], T::READERS);
        dg_mbar_init(&ring->empty_s[i], T::READERS);
    }
    dg_mbar_init_fence();
}

/* The place of turn n of this block, and the parity of its use. */
template <typename T> static __device__ __forceinline__ int place_at(int n, int half)
{
    return T::HALVES > 1 ? half : n % T::PLACES;
}

template <typename T> static __device__ __forceinline__ int parity_at(int n)
{
    return T::HALVES > 1 ? n % 2 : n / T::PLACES % 2;
}

/* The turns of part `part` of n_part: [x, y). */
[[maybe_unused]] static __device__ __forceinline__ int2 turns_of(int n_turn, int part, int n_part)
{
    return make_int2(n_turn * part / n_part, n_turn * (part + 1) / n_part);
}

/* ---- the warp that copies ---- */

/* A turn's values; zeros where nobody looks: what lies there may be no number. By the whole warp.
 */
template <typename T>
static __device__ __forceinline__ void copy_values(unsigned char *to, const unsigned char *values,
                                                   turn now, uint64_t *full)
{
    int lane = (int)threadIdx.x % 32, low = max(now.low - now.begin, 0),
        high = min(now.high - now.begin, (int)T::KB);
    if (low == 0 && high == T::KB) {
        if (lane == 0) {
            dg_mbar_expect(full, T::PIECE);
            dg_bulk_g2s(to, values, T::PIECE, full);
        }
        return;
    }
    for (int i = lane; i < T::PIECE / 16; i += 32) {
        int slot = i * 16 % T::PANEL / 128;
        if (slot < low || slot >= high)
            *(uint4 *)(to + i * 16) = uint4{0, 0, 0, 0};
    }
    warpgroup_publish();
    __syncwarp();
    if (lane > 0)
        return;
    dg_mbar_expect(full, (uint32_t)(4 * (high - low) * 128));
    for (int panel = 0; panel < 4; panel++) {
        int at = panel * T::PANEL + low * 128;
        dg_bulk_g2s(to + at, values + at, (uint32_t)((high - low) * 128), full);
    }
}

template <typename T>
static __device__ __forceinline__ unsigned long long keys_at(const dg_cuda_attention_args &a,
                                                             const line_tile &t, int i, int kv_head)
{
    turn now = turn_at<T>(t, i);
    return (unsigned long long)page_keys(a.kv, t.seg, now.canvas, now.begin, kv_head);
}

/* Turn n's keys; by the whole warp. */
template <typename T>
static __device__ __forceinline__ void fill_keys(unsigned char *shared, group_ring *ring,
                                                 const unsigned char *keys, int n)
{
    for (int half = 0; half < T::HALVES; half++) {
        int at = place_at<T>(n, half);
        dg_mbar_wait(&ring->empty_k[at], parity_at<T>(n) ^ 1);
        if (threadIdx.x % 32 == 0) {
            dg_mbar_expect(&ring->full_k[at], T::PIECE);
            dg_bulk_g2s(shared + T::K + at * T::PIECE, keys + half * T::PIECE, T::PIECE,
                        &ring->full_k[at]);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void fill_values(unsigned char *shared, group_ring *ring,
                                                   const unsigned char *values, turn now, int n)
{
    for (int half = 0; half < T::HALVES; half++) {
        int at = place_at<T>(n, half);
        dg_mbar_wait(&ring->empty_v[at], parity_at<T>(n) ^ 1);
        copy_values<T>(shared + T::V + at * T::PIECE, values + half * T::PIECE, now,
                       &ring->full_v[at]);
        __syncwarp();
    }
}

/* Places become empty in this order: a turn's scores are made before the values of the turn before
 * it are added up, so that its keys' place is the next but one's before that of those values is.
 * Only at the begin the first values' place is empty, too. */
template <typename T, bool ONE_PART>
static __device__ __forceinline__ void copy_turns(unsigned char *shared, group_ring *ring,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t, int kv_head, int n_turn,
                                                  int n_part)
{
    int lane = (int)threadIdx.x % 32;
    unsigned long long ahead = 0;
    const unsigned char *keys = NULL, *before = NULL;
    size_t to_values = (size_t)a.kv.n_kv_head * T::HALVES * T::PIECE;
    int2 turns = ONE_PART ? turns_of(n_turn, (int)blockIdx.z, n_part) : make_int2(0, n_turn);
    for (int i = turns.x; i <= turns.y; i++, before = keys) {
        int n = i - turns.x;
        if (n % 32 == 0) /* where the next 32 turns' keys lie, one for each lane */
            ahead = i + lane < turns.y ? keys_at<T>(a, t, i + lane, kv_head) : 0;
        keys = (const unsigned char *)__shfl_sync(DG_ALL_LANES, ahead, n % 32);
        if (n == 1)
            fill_values<T>(shared, ring, before + to_values, turn_at<T>(t, i - 1), n - 1);
        if (i < turns.y)
            fill_keys<T>(shared, ring, keys, n);
        if (n > 1)
            fill_values<T>(shared, ring, before + to_values, turn_at<T>(t, i - 1), n - 1);
    }
}

#endif
