/* Times attention, heads, norms and the router of the CUDA backend on the shapes of the model.
 *
 *   make CUDA=1 build/release/bench_cuda_attention && build/release/bench_cuda_attention [REPEATS]
 *
 * Each figure is the median of replays of a graph with one launch for each layer of its kind, each
 * layer with keys of its own. Attention, which counts its parts in memory, and the router are then
 * launched REPEATS times (3,000) and the bits compared. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda/cuda_math.h"

enum { CANVAS = 256, N_REPLAY = 31, MAX_SEQUENCE = 64 };

static cudaStream_t stream;

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* ---- data ---- */

static __device__ float value_of(uint64_t i)
{
    i = (i ^ i >> 31) * 0x7FB5D329728EA185ull;
    i = (i ^ i >> 27) * 0x81DADEF4BC2DD44Dull;
    return ((float)(uint32_t)(i >> 40) / 8388608.0f - 1.0f) * 1.7f;
}

static __global__ void fill_floats(float *out, size_t n, float size, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = value_of(i + seed) * size;
}

static __global__ void fill_bf16(uint16_t *out, size_t n, float size, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = (uint16_t)(__float_as_uint(value_of(i + seed) * size) >> 16);
}

static __global__ void count_differences(const uint32_t *a, const uint32_t *b, size_t n,
                                         int *differ)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        if (a[i] != b[i])
            atomicAdd(differ, 1);
}

static void *memory(size_t bytes)
{
    void *p;
    check(cudaMalloc(&p, bytes), "cudaMalloc");
    check(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}

static float *floats(size_t n, float size)
{
    static uint64_t seed;
    float *p = (float *)memory(n * sizeof *p);
    fill_floats<<<1024, 256>>>(p, n, size, seed += n);
    return p;
}

static void *uploaded(const void *host, size_t bytes)
{
    void *p = memory(bytes);
    check(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return p;
}

/* ---- timing ---- */

typedef void launch_fn(void *arg, int layer);

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one launch. */
static double time_launches(launch_fn *launch, void *arg, int n_layer)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float ms[N_REPLAY];
    launch(arg, 0); /* what is set up once */
    check(cudaStreamSynchronize(stream), "first launch");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < n_layer; i++)
        launch(arg, i);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int i = -4; i < N_REPLAY; i++) {
        check(cudaEventRecord(begin, stream), "event");
        check(cudaGraphLaunch(exec, stream), "graph");
        check(cudaEventRecord(end, stream), "event");
        check(cudaEventSynchronize(end), "replay");
        if (i >= 0)
            check(cudaEventElapsedTime(&ms[i], begin, end), "event");
    }
    qsort(ms, N_REPLAY, sizeof *ms, by_size);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return 1e3 * ms[N_REPLAY / 2] / n_layer;
}

/* The same launch again and again: how often do its bits differ from the first time's? */
static void repeat(const char *name, launch_fn *launch, void *arg, void *out, size_t bytes,
                   int n_repeat)
{
    void *first = memory(bytes);
    int *differ = (int *)memory(sizeof *differ), n = 0, wrong = 0;
    launch(arg, 0);
    check(cudaMemcpyAsync(first, out, bytes, cudaMemcpyDeviceToDevice, stream), "copy");
    for (int i = 0; i < n_repeat; i++) {
        check(cudaMemsetAsync(out, 0xFF, bytes, stream), "memset");
        check(cudaMemsetAsync(differ, 0, sizeof *differ, stream), "memset");
        launch(arg, 0);
        count_differences<<<264, 256, 0, stream>>>((const uint32_t *)out, (const uint32_t *)first,
                                                   bytes / 4, differ);
        check(cudaMemcpyAsync(&n, differ, sizeof n, cudaMemcpyDeviceToHost, stream), "copy");
        check(cudaStreamSynchronize(stream), "repeat");
        wrong += n != 0;
    }
    printf("%-44s %d of %d launches differ\n", name, wrong, n_repeat);
    cudaFree(first);
    cudaFree(differ);
}

/* ---- attention ---- */

typedef struct attention_case {
    dg_cuda_heads_args heads;
    dg_cuda_attention_args args;
    size_t layer_bytes;
} attention_case;

static void launch_attention(void *arg, int layer)
{
    attention_case *c = (attention_case *)arg;
    c->args.kv.offset = (size_t)layer * c->layer_bytes;
    check(dg_cuda_attention(stream, &c->args), "attention");
}

static void launch_heads(void *arg, int layer)
{
    attention_case *c = (attention_case *)arg;
    c->heads.kv.offset = (size_t)layer * c->layer_bytes;
    check(dg_cuda_heads(stream, &c->heads), "heads");
}

static int common(int a, int b)
{
    return b ? common(b, a % b) : a;
}

/* n_sequence canvases, each at position `context`. */
static attention_case make_attention(int n_kv_head, int dim, int window, int n_layer,
                                     int n_sequence, int context)
{
    const int n_head = 16, n_row = n_sequence * CANVAS, n_page = context / 64 + 1,
              n_pair = dim == 512 ? 64 : dim / 2;
    attention_case c = {};
    c.layer_bytes = (size_t)2 * n_kv_head * 64 * dim * 2;
    dg_cuda_kv kv = {};
    kv.type = DG_BF16;
    kv.n_head = n_head;
    kv.n_kv_head = n_kv_head;
    kv.head_dim = dim;
    kv.window = window;
    kv.page_bytes = (size_t)n_layer * c.layer_bytes;

    /* only pages that are seen exist; their order is a shuffle with a stride */
    int first_page = window && context >= window ? (context - window + 1) / 64 : 0,
        n_seen = n_page - first_page;
    int n_slab = n_seen * n_sequence, stride = n_slab / 3 | 1;
    while (common(n_slab, stride) > 1)
        stride += 2;
    size_t slab_bytes = (size_t)n_slab * kv.page_bytes,
           canvas_bytes = (size_t)n_sequence * 4 * c.layer_bytes;
    kv.slab = (unsigned char *)memory(slab_bytes);
    kv.canvas_slab = (unsigned char *)memory(canvas_bytes);
    fill_bf16<<<2048, 256>>>((uint16_t *)kv.slab, slab_bytes / 2, 3 / sqrtf((float)dim), 1);
    fill_bf16<<<2048, 256>>>((uint16_t *)kv.canvas_slab, canvas_bytes / 2, 3 / sqrtf((float)dim),
                             2);

    static dg_cuda_segment segment[MAX_SEQUENCE];
    int32_t *seen = (int32_t *)malloc((size_t)n_row * 2 * sizeof *seen),
            *of = (int32_t *)malloc((size_t)n_row * sizeof *of);
    int32_t *page = (int32_t *)malloc((size_t)n_page * sizeof *page);
    for (int s = 0; s < n_sequence; s++) {
        for (int i = 0; i < n_page; i++)
            page[i] = i < first_page
                          ? -1
                          : (int32_t)((long)(s * n_seen + i - first_page) * stride % n_slab);
        segment[s].canvas = 1;
        segment[s].first_row = s * CANVAS;
        segment[s].n_row = CANVAS;
        segment[s].position = context;
        segment[s].page = (const int32_t *)uploaded(page, (size_t)n_page * sizeof *page);
        segment[s].canvas_page = 4 * s;
    }
    for (int r = 0; r < n_row; r++) {
        of[r] = r / CANVAS;
        seen[2 * r] = window && context >= window ? context - window + 1 : 0;
        seen[2 * r + 1] = context;
    }
    size_t n_query = (size_t)n_row * n_head * dim; /* bfloat16, in the room of floats */
    c.args.q = (float *)memory(n_query * sizeof(float));
    fill_bf16<<<2048, 256>>>((uint16_t *)c.args.q, 2 * n_query, 1, 3);
    c.args.out = dg_cuda_rows{DG_CUDA_BF16, memory((size_t)n_row * n_head * dim * 2), n_head * dim};
    c.args.end_row = n_row;
    c.args.segment =
        (const dg_cuda_segment *)uploaded(segment, (size_t)n_sequence * sizeof *segment);
    c.args.n_segment = n_sequence;
    c.args.segment_of = (const int32_t *)uploaded(of, (size_t)n_row * sizeof *of);
    c.args.seen = (const int32_t *)uploaded(seen, (size_t)n_row * 2 * sizeof *seen);
    c.args.kv = kv;
    c.args.scratch = memory(dg_cuda_attention_bytes(n_row, n_head * dim));
    c.args.counter =
        (int32_t *)memory(dg_cuda_attention_counters(n_row, n_head * dim) * sizeof(int32_t));

    c.heads.q = floats((size_t)n_row * n_head * dim, 1);
    c.heads.k = floats((size_t)n_row * n_kv_head * dim, 1);
    c.heads.v = dim == 512 ? NULL : c.heads.k;
    c.heads.q_norm = floats((size_t)dim, 1);
    c.heads.k_norm = floats((size_t)dim, 1);
    c.heads.cos = floats((size_t)n_row * n_pair, 0.5f);
    c.heads.sin = floats((size_t)n_row * n_pair, 0.5f);
    c.heads.n_row = n_row;
    c.heads.n_pair = n_pair;
    c.heads.eps = 1e-6f;
    c.heads.segment = c.args.segment;
    c.heads.segment_of = c.args.segment_of;
    c.heads.kv = kv;
    check(cudaDeviceSynchronize(), "data");
    free(seen);
    free(of);
    free(page);
    return c;
}

/* The first canvas alone, in floats, so that no rounding hides an order of sums. */
static void compare_alone(attention_case *c)
{
    size_t n = (size_t)CANVAS * (size_t)c->args.out.ld;
    attention_case all = *c;
    int *differ = (int *)memory(sizeof *differ), found = 0;
    void *among = memory((size_t)c->args.end_row * (size_t)c->args.out.ld * 4), *alone = memory(n * 4);
    all.args.out = dg_cuda_rows{DG_CUDA_F32, among, c->args.out.ld};
    launch_attention(&all, 0);
    all.args.out.data = alone;
    all.args.end_row = CANVAS;
    all.args.n_segment = 1;
    launch_attention(&all, 0);
    check(cudaMemsetAsync(differ, 0, sizeof *differ, stream), "memset");
    count_differences<<<264, 256, 0, stream>>>((const uint32_t *)among, (const uint32_t *)alone, n, differ);
    check(cudaMemcpyAsync(&found, differ, sizeof found, cudaMemcpyDeviceToHost, stream), "copy");
    check(cudaStreamSynchronize(stream), "alone");
    printf("%-44s %d of %zu values differ\n", "  the first alone", found, n);
    cudaFree(among);
    cudaFree(alone);
    cudaFree(differ);
}

static void free_attention(attention_case *c)
{
    void *const all[] = {(void *)c->args.q,       c->args.out.data,
                         (void *)c->args.segment, (void *)c->args.segment_of,
                         (void *)c->args.seen,    c->args.scratch,
                         c->args.counter,         c->args.kv.slab,
                         c->args.kv.canvas_slab,  c->heads.q,
                         (void *)c->heads.k,      (void *)c->heads.q_norm,
                         (void *)c->heads.k_norm, (void *)c->heads.cos,
                         (void *)c->heads.sin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cudaFree(all[i]);
}

static void bench_attention(const char *kind, int n_kv_head, int dim, int window, int n_layer,
                            int n_sequence, int context, int n_repeat)
{
    attention_case c = make_attention(n_kv_head, dim, window, n_layer, n_sequence, context);
    char name[80];
    int keys = CANVAS + (window && context >= window ? window - 1 : context);
    double work = 4.0 * n_sequence * CANVAS * 16 * (double)keys * dim;
    snprintf(name, sizeof name, "%s %d x %d rows, %d keys", kind, n_sequence, CANVAS, keys);
    double us = time_launches(launch_attention, &c, n_layer);
    printf("%-44s %9.1f us %7.0f TFLOP/s, %.2f of 790\n", name, us, work / us * 1e-6,
           work / us * 1e-6 / 790);
    if (context < 2000 && n_sequence == 1)
        printf("%-44s %9.1f us\n", "  its heads", time_launches(launch_heads, &c, n_layer));
    if (n_sequence > 1)
        compare_alone(&c);
    if (n_repeat && context < 2000)
        repeat("  its bits", launch_attention, &c, c.args.out.data,
               (size_t)c.args.end_row * (size_t)c.args.out.ld * 2, n_repeat);
    fflush(stdout);
    free_attention(&c);
}

/* ---- rows ---- */

enum { N_EMBD = 2816, N_EXPERT = 128, N_USED = 8, N_LAYER = 30 };

typedef struct row_case {
    float *x, *y, *z, *w;
    dg_cuda_rows out, out2;
    dg_cuda_route_args route;
    int n_row;
} row_case;

static void launch_norm2(void *arg, int layer)
{
    row_case *c = (row_case *)arg;
    (void)layer;
    check(dg_cuda_norm2(stream, c->out, c->w, c->out2, c->w, c->x, c->n_row, N_EMBD, 1e-6f),
          "norm2");
}

static void launch_add_norm(void *arg, int layer)
{
    row_case *c = (row_case *)arg;
    (void)layer;
    dg_cuda_add_args a = {c->x, c->y, c->w, c->n_row, N_EMBD, 1e-6f, {{c->out, c->w}, {c->out2, c->w}}};
    check(dg_cuda_add_norm(stream, &a), "add_norm");
}

static void launch_join(void *arg, int layer)
{
    row_case *c = (row_case *)arg;
    (void)layer;
    dg_cuda_join_args a = {c->x,     c->y,   c->z, c->w,  c->w, c->w,
                           c->n_row, N_EMBD, 0,    1e-6f, 0.5f, 0.5f, {{c->out, c->w}}};
    check(dg_cuda_join(stream, &a), "join");
}

static void launch_route(void *arg, int layer)
{
    row_case *c = (row_case *)arg;
    dg_cuda_route_args a = c->route;
    a.w = (const uint16_t *)a.w + (size_t)layer * N_EXPERT * N_EMBD;
    check(dg_cuda_route(stream, &a), "route");
}

static void bench_rows(int n_row, int n_repeat)
{
    size_t all = (size_t)n_row * N_EMBD, used = (size_t)n_row * N_USED;
    row_case c = {};
    c.n_row = n_row;
    c.x = floats(all, 1);
    c.y = floats(all, 1);
    c.z = floats(all, 1);
    c.w = floats(N_EMBD, 1);
    c.out = dg_cuda_rows{DG_CUDA_BF16, memory(all * 2), N_EMBD};
    c.out2 = dg_cuda_rows{DG_CUDA_F16, memory(all * 2), N_EMBD};
    c.route.expert = (int32_t *)memory(used * 4);
    c.route.weight = (float *)memory(used * 4);
    c.route.x = floats(all, 1);
    c.route.scale = c.w;
    uint16_t *w = (uint16_t *)memory((size_t)N_LAYER * N_EXPERT * N_EMBD * 2);
    fill_bf16<<<2048, 256>>>(w, (size_t)N_LAYER * N_EXPERT * N_EMBD, 1, 4);
    c.route.w = w;
    c.route.w_type = DG_BF16; /* as a published model's are */
    c.route.expert_scale = floats(N_EXPERT, 1);
    c.route.n_row = n_row;
    c.route.n = N_EMBD;
    c.route.n_expert = N_EXPERT;
    c.route.n_used = N_USED;
    c.route.eps = 1e-6f;
    c.route.scratch = memory(dg_cuda_route_bytes(n_row, N_EMBD, N_EXPERT));
    check(cudaDeviceSynchronize(), "data");
    static const struct {
        const char *name;
        launch_fn *launch;
    } stages[] = {{"two norms", launch_norm2},
                  {"add and two norms", launch_add_norm},
                  {"join and a norm", launch_join},
                  {"route", launch_route}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        printf("%-18s %5d rows %18s %9.1f us\n", stages[i].name, n_row, "",
               time_launches(stages[i].launch, &c, N_LAYER));
    if (n_repeat)
        repeat("  the router's bits", launch_route, &c, c.route.weight, used * 4, n_repeat);
    void *const memories[] = {c.x,
                              c.y,
                              c.z,
                              c.w,
                              c.out.data,
                              c.out2.data,
                              c.route.expert,
                              c.route.weight,
                              (void *)c.route.x,
                              (void *)c.route.w,
                              (void *)c.route.expert_scale,
                              c.route.scratch};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        cudaFree(memories[i]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int global_contexts[] = {1045, 8213, 32789, 131093}, batches[] = {1, 2, 4, 16};
    int n_repeat = argc > 1 ? atoi(argv[1]) : 3000;
    check(cudaStreamCreate(&stream), "stream");
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        bench_attention("sliding", 8, 256, 1024, 25, batches[i], 1045,
                        i == 0 ? n_repeat : n_repeat / 10);
    for (size_t i = 0; i < sizeof global_contexts / sizeof *global_contexts; i++)
        bench_attention("global", 2, 512, 0, 5, 1, global_contexts[i], i == 0 ? n_repeat : 0);
    bench_attention("global", 2, 512, 0, 5, 4, 8213, 0);
    for (size_t i = 1; i < sizeof batches / sizeof *batches; i++)
        bench_attention("global", 2, 512, 0, 5, batches[i], 1045, n_repeat / 10);
    bench_rows(256, n_repeat);
    bench_rows(4096, n_repeat / 10);
    return 0;
}
