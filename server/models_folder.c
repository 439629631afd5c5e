/* Models that lie in a folder: GGUF files and folders of checkpoints, each by the name that it has
 * there. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "model_spec.h"

/* Most of which may turn out to be none. */
enum { MAX_CANDIDATES = 1024 };

static const char ending[] = ".gguf";

/* In any case, as some systems write it. */
static bool is_gguf(const char *name)
{
    size_t n = strlen(name), k = sizeof ending - 1;
    return n > k && !strcasecmp(name + n - k, ending);
}

/* "-00002-of-00003.gguf": the first part stands for all. */
static bool is_later_part(const char *name)
{
    size_t n = strlen(name);
    int part = 0, of = 0;
    return n > 20 && sscanf(name + n - 20, "-%5d-of-%5d.", &part, &of) == 2 && part > 1;
}

static bool is_text(const char *name)
{
    for (size_t left = strlen(name), n; left; name += n, left -= n) {
        n = dg_utf8_decode(name, left, NULL);
        if (!n || (unsigned char)*name < ' ' || *name == 127)
            return false;
    }
    return true;
}

/* Also what is there and cannot be read: who put it there hears why when it is looked at. */
static bool has(const char *folder, const char *name)
{
    struct stat info;
    char *path = dg_path_join(folder, name);
    bool there = path && (lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR));
    dg_free(path);
    return there;
}

static bool looks_like_model(const char *folder, const char *name)
{
    if (*name == '.')
        return false;
    char *path = dg_path_join(folder, name);
    bool is = path && dg_file_is_dir(path)
                  ? has(path, "config.json") || has(path, "snapshots")
                  : is_gguf(name) && strncmp(name, "mmproj", 6) != 0 && !is_later_part(name);
    dg_free(path);
    return is;
}

static bool add_short_name(dg_model_specs *s, dg_model_spec *m)
{
    size_t n = strlen(m->name) - (is_gguf(m->name) ? sizeof ending - 1 : 0);
    if (!m->name[n] || m->name[n - 1] == '*') /* of aliases, that would be the beginning of many */
        return true;
    m->aliases = dg_model_specs_own(s, dg_calloc(1, sizeof *m->aliases));
    char *alias = dg_model_specs_own(s, dg_strndup(m->name, n));
    if (!m->aliases || !alias)
        return false;
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].name, alias))
            return true;
    m->aliases[m->n_alias++] = alias;
    return true;
}

/* Those that nobody could name are told at once. */
static dgemma_status add_model(dg_model_specs *s, const char *name, const dg_model_base *base,
                               dgemma_error *err)
{
    char why[80] = "";
    if (strlen(name) > DG_MODEL_NAME_MAX)
        snprintf(why, sizeof why, "its name has more than %d bytes", DG_MODEL_NAME_MAX);
    else if (!is_text(name))
        snprintf(why, sizeof why, "its name is not UTF-8 without control characters");
    if (*why && base->skipped)
        base->skipped(base->user, name, why);
    if (*why)
        return DGEMMA_OK;
    if (s->n == MAX_CANDIDATES)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "%s: it has more than %d files and folders that look like models", s->folder,
                       MAX_CANDIDATES);
    dg_model_spec *m = dg_model_specs_add(s, base);
    if (m) {
        m->name = dg_model_specs_text(s, name);
        m->options.model_path = dg_model_specs_own(s, dg_path_join(s->folder, name));
    }
    return m && m->name && m->options.model_path ? DGEMMA_OK
                                                 : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dg_model_spec *)a)->name, ((const dg_model_spec *)b)->name);
}

dgemma_status dg_models_folder_scan(dg_model_specs *out, const char *path,
                                    const dg_model_base *base, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    DIR *dir = opendir(path);
    if (!dir)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
    out->folder = dg_model_specs_text(out, path);
    if (!out->folder)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (const struct dirent *d; !st && (d = readdir(dir));)
        if (looks_like_model(path, d->d_name))
            st = add_model(out, d->d_name, base, err);
    closedir(dir);
    if (st)
        return st;
    if (!out->n)
        return dg_fail(err, DGEMMA_E_ARG,
                       "%s: there is no model in it: GGUF files and folders with a config.json are",
                       path);
    qsort(out->list, out->n, sizeof *out->list, by_name);
    return DGEMMA_OK;
}

dgemma_status dg_models_folder_shorten(dg_model_specs *s, dgemma_error *err)
{
    for (size_t i = 0; i < s->n; i++)
        if (!add_short_name(s, &s->list[i]))
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    return DGEMMA_OK;
}
