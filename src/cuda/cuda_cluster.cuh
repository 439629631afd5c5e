/* Clusters of blocks on sm_90: launches, the cluster's barrier, and copies from global memory that
 * arrive in the shared memory of several of its blocks at the same place.
 *
 * A block's shared memory and mbarriers may be used by the others between a dg_cluster_sync behind
 * its mbarriers' inits and one before it leaves. */
#ifndef DG_CUDA_CUDA_CLUSTER_CUH
#define DG_CUDA_CUDA_CLUSTER_CUH

#include "cuda/cuda_device.cuh"

#ifdef __CUDACC__

/* Of its cluster; blocks x = 0 ... of a grid are in order of clusters. */
static __device__ __forceinline__ int dg_cluster_rank(void)
{
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return (int)rank;
}

/* By all threads of all blocks that have not left. */
static __device__ __forceinline__ void dg_cluster_sync(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* At the same mbarrier of block `rank`. */
static __device__ __forceinline__ void dg_mbar_arrive_at(uint64_t *bar, int rank)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .b32 at;\n\tmapa.shared::cluster.u32 at, %0, %1;\n\t"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [at];\n\t}" ::"r"(
                     dg_shared_address(bar)),
                 "r"(rank)
                 : "memory");
#else
    __trap();
#endif
}

/* Waits like dg_mbar_wait; what other blocks wrote here before they arrived is seen. */
static __device__ __forceinline__ void dg_mbar_wait_cluster(uint64_t *bar, int parity)
{
#if __CUDA_ARCH__ >= 900
    uint32_t done;
    do
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
            "p, [%1], %2;\n\tselp.b32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(dg_shared_address(bar)), "r"(parity)
            : "memory");
    while (!done);
#else
    __trap();
#endif
}

/* To the same place of block `rank`. */
static __device__ __forceinline__ void dg_store_at(float4 *to, int rank, float4 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t.reg .b32 at;\n\tmapa.shared::cluster.u32 at, %0, %1;\n\t"
        "st.shared::cluster.v4.f32 [at], {%2, %3, %4, %5};\n\t}" ::"r"(dg_shared_address(to)),
        "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
        : "memory");
#else
    __trap();
#endif
}

/* A box of a map of three or of five dimensions (dg_tensor_map_make); with a mask into every block
 * of it, whose own mbarriers count. */
struct dg_box_at {
    int d[5];
};

#define DG_BOX_COPY(dims, coordinates, ...)                                                        \
    if (mask)                                                                                      \
        asm volatile("cp.async.bulk.tensor." dims ".shared::cluster.global.tile"                   \
                     ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {" coordinates   \
                     "}], [%2], %3;" ::"r"(dg_shared_address(shared)),                             \
                     "l"((uint64_t)&map), "r"(dg_shared_address(bar)), "h"((uint16_t)mask),        \
                     __VA_ARGS__                                                                   \
                     : "memory");                                                                  \
    else                                                                                           \
        asm volatile("cp.async.bulk.tensor." dims ".shared::cluster.global.tile"                   \
                     ".mbarrier::complete_tx::bytes [%0], [%1, {" coordinates                      \
                     "}], [%2];" ::"r"(dg_shared_address(shared)),                                 \
                     "l"((uint64_t)&map), "r"(dg_shared_address(bar)), "h"((uint16_t)mask),        \
                     __VA_ARGS__                                                                   \
                     : "memory")

static __device__ __forceinline__ void dg_box3_g2s(void *shared, const dg_tensor_map &map,
                                                   const dg_box_at &at, uint64_t *bar, int mask)
{
#if __CUDA_ARCH__ >= 900
    DG_BOX_COPY("3d", "%4, %5, %6", "r"(at.d[0]), "r"(at.d[1]), "r"(at.d[2]));
#else
    __trap();
#endif
}

static __device__ __forceinline__ void dg_box5_g2s(void *shared, const dg_tensor_map &map,
                                                   const dg_box_at &at, uint64_t *bar, int mask)
{
#if __CUDA_ARCH__ >= 900
    DG_BOX_COPY("5d", "%4, %5, %6, %7, %8", "r"(at.d[0]), "r"(at.d[1]), "r"(at.d[2]), "r"(at.d[3]),
                "r"(at.d[4]));
#else
    __trap();
#endif
}

/* How many clusters run at once; 0 where the device has none. */
template <typename... P>
static inline int dg_clusters_at_once(int cluster, void (*kernel)(P...), int n_thread,
                                      size_t shared_bytes)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute size = {};
    int n = 0;
    if (cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared_bytes))
        return 0;
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = (unsigned)cluster;
    size.val.clusterDim.y = size.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)cluster);
    config.blockDim = dim3((unsigned)n_thread);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &size;
    config.numAttrs = 1;
    return cudaOccupancyMaxActiveClusters(&n, (const void *)kernel, &config) ? 0 : n;
}

#else

static inline int dg_cluster_rank(void)
{
    return emu_cluster_rank();
}
static inline void dg_cluster_sync(EMU_WHERE_ARG)
{
    emu_cluster_sync(EMU_WHERE);
}
static inline void dg_mbar_arrive_at(uint64_t *bar, int rank, EMU_WHERE_ARG)
{
    emu_mbar_arrive((uint64_t *)emu_peer(bar, rank, EMU_WHERE), 0, EMU_WHERE);
}
static inline void dg_mbar_wait_cluster(uint64_t *bar, int parity, EMU_WHERE_ARG)
{
    emu_mbar_wait(bar, parity, EMU_WHERE);
}
static inline void dg_store_at(float4 *to, int rank, float4 v, EMU_WHERE_ARG)
{
    *(float4 *)emu_peer(to, rank, EMU_WHERE) = v;
}
struct dg_box_at {
    int d[EMU_DIMS];
};
static inline void dg_box5_g2s(void *shared, const dg_tensor_map &map, const dg_box_at &at,
                               uint64_t *bar, int mask, EMU_WHERE_ARG)
{
    if (!mask)
        emu_box_g2s(shared, &map, at.d, bar, EMU_WHERE);
    for (int rank = 0; mask >> rank; rank++)
        if (mask >> rank & 1)
            emu_box_g2s(emu_peer(shared, rank, EMU_WHERE), &map, at.d,
                        (uint64_t *)emu_peer(bar, rank, EMU_WHERE), EMU_WHERE);
}
#define dg_box3_g2s dg_box5_g2s
template <typename... P>
static inline int dg_clusters_at_once(int cluster, void (*)(P...), int, size_t)
{
    int n_sm = 1;
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, 0);
    return n_sm < cluster ? 1 : n_sm / cluster;
}

#endif

#endif
