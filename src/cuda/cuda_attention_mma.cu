/* Attention on tensor cores with mma.sync. */
#include "cuda/cuda_attention.cuh"

/* ---- the tensor cores' kernel ----
 *
 * A block has 16 x MT x WM lines; KB keys and then KB values at a time come by cp.async, the keys
 * of the next turn while this one's values are added up, and the values while the scores are made.
 * A group of WN warps shares 16 x MT lines: each makes the scores of KB / WN of the keys, they
 * agree on the maxima and hand each other their weights through shared memory, and each adds up
 * head_dim / WN of the dimensions. So a lane's part of the result is 128 registers or fewer
 * whatever the head is, and a fragment that is read from shared memory serves MT products.
 *
 * Which tile it is changes no bits as long as KB, MT and WN are the same: those follow from the
 * head and the device alone. */

template <int HEAD_DIM, int KEYS, int M_TILES, int WARPS_N, int WARPS_M> struct tile {
    static constexpr int D = HEAD_DIM, KB = KEYS, MT = M_TILES, WN = WARPS_N, WM = WARPS_M;
    static constexpr int LINES = 16 * MT * WM, THREADS = 32 * WN * WM;
    static constexpr int NK = KB / WN / 8; /* a warp's tiles of 8 keys */
    static constexpr int ND = D / WN / 8;  /* and of 8 dimensions */
    /* One load brings 32 values of a key: of two tiles of keys, or of two steps of 16 dimensions.
     */
    static constexpr int KS = NK == 1 ? 2 : 1;

    /* shared memory, in bytes */
    static constexpr int Q = 0, K = Q + LINES * D * 2, V = K + KB * D * 2, P = V + KB * D * 2;
    static constexpr int STAT = P + (WN > 1 ? LINES * KB * 2 : 0), SPAN = STAT + WN * LINES * 4;
    static constexpr int TILE = SPAN + LINES * 8, BYTES = TILE + 80;
};

/* Byte offset of the 16 bytes `chunk` of a row of N 16-bit values. Chunks are exchanged so that
 * eight rows at the same chunk lie in different banks. `base` is a multiple of 8: lanes differ in
 * `row` alone, so that the fragments of a warp have one pattern. */
template <int N> static __device__ __forceinline__ int swizzled(int base, int row, int chunk)
{
    constexpr int CHUNKS = N / 8, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    return base * (N * 2) + row * (N * 2) + (chunk ^ (row & MASK)) * 16;
}

/* The same of keys that are kept as bytes, a piece of eight values at a time. */
template <typename T>
static __device__ __forceinline__ void widen(unsigned char *to, const dg_cuda_attention_args &a,
                                             const line_tile &t, turn now, int head)
{
    constexpr int CHUNKS = T::D / 8;
    unsigned char *from = page_keys(a.kv, t.seg, false, now.begin, head);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < T::KB * CHUNKS; i += T::THREADS) {
        const int key = i / CHUNKS, chunk = i % CHUNKS, at = now.begin + key,
                  slot = at % DG_CUDA_PAGE;
        uint4 eight = {0, 0, 0, 0};
        if (at >= now.low && at < now.high)
            eight = kv_widen_eight(
                a.kv.type,
                *(const uint2 *)(from + dg_cuda_slot_at(a.kv.type, T::D, slot, 8 * chunk)),
                *kv_factor_at(from, a.kv.type, T::D, slot, 8 * chunk));
        *(uint4 *)(to + swizzled<T::D>(0, key, chunk)) = eight;
    }
}

/* Begins to copy KB keys (or values) of a turn; zeros where nobody looks: what lies there may be no
 * number. */
template <typename T, bool BYTES>
static __device__ __forceinline__ void fetch(unsigned char *to, const dg_cuda_attention_args &a,
                                             const line_tile &t, turn now, int head)
{
    /* A thread has the same chunk of every PER-th key. PER is a power of two above its first key,
     * so that the exchange of chunks changes by a constant from one of its keys to the next. */
    constexpr int CHUNKS = T::D / 8, PER = T::THREADS / CHUNKS, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    static_assert(PER > 0 && (PER & (PER - 1)) == 0 && T::KB % PER == 0, "whole sweeps");
    int key = (int)threadIdx.x / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
    int exchanged = (chunk ^ (key & MASK)) * 16;
    if (BYTES && !now.canvas) {
        widen<T>(to, a, t, now, head);
        return;
    }
    constexpr bool PANELS = T::D % 64 == 0;
    constexpr int SLOT = PANELS ? 128 : T::D * 2; /* bytes from slot to slot */
    const unsigned char *from = page_keys(a.kv, t.seg, now.canvas, now.begin, head);
    from += now.begin % DG_CUDA_PAGE * SLOT + key * SLOT;
    from += PANELS ? chunk / 8 * (DG_CUDA_PAGE * 128) : chunk * 16;
    int piece = PANELS ? (chunk ^ key) % 8 * 16 : 0;
    to += key * T::D * 2;
    bool whole = now.begin >= now.low && now.begin + T::KB <= now.high;
#pragma unroll
    for (int i = 0; i < T::KB; i += PER) {
        unsigned char *at = to + i * T::D * 2 + (exchanged ^ (i & MASK) * 16);
        const unsigned char *there = from + i * SLOT + (PANELS ? piece ^ i % 8 * 16 : 0);
        int slot = now.begin + key + i;
        if (whole)
            dg_cp_async16(at, there);
        else
            dg_cp_async16_if(at, there, slot >= now.low && slot < now.high);
    }
    dg_cp_async_commit();
}

/* Begins to copy the tile's queries. */
template <typename T>
static __device__ __forceinline__ void fetch_queries(unsigned char *to,
                                                     const dg_cuda_attention_args &a,
                                                     const line_tile &t, int group, int kv_head)
{
    constexpr int CHUNKS = T::D / 8;
    for (int i = (int)threadIdx.x; i < T::LINES * CHUNKS; i += T::THREADS) {
        int line = i / CHUNKS, chunk = i % CHUNKS;
        dg_cp_async16_if(to + swizzled<T::D>(0, line, chunk),
                         query_at(a, t, group, kv_head, line) + chunk * 16, line < t.n_line);
    }
    dg_cp_async_commit();
}

/* s = Q K^T of this warp's lines and keys. */
template <typename T>
static __device__ __forceinline__ void make_scores(float s[T::MT][T::NK][4], const unsigned char *q,
                                                   const unsigned char *k, int first_line,
                                                   int first_key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::NK; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[m][n][c] = 0;
#pragma unroll 4
    for (int step = 0; step < T::D / 16; step += T::KS) {
        uint32_t qf[T::KS][T::MT][4], kf[T::KS][T::NK][2];
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int half = 0; half < T::KS; half++)
                dg_ldmatrix_x4(qf[half][m], q + swizzled<T::D>(first_line + 16 * m, lane % 16,
                                                               2 * (step + half) + lane / 16));
        if constexpr (T::KS == 2)
            dg_ldmatrix_x4(kf[0][0], k + swizzled<T::D>(first_key, lane % 8, 2 * step + lane / 8));
        else
#pragma unroll
            for (int n = 0; n < T::NK; n += 2)
                dg_ldmatrix_x4(kf[0][n],
                               k + swizzled<T::D>(first_key + 8 * n, lane / 16 * 8 + lane % 8,
                                                  2 * step + lane / 8 % 2));
#pragma unroll
        for (int half = 0; half < T::KS; half++)
#pragma unroll
            for (int m = 0; m < T::MT; m++)
#pragma unroll
                for (int n = 0; n < T::NK; n++)
                    dg_mma_bf16(s[m][n], qf[half][m], kf[half][n]);
    }
}

/* Hands this warp's weights to the group, as rows of KB 16-bit values. */
template <typename T>
static __device__ __forceinline__ void share_weights(unsigned char *p,
                                                     const float s[T::MT][T::NK][4], int first_line,
                                                     int first_key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::NK; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int line = first_line + 16 * m + 8 * h, chunk = first_key / 8 + n;
                *(uint32_t *)(p + swizzled<T::KB>(line, lane / 4, chunk) + lane % 4 * 4) =
                    dg_pack_bf16(s[m][n][2 * h], s[m][n][2 * h + 1]);
            }
}

/* o += P V: this warp's lines and dimensions, all keys of the turn. */
template <typename T>
static __device__ __forceinline__ void add_values(lines<T> *l, const float s[T::MT][T::NK][4],
                                                  const unsigned char *p, const unsigned char *v,
                                                  int first_line, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++) {
        uint32_t pf[T::MT][4];
#pragma unroll
        for (int m = 0; m < T::MT; m++) {
            if constexpr (T::WN > 1)
                dg_ldmatrix_x4(pf[m], p + swizzled<T::KB>(first_line + 16 * m, lane % 16,
                                                          2 * step + lane / 16));
            else {
                const float *low = s[m][2 * step], *high = s[m][2 * step + 1];
                pf[m][0] = dg_pack_bf16(low[0], low[1]);
                pf[m][1] = dg_pack_bf16(low[2], low[3]);
                pf[m][2] = dg_pack_bf16(high[0], high[1]);
                pf[m][3] = dg_pack_bf16(high[2], high[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < T::ND; n += 2) {
            uint32_t vf[4];
            dg_ldmatrix_x4_trans(
                vf, v + swizzled<T::D>(16 * step, lane % 16, wn * T::ND + n + lane / 16));
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                dg_mma_bf16(l->o[m][n], pf[m], vf);
                dg_mma_bf16(l->o[m][n + 1], pf[m], vf + 2);
            }
        }
    }
}

/* The sums of whole lines: over the lanes that share one, then over the group's warps in their
 * order. The maxima were read before the last turn's second barrier: their place is free. */
template <typename T>
static __device__ __forceinline__ void join_sums(lines<T> *l, float *stat, int first_line, int wn)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = l->sum[m][h];
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
            if (lane % 4 == 0)
                stat[wn * T::LINES + first_line + 16 * m + 8 * h + lane / 4] = sum;
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l->sum[m][h] = 0;
            for (int w = 0; w < T::WN; w++)
                l->sum[m][h] += stat[w * T::LINES + first_line + 16 * m + 8 * h + lane / 4];
        }
}
/* ---- the kernel ---- */

/* Turns [i, end) of a tile; the first one's keys are on their way. */
template <typename T, bool BYTES>
static __device__ __forceinline__ void attend(lines<T> *l, unsigned char *shared,
                                              const dg_cuda_attention_args &a, const line_tile &t,
                                              int kv_head, int i, int end)
{
    unsigned char *q = shared + T::Q, *k = shared + T::K, *v = shared + T::V, *p = shared + T::P;
    float *stat = (float *)(shared + T::STAT);
    const int2 *span = (const int2 *)(shared + T::SPAN);
    int warp = (int)threadIdx.x / 32, wm = warp / T::WN, wn = warp % T::WN;
    int first_line = wm * 16 * T::MT, first_key = wn * T::NK * 8;
    clear_lines<T>(l);
    for (; i < end; i++) {
        float s[T::MT][T::NK][4], next[T::MT][2], factor[T::MT][2];
        dg_cp_async_wait<0>();
        __syncthreads(); /* the keys are there, and nobody reads the last turn's values any more */
        turn now = turn_at<T>(t, i);
        fetch<T, BYTES>(v, a, t, now, kv_head + a.kv.n_kv_head);
        make_scores<T>(s, q, k, first_line, first_key);
        if (!now.open)
            mask_scores<T>(s, now, span, first_line, first_key);
        find_most<T>(next, s, stat, first_line, wm, wn);
        soften<T>(l, factor, s, next);
        scale_lines<T>(l, factor);
        if (T::WN > 1)
            share_weights<T>(p, s, first_line, first_key);
        dg_cp_async_wait<0>();
        __syncthreads(); /* values and weights are there, and nobody reads the keys any more */
        if (i + 1 < end)
            fetch<T, BYTES>(k, a, t, turn_at<T>(t, i + 1), kv_head);
        add_values<T>(l, s, p, v, first_line, wn);
    }
    join_sums<T>(l, stat, first_line, wn);
}

template <typename T, int BLOCKS, bool BYTES>
static __global__ void __launch_bounds__(T::THREADS, BLOCKS) flash_lines(dg_cuda_attention_args a)
{
    DG_SHARED(shared);
    line_tile &t = *(line_tile *)(shared + T::TILE);
    dg_grid_wait();
    int group = a.kv.n_head / a.kv.n_kv_head, kv_head = (int)blockIdx.y, part = (int)blockIdx.z;
    if (threadIdx.x < 32) {
        /* the last tiles, which see the most keys, begin first */
        find_tile(a, group, T::LINES, (int)(gridDim.x - 1 - blockIdx.x), &t);
        find_spans(a, group, kv_head, T::LINES, (int2 *)(shared + T::SPAN), NULL, &t);
    }
    __syncthreads();
    int n_turn = count_turns<T>(t), n_part = count_parts<T>(a, t, n_turn);
    if (t.n_line == 0 || part >= n_part)
        return;
    int begin = n_turn * part / n_part, end = n_turn * (part + 1) / n_part;
    if (begin < end)
        fetch<T, BYTES>(shared + T::K, a, t, turn_at<T>(t, begin), kv_head);
    fetch_queries<T>(shared + T::Q, a, t, group, kv_head);

    lines<T> l;
    attend<T, BYTES>(&l, shared, a, t, kv_head, begin, end);
    int warp = (int)threadIdx.x / 32, first_line = warp / T::WN * 16 * T::MT, wn = warp % T::WN;
    if (n_part > 1) {
        leave_part<T>(l, a, t, group, kv_head, first_line, wn, part);
        if (!comes_last(a, &t, group, kv_head, n_part))
            return;
        join_parts<T>(&l, a, t, group, kv_head, first_line, wn, n_part, part);
    }
    store_lines<T>(&l, a, t, group, kv_head, first_line, wn);
    if (kv_head == a.kv.n_kv_head - 1 && a.out.ld > a.kv.n_head * T::D)
        for (int line = warp; line < t.n_line; line += T::THREADS / 32)
            if ((t.first_line + line) % group == group - 1)
                store_padding(a.out, t.seg.first_row + (t.first_line + line) / group,
                              a.kv.n_head * T::D);
}

template <typename T, int BLOCKS>
static cudaError_t launch_flash(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    dim3 grid(count_tiles<T>(a), (unsigned)a->kv.n_kv_head, a->counter ? MAX_PARTS : 1);
    if (dg_kv_in_bytes(a->kv.type))
        return DG_LAUNCH((flash_lines<T, BLOCKS, true>), grid, T::THREADS, T::BYTES, stream, *a);
    return DG_LAUNCH((flash_lines<T, BLOCKS, false>), grid, T::THREADS, T::BYTES, stream, *a);
}

/* Which tile for which head and device. KB, MT and WN must not depend on anything else. */
cudaError_t dg_cuda_attention_mma(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    int device = 0, max_shared = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error =
            cudaDeviceGetAttribute(&max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error)
        return error;
    switch (a->kv.head_dim) {
    case 16:
        return launch_flash<tile<16, 64, 1, 1, 4>, 4>(stream, a);
    case 32:
        return launch_flash<tile<32, 64, 1, 1, 4>, 4>(stream, a);
    case 64:
        return launch_flash<tile<64, 64, 1, 1, 4>, 3>(stream, a);
    case 128:
        return launch_flash<tile<128, 64, 1, 1, 4>, 2>(stream, a);
    case 256: /* 106 KB, two blocks on an SM of 227; 85 KB */
        if (max_shared >= tile<256, 64, 2, 2, 2>::BYTES)
            return launch_flash<tile<256, 64, 2, 2, 2>, 2>(stream, a);
        return launch_flash<tile<256, 64, 2, 2, 1>, 2>(stream, a);
    case 512: /* 201 KB; 99 KB */
        if (max_shared >= tile<512, 64, 2, 4, 2>::BYTES)
            return launch_flash<tile<512, 64, 2, 4, 2>, 1>(stream, a);
        return launch_flash<tile<512, 32, 2, 4, 1>, 1>(stream, a);
    default:
        return cudaErrorNotSupported;
    }
}
