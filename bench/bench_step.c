/* Denoise steps and prefill of a model of the true shape with synthetic weights:
 *
 *     bench_step [--device NAME] [--type BF16|Q8_0|Q4_0|Q4_K_M] [--layers N] [--context N] [--batch
 * N] [--steps N]
 *                [--threads N] [--chunk N] [--skew 1] [--profile integer|float] [--cpu-flags NAME]
 *
 * Prints the load, the prefill of the context chunk by chunk, and the median of the steps. Every
 * step sees a canvas of random words, as those that are not accepted are; with --skew the busiest
 * expert has four times the mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "engine/device.h"
#include "model/forward.h"
#include "model/synthetic.h"

typedef struct options {
    const char *device, *type;
    int n_layer, context, batch, steps, threads, chunk, skew;
    unsigned flags; /* instruction sets */
    bool exact;     /* the float profile */
} options;

static bool number(const char *name, const char *const *argv, int *out)
{
    if (strcmp(argv[0], name) != 0)
        return false;
    *out = atoi(argv[1]);
    return true;
}

static bool parse(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *const *a = (const char *const *)argv + i;
        if (i + 1 >= argc)
            return false;
        if (strcmp(a[0], "--device") == 0)
            o->device = a[1];
        else if (strcmp(a[0], "--type") == 0)
            o->type = a[1];
        else if (strcmp(a[0], "--profile") == 0)
            o->exact = strcmp(a[1], "float") == 0;
        else if (strcmp(a[0], "--cpu-flags") == 0) {
            if (!dg_cpu_flags_parse(&o->flags, a[1]))
                return false;
        } else if (!number("--layers", a, &o->n_layer) && !number("--context", a, &o->context) &&
                   !number("--batch", a, &o->batch) && !number("--steps", a, &o->steps) &&
                   !number("--threads", a, &o->threads) && !number("--chunk", a, &o->chunk) &&
                   !number("--skew", a, &o->skew))
            return false;
    }
    return o->batch > 0 && o->steps > 0 && o->chunk > 0 && o->context >= 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench {
    dg_synthetic *synthetic;
    dg_backend *be;
    dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
    dg_kv_seq *seq;
    dg_work *work;
    int32_t *token;
    float *entropy;
    double *uniform, *ms;
} bench;

static dgemma_status open_all(bench *b, const options *o, dgemma_error *err)
{
    const dg_config *cfg;
    dgemma_status st = dg_synthetic_open(
        &b->synthetic,
        &(dg_synthetic_options){.type = o->type, .n_layer = o->n_layer, .skewed = o->skew}, err);
    if (st)
        return st;
    cfg = dg_synthetic_config(b->synthetic);
    dg_device_options device = {.name = o->device, .cpu = {o->threads, o->flags, o->exact}};
    st = dg_device_open(&b->be, &device, err);
    double from = dg_clock_now();
    if (!st)
        st = dg_model_load(&b->model, cfg, dg_synthetic_checkpoint(b->synthetic), b->be, err);
    if (!st)
        printf("%s, %s, %d layers: %.1f GB of weights in %.1f s\n", b->be->name, o->type,
               cfg->n_layer, (double)dg_synthetic_bytes(b->synthetic) * 1e-9,
               dg_clock_now() - from);
    int rows = dg_max(o->batch * cfg->canvas_length, o->chunk);
    if (!st)
        st = dg_kv_cache_create(&b->kv, cfg, b->be, DG_BF16, 0, err);
    if (!st) /* the bench's sequences, and a page at each end */
        st = dg_kv_cache_limit(
            b->kv, (size_t)o->batch * dg_kv_bytes_for(b->kv, o->context + 512, o->chunk + 256),
            err);
    if (!st)
        st = dg_forward_create(&b->forward, b->model, b->kv, rows, o->batch, err);
    if (st)
        return st;
    printf("scratch for passes of %d rows: %zu MiB\n", rows,
           dg_forward_bytes(cfg, b->be, b->kv, rows, o->batch) >> 20);
    size_t n = (size_t)o->batch, c = n * (size_t)cfg->canvas_length,
           t = (size_t)dg_max(o->context, 1);
    b->seq = dg_calloc(n, sizeof *b->seq);
    b->work = dg_calloc(n, sizeof *b->work);
    b->token = dg_array(3 * c + t, sizeof *b->token);
    b->entropy = dg_array(c, sizeof *b->entropy);
    b->uniform = dg_array(c, sizeof *b->uniform);
    b->ms = dg_array((size_t)o->steps, sizeof *b->ms);
    for (size_t i = 0; i < 3 * c + t; i++)
        b->token[i] =
            (int32_t)(dg_rng_uniform(&(dg_rng_key){.seed = 9}, (uint32_t)i) * cfg->n_vocab);
    for (size_t i = 0; i < c; i++)
        b->uniform[i] = dg_rng_uniform(&(dg_rng_key){.seed = 8}, (uint32_t)i);
    return DGEMMA_OK;
}

static dgemma_status prefill(bench *b, const options *o, dgemma_error *err)
{
    size_t c = (size_t)o->batch * (size_t)dg_synthetic_config(b->synthetic)->canvas_length;
    double from = dg_clock_now();
    dgemma_status st = DGEMMA_OK;
    for (int s = 0; s < o->batch; s++)
        for (int at = 0; !st && at < o->context; at += o->chunk) {
            double begin = dg_clock_now();
            dg_work w = {.seq = &b->seq[s],
                         .token = b->token + 3 * c + at,
                         .n_token = dg_min(o->chunk, o->context - at)};
            st = dg_forward_run(b->forward, &(dg_pass){.work = &w, .n_work = 1}, err);
            if (s == 0)
                printf("  prefill of %d tokens at %d: %.2f ms\n", w.n_token, at,
                       1e3 * (dg_clock_now() - begin));
        }
    if (!st && o->context)
        printf("prefill: %d x %d tokens, %.0f tokens/s\n", o->batch, o->context,
               o->batch * (double)o->context / (dg_clock_now() - from));
    return st;
}

/* Random words again everywhere. Words that were drawn would be the same few at many positions,
 * which no real router sees. */
static void renoise(bench *b, const options *o, int step)
{
    const dg_config *cfg = dg_synthetic_config(b->synthetic);
    dg_rng_key key = {.seed = 10, .step = (uint32_t)(step + 5)};
    for (int i = 0; i < o->batch * cfg->canvas_length; i++)
        b->token[i] = (int32_t)dg_rng_below(&key, (uint32_t)i, (uint32_t)cfg->n_vocab);
}

static dgemma_status denoise(bench *b, const options *o, dgemma_error *err)
{
    const dg_config *cfg = dg_synthetic_config(b->synthetic);
    int n = cfg->canvas_length;
    size_t c = (size_t)o->batch * (size_t)n;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; i < o->batch; i++) {
        size_t at = (size_t)i * (size_t)n;
        b->work[i] =
            (dg_work){.seq = &b->seq[i],
                      .canvas = b->token + at,
                      .n_canvas = n,
                      .soft = b->be->alloc(b->be, (size_t)n * (size_t)cfg->n_embd * sizeof(float)),
                      .first_step = true,
                      .temperature = 0.6f,
                      .uniform = b->uniform + at,
                      .entropy = b->entropy + at,
                      .argmax = b->token + c + at,
                      .drawn = b->token + 2 * c + at};
    }
    for (int step = -4; !st && step < o->steps; step++) {
        double begin = dg_clock_now();
        st = dg_forward_run(b->forward, &(dg_pass){.work = b->work, .n_work = o->batch}, err);
        if (step >= 0)
            b->ms[step] = 1e3 * (dg_clock_now() - begin);
        for (int i = 0; i < o->batch; i++)
            b->work[i].first_step = false;
        renoise(b, o, step);
    }
    double entropy = 0;
    for (size_t i = 0; !st && i < c; i++)
        entropy += (double)b->entropy[i] / (double)c;
    for (int i = 0; i < o->batch; i++)
        b->be->free(b->be, b->work[i].soft);
    if (st)
        return st;
    qsort(b->ms, (size_t)o->steps, sizeof *b->ms, by_value);
    printf("step: median %.3f ms, least %.3f, most %.3f; batch %d, context %d; mean entropy %.2f\n",
           b->ms[o->steps / 2], b->ms[0], b->ms[o->steps - 1], o->batch, o->context, entropy);
    return DGEMMA_OK;
}

int main(int argc, char **argv)
{
    options o = {.type = "Q4_K_M",
                 .context = 1024,
                 .batch = 1,
                 .steps = 16,
                 .threads = dg_cpu_count(),
                 .chunk = 512,
                 .flags = dg_cpu_flags()};
    dgemma_error err = {0};
    bench b = {0};
    if (!parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: bench_step [--device NAME] [--type NAME] [--layers N] [--context "
                "N] [--batch N] "
                "[--steps N] [--threads N] [--chunk N] [--skew 1] [--profile integer|float] "
                "[--cpu-flags NAME]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    dgemma_status st = open_all(&b, &o, &err);
    if (!st)
        st = prefill(&b, &o, &err);
    if (!st)
        st = denoise(&b, &o, &err);
    if (st)
        fprintf(stderr, "bench_step: %s\n", err.msg);
    for (int i = 0; b.seq && i < o.batch; i++)
        dg_kv_seq_clear(b.kv, &b.seq[i]);
    dg_forward_free(b.forward);
    dg_kv_cache_free(b.kv);
    dg_model_free(b.model);
    if (b.be)
        b.be->close(b.be);
    dg_synthetic_close(b.synthetic);
    dg_free(b.seq);
    dg_free(b.work);
    dg_free(b.token);
    dg_free(b.entropy);
    dg_free(b.uniform);
    dg_free(b.ms);
    return st ? 1 : 0;
}
