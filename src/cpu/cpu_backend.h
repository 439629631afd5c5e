/* The CPU backend: stages over the kernel table, on a pool of threads. */
#ifndef DG_CPU_CPU_BACKEND_H
#define DG_CPU_CPU_BACKEND_H

#include "backend/backend.h"

typedef struct dg_cpu_options {
    int n_thread;   /* at least 1 */
    unsigned flags; /* instruction sets to use: dg_cpu_flags(), or fewer */
} dg_cpu_options;

dgemma_status dg_cpu_open(dg_backend **out, const dg_cpu_options *opt, dgemma_error *err);

#endif
