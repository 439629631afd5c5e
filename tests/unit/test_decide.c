/* Decisions made of canvases that are read: what their numbers mean, and odd questions. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/common.h"
#include "decide/decide_internal.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static const char pocket[] = "models/pocket/pocket.gguf";

static dgemma_engine *open_engine(int n_thread)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = pocket;
    opt.n_threads = n_thread;
    return record_engine(opt);
}

static const dgemma_option colours[] = {
    {"red", "like blood"}, {"green", NULL}, {"blue", NULL}, {"other", NULL}};
static const dgemma_option levels[] = {{"low", NULL}, {"middling", NULL}, {"high", NULL}};
static const dgemma_option meaning[] = {{NULL, "it is a person"}, {NULL, "it is not"}};
static const dgemma_question questions[] = {
    {DGEMMA_QUESTION_YES_NO, "Is somebody happy?", NULL, 0},
    {DGEMMA_QUESTION_CHOICE, "Which colour?", colours, 4},
    {DGEMMA_QUESTION_SCORE, "How loud?", levels, 3},
    {DGEMMA_QUESTION_YES_NO, "Who is it?", meaning, 2},
    {DGEMMA_QUESTION_CHOICE, "There is no choice.", colours, 1},
};
enum { N_QUESTION = DG_COUNT(questions) };

static dgemma_decide_options decide_options(void)
{
    dgemma_decide_options o = dgemma_decide_defaults();
    o.state = "Anna laughs, \"loudly\".\nHer coat is red. <|image|> <turn|>";
    o.questions = questions;
    o.n_questions = N_QUESTION;
    return o;
}

static dgemma_decision *decide(dgemma_engine *e, const dgemma_decide_options *o)
{
    dgemma_decision *d = NULL;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_decide(&d, e, o, &err), "%s", err.msg);
    return d;
}

static void check_sums(const dgemma_decision *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const dgemma_answer *a = dgemma_decision_answer(d, i);
        double sum = 0, score = 0, next = 0;
        for (size_t k = 0; k < a->n_options; k++) {
            sum += a->probability[k];
            score += (double)k * a->probability[k];
            ck_assert(a->probability[k] <= a->probability[a->best]);
            next = k != a->best ? fmax(next, a->probability[k]) : next;
        }
        ck_assert_double_eq_tol(sum, 1, 1e-12);
        ck_assert_double_eq_tol(score, a->score, 1e-12);
        ck_assert_double_eq_tol(a->probability[a->best] - next, a->confidence, 1e-12);
        ck_assert(a->label_mass > 0 && a->label_mass <= 1 + 1e-6);
    }
}

static bool same(const dgemma_decision *a, const dgemma_decision *b, size_t n)
{
    bool equal = true;
    for (size_t i = 0; i < n; i++) {
        const dgemma_answer *x = dgemma_decision_answer(a, i), *y = dgemma_decision_answer(b, i);
        equal &= x->n_options == y->n_options &&
                 !memcmp(x->probability, y->probability, x->n_options * sizeof(double));
    }
    return equal;
}

/* Two reads of three options, by hand. */
START_TEST(what_the_numbers_mean)
{
    const double first[] = {0.5, 0.5, 0}, second[] = {0.75, 0, 0.25};
    const double *const reads[] = {first, second}, mass[] = {0.5, 1};
    double mean[3], p[2], sum;
    dgemma_answer a;
    decide_average(&a, mean, reads, mass, 2, 3);
    ck_assert(mean[0] == 0.625 && mean[1] == 0.25 && mean[2] == 0.125);
    ck_assert(a.best == 0 && a.n_reads == 2 && a.n_options == 3);
    ck_assert(a.score == 0.5 && a.confidence == 0.375 && a.label_mass == 0.75);
    ck_assert_double_eq_tol(a.standard_error, 0.125, 1e-12);
    decide_average(&a, mean, reads, mass, 1, 3); /* one is not off, and 0 log 0 is 0 */
    ck_assert_double_eq(a.standard_error, 0);
    ck_assert_double_eq_tol(a.entropy, log(2), 1e-12);

    decide_softmax(p, &sum, (double[]){log(0.4), log(0.1)}, 2, 1);
    ck_assert_double_eq_tol(p[0], 0.8, 1e-12);
    ck_assert_double_eq_tol(sum, 0.5, 1e-12);
    decide_softmax(p, &sum, (double[]){log(0.4), log(0.1)}, 2, 2); /* the odds' square root */
    ck_assert_double_eq_tol(p[0], 2. / 3, 1e-12);
    decide_softmax(p, &sum, (double[]){-INFINITY, -INFINITY}, 2, 1); /* nothing is known of them */
    ck_assert(p[0] == 0.5 && p[1] == 0.5 && sum == 0);

    decide_question q = {.kind = DGEMMA_QUESTION_CHOICE, .n_options = 3};
    ck_assert_uint_eq(decide_turned(&q, 2, 2), 1);
    q.kind = DGEMMA_QUESTION_YES_NO;
    ck_assert_uint_eq(decide_turned(&q, 1, 1), 1);
    q.kind = DGEMMA_QUESTION_SCORE;
    ck_assert_uint_eq(decide_turned(&q, 1, 1), 1);
}
END_TEST

START_TEST(several_questions_in_one_canvas)
{
    dgemma_engine *e = open_engine(2);
    dgemma_decide_options o = decide_options();
    dgemma_decision *d = decide(e, &o), *again = decide(e, &o);
    dgemma_stats stats;
    static const size_t n_options[] = {2, 4, 3, 2, 1};
    check_sums(d, N_QUESTION);
    ck_assert(same(d, again, N_QUESTION));
    for (size_t i = 0; i < N_QUESTION; i++) {
        ck_assert_uint_eq(dgemma_decision_answer(d, i)->n_options, n_options[i]);
        ck_assert_int_eq(dgemma_decision_answer(d, i)->n_reads, i < 4);
    }
    ck_assert_double_eq(dgemma_decision_answer(d, 4)->confidence, 1);
    dgemma_decision_stats(d, &stats);
    ck_assert_int_eq(stats.n_steps, 1);
    ck_assert_int_eq(stats.n_output, 0);
    ck_assert_int_le((int)stats.n_positions, 48);
    dgemma_decision_free(d);
    dgemma_decision_free(again);

    /* what is certain needs no model at all */
    o.questions = &questions[4];
    o.n_questions = 1;
    d = decide(e, &o);
    dgemma_decision_stats(d, &stats);
    ck_assert_int_eq(stats.n_steps, 0);
    ck_assert_double_eq(dgemma_decision_answer(d, 0)->probability[0], 1);
    dgemma_decision_free(d);
    dgemma_engine_close(e);
}
END_TEST

/* Averages of samples are those of the reads they are made of, whichever came first. */
START_TEST(samples_are_averaged)
{
    dgemma_engine *e = open_engine(2);
    dgemma_decide_options o = decide_options();
    o.samples = 4;
    o.seed = 10;
    dgemma_decision *d = decide(e, &o), *one[4];
    for (int i = 0; i < 4; i++) {
        o.samples = 1;
        o.seed = 10 + (uint64_t)i;
        one[i] = decide(e, &o);
    }
    for (size_t q = 0; q < 4; q++) {
        const dgemma_answer *a = dgemma_decision_answer(d, q);
        for (size_t k = 0; k < a->n_options; k++) {
            double mean = 0;
            for (int i = 0; i < 4; i++)
                mean += dgemma_decision_answer(one[i], q)->probability[k];
            ck_assert_double_eq(a->probability[k], mean / 4);
        }
        ck_assert(a->standard_error > 0 && a->n_reads == 4);
    }
    for (int i = 0; i < 4; i++)
        dgemma_decision_free(one[i]);
    dgemma_decision_free(d);

    /* where one leaves doubt, three follow by themselves */
    o.samples = 0;
    d = decide(e, &o);
    ck_assert_int_eq(dgemma_decision_answer(d, 1)->n_reads, 4);
    dgemma_decision_free(d);

    /* a temperature changes no order, and flattens */
    o.samples = 1;
    o.seed = 10;
    dgemma_decision *sharp = decide(e, &o);
    o.temperature = 3;
    d = decide(e, &o);
    for (size_t q = 0; q < 4; q++) {
        const dgemma_answer *a = dgemma_decision_answer(sharp, q),
                            *b = dgemma_decision_answer(d, q);
        ck_assert_uint_eq(a->best, b->best);
        ck_assert(b->entropy > a->entropy);
        ck_assert_double_eq_tol(log(b->probability[0] / b->probability[1]),
                                log(a->probability[0] / a->probability[1]) / 3, 1e-9);
    }
    dgemma_decision_free(d);
    dgemma_decision_free(sharp);
    dgemma_engine_close(e);
}
END_TEST

/* Many questions, one with many options: several canvases, all of one prompt; alone and beside
 * others. */
START_TEST(many_questions)
{
    enum { N = 40, OPTIONS = DGEMMA_MAX_OPTIONS };
    dgemma_engine *e = open_engine(2);
    static char name[OPTIONS][16];
    static dgemma_option option[OPTIONS];
    static dgemma_question many[N];
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(name[i], sizeof name[i], "thing %d", i);
        option[i] = (dgemma_option){name[i], NULL};
    }
    for (int i = 0; i < N; i++)
        many[i] = (dgemma_question){DGEMMA_QUESTION_CHOICE, "Which?", option,
                                    i == 7 ? (size_t)OPTIONS : 2 + (size_t)i % 3};
    dgemma_decide_options o = decide_options();
    o.questions = many;
    o.n_questions = N;
    dgemma_decision *d = decide(e, &o), *other[3];
    dgemma_stats stats;
    check_sums(d, N);
    dgemma_decision_stats(d, &stats);
    ck_assert_int_gt(stats.n_steps, 2);
    ck_assert_int_lt(stats.n_steps, N / 4);

    dgemma_error err = {0};
    for (int i = 0; i < 3; i++) {
        o.seed = (uint64_t)(i == 1 ? 0 : 99);
        ck_assert(!dgemma_decision_start(&other[i], e, &o, &err));
    }
    for (int left = 3; left;)
        for (int i = left = 0; i < 3; i++)
            left += !dgemma_decision_advance(other[i], NULL, NULL);
    ck_assert(same(d, other[1], N) && !same(d, other[0], N) && same(other[0], other[2], N));
    for (int i = 0; i < 3; i++)
        dgemma_decision_free(other[i]);

    /* a question alone does not know of the others */
    o.seed = 0;
    o.independent = true;
    o.n_questions = 5;
    dgemma_decision *apart = decide(e, &o);
    o.independent = false;
    o.n_questions = 1;
    dgemma_decision *alone = decide(e, &o);
    ck_assert(same(apart, alone, 1));
    dgemma_decision_stats(apart, &stats);
    ck_assert_int_eq(stats.n_steps, 5);
    dgemma_decision_free(apart);
    dgemma_decision_free(alone);
    dgemma_decision_free(d);
    dgemma_engine_close(e);
}
END_TEST

/* A question about what is known already is one pass over a canvas of 16, and takes hardly longer
 * than that. The best of many counts: the machine has others to serve. */
START_TEST(a_question_on_a_warm_prefix)
{
    enum { TIMES = 40 };
    dgemma_engine *e = open_engine(1);
    dgemma_decide_options o = decide_options();
    double best = INFINITY;
    o.questions = &questions[1];
    o.n_questions = 1;
    for (int i = 0; i <= TIMES; i++) {
        dgemma_engine_counters before, after;
        dgemma_stats stats;
        o.seed = (uint64_t)i;
        dgemma_engine_count(e, &before);
        double start = dg_clock_now();
        dgemma_decision *d = decide(e, &o);
        double seconds = dg_clock_now() - start;
        dgemma_engine_count(e, &after);
        dgemma_decision_stats(d, &stats);
        dgemma_decision_free(d);
        ck_assert_uint_eq(after.n_passes - before.n_passes, 1);
        ck_assert_uint_eq(stats.n_positions, 16);
        ck_assert_int_eq(stats.n_prompt_cached, i ? stats.n_prompt : 0);
        if (i)
            best = fmin(best, seconds / stats.denoise_seconds);
    }
    ck_assert_double_lt(best, 1.3);
    dgemma_engine_close(e);
}
END_TEST

/* Each option has had each label after as many orders as there are options. */
START_TEST(orders_thoughts_and_pictures)
{
    dgemma_engine *e = open_engine(2);
    dgemma_decide_options o = decide_options();
    dgemma_media picture = {.path = "tests/fixtures/golden/vision/image.png"};
    dgemma_stats stats;
    o.orders = 4;
    dgemma_decision *d = decide(e, &o);
    check_sums(d, N_QUESTION);
    ck_assert_int_eq(dgemma_decision_answer(d, 1)->n_reads, 4);
    dgemma_decision_free(d);

    /* yes and no are what they are called, in whatever order: there is one read of them */
    o.questions = &questions[3];
    o.n_questions = 1;
    dgemma_decision *turned = decide(e, &o);
    o.orders = 1;
    dgemma_decision *straight = decide(e, &o);
    ck_assert(same(turned, straight, 1));
    ck_assert_int_eq(dgemma_decision_answer(turned, 0)->n_reads, 1);
    dgemma_decision_free(turned);
    dgemma_decision_free(straight);
    o.questions = questions;
    o.n_questions = N_QUESTION;
    o.think = 20;
    d = decide(e, &o);
    check_sums(d, N_QUESTION);
    dgemma_decision_stats(d, &stats);
    ck_assert_int_eq(stats.n_output, stats.n_thinking);
    dgemma_decision_free(d);

    o.media = &picture;
    o.n_media = 1;
    d = decide(e, &o);
    check_sums(d, N_QUESTION);
    dgemma_decision_stats(d, &stats);
    ck_assert_int_eq(stats.n_pictures, 1);
    dgemma_decision_free(d);

    o.think = 0;
    o.state = "";
    o.steps = 2;
    d = decide(e, &o);
    check_sums(d, N_QUESTION);
    dgemma_decision_free(d);
    dgemma_engine_close(e);
}
END_TEST

/* A decision of more reads than may wait makes them one after another; where others fill the queue
 * it is told so. */
START_TEST(a_queue_that_is_full)
{
    dgemma_engine *wide = open_engine(1), *e = NULL;
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.model_path = pocket;
    eo.n_threads = 1;
    eo.max_running = eo.queue_length = 1;
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, NULL), DGEMMA_OK);
    dgemma_decide_options o = decide_options();
    o.independent = true;
    o.samples = 2;
    dgemma_decision *d = decide(e, &o), *at_once = decide(wide, &o);
    ck_assert(same(d, at_once, N_QUESTION));
    dgemma_decision_free(d);
    dgemma_decision_free(at_once);

    dgemma_request_options endless = record_endless(e);
    dgemma_request *runs = NULL, *waits = NULL;
    dgemma_event event;
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_request_submit(&runs, e, &endless, &err), DGEMMA_OK);
    ck_assert(dgemma_request_wait(runs, &event, 60));
    ck_assert_int_eq(dgemma_request_submit(&waits, e, &endless, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_decide(&d, e, &o, &err), DGEMMA_E_BUSY);
    dgemma_request_free(waits);
    dgemma_request_free(runs);
    dgemma_engine_close(e);
    dgemma_engine_close(wide);
}
END_TEST

START_TEST(decisions_that_make_no_sense)
{
    dgemma_engine *e = open_engine(1);
    dgemma_error err = {0};
    dgemma_decision *d = NULL;
    static dgemma_option many[DGEMMA_MAX_OPTIONS + 1];
    for (size_t i = 0; i < DG_COUNT(many); i++)
        many[i].name = "same";
    const dgemma_question wrong[] = {
        {DGEMMA_QUESTION_YES_NO, NULL, NULL, 0},
        {DGEMMA_QUESTION_YES_NO, "?", many, 1},
        {DGEMMA_QUESTION_CHOICE, "?", NULL, 0},
        {DGEMMA_QUESTION_CHOICE, "?", many, DGEMMA_MAX_OPTIONS + 1},
        {DGEMMA_QUESTION_CHOICE, "?", meaning, 2}, /* without names */
        {DGEMMA_QUESTION_SCORE, "?", many, DGEMMA_MAX_LEVELS + 1},
        {(dgemma_question_kind)9, "?", many, 2},
    };
    dgemma_decide_options o = decide_options();
    o.n_questions = 1;
    for (size_t i = 0; i < DG_COUNT(wrong); i++) {
        o.questions = &wrong[i];
        ck_assert_int_eq(dgemma_decide(&d, e, &o, &err), DGEMMA_E_ARG);
    }
    const dgemma_decide_options good = decide_options();
    dgemma_decide_options bad[] = {good, good, good, good, good, good, good, good, good, good};
    bad[0].n_questions = 0;
    bad[1].n_questions = DGEMMA_MAX_QUESTIONS + 1;
    bad[2].samples = DGEMMA_MAX_SAMPLES + 1;
    bad[3].samples = -1;
    bad[4].orders = 0;
    bad[5].steps = 9;
    bad[6].think = 4097;
    bad[7].temperature = NAN;
    bad[8].messages = "[]";
    bad[9].state = NULL;
    for (size_t i = 0; i < DG_COUNT(bad); i++)
        ck_assert_int_eq(dgemma_decide(&d, e, &bad[i], &err), DGEMMA_E_ARG);
    o = good;
    o.independent = true;
    o.orders = 10;
    o.samples = 32;
    ck_assert_int_eq(dgemma_decide(&d, e, &o, &err), DGEMMA_E_LIMIT);
    o = good;
    o.state = "\xff\xfe";
    ck_assert_int_ne(dgemma_decide(&d, e, &o, &err), DGEMMA_OK);
    dgemma_engine_close(e);
}
END_TEST

/* Memory that ends at any place: an error, nothing leaks, and the next decision is as before. */
START_TEST(decisions_without_memory)
{
    dgemma_engine *e = open_engine(1);
    dgemma_decide_options o = decide_options();
    o.n_questions = 2;
    o.samples = 2;
    dgemma_decision *first = decide(e, &o);
    int n_failed = 0;
    bool reached = true;
    for (long n = 1; reached; n++) {
        dgemma_decision *d = NULL;
        dgemma_error err = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_decide(&d, e, &o, &err);
        reached = dg_test_alloc_done();
        ck_assert_msg(!st || (reached && st == DGEMMA_E_NOMEM), "allocation %ld: %s", n, err.msg);
        ck_assert(st || same(first, d, 2));
        n_failed += st != DGEMMA_OK;
        dgemma_decision_free(d);
    }
    ck_assert_int_gt(n_failed, 50);
    dgemma_decision_free(first);
    dgemma_engine_close(e);
}
END_TEST

/* A decision that nobody waits for. */
START_TEST(decisions_that_are_given_up)
{
    dgemma_engine *e = open_engine(2);
    dgemma_error err = {0};
    dgemma_decision *d = NULL, *left = NULL;
    dgemma_decide_options o = decide_options();
    o.samples = 32;
    ck_assert(!dgemma_decision_start(&d, e, &o, &err));
    ck_assert(!dgemma_decision_start(&left, e, &o, &err));
    dgemma_decision_free(d);
    dgemma_decision_free(left);
    dgemma_engine_close(e);
}
END_TEST

Suite *decide_suite(void)
{
    Suite *s = suite_create("decide");
    TCase *t = tcase_create("answers");
    tcase_add_test(t, what_the_numbers_mean);
    suite_add_tcase(s, t);
    t = tcase_create("decisions");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, several_questions_in_one_canvas);
    tcase_add_test(t, samples_are_averaged);
    tcase_add_test(t, a_question_on_a_warm_prefix);
    tcase_add_test(t, many_questions);
    tcase_add_test(t, orders_thoughts_and_pictures);
    tcase_add_test(t, a_queue_that_is_full);
    tcase_add_test(t, decisions_that_make_no_sense);
    tcase_add_test(t, decisions_that_are_given_up);
    tcase_add_test(t, decisions_without_memory);
    suite_add_tcase(s, t);
    return s;
}
