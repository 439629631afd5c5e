/* Weights from the layout of files to the packed form that the products read (cuda_formats.cuh), on
 * the device: each thread makes words of the packed form out of the stored bits. */
#include "cuda/cuda_math.h"
#include "cuda/cuda_blocks.cuh"
#include "cuda/cuda_bytes.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_int4.cuh"
#include "cuda/cuda_slabs.cuh"

extern "C" dg_cuda_form dg_cuda_form_of(dg_dtype weight_type)
{
    return weight_type == DG_F32    ? DG_CUDA_F32
           : weight_type == DG_BF16 ? DG_CUDA_BF16
                                    : DG_CUDA_F16;
}

typedef struct pack_job {
    unsigned char *packed;
    const unsigned char *stored;
    size_t packed_mat_bytes, stored_mat_bytes, row_bytes;
    int n_out, n_in, ld;
    int n_group, n_unit, tiles; /* tiles: of a group */
} pack_job;

/* Block (x: unit, y: group, z: matrix), threads over the words of the group's tiles. */
template <class F> static __global__ void pack_tiles(pack_job job)
{
    constexpr int WORDS = packed_unit<F>::BYTES / 4;
    int unit = (int)blockIdx.x, group = (int)blockIdx.y, mat = (int)blockIdx.z;
    size_t piece = ((size_t)group * (size_t)job.n_unit + (size_t)unit) * (size_t)job.tiles *
                   packed_unit<F>::BYTES;
    uint32_t *out = (uint32_t *)(job.packed + (size_t)mat * job.packed_mat_bytes + piece);
    const unsigned char *stored = job.stored + (size_t)mat * job.stored_mat_bytes;
    dg_grid_wait();
    for (int i = (int)threadIdx.x; i < job.tiles * WORDS; i += (int)blockDim.x) {
        int row = (group * job.tiles + i / WORDS) * 16, k = unit * F::UNIT;
        pack_source source = {stored + (size_t)row * job.row_bytes +
                                  (size_t)(k / F::BLOCK) * F::BLOCK_BYTES,
                              job.row_bytes, job.n_out - row, job.n_in - k};
        out[i] = F::packed_word(source, i % WORDS);
    }
}

/* Float rows, padded to 64 rows and 64 columns. Block (x: row, y: matrix). */
static __global__ void pack_floats(pack_job job)
{
    int row = (int)blockIdx.x, ld = job.ld;
    float *out = (float *)(job.packed + (size_t)blockIdx.y * job.packed_mat_bytes) +
                 (size_t)row * (size_t)ld;
    const unsigned char *in =
        job.stored + (size_t)blockIdx.y * job.stored_mat_bytes + (size_t)row * job.row_bytes;
    dg_grid_wait();
    for (int k = (int)threadIdx.x; k < ld; k += (int)blockDim.x) {
        uint32_t bits = 0;
        if (row < job.n_out && k < job.n_in) {
            const unsigned char *p = in + 4 * (size_t)k; /* files do not align */
            bits =
                (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        }
        out[k] = __uint_as_float(bits);
    }
}

template <class F> static size_t tiles_bytes(int n_out, int n_in)
{
    size_t n_tile = (size_t)group_count(n_out) * (size_t)group_tiles(n_out);
    return n_tile * (size_t)((n_in + F::UNIT - 1) / F::UNIT) * packed_unit<F>::BYTES;
}

extern "C" size_t dg_cuda_pack_bytes(dg_dtype type, int n_out, int n_in)
{
    if (type == DG_F32)
        return (size_t)dg_cuda_ld(n_out) * (size_t)dg_cuda_ld(n_in) * sizeof(float);
    if (type == DG_INT4)
        return tiles_bytes<format_int4>(n_out, n_in);
    DG_FOR_EXPERT_FORMAT(type, return tiles_bytes<F>(n_out, n_in), break)
    return 0;
}

template <class F> static cudaError_t launch_pack(cudaStream_t stream, pack_job job, int n_mat)
{
    job.tiles = group_tiles(job.n_out);
    job.n_group = group_count(job.n_out);
    job.n_unit = (job.n_in + F::UNIT - 1) / F::UNIT;
    return DG_LAUNCH(pack_tiles<F>,
                     dim3((unsigned)job.n_unit, (unsigned)job.n_group, (unsigned)n_mat), 256, 0,
                     stream, job);
}

extern "C" size_t dg_cuda_pack_gated_bytes(dg_dtype type, int n_out, int n_in)
{
    return type == DG_Q4_K ? tiles_bytes<format_q4_k_bytes>(n_out, n_in)
                           : dg_cuda_pack_bytes(type, n_out, n_in);
}

static pack_job make_job(void *packed, const void *stored, size_t mat_bytes, int n_out, int n_in)
{
    pack_job job = {};
    job.packed = (unsigned char *)packed;
    job.stored = (const unsigned char *)stored;
    job.stored_mat_bytes = mat_bytes;
    job.n_out = n_out;
    job.n_in = n_in;
    return job;
}

/* For products of bytes. */
template <class F> static cudaError_t pack_bytes(cudaStream_t stream, pack_job job, int n_mat)
{
    job.packed_mat_bytes = tiles_bytes<F>(job.n_out, job.n_in);
    job.row_bytes = (size_t)(job.n_in / F::BLOCK) * F::BLOCK_BYTES;
    return launch_pack<F>(stream, job, n_mat);
}

extern "C" cudaError_t dg_cuda_pack_gated(cudaStream_t stream, void *packed, const void *stored,
                                          size_t mat_bytes, dg_dtype type, int n_mat, int n_out,
                                          int n_in)
{
    if (type != DG_Q4_K)
        return dg_cuda_pack(stream, packed, stored, mat_bytes, type, n_mat, n_out, n_in);
    return pack_bytes<format_q4_k_bytes>(stream, make_job(packed, stored, mat_bytes, n_out, n_in),
                                         n_mat);
}

extern "C" cudaError_t dg_cuda_pack_down(cudaStream_t stream, void *packed, const void *stored,
                                         size_t mat_bytes, dg_dtype type, int n_mat, int n_out,
                                         int n_in)
{
    pack_job job = make_job(packed, stored, mat_bytes, n_out, n_in);
    if (type == DG_Q5_0)
        return pack_bytes<format_q5_0_bytes>(stream, job, n_mat);
    return dg_cuda_pack(stream, packed, stored, mat_bytes, type, n_mat, n_out, n_in);
}

extern "C" cudaError_t dg_cuda_pack(cudaStream_t stream, void *packed, const void *stored,
                                    size_t mat_bytes, dg_dtype type, int n_mat, int n_out, int n_in)
{
    pack_job job = make_job(packed, stored, mat_bytes, n_out, n_in);
    job.packed_mat_bytes = dg_cuda_pack_bytes(type, n_out, n_in);
    if (type == DG_F32) {
        job.row_bytes = (size_t)n_in * sizeof(float);
        job.ld = dg_cuda_ld(n_in);
        return DG_LAUNCH(pack_floats, dim3((unsigned)dg_cuda_ld(n_out), (unsigned)n_mat), 256, 0,
                         stream, job);
    }
    if (type == DG_INT4)
        return pack_bytes<format_int4>(stream, job, n_mat);
    DG_FOR_EXPERT_FORMAT(type, job.row_bytes = (size_t)(n_in / F::BLOCK) * F::BLOCK_BYTES;
                         return launch_pack<F>(stream, job, n_mat), break)
    return cudaErrorInvalidValue;
}

/* ---- slabs ---- */

/* Block (x: slab of k, y: slab of rows); a thread makes pieces of eight values. */
template <int TYPE, bool HALF> static __global__ void pack_slab(pack_job job)
{
    uint4 *out = (uint4 *)(job.packed + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * SLAB_BYTES);
    dg_grid_wait();
    for (int i = (int)threadIdx.x; i < SLAB_BYTES / 16; i += (int)blockDim.x) {
        int in_slab = i / 8, row = (int)blockIdx.y * SLAB_ROWS + in_slab,
            k = (int)blockIdx.x * SLAB_VALUES + i % 8 * 8;
        const unsigned char *stored = job.stored + (size_t)row * job.row_bytes;
        uint32_t pair[4];
        for (int n = 0; n < 4; n++) {
            float v[2];
            for (int odd = 0; odd < 2; odd++) {
                int at = k + 2 * n + odd;
                v[odd] = row < job.n_out && at < job.n_in ? dg_value_at<TYPE>(stored, at) : 0;
            }
            pair[n] = HALF ? dg_store_f16(v[0], v[1]) : dg_pack_bf16(v[0], v[1]);
        }
        out[slab_offset(in_slab, i % 8) / 16] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

/* Slabs of E4M3, of bytes as they are. */
static __global__ void pack_byte_slab(pack_job job)
{
    uint4 *out = (uint4 *)(job.packed + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * SLAB_BYTES);
    dg_grid_wait();
    for (int i = (int)threadIdx.x; i < SLAB_BYTES / 16; i += (int)blockDim.x) {
        int in_slab = i / 8, row = (int)blockIdx.y * SLAB_ROWS + in_slab,
            k = (int)blockIdx.x * SLAB_ROW_BYTES + i % 8 * 16;
        const unsigned char *stored = job.stored + (size_t)row * job.row_bytes;
        uint32_t word[4] = {};
        for (int n = 0; n < 16; n++)
            if (row < job.n_out && k + n < job.n_in)
                word[n / 4] |= (uint32_t)stored[k + n] << n % 4 * 8;
        out[slab_offset(in_slab, i % 8) / 16] = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

extern "C" size_t dg_cuda_slab_bytes(int n_out, int n_in)
{
    return (size_t)slab_count(n_out) * (size_t)slab_count(n_in) * SLAB_BYTES;
}

extern "C" cudaError_t dg_cuda_pack_slabs(cudaStream_t stream, void *packed, const void *stored,
                                          dg_dtype type, int n_out, int n_in)
{
    pack_job job = {};
    dim3 grid((unsigned)slab_count(type == DG_FP8 ? (n_in + 1) / 2 : n_in),
              (unsigned)slab_count(n_out));
    job.packed = (unsigned char *)packed;
    job.stored = (const unsigned char *)stored;
    job.row_bytes = dg_dtype_bytes(type, (size_t)n_in);
    job.n_out = n_out;
    job.n_in = n_in;
    if (type == DG_FP8)
        return DG_LAUNCH(pack_byte_slab, grid, 256, 0, stream, job);
    switch (type) {
#define PACK_SLAB(TYPE)                                                                            \
    case TYPE:                                                                                     \
        return DG_LAUNCH((pack_slab<TYPE, TYPE != DG_BF16>), grid, 256, 0, stream, job);
        PACK_SLAB(DG_BF16)
        PACK_SLAB(DG_F16)
        PACK_SLAB(DG_Q8_0)
        PACK_SLAB(DG_Q4_0)
        PACK_SLAB(DG_Q5_0)
        PACK_SLAB(DG_Q4_K)
        PACK_SLAB(DG_Q5_K)
        PACK_SLAB(DG_Q6_K)
        PACK_SLAB(DG_IQ4_NL)
        PACK_SLAB(DG_MXFP4)
#undef PACK_SLAB
    default:
        return cudaErrorInvalidValue;
    }
}
