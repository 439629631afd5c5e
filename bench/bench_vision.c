/* The vision tower at the published shape, with random weights: pictures per second, and the share
 * of the processor's own speed that this is.
 *
 *     bench_vision [--layers N] [--threads N] [--soft N] [--rounds N]
 *
 * Of 27 layers, all alike, a few are run; the rest would cost as much each. */
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
#include "kernels/check.h"
#include "model/vision.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

enum { N_EMBD = 1152, N_FF = 4304, N_HEAD = 16, HEAD_DIM = 72, N_TEXT = 2816, N_POSITION = 10240 };
enum { PUBLISHED_LAYERS = 27, PER_LAYER = 13, COMMON = 5, NAME_BYTES = 128 };

typedef struct options {
    int n_layer, n_thread, n_soft, n_round;
} options;

/* ---- a tower of random weights in a file ---- */

typedef struct tower {
    dg_tensor *tensor;
    char (*name)[NAME_BYTES];
    size_t n;
    uint16_t *random; /* every tensor takes its data from here */
} tower;

static void add(tower *t, const char *prefix, const char *name, int n_dim, const int64_t shape[3])
{
    snprintf(t->name[t->n], NAME_BYTES, "%s%s", prefix, name);
    dg_tensor *x = &t->tensor[t->n];
    *x = (dg_tensor){.name = t->name[t->n], .type = DG_BF16, .n_dim = n_dim, .data = t->random};
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
               .random = dg_array(n_random, sizeof *t.random)};
    bool ok = t.tensor && t.name && t.random;
    dg_rng_key key = {.seed = 1};
    for (size_t i = 0; ok && i < n_random; i++)
        t.random[i] = dg_float_to_bf16((float)(dg_rng_uniform(&key, (uint32_t)i) - 0.5) * 0.1f);
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

static dgemma_status measure(const options *o, const char *dir, dgemma_error *err)
{
    dg_config cfg = {.n_embd = N_TEXT};
    cfg.vision = (dg_vision_config){.present = true,
                                    .n_embd = N_EMBD,
                                    .n_ff = N_FF,
                                    .n_layer = o->n_layer,
                                    .n_head = N_HEAD,
                                    .head_dim = HEAD_DIM,
                                    .patch = 16,
                                    .pool = 3,
                                    .n_position = N_POSITION,
                                    .standardize = true,
                                    .rms_eps = 1e-6f,
                                    .rope_theta = 100};
    unsigned flags = dg_cpu_flags();
    dg_checkpoint *ck = NULL;
    dg_backend *be = NULL;
    dg_vision *v = NULL;
    int n_patch = o->n_soft * 9;
    float *pixels = dg_calloc((size_t)n_patch * 768, sizeof *pixels);
    float *features = dg_calloc((size_t)o->n_soft * N_TEXT, sizeof *features);
    dgemma_status st = pixels && features ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "no memory");
    dg_rng_key key = {.seed = 2};
    for (int i = 0; !st && i < n_patch * 768; i++)
        pixels[i] = (float)dg_rng_uniform(&key, (uint32_t)i);
    st = st ? st : dg_checkpoint_open(&ck, dir, err);
    st = st ? st : dg_cpu_open(&be, &(dg_cpu_options){o->n_thread, flags, false}, err);
    st = st ? st : dg_vision_load(&v, &cfg, ck, be, err);
    double best = 0, best_used = 0;
    for (int i = 0; !st && i < o->n_round; i++) {
        dg_vision_input in = {3, n_patch / 3, pixels}; /* attention does not mind the shape */
        double start = dg_clock_now(), start_used = used();
        st = dg_vision_encode(v, &in, 1, features, err);
        double t = dg_clock_now() - start, u = used() - start_used;
        best = i == 0 || t < best ? t : best;
        best_used = i == 0 || u < best_used ? u : best_used;
    }
    if (!st) {
        double all = operations(n_patch, o->n_layer) * 1e-9;
        double rate = all / best, each = all / best_used;
        double peak = check_peak(dg_cpu_flags_name(flags));
        double percent = peak > 0 ? 100 / peak : 0;
        printf("%d soft tokens, %d patches, %d of %d layers, %d threads, %s, %.0f MiB of scratch\n",
               o->n_soft, n_patch, o->n_layer, PUBLISHED_LAYERS, o->n_thread,
               dg_cpu_flags_name(flags), (double)dg_vision_bytes(v, n_patch) / (1 << 20));
        printf("%.2f s: %.1f GFLOP/s of %.1f (peak of a core x threads), %.0f %%\n", best, rate,
               peak * o->n_thread, rate / o->n_thread * percent);
        printf("%.2f processor seconds: %.1f GFLOP/s of %.1f, %.0f %%\n", best_used, each, peak,
               each * percent);
        printf("at this rate a picture through all layers takes %.1f s\n",
               operations(n_patch, PUBLISHED_LAYERS) * 1e-9 / rate);
    }
    dg_vision_free(v);
    if (be)
        be->close(be);
    dg_checkpoint_close(ck);
    dg_free(pixels);
    dg_free(features);
    return st;
}

int main(int argc, char **argv)
{
    options o = {.n_layer = 3, .n_thread = dg_cpu_count(), .n_soft = 280, .n_round = 2};
    const struct {
        const char *name;
        int *value, max;
    } known[] = {{"--layers", &o.n_layer, PUBLISHED_LAYERS},
                 {"--threads", &o.n_thread, 1024},
                 {"--soft", &o.n_soft, 1120},
                 {"--rounds", &o.n_round, 1000}};
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < DG_COUNT(known) && strcmp(known[k].name, argv[i]) != 0)
            k++;
        int value = k < DG_COUNT(known) && i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (value < 1 || value > known[k].max) {
            fprintf(stderr,
                    "usage: bench_vision [--layers N] [--threads N] [--soft N] [--rounds N]\n");
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
