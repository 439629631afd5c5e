/* The checkers of the evaluation: what they accept, and above all what they must not. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "pocket/checks.h"
#include "pocket/grammar.h"
#include "pocket/prompts.h"
#include "pocket/words.h"
#include "suites.h"
#include "support/temp_dir.h"

static const char story[] = "# opening\n"
                            "Once {name} went to the {place}.\n"
                            "# middle\n"
                            "The {animal} was sad, and {name} said: \"Hello!\"\n"
                            "They looked everywhere.\n"
                            "\n"
                            "# end\n"
                            "The end.\n";

static pocket_answer said(const char *text)
{
    return (pocket_answer){.text = text, .thought = ""};
}

static pocket_verdict judge(const char *check, const pocket_answer *a, const char *grammars)
{
    pocket_verdict v;
    dgemma_error err = {0};
    json_t *c = json_loads(check, 0, NULL);
    ck_assert_ptr_nonnull(c);
    ck_assert_msg(pocket_check(&v, c, a, grammars, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(v.right == (v.why[0] == '\0')); /* a failure says why */
    json_decref(c);
    return v;
}

static bool is_right(const char *check, const char *text)
{
    pocket_answer a = said(text);
    return judge(check, &a, NULL).right;
}

START_TEST(texts)
{
    const char *exact = "{\"kind\": \"exact\", \"text\": \"It is Paris.\"}";
    ck_assert(is_right(exact, "It is Paris."));
    ck_assert(is_right(exact, " It is Paris.\n"));
    ck_assert(!is_right(exact, "It is  Paris."));
    ck_assert(!is_right(exact, "It is paris."));
    ck_assert(!is_right(exact, "It is Paris"));
    ck_assert(!is_right(exact, "It is Paris. It is Paris."));
    ck_assert(!is_right(exact, ""));
    ck_assert(is_right("{\"kind\": \"picture\", \"text\": \"A star.\"}", "A star."));
    ck_assert(!is_right("{\"kind\": \"picture\", \"text\": \"A star.\"}", "Two stars."));
    const char *any = "{\"kind\": \"any\", \"texts\": [\"a b\", \"c\\nd\"]}";
    ck_assert(is_right(any, "a b"));
    ck_assert(is_right(any, "c\nd"));
    ck_assert(!is_right(any, "c d"));
    ck_assert(!is_right(any, "a b c\nd"));
    const char *behind =
        "{\"kind\": \"any\", \"texts\": [\"b\", \"c\"], \"behind\": [\"A,\", \"E,\"]}";
    ck_assert(is_right(behind, "A,\nc") && is_right(behind, "E,\nb\n"));
    ck_assert(!is_right(behind, "A, c") && !is_right(behind, "c") &&
              !is_right(behind, "A,\nE,\nc"));
    ck_assert(!is_right(behind, "A,\nd") && !is_right(behind, "F,\nc"));
    const char *all = "{\"kind\": \"contains\", \"all\": [\"not know\", \"sorry\"]}";
    ck_assert(is_right(all, "Sorry, I do not  know."));
    ck_assert(!is_right(all, "I do not know."));
    ck_assert(!is_right(all, "Sorry, I do not acknowledge knowing."));
    ck_assert(!is_right(all, "Sorry, I know not."));
}
END_TEST

START_TEST(json_answers)
{
    const char *check = "{\"kind\": \"json\", \"value\": {\"n\": 3, \"list\": [1, \"a\", null]}}";
    const struct {
        const char *text;
        bool right, parsed;
    } cases[] = {
        {"{\"list\": [1, \"a\", null], \"n\": 3}", true, true},
        {"\n{\"n\":3.0,\"list\":[1,\"a\",null]}\n", true, true},
        {"{\"n\": 4, \"list\": [1, \"a\", null]}", false, true},
        {"{\"n\": \"3\", \"list\": [1, \"a\", null]}", false, true},
        {"{\"n\": 3, \"list\": [1, \"a\"]}", false, true},
        {"{\"n\": 3, \"list\": [\"a\", 1, null]}", false, true},
        {"{\"n\": 3, \"list\": [1, \"a\", null], \"m\": 1}", false, true},
        {"{\"n\": 3}", false, true},
        {"[]", false, true},
        {"{\"n\": 3, \"n\": 3, \"list\": [1, \"a\", null]}", false, false},
        {"{\"n\": 3, \"list\": [1, \"a\", null]} There.", false, false},
        {"```json\n{\"n\": 3, \"list\": [1, \"a\", null]}\n```", false, false},
        {"", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pocket_answer a = said(cases[i].text);
        pocket_verdict v = judge(check, &a, NULL);
        ck_assert_msg(v.right == cases[i].right && v.parsed == cases[i].parsed, "%s",
                      cases[i].text);
    }
    ck_assert(is_right("{\"kind\": \"json\", \"value\": true}", "true"));
    ck_assert(!is_right("{\"kind\": \"json\", \"value\": true}", "1"));
}
END_TEST

static bool calls_right(const char *check, const char *calls, const char *text, dgemma_end end)
{
    json_t *made = json_loads(calls, 0, NULL);
    ck_assert_ptr_nonnull(made);
    pocket_answer a = {.text = text, .thought = "", .calls = made, .end = end};
    bool right = judge(check, &a, NULL).right;
    json_decref(made);
    return right;
}

#define WEATHER(city) "{\"name\": \"weather\", \"arguments\": {\"city\": \"" city "\"}}"

START_TEST(tool_calls)
{
    const dgemma_end end = DGEMMA_END_TOOL_CALLS;
    const char *one = "{\"kind\": \"calls\", \"calls\": [" WEATHER("Rome") "], \"text\": null}";
    const char *two = "{\"kind\": \"calls\", \"calls\": [" WEATHER("Rome") "," WEATHER("Oslo") "]}";
    const char *sums = "{\"kind\": \"calls\", \"calls\": [{\"name\": \"add\", \"arguments\": "
                       "{\"a\": 2, \"b\": 3.5}}], \"text\": \"Wait.\"}";
    ck_assert(calls_right(one, "[" WEATHER("Rome") "]", "", end));
    ck_assert(!calls_right(one, "[" WEATHER("Rom") "]", "", end));
    ck_assert(!calls_right(one, "[" WEATHER("Rome") "]", "Well.", end));
    ck_assert(!calls_right(one, "[" WEATHER("Rome") "]", "", DGEMMA_END_LENGTH));
    ck_assert(!calls_right(one, "[" WEATHER("Rome") "]", "", DGEMMA_END_STOP));
    ck_assert(!calls_right(one, "[]", "It is sunny.", DGEMMA_END_STOP));
    ck_assert(!calls_right(one, "[" WEATHER("Rome") "," WEATHER("Rome") "]", "", end));
    ck_assert(!calls_right(one, "[{\"name\": \"search\", \"arguments\": {\"city\": \"Rome\"}}]", "",
                           end));
    ck_assert(!calls_right(one, "[{\"name\": \"weather\", \"arguments\": null}]", "", end));
    ck_assert(calls_right(two, "[" WEATHER("Rome") "," WEATHER("Oslo") "]", "", end));
    ck_assert(calls_right(two, "[" WEATHER("Oslo") "," WEATHER("Rome") "]", "I look.", end));
    ck_assert(!calls_right(two, "[" WEATHER("Rome") "," WEATHER("Rome") "]", "", end));
    ck_assert(!calls_right(two, "[" WEATHER("Rome") "]", "", end));
    ck_assert(calls_right(sums, "[{\"name\": \"add\", \"arguments\": {\"b\": 3.5, \"a\": 2.0}}]",
                          "Wait.", end));
    ck_assert(!calls_right(sums, "[{\"name\": \"add\", \"arguments\": {\"b\": 3, \"a\": 2}}]",
                           "Wait.", end));
    ck_assert(!calls_right(sums, "[{\"name\": \"add\", \"arguments\": {\"b\": 3.5, \"a\": 2}}]", "",
                           end));
    /* a text that was wanted, and a call that was not */
    const char *exact = "{\"kind\": \"exact\", \"text\": \"Yes.\"}";
    ck_assert(!calls_right(exact, "[" WEATHER("Rome") "]", "Yes.", DGEMMA_END_STOP));
}
END_TEST

START_TEST(ends_and_thoughts)
{
    const char *check = "{\"kind\": \"exact\", \"text\": \"Yes.\"}";
    pocket_answer a = said("Yes.");
    a.thinking = a.thought_due = true;
    ck_assert(!judge(check, &a, NULL).right); /* no thought */
    a.thought = " \n";
    ck_assert(!judge(check, &a, NULL).right);
    a.thought_due = false; /* behind a tool's result it came before */
    ck_assert(judge(check, &a, NULL).right);
    a.thought_due = true;
    a.thought = "Hm.";
    ck_assert(judge(check, &a, NULL).right);
    a.thinking = a.thought_due = false;
    ck_assert(!judge(check, &a, NULL).right); /* nobody asked */
    a.thinking = a.thought_due = true;
    a.text = ""; /* the thought was never closed */
    ck_assert(!judge("{\"kind\": \"exact\", \"text\": \"\"}", &a, NULL).right);
    a.text = "Yes.";
    for (dgemma_end end = DGEMMA_END_LENGTH; end <= DGEMMA_END_FAILED; end++) {
        a.end = end;
        ck_assert(!judge(check, &a, NULL).right);
    }
}
END_TEST

START_TEST(words)
{
    size_t n;
    word *w = words_split("It's a well-known \"fact\", caf\xC3\xA9 - {slot}.", &n);
    static const char *const want[] = {"It's", "a",           "well-known", "\"",     "fact", "\"",
                                       ",",    "caf\xC3\xA9", "-",          "{slot}", "."};
    ck_assert_uint_eq(n, sizeof want / sizeof *want);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(w[i].len, strlen(want[i]));
        ck_assert_mem_eq(w[i].text, want[i], w[i].len);
        ck_assert_int_eq(w[i].mark, strchr("\",-.", want[i][0]) != NULL);
    }
    dg_free(w);
    ck_assert(words_contain("The red fox.", "Red fox"));
    ck_assert(words_contain("The red\nfox", "fox"));
    ck_assert(!words_contain("The redfox", "fox"));
    ck_assert(!words_contain("The red, fox", "red fox"));
    ck_assert(!words_contain("The red", "red fox"));
    ck_assert(!words_contain("The red fox", ""));
}
END_TEST

static bool follows(const char *rules, const char *text)
{
    grammar *g = NULL;
    dgemma_error err = {0};
    ck_assert_msg(grammar_parse(&g, rules, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_status st = grammar_match(g, text, &err);
    ck_assert(st == DGEMMA_OK || st == DGEMMA_E_ARG);
    grammar_free(g);
    return st == DGEMMA_OK;
}

START_TEST(grammars)
{
    const char *sad = "The old grey cat was sad, and Mia said: \"Hello!\"";
    char text[512];
    snprintf(text, sizeof text, "Once Mia went to the sea.\n%s They looked everywhere.\nThe end.",
             sad);
    ck_assert(follows(story, text));
    ck_assert(follows(story, "Once Mia went to the sea. They looked everywhere. They looked "
                             "everywhere. The end."));
    ck_assert(!follows(story, "Once Mia went to the sea. The end.")); /* no middle */
    ck_assert(!follows(story, "They looked everywhere. The end."));   /* no opening */
    ck_assert(!follows(story, "Once Mia went to the sea. They looked everywhere."));
    ck_assert(!follows(story, "Once Mia went to the sea. They looked everywhere. The end"));
    ck_assert(!follows(story, "Once Mia went to the sea. The end. They looked everywhere."));
    ck_assert(!follows(story, "Once Mia went to the sea. They looked everywhere. The end. Oh."));
    ck_assert(!follows(story, "Once Mia went the sea. They looked everywhere. The end."));
    ck_assert(!follows(story, "Once went to the sea. They looked everywhere. The end."));
    ck_assert(!follows(story, "Once Mia went to the a b c d. They looked everywhere. The end."));
    ck_assert(!follows(story, "Once Mia went to the sea, sea. They looked everywhere. The end."));
    ck_assert(!follows(story, "once Mia went to the sea. They looked everywhere. The end."));
    ck_assert(!follows(story, ""));
    /* a slot that could swallow what comes next must find its own length */
    ck_assert(follows("# a\n{x} and {y} b {z}\n", "p and q and r b b s"));
    ck_assert(!follows("# a\n{x} and {y} b {z}\n", "p and q r b"));

    grammar *g = NULL;
    dgemma_error err = {0};
    ck_assert_int_eq(grammar_parse(&g, "", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(grammar_parse(&g, "A line.\n# a\n", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(grammar_parse(&g, "# a\n# b\nA line.\n", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(grammar_parse(&g, "# a\nA line.\n# b\n", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(grammar_read(&g, "tests/no/such/file", &err), DGEMMA_E_IO);
    ck_assert_ptr_null(g);
}
END_TEST

START_TEST(stories)
{
    char dir[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    ck_assert(dg_test_write_file(dir, "story.txt", story, strlen(story)));
    const char *check =
        "{\"kind\": \"story\", \"grammar\": \"story\", \"elements\": [\"Mia\", \"sea\"]}";
    pocket_answer a = said("Once Mia went to the sea. They looked everywhere. The end.");
    ck_assert(judge(check, &a, dir).right);
    a.end = DGEMMA_END_LENGTH;
    ck_assert(!judge(check, &a, dir).right);
    a.end = DGEMMA_END_STOP;
    a.text = "Once Leo went to the sea. They looked everywhere. The end."; /* another hero */
    ck_assert(!judge(check, &a, dir).right);
    a.text = "Once Mia went to the sea. They looked everywhere.";
    ck_assert(!judge(check, &a, dir).right);
    dg_test_temp_remove(dir);
}
END_TEST

START_TEST(broken_checks_are_refused)
{
    static const char *const broken[] = {
        "{}",
        "{\"kind\": \"guess\"}",
        "{\"kind\": 3}",
        "{\"kind\": \"exact\"}",
        "{\"kind\": \"any\", \"texts\": []}",
        "{\"kind\": \"any\", \"texts\": [1]}",
        "{\"kind\": \"contains\", \"all\": []}",
        "{\"kind\": \"contains\", \"all\": [1]}",
        "{\"kind\": \"json\"}",
        "{\"kind\": \"calls\", \"calls\": []}",
        "{\"kind\": \"calls\", \"calls\": [{\"name\": \"a\"}], \"text\": null}",
        "{\"kind\": \"calls\", \"calls\": [" WEATHER("Rome") "], \"text\": 3}",
        "{\"kind\": \"story\", \"elements\": [\"x\"]}",
        "{\"kind\": \"story\", \"elements\": [\"x\"], \"grammar\": \"../story\"}",
        "{\"kind\": \"story\", \"elements\": [\"x\"], \"grammar\": \"none\"}",
        "{\"kind\": \"story\", \"elements\": [], \"grammar\": \"story\"}",
    };
    json_t *calls = json_loads("[" WEATHER("Rome") "]", 0, NULL);
    pocket_answer a = said("x");
    a.calls = calls;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        pocket_verdict v;
        dgemma_error err = {0};
        json_t *check = json_loads(broken[i], 0, NULL);
        ck_assert_ptr_nonnull(check);
        ck_assert_msg(pocket_check(&v, check, &a, "tests", &err) != DGEMMA_OK, "%s", broken[i]);
        ck_assert_int_gt((int)strlen(err.msg), 8);
        json_decref(check);
    }
    json_decref(calls);
}
END_TEST

#define LINE(family, id)                                                                           \
    "{\"family\": \"" family "\", \"id\": \"" id "\", \"messages\": [{\"role\": \"user\", "        \
    "\"content\": \"x\"}], \"check\": {\"kind\": \"exact\", \"text\": \"y\"}}\n"

START_TEST(prompts)
{
    pocket_prompts p = {0};
    dgemma_error err = {0};
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(pocket_prompts_parse(&p, LINE("a", "1") "\n" LINE("b", "2"), "x", &err),
                         DGEMMA_OK);
    ck_assert_uint_eq(p.n, 20);
    ck_assert(p.at[0].seed == pocket_seed("a/1") && p.at[1].seed != p.at[0].seed);
    ck_assert(pocket_seed("") == 0xCBF29CE484222325u && pocket_seed("a") == 0xAF63DC4C8601EC8Cu);
    pocket_prompts_select(&p, NULL, 3);
    ck_assert_uint_eq(p.n, 6);
    pocket_prompts_select(&p, "b", 0);
    ck_assert_uint_eq(p.n, 3);
    ck_assert_str_eq(p.at[2].family, "b");
    pocket_prompts_select(&p, "b", 50);
    ck_assert_uint_eq(p.n, 3);
    ck_assert_int_eq(pocket_prompts_parse(&p, LINE("a", "1") "{}\n", "x", &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "line 2"));
    ck_assert_int_eq(pocket_prompts_parse(&p, "not JSON", "x", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(pocket_prompts_read(&p, "tests/no/such/file", &err), DGEMMA_E_IO);
    pocket_prompts_clear(&p);
}
END_TEST

Suite *pocket_checks_suite(void)
{
    Suite *s = suite_create("pocket_checks");
    TCase *t = tcase_create("pocket_checks");
    tcase_add_test(t, texts);
    tcase_add_test(t, json_answers);
    tcase_add_test(t, tool_calls);
    tcase_add_test(t, ends_and_thoughts);
    tcase_add_test(t, words);
    tcase_add_test(t, grammars);
    tcase_add_test(t, stories);
    tcase_add_test(t, broken_checks_are_refused);
    tcase_add_test(t, prompts);
    suite_add_tcase(s, t);
    return s;
}
