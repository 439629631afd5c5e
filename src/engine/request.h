/* The struct behind the public handle: a piece of work, from the caller's thread to the scheduler's
 * and back. What happens to it there is block_loop.h's and answer.h's. */
#ifndef DG_ENGINE_REQUEST_H
#define DG_ENGINE_REQUEST_H

#include <stdatomic.h>
#include "dgemma.h"
#include "engine/answer.h"
#include "engine/block_loop.h"
#include "engine/pictures.h"
#include "engine/sampling.h"

/* Held by two sides, the caller and the engine; the last one to let go frees it. */
struct dgemma_request {
    atomic_int n_holder;
    dg_stream *stream;
    dg_block_loop_config cfg; /* cfg.prompt is owned here */
    int32_t *prompt;
    dg_pictures pictures;    /* pictures.salt is cache_salt */
    char *cache_salt;        /* NULL: none */
    dg_answer_config answer; /* answer.stop is owned here */
    dg_sampling sampling;
    double submitted;
    size_t kv_bytes;      /* set aside for it while it runs */
    dgemma_request *next; /* in the queue; the scheduler's lock */
};

/* Lets go of a request; the last one frees it. */
void dg_request_release(dgemma_request *r);

#endif
