/* The text is cut into canvases, and each is met as a request would meet it: denoised in a few
 * steps behind the text before it, then encoded for the next one. In place of what the model would
 * have drawn, a canvas holds the text itself, less and less of it noise from step to step; the soft
 * embeddings are the model's own. */
#include "convert/imatrix.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/new_file.h"
#include "convert/importance_sums.h"
#include "convert/noised.h"
#include "cpu/cpu_backend.h"

/* How much of a canvas is noise in each step, in percent, and how many canvases follow each other
 * before a new text begins: the context grows to three canvases. */
static const int noise_percent[] = {100, 75, 50, 25};
enum { STEPS = DG_COUNT(noise_percent), CANVASES = 4 };

typedef struct measuring {
    const dgemma_imatrix_options *opt;
    dg_probe probe;
    dg_importance_sums sums;
    dg_tokens text;
    int n_canvas, n_chunk; /* tokens of a canvas, canvases of the text */
    int done;              /* steps */
    dg_kv_seq seq;
    dg_noised canvas;
} measuring;

static dgemma_status read_text(measuring *m, dgemma_error *err)
{
    const dg_loaded *l = &m->probe.loaded;
    const char *path = m->opt->text_path;
    dg_buf text;
    if (!l->tokenizer)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: the model has no tokenizer",
                       m->opt->model_path);
    dg_buf_init(&text, DG_ENCODE_MAX_TEXT);
    dgemma_status st = dg_file_read(&text, path, err);
    if (!st && text.len) /* turns of conversations may be in it, as the template writes them */
        st = dg_tokenizer_encode(l->tokenizer, text.data, text.len, DG_ENCODE_ADDED, &m->text, err);
    dg_buf_clear(&text);
    m->n_canvas = l->cfg.canvas_length;
    m->n_chunk = (int)(m->text.n / (size_t)m->n_canvas);
    if (!st && m->n_chunk < 1)
        return dg_fail(err, DGEMMA_E_ARG,
                       "%s has %zu tokens, and a canvas takes %d: more text is needed", path,
                       m->text.n, m->n_canvas);
    for (size_t i = 0; !st && i < m->text.n; i++)
        if (m->text.ids[i] >= l->cfg.n_vocab)
            st = dg_fail(err, DGEMMA_E_FORMAT, "token %d is not in the model's vocabulary",
                         (int)m->text.ids[i]);
    if (m->opt->n_chunks)
        m->n_chunk = dg_min(m->n_chunk, m->opt->n_chunks);
    return st;
}

static dgemma_status start_model(measuring *m, dgemma_error *err)
{
    dgemma_status st =
        dg_noised_start(&m->canvas, &m->probe, m->n_canvas, m->n_canvas, m->opt->n_threads, err);
    st = st ? st : dg_importance_sums_init(&m->sums, m->probe.model, err);
    if (!st)
        dg_cpu_observe(m->probe.be, dg_importance_sums_add, &m->sums);
    return st;
}

static bool tell(measuring *m)
{
    m->done++;
    return !m->opt->on_progress ||
           m->opt->on_progress(m->opt->user, (double)m->done / (m->n_chunk * STEPS));
}

/* One step of one chunk; the first one also encodes what stands before it. */
static dgemma_status run_step(measuring *m, int chunk, int step, dgemma_error *err)
{
    const int32_t *text = m->text.ids + (size_t)chunk * (size_t)m->n_canvas,
                  bos = m->probe.loaded.cfg.bos_token;
    dg_noised_step s = {.seq = &m->seq,
                        .text = text,
                        .number = (uint32_t)chunk,
                        .percent = noise_percent[step],
                        .first = step == 0};
    if (step == 0 && chunk % CANVASES == 0) {
        dg_kv_seq_clear(m->probe.kv, &m->seq);
        s.token = &bos;
        s.n_token = bos >= 0;
    } else if (step == 0) {
        s.token = text - m->n_canvas;
        s.n_token = m->n_canvas;
    }
    return dg_noised_run(&m->canvas, &s, err);
}

static dgemma_status measure(measuring *m, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < m->n_chunk * STEPS; i++) {
        st = run_step(m, i / STEPS, i % STEPS, err);
        if (!st && !tell(m))
            st = dg_fail(err, DGEMMA_E_CANCELLED, "given up");
    }
    return st ? st : dg_loaded_intact(&m->probe.loaded, err);
}

/* Of a path the last part: whoever reads the file has other folders. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void describe(const measuring *m, dgemma_imatrix_result *r)
{
    *r = (dgemma_imatrix_result){
        .n_chunks = m->n_chunk, .chunk_tokens = m->n_canvas, .n_matrices = m->sums.n};
    for (size_t i = 0; i < m->sums.n; i++)
        for (int e = 0; e < m->sums.line[i].w->n_mat; e++)
            r->n_unused += m->sums.line[i].count[e] == 0;
}

static void clear(measuring *m)
{
    if (m->probe.kv)
        dg_kv_seq_clear(m->probe.kv, &m->seq);
    dg_noised_clear(&m->canvas);
    dg_tokens_clear(&m->text);
    dg_importance_sums_clear(&m->sums);
    dg_probe_clear(&m->probe);
}

/* Whether the file can be written where it is to be, and is not the text, now or on the way. */
static dgemma_status check_place(const dgemma_imatrix_options *opt, dgemma_error *err)
{
    char *partial = dg_new_file_partial(opt->path);
    dg_new_file trial;
    dgemma_status st = partial ? dg_new_file_check(opt->path, 0, opt->replace, err)
                               : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", opt->path);
    if (!st &&
        (dg_file_is_same(opt->text_path, opt->path) || dg_file_is_same(opt->text_path, partial)))
        st = dg_fail(err, DGEMMA_E_ARG, "%s is what is read", opt->text_path);
    if (!st && !dg_file_exists(partial)) {
        dg_new_file_open(&trial, opt->path, opt->replace);
        const bool opens = !trial.error.status;
        dg_new_file_fail(&trial, DGEMMA_E_CANCELLED, "only a trial");
        st = dg_new_file_close(&trial, err);
        st = opens ? DGEMMA_OK : st;
    }
    dg_free(partial);
    return st;
}

dgemma_status dg_imatrix(const dgemma_imatrix_options *opt, dgemma_imatrix_result *result,
                         dgemma_error *err)
{
    measuring m = {.opt = opt};
    dg_tokens_init(&m.text, DG_ENCODE_MAX_TEXT);
    dgemma_status st = check_place(opt, err); /* before the work */
    st = st ? st : dg_probe_load(&m.probe, opt->model_path, 0, err);
    if (!st && dg_checkpoint_reads(m.probe.loaded.checkpoint, opt->path))
        st = dg_fail(err, DGEMMA_E_ARG, "%s is what is read", opt->path);
    st = st ? st : read_text(&m, err);
    st = st ? st : start_model(&m, err);
    st = st ? st : measure(&m, err);
    const dg_importance_text text = {last_part(opt->text_path), m.n_chunk, m.n_canvas};
    st = st ? st : dg_importance_sums_write(&m.sums, &text, opt->path, opt->replace, err);
    if (!st)
        describe(&m, result);
    clear(&m);
    return st;
}
