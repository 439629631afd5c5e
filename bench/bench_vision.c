/* The vision tower at the published shape, with random weights: pictures per second, and the share
 * of the processor's own speed that this is.
 *
 *     bench_vision [--layers N] [--threads N] [--soft N] [--rounds N] [--device NAME]
 *                  [--compare 1]
 *
 * Of 27 layers, all alike, a few are run; the rest would cost as much each. On another device than
 * the processor its features are compared with the processor's, where there are few layers or with
 * --compare 1, and those of pictures that share a pass with those of each alone. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "engine/device.h"
#include "kernels/check.h"
#include "model/vision.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

enum { N_EMBD = 1152, N_FF = 4304, N_HEAD = 16, HEAD_DIM = 72, N_TEXT = 2816, N_POSITION = 10240 };
enum { PUBLISHED_LAYERS = 27, PER_LAYER = 13, COMMON = 5, NAME_BYTES = 128, MOST_COMPARED = 3 };

typedef struct options {
    int n_layer, n_thread, n_soft, n_round, compare;
    const char *device;
} options;

/* ---- a tower of random weights in a file ---- */

typedef struct tower {
    dg_tensor *tensor;
    char (*name)[NAME_BYTES];
    size_t n;
    uint16_t *random; /* every matrix takes its data from here */
    uint16_t *around; /* and every vector from here: values around one */
} tower;

static void add(tower *t, const char *prefix, const char *name, int n_dim, const int64_t shape[3])
{
    snprintf(t->name[t->n], NAME_BYTES, "%s%s", prefix, name);
    dg_tensor *x = &t->tensor[t->n];
    *x = (dg_tensor){.name = t->name[t->n],
                     .type = DG_BF16,
                     .n_dim = n_dim,
                     .data = n_dim == 1 ? t->around : t->random};
    memcpy(x->shape, shape, (size_t)n_dim * sizeof *shape);
    t->n++;
}

static void add_layer(tower *t, int index)
{
    static const char *const norm[] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                                       "pre_feedforward_layernorm.weight",
                                       "post_feedforward_layernorm.weight"};
    static const char *const square[] = {"q", "k", "v", "o"};
    char p[64], name[64];
    snprintf(p, sizeof p, "model.encoder.vision_tower.encoder.layers.%d.", index);
    for (size_t i = 0; i < DG_COUNT(norm); i++)
        add(t, p, norm[i], 1, (int64_t[]){N_EMBD, 0, 0});
    for (size_t i = 0; i < DG_COUNT(square); i++) {
        snprintf(name, sizeof name, "self_attn.%s_proj.linear.weight", square[i]);
        add(t, p, name, 2, (int64_t[]){N_EMBD, N_EMBD, 0});
    }
    add(t, p, "self_attn.q_norm.weight", 1, (int64_t[]){HEAD_DIM, 0, 0});
    add(t, p, "self_attn.k_norm.weight", 1, (int64_t[]){HEAD_DIM, 0, 0});
    add(t, p, "mlp.gate_proj.linear.weight", 2, (int64_t[]){N_FF, N_EMBD, 0});
    add(t, p, "mlp.up_proj.linear.weight", 2, (int64_t[]){N_FF, N_EMBD, 0});
    add(t, p, "mlp.down_proj.linear.weight", 2, (int64_t[]){N_EMBD, N_FF, 0});
}

static bool write_tower(const char *path, int n_layer)
{
    static const char p[] = "model.encoder.vision_tower.";
    size_t n_random = 2 * (size_t)N_POSITION * N_EMBD,
           n_tensor = (size_t)n_layer * PER_LAYER + COMMON;
    tower t = {.tensor = dg_calloc(n_tensor, sizeof *t.tensor),
               .name = dg_calloc(n_tensor, sizeof *t.name),
               .random = dg_array(n_random, sizeof *t.random),
               .around = dg_array(N_EMBD, sizeof *t.around)};
    bool ok = t.tensor && t.name && t.random && t.around;
    dg_rng_key key = {.seed = 1};
    for (size_t i = 0; ok && i < n_random; i++)
        t.random[i] = dg_float_to_bf16((float)(dg_rng_uniform(&key, (uint32_t)i) - 0.5) * 0.1f);
    for (size_t i = 0; ok && i < N_EMBD; i++)
        t.around[i] = dg_float_to_bf16(0.4f + 0.4f * (float)dg_rng_uniform(&key, (uint32_t)i));
    if (ok) {
        add(&t, p, "patch_embedder.input_proj.weight", 2, (int64_t[]){N_EMBD, 768, 0});
        add(&t, p, "patch_embedder.position_embedding_table", 3,
            (int64_t[]){2, N_POSITION, N_EMBD});
        add(&t, p, "std_bias", 1, (int64_t[]){N_EMBD, 0, 0});
        add(&t, p, "std_scale", 1, (int64_t[]){N_EMBD, 0, 0});
        add(&t, "model.encoder.embed_vision.", "embedding_projection.weight", 2,
            (int64_t[]){N_TEXT, N_EMBD, 0});
        for (int i = 0; i < n_layer; i++)
            add_layer(&t, i);
        ok = dg_test_write_safetensors(path, t.tensor, t.n);
    }
    dg_free(t.tensor);
    dg_free(t.name);
    dg_free(t.random);
    dg_free(t.around);
    return ok;
}

/* ---- the run ---- */

/* Multiply-adds of the matrices and of attention, two operations each. */
static double operations(int n_patch, int n_layer)
{
    double n = n_patch, square = 4.0 * N_EMBD * N_EMBD, mlp = 3.0 * N_EMBD * N_FF;
    double layer = 2 * n * (square + mlp) + 4 * n * n * N_EMBD;
    return layer * n_layer + 2 * n * 768 * N_EMBD + 2 * n / 9 * N_EMBD * N_TEXT;
}

/* Processor seconds of all threads: what is left of a busy machine's wall clock. */
static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A tower on a device, and its features in host memory. */
typedef struct seer {
    dg_backend *be;
    dg_vision *v;
    float *features, *host;
    size_t bytes;
} seer;

static dg_config tower_config(int n_layer)
{
    dg_config cfg = {.n_embd = N_TEXT};
    cfg.vision = (dg_vision_config){.present = true,
                                    .n_embd = N_EMBD,
                                    .n_ff = N_FF,
                                    .n_layer = n_layer,
                                    .n_head = N_HEAD,
                                    .head_dim = HEAD_DIM,
                                    .patch = 16,
                                    .pool = 3,
                                    .n_position = N_POSITION,
                                    .standardize = true,
                                    .rms_eps = 1e-6f,
                                    .rope_theta = 100};
    return cfg;
}

static dgemma_status seer_open(seer *s, const options *o, const char *device,
                               const dg_checkpoint *ck, dgemma_error *err)
{
    dg_config cfg = tower_config(o->n_layer);
    *s = (seer){.bytes = (size_t)o->n_soft * N_TEXT * sizeof *s->features};
    dgemma_status st = dg_device_open(
        &s->be,
        &(dg_device_options){.name = device,
                             .cpu = {o->n_thread, dg_cpu_flags(), strcmp(device, o->device) != 0}},
        err);
    st = st ? st : dg_vision_load(&s->v, &cfg, ck, s->be, err);
    if (st)
        return st;
    s->features = s->be->alloc(s->be, s->bytes);
    s->host = dg_calloc(1, s->bytes);
    return s->features && s->host ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "no memory");
}

static void seer_close(seer *s)
{
    if (s->be)
        s->be->free(s->be, s->features);
    dg_free(s->host);
    dg_vision_free(s->v);
    if (s->be)
        s->be->close(s->be);
}

/* The pictures' features, on the host. */
static dgemma_status look(seer *s, const dg_vision_input *in, int n, dgemma_error *err)
{
    dgemma_status st = dg_vision_encode(s->v, in, n, s->features, err);
    if (!st)
        s->be->download(s->be, s->host, s->features, s->bytes);
    return st;
}

static double difference(const float *a, const float *b, size_t n)
{
    double error = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return sqrt(error / all);
}

/* The device's features beside the processor's, and pictures together beside each alone. */
static dgemma_status compare(const options *o, seer *s, const dg_checkpoint *ck,
                             const dg_vision_input *in, dgemma_error *err)
{
    seer cpu = {0};
    dgemma_status st = look(s, in, 1, err);
    if (!st && (o->n_layer <= MOST_COMPARED || o->compare)) {
        st = seer_open(&cpu, o, "cpu", ck, err);
        st = st ? st : look(&cpu, in, 1, err);
        if (!st)
            printf("relative difference from the processor: %.1e\n",
                   difference(s->host, cpu.host, s->bytes / sizeof(float)));
    }
    seer_close(&cpu);
    int third = o->n_soft / 3 * 3, soft = third / 3;
    dg_vision_input part[2] = {{3, soft * 3, in->pixels}, {6, soft * 3, in->pixels}};
    part[1].pixels += (size_t)soft * 9 * 768;
    float *together = dg_calloc(1, s->bytes);
    if (!st && (!together || soft < 1))
        st = dg_fail(err, DGEMMA_E_ARG, "too few soft tokens to compare");
    st = st ? st : look(s, part, 2, err);
    if (!st)
        memcpy(together, s->host, s->bytes);
    bool same = true;
    for (int i = 0, at = 0; !st && i < 2; i++) {
        size_t n = (size_t)soft * N_TEXT * (size_t)(i + 1);
        st = look(s, &part[i], 1, err);
        same = same && memcmp(s->host, together + at, n * sizeof *together) == 0;
        at += (int)n;
    }
    if (!st)
        printf("pictures together have %s features as each alone\n", same ? "the same" : "OTHER");
    dg_free(together);
    return st;
}

static void tell(const options *o, const seer *s, double best, double best_used)
{
    int n_patch = o->n_soft * 9;
    bool is_cpu = strcmp(o->device, "cpu") == 0;
    double all = operations(n_patch, o->n_layer) * 1e-9, rate = all / best, each = all / best_used,
           peak = is_cpu ? check_peak(s->be->name) : 0, percent = peak > 0 ? 100 / peak : 0,
           whole = operations(n_patch, PUBLISHED_LAYERS) * 1e-9 / rate;
    printf("%d soft tokens, %d patches, %d of %d layers, ", o->n_soft, n_patch, o->n_layer,
           PUBLISHED_LAYERS);
    if (is_cpu)
        printf("%d threads, ", o->n_thread);
    printf("%s, %.0f MiB of scratch\n", s->be->name,
           (double)dg_vision_bytes(s->v, n_patch) / (1 << 20));
    if (!is_cpu) {
        printf("%.3f ms: %.1f TFLOP/s\n", best * 1e3, rate * 1e-3);
        printf("at this rate a picture through all layers takes %.2f ms\n", whole * 1e3);
        return;
    }
    printf("%.2f s: %.1f GFLOP/s of %.1f (peak of a core x threads), %.0f %%\n", best, rate,
           peak * o->n_thread, rate / o->n_thread * percent);
    printf("%.2f processor seconds: %.1f GFLOP/s of %.1f, %.0f %%\n", best_used, each, peak,
           each * percent);
    printf("at this rate a picture through all layers takes %.1f s\n", whole);
}

static dgemma_status measure(const options *o, const char *dir, dgemma_error *err)
{
    dg_checkpoint *ck = NULL;
    seer s = {0};
    int n_patch = o->n_soft * 9;
    float *pixels = dg_calloc((size_t)n_patch * 768, sizeof *pixels);
    dgemma_status st = pixels ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "no memory");
    dg_rng_key key = {.seed = 2};
    for (int i = 0; !st && i < n_patch * 768; i++)
        pixels[i] = (float)dg_rng_uniform(&key, (uint32_t)i);
    st = st ? st : dg_checkpoint_open(&ck, dir, err);
    st = st ? st : seer_open(&s, o, o->device, ck, err);
    dg_vision_input in = {3, n_patch / 3, pixels}; /* attention does not mind the shape */
    double best = 0, best_used = 0;
    for (int i = 0; !st && i < o->n_round; i++) {
        double start = dg_clock_now(), start_used = used();
        st = dg_vision_encode(s.v, &in, 1, s.features, err);
        double t = dg_clock_now() - start, u = used() - start_used;
        best = i == 0 || t < best ? t : best;
        best_used = i == 0 || u < best_used ? u : best_used;
    }
    if (!st)
        tell(o, &s, best, best_used);
    if (!st && strcmp(o->device, "cpu") != 0)
        st = compare(o, &s, ck, &in, err);
    seer_close(&s);
    dg_checkpoint_close(ck);
    dg_free(pixels);
    return st;
}

int main(int argc, char **argv)
{
    options o = {
        .n_layer = 3, .n_thread = dg_cpu_count(), .n_soft = 280, .n_round = 2, .device = "cpu"};
    const struct {
        const char *name;
        int *value, max;
    } known[] = {{"--layers", &o.n_layer, PUBLISHED_LAYERS},
                 {"--threads", &o.n_thread, 1024},
                 {"--soft", &o.n_soft, 1120},
                 {"--rounds", &o.n_round, 1000},
                 {"--compare", &o.compare, 1}};
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            o.device = argv[i + 1];
            continue;
        }
        while (k < DG_COUNT(known) && strcmp(known[k].name, argv[i]) != 0)
            k++;
        int value = k < DG_COUNT(known) && i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (value < 1 || value > known[k].max) {
            fprintf(stderr,
                    "usage: bench_vision [--layers N] [--threads N] [--soft N] [--rounds N] "
                    "[--device NAME] [--compare 1]\n");
            return 2;
        }
        *known[k].value = value;
    }
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    dgemma_error err = {0};
    if (!dg_test_temp_make(dir)) {
        fprintf(stderr, "bench_vision: no folder for the weights\n");
        return 1;
    }
    dg_test_path(path, dir, "model.safetensors");
    dgemma_status st = write_tower(path, o.n_layer)
                           ? measure(&o, dir, &err)
                           : dg_fail(&err, DGEMMA_E_IO, "%s: cannot be written", path);
    dg_test_temp_remove(dir);
    if (st)
        fprintf(stderr, "bench_vision: %s\n", err.msg);
    return st ? 1 : 0;
}
