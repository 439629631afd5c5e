#include "model/config.h"
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "base/json_values.h"
#include "format/json_show.h"
#include "format/quantisation.h"
#include "model/config_limits.h"
#include "tensor/dtype.h"

/* ---- reading keys ----
 * The first failure stays in the reader; what is read after it is ignored, so that the functions
 * below read as lists of keys and the status is looked at once. */

typedef struct reader {
    const char *where;
    dgemma_error *err;
    dgemma_status status;
} reader;

/* One object of the document and the way to it. */
typedef struct section {
    reader *r;
    const json_t *obj; /* NULL: absent, every key is */
    char path[128];    /* "text_config.", "" for the document itself */
} section;

static void refuse(const section *s, dgemma_status status, const char *key, const json_t *found,
                   const char *fmt, ...) DG_PRINTF(5, 6);

/* "FILE: text_config.head_dim is 7, wanted …" with the rest from fmt. */
static void refuse(const section *s, dgemma_status status, const char *key, const json_t *found,
                   const char *fmt, ...)
{
    if (s->r->status)
        return;
    char wanted[160], text[DG_JSON_SHOWN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(wanted, sizeof wanted, fmt, args);
    va_end(args);
    s->r->status = dg_fail(s->r->err, status, "%s: %s%.80s is %s, wanted %s", s->r->where, s->path,
                           key, dg_json_show(text, found), wanted);
}

/* The value of a key; NULL when it is absent or null. */
static const json_t *value(const section *s, const char *key)
{
    const json_t *v = json_object_get(s->obj, key);
    return json_is_null(v) ? NULL : v;
}

static section child(const section *s, const char *key)
{
    section c = {.r = s->r, .obj = value(s, key)};
    snprintf(c.path, sizeof c.path, "%.60s%.60s.", s->path, key);
    if (c.obj && !json_is_object(c.obj)) {
        refuse(s, DGEMMA_E_FORMAT, key, c.obj, "an object");
        c.obj = NULL;
    }
    return c;
}

/* Whole numbers may be written as reals (1e6, 30.0); true and false are not numbers. */
static bool whole_number(const json_t *v, int lo, int hi, int *out)
{
    if (!json_is_number(v))
        return false;
    if (json_is_integer(v)) {
        json_int_t i = json_integer_value(v);
        if (i < lo || i > hi)
            return false;
        *out = (int)i;
        return true;
    }
    double d = json_real_value(v);
    if (!(d >= lo && d <= hi) || d != floor(d))
        return false;
    *out = (int)d;
    return true;
}

static int int_key(const section *s, const char *key, int lo, int hi)
{
    const json_t *v = value(s, key);
    int i = lo;
    if (!whole_number(v, lo, hi, &i))
        refuse(s, DGEMMA_E_FORMAT, key, v, "a whole number from %d to %d", lo, hi);
    return i;
}

static int int_or(const section *s, const char *key, int lo, int hi, int fallback)
{
    return value(s, key) ? int_key(s, key, lo, hi) : fallback;
}

static double number_or(const section *s, const char *key, double lo, double hi, double fallback)
{
    const json_t *v = value(s, key);
    if (!v)
        return fallback;
    double d = json_is_number(v) ? json_number_value(v) : NAN;
    if (d >= lo && d <= hi)
        return d;
    refuse(s, DGEMMA_E_FORMAT, key, v, "a number from %g to %g", lo, hi);
    return fallback;
}

static bool bool_or(const section *s, const char *key, bool fallback)
{
    const json_t *v = value(s, key);
    if (v && !json_is_boolean(v))
        refuse(s, DGEMMA_E_FORMAT, key, v, "true or false");
    return v ? json_is_true(v) : fallback;
}

/* Whether the key is absent or says `want`. */
static bool is_or_absent(const section *s, const char *key, const char *want)
{
    const json_t *v = value(s, key);
    return !v || (json_is_string(v) && strcmp(json_string_value(v), want) == 0);
}

static void require_text(const section *s, const char *key, const char *want)
{
    if (!is_or_absent(s, key, want))
        refuse(s, DGEMMA_E_UNSUPPORTED, key, value(s, key), "\"%s\"", want);
}

/* Parts of related models that this one does not have: off is absent, null, false or 0. */
static void require_off(const section *s, const char *key)
{
    const json_t *v = value(s, key);
    if (v && !json_is_false(v) && !(json_is_number(v) && json_number_value(v) == 0))
        refuse(s, DGEMMA_E_UNSUPPORTED, key, v, "it off: DiffusionGemma does not have it");
}

static void require_on(const section *s, const char *key)
{
    if (!bool_or(s, key, true))
        refuse(s, DGEMMA_E_UNSUPPORTED, key, value(s, key), "true");
}

/* ---- what is refused ---- */

/* What is known is the business of whoever puts the tensors together. */
static void check_quantised(const section *s)
{
    section q = child(s, "quantization_config");
    dg_quantisation known;
    if (q.obj && !s->r->status)
        s->r->status = dg_quantisation_read(&known, q.obj, s->r->where, q.path, s->r->err);
}

static void check_architecture(const section *top, const section *text)
{
    const json_t *type = value(top, "model_type");
    if (!type)
        refuse(top, DGEMMA_E_FORMAT, "model_type", NULL, "\"diffusion_gemma\"");
    require_text(top, "model_type", "diffusion_gemma");
    if (text->obj != top->obj)
        require_text(text, "model_type", "diffusion_gemma_text");
    check_quantised(top);
    check_quantised(text);
    require_on(top, "tie_word_embeddings");
    require_on(text, "tie_word_embeddings");
    require_on(text, "enable_moe_block");
    require_text(text, "hidden_activation", "gelu_pytorch_tanh");
    require_off(text, "attention_bias");
    require_off(text, "attn_logit_softcapping");
    require_off(text, "hidden_size_per_layer_input");
    require_off(text, "num_kv_shared_layers");
    require_off(text, "use_double_wide_mlp");
}

/* ---- layers ---- */

static void read_layer_types(dg_config *c, const section *text)
{
    static const char key[] = "layer_types";
    const json_t *list = value(text, key);
    if (!list) {
        /* transformers' default: every sixth layer is global, and so is the last */
        for (int i = 0; i < c->n_layer; i++)
            c->layer[i].sliding = (i + 1) % 6 != 0 && i != c->n_layer - 1;
        return;
    }
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layer) {
        refuse(text, DGEMMA_E_FORMAT, key, list, "a list of %d, one for each layer", c->n_layer);
        return;
    }
    for (int i = 0; i < c->n_layer; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        const char *name = json_is_string(item) ? json_string_value(item) : "";
        char at[32];
        snprintf(at, sizeof at, "%s[%d]", key, i);
        c->layer[i].sliding = strcmp(name, "sliding_attention") == 0;
        if (!c->layer[i].sliding && strcmp(name, "full_attention") != 0)
            refuse(text, DGEMMA_E_UNSUPPORTED, at, item, "sliding_attention or full_attention");
        /* transformers silently turns it into a full one */
        if (i == c->n_layer - 1 && c->layer[i].sliding)
            refuse(text, DGEMMA_E_UNSUPPORTED, at, item, "full_attention on the last layer");
    }
}

/* One size of one layer in per_layer_config; `global` is its key in the other spelling. */
static void read_override(const section *layer, const char *key, int hi, int *size,
                          const section *text, const char *global)
{
    int wanted = *size;
    *size = int_or(layer, key, 1, hi, *size);
    if (global && value(text, global) && *size != wanted)
        refuse(layer, DGEMMA_E_FORMAT, key, value(layer, key), "%d as in %s", wanted, global);
}

/* The spelling of newer transformers: {"5": {"head_dim": 512, "num_key_value_heads": 2}, …}. */
static void read_per_layer(dg_config *c, const section *text)
{
    section all = child(text, "per_layer_config");
    const char *index, *key;
    json_t *entry, *ignored;
    json_object_foreach((json_t *)all.obj, index, entry)
    {
        if (json_is_null(entry))
            continue;
        size_t n_digit = strspn(index, "0123456789");
        int i = 0;
        for (size_t k = 0; k < n_digit && i < c->n_layer; k++)
            i = i * 10 + (index[k] - '0');
        if (n_digit == 0 || index[n_digit] || i >= c->n_layer) {
            refuse(&all, DGEMMA_E_FORMAT, index, entry, "layers from 0 to %d only", c->n_layer - 1);
            return;
        }
        dg_layer_config *l = &c->layer[i];
        section layer = child(&all, index);
        read_override(&layer, "head_dim", MAX_HEAD_DIM, &l->head_dim, text,
                      l->sliding ? NULL : "global_head_dim");
        read_override(&layer, "num_key_value_heads", MAX_HEADS, &l->n_kv_head, text,
                      l->sliding ? NULL : "num_global_key_value_heads");
        json_object_foreach((json_t *)layer.obj, key, ignored)
        {
            if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
                refuse(&layer, DGEMMA_E_UNSUPPORTED, key, ignored,
                       "head_dim and num_key_value_heads only");
        }
    }
}

/* Without rope_parameters the rotation is that of the published model, unless an older key asks for
 * another. */
static void refuse_flat_rope(const section *text)
{
    static const char *const flat[] = {"rope_theta", "rope_local_base_freq", "rope_scaling",
                                       "partial_rotary_factor"};
    for (size_t i = 0; i < DG_COUNT(flat); i++)
        if (value(text, flat[i]))
            refuse(text, DGEMMA_E_UNSUPPORTED, flat[i], value(text, flat[i]),
                   "rope_parameters with one entry for each layer type");
}

static void read_rope(dg_layer_config *l, const section *text)
{
    section all = child(text, "rope_parameters");
    if (!all.obj) {
        refuse_flat_rope(text);
        l->rope_theta = l->sliding ? 10000.0f : 1000000.0f;
        l->n_rope_pair = l->sliding ? l->head_dim / 2 : l->head_dim / 8;
        return;
    }
    const char *type = l->sliding ? "sliding_attention" : "full_attention";
    section rope = child(&all, type);
    if (!rope.obj)
        refuse(&all, DGEMMA_E_FORMAT, type, NULL, "an object with rope_theta");
    if (!value(&rope, "rope_theta"))
        refuse(&rope, DGEMMA_E_FORMAT, "rope_theta", NULL, "a number");
    l->rope_theta = (float)number_or(&rope, "rope_theta", 1, 1e12, 1);

    double part = number_or(&rope, "partial_rotary_factor", 0, 1, 1);
    bool proportional = !is_or_absent(&rope, "rope_type", "default");
    if (proportional)
        require_text(&rope, "rope_type", "proportional");
    else if (part != 1)
        refuse(&rope, DGEMMA_E_UNSUPPORTED, "partial_rotary_factor",
               value(&rope, "partial_rotary_factor"), "none with rope_type default");
    if (number_or(&rope, "factor", 0, 1e12, 1) != 1)
        refuse(&rope, DGEMMA_E_UNSUPPORTED, "factor", value(&rope, "factor"), "1");
    l->n_rope_pair = (int)floor(part * l->head_dim / 2);
}

static void check_layer(const dg_config *c, int i, const section *text)
{
    const dg_layer_config *l = &c->layer[i];
    if (text->r->status)
        return;
    if (l->head_dim % 2)
        text->r->status =
            dg_fail(text->r->err, DGEMMA_E_FORMAT, "%s: head_dim of layer %d is %d, wanted even",
                    text->r->where, i, l->head_dim);
    else if (c->n_head % l->n_kv_head)
        text->r->status =
            dg_fail(text->r->err, DGEMMA_E_FORMAT,
                    "%s: num_key_value_heads of layer %d is %d, wanted a divisor of the %d "
                    "attention heads",
                    text->r->where, i, l->n_kv_head, c->n_head);
}

static void read_layers(dg_config *c, const section *text)
{
    const int head_dim = int_key(text, "head_dim", 1, MAX_HEAD_DIM);
    const int n_kv_head = int_key(text, "num_key_value_heads", 1, MAX_HEADS);
    const int global_dim = int_or(text, "global_head_dim", 1, MAX_HEAD_DIM, head_dim);
    const int n_global_kv = int_or(text, "num_global_key_value_heads", 1, MAX_HEADS, n_kv_head);
    const bool v_from_k = bool_or(text, "attention_k_eq_v", true);

    read_layer_types(c, text);
    for (int i = 0; i < c->n_layer; i++) {
        dg_layer_config *l = &c->layer[i];
        l->head_dim = l->sliding ? head_dim : global_dim;
        l->n_kv_head = l->sliding ? n_kv_head : n_global_kv;
        l->v_from_k = !l->sliding && v_from_k;
        l->window = l->sliding ? int_key(text, "sliding_window", 1, MAX_CONTEXT) : 0;
    }
    read_per_layer(c, text);
    for (int i = 0; i < c->n_layer; i++) {
        check_layer(c, i, text);
        read_rope(&c->layer[i], text);
    }
}

/* ---- the vision tower ---- */

/* The tower's rotation is by column and row. Published files call it "default"; later versions of
 * transformers call the same "axial". */
static float read_vision_rope(const section *tower)
{
    section rope = child(tower, "rope_parameters");
    if (!is_or_absent(&rope, "rope_type", "default"))
        require_text(&rope, "rope_type", "axial");
    return (float)number_or(&rope, "rope_theta", 1, 1e12, 100);
}

static void read_vision(dg_vision_config *v, const section *top)
{
    section tower = child(top, "vision_config");
    if (!tower.obj)
        return;
    require_text(&tower, "model_type", "gemma4_vision");
    check_quantised(&tower);
    require_text(&tower, "hidden_activation", "gelu_pytorch_tanh");
    require_off(&tower, "attention_bias");
    v->present = true;
    v->n_embd = int_key(&tower, "hidden_size", 1, MAX_SIZE);
    v->n_ff = int_key(&tower, "intermediate_size", 1, MAX_SIZE);
    v->n_layer = int_key(&tower, "num_hidden_layers", 1, DG_MAX_LAYER);
    v->n_head = int_key(&tower, "num_attention_heads", 1, MAX_HEADS);
    v->head_dim = int_key(&tower, "head_dim", 1, MAX_HEAD_DIM);
    v->patch = int_or(&tower, "patch_size", 1, MAX_PATCH, 16);
    v->pool = int_or(&tower, "pooling_kernel_size", 1, MAX_POOL, 3);
    v->n_position = int_or(&tower, "position_embedding_size", 1, MAX_POSITIONS, 10240);
    v->max_soft = int_or(&tower, "default_output_length", 1, MAX_SOFT,
                         int_or(top, "vision_soft_tokens_per_image", 1, MAX_SOFT, 280));
    v->standardize = bool_or(&tower, "standardize", false);
    v->clipped = bool_or(&tower, "use_clipped_linears", false);
    v->rms_eps = (float)number_or(&tower, "rms_norm_eps", 1e-30, 1, 1e-6);
    v->rope_theta = read_vision_rope(&tower);

    if (int_or(&tower, "num_key_value_heads", 1, MAX_HEADS, v->n_head) != v->n_head)
        refuse(&tower, DGEMMA_E_UNSUPPORTED, "num_key_value_heads",
               value(&tower, "num_key_value_heads"), "%d as num_attention_heads", v->n_head);
    if (int_or(&tower, "global_head_dim", 1, MAX_HEAD_DIM, v->head_dim) != v->head_dim)
        refuse(&tower, DGEMMA_E_UNSUPPORTED, "global_head_dim", value(&tower, "global_head_dim"),
               "%d as head_dim", v->head_dim);
    if (v->head_dim % 4)
        refuse(&tower, DGEMMA_E_FORMAT, "head_dim", value(&tower, "head_dim"), "a multiple of 4");
}

/* ---- the rest ---- */

/* transformers keeps the factor in the model's type: 53.0 for sqrt(2816) in bfloat16. */
static float embed_scale(int n_embd, const section *top, const section *text)
{
    static const char *const key[] = {"dtype", "torch_dtype"};
    const section *from[] = {top, text};
    const float scale = sqrtf((float)n_embd);

    for (size_t s = 0; s < DG_COUNT(from); s++)
        for (size_t k = 0; k < DG_COUNT(key); k++) {
            const json_t *v = value(from[s], key[k]);
            if (!v)
                continue;
            if (is_or_absent(from[s], key[k], "float32"))
                return scale;
            if (is_or_absent(from[s], key[k], "float16"))
                return dg_f16_to_float(dg_float_to_f16(scale));
            if (!is_or_absent(from[s], key[k], "bfloat16"))
                refuse(from[s], DGEMMA_E_UNSUPPORTED, key[k], v, "bfloat16, float16 or float32");
            return dg_bf16_to_float(dg_float_to_bf16(scale));
        }
    return dg_bf16_to_float(dg_float_to_bf16(scale));
}

static void read_stop_tokens(dg_config *c, const section *s)
{
    static const char key[] = "eos_token_id";
    const json_t *v = value(s, key);
    if (!v)
        return;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > DG_MAX_STOP) {
        refuse(s, DGEMMA_E_LIMIT, key, v, "at most %d ids", DG_MAX_STOP);
        return;
    }
    c->n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        int id = 0;
        if (!whole_number(item, 0, c->n_vocab - 1, &id))
            refuse(s, DGEMMA_E_FORMAT, key, item, "ids from 0 to %d", c->n_vocab - 1);
        c->stop_token[c->n_stop++] = id;
    }
}

static int token_key(const dg_config *c, const section *top, const section *text, const char *key)
{
    return int_or(value(top, key) ? top : text, key, 0, c->n_vocab - 1, -1);
}

static void read_tokens(dg_config *c, const section *top, const section *text)
{
    c->pad_token = token_key(c, top, text, "pad_token_id");
    c->bos_token = token_key(c, top, text, "bos_token_id");
    c->image_token = token_key(c, top, text, "image_token_id");
    c->boi_token = token_key(c, top, text, "boi_token_id");
    c->eoi_token = token_key(c, top, text, "eoi_token_id");
    read_stop_tokens(c, value(top, "eos_token_id") ? top : text);
}

static void read_sizes(dg_config *c, const section *top, const section *text)
{
    c->n_vocab = int_key(text, "vocab_size", 1, MAX_SIZE);
    c->n_embd = int_key(text, "hidden_size", 1, MAX_SIZE);
    c->n_ff = int_key(text, "intermediate_size", 1, MAX_SIZE);
    c->n_layer = int_key(text, "num_hidden_layers", 1, DG_MAX_LAYER);
    c->n_head = int_key(text, "num_attention_heads", 1, MAX_HEADS);
    c->n_expert = int_key(text, "num_experts", 1, MAX_EXPERTS);
    c->n_expert_used = int_key(text, "top_k_experts", 1, c->n_expert);
    c->n_ff_expert = int_key(text, "moe_intermediate_size", 1, MAX_SIZE);
    c->n_context = int_key(text, "max_position_embeddings", 1, MAX_CONTEXT);
    c->canvas_length = int_or(top, "canvas_length", 1, MAX_CANVAS, 256);
    c->rms_eps = (float)number_or(text, "rms_norm_eps", 1e-30, 1, 1e-6);
    c->embed_scale = embed_scale(c->n_embd, top, text);

    /* Absent, it is the class default, which transformers leaves out when it saves; null switches
     * it off. */
    bool off = json_is_null(json_object_get(text->obj, "final_logit_softcapping"));
    c->logit_softcap = off ? 0 : (float)number_or(text, "final_logit_softcapping", 1e-3, 1e6, 30);

    c->bidirectional_images = false;
    const json_t *both_ways = value(text, "use_bidirectional_attention");
    if (both_ways && !json_is_false(both_ways)) {
        require_text(text, "use_bidirectional_attention", "vision");
        c->bidirectional_images = true;
    }
}

/* The caller gives *root back with json_decref. */
static dgemma_status load(json_t **root, const char *json, size_t len, const char *where,
                          dgemma_error *err)
{
    *root = NULL;
    if (len > MAX_DOCUMENT)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %zu bytes, at most %d are read", where, len,
                       MAX_DOCUMENT);
    dgemma_status st = dg_json_check(json, len, DG_DOCUMENT_VALUES, where, err);
    if (st)
        return st;
    json_error_t at;
    *root = json_loadb(len ? json : "", len, JSON_REJECT_DUPLICATES, &at);
    if (!*root && !at.text[0]) /* jansson is silent when its memory is out */
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    if (!*root)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: line %d: %s", where, at.line, at.text);
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = NULL;
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: not a JSON object", where);
    }
    return DGEMMA_OK;
}

dgemma_status dg_config_parse(dg_config *out, const char *json, size_t len, const char *where,
                              dgemma_error *err)
{
    *out = (dg_config){0};
    json_t *root;
    dgemma_status st = load(&root, json, len, where, err);
    if (st)
        return st;

    reader r = {.where = where, .err = err};
    section top = {.r = &r, .obj = root}, text = child(&top, "text_config");
    if (!text.obj)
        text = top;
    check_architecture(&top, &text);
    read_sizes(out, &top, &text);
    read_layers(out, &text);
    read_tokens(out, &top, &text);
    read_vision(&out->vision, &top);
    json_decref(root);
    return r.status;
}

dg_generation_config dg_generation_defaults(void)
{
    return (dg_generation_config){
        .max_steps = 48,
        .t_min = 0.4f,
        .t_max = 0.8f,
        .entropy_bound = 0.1f,
        .stability = 1,
        .confidence = 0.005f,
    };
}

dgemma_status dg_generation_config_parse(dg_generation_config *out, dg_config *cfg,
                                         const char *json, size_t len, const char *where,
                                         dgemma_error *err)
{
    dg_generation_config g = dg_generation_defaults();
    *out = g;
    json_t *root;
    dgemma_status st = load(&root, json, len, where, err);
    if (st)
        return st;

    reader r = {.where = where, .err = err};
    section top = {.r = &r, .obj = root}, sampler = child(&top, "sampler_config");
    g.max_steps = int_or(&top, "max_denoising_steps", 1, MAX_STEPS, g.max_steps);
    g.t_min = (float)number_or(&top, "t_min", 1e-6, 1e6, g.t_min);
    g.t_max = (float)number_or(&top, "t_max", 1e-6, 1e6, g.t_max);
    g.stability = int_or(&top, "stability_threshold", 0, MAX_STABILITY, g.stability);
    g.confidence = (float)number_or(&top, "confidence_threshold", 0, 1e9, g.confidence);
    require_text(&sampler, "_cls_name", "EntropyBoundSamplerConfig");
    g.entropy_bound = (float)number_or(&sampler, "entropy_bound", 0, 1e9, g.entropy_bound);

    dg_config next = *cfg;
    next.pad_token = int_or(&top, "pad_token_id", 0, cfg->n_vocab - 1, cfg->pad_token);
    read_stop_tokens(&next, &top);
    if (!r.status) {
        *out = g;
        *cfg = next;
    }
    json_decref(root);
    return r.status;
}
