/* Log-probabilities of a block's tokens, for requests that ask for them. A pass leaves those of its
 * step; what is reported of a position is the last step before it was pinned, or the block's last.
 */
#ifndef DG_ENGINE_LOGPROBS_H
#define DG_ENGINE_LOGPROBS_H

#include "model/forward.h"

typedef struct dg_logprobs {
    bool on;
    int n_top;

    /* the step's, filled by a pass (dg_work) */
    float *step_logprob;     /* [capacity] */
    int32_t *step_top;       /* [capacity, DG_MAX_TOP] */
    float *step_top_logprob; /* [capacity, DG_MAX_TOP] */

    /* what is reported */
    float *logprob, *entropy; /* [capacity] */
    int32_t *top;             /* [capacity, n_top] */
    float *top_logprob;       /* [capacity, n_top] */
} dg_logprobs;

/* n_top alternatives at each of up to `capacity` positions. Left zero, nothing is kept. */
dgemma_status dg_logprobs_init(dg_logprobs *l, int n_top, int capacity, dgemma_error *err);
void dg_logprobs_clear(dg_logprobs *l);

/* Positions [first, n) are reported as this step has them. */
void dg_logprobs_keep(dg_logprobs *l, const float *entropy, int first, int n);

#endif
