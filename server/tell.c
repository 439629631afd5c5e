#include "tell.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "adapter_request.h"
#include "base/alloc.h"
#include "call_model.h"
#include "json_text.h"

/* ---- health ---- */

/* What is wrong with the engines that are loaded. Among several, one whose file was cut short is
 * loaded again when it is asked for, and says then what is wrong: only a lost device is no model's
 * own. */
static dgemma_status check_engines(dg_models *ms)
{
    dgemma_status broken = DGEMMA_OK;
    for (size_t i = 0; i < ms->n && !broken; i++) {
        dg_hold h;
        if (!dg_hold_try(&h, &ms->list[i]))
            continue;
        broken = dgemma_engine_check(h.model->engine, NULL);
        if (ms->many && broken != DGEMMA_E_INTERNAL)
            broken = DGEMMA_OK;
        dg_hold_drop(&h);
    }
    return broken;
}

void dg_tell_health(dg_call *c)
{
    bool draining = atomic_load(&c->server->leaving);
    dgemma_status broken = draining ? DGEMMA_OK : check_engines(c->server->models);
    dg_exchange_reply(&c->x, draining || broken ? 503 : 200,
                      json_pack("{s:s}", "status",
                                draining                      ? "draining"
                                : broken == DGEMMA_E_INTERNAL ? "device lost"
                                : broken                      ? "model file cut short"
                                                              : "ok"));
}

/* ---- models ---- */

const char *dg_model_state_name(dg_model_state state)
{
    switch (state) {
    case DG_MODEL_LOADED:
        return "loaded";
    case DG_MODEL_LOADING:
        return "loading";
    case DG_MODEL_LEAVING:
        return "unloading";
    default:
        return "unloaded";
    }
}

static json_t *model_object(dg_model *m)
{
    dg_model_view v;
    dg_model_look(m, &v);
    const dgemma_model_info *i = &v.info;
    json_t *body =
        json_pack("{s:s,s:s,s:i,s:s,s:s,s:i,s:{s:i,s:i,s:i,s:I,s:i,s:s}}", "id", m->name, "object",
                  "model", "created", 0, "owned_by", "dgemma", "root", m->name, "max_model_len",
                  i->context_length, "meta", "n_vocab", i->n_vocab, "n_ctx_train",
                  i->context_length, "n_embd", i->n_embd, "size", (json_int_t)i->weight_bytes,
                  "canvas_length", i->canvas_length, "numerics", i->numerics ? i->numerics : "");
    if (!m->spec)
        return body;
    json_t *aliases = json_array();
    for (size_t k = 0; k < m->spec->n_alias; k++)
        dg_json_add(&aliases, json_string(m->spec->aliases[k]));
    dg_json_put(&body, "aliases", aliases);
    dg_json_put(&body, "status", json_pack("{s:s}", "value", dg_model_state_name(v.state)));
    return body;
}

/* An adapter of a model that is not loaded: of its file nothing is known yet. */
static json_t *adapter_to_come(const dg_model *m, const char *name)
{
    return json_pack("{s:s,s:s,s:i,s:s,s:s,s:s}", "id", name, "object", "model", "created", 0,
                     "owned_by", "dgemma", "root", m->name, "parent", m->name);
}

/* The model's adapters as /v1/models lists them; all, or the one of this name. */
static void list_adapters(dg_model *m, const char *only, json_t **data)
{
    dg_hold h;
    if (dg_hold_try(&h, m)) {
        for (size_t i = 0; i < dgemma_adapter_count(m->engine); i++) {
            dgemma_adapter_info info;
            dgemma_adapter_describe(m->engine, i, &info);
            if (!only || !strcmp(info.name, only))
                dg_json_add(data, dg_adapter_model(m->engine, i, m->name, m->info.context_length));
        }
        dg_hold_drop(&h);
        return;
    }
    for (size_t i = 0; m->spec && i < m->spec->options.n_adapters; i++) {
        const char *name = m->spec->options.adapters[i].name;
        if (!only || !strcmp(name, only))
            dg_json_add(data, adapter_to_come(m, name));
    }
}

/* As OpenAI lists them, and as clients of /v1/systemone want to read it; of the day nothing is
 * known. */
void dg_tell_models(dg_call *c)
{
    dg_models *ms = c->server->models;
    json_t *data = json_array(), *list = json_array();
    for (size_t i = 0; i < ms->n; i++) {
        size_t k = json_array_size(data);
        dg_json_add(&data, model_object(&ms->list[i]));
        list_adapters(&ms->list[i], NULL, &data);
        for (bool own = true; k < json_array_size(data); k++, own = false)
            dg_json_add(&list,
                        json_pack("{s:O,s:s,s:s}", "name",
                                  json_object_get(json_array_get(data, k), "id"), "description",
                                  !own       ? "an adapter of it"
                                  : ms->many ? "one of several"
                                             : "answers any name",
                                  "release_date", ""));
    }
    dg_exchange_reply(&c->x, 200,
                      json_pack("{s:s,s:o,s:o}", "object", "list", "data", data, "models", list));
}

/* Only by a name of its own: that a model goes by any other does not make it that. An empty name is
 * none. */
void dg_tell_model(dg_call *c)
{
    dg_models *ms = c->server->models;
    size_t n = strlen(c->route->path);
    const char *name = c->head->path + n, *adapter = NULL; /* c->path is for people */
    if (!*name) {
        dg_tell_models(c);
        return;
    }
    dg_model *m = dg_models_find(ms, name, &adapter);
    bool is_own = m && !adapter && (ms->many || !strcmp(name, m->name));
    json_t *found = is_own ? json_pack("[o]", model_object(m)) : json_array();
    if (m && !is_own)
        list_adapters(m, adapter ? adapter : name, &found);
    if (json_array_size(found)) {
        dg_exchange_reply(&c->x, 200, json_incref(json_array_get(found, 0)));
    } else {
        dg_http_error e;
        dg_models_unknown(ms, c->path + n, &e);
        dg_exchange_refuse(&c->x, &e);
    }
    json_decref(found);
}

/* As llama-server lists them. */
void dg_tell_adapters(dg_call *c)
{
    dg_hold h;
    dg_model *m = dg_call_queried(c);
    if (!m)
        return;
    json_t *list = json_array();
    if (dg_hold_try(&h, m)) {
        for (size_t i = 0; i < dgemma_adapter_count(m->engine); i++)
            dg_json_add(&list, dg_adapter_object(m->engine, i));
        dg_hold_drop(&h);
    }
    dg_exchange_reply(&c->x, 200, list);
}

/* ---- properties ---- */

/* 0.4 as 0.4, not as the double next to the float. */
static json_t *decimal(float x)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", (double)x);
    return json_real(strtod(text, NULL));
}

static json_t *default_params(const dgemma_request_options *o)
{
    return json_pack("{s:i,s:i,s:o,s:o,s:o,s:i,s:o,s:i}", "max_tokens", o->max_tokens,
                     "n_denoise_steps", o->max_denoise_steps, "temperature_min", decimal(o->t_min),
                     "temperature_max", decimal(o->t_max), "entropy_bound",
                     decimal(o->entropy_bound), "stability_threshold", o->stability_threshold,
                     "confidence_threshold", decimal(o->confidence_threshold), "canvas_length",
                     o->canvas_length);
}

/* For pages that let one be chosen. */
static json_t *names_of(const dg_models *ms)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ms->n; i++)
        dg_json_add(&list, json_string(ms->list[i].name));
    return list;
}

void dg_tell_props(dg_call *c)
{
    const dg_server *s = c->server;
    dg_hold h;
    dg_model_view v;
    dgemma_request_options defaults = {0};
    dg_model *m = dg_call_queried(c);
    if (!m)
        return;
    bool there = dg_hold_try(&h, m);
    if (there) {
        defaults = m->limits.defaults;
        dg_hold_drop(&h);
    }
    dg_model_look(m, &v);
    const dgemma_model_info *i = &v.info;
    json_t *body = json_pack(
        "{s:{s:i,s:o},s:i,s:s,s:s,s:s,s:{s:b,s:b},s:s,s:s,s:i,s:s,s:s,s:i,s:b}",
        "default_generation_settings", "n_ctx", i->context_length, "params",
        there ? default_params(&defaults) : json_object(), "total_slots",
        m->spec ? m->spec->options.max_running : s->opt.max_running, "model_path", m->name,
        "model_alias", m->name, "chat_template", i->chat_template ? i->chat_template : "",
        "modalities", "vision", i->has_vision, "audio", 0, "build_info", "dgemma " DGEMMA_VERSION,
        "generation_type", "block-diffusion", "canvas_length", i->canvas_length, "backend",
        i->backend ? i->backend : "", "numerics", i->numerics ? i->numerics : "", "n_threads",
        i->n_threads, "is_sleeping", !there);
    if (s->models->many)
        dg_json_put(&body, "models", names_of(s->models));
    dg_exchange_reply(&c->x, 200, body);
}

/* ---- metrics ---- */

enum { PAGE_MAX = 1 << 20 };

static bool print_model(dg_model *m, dg_gpu_state *gpu, dg_buf *page)
{
    dg_hold h;
    dg_model_view v;
    dg_model_look(m, &v);
    dg_metrics_loading loading = {.is_loaded = v.state == DG_MODEL_LOADED,
                                  .n_waiting = v.n_waiting,
                                  .n_loaded = v.counts.n_loaded,
                                  .n_failed = v.counts.n_failed,
                                  .n_unloaded = v.counts.n_unloaded,
                                  .load_seconds = v.counts.load_seconds,
                                  .bytes = v.bytes};
    dg_metrics_context context = {
        .model = m->name, .info = v.info, .loading = m->spec ? &loading : NULL};
    if (dg_hold_try(&h, m)) {
        dgemma_engine_count(m->engine, &context.engine);
        if (m->gpu || gpu->total_bytes < 0)
            dg_gpu_read(m->gpu, gpu);
        dg_hold_drop(&h);
    }
    return dg_metrics_print_model(m->metrics, &context, page);
}

static bool print_models(dg_models *ms, dg_gpu_state *gpu, dg_buf *out)
{
    dg_buf *pages = dg_calloc(ms->n, sizeof *pages);
    bool ok = pages != NULL;
    for (size_t i = 0; i < ms->n && ok; i++) {
        dg_buf_init(&pages[i], PAGE_MAX);
        ok = print_model(&ms->list[i], gpu, &pages[i]);
    }
    ok = ok && dg_metrics_merge(pages, ms->n, out);
    for (size_t i = 0; pages && i < ms->n; i++)
        dg_buf_clear(&pages[i]);
    dg_free(pages);
    return ok;
}

void dg_tell_metrics(dg_call *c)
{
    dg_server *s = c->server;
    dg_metrics_context context = {.model = s->models->many ? "" : s->models->first->name};
    dg_buf page;
    dg_buf_init(&page, PAGE_MAX * (s->models->n < 16 ? 1 : s->models->n / 8));
    dg_gpu_read(NULL, &context.gpu);
    dg_process_read(&context.process);
    context.n_connection = dg_http_n_connection(s->http);
    context.n_dropped = dg_log_dropped(s->log);
    pthread_mutex_lock(&s->lock);
    context.n_exchange = s->n_call;
    pthread_mutex_unlock(&s->lock);
    if (print_models(s->models, &context.gpu, &page) &&
        dg_metrics_print_server(s->metrics, &context, &page))
        dg_exchange_reply_text(&c->x, 200, "text/plain; version=0.0.4; charset=utf-8", page.data,
                               page.len);
    else
        dg_exchange_reply(&c->x, 503, NULL);
    dg_buf_clear(&page);
}
