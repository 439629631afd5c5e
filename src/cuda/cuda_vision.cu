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

/* ---- heads: a block a patch, a warp a head ---- */

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

static __global__ void __launch_bounds__(N_THREAD) finish_heads(dg_cuda_vision_heads_args a)
{
    DG_SHARED(shared);
    dg_grid_wait();
    dg_grid_launch_next();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, patch = (int)blockIdx.x;
    int dim = a.to.dim, n_unit = 3 * a.to.n_head;
    patch_place at = find_patch(a.pictures, patch);
    float *kept = (float *)shared + warp * dim;
    for (int unit = warp; unit < (a.to.across ? 2 * a.to.n_head : n_unit); unit += N_WARP) {
        const float *raw = a.raw + ((size_t)patch * (size_t)n_unit + (size_t)unit) * (size_t)dim;
        int kind = unit / a.to.n_head, head = unit % a.to.n_head;
        const float *w = kind == 0 ? a.q_norm : a.k_norm;
        float sum = 0;
        for (int i = lane; i < dim; i += 32) {
            kept[i] = raw[i];
            sum += kept[i] * kept[i];
        }
        float factor = norm_factor(dg_warp_sum(sum), dim, a.eps);
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

/* Values across: a block has 64 slots of one head, and turns them over in shared memory. */
enum { TURNED = 64 };

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
    for (int row = (int)threadIdx.x / 32; row < TURNED; row += N_WARP) {
        int patch = patch_in(a.pictures, first + row), unit = 2 * a.to.n_head + head;
        const float *raw =
            a.raw + ((size_t)max(patch, 0) * 3 * (size_t)a.to.n_head + (size_t)unit) * (size_t)dim;
        float sum = 0;
        for (int i = lane; i < dim; i += 32) {
            kept[row * ld + i] = patch < 0 ? 0 : raw[i];
            sum += kept[row * ld + i] * kept[row * ld + i];
        }
        float factor = norm_factor(dg_warp_sum(sum), dim, a.eps);
        for (int i = lane; i < dim; i += 32)
            kept[row * ld + i] *= factor;
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < n_dim * TURNED / 2; at += N_THREAD) {
        int i = at / (TURNED / 2), row = at % (TURNED / 2) * 2;
        channel_pair v = {i < dim ? kept[row * ld + i] : 0, i < dim ? kept[(row + 1) * ld + i] : 0};
        size_t line = (size_t)(head * n_dim + i) * (size_t)n_slot;
        if (first + row < n_slot)
            store_pair(a.to.v, DG_CUDA_F16, line + (size_t)(first + row), v);
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

extern "C" cudaError_t dg_cuda_vision_heads(cudaStream_t stream, const dg_cuda_vision_heads_args *a)
{
    size_t shared = N_WARP * (size_t)a->to.dim * sizeof(float);
    if (a->pictures.n_patch == 0)
        return cudaSuccess;
    if (a->to.dim % 4 || shared > MAX_SHARED)
        return cudaErrorInvalidValue;
    cudaError_t error = a->to.across ? launch_turn(stream, a) : cudaSuccess;
    return error ? error
                 : DG_LAUNCH(finish_heads, a->pictures.n_patch, N_THREAD, shared, stream, *a);
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
    float factor = norm_factor(block_sum(sum, part), a.n, a.eps);
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
