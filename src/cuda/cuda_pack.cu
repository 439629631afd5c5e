/* Weights from the layout of files to the packed form that the products read (cuda_formats.cuh), on
 * the device: each thread makes words of the packed form out of the stored bits. */
#include "cuda/cuda_math.h"
#include "cuda/cuda_formats.cuh"

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
    DG_FOR_FORMAT(type, return tiles_bytes<F>(n_out, n_in), break)
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

extern "C" cudaError_t dg_cuda_pack(cudaStream_t stream, void *packed, const void *stored,
                                    size_t mat_bytes, dg_dtype type, int n_mat, int n_out, int n_in)
{
    pack_job job = {};
    job.packed = (unsigned char *)packed;
    job.stored = (const unsigned char *)stored;
    job.packed_mat_bytes = dg_cuda_pack_bytes(type, n_out, n_in);
    job.stored_mat_bytes = mat_bytes;
    job.n_out = n_out;
    job.n_in = n_in;
    if (type == DG_F32) {
        job.row_bytes = (size_t)n_in * sizeof(float);
        job.ld = dg_cuda_ld(n_in);
        return DG_LAUNCH(pack_floats, dim3((unsigned)dg_cuda_ld(n_out), (unsigned)n_mat), 256, 0,
                         stream, job);
    }
    DG_FOR_FORMAT(type, job.row_bytes = (size_t)(n_in / F::BLOCK) * F::BLOCK_BYTES;
                  return launch_pack<F>(stream, job, n_mat), break)
    return cudaErrorInvalidValue;
}
