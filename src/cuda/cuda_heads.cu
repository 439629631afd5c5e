/* Heads behind the projections: norms and rotation, keys and values into their pages. */
#include "cuda/cuda_heads.cuh"

/* ---- heads: a warp each ---- */

enum { HEAD_WARPS = 8 };

/* Stores value i of a head in bytes. */
static __device__ __forceinline__ void store_byte(const dg_cuda_heads_args &a, const head_unit &u,
                                                  int i, float x, float by)
{
    *place_of(a, u, i) = (unsigned char)kv_narrow(u.type, x, by);
}

/* ---- any head, through shared memory ---- */

/* Value i of a head behind norm and rotation; `head` is the raw one in shared memory. */
static __device__ __forceinline__ float turned(const float *head, const float *w, float factor,
                                               const float *cosines, const float *sines, int n_pair,
                                               int half, int i)
{
    int pair = i < half ? i : i - half;
    float mine = head[i] * factor * w[i];
    if (pair >= n_pair)
        return mine;
    int other = i < half ? i + half : i - half;
    float theirs = head[other] * factor * w[other];
    return i < half ? mine * cosines[pair] - theirs * sines[pair]
                    : mine * cosines[pair] + theirs * sines[pair];
}

/* A whole head in bytes, from shared memory: 32 values at a time, which share a factor, or all do.
 */
static __device__ __forceinline__ void store_bytes(const dg_cuda_heads_args &a, const head_unit &u,
                                                   const float *head)
{
    const int dim = a.kv.head_dim, lane = (int)threadIdx.x % 32;
    const bool shared = u.type == DG_FP8;
    uint32_t largest = 0;
    for (int i = lane; i < dim && shared; i += 32)
        largest = max(largest, kv_size_of(head[i]));
    for (int begin = 0; begin < dim; begin += 32) {
        const int i = begin + lane;
        const float x = i < dim ? head[i] : 0;
        uint16_t bits;
        const float by =
            kv_narrow_by(u.type, kv_largest(shared ? largest : kv_size_of(x), 32), &bits);
        if (i < dim)
            store_byte(a, u, i, x, by);
        if (lane == 0)
            *kv_factor_at(u.to, u.type, dim, u.slot, begin) = bits;
    }
}

/* Two neighbouring values. */
static __device__ __forceinline__ void store_values(dg_dtype type, void *to, float first,
                                                    float second)
{
    if (type == DG_F32)
        *(float2 *)to = make_float2(first, second);
    else
        *(uint32_t *)to = dg_pack_bf16(first, second);
}

template <bool BYTES>
static __global__ void __launch_bounds__(32 * HEAD_WARPS) finish_heads(dg_cuda_heads_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    dg_grid_launch_next();
    int dim = a.kv.head_dim, half = dim / 2, lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32, row = (int)blockIdx.x;
    head_unit u = find_unit(a, row, (int)blockIdx.y * HEAD_WARPS + warp);
    if (!u.there)
        return;
    float *kept = (float *)shared + warp * (BYTES ? 2 : 1) * dim, sum = 0;
    const bool bytes = BYTES && dg_kv_in_bytes(u.type);
    const float *raw = raw_head(a, u, row);
    for (int i = lane; i < dim; i += 32) {
        kept[i] = raw[i];
        sum += kept[i] * kept[i];
    }
    float factor = head_factor(dg_warp_sum(sum), dim, a.eps);
    __syncwarp();

    const float *w = u.is_q ? a.q_norm : a.k_norm;
    const float *cosines = a.cos + (size_t)row * a.n_pair, *sines = a.sin + (size_t)row * a.n_pair;
    for (int i = 2 * lane; i < dim; i += 64) {
        float first = kept[i] * factor, second = kept[i + 1] * factor;
        if (u.is_q || u.is_k) {
            first = turned(kept, w, factor, cosines, sines, a.n_pair, half, i);
            second = turned(kept, w, factor, cosines, sines, a.n_pair, half, i + 1);
        }
        if (bytes) {
            kept[dim + i] = first;
            kept[dim + i + 1] = second;
        } else {
            store_values(u.type, place_of(a, u, i), first, second);
        }
    }
    if (bytes) {
        __syncwarp();
        store_bytes(a, u, kept + dim);
    }
}

/* ---- heads of 256 PER values in 16 bits or bytes, in registers: a lane has both values of its
 * pairs ---- */

/* Four values of each lane, from value i on, in bytes; eight lanes have what shares a step. */
static __device__ __forceinline__ void store_four_bytes(const dg_cuda_heads_args &a,
                                                        const head_unit &u, int i, float4 v,
                                                        uint32_t largest)
{
    if (u.type == DG_Q8_0) {
        largest = max(max(kv_size_of(v.x), kv_size_of(v.y)), max(kv_size_of(v.z), kv_size_of(v.w)));
        largest = kv_largest(largest, DG_KV_BLOCK / 4);
    }
    uint16_t bits;
    const float by = kv_narrow_by(u.type, largest, &bits);
    *(uint32_t *)place_of(a, u, i) = kv_narrow(u.type, v.x, by) | kv_narrow(u.type, v.y, by) << 8 |
                                     kv_narrow(u.type, v.z, by) << 16 |
                                     kv_narrow(u.type, v.w, by) << 24;
    if (i % DG_KV_BLOCK == 0)
        *kv_factor_at(u.to, u.type, a.kv.head_dim, u.slot, i) = bits;
}

template <int PER, bool BYTES>
static __global__ void __launch_bounds__(32 * HEAD_WARPS) finish_wide_heads(dg_cuda_heads_args a)
{
    constexpr int HALF = 128 * PER;
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, row = (int)blockIdx.x;
    head_unit u = find_unit(a, row, (int)blockIdx.y * HEAD_WARPS + warp);
    if (!u.there)
        return;
    const float *raw = raw_head(a, u, row), *w = u.is_q ? a.q_norm : a.k_norm;
    head_four v[PER];
    head_turn turn[PER];
    float sum = 0;
    bool weighted = u.is_q || u.is_k;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = 4 * (lane + 32 * j);
        v[j] = head_four{*(const float4 *)(raw + i), *(const float4 *)(raw + HALF + i)};
        load_head_weights(turn[j], w, weighted, i, HALF);
        load_head_angles(turn[j], a, weighted, row, i);
    }
#pragma unroll
    for (int j = 0; j < PER; j++)
        sum += squares(v[j]);
    float factor = head_factor(dg_warp_sum(sum), 2 * HALF, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++)
        v[j] = turned_four(v[j], turn[j]);
    if (BYTES && dg_kv_in_bytes(u.type)) {
        uint32_t largest = 0;
        float4 f = make_float4(factor, factor, factor, factor);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            v[j] = head_four{times(v[j].low, f), times(v[j].high, f)};
            const float all[8] = {v[j].low.x,  v[j].low.y,  v[j].low.z,  v[j].low.w,
                                  v[j].high.x, v[j].high.y, v[j].high.z, v[j].high.w};
            for (int n = 0; n < 8; n++)
                largest = max(largest, kv_size_of(all[n]));
        }
        largest = kv_largest(largest, 32);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            store_four_bytes(a, u, 4 * (lane + 32 * j), v[j].low, largest);
            store_four_bytes(a, u, HALF + 4 * (lane + 32 * j), v[j].high, largest);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = 4 * (lane + 32 * j);
        store_four(place_of(a, u, i), v[j].low, factor);
        store_four(place_of(a, u, HALF + i), v[j].high, factor);
    }
}

extern "C" cudaError_t dg_cuda_heads(cudaStream_t stream, const dg_cuda_heads_args *a)
{
    const bool bytes = dg_kv_in_bytes(a->kv.type);
    size_t shared = (size_t)HEAD_WARPS * (bytes ? 2 : 1) * (size_t)a->kv.head_dim * sizeof(float);
    if (a->n_row == 0)
        return cudaSuccess;
    if (shared > 48 << 10 || a->kv.head_dim % 2 || a->n_pair > a->kv.head_dim / 2)
        return cudaErrorInvalidValue;
    int n_unit = a->kv.n_head + 2 * a->kv.n_kv_head;
    dim3 grid((unsigned)a->n_row, (unsigned)(n_unit + HEAD_WARPS - 1) / HEAD_WARPS);
    const int wide = a->kv.type != DG_F32 && a->n_pair % 4 == 0 ? a->kv.head_dim : 0;
    if (wide == 256 && bytes)
        return DG_LAUNCH((finish_wide_heads<1, true>), grid, 32 * HEAD_WARPS, 0, stream, *a);
    if (wide == 512 && bytes)
        return DG_LAUNCH((finish_wide_heads<2, true>), grid, 32 * HEAD_WARPS, 0, stream, *a);
    if (wide == 256)
        return DG_LAUNCH((finish_wide_heads<1, false>), grid, 32 * HEAD_WARPS, 0, stream, *a);
    if (wide == 512)
        return DG_LAUNCH((finish_wide_heads<2, false>), grid, 32 * HEAD_WARPS, 0, stream, *a);
    if (bytes)
        return DG_LAUNCH(finish_heads<true>, grid, 32 * HEAD_WARPS, shared, stream, *a);
    return DG_LAUNCH(finish_heads<false>, grid, 32 * HEAD_WARPS, shared, stream, *a);
}
