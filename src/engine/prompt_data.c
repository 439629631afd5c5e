#include "engine/prompt_data.h"
#include "base/alloc.h"

dgemma_prompt *dg_prompt_hold(dgemma_prompt *p)
{
    atomic_fetch_add(&p->n_holder, 1);
    return p;
}

void dg_prompt_release(dgemma_prompt *p)
{
    if (!p || atomic_fetch_sub(&p->n_holder, 1) > 1)
        return;
    dg_tokens_clear(&p->tokens);
    dg_pictures_clear(&p->pictures);
    dg_free(p->salt);
    dg_free(p);
}
