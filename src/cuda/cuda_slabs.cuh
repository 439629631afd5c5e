/* Products on sm_90a with both operands in shared memory: rows of activations are the M of wgmma,
 * rows of 16-bit weights its N.
 *
 * A slab is 64 rows of 64 values, 128 bytes a row, the 16-byte pieces of a row swapped about by its
 * number (slab_offset) as the tensor cores read them without conflicts. Weights lie on the device
 * as slabs, those of the same 64 rows in ascending k one after the other, so that a stage's weights
 * are contiguous pieces; activations are cut into slabs by the copy engine (dg_tensor_map). One
 * warp copies, warpgroups multiply; a ring of stages is between them.
 *
 * Slabs of E4M3 have 128 values in the 128 bytes of a row, and all else alike.
 *
 * On the host the products are chains of m16n8k16 over the same slabs. */
#ifndef DG_CUDA_CUDA_SLABS_CUH
#define DG_CUDA_CUDA_SLABS_CUH

#include "cuda/cuda_boxes.cuh"
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

/* A turned table (cuda_soft_bytes.cu) has 64 bytes of k to a column, and this is where 16-byte
 * piece 0 ... 3 of one is. */
static __device__ __forceinline__ int turned_offset(int column, int piece)
{
    return column * 64 + (piece ^ column / 2 % 4) * 16;
}

/* ---- one product: 16 values of k ---- */

/* How the second operand lies: rows of it along k, as weights do for a projection, or the rows are
 * its k, as the words of the table are for the soft embedding. */
enum slab_side { SLAB_K_ALONG, SLAB_K_DOWN };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define ACC8(i)                                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC16(i)  ACC8(i), ACC8(i + 8)
#define ACC32(i)  ACC16(i), ACC16(i + 16)
#define ACC64(i)  ACC32(i), ACC32(i + 32)
#define ACC128(i) ACC64(i), ACC64(i + 64)
#define REGS_32                                                                                    \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"       \
    "%24,%25,%26,%27,%28,%29,%30,%31"
#define REGS_48 REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define REGS_64                                                                                    \
    REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%"   \
            "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define REGS_96                                                                                    \
    REGS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%"   \
            "84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define REGS_128                                                                                   \
    REGS_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"        \
            "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA(shape, type, regs, operands, on, side, ...)                                          \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " on                                        \
                 ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" regs     \
                 "}, " operands ", p, 1, 1, 0, " side ";\n\t}"                                     \
                 : __VA_ARGS__                                                                     \
                 : "l"(x), "l"(w), "r"(1), "n"(SIDE == SLAB_K_DOWN ? 1 : 0))
#define WGMMA_64(type) WGMMA("m64n64k16", type, REGS_32, "%32, %33", "%34", "%35", ACC32(0))
#define WGMMA_96(type)                                                                             \
    WGMMA("m64n96k16", type, REGS_48, "%48, %49", "%50", "%51", ACC32(0), ACC16(32))
#define WGMMA_128(type) WGMMA("m64n128k16", type, REGS_64, "%64, %65", "%66", "%67", ACC64(0))
#define WGMMA_192(type)                                                                            \
    WGMMA("m64n192k16", type, REGS_96, "%96, %97", "%98", "%99", ACC64(0), ACC32(64))
#define WGMMA_256(type) WGMMA("m64n256k16", type, REGS_128, "%128, %129", "%130", "%131", ACC128(0))
#define WGMMA_OF(type)                                                                             \
    if constexpr (N == 64)                                                                         \
        WGMMA_64(type);                                                                            \
    else if constexpr (N == 96)                                                                    \
        WGMMA_96(type);                                                                            \
    else if constexpr (N == 128)                                                                   \
        WGMMA_128(type);                                                                           \
    else if constexpr (N == 192)                                                                   \
        WGMMA_192(type);                                                                           \
    else                                                                                           \
        WGMMA_256(type)

#define WGMMA_BYTES(shape, regs, operands, on, ...)                                                \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " on                                        \
                 ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32.e4m3.e4m3 {" regs             \
                 "}, " operands ", p, 1, 1;\n\t}"                                                  \
                 : __VA_ARGS__                                                                     \
                 : "l"(x), "l"(w), "r"(1))

/* acc += 16 values of k, number `step` of a slab's four: 64 rows of x, N of w. Of E4M3: 32 values,
 * in the same bytes. */
template <dg_cuda_form FORM, int N, slab_side SIDE>
static __device__ __forceinline__ void slab_mma(float acc[N / 8][4], operand rows, operand weights,
                                                int step)
{
    float *d = acc[0];
    uint64_t x = descriptor_of(operand_on(rows, step * 32)),
             w = descriptor_of(operand_on(weights, SIDE == SLAB_K_DOWN ? step * 2048 : step * 32));
    if constexpr (FORM == DG_CUDA_E4M3) {
        if constexpr (N == 64)
            WGMMA_BYTES("m64n64k32", REGS_32, "%32, %33", "%34", ACC32(0));
        else if constexpr (N == 96)
            WGMMA_BYTES("m64n96k32", REGS_48, "%48, %49", "%50", ACC32(0), ACC16(32));
        else if constexpr (N == 128)
            WGMMA_BYTES("m64n128k32", REGS_64, "%64, %65", "%66", ACC64(0));
        else if constexpr (N == 192)
            WGMMA_BYTES("m64n192k32", REGS_96, "%96, %97", "%98", ACC64(0), ACC32(64));
        else
            WGMMA_BYTES("m64n256k32", REGS_128, "%128, %129", "%130", ACC128(0));
    } else if constexpr (FORM == DG_CUDA_BF16) {
        WGMMA_OF("bf16");
    } else {
        WGMMA_OF("f16");
    }
    static_assert(N == 64 || N == 96 || N == 128 || N == 192 || N == 256, "columns");
}

/* acc += 32 values of k, number `step` of two: the warp's fragment of E4M3 and 256 columns of a
 * turned table. Its pieces are swapped within 512 bytes, the distance from 8 columns to the next.
 */
static __device__ __forceinline__ void turned_mma(float acc[32][4], const uint32_t a[4],
                                                  const unsigned char *columns, int step)
{
    float *d = acc[0];
    uint64_t w = (uint64_t)((dg_shared_address(columns + step * 32) & 0x3FFFFu) >> 4) |
                 (uint64_t)1 << 16 | (uint64_t)(512 / 16) << 32 | (uint64_t)2 << 62;
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" REGS_128
                 "}, {%128,%129,%130,%131}, %132, 1, 1, 1;"
                 : ACC128(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(w));
}

/* By a warp: acc[m][j] of its 16 rows into rows of shared memory, `pitch` bytes apart, an odd
 * number of 16. Of eight columns the even ones lie together, 16 bytes, and all odd columns `apart`
 * bytes behind all even ones, so that this is one instruction. */
static __device__ __forceinline__ void slab_leave(unsigned char *rows, int pitch, int apart, int j,
                                                  const float v[4])
{
    unsigned lane = threadIdx.x % 32;
    uint32_t to = dg_shared_address(rows) + (lane / 16 * 8 + lane % 8) * (unsigned)pitch +
                  lane / 8 % 2 * (unsigned)apart + (unsigned)j * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(__float_as_uint(v[0])), "r"(__float_as_uint(v[1])), "r"(__float_as_uint(v[2])),
                 "r"(__float_as_uint(v[3]))
                 : "memory");
}

#undef ACC8
#undef ACC16
#undef ACC32
#undef ACC64
#undef ACC128
#undef REGS_32
#undef REGS_48
#undef REGS_64
#undef REGS_96
#undef REGS_128
#undef WGMMA
#undef WGMMA_64
#undef WGMMA_96
#undef WGMMA_128
#undef WGMMA_192
#undef WGMMA_256
#undef WGMMA_OF
#undef WGMMA_BYTES

#else

/* c += a b of E4M3, fragments of m16n8k32: as halves, and k in an order that a and b share. */
static __device__ __forceinline__ void byte_mma(float c[4], const uint32_t a[4],
                                                const uint32_t b[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t *rows = a + 2 * half;
        uint32_t wide[4] = {dg_e4m3_pair(rows[0]), dg_e4m3_pair(rows[1]),
                            dg_e4m3_pair(rows[0] >> 16), dg_e4m3_pair(rows[1] >> 16)},
                 other[2] = {dg_e4m3_pair(b[half]), dg_e4m3_pair(b[half] >> 16)};
        mma_of<DG_CUDA_F16>(c, wide, other);
    }
}

template <dg_cuda_form FORM, int N, slab_side SIDE>
static __device__ __forceinline__ void slab_mma(float acc[N / 8][4], operand rows, operand weights,
                                                int step)
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
        if constexpr (FORM == DG_CUDA_E4M3)
            byte_mma(acc[j], a, b);
        else
            mma_of<FORM>(acc[j], a, b);
    }
}

static __device__ __forceinline__ void turned_mma(float acc[32][4], const uint32_t a[4],
                                                  const unsigned char *columns, int step)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t b[2];
#pragma unroll
    for (int j = 0; j < 32; j++) {
        dg_ldmatrix_x2(b, columns + turned_offset(j * 8 + lane % 8, step * 2 + lane / 8 % 2));
        byte_mma(acc[j], a, b);
    }
}

static __device__ __forceinline__ void slab_leave(unsigned char *rows, int pitch, int apart, int j,
                                                  const float v[4])
{
    int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++)
        *(float *)(rows + (i / 2 * 8 + lane / 4) * pitch + i % 2 * apart + j * 16 + lane % 4 * 4) =
            v[i];
}

#endif

/* ---- shapes and the ring ---- */

/* WM warpgroups, each with MT times 64 rows of x and all N columns; a stage has KS slabs of k. The
 * columns are SHARE rows each of neighbouring slabs, so that N need not be a multiple of 64 for a
 * stage's weights to be one copy. */
template <int WM_, int MT_, int N_, int KS_ = 1, int SHARE_ = SLAB_ROWS> struct slab_shape {
    static constexpr int WM = WM_, MT = MT_, N = N_, KS = KS_, TOKENS = WM * MT * SLAB_ROWS;
    static constexpr int SHARE = SHARE_, SLABS = N / SHARE, SHARES = SLAB_ROWS / SHARE;
    static_assert(N % SHARE == 0 && SLAB_ROWS % SHARE == 0 && SHARE % 8 == 0, "shares of slabs");
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

/* By one thread, which may copy at once; the others wait for it. */
template <class T> static __device__ __forceinline__ void slab_ring_make(const slab_ring<T> &ring)
{
    for (int i = 0; i < T::STAGES; i++) {
        dg_mbar_init(ring.full(i), 1);
        dg_mbar_init(ring.empty(i), T::CONSUMERS / 32);
    }
    dg_mbar_init_fence();
}

/* By all threads of a block. */
template <class T> static __device__ __forceinline__ void slab_ring_init(const slab_ring<T> &ring)
{
    if (threadIdx.x == 0)
        slab_ring_make(ring);
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

/* ---- copies: one for a stage's rows and one for its weights ---- */

/* n_row rows of x, of n_chunk slabs. A copy costs the copying thread a hundred cycles, however much
 * it brings: with one for each slab that thread was the limit of every tile. */
template <class T>
static inline cudaError_t slab_map_rows(dg_tensor_map *map, const void *rows, int n_row,
                                        int n_chunk, size_t row_bytes)
{
    int size[3] = {SLAB_VALUES, n_row, n_chunk}, box[3] = {SLAB_VALUES, T::TOKENS, T::KS};
    size_t stride[2] = {row_bytes, SLAB_ROW_BYTES};
    return dg_tensor_map_make(map, rows, 3, size, stride, box, true);
}

/* Slabs of weights; `pair`: bytes from them to those of a second matrix, whose rows are the other
 * half of a tile's, or 0. */
template <class T>
static inline cudaError_t slab_map_weights(dg_tensor_map *map, const void *weights, int n_out,
                                           int n_chunk, size_t pair)
{
    int parts = pair ? 2 : 1;
    int size[5] = {SLAB_VALUES, SLAB_ROWS, slab_count(n_out), parts, n_chunk},
        box[5] = {SLAB_VALUES, T::SHARE, T::SLABS / parts, parts, T::KS};
    size_t stride[4] = {SLAB_ROW_BYTES, (size_t)n_chunk * SLAB_BYTES,
                        pair ? pair : (size_t)SLAB_BYTES, SLAB_BYTES};
    return dg_tensor_map_make(map, weights, 5, size, stride, box, false);
}

/* A stage's rows from `row` on, and its weights, from the slab of row `out` on and from that row of
 * each; zeros where there are none. */
template <class T>
static __device__ __forceinline__ void slab_copy_rows(const slab_ring<T> &ring,
                                                      const dg_tensor_map &x, int row, int stage,
                                                      int step)
{
    dg_box_at at = {{0, row, step * T::KS, 0, 0}};
    dg_box3_g2s(ring.x(stage), x, at, ring.full(stage));
}

template <class T>
static __device__ __forceinline__ void slab_copy_weights(const slab_ring<T> &ring,
                                                         const dg_tensor_map &w, int out, int stage,
                                                         int step, uint64_t policy)
{
    dg_box_at at = {{0, out % SLAB_ROWS, out / SLAB_ROWS, 0, step * T::KS}};
    dg_box5_g2s(ring.w(stage), w, at, ring.full(stage), policy);
}

/* Nothing that uses these values is moved over this place. */
template <class T> static __device__ __forceinline__ void slab_settle(float acc[T::MT][T::N / 8][4])
{
#pragma unroll
    for (int i = 0; i < T::MT * T::N / 2; i++)
        warpgroup_settle(acc[i / (T::N / 2)][i / 4 % (T::N / 8)][i % 4]);
}

/* By the consumers: acc += the products of the next n_stage stages. A stage is given back by each
 * warp when its products that read it have ended, but for the last `held` ones. */
template <dg_cuda_form FORM, slab_side SIDE, class T>
static __device__ __forceinline__ void slab_multiply(float acc[T::MT][T::N / 8][4],
                                                     const slab_ring<T> &ring, slab_turn &turn,
                                                     int n_stage, int held = 0)
{
    const operand rows =
                      of_the_warp(operand_at(ring.x(0) + threadIdx.x / 128 * T::MT * SLAB_BYTES)),
                  weights =
                      of_the_warp(operand_at(ring.w(0), SIDE == SLAB_K_DOWN ? SLAB_BYTES : 16));
    int before = -1;
    slab_settle<T>(acc);
    for (int i = 0; i < n_stage; i++) {
        int s = turn.stage;
        operand x = operand_on(rows, s * T::STAGE_BYTES),
                w = operand_on(weights, s * T::STAGE_BYTES);
        dg_mbar_wait(ring.full(s), turn.phase);
        warpgroup_begin();
#pragma unroll
        for (int step = 0; step < 4 * T::KS; step++)
#pragma unroll
            for (int m = 0; m < T::MT; m++)
                slab_mma<FORM, T::N, SIDE>(acc[m],
                                           operand_on(x, step / 4 * T::X_BYTES + m * SLAB_BYTES),
                                           operand_on(w, step / 4 * T::W_BYTES), step % 4);
        warpgroup_commit();
        warpgroup_wait<1>();
        if (before >= 0 && (held == 0 || i + held <= n_stage) && threadIdx.x % 32 == 0)
            dg_mbar_arrive(ring.empty(before));
        before = s;
        slab_next<T>(turn);
    }
    warpgroup_wait<0>();
    slab_settle<T>(acc);
    if (before >= 0 && held == 0 && threadIdx.x % 32 == 0)
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

/* A column of a tile among the rows of weights, counted from its first. */
template <class T> static __device__ __forceinline__ int slab_out(int column)
{
    return column / T::SHARE * SLAB_ROWS + column % T::SHARE;
}

/* Two values each of j and of j + 1 become four neighbours, of j in even lanes and of j + 1 in odd
 * ones: half as many stores. By all lanes of a warp. */
static __device__ __forceinline__ float4 slab_four(float2 of_j, float2 of_next)
{
    bool odd = threadIdx.x % 2;
    float2 own = odd ? of_next : of_j, other = odd ? of_j : of_next;
    other.x = __shfl_xor_sync(DG_ALL_LANES, other.x, 1);
    other.y = __shfl_xor_sync(DG_ALL_LANES, other.y, 1);
    return odd ? make_float4(other.x, other.y, own.x, own.y)
               : make_float4(own.x, own.y, other.x, other.y);
}

/* The first of these four, among the eight columns that they are of. */
static __device__ __forceinline__ int slab_four_column(void)
{
    return (int)threadIdx.x % 4 / 2 * 4;
}

#endif
