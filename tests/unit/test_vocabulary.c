/* The vocabulary end over several tiles, against a naive computation in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "suites.h"
#include "vocabulary_bench.h"

/* One row the plain way, from the logits that the stage reported. */
static void check_row(const bench *b, int row, float softcap)
{
    const float *logits = b->logits + (size_t)row * N_VOCAB;
    double *p = dg_calloc(N_VOCAB, sizeof *p), z = 0, entropy = 0, soft[N_EMBD] = {0}, top = -1e300;
    int best = 0;
    for (int v = 0; v < N_VOCAB; v++) {
        double raw = 0;
        for (int i = 0; i < N_EMBD; i++)
            raw += (double)b->x[row * N_EMBD + i] * b->embed[v * N_EMBD + i];
        double want = softcap > 0 ? softcap * tanh(raw / softcap) : raw;
        if (!b->options[row])
            ck_assert_double_eq_tol(logits[v], want, 1e-5 * (1 + fabs(want)));
        if (logits[v] > top) {
            top = logits[v];
            best = v;
        }
    }
    for (int v = 0; v < N_VOCAB; v++)
        z += p[v] = exp((logits[v] - top) / b->temperature[row]);
    for (int v = 0; v < N_VOCAB; v++) {
        p[v] /= z;
        entropy -= p[v] > 0 ? p[v] * log(p[v]) : 0;
        for (int i = 0; i < N_EMBD; i++)
            soft[i] += 3 * p[v] * b->embed[v * N_EMBD + i];
    }
    ck_assert_int_eq(b->argmax[row], best);
    ck_assert_double_eq_tol(b->entropy[row], entropy, 2e-5 * (1 + entropy));

    /* the draw: u lies inside the word's piece of the cumulative distribution, up to rounding */
    double before = 0;
    for (int v = 0; v < b->drawn[row]; v++)
        before += p[v];
    ck_assert_double_ge(b->uniform[row], before - 1e-6);
    ck_assert_double_le(b->uniform[row], before + p[b->drawn[row]] + 1e-6);

    /* what the soft embedding drops is bounded: n_vocab * DG_SOFT_DROP of the mass, times the
     * longest entry */
    double longest = 0;
    for (int i = 0; i < N_VOCAB * N_EMBD; i++)
        longest = fmax(longest, fabs((double)b->embed[i]));
    double bound = 3 * longest * N_VOCAB * DG_SOFT_DROP + 3e-6 * 3 * longest;
    for (int i = 0; i < N_EMBD; i++)
        ck_assert_double_eq_tol(b->soft[row * N_EMBD + i], soft[i], bound);
    dg_free(p);
}

START_TEST(statistics_match_the_definition)
{
    for (int reference = 0; reference < 2; reference++) {
        bench b;
        float softcap = _i % 2 ? 30.0f : 0.0f;
        bench_open(&b, reference, 2, strengths[_i / 2]);
        ck_assert_int_eq(bench_run(&b, 0, N_ROW, softcap, NULL, NULL), DGEMMA_OK);
        for (int r = 0; r < N_ROW; r++)
            check_row(&b, r, softcap);
        bench_close(&b);
    }
}
END_TEST

START_TEST(rows_do_not_know_of_each_other)
{
    bench a, b;
    bench_open(&a, false, 1, strengths[_i]);
    bench_open(&b, false, 3, strengths[_i]);
    ck_assert_int_eq(bench_run(&a, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++)
        ck_assert_int_eq(bench_run(&b, r, 1, 30, NULL, NULL), DGEMMA_OK);
    ck_assert_mem_eq(a.soft, b.soft, sizeof a.soft);
    ck_assert_mem_eq(a.entropy, b.entropy, sizeof a.entropy);
    ck_assert_mem_eq(a.drawn, b.drawn, sizeof a.drawn);
    ck_assert_mem_eq(a.argmax, b.argmax, sizeof a.argmax);
    bench_close(&a);
    bench_close(&b);
}
END_TEST

/* ---- a table of whole numbers ---- */

enum { WIDE = 64, WIDE_ROWS = 5, BLOCK_BYTES = 34 };

typedef struct wide {
    unsigned char *stored; /* Q8_0 */
    float *embed, *given;
    float soft[WIDE_ROWS * WIDE];
    const int32_t *token;
} wide;

static void wide_open(wide *w, float strength)
{
    w->token = NULL;
    w->stored = dg_calloc(N_VOCAB * WIDE / 32, BLOCK_BYTES);
    w->embed = dg_array(N_VOCAB * WIDE, sizeof *w->embed);
    w->given = dg_array((size_t)WIDE_ROWS * N_VOCAB, sizeof *w->given);
    for (uint32_t i = 0; i < N_VOCAB * WIDE; i++) {
        unsigned char *b = w->stored + i / 32 * BLOCK_BYTES;
        uint16_t step = dg_float_to_f16(0.01f * (1 + (float)(i / 32 % 7)));
        memcpy(b, &step, sizeof step);
        int n = (int)(40 * normal(i, 5));
        n = n < -127 ? -127 : n > 127 ? 127 : n;
        b[2 + i % 32] = (unsigned char)(int8_t)n;
        w->embed[i] = (float)n * dg_f16_to_float(step);
    }
    for (uint32_t i = 0; i < WIDE_ROWS * N_VOCAB; i++)
        w->given[i] = strength * normal(i, 6);
}

static void wide_close(wide *w)
{
    dg_free(w->stored);
    dg_free(w->embed);
    dg_free(w->given);
}

static void wide_run(wide *w, unsigned flags, int n_thread, int first, int n)
{
    dgemma_error err = {0};
    dg_backend *be = open_backend(flags, n_thread, WIDE_ROWS, WIDE);
    dg_tensor t = {
        .name = "embed", .type = DG_Q8_0, .n_dim = 2, .shape = {N_VOCAB, WIDE}, .data = w->stored};
    dg_weight table;
    dg_weight_source from = {&t, DG_ROLE_EMBED, -1, 0, N_VOCAB};
    ck_assert_int_eq(be->weight_init(be, &table, &from, &err), DGEMMA_OK);
    double uniform[WIDE_ROWS] = {0};
    float entropy[WIDE_ROWS], x[WIDE_ROWS * WIDE] = {0};
    int32_t argmax[WIDE_ROWS], drawn[WIDE_ROWS];
    dg_segment seg = {.canvas = true, .n_row = n, .soft = w->soft + first * WIDE, .temperature = 1};
    dg_batch batch = {.n_row = n,
                      .n_segment = 1,
                      .segment = &seg,
                      .token = w->token,
                      .uniform = uniform,
                      .given = w->given + (size_t)first * N_VOCAB,
                      .out = {.entropy = entropy, .argmax = argmax, .drawn = drawn}};
    be->begin(be, &batch);
    be->vocabulary(be, &(dg_vocabulary_args){.x = x, .table = &table, .soft_scale = 1});
    ck_assert_int_eq(be->finish(be, &err), DGEMMA_OK);
    be->close(be);
}

/* A probability below 2^-8 is off by at most 1/254 of the largest of 32, a value of the table by
 * three quarters of the largest step of 32 words, and what is left out weighs less than
 * DG_SOFT_LEFT. */
static void check_wide_row(const wide *w, int row)
{
    const float *z = w->given + (size_t)row * N_VOCAB;
    double *p = dg_calloc(N_VOCAB, sizeof *p), mass = 0;
    for (int v = 0; v < N_VOCAB; v++)
        mass += p[v] = exp((double)z[v]);
    for (int i = 0; i < WIDE; i++) {
        double soft = 0, off = 0, longest = 0;
        for (int b = 0; b < N_VOCAB; b += 32) {
            double most = 0, sum = 0;
            for (int v = b; v < dg_min(b + 32, N_VOCAB); v++) {
                double e = (double)w->embed[v * WIDE + i];
                most = fmax(most, fmin(p[v] / mass, 0x1p-8));
                longest = fmax(longest, fabs(e));
                sum += fabs(e);
                soft += p[v] / mass * e;
            }
            off += most / 254 * sum;
        }
        double bound = off + 0.7501 * 0.07 + DG_SOFT_LEFT * longest + 1e-5;
        ck_assert_double_eq_tol(w->soft[row * WIDE + i], soft, bound);
        /* roundings go to and fro: they do not add up to that */
        ck_assert_double_eq_tol(w->soft[row * WIDE + i], soft, 0.01);
    }
    dg_free(p);
}

START_TEST(whole_numbers_stay_close)
{
    static const float strength[] = {0.3f, 2, 5};
    wide a, b;
    wide_open(&a, strength[_i]);
    wide_open(&b, strength[_i]);
    wide_run(&a, 0, 1, 0, WIDE_ROWS);
    for (int r = 0; r < WIDE_ROWS; r++)
        check_wide_row(&a, r);
    wide_run(&a, dg_cpu_flags(), 2, 0, WIDE_ROWS);
    for (int r = 0; r < WIDE_ROWS; r++) {
        check_wide_row(&a, r);
        wide_run(&b, dg_cpu_flags(), 1, r, 1);
    }
    ck_assert_mem_eq(a.soft, b.soft, sizeof a.soft);
    wide_close(&a);
    wide_close(&b);
}
END_TEST

/* A row's own word is looked at ahead of the walk: what is left out for its sake stays within the
 * bound, whether it is the likeliest one, nothing, or not a number. */
START_TEST(a_word_that_is_known_to_come)
{
    static const int32_t token[WIDE_ROWS] = {8999, 4100, 12, 9000, 5000};
    static const float logit[WIDE_ROWS] = {30, 9, 25, -INFINITY, -4};
    wide w;
    wide_open(&w, 5);
    w.token = token;
    for (int r = 0; r < WIDE_ROWS; r++)
        w.given[r * N_VOCAB + token[r]] = logit[r];
    unsigned flags[] = {0, dg_cpu_flags()};
    for (int i = 0; i < 2; i++) {
        wide_run(&w, flags[i], 2, 0, WIDE_ROWS);
        for (int r = 0; r < WIDE_ROWS; r++)
            check_wide_row(&w, r);
    }
    w.given[token[0]] = NAN;
    wide_run(&w, dg_cpu_flags(), 2, 0, WIDE_ROWS);
    for (int r = 1; r < WIDE_ROWS; r++)
        check_wide_row(&w, r);
    wide_close(&w);
}
END_TEST

/* Teacher forcing with the stage's own logits gives what the stage gave. */
START_TEST(given_logits_give_the_same)
{
    bench a, b;
    bench_open(&a, false, 2, 1);
    bench_open(&b, false, 2, 1);
    ck_assert_int_eq(bench_run(&a, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    float *given = dg_array((size_t)N_ROW * N_VOCAB, sizeof *given);
    for (int r = 0; r < N_ROW; r++)
        for (int v = 0; v < N_VOCAB; v++)
            given[r * N_VOCAB + v] = a.logits[r * N_VOCAB + v] / a.temperature[r];
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, given, NULL), DGEMMA_OK);
    ck_assert_mem_eq(a.soft, b.soft, sizeof a.soft);
    ck_assert_mem_eq(a.entropy, b.entropy, sizeof a.entropy);
    ck_assert_mem_eq(a.drawn, b.drawn, sizeof a.drawn);
    dg_free(given);
    bench_close(&a);
    bench_close(&b);
}
END_TEST

START_TEST(bias_and_bans)
{
    bench b;
    bench_open(&b, false, 2, 0.02f);
    static const dg_logit_bias lift[] = {{7, -1}, {4500, 25}, {9000, 1}};
    static const int32_t banned[] = {0, 4500, 8999};
    const dg_vocabulary_options biased = {.bias = lift, .n_bias = 3};
    const dg_vocabulary_options both = {.bias = lift, .n_bias = 3, .banned = banned, .n_banned = 3};
    b.options[2] = &biased;
    b.options[3] = &both;
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    ck_assert_int_eq(b.argmax[2], 4500);
    ck_assert_int_eq(b.drawn[2], 4500);
    ck_assert_int_ne(b.argmax[3], 4500);
    ck_assert_int_ne(b.drawn[3], 4500);
    for (int r = 0; r < N_ROW; r++)
        if (r != 3)
            check_row(&b, r, 30);
    bench_close(&b);
}
END_TEST

START_TEST(extreme_draws_stay_inside)
{
    bench b;
    bench_open(&b, false, 1, 1);
    for (int r = 0; r < N_ROW; r++)
        b.uniform[r] = r % 2 ? nextafter(1, 0) : 0;
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++)
        check_row(&b, r, 30);
    bench_close(&b);
}
END_TEST

/* A row that is not a number, however it draws, says so; the others are what they are without it.
 */
START_TEST(broken_rows_are_alone)
{
    static bench b;
    bench_open(&b, _i, 2, 1);
    static const dg_draw_options filtered = {.temperature = 2, .top_k = 7, .top_p = 1};
    const dg_vocabulary_options option = {.draw = &filtered, .n_top = 5};
    for (int r = 4; r < 8; r++)
        b.options[r] = r % 2 ? &option : NULL;
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    static bench whole;
    whole = b;
    b.x[4 * N_EMBD + 3] = b.x[5 * N_EMBD + 3] = NAN; /* the model's fault, */
    b.temperature[7] = 1e-38f;                       /* and the request's */
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++) {
        bool broken = r == 4 || r == 5 || r == 7;
        ck_assert_int_eq(isnan(b.entropy[r]) != 0, broken);
        ck_assert_int_lt(b.drawn[r], N_VOCAB);
        if (broken)
            continue;
        ck_assert_mem_eq(&b.entropy[r], &whole.entropy[r], sizeof *b.entropy);
        ck_assert_int_eq(b.argmax[r], whole.argmax[r]);
        ck_assert_int_eq(b.drawn[r], whole.drawn[r]);
        ck_assert_mem_eq(b.soft + r * N_EMBD, whole.soft + r * N_EMBD, N_EMBD * sizeof *b.soft);
        ck_assert_mem_eq(b.top_logprob + r * DG_MAX_TOP, whole.top_logprob + r * DG_MAX_TOP,
                         DG_MAX_TOP * sizeof *b.top_logprob);
    }
    bench_close(&b);
}
END_TEST

/* ---- draws that are not plain ---- */

/* A word and its place in the order that backend_batch.h gives for filters. */
typedef struct ranked {
    int id;
    bool best;
    double rank, p; /* p: relative to the arg-max */
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->best != y->best)
        return x->best ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->id - y->id;
}

static int by_id(const void *a, const void *b)
{
    return ((const ranked *)a)->id - ((const ranked *)b)->id;
}

/* The plain way: sorts all words, cuts, gives those that stay in order of id. steps 0: ranked by
 * the probability itself. */
static int filtered_words(const bench *b, int row, const dg_draw_options *o, int steps,
                          ranked *words)
{
    const float *logits = b->logits + (size_t)row * N_VOCAB;
    float top = -INFINITY;
    for (int v = 0; v < N_VOCAB; v++) {
        float y = logits[v] / b->temperature[row] / o->temperature;
        words[v] = (ranked){.id = v, .rank = y, .p = y, .best = v == b->argmax[row]};
        top = fmaxf(top, y);
    }
    for (int v = 0; v < N_VOCAB; v++) {
        words[v].rank = steps ? floor(words[v].rank * steps) : words[v].rank;
        words[v].p = exp(words[v].p - (double)top);
    }
    qsort(words, N_VOCAB, sizeof *words, by_rank);
    int n = o->top_k > 0 && o->top_k < N_VOCAB ? o->top_k : N_VOCAB;
    double mass = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mass += words[i].p;
    int kept = 0;
    while (kept < n && (o->top_p == 1 || sum < o->top_p * mass))
        sum += words[kept++].p;
    n = 0;
    for (int i = 0; i < kept; i++)
        if (words[i].p >= o->min_p || words[i].best)
            words[n++] = words[i];
    qsort(words, (size_t)n, sizeof *words, by_id);
    return n;
}

/* The draw lies where u falls among the words that stay. A step's words count with their mean, so
 * top_p may be off by a word or so of the last step: `slack` in probability. */
static void check_draw(const bench *b, int row, const dg_draw_options *o, double slack)
{
    ranked *words = dg_calloc(N_VOCAB, sizeof *words);
    int n = filtered_words(b, row, o, DG_DRAW_RANKS, words);
    double total = 0, before = 0, p = -1;
    for (int i = 0; i < n; i++)
        total += words[i].p;
    for (int i = 0; i < n; i++)
        if (words[i].id == b->drawn[row])
            p = words[i].p / total;
        else if (words[i].id < b->drawn[row])
            before += words[i].p / total;
    if (slack == 0)
        ck_assert_msg(p >= 0, "row %d: %d does not stay", row, b->drawn[row]);
    ck_assert_double_ge(b->uniform[row], before - 1e-6 - slack);
    ck_assert_double_le(b->uniform[row], before + fmax(0, p) + 1e-6 + slack);
    dg_free(words);
}

static const dg_draw_options draws[] = {
    {.temperature = 0.7f, .top_p = 1},
    {.temperature = 1.9f, .top_p = 1},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1, .top_k = 2},
    {.temperature = 1, .top_p = 1, .top_k = 40},
    {.temperature = 0.5f, .top_p = 1, .top_k = 4097},
    {.temperature = 1, .top_p = 1, .top_k = 1 << 30},
    {.temperature = 1, .top_p = 1, .min_p = 0.05f},
    {.temperature = 1.5f, .top_p = 1, .min_p = 0.9f, .top_k = 100},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 0.8f, .top_p = 0.5f, .top_k = 64},
    {.temperature = 2, .top_p = 0.99f, .min_p = 0.01f},
    {.temperature = 1, .top_p = 1e-6f},
};

/* Every set of options on every row, for both sets of kernels: the words that come up are those of
 * the plain computation. */
START_TEST(draws_match_the_definition)
{
    for (int reference = 0; reference < 2; reference++) {
        bench b;
        bench_open(&b, reference, 2, strengths[_i]);
        for (size_t k = 0; k < DG_COUNT(draws); k++) {
            const dg_vocabulary_options o = {.draw = &draws[k]};
            for (int r = 0; r < N_ROW; r++) {
                b.options[r] = r % 3 == 1 ? NULL : &o; /* among plain rows */
                b.uniform[r] = dg_rng_uniform(&(dg_rng_key){.seed = k}, (uint32_t)r);
            }
            ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
            /* one word of the last step: at most 1/128 of the mass that its step has */
            double slack = draws[k].top_p < 1 ? 2e-3 : 0;
            for (int r = 0; r < N_ROW; r++) {
                if (b.options[r])
                    check_draw(&b, r, &draws[k], slack);
                b.options[r] = NULL;
                if (r % 3 == 1)
                    check_row(&b, r, 30);
            }
        }
        bench_close(&b);
    }
}
END_TEST

/* A draw's options change the draw and nothing else; at temperature 1 without filters not even
 * that. */
START_TEST(draws_leave_the_statistics_alone)
{
    bench a, b;
    bench_open(&a, false, 2, 1);
    bench_open(&b, false, 3, 1);
    ck_assert_int_eq(bench_run(&a, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    static const dg_draw_options off = {.temperature = 1, .top_p = 1}, cold = {.top_p = 1};
    const dg_draw_options *const all[] = {&off, &cold, &draws[1], &draws[4], &draws[9]};
    for (size_t k = 0; k < DG_COUNT(all); k++) {
        const dg_vocabulary_options o = {.draw = all[k]};
        for (int r = 0; r < N_ROW; r++)
            b.options[r] = &o;
        memset(b.soft, 1, sizeof b.soft);
        ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
        ck_assert_mem_eq(a.soft, b.soft, sizeof a.soft);
        ck_assert_mem_eq(a.entropy, b.entropy, sizeof a.entropy);
        ck_assert_mem_eq(a.argmax, b.argmax, sizeof a.argmax);
        if (all[k] == &off)
            ck_assert_mem_eq(a.drawn, b.drawn, sizeof a.drawn);
        if (all[k] == &cold)
            ck_assert_mem_eq(a.argmax, b.drawn, sizeof a.argmax);
    }
    bench_close(&a);
    bench_close(&b);
}
END_TEST

/* Rows with filters do not know of each other either, and given logits give the same. */
START_TEST(filtered_rows_stand_alone)
{
    bench a, b;
    bench_open(&a, false, 1, strengths[_i]);
    bench_open(&b, false, 3, strengths[_i]);
    static dg_vocabulary_options o[DG_COUNT(draws)];
    for (int r = 0; r < N_ROW; r++) {
        o[r].draw = &draws[r];
        a.options[r] = b.options[r] = &o[r];
    }
    ck_assert_int_eq(bench_run(&a, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++)
        ck_assert_int_eq(bench_run(&b, r, 1, 30, NULL, NULL), DGEMMA_OK);
    ck_assert_mem_eq(a.drawn, b.drawn, sizeof a.drawn);
    float *given = dg_array((size_t)N_ROW * N_VOCAB, sizeof *given);
    for (int r = 0; r < N_ROW; r++)
        for (int v = 0; v < N_VOCAB; v++)
            given[r * N_VOCAB + v] = a.logits[r * N_VOCAB + v] / a.temperature[r];
    memset(b.drawn, 0, sizeof b.drawn);
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, given, NULL), DGEMMA_OK);
    ck_assert_mem_eq(a.drawn, b.drawn, sizeof a.drawn);
    dg_free(given);
    bench_close(&a);
    bench_close(&b);
}
END_TEST

/* How often each word comes up, against the filtered distribution ranked without steps. */
START_TEST(draws_have_the_right_frequencies)
{
    enum { N_RUN = 300, N_DRAW = N_RUN * N_ROW };
    bench b;
    bench_open(&b, false, 2, 4);
    static const dg_draw_options o = {
        .temperature = 20, .top_k = 6, .top_p = 0.97f, .min_p = 0.01f};
    const dg_vocabulary_options wish = {.draw = &o};
    for (int r = 0; r < N_ROW; r++) { /* one row, many draws */
        memcpy(b.x + r * N_EMBD, b.x, N_EMBD * sizeof *b.x);
        b.temperature[r] = 0.8f;
        b.options[r] = &wish;
    }
    static int n_drawn[N_VOCAB];
    for (int run = 0; run < N_RUN; run++) {
        for (int r = 0; r < N_ROW; r++)
            b.uniform[r] = dg_rng_uniform(&(dg_rng_key){.seed = 8}, (uint32_t)(run * N_ROW + r));
        ck_assert_int_eq(bench_run(&b, 0, N_ROW, 0, NULL, NULL), DGEMMA_OK);
        for (int r = 0; r < N_ROW; r++)
            n_drawn[b.drawn[r]]++;
    }
    ranked *words = dg_calloc(N_VOCAB, sizeof *words);
    int n = filtered_words(&b, 0, &o, 0, words), seen = 0;
    ck_assert_int_ge(n, 3);
    ck_assert_int_le(n, 6);
    double total = 0;
    for (int i = 0; i < n; i++)
        total += words[i].p;
    for (int i = 0; i < n; i++) {
        double p = words[i].p / total, sigma = sqrt(p * (1 - p) * N_DRAW);
        seen += n_drawn[words[i].id];
        ck_assert_double_eq_tol(n_drawn[words[i].id], p * N_DRAW, 4.5 * sigma + 1);
    }
    ck_assert_int_eq(seen, N_DRAW); /* nothing else */
    dg_free(words);
    bench_close(&b);
}
END_TEST

/* Equal words: ids decide, and exactly as many stay as should. */
START_TEST(equal_words_stay_by_id)
{
    bench b;
    bench_open(&b, false, 2, 1);
    float *given = dg_calloc((size_t)N_ROW * N_VOCAB, sizeof *given);
    static const dg_draw_options by_count = {.temperature = 1, .top_p = 1, .top_k = 5000},
                                 by_mass = {.temperature = 1, .top_p = 0.25f},
                                 far = {.temperature = 0.01f, .top_p = 0.9f};
    const dg_vocabulary_options o[] = {{.draw = &by_count}, {.draw = &by_mass}, {.draw = &far}};
    for (int r = 0; r < N_ROW; r++) {
        b.options[r] = &o[r % 3];
        b.uniform[r] = nextafter(1, 0);
    }
    for (int v = 0; v < N_VOCAB; v++)
        for (int r = 2; r < N_ROW; r += 3) /* spread over more than the ring of ranks, rising */
            given[r * N_VOCAB + v] = (float)v;
    ck_assert_int_eq(bench_run(&b, 0, N_ROW, 0, given, NULL), DGEMMA_OK);
    for (int r = 0; r < N_ROW; r++) {
        static const int last[] = {4999, 2250, N_VOCAB - 1};
        ck_assert_int_eq(b.drawn[r], last[r % 3]);
    }
    dg_free(given);
    bench_close(&b);
}
END_TEST

/* ---- log-probabilities ---- */

START_TEST(top_words_and_their_logprobs)
{
    for (int reference = 0; reference < 2; reference++) {
        bench b;
        bench_open(&b, reference, 2, strengths[_i]);
        dg_vocabulary_options o[N_ROW];
        for (int r = 0; r < N_ROW; r++) {
            o[r] = (dg_vocabulary_options){.n_top = r % 2 ? DG_MAX_TOP : r};
            b.options[r] = &o[r];
        }
        ck_assert_int_eq(bench_run(&b, 0, N_ROW, 30, NULL, NULL), DGEMMA_OK);
        static const dg_draw_options all = {.temperature = 1, .top_p = 1};
        ranked *words = dg_calloc(N_VOCAB, sizeof *words);
        for (int r = 0; r < N_ROW; r++) {
            filtered_words(&b, r, &all, 0, words);
            double total = 0;
            for (int v = 0; v < N_VOCAB; v++)
                total += words[v].p;
            qsort(words, N_VOCAB, sizeof *words, by_rank);
            ck_assert_double_eq_tol(b.logprob[r], -log(total), 1e-5);
            for (int i = 0; i < o[r].n_top; i++) {
                int at = r * DG_MAX_TOP + i;
                ck_assert_int_eq(b.top_id[at], words[i].id);
                ck_assert_double_eq_tol(b.top_logprob[at], log(words[i].p / total), 1e-4);
            }
            for (int i = o[r].n_top; i < DG_MAX_TOP; i++)
                ck_assert_int_eq(b.top_id[r * DG_MAX_TOP + i], -1);
        }
        dg_free(words);
        bench_close(&b);
    }
}
END_TEST

Suite *vocabulary_suite(void)
{
    Suite *s = suite_create("vocabulary");
    TCase *t = tcase_create("vocabulary");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, statistics_match_the_definition, 0, 6);
    tcase_add_loop_test(t, rows_do_not_know_of_each_other, 0, 3);
    tcase_add_loop_test(t, whole_numbers_stay_close, 0, 3);
    tcase_add_test(t, a_word_that_is_known_to_come);
    tcase_add_test(t, given_logits_give_the_same);
    tcase_add_test(t, bias_and_bans);
    tcase_add_test(t, extreme_draws_stay_inside);
    tcase_add_loop_test(t, broken_rows_are_alone, 0, 2);
    tcase_add_loop_test(t, draws_match_the_definition, 0, 3);
    tcase_add_test(t, draws_leave_the_statistics_alone);
    tcase_add_loop_test(t, filtered_rows_stand_alone, 0, 3);
    tcase_add_test(t, draws_have_the_right_frequencies);
    tcase_add_test(t, equal_words_stay_by_id);
    tcase_add_loop_test(t, top_words_and_their_logprobs, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
