/* One step of a canvas that is held to a language, against every sequence of tokens there is: what
 * the guide asks for, groups, ends and draws, at temperatures and with filters. */
#include <math.h>
#include <string.h>
#include "guide_step.h"

/* By which token a turn ends does not count. */
static int32_t outcome(int32_t token)
{
    return token == EOS ? TURN_END : token;
}

/* most_above: how far above the true entropy the told one may be, an upper bound where tokens lead
 * on from several places. */
static void check_step(step *s, double most_above)
{
    double best = -INFINITY, z = 0, score = 0;
    step_find_words(s);
    step_take_overruled(s);
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
        double above = (double)s->entropy[i] - h;
        ck_assert_msg(above > -1e-5 && above < most_above, "position %d: entropy %g, not %g", i,
                      (double)s->entropy[i], h);
        score += s->p[i][s->argmax[i]];
    }
    ck_assert_double_eq_tol(score, best, 1e-6);
    ck_assert_double_eq_tol((double)dg_guide_resistance(s->guide), fmax(-log(z) / N, 0), 1e-5);
}

static const char *const languages[] = {"a[ab]*", "(ab|ba|c)+d?", "[0-9]{1,2}(,[0-9])*",
                                        "a[^\"\\\\\\x00-\\x1f]*"};

START_TEST(a_step_is_as_all_sequences_say)
{
    step s;
    for (uint64_t seed = 0; seed < 4; seed++) {
        step_open(&s, languages[_i], seed);
        ck_assert_uint_gt(s.n_word, 5);
        double most_above = _i == 3 ? 0.02 : 1e-5; /* inside a character, bytes count twice */
        check_step(&s, most_above);
        ck_assert_int_eq(s.has_class, _i == 3);
        for (int i = 0; i < N; i++) /* a second step, which knows the path of the first */
            for (int v = 0; v < s.n_vocab; v++)
                s.p[i][v] = (double)(float)(s.p[i][v] * 1.5 - 1);
        step_find_sequences(&s);
        check_step(&s, most_above);
        step_close(&s);
    }
}
END_TEST

/* A few atoms, each with a count, and something that may follow. */
static const char *random_regex(uint64_t seed)
{
    static const char *const atoms[] = {"a",        "b",         "ab",  "[ab]",
                                        "(?:ba|c)", "(?:a|b?c)", "\\d", "-"};
    static const char *const counts[] = {"", "", "?", "*", "+", "{2}", "{1,2}"};
    static char text[80];
    text[0] = '\0';
    int n = 1 + (int)(3 * step_random(seed, 100, 0));
    for (int i = 0; i < n; i++) {
        double u = step_random(seed, 101, (uint32_t)i), v = step_random(seed, 102, (uint32_t)i);
        const char *atom = atoms[(size_t)(u * (double)DG_COUNT(atoms))];
        const char *count = counts[(size_t)(v * (double)DG_COUNT(counts))];
        strcat(strcat(text, atom), atom[0] == '(' || !atom[1] || atom[0] == '[' ? count : "");
        if (i == 0 && step_random(seed, 103, 0) < 0.2)
            strcat(text, "|");
    }
    return strcat(text, "[0-9]?");
}

/* Appends a schema without free strings: of those there would be too many sequences to go through
 * them all. */
static void random_schema(char *text, uint64_t seed, uint32_t depth)
{
    static const char *const plain[] = {
        "{\"type\": \"boolean\"}",
        "{\"enum\": [\"a\", \"ab\", 1, null, [true]]}",
        "{\"const\": {\"b\": [1, -2]}}",
        "{\"type\": \"integer\", \"minimum\": -3, \"maximum\": 120}",
        "{\"type\": \"string\", \"pattern\": \"^[ab]{1,3}$\"}",
        "{\"type\": \"number\"}"};
    double u = step_random(seed, 200 + depth, 0), v = step_random(seed, 200 + depth, 1);
    if (depth == 2 || u < 0.4) {
        strcat(text, plain[(size_t)(v * (double)DG_COUNT(plain))]);
        return;
    }
    strcat(text, u < 0.6 ? "{\"anyOf\": [{\"type\": \"null\"}, "
                 : u < 0.8
                     ? "{\"type\": \"array\", \"maxItems\": 2, \"items\": "
                     : "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": "
                       "{\"a\": ");
    random_schema(text, seed, depth + 1);
    strcat(text, u < 0.6 ? "]}" : u < 0.8 ? "}" : v < 0.5 ? "}}" : "}, \"required\": [\"a\"]}");
}

START_TEST(steps_in_random_languages)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        step s;
        char schema[400] = "";
        step_open(&s, random_regex(16 * (uint64_t)_i + seed), seed);
        check_step(&s, INFINITY); /* a token may count in two groups */
        step_close(&s);
        random_schema(schema, 16 * (uint64_t)_i + seed, 0);
        step_open(&s, schema, seed);
        check_step(&s, INFINITY); /* a token may count in two groups */
        step_close(&s);
    }
}
END_TEST

/* Where the text holds what the model says by itself, entropy and draw stay the model's own, also
 * beside a position where it does not. */
START_TEST(what_the_model_says_by_itself_is_left_alone)
{
    for (int wrong = -1; wrong < N; wrong++) {
        step s;
        step_open(&s, "[0-9]{3}", 4);
        const word *w = &s.words[17];
        for (int i = 0; i < N; i++)
            step_insist(&s, i, i == wrong ? EOS : w->token[i]);
        step_find_words(&s);
        for (int i = 0; i < N; i++) {
            s.argmax[i] = s.top[i][0];
            s.drawn[i] = -5 - i;
            s.entropy[i] = 7 + (float)i;
        }
        step_take(&s);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(s.argmax[i] == s.top[i][0], i != wrong);
            ck_assert_int_eq(s.drawn[i] == -5 - i, i != wrong);
            ck_assert_int_eq(s.entropy[i] == 7 + (float)i, i != wrong);
            ck_assert(!s.forced[i]); /* ten digits are a choice */
        }
        step_close(&s);
    }
}
END_TEST

/* Overruled where the language leaves no choice: that is no doubt of the model's. */
START_TEST(what_is_forced_is_marked_where_the_model_is_overruled)
{
    step s;
    step_open(&s, "[0-9]é[0-9]?", 2); /* whose second character has two bytes, and no other way */
    step_find_words(&s);
    for (int i = 0; i < N; i++) {
        s.argmax[i] = -1;
        s.entropy[i] = 7;
    }
    step_take(&s);
    ck_assert(!s.forced[0] && s.entropy[0] > 0);
    ck_assert(s.forced[1] && s.entropy[1] < 1e-9f);
    step_close(&s);
}
END_TEST

/* Behind the end there is padding and nothing else, though at that place the text might have gone
 * on. Once the model says so by itself it is its own affair again. */
START_TEST(padding_is_forced_where_the_model_is_overruled)
{
    step s;
    step_open(&s, "[yz][0-9]*", 4);
    int32_t one = step_token(&s, '1');
    step_insist(&s, 0, step_token(&s, 'y'));
    step_insist(&s, 1, EOS);
    step_insist(&s, 2, step_token(&s, 'q'));
    s.p[1][one] = -1;
    s.p[2][PAD] = s.p[2][one] = -3;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[2], PAD);
    ck_assert(s.entropy[2] > 0.01f && s.forced[2]);
    s.p[2][PAD] = -0.001;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[2], PAD);
    ck_assert(!s.forced[2]);
    step_close(&s);
}
END_TEST

/* The model wants something else altogether; of what the language has, a is likelier than b but
 * needs three tokens more. */
START_TEST(a_text_is_cut_short_where_a_likelier_one_has_no_room)
{
    step s;
    step_open(&s, "a[0-9]{3}|b[0-9]?", 4);
    int32_t a = step_token(&s, 'a'), b = step_token(&s, 'b');
    s.p[0][a] = -1;
    step_find_words(&s);
    for (s.room = 2; s.room < 6; s.room++) {
        step_take_overruled(&s);
        ck_assert_int_eq(s.argmax[0], s.room < 4 ? b : a);
        ck_assert_int_eq(dg_guide_bounded(s.guide), s.room < 4);
    }
    step_close(&s);
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
    step_find_words(s);
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
        for (uint32_t i = 0; i < N; i++)
            s->uniform[i] = step_random(seed, d + 1000, i);
        step_take_overruled(s);
        for (int i = 0; i < N; i++)
            seen[i][s->drawn[i]]++;
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
    step_open(&s, languages[_i], 11);
    for (size_t k = 0; k < DG_COUNT(draws); k++) {
        s.draw = draws[k];
        check_draws(&s, k);
    }
    step_close(&s);
}
END_TEST

/* The same seed gives the same draw; temperature 0 the most probable text. */
START_TEST(draws_are_the_same_again)
{
    step s;
    int32_t first[N];
    step_open(&s, languages[0], 5);
    s.draw = (dg_draw_options){1.7f, 30, 0.95f, 0.01f};
    step_find_words(&s);
    for (uint32_t d = 0; d < 20; d++) {
        for (uint32_t i = 0; i < N; i++)
            s.uniform[i] = step_random(3, d, i);
        step_take_overruled(&s);
        memcpy(first, s.drawn, sizeof first);
        step_take_overruled(&s);
        ck_assert(!memcmp(first, s.drawn, sizeof first));
    }
    s.draw = (dg_draw_options){0, 0, 1, 0};
    for (uint32_t d = 0; d < 20; d++) {
        for (uint32_t i = 0; i < N; i++)
            s.uniform[i] = step_random(3, d, i);
        step_take_overruled(&s);
        ck_assert(!memcmp(s.drawn, s.argmax, sizeof s.drawn));
    }
    step_close(&s);
}
END_TEST

Suite *guide_suite(void)
{
    Suite *s = suite_create("guide");
    TCase *t = tcase_create("guide");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_step_is_as_all_sequences_say, 0, DG_COUNT(languages));
    tcase_add_loop_test(t, steps_in_random_languages, 0, 3);
    tcase_add_test(t, what_the_model_says_by_itself_is_left_alone);
    tcase_add_test(t, what_is_forced_is_marked_where_the_model_is_overruled);
    tcase_add_test(t, padding_is_forced_where_the_model_is_overruled);
    tcase_add_test(t, a_text_is_cut_short_where_a_likelier_one_has_no_room);
    tcase_add_loop_test(t, draws_are_as_warm_as_they_should_be, 0, DG_COUNT(languages));
    tcase_add_test(t, draws_are_the_same_again);
    suite_add_tcase(s, t);
    return s;
}