/* Attention with the products of warpgroups (cuda_attention_groups.cu): what a block has in shared
 * memory, and the warp that copies keys and values there. */
#ifndef DG_CUDA_CUDA_ATTENTION_COPIES_CUH
#define DG_CUDA_CUDA_ATTENTION_COPIES_CUH

#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_wgmma.cuh"

/* As the kernels with mma.sync see a warp: 16 lines, all keys, ND times 8 dimensions. The two
 * warpgroups have 64 lines each; or half of the dimensions each, where a head has two; or, TWICE,
 * the same lines, whose scores each makes for itself, and half of the results' dimensions each. */
template <int N_HALF, bool TWICE_> struct group_tile {
    static constexpr bool TWICE = TWICE_, SAME_LINES = TWICE || N_HALF > 1;
    static constexpr int HALVES = N_HALF, D = 256 * HALVES, KB = 64, LINES = SAME_LINES ? 64 : 128;
    static constexpr int MT = 1, WN = 1, NK = KB / 8, ND = TWICE ? 16 : 32;
    static constexpr int CONSUMERS = 256, COPIERS = 128, THREADS = CONSUMERS + COPIERS;
    static_assert(!TWICE || HALVES == 1, "scores of a whole head");

    /* Of the 16 steps of 16 dimensions, those whose queries stay in registers, as many as there
     * are registers for: products of scores take all that shared memory can give, these half of
     * it. */
    static constexpr int KEPT = TWICE ? 16 : 4;

    /* Places of keys, and as many of values: for turns, or for the two halves of one. */
    static constexpr int PLACES = TWICE ? 3 : 2, READERS = CONSUMERS / 32 / HALVES;

    /* shared memory, in bytes; the first three in panels of 64 dimensions */
    static constexpr int PANEL = KB * 128, PIECE = 4 * PANEL, Q_PANEL = LINES * 128;
    static constexpr int Q = 0, K = Q + D / 64 * Q_PANEL, V = K + PLACES * PIECE,
                         SCORES = V + PLACES * PIECE,
                         SPAN = SCORES + (HALVES - 1) * 2 * 64 * KB * 4, LINE = SPAN + LINES * 8,
                         TILE = LINE + LINES * 8, BARS = TILE + 80;
    static constexpr int BYTES = BARS + 16 * 8 + 1024; /* to begin at a multiple of 1024 */
};

/* Barriers of the places: each is full, and empty, in turn; and of the halves' scores. `n_copier`
 * warps say that a place is full. */
struct group_ring {
    uint64_t full_k[3], empty_k[3], full_v[3], empty_v[3], full_s[2], empty_s[2];
};

template <typename T>
static __device__ __forceinline__ void make_ring(group_ring *ring, int n_copier)
{
    for (int i = 0; i < T::PLACES; i++) {
        dg_mbar_init(&ring->full_k[i], n_copier);
        dg_mbar_init(&ring->empty_k[i], T::READERS);
        dg_mbar_init(&ring->full_v[i], n_copier);
        dg_mbar_init(&ring->empty_v[i], T::READERS);
    }
    for (int i = 0; i < 2; i++) {
        dg_mbar_init(&ring->full_s[i], T::READERS);
        dg_mbar_init(&ring->empty_s[i], T::READERS);
    }
    dg_mbar_init_fence();
}

/* A place, and the parity of its use. */
struct ring_place {
    int at, parity;
};

/* Those of the keys, and of the values, of a block's n-th turn. */
template <typename T> static __device__ __forceinline__ ring_place place_of(int n, int half)
{
    return T::HALVES > 1 ? ring_place{half, n % 2} : ring_place{n % T::PLACES, n / T::PLACES % 2};
}

/* The turn that part `part` of n_part begins with. */
[[maybe_unused]] static __device__ __forceinline__ int part_begin(int n_turn, int part, int n_part)
{
    return n_turn * part / n_part;
}

/* The turns that a block has of its tile: [x, y). */
template <bool ONE_PART> static __device__ __forceinline__ int2 own_turns(int n_turn, int n_part)
{
    int part = (int)blockIdx.z;
    return ONE_PART
               ? make_int2(part_begin(n_turn, part, n_part), part_begin(n_turn, part + 1, n_part))
               : make_int2(0, n_turn);
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
        ring_place to = place_of<T>(n, half);
        dg_mbar_wait(&ring->empty_k[to.at], to.parity ^ 1);
        if (threadIdx.x % 32 == 0) {
            dg_mbar_expect(&ring->full_k[to.at], T::PIECE);
            dg_bulk_g2s(shared + T::K + to.at * T::PIECE, keys + half * T::PIECE, T::PIECE,
                        &ring->full_k[to.at]);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void fill_values(unsigned char *shared, group_ring *ring,
                                                   const unsigned char *values, turn now, int n)
{
    for (int half = 0; half < T::HALVES; half++) {
        ring_place to = place_of<T>(n, half);
        dg_mbar_wait(&ring->empty_v[to.at], to.parity ^ 1);
        copy_values<T>(shared + T::V + to.at * T::PIECE, values + half * T::PIECE, now,
                       &ring->full_v[to.at]);
        __syncwarp();
    }
}

/* What a block brings into its places, by whole warps: keys(head, turn, n) of its turn n, and
 * values(head, turn, n), where `head` is where the turn's keys lie. Places become empty in this
 * order: a turn's scores are made before the values of the turn before it are added up, so that its
 * keys' place is a later one's before that of those values is. Only where all places are one turn's
 * the first values come before the second keys, as there is room for them. */
template <typename T, class KEYS, class VALUES>
static __device__ __forceinline__ void each_turn(const dg_cuda_attention_args &a,
                                                 const line_tile &t, int kv_head, int2 turns,
                                                 KEYS keys, VALUES values)
{
    int lane = (int)threadIdx.x % 32;
    unsigned long long ahead = 0;
    unsigned char *head = NULL, *before = NULL;
    if (turns.x == turns.y)
        return;
    for (int i = turns.x; i <= turns.y; i++, before = head) {
        int n = i - turns.x;
        if (n % 32 == 0) /* where the next 32 turns' keys lie, one for each lane */
            ahead = i + lane < turns.y ? keys_at<T>(a, t, i + lane, kv_head) : 0;
        head = (unsigned char *)__shfl_sync(DG_ALL_LANES, ahead, n % 32);
        bool early = T::HALVES > 1 && n == 1;
        if (early)
            values(before, turn_at<T>(t, i - 1), n - 1);
        if (i < turns.y)
            keys(head, turn_at<T>(t, i), n);
        if (n > 0 && !early)
            values(before, turn_at<T>(t, i - 1), n - 1);
    }
}

/* By one warp. */
template <typename T, bool ONE_PART>
static __device__ __forceinline__ void copy_turns(unsigned char *shared, group_ring *ring,
                                                  const dg_cuda_attention_args &a,
                                                  const line_tile &t, int kv_head, int n_turn,
                                                  int n_part)
{
    size_t to_values = (size_t)a.kv.n_kv_head * T::HALVES * T::PIECE;
    if ((int)threadIdx.x >= T::CONSUMERS + 32)
        return;
    each_turn<T>(
        a, t, kv_head, own_turns<ONE_PART>(n_turn, n_part),
        [&](const unsigned char *head, turn, int n) { fill_keys<T>(shared, ring, head, n); },
        [&](const unsigned char *head, turn now, int n) {
            fill_values<T>(shared, ring, head + to_values, now, n);
        });
}

/* ---- the four warps that widen what is kept as bytes ---- */

/* A thread's pieces of 16 values that are on their way: of slots 32 apart, in two panels. */
typedef struct some_bytes {
    uint4 bytes[4];
    uint16_t factor[4];
} some_bytes;

/* Asks for those from `numbers` and `factors` on, the first slot's; zeros where nobody looks. */
template <typename T, dg_dtype TYPE>
static __device__ __forceinline__ void ask(some_bytes *some, const unsigned char *numbers,
                                           const uint16_t *factors, const bool seen[2])
{
    constexpr int PER_SLOT = TYPE == DG_Q8_0 ? T::D / DG_KV_BLOCK : 1; /* dg_kv_factors() */
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int slot = j % 2 * 32, panel = j / 2;
        some->bytes[j] = uint4{0, 0, 0, 0};
        some->factor[j] = 0;
        if (seen[j % 2]) {
            some->bytes[j] = *(const uint4 *)(numbers + slot * T::D + panel * 64);
            some->factor[j] =
                factors[slot * PER_SLOT + (TYPE == DG_Q8_0 ? panel * 64 / DG_KV_BLOCK : 0)];
        }
    }
}

/* Puts them into two panels. Eight threads write two neighbouring slots: all banks. */
template <typename T, dg_dtype TYPE>
static __device__ __forceinline__ void put(unsigned char *panels, int at, const some_bytes &some)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint4 b = some.bytes[j];
        unsigned char *to = panels + j / 2 * T::PANEL + j % 2 * 32 * 128;
        *(uint4 *)(to + at) = kv_widen_eight(TYPE, uint2{b.x, b.y}, some.factor[j]);
        *(uint4 *)(to + (at ^ 16)) = kv_widen_eight(TYPE, uint2{b.z, b.w}, some.factor[j]);
    }
}

/* 256 dimensions from `first` on of a turn's keys, or of its values; some of them are asked for
 * before their place is empty. */
template <typename T, dg_dtype TYPE>
static __device__ __forceinline__ void widen_piece(unsigned char *to, unsigned char *head,
                                                   int first, turn now, uint64_t *empty, int parity)
{
    const int thread = (int)threadIdx.x % T::COPIERS, slot = thread / 4, piece = thread % 4,
              i = first + piece * 16;
    const int key = now.begin + slot, at = slot * 128 + ((2 * piece) ^ slot) % 8 * 16;
    const unsigned char *numbers = head + dg_cuda_slot_at(TYPE, T::D, slot, i);
    const uint16_t *factors = kv_factor_at(head, TYPE, T::D, slot, i);
    const bool seen[2] = {key >= now.low && key < now.high,
                          key + 32 >= now.low && key + 32 < now.high};
    static_assert(T::COPIERS == 4 * 32, "four threads for each of 32 slots");
    some_bytes some;
    ask<T, TYPE>(&some, numbers, factors, seen);
    dg_mbar_wait(empty, parity);
    put<T, TYPE>(to, at, some);
    ask<T, TYPE>(&some, numbers + 128, factors + (TYPE == DG_Q8_0 ? 128 / DG_KV_BLOCK : 0), seen);
    put<T, TYPE>(to + 2 * T::PANEL, at, some);
    warpgroup_publish();
}

/* A turn's keys, or its values, 256 dimensions from 256 `half` on: from a page of bytes, or as they
 * are from the canvas's, which one of the warps copies. */
template <typename T>
static __device__ __forceinline__ void bring(unsigned char *places, uint64_t *full, uint64_t *empty,
                                             ring_place place, dg_dtype type, unsigned char *head,
                                             turn now, int half)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, at = place.at;
    unsigned char *to = places + at * T::PIECE;
    if (now.canvas)
        dg_mbar_wait(&empty[at], place.parity ^ 1);
    else if (type == DG_Q8_0)
        widen_piece<T, DG_Q8_0>(to, head, 256 * half, now, &empty[at], place.parity ^ 1);
    else
        widen_piece<T, DG_FP8>(to, head, 256 * half, now, &empty[at], place.parity ^ 1);
    __syncwarp();
    if (now.canvas && warp == T::CONSUMERS / 32)
        copy_values<T>(to, head + half * T::PIECE, now, &full[at]);
    else if (lane == 0)
        dg_mbar_arrive(&full[at]);
    __syncwarp();
}

/* By all of them. */
template <typename T, bool ONE_PART>
static __device__ __forceinline__ void widen_turns(unsigned char *shared, group_ring *ring,
                                                   const dg_cuda_attention_args &a,
                                                   const line_tile &t, int kv_head, int n_turn,
                                                   int n_part)
{
    const dg_dtype type = a.kv.type;
    each_turn<T>(
        a, t, kv_head, own_turns<ONE_PART>(n_turn, n_part),
        [&](unsigned char *head, turn now, int n) {
            for (int half = 0; half < T::HALVES; half++)
                bring<T>(shared + T::K, ring->full_k, ring->empty_k, place_of<T>(n, half), type,
                         head, now, half);
        },
        [&](unsigned char *head, turn now, int n) {
            for (int half = 0; half < T::HALVES; half++)
                bring<T>(shared + T::V, ring->full_v, ring->empty_v, place_of<T>(n, half), type,
                         head + a.kv.n_kv_head * head_bytes(a.kv, now.canvas), now, half);
        });
}

#endif
