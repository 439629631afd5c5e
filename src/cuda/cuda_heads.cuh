/* A head behind the projections: where it goes, and norm and rotation of it by a warp, in which a
 * lane has both values of its pairs. cuda_heads.cu and cuda_project.cu give the same bits: what is
 * fused is said. */
#ifndef DG_CUDA_CUDA_HEADS_CUH
#define DG_CUDA_CUDA_HEADS_CUH

#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_norm.cuh"

/* What a warp works on: a head of a row, and where it goes. */
typedef struct head_unit {
    bool there, is_q, is_k;
    int head;          /* among the queries', or the keys' */
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
    u.head = head;
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

/* Its floats, as the products left them. */
[[maybe_unused]] static __device__ __forceinline__ const float *raw_head(
    const dg_cuda_heads_args &a, const head_unit &u, int row)
{
    const float *raw = u.is_q ? a.q : u.is_k || !a.v ? a.k : a.v;
    int n = u.is_q ? a.kv.n_head : a.kv.n_kv_head;
    return raw + ((size_t)row * n + u.head) * a.kv.head_dim;
}

/* Where value i of the head is stored. */
static __device__ __forceinline__ unsigned char *place_of(const dg_cuda_heads_args &a,
                                                          const head_unit &u, int i)
{
    return u.to + (u.is_q ? dg_kv_row_bytes(u.type, i)
                          : dg_cuda_slot_at(u.type, a.kv.head_dim, u.slot, i));
}

/* ---- four values a lane of each half ---- */

/* Those of one PER-th of a head: values i and half a head on, and what they are turned by. */
struct head_four {
    float4 low, high;
};

struct head_turn {
    float4 w_low, w_high, c, s;
};

[[maybe_unused]] static __device__ __forceinline__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

[[maybe_unused]] static __device__ __forceinline__ float squares(float4 a)
{
    return __fmaf_rn(a.x, a.x, __fmaf_rn(a.y, a.y, __fmaf_rn(a.z, a.z, __fmul_rn(a.w, a.w))));
}

[[maybe_unused]] static __device__ __forceinline__ float squares(const head_four &v)
{
    return squares(v.low) + squares(v.high);
}

/* What a head is multiplied with: sum is over all lanes. */
[[maybe_unused]] static __device__ __forceinline__ float head_factor(float sum, int dim, float eps)
{
    return dg_norm_factor(sum, dg_norm_share(dim), eps);
}

/* Weights of values i and i + half on, ones where the head has none. */
[[maybe_unused]] static __device__ __forceinline__ void load_head_weights(head_turn &t,
                                                                          const float *w,
                                                                          bool weighted, int i,
                                                                          int half)
{
    t.w_low = t.w_high = make_float4(1, 1, 1, 1);
    if (weighted) {
        t.w_low = *(const float4 *)(w + i);
        t.w_high = *(const float4 *)(w + half + i);
    }
}

/* The angles of pair i of a row, or none. */
[[maybe_unused]] static __device__ __forceinline__ void load_head_angles(
    head_turn &t, const dg_cuda_heads_args &a, bool weighted, int row, int i)
{
    size_t at = (size_t)row * a.n_pair + i;
    t.c = make_float4(1, 1, 1, 1);
    t.s = make_float4(0, 0, 0, 0);
    if (weighted && i < a.n_pair) {
        t.c = *(const float4 *)(a.cos + at);
        t.s = *(const float4 *)(a.sin + at);
    }
}

/* a c + b s, or minus. */
[[maybe_unused]] static __device__ __forceinline__ float4 turn_by(float4 a, float4 c, float4 b,
                                                                  float4 s, float sign)
{
    return make_float4(__fmaf_rn(a.x, c.x, __fmul_rn(sign * b.x, s.x)),
                       __fmaf_rn(a.y, c.y, __fmul_rn(sign * b.y, s.y)),
                       __fmaf_rn(a.z, c.z, __fmul_rn(sign * b.z, s.z)),
                       __fmaf_rn(a.w, c.w, __fmul_rn(sign * b.w, s.w)));
}

/* Weighted and turned; the head's factor is still to come. */
[[maybe_unused]] static __device__ __forceinline__ head_four turned_four(const head_four &v,
                                                                         const head_turn &t)
{
    float4 first = times(v.low, t.w_low), second = times(v.high, t.w_high);
    return head_four{turn_by(first, t.c, second, t.s, -1), turn_by(second, t.c, first, t.s, 1)};
}

[[maybe_unused]] static __device__ __forceinline__ void store_four(unsigned char *to, float4 v,
                                                                   float factor)
{
    uint2 bits = {dg_pack_bf16(v.x * factor, v.y * factor),
                  dg_pack_bf16(v.z * factor, v.w * factor)};
    *(uint2 *)to = bits;
}

#endif
