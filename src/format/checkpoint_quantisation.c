#include "format/checkpoint_quantisation.h"
#include <jansson.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/checkpoint_folder.h"

#define CONFIG_NAME   "config.json"
#define MODELOPT_NAME "hf_quant_config.json"

static dgemma_status find_modelopt(dg_quantisation *q, const char *dir, dgemma_error *err)
{
    if (!dg_file_exists_in(dir, MODELOPT_NAME))
        return DGEMMA_OK;
    json_t *root;
    dgemma_status st = dg_folder_json(&root, dir, MODELOPT_NAME, err);
    if (st)
        return st;
    const json_t *config = json_object_get(root, "quantization");
    char *where = dg_path_join(dir, MODELOPT_NAME);
    if (!where)
        st = dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", dir);
    else if (!json_is_object(config))
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: no object \"quantization\" in it", where);
    else
        st = dg_quantisation_read_modelopt(q, config, where, "quantization.", err);
    json_decref(root);
    dg_free(where);
    return st;
}

/* False: config.json says nothing. */
static bool find_in_config(dg_quantisation *q, const json_t *root, const char *where,
                           dgemma_status *st, dgemma_error *err)
{
    const json_t *text = json_object_get(root, "text_config");
    const struct {
        const json_t *config;
        const char *path;
    } of[] = {{json_object_get(root, "quantization_config"), "quantization_config."},
              {json_object_get(text, "quantization_config"), "text_config.quantization_config."},
              {json_object_get(root, "quantization"), "quantization."}};
    for (size_t i = 0; i < DG_COUNT(of); i++)
        if (json_is_object(of[i].config)) {
            *st = dg_quantisation_read(q, of[i].config, where, of[i].path, err);
            return true;
        }
    return false;
}

dgemma_status dg_quantisation_find(dg_quantisation *q, const char *dir, dgemma_error *err)
{
    json_t *root = NULL;
    dgemma_status st = DGEMMA_OK;
    *q = (dg_quantisation){0};
    if (dg_file_exists_in(dir, CONFIG_NAME))
        st = dg_folder_json(&root, dir, CONFIG_NAME, err);
    if (st == DGEMMA_E_NOMEM || st == DGEMMA_E_LIMIT)
        return st;
    char *where = dg_path_join(dir, CONFIG_NAME);
    if (!where)
        st = dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", dir);
    else if (!find_in_config(q, root, where, &st, err))
        st = find_modelopt(q, dir, err);
    json_decref(root);
    dg_free(where);
    return st;
}
