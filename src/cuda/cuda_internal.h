/* Shared by the host files of the CUDA backend. */
#ifndef DG_CUDA_CUDA_INTERNAL_H
#define DG_CUDA_CUDA_INTERNAL_H

#include <stdatomic.h>
#include "backend/kv_layout.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_places.h"
#include "cuda/cuda_vision.h"
#include "cuda/cuda_words.h"

/* ---- the batch on the device ---- */

/* Arrays at places that depend on the pass's shape alone, in one piece that is sent at once; behind
 * them page tables and lists of words, which are only pointed to from inside. */
typedef struct dg_cuda_batch {
    int32_t *token, *position;              /* [n_row] */
    int32_t *segment_of;                    /* [n_row] */
    int32_t *seen[DG_KV_GROUPS];            /* [n_row][2] */
    dg_cuda_segment *segment[DG_KV_GROUPS]; /* [n_segment] */
    dg_cuda_uses *uses;                     /* [n_segment] */
    const float **feature;                  /* [n_row] */
    dg_cuda_word_row *word;                 /* [canvas rows] */
    unsigned char *tail;
} dg_cuda_batch;

/* ---- graphs ---- */

/* All that decides which kernels a pass launches with which arguments. */
typedef struct dg_cuda_shape {
    int n_row, n_encode, n_segment;
    bool feature, given, changed, special, listed, asked, soft, adapted;
    const void *kv;     /* the store */
    size_t batch_bytes; /* that are taken from the host */
} dg_cuda_shape;

enum { DG_CUDA_GRAPHS = 16 };

typedef struct dg_cuda_graph {
    dg_cuda_shape shape;
    cudaGraphExec_t exec; /* NULL: seen once, not kept yet */
    cudaGraphExec_t rest; /* what a pass computes behind its results, or NULL: nothing */
    uint64_t used;
} dg_cuda_graph;

/* Points in a pass's time on the device. */
typedef struct dg_cuda_marks {
    cudaEvent_t from, found, to; /* found: its results are there */
    bool rest;                   /* something follows behind `found` */
} dg_cuda_marks;

/* ---- the vision tower: cuda_tower.c ---- */

typedef struct dg_cuda_tower {
    bool floats; /* some of its weights are floats, and so are the rows they multiply */
    dg_vision_plan plan;
    void *scratch;
    void *rows;   /* inputs of products */
    float *y;     /* their results; pixels before */
    void *shared; /* qkv, then the inside of the MLP */
    void *held;   /* inputs within their ranges */
    float *gate;  /* and gate and up within theirs */
    dg_cuda_vision_qkv qkv;
    const dg_vision_batch *batch;
    dg_cuda_pictures pictures;
    dg_cuda_add_args add; /* of x, waiting for the norm behind it; .x NULL: none */
} dg_cuda_tower;

typedef struct dg_cuda {
    dg_backend base;
    int device;
    char address[32];
    bool exact;
    dg_dtype narrow; /* what experts' weights are made: DG_FP8, DG_INT4, or 0, as they are stored */
    size_t max_bytes, free_at_open; /* of the device's memory; max_bytes 0: no bound */
    cudaStream_t stream;
    /* A pass's soft embedding needs nobody but the next pass: the host has the results before it,
     * and may begin the next pass meanwhile. So two passes' marks are needed. */
    dg_cuda_marks marks[2];
    int turn; /* whose they are now */
    cudaEvent_t fetched;
    double device_seconds; /* of the last pass, */
    int n_gathered;        /* and its rows whose soft embedding was gathered */
    /* Beside it, what the dense branch of a layer and its router do at the same time: the router,
     * or its choice, begins at `parted`, and `sorted` is where the experts may begin. */
    cudaStream_t side;
    cudaEvent_t parted, sorted;
    cudaError_t error; /* the first; sticks until finish() */
    const char *where;
    atomic_int lost; /* a cudaError_t that no call gets past any more */

    struct dg_cuda_weight *weights;     /* freed at close */
    const struct dg_cuda_weight *table; /* the embedding's */
    void *stage;                        /* of weights on their way */
    size_t stage_bytes;

    dg_plan plan;
    void *scratch;       /* allocated by plan() in one piece */
    dg_cuda_rows rows;   /* [n_row, max(2 n_embd, q_dim)] inputs of products */
    dg_cuda_rows hidden; /* [n_row, n_ff] */
    float *k, *v;        /* [n_row, max_kv_dim] */
    float *y;            /* [n_row, n_embd] results of products */
    void *experts, *router, *parts;
    size_t parts_bytes;
    int32_t *part_counter; /* a multiple of what a launch counts between launches */
    unsigned char *canvas; /* the canvases' pages of one layer */
    dg_cuda_words words;
    int word_rows;          /* of the vocabulary end without logits that are worked on together */
    dg_cuda_findings found; /* in pinned memory, which kernels write to */
    void *found_memory;

    void *answers, *host_answers; /* to what rows are asked, on the device and in pinned memory */
    size_t answer_bytes, answer_room; /* of this pass, of the memory */
    const uint8_t *class_of;          /* the classes that were last put into the batch, */
    const uint8_t *device_class_of;   /* and where they are there */

    const dg_batch *batch;
    dg_cuda_batch on_host, on_device; /* the same places in pinned and in device memory */
    void *host_blob, *device_blob;
    size_t blob_bytes;
    const float *dense_norm, *experts_norm; /* what join() has to apply for the two branches */

    dg_cuda_angles angles[DG_KV_GROUPS]; /* that the embedding's launch makes, */
    int n_angles;                        /* of this pass so far */

    /* Changes of x that wait for the norms that start from it (cuda_stages.c); .x NULL: none. */
    dg_cuda_add_args add;
    dg_cuda_join_args joined;
    dg_cuda_soft_join_args soft_joined;
    dg_cuda_choices choices; /* of the experts' rows that join() sums */
    const float *experts_x;  /* rows of x whose norm for the experts has been made, or NULL */
    bool route_begun;        /* the products of their router have been made, */
    bool routed_aside;       /* its choice is on the side stream */
    const float *headed;     /* rows whose norm for the head has been made, or NULL */
    dg_cuda_shape shape;
    bool replay, capture;
    dg_cuda_graph graph[DG_CUDA_GRAPHS];
    uint64_t n_pass;

    dg_cuda_tower tower;
} dg_cuda;

static inline dg_cuda *dg_cuda_of(dg_backend *be)
{
    return (dg_cuda *)be;
}

/* Remembers the first error; true: there is one, or the pass is a graph and stages have nothing to
 * do. */
bool dg_cuda_failed(dg_cuda *cu, cudaError_t error, const char *where);
static inline bool dg_cuda_idle(const dg_cuda *cu)
{
    return cu->replay || cu->error;
}

/* ---- cuda_weights.c ---- */

/* What a weight's `data` points to: host memory that describes the device's. */
typedef struct dg_cuda_weight {
    struct dg_cuda_weight *next; /* of all there are */
    dg_cuda_matrix matrix;
    dg_dtype staged;      /* as it is sent; another type than the matrix's: made narrower there */
    bool gated;           /* gate or up of experts */
    bool down;            /* down of experts */
    const void *plain;    /* the router's: rows of the matrix's type without padding */
    void *memory, *scale; /* what it owns on the device */
    /* the table once more, as the head and the soft embedding multiply it; or NULL */
    const struct dg_cuda_weight *head, *soft;
} dg_cuda_weight;

static inline const dg_cuda_matrix *dg_cuda_matrix_of(const dg_weight *w)
{
    return &((const dg_cuda_weight *)w->data)->matrix;
}

static inline const dg_cuda_matrix *dg_cuda_head_of(const dg_cuda_weight *table)
{
    return table->head ? &table->head->matrix : &table->matrix;
}

static inline const dg_cuda_matrix *dg_cuda_soft_of(const dg_cuda_weight *table)
{
    return table->soft ? &table->soft->matrix : &table->matrix;
}

dgemma_status dg_cuda_weight_init(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                  dgemma_error *err);
void dg_cuda_weights_done(dg_backend *be);
void dg_cuda_weights_free(dg_cuda *cu);

/* ---- cuda_kv.c ---- */

struct dg_kv_store {
    dg_kv_layout layout;
    dg_cuda_places places;
    unsigned char *slab;
};

dgemma_status dg_cuda_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                              size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err);
void dg_cuda_kv_close(dg_backend *be, dg_kv_store *kv);
bool dg_cuda_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
void dg_cuda_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page);
void dg_cuda_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from);
void dg_cuda_kv_save(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page, void *out);
void dg_cuda_kv_load(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page,
                     const void *from);
void dg_cuda_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                     float *out);

/* ---- cuda_batch.c: from the host's batch to the device's, and results back ---- */

dgemma_status dg_cuda_batch_plan(dg_cuda *cu, dgemma_error *err);
size_t dg_cuda_batch_bytes(const dg_plan *plan);
void dg_cuda_begin(dg_backend *be, const dg_batch *batch);
void dg_cuda_mark_begin(dg_cuda *cu); /* what is enqueued from now on is a pass */
void dg_cuda_results_are_there(dg_cuda *cu);
dgemma_status dg_cuda_finish(dg_backend *be, dgemma_error *err);
dgemma_status dg_cuda_lost(const dg_backend *be, dgemma_error *err);
double dg_cuda_device_seconds(dg_backend *be);
int dg_cuda_gathered(dg_backend *be);
void dg_cuda_graphs_drop(dg_cuda *cu);

/* ---- cuda_answers.c: what requests ask about words ---- */

bool dg_cuda_answers_room(dg_cuda *cu, const dg_batch *b);
void dg_cuda_answers_free(dg_cuda *cu);
size_t dg_cuda_asked_bytes(const dg_cuda *cu, const dg_segment *s, const dg_asked *before);
dg_cuda_asked dg_cuda_ask(dg_cuda *cu, const dg_segment *s, size_t *at, size_t *answered);
dg_cuda_asked dg_cuda_ask_next(dg_cuda_asked row);
void dg_cuda_answers_hand_out(dg_cuda *cu);

/* ---- cuda_stages.c ---- */
void dg_cuda_embed_stage(dg_backend *be, const dg_embed_args *a);
void dg_cuda_condition_stage(dg_backend *be, const dg_condition_args *a);
void dg_cuda_rope_stage(dg_backend *be, const dg_rope_table_args *a);
void dg_cuda_qkv_stage(dg_backend *be, const dg_qkv_args *a);
void dg_cuda_attention_stage(dg_backend *be, const dg_attention_args *a);
void dg_cuda_attention_out_stage(dg_backend *be, const dg_attention_out_args *a);
void dg_cuda_dense_stage(dg_backend *be, const dg_dense_args *a);
void dg_cuda_route_stage(dg_backend *be, const dg_route_args *a);
void dg_cuda_experts_stage(dg_backend *be, const dg_experts_args *a);
void dg_cuda_join_stage(dg_backend *be, const dg_join_args *a);
void dg_cuda_norm_stage(dg_backend *be, const dg_norm_args *a);
void dg_cuda_vocabulary_stage(dg_backend *be, const dg_vocabulary_args *a);

/* ---- cuda_tower.c ---- */
size_t dg_cuda_vision_plan_bytes(dg_backend *be, const dg_vision_plan *plan);
dgemma_status dg_cuda_vision_plan(dg_backend *be, const dg_vision_plan *plan, dgemma_error *err);
void dg_cuda_vision_begin(dg_backend *be, const dg_vision_batch *batch);
void dg_cuda_vision_embed(dg_backend *be, const dg_vision_embed_args *a);
void dg_cuda_vision_attention_stage(dg_backend *be, const dg_vision_attention_args *a);
void dg_cuda_vision_mlp(dg_backend *be, const dg_vision_mlp_args *a);
void dg_cuda_vision_project(dg_backend *be, const dg_vision_project_args *a);

#endif
