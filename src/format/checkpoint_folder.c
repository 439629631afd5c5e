#include "format/checkpoint_folder.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json_values.h"

#define CONFIG_NAME "config.json"

static const size_t document_max = 16u << 20; /* the published index of 1047 tensors has 0.1 MB */

bool dg_has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

bool dg_is_plain_name(const char *s)
{
    return *s && strlen(s) <= NAME_MAX && !strpbrk(s, "/\\") && strcmp(s, ".") != 0 &&
           strcmp(s, "..") != 0;
}

static dgemma_status no_memory(const char *path, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
}

dg_listing dg_folder_list(const char *dir, dg_wanted_fn *wanted, const char *suffix)
{
    dg_listing found = {0};
    DIR *d = opendir(dir);
    if (!d)
        return found;
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || !wanted(e->d_name, suffix))
            continue;
        if (found.n++ == 0)
            found.name = dg_strdup(e->d_name);
    }
    closedir(d);
    return found;
}

dg_listing dg_folder_list_suffix(const char *dir, const char *suffix)
{
    return dg_folder_list(dir, dg_has_suffix, suffix);
}

/* The revision that refs/main names; *name is NULL where there is no such file, or no name in it.
 * False: no memory. */
static bool read_main_ref(const char *cache, char **name)
{
    char *path = dg_path_join(cache, "refs/main");
    dg_buf text;
    dg_buf_init(&text, 256);
    *name = NULL;
    dgemma_status st = path ? dg_file_read_regular(&text, path, NULL) : DGEMMA_E_NOMEM;
    bool ok = st != DGEMMA_E_NOMEM;
    if (!st && text.data) {
        text.data[strcspn(text.data, " \t\r\n")] = '\0';
        if (dg_is_plain_name(text.data))
            ok = (*name = dg_strdup(text.data)) != NULL;
    }
    dg_buf_clear(&text);
    dg_free(path);
    return ok;
}

/* From a hub cache folder, models--ORG--NAME, to the snapshot inside. Takes `snapshots`, the folder
 * of them. */
static dgemma_status enter_cache(char **dir, const char *cache, char *snapshots, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    char *revision;
    bool ok = read_main_ref(cache, &revision);
    *dir = revision ? dg_path_join(snapshots, revision) : NULL;
    if (!ok || (revision && !*dir))
        st = no_memory(cache, err);
    if (st || (*dir && dg_file_is_dir(*dir)))
        goto done;

    /* A reference to a revision that was never fetched is as good as none. */
    dg_free(*dir);
    *dir = NULL;
    dg_listing all = dg_folder_list_suffix(snapshots, "");
    if (all.n == 1 && all.name)
        *dir = dg_path_join(snapshots, all.name);
    dg_free(all.name);
    if (all.n != 1)
        st = dg_fail(err, DGEMMA_E_IO,
                     "%s: a hub cache folder with %zu snapshots and no refs/main that names one; "
                     "give the folder of a snapshot",
                     cache, all.n);
    else if (!*dir)
        st = no_memory(cache, err);

done:
    dg_free(revision);
    dg_free(snapshots);
    return st;
}

char *dg_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return dg_strdup(".");
    return slash == path ? dg_strdup("/") : dg_strndup(path, (size_t)(slash - path));
}

dgemma_status dg_folder_find(char **dir, const char *path, dgemma_error *err)
{
    struct stat info;
    *dir = NULL;
    if (stat(path, &info) != 0)
        return dg_fail(err, DGEMMA_E_IO,
                       "%s: %s; a model is a GGUF file or the folder of a checkpoint", path,
                       strerror(errno));

    if (!S_ISDIR(info.st_mode)) {
        if (!dg_has_suffix(path, ".safetensors") && !dg_has_suffix(path, ".json"))
            return dg_fail(
                err, DGEMMA_E_ARG,
                "%s: neither a GGUF file nor the folder of a checkpoint or a file of one", path);
        *dir = dg_folder_of(path);
        return *dir ? DGEMMA_OK : no_memory(path, err);
    }

    char *snapshots = dg_path_join(path, "snapshots");
    if (snapshots && dg_file_is_dir(snapshots) && !dg_file_exists_in(path, CONFIG_NAME))
        return enter_cache(dir, path, snapshots, err);
    *dir = dg_strdup(path);
    bool ok = snapshots && *dir;
    dg_free(snapshots);
    return ok ? DGEMMA_OK : no_memory(path, err);
}

static dgemma_status load_json(json_t **out, const char *path, dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, document_max);
    dgemma_status st = dg_file_read_regular(&text, path, err);
    if (!st)
        st = dg_json_check(text.data, text.len, DG_DOCUMENT_VALUES, path, err);
    if (!st) {
        json_error_t at;
        *out = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &at);
        if (!*out && !at.text[0]) /* jansson is silent when its memory is out */
            st = no_memory(path, err);
        else if (!*out)
            st = dg_fail(err, DGEMMA_E_FORMAT, "%s: line %d: %s", path, at.line, at.text);
    }
    dg_buf_clear(&text);
    return st;
}

dgemma_status dg_folder_json(json_t **out, const char *dir, const char *name, dgemma_error *err)
{
    *out = NULL;
    char *path = dg_path_join(dir, name);
    dgemma_status st = path ? load_json(out, path, err) : no_memory(dir, err);
    dg_free(path);
    return st;
}
