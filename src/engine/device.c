#include "engine/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "cpu/kernels.h"
#if DG_HAVE_CUDA
#include "cuda/cuda_backend.h"
#endif

static dgemma_status open_cuda(dg_backend **out, int index, const dg_device_options *opt,
                               dgemma_error *err)
{
#if DG_HAVE_CUDA
    dg_cuda_options cuda = {.device = index, .exact = opt->exact, .max_bytes = opt->gpu_bytes};
    if (opt->weights)
        cuda.narrow = strcmp(opt->weights, "fp8") == 0 ? DG_FP8 : DG_INT4;
    return dg_cuda_open(out, &cuda, err);
#else
    (void)out;
    (void)index;
    (void)opt;
    return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                   "this build of dgemma has no CUDA: build it where nvcc is installed");
#endif
}

static bool found_cuda(void)
{
#if DG_HAVE_CUDA
    return dg_cuda_count(NULL) > 0;
#else
    return false;
#endif
}

/* "cuda" is the first; -1: not a CUDA device's name. */
static int cuda_index(const char *device)
{
    if (strcmp(device, "cuda") == 0)
        return 0;
    if (strncmp(device, "cuda:", 5) != 0 || strspn(device + 5, "0123456789") != strlen(device + 5))
        return -1;
    size_t digits = strlen(device + 5);
    return digits >= 1 && digits <= 3 ? atoi(device + 5) : -1;
}

static dgemma_status check_weights(const dg_device_options *opt, dgemma_error *err)
{
    if (opt->weights && strcmp(opt->weights, "fp8") != 0 && strcmp(opt->weights, "int4") != 0)
        return dg_fail(err, DGEMMA_E_ARG, "weights \"%s\": \"fp8\" and \"int4\" are known",
                       opt->weights);
    if (opt->weights && opt->exact)
        return dg_fail(err, DGEMMA_E_ARG, "weights \"%s\" and products in float exclude each other",
                       opt->weights);
    return DGEMMA_OK;
}

dgemma_status dg_device_open(dg_backend **out, const dg_device_options *opt, dgemma_error *err)
{
    const char *device = opt->name;
    bool best = !device || strcmp(device, "auto") == 0;
    dgemma_status st = check_weights(opt, err);
    if (st)
        return st;
    if (best && found_cuda())
        return open_cuda(out, 0, opt, err);
    if (best || strcmp(device, "cpu") == 0) {
        dg_cpu_options cpu = opt->cpu;
        cpu.exact |= opt->exact;
        if (opt->weights)
            return dg_fail(
                err, DGEMMA_E_UNSUPPORTED,
                "weights are made %s on CUDA devices only: on the CPU a model is used as "
                "it is stored",
                opt->weights);
        return dg_cpu_open(out, &cpu, err);
    }
    int index = cuda_index(device);
    if (index < 0)
        return dg_fail(err, DGEMMA_E_ARG,
                       "device \"%s\": \"auto\", \"cpu\", \"cuda\" and \"cuda:N\" are known",
                       device);
    return open_cuda(out, index, opt, err);
}

dgemma_status dg_device_measure(dg_backend *be, double *read, double *multiply, dgemma_error *err)
{
#if DG_HAVE_CUDA
    dg_cuda_rates rates;
    dgemma_status st = dg_cuda_measure(be, &rates, err);
    *read = rates.read;
    *multiply = rates.multiply;
    return st;
#else
    (void)be;
    (void)read;
    (void)multiply;
    return dg_fail(err, DGEMMA_E_UNSUPPORTED, "this build of dgemma has no CUDA");
#endif
}

const char *dg_device_numerics(const dg_backend *be, const dg_checkpoint *ck,
                               const dg_kv_config *kv)
{
    bool blocks = false, bfloat = false, bytes = false;
    for (int i = 0; i < kv->n_layer && kv->type != DG_F32; i++)
        bfloat = bfloat || kv->layer[i].head_dim >= be->bfloat_head;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        blocks = blocks || dg_dtype_is_block(t->type);
        bytes = bytes || (dg_dtype_is_block(t->type) && t->shape[t->n_dim - 1] >= be->byte_in);
        bfloat = bfloat || (t->type == DG_BF16 && strstr(t->name, "vision"));
    }
    if (bytes && be->byte_profile)
        return be->byte_profile;
    if (bfloat && be->bfloat_profile)
        return blocks ? be->bfloat_block_profile : be->bfloat_profile;
    return blocks && be->block_profile ? be->block_profile : be->profile;
}

dg_dtype dg_device_kv_type(dgemma_kv_type type)
{
    static const dg_dtype stored[] = {[DGEMMA_KV_BF16] = DG_BF16,
                                      [DGEMMA_KV_F32] = DG_F32,
                                      [DGEMMA_KV_Q8_0] = DG_Q8_0,
                                      [DGEMMA_KV_FP8] = DG_FP8};
    return stored[type];
}

static size_t list_cuda(dgemma_device *device, size_t cap, dgemma_error *why)
{
    size_t n = 0;
#if DG_HAVE_CUDA
    for (int i = 0, count = dg_cuda_count(why); i < count && n < cap; i++) {
        dg_cuda_device d;
        if (dg_cuda_describe(&d, i, why))
            continue;
        dgemma_device *to = &device[n++];
        *to = (dgemma_device){.total_bytes = d.total_bytes, .free_bytes = d.free_bytes};
        snprintf(to->name, sizeof to->name, "cuda:%d", i);
        snprintf(to->description, sizeof to->description,
                 "%.100s, compute capability %d.%d, %d multiprocessors", d.name, d.major, d.minor,
                 d.n_multiprocessor);
    }
#else
    (void)device;
    (void)cap;
    dg_fail(why, DGEMMA_E_UNSUPPORTED,
            "this build of dgemma has no CUDA: build it where nvcc is installed");
#endif
    return n;
}

size_t dg_device_list(dgemma_device *device, size_t cap, dgemma_error *why)
{
    if (!cap)
        return 0;
    device[0] = (dgemma_device){.name = "cpu"};
    snprintf(device[0].description, sizeof device[0].description, "%d processors, kernels for %s",
             dg_cpu_count(), dg_cpu_flags_name(dg_cpu_flags()));
    return 1 + list_cuda(device + 1, cap - 1, why);
}
