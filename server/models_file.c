/* A models file: JSON, a list of models with their names, paths and options. All that is in it is
 * checked; what is wrong is told with its place. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_values.h"
#include "base/kv_type.h"
#include "json_fields.h"
#include "model_spec.h"

typedef struct reader {
    dg_model_specs *out;
    const char *path; /* of the file, for messages */
    const dg_model_base *base;
    char where[64]; /* "models[2]" */
    dgemma_error *err;
} reader;

DG_PRINTF(2, 3)
static bool wrong(reader *r, const char *fmt, ...)
{
    char text[384];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dg_fail(r->err, DGEMMA_E_ARG, "%s: %s%s%s", r->path, r->where, *r->where ? ": " : "", text);
    return false;
}

static bool no_memory(reader *r)
{
    dg_fail(r->err, DGEMMA_E_NOMEM, "out of memory");
    return false;
}

/* ---- values ---- */

/* Refuses members that are none of these words. */
static bool only(reader *r, const json_t *object, const char *words)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *at = words;
        size_t n = strlen(key), len;
        while ((len = strcspn(at, ",")) != n || memcmp(at, key, n) != 0)
            if (at[len])
                at += len + 2; /* a comma and a space */
            else
                return wrong(r, "\"%.60s\" is not known; there are %s", key, words);
    }
    return true;
}

/* Text that is owned by the specs; *out is kept when it is not there. */
static bool text(reader *r, const json_t *object, const char *name, const char **out)
{
    const json_t *v = dg_field_get(object, name);
    if (!v)
        return true;
    if (!json_string_length(v) || strlen(json_string_value(v)) != json_string_length(v))
        return wrong(r, "%s: wanted text", name);
    *out = dg_model_specs_text(r->out, json_string_value(v));
    return *out || no_memory(r);
}

/* A path, which is the file's neighbour unless it begins at the root. */
static bool path(reader *r, const json_t *object, const char *name, const char **out)
{
    const char *given = NULL;
    if (!text(r, object, name, &given))
        return false;
    if (!given)
        return true;
    *out = *given == '/' ? given : dg_model_specs_own(r->out, dg_path_join(r->out->folder, given));
    return *out || no_memory(r);
}

static bool is_name(const char *name)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return false;
    return *name && strlen(name) <= DG_MODEL_NAME_MAX;
}

static bool check_name(reader *r, const char *field, const char *name)
{
    return is_name(name) || wrong(r, "%s: a name has 1 to %d bytes and no control characters",
                                  field, DG_MODEL_NAME_MAX);
}

static bool aliases(reader *r, const json_t *object, dg_model_spec *m)
{
    const json_t *list = dg_field_get(object, "aliases"), *v;
    size_t n = json_array_size(list);
    if (!list)
        return true;
    if (!json_is_array(list) || n > DG_MODEL_ALIASES_MAX)
        return wrong(r, "aliases: wanted a list of at most %d names", DG_MODEL_ALIASES_MAX);
    m->aliases = dg_model_specs_own(r->out, dg_calloc(n + 1, sizeof *m->aliases));
    if (!m->aliases)
        return no_memory(r);
    for (; m->n_alias < n; m->n_alias++) {
        v = json_array_get(list, m->n_alias);
        const char *name = json_string_value(v);
        if (!name || strlen(name) != json_string_length(v))
            return wrong(r, "aliases[%zu]: wanted text", m->n_alias);
        if (!check_name(r, "aliases", name))
            return false;
        m->aliases[m->n_alias] = dg_model_specs_text(r->out, name);
        if (!m->aliases[m->n_alias])
            return no_memory(r);
    }
    return true;
}

static bool one_adapter(reader *r, const json_t *v, dgemma_adapter *out)
{
    static const dg_field fields[] = {
        {"scale", DG_FIELD_FLOAT, offsetof(dgemma_adapter, scale), -1000, 1000}};
    dg_http_error e;
    *out = (dgemma_adapter){.scale = 1};
    if (!json_is_object(v))
        return wrong(r, "wanted an object with name, path and scale");
    if (!only(r, v, "name, path, scale") || !text(r, v, "name", &out->name) ||
        !path(r, v, "path", &out->path))
        return false;
    if (!dg_fields_read(out, v, "", fields, DG_COUNT(fields), &e))
        return wrong(r, "%s", e.message);
    if (!out->name || !out->path)
        return wrong(r, "%s: missing", out->name ? "path" : "name");
    return strlen(out->name) <= DGEMMA_MAX_ADAPTER_NAME ? check_name(r, "name", out->name)
                                                        : wrong(r, "name: too long");
}

static bool adapters(reader *r, const json_t *object, dg_model_spec *m)
{
    const json_t *list = dg_field_get(object, "adapters");
    size_t n = json_array_size(list), place = strlen(r->where);
    if (!list)
        return true;
    if (!json_is_array(list) || n > DGEMMA_MAX_ADAPTERS)
        return wrong(r, "adapters: wanted a list of at most %d", DGEMMA_MAX_ADAPTERS);
    dgemma_adapter *all = dg_model_specs_own(r->out, dg_calloc(n + 1, sizeof *all));
    if (!all)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        snprintf(r->where + place, sizeof r->where - place, ".adapters[%zu]", i);
        if (!one_adapter(r, json_array_get(list, i), &all[i]))
            return false;
    }
    r->where[place] = '\0';
    m->options.adapters = all;
    m->options.n_adapters = n;
    return true;
}

/* ---- one model ---- */

/* Numbers that do not stand in the spec as they are written. */
typedef struct numbers {
    int context, kv_memory, gpu_memory, parallel, threads, idle;
    bool preload, pinned;
} numbers;

static const char members[] = "name, path, aliases, mmproj, adapters, chat_template, context, "
                              "device, weights, kv_type, kv_memory, gpu_memory, parallel, threads, "
                              "idle, preload, pinned";

static bool read_numbers(reader *r, const json_t *v, dg_model_spec *m)
{
    static const dg_field fields[] = {
        {"context", DG_FIELD_INT, offsetof(numbers, context), 0, 1 << 24},
        {"kv_memory", DG_FIELD_INT, offsetof(numbers, kv_memory), 0, 1 << 24},
        {"gpu_memory", DG_FIELD_INT, offsetof(numbers, gpu_memory), 0, 1 << 24},
        {"parallel", DG_FIELD_INT, offsetof(numbers, parallel), 1, 4096},
        {"threads", DG_FIELD_INT, offsetof(numbers, threads), 0, 4096},
        {"idle", DG_FIELD_INT, offsetof(numbers, idle), 0, 1 << 30},
        {"preload", DG_FIELD_BOOL, offsetof(numbers, preload), 0, 0},
        {"pinned", DG_FIELD_BOOL, offsetof(numbers, pinned), 0, 0},
    };
    dgemma_engine_options *o = &m->options;
    numbers x = {.context = o->context_length,
                 .parallel = o->max_running,
                 .threads = o->n_threads,
                 .idle = m->idle_seconds};
    dg_http_error e;
    if (!dg_fields_read(&x, v, "", fields, DG_COUNT(fields), &e))
        return wrong(r, "%s", e.message);
    o->context_length = x.context;
    o->max_running = x.parallel;
    o->n_threads = x.threads;
    if (dg_field_get(v, "kv_memory"))
        o->kv_bytes = (size_t)x.kv_memory << 20;
    if (dg_field_get(v, "gpu_memory"))
        o->gpu_bytes = (size_t)x.gpu_memory << 20;
    m->idle_seconds = x.idle;
    m->pinned = x.pinned;
    m->preload = x.preload || x.pinned;
    return true;
}

static bool read_kv_type(reader *r, const json_t *v, dgemma_engine_options *o)
{
    const char *type = NULL;
    if (!text(r, v, "kv_type", &type))
        return false;
    return dg_kv_type_named(&o->kv_type, type) || wrong(r, "kv_type is " DG_KV_TYPES);
}

static bool read_model(reader *r, const json_t *v)
{
    if (!json_is_object(v))
        return wrong(r, "wanted an object with a name and a path");
    dg_model_spec *m = dg_model_specs_add(r->out, r->base);
    if (!m)
        return no_memory(r);
    dgemma_engine_options *o = &m->options;
    o->model_path = NULL;
    if (!only(r, v, members) || !text(r, v, "name", &m->name) ||
        !path(r, v, "path", &o->model_path) || !path(r, v, "mmproj", &o->mmproj) ||
        !text(r, v, "device", &o->device) || !text(r, v, "weights", &o->weights) ||
        !text(r, v, "chat_template", &o->chat_template) || !read_kv_type(r, v, o) ||
        !read_numbers(r, v, m) || !aliases(r, v, m) || !adapters(r, v, m))
        return false;
    if (!m->name || !o->model_path)
        return wrong(r, "%s: missing", m->name ? "path" : "name");
    return check_name(r, "name", m->name);
}

/* ---- the file ---- */

static bool read_first(reader *r, const json_t *root)
{
    const json_t *v = dg_field_get(root, "default");
    const char *name = json_string_value(v);
    dg_model_specs *s = r->out;
    r->where[0] = '\0';
    if (!v)
        return true;
    while (name && s->first < s->n && strcmp(s->list[s->first].name, name) != 0)
        s->first++;
    return (name && s->first < s->n) || wrong(r, "default: there is no model of this name");
}

static bool read_root(reader *r, const json_t *root)
{
    const json_t *list = dg_field_get(root, "models");
    size_t n = json_array_size(list);
    if (!json_is_object(root))
        return wrong(r, "wanted an object with a list of models");
    if (!only(r, root, "models, default"))
        return false;
    if (!json_is_array(list) || !n || n > DG_MODELS_MAX)
        return wrong(r, "models: wanted a list of 1 to %d models", DG_MODELS_MAX);
    for (size_t i = 0; i < n; i++) {
        snprintf(r->where, sizeof r->where, "models[%zu]", i);
        if (!read_model(r, json_array_get(list, i)))
            return false;
    }
    return read_first(r, root);
}

/* What stands before the last slash; "." where there is none. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? dg_strndup(path, (size_t)(slash - path) + (slash == path)) : dg_strdup(".");
}

dgemma_status dg_models_file_parse(dg_model_specs *out, const char *text, size_t len,
                                   const char *path, const dg_model_base *base, dgemma_error *err)
{
    json_error_t where;
    reader r = {.out = out, .path = path, .base = base, .err = err};
    out->folder = dg_model_specs_own(out, folder_of(path));
    if (!out->folder)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_json_check(text, len, DG_DOCUMENT_VALUES, path, err);
    if (st)
        return st;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: line %d, column %d: %s", path, where.line,
                       where.column, where.text);
    bool ok = read_root(&r, root);
    json_decref(root);
    return ok ? DGEMMA_OK : err && err->status ? err->status : DGEMMA_E_ARG;
}
