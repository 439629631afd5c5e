/* Heads behind the projections: norms and rotation, keys and values into their pages. */
#include "cuda/cuda_attention.cuh"

/* ---- heads: a warp each ---- */

enum { HEAD_WARPS = 8 };

/* What a warp works on: a head of a row, and where it goes. */
typedef struct head_unit {
    bool there, is_q, is_k;
    const float *raw;
    unsigned char *to; /* the head's place in q, or its part of a page */
    int slot;          /* of the page */
    dg_dtype type;     /* in which it is stored there */
} head_unit;

/* q heads, then k, then v. */
static __device__ __forceinline__ head_unit find_unit(const dg_cuda_heads_args &a, int row,
                                                      int unit)
{
    int n_q = a.kv.n_head, n_kv = a.kv.n_kv_head, dim = a.kv.head_dim;
    head_unit u = {};
    u.is_q = unit < n_q;
    u.is_k = !u.is_q && unit < n_q + n_kv;
    u.there = unit < n_q + 2 * n_kv && !(u.is_q && row < a.first_q_row);
    if (!u.there)
        return u;
    int head = u.is_q ? unit : u.is_k ? unit - n_q : unit - n_q - n_kv;
    u.raw = u.is_q ? a.q : u.is_k || !a.v ? a.k : a.v;
    u.raw += ((size_t)row * (u.is_q ? n_q : n_kv) + head) * dim;
    u.to = (unsigned char *)(a.q + ((size_t)row * n_q + head) * dim);
    u.type = dg_kv_canvas_type(a.kv.type);
    if (!u.is_q) {
        const dg_cuda_segment &seg = a.segment[a.segment_of[row]];
        int at = row - seg.first_row, slot = seg.canvas ? at : seg.position + at;
        u.to = page_keys(a.kv, seg, seg.canvas, slot, head + (u.is_k ? 0 : n_kv));
        u.slot = slot % DG_CUDA_PAGE;
        u.type = seg.canvas ? u.type : a.kv.type;
    }
    return u;
}

/* Where value i of the head is stored. */
static __device__ __forceinline__ unsigned char *place_of(const dg_cuda_heads_args &a,
                                                          const head_unit &u, int i)
{
    return u.to + (u.is_q ? dg_kv_row_bytes(u.type, i)
                          : dg_cuda_slot_at(u.type, a.kv.head_dim, u.slot, i));
}

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
    for (int i = lane; i < dim; i += 32) {
        kept[i] = u.raw[i];
        sum += kept[i] * kept[i];
    }
    float factor = 1.0f / sqrtf(dg_warp_sum(sum) / (float)dim + a.eps);
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

static __device__ __forceinline__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

static __device__ __forceinline__ float squares(float4 a)
{
    return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w;
}

/* a c + b s, or minus. */
static __device__ __forceinline__ float4 turn_by(float4 a, float4 c, float4 b, float4 s, float sign)
{
    return make_float4(a.x * c.x + sign * (b.x * s.x), a.y * c.y + sign * (b.y * s.y),
                       a.z * c.z + sign * (b.z * s.z), a.w * c.w + sign * (b.w * s.w));
}

static __device__ __forceinline__ void store_four(unsigned char *to, float4 v, float factor)
{
    uint2 bits = {dg_pack_bf16(v.x * factor, v.y * factor),
                  dg_pack_bf16(v.z * factor, v.w * factor)};
    *(uint2 *)to = bits;
}

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
    const float *w = u.is_q ? a.q_norm : a.k_norm;
    const float *cosines = a.cos + (size_t)row * a.n_pair, *sines = a.sin + (size_t)row * a.n_pair;
    float4 low[PER], high[PER], w_low[PER], w_high[PER], c[PER], s[PER];
    float sum = 0;
    bool weighted = u.is_q || u.is_k;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = 4 * (lane + 32 * j);
        bool turns = weighted && i < a.n_pair;
        low[j] = *(const float4 *)(u.raw + i);
        high[j] = *(const float4 *)(u.raw + HALF + i);
        w_low[j] = weighted ? *(const float4 *)(w + i) : make_float4(1, 1, 1, 1);
        w_high[j] = weighted ? *(const float4 *)(w + HALF + i) : make_float4(1, 1, 1, 1);
        c[j] = turns ? *(const float4 *)(cosines + i) : make_float4(1, 1, 1, 1);
        s[j] = turns ? *(const float4 *)(sines + i) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < PER; j++)
        sum += squares(low[j]) + squares(high[j]);
    float factor = 1.0f / sqrtf(dg_warp_sum(sum) / (float)(2 * HALF) + a.eps);
    if (BYTES && dg_kv_in_bytes(u.type)) {
        uint32_t largest = 0;
        float4 f = make_float4(factor, factor, factor, factor);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            float4 first = times(low[j], w_low[j]), second = times(high[j], w_high[j]);
            low[j] = times(turn_by(first, c[j], second, s[j], -1), f);
            high[j] = times(turn_by(second, c[j], first, s[j], 1), f);
            const float all[8] = {low[j].x,  low[j].y,  low[j].z,  low[j].w,
                                  high[j].x, high[j].y, high[j].z, high[j].w};
            for (int n = 0; n < 8; n++)
                largest = max(largest, kv_size_of(all[n]));
        }
        largest = kv_largest(largest, 32);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            store_four_bytes(a, u, 4 * (lane + 32 * j), low[j], largest);
            store_four_bytes(a, u, HALF + 4 * (lane + 32 * j), high[j], largest);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = 4 * (lane + 32 * j);
        float4 first = times(low[j], w_low[j]), second = times(high[j], w_high[j]);
        store_four(place_of(a, u, i), turn_by(first, c[j], second, s[j], -1), factor);
        store_four(place_of(a, u, HALF + i), turn_by(second, c[j], first, s[j], 1), factor);
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
