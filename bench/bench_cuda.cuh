/* What the benches of CUDA kernels share: memory, data, timing of layers in a graph, and the floor of reading. */
#ifndef DG_BENCH_CUDA_CUH
#define DG_BENCH_CUDA_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda/cuda_math.h"
#include "tensor/dtype.h"
#include "tensor/narrowed.h"

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void *device_memory(size_t bytes)
{
    void *p;
    check(cudaMalloc(&p, bytes), "cudaMalloc");
    check(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}

static void *host_memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* ---- data ---- */

static __host__ __device__ uint32_t mixed(uint64_t i)
{
    i = (i ^ i >> 31) * 0x7FB5D329728EA185ull;
    i = (i ^ i >> 27) * 0x81DADEF4BC2DD44Dull;
    return (uint32_t)(i >> 32);
}

/* Nearly normal, variance 1. */
static __host__ __device__ float normal(uint64_t i)
{
    float sum = 0;
    for (uint64_t n = 0; n < 4; n++)
        sum += (float)(mixed(4 * i + n) >> 8) / 16777216.0f - 0.5f;
    return sum * 1.7320508f;
}

static __global__ void fill_values(uint16_t *out, size_t n, bool half, float size, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float v = normal(i + seed) * size;
        uint32_t bits = __float_as_uint(v), pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(v));
        out[i] = (uint16_t)(half ? pair : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

/* Blocks of chance but for the scales: `at` bytes into a block, n of them. */
static __global__ void fill_blocks(unsigned char *out, size_t n_block, int bytes, int at, int n_scale, float d)
{
    for (size_t b = blockIdx.x * (size_t)blockDim.x + threadIdx.x; b < n_block; b += (size_t)gridDim.x * blockDim.x) {
        unsigned char *p = out + b * (size_t)bytes;
        for (int i = 0; i < bytes; i++)
            p[i] = (unsigned char)(mixed(b * 256 + (uint64_t)i) & 255);
        for (int i = 0; i < n_scale; i++) {
            uint32_t pair;
            float v = d * (i ? 7 : 1) * (0.5f + (float)(mixed(b) & 255) / 256);
            asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(v));
            p[at + 2 * i] = (unsigned char)(pair & 255);
            p[at + 2 * i + 1] = (unsigned char)(pair >> 8 & 255);
        }
    }
}

/* Small numbers, none of them NaN. */
static __global__ void fill_fp8(unsigned char *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        out[i] = (unsigned char)(mixed(i) & 0x9F);
}

/* Steps are bfloat16. */
static __global__ void fill_int4(unsigned char *out, size_t n_block)
{
    for (size_t b = blockIdx.x * (size_t)blockDim.x + threadIdx.x; b < n_block; b += (size_t)gridDim.x * blockDim.x) {
        unsigned char *p = out + b * DG_INT4_BYTES;
        p[0] = (unsigned char)(mixed(b * 64) & 127);
        p[1] = 0x3B;
        for (int i = 2; i < DG_INT4_BYTES; i++)
            p[i] = (unsigned char)(mixed(b * 64 + (uint64_t)i) & 255);
    }
}

static void fill_stored(unsigned char *stored, dg_dtype type, size_t n)
{
    int bytes = (int)dg_dtype_bytes(type, dg_dtype_block(type));
    size_t n_block = n / dg_dtype_block(type);
    switch (type) {
    case DG_BF16:
    case DG_F16:
        fill_values<<<2048, 256>>>((uint16_t *)stored, n, type == DG_F16, 0.02f, 7);
        break;
    case DG_Q4_K:
    case DG_Q5_K:
        fill_blocks<<<2048, 256>>>(stored, n_block, bytes, 0, 2, type == DG_Q4_K ? 1e-4f : 5e-5f);
        break;
    case DG_Q6_K:
        fill_blocks<<<2048, 256>>>(stored, n_block, bytes, 208, 1, 1e-5f);
        break;
    case DG_FP8:
        fill_fp8<<<2048, 256>>>(stored, n);
        break;
    case DG_INT4:
        fill_int4<<<2048, 256>>>(stored, n_block);
        break;
    default:
        fill_blocks<<<2048, 256>>>(stored, n_block, bytes, 0, 1, type == DG_Q8_0 ? 3e-4f : type == DG_Q5_0 ? 2e-3f : 4e-3f);
    }
    check(cudaGetLastError(), "fill");
}

static __global__ void count_differences(const uint32_t *a, const uint32_t *b, size_t n, unsigned *count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        if (a[i] != b[i])
            atomicAdd(count, 1u);
}

/* ---- timing ---- */

typedef void enqueue_fn(cudaStream_t stream, void *arg, int layer);

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Microseconds of a layer: the median of replays. */
static double time_layers(enqueue_fn *enqueue, void *arg, int n_layer)
{
    enum { REPLAYS = 15 };
    float ms[REPLAYS];
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    cudaEvent_t begin, end;
    check(cudaStreamCreate(&stream), "stream");
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int l = 0; l < n_layer; l++)
        enqueue(stream, arg, l);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&replay, graph, 0), "graph");
    for (int i = 0; i < 3; i++)
        check(cudaGraphLaunch(replay, stream), "launch");
    for (int i = 0; i < REPLAYS; i++) {
        check(cudaEventRecord(begin, stream), "event");
        check(cudaGraphLaunch(replay, stream), "launch");
        check(cudaEventRecord(end, stream), "event");
        check(cudaEventSynchronize(end), "replay");
        check(cudaEventElapsedTime(&ms[i], begin, end), "event");
    }
    qsort(ms, REPLAYS, sizeof *ms, by_size);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    return ms[REPLAYS / 2] * 1e3 / n_layer;
}

/* ---- the floor ---- */

static __global__ void read_only(const uint4 *p, size_t n, uint32_t *out)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __ldcs(p + i + j * step);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < n; i += step)
        sum ^= p[i].x;
    if (sum == 0x12345678)
        *out = sum;
}

typedef struct floor_job {
    const unsigned char *data;
    size_t bytes; /* of a layer */
    uint32_t *out;
} floor_job;

static void enqueue_floor(cudaStream_t stream, void *arg, int layer)
{
    floor_job *job = (floor_job *)arg;
    read_only<<<132 * 8, 256, 0, stream>>>((const uint4 *)(job->data + (size_t)layer * job->bytes), job->bytes / 16, job->out);
}

#endif
