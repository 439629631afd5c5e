/* The vision tower's rows: pixels, positions, heads, soft tokens, ranges. */
#include "cuda/cuda_vision.cuh"
#include "cuda/cuda_blocks.cuh"
#include "cuda/cuda_rows.cuh"
#include "cuda/cuda_tiles.cuh"

/* ---- patches ---- */

static __global__ void __launch_bounds__(N_THREAD)
    pixel_rows(dg_cuda_rows out, const float *pixels, int n)
{
    dg_grid_wait();
    dg_grid_launch_next();
    size_t r = blockIdx.x;
    for (int i = (int)threadIdx.x; i < out.ld; i += N_THREAD)
        store_one(out.data, out.form, r * (size_t)out.ld + (size_t)i,
                  i < n ? 2 * (pixels[r * (size_t)n + (size_t)i] - 0.5f) : 0);
}

extern "C" cudaError_t dg_cuda_vision_pixels(cudaStream_t stream, dg_cuda_rows out,
                                             const float *pixels, int n_row, int n)
{
    if (n_row == 0)
        return cudaSuccess;
    return DG_LAUNCH(pixel_rows, n_row, N_THREAD, 0, stream, out, pixels, n);
}

template <int TYPE>
static __global__ void __launch_bounds__(N_THREAD) add_positions(dg_cuda_positions_args a)
{
    constexpr int BYTES = TYPE == DG_F32 ? 4 : 2;
    dg_grid_wait();
    dg_grid_launch_next();
    int patch = (int)blockIdx.x;
    patch_place at = find_patch(a.pictures, patch);
    size_t row_bytes = (size_t)a.n * BYTES;
    const uint8_t *column = (const uint8_t *)a.table + (size_t)at.col * row_bytes,
                  *row = (const uint8_t *)a.table + (size_t)(a.n_position + at.row) * row_bytes;
    float *x = a.x + (size_t)patch * (size_t)a.n;
    for (int i = (int)threadIdx.x; i < a.n; i += N_THREAD)
        x[i] += dg_value_at<TYPE>(column, i) + dg_value_at<TYPE>(row, i);
}

extern "C" cudaError_t dg_cuda_vision_positions(cudaStream_t stream,
                                                const dg_cuda_positions_args *a)
{
    int n = a->pictures.n_patch;
    if (n == 0)
        return cudaSuccess;
    switch (a->type) {
    case DG_F32:
        return DG_LAUNCH(add_positions<DG_F32>, n, N_THREAD, 0, stream, *a);
    case DG_F16:
        return DG_LAUNCH(add_positions<DG_F16>, n, N_THREAD, 0, stream, *a);
    case DG_BF16:
        return DG_LAUNCH(add_positions<DG_BF16>, n, N_THREAD, 0, stream, *a);
    default:
        return cudaErrorNotSupported;
    }
}

/* ---- any heads: a block a patch, a warp a head ---- */

/* Value i of a head behind its norm and its turn; `kept` is the raw one, in shared memory. */
static __device__ __forceinline__ float turned(const dg_cuda_vision_heads_args &a,
                                               const patch_place &at, const float *kept,
                                               const float *w, float factor, int i)
{
    int n_pair = a.to.dim / 4, within = i % (2 * n_pair);
    bool first = within < n_pair;
    int other = first ? i + n_pair : i - n_pair, pair = first ? within : within - n_pair;
    size_t angle = (size_t)(i < 2 * n_pair ? at.col : at.row) * (size_t)n_pair + (size_t)pair;
    float mine = kept[i] * factor * w[i], theirs = kept[other] * factor * w[other];
    return first ? mine * a.cos[angle] - theirs * a.sin[angle]
                 : mine * a.cos[angle] + theirs * a.sin[angle];
}

/* Units [first, end): q heads, then k, then v. */
static __global__ void __launch_bounds__(N_THREAD)
    finish_heads(dg_cuda_vision_heads_args a, int first, int end)
{
    DG_SHARED(shared);
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, patch = (int)blockIdx.x;
    int dim = a.to.dim, n_unit = 3 * a.to.n_head;
    patch_place at = find_patch(a.pictures, patch);
    float *kept = (float *)shared + warp * dim;
    for (int unit = first + warp; unit < end; unit += N_WARP) {
        const float *raw = a.raw + ((size_t)patch * (size_t)n_unit + (size_t)unit) * (size_t)dim;
        int kind = unit / a.to.n_head, head = unit % a.to.n_head;
        const float *w = kind == 0 ? a.q_norm : a.k_norm;
        float sum = 0;
        for (int i = lane; i < dim; i += 32) {
            kept[i] = raw[i];
            sum += kept[i] * kept[i];
        }
        float factor = dg_norm_factor(dg_warp_sum(sum), dg_norm_share(dim), a.eps);
        __syncwarp();
        void *to = kind == 0 ? a.to.q : kind == 1 ? a.to.k : a.to.v;
        size_t begin = ((size_t)head * (size_t)a.pictures.n_slot + (size_t)at.slot) * a.to.ld;
        for (int i = 2 * lane; i < a.to.ld; i += 64) {
            channel_pair v = {0, 0};
            if (i < dim && kind < 2) {
                v.low = turned(a, at, kept, w, factor, i);
                v.high = turned(a, at, kept, w, factor, i + 1);
            } else if (i < dim) {
                v.low = kept[i] * factor;
                v.high = kept[i + 1] * factor;
            }
            store_pair(to, a.to.exact ? DG_CUDA_F32 : DG_CUDA_F16, begin + (size_t)i, v);
        }
        __syncwarp();
    }
}

/* ---- queries and keys of heads of DIM halves: a block a patch, which it keeps in shared memory
 * ---- */

template <int DIM> struct patch_heads {
    static constexpr int LANES = 4, AT_ONCE = 3, PAIRS = DIM / 4, LD = (DIM + 15) / 16 * 16;
    static_assert(DIM % (2 * LANES) == 0, "pairs for all lanes, and pairs of pairs");
};

static __device__ __forceinline__ float2 two_at(const float *p)
{
    return *(const float2 *)p;
}

/* Each head's factor, four lanes a head. */
template <int DIM>
static __device__ __forceinline__ void find_factors(float *factor, const float *kept, int n_unit,
                                                    float eps)
{
    constexpr int LANES = patch_heads<DIM>::LANES;
    for (int base = 0; base < n_unit; base += N_THREAD / LANES) {
        int unit = base + (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
        const float2 *head = (const float2 *)(kept + min(unit, n_unit - 1) * DIM);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < DIM / 2 / LANES; i++) {
            float2 v = head[i * LANES + lane];
            sum += v.x * v.x + v.y * v.y;
        }
        sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
        if (lane == 0 && unit < n_unit)
            factor[unit] = dg_norm_factor(sum, dg_norm_share(DIM), eps);
    }
}

template <int DIM>
static __global__ void __launch_bounds__(N_THREAD) finish_patch(dg_cuda_vision_heads_args a)
{
    constexpr int PAIRS = patch_heads<DIM>::PAIRS, LD = patch_heads<DIM>::LD,
                  AT_ONCE = patch_heads<DIM>::AT_ONCE;
    DG_SHARED(shared);
    int n_head = a.to.n_head, n_unit = 2 * n_head, patch = (int)blockIdx.x, t = (int)threadIdx.x;
    float *kept = (float *)shared, *w = kept + n_unit * DIM, *cosines = w + 2 * DIM,
          *sines = cosines + 2 * PAIRS, *factor = sines + 2 * PAIRS;
    patch_place at = find_patch(a.pictures, patch);
    for (int i = t; i < 2 * DIM; i += N_THREAD)
        w[i] = i < DIM ? a.q_norm[i] : a.k_norm[i - DIM];
    for (int i = t; i < 2 * PAIRS; i += N_THREAD) {
        int angle = i < PAIRS ? at.col * PAIRS + i : at.row * PAIRS + i - PAIRS;
        cosines[i] = a.cos[angle];
        sines[i] = a.sin[angle];
    }
    dg_grid_wait();
    dg_grid_launch_next();
    const float4 *raw = (const float4 *)(a.raw + (size_t)patch * 3 * (size_t)n_head * DIM);
    for (int first = t; first < n_unit * DIM / 4; first += AT_ONCE * N_THREAD) {
        float4 v[AT_ONCE]; /* all on their way before the first is needed */
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            v[j] = raw[min(first + j * N_THREAD, n_unit * DIM / 4 - 1)];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j * N_THREAD < n_unit * DIM / 4)
                ((float4 *)kept)[first + j * N_THREAD] = v[j];
    }
    __syncthreads();
    find_factors<DIM>(factor, kept, n_unit, a.eps);
    __syncthreads();
    for (int pair = t; pair < n_unit * LD / 2; pair += N_THREAD) {
        int unit = pair / (LD / 2), i = pair % (LD / 2) * 2, kind = unit >= n_head;
        int half = i / (2 * PAIRS), within = i - half * 2 * PAIRS;
        bool first = within < PAIRS;
        channel_pair v = {0, 0};
        if (i < DIM) {
            int other = first ? i + PAIRS : i - PAIRS,
                angle = half * PAIRS + (first ? within : within - PAIRS);
            const float *head = kept + unit * DIM, *norm = w + kind * DIM;
            float2 mine = two_at(head + i), theirs = two_at(head + other),
                   w_mine = two_at(norm + i), w_theirs = two_at(norm + other),
                   c = two_at(cosines + angle), sn = two_at(sines + angle);
            float f = factor[unit], sign = first ? -f : f;
            v.low = mine.x * w_mine.x * f * c.x + theirs.x * w_theirs.x * sign * sn.x;
            v.high = mine.y * w_mine.y * f * c.y + theirs.y * w_theirs.y * sign * sn.y;
        }
        int head_index = unit - kind * n_head;
        size_t begin = ((size_t)head_index * (size_t)a.pictures.n_slot + (size_t)at.slot) * LD;
        store_pair(kind ? a.to.k : a.to.q, DG_CUDA_F16, begin + (size_t)i, v);
    }
}

/* Values across: a block has 64 slots of one head, and turns them over in shared memory. */
enum { TURNED = N_THREAD / 4, PER_WARP = TURNED / N_WARP };

/* The patch in a slot; below 0: none. */
static __device__ __forceinline__ int patch_in(const dg_cuda_pictures &all, int slot)
{
    int p = 0;
    while (p + 1 < all.n && slot >= all.at[p + 1].first_slot)
        p++;
    int within = slot - all.at[p].first_slot;
    return within < patch_count(all.at[p]) ? all.at[p].first_patch + within : -1;
}

static __global__ void __launch_bounds__(N_THREAD) turn_values(dg_cuda_vision_heads_args a)
{
    DG_SHARED(shared);
    int lane = (int)threadIdx.x % 32, dim = a.to.dim, ld = dim | 1, n_dim = (dim + 7) / 8 * 8,
        head = (int)blockIdx.y, first = (int)blockIdx.x * TURNED, n_slot = a.pictures.n_slot;
    float *kept = (float *)shared;
    dg_grid_wait();
    dg_grid_launch_next();
    const float *raw[PER_WARP];
#pragma unroll
    for (int j = 0; j < PER_WARP; j++) {
        int patch = patch_in(a.pictures, first + (int)threadIdx.x / 32 + j * N_WARP);
        size_t unit = (size_t)patch * 3 * (size_t)a.to.n_head + (size_t)(2 * a.to.n_head + head);
        raw[j] = patch < 0 ? NULL : a.raw + unit * (size_t)dim;
    }
    for (int i = lane; i < dim; i += 32) {
        float v[PER_WARP]; /* all on their way before the first is needed */
#pragma unroll
        for (int j = 0; j < PER_WARP; j++)
            v[j] = raw[j] ? raw[j][i] : 0;
#pragma unroll
        for (int j = 0; j < PER_WARP; j++)
            kept[((int)threadIdx.x / 32 + j * N_WARP) * ld + i] = v[j];
    }
    __syncthreads();
    /* four lanes a row, whose values are each lane's own from here to the end of the norm */
    int row = (int)threadIdx.x / 4, own = (int)threadIdx.x % 4;
    float sum = 0;
    for (int i = own; i < dim; i += 4)
        sum += kept[row * ld + i] * kept[row * ld + i];
    sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
    float factor = dg_norm_factor(sum, dg_norm_share(dim), a.eps);
    for (int i = own; i < dim; i += 4)
        kept[row * ld + i] *= factor;
    __syncthreads();
    for (int at = (int)threadIdx.x; at < n_dim * TURNED / 2; at += N_THREAD) {
        int i = at / (TURNED / 2), two = at % (TURNED / 2) * 2;
        channel_pair v = {i < dim ? kept[two * ld + i] : 0, i < dim ? kept[(two + 1) * ld + i] : 0};
        size_t line = (size_t)(head * n_dim + i) * (size_t)n_slot;
        if (first + two < n_slot)
            store_pair(a.to.v, DG_CUDA_F16, line + (size_t)(first + two), v);
    }
}

static cudaError_t launch_turn(cudaStream_t stream, const dg_cuda_vision_heads_args *a)
{
    dim3 grid((unsigned)(a->pictures.n_slot + TURNED - 1) / TURNED, (unsigned)a->to.n_head);
    size_t shared = TURNED * (size_t)(a->to.dim | 1) * sizeof(float);
    if (a->to.exact || shared > MAX_SHARED)
        return cudaErrorInvalidValue;
    return DG_LAUNCH(turn_values, grid, N_THREAD, shared, stream, *a);
}

template <int DIM>
static cudaError_t launch_patch(cudaStream_t stream, const dg_cuda_vision_heads_args *a)
{
    size_t n_unit = 2 * (size_t)a->to.n_head,
           shared = (n_unit * DIM + 3 * DIM + n_unit) * sizeof(float);
    if (shared > MAX_SHARED || !aligned(a->raw))
        return cudaErrorInvalidValue;
    return DG_LAUNCH(finish_patch<DIM>, a->pictures.n_patch, N_THREAD, shared, stream, *a);
}

extern "C" cudaError_t dg_cuda_vision_heads(cudaStream_t stream, const dg_cuda_vision_heads_args *a)
{
    size_t shared = N_WARP * (size_t)a->to.dim * sizeof(float);
    bool fast = !a->to.exact && a->to.dim == 72;
    int first = fast ? 2 * a->to.n_head : 0, end = (a->to.across ? 2 : 3) * a->to.n_head;
    if (a->pictures.n_patch == 0)
        return cudaSuccess;
    if (a->to.dim % 4 || shared > MAX_SHARED)
        return cudaErrorInvalidValue;
    cudaError_t error = a->to.across ? launch_turn(stream, a) : cudaSuccess;
    if (!error && fast)
        error = launch_patch<72>(stream, a);
    if (!error && first < end)
        error =
            DG_LAUNCH(finish_heads, a->pictures.n_patch, N_THREAD, shared, stream, *a, first, end);
    return error;
}

/* ---- soft tokens: a block a cell ---- */

static __global__ void __launch_bounds__(N_THREAD) pool_rows(dg_cuda_pool_args a)
{
    DG_SHARED(shared);
    __shared__ float part[N_WARP];
    float *h = (float *)shared;
    dg_grid_wait();
    dg_grid_launch_next();
    int cell = (int)blockIdx.x, p = 0;
    while (p + 1 < a.pictures.n && cell >= a.pictures.at[p + 1].first_cell)
        p++;
    const dg_cuda_picture &of = a.pictures.at[p];
    int within = cell - of.first_cell, cols = of.cols / a.pool;
    const float *first =
        a.x + ((size_t)of.first_patch + (size_t)(within / cols * a.pool) * (size_t)of.cols +
               (size_t)(within % cols * a.pool)) *
                  (size_t)a.n;
    float share = 1 / (float)(a.pool * a.pool), root = sqrtf((float)a.n), sum = 0;
    for (int i = (int)threadIdx.x; i < a.n; i += N_THREAD) {
        float v = 0;
        for (int y = 0; y < a.pool; y++)
            for (int x = 0; x < a.pool; x++)
                v = fmaf(share, first[(size_t)(y * of.cols + x) * (size_t)a.n + (size_t)i], v);
        v *= root;
        if (a.scale)
            v = (v - a.bias[i]) * a.scale[i];
        h[i] = v;
        sum += v * v;
    }
    float factor = dg_norm_factor(block_sum(sum, part), dg_norm_share(a.n), a.eps);
    for (int i = (int)threadIdx.x; i < a.out.ld; i += N_THREAD)
        store_one(a.out.data, a.out.form, (size_t)cell * (size_t)a.out.ld + (size_t)i,
                  i < a.n ? h[i] * factor : 0);
}

extern "C" cudaError_t dg_cuda_vision_pool(cudaStream_t stream, const dg_cuda_pool_args *a)
{
    size_t shared = (size_t)a->n * sizeof(float);
    if (a->pictures.n_cell == 0)
        return cudaSuccess;
    if (shared > MAX_SHARED)
        return cudaErrorInvalidValue;
    return DG_LAUNCH(pool_rows, a->pictures.n_cell, N_THREAD, shared, stream, *a);
}

/* ---- ranges ---- */

static __device__ __forceinline__ float held(float v, dg_cuda_range range)
{
    return v < range.min ? range.min : v > range.max ? range.max : v;
}

static __device__ __forceinline__ float load_one(const void *data, dg_cuda_form form, size_t at)
{
    return form == DG_CUDA_F32    ? ((const float *)data)[at]
           : form == DG_CUDA_BF16 ? dg_bf16_at(((const uint16_t *)data)[at])
                                  : dg_f16_at(((const uint16_t *)data)[at]);
}

/* Values behind the end are zero before and after, whatever the range: n is what is there. */
static __global__ void __launch_bounds__(N_THREAD)
    hold_rows(dg_cuda_rows out, dg_cuda_rows in, int n, dg_cuda_range range)
{
    dg_grid_wait();
    dg_grid_launch_next();
    size_t begin = (size_t)blockIdx.x * (size_t)in.ld;
    for (int i = (int)threadIdx.x; i < out.ld; i += N_THREAD) {
        float v = i < n ? held(load_one(in.data, in.form, begin + (size_t)i), range) : 0;
        store_one(out.data, out.form, (size_t)blockIdx.x * (size_t)out.ld + (size_t)i, v);
    }
}

extern "C" cudaError_t dg_cuda_hold_rows(cudaStream_t stream, dg_cuda_rows out, dg_cuda_rows in,
                                         int n_row, int n, dg_cuda_range range)
{
    if (n_row == 0)
        return cudaSuccess;
    return DG_LAUNCH(hold_rows, n_row, N_THREAD, 0, stream, out, in, n, range);
}

static __global__ void __launch_bounds__(N_THREAD)
    hold_floats(float *y, size_t ld, int n, dg_cuda_range range)
{
    dg_grid_wait();
    dg_grid_launch_next();
    for (int i = (int)threadIdx.x; i < n; i += N_THREAD) {
        float *at = y + (size_t)blockIdx.x * ld + (size_t)i;
        *at = held(*at, range);
    }
}

extern "C" cudaError_t dg_cuda_hold(cudaStream_t stream, float *y, size_t ld, int n_row, int n,
                                    dg_cuda_range range)
{
    if (n_row == 0)
        return cudaSuccess;
    return DG_LAUNCH(hold_floats, n_row, N_THREAD, 0, stream, y, ld, n, range);
}

static __global__ void __launch_bounds__(N_THREAD)
    gelu_rows(dg_cuda_rows h, const float *gate, const float *up, int n, dg_cuda_range range)
{
    dg_grid_wait();
    dg_grid_launch_next();
    size_t begin = (size_t)blockIdx.x * (size_t)n;
    for (int i = (int)threadIdx.x; i < h.ld; i += N_THREAD) {
        size_t at = begin + (size_t)i;
        float v = i < n ? held(gated_float(gate[at], up[at]), range) * gated_factor(h.form) : 0;
        store_one(h.data, h.form, (size_t)blockIdx.x * (size_t)h.ld + (size_t)i, v);
    }
}

extern "C" cudaError_t dg_cuda_gelu(cudaStream_t stream, dg_cuda_rows h, const float *gate,
                                    const float *up, int n_row, int n, dg_cuda_range range)
{
    if (n_row == 0)
        return cudaSuccess;
    return DG_LAUNCH(gelu_rows, n_row, N_THREAD, 0, stream, h, gate, up, n, range);
}
