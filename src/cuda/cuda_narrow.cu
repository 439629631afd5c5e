/* Weights made narrower on the device (tensor/narrowed.h): from rows as files have them to rows of
 * DG_FP8 or DG_INT4, which are then packed like any other type. */
#include "cuda/cuda_math.h"
#include "cuda/cuda_blocks.cuh"
#include "tensor/narrowed.h"

typedef struct narrow_job {
    unsigned char *out; /* rows of ld values */
    float *factor;      /* [n_mat] */
    const unsigned char *stored;
    size_t stored_mat_bytes, stored_row_bytes;
    int n_out, n_in, ld;
} narrow_job;

enum { NARROW_THREADS = 256, NARROW_EACH = 16 };

/* Values first ... first + n of a row, zeros behind its end. */
template <int TYPE, int N>
static __device__ __forceinline__ void read_values(float v[N], const narrow_job &job, int mat,
                                                   int row, int first)
{
    const unsigned char *from =
        job.stored + (size_t)mat * job.stored_mat_bytes + (size_t)row * job.stored_row_bytes;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = first + i < job.n_in ? dg_value_at<TYPE>(from, first + i) : 0;
}

/* Block (x: row, y: NARROW_THREADS * NARROW_EACH values, z: matrix); a thread has values that lie
 * NARROW_THREADS apart. The factors begin as zeros and hold the bits of the largest size, which are
 * in the order of the sizes. */
template <int TYPE> static __global__ void find_largest(narrow_job job)
{
    int first = (int)blockIdx.y * NARROW_THREADS * NARROW_EACH + (int)threadIdx.x;
    int row = (int)blockIdx.x, mat = (int)blockIdx.z, most = 0;
    dg_grid_wait();
    for (int i = 0; i < NARROW_EACH; i++) {
        float v;
        read_values<TYPE, 1>(&v, job, mat, row, first + i * NARROW_THREADS);
        most = max(most, (int)(__float_as_uint(v) & 0x7FFFFFFFu));
    }
    for (int with = 16; with > 0; with /= 2)
        most = max(most, __shfl_xor_sync(DG_ALL_LANES, most, with));
    if (threadIdx.x % 32 == 0)
        atomicMax((int *)job.factor + mat, most);
}

static __global__ void make_factors(narrow_job job, int n_mat)
{
    dg_grid_wait();
    for (int i = (int)threadIdx.x; i < n_mat; i += (int)blockDim.x)
        job.factor[i] = dg_fp8_factor(__float_as_uint(job.factor[i]));
}

/* The same blocks; a thread makes NARROW_EACH bytes. */
template <int TYPE> static __global__ void narrow_to_fp8(narrow_job job)
{
    int first = ((int)blockIdx.y * NARROW_THREADS + (int)threadIdx.x) * NARROW_EACH;
    int row = (int)blockIdx.x, mat = (int)blockIdx.z, ld = job.ld;
    float v[NARROW_EACH];
    uint32_t word[4] = {0, 0, 0, 0};
    dg_grid_wait();
    if (first >= ld)
        return;
    float per = 1 / job.factor[mat];
    read_values<TYPE, NARROW_EACH>(v, job, mat, row, first);
#pragma unroll
    for (int i = 0; i < NARROW_EACH; i++)
        word[i / 4] |= (uint32_t)dg_float_to_e4m3(v[i] * per) << i % 4 * 8;
    size_t at = ((size_t)mat * (size_t)job.n_out + (size_t)row) * (size_t)ld + (size_t)first;
    *(uint4 *)(job.out + at) = make_uint4(word[0], word[1], word[2], word[3]);
}

/* Blocks alike; a thread makes a block of 64 values. */
template <int TYPE>
static __global__ void __launch_bounds__(NARROW_THREADS) narrow_to_int4(narrow_job job)
{
    int block = (int)blockIdx.y * NARROW_THREADS + (int)threadIdx.x;
    int row = (int)blockIdx.x, mat = (int)blockIdx.z, n_block = job.ld / DG_INT4_VALUES;
    float v[DG_INT4_VALUES];
    dg_grid_wait();
    if (block >= n_block)
        return;
    read_values<TYPE, DG_INT4_VALUES>(v, job, mat, row, block * DG_INT4_VALUES);
    size_t at = ((size_t)mat * (size_t)job.n_out + (size_t)row) * (size_t)n_block + (size_t)block;
    dg_int4_block(job.out + at * DG_INT4_BYTES, v);
}

template <int TYPE>
static cudaError_t launch_narrow(cudaStream_t stream, const narrow_job &job, dg_dtype to, int n_mat)
{
    int each = NARROW_THREADS * (to == DG_INT4 ? (int)DG_INT4_VALUES : (int)NARROW_EACH);
    dim3 grid((unsigned)job.n_out, (unsigned)((job.ld + each - 1) / each), (unsigned)n_mat);
    if (to == DG_INT4)
        return DG_LAUNCH(narrow_to_int4<TYPE>, grid, NARROW_THREADS, 0, stream, job);
    cudaError_t error = cudaMemsetAsync(job.factor, 0, (size_t)n_mat * sizeof(float), stream);
    if (!error)
        error = DG_LAUNCH(find_largest<TYPE>, grid, NARROW_THREADS, 0, stream, job);
    if (!error)
        error = DG_LAUNCH(make_factors, dim3(1), NARROW_THREADS, 0, stream, job, n_mat);
    if (!error)
        error = DG_LAUNCH(narrow_to_fp8<TYPE>, grid, NARROW_THREADS, 0, stream, job);
    return error;
}

extern "C" size_t dg_cuda_narrow_bytes(dg_dtype to, int n_out, int n_in)
{
    return (size_t)n_out * dg_dtype_bytes(to, (size_t)dg_cuda_ld(n_in));
}

extern "C" cudaError_t dg_cuda_narrow_weights(cudaStream_t stream, const dg_cuda_narrow_args *a)
{
    narrow_job job = {};
    job.out = (unsigned char *)a->out;
    job.factor = a->factor;
    job.stored = (const unsigned char *)a->stored;
    job.stored_mat_bytes = a->mat_bytes;
    job.stored_row_bytes = dg_dtype_bytes(a->from, (size_t)a->n_in);
    job.n_out = a->n_out;
    job.n_in = a->n_in;
    job.ld = dg_cuda_ld(a->n_in);
    switch (a->from) {
    case DG_F32:
        return launch_narrow<DG_F32>(stream, job, a->to, a->n_mat);
    case DG_F16:
        return launch_narrow<DG_F16>(stream, job, a->to, a->n_mat);
    case DG_BF16:
        return launch_narrow<DG_BF16>(stream, job, a->to, a->n_mat);
    default:
        return cudaErrorInvalidValue;
    }
}
