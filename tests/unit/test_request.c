/* Requests from the prompt to the end, and the public functions around them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cpu/bfloat.h"
#include "cpu/kernels.h"
#include "dgemma.h"
#include "engine/engine.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";

static dgemma_engine *open_engine(int context_length, int n_threads)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = model_path;
    opt.context_length = context_length;
    opt.n_threads = n_threads;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

/* Everything a request said. */
typedef struct answer {
    int32_t ids[4096];
    size_t n_ids;
    char text[65536];
    size_t text_len;
    int n_draft, n_block, n_prompt_event, n_end, longest_canvas, shortest_canvas;
    int cancel_after; /* drafts; 0: never */
    bool stopped;     /* by a token of its own: */
    int32_t stop_token;
    dgemma_stats stats;
} answer;

static bool on_event(void *user, const dgemma_event *e)
{
    answer *a = user;
    ck_assert_int_eq(a->n_end, 0); /* nothing comes after the end */
    switch (e->kind) {
    case DGEMMA_EVENT_PROMPT:
        a->n_prompt_event++;
        ck_assert_int_le(e->n_done, e->n_total);
        break;
    case DGEMMA_EVENT_DRAFT: {
        int n = (int)e->n_tokens;
        a->n_draft++;
        a->longest_canvas = n > a->longest_canvas ? n : a->longest_canvas;
        a->shortest_canvas = !a->shortest_canvas || n < a->shortest_canvas ? n : a->shortest_canvas;
        ck_assert_ptr_nonnull(e->entropy);
        ck_assert_ptr_nonnull(e->accepted);
        return a->n_draft != a->cancel_after;
    }
    case DGEMMA_EVENT_BLOCK:
        ck_assert_int_eq(e->block, a->n_block++);
        memcpy(a->ids + a->n_ids, e->tokens, e->n_tokens * sizeof *a->ids);
        a->n_ids += e->n_tokens;
        a->stopped = e->stop_token;
        a->stop_token = e->stop_token ? e->tokens[e->n_tokens] : -1;
        break;
    case DGEMMA_EVENT_TEXT:
    case DGEMMA_EVENT_THINKING:
        ck_assert_int_eq(e->text[e->text_len], 0);
        memcpy(a->text + a->text_len, e->text, e->text_len);
        a->text_len += e->text_len;
        break;
    case DGEMMA_EVENT_TOOL_CALL:
    case DGEMMA_EVENT_READ:
        break;
    case DGEMMA_EVENT_END:
        a->n_end++;
        break;
    }
    return true;
}

static void ask(dgemma_engine *e, const dgemma_request_options *opt, answer *a)
{
    dgemma_error err = {0};
    dgemma_request_options with_drafts = *opt;
    with_drafts.drafts = true;
    ck_assert_msg(dgemma_generate(e, &with_drafts, on_event, a, &a->stats, &err) == DGEMMA_OK, "%s",
                  err.msg);
    ck_assert_int_eq(a->n_end, 1);
    ck_assert_int_eq(a->stats.n_output, (int)a->n_ids);
    ck_assert_int_eq(a->stats.n_steps, a->n_draft);
}

START_TEST(same_seed_same_answer)
{
    answer *a = calloc(3, sizeof *a);
    dgemma_engine *e = open_engine(0, 1),
                  *other = open_engine(0, 3); /* two engines in one process */
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "What is the time?";
    opt.max_tokens = 60;
    opt.seed = 5;
    ask(e, &opt, &a[0]);
    ask(other, &opt, &a[1]);
    ck_assert_uint_eq(a[0].n_ids, a[1].n_ids);
    ck_assert_mem_eq(a[0].ids, a[1].ids, a[0].n_ids * sizeof *a[0].ids);
    ck_assert_uint_eq(a[0].text_len, a[1].text_len);
    ck_assert_mem_eq(a[0].text, a[1].text, a[0].text_len);
    ck_assert_int_gt(a[0].stats.n_blocks, 0);
    opt.seed = 6;
    ask(e, &opt, &a[2]);
    ck_assert(a[2].n_ids != a[0].n_ids ||
              memcmp(a[2].ids, a[0].ids, a[0].n_ids * sizeof *a[0].ids) != 0);
    dgemma_engine_close(e);
    dgemma_engine_close(other);
    free(a);
}
END_TEST

/* A model that has nothing to say: the answer ends, and costs one block. */
START_TEST(padding_is_no_answer)
{
    answer *a = calloc(1, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_logit_bias silence = {.token = e->loaded.cfg.pad_token, .bias = 1000};
    opt.raw_prompt = "Once upon a time";
    opt.logit_bias = &silence;
    opt.n_logit_bias = 1;
    ask(e, &opt, a);
    ck_assert_int_eq(a->stats.end, DGEMMA_END_STOP);
    ck_assert_int_eq(a->stats.n_output, 0);
    ck_assert_int_eq(a->stats.n_blocks, 1);
    ck_assert_uint_eq(a->text_len, 0);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

/* A shorter limit gives the beginning of the longer answer. */
START_TEST(max_tokens_cuts)
{
    answer *a = calloc(2, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static const int32_t prompt[] = {2, 40, 41, 42};
    opt.tokens = prompt;
    opt.n_tokens = 4;
    opt.max_tokens = 48;
    do { /* an answer that is long enough to be cut */
        memset(a, 0, sizeof *a);
        opt.seed++;
        ask(e, &opt, &a[0]);
    } while (a[0].n_ids <= 21 && opt.seed < 50);
    opt.max_tokens = 21;
    ask(e, &opt, &a[1]);
    ck_assert_int_eq(a[1].stats.end, DGEMMA_END_LENGTH);
    ck_assert_uint_eq(a[1].n_ids, 21);
    ck_assert_mem_eq(a[0].ids, a[1].ids, 21 * sizeof *a[0].ids);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

START_TEST(nothing_comes_after_the_stop_token)
{
    answer *a = calloc(1, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.raw_prompt = "abc";
    opt.max_tokens = 4000;
    int stopped = 0;
    for (opt.seed = 0; opt.seed < 6; opt.seed++) {
        memset(a, 0, sizeof *a);
        ask(e, &opt, a);
        stopped += a->stats.end == DGEMMA_END_STOP;
        ck_assert(!a->stopped); /* by no token of its own */
        for (size_t i = 0; i < a->n_ids; i++)
            ck_assert(a->ids[i] != 1 && a->ids[i] != 7);
    }
    ck_assert_int_gt(stopped, 0);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

/* Any token can be one: the answer is what was said before it, and it is told behind that. */
START_TEST(a_token_of_ones_own_ends_the_answer)
{
    answer *a = calloc(2, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.raw_prompt = "abc";
    opt.max_tokens = 12;
    ask(e, &opt, &a[0]);
    ck_assert_uint_gt(a[0].n_ids, 4);
    size_t first = 0;
    while (a[0].ids[first] != a[0].ids[3])
        first++;
    opt.stop_tokens = (int32_t[]){383, a[0].ids[3]};
    opt.n_stop_tokens = 2;
    ask(e, &opt, &a[1]);
    ck_assert_int_eq(a[1].stats.end, DGEMMA_END_STOP);
    ck_assert_uint_eq(a[1].n_ids, first);
    ck_assert_mem_eq(a[1].ids, a[0].ids, first * sizeof *a[0].ids);
    ck_assert(!a[0].stopped && a[1].stopped && a[1].stop_token == a[0].ids[3]);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

/* Near the end of the context the canvas is cut, and the request ends there. */
START_TEST(context_is_respected)
{
    answer *a = calloc(1, sizeof *a);
    dgemma_engine *e = open_engine(50, 2); /* canvas 16 */
    dgemma_request_options opt = dgemma_request_defaults(e);
    int32_t prompt[60];
    for (int i = 0; i < 60; i++)
        prompt[i] = 20 + i;
    opt.tokens = prompt;
    opt.n_tokens = 10;
    int reached = 0;
    for (opt.seed = 0; opt.seed < 20; opt.seed++) {
        memset(a, 0, sizeof *a);
        ask(e, &opt, a);
        ck_assert_uint_le(10 + a->n_ids, 50);
        if (a->stats.end == DGEMMA_END_CONTEXT) {
            reached++;
            /* a thought that was cut takes two: a line's end and its marker */
            ck_assert_uint_ge(10 + a->n_ids, 48);
            ck_assert_int_eq(a->longest_canvas, 16);
            ck_assert_int_lt(a->shortest_canvas, 16);
            if (a->n_ids == 40)
                ck_assert_int_eq(a->shortest_canvas, 8);
        }
    }
    ck_assert_int_gt(reached, 0);

    dgemma_error err = {0};
    opt.n_tokens = 50;
    ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_E_CONTEXT);
    opt.n_tokens = 49;
    ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_OK);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

/* A prompt of many passes is encoded piece by piece, with progress. */
START_TEST(long_prompts_show_progress)
{
    answer *a = calloc(1, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static int32_t prompt[3600];
    for (int i = 0; i < 3600; i++)
        prompt[i] = i % 300;
    opt.tokens = prompt;
    opt.n_tokens = 3600;
    opt.max_tokens = 10;
    ask(e, &opt, a);
    ck_assert_int_ge(a->n_prompt_event, 3);
    ck_assert_int_eq(a->stats.n_prompt, 3600);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

START_TEST(callback_may_cancel)
{
    answer *a = calloc(1, sizeof *a);
    dgemma_engine *e = open_engine(0, 2);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.max_tokens = 100;
    opt.drafts = true;
    opt.max_denoise_steps = 200;
    opt.confidence_threshold = 0; /* never settles */
    a->cancel_after = 2;
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_generate(e, &opt, on_event, a, &a->stats, &err), DGEMMA_OK);
    ck_assert_int_eq(a->stats.end, DGEMMA_END_CANCELLED);
    ck_assert_int_lt(a->stats.n_steps, 200);
    dgemma_engine_close(e);
    free(a);
}
END_TEST

static bool keep_entropies(void *user, const dgemma_step *s)
{
    float(*entropy)[16] = user;
    memcpy(entropy[s->step], s->entropy, sizeof *entropy);
    return s->step == 0;
}

/* Without it the first step is the same, and the second one, from the same canvas, is not. */
START_TEST(self_conditioning_can_be_left_out)
{
    float entropy[2][2][16] = {{{0}}};
    dgemma_engine *e = open_engine(0, 1);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.confidence_threshold = 0;
    opt.on_step = keep_entropies;
    for (int off = 0; off < 2; off++) {
        e->no_self_conditioning = off;
        opt.step_user = entropy[off];
        ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, NULL), DGEMMA_OK);
    }
    ck_assert_mem_eq(entropy[0][0], entropy[1][0], sizeof entropy[0][0]);
    ck_assert_mem_ne(entropy[0][1], entropy[1][1], sizeof entropy[0][1]);
    ck_assert_float_gt(entropy[0][1][0] + entropy[1][1][0], 0);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(options_are_checked)
{
    dgemma_engine *e = open_engine(0, 1);
    dgemma_error err = {0};
    dgemma_request_options good = dgemma_request_defaults(e), opt;
    ck_assert_int_gt(good.max_tokens, 256);
    good.chat_prompt = "x";
    good.max_tokens = 1;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        opt = good;                                                                                \
        change;                                                                                    \
        ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_E_ARG);          \
        ck_assert_int_gt((int)strlen(err.msg), 8);                                                 \
    } while (0)
    REFUSED(opt.raw_prompt = "y");
    REFUSED(opt.chat_prompt = NULL);
    REFUSED(opt.max_tokens = 0);
    REFUSED(opt.max_denoise_steps = 0);
    REFUSED(opt.t_min = 0);
    REFUSED(opt.t_min = opt.t_max = 1e-38f);
    REFUSED(opt.t_max = opt.t_min / 2);
    REFUSED(opt.entropy_bound = -1);
    REFUSED(opt.stability_threshold = -1);
    REFUSED(opt.confidence_threshold = -1);
    REFUSED(opt.canvas_length = 0);
    REFUSED(opt.canvas_length = 17);
    static const int32_t outside[] = {2, 384}, many[DGEMMA_MAX_STOP_TOKENS + 1];
    REFUSED((opt.stop_tokens = outside, opt.n_stop_tokens = 2));
    REFUSED((opt.stop_tokens = many, opt.n_stop_tokens = DGEMMA_MAX_STOP_TOKENS + 1));
    REFUSED((opt.chat_prompt = NULL, opt.tokens = outside, opt.n_tokens = 2));
    REFUSED((opt.chat_prompt = NULL, opt.tokens = outside, opt.n_tokens = 0));
    dgemma_engine_close(e);
}
END_TEST

START_TEST(engine_options_are_checked)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = dg_test_engine_defaults();
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_ARG);
    opt.model_path = "tests/no/such/folder";
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_IO);
    opt.model_path = model_path;
    opt.cpu = "abacus";
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_ARG);
    opt.cpu = NULL;
    opt.n_threads = -1;
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_ARG);
    ck_assert_ptr_null(e);
    dgemma_engine_close(NULL);
}
END_TEST

/* What a model of floats with a tower in bfloat16 is computed by: on a processor that multiplies
 * such numbers the tower's bits are its own. */
static const char *numerics_of(const char *set)
{
    dg_kernels k;
    dg_kernels_init(&k, dg_cpu_flags());
    return k.b ? k.b->profile : !strcmp(set, "ref") ? "reference" : "portable";
}

START_TEST(text_goes_through_the_tokenizer_and_back)
{
    dgemma_engine *e = open_engine(0, 1);
    dgemma_error err = {0};
    int32_t ids[64];
    size_t n;
    const char text[] = "H\xC3\xA9llo, <|turn>!";
    ck_assert_int_eq(dgemma_tokenize(e, text, strlen(text), false, ids, 64, &n, &err), DGEMMA_OK);
    size_t plain = n;
    char *back;
    size_t len;
    ck_assert_int_eq(dgemma_detokenize(e, ids, n, &back, &len, &err), DGEMMA_OK);
    ck_assert_str_eq(back, text);
    ck_assert_uint_eq(len, strlen(text));
    dgemma_free(back);
    ck_assert_int_eq(dgemma_tokenize(e, text, strlen(text), true, ids, 64, &n, &err), DGEMMA_OK);
    ck_assert_uint_lt(n, plain);
    ck_assert_int_eq(dgemma_tokenize(e, text, strlen(text), false, ids, 2, &n, &err),
                     DGEMMA_E_LIMIT);
    ck_assert_uint_eq(n, plain);

    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    ck_assert(info.has_tokenizer && info.has_chat_template);
    ck_assert_int_eq(info.n_vocab, 384);
    ck_assert_int_eq(info.canvas_length, 16);
    ck_assert_uint_gt(info.weight_bytes, 2000000);
    ck_assert_uint_gt(info.work_bytes, 0);
    ck_assert_str_eq(info.numerics, numerics_of(info.backend));
    dgemma_engine_close(e);
}
END_TEST

/* The profile of a model with quantised weights; a wrong name is refused. */
START_TEST(numerics_are_told)
{
    dgemma_error err = {0};
    dgemma_model_info info;
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = "models/pocket/pocket.gguf";
    opt.cpu = "ref";
    ck_assert_int_eq(dgemma_model_estimate(&info, &opt, &err), DGEMMA_OK);
    ck_assert_str_eq(info.numerics, "integer-2-reference");
    opt.profile = "float";
    ck_assert_int_eq(dgemma_model_estimate(&info, &opt, &err), DGEMMA_OK);
    ck_assert_str_eq(info.numerics, "reference");
    opt.profile = "double";
    ck_assert_int_eq(dgemma_model_estimate(&info, &opt, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "double"));
}
END_TEST

/* ---- without memory ---- */

/* Everything that a request can bring, of which nothing is known yet: a picture, biases, stop
 * strings, log-probabilities, a salt that nobody had. */
static dgemma_request_options with_everything(const dgemma_engine *e, char salt[16], int n)
{
    static const dgemma_media media = {.path = "tests/fixtures/golden/vision/image.png"};
    static const dgemma_logit_bias bias[] = {{.token = 30, .bias = 1}, {.token = 20, .bias = -1}};
    static const char *const stop[] = {"never", "said"};
    dgemma_request_options opt = dgemma_request_defaults(e);
    sprintf(salt, "%d", n);
    opt.chat_prompt = "What is this?";
    opt.system = "Be brief.";
    opt.thinking = true;
    opt.media = &media;
    opt.n_media = 1;
    opt.image_tokens = 70;
    opt.cache_salt = salt;
    opt.logit_bias = bias;
    opt.n_logit_bias = 2;
    opt.n_logprobs = 3;
    opt.stop = stop;
    opt.n_stop = 2;
    opt.drafts = true;
    opt.max_tokens = 40;
    opt.max_denoise_steps = 2;
    return opt;
}

/* Runs it to its end; DGEMMA_OK or why it was refused or failed. */
static dgemma_status run_to_the_end(dgemma_engine *e, const dgemma_request_options *opt, int *n_end)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    dgemma_status st = dgemma_request_submit(&r, e, opt, &err);
    for (dgemma_event event; !st && dgemma_request_wait(r, &event, -1);)
        if (event.kind == DGEMMA_EVENT_END) {
            ++*n_end;
            err.status = event.status;
        }
    dgemma_request_free(r);
    return st ? st : err.status;
}

/* Each allocation of submitting a request and of running it fails once: it says so, or can do
 * without; nothing stays behind, and the engine goes on. */
START_TEST(every_allocation_of_a_request_may_fail)
{
    dgemma_engine *e = open_engine(0, 1);
    char salt[16];
    int n_refused = 0, n_failed = 0, n_without = 0;
    bool reached = true;
    for (int n = 1; reached; n++) {
        dgemma_request_options opt = with_everything(e, salt, n);
        int n_end = 0;
        dg_test_fail_alloc_at(n);
        dgemma_status st = run_to_the_end(e, &opt, &n_end);
        reached = dg_test_alloc_done();
        if (st && st != DGEMMA_E_NOMEM)
            ck_abort_msg("allocation %d: status %d", n, (int)st);
        n_refused += st && !n_end;
        n_failed += st && n_end;
        n_without += !st && reached;
        ck_assert(reached || (!st && n_end == 1));
        dgemma_engine_counters c;
        dgemma_engine_count(e, &c);
        ck_assert_uint_eq(c.picture_bytes_used, 0);
        ck_assert_int_eq(c.n_waiting, 0);
    }
    ck_assert_int_gt(n_refused, 20);
    ck_assert_int_gt(n_failed, 10);
    ck_assert_int_gt(n_without, 0); /* what is kept for later */
    dgemma_engine_counters c;
    for (int i = 0; i < 60000; i++) { /* the last one lets go of its pages after its END */
        dgemma_engine_count(e, &c);
        if (!c.kv_bytes_used)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    ck_assert_uint_eq(c.kv_bytes_used, 0);
    ck_assert_int_eq(c.n_running, 0);
    dgemma_engine_close(e);
}
END_TEST

Suite *request_suite(void)
{
    Suite *s = suite_create("request");
    TCase *t = tcase_create("request");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, numerics_are_told);
    tcase_add_test(t, same_seed_same_answer);
    tcase_add_test(t, padding_is_no_answer);
    tcase_add_test(t, max_tokens_cuts);
    tcase_add_test(t, nothing_comes_after_the_stop_token);
    tcase_add_test(t, a_token_of_ones_own_ends_the_answer);
    tcase_add_test(t, context_is_respected);
    tcase_add_test(t, long_prompts_show_progress);
    tcase_add_test(t, callback_may_cancel);
    tcase_add_test(t, self_conditioning_can_be_left_out);
    tcase_add_test(t, every_allocation_of_a_request_may_fail);
    tcase_add_test(t, options_are_checked);
    tcase_add_test(t, engine_options_are_checked);
    tcase_add_test(t, text_goes_through_the_tokenizer_and_back);
    suite_add_tcase(s, t);
    return s;
}
