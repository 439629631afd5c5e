/* Times the parts of the vision tower on a GPU: attention and heads of a picture, kernels side by
 * side, and on sm_90a its products by tile.
 *
 *   make CUDA=1 build/release/bench_cuda_vision && build/release/bench_cuda_vision [REPEATS]
 *
 * Each figure is the median of replays of a graph of eight launches. Attention is then launched
 * REPEATS times (300) and the bits compared. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_vision.cuh"

enum { N_HEAD = 16, DIM = 72, N_EMBD = N_HEAD * DIM, N_FF = 4304, N_REPLAY = 21, N_LAUNCH = 8, MAX_SIDE = 4096 };

static cudaStream_t stream;

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static __global__ void fill_floats(float *out, size_t n, float size, float middle)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t x = (i ^ i >> 31) * 0x7FB5D329728EA185ull;
        x = (x ^ x >> 27) * 0x81DADEF4BC2DD44Dull;
        out[i] = ((float)(uint32_t)(x >> 40) / 8388608.0f - 1.0f) * size + middle;
    }
}

static void *memory(size_t bytes)
{
    void *p;
    check(cudaMalloc(&p, bytes), "cudaMalloc");
    check(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}

static float *floats(size_t n, float size, float middle)
{
    float *p = (float *)memory(n * sizeof *p);
    fill_floats<<<1024, 256>>>(p, n, size, middle);
    return p;
}

/* ---- timing ---- */

typedef void launch_fn(void *arg);

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double time_launches(launch_fn *launch, void *arg)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float ms[N_REPLAY];
    launch(arg);
    check(cudaStreamSynchronize(stream), "first launch");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < N_LAUNCH; i++)
        launch(arg);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int i = -3; i < N_REPLAY; i++) {
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
    return 1e3 * ms[N_REPLAY / 2] / N_LAUNCH;
}

/* ---- the picture ---- */

typedef struct picture_case {
    dg_cuda_vision_heads_args heads;
    dg_cuda_vision_attention_args args;
    dg_picture_tile tile;
} picture_case;

static void launch_heads(void *arg)
{
    check(dg_cuda_vision_heads(stream, &((picture_case *)arg)->heads), "heads");
}

static void launch_attention(void *arg)
{
    picture_case *c = (picture_case *)arg;
    check(c->args.from.across ? dg_cuda_vision_groups(stream, &c->args, c->tile)
                              : dg_cuda_vision_mma(stream, &c->args, c->tile),
          "attention");
}

static picture_case make_picture(int rows, int cols, bool across)
{
    picture_case c = {};
    dg_cuda_pictures p = {};
    p.n = 1;
    p.n_patch = rows * cols;
    p.n_slot = dg_cuda_slots(p.n_patch);
    p.at[0].rows = rows;
    p.at[0].cols = cols;
    dg_cuda_vision_qkv to = {};
    to.across = across;
    to.n_head = N_HEAD;
    to.dim = DIM;
    to.ld = dg_cuda_vision_ld(DIM);
    size_t bytes = (size_t)N_HEAD * (size_t)p.n_slot * (size_t)to.ld * 2;
    to.q = memory(bytes);
    to.k = memory(bytes);
    to.v = memory(bytes);
    c.heads.raw = floats((size_t)p.n_patch * 3 * N_EMBD, 2, 0);
    c.heads.q_norm = floats(DIM, 0.2f, 0.6f);
    c.heads.k_norm = floats(DIM, 0.2f, 0.6f);
    c.heads.cos = floats(MAX_SIDE * DIM / 4, 1, 0);
    c.heads.sin = floats(MAX_SIDE * DIM / 4, 1, 0);
    c.heads.eps = 1e-6f;
    c.heads.to = to;
    c.heads.pictures = p;
    c.args.out = dg_cuda_rows{DG_CUDA_BF16, memory((size_t)p.n_patch * N_EMBD * 2), N_EMBD};
    c.args.from = to;
    c.args.pictures = p;
    check(cudaDeviceSynchronize(), "data");
    return c;
}

/* How many launches give other bits than the first. */
static int repeat(picture_case *c, int n_repeat)
{
    size_t bytes = (size_t)c->args.pictures.n_patch * N_EMBD * 2;
    unsigned char *first = (unsigned char *)malloc(bytes), *now = (unsigned char *)malloc(bytes);
    int wrong = 0;
    for (int i = 0; i <= n_repeat; i++) {
        check(cudaMemsetAsync(c->args.out.data, 0xFF, bytes, stream), "memset");
        launch_attention(c);
        check(cudaMemcpyAsync(i ? now : first, c->args.out.data, bytes, cudaMemcpyDeviceToHost,
                              stream),
              "copy");
        check(cudaStreamSynchronize(stream), "repeat");
        wrong += i && memcmp(now, first, bytes) != 0;
    }
    free(first);
    free(now);
    return wrong;
}

static float *result(const picture_case *c)
{
    size_t n = (size_t)c->args.pictures.n_patch * N_EMBD;
    uint16_t *bits = (uint16_t *)malloc(n * 2);
    float *out = (float *)malloc(n * sizeof *out);
    check(cudaMemcpy(bits, c->args.out.data, n * 2, cudaMemcpyDeviceToHost), "copy");
    for (size_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)bits[i] << 16;
        memcpy(&out[i], &word, 4);
    }
    free(bits);
    return out;
}

static void bench_picture(int rows, int cols, int n_repeat)
{
    double work = 4.0 * rows * cols * (double)(rows * cols) * N_EMBD;
    float *before = NULL;
    for (int across = 0; across < 2; across++) {
        if (across && !dg_cuda_vision_across(false, DIM))
            continue;
        picture_case c = make_picture(rows, cols, across);
        printf("%5d patches, heads%-26s %8.1f us\n", rows * cols, across ? ", values across" : "",
               time_launches(launch_heads, &c));
        for (int tile = DG_PICTURE_SMALL; tile <= DG_PICTURE_LARGE; tile++) {
            c.tile = (dg_picture_tile)tile;
            double us = time_launches(launch_attention, &c);
            printf("%5d patches, attention, %-10s %5s tile %8.1f us %6.0f TFLOP/s\n", rows * cols,
                   across ? "warpgroups" : "mma", tile ? "large" : "small", us, work / us * 1e-6);
            if (n_repeat)
                printf("%29s%d of %d launches differ\n", "", repeat(&c, n_repeat), n_repeat);
            float *now = result(&c);
            double error = 0, all = 0;
            for (size_t i = 0; before && i < (size_t)rows * (size_t)cols * N_EMBD; i++) {
                error += ((double)now[i] - before[i]) * ((double)now[i] - before[i]);
                all += (double)before[i] * before[i];
            }
            if (before)
                printf("%29s%.1e from the first\n", "", sqrt(error / all));
            else
                before = now;
            if (before != now)
                free(now);
        }
        void *const mine[] = {c.args.from.q,          c.args.from.k,          c.args.from.v,
                              (void *)c.heads.raw,    (void *)c.heads.q_norm, (void *)c.heads.k_norm,
                              (void *)c.heads.cos,    (void *)c.heads.sin,    c.args.out.data};
        for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
            cudaFree(mine[i]);
        fflush(stdout);
    }
    free(before);
}

/* ---- products ---- */

typedef struct product_case {
    dg_cuda_product_args args;
    dg_cuda_gated_args gated;
    dg_slab_tile tile;
} product_case;

static void launch_product(void *arg)
{
    product_case *c = (product_case *)arg;
    check(c->gated.n_row ? dg_cuda_gated_slabs(stream, &c->gated, c->tile)
                         : dg_cuda_product_slabs(stream, &c->args, c->tile),
          "product");
}

/* n_part matrices of n_out rows over the same x; or gate and up. */
static void bench_product(const char *name, int n_row, int n_part, int n_out, int n_in, bool gated)
{
    size_t bytes = dg_cuda_slab_bytes(n_out, n_in), ldy = (size_t)(n_part * n_out);
    dg_cuda_rows x = {DG_CUDA_BF16, memory((size_t)n_row * (size_t)dg_cuda_ld(n_in) * 2),
                      dg_cuda_ld(n_in)};
    float *y = (float *)memory((size_t)n_row * ldy * sizeof *y);
    dg_cuda_matrix w[3];
    product_case c = {};
    for (int i = 0; i < (gated ? 2 : n_part); i++)
        w[i] = dg_cuda_matrix{DG_BF16, 1, n_out, n_in, memory(bytes), NULL, true};
    if (gated)
        c.gated = dg_cuda_gated_args{
            n_row, x, &w[0], &w[1], dg_cuda_rows{DG_CUDA_BF16, (void *)y, dg_cuda_ld(n_out)}};
    c.args.n_row = n_row;
    c.args.x = x;
    c.args.alpha = 1;
    c.args.n_part = n_part;
    for (int i = 0; i < n_part; i++) {
        c.args.part[i].w = &w[i];
        c.args.part[i].y = y + i * n_out;
        c.args.part[i].ldy = ldy;
    }
    c.tile = DG_SLAB_BEST;
    double us = time_launches(launch_product, &c),
           work = 2.0 * n_row * n_in * n_out * (gated ? 2 : n_part);
    printf("%5d patches, %-12s %8.1f us %6.0f TFLOP/s, by tile", n_row, name, us, work / us * 1e-6);
    for (int tile = 0; tile < DG_SLAB_TILES; tile++) {
        c.tile = (dg_slab_tile)tile;
        printf(" %.1f", time_launches(launch_product, &c));
    }
    printf("\n");
    for (int i = 0; i < (gated ? 2 : n_part); i++)
        cudaFree((void *)w[i].data);
    cudaFree(x.data);
    cudaFree(y);
}

int main(int argc, char **argv)
{
    int n_repeat = argc > 1 ? atoi(argv[1]) : 300;
    check(cudaStreamCreate(&stream), "stream");
    bench_picture(42, 60, n_repeat);
    bench_picture(21, 30, n_repeat);
    bench_picture(84, 120, 0);
    if (dg_cuda_has_groups()) {
        bench_product("q, k, v", 2520, 3, N_EMBD, N_EMBD, false);
        bench_product("o", 2520, 1, N_EMBD, N_EMBD, false);
        bench_product("gate and up", 2520, 1, N_FF, N_EMBD, true);
        bench_product("down", 2520, 1, N_EMBD, N_FF, false);
    }
    return 0;
}
