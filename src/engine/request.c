#include "engine/request.h"
#include "base/alloc.h"

void dg_request_drop_prompt(dgemma_request *r)
{
    dg_prompt_release(r->prompt);
    r->prompt = NULL;
    dg_guide_free(r->guide);
    dg_constraint_release(r->constraint);
    r->guide = NULL;
    r->constraint = NULL;
}

void dg_request_release(dgemma_request *r)
{
    if (!r || atomic_fetch_sub(&r->n_holder, 1) > 1)
        return;
    dg_stream_free(r->stream);
    dg_request_drop_prompt(r);
    for (size_t i = 0; i < r->answer.n_stop; i++)
        dg_free(r->answer.stop[i]);
    dg_free(r->answer.stop);
    dg_free(r->prefix_salt);
    dg_free(r->given);
    dg_free(r->pinned);
    dg_sampling_clear(&r->sampling);
    dg_read_free(r->read);
    dg_free(r);
}
