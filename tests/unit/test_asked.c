/* What requests ask about words at each row (dg_asked), against a naive computation in double. */
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "suites.h"
#include "vocabulary_bench.h"

enum { N_ASKED = 3 };
typedef struct questions {
    uint8_t class_of[N_VOCAB];
    int32_t id[N_ASKED];
    float logprob[N_ROW][N_ASKED], top_logprob[N_ROW][DG_ASKED_TOP];
    int32_t top_id[N_ROW][DG_ASKED_TOP];
    dg_class_finding found[N_ROW][DG_ASKED_CLASSES];
    dg_asked asked[N_ROW]; /* each row is a segment */
    dg_vocabulary_options options[N_ROW];
} questions;

static float power_of(int row)
{
    return row % 3 == 1 ? 0.5f : row % 3 ? 2 : 1;
}

/* Class 1: most words; 2: some of the last tile; 3 is asked for and has none; 0 is not reported. */
static void ask(questions *q, bench *b)
{
    *q = (questions){.id = {0, 4096, 9000}};
    for (int i = 0; i < N_VOCAB; i++)
        q->class_of[i] = i % 7 ? 1 : i > 8192 ? 2 : 0;
    for (int r = 0; r < N_ROW; r++) {
        for (int c = 0; c < DG_ASKED_CLASSES; c++)
            q->found[r][c].uniform = b->uniform[r];
        q->asked[r] = (dg_asked){.id = q->id,
                                 .n_id = N_ASKED,
                                 .class_of = q->class_of,
                                 .classes = 2 | 4 | 8,
                                 .power = power_of(r),
                                 .logprob = q->logprob[r],
                                 .found = q->found[r],
                                 .top_id = q->top_id[r],
                                 .top_logprob = q->top_logprob[r]};
        q->options[r] = (dg_vocabulary_options){.asked = &q->asked[r]};
        b->options[r] = &q->options[r];
    }
}

/* A row's findings of a class from the logits that the stage reported. */
static void check_class(const bench *b, const questions *q, int row, int c)
{
    const dg_class_finding *f = &q->found[row][c];
    double total = 0, mass = 0, inner = 0, warm = 0, best = -INFINITY;
    const float *logits = b->logits + (size_t)row * N_VOCAB;
    int id = -1;
    for (int v = 0; v < N_VOCAB; v++)
        total += exp((double)(logits[v] / b->temperature[row]));
    for (int v = 0; v < N_VOCAB; v++) {
        double p = exp((double)(logits[v] / b->temperature[row])) / total;
        if (q->class_of[v] != c)
            continue;
        id = log(p) > best ? v : id;
        best = fmax(best, log(p));
        mass += p;
        inner += p * log(p);
        warm += pow(p, (double)power_of(row));
    }
    ck_assert_int_eq(f->id, id);
    ck_assert(id < 0 ? f->drawn < 0 : q->class_of[f->drawn] == c);
    ck_assert(id < 0 ? isinf(f->mass) : fabs(f->mass - log(mass)) < 1e-4);
    ck_assert(id < 0 ? isinf(f->warm) : fabs(f->warm - log(warm)) < 1e-4);
    ck_assert(id < 0 ? isinf(f->best) : fabs(f->best - best) < 1e-4);
    ck_assert_double_eq_tol(f->inner, inner, 1e-4 * (1 + fabs(inner)));
}

START_TEST(what_is_asked_about_words)
{
    static bench b;
    static questions q, alone;
    bench_open(&b, _i / 3, 2, strengths[_i % 3]);
    ask(&q, &b);
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++) {
        for (int c = 1; c < 4; c++)
            check_class(&b, &q, r, c);
        for (int i = 0; i < N_ASKED; i++) {
            float z = b.logits[(size_t)r * N_VOCAB + (size_t)q.id[i]];
            float top = b.logits[(size_t)r * N_VOCAB + (size_t)b.argmax[r]];
            ck_assert_double_eq_tol(q.logprob[r][i], b.logprob[r] + (z - top) / b.temperature[r],
                                    1e-4);
        }
        ck_assert_int_eq(q.top_id[r][0], b.argmax[r]);
        for (int i = 1; i < DG_ASKED_TOP; i++)
            ck_assert(q.top_logprob[r][i] <= q.top_logprob[r][i - 1]);
    }
    ask(&alone, &b);
    for (int r = 0; r < N_ROW; r++)
        ck_assert_int_eq(bench_run(&b, r, 1, 30, NULL, NULL), DGEMMA_OK);
    ck_assert(!memcmp(alone.found, q.found, sizeof q.found));
    ck_assert(!memcmp(alone.logprob, q.logprob, sizeof q.logprob));
    ck_assert(!memcmp(alone.top_id, q.top_id, sizeof q.top_id));
    bench_close(&b);
}
END_TEST

/* As many numbers pick a word as its share of the class says, wherever in its tile it stands. */
START_TEST(draws_inside_a_class)
{
    static bench b;
    static questions q;
    static const float powers[] = {1, 0.5f, 2};
    enum { ROUNDS = 240 };
    bench_open(&b, false, 1, 2);
    int n_best = 0;
    double share = 0;
    for (int k = 0; k < ROUNDS; k++) {
        for (int r = 0; r < N_ROW; r++) {
            memcpy(b.x + r * N_EMBD, b.x, N_EMBD * sizeof *b.x);
            b.temperature[r] = b.temperature[0];
            b.uniform[r] = (k * N_ROW + r + 0.5) / (ROUNDS * N_ROW);
        }
        ask(&q, &b);
        for (int r = 0; r < N_ROW; r++)
            q.asked[r].power = powers[_i];
        ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
        for (int r = 0; r < N_ROW; r++)
            n_best += q.found[r][1].drawn == q.found[r][1].id;
        share = exp(q.found[0][1].best * (double)powers[_i] - q.found[0][1].warm);
    }
    double n = ROUNDS * N_ROW; /* five standard deviations */
    ck_assert_msg(fabs(n_best - share * n) < 5 * sqrt(n * share * (1 - share)), "%d of %d for %g",
                  n_best, ROUNDS * N_ROW, share);
    bench_close(&b);
}
END_TEST

Suite *asked_suite(void)
{
    Suite *s = suite_create("asked");
    TCase *t = tcase_create("asked");
    tcase_add_loop_test(t, what_is_asked_about_words, 0, 6);
    tcase_add_loop_test(t, draws_inside_a_class, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
