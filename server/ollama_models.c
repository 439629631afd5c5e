#include "ollama_models.h"
#include <string.h>
#include "json_fields.h"

static json_t *details(void)
{
    return json_pack("{s:s,s:s,s:s,s:[s],s:s,s:s}", "parent_model", "", "format", "gguf", "family",
                     "diffusion-gemma", "families", "diffusion-gemma", "parameter_size", "",
                     "quantization_level", "");
}

void dg_ollama_tags(dg_call *c)
{
    const dg_server *s = c->server;
    json_t *model = json_pack("{s:s,s:s,s:s,s:I,s:s,s:o}", "name", s->opt.model_name, "model",
                              s->opt.model_name, "modified_at", "1970-01-01T00:00:00Z", "size",
                              (json_int_t)s->info.weight_bytes, "digest", "", "details", details());
    dg_exchange_reply(&c->x, 200, json_pack("{s:[o]}", "models", model));
}

/* "NAME", or "NAME:latest", which is what clients make of it. */
static bool is_ours(const dg_server *s, const char *name)
{
    size_t n = strlen(s->opt.model_name);
    return !strncmp(name, s->opt.model_name, n) && (!name[n] || !strcmp(name + n, ":latest"));
}

static json_t *capabilities(const dgemma_model_info *i)
{
    json_t *list = json_pack("[s]", "completion");
    if (i->has_chat_template) {
        json_array_append_new(list, json_string("tools"));
        json_array_append_new(list, json_string("thinking"));
    }
    if (i->has_vision)
        json_array_append_new(list, json_string("vision"));
    return list;
}

static json_t *show_object(const dg_server *s)
{
    const dgemma_model_info *i = &s->info;
    return json_pack(
        "{s:s,s:s,s:s,s:o,s:{s:s,s:i,s:i,s:i,s:i,s:i,s:i},s:o}", "modelfile", "", "parameters", "",
        "template", i->chat_template ? i->chat_template : "", "details", details(), "model_info",
        "general.architecture", "diffusion-gemma", "diffusion-gemma.context_length",
        i->context_length, "diffusion-gemma.embedding_length", i->n_embd,
        "diffusion-gemma.block_count", i->n_layer, "diffusion-gemma.expert_count", i->n_expert,
        "diffusion-gemma.expert_used_count", i->n_expert_used, "diffusion-gemma.canvas_length",
        i->canvas_length, "capabilities", capabilities(i));
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
    dg_exchange_reply(&c->x, 200, json_pack("{s:s}", "version", DGEMMA_VERSION));
}
