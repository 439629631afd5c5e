#include "engine/constraint_data.h"
#include "base/alloc.h"

dgemma_constraint *dg_constraint_hold(dgemma_constraint *c)
{
    atomic_fetch_add(&c->n_holder, 1);
    return c;
}

void dg_constraint_release(dgemma_constraint *c)
{
    if (!c || atomic_fetch_sub(&c->n_holder, 1) > 1)
        return;
    dg_language_free(c->language);
    dg_syntax_free(c->syntax);
    dg_buf_clear(&c->ignored);
    pthread_mutex_destroy(&c->lock);
    dg_free(c);
}
