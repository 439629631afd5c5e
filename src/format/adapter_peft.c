/* An adapter as PEFT writes it. Its names say which tree of the Hugging Face model they are of:
 * the decoder's layers see canvases, the encoder's prompts and commits; names of neither tree are
 * of weights that both share. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json_values.h"
#include "format/adapter.h"
#include "format/checkpoint_folder.h"
#include "format/json_show.h"

typedef struct peft {
    json_t *doc;
    const char *where;
    dgemma_error *err;
    int rank;
    double alpha;
    bool root;
} peft;

/* ---- the config ---- */

static const json_t *value(const peft *p, const char *key)
{
    const json_t *v = json_object_get(p->doc, key);
    return json_is_null(v) ? NULL : v;
}

static dgemma_status refuse(const peft *p, const char *key, const char *why)
{
    char text[DG_JSON_SHOWN];
    return dg_fail(p->err, DGEMMA_E_UNSUPPORTED, "%s: adapter_config.json: %s is %s: %s", p->where,
                   key, dg_json_show(text, value(p, key)), why);
}

static bool is_off(const json_t *v)
{
    return !v || json_is_false(v) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_array(v) && !json_array_size(v)) ||
           (json_is_string(v) && !strcmp(json_string_value(v), "none"));
}

/* What changes more than products of low rank, by its key. */
static dgemma_status check_off(const peft *p)
{
    static const struct {
        const char *key, *why;
    } off[] = {
        {"use_dora", "DoRA cannot be applied, only LoRA and rsLoRA"},
        {"bias", "biases cannot be applied"},
        {"lora_bias", "biases cannot be applied"},
        {"modules_to_save", "whole matrices cannot be replaced by an adapter"},
        {"trainable_token_indices", "embeddings cannot be changed by an adapter"},
        {"fan_in_fan_out", "matrices that are turned cannot be used"},
        {"layer_replication", "layers cannot be repeated"},
        {"use_qalora", "QA-LoRA cannot be applied"},
        {"alora_invocation_tokens", "an adapter that waits for its invocation cannot be used"},
    };
    const json_t *type = value(p, "peft_type"), *start = value(p, "init_lora_weights");
    if (!json_string_value(type) || strcmp(json_string_value(type), "LORA") != 0)
        return refuse(p, "peft_type", "only LORA can be applied");
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (!is_off(value(p, off[i].key)))
            return refuse(p, off[i].key, off[i].why);
    static const char *const moved[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; json_is_string(start) && i < sizeof moved / sizeof moved[0]; i++)
        if (!strncmp(json_string_value(start), moved[i], strlen(moved[i])))
            return refuse(p, "init_lora_weights",
                          "such an adapter goes with other weights than the model's own");
    return DGEMMA_OK;
}

static bool read_rank(const json_t *v, int *rank)
{
    *rank = json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < 1 << 20
                ? (int)json_integer_value(v)
                : 0;
    return *rank > 0;
}

/* A number that no matrix could have. Of one that is merely beyond the limit the tensors tell. */
#define WANTED_RANK "wanted a whole number from 1 to 256"
_Static_assert(DG_ADAPTER_RANK == 256, "the number is in a message");

#define WANTED_ALPHA "wanted a number from -1000000 to 1000000"

static bool read_alpha(const json_t *v, double *alpha)
{
    *alpha = json_is_number(v) ? json_number_value(v) : NAN;
    return fabs(*alpha) <= DG_ADAPTER_ALPHA;
}

static dgemma_status read_config(peft *p, const char *config, size_t len)
{
    json_error_t wrong;
    char path[512];
    snprintf(path, sizeof path, "%.400s: adapter_config.json", p->where);
    dgemma_status st = dg_json_check(config, len, DG_DOCUMENT_VALUES, path, p->err);
    if (st)
        return st;
    p->doc = json_loadb(config ? config : "", len, JSON_REJECT_DUPLICATES, &wrong);
    if (!p->doc && !wrong.text[0]) /* jansson is silent when its memory is out */
        return dg_fail(p->err, DGEMMA_E_NOMEM, "%s: no memory for adapter_config.json", p->where);
    if (!json_is_object(p->doc))
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: adapter_config.json: %s", p->where,
                       p->doc ? "not an object" : wrong.text);
    st = check_off(p);
    if (st)
        return st;
    const json_t *root = value(p, "use_rslora");
    p->root = json_is_true(root);
    if (root && !json_is_boolean(root))
        return refuse(p, "use_rslora", "wanted true or false");
    if (!read_rank(value(p, "r"), &p->rank))
        return refuse(p, "r", WANTED_RANK);
    if (!read_alpha(value(p, "lora_alpha"), &p->alpha))
        return refuse(p, "lora_alpha", WANTED_ALPHA);
    return DGEMMA_OK;
}

/* The value of a pattern for a module: a name that it ends in, at a dot. Other expressions would
 * need a language of their own. */
static dgemma_status look_up(const peft *p, const char *key, const char *module, const json_t **out)
{
    const char *name;
    json_t *v, *pattern = json_object_get(p->doc, key);
    *out = NULL;
    if (pattern && !json_is_null(pattern) && !json_is_object(pattern))
        return refuse(p, key, "wanted an object");
    json_object_foreach(pattern, name, v)
    {
        size_t n = strlen(name), all = strlen(module);
        if (dg_has_suffix(name, "experts.gate_up_proj") || dg_has_suffix(name, "experts.down_proj"))
            return refuse(p, key, "a value of its own for a parameter of experts cannot be used");
        if (!n ||
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._") != n)
            return refuse(p, key, "only names are known as patterns");
        if (all >= n && !strcmp(module + all - n, name) &&
            (all == n || module[all - n - 1] == '.')) {
            *out = v;
            return DGEMMA_OK;
        }
    }
    return DGEMMA_OK;
}

/* ---- tensors ---- */

static dgemma_status set_factor(const peft *p, dg_adapter_part *part, const char *full)
{
    const json_t *rank, *alpha;
    dgemma_status st = look_up(p, "rank_pattern", full, &rank);
    if (!st)
        st = look_up(p, "alpha_pattern", full, &alpha);
    if (st)
        return st;
    part->rank = p->rank;
    part->alpha = p->alpha;
    part->root = p->root;
    if (rank && !read_rank(rank, &part->rank))
        return refuse(p, "rank_pattern", WANTED_RANK);
    if (alpha && !read_alpha(alpha, &part->alpha))
        return refuse(p, "alpha_pattern", WANTED_ALPHA);
    return DGEMMA_OK;
}

/* Which tree a module is of, and its name there; NULL: of none that can be adapted. */
static const char *place(dg_adapter_part *part, const char *full)
{
    static const struct {
        const char *tree;
        bool encode, canvas;
    } trees[] = {
        {"model.decoder.", false, true},
        {"model.encoder.language_model.", true, false},
        {"model.language_model.", true, true},
        {"model.", true, true},
    };
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const char *rest = full + strlen(trees[i].tree);
        if (strncmp(full, trees[i].tree, strlen(trees[i].tree)) != 0)
            continue;
        bool of_layer = !strncmp(rest, "layers.", 7),
             condition = trees[i].canvas && !strncmp(rest, "self_conditioning.", 18);
        part->encode = trees[i].encode && !condition;
        part->canvas = trees[i].canvas;
        return of_layer || condition ? rest : NULL;
    }
    return NULL;
}

/* Experts' matrices are parameters: they are wrapped one around the other. */
static char *module_of(const char *rest, dg_adapter_form *form)
{
    static const char nested[] = ".base_layer";
    size_t n = strlen(rest);
    while (n > sizeof nested && !strncmp(rest + n - (sizeof nested - 1), nested, sizeof nested - 1))
        n -= sizeof nested - 1;
    bool woven = n > 8 && !strncmp(rest + n - 8, ".experts", 8);
    *form = woven ? DG_ADAPTER_WOVEN : DG_ADAPTER_PLAIN;
    return dg_strndup(rest, woven ? n : strlen(rest));
}

static dgemma_status add(dg_adapter *out, const peft *p, const dg_tensor *a)
{
    static const char outer[] = "base_model.model.", lower[] = ".lora_A.weight";
    char full[256], other[320];
    size_t n = strlen(a->name) - (sizeof lower - 1), skip = sizeof outer - 1;
    if (strncmp(a->name, outer, skip) != 0 || n <= skip || n - skip >= sizeof full)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: %.200s is not a name of PEFT's", p->where,
                       a->name);
    snprintf(full, sizeof full, "%.*s", (int)(n - skip), a->name + skip);
    snprintf(other, sizeof other, "%s%s.lora_B.weight", outer, full);
    dg_adapter_part *part = dg_adapter_add(out, p->where, p->err);
    if (!part)
        return p->err ? p->err->status : DGEMMA_E_LIMIT;
    const char *rest = place(part, full);
    if (!rest)
        return dg_fail(
            p->err, DGEMMA_E_UNSUPPORTED,
            "%s: %.200s: only matrices of layers and of self-conditioning can be adapted", p->where,
            full);
    part->a = a;
    part->b = dg_safetensors_find(&out->safetensors, other);
    part->module = module_of(rest, &part->form);
    if (!part->module)
        return dg_fail(p->err, DGEMMA_E_NOMEM, "%s: out of memory", p->where);
    if (!part->b)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: %.300s is missing", p->where, other);
    return set_factor(p, part, full);
}

static dgemma_status add_all(dg_adapter *out, const peft *p)
{
    size_t n_b = 0;
    for (size_t i = 0; i < out->safetensors.n_tensor; i++) {
        const dg_tensor *t = &out->safetensors.tensor[i];
        dgemma_status st = DGEMMA_OK;
        if (dg_has_suffix(t->name, ".lora_A.weight"))
            st = add(out, p, t);
        else if (dg_has_suffix(t->name, ".lora_B.weight"))
            n_b++;
        else
            st = dg_fail(p->err, DGEMMA_E_UNSUPPORTED, "%s: %.200s: %s", p->where, t->name,
                         strstr(t->name, "lora_magnitude_vector")
                             ? "DoRA cannot be applied, only LoRA and rsLoRA"
                             : "neither half of a change of low rank");
        if (st)
            return st;
    }
    if (!out->safetensors.n_tensor)
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s: adapter_model.safetensors has no tensors: it would change nothing",
                       p->where);
    if (n_b != out->n_part || !n_b)
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s: %zu tensors lora_A and %zu lora_B do not go together", p->where,
                       out->n_part, n_b);
    return DGEMMA_OK;
}

dgemma_status dg_adapter_parse_peft(dg_adapter *out, const char *config, size_t config_len,
                                    const void *data, size_t size, const char *where,
                                    dgemma_error *err)
{
    peft p = {.where = where, .err = err};
    dgemma_status st = read_config(&p, config, config_len);
    if (!st)
        st = dg_safetensors_parse(&out->safetensors, data, size, where, err);
    if (!st)
        st = add_all(out, &p);
    json_decref(p.doc);
    return st;
}
