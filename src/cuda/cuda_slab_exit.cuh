/* How results of slabs (cuda_slabs.cuh) leave: through the last stages of their tile, 16 rows of
 * each warp at a time. What a block executes once has to be fetched first, and costs more than it
 * does: so a few instructions bring sums to shared memory, and a short loop takes them from there.
 */
#ifndef DG_CUDA_CUDA_SLAB_EXIT_CUH
#define DG_CUDA_CUDA_SLAB_EXIT_CUH

#include "cuda/cuda_slabs.cuh"

template <class T> struct slab_exit {
    enum { ROWS = 16, APART = T::N * 2, PITCH = 2 * APART + 16, BYTES = ROWS * PITCH };
    enum { WARPS = T::CONSUMERS / 32, OF_STAGE = T::STAGE_BYTES / BYTES };
    enum { HELD = (WARPS + OF_STAGE - 1) / OF_STAGE };
    static_assert(HELD <= T::STAGES, "stages for results");
};

/* Stage `back` before the next one. */
template <class T>
static __device__ __forceinline__ int stage_before(const slab_turn &turn, int back)
{
    return turn.stage >= back ? turn.stage - back : turn.stage + T::STAGES - back;
}

/* A thread's place; unsigned, for shorter code. */
static __device__ __forceinline__ unsigned lane_of(void)
{
    return threadIdx.x % 32;
}

template <class T>
static __device__ __forceinline__ unsigned char *exit_of_warp(const slab_ring<T> &ring,
                                                              const slab_turn &turn)
{
    typedef slab_exit<T> out;
    unsigned warp = threadIdx.x / 32, back = out::HELD == 1 ? 0 : warp / out::OF_STAGE;
    return ring.memory + stage_before<T>(turn, 1 + (int)back) * T::STAGE_BYTES +
           (warp - back * out::OF_STAGE) * out::BYTES;
}

/* The first of the 16 rows that a warp has in acc[m], of a tile from first_row on. */
template <class T> static __device__ __forceinline__ int warp_row(int first_row, int m)
{
    unsigned group = T::WM == 1 ? 0 : threadIdx.x / 128;
    return first_row + (int)((group * T::MT + (unsigned)m) * SLAB_ROWS + threadIdx.x / 32 % 4 * 16);
}

/* Four neighbouring columns as slab_leave() left them, the first a multiple of 4. */
template <class T>
static __device__ __forceinline__ float4 left_four(const unsigned char *left, int row, int column)
{
    const unsigned char *at = left + row * slab_exit<T>::PITCH + column * 2;
    float2 even = *(const float2 *)at, odd = *(const float2 *)(at + slab_exit<T>::APART);
    return make_float4(even.x, odd.x, even.y, odd.y);
}

static __device__ __forceinline__ float4 times(float4 v, float factor)
{
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

/* What a row's sums are multiplied with: of E4M3 its factor. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ float factor_of_row(const dg_cuda_rows &x, int n_row, int row)
{
    if (FORM != DG_CUDA_E4M3 || row >= n_row)
        return 1;
    unsigned ld = (unsigned)x.ld;
    return *(const float *)((const unsigned char *)x.data +
                            (uint64_t)(unsigned)row * (ld + DG_CUDA_ROW_FACTOR) + ld);
}

/* Behind the results of a tile that is not the block's last: copies may follow. */
template <class T>
static __device__ __forceinline__ void give_exit_back(const slab_ring<T> &ring,
                                                      const slab_turn &turn)
{
    warpgroup_publish();
    __syncwarp();
    for (int back = 1; back <= slab_exit<T>::HELD && lane_of() == 0; back++)
        dg_mbar_arrive(ring.empty(stage_before<T>(turn, back)));
}

#endif
