/* A loaded model with everything it needs to run: the struct behind dgemma_engine. */
#ifndef DG_ENGINE_ENGINE_H
#define DG_ENGINE_ENGINE_H

#include "dgemma.h"
#include "engine/loader.h"
#include "engine/request.h"

/* A pass has room for a commit and a canvas together, or for a good piece of a prompt. */
enum { DG_MIN_PASS_ROWS = 512 };

struct dgemma_engine {
    dg_loaded loaded;
    dg_backend *be;
    dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
    int n_context, n_thread;
};

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err);
void dg_engine_close(dgemma_engine *e);

/* Runs a request to its end, telling `on_event` about every pass. */
dgemma_status dg_engine_generate(dgemma_engine *e, const dg_request_config *cfg,
                                 dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                                 dgemma_error *err);

#endif
