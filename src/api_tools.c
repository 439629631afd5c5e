/* The public functions for offline work on model files. */
#include "dgemma_tools.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "bench/bench_run.h"
#include "bench/synth_file.h"
#include "convert/compare.h"
#include "convert/imatrix.h"
#include "convert/quantize.h"
#include "engine/device.h"
#include "engine/loader.h"
#include "engine/verify.h"
#include "image/preprocess.h"

/* A reference is small: a few rows of logits. */
enum { REFERENCE_MAX = 64 << 20 };

struct dgemma_file {
    dg_loaded loaded;
};

dgemma_status dgemma_file_open(dgemma_file **out, const char *path, dgemma_error *err)
{
    if (!path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    dgemma_file *f = dg_calloc(1, sizeof *f);
    if (!f)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_load(&f->loaded, path, err);
    if (!st)
        st = dg_load_tower(&f->loaded, NULL, err);
    if (st)
        dgemma_file_close(f);
    else
        *out = f;
    return st;
}

void dgemma_file_close(dgemma_file *f)
{
    if (!f)
        return;
    dg_loaded_clear(&f->loaded);
    dg_free(f);
}

const char *dgemma_file_format(const dgemma_file *f)
{
    return dg_checkpoint_gguf(f->loaded.checkpoint) ? "GGUF" : "safetensors";
}

size_t dgemma_file_count(const dgemma_file *f)
{
    return dg_checkpoint_count(f->loaded.checkpoint);
}

void dgemma_file_tensor(const dgemma_file *f, size_t i, dgemma_tensor_info *info)
{
    const dg_tensor *t = dg_checkpoint_at(f->loaded.checkpoint, i);
    *info = (dgemma_tensor_info){
        .name = t->name,
        .type = dg_dtype_name(t->type),
        .n_dim = t->n_dim,
        .bytes = t->bytes,
        .made = t->pieces != NULL,
    };
    for (int d = 0; d < t->n_dim; d++)
        info->shape[d] = t->shape[d];
}

void dgemma_file_layer(const dgemma_file *f, int i, dgemma_layer_info *info)
{
    const dg_layer_config *l = &f->loaded.cfg.layer[i];
    *info =
        (dgemma_layer_info){l->sliding, l->window, f->loaded.cfg.n_head, l->n_kv_head, l->head_dim};
}

dgemma_status dgemma_file_check(const dgemma_file *f, dgemma_error *err)
{
    return dg_loaded_check(&f->loaded, err);
}

void dgemma_file_vision(const dgemma_file *f, dgemma_vision_info *info)
{
    const dg_vision_config *v = &f->loaded.cfg.vision;
    *info = (dgemma_vision_info){.ignored = f->loaded.tower_ignored};
    if (v->present)
        *info = (dgemma_vision_info){v->n_layer,
                                     v->n_embd,
                                     v->n_head,
                                     v->patch,
                                     v->pool,
                                     v->max_soft,
                                     f->loaded.cfg.bidirectional_images,
                                     f->loaded.tower_ignored};
}

dgemma_status dgemma_file_picture(const dgemma_file *f, int width, int height, int budget,
                                  int *seen_width, int *seen_height, int *n_tokens,
                                  dgemma_error *err)
{
    const dg_vision_config *v = &f->loaded.cfg.vision;
    if (!v->present)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the model has no vision tower");
    dg_patch_rule rule = {v->patch, v->pool, budget ? budget : v->max_soft};
    dgemma_status st = dg_image_target_size(width, height, &rule, seen_width, seen_height, err);
    int unit = v->patch * v->pool;
    if (!st)
        *n_tokens = *seen_width / unit * (*seen_height / unit);
    return st;
}

dgemma_status dgemma_verify(const dgemma_engine_options *opt, const char *reference,
                            dgemma_check_fn *on_check, void *user, bool *passed, dgemma_error *err)
{
    if (!opt || !opt->model_path || !passed)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    return dg_verify_run(opt, reference, on_check, user, passed, err);
}

dgemma_status dgemma_verify_record(const dgemma_engine_options *opt, char **reference,
                                   dgemma_error *err)
{
    if (!opt || !opt->model_path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    dg_buf out;
    dg_buf_init(&out, REFERENCE_MAX);
    dgemma_status st = dg_verify_record(opt, &out, err);
    if (st)
        dg_buf_clear(&out);
    else
        *reference = out.data;
    return st;
}

dgemma_synth_options dgemma_synth_defaults(void)
{
    return (dgemma_synth_options){.shape = "26b-a4b", .type = "Q4_K_M"};
}

dgemma_status dgemma_synth(const dgemma_synth_options *opt, uint64_t *bytes, dgemma_error *err)
{
    uint64_t size = 0;
    if (!opt || !opt->path || !*opt->path)
        return dg_fail(err, DGEMMA_E_ARG, "no file was named");
    if (!opt->shape || !opt->type)
        return dg_fail(err, DGEMMA_E_ARG, "a synthetic model needs a shape and a type");
    dgemma_status st = dg_synth_write(opt, &size, err);
    if (!st && bytes)
        *bytes = size;
    return st;
}

dgemma_quantize_options dgemma_quantize_defaults(void)
{
    return (dgemma_quantize_options){.type = "Q4_K_M"};
}

dgemma_status dgemma_quantize(const dgemma_quantize_options *opt, dgemma_quantize_result *result,
                              dgemma_error *err)
{
    dgemma_quantize_result made = {0};
    if (!opt || !opt->model_path || !*opt->model_path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    if (!opt->dry_run && (!opt->path || !*opt->path))
        return dg_fail(err, DGEMMA_E_ARG, "no file to write was named");
    if (!opt->type)
        return dg_fail(err, DGEMMA_E_ARG, "no type was named");
    if (opt->n_threads < 0 || opt->n_threads > 1024)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads: 1 to 1024 can be", opt->n_threads);
    dgemma_status st = dg_quantize(opt, &made, err);
    if (!st && result)
        *result = made;
    return st;
}

dgemma_status dgemma_compare(const dgemma_compare_options *opt, dgemma_compared *total,
                             dgemma_error *err)
{
    dgemma_compared all = {0};
    if (!opt || !opt->model_path || !*opt->model_path || !opt->other_path || !*opt->other_path)
        return dg_fail(err, DGEMMA_E_ARG, "two models are to be compared");
    if (opt->n_threads < 0 || opt->n_threads > 1024)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads: 1 to 1024 can be", opt->n_threads);
    dgemma_status st = dg_compare(opt, &all, err);
    if (!st && total)
        *total = all;
    return st;
}

dgemma_status dgemma_imatrix(const dgemma_imatrix_options *opt, dgemma_imatrix_result *result,
                             dgemma_error *err)
{
    dgemma_imatrix_result made = {0};
    if (!opt || !opt->model_path || !*opt->model_path)
        return dg_fail(err, DGEMMA_E_ARG, "no model was named");
    if (!opt->text_path || !*opt->text_path)
        return dg_fail(err, DGEMMA_E_ARG, "no text was named");
    if (!opt->path || !*opt->path)
        return dg_fail(err, DGEMMA_E_ARG, "no file to write was named");
    if (opt->n_chunks < 0)
        return dg_fail(err, DGEMMA_E_ARG, "%d chunks: 1 or more can be", opt->n_chunks);
    if (opt->n_threads < 0 || opt->n_threads > 1024)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads: 1 to 1024 can be", opt->n_threads);
    dgemma_status st = dg_imatrix(opt, &made, err);
    if (!st && result)
        *result = made;
    return st;
}

dgemma_bench_options dgemma_bench_defaults(void)
{
    return (dgemma_bench_options){.engine = dgemma_engine_defaults()};
}

dgemma_status dgemma_bench(const dgemma_bench_options *opt, dgemma_error *err)
{
    if (!opt || !opt->on_result)
        return dg_fail(err, DGEMMA_E_ARG, "nobody wants to know what is measured");
    if (!opt->synthetic == !opt->engine.model_path)
        return dg_fail(err, DGEMMA_E_ARG, "measure either a model's file or a synthetic model");
    if (!opt->synthetic && (opt->shape || opt->n_layer || opt->skewed))
        return dg_fail(err, DGEMMA_E_ARG, "shape, layers and skew are those of a synthetic model");
    return dg_bench_run(opt, err);
}

size_t dgemma_devices(dgemma_device *device, size_t cap, dgemma_error *why)
{
    return dg_device_list(device, cap, why);
}
