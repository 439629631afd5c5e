/* What a device must do for the model: memory, and a dozen stages coarse enough to fuse inside. The
 * CPU backend with its reference kernels is the definition of each stage; other backends are
 * checked against it.
 *
 * Stages of one pass run in order between begin() and finish(). They are enqueued, not awaited:
 * what they write to host memory is there after finish(). They do not report errors one by one: the
 * first failure sticks, later stages do nothing, and finish() returns it. That keeps model/layer.c
 * looking like the equations.
 *
 * What differs from pass to pass is in the batch; the stages' arguments follow from the model and
 * from the batch's shape (its number of rows and segments of each kind) alone. So a device may run
 * the stages of a shape once, keep them as a graph, and from then on only send it the next batch.
 *
 * A row's result depends on that row alone (and on the keys it may see): every sum runs in an order
 * fixed by the weights and by absolute key and vocabulary index, never by the number of rows,
 * threads or chunks. */
#ifndef DG_BACKEND_BACKEND_H
#define DG_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/low_rank.h"
#include "base/error.h"
#include "tensor/kv_numbers.h"
#include "tensor/tensor.h"

/* ---- memory ---- */

/* A matrix, or n_mat of them (experts): n_out rows of n_in values. How they lie in memory is the
 * backend's business, which made the weight by weight_init(): the CPU leaves them in the mapped
 * file, rows row_bytes and matrices mat_bytes apart. */
typedef struct dg_weight {
    dg_dtype type; /* as stored in the file */
    int n_mat, n_out, n_in;
    size_t row_bytes, mat_bytes;
    const void *data;
    const float *scale;         /* [n_mat] factors of a block type's values; NULL: none */
    const dg_low_rank *adapter; /* [adapters][2]: to encoded rows, to canvas rows; the backend's
                                   memory. NULL: none changes this weight */
} dg_weight;

static inline const dg_low_rank *dg_weight_adapter(const dg_weight *w, int adapter, bool canvas)
{
    return &w->adapter[2 * adapter + canvas];
}

/* What a matrix is for: a backend may lay it out accordingly, or choose a place for it. */
typedef enum dg_weight_role {
    DG_ROLE_EMBED, /* token embedding, output head and soft-embedding table in one */
    DG_ROLE_QUERY,
    DG_ROLE_KEY,
    DG_ROLE_VALUE,
    DG_ROLE_ATTENTION_OUT,
    DG_ROLE_GATE,
    DG_ROLE_UP,
    DG_ROLE_DOWN,
    DG_ROLE_ROUTER,
    DG_ROLE_EXPERT_GATE,
    DG_ROLE_EXPERT_UP,
    DG_ROLE_EXPERT_DOWN,
    DG_ROLE_VISION
} dg_weight_role;

/* Where a weight comes from: rows [first_row, first_row + n_row) of a tensor [n_out, n_in], or of
 * each matrix of [n_mat, n_out, n_in]. The tensor has data; that outlives the weight where the
 * backend borrows it. */
typedef struct dg_weight_source {
    const dg_tensor *tensor;
    dg_weight_role role;
    int layer; /* -1: of no layer */
    int first_row, n_row;
} dg_weight_source;

/* ---- keys and values ----
 *
 * Both kinds of layer keep pages of DG_PAGE tokens, known by their number. All sliding layers share
 * one page table per sequence, all global layers another: a page has room for all layers of its
 * group. The pages and their layout are the backend's. */

enum { DG_PAGE = 64 };
typedef enum dg_kv_group { DG_KV_SLIDING, DG_KV_GLOBAL, DG_KV_GROUPS } dg_kv_group;
enum { DG_NO_PAGE = -1 }; /* in a table: forgotten */

typedef struct dg_kv_layer {
    dg_kv_group group;
    int n_kv_head, head_dim;
} dg_kv_layer;

typedef struct dg_kv_config {
    dg_dtype type; /* how K and V are stored: DG_F32, DG_BF16, DG_Q8_0 or DG_FP8 */
    int n_layer;
    const dg_kv_layer *layer; /* borrowed */
} dg_kv_config;

typedef struct dg_kv_store dg_kv_store;

/* Values that one layer's K, or V, takes in a page. */
static inline size_t dg_kv_layer_values(const dg_kv_layer *l)
{
    return (size_t)l->n_kv_head * DG_PAGE * (size_t)l->head_dim;
}

/* Bytes of one head's keys, or values, in a page. */
static inline size_t dg_kv_head_bytes(dg_dtype type, int head_dim)
{
    return DG_PAGE * dg_kv_row_bytes(type, head_dim);
}

/* Bytes of one layer's K and V in a page. */
static inline size_t dg_kv_layer_bytes(dg_dtype type, const dg_kv_layer *l)
{
    return 2 * (size_t)l->n_kv_head * dg_kv_head_bytes(type, l->head_dim);
}

/* Bytes of a page of each group, whatever the layout. */
static inline void dg_kv_page_bytes(size_t bytes[DG_KV_GROUPS], const dg_kv_config *cfg)
{
    for (int g = 0; g < DG_KV_GROUPS; g++)
        bytes[g] = 0;
    for (int i = 0; i < cfg->n_layer; i++)
        bytes[cfg->layer[i].group] += dg_kv_layer_bytes(cfg->type, &cfg->layer[i]);
}

/* ---- wishes for the vocabulary end ---- */

typedef struct dg_logit_bias {
    int32_t id;
    float bias;
} dg_logit_bias;

/* How a word is drawn where it is not simply from p: from softmax(z / temperature), of which the
 * filters leave the most likely words. In this order, each looking at what the last one left:
 *
 *     top_k   that many words
 *     top_p   as few as have top_p of the mass together; the word that reaches it is in
 *     min_p   those at least min_p times as likely as the most likely one
 *
 * The arg-max always stays and comes first. Behind it words are ranked by z / temperature in steps
 * of 1 / DG_DRAW_RANKS nats, and words of one step by id: so many words stay as should, but of two
 * whose probabilities differ by less than 0.8 % the one with the lower id may be taken for the
 * likelier. top_p counts with the mean of a step's words. With a filter, words further than
 * DG_DRAW_NATS below the arg-max never come up: together they have less than n_vocab * e^-32 of its
 * probability, 3.4e-9 at 262,144 words. */
enum { DG_DRAW_RANKS = 128, DG_DRAW_NATS = 32 };
typedef struct dg_draw_options {
    float temperature; /* on top of the step's own; 0: the arg-max is the draw */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off; above 0 */
    float min_p;       /* 0: off */
} dg_draw_options;

/* One request's wishes for the vocabulary end. Bias and bans act on the logits before the
 * temperature, so the entropy, the draw and the soft embedding all see them; `draw` changes the
 * draw alone. */
enum { DG_MAX_TOP = 20 };

/* What is found out about the words of a class at a row. */
typedef struct dg_class_finding {
    double best;       /* log-probability of the likeliest; -infinity: it has no words */
    double mass;       /* log of the probability of all together */
    double inner;      /* sum of p ln p */
    double warm;       /* log of the sum of p^power; with power 1 that is mass */
    double uniform;    /* in: in [0, 1), for the draw; used up */
    int32_t id, drawn; /* the likeliest, the lowest id on ties; one drawn by p^power */
} dg_class_finding;

/* What a request wants to know of p at each row of its canvas, beside what everybody gets: exact
 * log-probabilities of certain words, sums over classes that every word is in one of, and the
 * likeliest words, likeliest first, equal ones by id (-1: there are no more). Host memory, n rows
 * of each, filled when finish() returns; bias and bans are in p, the draw's options are not. */
enum { DG_ASKED_MAX = 2048, DG_ASKED_CLASSES = 8, DG_ASKED_TOP = 64 };
typedef struct dg_asked {
    const int32_t *id; /* [n_id] ascending */
    int n_id;
    const uint8_t
        *class_of;    /* [n_vocab], each below DG_ASKED_CLASSES; NULL where no class is reported */
    unsigned classes; /* a mask: those that are reported */
    float power;      /* where there are classes, above 0: 1 / temperature of draws inside them */

    float *logprob;          /* [n, n_id] */
    dg_class_finding *found; /* [n, DG_ASKED_CLASSES] */
    int32_t *top_id;         /* [n, DG_ASKED_TOP] */
    float *top_logprob;
} dg_asked;

typedef struct dg_vocabulary_options {
    const dg_logit_bias *bias; /* ascending ids */
    int n_bias;
    const int32_t *banned; /* ascending ids; not all of them */
    int n_banned;
    const dg_draw_options *draw; /* NULL: from p */
    int n_top;                   /* most likely words to report, up to DG_MAX_TOP */
    const dg_asked *asked;       /* or NULL */
} dg_vocabulary_options;

/* ---- the batch ---- */

/* Positions [first, end). */
typedef struct dg_span {
    int first, end;
} dg_span;

/* A run of rows of one sequence, at consecutive positions. Encoded rows (prompt, commit) attend
 * causally and write their keys into the sequence's pages. Canvas rows attend both ways, over the
 * pages and over each other; their keys die with the pass. */
typedef struct dg_segment {
    bool canvas;
    int first_row, n_row;
    int position;                      /* of the first row */
    const int32_t *page[DG_KV_GROUPS]; /* page[g][i] holds positions i * DG_PAGE … */
    int n_page[DG_KV_GROUPS];
    const float *features; /* encoded: rows of picture features, in the backend's memory; or NULL */
    const dg_adapter_use *adapter; /* [n_adapter] */
    int n_adapter;

    /* canvas: */
    float *soft; /* [n_row, n_embd] the backend's memory. In: the last step's soft embedding. Out:
                    this step's. NULL: there is none */
    bool first_step; /* soft does not hold anything yet */
    bool last_step;  /* nobody needs this step's soft embedding: it may be made or not */
    float temperature;
    const dg_vocabulary_options *options; /* or NULL */
} dg_segment;

/* How the tokens of a picture see each other. WHOLE: their block whole, in every layer and even
 * beyond the window, as the reference's generate() does. IN_WINDOW: in sliding layers only and
 * inside the window, as Gemma 4 does. */
typedef enum dg_image_rule { DG_IMAGES_WHOLE, DG_IMAGES_IN_WINDOW } dg_image_rule;

/* What the vocabulary end finds out about each canvas row: host memory, filled when finish()
 * returns. */
typedef struct dg_findings {
    float *entropy; /* [n] nats; NaN: the row's p is not a number, its other results mean nothing */
    int32_t *argmax; /* [n] lowest id on ties */
    int32_t *drawn;  /* [n] the first id whose cumulative p, in vocabulary order, exceeds uniform */
    float *logits;   /* [n, n_vocab] after softcap and bias, before the temperature; or NULL */

    /* Log-probabilities in p, or NULL. Of the arg-max [n]; of the most likely words [n,
     * DG_MAX_TOP], likeliest first, equal ones by id: as many as the row's options say. Id -1:
     * there are no more words. */
    float *logprob;
    int32_t *top_id;
    float *top_logprob;
} dg_findings;

typedef struct dg_batch {
    int n_row;
    int n_encode;            /* rows [0, n_encode) are encoded, the rest are canvas */
    const int32_t *token;    /* [n_row] */
    const int32_t *position; /* [n_row] */
    const dg_span *block;   /* [n_row] image block an encoded row belongs to; {p, p + 1} for text */
    const int32_t *feature; /* [n_row] row of its segment's features that replaces the embedding, or
                               -1; NULL: no row has one */
    dg_image_rule images;
    int n_segment;
    const dg_segment *segment; /* in the order of their rows */
    const dg_kv_store *kv;     /* has the segments' pages; NULL where no stage asks for them */

    /* for the vocabulary end; n_row - n_encode of each */
    const double *uniform; /* in [0, 1) */
    const float *given; /* [n, n_vocab]: take these as z instead of computing it (teacher forcing);
                           host memory, or NULL */
    dg_findings out;

    bool watched; /* the caller downloads between stages */
} dg_batch;

/* The segment that a row is in. */
static inline const dg_segment *dg_batch_segment(const dg_batch *b, int row)
{
    int lo = 0, hi = b->n_segment - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (b->segment[mid].first_row <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &b->segment[lo];
}

/* The keys an encoded row at position p sees. window 0: no limit. */
static inline dg_span dg_encode_span(int p, dg_span block, int window, dg_image_rule images)
{
    int first = window && p >= window ? p - window + 1 : 0;
    dg_span seen = {first, p + 1};
    if (images == DG_IMAGES_IN_WINDOW && !window)
        return seen;
    seen.end = block.end > seen.end ? block.end : seen.end;
    if (images == DG_IMAGES_WHOLE && block.first < first)
        seen.first = block.first;
    return seen;
}

/* The prefix keys that a canvas starting at position p sees, the same for each of its rows: the
 * last window - 1. */
static inline dg_span dg_canvas_span(int p, int window)
{
    return (dg_span){window && p >= window ? p - window + 1 : 0, p};
}

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

/* cos[r][i], sin[r][i] of position[r] * frequency[i], the product in float. All rows. */
typedef struct dg_rope_table_args {
    const dg_rope *rope;
    const float *frequency; /* [n_pair] */
} dg_rope_table_args;

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
 * the layer start from the same rows of x: a backend may make their norm with this one. */
typedef struct dg_dense_args {
    float *out;
    const float *x;
    const dg_mlp_weights *w;
    const dg_expert_weights *experts;
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

/* ---- the vision tower ----  A pass of its own, between vision_begin() and finish(), over the
 * patches of a few pictures. x is the residual stream [n_patch, n_embd], picture after picture.
 * Patches attend both ways, to those of their own picture only. */

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

/* ---- the backend ---- */

/* Largest sizes that stages will see; scratch is allocated once for them. */
typedef struct dg_plan {
    int n_row;
    int n_embd, n_ff, n_vocab;
    int max_head_dim, max_group; /* over all layers; group: query heads that share a key head */
    int max_q_dim, max_kv_dim;   /* heads times head_dim */
    int window[DG_KV_GROUPS];    /* of the layers of a group; 0: none */
    int n_segment;               /* segments of a pass */
    dg_dtype kv_type;
    int n_expert, n_expert_used, n_ff_expert;
    float rms_eps;
} dg_plan;

typedef struct dg_backend dg_backend;
struct dg_backend {
    const char *name;
    const char *address;       /* of a GPU on the PCI bus; NULL: it is none */
    const char *profile;       /* of its numerics: what docs/architecture.md promises for a seed */
    const char *block_profile; /* of a model with weights of block types; NULL: the same */

    /* Both of a model with a tower of bfloat16 weights, or with heads of bfloat_head values or more
     * whose keys meet them as bfloat16: all but those that are kept as floats; NULL: the same. */
    const char *bfloat_profile, *bfloat_block_profile;
    int bfloat_head;

    /* Of a model with weights of block types whose rows have byte_in values or more; NULL: none is
     * different. */
    const char *byte_profile;
    int byte_in;

    /* Weights stay where their tensors' data is: it must outlive them. */
    bool borrows_weights;

    bool answers; /* what segments ask about words (dg_asked) */

    /* Rows of a pass that this backend likes: canvases' together, and those of one prompt. */
    int canvas_rows, prompt_rows;

    /* Patches up to which pictures share a pass of the tower: more together would be no faster, and
     * whoever waits for the pass would wait longer. A larger picture has one of its own. */
    int picture_patches;

    void (*close)(dg_backend *be); /* weights go with it */

    /* 64-byte aligned, uninitialised; NULL when memory is out. What is moved here is in order with
     * the stages; upload() has read src when it returns, download() has written dst. */
    void *(*alloc)(dg_backend *be, size_t bytes);
    size_t (*room)(dg_backend *be); /* bytes that alloc() may still give; NULL: nobody knows */
    void (*free)(dg_backend *be, void *p); /* NULL is fine */
    void (*upload)(dg_backend *be, void *dst, const void *src, size_t bytes);
    void (*download)(dg_backend *be, void *dst, const void *src, size_t bytes);
    void (*copy)(dg_backend *be, void *dst, const void *src, size_t bytes);

    dgemma_status (*weight_init)(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                 dgemma_error *err);
    void (*weights_done)(dg_backend *be); /* what only they needed can go; or NULL */

    /* Pages for keys and values within max_bytes (0: no bound): how many of each group there can be
     * is written to n_page. A page can be used between kv_take(), which finds memory for it, and
     * kv_give(), which may give that back to the system. */
    dgemma_status (*kv_open)(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                             size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err);
    void (*kv_close)(dg_backend *be, dg_kv_store *kv); /* NULL is fine */
    bool (*kv_take)(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
    void (*kv_give)(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
    void (*kv_copy)(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from);

    /* One layer's keys or values of a page as floats, [n_kv_head][DG_PAGE][head_dim] in host
     * memory. */
    void (*kv_read)(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                    float *out);

    /* A page of a group as it lies, dg_kv_page_bytes() of it, out and in again: as the same numbers
     * only for a backend with the same numerics. */
    void (*kv_save)(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page, void *out);
    void (*kv_load)(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page, const void *from);

    /* What plan() will allocate, and the allocation. */
    size_t (*plan_bytes)(dg_backend *be, const dg_plan *plan);
    dgemma_status (*plan)(dg_backend *be, const dg_plan *plan, dgemma_error *err);

    /* The batch and all that it points to is borrowed until finish(), which waits for the pass. */
    void (*begin)(dg_backend *be, const dg_batch *batch);
    dgemma_status (*finish)(dg_backend *be, dgemma_error *err);

    /* DGEMMA_E_INTERNAL: the device is lost, nothing runs any more. Any thread. NULL: it cannot be.
     */
    dgemma_status (*check)(const dg_backend *be, dgemma_error *err);

    /* Seconds that a device of its own computed in the last pass; what the pass took beyond them is
     * the host's and that of copies. NULL: the host computes. */
    double (*device_seconds)(dg_backend *be);

    /* Rows of the last pass whose soft embedding is a sum of few words, which were gathered. NULL:
     * nobody counts. */
    int (*gathered)(dg_backend *be);

    void (*embed)(dg_backend *be, const dg_embed_args *a);
    void (*condition)(dg_backend *be, const dg_condition_args *a);
    void (*rope_table)(dg_backend *be, const dg_rope_table_args *a);
    void (*qkv)(dg_backend *be, const dg_qkv_args *a);
    void (*attention)(dg_backend *be, const dg_attention_args *a);
    void (*attention_out)(dg_backend *be, const dg_attention_out_args *a);
    void (*dense)(dg_backend *be, const dg_dense_args *a);
    void (*route)(dg_backend *be, const dg_route_args *a);
    void (*experts)(dg_backend *be, const dg_experts_args *a);
    void (*join)(dg_backend *be, const dg_join_args *a);
    void (*norm)(dg_backend *be, const dg_norm_args *a);
    void (*vocabulary)(dg_backend *be, const dg_vocabulary_args *a);

    /* The vision tower has a plan beside the other; NULL where a backend does not run it. */
    size_t (*vision_plan_bytes)(dg_backend *be, const dg_vision_plan *plan);
    dgemma_status (*vision_plan)(dg_backend *be, const dg_vision_plan *plan, dgemma_error *err);
    void (*vision_begin)(dg_backend *be,
                         const dg_vision_batch *batch); /* borrowed until finish() */
    void (*vision_embed)(dg_backend *be, const dg_vision_embed_args *a);
    void (*vision_attention)(dg_backend *be, const dg_vision_attention_args *a);
    void (*vision_mlp)(dg_backend *be, const dg_vision_mlp_args *a);
    void (*vision_project)(dg_backend *be, const dg_vision_project_args *a);
};

#endif
