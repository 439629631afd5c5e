/* What a request's canvases start with, from public options to the engine's own: a canvas of the
 * caller's, or a gap with what stands around it. On the caller's thread. */
#ifndef DG_ENGINE_REQUEST_START_H
#define DG_ENGINE_REQUEST_START_H

#include "engine/engine.h"
#include "engine/request.h"

/* DGEMMA_E_ARG names the option that makes no sense. */
dgemma_status dg_request_start_check(const dgemma_engine *e, const dgemma_request_options *o,
                                     dgemma_error *err);

/* The options were checked, and r->cfg is filled but for its start and infill. DGEMMA_E_LIMIT: the
 * passage is too long for a canvas; DGEMMA_E_CONTEXT: there is no room for it. */
dgemma_status dg_request_start(dgemma_request *r, const dgemma_engine *e,
                               const dgemma_request_options *o, dgemma_error *err);

#endif
