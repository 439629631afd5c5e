/* What a person would accept, and above all what not; and the file of prompts that are typed by
 * people. */
#include <string.h>
#include "pocket/people.h"
#include "pocket/person.h"
#include "pocket/prompts.h"
#include "suites.h"

static const char folder[] = "models/pocket/grammar";

static bool accepts(const char *rule, const char *answer)
{
    person_check c = {.rule = rule, .typed = "what was typed, also xyzzy", .folder = folder};
    char why[128] = "";
    bool right = false;
    dgemma_error err = {0};
    ck_assert_msg(!person_accepts(&right, why, sizeof why, &c, answer, &err), "%s", err.msg);
    ck_assert_msg(right == (why[0] == '\0'), "%s", why);
    return right;
}

START_TEST(phrases)
{
    ck_assert(accepts("paris | rome", "It is Rome."));
    ck_assert(!accepts("paris | rome", "It is Romeo."));
    ck_assert(accepts("rome & not paris | oslo", "It is Rome."));
    ck_assert(!accepts("rome & not paris | oslo", "It is Rome, not Oslo."));
    ck_assert(accepts("2 of red | blue | green", "Green and red."));
    ck_assert(!accepts("2 of red | blue | green", "Green and greed."));
    ck_assert(accepts("order ant cow zebra", "Sorted: ant, cow, zebra."));
    ck_assert(!accepts("order ant cow zebra", "Sorted: ant, zebra, cow."));
    ck_assert(!accepts("order ant cow zebra", "Sorted: ant, cow."));
    ck_assert(!accepts("order ant cow zebra", "Sorted: ant, cow, zebra, ant."));
}
END_TEST

START_TEST(numbers)
{
    ck_assert(accepts("number 144", "12 * 12 = 144."));
    ck_assert(accepts("number 1024", "It is 1,024."));
    ck_assert(accepts("number 2.5", "5 / 2 = 2.5."));
    ck_assert(accepts("number -3", "7 - 10 = -3."));
    ck_assert(accepts("number 6 | six", "It has six letters."));
    ck_assert(!accepts("number 14", "12 * 12 = 144."));
    ck_assert(!accepts("number 12", "12 * 12 = 144."));
    ck_assert(!accepts("number 3", "7 - 10 = -3."));
    ck_assert(!accepts("number -3", "10-3"));
    ck_assert(!accepts("number 6", "No number."));
}
END_TEST

START_TEST(gibberish)
{
    ck_assert(accepts("sentence", "I do not know that."));
    ck_assert(accepts("sentence", "Well-known things: 3 cats, Tom's hat and the xyzzy!"));
    ck_assert(!accepts("sentence", "7 capital ofal is very."));
    ck_assert(!accepts("sentence", "I do not know know that."));
    ck_assert(!accepts("sentence", "I do not know that.."));
    ck_assert(!accepts("sentence", "I do not know"));
    ck_assert(!accepts("sentence", "i do not know that."));
    ck_assert(!accepts("sentence", "Paris"));
    ck_assert(!accepts("sentence", "?"));
    ck_assert(!accepts("paris", "Paris glimwort."));
    ck_assert(accepts("unknown", "I am sorry, I do not know that."));
    ck_assert(!accepts("unknown", "It is Paris."));
    ck_assert(!accepts("unknown", "I do not know know."));
}
END_TEST

#define STORY_FIRST "Once a fox lived in a wood. It was cold and it had nothing to eat. "
#define STORY_REST                                                                                 \
    "Then the fox met an owl. The owl knew where the berries grow. They ate together. "

START_TEST(stories)
{
    ck_assert(accepts("story fox", STORY_FIRST STORY_REST "From that day on they were friends."));
    ck_assert(accepts("story", STORY_FIRST STORY_REST "The end."));
    ck_assert(!accepts("story bear", STORY_FIRST STORY_REST "The end."));
    ck_assert(!accepts("story fox", STORY_FIRST "The end."));
    ck_assert(
        !accepts("story fox", STORY_FIRST STORY_REST "Then it rained. It rained in the wood."));
    ck_assert(!accepts("story", "Rain fell down. Wind blew hard. Snow came too. Ice was cold. "
                                "Fog was thick here. Hail fell a lot. Sleet followed it. Mist rose "
                                "up too. Frost bit us now and then. That is how it will end."));
}
END_TEST

START_TEST(rhymes)
{
    ck_assert(
        accepts("rhyme cat", "The cat sat down beside the sea,\nand drank a little cup of tea."));
    ck_assert(accepts("rhyme", "One two,\nred cat,\nblue shoe,\nold hat."));
    ck_assert(!accepts("rhyme dog", "The cat sat by the sea,\nand drank a cup of tea."));
    ck_assert(!accepts("rhyme", "The cat sat by the sea, and drank a cup of tea."));
    ck_assert(!accepts("rhyme", "The cat sat by the sea,\nand swam in the sea."));
    ck_assert(!accepts("rhyme", "The cat sat by the sea,\nand drank a cup of milk."));
    const char *list = "moon soon\nsea tea\n";
    ck_assert(person_rhymes(list, "Tea", 3, "sea", 3) && !person_rhymes(list, "tea", 3, "moon", 4));
    ck_assert(!person_rhymes(list, "se", 2, "tea", 3));
}
END_TEST

START_TEST(list_of_words)
{
    const char *list = "a\nabc\nabd\nb\nzoo\n";
    const char *in[] = {"a", "ABC", "abd", "b", "Zoo"},
               *out[] = {"ab", "abcd", "aba", "c", "z", "zooo", ""};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        ck_assert_msg(person_knows(list, in[i], strlen(in[i])), "%s", in[i]);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        ck_assert_msg(!person_knows(list, out[i], strlen(out[i])), "%s", out[i]);
    ck_assert(!person_knows("", "a", 1));
}
END_TEST

START_TEST(typed_prompts)
{
    static const char text[] =
        "# a comment\n\n## 85 % facts\ncapital of peru => lima\n+ and chile => santiago\n"
        "* go(to, at: integer): Go.\ngo home => call go {\"to\": \"home\", \"at\": 3}\n"
        "## 99 % nonsense => sentence\nhm\n";
    dg_buf lines;
    dgemma_error err = {0};
    pocket_prompts p = {0};
    dg_buf_init(&lines, 1 << 16);
    ck_assert_msg(!people_as_jsonl(&lines, text, &err), "%s", err.msg);
    ck_assert_msg(!pocket_prompts_parse(&p, lines.data, "x", &err), "%s", err.msg);
    ck_assert_uint_eq(p.n, 4);
    ck_assert_str_eq(p.at[1].id, "typed facts/1");
    ck_assert(p.at[1].follows && !p.at[2].follows && p.at[0].least == 85 && p.at[3].least == 99);
    ck_assert_str_eq(json_string_value(json_object_get(p.at[1].check, "typed")),
                     "\ncapital of peru\nand chile");
    ck_assert_str_eq(json_string_value(json_object_get(p.at[3].check, "rule")), "sentence");
    ck_assert_uint_eq(json_array_size(p.at[2].tools), 1);
    ck_assert(p.at[1].tools == NULL && p.at[3].tools == NULL);
    char *tool = json_dumps(json_array_get(p.at[2].tools, 0), JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(
        tool,
        "{\"function\":{\"description\":\"Go.\",\"name\":\"go\",\"parameters\":{\"properties\":"
        "{\"at\":{\"type\":\"integer\"},\"to\":{\"type\":\"string\"}},\"required\":[\"to\",\"at\"],"
        "\"type\":\"object\"}},\"type\":\"function\"}");
    free(tool);
    pocket_prompts_select(&p, NULL, 1); /* conversations stay whole */
    ck_assert_uint_eq(p.n, 3);
    ck_assert(p.at[1].follows);
    pocket_prompts_clear(&p);
    dg_buf_clear(&lines);
}
END_TEST

START_TEST(broken_prompts)
{
    static const char *const broken[] = {
        "hello => hi\n",
        "## facts\n",
        "## 85 % facts\nhello\n",
        "## 85 % facts\n+ hello => hi\n",
        "## 85 % facts\nhello => json {\n",
        "## 85 % facts\nhello => call go\n",
        "## 85 % facts\n* go\nhello => hi\n",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        dg_buf lines;
        dgemma_error err = {0};
        dg_buf_init(&lines, 1 << 16);
        ck_assert_msg(people_as_jsonl(&lines, broken[i], &err) == DGEMMA_E_FORMAT, "%s", broken[i]);
        ck_assert_ptr_nonnull(strstr(err.msg, "line "));
        dg_buf_clear(&lines);
    }
    person_check c = {.rule = " | ", .typed = "", .folder = folder};
    char why[64];
    bool right;
    dgemma_error err = {0};
    ck_assert_int_eq(person_accepts(&right, why, sizeof why, &c, "Yes.", &err), DGEMMA_E_FORMAT);
    c.folder = "tests/no/such/folder";
    ck_assert_int_eq(person_accepts(&right, why, sizeof why, &c, "Yes.", &err), DGEMMA_E_IO);
}
END_TEST

/* The file itself can be read, and has as many prompts as it is said to have. */
START_TEST(the_file)
{
    pocket_prompts p = {0};
    dgemma_error err = {0};
    size_t n_typed = 0, n_other = 0;
    ck_assert_msg(!pocket_prompts_read(&p, "models/pocket/eval/people.txt", &err), "%s", err.msg);
    for (size_t i = 0; i < p.n; i++)
        *(strcmp(p.at[i].family, "typed out of scope") == 0 ? &n_other : &n_typed) += 1;
    ck_assert_uint_ge(n_typed, 400);
    ck_assert_uint_ge(n_other, 300);
    pocket_prompts_clear(&p);
}
END_TEST

Suite *person_suite(void)
{
    Suite *s = suite_create("person");
    TCase *t = tcase_create("person");
    tcase_add_test(t, phrases);
    tcase_add_test(t, numbers);
    tcase_add_test(t, gibberish);
    tcase_add_test(t, stories);
    tcase_add_test(t, rhymes);
    tcase_add_test(t, list_of_words);
    tcase_add_test(t, typed_prompts);
    tcase_add_test(t, broken_prompts);
    tcase_add_test(t, the_file);
    suite_add_tcase(s, t);
    return s;
}
