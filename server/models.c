#include "models.h"
#include <stdio.h>
#include <string.h>
#include "adapter_request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "json_fields.h"

/* ---- life cycle ---- */

static dg_models *create(size_t n, const dg_chat_limits *limits)
{
    dg_models *ms = dg_calloc(1, sizeof *ms);
    dg_model *list = dg_calloc(n, sizeof *list);
    if (!ms || !list) {
        dg_free(ms);
        dg_free(list);
        return NULL;
    }
    *ms = (dg_models){.list = list, .n = n, .first = list, .limits = *limits};
    ms->last_wanted = &ms->first_wanted;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&ms->lock, NULL);
    pthread_cond_init(&ms->bell, &attr);
    pthread_cond_init(&ms->loaded, NULL);
    pthread_condattr_destroy(&attr);
    for (size_t i = 0; i < n; i++) {
        list[i].models = ms;
        list[i].last_waiting = &list[i].first_waiting;
    }
    return ms;
}

dg_models *dg_models_create_one(const char *name, dg_metrics *metrics, const dg_chat_limits *limits)
{
    dg_models *ms = create(1, limits);
    if (!ms)
        return NULL;
    ms->first->name = name;
    ms->first->metrics = metrics;
    return ms;
}

void dg_model_attach(dg_model *m, dgemma_engine *engine)
{
    m->engine = engine;
    m->limits = m->models->limits;
    m->limits.defaults = dgemma_request_defaults(engine);
    dgemma_engine_info(engine, &m->info);
    m->limits.n_vocab = m->info.n_vocab;
    m->gpu = m->info.gpu_address ? dg_gpu_open(m->info.gpu_address) : NULL;
    m->state = DG_MODEL_LOADED;
}

dgemma_status dg_models_attach(dg_models *ms, dgemma_engine *engine, dgemma_error *err)
{
    dg_model *m = ms->first;
    pthread_mutex_lock(&ms->lock);
    dg_model_attach(m, engine);
    m->keep_seconds = -1;
    pthread_mutex_unlock(&ms->lock);
    if (dgemma_adapter_find(engine, m->name) >= 0)
        return dg_fail(
            err, DGEMMA_E_ARG,
            "an adapter is called \"%s\", like the model: --name or NAME=PATH give another",
            m->name);
    return DGEMMA_OK;
}

bool dg_model_fits(const dg_model *m)
{
    const dg_models *ms = m->models;
    size_t bytes = m->bytes;
    int n = 1;
    for (size_t i = 0; i < ms->n; i++) {
        bool stays = &ms->list[i] != m && ms->list[i].spec->pinned;
        bytes += stays ? ms->list[i].bytes : 0;
        n += stays;
    }
    return (!ms->opt.max_loaded || n <= ms->opt.max_loaded) &&
           (!ms->opt.max_bytes || bytes <= ms->opt.max_bytes);
}

/* What could never be loaded, alone or beside those that always are. */
static dgemma_status check_room(const dg_models *ms, dgemma_error *err)
{
    size_t pinned = 0;
    int n_pinned = 0;
    for (size_t i = 0; i < ms->n; i++) {
        const dg_model *m = &ms->list[i];
        pinned += m->spec->pinned ? m->bytes : 0;
        n_pinned += m->spec->pinned;
        if (ms->opt.max_bytes && m->bytes > ms->opt.max_bytes)
            return dg_fail(
                err, DGEMMA_E_LIMIT,
                "the model %s needs %zu MB, --models-memory is %zu: a smaller --context, "
                "--kv-memory or --parallel makes it less",
                m->name, (m->bytes >> 20) + 1, ms->opt.max_bytes >> 20);
    }
    if ((ms->opt.max_bytes && pinned > ms->opt.max_bytes) ||
        (ms->opt.max_loaded && n_pinned > ms->opt.max_loaded))
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "%d models are pinned and take %zu MB: more than --models-max or "
                       "--models-memory allow",
                       n_pinned, (pinned >> 20) + 1);
    for (size_t i = 0; i < ms->n; i++)
        if (!dg_model_fits(&ms->list[i]))
            return dg_fail(err, DGEMMA_E_LIMIT,
                           "the model %s, of %zu MB, has no room beside those that are pinned, "
                           "%d of %zu MB: --models-max and --models-memory allow more",
                           ms->list[i].name, (ms->list[i].bytes >> 20) + 1, n_pinned,
                           (pinned >> 20) + 1);
    return DGEMMA_OK;
}

dgemma_status dg_models_create(dg_models **out, const dg_model_specs *specs,
                               const dg_models_options *opt, const dg_chat_limits *limits,
                               dgemma_error *err)
{
    dg_models *ms = create(specs->n, limits);
    bool ok = ms != NULL;
    for (size_t i = 0; ok && i < specs->n; i++) {
        dg_model *m = &ms->list[i];
        m->spec = &specs->list[i];
        m->name = m->spec->name;
        m->info = m->spec->info;
        m->bytes = dg_model_spec_bytes(m->spec);
        m->metrics = dg_metrics_create();
        ok = m->metrics != NULL;
    }
    dgemma_status st = ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (ok) {
        ms->many = true;
        ms->specs = specs;
        ms->opt = *opt;
        ms->first = &ms->list[specs->first];
        st = check_room(ms, err);
    }
    if (st) {
        dg_models_free(ms);
        return st;
    }
    *out = ms;
    return DGEMMA_OK;
}

void dg_models_free(dg_models *ms)
{
    if (!ms)
        return;
    for (size_t i = 0; i < ms->n; i++) {
        dg_gpu_close(ms->list[i].gpu);
        if (ms->list[i].spec)
            dg_metrics_free(ms->list[i].metrics);
    }
    dg_free(ms->list);
    pthread_cond_destroy(&ms->bell);
    pthread_cond_destroy(&ms->loaded);
    pthread_mutex_destroy(&ms->lock);
    dg_free(ms);
}

/* ---- holding ---- */

static bool is_free(const dg_model *m)
{
    return m->state == DG_MODEL_LOADED && !m->gives_way && !m->broken;
}

/* The lock is held. */
static void give(dg_hold *h, dg_model *m)
{
    m->n_use++;
    m->last_used = dg_clock_now();
    h->state = DG_HOLD_HAS;
}

void dg_model_keep_as_usual(dg_model *m)
{
    m->keep_seconds = m->spec && m->spec->idle_seconds ? m->spec->idle_seconds : -1;
}

void dg_model_want(dg_model *m)
{
    dg_models *ms = m->models;
    if (m->wanted)
        return;
    if (m->state != DG_MODEL_LOADED)
        dg_model_keep_as_usual(m);
    m->wanted = true;
    m->looked_at = false;
    m->next_wanted = NULL;
    *ms->last_wanted = m;
    ms->last_wanted = &m->next_wanted;
}

dg_hold_state dg_hold_take(dg_hold *h, dg_model *m, void (*ring)(void *user), void *user)
{
    dg_models *ms = m->models;
    *h = (dg_hold){.model = m, .ring = ring, .user = user};
    pthread_mutex_lock(&ms->lock);
    if (is_free(m)) {
        give(h, m);
    } else {
        h->state = DG_HOLD_WAITS;
        *m->last_waiting = h;
        m->last_waiting = &h->next;
        dg_model_want(m);
        pthread_cond_signal(&ms->bell);
    }
    dg_hold_state state = h->state;
    pthread_mutex_unlock(&ms->lock);
    return state;
}

bool dg_hold_try(dg_hold *h, dg_model *m)
{
    *h = (dg_hold){.model = m};
    pthread_mutex_lock(&m->models->lock);
    bool there = m->state == DG_MODEL_LOADED;
    if (there) {
        m->n_use++; /* it does not count as used: who only looks keeps nothing loaded */
        h->state = DG_HOLD_HAS;
    }
    pthread_mutex_unlock(&m->models->lock);
    return there;
}

dg_hold_state dg_hold_look(const dg_hold *h, dg_http_error *e)
{
    if (!h->model)
        return DG_HOLD_NONE;
    pthread_mutex_lock(&h->model->models->lock);
    dg_hold_state state = h->state;
    if (state == DG_HOLD_FAILED)
        *e = h->model->error;
    pthread_mutex_unlock(&h->model->models->lock);
    return state;
}

static void wait_no_longer(dg_hold *h)
{
    dg_model *m = h->model;
    dg_hold **at = &m->first_waiting;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    if (m->last_waiting == &h->next)
        m->last_waiting = at;
}

void dg_hold_drop(dg_hold *h)
{
    dg_model *m = h->model;
    if (!m)
        return;
    dg_http_error ignored; /* files are looked at while others have the lock */
    bool broken = m->models->many && dg_hold_look(h, &ignored) == DG_HOLD_HAS &&
                  dgemma_engine_check(m->engine, NULL) == DGEMMA_E_IO;
    pthread_mutex_lock(&m->models->lock);
    if (h->state == DG_HOLD_WAITS) {
        wait_no_longer(h);
        pthread_cond_signal(&m->models->bell); /* others may have given way to it */
    }
    if (h->state == DG_HOLD_HAS && --m->n_use == 0 && m->models->many) {
        m->broken = broken;
        pthread_cond_signal(&m->models->bell);
    }
    if (h->ring && h->state == DG_HOLD_HAS)
        m->last_used = dg_clock_now();
    pthread_mutex_unlock(&m->models->lock);
    *h = (dg_hold){0};
}

void dg_model_grant(dg_model *m)
{
    while (m->first_waiting) {
        dg_hold *h = m->first_waiting;
        void (*ring)(void *) = h->ring;
        void *user = h->user;
        m->first_waiting = h->next;
        give(h, m);
        ring(user);
    }
    m->last_waiting = &m->first_waiting;
}

void dg_model_refuse(dg_model *m, const dg_http_error *e)
{
    m->error = *e;
    while (m->first_waiting) {
        dg_hold *h = m->first_waiting;
        void (*ring)(void *) = h->ring;
        void *user = h->user;
        m->first_waiting = h->next;
        h->state = DG_HOLD_FAILED;
        ring(user);
    }
    m->last_waiting = &m->first_waiting;
}

/* ---- looking ---- */

void dg_model_keep(dg_model *m, double seconds)
{
    pthread_mutex_lock(&m->models->lock);
    m->keep_seconds = seconds;
    pthread_cond_signal(&m->models->bell);
    pthread_mutex_unlock(&m->models->lock);
}

void dg_model_look(dg_model *m, dg_model_view *view)
{
    pthread_mutex_lock(&m->models->lock);
    bool stays = m->keep_seconds < 0 || (m->spec && m->spec->pinned);
    double left = m->last_used + m->keep_seconds - dg_clock_now();
    *view = (dg_model_view){
        .state = m->state,
        .info = m->info,
        .bytes = m->bytes,
        .expires = m->state != DG_MODEL_LOADED || stays ? -1
                   : left > 0                           ? left
                                                        : 0,
        .counts = m->counts,
    };
    view->info.gpu_address = view->info.vision_ignored = NULL;
    for (const dg_hold *h = m->first_waiting; h; h = h->next)
        view->n_waiting++;
    pthread_mutex_unlock(&m->models->lock);
}

/* ---- names ---- */

static bool is_called(const char *own, const char *name, size_t n)
{
    return strlen(own) == n && !memcmp(own, name, n);
}

static bool has_name(const dg_model_spec *s, const char *name, size_t n)
{
    if (is_called(s->name, name, n))
        return true;
    for (size_t i = 0; i < s->n_alias; i++)
        if (is_called(s->aliases[i], name, n))
            return true;
    return false;
}

static const char *adapter_of(const dg_model_spec *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->options.n_adapters; i++)
        if (is_called(s->options.adapters[i].name, name, n))
            return s->options.adapters[i].name;
    return NULL;
}

/* "BASE:ADAPTER" */
static const char *adapter_behind(const dg_model_spec *s, const char *name, size_t n)
{
    const char *found = NULL; /* names have colons too: the first need not be the one */
    for (size_t i = 1; i + 1 < n && !found; i++)
        if (name[i] == ':' && has_name(s, name, i))
            found = adapter_of(s, name + i + 1, n - i - 1);
    return found;
}

/* An alias that ends in * is the beginning of many. How long the longest is that the name begins
 * with, its * too; 0: there is none. */
static size_t begins_like(const dg_model_spec *s, const char *name)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n_alias; i++) {
        size_t n = strlen(s->aliases[i]);
        if (n > longest && s->aliases[i][n - 1] == '*' && !strncmp(name, s->aliases[i], n - 1))
            longest = n;
    }
    return longest;
}

static dg_model *find(const dg_models *ms, const char *name, size_t n, const char **adapter)
{
    for (size_t i = 0; i < ms->n; i++)
        if (has_name(ms->list[i].spec, name, n))
            return &ms->list[i];
    for (size_t i = 0; i < ms->n; i++) {
        const dg_model_spec *s = ms->list[i].spec;
        *adapter = adapter_of(s, name, n);
        if (!*adapter)
            *adapter = adapter_behind(s, name, n);
        if (*adapter)
            return &ms->list[i];
    }
    return NULL;
}

dg_model *dg_models_find(const dg_models *ms, const char *name, const char **adapter)
{
    static const char latest[] = ":latest";
    const char *ignored;
    adapter = adapter ? adapter : &ignored;
    *adapter = NULL;
    if (!ms->many || !name || !*name)
        return ms->first;
    size_t n = strlen(name), k = sizeof latest - 1;
    dg_model *m = find(ms, name, n, adapter);
    if (!m && n > k && !strcmp(name + n - k, latest))
        m = find(ms, name, n - k, adapter);
    size_t longest = 0;
    for (size_t i = 0; (!m || longest) && i < ms->n; i++) {
        size_t like = begins_like(ms->list[i].spec, name);
        if (like > longest) {
            longest = like;
            m = &ms->list[i];
        }
    }
    return m;
}

static void add_adapters(dg_name_list *l, dg_model *m)
{
    dg_hold h;
    if (m->spec) {
        for (size_t i = 0; i < m->spec->options.n_adapters; i++)
            dg_name_list_add(l, m->spec->options.adapters[i].name);
    } else if (dg_hold_try(&h, m)) {
        dg_adapter_names(l, m->engine);
        dg_hold_drop(&h);
    }
}

bool dg_models_unknown(const dg_models *ms, const char *name, dg_http_error *e)
{
    dg_name_list there = {0};
    for (size_t i = 0; i < ms->n; i++)
        dg_name_list_add(&there, ms->list[i].name);
    for (size_t i = 0; i < ms->n; i++)
        add_adapters(&there, &ms->list[i]);
    return dg_refuse_model(e, name, &there);
}

dg_model *dg_models_choose(const dg_models *ms, json_t *root, dg_http_error *e)
{
    const char *name, *adapter;
    if (!ms->many)
        return ms->first;
    if (!dg_field_string(root, "model", &name, e))
        return NULL;
    dg_model *m = dg_models_find(ms, name, &adapter);
    if (!m) {
        dg_models_unknown(ms, name, e);
    } else if (json_object_set_new(root, "model", json_string(adapter ? adapter : m->name))) {
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
        return NULL;
    }
    return m;
}
