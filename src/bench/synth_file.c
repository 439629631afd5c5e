#include "bench/synth_file.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/rng.h"
#include "bench/synth_vocabulary.h"
#include "engine/gguf_vocabulary.h"
#include "format/gguf_model.h"
#include "format/gguf_names.h"
#include "model/config_gguf_put.h"
#include "model/presets.h"
#include "model/synthetic.h"
#include "model/synthetic_types.h"

/* A chunk is what a thread fills at a time; a run of them is written together. */
enum { CHUNK = 1 << 20, CHUNKS_PER_THREAD = 2, MAX_THREADS = 32, TOKENIZER_MAX = 64 << 20 };

typedef struct synth {
    const dgemma_synth_options *opt;
    dg_synthetic *model;
    const dg_config *cfg;
    dg_gguf_writer w;
    dg_tensor *tensor;    /* as they are in the file */
    dg_dtype *given_type; /* of the data that they have */
    char (*name)[DG_GGUF_NAME];
    size_t n_tensor;
    float *rope;
    dg_pool *pool;
    unsigned char *buffer; /* n_chunk chunks */
    int n_chunk;
    uint64_t written;
} synth;

/* ---- keys ---- */

static void put_keys(synth *s)
{
    const dg_generation_config g = dg_generation_defaults();
    char name[96];
    snprintf(name, sizeof name, "synthetic %s", s->opt->shape);
    dg_gguf_put_string(&s->w, "general.name", name);
    dg_gguf_put_string(&s->w, "general.description",
                       "Random weights, for measuring speed: what it says means nothing.");
    dg_gguf_put_int(&s->w, "general.file_type", DG_GGUF_U32,
                    dg_preset_find(s->opt->type)->file_type);
    dg_gguf_put_int(&s->w, "general.quantization_version", DG_GGUF_U32, 2);
    dg_config_put(&s->w, s->cfg, &g);
}

/* ---- the tokenizer ---- */

static dgemma_status check_count(const synth *s, size_t n, dgemma_error *err)
{
    if (n <= (size_t)s->cfg->n_vocab)
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_ARG, "%s has %zu tokens, the shape %s room for %d",
                   s->opt->tokenizer, n, s->opt->shape, s->cfg->n_vocab);
}

static dgemma_status make_vocabulary(synth *s, dgemma_error *err)
{
    dg_tokenizer *t;
    dgemma_status st = dg_synth_tokenizer(&t, s->cfg->n_vocab, err);
    if (!st)
        st = dg_gguf_vocabulary_put(&s->w, t, s->cfg->n_vocab, dg_synth_template, err);
    dg_tokenizer_free(t);
    return st;
}

/* The keys of another GGUF file, as they are. */
static dgemma_status copy_vocabulary(synth *s, const char *path, dgemma_error *err)
{
    static const char prefix[] = "tokenizer.";
    dg_gguf_model from;
    dgemma_status st = dg_gguf_model_open(&from, path, err);
    if (st)
        return st;
    const dg_gguf *g = &from.file[0].content;
    const dg_gguf_value *tokens = dg_gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens || !tokens->is_array)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: there is no tokenizer in it", path);
    else
        st = check_count(s, tokens->n, err);
    for (size_t i = 0; !st && i < g->n_value; i++)
        if (g->value[i].key.len >= sizeof prefix - 1 &&
            memcmp(g->value[i].key.text, prefix, sizeof prefix - 1) == 0)
            dg_gguf_put_copy(&s->w, &g->value[i]);
    if (!st && !dg_gguf_find(g, "tokenizer.chat_template"))
        dg_gguf_put_string(&s->w, "tokenizer.chat_template", dg_synth_template);
    dg_gguf_model_close(&from);
    return st;
}

static dgemma_status read_vocabulary(synth *s, const char *path, dgemma_error *err)
{
    dg_tokenizer *t = NULL;
    dg_buf doc;
    dg_buf_init(&doc, TOKENIZER_MAX);
    dgemma_status st = dg_file_read(&doc, path, err);
    if (!st)
        st = dg_tokenizer_from_json(&t, doc.data, doc.len, path, err);
    dg_buf_clear(&doc);
    if (!st)
        st = check_count(s, (size_t)dg_tokenizer_count(t), err);
    if (!st)
        st = dg_gguf_vocabulary_put(&s->w, t, s->cfg->n_vocab, dg_synth_template, err);
    dg_tokenizer_free(t);
    return st;
}

static dgemma_status put_tokenizer(synth *s, dgemma_error *err)
{
    const char *path = s->opt->tokenizer;
    if (!path)
        return make_vocabulary(s, err);
    size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0)
        return copy_vocabulary(s, path, err);
    if (!dg_file_is_dir(path))
        return read_vocabulary(s, path, err);
    char *file = dg_path_join(path, "tokenizer.json");
    dgemma_status st = file ? read_vocabulary(s, file, err)
                            : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
    dg_free(file);
    return st;
}

/* ---- tensors ---- */

static dgemma_status list_tensors(synth *s, dgemma_error *err)
{
    const dg_checkpoint *ck = dg_synthetic_checkpoint(s->model);
    size_t n = dg_checkpoint_count(ck);
    s->tensor = dg_calloc(n + 1, sizeof *s->tensor);
    s->name = dg_calloc(n + 1, sizeof *s->name);
    s->rope = dg_array((size_t)s->cfg->layer[s->cfg->n_layer - 1].head_dim / 2, sizeof *s->rope);
    s->given_type = dg_calloc(n + 1, sizeof *s->given_type);
    if (!s->tensor || !s->name || !s->rope || !s->given_type)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *s->tensor = dg_config_rope_freqs(s->rope, s->cfg);
    snprintf(s->name[s->n_tensor++], DG_GGUF_NAME, "%s", s->tensor->name);
    for (size_t i = 0; i < n; i++) {
        dg_tensor *t = &s->tensor[s->n_tensor];
        *t = *dg_checkpoint_at(ck, i);
        s->given_type[s->n_tensor] = t->type;
        if (!dg_gguf_name_of(s->name[s->n_tensor], t->name))
            return dg_fail(err, DGEMMA_E_INTERNAL, "GGUF has no name for %s", t->name);
        s->n_tensor++;
        if (strstr(t->name, "router.proj"))
            t->type = DG_F32; /* as published; the data stays as it is */
    }
    for (size_t i = 0; i < s->n_tensor; i++) {
        s->tensor[i].name = s->name[i];
        s->tensor[i].bytes = dg_dtype_bytes(s->tensor[i].type, dg_tensor_count(&s->tensor[i]));
        dg_gguf_put_tensor(&s->w, &s->tensor[i]);
    }
    return DGEMMA_OK;
}

/* ---- content ---- */

typedef struct run_of_chunks {
    synth *s;
    size_t tensor;
    size_t chunk_bytes, bytes; /* of a chunk: whole blocks; of the run */
    uint32_t first;            /* chunk of the tensor */
} run_of_chunks;

/* What a chunk holds depends on the seed, the tensor and its place alone. */
static void fill_chunk(void *arg, int task, int worker)
{
    (void)worker;
    run_of_chunks *r = arg;
    size_t at = (size_t)task * r->chunk_bytes, left = r->bytes - at;
    dg_rng_key key = {.seed = r->s->opt->seed, .block = (uint32_t)r->tensor};
    dg_random_weights(r->s->buffer + at, r->s->tensor[r->tensor].type,
                      left < r->chunk_bytes ? left : r->chunk_bytes,
                      dg_rng_bits(&key, r->first + (uint32_t)task));
}

static bool tell(synth *s, size_t bytes)
{
    s->written += bytes;
    return !s->opt->on_progress ||
           s->opt->on_progress(s->opt->progress_user, (double)s->written / (double)s->w.data_bytes);
}

/* False: who watches does not want to go on. */
static bool write_random(synth *s, size_t tensor)
{
    dg_dtype type = s->tensor[tensor].type;
    size_t block = dg_dtype_bytes(type, dg_dtype_block(type)), chunk = CHUNK / block * block;
    size_t whole = chunk * (size_t)s->n_chunk, left = s->tensor[tensor].bytes;
    run_of_chunks r = {.s = s, .tensor = tensor, .chunk_bytes = chunk};
    for (; left && !s->w.error.status; left -= r.bytes) {
        r.bytes = left < whole ? left : whole;
        int n = (int)((r.bytes + chunk - 1) / chunk);
        dg_pool_run(s->pool, n, fill_chunk, &r);
        dg_gguf_write_part(&s->w, s->buffer, r.bytes);
        r.first += (uint32_t)n;
        if (!tell(s, r.bytes))
            return false;
    }
    return true;
}

/* What a tensor is given, in the type that the file has. */
static bool write_given(synth *s, size_t tensor)
{
    const dg_tensor *t = &s->tensor[tensor];
    dg_dtype type = s->given_type[tensor];
    if (type == t->type) {
        dg_gguf_write_data(&s->w, t->data, t->bytes);
        return tell(s, t->bytes);
    }
    float *wide = (float *)(void *)s->buffer; /* which is aligned */
    size_t left = dg_tensor_count(t), most = CHUNK / sizeof *wide, n;
    const unsigned char *from = t->data;
    for (; left; left -= n, from += dg_dtype_bytes(type, n)) {
        n = left < most ? left : most;
        dg_widen(wide, from, type, n);
        dg_gguf_write_part(&s->w, wide, n * sizeof *wide);
    }
    return tell(s, t->bytes);
}

static dgemma_status write_tensors(synth *s, dgemma_error *err)
{
    int n_thread = dg_min(dg_cpu_count(), MAX_THREADS);
    s->n_chunk = n_thread * CHUNKS_PER_THREAD;
    s->buffer = dg_malloc_aligned((size_t)s->n_chunk * CHUNK);
    if (!s->buffer)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %d MiB of weights", s->n_chunk);
    dgemma_status st = dg_pool_create(&s->pool, n_thread, err);
    if (st)
        return st;
    bool wanted = true;
    for (size_t i = 0; wanted && i < s->n_tensor && !s->w.error.status; i++)
        wanted = s->tensor[i].data ? write_given(s, i) : write_random(s, i);
    return wanted ? DGEMMA_OK : dg_fail(err, DGEMMA_E_CANCELLED, "given up");
}

/* ---- the file ---- */

static dgemma_status fill_header(synth *s, dgemma_error *err)
{
    dg_synthetic_options as = {.shape = s->opt->shape,
                               .type = s->opt->type,
                               .n_layer = s->opt->n_layer,
                               .skewed = s->opt->skewed,
                               .listed = true};
    dgemma_status st = dg_synthetic_open(&s->model, &as, err);
    if (st)
        return st;
    s->cfg = dg_synthetic_config(s->model);
    put_keys(s);
    st = put_tokenizer(s, err);
    return st ? st : list_tensors(s, err);
}

static dgemma_status write_file(synth *s, dgemma_error *err)
{
    dg_gguf_writer_open(&s->w, s->opt->path);
    dgemma_status st = s->w.error.status ? DGEMMA_OK : write_tensors(s, err);
    dgemma_error why = {0};
    dgemma_status closed = dg_gguf_writer_close(&s->w, &why);
    return st || !closed ? st : dg_fail(err, closed, "%s", why.msg);
}

static void clear(synth *s)
{
    dg_gguf_writer_close(&s->w, NULL);
    dg_pool_free(s->pool);
    dg_free(s->buffer);
    dg_free(s->tensor);
    dg_free(s->given_type);
    dg_free(s->name);
    dg_free(s->rope);
    dg_synthetic_close(s->model);
}

dgemma_status dg_synth_write(const dgemma_synth_options *opt, uint64_t *bytes, dgemma_error *err)
{
    synth s = {.opt = opt};
    dg_gguf_writer_init(&s.w, 0);
    dgemma_status st = dg_gguf_writer_check(&s.w, opt->path, opt->replace, err);
    if (!st)
        st = fill_header(&s, err);
    if (!st)
        st = dg_gguf_writer_check(&s.w, opt->path, opt->replace, err);
    if (!st) {
        *bytes = dg_gguf_writer_bytes(&s.w);
        st = write_file(&s, err);
    }
    clear(&s);
    return st;
}
