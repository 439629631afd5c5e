/* The CUDA backend: backend.h on an NVIDIA GPU. Built where nvcc is found; a program that has it
 * runs on machines without a GPU or a driver too, and is told so. */
#ifndef DG_CUDA_CUDA_BACKEND_H
#define DG_CUDA_CUDA_BACKEND_H

#include "backend/backend.h"

typedef struct dg_cuda_device {
    char name[128];
    int major, minor; /* compute capability */
    int n_multiprocessor;
    size_t total_bytes, free_bytes;
} dg_cuda_device;

/* How many devices there are; 0 with a message why: no driver, none found. */
int dg_cuda_count(dgemma_error *why);
dgemma_status dg_cuda_describe(dg_cuda_device *out, int device, dgemma_error *err);

typedef struct dg_cuda_options {
    int device;
    bool exact; /* weights are widened to float and multiplied in float: slow, for comparisons */
    size_t max_bytes; /* of the device's memory; 0: no bound */
    dg_dtype narrow;  /* experts' weights of F32, F16 or BF16 are made DG_FP8 or DG_INT4; 0: none */
} dg_cuda_options;

/* DGEMMA_E_UNSUPPORTED: there is no such device. */
dgemma_status dg_cuda_open(dg_backend **out, const dg_cuda_options *opt, dgemma_error *err);

/* What the device reaches at best: bytes a second that it reads of its memory, operations a second
 * on values of bfloat16. `be` came from dg_cuda_open. */
typedef struct dg_cuda_rates {
    double read, multiply;
} dg_cuda_rates;
dgemma_status dg_cuda_measure(dg_backend *be, dg_cuda_rates *out, dgemma_error *err);

#endif
