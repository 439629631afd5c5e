#include "engine/logprobs.h"
#include <string.h>
#include "base/alloc.h"

dgemma_status dg_logprobs_init(dg_logprobs *l, int n_top, int capacity, dgemma_error *err)
{
    size_t n = (size_t)capacity, most = n * DG_MAX_TOP, top = n * (size_t)n_top;
    *l = (dg_logprobs){
        .on = true,
        .n_top = n_top,
        .step_logprob = dg_calloc(n, sizeof *l->step_logprob),
        .step_top = dg_calloc(most, sizeof *l->step_top),
        .step_top_logprob = dg_calloc(most, sizeof *l->step_top_logprob),
        .logprob = dg_calloc(n, sizeof *l->logprob),
        .entropy = dg_calloc(n, sizeof *l->entropy),
        .top = dg_calloc(top + 1, sizeof *l->top),
        .top_logprob = dg_calloc(top + 1, sizeof *l->top_logprob),
    };
    if (l->step_logprob && l->step_top && l->step_top_logprob && l->logprob && l->entropy &&
        l->top && l->top_logprob)
        return DGEMMA_OK;
    dg_logprobs_clear(l);
    return dg_fail(err, DGEMMA_E_NOMEM, "no memory for log-probabilities");
}

void dg_logprobs_clear(dg_logprobs *l)
{
    dg_free(l->step_logprob);
    dg_free(l->step_top);
    dg_free(l->step_top_logprob);
    dg_free(l->logprob);
    dg_free(l->entropy);
    dg_free(l->top);
    dg_free(l->top_logprob);
    *l = (dg_logprobs){0};
}

void dg_logprobs_keep(dg_logprobs *l, const float *entropy, int first, int n)
{
    if (!l->on)
        return;
    size_t n_top = (size_t)l->n_top;
    for (size_t i = (size_t)first; i < (size_t)n; i++) {
        l->logprob[i] = l->step_logprob[i];
        l->entropy[i] = entropy[i];
        memcpy(l->top + i * n_top, l->step_top + i * DG_MAX_TOP, n_top * sizeof *l->top);
        memcpy(l->top_logprob + i * n_top, l->step_top_logprob + i * DG_MAX_TOP,
               n_top * sizeof *l->top_logprob);
    }
}
