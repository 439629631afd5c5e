#include "ollama_models.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include "adapter_request.h"
#include "call_body.h"
#include "json_fields.h"
#include "json_text.h"
#include "ollama_response.h"

static json_t *details(const dgemma_model_info *i, const char *parent)
{
    return json_pack("{s:s,s:s,s:s,s:[s],s:s,s:s}", "parent_model", parent, "format",
                     i->format ? i->format : "", "family", "diffusion-gemma", "families",
                     "diffusion-gemma", "parameter_size", "", "quantization_level", "");
}

/* Stands for a model as a digest of its files would, which are not read for this: of its name and
 * its size. Clients cut it without looking how long it is. */
static json_t *digest(const char *name, size_t bytes)
{
    uint64_t hash = 14695981039346656037u ^ bytes;
    uint64_t part[4];
    for (size_t i = 0; i < 4; i++) {
        for (const char *at = name; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u; /* FNV-1a */
        part[i] = hash;
    }
    return json_sprintf("%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, part[0], part[1],
                        part[2], part[3]);
}

/* A model, or one of its adapters: then it has a parent. */
static json_t *entry(const dgemma_model_info *i, const char *name, size_t bytes, const char *parent)
{
    return json_pack("{s:s,s:s,s:s,s:I,s:o,s:o}", "name", name, "model", name, "modified_at",
                     "1970-01-01T00:00:00Z", "size", (json_int_t)bytes, "digest",
                     digest(name, bytes), "details", details(i, parent));
}

static json_t *model_object(const dg_model *m, const dg_model_view *v)
{
    return entry(&v->info, m->name, v->info.weight_bytes, "");
}

static void add_adapters(json_t **list, dg_model *m, const dg_model_view *v)
{
    dg_hold h;
    bool there = dg_hold_try(&h, m);
    size_t n = there ? dgemma_adapter_count(m->engine) : m->spec ? m->spec->options.n_adapters : 0;
    for (size_t i = 0; i < n; i++) {
        dgemma_adapter_info info = {0};
        if (there)
            dgemma_adapter_describe(m->engine, i, &info);
        else
            info.name = m->spec->options.adapters[i].name;
        dg_json_add(list, entry(&v->info, info.name, info.bytes, m->name));
    }
    dg_hold_drop(&h);
}

void dg_ollama_tags(dg_call *c)
{
    dg_models *ms = c->server->models;
    json_t *list = json_array();
    for (size_t i = 0; i < ms->n; i++) {
        dg_model_view v;
        dg_model_look(&ms->list[i], &v);
        dg_json_add(&list, model_object(&ms->list[i], &v));
        add_adapters(&list, &ms->list[i], &v);
    }
    dg_exchange_reply(&c->x, 200, json_pack("{s:o}", "models", list));
}

static json_t *time_of(time_t at)
{
    struct tm utc;
    char text[32] = "";
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    return json_string(text);
}

/* When it will be unloaded if nobody asks for it again. */
static json_t *expires_at(const dg_model_view *v)
{
    return v->expires < 0 ? json_string("9999-12-31T23:59:59Z")
                          : time_of(time(NULL) + (time_t)v->expires);
}

/* Those that are loaded. */
void dg_ollama_running(dg_call *c)
{
    dg_models *ms = c->server->models;
    json_t *list = json_array();
    for (size_t i = 0; i < ms->n; i++) {
        dg_model_view v;
        dg_model_look(&ms->list[i], &v);
        if (v.state != DG_MODEL_LOADED)
            continue;
        json_t *model = model_object(&ms->list[i], &v);
        dg_json_put(&model, "expires_at", expires_at(&v));
        dg_json_put(&model, "size_vram", json_integer(0));
        dg_json_put(&model, "context_length", json_integer(v.info.context_length));
        dg_json_add(&list, model);
    }
    dg_exchange_reply(&c->x, 200, json_pack("{s:o}", "models", list));
}

void dg_ollama_unloaded(dg_call *c, const dg_model *m)
{
    json_t *body = json_pack("{s:s,s:o,s:b,s:s}", "model", m->name, "created_at",
                             time_of(time(NULL)), "done", 1, "done_reason", "unload");
    if (c->route->dialect == &dg_ollama_chat)
        dg_json_put(&body, "message", json_pack("{s:s,s:s}", "role", "assistant", "content", ""));
    else
        dg_json_put(&body, "response", json_string(""));
    dg_exchange_reply(&c->x, 200, body);
}

/* The model of this name, or of its adapter's: where there is one alone, "NAME", or "NAME:latest",
 * which is what clients make of it. NULL: none. */
static dg_model *find(const dg_models *ms, const char *name)
{
    dg_model *m = dg_models_find(ms, name, NULL);
    size_t n = m ? strlen(m->name) : 0;
    if (!m || ms->many ||
        (!strncmp(name, m->name, n) && (!name[n] || !strcmp(name + n, ":latest"))))
        return m;
    return dg_adapter_named(m->engine, m->name, name) >= 0 ? m : NULL;
}

static json_t *capabilities(const dgemma_model_info *i)
{
    json_t *list = json_pack("[s]", "completion");
    if (i->has_chat_template) {
        dg_json_add(&list, json_string("tools"));
        dg_json_add(&list, json_string("thinking"));
    }
    if (i->has_vision)
        dg_json_add(&list, json_string("vision"));
    return list;
}

static json_t *show_object(dg_model *m)
{
    dg_model_view v;
    dg_model_look(m, &v);
    const dgemma_model_info *i = &v.info;
    return json_pack("{s:s,s:s,s:s,s:o,s:{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:s},s:o}", "modelfile",
                     "", "parameters", "", "template", i->chat_template ? i->chat_template : "",
                     "details", details(i, ""), "model_info", "general.architecture",
                     "diffusion-gemma", "general.basename", m->name,
                     "diffusion-gemma.context_length", i->context_length,
                     "diffusion-gemma.embedding_length", i->n_embd, "diffusion-gemma.block_count",
                     i->n_layer, "diffusion-gemma.expert_count", i->n_expert,
                     "diffusion-gemma.expert_used_count", i->n_expert_used,
                     "diffusion-gemma.canvas_length", i->canvas_length, "diffusion-gemma.numerics",
                     i->numerics ? i->numerics : "", "capabilities", capabilities(i));
}

static bool show(dg_call *c, const json_t *root, dg_http_error *e)
{
    const char *name, *old;
    if (!dg_field_string(root, "model", &name, e) || !dg_field_string(root, "name", &old, e))
        return false;
    name = name && *name ? name : old;
    if (!name || !*name)
        return dg_refuse(e, 400, "invalid_value", "model", "model: missing");
    dg_model *m = find(c->server->models, name);
    if (!m)
        return dg_models_unknown(c->server->models, name, e);
    dg_exchange_reply(&c->x, 200, show_object(m));
    return true;
}

void dg_ollama_show(dg_call *c)
{
    dg_http_error e;
    json_t *root = dg_call_body(c, &e);
    if (!root || !show(c, root, &e))
        dg_exchange_refuse(&c->x, &e);
    json_decref(root);
}

void dg_ollama_version(dg_call *c)
{
    /* of the API, not of this program: clients refuse what is too old for them */
    static const char spoken[] = "0.12.11";
    dg_exchange_reply(&c->x, 200, json_pack("{s:s}", "version", spoken));
}
