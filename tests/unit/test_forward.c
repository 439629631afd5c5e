/* What a pass gives does not depend on how it is cut: chunks, threads, company. And the cache's
 * rules. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "suites.h"
#include "support/tiny_model.h"

/* Two denoising steps after a prompt of n tokens: the logits of both, and the draws. */
typedef struct outcome {
    float *logits[2];
    int32_t *drawn[2];
    size_t n_logit, n;
} outcome;

static outcome denoise_after(const tiny_options *opt, int n_prompt, int chunk)
{
    tiny_model t;
    tiny_open(&t, opt);
    dg_kv_seq seq = {0};
    int32_t *ids = tiny_ids(&t, n_prompt, 11);
    tiny_encode(&t, &seq, ids, n_prompt, chunk);
    tiny_canvas c;
    tiny_canvas_init(&c, &t, t.cfg.canvas_length, 12);
    outcome o = {.n = (size_t)c.n, .n_logit = (size_t)c.n * (size_t)t.cfg.n_vocab};
    for (int step = 0; step < 2; step++) {
        tiny_denoise(&t, &seq, &c, step == 0);
        o.logits[step] = dg_array(o.n_logit, sizeof(float));
        o.drawn[step] = dg_array(o.n, sizeof(int32_t));
        memcpy(o.logits[step], c.logits, o.n_logit * sizeof(float));
        memcpy(o.drawn[step], c.drawn, o.n * sizeof(int32_t));
        memcpy(c.token, c.drawn, o.n * sizeof(int32_t));
    }
    tiny_canvas_clear(&c);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), 0);
    dg_free(ids);
    tiny_close(&t);
    return o;
}

static void outcome_clear(outcome *o)
{
    for (int i = 0; i < 2; i++) {
        dg_free(o->logits[i]);
        dg_free(o->drawn[i]);
    }
}

static void assert_same_bits(const outcome *a, const outcome *b, const char *what)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(memcmp(a->logits[i], b->logits[i], a->n_logit * sizeof(float)) == 0,
                      "%s: logits of step %d differ", what, i);
        ck_assert_msg(memcmp(a->drawn[i], b->drawn[i], a->n * sizeof(int32_t)) == 0,
                      "%s: draws of step %d differ", what, i);
    }
}

static void check_invariance(const char *fixture, dg_dtype kv_type, bool reference, int n_prompt)
{
    tiny_options opt = {.fixture = fixture,
                        .kv_type = kv_type,
                        .reference = reference,
                        .max_row = n_prompt + 64,
                        .n_thread = 1};
    outcome whole = denoise_after(&opt, n_prompt, n_prompt);
    static const int chunks[] = {1, 7, 64, 1000}, threads[] = {2, 4};
    for (size_t i = 0; i < DG_COUNT(chunks); i++) {
        opt.max_row = dg_max(64, chunks[i]);
        outcome o = denoise_after(&opt, n_prompt, chunks[i]);
        assert_same_bits(&whole, &o, "chunks");
        outcome_clear(&o);
    }
    for (size_t i = 0; i < DG_COUNT(threads); i++) {
        opt.n_thread = threads[i];
        outcome o = denoise_after(&opt, n_prompt, 333);
        assert_same_bits(&whole, &o, "threads");
        outcome_clear(&o);
    }
    outcome_clear(&whole);
}

START_TEST(chunks_and_threads_leave_no_trace_f32)
{
    check_invariance("text", DG_F32, false, 1300);
    check_invariance("wide", DG_F32, false, 150);
}
END_TEST

START_TEST(chunks_and_threads_leave_no_trace_bf16)
{
    check_invariance("text", DG_BF16, false, 1300);
}
END_TEST

START_TEST(chunks_and_threads_leave_no_trace_bytes)
{
    const dg_dtype type = _i ? DG_FP8 : DG_Q8_0;
    check_invariance("text", type, false, 700);
    check_invariance("wide", type, true, 90);
}
END_TEST

START_TEST(chunks_and_threads_leave_no_trace_reference)
{
    check_invariance("text", DG_BF16, true, 90);
}
END_TEST

/* The reference kernels and the fast ones agree, far from bit for bit. */
START_TEST(fast_kernels_agree_with_the_reference)
{
    tiny_options opt = {.fixture = "wide", .max_row = 256};
    outcome fast = denoise_after(&opt, 77, 77);
    opt.reference = true;
    outcome ref = denoise_after(&opt, 77, 77);
    double off = 0, size = 0;
    for (size_t i = 0; i < fast.n_logit; i++) {
        double d = (double)fast.logits[0][i] - ref.logits[0][i];
        off += d * d;
        size += (double)ref.logits[0][i] * ref.logits[0][i];
    }
    ck_assert_double_lt(sqrt(off / size), 1e-4);
    outcome_clear(&fast);
    outcome_clear(&ref);
}
END_TEST

/* Sequences of different lengths in one pass, one of them committing while it denoises: each gets
 * what it gets alone. */
START_TEST(company_leaves_no_trace)
{
    enum { N = 3 };
    static const int n_prompt[N] = {5, 130, 33}, n_commit[N] = {0, 16, 0};
    float *alone[N], entropy[N][16];
    int32_t found[N][2][16]; /* arg-max and draw */
    tiny_model t;
    tiny_open(&t,
              &(tiny_options){.max_row = 512, .max_work = N, .n_thread = 2, .kv_type = DG_BF16});
    int32_t *ids = tiny_ids(&t, 256, 3);
    dg_kv_seq seq[N] = {0};
    tiny_canvas c[N];
    dg_work work[N];
    size_t n_logit = 0;
    for (int i = 0; i < N; i++) {
        tiny_canvas_init(&c[i], &t, i == 2 ? 9 : t.cfg.canvas_length, (unsigned)i);
        tiny_encode(&t, &seq[i], ids, n_prompt[i] + n_commit[i], 512);
        tiny_denoise(&t, &seq[i], &c[i], true);
        size_t n = (size_t)c[i].n * (size_t)t.cfg.n_vocab;
        alone[i] = dg_array(n, sizeof(float));
        memcpy(alone[i], c[i].logits, n * sizeof(float));
        memcpy(entropy[i], c[i].entropy, (size_t)c[i].n * sizeof(float));
        memcpy(found[i][0], c[i].argmax, (size_t)c[i].n * sizeof(int32_t));
        memcpy(found[i][1], c[i].drawn, (size_t)c[i].n * sizeof(int32_t));
        n_logit += n;
        dg_kv_seq_clear(t.kv, &seq[i]);
        tiny_encode(&t, &seq[i], ids, n_prompt[i], 512);
        work[i] = tiny_canvas_work(&c[i], &seq[i], true);
        work[i].token = ids + n_prompt[i];
        work[i].n_token = n_commit[i];
    }
    float *together = dg_array(n_logit, sizeof *together), *at = together;
    dg_taps taps = {.logits = together};
    dgemma_error err = {0};
    dgemma_status st =
        dg_forward_run(t.forward, &(dg_pass){.work = work, .n_work = N, .taps = &taps}, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    for (int i = 0; i < N; i++) {
        size_t n = (size_t)c[i].n * (size_t)t.cfg.n_vocab;
        ck_assert_msg(memcmp(alone[i], at, n * sizeof(float)) == 0,
                      "sequence %d differs in company", i);
        ck_assert_mem_eq(c[i].entropy, entropy[i], (size_t)c[i].n * sizeof(float));
        ck_assert_mem_eq(c[i].argmax, found[i][0], (size_t)c[i].n * sizeof(int32_t));
        ck_assert_mem_eq(c[i].drawn, found[i][1], (size_t)c[i].n * sizeof(int32_t));
        ck_assert_int_eq(seq[i].n_token, n_prompt[i] + n_commit[i]);
        at += n;
        dg_free(alone[i]);
        tiny_canvas_clear(&c[i]);
        dg_kv_seq_clear(t.kv, &seq[i]);
    }
    dg_free(together);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

/* A step that nothing follows finds the same, and leaves the soft embedding of the one before; in
 * company of one that something follows, that one's is made. */
START_TEST(last_steps_need_no_soft_embedding)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 256, .max_work = 2});
    size_t n = (size_t)t.cfg.canvas_length, n_soft = n * (size_t)t.cfg.n_embd;
    tiny_canvas c[3];
    dg_kv_seq seq[3] = {0};
    dg_work work[3];
    float *before = dg_array(n_soft, sizeof *before);
    for (unsigned i = 0; i < 3; i++) {
        tiny_canvas_init(&c[i], &t, (int)n, 5);
        tiny_denoise(&t, &seq[i], &c[i], true);
        work[i] = tiny_canvas_work(&c[i], &seq[i], false);
        work[i].last_step = i == 1;
    }
    memcpy(before, c[1].soft, n_soft * sizeof *before);
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &work[0], .n_work = 1}, NULL),
                     DGEMMA_OK);
    ck_assert_mem_ne(c[0].soft, before, n_soft * sizeof *before);
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &work[1], .n_work = 2}, NULL),
                     DGEMMA_OK);
    for (int i = 1; i < 3; i++) {
        ck_assert_mem_eq(c[i].entropy, c[0].entropy, n * sizeof(float));
        ck_assert_mem_eq(c[i].argmax, c[0].argmax, n * sizeof(int32_t));
        ck_assert_mem_eq(c[i].drawn, c[0].drawn, n * sizeof(int32_t));
    }
    ck_assert_mem_eq(c[1].soft, before, n_soft * sizeof *before);
    ck_assert_mem_eq(c[2].soft, c[0].soft, n_soft * sizeof *before);
    for (int i = 0; i < 3; i++) {
        tiny_canvas_clear(&c[i]);
        dg_kv_seq_clear(t.kv, &seq[i]);
    }
    dg_free(before);
    tiny_close(&t);
}
END_TEST

/* A canvas that is not a number fails its own part of the pass. */
START_TEST(broken_canvases_are_their_owners)
{
    enum { N = 3 };
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 64, .max_work = N});
    dg_kv_seq seq[N] = {0};
    tiny_canvas c[N];
    dg_work work[N];
    int32_t *ids = tiny_ids(&t, 4, 3);
    for (int i = 0; i < N; i++) {
        tiny_canvas_init(&c[i], &t, 9, (unsigned)i);
        work[i] = tiny_canvas_work(&c[i], &seq[i], true);
        work[i].token = ids;
        work[i].n_token = 4;
    }
    work[1].temperature = 1e-38f;
    dgemma_error err = {0};
    dgemma_status st = dg_forward_run(t.forward, &(dg_pass){.work = work, .n_work = N}, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(dg_work_status(&work[i], &err), i == 1 ? DGEMMA_E_INTERNAL : DGEMMA_OK);
    ck_assert_str_eq(err.msg, "the model computed something that is not a number (row 0)");

    /* alone it fails the pass, and nothing has grown */
    st = dg_forward_run(t.forward, &(dg_pass){.work = &work[1], .n_work = 1}, &err);
    ck_assert_int_eq(st, DGEMMA_E_INTERNAL);
    ck_assert_int_eq(seq[1].n_token, 4);
    float *nan = dg_calloc((size_t)t.cfg.n_vocab, sizeof *nan);
    nan[1] = NAN;
    dg_reading reading = {.logits = nan, .uniform = c[0].uniform, .n = 1, .soft = c[0].soft};
    reading.entropy = c[0].entropy;
    reading.argmax = c[0].argmax;
    reading.drawn = c[0].drawn;
    ck_assert_int_eq(dg_forward_read(t.forward, &reading, &err), DGEMMA_E_INTERNAL);
    dg_free(nan);
    for (int i = 0; i < N; i++) {
        tiny_canvas_clear(&c[i]);
        dg_kv_seq_clear(t.kv, &seq[i]);
    }
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

/* Running the last layer in full for encoded rows changes nothing that is kept. */
START_TEST(last_layer_may_be_skipped)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 128});
    int32_t *ids = tiny_ids(&t, 100, 5);
    tiny_canvas a, b;
    tiny_canvas_init(&a, &t, 16, 1);
    tiny_canvas_init(&b, &t, 16, 1);
    dg_kv_seq seq = {0};
    tiny_encode(&t, &seq, ids, 100, 128);
    tiny_denoise(&t, &seq, &a, true);
    dg_kv_seq_clear(t.kv, &seq);

    float *encoded = dg_calloc(100 * (size_t)t.cfg.n_embd, sizeof *encoded);
    dg_work work = {.seq = &seq, .token = ids, .n_token = 100};
    dg_taps taps = {.encoded = encoded};
    ck_assert_int_eq(
        dg_forward_run(t.forward, &(dg_pass){.work = &work, .n_work = 1, .taps = &taps}, NULL),
        DGEMMA_OK);
    tiny_denoise(&t, &seq, &b, true);
    ck_assert_mem_eq(a.logits, b.logits, 16 * (size_t)t.cfg.n_vocab * sizeof(float));

    dg_free(encoded);
    dg_kv_seq_clear(t.kv, &seq);
    tiny_canvas_clear(&a);
    tiny_canvas_clear(&b);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

START_TEST(passes_are_checked)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 32});
    dg_kv_seq seq = {0};
    int32_t ids[64] = {0};
    dgemma_error err = {0};
    dg_work work = {.seq = &seq, .token = ids, .n_token = 33};
    dg_pass pass = {.work = &work, .n_work = 1};
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    work.n_token = 0;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    work.n_token = 3;
    ids[2] = t.cfg.n_vocab;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    ids[2] = -1;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    ids[2] = 0;
    int32_t beyond[2] = {0, t.cfg.n_vocab};
    work.canvas = beyond;
    work.n_canvas = 2;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    work.n_canvas = 0;
    pass.n_work = 2;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_ARG);
    pass.n_work = 1;
    seq.n_token = t.cfg.n_context - 2;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_E_LIMIT);
    seq.n_token = 0;
    ck_assert_int_eq(dg_forward_run(t.forward, &pass, &err), DGEMMA_OK);
    ck_assert_int_eq(seq.n_token, 3);
    dg_kv_seq_clear(t.kv, &seq);
    tiny_close(&t);
}
END_TEST

/* ---- the cache ---- */

START_TEST(sliding_pages_are_forgotten)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 64});
    dg_kv_seq seq = {0};
    int32_t *ids = tiny_ids(&t, 1000, 5);
    tiny_encode(&t, &seq, ids, 1000, 64);
    int n_page = dg_ceil_div(1000, DG_PAGE);
    ck_assert_int_eq(seq.table[DG_KV_GLOBAL].n - seq.table[DG_KV_GLOBAL].first, n_page);
    ck_assert_int_le(seq.table[DG_KV_SLIDING].n - seq.table[DG_KV_SLIDING].first,
                     2); /* the window is 8 */
    ck_assert_int_eq(seq.table[DG_KV_SLIDING].page[0], DG_NO_PAGE);
    ck_assert_uint_le(dg_kv_bytes_used(t.kv), dg_kv_bytes_for(t.kv, 1000, 64));
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), 0);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

START_TEST(full_cache_is_an_error_and_nothing_is_lost)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 256, .kv_max_bytes = 1});
    size_t page = dg_kv_bytes_for(t.kv, 1, 1);
    tiny_close(&t);
    tiny_open(&t, &(tiny_options){.max_row = 256, .kv_max_bytes = 2 * page});
    dg_kv_seq seq = {0};
    int32_t *ids = tiny_ids(&t, 256, 5);
    tiny_encode(&t, &seq, ids, 100, 100);
    size_t used = dg_kv_bytes_used(t.kv);
    dg_work work = {.seq = &seq, .token = ids, .n_token = 200};
    dgemma_error err = {0};
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &work, .n_work = 1}, &err),
                     DGEMMA_E_LIMIT);
    ck_assert_int_eq(seq.n_token, 100);
    ck_assert_uint_le(dg_kv_bytes_used(t.kv), used);
    work.n_token = 20; /* still fits in the second page */
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &work, .n_work = 1}, &err),
                     DGEMMA_OK);
    dg_kv_seq_clear(t.kv, &seq);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

/* Logits of a first step behind a sequence; the caller's (dg_free). */
static float *look_behind(tiny_model *t, dg_kv_seq *seq)
{
    tiny_canvas c;
    tiny_canvas_init(&c, t, t->cfg.canvas_length, 9);
    tiny_denoise(t, seq, &c, true);
    size_t bytes = (size_t)c.n * (size_t)t->cfg.n_vocab * sizeof(float);
    float *logits = dg_malloc(bytes);
    memcpy(logits, c.logits, bytes);
    tiny_canvas_clear(&c);
    return logits;
}

/* What a sequence of ids[0 … n_a) and then b[0 … n_b) gives when it is encoded by itself. */
static float *alone(tiny_model *t, const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    dg_kv_seq seq = {0};
    tiny_encode(t, &seq, a, n_a, 64);
    tiny_encode(t, &seq, b, n_b, 64);
    float *logits = look_behind(t, &seq);
    dg_kv_seq_clear(t->kv, &seq);
    return logits;
}

/* Two sequences go on from one place inside the first one's last pass, in turns; nobody writes over
 * the other's tokens, in page boundaries and between, in any order of letting go. */
static void check_sharing(dg_dtype type, int at, bool let_go)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 64, .kv_type = type});
    int32_t *ids = tiny_ids(&t, 300, 5), *other = tiny_ids(&t, 300, 6);
    dg_kv_seq first = {0}, point = {.kept = true}, second = {0};
    tiny_encode(&t, &first, ids, 160, 40);
    ck_assert_int_eq(dg_kv_share(t.kv, &point, &first, at, NULL), DGEMMA_OK);
    size_t held = dg_kv_bytes_held(t.kv);
    ck_assert_int_eq(dg_kv_share(t.kv, &second, &point, at, NULL), DGEMMA_OK);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), held); /* nothing was copied yet */
    if (let_go)
        dg_kv_seq_clear(t.kv, &point);
    tiny_encode(&t, &second, other, 30, 30);
    tiny_encode(&t, &first, ids + 160, 100, 40);
    tiny_encode(&t, &second, other + 30, 90, 40);

    float *want[2] = {alone(&t, ids, 260, ids, 0), alone(&t, ids, at, other, 120)};
    float *got[2] = {look_behind(&t, &first), look_behind(&t, &second)};
    size_t bytes = (size_t)t.cfg.canvas_length * (size_t)t.cfg.n_vocab * sizeof(float);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(memcmp(want[i], got[i], bytes) == 0, "sequence %d, shared at %d", i, at);
        dg_free(want[i]);
        dg_free(got[i]);
    }
    dg_kv_seq_clear(t.kv, &first);
    dg_kv_seq_clear(t.kv, &second);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), 0);
    ck_assert(let_go == (dg_kv_bytes_held(t.kv) == 0));
    dg_kv_seq_clear(t.kv, &point);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
    dg_free(ids);
    dg_free(other);
    tiny_close(&t);
}

START_TEST(sequences_share_pages)
{
    static const int at[] = {121, 127, 128, 129, 140, 160};
    for (size_t i = 0; i < DG_COUNT(at); i++)
        for (int let_go = 0; let_go < 2; let_go++) {
            check_sharing(DG_F32, at[i], let_go);
            check_sharing(DG_BF16, at[i], let_go);
            check_sharing(i % 2 ? DG_Q8_0 : DG_FP8, at[i], let_go);
        }
}
END_TEST

/* Memory that pages of one kind leave behind serves the other. */
START_TEST(the_bound_holds_for_both_kinds_together)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 64});
    size_t most = dg_kv_bytes_for(t.kv, 400, 64);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most, NULL), DGEMMA_OK);
    dg_kv_seq seq = {0};
    for (int n = 60; n <= 180; n += 60) {
        ck_assert_int_eq(dg_kv_reserve(t.kv, &seq, n, NULL), DGEMMA_OK);
        ck_assert_uint_eq(dg_kv_bytes_left(t.kv), most - dg_kv_bytes_held(t.kv));
        dg_kv_seq_clear(t.kv, &seq);
    }
    int32_t *ids = tiny_ids(&t, 400, 5);
    tiny_encode(&t, &seq, ids, 400, 64); /* fewer sliding pages, more of the others */
    ck_assert_uint_le(dg_kv_bytes_held(t.kv), most);
    dg_kv_seq_clear(t.kv, &seq);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

Suite *forward_suite(void)
{
    Suite *s = suite_create("forward");
    TCase *t = tcase_create("forward");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, chunks_and_threads_leave_no_trace_f32);
    tcase_add_test(t, chunks_and_threads_leave_no_trace_bf16);
    tcase_add_loop_test(t, chunks_and_threads_leave_no_trace_bytes, 0, 2);
    tcase_add_test(t, chunks_and_threads_leave_no_trace_reference);
    tcase_add_test(t, fast_kernels_agree_with_the_reference);
    tcase_add_test(t, company_leaves_no_trace);
    tcase_add_test(t, last_steps_need_no_soft_embedding);
    tcase_add_test(t, broken_canvases_are_their_owners);
    tcase_add_test(t, last_layer_may_be_skipped);
    tcase_add_test(t, passes_are_checked);
    tcase_add_test(t, sliding_pages_are_forgotten);
    tcase_add_test(t, full_cache_is_an_error_and_nothing_is_lost);
    tcase_add_test(t, sequences_share_pages);
    tcase_add_test(t, the_bound_holds_for_both_kinds_together);
    suite_add_tcase(s, t);
    return s;
}
