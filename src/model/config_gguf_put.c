#include "model/config_gguf_put.h"
#include <stdio.h>
#include "base/common.h"

#define ARCHITECTURE "diffusion-gemma"

enum { KEY_MAX = 96 };

static const char *prefixed(char out[KEY_MAX], const char *key)
{
    snprintf(out, KEY_MAX, ARCHITECTURE ".%s", key);
    return out;
}

static void put_int(dg_gguf_writer *w, const char *key, int value)
{
    char name[KEY_MAX];
    dg_gguf_put_int(w, prefixed(name, key), DG_GGUF_U32, value);
}

static void put_float(dg_gguf_writer *w, const char *key, float value)
{
    char name[KEY_MAX];
    dg_gguf_put_float(w, prefixed(name, key), value);
}

static void put_layers(dg_gguf_writer *w, const dg_config *cfg)
{
    int64_t kv[DG_MAX_LAYER], sliding[DG_MAX_LAYER];
    char name[KEY_MAX];
    size_t n = (size_t)cfg->n_layer;
    for (size_t i = 0; i < n; i++) {
        kv[i] = cfg->layer[i].n_kv_head;
        sliding[i] = cfg->layer[i].sliding;
    }
    dg_gguf_put_ints(w, prefixed(name, "attention.head_count_kv"), DG_GGUF_I32, kv, n);
    dg_gguf_put_ints(w, prefixed(name, "attention.sliding_window_pattern"), DG_GGUF_BOOL, sliding,
                     n);
}

/* All layers of a kind are alike in what is written of them; the last is global. */
static const dg_layer_config *layer_of(const dg_config *cfg, bool sliding)
{
    for (int i = 0; i < cfg->n_layer; i++)
        if (cfg->layer[i].sliding == sliding)
            return &cfg->layer[i];
    return &cfg->layer[cfg->n_layer - 1];
}

void dg_config_put(dg_gguf_writer *w, const dg_config *cfg, const dg_generation_config *gen)
{
    const dg_layer_config *global = layer_of(cfg, false), *local = layer_of(cfg, true);
    char name[KEY_MAX];
    dg_gguf_put_string(w, "general.architecture", ARCHITECTURE);
    dg_gguf_put_string(w, "general.type", "model");
    put_int(w, "block_count", cfg->n_layer);
    put_int(w, "context_length", cfg->n_context);
    put_int(w, "embedding_length", cfg->n_embd);
    put_int(w, "feed_forward_length", cfg->n_ff);
    put_int(w, "attention.head_count", cfg->n_head);
    put_int(w, "expert_count", cfg->n_expert);
    put_int(w, "expert_used_count", cfg->n_expert_used);
    put_int(w, "expert_feed_forward_length", cfg->n_ff_expert);
    put_int(w, "attention.key_length", global->head_dim);
    put_int(w, "attention.value_length", global->head_dim);
    put_int(w, "attention.key_length_swa", local->head_dim);
    put_int(w, "attention.value_length_swa", local->head_dim);
    put_int(w, "rope.dimension_count", global->head_dim);
    put_int(w, "rope.dimension_count_swa", local->head_dim);
    put_int(w, "attention.sliding_window", local->window ? local->window : 1);
    put_int(w, "attention.shared_kv_layers", 0);
    put_int(w, "embedding_length_per_layer_input", 0);
    put_layers(w, cfg);
    put_float(w, "rope.freq_base", global->rope_theta);
    put_float(w, "rope.freq_base_swa", local->rope_theta);
    put_float(w, "attention.layer_norm_rms_epsilon", cfg->rms_eps);
    put_float(w, "final_logit_softcapping", cfg->logit_softcap);
    dg_gguf_put_int(w, prefixed(name, "attention.causal"), DG_GGUF_BOOL, 0);
    dg_gguf_put_int(w, "diffusion.canvas_length", DG_GGUF_U32, cfg->canvas_length);
    dg_gguf_put_int(w, "diffusion.eb_max_steps", DG_GGUF_U32, gen->max_steps);
    dg_gguf_put_float(w, "diffusion.eb_t_min", gen->t_min);
    dg_gguf_put_float(w, "diffusion.eb_t_max", gen->t_max);
    dg_gguf_put_float(w, "diffusion.eb_entropy_bound", gen->entropy_bound);
    dg_gguf_put_int(w, "diffusion.eb_stability_threshold", DG_GGUF_U32, gen->stability);
    dg_gguf_put_float(w, "diffusion.eb_confidence_threshold", gen->confidence);
}

void dg_config_put_tower(dg_gguf_writer *w, const dg_config *cfg)
{
    const dg_vision_config *v = &cfg->vision;
    const struct {
        const char *key;
        int value;
    } number[] = {
        {"clip.vision.image_size", 224}, /* which readers want, and none uses */
        {"clip.vision.patch_size", v->patch},
        {"clip.vision.embedding_length", v->n_embd},
        {"clip.vision.feed_forward_length", v->n_ff},
        {"clip.vision.block_count", v->n_layer},
        {"clip.vision.attention.head_count", v->n_head},
        {"clip.vision.projection_dim", cfg->n_embd},
        {"clip.vision.projector.scale_factor", v->pool},
        {"clip.vision.max_soft_tokens", v->max_soft}, /* a key of ours */
    };
    dg_gguf_put_string(w, "general.architecture", "clip");
    dg_gguf_put_string(w, "general.type", "mmproj");
    dg_gguf_put_int(w, "clip.has_vision_encoder", DG_GGUF_BOOL, 1);
    dg_gguf_put_string(w, "clip.vision.projector_type", "gemma4v");
    for (size_t i = 0; i < DG_COUNT(number); i++)
        dg_gguf_put_int(w, number[i].key, DG_GGUF_U32, number[i].value);
    dg_gguf_put_float(w, "clip.vision.attention.layer_norm_epsilon", v->rms_eps);
    dg_gguf_put_floats(w, "clip.vision.image_mean", (const float[]){0, 0, 0}, 3);
    dg_gguf_put_floats(w, "clip.vision.image_std", (const float[]){1, 1, 1}, 3);
}

/* What frequencies are divided by: those of pairs that stand still, by very much. */
dg_tensor dg_config_rope_freqs(float *values, const dg_config *cfg)
{
    const dg_layer_config *global = &cfg->layer[cfg->n_layer - 1];
    const int half = global->head_dim / 2;
    for (int i = 0; i < half; i++)
        values[i] = i < global->n_rope_pair ? 1 : 1e30f;
    return (dg_tensor){.name = "rope_freqs.weight",
                       .type = DG_F32,
                       .n_dim = 1,
                       .shape = {half},
                       .data = values,
                       .bytes = (size_t)half * sizeof *values};
}
