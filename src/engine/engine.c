#include "engine/engine.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

/* ---- opening ---- */

static dgemma_status open_backend(dgemma_engine *e, const dgemma_engine_options *opt,
                                  dgemma_error *err)
{
    unsigned flags = dg_cpu_flags(), wanted = flags;
    if (opt->cpu && !dg_cpu_flags_parse(&wanted, opt->cpu))
        return dg_fail(err, DGEMMA_E_ARG, "unknown instruction set \"%s\"", opt->cpu);
    if (wanted & ~flags)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "this processor does not have %s", opt->cpu);
    e->n_thread = opt->n_threads ? opt->n_threads : dg_cpu_count();
    return dg_cpu_open(&e->be, &(dg_cpu_options){e->n_thread, wanted}, err);
}

/* Which revision of the template to speak. */
static dgemma_status choose_template(dgemma_engine *e, const char *wanted, dgemma_error *err)
{
    dg_chat_revision found =
        e->loaded.chat_template ? dg_chat_revision_of(e->loaded.chat_template) : DG_CHAT_REVISION_A;
    e->foreign_template = found == DG_CHAT_UNKNOWN;
    e->revision = e->foreign_template ? DG_CHAT_REVISION_A : found;
    if (!wanted)
        return DGEMMA_OK;
    if (strcmp(wanted, "a") != 0 && strcmp(wanted, "b") != 0)
        return dg_fail(err, DGEMMA_E_ARG, "chat template \"%s\": \"a\" and \"b\" are known",
                       wanted);
    e->revision = wanted[0] == 'a' ? DG_CHAT_REVISION_A : DG_CHAT_REVISION_B;
    return DGEMMA_OK;
}

static bool progress(const dgemma_engine_options *opt, double fraction)
{
    return !opt->on_progress || opt->on_progress(opt->progress_user, fraction);
}

/* All that is known without weights: files, config, tokenizer, backend, the cache's layout. */
static dgemma_status open_headers(dgemma_engine *e, const dgemma_engine_options *opt,
                                  dgemma_error *err)
{
    dgemma_status st = progress(opt, 0) ? dg_load(&e->loaded, opt->model_path, err)
                                        : dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    if (!st)
        st = dg_load_tower(&e->loaded, opt->mmproj, err);
    if (!st)
        st = choose_template(e, opt->chat_template, err);
    if (!st && !progress(opt, 0.5))
        st = dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    if (!st)
        st = open_backend(e, opt, err);
    if (st)
        return st;
    const dg_config *cfg = &e->loaded.cfg;
    const dg_tokenizer *t = e->loaded.tokenizer;
    e->n_context =
        opt->context_length ? dg_min(opt->context_length, cfg->n_context) : cfg->n_context;
    e->image_attention = opt->image_attention;
    e->think_open = t ? dg_tokenizer_added_id(t, "<|channel>") : -1;
    e->think_close = t ? dg_tokenizer_added_id(t, "<channel|>") : -1;
    dg_dtype type = opt->kv_type == DGEMMA_KV_F32 ? DG_F32 : DG_BF16;
    return dg_kv_cache_create(&e->kv, cfg, e->be, type, 0, err);
}

/* A picture's block is not cut, so the largest must fit. */
static int pass_rows(const dg_config *cfg)
{
    int rows = dg_max(DG_MIN_PASS_ROWS, 2 * cfg->canvas_length);
    return cfg->vision.present ? dg_max(rows, DG_MAX_PICTURE_TOKENS) : rows;
}

/* The tower, of the checkpoint itself or from a file of its own. */
static dgemma_status open_vision(dgemma_engine *e, dgemma_error *err)
{
    const dg_config *cfg = &e->loaded.cfg;
    const dg_checkpoint *from = e->loaded.mmproj ? e->loaded.mmproj : e->loaded.checkpoint;
    dgemma_status st = dg_vision_load(&e->vision, cfg, from, e->be, err);
    if (!st && e->vision)
        st = dg_picture_cache_create(&e->pictures, e->vision, e->be, cfg->n_embd,
                                     DG_PICTURE_CACHE_BYTES, err);
    return st;
}

static dgemma_status open_model(dgemma_engine *e, const dgemma_engine_options *opt,
                                dgemma_error *err)
{
    const dg_config *cfg = &e->loaded.cfg;
    dgemma_status st = dg_model_load(&e->model, cfg, e->loaded.checkpoint, e->be, err);
    if (!st)
        st = dg_forward_create(&e->forward, e->model, e->kv, pass_rows(cfg), 1, err);
    if (!st)
        st = open_vision(e, err);
    if (!st && !progress(opt, 1))
        st = dg_fail(err, DGEMMA_E_CANCELLED, "loading was given up");
    return st;
}

static void close_parts(dgemma_engine *e)
{
    dg_picture_cache_free(e->pictures);
    dg_vision_free(e->vision);
    dg_forward_free(e->forward);
    dg_kv_cache_free(e->kv);
    dg_model_free(e->model);
    if (e->be)
        e->be->close(e->be);
    dg_loaded_clear(&e->loaded);
}

static size_t stored_bytes(const dg_checkpoint *ck)
{
    size_t bytes = 0;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++)
        bytes += dg_checkpoint_at(ck, i)->bytes;
    return bytes;
}

void dg_engine_describe(const dgemma_engine *e, dgemma_model_info *info)
{
    const dg_config *cfg = &e->loaded.cfg;
    size_t weights = stored_bytes(e->loaded.checkpoint);
    if (e->loaded.mmproj)
        weights += stored_bytes(e->loaded.mmproj);
    int rows = pass_rows(cfg);
    *info = (dgemma_model_info){
        .n_vocab = cfg->n_vocab,
        .n_layer = cfg->n_layer,
        .n_embd = cfg->n_embd,
        .n_expert = cfg->n_expert,
        .n_expert_used = cfg->n_expert_used,
        .context_length = e->n_context,
        .canvas_length = cfg->canvas_length,
        .has_tokenizer = e->loaded.tokenizer != NULL,
        .has_vision = cfg->vision.present,
        .has_chat_template = e->loaded.tokenizer && dg_chat_supported(e->loaded.tokenizer),
        .chat_template = e->revision == DG_CHAT_REVISION_A ? "a" : "b",
        .foreign_template = e->foreign_template,
        .backend = e->be->name,
        .n_threads = e->n_thread,
        .weight_bytes = weights,
        .work_bytes = dg_forward_bytes(cfg, e->be, e->kv, rows, 1),
        .request_bytes = dg_request_bytes(cfg, cfg->canvas_length),
        .kv_bytes_full = dg_kv_bytes_for(e->kv, e->n_context, rows),
    };
}

dgemma_status dg_engine_estimate(dgemma_model_info *info, const dgemma_engine_options *opt,
                                 dgemma_error *err)
{
    dgemma_engine e = {0};
    dgemma_status st = open_headers(&e, opt, err);
    if (!st)
        dg_engine_describe(&e, info);
    close_parts(&e);
    return st;
}

/* ---- the queue ---- */

void dg_request_release(dgemma_request *r)
{
    if (!r || atomic_fetch_sub(&r->n_holder, 1) > 1)
        return;
    dg_stream_free(r->stream);
    dg_free(r->prompt);
    dg_pictures_clear(&r->pictures);
    for (size_t i = 0; i < r->answer.n_stop; i++)
        dg_free(r->answer.stop[i]);
    dg_free(r->answer.stop);
    dg_sampling_clear(&r->sampling);
    dg_free(r);
}

dgemma_status dg_engine_enqueue(dgemma_engine *e, dgemma_request *r, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    r->submitted = dg_clock_now();
    pthread_mutex_lock(&e->lock);
    if (e->n_waiting >= DG_MAX_QUEUE)
        st = dg_fail(err, DGEMMA_E_LIMIT, "%d requests are waiting already", e->n_waiting);
    else {
        atomic_fetch_add(&r->n_holder, 1);
        *e->last = r;
        e->last = &r->next;
        e->n_waiting++;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* The next request, waiting for one; NULL: the engine closes and none is left. */
static dgemma_request *dequeue(dgemma_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->first && !e->quit)
        pthread_cond_wait(&e->work, &e->lock);
    dgemma_request *r = e->first;
    if (r) {
        e->first = r->next;
        if (!e->first)
            e->last = &e->first;
        e->n_waiting--;
        if (e->quit)
            dg_stream_cancel(r->stream);
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

static bool is_closing(dgemma_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool quit = e->quit;
    pthread_mutex_unlock(&e->lock);
    return quit;
}

/* ---- the engine's thread ---- */

/* One pass of the request and its events. */
static dgemma_status pass(dgemma_engine *e, dg_request *req, dg_answer *answer, bool *go_on,
                          dgemma_error *err)
{
    dg_work work;
    double start = dg_clock_now();
    dg_request_plan(req, &work, dg_forward_max_row(e->forward));
    dg_pass one = {
        .work = &work,
        .n_work = 1,
        .feature = req->cfg.features,
        .images =
            e->image_attention == DGEMMA_IMAGES_IN_WINDOW ? DG_IMAGES_IN_WINDOW : DG_IMAGES_WHOLE,
    };
    dgemma_status st = dg_forward_run(e->forward, &one, err);
    if (st && req->canvas_in_pass) {
        char where[64];
        snprintf(where, sizeof where, "block %d, step %d", req->block, req->canvas.step);
        return dg_fail_prefix(err, st, where);
    }
    if (st)
        return st;
    dg_request_take(req);
    return dg_answer_pass(answer, req, dg_clock_now() - start, go_on, err);
}

/* Has the tower look at the request's pictures. */
static dgemma_status look(dgemma_engine *e, dgemma_request *r, float **features,
                          dgemma_stats *stats, dgemma_error *err)
{
    *features = NULL;
    stats->n_pictures = r->pictures.n;
    if (!r->pictures.n)
        return DGEMMA_OK;
    dgemma_status st =
        dg_picture_features(e->pictures, &r->pictures, features, &stats->n_pictures_encoded, err);
    r->cfg.features = *features;
    return st;
}

static void serve(dgemma_engine *e, dgemma_request *r)
{
    dgemma_error err = {0};
    float *features = NULL;
    dgemma_stats pictures = {0};
    dg_request req = {0};
    dg_answer answer = {.req = &req, .stream = r->stream};
    bool go_on = !dg_stream_cancelled(r->stream);
    double started = dg_clock_now();
    dgemma_status st = DGEMMA_OK;
    if (go_on)
        st = look(e, r, &features, &pictures, &err);
    if (go_on && !st)
        st = dg_request_init(&req, e->model, e->kv, &r->cfg, &err);
    if (go_on && !st)
        st = dg_answer_init(&answer, &r->answer, &req, r->stream, &err);
    answer.stats.queue_seconds = started - r->submitted;
    answer.stats.n_pictures = pictures.n_pictures;
    answer.stats.n_pictures_encoded = pictures.n_pictures_encoded;
    while (!st && go_on && !req.end && !answer.stop_found) {
        st = pass(e, &req, &answer, &go_on, &err);
        go_on = go_on && !dg_stream_cancelled(r->stream) && !is_closing(e);
    }
    dg_answer_end(&answer, st, &err, !go_on);
    dg_answer_clear(&answer);
    dg_request_clear(&req);
    e->be->free(e->be, features);
    dg_request_release(r);
}

static void *engine_main(void *arg)
{
    dgemma_engine *e = arg;
    for (dgemma_request *r; (r = dequeue(e));)
        serve(e, r);
    return NULL;
}

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err)
{
    dgemma_engine *e = dg_calloc(1, sizeof *e);
    if (!e)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    e->last = &e->first;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    dgemma_status st = open_headers(e, opt, err);
    if (!st)
        st = open_model(e, opt, err);
    if (!st && pthread_create(&e->thread, NULL, engine_main, e) != 0)
        st = dg_fail(err, DGEMMA_E_NOMEM, "cannot start the engine's thread");
    e->thread_started = !st;
    if (st) {
        dg_engine_close(e);
        return st;
    }
    *out = e;
    return DGEMMA_OK;
}

void dg_engine_close(dgemma_engine *e)
{
    if (!e)
        return;
    if (e->thread_started) {
        pthread_mutex_lock(&e->lock);
        e->quit = true;
        pthread_cond_signal(&e->work);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    close_parts(e);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    dg_free(e);
}
