#include "format/checkpoint_quantisation.h"
#include <jansson.h>
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
    const json_t *config = json_object_get(root, "quantization");
    if (json_is_object(config))
        st = dg_quantisation_read_modelopt(q, config, MODELOPT_NAME, "quantization.", err);
    else if (root)
        st = dg_fail(err, DGEMMA_E_FORMAT, MODELOPT_NAME ": no object \"quantization\" in it");
    json_decref(root);
    return st;
}

dgemma_status dg_quantisation_find(dg_quantisation *q, const char *dir, dgemma_error *err)
{
    json_t *config = NULL;
    dgemma_status st = DGEMMA_OK;
    *q = (dg_quantisation){0};
    if (dg_file_exists_in(dir, CONFIG_NAME))
        st = dg_folder_json(&config, dir, CONFIG_NAME, err);
    if (st == DGEMMA_E_NOMEM || st == DGEMMA_E_LIMIT)
        return st;
    const json_t *text = json_object_get(config, "text_config"),
                 *outer = json_object_get(config, "quantization_config"),
                 *inner = json_object_get(text, "quantization_config"),
                 *mlx = json_object_get(config, "quantization");
    if (json_is_object(outer))
        st = dg_quantisation_read(q, outer, CONFIG_NAME, "quantization_config.", err);
    else if (json_is_object(inner))
        st = dg_quantisation_read(q, inner, CONFIG_NAME, "text_config.quantization_config.", err);
    else if (json_is_object(mlx))
        st = dg_quantisation_read(q, mlx, CONFIG_NAME, "quantization.", err);
    else
        st = find_modelopt(q, dir, err);
    json_decref(config);
    return st;
}
