/* The emulated device's memory, which has an end, and what may go wrong with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_runtime.h"

bool emu_recording(void);

/* ---- faults ---- */

static struct {
    int after; /* how many more calls succeed; -1: all */
    cudaError_t error;
    bool stays;
} fault = {-1, cudaSuccess, false};

void emu_break_after(int n, cudaError_t error, int stays)
{
    fault = {n, error, stays != 0};
}

cudaError_t emu_fault(void)
{
    if (fault.after < 0)
        return cudaSuccess;
    if (fault.after > 0) {
        fault.after--;
        return cudaSuccess;
    }
    if (!fault.stays)
        fault.after = -1;
    return fault.error;
}

/* ---- its place ---- */

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int)
{
    snprintf(out, (size_t)size, "0000:00:00.0");
    return cudaSuccess;
}

/* ---- memory ---- */

enum { BEFORE = 256 }; /* bytes before each piece, of which the first have its size */
static size_t all_bytes = (size_t)16 << 30, used_bytes;

void emu_set_memory(size_t bytes)
{
    all_bytes = bytes;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *free_bytes = all_bytes > used_bytes ? all_bytes - used_bytes : 0;
    *all = all_bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = NULL;
    if (emu_recording())
        return cudaErrorStreamCaptureUnsupported;
    if (fault.after == 0 && fault.stays)
        return fault.error;
    void *p;
    if (used_bytes > all_bytes || bytes > all_bytes - used_bytes ||
        posix_memalign(&p, BEFORE, BEFORE + (bytes ? bytes : 1)) != 0)
        return cudaErrorMemoryAllocation;
    memcpy(p, &bytes, sizeof bytes);
    used_bytes += bytes;
    *out = (char *)p + BEFORE;
    memset(*out, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    size_t bytes;
    memcpy(&bytes, (char *)p - BEFORE, sizeof bytes);
    used_bytes -= bytes;
    free((char *)p - BEFORE);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    if (emu_recording())
        return cudaErrorStreamCaptureUnsupported;
    if (posix_memalign(out, 256, bytes ? bytes : 1) != 0)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
