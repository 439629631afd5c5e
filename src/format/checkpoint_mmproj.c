/* The vision tower beside a GGUF model. */
#include <dirent.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "format/checkpoint.h"
#include "format/checkpoint_folder.h"

/* The first by name, *best NULL where there is none. False: no memory. */
static bool first_mmproj(const char *dir, char **best)
{
    bool ok = true;
    DIR *d = opendir(dir);
    *best = NULL;
    for (const struct dirent *e; ok && d && (e = readdir(d));) {
        if (strncmp(e->d_name, "mmproj", 6) != 0 || !dg_has_suffix(e->d_name, ".gguf") ||
            (*best && strcmp(*best, e->d_name) < 0))
            continue;
        dg_free(*best);
        ok = (*best = dg_strdup(e->d_name)) != NULL;
    }
    if (d)
        closedir(d);
    return ok;
}

dgemma_status dg_checkpoint_open_mmproj(dg_checkpoint **out, const dg_checkpoint *model,
                                        dgemma_error *err)
{
    *out = NULL;
    if (!dg_checkpoint_gguf(model))
        return DGEMMA_OK;
    char *dir = dg_folder_of(dg_checkpoint_dir(model)), *name = NULL;
    bool ok = dir && first_mmproj(dir, &name);
    char *path = name ? dg_path_join(dir, name) : NULL;
    dgemma_status st = DGEMMA_OK;
    if (path)
        st = dg_checkpoint_open(out, path, err);
    else if (!ok || name)
        st = dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", dg_checkpoint_dir(model));
    dg_free(dir);
    dg_free(name);
    dg_free(path);
    return st;
}
