/* CUDA C++ for a plain C++ compiler: enough for the kernels of src/cuda. The threads of a block are
 * fibers, blocks run one after the other; barriers, warp collectives and waits are where fibers
 * change. Copies into shared memory that the hardware makes behind a kernel's back (cp.async, bulk
 * copies) arrive as late as they may, and what they overwrite turns to ones at once: a kernel that
 * reads too early, or refills too early, reads NaN. See emulated.cpp. */
#ifndef DG_EMULATED_CUDA_RUNTIME_H
#define DG_EMULATED_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__      static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

/* ---- types ---- */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
#define EMU_VECTORS(type, name)                                                                    \
    struct __align__(2 * sizeof(type)) name##2                                                     \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct __align__(4 * sizeof(type)) name##4                                                     \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }
EMU_VECTORS(float, float)
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned, uint)
#undef EMU_VECTORS

/* ---- where a thread is ---- */

extern uint3 emu_thread_idx, emu_block_idx;
extern dim3 emu_block_dim, emu_grid_dim;
#define threadIdx emu_thread_idx
#define blockIdx  emu_block_idx
#define blockDim  emu_block_dim
#define gridDim   emu_grid_dim
#define warpSize  32

unsigned char *emu_shared(void); /* dynamic shared memory of the block */

/* ---- launches ---- */

typedef void emu_body(void *kernel_and_args);
cudaError_t emu_run(dim3 grid, dim3 block, size_t shared, emu_body *body, void *arg);

cudaError_t emu_fault(void); /* what becomes of a call to the device: emu_break_after() */

/* Runs it at once, or records it while the stream is captured: arg_bytes of arg can be copied. */
cudaError_t emu_enqueue(dim3 grid, dim3 block, size_t shared, emu_body *body, void *arg,
                        size_t arg_bytes);

template <typename... P, typename... A>
static inline cudaError_t emu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                     cudaStream_t, A... args)
{
    auto call = [=]() { kernel((P)args...); };
    return emu_enqueue(
        grid, block, shared, [](void *p) { (*(decltype(call) *)p)(); }, &call, sizeof call);
}

/* ---- collectives: every lane of the mask takes part, or the process ends ---- */

typedef struct emu_where {
    const char *file;
    int line;
} emu_where;
#define EMU_WHERE_ARG const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define EMU_WHERE                                                                                  \
    emu_where                                                                                      \
    {                                                                                              \
        file_, line_                                                                               \
    }

uint32_t emu_shuffle(uint32_t mask, uint32_t value, int from, emu_where where);
uint32_t emu_ballot(uint32_t mask, uint32_t value, emu_where where);
void emu_syncwarp(uint32_t mask, emu_where where);
int emu_lane(void);
int emu_barrier(int id, int n_thread, bool wait, int value, emu_where where); /* sum of value */
void emu_fail(emu_where where, const char *what) __attribute__((noreturn));

static inline void __syncthreads(EMU_WHERE_ARG)
{
    emu_barrier(0, 0, true, 0, EMU_WHERE);
}
static inline int __syncthreads_count(int value, EMU_WHERE_ARG)
{
    return emu_barrier(0, 0, true, value != 0, EMU_WHERE);
}
static inline int __syncthreads_or(int value, EMU_WHERE_ARG)
{
    return emu_barrier(0, 0, true, value != 0, EMU_WHERE) != 0;
}
static inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu, EMU_WHERE_ARG)
{
    emu_syncwarp(mask, EMU_WHERE);
}
static inline uint32_t __ballot_sync(uint32_t mask, int value, EMU_WHERE_ARG)
{
    return emu_ballot(mask, value != 0, EMU_WHERE);
}
static inline int __any_sync(uint32_t mask, int value, EMU_WHERE_ARG)
{
    return emu_ballot(mask, value != 0, EMU_WHERE) != 0;
}
static inline int __all_sync(uint32_t mask, int value, EMU_WHERE_ARG)
{
    return emu_ballot(mask, value != 0, EMU_WHERE) == mask;
}

template <typename T>
static inline T emu_shuffle_of(uint32_t mask, T value, int from, emu_where where)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 32 bits, or twice that");
    uint32_t bits[sizeof(T) / 4];
    memcpy(bits, &value, sizeof value);
    for (size_t i = 0; i < sizeof(T) / 4; i++)
        bits[i] = emu_shuffle(mask, bits[i], from, where);
    memcpy(&value, bits, sizeof value);
    return value;
}
template <typename T>
static inline T __shfl_sync(uint32_t mask, T value, int from, int width = 32, EMU_WHERE_ARG)
{
    return emu_shuffle_of(mask, value, (emu_lane() & ~(width - 1)) | (from & (width - 1)),
                          EMU_WHERE);
}
template <typename T>
static inline T __shfl_xor_sync(uint32_t mask, T value, int with, int width = 32, EMU_WHERE_ARG)
{
    int lane = emu_lane(), from = lane ^ with;
    return emu_shuffle_of(mask, value, from / width > lane / width ? lane : from, EMU_WHERE);
}
template <typename T>
static inline T __shfl_up_sync(uint32_t mask, T value, int by, int width = 32, EMU_WHERE_ARG)
{
    int lane = emu_lane(), from = lane - by;
    return emu_shuffle_of(mask, value, from < (lane & ~(width - 1)) ? lane : from, EMU_WHERE);
}
template <typename T>
static inline T __shfl_down_sync(uint32_t mask, T value, int by, int width = 32, EMU_WHERE_ARG)
{
    int lane = emu_lane(), from = lane + by;
    return emu_shuffle_of(mask, value, from > (lane | (width - 1)) ? lane : from, EMU_WHERE);
}

/* Of all lanes of a warp. */
static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value, EMU_WHERE_ARG)
{
    for (int with = 16; with > 0; with /= 2) {
        uint32_t other = emu_shuffle_of(mask, value, emu_lane() ^ with, EMU_WHERE);
        value = other > value ? other : value;
    }
    return value;
}
static inline int __reduce_add_sync(uint32_t mask, int value, EMU_WHERE_ARG)
{
    for (int with = 16; with > 0; with /= 2)
        value += emu_shuffle_of(mask, value, emu_lane() ^ with, EMU_WHERE);
    return value;
}
static inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t value, EMU_WHERE_ARG)
{
    return ~__reduce_max_sync(mask, ~value, file_, line_);
}

/* ---- what one thread computes ---- */

static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline int __float_as_int(float f)
{
    return (int)__float_as_uint(f);
}
static inline float __int_as_float(int i)
{
    return __uint_as_float((unsigned)i);
}
/* Compiled without contraction, so that these are what they are called. */
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1 / a;
}
#define __expf expf /* the C library has functions of these names */
#define __logf logf
static inline float rsqrtf(float a)
{
    return (float)(1 / sqrt((double)a));
}
static inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
static inline int __clz(int i)
{
    return i ? __builtin_clz((unsigned)i) : 32;
}
static inline int __ffs(int i)
{
    return __builtin_ffs(i);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = selector >> 4 * i & 15, byte = (unsigned)(both >> 8 * (pick & 7)) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcg(T *p, T v)
{
    *p = v;
}
#define EMU_MIN_MAX(type)                                                                          \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
#undef EMU_MIN_MAX

/* Integers only: no order of floating point sums is left to chance. */
template <typename T> static inline T atomicAdd(T *p, T v)
{
    static_assert((T)0.5 == 0, "no floating point atomics");
    T old = *p;
    *p = old + v;
    return old;
}
template <typename T> static inline T atomicMax(T *p, T v)
{
    static_assert((T)0.5 == 0, "no floating point atomics");
    T old = *p;
    *p = old > v ? old : v;
    return old;
}
template <typename T> static inline T atomicOr(T *p, T v)
{
    T old = *p;
    *p = old | v;
    return old;
}
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}

/* ---- the operations of cuda_device.cuh that are single instructions on the device ---- */

void emu_mma(float c[4], const uint32_t a[4], const uint32_t b[2], bool half, emu_where where);
void emu_mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2], emu_where where);
void emu_mma_s8(int c[4], const uint32_t a[4], const uint32_t b[2], bool a_unsigned,
                emu_where where);
void emu_ldmatrix(uint32_t *r, int n, bool trans, const void *row, emu_where where);
void emu_cp_async(void *shared, const void *global, int bytes, int n_copied, emu_where where);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int n_left);
void emu_mbar_init(uint64_t *bar, int count, emu_where where);
void emu_mbar_arrive(uint64_t *bar, int tx_bytes, emu_where where);
void emu_mbar_wait(uint64_t *bar, int parity, emu_where where);
void emu_await_count(const uint32_t *counter, uint32_t target, emu_where where);
void emu_bulk_g2s(void *shared, const void *global, uint32_t bytes, uint64_t *bar, emu_where where);
void emu_bulk_ahead(const void *global, uint32_t bytes, emu_where where);

/* 16-bit values in up to five dimensions, the first of them 64 values side by side, cut into boxes;
 * in those that are swapped the 16-byte pieces of 128 bytes are exchanged as the hardware's
 * 128-byte swizzle does it. stride: bytes from one to the next of dimension 1 ... */
enum { EMU_DIMS = 5 };
typedef struct emu_tensor_map {
    const unsigned char *data;
    int size[EMU_DIMS], box[EMU_DIMS];
    long stride[EMU_DIMS];
    bool swapped;
} emu_tensor_map;
void emu_box_g2s(void *shared, const emu_tensor_map *map, const int *at, uint64_t *bar,
                 emu_where where);

float emu_half_to_float(uint16_t h);
uint16_t emu_float_to_half(float f);
uint16_t emu_double_to_half(double d);

#endif
