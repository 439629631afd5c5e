#include "adapter_request.h"
#include <math.h>
#include <string.h>
#include "json_fields.h"
#include "json_text.h"

/* ---- names ---- */

/* An adapter by the first n bytes of a name; -1: none. */
static int find(const dgemma_engine *engine, const char *name, size_t n)
{
    char text[DGEMMA_MAX_ADAPTER_NAME + 1];
    if (!n || n >= sizeof text)
        return -1;
    memcpy(text, name, n);
    text[n] = '\0';
    return dgemma_adapter_find(engine, text);
}

int dg_adapter_named(const dgemma_engine *engine, const char *base, const char *model)
{
    static const char latest[] = ":latest";
    size_t n = strlen(model), n_base = strlen(base), n_latest = sizeof latest - 1;
    int whole = find(engine, model, n);
    if (whole >= 0 || !dgemma_adapter_count(engine))
        return whole;
    if (n >= n_latest && !strcmp(model + n - n_latest, latest))
        n -= n_latest;
    if (n <= n_base || strncmp(model, base, n_base) != 0 || model[n_base] != ':')
        return find(engine, model, n);
    int adapter = find(engine, model + n_base + 1, n - n_base - 1);
    return adapter < 0 ? -2 : adapter;
}

void dg_adapter_names(dg_name_list *to, const dgemma_engine *engine)
{
    for (size_t i = 0; i < dgemma_adapter_count(engine); i++) {
        dgemma_adapter_info info;
        dgemma_adapter_describe(engine, i, &info);
        dg_name_list_add(to, info.name);
    }
}

/* ---- the field of llama-server ---- */

/* An adapter by its number, its name, or both. */
static bool read_which(dgemma_adapter_use *use, const json_t *id, const json_t *name,
                       const dgemma_engine *engine, dg_http_error *e)
{
    const json_int_t n = (json_int_t)dgemma_adapter_count(engine), given = json_integer_value(id);
    const int by_id = given >= 0 && given < n ? (int)given : -1;
    const int by_name =
        name ? find(engine, json_string_value(name), json_string_length(name)) : by_id;
    if ((id && by_id < 0) || by_name < 0)
        return dg_refuse(e, 400, "invalid_value", "lora",
                         "lora: there is no such adapter: %d were loaded", (int)n);
    if (id && by_id != by_name) {
        dgemma_adapter_info info;
        dgemma_adapter_describe(engine, (size_t)by_id, &info);
        return dg_refuse(e, 400, "invalid_value", "lora",
                         "lora: number %d is \"%s\", and \"%s\" is %d: they are two adapters",
                         by_id, info.name, json_string_value(name), by_name);
    }
    use->adapter = by_name;
    return true;
}

static bool read_one(dgemma_adapter_use *use, const json_t *item, const dgemma_engine *engine,
                     dg_http_error *e)
{
    const json_t *id = dg_field_get(item, "id"), *name = dg_field_get(item, "name"),
                 *scale = dg_field_get(item, "scale");
    if (!json_is_object(item) || (!id && !name) || (id && !json_is_integer(id)) ||
        (name && !json_is_string(name)))
        return dg_refuse(e, 400, "invalid_type", "lora",
                         "lora: wanted a list of {\"id\": N, \"scale\": X} or {\"name\": TEXT}");
    if (!read_which(use, id, name, engine, e))
        return false;
    use->scale = 1;
    if (scale && !json_is_number(scale))
        return dg_refuse(e, 400, "invalid_type", "lora", "lora: a scale is a number");
    if (scale)
        use->scale = (float)json_number_value(scale);
    return true;
}

static bool read_list(dg_adapter_choice *out, const json_t *list, const dgemma_engine *engine,
                      dg_http_error *e)
{
    if (!json_is_array(list) || json_array_size(list) > DGEMMA_MAX_ADAPTER_USES)
        return dg_refuse(e, 400, "invalid_type", "lora", "lora: wanted a list of at most %d",
                         DGEMMA_MAX_ADAPTER_USES);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_one(&out->use[out->n++], json_array_get(list, i), engine, e))
            return false;
    return true;
}

static bool refuse_model(dg_http_error *e, const char *name, const dgemma_engine *engine,
                         const char *base)
{
    dg_name_list there = {0};
    dg_name_list_add(&there, base);
    dg_adapter_names(&there, engine);
    return dg_refuse_model(e, name, &there);
}

bool dg_adapters_choose(dg_adapter_choice *out, const json_t *root, const dgemma_engine *engine,
                        const char *base, dg_http_error *e)
{
    const char *model = json_string_value(dg_field_get(root, "model"));
    const json_t *list = dg_field_get(root, "lora");
    *out = (dg_adapter_choice){.model = base};
    if (list)
        return read_list(out, list, engine, e);
    int adapter = model ? dg_adapter_named(engine, base, model) : -1;
    if (adapter == -2)
        return refuse_model(e, model, engine, base);
    if (adapter >= 0) {
        dgemma_adapter_info info;
        dgemma_adapter_describe(engine, (size_t)adapter, &info);
        out->use[out->n++] = (dgemma_adapter_use){adapter, 1};
        out->model = info.name;
    }
    return true;
}

/* ---- lists ---- */

json_t *dg_adapter_model(const dgemma_engine *engine, size_t adapter, const char *base,
                         int context_length)
{
    dgemma_adapter_info info;
    dgemma_adapter_describe(engine, adapter, &info);
    return json_pack("{s:s,s:s,s:i,s:s,s:s,s:s,s:i,s:{s:i,s:I}}", "id", info.name, "object",
                     "model", "created", 0, "owned_by", "dgemma", "root", base, "parent", base,
                     "max_model_len", context_length, "meta", "rank", info.rank, "size",
                     (json_int_t)info.bytes);
}

json_t *dg_adapter_object(const dgemma_engine *engine, size_t adapter)
{
    dgemma_adapter_info info;
    dgemma_adapter_describe(engine, adapter, &info);
    return json_pack("{s:I,s:s,s:o,s:f}", "id", (json_int_t)adapter, "name", info.name, "path",
                     dg_json_text(info.path, strlen(info.path)), "scale", (double)info.scale);
}
