#include "convert/quantize.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/pool.h"
#include "convert/adapter_merge.h"
#include "convert/folder.h"
#include "convert/mmproj.h"
#include "convert/quantize_plan.h"
#include "convert/quantize_rows.h"
#include "engine/gguf_vocabulary.h"
#include "format/gguf_write.h"
#include "model/config_gguf_put.h"
#include "model/model.h"

/* A task's rows have about so many values. Memory follows from that, the number of threads and the
 * longest row alone. */
enum { TASK_VALUES = 1 << 16, TASKS_PER_THREAD = 4, MAX_THREADS = 256 };
static const size_t memory_max = (size_t)1 << 30;

typedef struct task {
    unsigned char *out;
    int64_t first, n_row; /* rows of the file's tensor, over all its matrices */
    dg_rows_error error;
    dgemma_status st;
    dgemma_error why;
} task;

typedef struct quantizing {
    const dgemma_quantize_options *opt;
    dgemma_quantize_result *result;
    const dg_preset *preset;
    dg_loaded l;
    dg_importance importance;
    dg_quantize_plan plan;
    dg_merging merge;
    dg_gguf_writer w;
    dg_pool *pool;
    task *task;
    int n_task;
    dg_rows_scratch *scratch; /* of each thread */
    int n_scratch;
    const dg_planned *now;
    double done, all; /* values */
    dg_rows_error total;
} quantizing;

/* ---- keys ---- */

/* Keys of the source that are not true of what is made from it. */
static bool is_stale(dg_gguf_text key)
{
    static const char *const stale[] = {"general.file_type", "general.quantization_version",
                                        "general.alignment", "split.", "quantize.imatrix."};
    for (size_t i = 0; i < DG_COUNT(stale); i++) {
        size_t n = strlen(stale[i]);
        bool prefix = stale[i][n - 1] == '.';
        if (key.len >= n && memcmp(key.text, stale[i], n) == 0 && (prefix || key.len == n))
            return true;
    }
    return false;
}

/* Where the weights of errors came from, as llama.cpp tells it; of a path the last part. */
static void put_importance(quantizing *q)
{
    const dg_importance *imp = &q->importance;
    const char *path = q->opt->importance_path, *slash = path ? strrchr(path, '/') : NULL;
    if (!path)
        return;
    dg_gguf_put_string(&q->w, "quantize.imatrix.file", slash ? slash + 1 : path);
    if (imp->data_set)
        dg_gguf_put_string(&q->w, "quantize.imatrix.dataset", imp->data_set);
    dg_gguf_put_int(&q->w, "quantize.imatrix.entries_count", DG_GGUF_U32, (int64_t)imp->n_entry);
    if (imp->n_chunk > 0 && imp->n_chunk <= INT32_MAX)
        dg_gguf_put_int(&q->w, "quantize.imatrix.chunks_count", DG_GGUF_U32, imp->n_chunk);
}

/* llama.cpp's program for this model does not start without one; not every file has said it. */
static void put_missing_mask(quantizing *q, const dg_gguf *g)
{
    static const char key[] = "tokenizer.ggml.mask_token_id";
    const int id = q->l.tokenizer ? dg_tokenizer_added_id(q->l.tokenizer, "<mask>") : -1;
    if (id >= 0 && !dg_gguf_find(g, key))
        dg_gguf_put_int(&q->w, key, DG_GGUF_U32, id);
}

static dgemma_status put_keys(quantizing *q, dgemma_error *err)
{
    const dg_gguf *g = dg_checkpoint_gguf(q->l.checkpoint);
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; g && i < g->n_value; i++)
        if (!is_stale(g->value[i].key))
            dg_gguf_put_copy(&q->w, &g->value[i]);
    if (g) {
        put_missing_mask(q, g);
    } else {
        dg_config_put(&q->w, &q->l.cfg, &q->l.generation);
        if (!q->l.tokenizer)
            st = dg_fail(err, DGEMMA_E_IO,
                         "%s: no tokenizer.json in the folder, and a GGUF file has it inside",
                         dg_checkpoint_dir(q->l.checkpoint));
        else
            st = dg_gguf_vocabulary_put(&q->w, q->l.tokenizer, q->l.cfg.n_vocab, q->l.chat_template,
                                        err);
    }
    dg_gguf_put_int(&q->w, "general.file_type", DG_GGUF_U32, q->preset->file_type);
    dg_gguf_put_int(&q->w, "general.quantization_version", DG_GGUF_U32, 2);
    put_importance(q);
    return st;
}

static dgemma_status open_source(quantizing *q, dgemma_error *err)
{
    const dgemma_quantize_options *opt = q->opt;
    q->preset = dg_preset_find(opt->type);
    if (!q->preset)
        return dg_fail(err, DGEMMA_E_ARG,
                       "the type \"%.40s\" is not known: %s are, and FP8 and NVFP4 of folders",
                       opt->type, dg_preset_made_names());
    dgemma_status st = dg_load(&q->l, opt->model_path, err);
    if (!st)
        st = dg_model_check(&q->l.cfg, q->l.checkpoint, err);
    if (!st && opt->mmproj_path && !q->l.mmproj)
        st = dg_load_tower(&q->l, NULL, err);
    if (!st && opt->importance_path)
        st = dg_importance_open(&q->importance, opt->importance_path, err);
    if (!st)
        st = dg_quantize_plan_make(&q->plan, &q->l, q->preset,
                                   opt->importance_path ? &q->importance : NULL, err);
    if (!st)
        st = dg_merge_open(&q->merge, opt->adapters, opt->n_adapters, &q->plan, err);
    if (!st)
        st = put_keys(q, err);
    for (size_t i = 0; !st && i < q->plan.n; i++) {
        const dg_tensor *t = &q->plan.tensor[i].tensor;
        dg_gguf_put_tensor(&q->w, t);
        q->all += (double)dg_tensor_count(t);
    }
    return st;
}

/* ---- threads ---- */

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static dgemma_status start_threads(quantizing *q, dgemma_error *err)
{
    size_t values = TASK_VALUES, n_thread = (size_t)dg_min(dg_cpu_count(), MAX_THREADS);
    if (q->opt->n_threads)
        n_thread = (size_t)q->opt->n_threads;
    for (size_t i = 0; i < q->plan.n; i++)
        if (!q->plan.tensor[i].verbatim)
            values = at_least(values, dg_rows_length(&q->plan.tensor[i]));
    const size_t each = values * (TASKS_PER_THREAD * sizeof(float) + DG_ROWS_SCRATCH_BYTES);
    if (n_thread > memory_max / each)
        n_thread = memory_max / each;
    if (n_thread < 1)
        return dg_fail(err, DGEMMA_E_LIMIT, "rows of %zu values are too long", values);
    q->n_scratch = (int)n_thread;
    q->n_task = (int)n_thread * TASKS_PER_THREAD;
    q->task = dg_calloc((size_t)q->n_task, sizeof *q->task);
    q->scratch = dg_calloc(n_thread, sizeof *q->scratch);
    bool ok = q->task && q->scratch;
    for (int i = 0; ok && i < q->n_task; i++)
        ok = (q->task[i].out = dg_malloc_aligned(values * sizeof(float))) != NULL;
    for (size_t i = 0; ok && i < n_thread; i++)
        ok = dg_rows_scratch_init(&q->scratch[i], values);
    if (!ok)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu threads", n_thread);
    return dg_pool_create(&q->pool, (int)n_thread, err);
}

/* ---- content ---- */

static void run_task(void *arg, int index, int worker)
{
    quantizing *q = arg;
    task *t = &q->task[index];
    t->error = (dg_rows_error){0};
    t->why = (dgemma_error){0};
    t->st =
        dg_rows_make(t->out, q->now, t->first, t->n_row, &q->scratch[worker], &t->error, &t->why);
}

static bool tell(quantizing *q, double values)
{
    q->done += values;
    return !q->opt->on_progress || q->opt->on_progress(q->opt->user, q->done / q->all);
}

/* A tensor in turns: all threads make rows, then these are written. */
static dgemma_status write_rows(quantizing *q, dg_rows_error *error, dgemma_error *err)
{
    const size_t length = dg_rows_length(q->now),
                 bytes = dg_dtype_bytes(q->now->tensor.type, length);
    const int64_t n_row = (int64_t)(dg_tensor_count(&q->now->tensor) / length),
                  most = (int64_t)at_least(1, TASK_VALUES / length);
    for (int64_t at = 0; at < n_row && !q->w.error.status;) {
        int n = 0;
        int64_t first = at;
        for (; n < q->n_task && at < n_row; n++) {
            int64_t left = n_row - at;
            q->task[n].first = at;
            q->task[n].n_row = left < most ? left : most;
            at += q->task[n].n_row;
        }
        dg_pool_run(q->pool, n, run_task, q);
        for (int i = 0; i < n; i++) {
            const task *t = &q->task[i];
            if (t->st)
                return dg_fail(err, t->st, "%s", t->why.msg);
            error->off += t->error.off;
            error->size += t->error.size;
            dg_gguf_write_part(&q->w, t->out, (size_t)t->n_row * bytes);
        }
        if (!tell(q, (double)(at - first) * (double)length))
            return dg_fail(err, DGEMMA_E_CANCELLED, "given up");
    }
    return DGEMMA_OK;
}

static void report(const quantizing *q, const dg_planned *to, const dg_rows_error *error)
{
    const dg_tensor *t = &to->tensor;
    dgemma_quantized info = {.name = to->name,
                             .from = dg_dtype_name(to->from[0]->type),
                             .type = dg_dtype_name(t->type),
                             .n_dim = t->n_dim,
                             .bytes = t->bytes,
                             .error =
                                 error && error->size > 0 ? sqrt(error->off / error->size) : 0};
    for (int i = 0; i < t->n_dim; i++)
        info.shape[i] = t->shape[i];
    if (q->opt->on_tensor)
        q->opt->on_tensor(q->opt->user, &info);
}

static dgemma_status write_tensors(quantizing *q, dgemma_error *err)
{
    dgemma_status st = start_threads(q, err);
    for (size_t i = 0; !st && i < q->plan.n && !q->w.error.status; i++) {
        dg_rows_error error = {0};
        q->now = &q->plan.tensor[i];
        st = dg_merge_begin(&q->merge, &q->plan.tensor[i], err);
        if (!st && q->now->verbatim) {
            const dg_tensor *from = q->now->from[0];
            dg_gguf_write_data(&q->w, from->data, from->bytes);
            if (!tell(q, (double)dg_tensor_count(from)))
                st = dg_fail(err, DGEMMA_E_CANCELLED, "given up");
        } else if (!st) {
            st = write_rows(q, &error, err);
        }
        dg_merge_end(&q->plan.tensor[i]);
        if (!st && !q->w.error.status)
            report(q, q->now, &error);
        if (q->now->tensor.type != DG_F32) { /* routers stay as they are, and can be large */
            q->total.off += error.off;
            q->total.size += error.size;
        }
        for (int k = 0; k < 2 && q->now->from[k]; k++)
            dg_checkpoint_forget(q->l.checkpoint, q->now->from[k]);
    }
    return st ? st : dg_checkpoint_check(q->l.checkpoint, err);
}

static dgemma_status write_file(quantizing *q, dgemma_error *err)
{
    dg_gguf_writer_open(&q->w, q->opt->path);
    dgemma_status st = q->w.error.status ? DGEMMA_OK : write_tensors(q, err);
    if (st)
        dg_gguf_writer_give_up(&q->w);
    dgemma_error why = {0};
    dgemma_status closed = dg_gguf_writer_close(&q->w, &why);
    return st || !closed ? st : dg_fail(err, closed, "%s", why.msg);
}

/* ---- all of it ---- */

static dgemma_status check_not_read(const quantizing *q, const char *path, dgemma_error *err)
{
    const char *importance = q->opt->importance_path;
    if (dg_checkpoint_reads(q->l.checkpoint, path) ||
        (q->l.mmproj && dg_checkpoint_reads(q->l.mmproj, path)) ||
        (importance && dg_file_is_same(importance, path)) || dg_merge_reads(&q->merge, path))
        return dg_fail(err, DGEMMA_E_ARG, "%s is what is read", path);
    return DGEMMA_OK;
}

/* Neither the file nor what it is called until it is whole. */
static dgemma_status check_path(const quantizing *q, const char *path, dgemma_error *err)
{
    char *partial = dg_new_file_partial(path);
    dgemma_status st = partial ? check_not_read(q, path, err)
                               : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
    st = st ? st : check_not_read(q, partial, err);
    dg_free(partial);
    return st;
}

/* Nothing is written over a file that is read, neither at the end nor on the way. */
static dgemma_status check_target(quantizing *q, dgemma_error *err)
{
    const char *path = q->opt->path;
    if (!path)
        return DGEMMA_OK; /* a dry run */
    dgemma_status st = check_path(q, path, err);
    if (st || q->opt->dry_run)
        return st;
    return dg_gguf_writer_check(&q->w, path, q->opt->replace, err);
}

static void describe(quantizing *q)
{
    dgemma_quantize_result *r = q->result;
    *r = (dgemma_quantize_result){.type = q->preset->name,
                                  .bytes = dg_gguf_writer_bytes(&q->w),
                                  .n_tensors = q->plan.n,
                                  .n_weighted = q->plan.n_weighted,
                                  .n_left_out = q->plan.n_left_out,
                                  .n_unknown = q->plan.n_unknown};
    for (size_t i = 0; i < q->plan.n; i++) {
        const dg_planned *t = &q->plan.tensor[i];
        r->n_weights += dg_tensor_count(&t->tensor);
        r->tensor_bytes += t->tensor.bytes;
        r->requantized = r->requantized ||
                         (t->from[0]->type >= DG_DTYPE_FLOAT && t->tensor.type != t->from[0]->type);
        for (int k = 0; k < 2; k++)
            r->source_bytes += t->from[k] ? t->from[k]->bytes : 0;
    }
}

static void clear(quantizing *q)
{
    dg_gguf_writer_close(&q->w, NULL);
    dg_pool_free(q->pool);
    for (int i = 0; q->task && i < q->n_task; i++)
        dg_free(q->task[i].out);
    for (int i = 0; q->scratch && i < q->n_scratch; i++)
        dg_rows_scratch_clear(&q->scratch[i]);
    dg_free(q->task);
    dg_free(q->scratch);
    dg_merge_close(&q->merge);
    dg_quantize_plan_clear(&q->plan);
    dg_importance_clear(&q->importance);
    dg_loaded_clear(&q->l);
}

/* Neither file is the other, nor what the other is called until it is whole. */
static dgemma_status check_apart(const char *a, const char *b, dgemma_error *err)
{
    char *x = dg_new_file_partial(a), *y = dg_new_file_partial(b);
    dgemma_status st = x && y ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", a);
    if (!st && dg_file_would_be_same(a, b))
        st = dg_fail(err, DGEMMA_E_ARG, "%s cannot be both files", a);
    if (!st && (dg_file_would_be_same(x, b) || dg_file_would_be_same(a, y)))
        st = dg_fail(err, DGEMMA_E_ARG, "%s and %s would be in each other's way", a, b);
    dg_free(x);
    dg_free(y);
    return st;
}

/* The tower goes to a file of its own, once the model's is there. */
static dgemma_status write_tower(quantizing *q, bool dry, dgemma_error *err)
{
    const char *path = q->opt->mmproj_path;
    if (!path)
        return DGEMMA_OK;
    dgemma_status st = dry ? check_path(q, path, err) : DGEMMA_OK;
    if (!st && q->opt->path)
        st = check_apart(path, q->opt->path, err);
    return st ? st : dg_mmproj_write(&q->l, path, q->opt->replace, dry, err);
}

dgemma_status dg_quantize(const dgemma_quantize_options *opt, dgemma_quantize_result *result,
                          dgemma_error *err)
{
    if (dg_folder_is_asked(opt))
        return dg_folder_quantize(opt, result, err);
    quantizing q = {.opt = opt, .result = result};
    dg_gguf_writer_init(&q.w, 0);
    dgemma_status st = open_source(&q, err);
    if (!st)
        st = check_target(&q, err);
    if (!st)
        st = write_tower(&q, true, err);
    if (!st)
        describe(&q);
    if (!st && opt->dry_run)
        for (size_t i = 0; i < q.plan.n; i++)
            report(&q, &q.plan.tensor[i], NULL);
    if (!st && !opt->dry_run)
        st = write_file(&q, err);
    if (!st && !opt->dry_run)
        st = write_tower(&q, false, err);
    if (!st && q.total.size > 0)
        result->error = sqrt(q.total.off / q.total.size);
    clear(&q);
    return st;
}
