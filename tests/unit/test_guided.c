/* Answers that are held to constraints: whatever the model thinks, the text is in the language. One
 * model has random weights, the other is the pocket model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "base/file.h"
#include "dgemma_tools.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/temp_dir.h"

static const char random_model[] = "tests/fixtures/golden/sampler_finishes/model";
static const char pocket[] = "models/pocket/pocket.gguf";

static dgemma_engine *open_engine(const char *path, int n_thread)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = path;
    opt.n_threads = n_thread;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

typedef struct language {
    dgemma_constraint_kind kind;
    const char *text;
} language;

static const language languages[] = {
    {DGEMMA_CONSTRAINT_JSON_SCHEMA,
     "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "
     "{\"type\": "
     "\"integer\", \"minimum\": 0, \"maximum\": 150}, \"tags\": {\"type\": \"array\", \"items\": "
     "{\"enum\": [\"a\", \"bc\", null]}, \"maxItems\": 3}}, \"required\": [\"name\", \"age\"]}"},
    {DGEMMA_CONSTRAINT_JSON_SCHEMA,
     "{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 9, \"pattern\": \"^[a-z]+$\"}"},
    {DGEMMA_CONSTRAINT_JSON_SCHEMA,
     "{\"$defs\": {\"t\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"number\"}, "
     "\"l\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/t\"}]}}, \"required\": "
     "[\"v\", \"l\"]}}, \"$ref\": \"#/$defs/t\"}"},
    {DGEMMA_CONSTRAINT_JSON_OBJECT, ""},
    {DGEMMA_CONSTRAINT_REGEX, "(\\d{4}-\\d\\d-\\d\\d ?){1,3}"},
    {DGEMMA_CONSTRAINT_REGEX, "[^\"]*\"\\w+\"\\s?"},
    {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= \"(\" root? \")\" | [a-c]+ \"\\u00e9\""},
};

static dgemma_constraint *make(const language *l)
{
    dgemma_constraint *c = NULL;
    dgemma_error err = {0};
    dgemma_constraint_options opt = {.kind = l->kind, .text = l->text, .text_len = strlen(l->text)};
    ck_assert_msg(!dgemma_constraint_create(&c, &opt, &err), "%s: %s", l->text, err.msg);
    return c;
}

typedef struct said {
    char text[8192];
    size_t n;
    dgemma_stats stats;
} said;

static void listen(dgemma_request *r, said *s)
{
    *s = (said){.n = 0};
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);) {
        if (e.kind == DGEMMA_EVENT_TEXT) {
            ck_assert(s->n + e.text_len < sizeof s->text);
            memcpy(s->text + s->n, e.text, e.text_len);
            s->n += e.text_len;
        }
        if (e.kind == DGEMMA_EVENT_END) {
            ck_assert_msg(!e.status, "%s", e.text);
            s->stats = e.stats;
        }
    }
    dgemma_request_free(r);
}

static void answer(dgemma_engine *e, const dgemma_request_options *o, said *s)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_request_submit(&r, e, o, &err), "%s", err.msg);
    listen(r, s);
}

static dgemma_request_options options_for(dgemma_engine *e, dgemma_constraint *c, uint64_t seed)
{
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "Tell me something.";
    o.constraint = c;
    o.seed = seed;
    o.max_tokens = 120;
    o.max_denoise_steps = 4;
    return o;
}

static void check(dgemma_constraint *c, const said *s, const char *what)
{
    dgemma_match m;
    dgemma_error err = {0};
    ck_assert_msg(!dgemma_constraint_check(c, s->text, s->n, &m, &err), "%s", err.msg);
    ck_assert_msg(m.verdict == DGEMMA_ACCEPTED, "%s: \"%.*s\" is wrong at byte %zu", what,
                  (int)s->n, s->text, m.n);
    ck_assert(s->stats.end == DGEMMA_END_STOP || s->stats.end == DGEMMA_END_LENGTH);
}

/* A model's answer in a language, on a schedule that stays at one temperature (0: its own). */
static void hold(const char *path, const language *l, uint64_t seed, float temperature)
{
    dgemma_engine *e = open_engine(path, 2);
    dgemma_constraint *c = make(l);
    dgemma_request_options o = options_for(e, c, seed);
    if (temperature > 0)
        o.t_min = o.t_max = temperature;
    said s;
    answer(e, &o, &s);
    check(c, &s, l->text);
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}

START_TEST(random_weights_say_what_is_valid)
{
    dgemma_engine *e = open_engine(random_model, 1);
    dgemma_constraint *c = make(&languages[_i]);
    for (uint64_t seed = 0; seed < 4; seed++) {
        said s;
        dgemma_request_options o = options_for(e, c, seed);
        o.settled_steps = seed == 1;
        o.thinking = seed == 2;
        o.thinking_budget = seed == 2 ? 10 : -1;
        o.temperature = seed == 3 ? 0 : 1;
        answer(e, &o, &s);
        check(c, &s, languages[_i].text);
    }
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

/* At such temperatures what the language wants is too improbable for a number. */
START_TEST(cold_schedules_say_what_is_valid)
{
    hold(pocket, &languages[_i], 3, 1e-3f);
}
END_TEST

/* A way that no answer could go to its end is not looked at, and holds nobody up. */
START_TEST(long_ways_are_left_alone)
{
    static const language far[] = {
        {DGEMMA_CONSTRAINT_REGEX, "([a-m]+ ){3,50}(y([a-z]{4000}){13})?[.]"},
        {DGEMMA_CONSTRAINT_REGEX, "[a-z ]{5,60}(Y[a-z]{4096}|Z([0-9]{4096}){14})?[.]"},
    };
    hold(pocket, &far[_i], 1, 0);
}
END_TEST

/* What ends a turn, fills a canvas or marks a thought is no part of a text. */
START_TEST(reserved_tokens_are_refused)
{
    static const char *const texts[] = {
        "root ::= \"a\" <turn|> \"b\"",
        "root ::= \"a\" <pad> \"b\"",
        "root ::= \"a\" <|channel> [a-z]{30} <channel|> \"b\"",
    };
    dgemma_engine *e = open_engine(pocket, 1);
    for (size_t i = 0; i < DG_COUNT(texts); i++) {
        dgemma_constraint *c = make(&(language){DGEMMA_CONSTRAINT_GRAMMAR, texts[i]});
        dgemma_request_options o = options_for(e, c, 0);
        dgemma_request *r = NULL;
        dgemma_error err = {0};
        ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
        ck_assert_msg(strstr(err.msg, "ends a turn or marks a thought"), "%s", err.msg);
        dgemma_constraint_free(c);
    }
    dgemma_engine_close(e);
}
END_TEST

START_TEST(models_without_padding_can_be_held)
{
    static const char key[] = "tokenizer.ggml.padding_token_id";
    dg_buf file;
    dgemma_error err = {0};
    dg_buf_init(&file, 64 << 20);
    ck_assert_msg(!dg_file_read(&file, pocket, &err), "%s", err.msg);
    char *at = memmem(file.data, file.len, key, sizeof key - 1);
    ck_assert_ptr_nonnull(at);
    *at = 'x';
    dg_test_root_make();
    FILE *copy = fopen(dg_test_in_root("pocket.gguf"), "wb");
    ck_assert(copy && fwrite(file.data, 1, file.len, copy) == file.len && !fclose(copy));
    dg_buf_clear(&file);
    hold(dg_test_in_root("pocket.gguf"), &(language){DGEMMA_CONSTRAINT_REGEX, "Paris|London"}, 0,
         0);
    dg_test_root_remove();
}
END_TEST

/* Tokens that a refusal says are needed. */
static int need_of(dgemma_engine *e, dgemma_request_options o)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    o.max_tokens = 1;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    const char *number = strstr(err.msg, "needs ");
    ck_assert_msg(number != NULL, "%s", err.msg);
    return atoi(number + strlen("needs "));
}

START_TEST(any_budget_that_is_enough_suffices)
{
    dgemma_engine *e = open_engine(random_model, 1);
    dgemma_constraint *c = make(&languages[0]);
    dgemma_request_options o = options_for(e, c, 5);
    o.thinking = _i;
    int need = need_of(e, o);
    dgemma_request *r = NULL;
    o.max_tokens = need - 1;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, NULL), DGEMMA_E_ARG);
    for (o.max_tokens = need; o.max_tokens < need + 24; o.max_tokens++) {
        said s;
        answer(e, &o, &s);
        check(c, &s, "a tight budget");
        ck_assert_int_le(s.stats.n_output, o.max_tokens);
    }
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(company_and_threads_change_nothing)
{
    static said alone[DG_COUNT(languages)], s;
    dgemma_constraint *c[DG_COUNT(languages)];
    dgemma_engine *e = open_engine(pocket, 1);
    for (size_t i = 0; i < DG_COUNT(languages); i++) {
        c[i] = make(&languages[i]);
        dgemma_request_options o = options_for(e, c[i], i);
        answer(e, &o, &alone[i]);
        check(c[i], &alone[i], languages[i].text);
    }
    dgemma_engine_close(e);
    e = open_engine(pocket, 8);
    dgemma_request *r[16];
    for (size_t i = 0; i < DG_COUNT(r); i++) { /* some share a constraint, and have a twin */
        dgemma_request_options o =
            options_for(e, c[i % DG_COUNT(languages)], i % DG_COUNT(languages));
        ck_assert(!dgemma_request_submit(&r[i], e, &o, NULL));
    }
    for (size_t i = 0; i < DG_COUNT(languages); i++)
        dgemma_constraint_free(c[i]); /* the requests have them */
    for (size_t i = 0; i < DG_COUNT(r); i++) {
        listen(r[i], &s);
        ck_assert_str_eq(s.text, alone[i % DG_COUNT(languages)].text);
    }
    dgemma_engine_close(e);
}
END_TEST

/* Of what is allowed, what the model thinks. */
START_TEST(a_choice_is_the_models)
{
    static const char *const cities[] = {
        "The capital of France is London.", "The capital of France is Rome.",
        "The capital of France is Paris.", "The capital of France is Berlin."};
    dgemma_constraint *c;
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_CHOICE, .choices = cities, .n_choices = DG_COUNT(cities)};
    ck_assert(!dgemma_constraint_create(&c, &opt, NULL));
    dgemma_engine *e = open_engine(pocket, 2);
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "What is the capital of France?";
    o.constraint = c;
    said s;
    answer(e, &o, &s);
    ck_assert_str_eq(s.text, cities[2]);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_STOP);
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

/* A constraint that the model keeps to anyway costs it neither a step nor a word. */
START_TEST(what_would_be_said_anyway_is_said_as_soon)
{
    static const struct {
        const char *prompt;
        language held;
    } asked[] = {
        {"What is the capital of France?", {DGEMMA_CONSTRAINT_REGEX, "[^\\x00]*"}},
        {"Turn this into JSON: Ada is 36 years old and lives in Paris.",
         {DGEMMA_CONSTRAINT_JSON_OBJECT, ""}},
    };
    dgemma_engine *e = open_engine(pocket, 2);
    dgemma_constraint *c = make(&asked[_i].held);
    for (uint64_t seed = 0; seed < 3; seed++) {
        dgemma_request_options o = dgemma_request_defaults(e);
        o.chat_prompt = asked[_i].prompt;
        o.seed = seed;
        said plain, held;
        answer(e, &o, &plain);
        o.constraint = c;
        answer(e, &o, &held);
        check(c, &plain, "it is in the language");
        ck_assert_str_eq(held.text, plain.text);
        ck_assert_int_eq(held.stats.n_steps, plain.stats.n_steps);
        ck_assert_float_eq(plain.stats.resistance, 0);
        ck_assert_float_lt(held.stats.resistance, 0.05f);
    }
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

/* By which of several tokens a turn ends is no reason to go on. */
START_TEST(a_text_without_choice_is_settled_soon)
{
    static const char *const only[] = {"A"};
    dgemma_constraint *c;
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_CHOICE, .choices = only, .n_choices = 1};
    ck_assert(!dgemma_constraint_create(&c, &opt, NULL));
    dgemma_engine *e = open_engine(pocket, 2);
    dgemma_request_options o = options_for(e, c, 1);
    o.max_denoise_steps = 24;
    said s;
    answer(e, &o, &s);
    ck_assert_str_eq(s.text, only[0]);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_STOP);
    ck_assert_int_le(s.stats.n_steps, 6);
    ck_assert_float_gt(s.stats.resistance, 0.1f); /* it would have said something else */
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(special_tokens_are_named)
{
    dgemma_engine *e = open_engine(pocket, 2);
    static const language marked = {DGEMMA_CONSTRAINT_GRAMMAR,
                                    "root ::= <|tool_call> \"call:f{x:\" [0-9] \"}\" <tool_call|>"};
    static const language unknown = {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= <nobody> \"a\""};
    dgemma_constraint *c = make(&marked);
    dgemma_request_options o = options_for(e, c, 1);
    said s;
    answer(e, &o, &s);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_TOOL_CALLS);
    dgemma_constraint_free(c);
    o.constraint = c = make(&unknown);
    dgemma_request *r;
    dgemma_error err;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "nobody"));
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

Suite *guided_suite(void)
{
    Suite *s = suite_create("guided");
    TCase *t = tcase_create("guided");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, random_weights_say_what_is_valid, 0, (int)DG_COUNT(languages));
    tcase_add_loop_test(t, cold_schedules_say_what_is_valid, 0, DG_COUNT(languages));
    tcase_add_loop_test(t, long_ways_are_left_alone, 0, 2);
    tcase_add_test(t, reserved_tokens_are_refused);
    tcase_add_test(t, models_without_padding_can_be_held);
    tcase_add_loop_test(t, any_budget_that_is_enough_suffices, 0, 2);
    tcase_add_test(t, company_and_threads_change_nothing);
    tcase_add_test(t, a_choice_is_the_models);
    tcase_add_loop_test(t, what_would_be_said_anyway_is_said_as_soon, 0, 2);
    tcase_add_test(t, a_text_without_choice_is_settled_soon);
    tcase_add_test(t, special_tokens_are_named);
    suite_add_tcase(s, t);
    return s;
}
