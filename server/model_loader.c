/* The thread that loads models and unloads them, one at a time, in the order in which they were
 * first asked for.
 *
 * Room is made by unloading the model that nobody has used for longest. Where all of them are in
 * use, the one that was loaded first gives way: what it runs is finished, who asks for it meanwhile
 * waits behind the one that comes in its place, and is then answered together with all who wait for
 * the same. So nobody waits for ever, and however requests for several models alternate, a model is
 * loaded once for all that have come by then. */
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "models.h"

/* ---- the queue ---- */

static void unqueue_first(dg_models *ms)
{
    dg_model *m = ms->first_wanted;
    ms->first_wanted = m->next_wanted;
    if (!ms->first_wanted)
        ms->last_wanted = &ms->first_wanted;
    m->wanted = false;
}

/* Whoever gave way to the first of the queue need not any more. */
static void end_giving_way(dg_models *ms)
{
    for (size_t i = 0; i < ms->n; i++) {
        dg_model *m = &ms->list[i];
        if (m->gives_way && m->state == DG_MODEL_LOADED && !m->broken)
            dg_model_grant(m);
        m->gives_way = false;
    }
}

/* The model that is to be loaded next; those whose clients have all gone are not. */
static dg_model *next_wanted(dg_models *ms)
{
    while (ms->first_wanted && !ms->first_wanted->first_waiting && !ms->first_wanted->preloads) {
        unqueue_first(ms);
        end_giving_way(ms);
    }
    return ms->first_wanted;
}

/* ---- unloading ---- */

static bool is_unused(const dg_model *m)
{
    return m->state == DG_MODEL_LOADED && !m->n_use;
}

static void unload(dg_models *ms, dg_model *m, const char *why)
{
    dgemma_engine *engine = m->engine;
    dg_gpu *gpu = m->gpu;
    m->state = DG_MODEL_LEAVING;
    m->engine = NULL;
    m->gpu = NULL;
    m->info = m->spec->info;
    dg_model_keep_as_usual(m);
    pthread_mutex_unlock(&ms->lock);
    if (ms->opt.closing)
        ms->opt.closing(engine);
    dg_gpu_close(gpu);
    dgemma_engine_close(engine);
    dg_give_back();
    dg_log_print(ms->log, "model %s unloaded: %s", m->name, why);
    pthread_mutex_lock(&ms->lock);
    m->state = DG_MODEL_ABSENT;
    m->broken = m->gives_way = false;
    m->counts.n_unloaded++;
}

static double expiry(const dg_model *m)
{
    return m->last_used + m->keep_seconds;
}

static bool can_expire(const dg_model *m)
{
    return is_unused(m) && !m->spec->pinned && m->keep_seconds >= 0;
}

/* True: one was unloaded. */
static bool unload_expired(dg_models *ms)
{
    double now = dg_clock_now();
    for (size_t i = 0; i < ms->n; i++) {
        dg_model *m = &ms->list[i];
        if (is_unused(m) && m->broken) {
            unload(ms, m, "a file of it was cut short");
            return true;
        }
        if (can_expire(m) && now >= expiry(m)) {
            unload(ms, m, "nobody asked for it");
            return true;
        }
    }
    return false;
}

/* ---- room ---- */

static bool has_room(const dg_models *ms, const dg_model *m)
{
    size_t bytes = m->bytes;
    int n = 1;
    for (size_t i = 0; i < ms->n; i++) {
        bool there = &ms->list[i] != m && ms->list[i].state != DG_MODEL_ABSENT;
        bytes += there ? ms->list[i].bytes : 0;
        n += there;
    }
    return (!ms->opt.max_loaded || n <= ms->opt.max_loaded) &&
           (!ms->opt.max_bytes || bytes <= ms->opt.max_bytes);
}

/* The one that was used last before all others; NULL: all are in use, or stay. */
static dg_model *least_used(const dg_models *ms)
{
    dg_model *found = NULL;
    for (size_t i = 0; i < ms->n; i++) {
        dg_model *m = &ms->list[i];
        if (is_unused(m) && !m->spec->pinned && (!found || m->last_used < found->last_used))
            found = m;
    }
    return found;
}

/* One that is in use is to be left by and by. False: there is none that could go. */
static bool make_way(dg_models *ms)
{
    dg_model *found = NULL;
    for (size_t i = 0; i < ms->n; i++) {
        dg_model *m = &ms->list[i];
        if (m->state != DG_MODEL_LOADED || m->spec->pinned)
            continue;
        if (m->gives_way)
            return true;
        if (!found || m->since < found->since)
            found = m;
    }
    if (found)
        found->gives_way = true;
    return found != NULL;
}

/* ---- loading ---- */

/* Loading is given up when the server stops, or when who started it says so. */
static bool go_on(void *model, double fraction)
{
    const dg_model *m = model;
    const dgemma_engine_options *o = &m->spec->options;
    return !atomic_load(&m->models->stops) &&
           (!o->on_progress || o->on_progress(o->progress_user, fraction));
}

/* It is out of the queue, whatever became of it. */
static void end_turn(dg_models *ms, dg_model *m)
{
    unqueue_first(ms);
    m->preloads = false;
    end_giving_way(ms);
    pthread_cond_broadcast(&ms->loaded);
}

static void hide_folder_of(char *words, const char *path)
{
    char folder[sizeof((dgemma_error *)0)->msg]; /* no longer one is in it */
    const char *name = path ? strrchr(path, '/') : NULL;
    if (!name || (size_t)(name - path) >= sizeof folder)
        return;
    memcpy(folder, path, (size_t)(name - path));
    folder[name - path] = '\0';
    dg_hide_folder(words, folder);
}

/* Clients know models by name, and not where they lie. */
static void hide_folders(char *words, const dg_model *m)
{
    const dgemma_engine_options *o = &m->spec->options;
    dg_hide_folder(words, m->models->specs->folder);
    hide_folder_of(words, o->model_path);
    hide_folder_of(words, o->mmproj);
    for (size_t i = 0; i < o->n_adapters; i++)
        hide_folder_of(words, o->adapters[i].path);
}

static void fail(dg_models *ms, dg_model *m, dgemma_error *why)
{
    dg_http_error e;
    dg_log_print(ms->log, "model %s could not be loaded: %s", m->name, why->msg);
    hide_folders(why->msg, m);
    dg_refuse(&e, why->status == DGEMMA_E_NOMEM || why->status == DGEMMA_E_BUSY ? 503 : 500,
              "model_load_failed", "model", "the model %.100s could not be loaded: %s", m->name,
              why->msg);
    e.retry_after = e.status == 503 ? 5 : 0;
    m->counts.n_failed++;
    dg_model_refuse(m, &e);
    end_turn(ms, m);
}

/* Its headers, before anything is unloaded for it: files may have gone since the server started, or
 * others may be in their place. */
static void look_at(dg_models *ms, dg_model *m)
{
    dg_model_spec now = *m->spec;
    dgemma_error err = {0};
    m->state = DG_MODEL_LOADING;
    pthread_mutex_unlock(&ms->lock);
    dgemma_status st = dgemma_model_estimate(&now.info, &now.options, &err);
    pthread_mutex_lock(&ms->lock);
    m->state = DG_MODEL_ABSENT;
    m->looked_at = true;
    if (!st) {
        m->bytes = dg_model_spec_bytes(&now);
        if (!dg_model_fits(m))
            st = dg_fail(&err, DGEMMA_E_LIMIT,
                         "it has grown beyond the room that models have beside those that stay");
    }
    if (st)
        fail(ms, m, &err);
}

static void settle(dg_models *ms, dg_model *m, dgemma_engine *engine, double seconds)
{
    dg_model_attach(m, engine);
    m->since = m->last_used = dg_clock_now();
    m->counts.n_loaded++;
    m->counts.load_seconds += seconds;
    dg_model_grant(m);
    end_turn(ms, m);
}

static void load(dg_models *ms, dg_model *m)
{
    dgemma_engine *engine = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = m->spec->options;
    opt.on_progress = go_on;
    opt.progress_user = m;
    m->state = DG_MODEL_LOADING;
    pthread_mutex_unlock(&ms->lock);
    double start = dg_clock_now();
    dgemma_status st = dgemma_engine_open(&engine, &opt, &err);
    double seconds = dg_clock_now() - start;
    if (!st && ms->opt.opened)
        ms->opt.opened(engine);
    if (!st)
        dg_log_print(ms->log, "model %s loaded in %.1f s, %zu MB", m->name, seconds,
                     m->bytes >> 20);
    pthread_mutex_lock(&ms->lock);
    m->state = DG_MODEL_ABSENT;
    dg_model *other = st == DGEMMA_E_NOMEM ? least_used(ms) : NULL;
    if (!st)
        settle(ms, m, engine, seconds);
    else if (other)
        unload(ms, other, "another needs its memory"); /* and it is tried again */
    else
        fail(ms, m, &err);
}

/* Something towards the first of the queue. False: nothing can be done now. */
static bool advance(dg_models *ms, dg_model *m)
{
    dg_model *other;
    if (m->state == DG_MODEL_LOADED && m->broken)
        return false; /* until its last user has gone */
    if (m->state == DG_MODEL_LOADED) {
        dg_model_grant(m);
        end_turn(ms, m);
    } else if (!m->looked_at) {
        look_at(ms, m);
    } else if (has_room(ms, m)) {
        load(ms, m);
    } else if ((other = least_used(ms))) {
        unload(ms, other, "another needs its room");
    } else if (!make_way(ms)) {
        dgemma_error err = {.status = DGEMMA_E_BUSY,
                            .msg = "models that stay loaded leave no room for it"};
        fail(ms, m, &err);
    } else {
        return false;
    }
    return true;
}

/* ---- the thread ---- */

/* For something to do, or for the next model to expire. */
static void wait_for_bell(dg_models *ms)
{
    double now = dg_clock_now(), until = -1;
    for (size_t i = 0; i < ms->n; i++)
        if (can_expire(&ms->list[i]) && (until < 0 || expiry(&ms->list[i]) < until))
            until = expiry(&ms->list[i]);
    if (until < 0) {
        pthread_cond_wait(&ms->bell, &ms->lock);
        return;
    }
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    double wait = until > now ? until - now : 0;
    long long ns = at.tv_nsec + (long long)((wait - (double)(time_t)wait) * 1e9) + 1000000;
    at.tv_sec += (time_t)wait + (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&ms->bell, &ms->lock, &at);
}

void *dg_models_load_main(void *models)
{
    dg_models *ms = models;
    pthread_mutex_lock(&ms->lock);
    while (!atomic_load(&ms->stops)) {
        if (unload_expired(ms))
            continue;
        dg_model *m = next_wanted(ms);
        if (!m || !advance(ms, m))
            wait_for_bell(ms);
    }
    pthread_mutex_unlock(&ms->lock);
    return NULL;
}

/* Those that are to be there from the start, in their order. */
static dgemma_status preload(dg_models *ms, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    pthread_mutex_lock(&ms->lock);
    for (size_t i = 0; i < ms->n && !st; i++) {
        dg_model *m = &ms->list[i];
        if (!m->spec->preload)
            continue;
        m->preloads = true;
        dg_model_want(m);
        pthread_cond_signal(&ms->bell);
        while (m->preloads)
            pthread_cond_wait(&ms->loaded, &ms->lock);
        if (m->state != DG_MODEL_LOADED)
            st = dg_fail(err, DGEMMA_E_IO, "%s", m->error.message);
    }
    pthread_mutex_unlock(&ms->lock);
    return st;
}

dgemma_status dg_models_start(dg_models *ms, dg_log *log, dgemma_error *err)
{
    ms->log = log;
    ms->has_loader = pthread_create(&ms->loader, NULL, dg_models_load_main, ms) == 0;
    return ms->has_loader ? preload(ms, err)
                          : dg_fail(err, DGEMMA_E_NOMEM, "cannot start the server's threads");
}

void dg_models_stop(dg_models *ms)
{
    if (!ms || !ms->has_loader)
        return;
    pthread_mutex_lock(&ms->lock);
    atomic_store(&ms->stops, true);
    pthread_cond_signal(&ms->bell);
    pthread_mutex_unlock(&ms->lock);
    pthread_join(ms->loader, NULL);
    ms->has_loader = false;
    pthread_mutex_lock(&ms->lock);
    for (size_t i = 0; i < ms->n; i++)
        if (ms->list[i].state == DG_MODEL_LOADED)
            unload(ms, &ms->list[i], "the server stops");
    pthread_mutex_unlock(&ms->lock);
}
