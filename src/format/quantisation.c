#include "format/quantisation.h"
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "format/json_show.h"

/* One object of the document. */
typedef struct section {
    const json_t *obj;
    const char *where, *path;
    dgemma_error *err;
} section;

static const json_t *value(const section *s, const char *key)
{
    const json_t *v = json_object_get(s->obj, key);
    return json_is_null(v) ? NULL : v;
}

static dgemma_status refuse(const section *s, const char *key, const char *wanted)
{
    char text[DG_JSON_SHOWN];
    return dg_fail(s->err, DGEMMA_E_UNSUPPORTED, "%s: %s%s is %s, wanted %s", s->where, s->path,
                   key, dg_json_show(text, value(s, key)), wanted);
}

/* Whether the value is one of the words in `known`, which are separated by spaces. */
static bool is_one_of(const json_t *v, const char *known)
{
    const char *word = json_string_value(v);
    size_t n = word ? strlen(word) : 0;
    for (const char *at = known; n && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && strncmp(at, word, n) == 0)
            return true;
    return false;
}

static bool is_empty(const json_t *v)
{
    return !v || (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

/* "[128, 128]": rows and columns of a matrix that share a scale. */
static dgemma_status read_block(dg_quantisation *q, const section *s, const char *key)
{
    const json_t *v = value(s, key), *rows = json_array_get(v, 0), *cols = json_array_get(v, 1);
    if (!v)
        return DGEMMA_OK;
    json_int_t r = json_integer_value(rows), c = json_integer_value(cols);
    if (json_array_size(v) != 2 || r < 1 || r > 1 << 20 || c < 64 || c > 1 << 20 || c % 64)
        return refuse(s, key, "two whole numbers, the second a multiple of 64");
    if (q->n_block == DG_QUANT_BLOCKS)
        return refuse(s, key, "at most sixteen sizes of blocks");
    q->block[q->n_block].rows = (int)r;
    q->block[q->n_block++].cols = (int)c;
    return DGEMMA_OK;
}

/* ---- groups of values ---- */

enum { WHOLE_ROW = -1 };

static bool is_listed(const dg_quantisation *q, int64_t size)
{
    for (int i = 0; i < q->n_group; i++)
        if (q->group[i] == size)
            return true;
    return false;
}

static dgemma_status read_group_size(dg_quantisation *q, const section *s)
{
    const json_t *v = value(s, "group_size");
    const json_int_t size = json_integer_value(v);
    if (!v)
        return DGEMMA_OK;
    if ((size < 1 && size != WHOLE_ROW) || size > 1 << 20)
        return refuse(s, "group_size", "the number of values that share a scale");
    if (is_listed(q, size))
        return DGEMMA_OK;
    if (q->n_group == DG_QUANT_BLOCKS)
        return refuse(s, "group_size", "at most sixteen sizes of groups");
    q->group[q->n_group++] = (int)size;
    return DGEMMA_OK;
}

bool dg_quantisation_has_group(const dg_quantisation *q, int64_t size, int64_t row)
{
    return !q->n_group || q->any_group || is_listed(q, size) ||
           (size == row && is_listed(q, WHOLE_ROW));
}

/* ---- compressed-tensors ---- */

#define FORMATS                                                                                    \
    "float-quantized naive-quantized int-quantized pack-quantized nvfp4-pack-quantized "           \
    "mxfp4-pack-quantized mixed-precision "                                                        \
    "dense"

static dgemma_status check_format(const section *s)
{
    return !value(s, "format") || is_one_of(value(s, "format"), FORMATS)
               ? DGEMMA_OK
               : refuse(s, "format", "one of: " FORMATS);
}

static dgemma_status read_group(dg_quantisation *q, const section *top, const char *name,
                                const json_t *group)
{
    char path[192];
    snprintf(path, sizeof path, "%.60sconfig_groups.%.60s.", top->path, name);
    section s = {group, top->where, path, top->err};
    const json_t *weights = value(&s, "weights");
    if (!json_is_object(group) || (weights && !json_is_object(weights)))
        return refuse(&s, "weights", "an object");
    dgemma_status st = check_format(&s);
    char inner[208];
    snprintf(inner, sizeof inner, "%sweights.", path);
    section w = {weights, top->where, inner, top->err};
    q->asymmetric &= json_is_false(value(&w, "symmetric"));
    const bool wide = json_integer_value(value(&w, "num_bits")) > 4;
    q->wide &= wide;
    q->any_group |= !wide && !value(&w, "group_size");
    if (!st)
        st = read_group_size(q, &w);
    return st ? st : read_block(q, &w, "block_structure");
}

static dgemma_status read_compressed(dg_quantisation *q, const section *s)
{
    dgemma_status st = check_format(s);
    const json_t *sparsity = value(s, "sparsity_config"), *groups = value(s, "config_groups");
    if (!st && !is_empty(sparsity) && !is_one_of(json_object_get(sparsity, "format"), "dense"))
        st = refuse(s, "sparsity_config", "none: sparse weights are not read");
    if (!st && !is_empty(value(s, "transform_config")))
        st = refuse(s, "transform_config", "none: rotated weights are not read");
    if (!st && groups && !json_is_object(groups))
        st = refuse(s, "config_groups", "an object");
    const char *name;
    json_t *group;
    q->asymmetric = q->wide = json_object_size(groups) > 0;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        if (!st)
            st = read_group(q, s, name, group);
    }
    return st;
}

/* ---- modelopt ---- */

#define ALGORITHMS "FP8 FP8_PER_CHANNEL_PER_TOKEN NVFP4 W4A16_NVFP4 MIXED_PRECISION"

/* The sizes that modules in the object `key` have, in their objects `inner` where that is a name.
 */
static dgemma_status read_group_sizes(dg_quantisation *q, const section *s, const char *key,
                                      const char *inner)
{
    dgemma_status st = DGEMMA_OK;
    const char *name;
    json_t *module;
    json_object_foreach((json_t *)(uintptr_t)value(s, key), name, module)
    {
        char path[192];
        snprintf(path, sizeof path, "%.40s%s.%.80s.%s%s", s->path, key, name, inner ? inner : "",
                 inner ? "." : "");
        if (!st)
            st = read_group_size(q, &(section){inner ? json_object_get(module, inner) : module,
                                               s->where, path, s->err});
    }
    return st;
}

static dgemma_status read_modelopt(dg_quantisation *q, const section *s)
{
    bool plain = json_is_null(json_object_get(s->obj, "quant_algo")); /* but for its cache */
    if (!plain && !is_one_of(value(s, "quant_algo"), ALGORITHMS))
        return refuse(s, "quant_algo", "one of: " ALGORITHMS);
    dgemma_status st = read_group_size(q, s);
    if (!st)
        st = read_group_sizes(q, s, "config_groups", "weights");
    return st ? st : read_group_sizes(q, s, "quantized_layers", NULL);
}

dgemma_status dg_quantisation_read_modelopt(dg_quantisation *out, const json_t *config,
                                            const char *where, const char *path, dgemma_error *err)
{
    *out = (dg_quantisation){.method = DG_QUANT_MODELOPT};
    return read_modelopt(out, &(section){config, where, path, err});
}

/* ---- GPTQ, AWQ and AutoRound ---- */

/* Some modules may have a size of their own, which nothing but the tensors needs to say. */
static dgemma_status read_four_bits(dg_quantisation *q, const section *s)
{
    q->any_group = !is_empty(value(s, "extra_config")) || !is_empty(value(s, "dynamic"));
    return json_integer_value(value(s, "bits")) == 4 ? read_group_size(q, s)
                                                     : refuse(s, "bits", "4");
}

static dgemma_status read_gptq(dg_quantisation *q, const section *s)
{
    const json_t *format = value(s, "checkpoint_format");
    if (format && !is_one_of(format, "gptq gptq_v2"))
        return refuse(s, "checkpoint_format", "\"gptq\" or \"gptq_v2\"");
    q->symmetric = json_is_true(value(s, "sym"));
    q->zero_less = !is_one_of(format, "gptq_v2");
    q->ordered = json_is_true(value(s, "desc_act"));
    return read_four_bits(q, s);
}

static dgemma_status read_awq(dg_quantisation *q, const section *s)
{
    const json_t *version = value(s, "version");
    if (version && !is_one_of(version, "gemm GEMM"))
        return refuse(s, "version", "\"gemm\"");
    return read_four_bits(q, s);
}

#define PACKINGS                                                                                   \
    "auto_round auto_round:auto_gptq auto_round:gptqmodel auto_round:auto_awq auto_gptq auto_awq"

/* Where it says that it packs as another one does, it is that one. */
static dgemma_status read_auto_round(dg_quantisation *q, const section *s)
{
    const json_t *packing = value(s, "packing_format");
    if (packing && !is_one_of(packing, PACKINGS))
        return refuse(s, "packing_format", "one of: " PACKINGS);
    q->symmetric = json_is_true(value(s, "sym"));
    q->zero_less = !packing || is_one_of(packing, "auto_round:auto_gptq auto_gptq");
    if (is_one_of(packing, "auto_round:auto_awq auto_awq"))
        q->method = DG_QUANT_AWQ;
    else if (is_one_of(packing, "auto_round:auto_gptq auto_round:gptqmodel auto_gptq"))
        q->method = DG_QUANT_GPTQ;
    return read_four_bits(q, s);
}

/* ---- MLX ---- */

bool dg_quantisation_is_mlx(const json_t *config)
{
    return !json_object_get(config, "quant_method") &&
           json_is_integer(json_object_get(config, "bits")) &&
           json_is_integer(json_object_get(config, "group_size"));
}

static dgemma_status read_width(dg_quantisation *q, const section *s)
{
    json_int_t bits = json_integer_value(value(s, "bits")),
               group = json_integer_value(value(s, "group_size"));
    if (value(s, "mode") && !is_one_of(value(s, "mode"), "affine"))
        return refuse(s, "mode", "\"affine\"");
    if (bits != 4 && bits != 8)
        return refuse(s, "bits", "4 or 8");
    if (group < 32 || group > 1 << 20 || group % 32)
        return refuse(s, "group_size", "a multiple of 32");
    for (int i = 0; i < q->n_width; i++)
        if (q->width[i].bits == bits && q->width[i].group == group)
            return DGEMMA_OK;
    if (q->n_width == DG_QUANT_BLOCKS)
        return refuse(s, "group_size", "at most sixteen sizes of groups");
    q->width[q->n_width].bits = (int)bits;
    q->width[q->n_width++].group = (int)group;
    return DGEMMA_OK;
}

/* Beside the width of most matrices there are modules with one of their own, or with false. */
static dgemma_status read_mlx(dg_quantisation *q, const section *s)
{
    dgemma_status st = read_width(q, s);
    const char *name;
    json_t *module;
    json_object_foreach((json_t *)(uintptr_t)s->obj, name, module)
    {
        char path[192];
        snprintf(path, sizeof path, "%.60s%.120s.", s->path, name);
        if (!st && json_is_object(module))
            st = read_width(q, &(section){module, s->where, path, s->err});
    }
    return st;
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    dg_quant_method method;
} methods[] = {
    {"compressed-tensors", DG_QUANT_COMPRESSED_TENSORS},
    {"modelopt", DG_QUANT_MODELOPT},
    {"fp8", DG_QUANT_FP8},
    {"gptq", DG_QUANT_GPTQ},
    {"awq", DG_QUANT_AWQ},
    {"auto-round", DG_QUANT_AUTO_ROUND},
};

dgemma_status dg_quantisation_read(dg_quantisation *out, const json_t *config, const char *where,
                                   const char *path, dgemma_error *err)
{
    section s = {config, where, path, err};
    *out = (dg_quantisation){0};
    if (dg_quantisation_is_mlx(config)) {
        out->method = DG_QUANT_MLX;
        return read_mlx(out, &s);
    }
    for (size_t i = 0; i < DG_COUNT(methods); i++)
        if (is_one_of(value(&s, "quant_method"), methods[i].name))
            out->method = methods[i].method;
    switch (out->method) {
    case DG_QUANT_COMPRESSED_TENSORS:
        return read_compressed(out, &s);
    case DG_QUANT_MODELOPT:
        return read_modelopt(out, &s);
    case DG_QUANT_FP8:
        return read_block(out, &s, "weight_block_size");
    case DG_QUANT_GPTQ:
        return read_gptq(out, &s);
    case DG_QUANT_AWQ:
        return read_awq(out, &s);
    case DG_QUANT_AUTO_ROUND:
        return read_auto_round(out, &s);
    default:
        return refuse(
            &s, "quant_method",
            "\"compressed-tensors\", \"modelopt\", \"fp8\", \"gptq\", \"awq\" or \"auto-round\"");
    }
}
