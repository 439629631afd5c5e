/* What the kernels are written with beyond CUDA C++: launches, the single instructions that have no
 * name in it (inline PTX), 16-bit values as bits in registers, sums over a warp.
 *
 * Every .cu file also compiles as plain C++, with threads as fibers (tests/cuda/emulated), where
 * each instruction here is a function that computes what the hardware does (cuda_device_plain.cuh).
 * For that kernels use only what is here or in that folder's cuda_runtime.h, have their dynamic
 * shared memory from DG_SHARED, and are launched by DG_LAUNCH. */
#ifndef DG_CUDA_CUDA_DEVICE_CUH
#define DG_CUDA_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>
#ifdef __CUDACC__
#include <cuda.h>
#endif
#include "tensor/narrowed.h"

#define DG_ALL_LANES 0xFFFFFFFFu

#ifdef __CUDACC__

/* ---- launches ---- */

/* Whether kernels may begin while the one before them ends. */
static inline bool dg_launches_early(void)
{
    int device = 0, major = 0;
    return !cudaGetDevice(&device) &&
           !cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) && major >= 9;
}

/* DG_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments ...) gives a cudaError_t. More
 * than 48 KB of shared memory has to be asked for; that is a table in the driver's host memory, not
 * work on the stream. On sm_90 and later a kernel begins while the one before it ends. Some thread
 * of each launch waits (dg_grid_wait) before its block lets others begin (dg_grid_launch_next, or
 * its end), so that a kernel finds from the start what those before the last one wrote; what the
 * last one writes is touched, and what it reads is written, by none but threads that have waited.
 * A block that has nothing to do may end without it. DG_LAUNCH_IF(early, ...) launches without that
 * when it is the first that follows another stream's work. Such kernels all ask for as much shared
 * memory as there is: an SM changes its share only when it is empty, and a small kernel finds no
 * room beside a large one that was given just what it needs. */
template <typename... P, typename... A>
static inline cudaError_t dg_launch(bool may_be_early, void (*kernel)(P...), dim3 grid, dim3 block,
                                    size_t shared_bytes, cudaStream_t stream, A... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    bool overlaps = dg_launches_early();
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 40 << 10) /* what a kernel has of its own counts, too */
        error = cudaFuncSetAttribute(
            (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    if (overlaps && !error)
        error = cudaFuncSetAttribute((const void *)kernel,
                                     cudaFuncAttributePreferredSharedMemoryCarveout,
                                     (int)cudaSharedmemCarveoutMaxShared);
    if (error)
        return error;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = may_be_early && overlaps ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, (P)args...);
}
#define DG_LAUNCH(...)           dg_launch(true, __VA_ARGS__)
#define DG_LAUNCH_IF(early, ...) dg_launch(early, __VA_ARGS__)

/* The block's dynamic shared memory as bytes, aligned to 1024. */
#define DG_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

/* ---- matrices in registers ---- */

/* c += a b: a 16 x 16 and b 16 x 8 in PTX's fragments of m16n8k16. */
static __device__ __forceinline__ void dg_mma_bf16(float c[4], const uint32_t a[4],
                                                   const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void dg_mma_f16(float c[4], const uint32_t a[4],
                                                  const uint32_t b[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* m16n8k8 of floats, of whose fractions the first ten bits count. */
static __device__ __forceinline__ void dg_mma_tf32(float c[4], const uint32_t a[4],
                                                   const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* m16n8k32, signed bytes; a may be unsigned. */
static __device__ __forceinline__ void dg_mma_s8(int c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void dg_mma_u8s8(int c[4], const uint32_t a[4],
                                                   const uint32_t b[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t dg_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Matrices of 8 x 8 16-bit values: matrix m has its rows (16 bytes, aligned) where lanes 8 m ... 8
 * m + 7 point to. */
static __device__ __forceinline__ void dg_ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(dg_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void dg_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(dg_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void dg_ldmatrix_x2(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(dg_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void dg_ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(dg_shared_address(row))
                 : "memory");
}

/* ---- copies into shared memory ---- */

/* 16 bytes, both sides aligned; seen by this thread after dg_cp_async_wait, by others after a
 * barrier behind it. */
static __device__ __forceinline__ void dg_cp_async16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dg_shared_address(shared)),
                 "l"(global)
                 : "memory");
}

/* Zeros where not valid; `global` is an address then, too, but is not read. */
static __device__ __forceinline__ void dg_cp_async16_if(void *shared, const void *global,
                                                        bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dg_shared_address(shared)),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void dg_cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All committed groups but the last N_LEFT have arrived. */
template <int N_LEFT> static __device__ __forceinline__ void dg_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N_LEFT) : "memory");
}

/* ---- mbarriers; bulk copies need sm_90 ---- */

static __device__ __forceinline__ void dg_mbar_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(dg_shared_address(bar)), "r"(count)
                 : "memory");
}

/* Between the inits and the first use, by the thread that made them; a __syncthreads follows. */
static __device__ __forceinline__ void dg_mbar_init_fence(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

static __device__ __forceinline__ void dg_mbar_arrive(uint64_t *bar)
{
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(
                     dg_shared_address(bar))
                 : "memory");
}

/* The arrival waits until what `loaded` depends on is in registers. Loads from a stage must have
 * returned before the stage is handed back: without this the arrival is issued behind the last
 * load, and the refill can overtake it. */
static __device__ __forceinline__ void dg_mbar_arrive_after(uint64_t *bar, uint32_t loaded)
{
    asm volatile(
        "{\n\t.reg .b64 state;\n\t.reg .b32 zero;\n\tand.b32 zero, %1, 0;\n\tadd.u32 zero, zero, "
        "%0;\n\t"
        "mbarrier.arrive.shared::cta.b64 state, [zero];\n\t}" ::"r"(dg_shared_address(bar)),
        "r"(loaded)
        : "memory");
}

/* Arrives, and expects so many bytes of bulk copies before the phase ends. */
static __device__ __forceinline__ void dg_mbar_expect(uint64_t *bar, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], "
                 "%1;\n\t}" ::"r"(dg_shared_address(bar)),
                 "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
}

/* Waits for the end of the phase of this parity: 0 for the first. */
static __device__ __forceinline__ void dg_mbar_wait(uint64_t *bar, int parity)
{
    uint32_t done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.b32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(dg_shared_address(bar)), "r"(parity)
            : "memory");
#else
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(dg_shared_address(bar)), "r"(parity)
                     : "memory");
#endif
    } while (!done);
}

/* This thread's cp.async copies so far arrive at the barrier when they have arrived in memory. It
 * counts as one of the arrivals that the barrier was made for. */
static __device__ __forceinline__ void dg_cp_async_mbar_arrive(uint64_t *bar)
{
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(dg_shared_address(bar))
        : "memory");
}

/* One contiguous piece, a multiple of 16 bytes, both sides aligned to 16; completes bytes on the
 * barrier. ONCE: nobody reads it again soon. */
template <bool ONCE = false>
static __device__ __forceinline__ void dg_bulk_g2s(void *shared, const void *global, uint32_t bytes,
                                                   uint64_t *bar)
{
#if __CUDA_ARCH__ >= 900
    if constexpr (ONCE)
        asm volatile(
            "{\n\t.reg .b64 policy;\n\tcreatepolicy.fractional.L2::evict_first.b64 policy, "
            "1.0;\n\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".L2::cache_hint [%0], [%1], %2, [%3], policy;\n\t}" ::"r"(dg_shared_address(shared)),
            "l"(global), "r"(bytes), "r"(dg_shared_address(bar))
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
            "[%3];" ::"r"(dg_shared_address(shared)),
            "l"(global), "r"(bytes), "r"(dg_shared_address(bar))
            : "memory");
#else
    __trap();
#endif
}

/* ---- rows of 16-bit values that the copy engine cuts into slabs (cuda_slabs.cuh) ---- */

typedef CUtensorMap dg_tensor_map;

/* 16-bit values in n_dim dimensions, the first of them side by side; stride[d]: bytes from one to
 * the next of dimension d + 1. To be copied in boxes, in that order, of 64 values in the first
 * dimension; swapped: as slabs. The driver's function is asked for by name: the program also starts
 * where there is no driver. */
static inline cudaError_t dg_tensor_map_make(dg_tensor_map *map, const void *data, int n_dim,
                                             const int *size, const size_t *stride, const int *box,
                                             bool swapped)
{
    typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cuuint64_t sizes[5], strides[4] = {0};
    cuuint32_t boxes[5], steps[5];
    cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    for (int d = 0; d < n_dim; d++) {
        sizes[d] = (cuuint64_t)size[d];
        boxes[d] = (cuuint32_t)box[d];
        steps[d] = 1;
        if (d + 1 < n_dim)
            strides[d] = (cuuint64_t)stride[d];
    }
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                         cudaEnableDefault, &found);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (error || found != cudaDriverEntryPointSuccess)
        return error ? error : cudaErrorNotSupported;
    return ((encode_fn *)encode)(
               map, CU_TENSOR_MAP_DATA_TYPE_UINT16, (cuuint32_t)n_dim, (void *)(uintptr_t)data,
               sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               swapped ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
               ? cudaErrorInvalidValue
               : cudaSuccess;
}

/* The map itself is fetched ahead of its first use. */
static __device__ __forceinline__ void dg_tensor_prefetch(const dg_tensor_map &map)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)&map) : "memory");
#endif
}

/* A box from value k and row `row` on into slabs, which are aligned to 1024; zeros where there are
 * no rows. Completes all of the box's bytes on the barrier. */
static __device__ __forceinline__ void dg_tensor_g2s(void *shared, const dg_tensor_map &map, int k,
                                                     int row, uint64_t *bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(dg_shared_address(shared)),
                 "l"((uint64_t)&map), "r"(k), "r"(row), "r"(dg_shared_address(bar))
                 : "memory");
#else
    __trap();
#endif
}

/* ---- blocks that wait for each other: all of a launch must fit on the device at once ---- */

/* Until the counter has come to `target`, modulo 2^32; what was written before is seen. */
static __device__ __forceinline__ void dg_await_count(const uint32_t *counter, uint32_t target)
{
    uint32_t value;
    do
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    while ((int32_t)(value - target) < 0);
}

/* ---- barriers for some of the warps; id 1 ... 15, n_thread a multiple of 32 ---- */

static __device__ __forceinline__ void dg_bar_sync(int id, int n_thread)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}

static __device__ __forceinline__ void dg_bar_arrive(int id, int n_thread)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}

/* ---- programmatic dependent launch: nothing where it is not used ---- */

/* Before a thread touches what the kernel before writes or reads: all of that is done then. */
static __device__ __forceinline__ void dg_grid_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may begin as soon as a thread of each block has come here, or the block to its
 * end; behind the own dg_grid_wait, but for narrow_gated (cuda_routes.cu), which says why. */
static __device__ __forceinline__ void dg_grid_launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- values ---- */

/* Two floats as 16-bit values, `low` in the low half; nearest, ties to even. Halves beyond 65504
 * are infinite. */
static __device__ __forceinline__ uint32_t dg_pack_bf16(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ __forceinline__ uint32_t dg_pack_f16(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* Two values as E4M3 (tensor/narrowed.h) in the low 16 bits. */
static __device__ __forceinline__ uint32_t dg_pack_e4m3(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    uint32_t bytes;
    asm("{\n\t.reg .b16 pair;\n\tcvt.rn.satfinite.e4m3x2.f32 pair, %1, %2;\n\t"
        "cvt.u32.u16 %0, pair;\n\t}"
        : "=r"(bytes)
        : "f"(high), "f"(low));
    return bytes;
#else
    return dg_float_to_e4m3(low) | (uint32_t)dg_float_to_e4m3(high) << 8;
#endif
}

/* Two pairs of halves as E4M3, those of `low` in the low 16 bits. */
static __device__ __forceinline__ uint32_t dg_e4m3_of_halves(uint32_t low, uint32_t high)
{
#if __CUDA_ARCH__ >= 890
    uint32_t bytes;
    asm("{\n\t.reg .b16 first, second;\n\tcvt.rn.satfinite.e4m3x2.f16x2 first, %1;\n\t"
        "cvt.rn.satfinite.e4m3x2.f16x2 second, %2;\n\tmov.b32 %0, {first, second};\n\t}"
        : "=r"(bytes)
        : "r"(low), "r"(high));
    return bytes;
#else
    (void)low, (void)high; /* only kernels of sm_90a ask for it */
    return 0;
#endif
}

/* Two E4M3 values, of the low 16 bits of `bytes`, as halves: exact. */
static __device__ __forceinline__ uint32_t dg_e4m3_pair(uint32_t bytes)
{
    uint32_t pair;
#if __CUDA_ARCH__ >= 890
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\t}"
        : "=r"(pair)
        : "r"(bytes));
#else
    uint32_t apart = __byte_perm(bytes, 0, 0x1404);
    pair = (apart & 0x80008000u) | (apart >> 1 & 0x3F803F80u);
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x5C005C00u)); /* 2^8 for the bias */
#endif
    return pair;
}

static __device__ __forceinline__ float dg_f16_at(uint16_t bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}

/* Arithmetic on pairs of halves, each rounded once. */
static __device__ __forceinline__ uint32_t dg_half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

static __device__ __forceinline__ uint32_t dg_half2_mul(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Of bfloat16 numbers, on sm_90. */
static __device__ __forceinline__ uint32_t dg_bf162_mul(uint32_t a, uint32_t b)
{
    uint32_t d = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#endif
    return d;
}

static __device__ __forceinline__ uint32_t dg_half2_add(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

static __device__ __forceinline__ uint32_t dg_half2_sub(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Any function of three bits, on all bits: TABLE is its value for a = F0, b = CC, c = AA. */
template <int TABLE>
static __device__ __forceinline__ uint32_t dg_lop3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return d;
}

/* 2^x, two units in the last place; subnormal results are zero. */
static __device__ __forceinline__ float dg_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else
#include "cuda/cuda_device_plain.cuh"
#endif

/* ---- the same on both ---- */

/* n_row rows of ld values, 16-byte aligned, to be copied n_box rows x 64 values at a time. */
static inline cudaError_t dg_tensor_map_init(dg_tensor_map *map, const void *rows, int n_row,
                                             int ld, int n_box)
{
    int size[2] = {ld, n_row}, box[2] = {64, n_box};
    size_t stride[1] = {(size_t)ld * 2};
    return dg_tensor_map_make(map, rows, 2, size, stride, box, true);
}

static __device__ __forceinline__ float dg_bf16_at(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

static __device__ __forceinline__ float dg_bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float dg_bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xFFFF0000u);
}

/* As halves are stored: saturated at +-65504, NaN stays NaN. */
static __device__ __forceinline__ float dg_f16_range(float x)
{
    return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

static __device__ __forceinline__ uint32_t dg_store_f16(float low, float high)
{
    return dg_pack_f16(dg_f16_range(low), dg_f16_range(high));
}

/* Sums and maxima over the lanes of a warp, the same for all of them, in one fixed order. */
static __device__ __forceinline__ float dg_warp_sum(float x)
{
    for (int with = 16; with > 0; with /= 2)
        x += __shfl_xor_sync(DG_ALL_LANES, x, with);
    return x;
}

static __device__ __forceinline__ float dg_warp_max(float x)
{
    for (int with = 16; with > 0; with /= 2)
        x = fmaxf(x, __shfl_xor_sync(DG_ALL_LANES, x, with));
    return x;
}

#endif
