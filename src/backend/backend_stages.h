/* The stages of a pass over text: what each computes, as an equation, and its arguments, which
 * follow from the model and from the batch's shape alone. */
#ifndef DG_BACKEND_BACKEND_STAGES_H
#define DG_BACKEND_BACKEND_STAGES_H

#include <stdbool.h>
#include <stdint.h>
#include "backend/backend_memory.h"

/* ---- what a layer is made of ----  Norms and scales are float vectors in the backend's memory. */

typedef struct dg_attention_weights {
    int n_head, n_kv_head, head_dim;
    int window;    /* sliding: keys a token sees, itself included; global: 0 */
    bool v_from_k; /* there is no v: the values are the raw keys */
    float *norm, *post_norm;
    float *q_norm, *k_norm; /* [head_dim] */
    dg_weight q, k, v, o;
} dg_attention_weights;

/* A gated MLP: down( gelu(gate x) * (up x) ). */
typedef struct dg_mlp_weights {
    float *norm, *post_norm; /* self-conditioning has no post_norm */
    dg_weight gate, up, down;
} dg_mlp_weights;

typedef struct dg_router_weights {
    int n_used;          /* experts per token */
    float *scale;        /* [n_embd] */
    float *expert_scale; /* [n_expert] */
    dg_weight proj;
} dg_router_weights;

typedef struct dg_expert_weights {
    float *norm, *post_norm;
    dg_weight gate, up, down;
} dg_expert_weights;

/* Angles of one kind of layer for every row of the batch. */
typedef struct dg_rope {
    int n_pair;
    float *cos, *sin; /* [n_row, n_pair] */
} dg_rope;

/* ---- stages ----  x is the residual stream [n_row, n_embd]; rows.first … rows.end are those a
 * stage works on. Every RMSNorm has the plan's epsilon. q, o, dense, experts, expert and weight go
 * from one stage to the next of the same layer: a backend may keep what it likes in that memory. */

typedef struct dg_rows {
    int first, end;
} dg_rows;

/* cos[r][i], sin[r][i] of position[r] * frequency[i], the product in float. All rows. Of each group
 * once, and before the embedding, beside which a backend may make them. */
typedef struct dg_rope_table_args {
    const dg_rope *rope;
    const float *frequency; /* [n_pair] */
} dg_rope_table_args;

/* x = E[token] * scale; rows with a feature take it unscaled. All rows. */
typedef struct dg_embed_args {
    float *x;
    const dg_weight *table;
    float scale;
} dg_embed_args;

/* Self-conditioning:  n = RMSNorm(soft, w->norm);  x = RMSNorm( x + down( gelu(gate n) * (up n) ) )
 * soft is the previous step's soft embedding, zero on a canvas's first step. */
typedef struct dg_condition_args {
    float *x;
    const dg_mlp_weights *w;
    dg_rows rows;
} dg_condition_args;

/* a = RMSNorm(x, norm);  q = RoPE(RMSNorm(Wq a, q_norm)), k likewise, v = RMSNorm(Wv a) without
 * weight; norms per head. v_from_k: v comes from the raw Wk a. q is only made for rows from
 * first_q_row on. All rows: their k and v are stored, encoded rows' in their sequence's pages,
 * canvas rows' for this layer's attention. The only place where the cache is written. */
typedef struct dg_qkv_args {
    float *q; /* [n_row, n_head * head_dim] */
    const float *x;
    const dg_attention_weights *w;
    const dg_rope *rope;
    dg_kv_store *kv;
    int layer;
    int first_q_row;
} dg_qkv_args;

/* out = softmax(q . K^T) . V over the keys the row sees; scale 1, no mask inside a canvas. */
typedef struct dg_attention_args {
    float *out;
    const float *q; /* [n_row, n_head * head_dim] both */
    const dg_attention_weights *w;
    dg_kv_store *kv;
    int layer;
    dg_rows rows;
} dg_attention_args;

/* x = x + RMSNorm(Wo o, post_norm). */
typedef struct dg_attention_out_args {
    float *x;
    const float *o;
    const dg_attention_weights *w;
    dg_rows rows;
} dg_attention_out_args;

/* out = RMSNorm( down( gelu(gate a) * (up a) ), post_norm ),  a = RMSNorm(x, norm). The experts of
 * the layer and its router start from the same rows of x: a backend may make their norm with this
 * one, and begin with the router. */
typedef struct dg_dense_args {
    float *out;
    const float *x;
    const dg_mlp_weights *w;
    const dg_expert_weights *experts;
    const dg_router_weights *router;
    dg_rows rows;
} dg_dense_args;

/* p = softmax(proj (RMSNorm(x) * scale / sqrt(n_embd)));  the n_used largest (lowest index first on
 * ties), weight = p / sum of those * expert_scale. */
typedef struct dg_route_args {
    int32_t *expert; /* [n_row, n_used] */
    float *weight;   /* [n_row, n_used] */
    const float *x;
    const dg_router_weights *w;
    dg_rows rows;
} dg_route_args;

/* out = RMSNorm( sum_j weight_j * down_j( gelu(g) * u ), post_norm ),  g = gate_j a,  u = up_j a,
 * a = RMSNorm(x, norm). */
typedef struct dg_experts_args {
    float *out;
    const float *x;
    const int32_t *expert; /* [n_row, n_used] both, from the router */
    const float *weight;
    int n_used;
    const dg_expert_weights *w;
    dg_rows rows;
} dg_experts_args;

/* x = (x + RMSNorm(dense + experts, norm)) * layer scalar; encoded and canvas rows have their own.
 */
typedef struct dg_join_args {
    float *x;
    const float *dense, *experts;
    const float *norm;
    float scalar_encode, scalar_canvas;
    dg_rows rows;
} dg_join_args;

/* y = RMSNorm(x, w). */
typedef struct dg_norm_args {
    float *y;
    const float *x, *w;
    dg_rows rows;
} dg_norm_args;

/* logits = softcap(E x);  z = (logits + bias) / temperature;  p = softmax(z), for every canvas row.
 * What comes of it goes to the batch's findings and to the segments' soft embeddings. z never
 * exists for all rows and words in the backend's memory, except where a backend says so in its
 * plan.
 *
 * soft = sum_v p_v E[v] * soft_scale drops words whose p is below DG_SOFT_DROP: what is dropped
 * sums to less than n_vocab * DG_SOFT_DROP of the mass, 6.2e-5 at 262,144 words, where the
 * reference's rounding of each p to bfloat16 moves up to 2e-3. Profiles that round weights or
 * activations may drop more words, the least likely ones, as long as what a row loses sums to less
 * than DG_SOFT_LEFT of its mass.
 *
 * A row whose p is not a number (logits that are none, or overflow) says so in its entropy. The
 * other rows do not notice. */
#define DG_SOFT_DROP 0x1p-32
#define DG_SOFT_LEFT 0x1p-14
typedef struct dg_vocabulary_args {
    const float *x; /* [n_row - n_encode, n_embd] after the final norm */
    const dg_weight *table;
    float softcap; /* 0: none */
    float soft_scale;
} dg_vocabulary_args;

#endif
