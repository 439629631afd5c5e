/* The vision tower: a pass of its own, between vision_begin() and finish(), over the patches of a
 * few pictures. x is the residual stream [n_patch, n_embd], picture after picture. Patches attend
 * both ways, to those of their own picture only. */
#ifndef DG_BACKEND_BACKEND_VISION_H
#define DG_BACKEND_BACKEND_VISION_H

#include <stdbool.h>
#include "backend/backend_memory.h"

/* One picture's patches, row by row. */
typedef struct dg_vision_picture {
    int first_patch; /* its place in x */
    int rows, cols;
    const float *pixels; /* [rows * cols, pixels of a patch] in host memory */
} dg_vision_picture;

typedef struct dg_vision_batch {
    int n_patch;
    int n_picture;
    const dg_vision_picture *picture;
} dg_vision_batch;

/* A matrix whose inputs and outputs are held in ranges. Infinite ends: none. */
typedef struct dg_clipped {
    dg_weight w;
    float in_min, in_max, out_min, out_max;
} dg_clipped;

/* One layer: attention block, then MLP block. */
typedef struct dg_vision_layer {
    float *norm, *post_norm; /* [n_embd] around the attention */
    float *q_norm, *k_norm;  /* [head_dim] */
    dg_clipped q, k, v, o;
    float *mlp_norm, *mlp_post_norm;
    dg_clipped gate, up, down;
} dg_vision_layer;

/* x = Wp (2 (pixel - 0.5)) + table[0][column] + table[1][row] of the patch. */
typedef struct dg_vision_embed_args {
    float *x;
    const dg_weight *proj;
    const dg_weight *table; /* two matrices [n_position, n_embd] */
} dg_vision_embed_args;

/* Angles of a coordinate, for columns and rows alike: cos, sin [n_position, head_dim / 4]. */
typedef struct dg_vision_rope {
    const float *cos, *sin;
} dg_vision_rope;

/* a = RMSNorm(x, norm);  q = RoPE(RMSNorm(Wq a, q_norm)), k likewise, v = RMSNorm(Wv a); norms per
 * head;  x = x + RMSNorm( Wo softmax(q k^T) v, post_norm ), scale 1. RoPE turns the first half of a
 * head by the patch's column, the second by its row: pairs (i, i + head_dim / 4) in each. */
typedef struct dg_vision_attention_args {
    float *x;
    const dg_vision_layer *w;
    dg_vision_rope rope;
} dg_vision_attention_args;

/* x = x + RMSNorm( down( gelu(gate u) * (up u) ), mlp_post_norm ),  u = RMSNorm(x, mlp_norm). */
typedef struct dg_vision_mlp_args {
    float *x;
    const dg_vision_layer *w;
} dg_vision_mlp_args;

/* h = mean of pool x pool patches * sqrt(n_embd);  h = (h - bias) * scale;
 * out = W RMSNorm(h), a row for each cell of the pooled grids, row by row, picture after picture.
 */
typedef struct dg_vision_project_args {
    float *out; /* [n_soft, n_embd of the text] */
    const float *x;
    int pool;
    const float *bias, *scale; /* both NULL: not standardised */
    const dg_weight *proj;
} dg_vision_project_args;

/* Largest sizes of a vision pass. */
typedef struct dg_vision_plan {
    int n_patch;
    int n_embd, n_ff, n_head, head_dim;
    int n_pixel;   /* values of a patch */
    bool clipped;  /* some of its matrices have ranges */
    float rms_eps; /* of every RMSNorm in the tower */
} dg_vision_plan;

#endif
