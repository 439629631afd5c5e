#include "fixture.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "engine/device.h"

/* ---- open and close ---- */

/* Holds a file to its FNV-1a, so that a model that was trained anew is called by its name and not
 * by the first value that differs. */
static dgemma_status check_file(const char *path, const char *want, dgemma_error *err)
{
    dg_file_map file = {0};
    dgemma_status st = dg_file_map_open(&file, path, err);
    if (st)
        return st;
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < file.size; i++)
        hash = (hash ^ ((const unsigned char *)file.data)[i]) * 0x100000001B3u;
    dg_file_map_close(&file);
    char got[17];
    snprintf(got, sizeof got, "%016llx", (unsigned long long)hash);
    if (!want || strcmp(got, want) != 0)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s hashes to %s, the trace was made with %s: make the trace again", path,
                       got, want ? want : "?");
    return DGEMMA_OK;
}

static dgemma_status read_says(fixture *fx, const json_t *doc, dgemma_error *err)
{
    const char *kind = json_string_value(json_object_get(doc, "kind"));
    const char *model = json_string_value(json_object_get(doc, "model"));
    snprintf(fx->kind, sizeof fx->kind, "%s", kind ? kind : "");
    snprintf(fx->model_path, sizeof fx->model_path, "%s", model ? model : "");
    json_t *limit = json_object_get(json_object_get(doc, "generation"), "max_new_tokens");
    fx->max_new_tokens = (int)json_integer_value(limit);
    const json_t *narrow = json_object_get(doc, "bfloat16");
    bool served = fx->opt.as_served;
    fx->tol_encoder = served ? json_number_value(json_object_get(narrow, "encoder")) : TOL_ENCODER;
    fx->tol_logits = served ? json_number_value(json_object_get(narrow, "logits")) : TOL_LOGITS;
    if (fx->opt.weights)
        fx->tol_encoder = fx->tol_logits = 1e9;
    const char *path;
    json_t *hash;
    dgemma_status st = DGEMMA_OK;
    json_object_foreach(json_object_get(doc, "files"), path, hash) st =
        st ? st : check_file(path, json_string_value(hash), err);
    return st;
}

static dgemma_status read_trace(fixture *fx, dgemma_error *err)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/trace.json", fx->dir);
    json_error_t bad;
    json_t *doc = json_load_file(path, JSON_REJECT_DUPLICATES, &bad);
    if (!doc)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %s", path, bad.text);
    dgemma_status st = read_says(fx, doc, err);
    json_decref(doc);
    if (st)
        return st;

    snprintf(path, sizeof path, "%s/trace.safetensors", fx->dir);
    st = dg_file_map_open(&fx->trace_file, path, err);
    return st ? st
              : dg_safetensors_parse(&fx->trace, fx->trace_file.data, fx->trace_file.size, path,
                                     err);
}

static dgemma_status read_model(fixture *fx, dgemma_error *err)
{
    char own[1024];
    snprintf(own, sizeof own, "%s/model", fx->dir);
    dgemma_status st = dg_load(&fx->loaded, fx->model_path[0] ? fx->model_path : own, err);
    if (!st)
        st = dg_load_tower(&fx->loaded, NULL, err);
    fx->cfg = fx->loaded.cfg;
    fx->gen = fx->loaded.generation;
    return st;
}

/* The folder adapter/ of the fixture, if there is one, counts in everything that is computed. */
static dgemma_status read_adapter(fixture *fx, dgemma_error *err)
{
    char path[512];
    dg_adapter adapter = {0};
    snprintf(path, sizeof path, "%s/adapter", fx->dir);
    fx->n_adapter = dg_file_exists(path);
    fx->adapter = (dg_adapter_use){0, 1};
    if (!fx->n_adapter)
        return DGEMMA_OK;
    dgemma_status st = dg_adapter_open(&adapter, path, err);
    st = st ? st : dg_model_adapt(fx->model, &adapter, 1, err);
    dg_adapter_close(&adapter);
    return st;
}

dgemma_status fixture_open(fixture *fx, const char *dir, const golden_options *opt,
                           dgemma_error *err)
{
    *fx = (fixture){.dir = dir, .opt = *opt};
    dgemma_status st = read_trace(fx, err);
    if (!st)
        st = read_model(fx, err);
    bool made = opt->weights && strcmp(opt->device, "cpu") != 0 && opt->weights[0] >= 'a';
    if (!st)
        st = dg_device_open(
            &fx->be,
            &(dg_device_options){.name = opt->device,
                                 .exact = !opt->as_served && !made,
                                 .cpu = {opt->n_thread, opt->cpu_flags, !opt->as_served},
                                 .weights = made ? opt->weights : NULL},
            err);
    if (!st && opt->weights && !made)
        st = golden_round_weights(fx->be, opt->weights, err);
    if (!st)
        st = dg_model_load(&fx->model, &fx->cfg, fx->loaded.checkpoint, fx->be, err);
    if (!st)
        st = read_adapter(fx, err);
    if (!st && fx->be->vision_plan)
        st = dg_vision_load(&fx->vision, &fx->cfg,
                            fx->loaded.mmproj ? fx->loaded.mmproj : fx->loaded.checkpoint, fx->be,
                            err);
    if (!st)
        st = dg_kv_cache_create(&fx->kv, &fx->cfg, fx->be,
                                opt->as_served || made ? DG_BF16 : DG_F32, 0, err);
    if (!st)
        st = dg_forward_create(&fx->forward, fx->model, fx->kv,
                               dg_max(1024, 2 * fx->cfg.canvas_length), 1, err);
    return st;
}

void fixture_close(fixture *fx)
{
    dg_forward_free(fx->forward);
    dg_kv_cache_free(fx->kv);
    dg_vision_free(fx->vision);
    dg_model_free(fx->model);
    if (fx->be)
        fx->be->close(fx->be);
    golden_rounded_free();
    dg_loaded_clear(&fx->loaded);
    dg_safetensors_clear(&fx->trace);
    dg_file_map_close(&fx->trace_file);
}

/* ---- the trace ---- */

const dg_tensor *fixture_tensor(fixture *fx, const char *name, dg_dtype type, dgemma_error *err)
{
    const dg_tensor *t = dg_safetensors_find(&fx->trace, name);
    if (!t) {
        dg_fail(err, DGEMMA_E_FORMAT, "the trace lacks %s", name);
        return NULL;
    }
    if (t->type != type) {
        dg_fail(err, DGEMMA_E_FORMAT, "%s is of type %s, not %s", name, dg_dtype_name(t->type),
                dg_dtype_name(type));
        return NULL;
    }
    return t;
}

dgemma_status fixture_ids(fixture *fx, const char *name, int32_t **out, int *n, dgemma_error *err)
{
    const dg_tensor *t = fixture_tensor(fx, name, DG_I64, err);
    if (!t)
        return DGEMMA_E_FORMAT;
    *n = (int)dg_tensor_count(t);
    *out = dg_array((size_t)*n, sizeof **out);
    if (!*out)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = 0; i < *n; i++) {
        int64_t id;
        memcpy(&id, (const unsigned char *)t->data + (size_t)i * sizeof id, sizeof id);
        (*out)[i] = (int32_t)id;
    }
    return DGEMMA_OK;
}

dgemma_status fixture_compare_to(fixture *fx, const char *what, const float *got, const float *want,
                                 size_t n, double tol, double *worst, dgemma_error *err)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        off += d * d;
        size += (double)want[i] * want[i];
    }
    double error = size > 0 ? sqrt(off / size) : sqrt(off);
    fx->n_compared++;
    if (!(error <= *worst))
        *worst = error;
    if (!(error <= tol))
        return dg_fail(err, DGEMMA_E_INTERNAL, "%s is off by %.3g, allowed is %.3g", what, error,
                       tol);
    return DGEMMA_OK;
}

dgemma_status fixture_compare(fixture *fx, const char *name, const float *got, size_t n, double tol,
                              double *worst, dgemma_error *err)
{
    const dg_tensor *t = fixture_tensor(fx, name, DG_F32, err);
    if (!t)
        return DGEMMA_E_FORMAT;
    if (dg_tensor_count(t) != n)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s has %zu values, computed were %zu", name,
                       dg_tensor_count(t), n);
    float *want = dg_array(n, sizeof *want);
    if (!want)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    memcpy(want, t->data, n * sizeof *want);
    dgemma_status st = fixture_compare_to(fx, name, got, want, n, tol, worst, err);
    dg_free(want);
    return st;
}

/* ---- passes ---- */

/* Compares the residual stream before every layer as it goes by. */
typedef struct watch {
    fixture *fx;
    const char *prefix;
    double tol, *worst;
    dgemma_status st;
    dgemma_error *err;
} watch;

static void watch_hidden(void *arg, int layer, const float *x, int n_row)
{
    watch *w = arg;
    char name[96];
    snprintf(name, sizeof name, "%s.hidden.%d", w->prefix, layer);
    if (!w->st)
        w->st = fixture_compare(w->fx, name, x, (size_t)n_row * (size_t)w->fx->cfg.n_embd, w->tol,
                                w->worst, w->err);
}

/* How many tokens from `at` on go into one pass: `step`, or up to the end of the image block there.
 */
static int chunk_of(const encode_job *job, int at, int base, int step)
{
    int end = dg_min(at + step, job->n);
    while (job->block && end < job->n && job->block[end].first < base + end)
        end++;
    return end - at;
}

dgemma_status fixture_encode(fixture *fx, const encode_job *job, dgemma_error *err)
{
    size_t n_embd = (size_t)fx->cfg.n_embd;
    int step = fx->opt.chunk ? fx->opt.chunk : dg_forward_max_row(fx->forward);
    watch w = {fx, job->hidden, fx->tol_encoder, &fx->worst_encoder, DGEMMA_OK, err};
    bool watching = job->hidden && step >= job->n;
    int base = job->seq->n_token;
    for (int at = 0, n; at < job->n; at += n) {
        n = chunk_of(job, at, base, step);
        dg_work work = {
            .seq = job->seq,
            .token = job->token + at,
            .n_token = n,
            .block = job->block ? job->block + at : NULL,
            .feature = job->feature ? job->feature + at : NULL,
            .features = job->features,
            .adapter = &fx->adapter,
            .n_adapter = fx->n_adapter,
        };
        dg_taps taps = {
            .encoded = job->encoded ? job->encoded + (size_t)at * n_embd : NULL,
            .hidden = watching ? watch_hidden : NULL,
            .hidden_arg = &w,
        };
        dg_pass pass = {.work = &work, .n_work = 1, .taps = &taps};
        dgemma_status st = dg_forward_run(fx->forward, &pass, err);
        if (st || w.st)
            return st ? st : w.st;
    }
    return DGEMMA_OK;
}

dgemma_status fixture_denoise(fixture *fx, const denoise_job *job, dgemma_error *err)
{
    size_t n = (size_t)job->n;
    float *soft = fx->be->alloc(fx->be, n * (size_t)fx->cfg.n_embd * sizeof *soft),
          *entropy = dg_calloc(n, sizeof *entropy);
    double *uniform = dg_calloc(n, sizeof *uniform);
    int32_t *id = dg_calloc(2 * n, sizeof *id);
    dgemma_status st = DGEMMA_E_NOMEM;
    if (soft && entropy && uniform && id) {
        watch w = {fx, job->hidden, fx->tol_logits, &fx->worst_logits, DGEMMA_OK, err};
        if (job->soft)
            fx->be->copy(fx->be, soft, job->soft, n * (size_t)fx->cfg.n_embd * sizeof *soft);
        dg_work work = {
            .seq = job->seq,
            .canvas = job->canvas,
            .n_canvas = job->n,
            .soft = soft,
            .first_step = !job->soft,
            .temperature = 1,
            .uniform = uniform,
            .entropy = entropy,
            .argmax = id,
            .drawn = id + n,
            .adapter = &fx->adapter,
            .n_adapter = fx->n_adapter,
        };
        dg_taps taps = {
            .logits = job->logits, .hidden = job->hidden ? watch_hidden : NULL, .hidden_arg = &w};
        st =
            dg_forward_run(fx->forward, &(dg_pass){.work = &work, .n_work = 1, .taps = &taps}, err);
        st = st ? st : w.st;
    }
    fx->be->free(fx->be, soft);
    dg_free(entropy);
    dg_free(uniform);
    dg_free(id);
    return st;
}

dgemma_status fixture_soften(fixture *fx, float *soft, const float *logits, int n,
                             dgemma_error *err)
{
    float *entropy = dg_calloc((size_t)n, sizeof *entropy);
    double *uniform = dg_calloc((size_t)n, sizeof *uniform);
    int32_t *id = dg_calloc(2 * (size_t)n, sizeof *id);
    dgemma_status st = DGEMMA_E_NOMEM;
    if (entropy && uniform && id)
        st = dg_forward_read(fx->forward,
                             &(dg_reading){.logits = logits,
                                           .uniform = uniform,
                                           .n = n,
                                           .soft = soft,
                                           .entropy = entropy,
                                           .argmax = id,
                                           .drawn = id + n},
                             err);
    dg_free(entropy);
    dg_free(uniform);
    dg_free(id);
    return st;
}
