#include "convert/folder.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/pool.h"
#include "convert/adapter_merge.h"
#include "convert/folder_files.h"
#include "convert/folder_rows.h"
#include "convert/quantize_plan.h"
#include "format/quantisation_put.h"
#include "format/safetensors_write.h"
#include "model/model.h"
#include "model/vision.h"

/* Rows of about so many values are a task. */
enum { TASK_VALUES = 1 << 16, MAX_THREADS = 256, MODULE_NAME = 2 * DG_GGUF_NAME };

static const struct {
    const char *name;
    dg_folder_form form;
} forms[] = {{"BF16", DG_FOLDER_BF16}, {"FP8", DG_FOLDER_FP8}, {"NVFP4", DG_FOLDER_NVFP4}};

/* What one thread needs for its rows, and what it found out about them. */
typedef struct worker {
    dg_rows_scratch scratch;
    dgemma_status st;
    dgemma_error why;
} worker;

typedef struct folder {
    const dgemma_quantize_options *opt;
    dgemma_quantize_result *result;
    int form; /* in forms */
    dg_loaded l;
    dg_quantize_plan plan;
    dg_merging merge;
    dg_folder_documents documents; /* of a GGUF source */
    dg_planned *kept;              /* [n_kept] tensors of the tower, which stay as they are */
    size_t n_kept;
    dg_safetensors_writer w;
    dg_pool *pool;
    worker *worker;
    int n_worker;

    /* one matrix of a planned tensor: an expert's, or the only one */
    const dg_planned *now;
    int64_t matrix, n_row;
    size_t n_in, task_rows;
    float *values, *back; /* [n_row, n_in] */
    uint8_t *numbers;     /* of E4M3, or nibbles */
    uint8_t *group_scale; /* [n_row, n_in / DG_NVFP4_GROUP] */
    float *row_scale;     /* [n_row] */
    float divisor;

    dg_rows_error error, total;
    double done, all; /* values */
} folder;

bool dg_folder_is_asked(const dgemma_quantize_options *opt)
{
    const size_t n = opt->path ? strlen(opt->path) : 0;
    const bool gguf = n >= 5 && strcmp(opt->path + n - 5, ".gguf") == 0;
    bool known = false;
    for (size_t i = 0; i < DG_COUNT(forms); i++)
        known = known || dg_preset_same(opt->type, forms[i].name);
    return known && (!dg_preset_find(opt->type) || (n && !gguf));
}

/* ---- what is written ---- */

/* A part of a planned tensor's matrix that is a module in the folder. */
typedef struct module {
    char name[MODULE_NAME];
    int64_t first, n_row; /* rows of the matrix */
} module;

static bool ends(const char *name, const char *in)
{
    const size_t n = strlen(name), k = strlen(in);
    return n >= k && strcmp(name + n - k, in) == 0;
}

/* The modules that matrix `mat` of a planned tensor is: gate and up of an expert are two. 0: the
 * tensor is not quantised. */
static int modules_of(const folder *f, const dg_planned *to, int64_t mat, module out[2])
{
    static const char both[] = ".experts.gate_up_proj", down[] = ".experts.down_proj",
                      weight[] = ".weight";
    const dg_tensor *t = &to->tensor;
    char name[DG_GGUF_NAME];
    if (t->n_dim < 2 || !dg_gguf_rename(name, to->name))
        return 0;
    const int n_row = (int)t->shape[t->n_dim - 2], stem = (int)strlen(name);
    int n = 1;
    out[0] = (module){.n_row = n_row};
    if (ends(name, both)) {
        const int cut = stem - (int)strlen("gate_up_proj");
        out[0].n_row = n_row / 2;
        out[1] = (module){.first = n_row / 2, .n_row = n_row / 2};
        snprintf(out[0].name, MODULE_NAME, "%.*s%lld.gate_proj", cut, name, (long long)mat);
        snprintf(out[1].name, MODULE_NAME, "%.*s%lld.up_proj", cut, name, (long long)mat);
        n = 2;
    } else if (ends(name, down)) {
        const int cut = stem - (int)strlen("down_proj");
        snprintf(out[0].name, MODULE_NAME, "%.*s%lld.down_proj", cut, name, (long long)mat);
    } else if (ends(name, weight)) {
        snprintf(out[0].name, MODULE_NAME, "%.*s", stem - (int)strlen(weight), name);
    } else {
        return 0;
    }
    return dg_folder_quantises(forms[f->form].form, out[0].name) ? n : 0;
}

static void put(folder *f, const char *of, const char *suffix, dg_dtype type, int64_t n_row,
                int64_t n_col)
{
    char name[MODULE_NAME + 32];
    snprintf(name, sizeof name, "%s.%s", of, suffix);
    const dg_tensor t = {
        .name = name, .type = type, .n_dim = n_col ? 2 : 1, .shape = {n_row, n_col}};
    dg_safetensors_put(&f->w, &t);
    f->result->n_tensors++;
    f->result->tensor_bytes += dg_dtype_bytes(type, dg_tensor_count(&t));
}

static void put_module(folder *f, const module *m, int64_t n_in)
{
    if (forms[f->form].form == DG_FOLDER_FP8) {
        put(f, m->name, "weight", DG_F8_E4M3, m->n_row, n_in);
        put(f, m->name, "weight_scale", DG_F32, m->n_row, 1);
        return;
    }
    put(f, m->name, "weight_packed", DG_U8, m->n_row, n_in / 2);
    put(f, m->name, "weight_scale", DG_F8_E4M3, m->n_row, n_in / DG_NVFP4_GROUP);
    put(f, m->name, "weight_global_scale", DG_F32, 1, 0);
}

/* Floats stay what they are, but where all is to be BF16. */
static dg_dtype plain_type(const folder *f, const dg_tensor *from)
{
    return forms[f->form].form == DG_FOLDER_BF16 || from->type >= DG_DTYPE_FLOAT ? DG_BF16
                                                                                 : from->type;
}

static void put_plain(folder *f, dg_planned *to, const char *name)
{
    dg_tensor *t = &to->tensor;
    t->type = plain_type(f, to->from[0]);
    t->bytes = dg_dtype_bytes(t->type, dg_tensor_count(t));
    dg_tensor shown = *t;
    shown.name = name;
    dg_safetensors_put(&f->w, &shown);
    f->result->n_tensors++;
    f->result->tensor_bytes += t->bytes;
}

static dgemma_status put_planned(folder *f, dg_planned *to, dgemma_error *err)
{
    module m[2];
    char name[DG_GGUF_NAME];
    dg_tensor *t = &to->tensor;
    const int64_t n_mat = t->n_dim == 3 ? t->shape[0] : 1, n_in = (int64_t)dg_rows_length(to);
    if (!dg_gguf_rename(name, to->name))
        return DGEMMA_OK; /* rope_freqs, which a folder's config says */
    f->all += (double)dg_tensor_count(t);
    f->result->n_weights += dg_tensor_count(t);
    for (int k = 0; k < 2; k++)
        f->result->source_bytes += to->from[k] ? to->from[k]->bytes : 0;
    if (!modules_of(f, to, 0, m)) {
        put_plain(f, to, name);
        return DGEMMA_OK;
    }
    if (forms[f->form].form == DG_FOLDER_NVFP4 && n_in % DG_NVFP4_GROUP)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s has rows of %lld values, and %s has a scale for each %d", name,
                       (long long)n_in, forms[f->form].name, DG_NVFP4_GROUP);
    t->type = DG_F32; /* on the way */
    f->result->requantized |= to->from[0]->type >= DG_DTYPE_FLOAT;
    for (int64_t i = 0; i < n_mat; i++)
        for (int k = 0, n = modules_of(f, to, i, m); k < n; k++)
            put_module(f, &m[k], n_in);
    return DGEMMA_OK;
}

static dgemma_status put_all(folder *f, dgemma_error *err)
{
    const dg_checkpoint *tower = f->l.mmproj ? f->l.mmproj : f->l.checkpoint;
    const size_t n = dg_checkpoint_count(tower);
    dgemma_status st = DGEMMA_OK;
    f->kept = dg_array(n + 1, sizeof *f->kept);
    if (!f->kept)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; !st && i < f->plan.n; i++)
        st = put_planned(f, &f->plan.tensor[i], err);
    for (size_t i = 0; !st && i < n; i++) {
        const dg_tensor *t = dg_checkpoint_at(tower, i);
        if (!dg_vision_owns(t->name))
            continue;
        if (t->type >= DG_DTYPE_COMPUTE || !dg_tensor_count(t))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s is empty, or of type %s, which weights cannot have", t->name,
                           dg_dtype_name(t->type));
        dg_planned *to = &f->kept[f->n_kept++];
        *to = (dg_planned){.tensor = *t, .from = {t}};
        snprintf(to->name, sizeof to->name, "%.*s", DG_GGUF_NAME - 1, t->name);
        f->all += (double)dg_tensor_count(t);
        f->result->n_weights += dg_tensor_count(t);
        f->result->source_bytes += t->bytes;
        put_plain(f, to, t->name);
    }
    return st;
}

/* ---- threads ---- */

static dgemma_status start(folder *f, dgemma_error *err)
{
    size_t most = TASK_VALUES, row = TASK_VALUES;
    const int n_thread = f->opt->n_threads ? dg_min(f->opt->n_threads, MAX_THREADS)
                                           : dg_min(dg_cpu_count(), MAX_THREADS);
    module m[2];
    for (size_t i = 0; i < f->plan.n; i++) {
        const dg_planned *to = &f->plan.tensor[i];
        const dg_tensor *t = &to->tensor;
        const size_t length = dg_rows_length(to),
                     all = dg_tensor_count(t) / (t->n_dim == 3 ? (size_t)t->shape[0] : 1);
        row = length > row ? length : row;
        if (modules_of(f, to, 0, m))
            most = all > most ? all : most;
    }
    for (size_t i = 0; i < f->n_kept; i++)
        row = dg_rows_length(&f->kept[i]) > row ? dg_rows_length(&f->kept[i]) : row;
    f->values = dg_array(most, sizeof(float));
    f->back = dg_array(most > row ? most : row, sizeof(float));
    f->numbers = dg_malloc(most);
    f->group_scale = dg_malloc(most);
    f->row_scale = dg_array(most, sizeof(float));
    f->worker = dg_calloc((size_t)n_thread, sizeof *f->worker);
    bool ok = f->values && f->back && f->numbers && f->group_scale && f->row_scale && f->worker;
    for (int i = 0; ok && i < n_thread; i++, f->n_worker++)
        ok = dg_rows_scratch_init(&f->worker[i].scratch, row);
    if (!ok)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for matrices of %zu values", most);
    return dg_pool_create(&f->pool, n_thread, err);
}

static void widen_task(void *arg, int task, int at)
{
    folder *f = arg;
    worker *w = &f->worker[at];
    const int64_t first = task * (int64_t)f->task_rows, left = f->n_row - first,
                  n = left < (int64_t)f->task_rows ? left : (int64_t)f->task_rows;
    dg_rows_error ignored = {0};
    dgemma_error why = {0};
    dgemma_status st = dg_rows_make((unsigned char *)(f->values + (size_t)first * f->n_in), f->now,
                                    f->matrix * f->n_row + first, n, &w->scratch, &ignored, &why);
    if (st && !w->st) {
        w->st = st;
        w->why = why;
    }
}

static void quantise_task(void *arg, int task, int at)
{
    (void)at;
    folder *f = arg;
    const size_t n = f->n_in, end = (size_t)f->n_row;
    for (size_t r = (size_t)task * f->task_rows; r < end && r < (size_t)(task + 1) * f->task_rows;
         r++) {
        const size_t from = r * n;
        if (forms[f->form].form == DG_FOLDER_FP8)
            dg_fp8_row(f->numbers + from, &f->row_scale[r], f->back + from, f->values + from, n);
        else
            dg_nvfp4_row(f->numbers + from / 2, f->group_scale + from / DG_NVFP4_GROUP,
                         f->back + from, f->values + from, n, f->divisor);
    }
}

/* ---- content ---- */

static dgemma_status tell(folder *f, double values, dgemma_error *err)
{
    f->done += values;
    if (!f->opt->on_progress || f->opt->on_progress(f->opt->user, f->done / f->all))
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_CANCELLED, "given up");
}

/* Gate and up of an expert have one divisor, since engines multiply with both together. */
static dgemma_status quantise_matrix(folder *f, dgemma_error *err)
{
    const size_t n = (size_t)f->n_row * f->n_in;
    f->task_rows = TASK_VALUES / f->n_in ? TASK_VALUES / f->n_in : 1;
    const int n_task = (int)((size_t)(f->n_row - 1) / f->task_rows + 1);
    dg_pool_run(f->pool, n_task, widen_task, f);
    for (int i = 0; i < f->n_worker; i++)
        if (f->worker[i].st)
            return dg_fail(err, f->worker[i].st, "%s", f->worker[i].why.msg);
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(f->values[i]));
    f->divisor = dg_nvfp4_divisor(most);
    dg_pool_run(f->pool, n_task, quantise_task, f);
    for (size_t i = 0; i < n; i++) {
        const double x = (double)f->values[i], d = (double)f->back[i] - x;
        f->error.off += d * d;
        f->error.size += x * x;
    }
    return DGEMMA_OK;
}

static void write_module(folder *f, const module *m)
{
    const size_t from = (size_t)m->first * f->n_in, n = (size_t)m->n_row * f->n_in;
    if (forms[f->form].form == DG_FOLDER_FP8) {
        dg_safetensors_write(&f->w, f->numbers + from, n);
        dg_safetensors_write(&f->w, f->row_scale + m->first, (size_t)m->n_row * sizeof(float));
        return;
    }
    dg_safetensors_write(&f->w, f->numbers + from / 2, n / 2);
    dg_safetensors_write(&f->w, f->group_scale + from / DG_NVFP4_GROUP, n / DG_NVFP4_GROUP);
    dg_safetensors_write(&f->w, &f->divisor, sizeof f->divisor);
}

static dgemma_status write_quantised(folder *f, dgemma_error *err)
{
    const dg_tensor *t = &f->now->tensor;
    const int64_t n_mat = t->n_dim == 3 ? t->shape[0] : 1;
    module m[2];
    dgemma_status st = DGEMMA_OK;
    f->n_row = t->shape[t->n_dim - 2];
    f->n_in = dg_rows_length(f->now);
    for (f->matrix = 0; !st && f->matrix < n_mat && !f->w.error.status; f->matrix++) {
        st = quantise_matrix(f, err);
        const int n = modules_of(f, f->now, f->matrix, m);
        for (int k = 0; !st && k < n; k++)
            write_module(f, &m[k]);
        st = st ? st : tell(f, (double)f->n_row * (double)f->n_in, err);
    }
    return st;
}

static dgemma_status write_plain(folder *f, const dg_planned *to, dgemma_error *err)
{
    const size_t length = dg_rows_length(to), bytes = dg_dtype_bytes(to->tensor.type, length);
    const int64_t n_row = (int64_t)(dg_tensor_count(&to->tensor) / length),
                  some = TASK_VALUES / length ? (int64_t)(TASK_VALUES / length) : 1;
    dgemma_status st = DGEMMA_OK;
    for (int64_t at = 0; !st && at < n_row; at += some) {
        const int64_t n = n_row - at < some ? n_row - at : some;
        st = dg_rows_make((unsigned char *)f->back, to, at, n, &f->worker[0].scratch, &f->error,
                          err);
        if (!st)
            dg_safetensors_write(&f->w, f->back, (size_t)n * bytes);
        st = st ? st : tell(f, (double)n * (double)length, err);
    }
    return st;
}

static void report(folder *f, const dg_planned *to, bool quantised)
{
    const dg_tensor *t = &to->tensor;
    const dg_rows_error *e = &f->error;
    const size_t n = dg_tensor_count(t);
    const bool fp8 = forms[f->form].form == DG_FOLDER_FP8;
    dgemma_quantized info = {.name = to->name,
                             .from = dg_dtype_name(to->from[0]->type),
                             .type = quantised ? forms[f->form].name : dg_dtype_name(t->type),
                             .n_dim = t->n_dim,
                             .bytes = !quantised ? t->bytes
                                      : fp8      ? n
                                                 : n / 2 + n / DG_NVFP4_GROUP,
                             .error = e->size > 0 ? sqrt(e->off / e->size) : 0};
    for (int i = 0; i < t->n_dim; i++)
        info.shape[i] = t->shape[i];
    if (f->opt->on_tensor)
        f->opt->on_tensor(f->opt->user, &info);
    f->total.off += e->off;
    f->total.size += e->size;
    f->error = (dg_rows_error){0};
}

static dgemma_status write_tensors(folder *f, dgemma_error *err)
{
    dgemma_status st = start(f, err);
    module m[2];
    char name[DG_GGUF_NAME];
    for (size_t i = 0; !st && i < f->plan.n && !f->w.error.status; i++) {
        dg_planned *to = &f->plan.tensor[i];
        f->now = to;
        const bool quantised = modules_of(f, f->now, 0, m) > 0;
        if (!dg_gguf_rename(name, f->now->name))
            continue;
        st = dg_merge_begin(&f->merge, to, err);
        if (!st)
            st = quantised ? write_quantised(f, err) : write_plain(f, to, err);
        dg_merge_end(to);
        if (!st && !f->w.error.status)
            report(f, f->now, quantised);
        for (int k = 0; k < 2 && f->now->from[k]; k++)
            dg_checkpoint_forget(f->l.checkpoint, f->now->from[k]);
    }
    for (size_t i = 0; !st && i < f->n_kept && !f->w.error.status; i++)
        st = write_plain(f, &f->kept[i], err);
    return st ? st : dg_loaded_intact(&f->l, err);
}

static dgemma_status write_weights(folder *f, const char *path, dgemma_error *err)
{
    dg_safetensors_writer_open(&f->w, path);
    dgemma_status st = f->w.error.status ? DGEMMA_OK : write_tensors(f, err);
    if (st)
        dg_safetensors_writer_give_up(&f->w);
    dgemma_error why = {0};
    dgemma_status closed = dg_safetensors_writer_close(&f->w, &why);
    return st || !closed ? st : dg_fail(err, closed, "%s", why.msg);
}

/* ---- all of it ---- */

/* A tower beside a GGUF file belongs into the folder: one that cannot is not left out silently. */
static dgemma_status load_tower(folder *f, dgemma_error *err)
{
    dgemma_status st = dg_load_tower(&f->l, NULL, err);
    if (!st && f->l.tower_ignored)
        return dg_fail(err, DGEMMA_E_FORMAT, "the vision tower beside the model: %s",
                       f->l.tower_ignored);
    return st || !f->l.mmproj ? st : dg_vision_check(&f->l.cfg, f->l.mmproj, err);
}

static dgemma_status open_source(folder *f, dgemma_error *err)
{
    const dgemma_quantize_options *opt = f->opt;
    while (!dg_preset_same(opt->type, forms[f->form].name))
        f->form++;
    if (opt->path && ends(opt->path, ".gguf"))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s is written as a folder and not as a GGUF file: %s would be one",
                       forms[f->form].name, opt->path);
    if (opt->importance_path || opt->mmproj_path)
        return dg_fail(err, DGEMMA_E_ARG,
                       "a folder is made without an importance file, and has the vision tower "
                       "inside");
    dgemma_status st = dg_load(&f->l, opt->model_path, err);
    if (!st && dg_checkpoint_gguf(f->l.checkpoint)) {
        st = load_tower(f, err);
        st = st ? st : dg_folder_documents_make(&f->documents, &f->l, err);
    }
    st = st ? st : dg_model_check(&f->l.cfg, f->l.checkpoint, err);
    st = st ? st : dg_quantize_plan_make(&f->plan, &f->l, dg_preset_find("BF16"), NULL, err);
    return st ? st : dg_merge_open(&f->merge, opt->adapters, opt->n_adapters, &f->plan, err);
}

static void clear(folder *f)
{
    dg_safetensors_writer_close(&f->w, NULL);
    dg_pool_free(f->pool);
    for (int i = 0; i < f->n_worker; i++)
        dg_rows_scratch_clear(&f->worker[i].scratch);
    dg_free(f->worker);
    dg_free(f->values);
    dg_free(f->back);
    dg_free(f->numbers);
    dg_free(f->group_scale);
    dg_free(f->row_scale);
    dg_free(f->kept);
    dg_merge_close(&f->merge);
    dg_quantize_plan_clear(&f->plan);
    dg_folder_documents_clear(&f->documents);
    dg_loaded_clear(&f->l);
}

dgemma_status dg_folder_quantize(const dgemma_quantize_options *opt, dgemma_quantize_result *result,
                                 dgemma_error *err)
{
    folder f = {.opt = opt, .result = result};
    *result = (dgemma_quantize_result){0};
    dg_safetensors_writer_init(&f.w);
    dgemma_status st = open_source(&f, err);
    st = st ? st : put_all(&f, err);
    result->type = forms[f.form < (int)DG_COUNT(forms) ? f.form : 0].name;
    result->bytes = dg_safetensors_writer_bytes(&f.w);
    dg_folder_files files = {.from = st ? NULL : dg_checkpoint_dir(f.l.checkpoint),
                             .documents = f.documents.n ? &f.documents : NULL,
                             .to = opt->path,
                             .form = forms[f.form].form};
    if (!st && !opt->dry_run) {
        st = dg_folder_files_begin(&files, result->bytes, err);
        st = st ? st : write_weights(&f, files.weights, err);
        st = dg_folder_files_end(&files, st, err);
    }
    for (size_t i = 0; !st && opt->dry_run && i < f.plan.n; i++) {
        module m[2];
        report(&f, &f.plan.tensor[i], modules_of(&f, &f.plan.tensor[i], 0, m) > 0);
    }
    if (!st && f.total.size > 0)
        result->error = sqrt(f.total.off / f.total.size);
    clear(&f);
    return st;
}
