/* Canvases that are read, and decisions made of such reads: exact, and the same in any company. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "decide/decide_internal.h"
#include "engine/read.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static const char pocket[] = "models/pocket/pocket.gguf";

static dgemma_engine *open_engine(int n_thread)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = pocket;
    opt.n_threads = n_thread;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

/* ---- reads ---- */

enum { N_VOCAB = 4096, WIDTH = 16, MAX_IDS = DGEMMA_MAX_READ_IDS };

typedef struct reading {
    int32_t token[WIDTH];
    float entropy[WIDTH], logprob[WIDTH][MAX_IDS];
    size_t n_ids;
    int n_read;
    dgemma_stats stats;
} reading;

static dgemma_request_options read_options(dgemma_engine *e, const dgemma_read *r)
{
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "What is the capital of France?";
    o.max_denoise_steps = 1;
    o.seed = 7;
    o.read = r;
    return o;
}

static void finish(dgemma_request *q, reading *to)
{
    *to = (reading){0};
    for (dgemma_event e; dgemma_request_wait(q, &e, -1);) {
        ck_assert(e.kind != DGEMMA_EVENT_BLOCK && e.kind != DGEMMA_EVENT_TEXT);
        if (e.kind == DGEMMA_EVENT_READ) {
            to->n_read++;
            to->n_ids = (size_t)e.n_top;
            ck_assert_uint_eq(e.n_tokens, WIDTH);
            memcpy(to->token, e.tokens, sizeof to->token);
            memcpy(to->entropy, e.entropy, sizeof to->entropy);
            for (size_t i = 0; i < WIDTH && e.n_top; i++)
                memcpy(to->logprob[i], e.top_logprobs + i * to->n_ids, to->n_ids * sizeof(float));
        }
        if (e.kind == DGEMMA_EVENT_END) {
            ck_assert_msg(!e.status, "%s", e.text);
            to->stats = e.stats;
        }
    }
    dgemma_request_free(q);
    ck_assert_int_eq(to->n_read, 1);
    ck_assert_int_eq(to->stats.end, DGEMMA_END_STOP);
    ck_assert_int_eq(to->stats.n_output, 0);
}

static void read_now(dgemma_engine *e, const dgemma_request_options *o, reading *to)
{
    dgemma_request *q = NULL;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_request_submit(&q, e, o, &err), "%s", err.msg);
    finish(q, to);
}

/* "The capital of France is …", of which the last word is noise. */
static size_t sentence(dgemma_engine *e, int32_t token[WIDTH])
{
    size_t n;
    dgemma_error err = {0};
    static const char text[] = "The capital of France is";
    ck_assert(!dgemma_tokenize(e, text, strlen(text), false, token, WIDTH, &n, &err));
    for (size_t i = n; i < WIDTH; i++)
        token[i] = -1;
    return n;
}

/* All words of the vocabulary, asked for in eight reads: their probabilities add up to one at each
 * position, the most likely is the arg-max, and their entropy is the one that is told. */
START_TEST(a_read_is_the_whole_softmax)
{
    dgemma_engine *e = open_engine(2);
    int32_t token[WIDTH], ids[MAX_IDS];
    static reading part;
    double sum[WIDTH] = {0}, inner[WIDTH] = {0}, best[WIDTH];
    int32_t best_id[WIDTH] = {0};
    sentence(e, token);
    for (int i = 0; i < WIDTH; i++)
        best[i] = -INFINITY;
    for (int first = 0; first < N_VOCAB; first += MAX_IDS) {
        for (int i = 0; i < MAX_IDS; i++)
            ids[i] = first + MAX_IDS - 1 - i; /* in any order */
        dgemma_read r = {.tokens = token, .n_tokens = WIDTH, .ids = ids, .n_ids = MAX_IDS};
        dgemma_request_options o = read_options(e, &r);
        read_now(e, &o, &part);
        for (int row = 0; row < WIDTH; row++)
            for (int i = 0; i < MAX_IDS; i++) {
                double lp = (double)part.logprob[row][i];
                sum[row] += exp(lp);
                inner[row] -= exp(lp) * lp;
                best_id[row] = lp > best[row] ? ids[i] : best_id[row];
                best[row] = fmax(best[row], lp);
            }
    }
    for (int row = 0; row < WIDTH; row++) {
        ck_assert_double_eq_tol(sum[row], 1, 1e-6);
        ck_assert_double_eq_tol(inner[row], (double)part.entropy[row], 1e-4);
        ck_assert_int_eq(best_id[row], part.token[row]);
    }
    dgemma_engine_close(e);
}
END_TEST

/* ---- what the pocket model knows ---- */

enum { MAX_FACTS = 80, LABELS = 8, LINE = 64 };

/* A sentence of which the last word is one token. */
typedef struct fact {
    char *messages;
    int32_t token[LINE];
    int n, slot;
    int32_t word;
} fact;

/* The canvas as the model would write it, with noise in the place of the last word. */
static bool read_fact(dgemma_engine *e, const json_t *line, fact *f)
{
    static const char empty[] = "<|channel>thought\n<channel|>";
    const char *text = json_string_value(json_object_get(json_object_get(line, "check"), "text"));
    dgemma_model_info info;
    dgemma_error err = {0};
    int32_t ids[LINE];
    size_t n, n_head = 0;
    dgemma_engine_info(e, &info);
    if (!text || json_is_true(json_object_get(line, "thinking")) ||
        dgemma_tokenize(e, text, strlen(text), false, ids, 40, &n, &err) || n < 4)
        return false;
    if (info.chat_template[0] == 'b')
        ck_assert(!dgemma_tokenize(e, empty, strlen(empty), true, f->token, LINE, &n_head, &err));
    memcpy(f->token + n_head, ids, n * sizeof *ids);
    f->slot = (int)(n_head + n) - 2;
    f->word = f->token[f->slot];
    f->token[f->slot] = -1;
    char *word = NULL;
    ck_assert(!dgemma_detokenize(e, &f->word, 1, &word, NULL, &err));
    const char *last = strrchr(text, ' ');
    bool whole = last && strlen(word) + 1 == strlen(last) && !strncmp(last, word, strlen(word));
    dgemma_free(word);
    size_t at = n_head + n, tail;
    ck_assert(!dgemma_tokenize(e, "<turn|>", 7, true, f->token + at, 1, &tail, &err));
    for (f->n = (int)at + 1; f->n % 16; f->n++)
        f->token[f->n] = 0;
    f->messages = whole ? json_dumps(json_object_get(line, "messages"), 0) : NULL;
    return whole;
}

/* Its last word, and seven of other facts. */
static dgemma_request *ask_fact(dgemma_engine *e, const fact *facts, int n, int i)
{
    int32_t ids[LABELS] = {facts[i].word};
    int n_ids = 1;
    for (int k = 1; n_ids < LABELS; k++) {
        int32_t other = facts[(i + k) % n].word;
        int known = 0;
        while (known < n_ids && ids[known] != other)
            known++;
        ids[known] = other;
        n_ids += known == n_ids;
    }
    dgemma_read r = {
        .tokens = facts[i].token, .n_tokens = (size_t)facts[i].n, .ids = ids, .n_ids = LABELS};
    dgemma_request_options o = dgemma_request_defaults(e);
    o.messages = facts[i].messages;
    o.max_denoise_steps = 1;
    o.read = &r;
    dgemma_request *q = NULL;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_request_submit(&q, e, &o, &err), "%s", err.msg);
    return q;
}

/* Which of eight words ends the sentence: in one pass, 97 of 100 are right, and the model would
 * hardly have said anything else. */
START_TEST(facts_in_one_pass)
{
    dgemma_engine *e = open_engine(2);
    static fact facts[MAX_FACTS];
    int n = 0, n_right = 0, n_sure = 0;
    char line[4096];
    FILE *f = fopen("models/pocket/eval/facts.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    while (n < MAX_FACTS && fgets(line, sizeof line, f)) {
        json_t *one = json_loads(line, 0, NULL);
        n += read_fact(e, one, &facts[n]);
        json_decref(one);
    }
    fclose(f);
    ck_assert_int_gt(n, 40);
    dgemma_request *q[MAX_FACTS];
    for (int i = 0; i < n; i++) /* together, as they share passes */
        q[i] = ask_fact(e, facts, n, i);
    for (int i = 0; i < n; i++) {
        int best = 0;
        double mass = 0;
        for (dgemma_event event; dgemma_request_wait(q[i], &event, -1);)
            if (event.kind == DGEMMA_EVENT_READ) {
                const float *p = event.top_logprobs + facts[i].slot * LABELS;
                for (int k = 0; k < LABELS; k++) {
                    mass += exp((double)p[k]);
                    best = p[k] > p[best] ? k : best;
                }
            }
        dgemma_request_free(q[i]);
        n_right += best == 0;
        n_sure += mass >= 0.5;
        free(facts[i].messages);
    }
    ck_assert_msg(n_right * 100 >= n * 97, "%d of %d right", n_right, n);
    ck_assert_msg(n_sure * 100 >= n * 90, "%d of %d sure", n_sure, n);
    dgemma_engine_close(e);
}
END_TEST

/* ---- reads that are odd ---- */

/* Repeated ids, none at all, and steps in which what is given stays. */
START_TEST(what_is_given_stays)
{
    dgemma_engine *e = open_engine(1);
    int32_t token[WIDTH], ids[] = {300, 300, 299};
    static reading once, none, steps;
    size_t n = sentence(e, token);
    dgemma_read r = {.tokens = token, .n_tokens = WIDTH, .ids = ids, .n_ids = 3};
    dgemma_request_options o = read_options(e, &r);
    read_now(e, &o, &once);
    ck_assert(once.logprob[3][0] == once.logprob[3][1] && once.logprob[3][0] != once.logprob[3][2]);
    r.n_ids = 0;
    read_now(e, &o, &none);
    ck_assert(!memcmp(none.token, once.token, sizeof once.token));
    o.max_denoise_steps = 3;
    read_now(e, &o, &steps);
    ck_assert_int_eq(steps.stats.n_steps, 3);
    ck_assert(memcmp(steps.entropy, once.entropy, sizeof once.entropy) != 0);
    /* the model agrees with what is given, so the word behind it is the capital */
    char *text = NULL;
    dgemma_error err = {0};
    ck_assert(!dgemma_detokenize(e, &once.token[n], 1, &text, NULL, &err));
    ck_assert_msg(strstr(" Paris", text), "%s", text);
    dgemma_free(text);
    dgemma_engine_close(e);
}
END_TEST

/* The canvas begins with all that is known; of that, the pinned stays in every step, and without a
 * word of pins all of it. */
START_TEST(what_is_known_and_what_is_held)
{
    enum { N = 4, NOISE = 40 };
    static const int32_t token[N + 1] = {7, -1, 9, 3};
    static const uint8_t pinned[N] = {1, 1, 0, 0};
    static const int32_t known[N] = {7, NOISE, 9, 3}, held[N] = {7, NOISE, NOISE, NOISE};
    const dg_config model = {.canvas_length = N, .n_vocab = 50};
    for (int pins = 0; pins < 2; pins++) {
        int32_t begun[N] = {NOISE, NOISE, NOISE, NOISE}, later[N] = {NOISE, NOISE, NOISE, NOISE};
        dgemma_read from = {.tokens = token, .n_tokens = N, .pinned = pins ? pinned : NULL};
        dg_read *r = NULL;
        ck_assert_int_eq(dg_read_create(&r, &from, &model, NULL), DGEMMA_OK);
        dg_read_begin(r, begun);
        dg_read_hold(r, later);
        ck_assert_mem_eq(begun, known, sizeof known);
        ck_assert_mem_eq(later, pins ? held : known, sizeof known);
        dg_read_free(r);
        from.n_tokens = N + 1;
        ck_assert_int_eq(dg_read_create(&r, &from, &model, NULL), DGEMMA_E_ARG);
    }
}
END_TEST

START_TEST(reads_that_make_no_sense)
{
    dgemma_engine *e = open_engine(1);
    dgemma_request *q = NULL;
    dgemma_error err = {0};
    int32_t token[WIDTH] = {0}, far[] = {N_VOCAB}, negative[] = {-2}, many[MAX_IDS + 1] = {0};
    const dgemma_read wrong[] = {
        {.tokens = token, .n_tokens = 0},
        {.tokens = NULL, .n_tokens = 4},
        {.tokens = token, .n_tokens = 100000},
        {.tokens = far, .n_tokens = 1},
        {.tokens = negative, .n_tokens = 1},
        {.tokens = token, .n_tokens = 1, .ids = far, .n_ids = 1},
        {.tokens = token, .n_tokens = 1, .ids = negative, .n_ids = 1},
        {.tokens = token, .n_tokens = 1, .ids = many, .n_ids = MAX_IDS + 1},
    };
    for (size_t i = 0; i < DG_COUNT(wrong); i++) {
        dgemma_request_options o = read_options(e, &wrong[i]);
        dgemma_status st = dgemma_request_submit(&q, e, &o, &err);
        ck_assert_int_eq(st, i + 1 == DG_COUNT(wrong) ? DGEMMA_E_LIMIT : DGEMMA_E_ARG);
    }
    dgemma_engine_close(e);
}
END_TEST

/* Alone, with other threads, behind a cached prompt, and together with chats and 30 other reads. */
START_TEST(company_changes_no_bit)
{
    enum { READS = 30, CHATS = 6 };
    dgemma_engine *one = open_engine(1), *e = open_engine(4);
    int32_t token[WIDTH], ids[] = {5, 400, 401, 402, 4000};
    static reading alone, again;
    sentence(e, token);
    dgemma_read r = {.tokens = token, .n_tokens = WIDTH, .ids = ids, .n_ids = DG_COUNT(ids)};
    dgemma_request_options o = read_options(one, &r);
    read_now(one, &o, &alone);
    read_now(one, &o, &again); /* its prompt is known now */
    ck_assert_int_gt(again.stats.n_prompt_cached, 0);
    ck_assert(!memcmp(alone.logprob, again.logprob, sizeof alone.logprob));

    dgemma_request *chat[CHATS], *read[READS];
    dgemma_error err = {0};
    for (int i = 0; i < CHATS; i++) {
        dgemma_request_options c = dgemma_request_defaults(e);
        c.chat_prompt = "Tell me a story.";
        c.seed = (uint64_t)i;
        c.max_tokens = 64;
        ck_assert(!dgemma_request_submit(&chat[i], e, &c, &err));
    }
    o = read_options(e, &r);
    for (int i = 0; i < READS; i++) {
        o.seed = i % 3 ? 7 : (uint64_t)i;
        ck_assert(!dgemma_request_submit(&read[i], e, &o, &err));
    }
    for (int i = 0; i < READS; i++) {
        finish(read[i], &again);
        if (i % 3)
            ck_assert(!memcmp(alone.logprob, again.logprob, sizeof alone.logprob));
        else
            ck_assert(memcmp(alone.logprob, again.logprob, sizeof alone.logprob) != 0);
    }
    for (int i = 0; i < CHATS; i++)
        dgemma_request_free(chat[i]);
    dgemma_engine_close(e);
    dgemma_engine_close(one);
}
END_TEST

/* ---- decisions ---- */

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
    TCase *t = tcase_create("reads");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, a_read_is_the_whole_softmax);
    tcase_add_test(t, facts_in_one_pass);
    tcase_add_test(t, what_is_given_stays);
    tcase_add_test(t, what_is_known_and_what_is_held);
    tcase_add_test(t, reads_that_make_no_sense);
    tcase_add_test(t, company_changes_no_bit);
    suite_add_tcase(s, t);
    t = tcase_create("answers");
    tcase_add_test(t, what_the_numbers_mean);
    suite_add_tcase(s, t);
    t = tcase_create("decisions");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, several_questions_in_one_canvas);
    tcase_add_test(t, samples_are_averaged);
    tcase_add_test(t, many_questions);
    tcase_add_test(t, orders_thoughts_and_pictures);
    tcase_add_test(t, a_queue_that_is_full);
    tcase_add_test(t, decisions_that_make_no_sense);
    tcase_add_test(t, decisions_that_are_given_up);
    tcase_add_test(t, decisions_without_memory);
    suite_add_tcase(s, t);
    return s;
}
