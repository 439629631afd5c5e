#include "backend/kv_layout.h"
#include <string.h>
#include "base/alloc.h"

size_t dg_kv_layout_layer_bytes(const dg_kv_layout *l, int layer)
{
    return dg_kv_layer_bytes(l->type, &l->layer[layer]);
}

dgemma_status dg_kv_layout_init(dg_kv_layout *l, const dg_kv_config *cfg, dgemma_error *err)
{
    size_t n = (size_t)cfg->n_layer, at[DG_KV_GROUPS] = {0};
    *l = (dg_kv_layout){.type = cfg->type, .n_layer = cfg->n_layer};
    l->layer = dg_array(n, sizeof *l->layer);
    l->offset = dg_array(n, sizeof *l->offset);
    if (!l->layer || !l->offset) {
        dg_kv_layout_clear(l);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    memcpy(l->layer, cfg->layer, n * sizeof *l->layer);
    for (int i = 0; i < cfg->n_layer; i++) {
        l->offset[i] = at[l->layer[i].group];
        at[l->layer[i].group] += dg_kv_layout_layer_bytes(l, i);
    }
    dg_kv_page_bytes(l->page_bytes, cfg);
    return DGEMMA_OK;
}

void dg_kv_layout_clear(dg_kv_layout *l)
{
    dg_free(l->layer);
    dg_free(l->offset);
    *l = (dg_kv_layout){.n_layer = 0};
}
