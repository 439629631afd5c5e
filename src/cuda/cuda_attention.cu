/* Attention: which kernel, and the plain one. */
#include "cuda/cuda_attention.cuh"
#include "cuda/cuda_product.cuh"

/* ---- the plain kernel: a warp a line, in float; any head ---- */

enum { PLAIN_WARPS = 4 };

/* Value i of a slot in a head's part of a page. */
template <dg_dtype TYPE>
static __device__ __forceinline__ float plain_value(unsigned char *head, int dim, int slot, int i)
{
    const unsigned char *at = head + dg_cuda_slot_at(TYPE, dim, slot, i);
    if constexpr (TYPE == DG_F32)
        return *(const float *)at;
    else if constexpr (TYPE == DG_BF16)
        return dg_bf16_at(*(const uint16_t *)at);
    else
        return dg_kv_number(TYPE, *at) * kv_factor(TYPE, *kv_factor_at(head, TYPE, dim, slot, i));
}

/* One page for one line; q, o and p in shared memory, two keys a lane. */
template <dg_dtype TYPE>
static __device__ __forceinline__ void plain_page(unsigned char *keys, unsigned char *values,
                                                  int dim, int low, int high, const float *q,
                                                  float *o, float *p, float *most, float *sum)
{
    int lane = (int)threadIdx.x % 32;
    float score[2], page_most = -INFINITY;
    for (int h = 0; h < 2; h++) {
        int key = lane + 32 * h;
        score[h] = -INFINITY;
        if (key < low || key >= high)
            continue;
        float dot = 0;
        for (int i = 0; i < dim; i++)
            dot += q[i] * plain_value<TYPE>(keys, dim, key, i);
        score[h] = dot;
        page_most = fmaxf(page_most, dot);
    }
    float next = fmaxf(*most, dg_warp_max(page_most));
    float factor = *most == next ? 1 : expf(*most - next), page_sum = 0;
    for (int h = 0; h < 2; h++) {
        int key = lane + 32 * h;
        p[key] = key < low || key >= high ? 0 : expf(score[h] - next);
        page_sum += p[key];
    }
    *sum = *sum * factor + dg_warp_sum(page_sum);
    *most = next;
    __syncwarp();
    for (int i = lane; i < dim; i += 32) {
        float total = 0;
        for (int key = max(low, 0); key < min(high, (int)DG_CUDA_PAGE); key++)
            total += p[key] * plain_value<TYPE>(values, dim, key, i);
        o[i] = o[i] * factor + total;
    }
    __syncwarp();
}

/* Pages that hold slots [first, end). */
template <dg_dtype TYPE>
static __device__ __forceinline__ void plain_span(const dg_cuda_attention_args &a,
                                                  const dg_cuda_segment &seg, bool canvas,
                                                  int first, int end, int kv_head, float *line,
                                                  float *most, float *sum)
{
    int dim = a.kv.head_dim;
    for (int begin = first / DG_CUDA_PAGE * DG_CUDA_PAGE; begin < end; begin += DG_CUDA_PAGE) {
        unsigned char *keys = page_keys(a.kv, seg, canvas, begin, kv_head);
        unsigned char *values = page_keys(a.kv, seg, canvas, begin, kv_head + a.kv.n_kv_head);
        plain_page<TYPE>(keys, values, dim, first - begin, end - begin, line, line + dim,
                         line + 2 * dim, most, sum);
    }
}

template <dg_dtype TYPE>
static __global__ void __launch_bounds__(32 * PLAIN_WARPS) plain_lines(dg_cuda_attention_args a)
{
    constexpr dg_dtype CANVAS = TYPE == DG_F32 ? DG_F32 : DG_BF16; /* dg_kv_canvas_type() */
    DG_SHARED(shared);
    dg_grid_wait();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, dim = a.kv.head_dim;
    int row = a.first_row + (int)blockIdx.x, head = (int)blockIdx.y * PLAIN_WARPS + warp;
    if (head >= a.kv.n_head)
        return;
    int kv_head = head / (a.kv.n_head / a.kv.n_kv_head);
    const float *q = a.q + ((size_t)row * a.kv.n_head + head) * dim;
    float *line = (float *)shared + warp * (2 * dim + DG_CUDA_PAGE); /* q, o, p */
    for (int i = lane; i < dim; i += 32) {
        line[i] = TYPE == DG_F32 ? q[i] : dg_bf16_at(((const uint16_t *)q)[i]);
        line[dim + i] = 0;
    }
    __syncwarp();

    float most = -INFINITY, sum = 0;
    const dg_cuda_segment &seg = a.segment[a.segment_of[row]];
    plain_span<TYPE>(a, seg, false, a.seen[2 * row], a.seen[2 * row + 1], kv_head, line, &most,
                     &sum);
    if (seg.canvas)
        plain_span<CANVAS>(a, seg, true, 0, seg.n_row, kv_head, line, &most, &sum);

    float factor = sum == 0 ? 0 : 1 / sum;
    for (int i = 2 * lane; i < dim; i += 64)
        store_result(a.out, row, head * dim + i, line[dim + i] * factor,
                     line[dim + i + 1] * factor);
    if (head == a.kv.n_head - 1)
        store_padding(a.out, row, a.kv.n_head * dim);
}

static cudaError_t launch_plain(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    size_t shared = PLAIN_WARPS * (2 * (size_t)a->kv.head_dim + DG_CUDA_PAGE) * sizeof(float);
    if (shared > 48 << 10 || a->kv.head_dim % 2)
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(a->end_row - a->first_row),
              (unsigned)(a->kv.n_head + PLAIN_WARPS - 1) / PLAIN_WARPS);
    switch (a->kv.type) {
    case DG_F32:
        return DG_LAUNCH(plain_lines<DG_F32>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    case DG_Q8_0:
        return DG_LAUNCH(plain_lines<DG_Q8_0>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    case DG_FP8:
        return DG_LAUNCH(plain_lines<DG_FP8>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    default:
        return DG_LAUNCH(plain_lines<DG_BF16>, grid, 32 * PLAIN_WARPS, shared, stream, *a);
    }
}

/* ---- which ---- */

extern "C" size_t dg_cuda_attention_bytes(int max_canvas_row, int max_q_dim)
{
    size_t q_dim = (size_t)max_q_dim, n_head = q_dim / LEAST_HEAD;
    return (size_t)max_canvas_row * (n_head * RECORD_VALUES + MAX_PARTS * q_dim) * sizeof(float);
}

extern "C" size_t dg_cuda_attention_counters(int max_canvas_row, int max_q_dim)
{
    return (size_t)max_canvas_row * (size_t)(max_q_dim / LEAST_HEAD);
}

extern "C" cudaError_t dg_cuda_attention(cudaStream_t stream, const dg_cuda_attention_args *a)
{
    int dim = a->kv.head_dim;
    if (a->first_row >= a->end_row)
        return cudaSuccess;
    if ((a->kv.type != DG_F32 && a->kv.type != DG_BF16 && !dg_kv_in_bytes(a->kv.type)) ||
        a->kv.n_head % a->kv.n_kv_head)
        return cudaErrorInvalidValue;
    if (a->kv.type == DG_F32 || dim < LEAST_HEAD || dim > 512 || (dim & (dim - 1)))
        return launch_plain(stream, a);
    if (dim >= 256 && dg_cuda_has_groups())
        return dg_cuda_attention_groups(stream, a);
    return dg_cuda_attention_mma(stream, a);
}
