#include "engine/prompt_data.h"
#include <string.h>
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
    if (p->base) {
        dg_free(p->pictures.block);
        dg_free(p->pictures.feature);
        dg_prompt_release(p->base);
    } else {
        dg_pictures_clear(&p->pictures);
    }
    dg_free(p->salt);
    dg_free(p);
}

/* The base's pictures, with places for tokens behind them: those are text. */
static bool extend_pictures(dg_pictures *to, const dg_pictures *from, size_t n_before, size_t n)
{
    *to = *from;
    to->memory = NULL;
    to->n_byte = 0;
    to->block = NULL;
    to->feature = NULL;
    if (!from->block || !from->feature)
        return true;
    to->block = dg_array(n, sizeof *to->block);
    to->feature = dg_array(n, sizeof *to->feature);
    if (!to->block || !to->feature)
        return false;
    memcpy(to->block, from->block, n_before * sizeof *to->block);
    memcpy(to->feature, from->feature, n_before * sizeof *to->feature);
    for (size_t i = n_before; i < n; i++) {
        to->block[i] = (dg_span){(int)i, (int)i + 1};
        to->feature[i] = -1;
    }
    return true;
}

dgemma_status dg_prompt_extend(dgemma_prompt **out, dgemma_prompt *base, const int32_t *tokens,
                               size_t n, dgemma_error *err)
{
    dgemma_prompt *p = dg_calloc(1, sizeof *p);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    atomic_init(&p->n_holder, 1);
    p->engine = base->engine;
    p->base = dg_prompt_hold(base);
    p->salt = base->salt ? dg_strdup(base->salt) : NULL;
    size_t n_all = base->tokens.n + n;
    dg_tokens_init(&p->tokens, n_all);
    bool ok = p->salt || !base->salt;
    for (size_t i = 0; ok && i < n_all; i++)
        ok = dg_tokens_push(&p->tokens,
                            i < base->tokens.n ? base->tokens.ids[i] : tokens[i - base->tokens.n]);
    ok = ok && extend_pictures(&p->pictures, &base->pictures, base->tokens.n, n_all);
    p->pictures.salt = p->salt;
    if (!ok) {
        dg_prompt_release(p);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a longer prompt");
    }
    *out = p;
    return DGEMMA_OK;
}
