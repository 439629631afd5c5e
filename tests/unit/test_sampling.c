/* What a request may ask of its draws and its answer, on a fixture's model: temperature, filters,
 * bias, log-probabilities, settled beginnings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "dgemma.h"
#include "engine/logprobs.h"
#include "engine/sampling.h"
#include "suites.h"
#include "support/cpu_engine.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";
enum { N_VOCAB = 384, CANVAS = 16, MOST = 2048 };

/* All that a request said. */
typedef struct answer {
    int32_t ids[MOST], top[MOST * 20];
    float logprob[MOST], entropy[MOST], top_logprob[MOST * 20];
    size_t n_ids;
    int n_top, n_with_logprobs, n_block;
    char text[1 << 16];
    size_t n_text;
    int n_text_before_block; /* pieces that came before the BLOCK event of their block */
    bool block_came;
    uint64_t draws; /* a hash of every canvas: of every draw that was accepted */
    dgemma_stats stats;
} answer;

static void keep_block(answer *a, const dgemma_event *e)
{
    size_t n = e->n_tokens, n_top = (size_t)e->n_top;
    ck_assert_uint_le(a->n_ids + n, MOST);
    ck_assert_int_eq(e->block, a->n_block++);
    memcpy(a->ids + a->n_ids, e->tokens, n * sizeof *a->ids);
    if (e->logprobs) {
        a->n_with_logprobs++;
        a->n_top = e->n_top;
        memcpy(a->logprob + a->n_ids, e->logprobs, n * sizeof *a->logprob);
        memcpy(a->entropy + a->n_ids, e->entropy, n * sizeof *a->entropy);
        if (n_top) {
            memcpy(a->top + a->n_ids * n_top, e->top_tokens, n * n_top * sizeof *a->top);
            memcpy(a->top_logprob + a->n_ids * n_top, e->top_logprobs,
                   n * n_top * sizeof *a->top_logprob);
        }
    }
    a->n_ids += n;
    a->block_came = true;
}

static bool on_event(void *user, const dgemma_event *e)
{
    answer *a = user;
    if (e->kind == DGEMMA_EVENT_BLOCK)
        keep_block(a, e);
    if (e->kind == DGEMMA_EVENT_DRAFT)
        a->block_came = false; /* a block is being worked on */
    if (e->kind == DGEMMA_EVENT_TEXT || e->kind == DGEMMA_EVENT_THINKING) {
        memcpy(a->text + a->n_text, e->text, e->text_len);
        a->n_text += e->text_len;
        a->n_text_before_block += !a->block_came;
    }
    return true;
}

static bool on_step(void *user, const dgemma_step *step)
{
    answer *a = user;
    for (int i = 0; i < step->n; i++)
        a->draws = (a->draws ^ (uint64_t)step->canvas[i]) * 0x100000001B3u;
    return true;
}

static dgemma_engine *open_engine(const char *cpu)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = model_path;
    opt.cpu = cpu;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

static void ask(dgemma_engine *e, const dgemma_request_options *opt, answer *a)
{
    dgemma_error err = {0};
    memset(a, 0, sizeof *a);
    dgemma_request_options o = *opt;
    o.drafts = true;
    if (!o.on_step) {
        o.on_step = on_step;
        o.step_user = a;
    }
    ck_assert_msg(dgemma_generate(e, &o, on_event, a, &a->stats, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(a->stats.n_output, (int)a->n_ids);
    ck_assert_int_eq(a->stats.n_blocks, a->n_block);
}

static bool same(const answer *a, const answer *b)
{
    return a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) &&
           a->stats.n_steps == b->stats.n_steps && a->draws == b->draws;
}

static dgemma_request_options asking(const dgemma_engine *e, uint64_t seed)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "How are you?";
    opt.max_tokens = 60;
    opt.seed = seed;
    return opt;
}

/* ---- the draw ---- */

START_TEST(temperature_and_filters_act_on_the_draw)
{
    static answer plain, other, again;
    dgemma_engine *e = open_engine(NULL);
    int n_hot = 0, n_seed = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        dgemma_request_options opt = asking(e, seed);
        ask(e, &opt, &plain);
        opt.top_k = N_VOCAB; /* leaves everything, on the filtered way */
        ask(e, &opt, &other);
        ck_assert(same(&plain, &other));

        opt = asking(e, seed); /* three ways to the most likely token */
        opt.temperature = 0;
        ask(e, &opt, &other);
        opt.temperature = 1;
        opt.top_k = 1;
        ask(e, &opt, &again);
        ck_assert(same(&other, &again));
        opt.top_k = 0;
        opt.top_p = 1e-6f;
        ask(e, &opt, &again);
        ck_assert(same(&other, &again));

        opt = asking(e, seed);
        opt.temperature = 1.7f;
        opt.top_p = 0.95f;
        opt.min_p = 0.001f;
        ask(e, &opt, &other);
        ask(e, &opt, &again);
        ck_assert(same(&other, &again));
        n_hot += !same(&plain, &other);
        opt.seed += 100;
        ask(e, &opt, &again);
        n_seed += !same(&other, &again);
    }
    ck_assert_int_gt(n_hot, 0);
    ck_assert_int_gt(n_seed, 0);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(bias_moves_the_answer)
{
    static answer a;
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = asking(e, 1);
    opt.max_tokens = 20;
    const dgemma_logit_bias push[] = {{300, 500}, {2, -500}};
    opt.logit_bias = push;
    opt.n_logit_bias = 2;
    ask(e, &opt, &a);
    ck_assert_uint_eq(a.n_ids, 20);
    for (size_t i = 0; i < a.n_ids; i++)
        ck_assert_int_eq(a.ids[i], 300);
    ck_assert_int_eq(a.stats.n_converged, a.stats.n_blocks); /* nothing is uncertain about it */

    static dgemma_logit_bias never[N_VOCAB - 1]; /* all but one */
    for (int i = 0; i < N_VOCAB - 1; i++)
        never[i] = (dgemma_logit_bias){i >= 310 ? i + 1 : i, -1000};
    opt.logit_bias = never;
    opt.n_logit_bias = DG_COUNT(never);
    ask(e, &opt, &a);
    for (size_t i = 0; i < a.n_ids; i++)
        ck_assert_int_eq(a.ids[i], 310);
    dgemma_engine_close(e);
}
END_TEST

/* ---- log-probabilities ---- */

START_TEST(logprobs_come_with_the_block)
{
    static answer plain, a;
    static const char *const cpu[] = {NULL, "ref"};
    dgemma_engine *e = open_engine(cpu[_i]);
    dgemma_request_options opt = asking(e, 2);
    ask(e, &opt, &plain);
    ck_assert_int_eq(plain.n_with_logprobs, 0);
    opt.n_logprobs = 20;
    ask(e, &opt, &a);
    ck_assert(same(&plain, &a)); /* looking changes nothing */
    ck_assert_int_eq(a.n_with_logprobs, a.stats.n_blocks);
    ck_assert_int_eq(a.n_top, 20);
    for (size_t i = 0; i < a.n_ids; i++) {
        const float *top = a.top_logprob + i * 20;
        ck_assert_int_eq(a.top[i * 20], a.ids[i]);
        ck_assert_float_eq_tol(top[0], a.logprob[i], 1e-5f);
        double sum = 0, entropy = 0;
        for (int k = 0; k < 20; k++) {
            ck_assert(k == 0 || top[k] <= top[k - 1]);
            sum += exp(top[k]);
            entropy -= exp(top[k]) * top[k];
        }
        ck_assert_double_le(sum, 1 + 1e-5);
        ck_assert_double_ge(a.entropy[i], entropy - 1e-4); /* of which these are a part */
    }
    opt.n_logprobs = 0;
    static answer own;
    ask(e, &opt, &own);
    ck_assert_int_eq(own.n_top, 0);
    ck_assert_mem_eq(own.logprob, a.logprob, a.n_ids * sizeof *a.logprob);
    dgemma_engine_close(e);
}
END_TEST

/* ---- settled beginnings ---- */

/* Nothing but text: no thoughts, no calls. */
static const dgemma_logit_bias plain[] = {{8, -1000},  {9, -1000},  {12, -1000}, {6, -1000},
                                          {13, -1000}, {14, -1000}, {16, -1000}};

/* What was sent early and late, put together, is what the block's tokens say. */
START_TEST(settled_text_is_the_blocks_text)
{
    static answer a;
    dgemma_engine *e = open_engine(NULL);
    int n_early = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        dgemma_request_options opt = asking(e, seed);
        opt.settled_steps = 1 + (int)(seed % 3);
        opt.confidence_threshold = seed % 2 ? 0.6f : 2;
        opt.stability_threshold = 4;
        opt.n_logprobs = 1;
        opt.logit_bias = plain; /* text alone */
        opt.n_logit_bias = DG_COUNT(plain);
        ask(e, &opt, &a);
        n_early += a.n_text_before_block;
        /* through the decoder as a whole; special tokens are printed there, and not said */
        int32_t said[MOST];
        size_t n = 0, len;
        for (size_t i = 0; i < a.n_ids; i++)
            if (a.ids[i] > 17 && a.ids[i] < 378)
                said[n++] = a.ids[i];
        char *text;
        ck_assert_int_eq(dgemma_detokenize(e, said, n, &text, &len, NULL), DGEMMA_OK);
        size_t skip = 0; /* blanks at the start are held until something follows */
        if (a.n_text < len)
            skip = len - a.n_text;
        for (size_t i = 0; i < skip; i++)
            ck_assert_msg(strchr(" \n\t\r\v\f", text[i]) != NULL, "seed %d", (int)seed);
        ck_assert_mem_eq(a.text, text + skip, a.n_text);
        dgemma_free(text);
        for (size_t i = 0; i < a.n_ids; i++) { /* of the step that settled it */
            ck_assert_int_eq(a.top[i], a.ids[i]);
            ck_assert_float_eq_tol(a.top_logprob[i], a.logprob[i], 1e-5f);
        }
    }
    ck_assert_int_gt(n_early, 5);
    dgemma_engine_close(e);
}
END_TEST

/* A block ends as soon as its turn has: the steps for what lies behind are saved. */
START_TEST(a_settled_end_ends_the_block)
{
    static answer a, slow;
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = asking(e, 0);
    const dgemma_logit_bias end[] = {{7, 500}};
    opt.logit_bias = end;
    opt.n_logit_bias = 1;
    opt.stability_threshold = 10;
    ask(e, &opt, &slow);
    opt.settled_steps = 2;
    ask(e, &opt, &a);
    ck_assert_int_eq(a.stats.end, DGEMMA_END_STOP);
    ck_assert_int_eq(slow.stats.end, DGEMMA_END_STOP);
    ck_assert_int_eq(a.stats.n_steps, 2);
    ck_assert_int_eq(slow.stats.n_steps, 11);

    /* the same where max_tokens ends it, and where a stop string does */
    const dgemma_logit_bias word[] = {{300, 500}};
    opt.logit_bias = word;
    opt.max_tokens = 5;
    ask(e, &opt, &a);
    ck_assert_int_eq(a.stats.end, DGEMMA_END_LENGTH);
    ck_assert_uint_eq(a.n_ids, 5);
    ck_assert_int_eq(a.stats.n_steps, 2);
    opt.max_tokens = 500;
    char stop[64] = {0};
    ck_assert_uint_lt(a.n_text, sizeof stop);
    memcpy(stop, a.text, a.n_text);
    const char *stops[] = {stop};
    opt.stop = stops;
    opt.n_stop = 1;
    ask(e, &opt, &a);
    ck_assert_int_eq(a.stats.end, DGEMMA_END_STOP);
    ck_assert_uint_eq(a.n_text, 0);
    ck_assert_int_eq(a.stats.n_steps, 2);
    dgemma_engine_close(e);
}
END_TEST

static bool stop_at_third(void *user, const dgemma_step *step)
{
    (void)user;
    return step->step < 2;
}

/* Of a block that ends while it settles, what was sent counts: for the engine as for the request.
 */
START_TEST(blocks_that_were_cut_are_counted)
{
    static answer a;
    uint64_t n_output = 0, n_block = 0;
    dgemma_engine *e = open_engine(NULL);
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int how = 0; how < 3; how++) {
            dgemma_request_options opt = asking(e, seed);
            char first[2] = {a.text[0], 0};
            const char *stop[] = {first};
            opt.settled_steps = 1 + (int)(seed % 3);
            opt.confidence_threshold = seed % 2 ? 0.6f : 2;
            opt.stability_threshold = 4;
            opt.logit_bias = plain; /* text alone */
            opt.n_logit_bias = DG_COUNT(plain);
            opt.stop = stop;
            opt.n_stop = how == 1 && first[0]; /* what the one before it began with */
            opt.on_step = how == 2 ? stop_at_third : NULL;
            memset(&a, 0, sizeof a);
            ck_assert_int_eq(dgemma_generate(e, &opt, on_event, &a, &a.stats, NULL), DGEMMA_OK);
            n_output += (uint64_t)a.stats.n_output;
            n_block += (uint64_t)a.stats.n_blocks;
            dgemma_engine_counters c;
            dgemma_engine_count(e, &c);
            ck_assert_uint_eq(c.n_output_tokens, n_output);
            ck_assert_uint_eq(c.n_blocks, n_block);
        }
    dgemma_engine_close(e);
}
END_TEST

/* A step callback may move the canvas, but not what was sent. */
static bool scramble(void *user, const dgemma_step *step)
{
    (void)user;
    for (int i = 0; i < step->n; i++)
        step->canvas[i] = (step->canvas[i] + 1) % N_VOCAB;
    return true;
}

START_TEST(callbacks_do_not_move_what_was_sent)
{
    static answer a;
    dgemma_engine *e = open_engine(NULL);
    for (uint64_t seed = 0; seed < 4; seed++) {
        dgemma_request_options opt = asking(e, seed);
        opt.settled_steps = 1;
        opt.confidence_threshold = 3;
        opt.stability_threshold = 6;
        opt.on_step = scramble;
        opt.n_logprobs = 1;
        ask(e, &opt, &a);
        for (size_t i = 0; i < a.n_ids; i++)
            ck_assert_int_eq(a.top[i], a.ids[i]);
    }
    dgemma_engine_close(e);
}
END_TEST

/* ---- what makes no sense ---- */

START_TEST(sampling_options_are_checked)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_error err = {0};
    dgemma_request_options good = asking(e, 0), opt;
    good.max_tokens = 1;
    ck_assert_int_eq(dgemma_generate(e, &good, NULL, NULL, NULL, &err), DGEMMA_OK);
    const dgemma_logit_bias outside = {N_VOCAB, 1}, below = {-1, 1}, nan = {1, NAN},
                            strong = {1, 2000}, twice[] = {{4, 1}, {5, 1}, {4, 1}};
    static dgemma_logit_bias many[1025];
#define REFUSED(name, change)                                                                      \
    do {                                                                                           \
        opt = good;                                                                                \
        change;                                                                                    \
        ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_E_ARG);          \
        ck_assert_msg(strstr(err.msg, name), "%s", err.msg);                                       \
    } while (0)
    REFUSED("temperature", opt.temperature = -1);
    REFUSED("temperature", opt.temperature = NAN);
    REFUSED("temperature", opt.temperature = 1e-20f);
    REFUSED("temperature", opt.temperature = 1000);
    REFUSED("top_k", opt.top_k = -1);
    REFUSED("top_p", opt.top_p = 0);
    REFUSED("top_p", opt.top_p = 1.5f);
    REFUSED("min_p", opt.min_p = -0.1f);
    REFUSED("min_p", opt.min_p = NAN);
    REFUSED("n_logprobs", opt.n_logprobs = 21);
    REFUSED("n_logprobs", opt.n_logprobs = -2);
    REFUSED("settled_steps", opt.settled_steps = -1);
    REFUSED("vocabulary", (opt.logit_bias = &outside, opt.n_logit_bias = 1));
    REFUSED("vocabulary", (opt.logit_bias = &below, opt.n_logit_bias = 1));
    REFUSED("logit_bias", (opt.logit_bias = &nan, opt.n_logit_bias = 1));
    REFUSED("logit_bias", (opt.logit_bias = &strong, opt.n_logit_bias = 1));
    REFUSED("two", (opt.logit_bias = twice, opt.n_logit_bias = 3));
    REFUSED("at most", (opt.logit_bias = many, opt.n_logit_bias = 1025));
#undef REFUSED
    dgemma_engine_close(e);
}
END_TEST

/* Each option at its bounds, and just beyond them. */
START_TEST(bounds_are_within)
{
    static const dgemma_request_options usual = {.temperature = 1, .top_p = 1, .n_logprobs = -1};
    dgemma_logit_bias bias = {0};
    dgemma_error err;
    dgemma_request_options o;
#define CHECKED(change, ok)                                                                        \
    do {                                                                                           \
        o = usual;                                                                                 \
        bias = (dgemma_logit_bias){.token = 9};                                                    \
        change;                                                                                    \
        ck_assert_int_eq(dg_sampling_check(&o, 10, &err), (ok) ? DGEMMA_OK : DGEMMA_E_ARG);        \
    } while (0)
#define BIASED o.logit_bias = &bias, o.n_logit_bias = 1
    CHECKED(o.temperature = 0, true);
    CHECKED(o.temperature = 1e-6f, true);
    CHECKED(o.temperature = 0.9e-6f, false);
    CHECKED(o.temperature = 100, true);
    CHECKED(o.temperature = 100.1f, false);
    CHECKED(o.temperature = NAN, false);
    CHECKED(o.top_k = -1, false);
    CHECKED(o.top_p = 0, false);
    CHECKED(o.top_p = 1.01f, false);
    CHECKED(o.top_p = NAN, false);
    CHECKED(o.min_p = 1, true);
    CHECKED(o.min_p = 1.01f, false);
    CHECKED(o.min_p = -0.01f, false);
    CHECKED(o.min_p = NAN, false);
    CHECKED(o.n_logprobs = -2, false);
    CHECKED(o.n_logprobs = DG_MAX_TOP, true);
    CHECKED(o.n_logprobs = DG_MAX_TOP + 1, false);
    CHECKED(BIASED, true);
    CHECKED((BIASED, bias.token = 10), false);
    CHECKED((BIASED, bias.token = -1), false);
    CHECKED((BIASED, bias.bias = -1000), true);
    CHECKED((BIASED, bias.bias = 1000.5f), false);
    CHECKED((BIASED, bias.bias = NAN), false);
    static dgemma_logit_bias many[DG_MAX_LOGIT_BIAS + 1];
    CHECKED((o.logit_bias = many, o.n_logit_bias = DG_MAX_LOGIT_BIAS), true);
    CHECKED((o.logit_bias = many, o.n_logit_bias = DG_MAX_LOGIT_BIAS + 1), false);
#undef BIASED
#undef CHECKED
}
END_TEST

/* A request's own copy is sorted, and each word is in it once. */
START_TEST(biases_are_sorted)
{
    dgemma_logit_bias bias[] = {{7, 1}, {3, 2}, {5, 3}};
    dgemma_request_options o = {.temperature = 0.5f,
                                .top_k = 4,
                                .top_p = 0.25f,
                                .min_p = 0.125f,
                                .logit_bias = bias,
                                .n_logit_bias = 3};
    dg_sampling s;
    ck_assert_int_eq(dg_sampling_init(&s, &o, NULL), DGEMMA_OK);
    dg_vocabulary_options v = dg_sampling_options(&s);
    ck_assert_int_eq(v.n_bias, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(v.bias[i].id, 3 + 2 * i);
    ck_assert(v.bias[0].bias == 2 && v.draw->temperature == 0.5f && v.draw->top_k == 4 &&
              v.draw->top_p == 0.25f && v.draw->min_p == 0.125f);
    dg_sampling_clear(&s);
    bias[2].token = 7;
    ck_assert_int_eq(dg_sampling_init(&s, &o, NULL), DGEMMA_E_ARG);
    dg_sampling_clear(&s);
}
END_TEST

/* What was pinned keeps the log-probabilities of the step that pinned it. */
START_TEST(pinned_logprobs_stay)
{
    enum { N = 4, N_TOP = 2 };
    dg_logprobs l;
    float entropy[N];
    ck_assert_int_eq(dg_logprobs_init(&l, N_TOP, N, NULL), DGEMMA_OK);
    for (int step = 1; step <= 2; step++) {
        for (int i = 0; i < N; i++) {
            entropy[i] = l.step_logprob[i] = (float)(10 * step + i);
            for (int k = 0; k < DG_MAX_TOP; k++) {
                l.step_top[i * DG_MAX_TOP + k] = 1000 * step + 100 * i + k;
                l.step_top_logprob[i * DG_MAX_TOP + k] = (float)(1000 * step + 100 * i + k);
            }
        }
        dg_logprobs_keep(&l, entropy, step == 1 ? 0 : 2, N);
    }
    for (int i = 0; i < N; i++) {
        int step = i < 2 ? 1 : 2;
        ck_assert(l.logprob[i] == (float)(10 * step + i) && l.entropy[i] == l.logprob[i]);
        for (int k = 0; k < N_TOP; k++) {
            ck_assert_int_eq(l.top[i * N_TOP + k], 1000 * step + 100 * i + k);
            ck_assert(l.top_logprob[i * N_TOP + k] == (float)(1000 * step + 100 * i + k));
        }
    }
    dg_logprobs_clear(&l);
}
END_TEST

Suite *sampling_suite(void)
{
    Suite *s = suite_create("sampling");
    TCase *t = tcase_create("sampling");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, temperature_and_filters_act_on_the_draw);
    tcase_add_test(t, bias_moves_the_answer);
    tcase_add_loop_test(t, logprobs_come_with_the_block, 0, 2);
    tcase_add_test(t, settled_text_is_the_blocks_text);
    tcase_add_test(t, a_settled_end_ends_the_block);
    tcase_add_test(t, blocks_that_were_cut_are_counted);
    tcase_add_test(t, callbacks_do_not_move_what_was_sent);
    tcase_add_test(t, sampling_options_are_checked);
    TCase *options = tcase_create("options");
    tcase_add_test(options, bounds_are_within);
    tcase_add_test(options, biases_are_sorted);
    tcase_add_test(options, pinned_logprobs_stay);
    suite_add_tcase(s, options);
    suite_add_tcase(s, t);
    return s;
}
