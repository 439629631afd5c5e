/* One step of a canvas that is held to a language, against every sequence of tokens there is: what
 * the guide asks for, groups, ends and draws, at temperatures and with filters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "base/file.h"
#include "base/rng.h"
#include "dgemma.h"
#include "engine/constraint_data.h"
#include "engine/guide.h"
#include "suites.h"

enum { N = 3, MAX_VOCAB = 512, MAX_WORDS = 1 << 18, EOS = 1, TURN_END = 7, PAD = 0 };

typedef struct word {
    int32_t token[N];
    double p; /* logarithm */
} word;

/* A step's numbers, and all sequences that the language has. */
typedef struct step {
    dg_tokenizer *tokenizer;
    dg_token_trie *trie;
    dgemma_constraint *constraint;
    dg_language *language;
    dg_guide *guide;
    int n_vocab;
    double p[N][MAX_VOCAB], uniform[N]; /* p: logarithms */
    int32_t top[N][DG_ASKED_TOP];
    dg_class_finding found[N][DG_ASKED_CLASSES]; /* but for the draw */
    double warm[N][MAX_VOCAB];
    word *words;
    size_t n_word;
    bool has_class;
    dg_draw_options draw;
    int32_t canvas[N];   /* what the model saw, */
    uint8_t accepted[N]; /* and where it was put there */
} step;

static const int32_t stops[] = {EOS, TURN_END};

static double random_at(uint64_t seed, uint32_t block, uint32_t i)
{
    dg_rng_key key = {.seed = seed, .block = block};
    return dg_rng_uniform(&key, i);
}

static void add_words(step *s, dg_place at, bool done, int i, word w)
{
    if (i == N) {
        ck_assert_uint_lt(s->n_word, MAX_WORDS);
        s->words[s->n_word++] = w;
        return;
    }
    if (done) {
        w.token[i] = PAD;
        w.p += s->p[i][PAD];
        add_words(s, at, true, i + 1, w);
        return;
    }
    dg_token_edges e = {0};
    dg_edges bytes;
    bool wide;
    dgemma_error err = {0};
    ck_assert(!dg_token_edges_find(s->trie, s->language, at, NULL, &e, &wide, &err) && !wide);
    for (size_t k = 0; k < e.n; k++) {
        s->has_class |= e.at[k].is_class;
        for (int32_t v = 0; v < s->n_vocab; v++)
            if (e.at[k].is_class ? dg_token_trie_classes(s->trie)[v] == e.at[k].token
                                 : v == e.at[k].token) {
                word next = w;
                next.token[i] = v;
                next.p += s->p[i][v];
                add_words(s, e.at[k].to, false, i + 1, next);
            }
    }
    dg_token_edges_clear(&e);
    ck_assert(!dg_language_edges(s->language, at, &bytes, &err));
    for (size_t k = 0; bytes.accepts && k < DG_COUNT(stops); k++) {
        word next = w;
        next.token[i] = stops[k];
        next.p += s->p[i][stops[k]];
        add_words(s, at, true, i + 1, next);
    }
}

static void open_step(step *s, const char *regex, uint64_t seed)
{
    dg_buf text;
    dgemma_error err = {0};
    *s = (step){.draw = {1, 0, 1, 0}};
    dg_buf_init(&text, 1 << 24);
    ck_assert(!dg_file_read(&text, "tests/fixtures/tiny_tokenizer.json", &err));
    ck_assert(!dg_tokenizer_from_json(&s->tokenizer, text.data, text.len, "tiny", &err));
    dg_buf_clear(&text);
    ck_assert(!dg_token_trie_create(&s->trie, s->tokenizer, 0, &err));
    s->n_vocab = (int)dg_token_trie_count(s->trie);
    ck_assert_int_le(s->n_vocab, MAX_VOCAB);
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_REGEX, .text = regex, .text_len = strlen(regex)};
    ck_assert_msg(!dgemma_constraint_create(&s->constraint, &opt, &err), "%s", err.msg);
    ck_assert(!dg_language_create(&s->language, s->constraint->syntax, &err));
    dg_guide_options o = {.syntax = s->constraint->syntax,
                          .trie = s->trie,
                          .tokenizer = s->tokenizer,
                          .stop = stops,
                          .n_stop = DG_COUNT(stops),
                          .pad = PAD,
                          .n_canvas = N,
                          .n_most = 1000,
                          .think_open = -1,
                          .think_close = -1};
    ck_assert_msg(!dg_guide_create(&s->guide, &o, &err), "%s", err.msg);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int v = 0; v < s->n_vocab; v++) {
            s->p[i][v] = 6 * random_at(seed, (uint32_t)i, (uint32_t)v);
            if (v == PAD || v == EOS || v == TURN_END)
                s->p[i][v] += 4;
            sum += exp(s->p[i][v]);
        }
        for (int v = 0; v < s->n_vocab; v++) /* as a backend gives them */
            s->p[i][v] = (double)(float)(s->p[i][v] - log(sum));
    }
    s->words = malloc(MAX_WORDS * sizeof *s->words);
    ck_assert_ptr_nonnull(s->words);
    add_words(s, dg_language_start(s->language), false, 0, (word){.p = 0});
    ck_assert_uint_gt(s->n_word, 5);
}

static void close_step(step *s)
{
    free(s->words);
    dg_guide_free(s->guide);
    dg_language_free(s->language);
    dgemma_constraint_free(s->constraint);
    dg_token_trie_free(s->trie);
    dg_tokenizer_free(s->tokenizer);
}

/* What a backend would find of words and classes, the draws aside. */
static void find_words(step *s)
{
    const uint8_t *class_of = dg_token_trie_classes(s->trie);
    for (int i = 0; i < N; i++) {
        bool used[MAX_VOCAB] = {false};
        for (int k = 0; k < DG_ASKED_TOP; k++) {
            int best = -1;
            for (int v = 0; v < s->n_vocab; v++)
                if (!used[v] && (best < 0 || s->p[i][v] > s->p[i][best]))
                    best = v;
            used[best] = true;
            s->top[i][k] = best;
        }
        for (int c = 0; c < DG_ASKED_CLASSES; c++)
            s->found[i][c] = (dg_class_finding){.best = -INFINITY, .id = -1, .drawn = -1};
        for (int v = 0; v < s->n_vocab; v++) {
            dg_class_finding *f = &s->found[i][class_of[v]];
            double power = s->draw.temperature > 0 ? 1 / (double)s->draw.temperature : 1;
            s->warm[i][v] = exp(s->p[i][v] * power);
            if (s->p[i][v] > f->best)
                f->id = v;
            f->best = fmax(f->best, s->p[i][v]);
            f->mass += exp(s->p[i][v]);
            f->warm += s->warm[i][v];
            f->inner += exp(s->p[i][v]) * s->p[i][v];
        }
    }
}

static dg_class_finding find_class(const step *s, const dg_asked *a, int i, int c, double uniform)
{
    dg_class_finding f = s->found[i][c];
    double sum = 0;
    for (int v = 0; v < s->n_vocab && sum <= uniform * f.warm; v++)
        if (a->class_of[v] == c) {
            sum += s->warm[i][v];
            f.drawn = v;
        }
    f.mass = log(f.mass);
    f.warm = log(f.warm);
    return f;
}

/* Answers what the guide asks, and has it take that in, with the model's own outcome in the arrays.
 */
static void take_own(step *s, int32_t *argmax, int32_t *drawn, float *entropy, uint8_t *forced)
{
    dgemma_error err = {0};
    const dg_asked *a = dg_guide_ask(s->guide, s->uniform, N, &s->draw);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < a->n_id; k++)
            a->logprob[i * a->n_id + k] = (float)s->p[i][a->id[k]];
        for (int c = 0; c < DG_ASKED_CLASSES; c++) {
            dg_class_finding *f = &a->found[i * DG_ASKED_CLASSES + c];
            if (a->classes >> c & 1)
                *f = find_class(s, a, i, c, f->uniform);
        }
        for (int k = 0; k < DG_ASKED_TOP; k++) {
            a->top_id[i * DG_ASKED_TOP + k] = s->top[i][k];
            a->top_logprob[i * DG_ASKED_TOP + k] = (float)s->p[i][s->top[i][k]];
        }
    }
    dg_guide_step g = {.n = N,
                       .room = 1000,
                       .canvas = s->canvas,
                       .accepted = s->accepted,
                       .uniform = s->uniform,
                       .draw = &s->draw,
                       .argmax = argmax,
                       .drawn = drawn,
                       .entropy = entropy,
                       .forced = forced};
    ck_assert_msg(!dg_guide_take(s->guide, &g, &err), "%s", err.msg);
}

/* Likewise where the model wants something else at every position. */
static void take(step *s, int32_t *argmax, int32_t *drawn, float *entropy)
{
    uint8_t forced[N];
    for (int i = 0; i < N; i++)
        argmax[i] = -1;
    take_own(s, argmax, drawn, entropy, forced);
}

/* By which token a turn ends does not count. */
static int32_t outcome(int32_t token)
{
    return token == EOS ? TURN_END : token;
}

static void check_step(step *s)
{
    int32_t argmax[N], drawn[N];
    float entropy[N];
    double best = -INFINITY, z = 0, score = 0;
    find_words(s);
    take(s, argmax, drawn, entropy);
    for (size_t k = 0; k < s->n_word; k++) {
        best = fmax(best, s->words[k].p);
        z += exp(s->words[k].p);
    }
    for (int i = 0; i < N; i++) {
        static double q[MAX_VOCAB];
        double h = 0;
        memset(q, 0, sizeof q);
        for (size_t k = 0; k < s->n_word; k++)
            q[outcome(s->words[k].token[i])] += exp(s->words[k].p) / z;
        for (int v = 0; v < s->n_vocab; v++)
            h -= q[v] > 0 ? q[v] * log(q[v]) : 0;
        /* inside a character the same bytes lead on from several places: what they count twice is
         * an upper bound */
        double above = (double)entropy[i] - h;
        ck_assert_msg(above > -1e-5 && above < (s->has_class ? 0.02 : 1e-5),
                      "position %d: entropy %g, not %g", i, (double)entropy[i], h);
        score += s->p[i][argmax[i]];
    }
    ck_assert_double_eq_tol(score, best, 1e-6);
}

static const char *const languages[] = {"a[ab]*", "(ab|ba|c)+d?", "[0-9]{1,2}(,[0-9])*",
                                        "a[^\"\\\\\\x00-\\x1f]*"};

START_TEST(a_step_is_as_all_sequences_say)
{
    step s;
    for (uint64_t seed = 0; seed < 4; seed++) {
        open_step(&s, languages[_i], seed);
        check_step(&s);
        ck_assert_int_eq(s.has_class, _i == 3);
        for (int i = 0; i < N; i++) /* a second step, which knows the path of the first */
            for (int v = 0; v < s.n_vocab; v++)
                s.p[i][v] = (double)(float)(s.p[i][v] * 1.5 - 1);
        s.n_word = 0;
        add_words(&s, dg_language_start(s.language), false, 0, (word){.p = 0});
        check_step(&s);
        close_step(&s);
    }
}
END_TEST

/* Makes a token the likeliest of its position, by far. */
static void insist(step *s, int i, int32_t token)
{
    for (int v = 0; v < s->n_vocab; v++)
        s->p[i][v] -= 9;
    s->p[i][token] = -0.05;
}

/* Where the text holds what the model says by itself, entropy and draw stay the model's own, also
 * beside a position where it does not. */
START_TEST(what_the_model_says_by_itself_is_left_alone)
{
    for (int wrong = -1; wrong < N; wrong++) {
        step s;
        int32_t argmax[N], drawn[N];
        float entropy[N];
        uint8_t forced[N];
        open_step(&s, "[0-9]{3}", 4);
        const word *w = &s.words[17];
        for (int i = 0; i < N; i++)
            insist(&s, i, i == wrong ? EOS : w->token[i]);
        find_words(&s);
        for (int i = 0; i < N; i++) {
            argmax[i] = s.top[i][0];
            drawn[i] = -5 - i;
            entropy[i] = 7 + (float)i;
        }
        take_own(&s, argmax, drawn, entropy, forced);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(argmax[i] == s.top[i][0], i != wrong);
            ck_assert_int_eq(drawn[i] == -5 - i, i != wrong);
            ck_assert_int_eq(entropy[i] == 7 + (float)i, i != wrong);
            ck_assert(!forced[i]); /* ten digits are a choice */
        }
        close_step(&s);
    }
}
END_TEST

/* Bytes come first in the vocabulary, letters later. */
static int32_t token_of(const step *s, char letter)
{
    size_t len;
    int32_t found = -1;
    for (int32_t v = 0; v < s->n_vocab; v++) {
        const char *text = dg_token_trie_text(s->trie, v, &len);
        if (text && len == 1 && *text == letter)
            found = v;
    }
    ck_assert_int_ge(found, 0);
    return found;
}

/* The most probable text is "xbd", since the model wants a d. Told that there is an x it still
 * wants none: then what it says of places behind is about another text, and the a that comes first
 * is kept. */
START_TEST(a_model_that_insists_is_read_from_the_left)
{
    for (int told = 0; told < 2; told++) {
        step s;
        int32_t argmax[N], drawn[N];
        float entropy[N];
        uint8_t forced[N];
        open_step(&s, "x(a[0-9]|bd)", 4);
        int32_t a = token_of(&s, 'a'), b = token_of(&s, 'b'), d = token_of(&s, 'd');
        insist(&s, 0, EOS);
        insist(&s, 1, a);
        insist(&s, 2, d);
        s.p[1][b] = -3;
        find_words(&s);
        for (int i = 0; i < N; i++)
            argmax[i] = s.top[i][0];
        s.canvas[0] = token_of(&s, 'x');
        s.accepted[0] = told != 0;
        take_own(&s, argmax, drawn, entropy, forced);
        ck_assert_int_eq(argmax[0], token_of(&s, 'x'));
        ck_assert_int_eq(argmax[1], told ? a : b);
        ck_assert_int_eq(argmax[2] == d, !told);
        close_step(&s);
    }
}
END_TEST

/* The same where it had come to an a, and was not told otherwise. */
START_TEST(a_model_that_was_told_nothing_is_read_as_a_whole)
{
    step s;
    int32_t argmax[N], drawn[N];
    float entropy[N];
    uint8_t forced[N];
    open_step(&s, "a[0-9]{2}|bcd", 4);
    insist(&s, 0, token_of(&s, 'a'));
    insist(&s, 1, token_of(&s, 'c'));
    insist(&s, 2, token_of(&s, 'd'));
    s.p[0][token_of(&s, 'b')] = -3;
    find_words(&s);
    for (int i = 0; i < N; i++)
        argmax[i] = s.top[i][0];
    take_own(&s, argmax, drawn, entropy, forced);
    ck_assert_int_eq(argmax[0], token_of(&s, 'b'));
    close_step(&s);
}
END_TEST

/* What a step has put there against the model's will stays while the model says nothing better. */
START_TEST(what_the_model_was_told_stays)
{
    step s;
    open_step(&s, "[ab][0-9]{2}", 4);
    int32_t a = token_of(&s, 'a'), b = token_of(&s, 'b');
    const struct {
        int32_t wanted;
        bool accepted;
        int32_t told, text;
    } cases[] = {
        {EOS, false, a, b},                      /* noise */
        {EOS, true, a, a},  {EOS, true, PAD, b}, /* not in the language */
        {b, true, a, b},    {a, true, b, a},
    };
    for (size_t k = 0; k < DG_COUNT(cases); k++) {
        int32_t argmax[N] = {cases[k].wanted, -1, -1}, drawn[N];
        float entropy[N];
        uint8_t forced[N];
        s.p[0][EOS] = s.p[0][b] = -5;
        s.p[0][a] = -6;
        s.p[0][cases[k].wanted] = -0.5;
        find_words(&s);
        s.canvas[0] = cases[k].told;
        s.accepted[0] = cases[k].accepted;
        take_own(&s, argmax, drawn, entropy, forced);
        ck_assert_msg(argmax[0] == cases[k].text, "case %zu", k);
    }
    close_step(&s);
}
END_TEST

/* Overruled where the language leaves no choice: that is no doubt of the model's. */
START_TEST(what_is_forced_is_marked_where_the_model_is_overruled)
{
    step s;
    int32_t argmax[N], drawn[N];
    float entropy[N];
    uint8_t forced[N];
    open_step(&s, "[0-9]é[0-9]?", 2); /* whose second character has two bytes, and no other way */
    find_words(&s);
    for (int i = 0; i < N; i++) {
        argmax[i] = -1;
        entropy[i] = 7;
    }
    take_own(&s, argmax, drawn, entropy, forced);
    ck_assert(!forced[0] && entropy[0] > 0);
    ck_assert(forced[1] && entropy[1] < 1e-9f);
    close_step(&s);
}
END_TEST

/* The least log-probability that the filters let be at a position, from their definition. */
static double least_of(const step *s, int i)
{
    double sorted[MAX_VOCAB], mass = 0;
    int n = 0;
    for (int v = 0; v < s->n_vocab; v++) {
        int at = n++;
        for (; at > 0 && sorted[at - 1] < s->p[i][v]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = s->p[i][v];
    }
    int kept = 0;
    int most = s->draw.top_k ? dg_min(s->draw.top_k, DG_ASKED_TOP) : DG_ASKED_TOP;
    double t = (double)s->draw.temperature, top = exp(sorted[0] / t);
    while (kept < most && mass < (double)s->draw.top_p &&
           exp(sorted[kept] / t) >= (double)s->draw.min_p * top)
        mass += exp(sorted[kept++]);
    return sorted[kept - 1];
}

/* How often each token is drawn at each position, against sequences whose probabilities are to the
 * power of 1 / temperature; those with the fewest tokens that filters leave out alone count. */
static void check_draws(step *s, uint64_t seed)
{
    enum { DRAWS = 1500 };
    static double q[N][MAX_VOCAB];
    static int seen[N][MAX_VOCAB];
    bool filters = s->draw.top_k || s->draw.top_p < 1 || s->draw.min_p > 0;
    double z = 0, least[N];
    int fewest = N + 1;
    find_words(s);
    memset(q, 0, sizeof q);
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < N; i++)
        least[i] = filters ? least_of(s, i) : -INFINITY;
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < s->n_word; k++) {
            const word *w = &s->words[k];
            int out = 0;
            double p = exp(w->p / (double)s->draw.temperature);
            for (int i = 0; i < N; i++)
                out += s->p[i][w->token[i]] < least[i];
            if (round == 0)
                fewest = dg_min(fewest, out);
            if (round == 0 || out > fewest)
                continue;
            z += p;
            for (int i = 0; i < N; i++)
                q[i][w->token[i]] += p;
        }
    for (uint32_t d = 0; d < DRAWS; d++) {
        int32_t argmax[N], drawn[N];
        float entropy[N];
        for (uint32_t i = 0; i < N; i++)
            s->uniform[i] = random_at(seed, d + 1000, i);
        take(s, argmax, drawn, entropy);
        for (int i = 0; i < N; i++)
            seen[i][drawn[i]]++;
    }
    for (int i = 0; i < N; i++)
        for (int v = 0; v < s->n_vocab; v++) {
            double want = q[i][v] / z; /* six standard deviations */
            ck_assert_msg(fabs(seen[i][v] / (double)DRAWS - want) <=
                              6 * sqrt(want * (1 - want) / DRAWS) + 2e-3,
                          "position %d, token %d: %d of %d, not %g", i, v, seen[i][v], DRAWS, want);
        }
}

START_TEST(draws_are_as_warm_as_they_should_be)
{
    static const dg_draw_options draws[] = {
        {1, 0, 1, 0},    {0.5f, 0, 1, 0}, {2, 0, 1, 0},        {1, 5, 1, 0},
        {1, 0, 0.3f, 0}, {1, 0, 1, 0.4f}, {1.5f, 20, 0.9f, 0}, {0.7f, 0, 1, 0.05f},
    };
    step s;
    open_step(&s, languages[_i], 11);
    for (size_t k = 0; k < DG_COUNT(draws); k++) {
        s.draw = draws[k];
        check_draws(&s, k);
    }
    close_step(&s);
}
END_TEST

/* The same seed gives the same draw; temperature 0 the most probable text. */
START_TEST(draws_are_the_same_again)
{
    step s;
    int32_t argmax[N], first[N], again[N];
    float entropy[N];
    open_step(&s, languages[0], 5);
    s.draw = (dg_draw_options){1.7f, 30, 0.95f, 0.01f};
    find_words(&s);
    for (uint32_t d = 0; d < 20; d++) {
        for (uint32_t i = 0; i < N; i++)
            s.uniform[i] = random_at(3, d, i);
        take(&s, argmax, first, entropy);
        take(&s, argmax, again, entropy);
        ck_assert(!memcmp(first, again, sizeof first));
    }
    s.draw = (dg_draw_options){0, 0, 1, 0};
    take(&s, argmax, first, entropy);
    ck_assert(!memcmp(first, argmax, sizeof first));
    close_step(&s);
}
END_TEST

Suite *guide_suite(void)
{
    Suite *s = suite_create("guide");
    TCase *t = tcase_create("guide");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_step_is_as_all_sequences_say, 0, DG_COUNT(languages));
    tcase_add_test(t, what_the_model_says_by_itself_is_left_alone);
    tcase_add_test(t, a_model_that_insists_is_read_from_the_left);
    tcase_add_test(t, a_model_that_was_told_nothing_is_read_as_a_whole);
    tcase_add_test(t, what_the_model_was_told_stays);
    tcase_add_test(t, what_is_forced_is_marked_where_the_model_is_overruled);
    tcase_add_loop_test(t, draws_are_as_warm_as_they_should_be, 0, DG_COUNT(languages));
    tcase_add_test(t, draws_are_the_same_again);
    suite_add_tcase(s, t);
    return s;
}
