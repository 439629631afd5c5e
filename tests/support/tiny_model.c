#include "support/tiny_model.h"
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "model/config_gguf.h"

void tiny_open(tiny_model *t, const tiny_options *opt)
{
    dgemma_error err = {0};
    char path[512];
    dg_buf doc;
    *t = (tiny_model){0};
    dg_buf_init(&doc, 1 << 20);
    snprintf(path, sizeof path, "tests/fixtures/golden/%s/model",
             opt->fixture ? opt->fixture : "text");
    dg_generation_config unused;
    const char *other = opt->gguf ? opt->gguf : opt->folder;
    dgemma_status st = dg_checkpoint_open(&t->ck, other ? other : path, &err);
    if (opt->gguf)
        st = st ? st : dg_config_from_gguf(&t->cfg, &unused, t->ck, &err);
    else {
        st = st ? st : dg_checkpoint_document(t->ck, "config.json", &doc, &err);
        st = st ? st : dg_config_parse(&t->cfg, doc.data, doc.len, "config.json", &err);
    }
    if (opt->embed_scale > 0)
        t->cfg.embed_scale = opt->embed_scale;
    dg_cpu_options cpu = {dg_max(1, opt->n_thread), opt->reference ? 0 : dg_cpu_flags(),
                          opt->exact};
    st = st ? st : dg_cpu_open(&t->be, &cpu, &err);
    st = st ? st : dg_model_load(&t->model, &t->cfg, t->ck, t->be, &err);
    st =
        st ? st : dg_kv_cache_create(&t->kv, &t->cfg, t->be, opt->kv_type, opt->kv_max_bytes, &err);
    st = st ? st
            : dg_forward_create(&t->forward, t->model, t->kv, opt->max_row ? opt->max_row : 64,
                                dg_max(1, opt->max_work), &err);
    dg_buf_clear(&doc);
    ck_assert_msg(st == DGEMMA_OK, "%s: %s", path, err.msg);
}

void tiny_close(tiny_model *t)
{
    dg_forward_free(t->forward);
    dg_kv_cache_free(t->kv);
    dg_model_free(t->model);
    if (t->be)
        t->be->close(t->be);
    dg_checkpoint_close(t->ck);
}

int32_t *tiny_ids(const tiny_model *t, int n, unsigned seed)
{
    dg_rng_key key = {.seed = seed};
    int32_t *ids = dg_array((size_t)n, sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)dg_rng_below(&key, (uint32_t)i, (uint32_t)t->cfg.n_vocab);
    return ids;
}

void tiny_canvas_init(tiny_canvas *c, const tiny_model *t, int n, unsigned seed)
{
    dg_rng_key key = {.seed = seed, .stream = 1};
    size_t rows = (size_t)n;
    *c = (tiny_canvas){
        .n = n,
        .token = tiny_ids(t, n, seed),
        .argmax = dg_calloc(rows, sizeof *c->argmax),
        .drawn = dg_calloc(rows, sizeof *c->drawn),
        .soft = dg_calloc(rows * (size_t)t->cfg.n_embd, sizeof *c->soft),
        .entropy = dg_calloc(rows, sizeof *c->entropy),
        .logits = dg_calloc(rows * (size_t)t->cfg.n_vocab, sizeof *c->logits),
        .uniform = dg_calloc(rows, sizeof *c->uniform),
    };
    for (int i = 0; i < n; i++)
        c->uniform[i] = dg_rng_uniform(&key, (uint32_t)i);
}

void tiny_canvas_clear(tiny_canvas *c)
{
    void *all[] = {c->token, c->argmax, c->drawn, c->soft, c->entropy, c->logits, c->uniform};
    for (size_t i = 0; i < DG_COUNT(all); i++)
        dg_free(all[i]);
}

dg_work tiny_canvas_work(tiny_canvas *c, dg_kv_seq *seq, bool first_step)
{
    return (dg_work){
        .seq = seq,
        .canvas = c->token,
        .n_canvas = c->n,
        .soft = c->soft,
        .first_step = first_step,
        .temperature = 0.7f,
        .uniform = c->uniform,
        .entropy = c->entropy,
        .argmax = c->argmax,
        .drawn = c->drawn,
    };
}

void tiny_encode(tiny_model *t, dg_kv_seq *seq, const int32_t *ids, int n, int chunk)
{
    dgemma_error err = {0};
    for (int at = 0; at < n; at += chunk) {
        dg_work work = {.seq = seq, .token = ids + at, .n_token = dg_min(chunk, n - at)};
        dgemma_status st = dg_forward_run(t->forward, &(dg_pass){.work = &work, .n_work = 1}, &err);
        ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    }
}

void tiny_denoise(tiny_model *t, dg_kv_seq *seq, tiny_canvas *c, bool first_step)
{
    dgemma_error err = {0};
    dg_work work = tiny_canvas_work(c, seq, first_step);
    dg_taps taps = {.logits = c->logits};
    dgemma_status st =
        dg_forward_run(t->forward, &(dg_pass){.work = &work, .n_work = 1, .taps = &taps}, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
}

float *tiny_logits(const tiny_options *options, size_t *n)
{
    enum { PROMPT = 21, CANVAS = 16 };
    tiny_model t;
    tiny_canvas c;
    dg_kv_seq seq = {0};
    tiny_open(&t, options);
    int32_t *ids = tiny_ids(&t, PROMPT, 3);
    tiny_canvas_init(&c, &t, CANVAS, 4);
    tiny_encode(&t, &seq, ids, PROMPT, PROMPT);
    tiny_denoise(&t, &seq, &c, true);
    *n = CANVAS * (size_t)t.cfg.n_vocab;
    float *out = dg_array(*n, sizeof *out);
    memcpy(out, c.logits, *n * sizeof *out);
    dg_free(ids);
    tiny_canvas_clear(&c);
    dg_kv_seq_clear(t.kv, &seq);
    tiny_close(&t);
    return out;
}
