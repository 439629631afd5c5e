/* Attention inside pictures: every patch looks at all patches of its own. Heads of 72 have another
 * kernel on sm_90a (cuda_vision_groups.cu).
 *
 * On tensor cores a block has 32 lines of one head for each of its warps, whose queries stay in
 * registers; 64 keys and values at a time come by cp.async, the next ones while these are worked
 * on, and serve all warps. With ten warps 2,520 patches of 16 heads are 128 blocks: one for each
 * multiprocessor of an H200. How many warps there are changes no bits. */
#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_vision.cuh"

/* Zeros behind the last head of rows [first, end), by the threads of a block. */
static __device__ __forceinline__ void pad_rows(dg_cuda_rows out, int first, int end, int n)
{
    for (int row = first + (int)threadIdx.x / 32; row < end; row += (int)blockDim.x / 32)
        store_padding(out, row, n);
}

/* ---- tensor cores ---- */

/* Heads of up to 16 STEPS_ values, of whose results 8 ND_ count. */
template <int STEPS_, int ND_, int WARPS_> struct picture_shape {
    static constexpr int STEPS = STEPS_, ND = ND_, WARPS = WARPS_;
    static constexpr int KEYS = 64; /* of a stage */
    static constexpr int KB = 32, MT = 2, NK = KB / 8, WN = 1;
    static constexpr int LINES = 16 * MT * WARPS, THREADS = 32 * WARPS;
    static constexpr int LD = 16 * STEPS, PIECES = LD / 8;
    static constexpr int ROW = LD * 2 + 16; /* in shared memory: eight rows in different banks */
    static constexpr int TILE = KEYS * ROW, STAGE = 2 * TILE, BYTES = 2 * STAGE;
};

/* Begins to copy 64 keys and values from `key` on; zeros behind the last. */
template <class T>
static __device__ __forceinline__ void fetch(unsigned char *to, const unsigned char *k,
                                             const unsigned char *v, int key, int n_key)
{
#pragma unroll
    for (int i = 0; i < (2 * T::KEYS * T::PIECES + T::THREADS - 1) / T::THREADS; i++) {
        int piece = (int)threadIdx.x + i * T::THREADS, row = piece / T::PIECES,
            at = piece % T::PIECES;
        bool value = row >= T::KEYS;
        int slot = key + (value ? row - T::KEYS : row);
        if (row >= 2 * T::KEYS)
            break;
        const unsigned char *from =
            (value ? v : k) + (size_t)(slot < n_key ? slot : 0) * (T::LD * 2) + at * 16;
        dg_cp_async16_if(to + row * T::ROW + at * 16, from, slot < n_key);
    }
    dg_cp_async_commit();
}

/* The warp's queries as fragments; of lines behind the last: some other's. */
template <class T>
static __device__ __forceinline__ void load_queries(uint32_t q[T::MT][T::STEPS][4],
                                                    const unsigned char *from, int first_line,
                                                    int n_line)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int line = min(first_line + 16 * m + lane / 4 + i % 2 * 8, n_line - 1);
            const unsigned char *at =
                from + (size_t)line * (T::LD * 2) + (lane % 4 * 2 + i / 2 * 8) * 2;
#pragma unroll
            for (int step = 0; step < T::STEPS; step++)
                q[m][step][i] = *(const uint32_t *)(at + step * 32);
        }
}

template <class T>
static __device__ __forceinline__ void make_scores(float s[T::MT][T::NK][4],
                                                   const uint32_t q[T::MT][T::STEPS][4],
                                                   const unsigned char *k)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < T::MT * T::NK * 4; i++)
        s[i / (T::NK * 4)][i / 4 % T::NK][i % 4] = 0;
#pragma unroll
    for (int step = 0; step < T::STEPS; step++)
#pragma unroll
        for (int n = 0; n < T::NK; n += 2) {
            uint32_t kf[4];
            dg_ldmatrix_x4(kf, k + (8 * n + lane / 16 * 8 + lane % 8) * T::ROW +
                                   (2 * step + lane / 8 % 2) * 16);
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                dg_mma_f16(s[m][n], q[m][step], kf);
                dg_mma_f16(s[m][n + 1], q[m][step], kf + 2);
            }
        }
}

/* Takes out what lies behind the last key: n of this turn's are there. */
template <class T> static __device__ __forceinline__ void mask_last(float s[T::MT][T::NK][4], int n)
{
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int j = 0; j < T::NK; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (8 * j + 2 * ((int)threadIdx.x % 4) + c % 2 >= n)
                    s[m][j][c] = -INFINITY;
}

template <class T>
static __device__ __forceinline__ void add_values(lines<T> *l, const float s[T::MT][T::NK][4],
                                                  const unsigned char *v)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++) {
        uint32_t p[T::MT][4];
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = s[m][2 * step + i / 2] + i % 2 * 2;
                p[m][i] = dg_pack_f16(pair[0], pair[1]);
            }
        const unsigned char *rows = v + (16 * step + lane % 16) * T::ROW;
#pragma unroll
        for (int n = 0; n < T::ND; n += 2) {
            uint32_t vf[4];
            if (n + 1 < T::ND)
                dg_ldmatrix_x4_trans(vf, rows + (n + lane / 16) * 16);
            else
                dg_ldmatrix_x2_trans(vf, rows + n * 16);
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                dg_mma_f16(l->o[m][n], p[m], vf);
                if (n + 1 < T::ND)
                    dg_mma_f16(l->o[m][n + 1], p[m], vf + 2);
            }
        }
    }
}

/* One turn: KB keys for the warp's lines; n of them are there. */
template <class T>
static __device__ __forceinline__ void take_turn(lines<T> *l, const uint32_t q[T::MT][T::STEPS][4],
                                                 const unsigned char *k, const unsigned char *v,
                                                 int n)
{
    float s[T::MT][T::NK][4], next[T::MT][2], factor[T::MT][2];
    make_scores<T>(s, q, k);
    if (n < T::KB)
        mask_last<T>(s, n);
    find_most<T>(next, s, NULL, 0, 0, 0);
    soften<T>(l, factor, s, next);
    scale_lines<T>(l, factor);
    add_values<T>(l, s, v);
}

/* All keys of the picture for the warp's lines. */
template <class T>
static __device__ __forceinline__ void attend(lines<T> *l, unsigned char *shared,
                                              const uint32_t q[T::MT][T::STEPS][4],
                                              const unsigned char *k, const unsigned char *v,
                                              int n_key)
{
    clear_lines<T>(l);
    for (int key = 0, stage = 0; key < n_key; key += T::KEYS, stage ^= 1) {
        const unsigned char *at = shared + stage * T::STAGE;
        dg_cp_async_wait<0>();
        __syncthreads(); /* they are there, and nobody reads the last stage any more */
        if (key + T::KEYS < n_key)
            fetch<T>(shared + (stage ^ 1) * T::STAGE, k, v, key + T::KEYS, n_key);
#pragma unroll 1
        for (int i = 0; i < T::KEYS && key + i < n_key; i += T::KB)
            take_turn<T>(l, q, at + i * T::ROW, at + T::TILE + i * T::ROW, n_key - key - i);
    }
}

template <class T>
static __device__ __forceinline__ void store(lines<T> *l, const dg_cuda_vision_attention_args &a,
                                             const patch_tile &t, int head, int first_line)
{
    int lane = (int)threadIdx.x % 32, dim = a.from.dim;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = l->sum[m][h];
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
            int line = first_line + 16 * m + 8 * h + lane / 4;
            if (line >= t.n_patch)
                continue;
#pragma unroll
            for (int n = 0; n < T::ND; n++) {
                int i = 8 * n + 2 * (lane % 4);
                if (i < dim)
                    store_result(a.out, t.first_patch + line, head * dim + i,
                                 l->o[m][n][2 * h] / sum, l->o[m][n][2 * h + 1] / sum);
            }
        }
}

/* Block (x: tile, y: head). */
template <class T>
static __global__ void __launch_bounds__(T::THREADS, T::WARPS > 4 ? 1 : 2)
    attend_pictures(dg_cuda_vision_attention_args a)
{
    DG_SHARED(shared);
    patch_tile t = find_tile(a.pictures, T::LINES, (int)blockIdx.x);
    int head = (int)blockIdx.y, first_line = t.line + (int)threadIdx.x / 32 * 16 * T::MT;
    size_t begin = ((size_t)head * (size_t)a.pictures.n_slot + (size_t)t.first_slot) * T::LD * 2;
    const unsigned char *q = (const unsigned char *)a.from.q + begin,
                        *k = (const unsigned char *)a.from.k + begin,
                        *v = (const unsigned char *)a.from.v + begin;
    uint32_t queries[T::MT][T::STEPS][4];
    lines<T> l;
    dg_grid_wait();
    dg_grid_launch_next();
    fetch<T>(shared, k, v, 0, t.n_patch);
    load_queries<T>(queries, q, first_line, t.n_patch);
    attend<T>(&l, shared, queries, k, v, t.n_patch);
    store<T>(&l, a, t, head, first_line);
    if (head == a.from.n_head - 1)
        pad_rows(a.out, t.first_patch + t.line,
                 t.first_patch + min(t.line + (int)T::LINES, t.n_patch),
                 a.from.n_head * a.from.dim);
}

template <class T>
static cudaError_t launch(cudaStream_t stream, const dg_cuda_vision_attention_args *a)
{
    dim3 grid((unsigned)tile_count(&a->pictures, T::LINES), (unsigned)a->from.n_head);
    return DG_LAUNCH(attend_pictures<T>, grid, T::THREADS, T::BYTES, stream, *a);
}

/* Ten warps where they are not too many for all multiprocessors to have some. */
template <int STEPS, int ND>
static cudaError_t launch_steps(cudaStream_t stream, const dg_cuda_vision_attention_args *a,
                                dg_picture_tile tile)
{
    typedef picture_shape<STEPS, ND, 10> large;
    if (tile == DG_PICTURE_BEST &&
        fills_device(tile_count(&a->pictures, large::LINES) * a->from.n_head))
        tile = DG_PICTURE_LARGE;
    return tile == DG_PICTURE_LARGE ? launch<large>(stream, a)
                                    : launch<picture_shape<STEPS, ND, 4>>(stream, a);
}

extern "C" cudaError_t dg_cuda_vision_mma(cudaStream_t stream,
                                          const dg_cuda_vision_attention_args *a,
                                          dg_picture_tile tile)
{
    if (a->from.dim <= 16)
        return launch_steps<1, 2>(stream, a, tile);
    if (a->from.dim <= 64)
        return launch_steps<4, 8>(stream, a, tile);
    return launch_steps<5, 9>(stream, a, tile);
}

/* ---- the plain kernel: a warp a line, in float; any head ---- */

enum { PLAIN_WARPS = 4, PLAIN_KEYS = 32 };

template <bool EXACT> static __device__ __forceinline__ float value_at(const void *data, size_t at)
{
    return EXACT ? ((const float *)data)[at] : dg_f16_at(((const uint16_t *)data)[at]);
}

/* 32 keys from `key` on; q, o and p in shared memory. */
template <bool EXACT>
static __device__ __forceinline__ void plain_keys(const dg_cuda_vision_qkv &from, size_t begin,
                                                  int key, int n_key, const float *q, float *o,
                                                  float *p, float *most, float *sum)
{
    int lane = (int)threadIdx.x % 32, dim = from.dim, n = min((int)PLAIN_KEYS, n_key - key);
    size_t mine = begin + (size_t)(key + min(lane, n - 1)) * (size_t)from.ld;
    float dot = 0;
    for (int i = 0; i < dim; i++)
        dot = fmaf(q[i], value_at<EXACT>(from.k, mine + (size_t)i), dot);
    float score = lane < n ? dot : -INFINITY, next = fmaxf(*most, dg_warp_max(score));
    float factor = *most == next ? 1 : expf(*most - next);
    p[lane] = lane < n ? expf(score - next) : 0;
    *sum = *sum * factor + dg_warp_sum(p[lane]);
    *most = next;
    __syncwarp();
    for (int i = lane; i < dim; i += 32) {
        float total = 0;
        for (int j = 0; j < n; j++)
            total = fmaf(
                p[j],
                value_at<EXACT>(from.v, begin + (size_t)(key + j) * (size_t)from.ld + (size_t)i),
                total);
        o[i] = o[i] * factor + total;
    }
    __syncwarp();
}

/* Block (x: four patches, y: head). */
template <bool EXACT>
static __global__ void __launch_bounds__(32 * PLAIN_WARPS)
    attend_plainly(dg_cuda_vision_attention_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, head = (int)blockIdx.y;
    int patch = (int)blockIdx.x * PLAIN_WARPS + warp, dim = a.from.dim;
    if (patch >= a.pictures.n_patch)
        return;
    patch_place at = find_patch(a.pictures, patch);
    const dg_cuda_picture &of = a.pictures.at[at.picture];
    size_t first = (size_t)head * (size_t)a.pictures.n_slot, ld = (size_t)a.from.ld;
    float *q = (float *)shared + warp * (2 * dim + PLAIN_KEYS), *o = q + dim, *p = o + dim;
    for (int i = lane; i < dim; i += 32) {
        q[i] = value_at<EXACT>(a.from.q, (first + (size_t)at.slot) * ld + (size_t)i);
        o[i] = 0;
    }
    __syncwarp();
    float most = -INFINITY, sum = 0;
    for (int key = 0; key < patch_count(of); key += PLAIN_KEYS)
        plain_keys<EXACT>(a.from, (first + (size_t)of.first_slot) * ld, key, patch_count(of), q, o,
                          p, &most, &sum);
    for (int i = 2 * lane; i < dim; i += 64)
        store_result(a.out, patch, head * dim + i, o[i] / sum, o[i + 1] / sum);
    if (head == a.from.n_head - 1)
        store_padding(a.out, patch, a.from.n_head * dim);
}

static cudaError_t launch_plain(cudaStream_t stream, const dg_cuda_vision_attention_args *a)
{
    size_t shared = PLAIN_WARPS * (2 * (size_t)a->from.dim + PLAIN_KEYS) * sizeof(float);
    dim3 grid((unsigned)(a->pictures.n_patch + PLAIN_WARPS - 1) / PLAIN_WARPS,
              (unsigned)a->from.n_head);
    if (shared > 48 << 10 || a->from.dim % 2)
        return cudaErrorInvalidValue;
    if (a->from.exact)
        return DG_LAUNCH(attend_plainly<true>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    return DG_LAUNCH(attend_plainly<false>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
}

/* ---- which ---- */

/* Heads on tensor cores; those of warpgroups have more values than a slab. */
enum { MOST_MMA = 72, LEAST_ACROSS = 65 };

extern "C" bool dg_cuda_vision_across(bool exact, int dim)
{
    return !exact && dim >= LEAST_ACROSS && dim <= MOST_MMA && dg_cuda_has_groups();
}

extern "C" int dg_cuda_vision_ld(int dim)
{
    return dim <= 16 ? 16 : dim <= 64 ? 64 : (dim + 15) / 16 * 16;
}

extern "C" cudaError_t dg_cuda_vision_attention(cudaStream_t stream,
                                                const dg_cuda_vision_attention_args *a)
{
    if (a->pictures.n_patch == 0)
        return cudaSuccess;
    if (a->from.ld != dg_cuda_vision_ld(a->from.dim))
        return cudaErrorInvalidValue;
    if (a->from.across)
        return dg_cuda_vision_groups(stream, a, DG_PICTURE_BEST);
    if (a->from.exact || a->from.dim > MOST_MMA)
        return launch_plain(stream, a);
    return dg_cuda_vision_mma(stream, a, DG_PICTURE_BEST);
}
