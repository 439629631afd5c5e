/* Canvases that are read: the whole softmax, facts that the pocket model knows, the same in any
 * company. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "engine/read.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static dgemma_engine *open_engine(int n_thread)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = "models/pocket/pocket.gguf";
    opt.n_threads = n_thread;
    return record_engine(opt);
}

enum { N_VOCAB = 4096, WIDTH = 16, MAX_IDS = DGEMMA_MAX_READ_IDS };

typedef struct reading {
    int32_t token[WIDTH], asked[WIDTH][MAX_IDS];
    float entropy[WIDTH], own[WIDTH], logprob[WIDTH][MAX_IDS];
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
            if (e.logprobs)
                memcpy(to->own, e.logprobs, sizeof to->own);
            for (size_t i = 0; i < WIDTH && e.n_top; i++) {
                memcpy(to->asked[i], e.top_tokens + i * to->n_ids, to->n_ids * sizeof(int32_t));
                memcpy(to->logprob[i], e.top_logprobs + i * to->n_ids, to->n_ids * sizeof(float));
            }
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

/* Who asks for no ids hears the most likely ones, and their chances are those that asking for them
 * would have told. */
START_TEST(the_most_likely_where_none_is_asked_for)
{
    enum { TOP = 5 };
    dgemma_engine *e = open_engine(1);
    int32_t token[WIDTH];
    static reading top, asked;
    sentence(e, token);
    dgemma_read r = {.tokens = token, .n_tokens = WIDTH};
    dgemma_request_options o = read_options(e, &r);
    o.n_logprobs = TOP;
    read_now(e, &o, &top);
    ck_assert_uint_eq(top.n_ids, TOP);
    for (int i = 0; i < WIDTH; i++) {
        ck_assert_int_eq(top.asked[i][0], top.token[i]);
        ck_assert(top.logprob[i][0] == top.own[i]);
        r.ids = top.asked[i];
        r.n_ids = TOP;
        read_now(e, &o, &asked);
        for (int k = 0; k < TOP; k++) {
            ck_assert(!k || top.logprob[i][k] <= top.logprob[i][k - 1]);
            ck_assert_float_eq_tol(top.logprob[i][k], asked.logprob[i][k], 1e-6f);
        }
    }
    dgemma_engine_close(e);
}
END_TEST

/* Among some words: as if there were no others, in the first step and in those behind it. */
START_TEST(a_read_among_some_words)
{
    enum { SOME = 6 };
    dgemma_engine *e = open_engine(1);
    int32_t token[WIDTH], ids[SOME] = {300, 5, 4000, 301, 299, 17};
    static reading of_all, some, steps, again, cold;
    sentence(e, token);
    dgemma_read r = {.tokens = token, .n_tokens = WIDTH, .ids = ids, .n_ids = SOME};
    dgemma_request_options o = read_options(e, &r);
    o.n_logprobs = 0;
    read_now(e, &o, &of_all);
    r.among = true;
    read_now(e, &o, &some);
    for (int i = 0; i < WIDTH; i++) {
        double mass = 0, entropy = 0;
        int best = 0;
        for (int k = 0; k < SOME; k++) {
            mass += exp((double)of_all.logprob[i][k]);
            best = some.logprob[i][k] > some.logprob[i][best] ? k : best;
        }
        for (int k = 0; k < SOME; k++) {
            double lp = (double)of_all.logprob[i][k] - log(mass);
            ck_assert_double_eq_tol((double)some.logprob[i][k], lp, 1e-5);
            entropy -= exp(lp) * lp;
        }
        ck_assert_int_eq(some.token[i], ids[best]);
        ck_assert(some.own[i] == some.logprob[i][best]);
        ck_assert_double_eq_tol((double)some.entropy[i], entropy, 1e-5);
    }
    o.max_denoise_steps = 3;
    read_now(e, &o, &steps);
    read_now(e, &o, &again);
    ck_assert(!memcmp(&steps.logprob, &again.logprob, sizeof again.logprob));
    ck_assert(memcmp(&steps.logprob, &some.logprob, sizeof some.logprob) != 0);
    bool differs = false; /* with one seed or another the most likely is not drawn */
    for (o.seed = 0; !differs && o.seed < 20; o.seed++) {
        o.temperature = 1;
        read_now(e, &o, &again);
        o.temperature = 0;
        read_now(e, &o, &cold);
        differs = memcmp(&again.logprob, &cold.logprob, sizeof cold.logprob) != 0;
    }
    ck_assert(differs);
    for (int i = 0; i < WIDTH; i++) {
        double mass = 0;
        for (int k = 0; k < SOME; k++)
            mass += exp((double)steps.logprob[i][k]);
        ck_assert_double_eq_tol(mass, 1, 1e-6);
    }
    dgemma_engine_close(e);
}
END_TEST

/* What takes the place of a pass's own findings: a draw is the first word behind which the sum lies
 * above the number, and a position that is not a number stays one. */
START_TEST(what_is_true_among_some)
{
    enum { N = 4 };
    const dg_config model = {.canvas_length = N, .n_vocab = 50};
    const int32_t noise[N] = {-1, -1, -1, -1}, ids[] = {30, 10, 20, 10};
    dgemma_read from = {.tokens = noise, .n_tokens = N, .ids = ids, .n_ids = 4, .among = true};
    dg_read *r = NULL;
    ck_assert_int_eq(dg_read_create(&r, &from, &model, NULL), DGEMMA_OK);
    ck_assert_int_eq(r->asked.n_id, 3);
    for (int i = 0; i < N; i++) { /* 10, 20 and 30: 1 to 2 to 1 */
        r->asked.logprob[i * 3] = r->asked.logprob[i * 3 + 2] = -9;
        r->asked.logprob[i * 3 + 1] = -9 + logf(2);
    }
    r->asked.logprob[3 * 3 + 1] = -9; /* all alike */
    const double uniform[N] = {0.2, 0.7501, 0.5, 0.5};
    float entropy[N] = {1, 1, NAN, 1}, logprob[N] = {-1, -1, -1, -1};
    int32_t argmax[N] = {1, 1, 1, 1}, drawn[N] = {2, 2, 2, 2};
    dg_read_narrow(r, &(dg_read_step){uniform, entropy, logprob, argmax, drawn, false});
    dg_read_take(r);
    ck_assert_mem_eq(argmax, ((int32_t[]){20, 20, 1, 10}), sizeof argmax);
    ck_assert_mem_eq(drawn, ((int32_t[]){10, 30, 2, 20}), sizeof drawn);
    ck_assert_float_eq_tol(entropy[0], 1.5f * logf(2), 1e-6f);
    ck_assert_float_eq_tol(logprob[1], -logf(2), 1e-6f);
    ck_assert_float_eq_tol(r->logprob[4 + 0], -logf(4), 1e-6f); /* in the order of asking */
    ck_assert_float_eq_tol(r->logprob[4 + 2], -logf(2), 1e-6f);
    ck_assert(isnan(entropy[2]) && logprob[2] == -1);
    dg_read_narrow(r, &(dg_read_step){uniform, entropy, logprob, argmax, drawn, true});
    ck_assert_mem_eq(drawn, ((int32_t[]){20, 20, 2, 10}), sizeof drawn);
    dg_read_free(r);
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
        {.tokens = token, .n_tokens = 1, .among = true},
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

Suite *reads_suite(void)
{
    Suite *s = suite_create("reads");
    TCase *t = tcase_create("reads");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, a_read_is_the_whole_softmax);
    tcase_add_test(t, facts_in_one_pass);
    tcase_add_test(t, what_is_given_stays);
    tcase_add_test(t, the_most_likely_where_none_is_asked_for);
    tcase_add_test(t, a_read_among_some_words);
    tcase_add_test(t, what_is_true_among_some);
    tcase_add_test(t, what_is_known_and_what_is_held);
    tcase_add_test(t, reads_that_make_no_sense);
    tcase_add_test(t, company_changes_no_bit);
    suite_add_tcase(s, t);
    return s;
}
