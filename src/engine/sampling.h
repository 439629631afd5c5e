/* What a request asks of the draws, from public options to the backend's own. */
#ifndef DG_ENGINE_SAMPLING_H
#define DG_ENGINE_SAMPLING_H

#include "backend/backend.h"
#include "dgemma.h"

enum { DG_MAX_LOGIT_BIAS = 1024 };

/* DGEMMA_E_ARG names the option that makes no sense for a vocabulary of n_vocab words. */
dgemma_status dg_sampling_check(const dgemma_request_options *o, int n_vocab, dgemma_error *err);

/* A request's own copy. */
typedef struct dg_sampling {
    dg_draw_options draw;
    dg_logit_bias *bias; /* ascending ids */
    int n_bias;
} dg_sampling;

/* The options were checked. */
dgemma_status dg_sampling_init(dg_sampling *s, const dgemma_request_options *o, dgemma_error *err);
void dg_sampling_clear(dg_sampling *s);

/* As the vocabulary end takes them; borrows from *s. */
dg_vocabulary_options dg_sampling_options(const dg_sampling *s);

#endif
