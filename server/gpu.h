/* What NVIDIA's management library knows about the GPU that computes: for the metrics. It is loaded
 * where it is there, and nobody misses it where it is not. */
#ifndef DG_SERVER_GPU_H
#define DG_SERVER_GPU_H

#include <stdbool.h>

typedef struct dg_gpu dg_gpu;

/* The address of a function of the library by its name, or NULL; dlsym on a library. */
typedef void *dg_gpu_find_fn(void *library, const char *name);

/* The GPU with this PCI address, "0000:1b:00.0". NULL: there is no such library or GPU, or no
 * memory. */
dg_gpu *dg_gpu_open(const char *pci_bus_id);
dg_gpu *dg_gpu_open_with(dg_gpu_find_fn *find, void *library, const char *pci_bus_id);
void dg_gpu_close(dg_gpu *g); /* NULL is fine */

/* -1 for what cannot be known. */
typedef struct dg_gpu_state {
    double used_bytes, total_bytes; /* of its memory, by all processes */
    double utilization;             /* 0 to 1: of the time in which a kernel ran, lately */
    double celsius, watts;
} dg_gpu_state;

/* Any thread; g NULL: nothing is known. */
void dg_gpu_read(const dg_gpu *g, dg_gpu_state *state);

#endif
