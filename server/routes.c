#include "routes.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "anthropic_count.h"
#include "anthropic_request.h"
#include "anthropic_response.h"
#include "call_body.h"
#include "call_model.h"
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
#include "tell.h"

/* ---- answers of the model ---- */

static bool start(dg_call *c, dg_http_error *e)
{
    const dg_model *m = c->hold.model;
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
        .engine = m->engine,
        .metrics = m->metrics,
        .model = m->name,
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
        dg_call_refuse(c, &e); /* a stream may have been opened while it waited for its model */
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
        .engine = c->hold.model->engine,
        .model = c->hold.model->name,
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
                                              dg_token_text(c->hold.model->engine, ids[i], NULL))
                                  : id);
        if (strings)
            dg_json_add(&texts, dg_token_text(c->hold.model->engine, ids[i], NULL));
    }
    json_t *out = json_pack("{s:I,s:i,s:o}", "count", (json_int_t)n, "max_model_len",
                            c->hold.model->info.context_length, "tokens", list);
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
    if (!ids || dgemma_tokenize(c->hold.model->engine, json_string_value(text), len, markers, ids,
                                cap, &n, &err)) {
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
        !dg_field_ids(list, c->hold.model->info.n_vocab, "tokens", &ids, &n, e))
        return false;
    dgemma_status st = dgemma_detokenize(c->hold.model->engine, ids, n, &text, &len, &err);
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

/* ---- others ---- */

static void preflight(dg_call *c)
{
    dg_exchange_reply_text(&c->x, 204, "text/plain", "", 0);
}

/* ---- the table ---- */

static const dg_dialect systemone_errors = {.error = dg_systemone_error};

#define GENERATES(where, reader, writer)                                                           \
    {                                                                                              \
        .method = "POST", .path = (where), .work = generate, .generates = true,                    \
        .asks = &dg_asks_model, .read = (reader), .dialect = &(writer)                             \
    }

#define RESPONDS(where)                                                                            \
    {                                                                                              \
        .method = "POST", .path = (where), .work = generate, .generates = true,                    \
        .asks = &dg_asks_model, .prepare = dg_stored_prepare, .read = dg_responses_read,           \
        .dialect = &dg_responses                                                                   \
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
     .asks = &dg_asks_model,
     .dialect = &systemone_errors,
     .wire = &dg_systemone},
    {.method = "POST",
     .path = "/v1/decisions",
     .work = decide,
     .generates = true,
     .asks = &dg_asks_model,
     .wire = &dg_decisions},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .work = dg_anthropic_count,
     .asks = &dg_asks_model,
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
    {.method = "POST", .path = "/tokenize", .work = tokenize, .asks = &dg_asks_model},
    {.method = "POST", .path = "/detokenize", .work = detokenize, .asks = &dg_asks_model},
    {.method = "POST", .path = "/v1/files", .work = dg_files_upload, .keeps = true},
    {.method = "GET", .path = "/v1/files", .work = dg_files_list, .keeps = true},
    {.method = "GET", .path = "/v1/files/", .work = dg_files_get, .keeps = true},
    {.method = "DELETE", .path = "/v1/files/", .work = dg_files_delete, .keeps = true},
    {.method = "POST", .path = "/v1/batches", .work = dg_batches_create, .keeps = true},
    {.method = "GET", .path = "/v1/batches", .work = dg_batches_list, .keeps = true},
    {.method = "GET", .path = "/v1/batches/", .work = dg_batches_get, .keeps = true},
    {.method = "POST", .path = "/v1/batches/", .work = dg_batches_cancel, .keeps = true},
    {.method = "GET", .path = "/v1/models", .work = dg_tell_models, .now = true},
    {.method = "GET", .path = "/v1/models/", .work = dg_tell_model, .now = true},
    {.method = "GET", .path = "/models", .work = dg_tell_models, .now = true},
    {.method = "GET", .path = "/health", .work = dg_tell_health, .now = true, .open = true},
    {.method = "GET", .path = "/v1/health", .work = dg_tell_health, .now = true, .open = true},
    {.method = "GET",
     .path = "/lora-adapters",
     .work = dg_tell_adapters,
     .now = true,
     .keeps = true},
    {.method = "GET", .path = "/props", .work = dg_tell_props, .now = true, .keeps = true},
    {.method = "GET", .path = "/slots", .work = dg_slots_list, .now = true, .keeps = true},
    {.method = "POST",
     .path = "/slots/",
     .work = dg_slots_act,
     .asks = &dg_asks_model,
     .keeps = true},
    {.method = "GET", .path = "/metrics", .work = dg_tell_metrics, .now = true},
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
