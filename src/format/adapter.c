#include "format/adapter.h"
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/file.h"
#include "format/checkpoint_folder.h"

#define CONFIG_NAME "adapter_config.json"

enum { CONFIG_MAX = 1 << 20 };

dg_adapter_part *dg_adapter_add(dg_adapter *a, const char *where, dgemma_error *err)
{
    if (a->n_part == DG_ADAPTER_PARTS) {
        dg_fail(err, DGEMMA_E_LIMIT, "%s: an adapter may change at most %d matrices", where,
                DG_ADAPTER_PARTS);
        return NULL;
    }
    if (a->n_part % 64 == 0) {
        dg_adapter_part *more = dg_array_resize(a->part, a->n_part + 64, sizeof *more);
        if (!more) {
            dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
            return NULL;
        }
        a->part = more;
    }
    a->part[a->n_part] = (dg_adapter_part){0};
    return &a->part[a->n_part++];
}

void dg_adapter_close(dg_adapter *a)
{
    for (size_t i = 0; i < a->n_part; i++)
        dg_free(a->part[i].module);
    dg_free(a->part);
    dg_safetensors_clear(&a->safetensors);
    dg_gguf_clear(&a->gguf);
    dg_file_map_close(&a->map);
    dg_free(a->path);
    *a = (dg_adapter){0};
}

static dgemma_status open_folder(dg_adapter *a, const char *dir, dgemma_error *err)
{
    char *config = dg_path_join(dir, CONFIG_NAME),
         *tensors = dg_path_join(dir, "adapter_model.safetensors");
    dg_buf doc;
    dg_buf_init(&doc, CONFIG_MAX);
    dgemma_status st =
        config && tensors ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", dir);
    if (!st && !dg_file_exists(config))
        st = dg_fail(err, DGEMMA_E_IO, "%s: no " CONFIG_NAME " is there: not an adapter", dir);
    if (!st && !dg_file_exists(tensors))
        st = dg_fail(err, DGEMMA_E_IO, "%s: no adapter_model.safetensors is there", dir);
    if (!st)
        st = dg_file_read_regular(&doc, config, err);
    if (!st)
        st = dg_file_map_open(&a->map, tensors, err);
    if (!st)
        st = dg_adapter_parse_peft(a, doc.data, doc.len, a->map.data, a->map.size, dir, err);
    dg_buf_clear(&doc);
    dg_free(config);
    dg_free(tensors);
    return st;
}

static dgemma_status open_gguf(dg_adapter *a, const char *path, dgemma_error *err)
{
    dgemma_status st = dg_file_map_open(&a->map, path, err);
    if (!st && (a->map.size < 4 || memcmp(a->map.data, "GGUF", 4) != 0))
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: neither a GGUF file nor a folder with " CONFIG_NAME,
                     path);
    return st ? st : dg_adapter_parse_gguf(a, a->map.data, a->map.size, path, err);
}

dgemma_status dg_adapter_open(dg_adapter *out, const char *path, dgemma_error *err)
{
    *out = (dg_adapter){.path = dg_strdup(path)};
    char *dir = dg_folder_of(path);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    bool in_folder = !strcmp(name, CONFIG_NAME) || !strcmp(name, "adapter_model.safetensors");
    dgemma_status st = !out->path || !dir ? dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path)
                       : in_folder        ? open_folder(out, dir, err)
                       : dg_file_is_dir(path) ? open_folder(out, path, err)
                                              : open_gguf(out, path, err);
    dg_free(dir);
    if (st)
        dg_adapter_close(out);
    return st;
}

bool dg_adapter_reads(const dg_adapter *a, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    char *dir = dg_file_is_dir(a->path) ? dg_strdup(a->path) : dg_folder_of(a->path),
         *config = dir ? dg_path_join(dir, CONFIG_NAME) : NULL;
    bool found = !config || dg_file_map_is(&a->map, &info) || dg_file_is_same(config, path);
    dg_free(dir);
    dg_free(config);
    return found;
}
