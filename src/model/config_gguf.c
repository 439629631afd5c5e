#include "model/config_gguf.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "model/config_gguf_put.h"
#include "model/config_limits.h"
#include "tensor/dtype.h"

#define ARCHITECTURE "diffusion-gemma"

/* The first failure stays in the reader; what is read after it is ignored, so that the functions
 * below read as lists of keys and the status is looked at once. */
typedef struct reader {
    const char *prefix; /* of keys: "ARCHITECTURE." */
    const dg_checkpoint *ck;
    const dg_gguf *g;
    const char *where;
    dgemma_status status;
    dgemma_error *err;
} reader;

enum { KEY_MAX = 96 };

/* A key with the architecture in front or, as some converters write it, without. */
static const dg_gguf_value *find(const reader *r, const char *key)
{
    char full[KEY_MAX];
    snprintf(full, sizeof full, "%s%s", r->prefix, key);
    const dg_gguf_value *v = dg_gguf_find(r->g, full);
    return v ? v : dg_gguf_find(r->g, key);
}

/* `found` tells a value that is wrong from one that is not there. */
static void refuse(reader *r, const char *key, bool found, const char *wanted)
{
    if (!r->status)
        r->status = dg_fail(r->err, DGEMMA_E_FORMAT, "%s: %s is %s, wanted %s", r->where, key,
                            found ? "something else" : "missing", wanted);
}

static bool in_range(const dg_gguf_value *v, size_t i, int lo, int hi, int *out)
{
    int64_t n;
    if (!dg_gguf_int(v, i, &n) || n < lo || n > hi)
        return false;
    *out = (int)n;
    return true;
}

/* Value `layer` of a key that may be one for all layers or an array with one for each. */
static int layer_int(reader *r, const char *key, int layer, int n_layer, int lo, int hi)
{
    const dg_gguf_value *v = find(r, key);
    int n = lo;
    bool fits = v && (!v->is_array || v->n == (size_t)n_layer);
    if (!fits || !in_range(v, v->is_array ? (size_t)layer : 0, lo, hi, &n)) {
        char wanted[96];
        snprintf(wanted, sizeof wanted,
                 "a whole number from %d to %d, or one for each of %d layers", lo, hi, n_layer);
        refuse(r, key, v != NULL, wanted);
    }
    return n;
}

static int int_or(reader *r, const char *key, int lo, int hi, int fallback)
{
    const dg_gguf_value *v = find(r, key);
    int n = fallback;
    if (v && (v->is_array || !in_range(v, 0, lo, hi, &n))) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a whole number from %d to %d", lo, hi);
        refuse(r, key, v != NULL, wanted);
    }
    return n;
}

static int int_key(reader *r, const char *key, int lo, int hi)
{
    if (!find(r, key))
        refuse(r, key, false, "a whole number");
    return int_or(r, key, lo, hi, lo);
}

/* A size that the format allows to differ between layers, and this model does not. */
static int same_in_all(reader *r, const char *key, int n_layer, int hi)
{
    int first = layer_int(r, key, 0, n_layer, 1, hi);
    for (int i = 1; i < n_layer && !r->status; i++)
        if (layer_int(r, key, i, n_layer, 1, hi) != first)
            r->status =
                dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                        "%s: %s differs between layers; wanted the same in all", r->where, key);
    return first;
}

static float float_or(reader *r, const char *key, double lo, double hi, double fallback)
{
    const dg_gguf_value *v = find(r, key);
    double d = fallback;
    if (v && (v->is_array || !dg_gguf_float(v, 0, &d) || !(d >= lo && d <= hi))) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a number from %g to %g", lo, hi);
        refuse(r, key, v != NULL, wanted);
        d = fallback;
    }
    return (float)d;
}

/* ---- what is refused ---- */

static void require_architecture(reader *r, const char *wanted)
{
    const dg_gguf_value *v = dg_gguf_find(r->g, "general.architecture");
    dg_gguf_text name = {"", 0};
    if (!dg_gguf_string(v, &name)) {
        refuse(r, "general.architecture", v != NULL, wanted);
        return;
    }
    if (!dg_gguf_string_is(v, wanted))
        r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                            "%s: general.architecture is \"%.*s\", wanted \"%s\"", r->where,
                            (int)(name.len < 60 ? name.len : 60), name.text, wanted);
}

static void require_zero(reader *r, const char *key)
{
    const dg_gguf_value *v = find(r, key);
    int n;
    for (size_t i = 0; v && i < v->n && !r->status; i++)
        if (!in_range(v, i, 0, 0, &n))
            r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                                "%s: %s is not 0; DiffusionGemma does not have it", r->where, key);
}

/* A tensor inside a layer that has no name in our checkpoint would change what the model computes:
 * a bias, a layer kind of a relative. */
static void check_tensors(reader *r, const char *layers)
{
    for (size_t i = 0; i < dg_checkpoint_count(r->ck) && !r->status; i++) {
        const char *name = dg_checkpoint_at(r->ck, i)->name;
        if (strncmp(name, layers, strlen(layers)) == 0)
            r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                                "%s: tensor %s is not part of DiffusionGemma", r->where, name);
    }
}

/* ---- layers ---- */

/* sliding_window_pattern: for each layer whether it slides, or a period whose last layer is global.
 */
static void read_kinds(dg_config *c, reader *r)
{
    static const char key[] = "attention.sliding_window_pattern";
    const dg_gguf_value *v = find(r, key);
    int period = 6;
    if (v && !v->is_array && !in_range(v, 0, 1, DG_MAX_LAYER, &period))
        refuse(r, key, v != NULL, "a period, or true or false for each layer");
    if (v && v->is_array && v->n != (size_t)c->n_layer)
        refuse(r, key, v != NULL, "one value for each layer");
    for (int i = 0; i < c->n_layer; i++) {
        bool sliding = i % period < period - 1;
        if (v && v->is_array && !r->status && !dg_gguf_bool(v, (size_t)i, &sliding))
            refuse(r, key, v != NULL, "true or false for each layer");
        c->layer[i].sliding = sliding;
    }
}

/* rope_freqs.weight divides the frequencies of global layers: 1, or so much that the pair stands
 * still. Its leading ones are the pairs that rotate; without it, the published quarter. */
static int global_pairs(reader *r, int head_dim)
{
    const dg_tensor *t = dg_checkpoint_find(r->ck, "rope_freqs.weight");
    int n = 0, half = head_dim / 2;
    if (!t)
        return half / 4;
    if (t->type != DG_F32 || t->n_dim != 1 || t->shape[0] != half) {
        refuse(r, "rope_freqs.weight", true, "one F32 value for each pair of a global head");
        return 0;
    }
    for (int i = 0; i < half; i++) {
        float f;
        memcpy(&f, (const unsigned char *)t->data + (size_t)i * sizeof f, sizeof f);
        if (f == 1 && n == i)
            n++;
        else if (!(f > 1e20f) && !r->status)
            r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                                "%s: rope_freqs.weight[%d] is %g, wanted ones, then 1e30", r->where,
                                i, (double)f);
    }
    return n;
}

static void check_layer(const dg_config *c, int i, reader *r)
{
    const dg_layer_config *l = &c->layer[i];
    if (r->status)
        return;
    if (l->head_dim % 2)
        r->status = dg_fail(r->err, DGEMMA_E_FORMAT, "%s: layer %d has heads of %d, wanted even",
                            r->where, i, l->head_dim);
    else if (c->n_head % l->n_kv_head)
        r->status = dg_fail(r->err, DGEMMA_E_FORMAT,
                            "%s: attention.head_count_kv of layer %d is %d, wanted a divisor of "
                            "the %d heads",
                            r->where, i, l->n_kv_head, c->n_head);
    else if (i == c->n_layer - 1 && l->sliding)
        r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                            "%s: the last layer slides, wanted it global", r->where);
}

static void read_layers(dg_config *c, reader *r)
{
    const int global_dim = int_key(r, "attention.key_length", 1, MAX_HEAD_DIM);
    const int head_dim = int_or(r, "attention.key_length_swa", 1, MAX_HEAD_DIM, global_dim);
    const int window = int_key(r, "attention.sliding_window", 1, MAX_CONTEXT);
    const float theta = float_or(r, "rope.freq_base", 1, 1e12, 1e6);
    const float theta_swa = float_or(r, "rope.freq_base_swa", 1, 1e12, 1e4);
    const int n_pair = global_pairs(r, global_dim);

    if (int_or(r, "attention.value_length", 1, MAX_HEAD_DIM, global_dim) != global_dim ||
        int_or(r, "attention.value_length_swa", 1, MAX_HEAD_DIM, head_dim) != head_dim)
        refuse(r, "attention.value_length", true, "attention.key_length, for both kinds");
    if (int_or(r, "rope.dimension_count", 1, MAX_HEAD_DIM, global_dim) != global_dim ||
        int_or(r, "rope.dimension_count_swa", 1, MAX_HEAD_DIM, head_dim) != head_dim)
        refuse(r, "rope.dimension_count", true, "attention.key_length, for both kinds");

    read_kinds(c, r);
    for (int i = 0; i < c->n_layer && !r->status; i++) {
        dg_layer_config *l = &c->layer[i];
        char v_proj[64];
        snprintf(v_proj, sizeof v_proj, "model.decoder.layers.%d.self_attn.v_proj.weight", i);
        l->head_dim = l->sliding ? head_dim : global_dim;
        l->n_kv_head = layer_int(r, "attention.head_count_kv", i, c->n_layer, 1, MAX_HEADS);
        l->v_from_k = !l->sliding && !dg_checkpoint_find(r->ck, v_proj);
        l->window = l->sliding ? window : 0;
        l->rope_theta = l->sliding ? theta_swa : theta;
        l->n_rope_pair = l->sliding ? head_dim / 2 : n_pair;
        check_layer(c, i, r);
    }
}

/* ---- sizes and tokens ---- */

static void read_sizes(dg_config *c, reader *r)
{
    const dg_tensor *table = dg_checkpoint_find(r->ck, "model.decoder.embed_tokens.weight");
    c->n_embd = int_key(r, "embedding_length", 1, MAX_SIZE);
    c->n_layer = int_key(r, "block_count", 1, DG_MAX_LAYER);
    c->n_ff = same_in_all(r, "feed_forward_length", c->n_layer, MAX_SIZE);
    c->n_head = same_in_all(r, "attention.head_count", c->n_layer, MAX_HEADS);
    c->n_expert = int_key(r, "expert_count", 1, MAX_EXPERTS);
    c->n_expert_used = int_key(r, "expert_used_count", 1, dg_max(1, c->n_expert));
    c->n_ff_expert = int_key(r, "expert_feed_forward_length", 1, MAX_SIZE);
    c->n_context = int_key(r, "context_length", 1, MAX_CONTEXT);
    c->canvas_length = int_key(r, "diffusion.canvas_length", 1, MAX_CANVAS);
    c->rms_eps = float_or(r, "attention.layer_norm_rms_epsilon", 1e-30, 1, 1e-6);
    const dg_gguf_value *cap = find(r, "final_logit_softcapping");
    double off = 1;
    c->logit_softcap = dg_gguf_float(cap, 0, &off) && off == 0
                           ? 0
                           : float_or(r, "final_logit_softcapping", 1e-3, 1e6, 30);
    /* the published model is bfloat16, and its factor is kept in that type */
    c->embed_scale = dg_bf16_to_float(dg_float_to_bf16(sqrtf((float)c->n_embd)));
    c->bidirectional_images = true; /* "vision" in the published config; GGUF does not say */

    if (!table || table->n_dim != 2 || table->shape[0] > MAX_SIZE)
        refuse(r, "token_embd.weight", table != NULL, "a matrix with a row for each token");
    else
        c->n_vocab = (int)table->shape[0];
}

/* Ids by name, in one walk over the vocabulary: files disagree on eos_token_id, not on names. */
static void read_tokens(dg_config *c, reader *r)
{
    static const char *const stop[] = {"<eos>", "<turn|>", "<|tool_response>"};
    const struct {
        const char *name;
        int *id;
    } other[] = {
        {"<|image|>", &c->image_token},
        {"<|image>", &c->boi_token},
        {"<image|>", &c->eoi_token},
    };
    c->image_token = c->boi_token = c->eoi_token = -1;
    c->pad_token = int_or(r, "tokenizer.ggml.padding_token_id", 0, dg_max(c->n_vocab, 1) - 1, -1);
    c->bos_token = int_or(r, "tokenizer.ggml.bos_token_id", 0, dg_max(c->n_vocab, 1) - 1, -1);

    dg_gguf_strings words = dg_gguf_strings_of(dg_gguf_find(r->g, "tokenizer.ggml.tokens"));
    dg_gguf_text word;
    for (int id = 0; id < c->n_vocab && dg_gguf_strings_next(&words, &word); id++) {
        if (word.len == 0 || word.text[0] != '<')
            continue;
        for (size_t i = 0; i < DG_COUNT(stop); i++)
            if (word.len == strlen(stop[i]) && memcmp(word.text, stop[i], word.len) == 0 &&
                c->n_stop < DG_MAX_STOP)
                c->stop_token[c->n_stop++] = id;
        for (size_t i = 0; i < DG_COUNT(other); i++)
            if (word.len == strlen(other[i].name) &&
                memcmp(word.text, other[i].name, word.len) == 0)
                *other[i].id = id;
    }
    if (c->n_stop == 0) {
        int eos = int_or(r, "tokenizer.ggml.eos_token_id", 0, dg_max(c->n_vocab, 1) - 1, -1);
        if (eos >= 0)
            c->stop_token[c->n_stop++] = eos;
    }
}

static void read_generation(dg_generation_config *g, reader *r)
{
    *g = dg_generation_defaults();
    g->max_steps = int_or(r, "diffusion.eb_max_steps", 1, MAX_STEPS, g->max_steps);
    g->t_min = float_or(r, "diffusion.eb_t_min", 1e-6, 1e6, g->t_min);
    g->t_max = float_or(r, "diffusion.eb_t_max", 1e-6, 1e6, g->t_max);
    g->entropy_bound = float_or(r, "diffusion.eb_entropy_bound", 0, 1e9, g->entropy_bound);
    g->stability = int_or(r, "diffusion.eb_stability_threshold", 0, MAX_STABILITY, g->stability);
    g->confidence = float_or(r, "diffusion.eb_confidence_threshold", 0, 1e9, g->confidence);
}

dgemma_status dg_config_from_gguf(dg_config *cfg, dg_generation_config *gen,
                                  const dg_checkpoint *ck, dgemma_error *err)
{
    *cfg = (dg_config){0};
    reader r = {.prefix = ARCHITECTURE ".",
                .ck = ck,
                .g = dg_checkpoint_gguf(ck),
                .where = dg_checkpoint_dir(ck),
                .err = err};
    require_architecture(&r, ARCHITECTURE);
    if (!r.status)
        check_tensors(&r, "blk.");
    require_zero(&r, "attention.shared_kv_layers");
    require_zero(&r, "embedding_length_per_layer_input");
    if (!r.status)
        read_sizes(cfg, &r);
    if (!r.status)
        read_layers(cfg, &r);
    if (!r.status)
        read_tokens(cfg, &r);
    read_generation(gen, &r);
    return r.status;
}

/* ---- the vision tower ---- */

static void check_projector(reader *r)
{
    static const char key[] = "clip.vision.projector_type";
    const dg_gguf_value *v = dg_gguf_find(r->g, key);
    if (!v)
        v = dg_gguf_find(r->g, "clip.projector_type");
    if (!dg_gguf_string_is(v, "gemma4v"))
        refuse(r, key, v != NULL, "\"gemma4v\"");
}

/* What is done to pixels before the tower's own mapping of [0, 1] to [-1, 1]: nothing, as
 * published. */
static void check_pixels(reader *r, const char *key, double wanted)
{
    const dg_gguf_value *v = find(r, key);
    for (size_t i = 0; v && i < v->n && !r->status; i++) {
        double got = 0;
        if (!dg_gguf_float(v, i, &got) || got != wanted)
            r->status = dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                                "%s: clip.vision.%s is %g, wanted %g in each channel", r->where,
                                key, got, wanted);
    }
}

/* Heads divide the width; the position tables say how many rows they have. */
static void derive_vision(dg_vision_config *v, reader *r)
{
    const dg_tensor *table = dg_checkpoint_find(
        r->ck, "model.encoder.vision_tower.patch_embedder.position_embedding_table");
    if (v->n_embd % v->n_head || v->n_embd / v->n_head % 4)
        refuse(r, "attention.head_count", true,
               "a divisor of embedding_length that leaves heads of a multiple of 4");
    v->head_dim = v->n_embd / v->n_head;
    if (!table || table->n_dim != 3 || table->shape[1] < 1 || table->shape[1] > MAX_POSITIONS)
        refuse(r, "v.position_embd.weight", table != NULL, "two tables of positions");
    else
        v->n_position = (int)table->shape[1];
    v->standardize = dg_checkpoint_find(r->ck, "model.encoder.vision_tower.std_scale") != NULL;
    v->clipped =
        dg_checkpoint_find(
            r->ck, "model.encoder.vision_tower.encoder.layers.0.self_attn.q_proj.input_min") !=
        NULL;
}

dgemma_status dg_config_from_mmproj(dg_config *cfg, const dg_checkpoint *ck, dgemma_error *err)
{
    dg_vision_config *v = &cfg->vision;
    reader r = {.prefix = "clip.vision.",
                .ck = ck,
                .g = dg_checkpoint_gguf(ck),
                .where = dg_checkpoint_dir(ck),
                .err = err};
    *v = (dg_vision_config){.rope_theta = DG_TOWER_ROPE_THETA};
    require_architecture(&r, "clip");
    check_projector(&r);
    if (!r.status)
        check_tensors(&r, "v.blk.");
    v->n_embd = int_key(&r, "embedding_length", 1, MAX_SIZE);
    v->n_ff = int_key(&r, "feed_forward_length", 1, MAX_SIZE);
    v->n_layer = int_key(&r, "block_count", 1, DG_MAX_LAYER);
    v->n_head = int_key(&r, "attention.head_count", 1, MAX_HEADS);
    v->patch = int_key(&r, "patch_size", 1, MAX_PATCH);
    v->pool = int_or(&r, "projector.scale_factor", 1, MAX_POOL, 3);
    v->max_soft = int_or(&r, "max_soft_tokens", 1, MAX_SOFT, 280); /* a key of ours */
    v->rms_eps = float_or(&r, "attention.layer_norm_epsilon", 1e-30, 1, 1e-6);
    if (int_or(&r, "projection_dim", 1, MAX_SIZE, cfg->n_embd) != cfg->n_embd)
        refuse(&r, "clip.vision.projection_dim", true, "the model's embedding_length");
    check_pixels(&r, "image_mean", 0);
    check_pixels(&r, "image_std", 1);
    if (!r.status)
        derive_vision(v, &r);
    v->present = !r.status;
    return r.status;
}
