#include "server.h"
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "batch_runner.h"
#include "calls.h"
#include "entry.h"
#include "batches.h"
#include "files.h"
#include "state.h"
#include "stored_responses.h"
#include "watch.h"

dg_server_options dg_server_defaults(void)
{
    return (dg_server_options){
        .host = "127.0.0.1",
        .port = 8080,
        .model_name = "diffusiongemma",
        .state_bytes = (uint64_t)4 << 30,
        .state_days = 30,
        .max_connections = 1024,
        .max_active = 256,
        .max_running = 16,
        .decision_temperature = 1,
        .max_body_bytes = (size_t)32 << 20,
        .max_all_body_bytes = (size_t)512 << 20,
        .max_choices = 16,
        .max_images = 16,
        .idle_seconds = 75,
        .receive_seconds = 120,
        .answer_seconds = 900,
        .fetch_seconds = 10,
        .ping_seconds = 15,
        .n_worker = 4,
    };
}

int dg_server_port(const dg_server *s)
{
    return dg_http_port(s->http);
}

/* ---- options ---- */

static bool copy_words(dg_words *out, const char *const *words, size_t n)
{
    const char **copy = dg_calloc(n + 1, sizeof *copy);
    bool ok = copy != NULL;
    out->words = copy;
    while (ok && out->n < n) {
        copy[out->n] = dg_strdup(words[out->n]);
        ok = copy[out->n++] != NULL;
    }
    return ok;
}

static void free_words(dg_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        dg_free((void *)w->words[i]);
    dg_free((void *)w->words);
}

static bool copy_string(const char **at)
{
    if (*at)
        *at = dg_strdup(*at);
    return *at != NULL;
}

static bool copy_options(dg_server *s, const dg_server_options *opt)
{
    s->opt = *opt;
    bool ok = copy_string(&s->opt.host);
    ok = copy_string(&s->opt.model_name) && ok;
    if (opt->slot_path)
        ok = copy_string(&s->opt.slot_path) && ok;
    bool tls = opt->tls_certificate && opt->tls_key;
    if (tls)
        ok = copy_string(&s->opt.tls_certificate) && ok;
    if (tls)
        ok = copy_string(&s->opt.tls_key) && ok;
    ok = copy_words(&s->keys, opt->keys, opt->n_key) && ok;
    ok = copy_words(&s->origins, opt->origins, opt->n_origin) && ok;
    if (opt->n_image_host)
        s->opt.n_worker += DG_MAX_FETCHES; /* so that there are always some that do not wait */
    return copy_words(&s->image_hosts, opt->image_hosts, opt->n_image_host) && ok;
}

static dgemma_status check_options(const dg_server_options *o, dgemma_error *err)
{
    if (!o->tls_certificate != !o->tls_key)
        return dg_fail(err, DGEMMA_E_ARG, "TLS needs a certificate and its key");
    if (o->port < 0 || o->port > 65535)
        return dg_fail(err, DGEMMA_E_ARG, "port %d: 0 to 65535 are possible", o->port);
    if (o->max_connections < 8 || o->max_active < 1 || o->max_choices < 1 || o->n_worker < 1 ||
        !o->max_body_bytes)
        return dg_fail(err, DGEMMA_E_ARG, "a limit leaves no room for any request");
    if (o->slot_path && !dg_file_is_dir(o->slot_path))
        return dg_fail(err, DGEMMA_E_ARG, "%s is no folder to save slots in", o->slot_path);
    for (size_t i = 0; i < o->n_key; i++)
        if (!*o->keys[i] || strpbrk(o->keys[i], " \t\r\n"))
            return dg_fail(err, DGEMMA_E_ARG, "an API key is empty, or has a space in it");
    return DGEMMA_OK;
}

/* ---- starting ---- */

static dgemma_status start_threads(dg_server *s, dgemma_error *err)
{
    s->workers = dg_calloc((size_t)s->opt.n_worker, sizeof *s->workers);
    bool ok = s->workers != NULL;
    while (ok && s->n_worker < s->opt.n_worker) {
        ok = pthread_create(&s->workers[s->n_worker], NULL, dg_worker_main, s) == 0;
        s->n_worker += ok;
    }
    s->watching = ok && pthread_create(&s->watch, NULL, dg_watch_main, s) == 0;
    return s->watching ? DGEMMA_OK
                       : dg_fail(err, DGEMMA_E_NOMEM, "cannot start the server's threads");
}

static dgemma_status start_http(dg_server *s, dgemma_error *err)
{
    const dg_http_options opt = {
        .host = s->opt.host,
        .port = s->opt.port,
        .listen_fd = s->opt.listen_fd,
        .tls_certificate = s->opt.tls_certificate,
        .tls_key = s->opt.tls_key,
        .max_connections = s->opt.max_connections,
        .idle_seconds = s->opt.idle_seconds,
        .receive_seconds = s->opt.receive_seconds,
        .max_unread_bytes = 4 * (uint64_t)s->opt.max_body_bytes,
    };
    s->handler = dg_entry_handler(s);
    dgemma_status st = dg_http_open(&s->http, &opt, &s->handler, err);
    if (st)
        return st;
    s->only_this_machine = !s->keys.n && dg_http_is_local(s->http);
    return dg_http_start(s->http, err);
}

static void init(dg_server *s)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, &attr);
    pthread_condattr_destroy(&attr);
    s->last_queued = &s->first_queued;
    s->started = dg_clock_now();
}

static dgemma_status create_models(dg_server *s, const dg_server_options *opt, dgemma_error *err)
{
    dg_chat_limits limits = {.max_choices = s->opt.max_choices,
                             .max_images = s->opt.max_images,
                             .constraints = s->constraints};
    if (opt->models)
        return dg_models_create(&s->models, opt->models, &opt->loading, &limits, err);
    s->models = dg_models_create_one(s->opt.model_name, s->metrics, &limits);
    return s->models ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

dgemma_status dg_server_attach(dg_server *s, dgemma_engine *engine, dgemma_error *err)
{
    dgemma_status st =
        engine ? dg_models_attach(s->models, engine, err) : dg_models_start(s->models, s->log, err);
    if (!st)
        atomic_store(&s->ready, true);
    return st;
}

/* What one key may have; together they share the bytes. */
static dgemma_status open_state(dg_server *s, const dg_server_options *opt, dgemma_error *err)
{
    const dg_state_limits limits = {
        .max_bytes = opt->state_bytes,
        .max_files = 10000,
        .max_batches = 1000,
        .max_responses = 10000,
        .keep_seconds = (int64_t)opt->state_days * 86400,
    };
    dgemma_status st = dg_state_open(&s->state, opt->state, &limits, s->keys, err);
    if (!st)
        st = dg_files_mend(s->state, err);
    if (!st)
        st = dg_batches_mend(s->state, err);
    return st ? st : dg_stored_mend(s->state, err);
}

dgemma_status dg_server_start(dg_server **out, dgemma_engine *engine, const dg_server_options *opt,
                              dgemma_error *err)
{
    dgemma_status st = check_options(opt, err);
    if (st)
        return st;
    dg_server *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    init(s);
    bool copied = copy_options(s, opt);
    s->opt.trusted_proxies = NULL;
    s->metrics = dg_metrics_create();
    s->constraints = dg_constraint_cache_create();
    if (!copied || !s->metrics || !s->constraints)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = create_models(s, opt, err);
    if (!st)
        st = dg_proxies_read(&s->proxies, opt->trusted_proxies, err);
    if (!st && engine)
        st = dg_server_attach(s, engine, err);
    if (!st && s->image_hosts.n)
        st = dg_fetcher_open(&s->fetcher, s->image_hosts, &s->stopping, err);
    if (!st && opt->state)
        st = open_state(s, opt, err);
    if (!st && opt->log)
        st = dg_log_open(&s->log, opt->log, opt->log_user, err);
    if (!st)
        st = start_threads(s, err);
    if (!st && s->state)
        st = dg_batch_runner_start(&s->batches, s, err);
    if (!st)
        st = start_http(s, err);
    if (st) {
        dg_server_stop(s);
        dg_server_free(s);
        return st;
    }
    *out = s;
    return DGEMMA_OK;
}

/* ---- stopping ---- */

void dg_server_leave(dg_server *s)
{
    atomic_store(&s->leaving, true);
}

void dg_server_drain(dg_server *s)
{
    dg_server_leave(s);
    atomic_store(&s->draining, true);
}

bool dg_server_wait_idle(dg_server *s, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long long ns = until.tv_nsec + (long long)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&s->lock);
    int late = 0;
    while (s->n_accepted && !late)
        late = pthread_cond_timedwait(&s->idle, &s->lock, &until);
    bool idle = !s->n_accepted;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

void dg_server_stop(dg_server *s)
{
    enum { FAREWELL_SECONDS = 5 }; /* for clients to take the news */
    dg_server_drain(s);
    atomic_store(&s->stopping, true);
    dg_batch_runner_stop(s->batches);
    s->batches = NULL;
    pthread_mutex_lock(&s->lock);
    for (dg_call *c = s->calls; c; c = c->next)
        dg_call_cancel(c, DG_CANCEL_STOP);
    pthread_mutex_unlock(&s->lock);
    dg_server_wait_idle(s, FAREWELL_SECONDS);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    if (s->http)
        dg_http_stop(s->http); /* ends every call that is left */
    while (s->n_worker && !dg_server_wait_idle(s, 1))
        ; /* a step of the model may take long; its answers end with it */
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (; s->n_worker > 0; s->n_worker--)
        pthread_join(s->workers[s->n_worker - 1], NULL);
    if (s->watching)
        pthread_join(s->watch, NULL);
    s->watching = false;
    dg_models_stop(s->models);
}

void dg_server_free(dg_server *s)
{
    if (!s)
        return;
    dg_http_free(s->http);
    dg_log_close(s->log);
    dg_models_free(s->models);
    dg_metrics_free(s->metrics);
    dg_constraint_cache_free(s->constraints);
    free_words(&s->keys);
    free_words(&s->origins);
    free_words(&s->image_hosts);
    dg_fetcher_close(s->fetcher);
    dg_state_close(s->state);
    dg_free((void *)s->opt.host);
    dg_free((void *)s->opt.model_name);
    dg_free((void *)s->opt.slot_path);
    dg_free((void *)s->opt.tls_certificate);
    dg_free((void *)s->opt.tls_key);
    dg_free(s->workers);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    dg_free(s);
}
