/* Which questions the model is told of together: their prompts, and the canvases that are read. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/error.h"
#include "decide/decide_internal.h"

static dgemma_status make_prompt(dgemma_decision *d, decide_group *g, const char *messages,
                                 dgemma_error *err)
{
    dgemma_request_options r = dgemma_request_defaults(d->layout.engine);
    dg_buf told;
    dg_buf_init(&told, (size_t)16 << 20);
    dgemma_status st = decide_instructions(&told, d->questions, g->list, g->n, g->order)
                           ? DGEMMA_OK
                           : dg_fail(err, told.len < told.max / 2 ? DGEMMA_E_NOMEM : DGEMMA_E_LIMIT,
                                     "no room for the questions");
    r.system = told.data;
    r.messages = messages;
    r.media = d->o.media;
    r.n_media = d->o.n_media;
    r.image_tokens = d->o.image_tokens;
    r.cache_salt = d->o.cache_salt;
    r.adapters = d->adapters;
    r.n_adapters = d->o.n_adapters;
    r.thinking = d->o.think > 0;
    if (!st)
        st = dgemma_prompt_create(&g->prompt, d->layout.engine, &r, err);
    if (!st)
        d->stats.n_prompt += (int)dgemma_prompt_length(g->prompt);
    dg_buf_clear(&told);
    return st;
}

/* Labels of the canvas's questions, each once, and room for what is found out about them. */
static dgemma_status make_ids(const dgemma_decision *d, const decide_group *g, decide_canvas *c,
                              dgemma_error *err)
{
    for (size_t i = 0; i < c->n; i++)
        c->n_label += d->questions[g->list[c->first + i]].n_options;
    int most = d->o.samples ? d->o.samples : 1 + DECIDE_MORE;
    c->ids = dg_array(c->n_label, sizeof *c->ids);
    c->logprob = dg_calloc((size_t)most * c->n_label, sizeof *c->logprob);
    if (!c->ids || !c->logprob)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < c->n; i++) {
        const decide_question *q = &d->questions[g->list[c->first + i]];
        for (size_t k = 0; k < q->n_options; k++) {
            size_t at = 0;
            while (at < c->n_ids && c->ids[at] != q->labels[k].id)
                at++;
            c->ids[at] = q->labels[k].id;
            c->n_ids += at == c->n_ids;
        }
    }
    return DGEMMA_OK;
}

dgemma_status decide_make_canvases(dgemma_decision *d, decide_group *g, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    g->canvases = dg_calloc(g->n, sizeof *g->canvases);
    if (!g->canvases)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t at = 0; !st && at < g->n;) {
        decide_canvas *c = &g->canvases[g->n_canvas++];
        c->first = at;
        c->n = decide_fit(&d->layout, d->questions, g->list + at, g->n - at, g->thought);
        if (!c->n)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "the model's canvas of %d positions is too short for a decision",
                           d->layout.canvas_length);
        c->width = decide_fill(&d->layout, d->questions, g->list + at, c->n, g->thought, c->token,
                               c->slot);
        c->n_wanted = dg_max(1, d->o.samples);
        at += c->n;
        st = make_ids(d, g, c, err);
    }
    return st;
}

dgemma_status decide_make_groups(dgemma_decision *d, const size_t *list, size_t n,
                                 dgemma_error *err)
{
    dg_buf message;
    dg_buf_init(&message, (size_t)256 << 20);
    size_t each = d->o.independent ? 1 : n, orders = (size_t)d->o.orders;
    d->groups = dg_calloc(n / each * orders, sizeof *d->groups);
    dgemma_status st = d->groups ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st && d->o.state && !decide_message(&message, d->o.state, d->o.n_media))
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for the state");
    for (size_t order = 0; !st && order < orders; order++)
        for (size_t at = 0; !st && at < n; at += each) {
            decide_group *g = &d->groups[d->n_groups++];
            *g = (decide_group){.n = each, .order = order, .thinks = d->o.think > 0};
            g->list = dg_array(each, sizeof *g->list);
            if (!g->list) {
                st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
                break;
            }
            memcpy(g->list, list + at, each * sizeof *list);
            st = make_prompt(d, g, d->o.state ? message.data : d->o.messages, err);
            if (!st && !g->thinks)
                st = decide_make_canvases(d, g, err);
        }
    dg_buf_clear(&message);
    return st;
}

void decide_clear_group(decide_group *g)
{
    for (size_t i = 0; g->canvases && i < g->n_canvas; i++) {
        dg_free(g->canvases[i].ids);
        dg_free(g->canvases[i].logprob);
    }
    dg_free(g->canvases);
    dg_free(g->list);
    dg_free(g->tokens);
    dgemma_prompt_free(g->prompt);
}
