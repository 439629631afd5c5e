/* Products of a warpgroup on sm_90a with fragments of 64 weight rows from registers and rows of x
 * as a slab in shared memory (cuda_slabs.cuh). Each result is the same chain as in every other
 * product. */
#ifndef DG_CUDA_CUDA_PANELS_CUH
#define DG_CUDA_CUDA_PANELS_CUH

#include "cuda/cuda_slabs.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define ACC8(i)                                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC16(i) ACC8(i), ACC8(i + 8)
#define ACC32    ACC16(0), ACC16(16)
#define ACC48    ACC32, ACC16(32)
#define ACC64    ACC48, ACC16(48)
#define REGS32                                                                                     \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"   \
    "%25,%26,%27,%28,%29,%30,%31"
#define REGS48 REGS32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define REGS64 REGS48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PANEL(shape, regs, operands, ...)                                                          \
    if constexpr (FORM == DG_CUDA_BF16)                                                            \
        asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" regs "}, " operands  \
                     ", 1, 1, 1, 0;"                                                               \
                     : __VA_ARGS__                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x));                        \
    else                                                                                           \
        asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" regs "}, " operands    \
                     ", 1, 1, 1, 0;"                                                               \
                     : __VA_ARGS__                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x))

/* acc += 16 values of k, number `step` of a slab's four: a is the warp's fragment, rows are N rows
 * of x, the first of them a multiple of 8. */
template <dg_cuda_form FORM, int N>
static __device__ __forceinline__ void panel_mma(float acc[N / 8][4], const uint32_t a[4],
                                                 const unsigned char *rows, int step)
{
    float *d = acc[0];
    uint64_t x = descriptor_of(operand_on(operand_at(rows), step * 32));
    if constexpr (N == 64) {
        PANEL("m64n64k16", REGS32, "{%32,%33,%34,%35}, %36", ACC32);
    } else if constexpr (N == 96) {
        PANEL("m64n96k16", REGS48, "{%48,%49,%50,%51}, %52", ACC48);
    } else {
        PANEL("m64n128k16", REGS64, "{%64,%65,%66,%67}, %68", ACC64);
    }
    static_assert(N == 64 || N == 96 || N == 128, "rows of a panel");
}

#undef ACC8
#undef ACC16
#undef ACC32
#undef ACC48
#undef ACC64
#undef REGS32
#undef REGS48
#undef REGS64
#undef PANEL

#else

template <dg_cuda_form FORM, int N>
static __device__ __forceinline__ void panel_mma(float acc[N / 8][4], const uint32_t a[4],
                                                 const unsigned char *rows, int step)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        uint32_t b[2];
        dg_ldmatrix_x2(b, rows + slab_offset(j * 8 + lane % 8, step * 2 + lane / 8 % 2));
        mma_of<FORM>(acc[j], a, b);
    }
}

#endif

#endif
