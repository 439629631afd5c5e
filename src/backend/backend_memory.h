/* What lies in a backend's memory for longer than a pass: weights, and the pages of keys and
 * values. */
#ifndef DG_BACKEND_BACKEND_MEMORY_H
#define DG_BACKEND_BACKEND_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/low_rank.h"
#include "tensor/kv_numbers.h"
#include "tensor/tensor.h"

/* ---- weights ---- */

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

#endif
