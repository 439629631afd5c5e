#include "engine/adapter_set.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "model/adapters.h"

_Static_assert((int)DG_MAX_ADAPTER == (int)DGEMMA_MAX_ADAPTERS &&
                   (int)DG_ADAPTER_RANK == (int)DG_MAX_RANK,
               "what is read can be used");

/* The name that requests use: given, or the last part of the path without .gguf. */
static char *name_of(const dgemma_adapter *a)
{
    if (a->name)
        return dg_strdup(a->name);
    size_t n = strlen(a->path);
    while (n > 1 && a->path[n - 1] == '/')
        n--;
    size_t first = n;
    while (first && a->path[first - 1] != '/')
        first--;
    if (n - first > 5 && !strncmp(a->path + n - 5, ".gguf", 5))
        n -= 5;
    return dg_strndup(a->path + first, n - first);
}

static dgemma_status check_name(const char *name, dgemma_error *err)
{
    size_t n = strlen(name);
    if (!n || n > DGEMMA_MAX_ADAPTER_NAME)
        return dg_fail(err, DGEMMA_E_ARG, "an adapter's name has %zu bytes: 1 to %d are possible",
                       n, DGEMMA_MAX_ADAPTER_NAME);
    if (!dg_utf8_valid(name, n))
        return dg_fail(err, DGEMMA_E_ARG, "an adapter's name is not UTF-8");
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            return dg_fail(err, DGEMMA_E_ARG, "an adapter's name has a control character in it");
    return DGEMMA_OK;
}

static dgemma_status check_one(const dgemma_engine_options *opt, size_t i, dgemma_error *err)
{
    const dgemma_adapter *a = &opt->adapters[i];
    if (!a->path || !*a->path)
        return dg_fail(err, DGEMMA_E_ARG, "adapter %zu has no path", i);
    if (!(fabsf(a->scale) <= DG_ADAPTER_SCALE))
        return dg_fail(err, DGEMMA_E_ARG, "the scale of %.200s is %g: -1000 to 1000 are possible",
                       a->path, (double)a->scale);
    char *name = name_of(a);
    dgemma_status st = name ? check_name(name, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t k = 0; !st && k < i; k++) {
        char *other = name_of(&opt->adapters[k]);
        if (!other)
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        else if (!strcmp(name, other))
            st = dg_fail(err, DGEMMA_E_ARG, "two adapters are called \"%s\": name one NAME=PATH",
                         name);
        dg_free(other);
    }
    dg_free(name);
    return st;
}

dgemma_status dg_adapter_set_check(const dgemma_engine_options *opt, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    if (opt->n_adapters > DGEMMA_MAX_ADAPTERS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu adapters: at most %d can be loaded", opt->n_adapters,
                       DGEMMA_MAX_ADAPTERS);
    for (size_t i = 0; !st && i < opt->n_adapters; i++)
        st = check_one(opt, i, err);
    return st;
}

dgemma_status dg_adapter_set_open(dg_adapter_set *s, dg_model *m, const dgemma_engine_options *opt,
                                  dgemma_error *err)
{
    *s = (dg_adapter_set){0};
    if (!opt->n_adapters)
        return DGEMMA_OK;
    dg_adapter *read = dg_calloc(opt->n_adapters, sizeof *read);
    s->list = dg_calloc(opt->n_adapters, sizeof *s->list);
    dgemma_status st =
        read && s->list ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "no memory for adapters");
    for (size_t i = 0; !st && i < opt->n_adapters; i++) {
        const dgemma_adapter *a = &opt->adapters[i];
        dg_adapter_entry *e = &s->list[s->n++];
        *e = (dg_adapter_entry){name_of(a), dg_strdup(a->path), a->scale};
        st = e->name && e->path ? dg_adapter_open(&read[i], a->path, err)
                                : dg_fail(err, DGEMMA_E_NOMEM, "no memory for adapters");
    }
    if (!st)
        st = dg_model_adapt(m, read, s->n, err);
    for (size_t i = 0; read && i < opt->n_adapters; i++)
        dg_adapter_close(&read[i]);
    dg_free(read);
    return st;
}

void dg_adapter_set_clear(dg_adapter_set *s)
{
    for (int i = 0; i < s->n; i++) {
        dg_free(s->list[i].name);
        dg_free(s->list[i].path);
    }
    dg_free(s->list);
    *s = (dg_adapter_set){0};
}

int dg_adapter_set_find(const dg_adapter_set *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].name, name))
            return i;
    return -1;
}

void dg_adapter_set_describe(const dg_adapter_set *s, const dg_model *m, int adapter,
                             dgemma_adapter_info *info)
{
    const dg_adapter_entry *e = &s->list[adapter];
    *info = (dgemma_adapter_info){.name = e->name,
                                  .path = e->path,
                                  .scale = e->scale,
                                  .rank = dg_model_adapter_rank(m, adapter),
                                  .bytes = dg_model_adapter_bytes(m, adapter),
                                  .prompt = dg_model_adapter_encodes(m, adapter)};
}

/* ---- requests ---- */

dgemma_status dg_adapter_uses_check(const dg_adapter_set *s, const dgemma_request_options *o,
                                    dgemma_error *err)
{
    if (o->n_adapters > DGEMMA_MAX_ADAPTER_USES)
        return dg_fail(err, DGEMMA_E_ARG, "%zu adapters for a request: at most %d are possible",
                       o->n_adapters, DGEMMA_MAX_ADAPTER_USES);
    for (size_t i = 0; i < o->n_adapters; i++) {
        const dgemma_adapter_use *use = &o->adapters[i];
        if (use->adapter < 0 || use->adapter >= s->n)
            return dg_fail(err, DGEMMA_E_ARG, "there is no adapter %d: %d were loaded",
                           use->adapter, s->n);
        const float loaded = s->list[use->adapter].scale;
        if (!(fabsf(use->scale) <= DG_ADAPTER_SCALE) ||
            fabsf(use->scale * loaded) > DG_ADAPTER_SCALE)
            return dg_fail(err, DGEMMA_E_ARG,
                           "the scale of adapter \"%s\" is %g, and %g as it was loaded: -1000 to "
                           "1000 are possible, and so is their product",
                           s->list[use->adapter].name, (double)use->scale, (double)loaded);
        for (size_t k = 0; k < i; k++)
            if (o->adapters[k].adapter == use->adapter)
                return dg_fail(err, DGEMMA_E_ARG, "adapter \"%s\" is chosen twice",
                               s->list[use->adapter].name);
    }
    return DGEMMA_OK;
}

int dg_adapter_uses(dg_adapter_use *out, const dg_adapter_set *s, const dgemma_request_options *o)
{
    int n = 0;
    for (size_t i = 0; i < o->n_adapters; i++) {
        const dgemma_adapter_use *use = &o->adapters[i];
        const float scale = s->list[use->adapter].scale * use->scale;
        if (scale != 0)
            out[n++] = (dg_adapter_use){use->adapter, scale};
    }
    return n;
}

char *dg_adapter_salt(const dg_model *m, const dg_adapter_use *use, int n, const char *salt)
{
    dg_buf text;
    dg_buf_init(&text, 64 * DGEMMA_MAX_ADAPTER_USES + DGEMMA_MAX_CACHE_SALT + 2);
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        char one[64];
        snprintf(one, sizeof one, "%d*%a ", use[i].adapter, (double)use[i].scale);
        if (dg_model_adapter_encodes(m, use[i].adapter))
            ok = dg_buf_puts(&text, one);
    }
    ok = ok && dg_buf_puts(&text, "|") && (!salt || dg_buf_puts(&text, salt));
    char *out = ok ? dg_strdup(text.data) : NULL;
    dg_buf_clear(&text);
    return out;
}
