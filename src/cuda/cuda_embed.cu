/* Into the residual stream: the batch, rows of the embedding table, which lies in its packed forms,
 * and their angles. */
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_slabs.cuh"
#include "cuda/cuda_words.cuh"

/* ---- the batch ---- */

enum { TAKE_THREADS = 128, TAKE_BLOCKS = 128 };

static __global__ void take_bytes(uint4 *to, const uint4 *from, size_t n)
{
    size_t step = (size_t)gridDim.x * TAKE_THREADS;
    dg_grid_wait();
    dg_grid_launch_next();
    for (size_t i = (size_t)blockIdx.x * TAKE_THREADS + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

extern "C" cudaError_t dg_cuda_take(cudaStream_t stream, void *to, const void *from, size_t bytes)
{
    size_t n = bytes / sizeof(uint4), blocks = (n + TAKE_THREADS - 1) / TAKE_THREADS;
    if (bytes % sizeof(uint4))
        return cudaErrorInvalidValue;
    if (n == 0)
        return cudaSuccess;
    return DG_LAUNCH_IF(
        false, take_bytes,
        dim3((unsigned)(blocks < (size_t)TAKE_BLOCKS ? blocks : (size_t)TAKE_BLOCKS)), TAKE_THREADS,
        0, stream, (uint4 *)to, (const uint4 *)from, n);
}

/* ---- embedding rows, and beside them, by the blocks of another y, angles ---- */

/* By `n_thread` threads. */
static __device__ __forceinline__ void put_angles(const dg_cuda_lookup_args &a, int row, int thread,
                                                  int n_thread)
{
    int first = a.angles[0].n_pair;
    float position = (float)a.position[row];
    for (int j = thread; j < first + a.angles[1].n_pair; j += n_thread) {
        const dg_cuda_angles to = j < first ? a.angles[0] : a.angles[1];
        int i = j < first ? j : j - first;
        size_t at = (size_t)row * (size_t)to.n_pair + (size_t)i;
        float angle = __fmul_rn(position, to.frequency[i]);
        to.cos[at] = cosf(angle);
        to.sin[at] = sinf(angle);
    }
}

/* A warp a row: of each fragment the lanes of the token's row keep their values. */
template <class F> static __global__ void lookup_packed(dg_cuda_lookup_args a, dg_cuda_matrix table)
{
    int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32),
        lane = (int)threadIdx.x % 32, n = table.n_in;
    dg_grid_wait();
    if (row >= a.n_row)
        return;
    if (blockIdx.y > 0) {
        put_angles(a, row, lane, 32);
        return;
    }
    float *x = a.x + (size_t)row * (size_t)n;
    const float *feature = a.feature ? a.feature[row] : NULL;
    if (feature) {
        for (int i = lane; i < n; i += 32)
            x[i] = feature[i];
        return;
    }
    int token = a.token[row], tiles = group_tiles(table.n_out),
        n_unit = (n + F::UNIT - 1) / F::UNIT;
    int tile = token / 16, in_tile = token % 16;
    const unsigned char *group =
        (const unsigned char *)table.data +
        (size_t)(tile / tiles) * (size_t)n_unit * (size_t)tiles * packed_unit<F>::BYTES;
    float factor = a.scale * factor_of(table.scale, 0);
    for (int unit = 0; unit < n_unit; unit++) {
        const unsigned char *at =
            group + ((size_t)unit * (size_t)tiles + (size_t)(tile % tiles)) * packed_unit<F>::BYTES;
        typename F::scales scales;
        F::begin(scales, at, lane);
        for (int half = 0; half < F::UNIT / 32; half++) {
            typename F::raw raw;
            uint32_t v[2][4];
            F::load(raw, at + F::HEAD + half / 2 * F::CHUNK, half % 2, lane);
            F::convert(v, raw, scales, half);
            for (int i = 0; i < 4; i++) { /* step i / 2, its lower or upper eight values of k */
                uint32_t pair = v[i / 2][in_tile / 8 + 2 * (i % 2)];
                int k = unit * F::UNIT + half * 32 + i * 8 + lane % 4 * 2;
                if (lane / 4 != in_tile % 8)
                    continue;
                bool bf16 = F::FORM == DG_CUDA_BF16;
                if (k < n)
                    x[k] = (bf16 ? dg_bf16_low(pair) : dg_f16_at((uint16_t)pair)) * factor;
                if (k + 1 < n)
                    x[k + 1] =
                        (bf16 ? dg_bf16_high(pair) : dg_f16_at((uint16_t)(pair >> 16))) * factor;
            }
        }
    }
}

/* The same out of slabs: a block a row, eight values a thread. */
template <dg_cuda_form FORM>
static __global__ void lookup_slabs(dg_cuda_lookup_args a, dg_cuda_matrix table)
{
    int row = (int)blockIdx.x, n = table.n_in;
    dg_grid_wait();
    dg_grid_launch_next();
    if (blockIdx.y > 0) {
        put_angles(a, row, (int)threadIdx.x, ROW_THREADS);
        return;
    }
    float *x = a.x + (size_t)row * (size_t)n;
    const float *feature = a.feature ? a.feature[row] : NULL;
    int token = feature ? 0 : a.token[row];
    const unsigned char *slabs = (const unsigned char *)table.data +
                                 (size_t)(token / SLAB_ROWS) * (size_t)slab_count(n) * SLAB_BYTES;
    float factor = a.scale * factor_of(table.scale, 0);
    for (int k = (int)threadIdx.x * 8; k < n; k += ROW_THREADS * 8) {
        uint4 bits = *(const uint4 *)(slabs + (size_t)(k / SLAB_VALUES) * SLAB_BYTES +
                                      slab_offset(token % SLAB_ROWS, k % SLAB_VALUES / 8));
        uint32_t pair[4] = {bits.x, bits.y, bits.z, bits.w};
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint16_t half = (uint16_t)(pair[i / 2] >> i % 2 * 16);
            v[i] = (FORM == DG_CUDA_BF16 ? dg_bf16_at(half) : dg_f16_at(half)) * factor;
            if (feature)
                v[i] = k + i < n ? feature[k + i] : 0;
        }
        if (n % 8 == 0) {
            *(float4 *)(x + k) = make_float4(v[0], v[1], v[2], v[3]);
            *(float4 *)(x + k + 4) = make_float4(v[4], v[5], v[6], v[7]);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (k + i < n)
                x[k + i] = v[i];
    }
}

static __global__ void lookup_float(dg_cuda_lookup_args a, dg_cuda_matrix table)
{
    int row = (int)blockIdx.x, n = table.n_in, ld = padded(n);
    dg_grid_wait();
    if (blockIdx.y > 0) {
        put_angles(a, row, (int)threadIdx.x, (int)blockDim.x);
        return;
    }
    const float *feature = a.feature ? a.feature[row] : NULL;
    const float *from = (const float *)table.data + (size_t)a.token[row] * (size_t)ld;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        a.x[(size_t)row * (size_t)n + (size_t)i] = feature ? feature[i] : from[i] * a.scale;
}

extern "C" cudaError_t dg_cuda_lookup(cudaStream_t stream, const dg_cuda_lookup_args *a)
{
    if (a->n_row < 1)
        return cudaSuccess;
    unsigned kinds = a->angles[0].n_pair + a->angles[1].n_pair > 0 ? 2 : 1;
    const dim3 blocks((unsigned)a->n_row, kinds), warps((unsigned)(a->n_row + 3) / 4, kinds);
    if (a->table->type == DG_F32)
        return DG_LAUNCH(lookup_float, blocks, 256, 0, stream, *a, *a->table);
    if (a->table->slabs)
        return dg_cuda_form_of(a->table->type) == DG_CUDA_BF16
                   ? DG_LAUNCH(lookup_slabs<DG_CUDA_BF16>, blocks, ROW_THREADS, 0, stream, *a,
                               *a->table)
                   : DG_LAUNCH(lookup_slabs<DG_CUDA_F16>, blocks, ROW_THREADS, 0, stream, *a,
                               *a->table);
    DG_FOR_FORMAT(a->table->type,
                  return DG_LAUNCH(lookup_packed<F>, warps, 128, 0, stream, *a, *a->table), break)
    return cudaErrorInvalidValue;
}
