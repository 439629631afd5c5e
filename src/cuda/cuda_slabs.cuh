/* Products on sm_90a with both operands in shared memory: rows of activations are the M of wgmma,
 * rows of 16-bit weights its N.
 *
 * A slab is 64 rows of 64 values, 128 bytes a row, the 16-byte pieces of a row swapped about by its
 * number (slab_offset) as the tensor cores read them without conflicts. Weights lie on the device
 * as slabs, those of the same 64 rows in ascending k one after the other, so that a stage's weights
 * are contiguous pieces; activations are cut into slabs by the copy engine (dg_tensor_map). One
 * warp copies, warpgroups multiply; a ring of stages is between them.
 *
 * On the host the products are chains of m16n8k16 over the same slabs. */
#ifndef DG_CUDA_CUDA_SLABS_CUH
#define DG_CUDA_CUDA_SLABS_CUH

#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_wgmma.cuh"

enum { SLAB_ROWS = 64, SLAB_VALUES = 64, SLAB_ROW_BYTES = 128, SLAB_BYTES = 8192 };

static __host__ __device__ __forceinline__ int slab_count(int n)
{
    return (n + SLAB_ROWS - 1) / SLAB_ROWS;
}

/* Where 16-byte piece 0 ... 7 of a slab's row is. */
static __device__ __forceinline__ int slab_offset(int row, int piece)
{
    return row * SLAB_ROW_BYTES + (piece ^ row % 8) * 16;
}

/* ---- one product: 16 values of k ---- */

/* How the second operand lies: rows of it along k, as weights do for a projection, or the rows are
 * its k, as the words of the table are for the soft embedding. */
enum slab_side { SLAB_K_ALONG, SLAB_K_DOWN };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Pieces are swapped within 1024 bytes, the distance from 8 rows to the next. `across`: from 64
 * columns to the next ones where k goes down. */
static __device__ __forceinline__ uint64_t slab_descriptor(const unsigned char *at, int across)
{
    return (uint64_t)((dg_shared_address(at) & 0x3FFFFu) >> 4) | (uint64_t)(across / 16) << 16 |
           (uint64_t)(1024 / 16) << 32 | (uint64_t)1 << 62;
}

#define ACC8(i)                                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)
#define REGS_32                                                                                    \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"   \
    "%25,%26,%27,%28,%29,%30,%31"
#define REGS_64                                                                                    \
    REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52" \
            ",%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA(shape, type, regs, operands, on, side, ...)                                          \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " on                                        \
                 ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" regs     \
                 "}, " operands ", p, 1, 1, 0, " side ";\n\t}"                                     \
                 : __VA_ARGS__                                                                     \
                 : "l"(x), "l"(w), "r"(1), "n"(SIDE == SLAB_K_DOWN ? 1 : 0))
#define WGMMA_64(type) WGMMA("m64n64k16", type, REGS_32, "%32, %33", "%34", "%35", ACC32(0))
#define WGMMA_128(type)                                                                            \
    WGMMA("m64n128k16", type, REGS_64, "%64, %65", "%66", "%67", ACC32(0), ACC32(32))

/* acc += 16 values of k, number `step` of a slab's four: 64 rows of x, N of w. */
template <dg_cuda_form FORM, int N, slab_side SIDE>
static __device__ __forceinline__ void slab_mma(float acc[N / 8][4], const unsigned char *rows,
                                                const unsigned char *weights, int step)
{
    float *d = acc[0];
    uint64_t x = slab_descriptor(rows + step * 32, 16);
    uint64_t w = SIDE == SLAB_K_DOWN ? slab_descriptor(weights + step * 2048, SLAB_BYTES)
                                     : slab_descriptor(weights + step * 32, 16);
    if constexpr (N == 64 && FORM == DG_CUDA_BF16)
        WGMMA_64("bf16");
    else if constexpr (N == 64)
        WGMMA_64("f16");
    else if constexpr (FORM == DG_CUDA_BF16)
        WGMMA_128("bf16");
    else
        WGMMA_128("f16");
    static_assert(N == 64 || N == 128, "columns of a warpgroup");
}

#undef ACC8
#undef ACC32
#undef REGS_32
#undef REGS_64
#undef WGMMA
#undef WGMMA_64
#undef WGMMA_128

#else

template <dg_cuda_form FORM, int N, slab_side SIDE>
static __device__ __forceinline__ void slab_mma(float acc[N / 8][4], const unsigned char *rows,
                                                const unsigned char *weights, int step)
{
    int lane = (int)threadIdx.x % 32, within = lane % 8;
    uint32_t a[4], b[2];
    dg_ldmatrix_x4(a, rows + slab_offset((int)threadIdx.x / 32 % 4 * 16 + lane / 8 % 2 * 8 + within,
                                         step * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        if (SIDE == SLAB_K_DOWN)
            dg_ldmatrix_x2_trans(b, weights + j / 8 * SLAB_BYTES +
                                        slab_offset(step * 16 + lane / 8 % 2 * 8 + within, j % 8));
        else
            dg_ldmatrix_x2(b, weights + slab_offset(j * 8 + within, step * 2 + lane / 8 % 2));
        mma_of<FORM>(acc[j], a, b);
    }
}

#endif

/* ---- shapes and the ring ---- */

/* WM warpgroups, each with MT times 64 rows of x and all N columns; a stage has KS slabs of k. */
template <int WM_, int MT_, int N_, int KS_ = 1> struct slab_shape {
    static constexpr int WM = WM_, MT = MT_, N = N_, KS = KS_, TOKENS = WM * MT * SLAB_ROWS;
    static constexpr int CONSUMERS = WM * 128, THREADS = CONSUMERS + 32;
    static constexpr int X_BYTES = TOKENS * SLAB_ROW_BYTES, W_BYTES = N * SLAB_ROW_BYTES,
                         STAGE_BYTES = KS * (X_BYTES + W_BYTES);
    static constexpr int FITTING = (225 << 10) / STAGE_BYTES, STAGES = FITTING < 8 ? FITTING : 8;
    static constexpr int SHARED = STAGES * (STAGE_BYTES + 2 * (int)sizeof(uint64_t));
};

/* A place in the ring: stages are taken in turn, `phase` is the parity of the turn. */
struct slab_turn {
    int stage, phase;
};

template <class T> static __device__ __forceinline__ void slab_next(slab_turn &turn)
{
    turn.stage++;
    if (turn.stage == T::STAGES) {
        turn.stage = 0;
        turn.phase ^= 1;
    }
}

template <class T> struct slab_ring {
    unsigned char *memory;
    __device__ __forceinline__ unsigned char *x(int stage, int slab = 0) const
    {
        return memory + stage * T::STAGE_BYTES + slab * T::X_BYTES;
    }
    __device__ __forceinline__ unsigned char *w(int stage, int slab = 0) const
    {
        return memory + stage * T::STAGE_BYTES + T::KS * T::X_BYTES + slab * T::W_BYTES;
    }
    __device__ __forceinline__ uint64_t *full(int stage) const
    {
        return (uint64_t *)(memory + T::STAGES * T::STAGE_BYTES) + stage;
    }
    __device__ __forceinline__ uint64_t *empty(int stage) const
    {
        return full(stage) + T::STAGES;
    }
};

/* By all threads of a block. */
template <class T> static __device__ __forceinline__ void slab_ring_init(const slab_ring<T> &ring)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) {
            dg_mbar_init(ring.full(i), 1);
            dg_mbar_init(ring.empty(i), T::CONSUMERS / 32);
        }
        dg_mbar_init_fence();
    }
    __syncthreads();
}

/* By the one thread that copies: the stage may be filled, and how many bytes will come. A stage
 * that was never filled is empty: its first phase counts as the one before. */
template <class T>
static __device__ __forceinline__ void slab_fill(const slab_ring<T> &ring, const slab_turn &turn)
{
    dg_mbar_wait(ring.empty(turn.stage), turn.phase ^ 1);
    dg_mbar_expect(ring.full(turn.stage), T::STAGE_BYTES);
}

/* By the consumers: acc += the products of the next n_stage stages. A stage is given back by each
 * warp when its products that read it have ended. */
template <dg_cuda_form FORM, slab_side SIDE, class T>
static __device__ __forceinline__ void slab_multiply(float acc[T::MT][T::N / 8][4],
                                                     const slab_ring<T> &ring, slab_turn &turn,
                                                     int n_stage)
{
    int first = (int)threadIdx.x / 128 * T::MT, before = -1;
#pragma unroll
    for (int i = 0; i < T::MT * T::N / 2; i++)
        warpgroup_settle(acc[i / (T::N / 2)][i / 4 % (T::N / 8)][i % 4]);
    for (int i = 0; i < n_stage; i++) {
        int s = turn.stage;
        dg_mbar_wait(ring.full(s), turn.phase);
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4 * T::KS; step++)
#pragma unroll
            for (int m = 0; m < T::MT; m++)
                slab_mma<FORM, T::N, SIDE>(acc[m], ring.x(s, step / 4) + (first + m) * SLAB_BYTES,
                                           ring.w(s, step / 4), step % 4);
        warpgroup_commit();
        warpgroup_wait<1>();
        if (before >= 0 && threadIdx.x % 32 == 0)
            dg_mbar_arrive(ring.empty(before));
        before = s;
        slab_next<T>(turn);
    }
    warpgroup_wait<0>();
    if (before >= 0 && threadIdx.x % 32 == 0)
        dg_mbar_arrive(ring.empty(before));
}

/* ---- where a thread's results are ---- */

/* acc[m][j][i] is of this row of the block's and of column 8 j + 2 (lane % 4) + i % 2. */
template <class T> static __device__ __forceinline__ int slab_row(int m, int i)
{
    int thread = (int)threadIdx.x;
    return (thread / 128 * T::MT + m) * SLAB_ROWS + thread / 32 % 4 * 16 + thread % 32 / 4 +
           i / 2 * 8;
}

static __device__ __forceinline__ int slab_column(int j)
{
    return j * 8 + (int)threadIdx.x % 4 * 2;
}

#endif
