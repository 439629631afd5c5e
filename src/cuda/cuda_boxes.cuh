/* Copies of boxes out of maps of three and of five dimensions (dg_tensor_map_make): one instruction
 * for all that a stage needs of an operand. What lies outside of the map is zero, and all of the
 * box's bytes are completed on the barrier. And what stays in the second-level cache, or comes
 * there before it is read. */
#ifndef DG_CUDA_CUDA_BOXES_CUH
#define DG_CUDA_CUDA_BOXES_CUH

#include "cuda/cuda_device.cuh"

/* Where a box begins, by dimension. */
struct dg_box_at {
    int d[5];
};

#ifdef __CUDACC__

static __device__ __forceinline__ void dg_box3_g2s(void *shared, const dg_tensor_map &map,
                                                   const dg_box_at &at, uint64_t *bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dg_shared_address(shared)),
                 "l"((uint64_t)&map), "r"(dg_shared_address(bar)), "r"(at.d[0]), "r"(at.d[1]),
                 "r"(at.d[2])
                 : "memory");
#else
    __trap();
#endif
}

/* How long copied bytes are to stay in the second-level cache: not long where nobody reads them
 * again soon. */
static __device__ __forceinline__ uint64_t dg_cache_policy(bool once)
{
    uint64_t first = 0, usual = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(usual));
#endif
    return once ? first : usual;
}

static __device__ __forceinline__ void dg_box5_g2s(void *shared, const dg_tensor_map &map,
                                                   const dg_box_at &at, uint64_t *bar,
                                                   uint64_t policy)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(
                     dg_shared_address(shared)),
                 "l"((uint64_t)&map), "r"(dg_shared_address(bar)), "r"(at.d[0]), "r"(at.d[1]),
                 "r"(at.d[2]), "r"(at.d[3]), "r"(at.d[4]), "l"(policy)
                 : "memory");
#else
    __trap();
#endif
}

/* Asks for bytes, a multiple of 16 from an address that is one, into the second-level cache. */
static __device__ __forceinline__ void dg_bulk_ahead(const void *global, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#else
    __trap();
#endif
}

#else

static inline void dg_box3_g2s(void *shared, const dg_tensor_map &map, const dg_box_at &at,
                               uint64_t *bar, EMU_WHERE_ARG)
{
    emu_box_g2s(shared, &map, at.d, bar, EMU_WHERE);
}
static inline uint64_t dg_cache_policy(bool)
{
    return 0;
}
static inline void dg_box5_g2s(void *shared, const dg_tensor_map &map, const dg_box_at &at,
                               uint64_t *bar, uint64_t, EMU_WHERE_ARG)
{
    emu_box_g2s(shared, &map, at.d, bar, EMU_WHERE);
}
static inline void dg_bulk_ahead(const void *global, uint32_t bytes, EMU_WHERE_ARG)
{
    emu_bulk_ahead(global, bytes, EMU_WHERE);
}

#endif

#endif
