#include "format/quantisation_put.h"
#include <jansson.h>
#include <string.h>
#include "base/json_document.h"

/* What is left alone, as patterns over names of modules. */
static json_t *ignored(dg_folder_form form)
{
    json_t *list = json_pack("[s, s, s, s, s]", "lm_head", "re:.*embed.*", "re:.*router.*",
                             "re:.*vision_tower.*", "re:.*self_conditioning.*");
    if (list && form == DG_FOLDER_NVFP4)
        json_array_append_new(list, json_string("re:.*self_attn.*"));
    return list;
}

bool dg_folder_quantises(dg_folder_form form, const char *module)
{
    static const char layers[] = "model.decoder.layers.";
    if (form == DG_FOLDER_BF16 || strncmp(module, layers, sizeof layers - 1) != 0)
        return false;
    const size_t n = strlen(module);
    const bool linear = n > 5 && strcmp(module + n - 5, "_proj") == 0;
    return linear && (strstr(module, ".experts.") || strstr(module, ".mlp.") ||
                      (form == DG_FOLDER_FP8 && strstr(module, ".self_attn.")));
}

static json_t *quantised(dg_folder_form form)
{
    const bool fp8 = form == DG_FOLDER_FP8;
    const char *format = fp8 ? "float-quantized" : "nvfp4-pack-quantized";
    json_t *weights =
        fp8 ? json_pack("{s:i, s:s, s:s, s:b, s:b}", "num_bits", 8, "type", "float", "strategy",
                        "channel", "symmetric", 1, "dynamic", 0)
            : json_pack("{s:i, s:s, s:s, s:i, s:b, s:b}", "num_bits", 4, "type", "float",
                        "strategy", "tensor_group", "group_size", 16, "symmetric", 1, "dynamic", 0);
    json_t *inputs = fp8 ? json_pack("{s:i, s:s, s:s, s:b, s:b}", "num_bits", 8, "type", "float",
                                     "strategy", "token", "symmetric", 1, "dynamic", 1)
                         : json_null();
    return json_pack("{s:s, s:s, s:s, s:{s:{s:[s], s:o, s:o, s:n, s:s}}, s:o, s:n}", "quant_method",
                     "compressed-tensors", "format", format, "quantization_status", "compressed",
                     "config_groups", "group_0", "targets", "Linear", "weights", weights,
                     "input_activations", inputs, "output_activations", "format", format, "ignore",
                     ignored(form), "kv_cache_scheme");
}

dgemma_status dg_quantisation_put(dg_buf *out, const char *config, size_t len, dg_folder_form form,
                                  const char *where, dgemma_error *err)
{
    static const char *const stale[] = {"quantization_config", "quantization",
                                        "compression_config"};
    json_error_t bad;
    json_t *doc = json_loadb(config, len, JSON_REJECT_DUPLICATES, &bad);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return dg_fail(err, DGEMMA_E_FORMAT, "%s, line %d: %s", where, bad.line, bad.text);
    }
    for (size_t i = 0; i < sizeof stale / sizeof stale[0]; i++)
        json_object_del(doc, stale[i]);
    bool ok = true;
    if (form == DG_FOLDER_BF16) {
        const char *key = json_object_get(doc, "torch_dtype") ? "torch_dtype" : "dtype";
        ok = json_object_set_new(doc, key, json_string("bfloat16")) == 0;
    } else {
        ok = json_object_set_new(doc, stale[0], quantised(form)) == 0;
    }
    if (!ok) {
        json_decref(doc);
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    }
    return dg_json_document(out, doc, where, err);
}
