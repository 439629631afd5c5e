/* A model ready for single passes, without an engine around it: for tools that look at what a model
 * computes. One thread. */
#ifndef DG_ENGINE_PROBE_H
#define DG_ENGINE_PROBE_H

#include "engine/loader.h"
#include "model/forward.h"

typedef struct dg_probe {
    dg_loaded loaded;
    dg_backend *be;
    dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
} dg_probe;

/* Reads the model. n_layer: cut after so many layers; 0: all of them. Clear *p also after a
 * failure, here and below. */
dgemma_status dg_probe_load(dg_probe *p, const char *model_path, int n_layer, dgemma_error *err);

/* Passes of up to n_row rows of one sequence on p->be, which the caller has set; it is closed with
 * the rest. */
dgemma_status dg_probe_start(dg_probe *p, dg_dtype kv_type, int n_row, dgemma_error *err);

void dg_probe_clear(dg_probe *p); /* a {0} probe is fine */

#endif
