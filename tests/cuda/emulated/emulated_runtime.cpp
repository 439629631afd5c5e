/* Calls of CUDA's runtime that need no more than the host: copies, and what the device is. */
#include "cuda_runtime.h"

static int device[3] = {9, 0, 132};

void emu_set_device(int major, int minor, int n_sm)
{
    device[0] = major;
    device[1] = minor;
    device[2] = n_sm;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNotSupported:
        return "operation not supported";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "the driver is too old";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    }
    return "unknown error";
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel)
{
    out->binaryVersion = kernel ? 10 * device[0] : 0;
    return device[0] == 8 || device[0] == 9 ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

bool emu_record_copy(void *to, const void *from, size_t bytes);
bool emu_recording(void);

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t)
{
    if (emu_record_copy(to, from, bytes))
        return cudaSuccess;
    cudaError_t error = emu_fault();
    return error ? error : cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t)
{
    return cudaMemset(p, value, bytes);
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return emu_recording() ? cudaErrorStreamCaptureUnsupported : emu_fault();
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
    *out = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int)
{
    switch (attr) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = device[0];
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = device[1];
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = device[2];
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = device[0] == 8 && device[1] ? 100 << 10 : device[0] == 8 ? 164 << 10 : 228 << 10;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = device[0] == 8 && device[1] ? 99 << 10 : device[0] == 8 ? 163 << 10 : 227 << 10;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
}
