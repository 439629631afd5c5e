/* Products of a warpgroup (four warps) on sm_90a: fragments of 64 weight rows from registers, rows
 * of x from shared memory. They run behind the warps' backs and give the bits of the same chain of
 * m16n8k16 (measured: none of 5.8 million results differ). Elsewhere they are that chain, so that
 * kernels made of them run on the host. */
#ifndef DG_CUDA_CUDA_WGMMA_CUH
#define DG_CUDA_CUDA_WGMMA_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_math.h"
#include "cuda/cuda_tiles.cuh"

/* What is worth compiling: on sm_90a kernels of warpgroups replace others, elsewhere none of them
 * runs but on the host. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
enum : bool { DG_WITH_GROUPS = true, DG_WITHOUT_GROUPS = false };
#elif defined(__CUDA_ARCH__)
enum : bool { DG_WITH_GROUPS = false, DG_WITHOUT_GROUPS = true };
#else
enum : bool { DG_WITH_GROUPS = true, DG_WITHOUT_GROUPS = true };
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Registers are written, and what other threads copied to shared memory is there, before products
 * use them. */
static __device__ __forceinline__ void warpgroup_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void warpgroup_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N_LEFT> static __device__ __forceinline__ void warpgroup_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N_LEFT) : "memory");
}

/* Between a thread's ordinary copies into shared memory and the barrier behind which products read
 * them. */
static __device__ __forceinline__ void warpgroup_publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The compiler has made this value by now. */
static __device__ __forceinline__ void warpgroup_settle(uint32_t &value)
{
    asm volatile("" : "+r"(value)::"memory");
}

static __device__ __forceinline__ void warpgroup_settle(float &value)
{
    asm volatile("" : "+f"(value)::"memory");
}

/* What all lanes of a warp have, which the compiler does not know of threadIdx.x / 128. */
template <class V> static __device__ __forceinline__ V of_the_warp(V value)
{
    return __shfl_sync(DG_ALL_LANES, value, 0);
}

/* The same address, of which the compiler does not know where it came from. Else it may find it
 * anew for each use, beginning with the number of the block in its cluster, which takes longer to
 * come than a copy takes to begin. */
[[maybe_unused]] static __device__ __forceinline__ unsigned char *settled_address(
    unsigned char *shared)
{
    asm volatile("" : "+l"(shared));
    return shared;
}

/* x: 8 rows x 16 bytes side by side, 128 bytes to the next 8 rows, k_stride bytes to the next 16
 * bytes of k. */
static __device__ __forceinline__ uint64_t x_descriptor(const unsigned char *x, int k_stride)
{
    return (uint64_t)((dg_shared_address(x) & 0x3FFFFu) >> 4) | (uint64_t)(k_stride / 16) << 16 |
           (uint64_t)(128 / 16) << 32;
}

#define ACC8(i)                                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define REGS_24                                                                                    \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"
#define REGS_32 REGS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define REGS_64                                                                                    \
    REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52" \
            ",%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA(shape, type, regs, operands, on, ...)                                                \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " on                                        \
                 ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" regs     \
                 "}, " operands ", p, 1, 1, 0;\n\t}"                                               \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(1))
#define WGMMA_48(type)                                                                             \
    WGMMA("m64n48k16", type, REGS_24, "{%24,%25,%26,%27}, %28", "%29", ACC8(0), ACC8(8), ACC8(16))
#define WGMMA_64(type)                                                                             \
    WGMMA("m64n64k16", type, REGS_32, "{%32,%33,%34,%35}, %36", "%37", ACC8(0), ACC8(8), ACC8(16), \
          ACC8(24))
#define WGMMA_128(type)                                                                            \
    WGMMA("m64n128k16", type, REGS_64, "{%64,%65,%66,%67}, %68", "%69", ACC8(0), ACC8(8),          \
          ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56))

/* acc += 16 values of k: a is the warp's fragment, x their first 16 bytes of the warpgroup's N
 * rows. */
template <dg_cuda_form FORM, int N>
static __device__ __forceinline__ void warpgroup_mma(float acc[N / 8][4], const uint32_t a[4],
                                                     const unsigned char *rows, int k_stride)
{
    float *d = acc[0];
    uint64_t x = x_descriptor(rows, k_stride);
    if constexpr (N == 48 && FORM == DG_CUDA_BF16)
        WGMMA_48("bf16");
    else if constexpr (N == 48)
        WGMMA_48("f16");
    else if constexpr (N == 64 && FORM == DG_CUDA_BF16)
        WGMMA_64("bf16");
    else if constexpr (N == 64)
        WGMMA_64("f16");
    else if constexpr (FORM == DG_CUDA_BF16)
        WGMMA_128("bf16");
    else
        WGMMA_128("f16");
    static_assert(N == 48 || N == 64 || N == 128, "rows of a warpgroup");
}

#define REGS_128                                                                                   \
    REGS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84" \
            ",%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103"     \
            ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119"     \
            ",%120,%121,%122,%123,%124,%125,%126,%127"

/* An operand in shared memory: rows of 128 bytes whose pieces of 16 bytes are exchanged, piece c of
 * row r at c ^ r % 8; it begins at a multiple of 1024 bytes. `apart`: bytes from 64 columns to the
 * next ones where k goes down. Found anew for each product, or in registers of which each lane has
 * one, operands take longer than products of 64 columns: found once for the warp, they take an
 * instruction or two. */
typedef uint32_t operand;

static __device__ __forceinline__ operand operand_at(const unsigned char *p, int apart = 16)
{
    return (dg_shared_address(p) & 0x3FFFFu) >> 4 | (uint32_t)(apart / 16) << 16;
}

/* The same so many bytes further on. */
static __device__ __forceinline__ operand operand_on(operand p, int bytes)
{
    return p + (uint32_t)bytes / 16;
}

/* As instructions are told of it. */
static __device__ __forceinline__ uint64_t descriptor_of(operand p)
{
    return (uint64_t)(1u << 30 | 1024 / 16) << 32 | p;
}

/* acc = (add ? acc : 0) + 16 values of k: a has them in 64 rows and b in 64, 32 bytes of a panel
 * each. */
static __device__ __forceinline__ void warpgroup_mma_rows(float acc[8][4], operand a, operand b,
                                                          bool add)
{
    float *d = acc[0];
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32
                 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24)
                 : "l"(descriptor_of(a)), "l"(descriptor_of(b)), "r"((int)add));
}

/* The same with a's 64 rows as the warps' fragments. */
static __device__ __forceinline__ void warpgroup_mma_kept(float acc[8][4], const uint32_t a[4],
                                                          operand b, bool add)
{
    float *d = acc[0];
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32
                 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n\t}"
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor_of(b)),
                   "r"((int)add));
}

/* acc = (add ? acc : 0) + 16 values of k: a is the warp's fragment, b 16 rows of 256 columns,
 * panels 8192 bytes apart. */
static __device__ __forceinline__ void warpgroup_mma_columns(float acc[32][4], const uint32_t a[4],
                                                             operand b, bool add)
{
    float *d = acc[0];
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %133, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS_128
                 "}, {%128,%129,%130,%131}, %132, p, 1, 1, 1;\n\t}"
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56),
                   ACC8(64), ACC8(72), ACC8(80), ACC8(88), ACC8(96), ACC8(104), ACC8(112), ACC8(120)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor_of(b)),
                   "r"((int)add));
}

/* The same for 128 columns, of either form. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void warpgroup_mma_down(float acc[16][4], const uint32_t a[4],
                                                          operand b, bool add = true)
{
    float *d = acc[0];
#define WGMMA_DOWN(type)                                                                           \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"                                \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" REGS_64         \
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n\t}"                                     \
                 : ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56)    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor_of(b)),              \
                   "r"((int)add))
    if constexpr (FORM == DG_CUDA_BF16)
        WGMMA_DOWN("bf16");
    else
        WGMMA_DOWN("f16");
#undef WGMMA_DOWN
}

/* This warpgroup's registers from now on; the whole kernel is launched with a bound on them. */
template <int N> static __device__ __forceinline__ void warpgroup_more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void warpgroup_fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#undef ACC8
#undef REGS_24
#undef REGS_32
#undef REGS_64
#undef REGS_128
#undef WGMMA
#undef WGMMA_48
#undef WGMMA_64
#undef WGMMA_128

#else

static __device__ __forceinline__ void warpgroup_begin(void)
{
}

static __device__ __forceinline__ void warpgroup_commit(void)
{
}

template <int N_LEFT> static __device__ __forceinline__ void warpgroup_wait(void)
{
}

static __device__ __forceinline__ void warpgroup_publish(void)
{
}

static __device__ __forceinline__ void warpgroup_settle(uint32_t &)
{
}

static __device__ __forceinline__ void warpgroup_settle(float &)
{
}

template <class V> static __device__ __forceinline__ V of_the_warp(V value)
{
    return value;
}

[[maybe_unused]] static __device__ __forceinline__ unsigned char *settled_address(
    unsigned char *shared)
{
    return shared;
}

template <dg_cuda_form FORM, int N>
static __device__ __forceinline__ void warpgroup_mma(float acc[N / 8][4], const uint32_t a[4],
                                                     const unsigned char *rows, int k_stride)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        uint32_t b[2];
        dg_ldmatrix_x2(b, rows + lane / 8 % 2 * k_stride + j * 128 + lane % 8 * 16);
        mma_of<FORM>(acc[j], a, b);
    }
}

typedef const unsigned char *operand;

static __device__ __forceinline__ operand operand_at(const unsigned char *p, int = 16)
{
    return p;
}

static __device__ __forceinline__ operand operand_on(operand p, int bytes)
{
    return p + bytes;
}

static __device__ __forceinline__ const unsigned char *in_panel(const unsigned char *p)
{
    return p + ((uintptr_t)p / 128 % 8 ^ (uintptr_t)p / 16 % 8) * 16 - (uintptr_t)p / 16 % 8 * 16;
}

static __device__ __forceinline__ void warpgroup_mma_kept(float acc[8][4], const uint32_t a[4],
                                                          operand b, bool add)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t bf[2];
        for (int c = 0; c < 4 && !add; c++)
            acc[j][c] = 0;
        dg_ldmatrix_x2(bf, in_panel(b + (8 * j + lane % 8) * 128 + lane / 8 % 2 * 16));
        dg_mma_bf16(acc[j], a, bf);
    }
}

static __device__ __forceinline__ void warpgroup_mma_rows(float acc[8][4], operand a, operand b,
                                                          bool add)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    uint32_t af[4];
    dg_ldmatrix_x4(af, in_panel(a + (16 * warp + lane % 16) * 128 + lane / 16 * 16));
    warpgroup_mma_kept(acc, af, b, add);
}

static __device__ __forceinline__ void warpgroup_mma_columns(float acc[32][4], const uint32_t a[4],
                                                             operand b, bool add)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 32; j++) {
        uint32_t bf[2];
        for (int c = 0; c < 4 && !add; c++)
            acc[j][c] = 0;
        dg_ldmatrix_x2_trans(bf, in_panel(b + j / 8 * 8192 + lane % 16 * 128 + j % 8 * 16));
        dg_mma_bf16(acc[j], a, bf);
    }
}

template <dg_cuda_form FORM>
static __device__ __forceinline__ void warpgroup_mma_down(float acc[16][4], const uint32_t a[4],
                                                          operand b, bool add = true)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        uint32_t bf[2];
        for (int c = 0; c < 4 && !add; c++)
            acc[j][c] = 0;
        dg_ldmatrix_x2_trans(bf, in_panel(b + j / 8 * 8192 + lane % 16 * 128 + j % 8 * 16));
        mma_of<FORM>(acc[j], a, bf);
    }
}

template <int N> static __device__ __forceinline__ void warpgroup_more_registers(void)
{
}

template <int N> static __device__ __forceinline__ void warpgroup_fewer_registers(void)
{
}

#endif

#endif
