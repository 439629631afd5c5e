/* What a device must do for the model: memory, and a dozen stages coarse enough to fuse inside. The
 * CPU backend with its reference kernels is the definition of each stage; other backends are
 * checked against it.
 *
 * What goes in and out is in headers of its own: weights and keys (backend_memory.h), the rows of a
 * pass (backend_batch.h), the arguments of its stages (backend_stages.h) and of those of the vision
 * tower (backend_vision.h).
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
#include "backend/backend_batch.h"
#include "backend/backend_memory.h"
#include "backend/backend_stages.h"
#include "backend/backend_vision.h"
#include "base/error.h"

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
