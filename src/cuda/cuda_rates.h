/* What a device could reach: kernels that read, and that multiply, and do nothing else. */
#ifndef DG_CUDA_CUDA_RATES_H
#define DG_CUDA_CUDA_RATES_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DG_CUDA_RATE_THREADS = 256, DG_CUDA_RATE_BLOCKS = 8 }; /* of a multiprocessor */

/* Reads n bytes, a multiple of 16, once. sink: [n_sm * blocks * threads], which together have the
 * exclusive or of all 32-bit words. */
cudaError_t dg_cuda_read_all(cudaStream_t stream, const void *data, size_t bytes, uint32_t *sink,
                             int n_sm);

/* n products, a multiple of 8, in a row of each warpgroup: 64 x 128 x 16 values of bfloat16. Two
 * blocks of two warpgroups to a multiprocessor. sink: as many floats as above. */
cudaError_t dg_cuda_multiply(cudaStream_t stream, float *sink, int n, int n_sm);

/* Operations of that launch. */
static inline double dg_cuda_multiply_ops(int n, int n_sm)
{
    return 2.0 * 64 * 128 * 16 * n * 2 * 2 * n_sm;
}

#ifdef __cplusplus
}
#endif

#endif
