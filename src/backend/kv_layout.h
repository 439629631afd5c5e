/* How a page of keys and values is divided among its layers: the same for every backend that keeps
 * a layer's K and V together. */
#ifndef DG_BACKEND_KV_LAYOUT_H
#define DG_BACKEND_KV_LAYOUT_H

#include "backend/backend.h"

typedef struct dg_kv_layout {
    dg_dtype type;
    int n_layer;
    dg_kv_layer *layer;
    size_t *offset; /* of the layer's K in a page of its group; V follows */
    size_t page_bytes[DG_KV_GROUPS];
} dg_kv_layout;

/* Owns copies of all that it needs of cfg. */
dgemma_status dg_kv_layout_init(dg_kv_layout *l, const dg_kv_config *cfg, dgemma_error *err);
void dg_kv_layout_clear(dg_kv_layout *l);

/* Bytes of one layer's K and V in a page. */
size_t dg_kv_layout_layer_bytes(const dg_kv_layout *l, int layer);

#endif
