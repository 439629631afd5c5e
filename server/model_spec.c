#include "model_spec.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

enum { MAX_FILE = 1 << 20 };

/* ---- memory ---- */

void *dg_model_specs_own(dg_model_specs *s, void *memory)
{
    void **more = memory ? dg_array_resize(s->owned, s->n_owned + 1, sizeof *more) : NULL;
    if (!more) {
        dg_free(memory);
        return NULL;
    }
    s->owned = more;
    s->owned[s->n_owned++] = memory;
    return memory;
}

char *dg_model_specs_text(dg_model_specs *s, const char *text)
{
    return dg_model_specs_own(s, dg_strdup(text));
}

void dg_model_specs_clear(dg_model_specs *s)
{
    for (size_t i = 0; i < s->n_owned; i++)
        dg_free(s->owned[i]);
    dg_free(s->owned);
    dg_free(s->list);
    *s = (dg_model_specs){0};
}

dg_model_spec *dg_model_specs_add(dg_model_specs *s, const dg_model_base *base)
{
    dg_model_spec *more = dg_array_resize(s->list, s->n + 1, sizeof *more);
    if (!more)
        return NULL;
    s->list = more;
    dg_model_spec *m = &s->list[s->n++];
    *m = (dg_model_spec){.options = base->options, .idle_seconds = base->idle_seconds};
    return m;
}

size_t dg_model_spec_bytes(const dg_model_spec *m)
{
    return m->info.weight_bytes + m->info.work_bytes +
           (size_t)m->options.max_running * m->info.request_bytes + m->info.kv_bytes;
}

/* ---- names ---- */

/* All names of a model in one row: its own, its aliases, its adapters; NULL: there are no more. */
static const char *name_at(const dg_model_spec *m, size_t i)
{
    if (!i)
        return m->name;
    if (--i < m->n_alias)
        return m->aliases[i];
    i -= m->n_alias;
    return i < m->options.n_adapters ? m->options.adapters[i].name : NULL;
}

static bool is_taken(const dg_model_specs *s, size_t model, size_t place, const char *name)
{
    for (size_t i = 0; i <= model; i++)
        for (size_t k = 0; i < model || k < place; k++) {
            const char *other = name_at(&s->list[i], k);
            if (!other)
                break;
            if (!strcmp(other, name))
                return true;
        }
    return false;
}

dgemma_status dg_model_specs_check_names(const dg_model_specs *s, const char *path,
                                         dgemma_error *err)
{
    const char *name;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; (name = name_at(&s->list[i], k)); k++)
            if (is_taken(s, i, k, name))
                return dg_fail(err, DGEMMA_E_ARG,
                               "%s: models[%zu]: \"%s\" is the name of two, of models, aliases and "
                               "adapters",
                               path, i, name);
    return DGEMMA_OK;
}

/* ---- both forms ---- */

static dgemma_status read_file(dg_model_specs *out, const char *path, const dg_model_base *base,
                               dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, MAX_FILE);
    dgemma_status st = dg_file_read_regular(&text, path, err);
    if (!st)
        st = dg_models_file_parse(out, text.data ? text.data : "", text.len, path, base, err);
    dg_buf_clear(&text);
    return st;
}

/* The headers of each; what cannot be read leaves the list where that is a folder. */
static dgemma_status look_at_models(dg_model_specs *s, const char *path, bool in_folder,
                                    const dg_model_base *base, dgemma_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        dg_model_spec *m = &s->list[i];
        dgemma_error why = {0};
        if (!dgemma_model_estimate(&m->info, &m->options, &why)) {
            if (n == DG_MODELS_MAX) /* the rest need not be looked at to say so */
                return dg_fail(err, DGEMMA_E_LIMIT,
                               "%s: it has more than %d models, which is the "
                               "most that are served",
                               path, DG_MODELS_MAX);
            s->list[n++] = *m;
            continue;
        }
        if (!in_folder)
            return dg_fail(err, why.status, "%s: models[%zu]: %s", path, i, why.msg);
        if (base->skipped)
            base->skipped(base->user, m->name, why.msg);
    }
    s->n = n;
    return n ? DGEMMA_OK : dg_fail(err, DGEMMA_E_ARG, "%s: no model in it can be served", path);
}

dgemma_status dg_model_specs_read(dg_model_specs *out, const char *path, const dg_model_base *base,
                                  dgemma_error *err)
{
    bool folder = dg_file_is_dir(path);
    *out = (dg_model_specs){0};
    dgemma_status st =
        folder ? dg_models_folder_scan(out, path, base, err) : read_file(out, path, base, err);
    if (!st)
        st = dg_model_specs_check_names(out, path, err);
    if (!st)
        st = look_at_models(out, path, folder, base, err);
    if (!st && folder)
        st = dg_models_folder_shorten(out, err);
    if (st)
        dg_model_specs_clear(out);
    return st;
}
