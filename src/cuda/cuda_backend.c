/* The CUDA backend's life cycle, memory and plan. */
#include "cuda/cuda_backend.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "cuda/cuda_internal.h"

bool dg_cuda_failed(dg_cuda *cu, cudaError_t error, const char *where)
{
    if (error && !cu->error) {
        cu->error = error;
        cu->where = where;
    }
    return cu->error != cudaSuccess;
}

/* ---- devices ---- */

int dg_cuda_count(dgemma_error *why)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (!error && n > 0)
        return n;
    dg_fail(why, DGEMMA_E_UNSUPPORTED, "no CUDA device: %s",
            error == cudaErrorInsufficientDriver
                ? "there is no NVIDIA driver, or it is older than this program"
            : error ? cudaGetErrorString(error)
                    : "the driver finds none");
    return 0;
}

dgemma_status dg_cuda_describe(dg_cuda_device *out, int device, dgemma_error *err)
{
    struct cudaDeviceProp p;
    dgemma_error why = {0};
    int n = dg_cuda_count(&why);
    if (n < 1)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s", why.msg);
    if (device < 0 || device >= n)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "there is no CUDA device %d: 0 to %d are there",
                       device, n - 1);
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (!error)
        error = cudaSetDevice(device);
    *out = (dg_cuda_device){.total_bytes = 0};
    if (!error)
        error = cudaMemGetInfo(&out->free_bytes, &out->total_bytes);
    if (error)
        return dg_fail(err, DGEMMA_E_INTERNAL, "CUDA device %d: %s", device,
                       cudaGetErrorString(error));
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    out->major = p.major;
    out->minor = p.minor;
    out->n_multiprocessor = p.multiProcessorCount;
    return DGEMMA_OK;
}

/* ---- memory ---- */

/* What may still be allocated: free on the device, and within the bound. Others may use it too. */
static size_t cuda_room(dg_backend *be)
{
    const dg_cuda *cu = dg_cuda_of(be);
    size_t left = 0, all = 0;
    if (cudaSetDevice(cu->device) || cudaMemGetInfo(&left, &all))
        return 0;
    size_t used = cu->free_at_open > left ? cu->free_at_open - left : 0;
    if (!cu->max_bytes)
        return left;
    return cu->max_bytes <= used ? 0 : cu->max_bytes - used < left ? cu->max_bytes - used : left;
}

static void *cuda_alloc(dg_backend *be, size_t bytes)
{
    void *p = NULL;
    if (dg_cuda_of(be)->max_bytes && bytes > cuda_room(be))
        return NULL;
    if (cudaSetDevice(dg_cuda_of(be)->device) || cudaMalloc(&p, bytes ? bytes : 1)) {
        cudaGetLastError(); /* it is told, and does not stick */
        return NULL;
    }
    return p;
}

static void cuda_free(dg_backend *be, void *p)
{
    (void)be;
    cudaFree(p);
}

static void cuda_upload(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_failed(cu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cu->stream),
                   "sending data");
    dg_cuda_failed(cu, cudaStreamSynchronize(cu->stream), "sending data");
}

static void cuda_download(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_failed(cu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, cu->stream),
                   "fetching data");
    dg_cuda_failed(cu, cudaStreamSynchronize(cu->stream), "fetching data");
}

static void cuda_copy(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_failed(cu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, cu->stream),
                   "copying data");
}

/* ---- the plan ---- */

static size_t canvas_pages(const dg_plan *p)
{
    return (size_t)p->n_row / DG_PAGE + 1 + (size_t)p->n_segment;
}

static size_t part_counter_bytes(const dg_plan *p)
{
    return dg_cuda_attention_counters((int)canvas_pages(p) * DG_PAGE, p->max_q_dim) *
           sizeof(int32_t);
}

/* Canvases' rows that a pass can have, as far as the vocabulary end works on them together. */
static int word_rows(const dg_plan *p)
{
    int canvases = dg_max(1, p->n_segment / 2);
    return dg_min(p->n_row, dg_min(canvases * DG_CUDA_WORD_ROWS, DG_CUDA_WORD_GROUP));
}

/* What gate and up of some rows take as floats, where adapters change them. */
static size_t gates_bytes(const dg_plan *p)
{
    return 2 * (size_t)dg_min(p->n_row, 64) * (size_t)p->n_ff * sizeof(float);
}

static size_t place_scratch(dg_cuda *cu, unsigned char *base, const dg_plan *p)
{
    size_t rows = (size_t)p->n_row, at = 0,
           wide = (size_t)dg_cuda_ld(dg_max(2 * dg_cuda_ld(p->n_embd), p->max_q_dim));
    size_t pages = canvas_pages(p);
    size_t parts_bytes = dg_cuda_attention_bytes((int)(pages * DG_PAGE), p->max_q_dim),
           words_bytes = dg_cuda_words_bytes(word_rows(p), p->n_vocab, p->n_embd),
           some_bytes = parts_bytes > words_bytes ? parts_bytes : words_bytes;
    cu->parts_bytes = some_bytes > gates_bytes(p) ? some_bytes : gates_bytes(p);
    struct {
        void **to;
        size_t bytes;
    } list[] = {
        {&cu->rows.data, rows * wide * sizeof(float)},
        {&cu->hidden.data, rows * (size_t)dg_cuda_ld(p->n_ff) * sizeof(float)},
        {(void **)&cu->k, rows * (size_t)p->max_kv_dim * sizeof(float)},
        {(void **)&cu->v, rows * (size_t)p->max_kv_dim * sizeof(float)},
        {(void **)&cu->y, rows * (size_t)p->n_embd * sizeof(float)},
        {&cu->experts,
         dg_cuda_experts_bytes(p->n_row, p->n_expert_used, p->n_expert, p->n_embd, p->n_ff_expert)},
        {&cu->router, dg_cuda_route_bytes(p->n_row, p->n_embd, p->n_expert)},
        {(void **)&cu->part_counter, part_counter_bytes(p)},
        {(void **)&cu->canvas, pages * DG_PAGE * 2 * (size_t)p->max_kv_dim *
                                   dg_dtype_size(dg_kv_canvas_type(p->kv_type))},
        /* also the vocabulary end's, which comes when no layer needs it any more, and adapters' */
        {&cu->parts, cu->parts_bytes},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        *list[i].to = base ? base + at : NULL;
        at += (list[i].bytes + 255) / 256 * 256;
    }
    if (base) {
        cu->word_rows = word_rows(p);
        dg_cuda_words_place(&cu->words, cu->parts, cu->word_rows, p->n_vocab, p->n_embd);
    }
    return at;
}

static size_t cuda_plan_bytes(dg_backend *be, const dg_plan *plan)
{
    (void)be;
    dg_cuda probe = {0};
    return place_scratch(&probe, NULL, plan) + dg_cuda_batch_bytes(plan);
}

static dgemma_status cuda_plan(dg_backend *be, const dg_plan *plan, dgemma_error *err)
{
    dg_cuda *cu = dg_cuda_of(be);
    size_t bytes = place_scratch(cu, NULL, plan);
    dg_cuda_graphs_drop(cu);
    cuda_free(be, cu->scratch);
    cu->scratch = cuda_alloc(be, bytes);
    if (!cu->scratch)
        return dg_fail(err, DGEMMA_E_NOMEM,
                       "%zu MiB for passes of %d rows do not fit on the device: %zu MiB are left",
                       (bytes >> 20) + 1, plan->n_row, cuda_room(be) >> 20);
    cu->plan = *plan;
    place_scratch(cu, cu->scratch, plan);
    dg_cuda_failed(cu, cudaMemsetAsync(cu->part_counter, 0, part_counter_bytes(plan), cu->stream),
                   "clearing counters");
    return dg_cuda_batch_plan(cu, err);
}

/* ---- life cycle ---- */

static void close_streams(dg_cuda *cu)
{
    const dg_cuda_marks *m = cu->marks;
    cudaEvent_t event[] = {m[0].from, m[0].found, m[0].to,    m[1].from,  m[1].found,
                           m[1].to,   cu->parted, cu->sorted, cu->fetched};
    for (size_t i = 0; i < DG_COUNT(event); i++)
        if (event[i])
            cudaEventDestroy(event[i]);
    if (cu->side)
        cudaStreamDestroy(cu->side);
    if (cu->stream)
        cudaStreamDestroy(cu->stream);
}

/* The side stream's few blocks go first where both streams have some to start. */
static cudaError_t open_streams(dg_cuda *cu)
{
    int least = 0, greatest = 0;
    cudaError_t error = cudaSetDevice(cu->device);
    if (!error)
        error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (!error)
        error = cudaStreamCreateWithFlags(&cu->stream, cudaStreamNonBlocking);
    if (!error)
        error = cudaStreamCreateWithPriority(&cu->side, cudaStreamNonBlocking, greatest);
    for (int i = 0; i < 2; i++) {
        cudaEvent_t *timed[] = {&cu->marks[i].from, &cu->marks[i].found, &cu->marks[i].to};
        for (size_t k = 0; !error && k < DG_COUNT(timed); k++)
            error = cudaEventCreate(timed[k]);
    }
    cudaEvent_t *untimed[] = {&cu->parted, &cu->sorted, &cu->fetched};
    for (size_t i = 0; !error && i < DG_COUNT(untimed); i++)
        error = cudaEventCreateWithFlags(untimed[i], cudaEventDisableTiming);
    return error;
}

static void cuda_close(dg_backend *be)
{
    if (!be)
        return;
    dg_cuda *cu = dg_cuda_of(be);
    cudaSetDevice(cu->device);
    dg_cuda_graphs_drop(cu);
    dg_cuda_weights_free(cu);
    cuda_free(be, cu->scratch);
    cuda_free(be, cu->tower.scratch);
    dg_cuda_answers_free(cu);
    cuda_free(be, cu->device_blob);
    cudaFreeHost(cu->host_blob);
    cudaFreeHost(cu->found_memory);
    close_streams(cu);
    dg_free(cu);
}

dgemma_status dg_cuda_open(dg_backend **out, const dg_cuda_options *opt, dgemma_error *err)
{
    dg_cuda_device d;
    int device = opt->device;
    dgemma_status st = dg_cuda_describe(&d, device, err);
    if (st)
        return st;
    if (d.major < 8)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s has compute capability %d.%d: 8.0 or later is needed", d.name, d.major,
                       d.minor);
    if (!dg_cuda_has_code())
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "this build of dgemma has no code for %s: build it with CUDA_ARCHS=%d%d%s",
                       d.name, d.major, d.minor, d.major == 9 ? "a" : "");
    dg_cuda *cu = dg_calloc(1, sizeof *cu);
    if (!cu)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    cu->device = device;
    cu->exact = opt->exact;
    cu->max_bytes = opt->max_bytes;
    cu->narrow = opt->narrow;
    cu->free_at_open = d.free_bytes;
    cudaError_t error = open_streams(cu);
    if (error) {
        close_streams(cu);
        dg_free(cu);
        return dg_fail(err, DGEMMA_E_INTERNAL, "CUDA device %d: %s", device,
                       cudaGetErrorString(error));
    }
    cu->base = (dg_backend){
        .name = "cuda",
        .answers = true,
        .address =
            cudaDeviceGetPCIBusId(cu->address, sizeof cu->address, device) ? NULL : cu->address,
        .profile = opt->exact               ? "cuda-float"
                   : opt->narrow == DG_FP8  ? "cuda-fp8"
                   : opt->narrow == DG_INT4 ? "cuda-int4"
                                            : "cuda",
        .canvas_rows = 64 * 256,
        .prompt_rows = 2048,
        .picture_patches = 280 * 9, /* or four frames of a video */
        .close = cuda_close,
        .room = cuda_room,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .upload = cuda_upload,
        .download = cuda_download,
        .copy = cuda_copy,
        .weight_init = dg_cuda_weight_init,
        .weights_done = dg_cuda_weights_done,
        .kv_open = dg_cuda_kv_open,
        .kv_close = dg_cuda_kv_close,
        .kv_take = dg_cuda_kv_take,
        .kv_give = dg_cuda_kv_give,
        .kv_copy = dg_cuda_kv_copy,
        .kv_read = dg_cuda_kv_read,
        .kv_save = dg_cuda_kv_save,
        .kv_load = dg_cuda_kv_load,
        .plan_bytes = cuda_plan_bytes,
        .plan = cuda_plan,
        .begin = dg_cuda_begin,
        .finish = dg_cuda_finish,
        .check = dg_cuda_lost,
        .device_seconds = dg_cuda_device_seconds,
        .gathered = dg_cuda_gathered,
        .embed = dg_cuda_embed_stage,
        .condition = dg_cuda_condition_stage,
        .rope_table = dg_cuda_rope_stage,
        .qkv = dg_cuda_qkv_stage,
        .attention = dg_cuda_attention_stage,
        .attention_out = dg_cuda_attention_out_stage,
        .dense = dg_cuda_dense_stage,
        .route = dg_cuda_route_stage,
        .experts = dg_cuda_experts_stage,
        .join = dg_cuda_join_stage,
        .norm = dg_cuda_norm_stage,
        .vocabulary = dg_cuda_vocabulary_stage,
        .vision_plan_bytes = dg_cuda_vision_plan_bytes,
        .vision_plan = dg_cuda_vision_plan,
        .vision_begin = dg_cuda_vision_begin,
        .vision_embed = dg_cuda_vision_embed,
        .vision_attention = dg_cuda_vision_attention_stage,
        .vision_mlp = dg_cuda_vision_mlp,
        .vision_project = dg_cuda_vision_project,
    };
    *out = &cu->base;
    return DGEMMA_OK;
}
