#include "model/config_json_put.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json_document.h"

/* A float as the shortest number that is it, which has at most nine digits. */
static json_t *real(float value)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

/* An id, or null where there is none. */
static json_t *id_or_null(int id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static json_t *stop_tokens(const dg_config *cfg)
{
    json_t *list = json_array();
    for (int i = 0; i < cfg->n_stop; i++)
        json_array_append_new(list, json_integer(cfg->stop_token[i]));
    return list;
}

/* The first layer of a kind, or the last layer of all, which is global. */
static const dg_layer_config *layer_of(const dg_config *cfg, bool sliding)
{
    for (int i = 0; i < cfg->n_layer; i++)
        if (cfg->layer[i].sliding == sliding)
            return &cfg->layer[i];
    return &cfg->layer[cfg->n_layer - 1];
}

/* All layers of a kind have to be alike, and sliding ones to rotate whole heads. */
static dgemma_status check_layers(const dg_config *cfg, dgemma_error *err)
{
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *l = &cfg->layer[i], *like = layer_of(cfg, l->sliding);
        if (l->head_dim != like->head_dim || l->n_kv_head != like->n_kv_head ||
            l->v_from_k != like->v_from_k || l->window != like->window ||
            l->rope_theta != like->rope_theta || l->n_rope_pair != like->n_rope_pair)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "layer %d is not like the others of its kind, which config.json has no "
                           "word for",
                           i);
        if (l->sliding && (l->v_from_k || l->n_rope_pair != l->head_dim / 2))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "layer %d is sliding and has no values, or heads that rotate in part: "
                           "config.json has no word for that",
                           i);
    }
    return DGEMMA_OK;
}

/* The part of a head that rotates, in 15 digits. Readers take floor(part * head_dim / 2), which of
 * a part that was rounded down may be a pair less: 39 of 0.833333333333333 and 96. */
static json_t *rotating(const dg_layer_config *l)
{
    const double unit = 1e15;
    double part = round(2.0 * l->n_rope_pair / l->head_dim * unit);
    if (floor(part / unit * l->head_dim / 2) < l->n_rope_pair)
        part++;
    return json_real(part / unit);
}

static json_t *rope(const dg_layer_config *l)
{
    if (l->n_rope_pair == l->head_dim / 2)
        return json_pack("{s:s, s:o}", "rope_type", "default", "rope_theta", real(l->rope_theta));
    return json_pack("{s:s, s:o, s:o}", "rope_type", "proportional", "rope_theta",
                     real(l->rope_theta), "partial_rotary_factor", rotating(l));
}

static json_t *text_config(const dg_config *cfg)
{
    const dg_layer_config *global = layer_of(cfg, false), *local = layer_of(cfg, true);
    json_t *types = json_array();
    for (int i = 0; i < cfg->n_layer; i++)
        json_array_append_new(
            types, json_string(cfg->layer[i].sliding ? "sliding_attention" : "full_attention"));
    json_t *c = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:i}", "model_type",
        "diffusion_gemma_text", "vocab_size", cfg->n_vocab, "hidden_size", cfg->n_embd,
        "intermediate_size", cfg->n_ff, "num_hidden_layers", cfg->n_layer, "num_attention_heads",
        cfg->n_head, "num_key_value_heads", local->n_kv_head, "head_dim", local->head_dim,
        "global_head_dim", global->head_dim, "num_global_key_value_heads", global->n_kv_head,
        "attention_k_eq_v", global->v_from_k, "num_experts", cfg->n_expert, "top_k_experts",
        cfg->n_expert_used, "moe_intermediate_size", cfg->n_ff_expert, "max_position_embeddings",
        cfg->n_context);
    json_t *more =
        json_pack("{s:o, s:i, s:{s:o, s:o}, s:o, s:o, s:s, s:b, s:b, s:o, s:o, s:o, s:o}",
                  "layer_types", types, "sliding_window", local->window ? local->window : 1,
                  "rope_parameters", "full_attention", rope(global), "sliding_attention",
                  rope(local), "rms_norm_eps", real(cfg->rms_eps), "final_logit_softcapping",
                  cfg->logit_softcap > 0 ? real(cfg->logit_softcap) : json_null(),
                  "hidden_activation", "gelu_pytorch_tanh", "attention_bias", 0,
                  "tie_word_embeddings", 1, "use_bidirectional_attention",
                  cfg->bidirectional_images ? json_string("vision") : json_null(), "pad_token_id",
                  id_or_null(cfg->pad_token), "bos_token_id", id_or_null(cfg->bos_token),
                  "eos_token_id", stop_tokens(cfg));
    json_object_update(c, more);
    json_decref(more);
    return c;
}

static json_t *vision_config(const dg_vision_config *v)
{
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:o, "
        "s:{s:s, s:o}, s:s, s:b}",
        "model_type", "gemma4_vision", "hidden_size", v->n_embd, "intermediate_size", v->n_ff,
        "num_hidden_layers", v->n_layer, "num_attention_heads", v->n_head, "num_key_value_heads",
        v->n_head, "head_dim", v->head_dim, "patch_size", v->patch, "pooling_kernel_size", v->pool,
        "position_embedding_size", v->n_position, "default_output_length", v->max_soft,
        "standardize", v->standardize, "use_clipped_linears", v->clipped, "rms_norm_eps",
        real(v->rms_eps), "rope_parameters", "rope_type", "default", "rope_theta",
        real(v->rope_theta), "hidden_activation", "gelu_pytorch_tanh", "attention_bias", 0);
}

static json_t *config(const dg_config *cfg)
{
    return json_pack("{s:[s], s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o, s:o}", "architectures",
                     "DiffusionGemmaForBlockDiffusion", "model_type", "diffusion_gemma", "dtype",
                     "bfloat16", "canvas_length", cfg->canvas_length, "tie_word_embeddings", 1,
                     "image_token_id", id_or_null(cfg->image_token), "boi_token_id",
                     id_or_null(cfg->boi_token), "eoi_token_id", id_or_null(cfg->eoi_token),
                     "text_config", text_config(cfg), "vision_config",
                     cfg->vision.present ? vision_config(&cfg->vision) : json_null());
}

static json_t *generation(const dg_config *cfg, const dg_generation_config *g)
{
    return json_pack("{s:i, s:o, s:o, s:i, s:o, s:{s:s, s:o}, s:o, s:o, s:o}",
                     "max_denoising_steps", g->max_steps, "t_min", real(g->t_min), "t_max",
                     real(g->t_max), "stability_threshold", g->stability, "confidence_threshold",
                     real(g->confidence), "sampler_config", "_cls_name",
                     "EntropyBoundSamplerConfig", "entropy_bound", real(g->entropy_bound),
                     "eos_token_id", stop_tokens(cfg), "pad_token_id", id_or_null(cfg->pad_token),
                     "bos_token_id", id_or_null(cfg->bos_token));
}

dgemma_status dg_config_json(dg_buf *out, const dg_config *cfg, dgemma_error *err)
{
    dgemma_status st = check_layers(cfg, err);
    return st ? st : dg_json_document(out, config(cfg), "config.json", err);
}

dgemma_status dg_generation_config_json(dg_buf *out, const dg_config *cfg,
                                        const dg_generation_config *g, dgemma_error *err)
{
    return dg_json_document(out, generation(cfg, g), "generation_config.json", err);
}
