#include "engine/request_guide.h"
#include "base/common.h"
#include "engine/engine.h"

dgemma_status dg_request_constrain(dgemma_request *r, dgemma_engine *e,
                                   const dgemma_request_options *o, dgemma_error *err)
{
    const dg_config *model = &e->loaded.cfg;
    const dg_token_trie *trie;
    dgemma_status st = dg_engine_trie(e, &trie, err);
    if (st)
        return st;
    if (!model->n_stop)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "constraints: the model has no token that ends a turn");
    int n_room = r->cfg.n_context - r->cfg.n_prompt;
    r->constraint = dg_constraint_hold(o->constraint);
    dg_guide_options options = {
        .syntax = r->constraint->syntax,
        .trie = trie,
        .tokenizer = e->loaded.tokenizer,
        .stop = model->stop_token,
        .n_stop = model->n_stop,
        .pad = model->pad_token >= 0 ? model->pad_token : model->stop_token[0],
        .n_most = dg_min(o->max_tokens, n_room),
        .n_canvas = r->cfg.canvas_length,
        .think_open = e->think_open,
        .think_close = e->think_close,
        .think_head = e->think_head.ids,
        .n_think_head = (int)e->think_head.n,
        .in_thought = r->prompt->in_thought,
        .thinks = r->prompt->thinks,
    };
    st = dg_guide_create(&r->guide, &options, err);
    if (!st)
        st = dg_guide_need(r->guide, &r->cfg.n_least, err);
    r->cfg.guide = r->guide;
    if (!st && r->cfg.n_least > o->max_tokens)
        st = dg_fail(err, DGEMMA_E_ARG,
                     "max_tokens is %d: the shortest answer that satisfies the constraint needs %d",
                     o->max_tokens, r->cfg.n_least);
    if (!st && r->cfg.n_least > n_room)
        st = dg_fail_context(err, (size_t)r->cfg.n_context, (size_t)r->cfg.n_prompt, true);
    return st;
}
