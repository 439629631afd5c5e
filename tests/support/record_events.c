#include "support/record_events.h"
#include <check.h>
#include <string.h>

dgemma_engine *record_engine(dgemma_engine_options opt)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    if (!opt.model_path)
        opt.model_path = "tests/fixtures/golden/sampler_finishes/model";
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

dgemma_request *record_submit(dgemma_engine *e, const dgemma_request_options *opt)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    ck_assert_msg(dgemma_request_submit(&r, e, opt, &err) == DGEMMA_OK, "%s", err.msg);
    return r;
}

static void put(dg_buf *b, const void *data, size_t n)
{
    if (data)
        ck_assert(dg_buf_append(b, data, n));
}

static void put_event(record *rec, const dgemma_event *e)
{
    dg_buf *b = &rec->bytes;
    int32_t head[] = {(int32_t)e->kind, e->block, e->step, (int32_t)e->n_tokens, e->tool_index};
    if (e->kind == DGEMMA_EVENT_PROMPT)
        return;
    if (e->kind == DGEMMA_EVENT_END) {
        int32_t end[] = {(int32_t)e->stats.end, e->stats.n_prompt, e->stats.n_output,
                         e->stats.n_blocks,     e->stats.n_steps,  (int32_t)e->status};
        rec->before_end = b->len;
        rec->stats = e->stats;
        put(b, end, sizeof end);
        return;
    }
    if (e->kind == DGEMMA_EVENT_BLOCK) {
        ck_assert_uint_le(rec->n_ids + e->n_tokens, sizeof rec->ids / sizeof *rec->ids);
        memcpy(rec->ids + rec->n_ids, e->tokens, e->n_tokens * sizeof *rec->ids);
        rec->n_ids += e->n_tokens;
    }
    put(b, head, sizeof head);
    put(b, e->tokens, e->n_tokens * sizeof *e->tokens);
    put(b, e->entropy, e->n_tokens * sizeof *e->entropy);
    put(b, e->accepted, e->n_tokens);
    put(b, e->text, e->text_len);
}

dgemma_request_options record_endless(const dgemma_engine *e)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.max_denoise_steps = 100000;
    opt.confidence_threshold = 0;
    return opt;
}

void record_listen(dgemma_request *r, record *rec)
{
    memset(rec, 0, sizeof *rec);
    dg_buf_init(&rec->bytes, 64 << 20);
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);)
        put_event(rec, &e);
    dgemma_request_free(r);
}

void record_clear(record *rec)
{
    dg_buf_clear(&rec->bytes);
}

void record_assert_same(const record *a, const record *b, const char *what, int which)
{
    ck_assert_msg(a->bytes.len == b->bytes.len, "%s, request %d: %zu and %zu bytes", what, which,
                  a->bytes.len, b->bytes.len);
    ck_assert_msg(memcmp(a->bytes.data, b->bytes.data, a->bytes.len) == 0,
                  "%s, request %d says something else", what, which);
}
