#include "routes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "adapter_request.h"
#include "anthropic_count.h"
#include "anthropic_request.h"
#include "anthropic_response.h"
#include "call_body.h"
#include "batches.h"
#include "canvas_response.h"
#include "decisions.h"
#include "files.h"
#include "json_fields.h"
#include "json_text.h"
#include "ollama_models.h"
#include "ollama_request.h"
#include "ollama_response.h"
#include "openai_request.h"
#include "openai_response.h"
#include "page.h"
#include "responses_request.h"
#include "responses_response.h"
#include "slots.h"
#include "start_request.h"
#include "stored_responses.h"
#include "systemone.h"

/* ---- answers of the model ---- */

static bool start(dg_call *c, dg_http_error *e)
{
    dg_server *s = c->server;
    dg_chat chat;
    if (!dg_call_chat(c, c->route->read, &chat, e))
        return false;
    size_t n = (size_t)chat.n_choice * (chat.n_prompt ? chat.n_prompt : 1);
    if (!dg_call_admit(c, n, e)) {
        dg_chat_clear(&chat);
        return false;
    }
    chat.options.cache_salt = c->cache_salt; /* the call outlives its generation */
    dg_generation_setup cfg = {
        .engine = s->engine,
        .metrics = s->metrics,
        .model = s->opt.model_name,
        .dialect = c->route->dialect,
        .to = &c->x,
        .keeping = c->keeping,
        .notify = dg_call_ring,
        .notify_user = c,
    };
    return dg_generation_start(&c->generation, &cfg, &chat, e);
}

static void generate(dg_call *c)
{
    dg_http_error e;
    if (c->server->opt.log_prompts)
        dg_log_print(c->server->log, "%s asks %.*s", c->name, (int)c->body.len,
                     c->body.data ? c->body.data : "");
    if (!start(c, &e))
        dg_exchange_refuse(&c->x, &e);
    dg_call_forget_body(c);
}

/* ---- decisions ---- */

static bool start_deciding(dg_call *c, dg_http_error *e)
{
    dg_server *s = c->server;
    json_t *root = dg_call_body(c, e);
    if (!root)
        return false;
    if (!dg_call_admit(c, 1, e)) {
        json_decref(root);
        return false;
    }
    dg_deciding_setup cfg = {
        .engine = s->engine,
        .model = s->opt.model_name,
        .cache_salt = c->cache_salt,
        .temperature = s->opt.decision_temperature,
        .max_images = s->opt.max_images,
        .wire = c->route->wire,
        .to = &c->x,
        .headers = c->timing,
        .timing = c->timing_text,
        .notify = dg_call_ring,
        .notify_user = c,
    };
    return dg_deciding_start(&c->deciding, &cfg, root, e);
}

static void decide(dg_call *c)
{
    dg_http_error e;
    if (!start_deciding(c, &e))
        dg_exchange_refuse(&c->x, &e);
    dg_call_forget_body(c);
}

/* ---- tokens ---- */

/* Each token of an answer is a few values of JSON: hundreds of bytes where its text is wanted. */
enum { MAX_IDS = 1 << 20, MAX_PIECES = 1 << 17 };

static json_t *tokens_object(dg_call *c, bool pieces, bool strings, const int32_t *ids, size_t n)
{
    json_t *list = json_array(), *texts = strings ? json_array() : NULL;
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_integer(ids[i]);
        dg_json_add(&list, pieces ? json_pack("{s:o,s:o}", "id", id, "piece",
                                              dg_token_text(c->server->engine, ids[i], NULL))
                                  : id);
        if (strings)
            dg_json_add(&texts, dg_token_text(c->server->engine, ids[i], NULL));
    }
    json_t *out = json_pack("{s:I,s:i,s:o}", "count", (json_int_t)n, "max_model_len",
                            c->server->info.context_length, "tokens", list);
    if (strings)
        dg_json_put(&out, "token_strs", texts);
    return out;
}

/* llama-server says `content` and `parse_special`, vLLM `prompt`. */
static bool tokenize_body(dg_call *c, const json_t *root, dg_http_error *e)
{
    const json_t *text = dg_field_get(root, "content");
    text = text ? text : dg_field_get(root, "prompt");
    if (!json_is_string(text))
        return dg_refuse(e, 400, "invalid_type", "content", "content: wanted text");
    bool markers = json_is_true(json_object_get(root, "parse_special"));
    bool pieces = json_is_true(json_object_get(root, "with_pieces"));
    bool strings = json_is_true(json_object_get(root, "return_token_strs"));
    size_t max = pieces || strings ? MAX_PIECES : MAX_IDS;
    size_t len = json_string_length(text), cap = len + 16, n = 0;
    int32_t *ids = dg_array(cap, sizeof *ids);
    dgemma_error err = {.status = DGEMMA_E_NOMEM, .msg = "out of memory"};
    if (!ids || dgemma_tokenize(c->server->engine, json_string_value(text), len, markers, ids, cap,
                                &n, &err)) {
        dg_free(ids);
        return dg_refuse_status(e, &err, "content");
    }
    if (n <= max)
        dg_exchange_reply(&c->x, 200, tokens_object(c, pieces, strings, ids, n));
    dg_free(ids);
    return n <= max ||
           dg_refuse(e, 400, "too_many_tokens", "content", "content: %zu tokens, at most %zu%s", n,
                     max, max == MAX_PIECES ? " with their texts" : "");
}

static bool detokenize_body(dg_call *c, const json_t *root, dg_http_error *e)
{
    json_t *list;
    int32_t *ids;
    size_t n, len = 0;
    char *text = NULL;
    dgemma_error err = {0};
    if (!dg_field_list(root, "tokens", &list, e) ||
        !dg_field_ids(list, c->server->info.n_vocab, "tokens", &ids, &n, e))
        return false;
    dgemma_status st = dgemma_detokenize(c->server->engine, ids, n, &text, &len, &err);
    dg_free(ids);
    if (st)
        return dg_refuse_status(e, &err, "tokens");
    json_t *out = dg_json_text(text, len);
    dgemma_free(text);
    dg_exchange_reply(&c->x, 200, json_pack("{s:O,s:o}", "content", out, "prompt", out));
    return true;
}

static void with_body(dg_call *c, bool (*work)(dg_call *c, const json_t *root, dg_http_error *e))
{
    dg_http_error e;
    json_t *root = dg_call_body(c, &e);
    if (!root || !work(c, root, &e))
        dg_exchange_refuse(&c->x, &e);
    json_decref(root);
}

static void tokenize(dg_call *c)
{
    with_body(c, tokenize_body);
}

static void detokenize(dg_call *c)
{
    with_body(c, detokenize_body);
}

/* ---- what the server is ---- */

static void health(dg_call *c)
{
    bool draining = atomic_load(&c->server->leaving);
    dgemma_status broken = draining ? DGEMMA_OK : dgemma_engine_check(c->server->engine, NULL);
    dg_exchange_reply(&c->x, draining || broken ? 503 : 200,
                      json_pack("{s:s}", "status",
                                draining                      ? "draining"
                                : broken == DGEMMA_E_INTERNAL ? "device lost"
                                : broken                      ? "model file cut short"
                                                              : "ok"));
}

static json_t *model_object(const dg_server *s)
{
    const dgemma_model_info *i = &s->info;
    return json_pack("{s:s,s:s,s:i,s:s,s:s,s:i,s:{s:i,s:i,s:i,s:I,s:i,s:s}}", "id",
                     s->opt.model_name, "object", "model", "created", 0, "owned_by", "dgemma",
                     "root", s->opt.model_name, "max_model_len", i->context_length, "meta",
                     "n_vocab", i->n_vocab, "n_ctx_train", i->context_length, "n_embd", i->n_embd,
                     "size", (json_int_t)i->weight_bytes, "canvas_length", i->canvas_length,
                     "numerics", i->numerics ? i->numerics : "");
}

/* As OpenAI lists them, and as clients of /v1/systemone want to read it; of the day nothing is
 * known. */
static void models(dg_call *c)
{
    const dg_server *s = c->server;
    const char *name = s->opt.model_name;
    json_t *data = json_pack("[o]", model_object(s)),
           *list = json_pack("[{s:s,s:s,s:s}]", "name", name, "description", "answers any name",
                             "release_date", "");
    for (size_t i = 0; i < dgemma_adapter_count(s->engine); i++) {
        dgemma_adapter_info info;
        dgemma_adapter_describe(s->engine, i, &info);
        dg_json_add(&data, dg_adapter_model(s->engine, i, name, s->info.context_length));
        dg_json_add(&list, json_pack("{s:s,s:s,s:s}", "name", info.name, "description",
                                     "an adapter of it", "release_date", ""));
    }
    dg_exchange_reply(&c->x, 200,
                      json_pack("{s:s,s:o,s:o}", "object", "list", "data", data, "models", list));
}

/* As llama-server lists them. */
static void adapters(dg_call *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < dgemma_adapter_count(c->server->engine); i++)
        dg_json_add(&list, dg_adapter_object(c->server->engine, i));
    dg_exchange_reply(&c->x, 200, list);
}

static void one_model(dg_call *c)
{
    dg_http_error e;
    const char *name = c->path + strlen(c->route->path);
    if (!strcmp(name, c->server->opt.model_name)) {
        dg_exchange_reply(&c->x, 200, model_object(c->server));
        return;
    }
    int adapter = dgemma_adapter_find(c->server->engine, name);
    if (adapter >= 0) {
        dg_exchange_reply(&c->x, 200,
                          dg_adapter_model(c->server->engine, (size_t)adapter,
                                           c->server->opt.model_name,
                                           c->server->info.context_length));
        return;
    }
    dg_refuse(&e, 404, "model_not_found", "model", "there is no model \"%s\"", name);
    dg_exchange_refuse(&c->x, &e);
}

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

static void props(dg_call *c)
{
    const dg_server *s = c->server;
    json_t *body = json_pack(
        "{s:{s:i,s:o},s:i,s:s,s:s,s:s,s:{s:b,s:b},s:s,s:s,s:i,s:s,s:s,s:i,s:b}",
        "default_generation_settings", "n_ctx", s->info.context_length, "params",
        default_params(&s->limits.defaults), "total_slots", s->opt.max_running, "model_path",
        s->opt.model_name, "model_alias", s->opt.model_name, "chat_template",
        s->info.chat_template ? s->info.chat_template : "", "modalities", "vision",
        s->info.has_vision, "audio", 0, "build_info", "dgemma " DGEMMA_VERSION, "generation_type",
        "block-diffusion", "canvas_length", s->info.canvas_length, "backend",
        s->info.backend ? s->info.backend : "", "numerics",
        s->info.numerics ? s->info.numerics : "", "n_threads", s->info.n_threads, "is_sleeping", 0);
    dg_exchange_reply(&c->x, 200, body);
}

static void metrics(dg_call *c)
{
    dg_server *s = c->server;
    dg_metrics_context context = {.model = s->opt.model_name, .info = s->info};
    dg_buf page;
    dg_buf_init(&page, 1 << 20);
    dgemma_engine_count(s->engine, &context.engine);
    dg_process_read(&context.process);
    dg_gpu_read(s->gpu, &context.gpu);
    context.n_connection = dg_http_n_connection(s->http);
    context.n_dropped = dg_log_dropped(s->log);
    pthread_mutex_lock(&s->lock);
    context.n_exchange = s->n_call;
    pthread_mutex_unlock(&s->lock);
    if (dg_metrics_print(s->metrics, &context, &page))
        dg_exchange_reply_text(&c->x, 200, "text/plain; version=0.0.4; charset=utf-8", page.data,
                               page.len);
    else
        dg_exchange_reply(&c->x, 503, NULL);
    dg_buf_clear(&page);
}

static void preflight(dg_call *c)
{
    dg_exchange_reply_text(&c->x, 204, "text/plain", "", 0);
}

/* ---- the table ---- */

static const dg_dialect systemone_errors = {.error = dg_systemone_error};

#define GENERATES(where, reader, writer)                                                           \
    {                                                                                              \
        .method = "POST", .path = (where), .work = generate, .generates = true, .read = (reader),  \
        .dialect = &(writer)                                                                       \
    }

#define RESPONDS(where)                                                                            \
    {                                                                                              \
        .method = "POST", .path = (where), .work = generate, .generates = true,                    \
        .prepare = dg_stored_prepare, .read = dg_responses_read, .dialect = &dg_responses          \
    }

static const dg_route routes[] = {
    {.method = "GET", .path = "/", .work = dg_page_send, .now = true, .open = true, .always = true},
    GENERATES("/v1/chat/completions", dg_openai_read_chat, dg_openai_chat),
    GENERATES("/chat/completions", dg_openai_read_chat, dg_openai_chat),
    GENERATES("/v1/completions", dg_openai_read_completion, dg_openai_completion),
    GENERATES("/completions", dg_openai_read_completion, dg_openai_completion),
    GENERATES("/infill", dg_infill_read, dg_infill),
    GENERATES("/v1/edit", dg_edit_read, dg_edit),
    RESPONDS("/v1/responses"),
    RESPONDS("/responses"),
    {.method = "GET", .path = "/v1/responses/", .work = dg_stored_get, .keeps = true},
    {.method = "DELETE", .path = "/v1/responses/", .work = dg_stored_delete, .keeps = true},
    GENERATES("/v1/messages", dg_anthropic_read, dg_anthropic),
    GENERATES("/api/chat", dg_ollama_read_chat, dg_ollama_chat),
    GENERATES("/api/generate", dg_ollama_read_generate, dg_ollama_generate),
    {.method = "POST",
     .path = "/v1/systemone",
     .work = decide,
     .generates = true,
     .dialect = &systemone_errors,
     .wire = &dg_systemone},
    {.method = "POST",
     .path = "/v1/decisions",
     .work = decide,
     .generates = true,
     .wire = &dg_decisions},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .work = dg_anthropic_count,
     .dialect = &dg_anthropic},
    {.method = "GET",
     .path = "/api/tags",
     .work = dg_ollama_tags,
     .now = true,
     .dialect = &dg_ollama_chat},
    {.method = "GET",
     .path = "/api/ps",
     .work = dg_ollama_running,
     .now = true,
     .dialect = &dg_ollama_chat},
    {.method = "POST", .path = "/api/show", .work = dg_ollama_show, .dialect = &dg_ollama_chat},
    {.method = "GET",
     .path = "/api/version",
     .work = dg_ollama_version,
     .now = true,
     .dialect = &dg_ollama_chat},
    {.method = "POST", .path = "/tokenize", .work = tokenize},
    {.method = "POST", .path = "/detokenize", .work = detokenize},
    {.method = "POST", .path = "/v1/files", .work = dg_files_upload, .keeps = true},
    {.method = "GET", .path = "/v1/files", .work = dg_files_list, .keeps = true},
    {.method = "GET", .path = "/v1/files/", .work = dg_files_get, .keeps = true},
    {.method = "DELETE", .path = "/v1/files/", .work = dg_files_delete, .keeps = true},
    {.method = "POST", .path = "/v1/batches", .work = dg_batches_create, .keeps = true},
    {.method = "GET", .path = "/v1/batches", .work = dg_batches_list, .keeps = true},
    {.method = "GET", .path = "/v1/batches/", .work = dg_batches_get, .keeps = true},
    {.method = "POST", .path = "/v1/batches/", .work = dg_batches_cancel, .keeps = true},
    {.method = "GET", .path = "/v1/models", .work = models, .now = true},
    {.method = "GET", .path = "/v1/models/", .work = one_model, .now = true},
    {.method = "GET", .path = "/models", .work = models, .now = true},
    {.method = "GET", .path = "/health", .work = health, .now = true, .open = true},
    {.method = "GET", .path = "/v1/health", .work = health, .now = true, .open = true},
    {.method = "GET", .path = "/lora-adapters", .work = adapters, .now = true},
    {.method = "GET", .path = "/props", .work = props, .now = true},
    {.method = "GET", .path = "/slots", .work = dg_slots_list, .now = true},
    {.method = "POST", .path = "/slots/", .work = dg_slots_act, .keeps = true},
    {.method = "GET", .path = "/metrics", .work = metrics, .now = true},
};

/* Where nothing is, below the paths of a dialect: its clients read no other form of error. */
static void nowhere(dg_call *c)
{
    dg_http_error e;
    dg_refuse(&e, 404, "not_found", NULL, "there is no %s", c->path);
    dg_exchange_refuse(&c->x, &e);
}

static const dg_route nowhere_routes[] = {
    {.path = "/api/", .work = nowhere, .now = true, .dialect = &dg_ollama_chat},
    {.path = "/v1/messages/", .work = nowhere, .now = true, .dialect = &dg_anthropic},
};

static const dg_route preflight_route = {
    .method = "OPTIONS", .path = "*", .work = preflight, .now = true, .open = true, .always = true};

static bool path_fits(const dg_route *r, const char *path)
{
    size_t n = strlen(r->path);
    return n > 1 && r->path[n - 1] == '/' ? !strncmp(path, r->path, n) : !strcmp(path, r->path);
}

const dg_route *dg_route_find(const char *method, const char *path, bool *other_method)
{
    *other_method = false;
    if (!strcmp(method, "OPTIONS"))
        return &preflight_route;
    bool head = !strcmp(method, "HEAD");
    const dg_route *other = NULL;
    for (size_t i = 0; i < DG_COUNT(routes); i++) {
        if (!path_fits(&routes[i], path))
            continue;
        if (!strcmp(routes[i].method, head ? "GET" : method))
            return &routes[i];
        other = &routes[i];
    }
    *other_method = other != NULL;
    for (size_t i = 0; !other && i < DG_COUNT(nowhere_routes); i++)
        if (path_fits(&nowhere_routes[i], path))
            other = &nowhere_routes[i];
    return other;
}
