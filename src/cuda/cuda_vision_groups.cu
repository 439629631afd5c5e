/* Attention inside pictures with the products of warpgroups (sm_90a), for heads of 65 to 72 halves.
 *
 * Each warpgroup has 64 lines of one head, whose queries lie in shared memory as two slabs
 * (cuda_slabs.cuh); 64 keys at a time and their values across are copied by a thread of theirs,
 * slabs as well. There is no overlap inside a warpgroup: five of them share a multiprocessor, and
 * while one multiplies the others make weights of their scores. They find their turns by
 * themselves: barriers that hand them on cost a tenth. With five, 2,520 patches of 16 heads are 128
 * blocks. */
#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_vision.cuh"

enum { QK_STEPS = 5, VALUE_ROWS = 72, VALUE_BYTES = VALUE_ROWS * SLAB_ROW_BYTES };

template <int GROUPS_> struct group_shape {
    static constexpr int GROUPS = GROUPS_, THREADS = 128 * GROUPS;
    static constexpr int LINES = 64 * GROUPS, KB = 64, MT = 1, NK = KB / 8, ND = VALUE_ROWS / 8,
                         WN = 1;
    static constexpr int STAGES = 4, AHEAD = 2, KEY_BYTES = 2 * SLAB_BYTES,
                         STAGE_BYTES = KEY_BYTES + VALUE_BYTES, QUERY_BYTES = 2 * SLAB_BYTES;
    static constexpr int STAGE = GROUPS * QUERY_BYTES, BARS = STAGE + STAGES * STAGE_BYTES,
                         SHARED = BARS + (2 * STAGES + 1) * 8;
};

struct group_maps {
    dg_tensor_map q, k, v;
};

/* Barriers: queries, then the stages when they are full and when they are empty. */
template <class T> struct group_memory {
    unsigned char *memory;
    __device__ __forceinline__ unsigned char *query(int group) const
    {
        return memory + group * T::QUERY_BYTES;
    }
    __device__ __forceinline__ unsigned char *keys(int stage) const
    {
        return memory + T::STAGE + stage * T::STAGE_BYTES;
    }
    __device__ __forceinline__ unsigned char *values(int stage) const
    {
        return keys(stage) + T::KEY_BYTES;
    }
    __device__ __forceinline__ uint64_t *asked(void) const
    {
        return (uint64_t *)(memory + T::BARS);
    }
    __device__ __forceinline__ uint64_t *full(int stage) const
    {
        return asked() + 1 + stage;
    }
    __device__ __forceinline__ uint64_t *empty(int stage) const
    {
        return full(stage) + T::STAGES;
    }
};

template <class T> static __device__ __forceinline__ void make_bars(const group_memory<T> &m)
{
    if (threadIdx.x == 0) {
        dg_mbar_init(m.asked(), 1);
        for (int i = 0; i < T::STAGES; i++) {
            dg_mbar_init(m.full(i), 1);
            dg_mbar_init(m.empty(i), T::THREADS / 32);
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
}

/* ---- copies, by one thread ---- */

/* Where a block's rows begin in the maps. */
struct group_rows {
    int line, key, value, slot; /* queries, keys, and values with their first column */
};

template <class T>
static __device__ __forceinline__ void copy_queries(const group_memory<T> &m,
                                                    const group_maps &maps, const group_rows &at)
{
    dg_mbar_expect(m.asked(), T::GROUPS * T::QUERY_BYTES);
    for (int i = 0; i < 2 * T::GROUPS; i++)
        dg_tensor_g2s(m.query(0) + i * SLAB_BYTES, maps.q, i % 2 * SLAB_VALUES,
                      at.line + i / 2 * 64, m.asked());
}

/* Turn n's keys and values, when all are done with what was there before. */
template <class T>
static __device__ __forceinline__ void copy_turn(const group_memory<T> &m, const group_maps &maps,
                                                 const group_rows &at, int n)
{
    int stage = n % T::STAGES, key = n * T::KB;
    dg_mbar_wait(m.empty(stage), n / T::STAGES % 2 ^ 1);
    dg_mbar_expect(m.full(stage), T::STAGE_BYTES);
    for (int i = 0; i < 2; i++)
        dg_tensor_g2s(m.keys(stage) + i * SLAB_BYTES, maps.k, i * SLAB_VALUES, at.key + key,
                      m.full(stage));
    dg_tensor_g2s(m.values(stage), maps.v, at.slot + key, at.value, m.full(stage));
}

/* ---- products ---- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define ACC4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC12(i) ACC4(i), ACC4(i + 4), ACC4(i + 8)
#define REGS_32                                                                                    \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"   \
    "%25,%26,%27,%28,%29,%30,%31"

/* s = (add ? s : 0) + 16 values, number `step` of four, of 64 queries and 64 keys. */
template <class T>
static __device__ __forceinline__ void score_mma(float s[T::NK][4], const unsigned char *q,
                                                 const unsigned char *k, int step, bool add)
{
    float *d = s[0];
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGS_32
                 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
                 : ACC12(0), ACC12(12), ACC4(24), ACC4(28)
                 : "l"(descriptor_of(operand_on(operand_at(q), step * 32))),
                   "l"(descriptor_of(operand_on(operand_at(k), step * 32))), "r"((int)add));
}

/* o += 16 keys: p is the warp's fragment, v the values' first 32 bytes of these keys. */
template <class T>
static __device__ __forceinline__ void value_mma(float o[T::ND][4], const uint32_t p[4],
                                                 const unsigned char *v)
{
    float *d = o[0];
    asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 {" REGS_32
                 ",%32,%33,%34,%35}, {%36,%37,%38,%39}, %40, 1, 1, 1, 0;"
                 : ACC12(0), ACC12(12), ACC12(24)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(descriptor_of(operand_at(v))));
}

#undef REGS_32
#undef ACC4
#undef ACC12

#else

template <class T>
static __device__ __forceinline__ void score_mma(float s[T::NK][4], const unsigned char *q,
                                                 const unsigned char *k, int step, bool add)
{
    for (int i = 0; i < 32 && !add; i++)
        s[i / 4][i % 4] = 0;
    slab_mma<DG_CUDA_F16, 64, SLAB_K_ALONG>(s, operand_at(q), operand_at(k), step);
}

template <class T>
static __device__ __forceinline__ void value_mma(float o[T::ND][4], const uint32_t p[4],
                                                 const unsigned char *v)
{
    int lane = (int)threadIdx.x % 32;
    for (int j = 0; j < T::ND; j++) {
        uint32_t b[2];
        dg_ldmatrix_x2(b, in_panel(v + (j * 8 + lane % 8) * SLAB_ROW_BYTES + lane / 8 % 2 * 16));
        dg_mma_f16(o[j], p, b);
    }
}

#endif

template <class T>
static __device__ __forceinline__ void make_scores(float s[1][T::NK][4], const unsigned char *q,
                                                   const unsigned char *k)
{
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < QK_STEPS; step++)
        score_mma<T>(s[0], q + step / 4 * SLAB_BYTES, k + step / 4 * SLAB_BYTES, step % 4,
                     step > 0);
    warpgroup_commit();
    warpgroup_wait<0>();
#pragma unroll
    for (int i = 0; i < T::NK * 4; i++)
        warpgroup_settle(s[0][i / 4][i % 4]);
}

template <class T>
static __device__ __forceinline__ void add_values(lines<T> *l, const float s[1][T::NK][4],
                                                  const unsigned char *v)
{
    uint32_t p[T::KB / 16][4];
#pragma unroll
    for (int i = 0; i < T::KB / 4; i++) {
        const float *pair = s[0][i / 4 * 2 + i % 4 / 2] + i % 2 * 2;
        p[i / 4][i % 4] = dg_pack_f16(pair[0], pair[1]);
        warpgroup_settle(p[i / 4][i % 4]);
    }
#pragma unroll
    for (int i = 0; i < T::ND * 4; i++)
        warpgroup_settle(l->o[0][i / 4][i % 4]);
    warpgroup_begin();
#pragma unroll
    for (int step = 0; step < T::KB / 16; step++)
        value_mma<T>(l->o[0], p[step], v + step * 32);
    warpgroup_commit();
    warpgroup_wait<0>();
#pragma unroll
    for (int i = 0; i < T::ND * 4; i++)
        warpgroup_settle(l->o[0][i / 4][i % 4]);
}

/* ---- the last turn: n keys of it are the picture's ---- */

template <class T> static __device__ __forceinline__ void mask_last(float s[1][T::NK][4], int n)
{
#pragma unroll
    for (int i = 0; i < T::NK * 4; i++)
        if (i / 4 * 8 + 2 * ((int)threadIdx.x % 4) + i % 2 >= n)
            s[0][i / 4][i % 4] = -INFINITY;
}

/* Another picture's values become zeros: they may be no numbers. By all consumers. */
template <class T> static __device__ __forceinline__ void clear_last(unsigned char *values, int n)
{
    for (int i = (int)threadIdx.x; i < VALUE_ROWS * T::KB; i += T::THREADS) {
        int row = i / T::KB, key = i % T::KB;
        if (key >= n)
            *(uint16_t *)(values + slab_offset(row, key / 8) + key % 8 * 2) = 0;
    }
    warpgroup_publish();
    dg_bar_sync(1, T::THREADS);
}

/* ---- the kernel ---- */

/* The first thread keeps AHEAD turns on their way: few enough that it need not wait for the other
 * warpgroups to end the turn before this one. */
template <class T>
static __device__ __forceinline__ void attend(lines<T> *l, const group_memory<T> &m,
                                              const group_maps &maps, const group_rows &at,
                                              int n_key)
{
    const unsigned char *q = m.query((int)threadIdx.x / 128);
    int n_turn = (n_key + T::KB - 1) / T::KB;
    if (threadIdx.x == 0) {
        copy_queries(m, maps, at);
        for (int n = 0; n < T::AHEAD && n < n_turn; n++)
            copy_turn(m, maps, at, n);
    }
    __syncwarp();
    clear_lines<T>(l);
    dg_mbar_wait(m.asked(), 0);
    for (int key = 0, n = 0; key < n_key; key += T::KB, n++) {
        float s[1][T::NK][4], next[1][2], factor[1][2];
        int stage = n % T::STAGES;
        if (threadIdx.x == 0 && n + T::AHEAD < n_turn)
            copy_turn(m, maps, at, n + T::AHEAD);
        __syncwarp();
        dg_mbar_wait(m.full(stage), n / T::STAGES % 2);
        make_scores<T>(s, q, m.keys(stage));
        if (key + T::KB > n_key) {
            mask_last<T>(s, n_key - key);
            clear_last<T>(m.values(stage), n_key - key);
        }
        find_most<T>(next, s, NULL, 0, 0, 0);
        soften<T>(l, factor, s, next);
        scale_lines<T>(l, factor);
        add_values<T>(l, s, m.values(stage));
        if (threadIdx.x % 32 == 0)
            dg_mbar_arrive(m.empty(stage));
    }
}

template <class T>
static __device__ __forceinline__ void store(const lines<T> &l,
                                             const dg_cuda_vision_attention_args &a,
                                             const patch_tile &t, int head, int first_line)
{
    int lane = (int)threadIdx.x % 32, dim = a.from.dim;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = l.sum[0][h];
        sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
        int line = first_line + 8 * h + lane / 4;
        if (line >= t.n_patch)
            continue;
#pragma unroll
        for (int n = 0; n < T::ND; n++) {
            int i = 8 * n + 2 * (lane % 4);
            if (i < dim)
                store_result(a.out, t.first_patch + line, head * dim + i, l.o[0][n][2 * h] / sum,
                             l.o[0][n][2 * h + 1] / sum);
        }
        if (head == a.from.n_head - 1)
            for (int i = a.from.n_head * dim + 2 * (lane % 4); i < a.out.ld; i += 8)
                store_result(a.out, t.first_patch + line, i, 0, 0);
    }
}

template <class T>
static __device__ __forceinline__ void attend_tile(const dg_cuda_vision_attention_args &a,
                                                   const group_maps &maps)
{
    DG_SHARED(shared);
    group_memory<T> m = {shared};
    patch_tile t = find_tile(a.pictures, T::LINES, (int)blockIdx.x);
    int head = (int)blockIdx.y, thread = (int)threadIdx.x;
    int row = head * a.pictures.n_slot + t.first_slot;
    make_bars(m);
    dg_grid_wait();
    dg_grid_launch_next();
    lines<T> l;
    attend(&l, m, maps, group_rows{row + t.line, row, head * VALUE_ROWS, t.first_slot}, t.n_patch);
    store(l, a, t, head, t.line + thread / 32 * 16);
}

/* Block (x: tile, y: head). */
template <class T>
static __global__ void __launch_bounds__(T::THREADS, 1)
    attend_groups(dg_cuda_vision_attention_args a, const __grid_constant__ group_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        attend_tile<T>(a, maps);
}

template <class T>
static cudaError_t launch(cudaStream_t stream, const dg_cuda_vision_attention_args *a)
{
    const dg_cuda_vision_qkv &from = a->from;
    int n_slot = a->pictures.n_slot;
    group_maps maps;
    cudaError_t error = dg_tensor_map_init(&maps.q, from.q, from.n_head * n_slot, from.ld, 64);
    if (!error)
        error = dg_tensor_map_init(&maps.k, from.k, from.n_head * n_slot, from.ld, 64);
    if (!error)
        error = dg_tensor_map_init(&maps.v, from.v, from.n_head * VALUE_ROWS, n_slot, VALUE_ROWS);
    if (error)
        return error;
    dim3 grid((unsigned)tile_count(&a->pictures, T::LINES), (unsigned)from.n_head);
    return DG_LAUNCH(attend_groups<T>, grid, T::THREADS, (size_t)T::SHARED, stream, *a, maps);
}

extern "C" cudaError_t dg_cuda_vision_groups(cudaStream_t stream,
                                             const dg_cuda_vision_attention_args *a,
                                             dg_picture_tile tile)
{
    typedef group_shape<5> large;
    if (!a->from.across || (a->from.dim + 7) / 8 * 8 != VALUE_ROWS || a->from.ld != 80)
        return cudaErrorInvalidValue;
    if (tile == DG_PICTURE_BEST &&
        fills_device(tile_count(&a->pictures, large::LINES) * a->from.n_head))
        tile = DG_PICTURE_LARGE;
    return tile == DG_PICTURE_LARGE ? launch<large>(stream, a) : launch<group_shape<2>>(stream, a);
}
