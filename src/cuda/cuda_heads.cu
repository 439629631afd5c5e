/* Heads behind the projections: norms and rotation, keys and values into their pages. */
#include "cuda/cuda_attention.cuh"

/* ---- heads: a warp each ---- */

enum { HEAD_WARPS = 8 };

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

/* Two neighbouring values. */
static __device__ __forceinline__ void store_values(const dg_cuda_kv &kv, void *to, float first,
                                                    float second)
{
    if (kv.type == DG_F32)
        *(float2 *)to = make_float2(first, second);
    else
        *(uint32_t *)to = dg_pack_bf16(first, second);
}

static __global__ void __launch_bounds__(32 * HEAD_WARPS) finish_heads(dg_cuda_heads_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    int dim = a.kv.head_dim, half = dim / 2, lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32;
    int row = (int)blockIdx.x,
        unit = (int)blockIdx.y * HEAD_WARPS + warp; /* q heads, then k, then v */
    int n_q = a.kv.n_head, n_kv = a.kv.n_kv_head;
    bool is_q = unit < n_q, is_k = !is_q && unit < n_q + n_kv;
    if (unit >= n_q + 2 * n_kv || (is_q && row < a.first_q_row))
        return;

    int head = is_q ? unit : is_k ? unit - n_q : unit - n_q - n_kv;
    const float *raw = is_q ? a.q : is_k || !a.v ? a.k : a.v;
    raw += ((size_t)row * (is_q ? n_q : n_kv) + head) * dim;
    float *kept = (float *)shared + warp * dim, sum = 0;
    for (int i = lane; i < dim; i += 32) {
        kept[i] = raw[i];
        sum += kept[i] * kept[i];
    }
    float factor = 1.0f / sqrtf(dg_warp_sum(sum) / (float)dim + a.eps);
    __syncwarp();

    const float *w = is_q ? a.q_norm : a.k_norm;
    const float *cosines = a.cos + (size_t)row * a.n_pair, *sines = a.sin + (size_t)row * a.n_pair;
    unsigned char *to = (unsigned char *)(a.q + ((size_t)row * n_q + head) * dim);
    int slot = 0;
    if (!is_q) {
        const dg_cuda_segment &seg = a.segment[a.segment_of[row]];
        int at = row - seg.first_row;
        slot = seg.canvas ? at : seg.position + at;
        to = page_keys(a.kv, seg, seg.canvas, slot, head + (is_k ? 0 : n_kv));
        slot %= DG_CUDA_PAGE;
    }
    for (int i = 2 * lane; i < dim; i += 64) {
        float first = kept[i] * factor, second = kept[i + 1] * factor;
        if (is_q || is_k) {
            first = turned(kept, w, factor, cosines, sines, a.n_pair, half, i);
            second = turned(kept, w, factor, cosines, sines, a.n_pair, half, i + 1);
        }
        size_t at = is_q ? (size_t)i * value_bytes(a.kv) : dg_cuda_slot_at(a.kv.type, dim, slot, i);
        store_values(a.kv, to + at, first, second);
    }
}

extern "C" cudaError_t dg_cuda_heads(cudaStream_t stream, const dg_cuda_heads_args *a)
{
    size_t shared = (size_t)HEAD_WARPS * (size_t)a->kv.head_dim * sizeof(float);
    if (a->n_row == 0)
        return cudaSuccess;
    if (shared > 48 << 10 || a->kv.head_dim % 2 || a->n_pair > a->kv.head_dim / 2)
        return cudaErrorInvalidValue;
    int n_unit = a->kv.n_head + 2 * a->kv.n_kv_head;
    dim3 grid((unsigned)a->n_row, (unsigned)(n_unit + HEAD_WARPS - 1) / HEAD_WARPS);
    return DG_LAUNCH(finish_heads, grid, 32 * HEAD_WARPS, shared, stream, *a);
}
