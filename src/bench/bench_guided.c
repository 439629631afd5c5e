#include "bench/bench_guided.h"
#include "base/alloc.h"
#include "bench/synth_vocabulary.h"
#include "engine/constraint_data.h"

enum { ROOM = 1 << 20 };

struct dg_bench_guided {
    dg_tokenizer *own; /* of made words, as many as the model has; or NULL */
    dg_token_trie *trie;
    int batch, n_canvas;
    dg_guide **guide;               /* [batch] */
    dg_vocabulary_options *options; /* [batch] */
    uint8_t *forced;                /* [n_canvas] */
};

static dgemma_status make_guides(dg_bench_guided *g, const dg_syntax *syntax, const dg_config *cfg,
                                 const dg_tokenizer *tokenizer, dgemma_error *err)
{
    static const int32_t eos[] = {1};
    dg_guide_options o = {.syntax = syntax,
                          .trie = g->trie,
                          .tokenizer = tokenizer,
                          .stop = cfg->n_stop ? cfg->stop_token : eos,
                          .n_stop = cfg->n_stop ? cfg->n_stop : 1,
                          .pad = cfg->pad_token < 0 ? 0 : cfg->pad_token,
                          .n_canvas = g->n_canvas,
                          .n_most = INT32_MAX,
                          .think_open = -1,
                          .think_close = -1};
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; i < g->batch && !st; i++)
        st = dg_guide_create(&g->guide[i], &o, err);
    return st;
}

dgemma_status dg_bench_guided_open(dg_bench_guided **out, dgemma_constraint *constraint,
                                   const dg_config *cfg, const dg_tokenizer *tokenizer, int batch,
                                   dgemma_error *err)
{
    dg_bench_guided *g = dg_calloc(1, sizeof *g);
    if (!g)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    g->batch = batch;
    g->n_canvas = cfg->canvas_length;
    g->guide = dg_calloc((size_t)batch, sizeof *g->guide);
    g->options = dg_calloc((size_t)batch, sizeof *g->options);
    g->forced = dg_calloc((size_t)g->n_canvas, 1);
    dgemma_status st = g->guide && g->options && g->forced
                           ? DGEMMA_OK
                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st && !tokenizer)
        st = dg_synth_tokenizer(&g->own, cfg->n_vocab, err);
    if (!tokenizer)
        tokenizer = g->own;
    if (!st)
        st = dg_token_trie_create(&g->trie, tokenizer, (size_t)cfg->n_vocab, err);
    if (!st)
        st = make_guides(g, constraint->syntax, cfg, tokenizer, err);
    if (st)
        dg_bench_guided_close(g);
    else
        *out = g;
    return st;
}

void dg_bench_guided_close(dg_bench_guided *g)
{
    if (!g)
        return;
    for (int i = 0; g->guide && i < g->batch; i++)
        dg_guide_free(g->guide[i]);
    dg_free(g->guide);
    dg_free(g->options);
    dg_free(g->forced);
    dg_token_trie_free(g->trie);
    dg_tokenizer_free(g->own);
    dg_free(g);
}

void dg_bench_guided_ask(dg_bench_guided *g, dg_work *work)
{
    for (int i = 0; i < g->batch; i++) {
        g->options[i].asked = dg_guide_ask(g->guide[i], work[i].uniform, g->n_canvas, NULL);
        work[i].options = &g->options[i];
    }
}

dgemma_status dg_bench_guided_take(dg_bench_guided *g, dg_work *work, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; i < g->batch && !st; i++) {
        dg_guide_step s = {.n = g->n_canvas,
                           .room = ROOM,
                           .uniform = work[i].uniform,
                           .argmax = work[i].argmax,
                           .drawn = work[i].drawn,
                           .entropy = work[i].entropy,
                           .forced = g->forced};
        st = dg_guide_take(g->guide[i], &s, err);
        work[i].options = NULL;
    }
    return st;
}
