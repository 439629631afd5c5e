#include "bench/bench_session.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "engine/device.h"
#include "engine/engine.h"

enum { FILL_STEP = 512 }; /* tokens that a sequence grows by while it is filled */

/* ---- the model ---- */

dgemma_status dg_bench_model_open(dg_bench_model *m, const dgemma_bench_options *opt,
                                  dgemma_error *err)
{
    *m = (dg_bench_model){0};
    dgemma_status st;
    if (opt->synthetic) {
        dg_synthetic_options as = {.shape = opt->shape,
                                   .type = opt->synthetic,
                                   .n_layer = opt->n_layer,
                                   .skewed = opt->skewed};
        st = dg_synthetic_open(&m->synthetic, &as, err);
        if (st)
            return st;
        m->cfg = dg_synthetic_config(m->synthetic);
        m->ck = dg_synthetic_checkpoint(m->synthetic);
        return DGEMMA_OK;
    }
    st = dg_load(&m->loaded, opt->engine.model_path, err);
    if (!st && opt->picture)
        st = dg_load_tower(&m->loaded, opt->engine.mmproj, err);
    m->cfg = &m->loaded.cfg;
    m->ck = m->loaded.checkpoint;
    return st;
}

void dg_bench_model_close(dg_bench_model *m)
{
    dg_synthetic_close(m->synthetic);
    dg_loaded_clear(&m->loaded);
    *m = (dg_bench_model){0};
}

/* ---- life cycle ---- */

dgemma_status dg_bench_session_open(dg_bench_session *s, const dg_bench_model *m,
                                    const dgemma_engine_options *engine, dgemma_error *err)
{
    unsigned flags;
    dg_backend *inner = NULL;
    *s = (dg_bench_session){.from = m, .cfg = m->cfg, .temperature = 0.6f};
    s->kv_type = dg_device_kv_type(engine->kv_type);
    dgemma_status st = dg_engine_backend(&inner, &s->n_thread, engine, err);
    s->device = inner;
    if (!st)
        st = dg_timed_open(&s->be, inner, err);
    if (!st) {
        s->is_cpu = dg_cpu_flags_parse(&flags, s->be->name); /* named by its instruction set */
        double from = dg_clock_now();
        st = dg_model_load(&s->model, m->cfg, m->ck, s->be, err);
        s->load_seconds = dg_clock_now() - from;
        s->loaded_room = !st && s->be->room ? s->be->room(s->be) : 0;
    }
    if (!st)
        st = dg_kv_cache_create(&s->kv, m->cfg, s->be, s->kv_type, 0, err);
    if (st)
        dg_bench_session_close(s);
    return st;
}

static void leave_place(dg_bench_session *s)
{
    for (int i = 0; s->seq && i < s->batch; i++) {
        dg_kv_seq_clear(s->kv, &s->seq[i]);
        s->be->free(s->be, s->work ? s->work[i].soft : NULL);
    }
    for (int i = 0; s->canvas && i < s->batch; i++)
        dg_canvas_clear(&s->canvas[i]);
    dg_free(s->canvas);
    s->canvas = NULL;
    dg_forward_free(s->forward);
    dg_free(s->seq);
    dg_free(s->work);
    dg_free(s->token);
    dg_free(s->entropy);
    dg_free(s->uniform);
    s->forward = NULL;
    s->seq = NULL;
    s->work = NULL;
    s->token = NULL;
    s->entropy = NULL;
    s->uniform = NULL;
}

void dg_bench_session_close(dg_bench_session *s)
{
    leave_place(s);
    if (s->kv)
        dg_kv_seq_clear(s->kv, &s->source);
    dg_kv_cache_free(s->kv);
    dg_model_free(s->model);
    if (s->be)
        s->be->close(s->be);
    *s = (dg_bench_session){0};
}

/* ---- contexts ---- */

static dgemma_status encode(dg_bench_session *s, dg_kv_seq *seq, int at, int n, dgemma_error *err)
{
    dg_work w = {
        .seq = seq, .token = s->token + (size_t)at % (s->n_token - (size_t)n), .n_token = n};
    return dg_forward_run(s->forward, &(dg_pass){.work = &w, .n_work = 1}, err);
}

/* Pages from `first` on become copies of the source's, but for those that the window will have left
 * behind when the context is full. */
static void copy_pages(dg_bench_session *s, dg_kv_seq *seq, dg_kv_group g, int first)
{
    int window = 0;
    for (int i = 0; i < s->cfg->n_layer; i++)
        window = dg_max(window, s->cfg->layer[i].window);
    if (g == DG_KV_SLIDING)
        first = dg_max(first, (s->context - window) / DG_PAGE - 1);
    for (int i = dg_max(first, seq->table[g].first); i < seq->table[g].n; i++)
        s->be->kv_copy(s->be, dg_kv_store_of(s->kv), g, seq->table[g].page[i],
                       s->source.table[g].page[s->source.table[g].first]);
}

static dgemma_status fill(dg_bench_session *s, dg_kv_seq *seq, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    while (!st && seq->n_token < s->context) {
        int n = dg_min(FILL_STEP, s->context - seq->n_token), page = seq->n_token / DG_PAGE;
        st = dg_kv_reserve(s->kv, seq, n, err);
        for (dg_kv_group g = 0; !st && g < DG_KV_GROUPS; g++)
            copy_pages(s, seq, g, page);
        if (!st)
            dg_kv_advance(seq, n);
    }
    return st;
}

/* Room for the sequences, for the source and for a prompt. */
static dgemma_status make_room(dg_bench_session *s, int rows, dgemma_error *err)
{
    /* a pass's rows are shared by the sequences; a prompt may have them all */
    int step = dg_max(FILL_STEP, rows / s->batch), chunk = dg_max(FILL_STEP, rows);
    size_t need =
        dg_kv_bytes_for(s->kv, s->context + DG_BENCH_CANVASES * s->cfg->canvas_length, step);
    need = (size_t)s->batch * need + dg_kv_bytes_for(s->kv, DG_PAGE, DG_PAGE) +
           dg_kv_bytes_for(s->kv, dg_max(s->prompt, DG_PAGE), chunk);
    if (need <= s->kv_limit)
        return DGEMMA_OK;
    dg_kv_seq_clear(s->kv, &s->source);
    s->kv_limit = 0;
    dgemma_status st = dg_kv_cache_limit(s->kv, need, err);
    if (!st)
        s->kv_limit = need;
    return st;
}

static dgemma_status allocate(dg_bench_session *s, int rows, dgemma_error *err)
{
    size_t n = (size_t)s->batch, c = n * (size_t)s->cfg->canvas_length;
    dgemma_status st = dg_forward_create(&s->forward, s->model, s->kv, rows, s->batch, err);
    if (st)
        return st;
    s->n_token = 4 * c + 2 * (size_t)rows + DG_PAGE;
    s->seq = dg_calloc(n, sizeof *s->seq);
    s->work = dg_calloc(n, sizeof *s->work);
    s->token = dg_array(s->n_token, sizeof *s->token);
    s->entropy = dg_array(c, sizeof *s->entropy);
    s->uniform = dg_array(c, sizeof *s->uniform);
    if (!s->seq || !s->work || !s->token || !s->entropy || !s->uniform)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < s->n_token; i++)
        s->token[i] =
            (int32_t)dg_rng_below(&(dg_rng_key){.seed = 9}, (uint32_t)i, (uint32_t)s->cfg->n_vocab);
    for (size_t i = 0; i < c; i++)
        s->uniform[i] = dg_rng_uniform(&(dg_rng_key){.seed = 8}, (uint32_t)i);
    return DGEMMA_OK;
}

/* The next canvas of an answer, from its noise. */
static void begin_answer(dg_bench_session *s, int i)
{
    dg_canvas *c = &s->canvas[i];
    dg_generation_config g = dg_generation_defaults();
    dg_diffusion_options opt = {.max_steps = s->answer_steps,
                                .t_min = g.t_min,
                                .t_max = g.t_max,
                                .entropy_bound = g.entropy_bound,
                                .stability = s->answer_steps + 1};
    dg_canvas_begin(c, &opt, &s->draws, c->block + 1, s->cfg->canvas_length);
    s->work[i].first_step = true;
    s->work[i].last_step = s->answer_steps == 1;
    s->work[i].temperature = dg_canvas_temperature(c);
}

static dgemma_status begin_answers(dg_bench_session *s, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    s->draws = dg_draws_seeded(10, s->cfg->n_vocab);
    s->canvas = dg_calloc((size_t)s->batch, sizeof *s->canvas);
    if (!s->canvas)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = 0; !st && i < s->batch; i++) {
        dg_canvas *c = &s->canvas[i];
        st = dg_canvas_init(c, s->cfg->canvas_length, err);
        if (st)
            return st;
        c->block = i << 16; /* every canvas has noise of its own */
        begin_answer(s, i);
        s->work[i].canvas = c->token;
        s->work[i].uniform = c->uniform;
        s->work[i].entropy = c->entropy;
        s->work[i].argmax = c->argmax;
        s->work[i].drawn = c->drawn;
    }
    return st;
}

static dgemma_status begin_canvases(dg_bench_session *s, dgemma_error *err)
{
    size_t n = (size_t)s->cfg->canvas_length, c = (size_t)s->batch * n;
    for (int i = 0; i < s->batch; i++) {
        size_t at = (size_t)i * n;
        s->work[i] = (dg_work){
            .seq = &s->seq[i],
            .canvas = s->token + at,
            .n_canvas = (int)n,
            .soft = s->be->alloc(s->be, n * (size_t)s->cfg->n_embd * sizeof(float)),
            .first_step = true,
            .temperature = s->temperature,
            .uniform = s->uniform + at,
            .entropy = s->entropy + at,
            .argmax = s->token + c + at,
            .drawn = s->token + 2 * c + at,
        };
        if (!s->work[i].soft)
            return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %d canvases", s->batch);
    }
    return s->answer_steps ? begin_answers(s, err) : DGEMMA_OK;
}

dgemma_status dg_bench_place(dg_bench_session *s, int context, int batch, int rows,
                             dgemma_error *err)
{
    leave_place(s);
    s->context = context;
    s->batch = batch;
    rows = dg_max(rows, DG_PAGE);
    dgemma_status st = make_room(s, rows, err);
    if (!st)
        st = allocate(s, rows, err);
    if (!st && context && !s->source.n_token)
        st = encode(s, &s->source, 0, DG_PAGE, err);
    for (int i = 0; !st && i < batch; i++)
        st = fill(s, &s->seq[i], err);
    return st ? st : begin_canvases(s, err);
}

/* ---- passes ---- */

/* Random words again everywhere. Words that were drawn would be the same few at many positions,
 * which no real router sees. */
static void renoise(dg_bench_session *s)
{
    dg_rng_key key = {.seed = 10, .step = ++s->n_pass};
    for (int i = 0; i < s->batch * s->cfg->canvas_length; i++)
        s->token[i] = (int32_t)dg_rng_below(&key, (uint32_t)i, (uint32_t)s->cfg->n_vocab);
}

/* What an answer makes of a step: words that were accepted stay, and the schedule goes on. */
static void go_on(dg_bench_session *s)
{
    for (int i = 0; i < s->batch; i++) {
        dg_canvas *c = &s->canvas[i];
        dg_canvas_advance(c, &s->draws);
        s->work[i].temperature = dg_canvas_temperature(c);
        s->work[i].last_step = c->step + 1 == s->answer_steps;
        if (c->finished)
            begin_answer(s, i);
    }
}

/* What an engine makes ready while a device computes. */
static void prepare(void *arg)
{
    dg_bench_session *s = arg;
    for (int i = 0; s->canvas && i < s->batch; i++)
        dg_canvas_prepare(&s->canvas[i], &s->draws);
}

static dgemma_status run_canvases(dg_bench_session *s, dgemma_error *err)
{
    if (s->guided)
        dg_bench_guided_ask(s->guided, s->work);
    dg_pass pass = {.work = s->work, .n_work = s->batch, .meanwhile = prepare, .meanwhile_arg = s};
    dgemma_status st = dg_forward_run(s->forward, &pass, err);
    if (!st && s->guided)
        st = dg_bench_guided_take(s->guided, s->work, err);
    for (int i = 0; i < s->batch; i++)
        s->work[i].first_step = false;
    if (!s->canvas)
        renoise(s);
    else if (!st)
        go_on(s);
    return st;
}

dgemma_status dg_bench_step(dg_bench_session *s, dgemma_error *err)
{
    return run_canvases(s, err);
}

double dg_bench_entropy(const dg_bench_session *s)
{
    double sum = 0;
    int n = s->cfg->canvas_length;
    for (int i = 0; i < s->batch * n; i++)
        sum += (double)s->work[i / n].entropy[i % n];
    return sum / (s->batch * n);
}

double dg_bench_gathered(const dg_bench_session *s)
{
    return s->be->gathered ? (double)s->be->gathered(s->be) / (s->batch * s->cfg->canvas_length)
                           : -1;
}

dgemma_status dg_bench_commit(dg_bench_session *s, dgemma_error *err)
{
    size_t c = (size_t)s->batch * (size_t)s->cfg->canvas_length;
    for (int i = 0; i < s->batch; i++) {
        s->work[i].token =
            s->canvas ? s->canvas[i].argmax : s->token + 3 * c + (size_t)i; /* as good as any */
        s->work[i].n_token = s->work[i].n_canvas;
        s->work[i].first_step = true;
        if (s->canvas)
            begin_answer(s, i);
    }
    dgemma_status st = run_canvases(s, err);
    for (int i = 0; i < s->batch; i++)
        s->work[i].n_token = 0;
    return st;
}

dgemma_status dg_bench_prefill(dg_bench_session *s, int n, int chunk, dgemma_error *err)
{
    dg_kv_seq seq = {0};
    dgemma_status st = DGEMMA_OK;
    for (int at = 0; !st && at < n; at += chunk)
        st = encode(s, &seq, at, dg_min(chunk, n - at), err);
    dg_kv_seq_clear(s->kv, &seq);
    return st;
}

size_t dg_bench_work_bytes(const dg_bench_session *s)
{
    return dg_forward_bytes(s->cfg, s->be, s->kv, dg_forward_max_row(s->forward), s->batch);
}

size_t dg_bench_above_bytes(const dg_bench_session *s)
{
    size_t now = s->be->room ? s->be->room(s->be) + s->kv_limit : s->loaded_room;
    return now < s->loaded_room ? s->loaded_room - now : 0;
}
