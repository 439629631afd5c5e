/* The struct behind the public handle: a piece of work, from the caller's thread to the scheduler's
 * and back. What happens to it there is block_loop.h's and answer.h's. */
#ifndef DG_ENGINE_REQUEST_H
#define DG_ENGINE_REQUEST_H

#include <stdatomic.h>
#include "dgemma.h"
#include "engine/answer.h"
#include "engine/block_loop.h"
#include "engine/constraint_data.h"
#include "engine/prompt_data.h"
#include "engine/sampling.h"

/* Held by two sides, the caller and the engine; the last one to let go frees it. */
struct dgemma_request {
    atomic_int n_holder;
    dg_stream *stream;
    dgemma_prompt *prompt;    /* held until the request has ended; then NULL */
    dg_block_loop_config cfg; /* borrows from the prompt */
    dg_answer_config answer;  /* answer.stop is owned here */
    dg_sampling sampling;
    dgemma_constraint *constraint; /* held until the request has ended, with the next; or NULL */
    dg_guide *guide;
    dg_adapter_use adapter[DGEMMA_MAX_ADAPTER_USES]; /* of cfg.adapter */
    char
        *prefix_salt; /* who may share its prefixes: the prompt's salt, and adapters that read it */
    dg_read *read;    /* or NULL */
    dg_infill infill; /* of cfg.infill */
    int32_t *given;   /* tokens of the infill, or of cfg.start */
    uint8_t *pinned;  /* of cfg.start */
    double submitted;
    size_t kv_bytes;      /* set aside for it while it runs */
    size_t feature_bytes; /* of its pictures, likewise until its prompt is encoded */
    dgemma_request *next; /* in the queue; its lock */
};

/* The engine is done with the prompt and the constraint; a caller who is slow to free the request
 * need not keep them. */
void dg_request_drop_prompt(dgemma_request *r);

/* Lets go of a request; the last one frees it. */
void dg_request_release(dgemma_request *r);

#endif
