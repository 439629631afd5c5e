/* Which backend computes: named by the caller, or the best that is there. */
#ifndef DG_ENGINE_DEVICE_H
#define DG_ENGINE_DEVICE_H

#include "backend/backend.h"
#include "cpu/cpu_backend.h"
#include "dgemma_tools.h"
#include "format/checkpoint.h"

typedef struct dg_device_options {
    const char *name;
    bool exact; /* float weights and float arithmetic, whatever the file has; for comparisons */
    dg_cpu_options cpu;
    size_t gpu_bytes;    /* of a GPU's memory; 0: no bound */
    const char *weights; /* see dgemma_engine_options */
} dg_device_options;

/* The name is "cpu", "cuda", "cuda:N", or "auto" (NULL means the same): the first CUDA device where
 * this build has that backend and finds one, else the CPU. DGEMMA_E_ARG: no such name,
 * here or for weights; DGEMMA_E_UNSUPPORTED: not in this build, no such device, or weights that it
 * does not make. */
dgemma_status dg_device_open(dg_backend **out, const dg_device_options *opt, dgemma_error *err);

/* What a device that is not the CPU reaches at best, all of it together: bytes read and operations
 * on bfloat16 a second. `be` came from dg_device_open. */
dgemma_status dg_device_measure(dg_backend *be, double *read, double *multiply, dgemma_error *err);

/* How a backend calls the type that keys and values are kept in. */
dg_dtype dg_device_kv_type(dgemma_kv_type type);

/* The numerics profile of a model on a backend: one with quantised weights may have its own, and
 * one with products of bfloat16 numbers has. */
const char *dg_device_numerics(const dg_backend *be, const dg_checkpoint *ck,
                               const dg_kv_config *kv);

/* What there is: see dgemma_devices. */
size_t dg_device_list(dgemma_device *device, size_t cap, dgemma_error *why);

#endif
