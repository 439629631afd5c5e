/* Copies of boxes out of maps of three and of five dimensions (dg_tensor_map_make): one instruction
 * for all that a stage needs of an operand. What lies outside of the map is zero, and all of the
 * box's bytes are completed on the barrier. */
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

static __device__ __forceinline__ void dg_box5_g2s(void *shared, const dg_tensor_map &map,
                                                   const dg_box_at &at, uint64_t *bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dg_shared_address(shared)),
                 "l"((uint64_t)&map), "r"(dg_shared_address(bar)), "r"(at.d[0]), "r"(at.d[1]),
                 "r"(at.d[2]), "r"(at.d[3]), "r"(at.d[4])
                 : "memory");
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
static inline void dg_box5_g2s(void *shared, const dg_tensor_map &map, const dg_box_at &at,
                               uint64_t *bar, EMU_WHERE_ARG)
{
    emu_box_g2s(shared, &map, at.d, bar, EMU_WHERE);
}

#endif

#endif
