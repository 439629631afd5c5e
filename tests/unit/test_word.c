/* The words of a canvas against every sequence there is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "constraint/word.h"
#include "suites.h"
#include "support/alloc_fail.h"

enum { TOKENS = 6, STATES = 5, POSITIONS = 5, CLASSES = 2 };

/* A random automaton over tokens; tokens of a class go together, or each by itself. */
typedef struct small {
    size_t n, n_token, n_state;
    int class_of[TOKENS];   /* -1: none */
    int to[STATES][TOKENS]; /* -1: nowhere */
    bool ends[STATES];
    double p[POSITIONS][TOKENS]; /* logarithms */
    bool use_classes;
    const dg_word_edge *known; /* for the solver */
    const double *most;
    dg_word_edge edge[TOKENS];
    uint32_t counter;
    uint64_t seed;
} small;

static double uniform(small *s)
{
    dg_rng_key key = {.seed = s->seed};
    return dg_rng_uniform(&key, s->counter++);
}

static int below(small *s, int n)
{
    return (int)(uniform(s) * n);
}

static void make_small(small *s, uint64_t seed)
{
    *s = (small){.seed = seed};
    s->n = 1 + (size_t)below(s, POSITIONS);
    s->n_token = 2 + (size_t)below(s, TOKENS - 1);
    s->n_state = 1 + (size_t)below(s, STATES);
    for (size_t v = 0; v < s->n_token; v++)
        s->class_of[v] = below(s, 3) - 1;
    for (size_t q = 0; q < s->n_state; q++) {
        int group[CLASSES];
        for (int c = 0; c < CLASSES; c++)
            group[c] = below(s, 2) ? below(s, (int)s->n_state) : -1;
        s->ends[q] = below(s, 3) > 0;
        for (size_t v = 0; v < s->n_token; v++)
            s->to[q][v] = s->class_of[v] >= 0 ? group[s->class_of[v]]
                          : below(s, 3)       ? below(s, (int)s->n_state)
                                              : -1;
    }
    for (size_t i = 0; i < s->n; i++) {
        double sum = 0;
        for (size_t v = 0; v < s->n_token; v++)
            sum += s->p[i][v] = seed % 3 ? pow(uniform(s) + 1e-3, 3) : exp(-90 * uniform(s));
        for (size_t v = 0; v < s->n_token; v++)
            s->p[i][v] = log(s->p[i][v] / sum);
    }
}

static dgemma_status edges(void *user, uint32_t state, size_t position, const dg_word_edge **out,
                           size_t *n, dgemma_error *err)
{
    (void)position;
    (void)err;
    small *s = user;
    bool done[CLASSES] = {false};
    *n = 0;
    for (size_t v = 0; v < s->n_token; v++) {
        int to = s->to[state][v], c = s->use_classes ? s->class_of[v] : -1;
        if (to < 0 || (c >= 0 && done[c]))
            continue;
        if (c >= 0)
            done[c] = true;
        s->edge[(*n)++] = (dg_word_edge){(uint32_t)to, c >= 0 ? TOKENS + (uint32_t)c : (uint32_t)v};
    }
    *out = s->edge;
    return DGEMMA_OK;
}

/* A label is a token, or from TOKENS on a class. */
static bool has(const small *s, uint32_t label, size_t v)
{
    return label < TOKENS ? label == v : s->class_of[v] == (int)(label - TOKENS);
}

static dg_word_weight weigh(void *user, size_t i, uint32_t label)
{
    small *s = user;
    dg_word_weight w = {.best = -INFINITY};
    double mass = 0, inner = 0;
    for (size_t v = 0; v < s->n_token; v++)
        if (has(s, label, v)) {
            w.best = fmax(w.best, s->p[i][v]);
            mass += exp(s->p[i][v]);
            inner += exp(s->p[i][v]) * s->p[i][v];
        }
    w.mass = log(mass);
    w.p = i % 2 ? mass : 0; /* at some positions it is known */
    w.spread = w.mass - inner / mass;
    return w;
}

static bool fits(void *user, uint32_t state, size_t position)
{
    const small *s = user;
    return position < s->n || s->ends[state];
}

typedef struct brute {
    double best, z;
    double q[POSITIONS][TOKENS];
} brute;

/* All sequences that go on from here. */
static void enumerate(const small *s, brute *b, size_t i, int state, double p, int *word)
{
    if (i == s->n) {
        if (!s->ends[state])
            return;
        b->best = fmax(b->best, p);
        b->z += exp(p);
        for (size_t k = 0; k < s->n; k++)
            b->q[k][word[k]] += exp(p);
        return;
    }
    for (size_t v = 0; v < s->n_token; v++)
        if (s->to[state][v] >= 0) {
            word[i] = (int)v;
            enumerate(s, b, i + 1, s->to[state][v], p + s->p[i][v], word);
        }
}

static void check_position(small *s, dg_word *w, const brute *b, size_t i)
{
    size_t n;
    double h = 0, sum = 0;
    const dg_word_share *share = dg_word_shares(w, i, &n);
    for (size_t k = 0; k < n; k++) {
        double want = 0;
        for (size_t v = 0; v < s->n_token; v++)
            if (has(s, share[k].label, v))
                want += b->q[i][v] / b->z;
        ck_assert_double_eq_tol(share[k].q, want, 1e-9);
        sum += share[k].q;
    }
    ck_assert_double_eq_tol(sum, 1, 1e-9);
    for (size_t v = 0; v < s->n_token; v++)
        if (b->q[i][v] > 0)
            h -= b->q[i][v] / b->z * log(b->q[i][v] / b->z);
    ck_assert_double_eq_tol(dg_word_entropy(w, i), h, 1e-9);
}

static bool check_small(small *s, dg_word *w, const brute *b)
{
    dg_word_graph g = {s, edges, weigh, fits};
    dg_word_options o = {.n = s->n, .start = 0, .known = s->known, .most = s->most};
    dgemma_status st = dg_word_solve(w, &g, &o, NULL);
    if (b->z == 0) {
        ck_assert_int_eq(st, DGEMMA_E_ARG);
        return false;
    }
    ck_assert_int_eq(st, DGEMMA_OK);
    ck_assert(!dg_word_cut(w));
    ck_assert_double_eq_tol(dg_word_score(w), b->best, 1e-9);
    ck_assert_double_eq_tol(dg_word_log_mass(w), log(b->z), 1e-9);
    double score = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        const dg_word_edge *e = &dg_word_path(w)[i];
        score += weigh(s, i, e->label).best;
        at = e->to;
        check_position(s, w, b, i);
    }
    ck_assert_double_eq_tol(score, b->best, 1e-9);
    ck_assert(s->ends[at]);
    return true;
}

START_TEST(as_all_sequences_say)
{
    dg_word *w;
    int n_solved = 0;
    ck_assert(!dg_word_create(&w, NULL));
    for (uint64_t seed = 0; seed < 10000; seed++) {
        small s;
        brute b = {.best = -INFINITY};
        int word[POSITIONS];
        make_small(&s, seed);
        enumerate(&s, &b, 0, 0, 0, word);
        for (int classes = 0; classes < 2; classes++) {
            s.use_classes = classes;
            n_solved += check_small(&s, w, &b);
        }
    }
    ck_assert_int_gt(n_solved, 10000);
    dg_word_free(w);
}
END_TEST

/* A sequence that is known spares work, and changes nothing. */
START_TEST(what_is_known_changes_nothing)
{
    dg_word *w;
    int n_spared = 0;
    ck_assert(!dg_word_create(&w, NULL));
    for (uint64_t seed = 0; seed < 2000; seed++) {
        small s;
        brute b = {.best = -INFINITY};
        int word[POSITIONS];
        double u[POSITIONS], most[POSITIONS];
        dg_word_edge e[POSITIONS];
        make_small(&s, seed);
        s.use_classes = seed % 2;
        enumerate(&s, &b, 0, 0, 0, word);
        if (!check_small(&s, w, &b))
            continue;
        size_t n_before = 0, n_after = 0, n;
        for (size_t i = 0; i < s.n; i++) {
            u[i] = uniform(&s);
            most[i] = -INFINITY;
            for (size_t v = 0; v < s.n_token; v++)
                most[i] = fmax(most[i], s.p[i][v]);
            dg_word_shares(w, i, &n);
            n_before += n;
        }
        dg_word_draw(w, u, e);
        if (seed % 5)
            memcpy(e, dg_word_path(w), s.n * sizeof *e);
        s.known = e;
        s.most = seed % 7 ? most : NULL;
        ck_assert(check_small(&s, w, &b));
        for (size_t i = 0; i < s.n; i++) {
            dg_word_shares(w, i, &n);
            n_after += n;
        }
        n_spared += n_after < n_before;
    }
    ck_assert_int_gt(n_spared, 15);
    dg_word_free(w);
}
END_TEST

/* Whether a sum of squares of so many numbers that are normal is one of the rarest in 10,000, by
 * Wilson and Hilferty. */
static bool is_rare(double squares, int n)
{
    double v = 2.0 / (9 * n);
    return cbrt(squares / n) > 1 - v + 3.719 * sqrt(v);
}

/* How often each token is drawn at each position, against its share. */
START_TEST(draws_are_as_probable_as_they_should_be)
{
    enum { DRAWS = 100000 };
    dg_word *w;
    ck_assert(!dg_word_create(&w, NULL));
    for (uint64_t seed = 0; seed < 12; seed++) {
        small s;
        brute b = {.best = -INFINITY};
        int word[POSITIONS], seen[POSITIONS][TOKENS] = {{0}};
        make_small(&s, seed);
        enumerate(&s, &b, 0, 0, 0, word);
        if (!check_small(&s, w, &b))
            continue;
        for (uint32_t k = 0; k < DRAWS; k++) {
            double u[POSITIONS];
            dg_word_edge e[POSITIONS];
            dg_rng_key key = {.seed = 99, .block = k};
            for (uint32_t i = 0; i < s.n; i++)
                u[i] = dg_rng_uniform(&key, i);
            dg_word_draw(w, u, e);
            for (size_t i = 0; i < s.n; i++)
                seen[i][e[i].label]++;
            ck_assert(s.ends[e[s.n - 1].to]);
        }
        for (size_t i = 0; i < s.n; i++) {
            double squares = 0;
            int n = -1;
            for (size_t v = 0; v < s.n_token; v++) {
                double want = b.q[i][v] / b.z * DRAWS;
                ck_assert(want > 0 || !seen[i][v]);
                if (want < 5) /* too few to be normal */
                    continue;
                squares += (seen[i][v] - want) * (seen[i][v] - want) / want;
                n++;
            }
            ck_assert_msg(n < 1 || !is_rare(squares, n), "seed %d, position %zu: %g of %d",
                          (int)seed, i, squares, n);
        }
    }
    dg_word_free(w);
}
END_TEST

/* A beam of one state loses words, but never the way that is kept. */
START_TEST(what_is_kept_survives_the_beam)
{
    dg_word *w;
    int n_cut = 0;
    ck_assert(!dg_word_create(&w, NULL));
    for (uint64_t seed = 0; seed < 400; seed++) {
        small s;
        brute b = {.best = -INFINITY};
        int word[POSITIONS];
        make_small(&s, seed);
        enumerate(&s, &b, 0, 0, 0, word);
        if (!check_small(&s, w, &b))
            continue;
        double kept = 0;
        /* some way that ends, drawn */
        double u[POSITIONS];
        dg_word_edge e[POSITIONS];
        for (size_t i = 0; i < s.n; i++)
            u[i] = uniform(&s);
        dg_word_draw(w, u, e);
        for (size_t i = 0; i < s.n; i++)
            kept += weigh(&s, i, e[i].label).best;
        dg_word_graph g = {&s, edges, weigh, fits};
        dg_word_options o = {.n = s.n, .beam = 1, .known = e};
        ck_assert(!dg_word_solve(w, &g, &o, NULL));
        ck_assert(dg_word_score(w) >= kept - 1e-12 && dg_word_score(w) <= b.best + 1e-12);
        ck_assert(dg_word_log_mass(w) <= log(b.z) + 1e-12);
        n_cut += dg_word_cut(w);
    }
    ck_assert_int_gt(n_cut, 50);
    dg_word_free(w);
}
END_TEST

START_TEST(memory_may_run_out)
{
    small s;
    make_small(&s, 3);
    for (size_t q = 0; q < s.n_state; q++)
        s.ends[q] = true;
    for (long n = 1;; n++) {
        dg_word *w = NULL;
        dg_word_graph g = {&s, edges, weigh, fits};
        dg_word_options o = {.n = s.n, .beam = 1};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_word_create(&w, NULL);
        if (!st)
            st = dg_word_solve(w, &g, &o, NULL);
        bool reached = dg_test_alloc_done();
        dg_word_free(w);
        ck_assert_int_eq(st, reached ? DGEMMA_E_NOMEM : DGEMMA_OK);
        if (!reached)
            break;
    }
}
END_TEST

Suite *word_suite(void)
{
    Suite *s = suite_create("word");
    TCase *c = tcase_create("word");
    tcase_add_test(c, as_all_sequences_say);
    tcase_add_test(c, what_is_known_changes_nothing);
    tcase_add_test(c, draws_are_as_probable_as_they_should_be);
    tcase_add_test(c, what_is_kept_survives_the_beam);
    tcase_add_test(c, memory_may_run_out);
    suite_add_tcase(s, c);
    return s;
}
