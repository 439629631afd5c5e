/* What config.json and generation_config.json say, checked and completed with defaults. Shapes are
 * per layer: sliding and global layers differ in head size, key/value heads, value path and
 * rotation. */
#ifndef DG_MODEL_CONFIG_H
#define DG_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

enum { DG_MAX_LAYER = 512, DG_MAX_STOP = 16 };

typedef struct dg_layer_config {
    bool sliding;  /* else global ("full_attention") */
    bool v_from_k; /* no v_proj: V is the raw key projection (global layers) */
    int window;    /* sliding: keys a token sees, itself included; global: 0 */
    int n_kv_head;
    int head_dim;
    float rope_theta;
    int n_rope_pair; /* rotating pairs (i, i + head_dim / 2); the pairs above pass unchanged */
} dg_layer_config;

/* The vision tower. A checkpoint for text alone has none. */
typedef struct dg_vision_config {
    bool present; /* else nothing below is set */
    int n_embd;
    int n_ff;
    int n_layer;
    int n_head; /* keys and values have as many */
    int head_dim;
    int patch;      /* pixels on each side */
    int pool;       /* patches on each side that become one soft token */
    int n_position; /* rows of each position table: the most patches across or down */
    int max_soft;   /* soft tokens of a picture, unless a request says otherwise */
    bool standardize;
    bool clipped; /* inputs and outputs of the tower's matrices are held in ranges of their own */
    float rms_eps;
    float rope_theta;
} dg_vision_config;

typedef struct dg_config {
    int n_vocab;
    int n_embd; /* hidden_size */
    int n_ff;   /* intermediate_size: dense MLP and self-conditioning MLP */
    int n_layer;
    int n_head;
    int n_expert, n_expert_used, n_ff_expert;
    int n_context; /* max_position_embeddings */
    int canvas_length;
    float rms_eps;
    float logit_softcap;       /* 0: none */
    float embed_scale;         /* sqrt(n_embd), rounded to the config's dtype */
    bool bidirectional_images; /* use_bidirectional_attention == "vision" */

    int pad_token, bos_token; /* -1: none */
    int n_stop;
    int32_t stop_token[DG_MAX_STOP];       /* eos ids; generation_config's list, where there is one,
                                              replaces config's */
    int image_token, boi_token, eoi_token; /* -1: none */

    dg_vision_config vision;
    dg_layer_config layer[DG_MAX_LAYER];
} dg_config;

/* generation_config.json; absent keys keep the fallbacks of spec: 48 steps, 0.4 … 0.8, bound 0.1,
 * 1, 0.005. */
typedef struct dg_generation_config {
    int max_steps;
    float t_min, t_max;
    float entropy_bound;
    int stability;    /* stability_threshold */
    float confidence; /* confidence_threshold */
} dg_generation_config;

/* Both take a whole JSON document; `where` names it in errors. A value of the wrong type, out of
 * range or in contradiction to another is an error that names the key. */
dgemma_status dg_config_parse(dg_config *out, const char *json, size_t len, const char *where,
                              dgemma_error *err);

/* Also replaces the stop tokens and the pad token of *cfg where the document has them. */
dgemma_status dg_generation_config_parse(dg_generation_config *out, dg_config *cfg,
                                         const char *json, size_t len, const char *where,
                                         dgemma_error *err);
dg_generation_config dg_generation_defaults(void);

#endif
