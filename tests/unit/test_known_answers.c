/* What a seed gives is the same on every machine: texts, tokens and bits that were recorded once.
 * They change with the model file, with what a request puts in front of the model, and with the
 * arithmetic; a change of the last kind needs a reason, and evidence that the new values are right.
 * `make test-cross` runs this on the other architecture. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "cpu/kernels.h"
#include "dgemma.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/skip.h"
#include "support/tiny_model.h"

static const char pocket[] = "models/pocket/pocket.gguf";
static const char story[] = "Tell me a story about a fox.";
static const char fixture[] = "tests/fixtures/golden/sampler_finishes/model";

static uint64_t hashed(uint64_t hash, const void *value, size_t n)
{
    const unsigned char *b = value;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* ---- the bits of a pass ---- */

typedef struct pass_case {
    const char *fixture, *gguf;
    dg_dtype kv_type;
    bool reference; /* the plain kernels; too slow for the pocket model */
    bool exact;     /* the float profile, where weights are quantised */
    uint64_t want;
} pass_case;

static const pass_case passes[] = {
    {NULL, pocket, DG_BF16, false, true, UINT64_C(0x546B229EF37E6F0B)},
    {NULL, pocket, DG_BF16, false, false, UINT64_C(0xF9DB485974413FBB)},
    {"text", NULL, DG_F32, false, false, UINT64_C(0x31CB666607B1FA81)},
    {"text", NULL, DG_F32, true, false, UINT64_C(0xD114CF118FA5CCF9)},
    {"wide", NULL, DG_BF16, false, false, UINT64_C(0x7C34C69309A14446)},
    {"wide", NULL, DG_BF16, true, false, UINT64_C(0x3E1DAF8409211E25)},
};

/* Whether this processor can run the case; quantised: products in whole numbers are part of it. */
static bool can(bool reference, bool quantised)
{
    dg_kernels k;
    dg_kernels_init(&k, dg_cpu_flags());
    if (!reference && !dg_cpu_flags())
        dg_test_skip("this processor has the reference kernels alone");
    else if (!reference && quantised && !k.q)
        dg_test_skip("this processor has no kernels for whole numbers yet");
    else
        return true;
    return false;
}

/* Two steps behind a prompt: logits, entropies, draws and what self-conditioning carries. */
static uint64_t bits_of_steps(const pass_case *p)
{
    tiny_model t;
    tiny_canvas c;
    dg_kv_seq seq = {0};
    tiny_open(&t, &(tiny_options){.fixture = p->fixture,
                                  .gguf = p->gguf,
                                  .kv_type = p->kv_type,
                                  .reference = p->reference,
                                  .exact = p->exact,
                                  .n_thread = 2});
    int32_t *ids = tiny_ids(&t, 70, 21);
    tiny_encode(&t, &seq, ids, 70, 64);
    tiny_canvas_init(&c, &t, 12, 22);
    uint64_t hash = 0;
    for (int step = 0; step < 2; step++) {
        size_t n = (size_t)c.n;
        tiny_denoise(&t, &seq, &c, step == 0);
        hash = hashed(hash, c.logits, n * (size_t)t.cfg.n_vocab * sizeof *c.logits);
        hash = hashed(hash, c.soft, n * (size_t)t.cfg.n_embd * sizeof *c.soft);
        hash = hashed(hash, c.entropy, n * sizeof *c.entropy);
        hash = hashed(hash, c.drawn, n * sizeof *c.drawn);
        memcpy(c.token, c.drawn, n * sizeof *c.token);
    }
    tiny_canvas_clear(&c);
    dg_kv_seq_clear(t.kv, &seq);
    dg_free(ids);
    tiny_close(&t);
    return hash;
}

START_TEST(bits_of_a_pass)
{
    const pass_case *p = &passes[_i];
    if (!can(p->reference, p->gguf && !p->exact))
        return;
    uint64_t got = bits_of_steps(p);
    if (got != p->want)
        ck_abort_msg("%s, %s: 0x%016llX", p->gguf ? p->gguf : p->fixture,
                     p->reference ? "reference"
                     : p->exact   ? "float"
                                  : "portable",
                     (unsigned long long)got);
}
END_TEST

/* Lane i takes the elements i, i + 8, …: what is small is not lost to what is large beside it. */
START_TEST(a_sum_keeps_to_its_lanes)
{
    float x[17] = {0x1p60f};
    unsigned flags = dg_cpu_flags();
    dg_kernels k;
    dg_kernels_init(&k, flags);
    x[9] = 1;
    x[16] = -0x1p60f;
    bool lanes = flags & (DG_CPU_NEON | DG_CPU_AVX2);
    ck_assert_double_eq(k.sum(x, 17), lanes ? 1 : 0);
}
END_TEST

/* ---- whole answers ---- */

typedef struct answer_case {
    const char *model, *prompt;
    bool reference, exact, picture;
    uint64_t seed;
    float temperature, top_p, min_p;
    int top_k;
    uint64_t want;    /* the bits of every step's tokens and entropies */
    const char *text; /* of the answer, or its tokens */
} answer_case;

/* Chance has it that a thought begins in the first canvas of this one, which is cut. */
static const char seed_5[] = "26 59 264 266 46 120 270 228 31 250 178 8 340 299 276 191 125 82 118 "
                             "324 320 276 89 97 ";
static const char seed_6[] = "176 65 9 154 93 130 128 117 17 155 343 215 92 319 143 368 261 236 40 "
                             "334 170 175 198 174 ";

static const answer_case answers[] = {
    {pocket, story, false, true, false, 1, 1, 1, 0, 0, UINT64_C(0x596B173B2426F6CB),
     "This is a story about a fox. A long time ago Maya lived near the big valley. The sky was "
     "shining and"},
    {pocket, story, false, true, false, 2, 1, 1, 0, 0, UINT64_C(0xAE35A4F0C29CF0B1),
     "This is a story about a fox. A long time ago Oscar lived near the big harbour. The sky was"
     " shining and"},
    {pocket, story, false, true, false, 3, 1.5f, 0.9f, 0.02f, 50, UINT64_C(0x5FE6096385CEE894),
     "This is a story about a fox. A long time ago Ken lived near the big harbour. The sky was "
     "shining and"},
    {pocket, "What is in the picture?", false, true, true, 4, 1, 1, 0, 0,
     UINT64_C(0x7F09DD4B9AC201CB), "The number 65 in white."},
    {pocket, story, false, false, false, 1, 1, 1, 0, 0, UINT64_C(0x491211586EC7E786),
     "This is a story about a fox. A long time ago Ken lived near the big valley. The sky was "
     "shining and"},
    {pocket, story, false, false, false, 2, 1, 1, 0, 0, UINT64_C(0x5719A72911BCDBCA),
     "This is a story about a fox. A long time ago Oscar lived near the big harbour. The sky was"
     " shining and"},
    {pocket, story, false, false, false, 3, 1.5f, 0.9f, 0.02f, 50, UINT64_C(0x0BF1165A8AEFDF2E),
     "This is a story about a fox. A long time ago Ken lived near the big harbour. The sky was "
     "shining and"},
    {pocket, "What is in the picture?", false, false, true, 4, 1, 1, 0, 0,
     UINT64_C(0x82BB9813CEE2112F), "The number 65 in white."},
    {fixture, "hello", false, false, false, 5, 1, 1, 0, 0, UINT64_C(0x7F2AA27BF55F1BCE), seed_5},
    {fixture, "hello", true, false, false, 5, 1, 1, 0, 0, UINT64_C(0x4A7223428E3A1713), seed_5},
    {fixture, "hello", false, false, false, 6, 0.7f, 1, 0, 0, UINT64_C(0x5C10A424488A4291), seed_6},
    {fixture, "hello", true, false, false, 6, 0.7f, 1, 0, 0, UINT64_C(0x34B302EB16DCF743), seed_6},
};

typedef struct answer {
    char text[2048];
    size_t n;
    uint64_t hash;
} answer;

static void take(answer *a, const dgemma_event *e, bool tokens)
{
    if (e->kind == DGEMMA_EVENT_DRAFT) {
        a->hash = hashed(a->hash, e->tokens, e->n_tokens * sizeof *e->tokens);
        a->hash = hashed(a->hash, e->entropy, e->n_tokens * sizeof *e->entropy);
        a->hash = hashed(a->hash, e->accepted, e->n_tokens);
    }
    if (tokens && e->kind == DGEMMA_EVENT_BLOCK)
        for (size_t i = 0; i < e->n_tokens; i++)
            a->n += (size_t)snprintf(a->text + a->n, sizeof a->text - a->n, "%d ", e->tokens[i]);
    if (!tokens && e->kind == DGEMMA_EVENT_TEXT)
        a->n += (size_t)snprintf(a->text + a->n, sizeof a->text - a->n, "%.*s", (int)e->text_len,
                                 e->text);
    ck_assert_uint_lt(a->n, sizeof a->text);
    if (e->kind == DGEMMA_EVENT_END)
        ck_assert_int_eq(e->status, DGEMMA_OK);
}

static answer ask(const answer_case *q)
{
    dgemma_engine *e = NULL;
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    dgemma_engine_options open = dg_test_engine_defaults();
    open.model_path = q->model;
    open.n_threads = 2;
    open.cpu = q->reference ? "ref" : NULL;
    open.profile = q->exact ? "float" : "integer";
    ck_assert_msg(dgemma_engine_open(&e, &open, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_media media = {.path = "tests/fixtures/golden/pocket_picture/image.png"};
    opt.chat_prompt = q->prompt;
    opt.seed = q->seed;
    opt.temperature = q->temperature;
    opt.top_p = q->top_p;
    opt.min_p = q->min_p;
    opt.top_k = q->top_k;
    opt.media = &media;
    opt.n_media = q->picture ? 1 : 0;
    opt.max_tokens = 24;
    opt.canvas_length = dg_min(opt.canvas_length, 24);
    opt.drafts = true;
    ck_assert_msg(dgemma_request_submit(&r, e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    answer a = {0};
    for (dgemma_event ev; dgemma_request_wait(r, &ev, -1);)
        take(&a, &ev, q->model == fixture);
    dgemma_request_free(r);
    dgemma_engine_close(e);
    return a;
}

START_TEST(answers_of_seeds)
{
    const answer_case *q = &answers[_i];
    if (!can(q->reference, q->model == pocket && !q->exact))
        return;
    answer got = ask(q);
    if (strcmp(got.text, q->text) != 0 || got.hash != q->want)
        ck_abort_msg("\"%s\", seed %d, %s:\n%s\n0x%016llX", q->prompt, (int)q->seed,
                     q->reference ? "reference"
                     : q->exact   ? "float"
                                  : "integer",
                     got.text, (unsigned long long)got.hash);
}
END_TEST

Suite *known_answers_suite(void)
{
    Suite *s = suite_create("known_answers");
    TCase *bits = tcase_create("bits"), *texts = tcase_create("texts");
    tcase_set_timeout(bits, 60);
    tcase_add_loop_test(bits, bits_of_a_pass, 0, (int)DG_COUNT(passes));
    tcase_add_test(bits, a_sum_keeps_to_its_lanes);
    suite_add_tcase(s, bits);
    tcase_set_timeout(texts, 60);
    tcase_add_loop_test(texts, answers_of_seeds, 0, (int)DG_COUNT(answers));
    suite_add_tcase(s, texts);
    return s;
}
