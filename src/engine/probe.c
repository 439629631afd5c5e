#include "engine/probe.h"
#include "base/common.h"

dgemma_status dg_probe_load(dg_probe *p, const char *model_path, int n_layer, dgemma_error *err)
{
    *p = (dg_probe){0};
    dgemma_status st = dg_load(&p->loaded, model_path, err);
    if (!st && n_layer)
        p->loaded.cfg.n_layer = dg_min(n_layer, p->loaded.cfg.n_layer);
    return st;
}

dgemma_status dg_probe_start(dg_probe *p, dg_dtype kv_type, int n_row, dgemma_error *err)
{
    const dg_config *cfg = &p->loaded.cfg;
    dgemma_status st = dg_model_load(&p->model, cfg, p->loaded.checkpoint, p->be, err);
    st = st ? st : dg_kv_cache_create(&p->kv, cfg, p->be, kv_type, 0, err);
    return st ? st : dg_forward_create(&p->forward, p->model, p->kv, n_row, 1, err);
}

void dg_probe_clear(dg_probe *p)
{
    dg_forward_free(p->forward);
    dg_kv_cache_free(p->kv);
    dg_model_free(p->model);
    if (p->be)
        p->be->close(p->be);
    dg_loaded_clear(&p->loaded);
    *p = (dg_probe){0};
}
