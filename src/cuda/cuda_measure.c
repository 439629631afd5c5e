/* What the device reads and multiplies at best, by the host's clock. */
#include "base/clock.h"
#include "cuda/cuda_internal.h"
#include "cuda/cuda_rates.h"

enum { TRIES = 12, PRODUCTS = 4096 };
static const size_t READ_BYTES = (size_t)2 << 30; /* far more than caches hold */

static cudaError_t run_read(dg_cuda *cu, const void *data, void *sink, int n_sm)
{
    return dg_cuda_read_all(cu->stream, data, READ_BYTES, sink, n_sm);
}

static cudaError_t run_multiply(dg_cuda *cu, const void *data, void *sink, int n_sm)
{
    (void)data;
    return dg_cuda_multiply(cu->stream, sink, PRODUCTS, n_sm);
}

typedef cudaError_t run_fn(dg_cuda *cu, const void *data, void *sink, int n_sm);

/* `amount` of one launch a second, the best of some. */
static double best_of(dg_cuda *cu, run_fn *run, const void *data, void *sink, int n_sm,
                      double amount)
{
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double from = dg_clock_now();
        if (dg_cuda_failed(cu, run(cu, data, sink, n_sm), "measuring the device") ||
            dg_cuda_failed(cu, cudaStreamSynchronize(cu->stream), "measuring the device"))
            return 0;
        double rate = amount / (dg_clock_now() - from);
        best = rate > best ? rate : best;
    }
    return best;
}

dgemma_status dg_cuda_measure(dg_backend *be, dg_cuda_rates *out, dgemma_error *err)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n_sm = 0;
    *out = (dg_cuda_rates){0};
    if (cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, cu->device))
        return dg_fail(err, DGEMMA_E_INTERNAL, "the device does not tell its multiprocessors");
    size_t n_sink = (size_t)n_sm * DG_CUDA_RATE_BLOCKS * DG_CUDA_RATE_THREADS;
    void *data = be->alloc(be, READ_BYTES), *sink = be->alloc(be, n_sink * sizeof(float));
    if (data && sink) {
        out->read = best_of(cu, run_read, data, sink, n_sm, (double)READ_BYTES);
        out->multiply =
            best_of(cu, run_multiply, data, sink, n_sm, dg_cuda_multiply_ops(PRODUCTS, n_sm));
    }
    dgemma_status st =
        data && sink ? DGEMMA_OK
                     : dg_fail(err, DGEMMA_E_NOMEM, "no %zu MiB on the device to measure it with",
                               READ_BYTES >> 20);
    be->free(be, data);
    be->free(be, sink);
    if (!st && cu->error)
        st = dg_fail(err, DGEMMA_E_INTERNAL, "%s: %s", cu->where, cudaGetErrorString(cu->error));
    return st;
}
