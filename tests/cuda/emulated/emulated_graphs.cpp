/* Streams, graphs and the device of the emulated runtime. A captured launch is a copy of its
 * arguments; what would fail in a capture on a device (waiting, allocating) fails here too. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cuda_runtime.h"

typedef struct emu_node {
    struct emu_node *next;
    dim3 grid, block;
    size_t shared;
    emu_body *body; /* NULL: a copy */
    void *arg;
    void *to;
    const void *from;
    size_t bytes;
} emu_node;

struct emu_graph {
    emu_node *first, **last;
    int holders;
};

static emu_graph *recording;

bool emu_recording(void)
{
    return recording != NULL;
}

static emu_node *add_node(void)
{
    emu_node *n = (emu_node *)calloc(1, sizeof *n);
    *recording->last = n;
    recording->last = &n->next;
    return n;
}

cudaError_t emu_enqueue(dim3 grid, dim3 block, size_t shared, emu_body *body, void *arg,
                        size_t arg_bytes)
{
    if (!recording)
        return emu_run(grid, block, shared, body, arg);
    emu_node *n = add_node();
    n->grid = grid;
    n->block = block;
    n->shared = shared;
    n->body = body;
    n->arg = malloc(arg_bytes);
    memcpy(n->arg, arg, arg_bytes);
    return cudaSuccess;
}

bool emu_record_copy(void *to, const void *from, size_t bytes)
{
    if (!recording)
        return false;
    emu_node *n = add_node();
    n->to = to;
    n->from = from;
    n->bytes = bytes;
    return true;
}

static void let_go(emu_graph *g)
{
    if (!g || --g->holders)
        return;
    for (emu_node *n = g->first, *next; n; n = next) {
        next = n->next;
        free(n->arg);
        free(n);
    }
    free(g);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
    recording = (emu_graph *)calloc(1, sizeof *recording);
    recording->last = &recording->first;
    recording->holders = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *out)
{
    *out = recording;
    recording = NULL;
    return *out ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    graph->holders++;
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t)
{
    cudaError_t fault = emu_fault();
    if (fault)
        return fault;
    for (emu_node *n = exec->first; n; n = n->next) {
        if (!n->body) {
            memmove(n->to, n->from, n->bytes);
            continue;
        }
        cudaError_t error = emu_run(n->grid, n->block, n->shared, n->body, n->arg);
        if (error)
            return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    let_go(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    let_go(exec);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int)
{
    memset(out, 0, sizeof *out);
    strcpy(out->name, "emulated device");
    cudaDeviceGetAttribute(&out->major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&out->minor, cudaDevAttrComputeCapabilityMinor, 0);
    cudaDeviceGetAttribute(&out->multiProcessorCount, cudaDevAttrMultiProcessorCount, 0);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t)
{
    for (size_t i = 0; i < height; i++)
        memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return emu_fault();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    static char it;
    *out = (cudaStream_t)&it;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

/* ---- events: what was launched before has run to its end ---- */

struct emu_event {
    bool recorded, untimed; /* untimed: only waited for, in a capture as well */
    struct timespec at;
};

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = (cudaEvent_t)calloc(1, sizeof **out);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    if (recording)
        return event->untimed ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
    cudaError_t fault = emu_fault();
    if (fault)
        return fault;
    event->recorded = !event->untimed;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaError_t error = cudaEventCreate(out);
    if (!error)
        (*out)->untimed = flags & cudaEventDisableTiming;
    return error;
}

/* All streams' work is done in the order in which it is given. */
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return emu_fault();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->recorded || !to->recorded)
        return cudaErrorInvalidValue;
    *ms = 1e3f * (float)(to->at.tv_sec - from->at.tv_sec) +
          1e-6f * (float)(to->at.tv_nsec - from->at.tv_nsec);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}
