#include "ollama_models.h"
#include <inttypes.h>
#include <string.h>
#include "adapter_request.h"
#include "call_body.h"
#include "json_fields.h"
#include "json_text.h"

static json_t *details(const char *parent)
{
    return json_pack("{s:s,s:s,s:s,s:[s],s:s,s:s}", "parent_model", parent, "format", "gguf",
                     "family", "diffusion-gemma", "families", "diffusion-gemma", "parameter_size",
                     "", "quantization_level", "");
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

static json_t *entry(const char *name, size_t bytes, const char *parent)
{
    return json_pack("{s:s,s:s,s:s,s:I,s:o,s:o}", "name", name, "model", name, "modified_at",
                     "1970-01-01T00:00:00Z", "size", (json_int_t)bytes, "digest",
                     digest(name, bytes), "details", details(parent));
}

static json_t *model_object(const dg_server *s)
{
    return entry(s->opt.model_name, s->info.weight_bytes, "");
}

void dg_ollama_tags(dg_call *c)
{
    const dg_server *s = c->server;
    json_t *list = json_pack("[o]", model_object(s));
    for (size_t i = 0; i < dgemma_adapter_count(s->engine); i++) {
        dgemma_adapter_info info;
        dgemma_adapter_describe(s->engine, i, &info);
        dg_json_add(&list, entry(info.name, info.bytes, s->opt.model_name));
    }
    dg_exchange_reply(&c->x, 200, json_pack("{s:o}", "models", list));
}

/* The model is loaded, and stays. */
void dg_ollama_running(dg_call *c)
{
    json_t *model = model_object(c->server);
    dg_json_put(&model, "expires_at", json_string("9999-12-31T23:59:59Z"));
    dg_json_put(&model, "size_vram", json_integer(0));
    dg_json_put(&model, "context_length", json_integer(c->server->info.context_length));
    dg_exchange_reply(&c->x, 200, json_pack("{s:[o]}", "models", model));
}

/* "NAME", or "NAME:latest", which is what clients make of it; or an adapter. */
static bool is_ours(const dg_server *s, const char *name)
{
    size_t n = strlen(s->opt.model_name);
    return (!strncmp(name, s->opt.model_name, n) && (!name[n] || !strcmp(name + n, ":latest"))) ||
           dg_adapter_named(s->engine, s->opt.model_name, name) >= 0;
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

static json_t *show_object(const dg_server *s)
{
    const dgemma_model_info *i = &s->info;
    return json_pack("{s:s,s:s,s:s,s:o,s:{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:s},s:o}", "modelfile",
                     "", "parameters", "", "template", i->chat_template ? i->chat_template : "",
                     "details", details(""), "model_info", "general.architecture",
                     "diffusion-gemma", "general.basename", s->opt.model_name,
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
    name = name ? name : old;
    if (!name)
        return dg_refuse(e, 400, "invalid_value", "model", "model: missing");
    if (!is_ours(c->server, name))
        return dg_refuse(e, 404, "model_not_found", "model", "model '%.100s' not found", name);
    dg_exchange_reply(&c->x, 200, show_object(c->server));
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
