#include "support/write_adapter.h"
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/rng.h"
#include "format/checkpoint.h"
#include "format/gguf_names.h"
#include "format/gguf_write.h"
#include "format/safetensors.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

enum { MAX_PART = 512, NAME = 256 };

static const char *const matrices[] = {
    "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
    "self_attn.o_proj.weight", "mlp.gate_proj.weight",    "mlp.up_proj.weight",
    "mlp.down_proj.weight",    "router.proj.weight",      "experts.gate_up_proj",
    "experts.down_proj",       "gate_proj.weight",        "up_proj.weight",
    "down_proj.weight",
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && !strcmp(s + n - n_end, end);
}

/* What PEFT calls a matrix of the checkpoint, inside its tree; false: it is none. */
static bool peft_name(char out[NAME], const dg_tensor *t)
{
    static const char decoder[] = "model.decoder.";
    bool known = false;
    for (size_t i = 0; i < DG_COUNT(matrices); i++)
        known = known || ends_with(t->name, matrices[i]);
    if (!known || t->n_dim < 2 || strncmp(t->name, decoder, sizeof decoder - 1) != 0)
        return false;
    snprintf(out, NAME, "%s", t->name + sizeof decoder - 1);
    char *dot = strrchr(out, '.');
    if (ends_with(out, ".experts.gate_up_proj"))
        strcpy(dot, ".base_layer");
    else
        *dot = '\0'; /* ".weight", or the experts' "down_proj" */
    return true;
}

static dg_checkpoint *open_model(const char *path)
{
    dgemma_error err = {0};
    dg_checkpoint *ck = NULL;
    dgemma_status st = dg_checkpoint_open(&ck, path, &err);
    ck_assert_msg(!st, "%s", err.msg);
    return ck;
}

/* ---- making one ---- */

typedef struct parts {
    dg_tensor tensor[MAX_PART];
    char name[MAX_PART][NAME + 64];
    size_t n;
} parts;

static void add(parts *p, const char *name, const int64_t shape[2], double size, unsigned seed)
{
    dg_rng_key key = {.seed = seed, .stream = (uint32_t)p->n};
    ck_assert_uint_lt(p->n, MAX_PART);
    dg_tensor *t = &p->tensor[p->n];
    snprintf(p->name[p->n], sizeof p->name[0], "%s", name);
    *t = (dg_tensor){.name = p->name[p->n], .type = DG_F32, .n_dim = 2};
    memcpy(t->shape, shape, 2 * sizeof *shape);
    size_t n = (size_t)(shape[0] * shape[1]);
    float *data = dg_array(n, sizeof *data);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)(size * (2 * dg_rng_uniform(&key, (uint32_t)i) - 1));
    t->data = data;
    p->n++;
}

static void write_config(const char *dir, const dg_test_adapter *how)
{
    json_t *doc = json_pack("{s:s, s:i, s:f, s:b, s:b, s:s, s:{}, s:n}", "peft_type", "LORA", "r",
                            how->rank ? how->rank : 3, "lora_alpha",
                            how->alpha != 0 ? how->alpha : 6.0, "use_rslora", how->rslora,
                            "use_dora", 0, "bias", "none", "rank_pattern", "modules_to_save");
    char *text = json_dumps(doc, 0);
    ck_assert(dg_test_write_file(dir, "adapter_config.json", text, strlen(text)));
    free(text);
    json_decref(doc);
}

void dg_test_write_peft(const char *dir, const char *model, const dg_test_adapter *how)
{
    dg_checkpoint *ck = open_model(model);
    parts *p = dg_calloc(1, sizeof *p);
    ck_assert_ptr_nonnull(p);
    const int64_t rank = how->rank ? how->rank : 3;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        char inner[NAME], name[NAME + 64];
        if (!peft_name(inner, t))
            continue;
        const bool many = t->n_dim == 3, condition = strstr(inner, "self_conditioning.") != NULL;
        const char *tree = how->tree && !condition ? how->tree
                           : condition             ? "model.decoder."
                                                   : "model.";
        const int64_t n = many ? t->shape[0] : 1, *matrix = t->shape + many;
        if (condition && how->tree && !strstr(how->tree, "decoder"))
            continue;
        snprintf(name, sizeof name, "base_model.model.%s%s.lora_A.weight", tree, inner);
        add(p, name, (int64_t[]){n * rank, matrix[1]}, 1 / sqrt((double)matrix[1]), how->seed);
        snprintf(name, sizeof name, "base_model.model.%s%s.lora_B.weight", tree, inner);
        add(p, name, (int64_t[]){matrix[0], n * rank}, 0.01, how->seed);
    }
    mkdir(dir, 0700);
    char path[DG_TEST_PATH];
    ck_assert(dg_test_write_safetensors(dg_test_path(path, dir, "adapter_model.safetensors"),
                                        p->tensor, p->n));
    write_config(dir, how);
    for (size_t i = 0; i < p->n; i++)
        dg_free((void *)p->tensor[i].data);
    dg_free(p);
    dg_checkpoint_close(ck);
}

/* ---- reading one, in the plainest way ---- */

typedef struct peft {
    dg_file_map map;
    dg_safetensors tensors;
    double alpha;
    bool rslora;
} peft;

static void open_peft(peft *p, const char *dir)
{
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    *p = (peft){0};
    json_t *doc = json_load_file(dg_test_path(path, dir, "adapter_config.json"), 0, NULL);
    ck_assert_ptr_nonnull(doc);
    p->alpha = json_number_value(json_object_get(doc, "lora_alpha"));
    p->rslora = json_is_true(json_object_get(doc, "use_rslora"));
    json_decref(doc);
    dg_test_path(path, dir, "adapter_model.safetensors");
    ck_assert(!dg_file_map_open(&p->map, path, &err));
    ck_assert(!dg_safetensors_parse(&p->tensors, p->map.data, p->map.size, path, &err));
}

static void close_peft(peft *p)
{
    dg_safetensors_clear(&p->tensors);
    dg_file_map_close(&p->map);
}

/* One of the two halves for a matrix, as floats (dg_free); NULL: it is not changed. */
static float *half_of(const peft *p, const dg_tensor *t, char which, int64_t shape[2])
{
    char inner[NAME], name[NAME + 64];
    if (!peft_name(inner, t))
        return NULL;
    const bool condition = strstr(inner, "self_conditioning.") != NULL;
    snprintf(name, sizeof name, "base_model.model.%s%s.lora_%c.weight",
             condition ? "model.decoder." : "model.", inner, which);
    const dg_tensor *half = dg_safetensors_find(&p->tensors, name);
    if (!half)
        return NULL;
    memcpy(shape, half->shape, 2 * sizeof *shape);
    float *out = dg_array(dg_tensor_count(half), sizeof *out);
    ck_assert_ptr_nonnull(out);
    dg_tensor_widen(out, half, dg_tensor_count(half));
    return out;
}

/* W_e[o, i] += scale * sum_j B[o, j * n + e] * A[e * r + j, i] */
static void merge(float *w, const dg_tensor *t, const peft *p, double scale)
{
    int64_t of_a[2], of_b[2];
    float *a = half_of(p, t, 'A', of_a), *b = half_of(p, t, 'B', of_b);
    const int64_t n = t->n_dim == 3 ? t->shape[0] : 1, *matrix = t->shape + (t->n_dim == 3);
    if (!a || !b)
        return;
    const int64_t rank = of_a[0] / n, n_out = matrix[0], n_in = matrix[1];
    const double factor = scale * p->alpha / (p->rslora ? sqrt((double)rank) : (double)rank);
    for (int64_t e = 0; e < n; e++)
        for (int64_t o = 0; o < n_out; o++)
            for (int64_t i = 0; i < n_in; i++) {
                double sum = 0;
                for (int64_t j = 0; j < rank; j++)
                    sum += (double)b[o * rank * n + j * n + e] * a[(e * rank + j) * n_in + i];
                float *value = &w[(e * n_out + o) * n_in + i];
                *value = (float)(*value + factor * sum);
            }
    dg_free(a);
    dg_free(b);
}

void dg_test_write_merged(const char *path, const char *model, const char *from, double scale)
{
    dg_checkpoint *ck = open_model(model);
    const dg_gguf *g = dg_checkpoint_gguf(ck);
    dgemma_error err = {0};
    dg_gguf_writer w;
    peft p;
    if (from)
        open_peft(&p, from);
    dg_gguf_writer_init(&w, 0);
    for (size_t i = 0; i < g->n_value; i++)
        dg_gguf_put_copy(&w, &g->value[i]);
    size_t n = dg_checkpoint_count(ck);
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            dg_gguf_writer_open(&w, path);
        for (size_t i = 0; i < n; i++) {
            dg_tensor t = *dg_checkpoint_at(ck, i);
            char name[DG_GGUF_NAME];
            size_t count = dg_tensor_count(&t);
            if (!dg_gguf_name_of(name, t.name)) /* one that the model does not know */
                snprintf(name, sizeof name, "%s", t.name);
            if (!pass) {
                t.name = name;
                t.type = DG_F32;
                dg_gguf_put_tensor(&w, &t);
                continue;
            }
            float *values = dg_array(count, sizeof *values);
            ck_assert_ptr_nonnull(values);
            dg_tensor_widen(values, &t, count);
            if (from)
                merge(values, &t, &p, scale);
            dg_gguf_write_data(&w, values, count * sizeof *values);
            dg_free(values);
        }
    }
    ck_assert_msg(!dg_gguf_writer_close(&w, &err), "%s", err.msg);
    if (from)
        close_peft(&p);
    dg_checkpoint_close(ck);
}

/* ---- the same for llama.cpp ---- */

/* The module of a name inside its tree, as the checkpoint calls the tensor. */
static void checkpoint_name(char out[NAME], const char *inner)
{
    if (ends_with(inner, ".experts.base_layer"))
        snprintf(out, NAME, "model.decoder.%.*s.gate_up_proj",
                 (int)(strlen(inner) - strlen(".base_layer")), inner);
    else if (ends_with(inner, ".experts"))
        snprintf(out, NAME, "model.decoder.%.200s.down_proj", inner);
    else
        snprintf(out, NAME, "model.decoder.%.200s.weight", inner);
}

/* A as it is; B of experts, whose columns lie woven, by expert. */
static float *stacked(const dg_tensor *t, bool lower, int64_t n)
{
    size_t count = dg_tensor_count(t);
    float *from = dg_array(count, sizeof *from), *to = dg_array(count, sizeof *to);
    ck_assert(from && to);
    dg_tensor_widen(from, t, count);
    const int64_t rank = t->shape[1] / n, n_out = t->shape[0];
    if (lower || n == 1)
        memcpy(to, from, count * sizeof *to);
    for (int64_t e = 0; !lower && n > 1 && e < n; e++)
        for (int64_t o = 0; o < n_out; o++)
            for (int64_t j = 0; j < rank; j++)
                to[(e * n_out + o) * rank + j] = from[o * rank * n + j * n + e];
    dg_free(from);
    return to;
}

/* n experts of rank r have n * r rows in A; the config says r. */
void dg_test_write_gguf_adapter(const char *path, const char *from)
{
    peft p;
    dgemma_error err = {0};
    dg_gguf_writer w;
    char config[DG_TEST_PATH];
    open_peft(&p, from);
    json_t *doc = json_load_file(dg_test_path(config, from, "adapter_config.json"), 0, NULL);
    const int64_t rank = json_integer_value(json_object_get(doc, "r"));
    json_decref(doc);
    dg_gguf_writer_init(&w, 0);
    dg_gguf_put_string(&w, "general.architecture", "diffusion-gemma");
    dg_gguf_put_string(&w, "general.type", "adapter");
    dg_gguf_put_string(&w, "adapter.type", "lora");
    dg_gguf_put_float(&w, "adapter.lora.alpha",
                      (float)(p.rslora ? p.alpha * sqrt((double)rank) : p.alpha));
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            dg_gguf_writer_open(&w, path);
        for (size_t i = 0; i < p.tensors.n_tensor; i++) {
            const dg_tensor *t = &p.tensors.tensor[i];
            const bool lower = ends_with(t->name, ".lora_A.weight");
            const int64_t n = t->shape[!lower] / rank;
            char inner[NAME], ours[NAME], gguf[DG_GGUF_NAME], name[DG_GGUF_NAME + 16];
            const char *at = strstr(t->name, "layers.");
            at = at ? at : strstr(t->name, "self_conditioning.");
            snprintf(inner, sizeof inner, "%.*s", (int)(strlen(at) - strlen(".lora_A.weight")), at);
            checkpoint_name(ours, inner);
            ck_assert_msg(dg_gguf_name_of(gguf, ours), "%s", ours);
            snprintf(name, sizeof name, "%s.lora_%c", gguf, lower ? 'a' : 'b');
            dg_tensor to = {.name = name, .type = DG_F32, .n_dim = n > 1 ? 3 : 2};
            const int64_t rows = lower ? rank : t->shape[0], cols = lower ? t->shape[1] : rank;
            const int64_t shape[] = {n, rows, cols};
            memcpy(to.shape, shape + (n == 1), (size_t)to.n_dim * sizeof *shape);
            if (!pass) {
                dg_gguf_put_tensor(&w, &to);
                continue;
            }
            float *values = stacked(t, lower, n);
            dg_gguf_write_data(&w, values, dg_tensor_count(&to) * sizeof *values);
            dg_free(values);
        }
    }
    ck_assert_msg(!dg_gguf_writer_close(&w, &err), "%s", err.msg);
    close_peft(&p);
}
