#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "constraint/constraint.h"
#include "constraint/language.h"
#include "dgemma_tools.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/judge.h"

/* ---- helpers ---- */

static dgemma_status make(dgemma_constraint **out, dgemma_constraint_kind kind, const char *text,
                          dgemma_error *err)
{
    dgemma_constraint_options opt = {.kind = kind, .text = text, .text_len = strlen(text)};
    return dgemma_constraint_create(out, &opt, err);
}

typedef struct cases {
    const char *constraint;
    const char *good, *bad; /* texts, separated by tabs */
} cases;

static void judge_all(dgemma_constraint *c, const char *constraint, const char *texts, bool good)
{
    char copy[2000], *next = copy;
    ck_assert(strlen(texts) < sizeof copy);
    strcpy(copy, texts);
    for (char *text; (text = strsep(&next, "\t")) != NULL;)
        ck_assert_msg((dg_test_judge(c, text) == DGEMMA_ACCEPTED) == good, "%s: %s should be %s",
                      constraint, text, good ? "accepted" : "refused");
}

static void check_cases(dgemma_constraint_kind kind, const cases *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dgemma_constraint *c;
        dgemma_error err = {0};
        ck_assert_msg(!make(&c, kind, list[i].constraint, &err), "%s: %s", list[i].constraint,
                      err.msg);
        if (list[i].good)
            judge_all(c, list[i].constraint, list[i].good, true);
        if (list[i].bad)
            judge_all(c, list[i].constraint, list[i].bad, false);
        /* what is drawn, and what is completed, is in the language */
        for (uint32_t k = 0; k < 20; k++) {
            char *text;
            size_t len;
            dgemma_match m;
            ck_assert(!dgemma_constraint_random(c, 7, k, k < 10 ? 30 : 300, &text, &len, &err));
            ck_assert(!dgemma_constraint_check(c, text, len, &m, &err));
            ck_assert_msg(m.verdict == DGEMMA_ACCEPTED, "%s: drawn %s", list[i].constraint, text);
            char *rest;
            size_t rest_len, half = len / 2;
            ck_assert(!dgemma_constraint_complete(c, text, half, &rest, &rest_len, &err));
            char *whole = malloc(half + rest_len + 1);
            memcpy(whole, text, half);
            memcpy(whole + half, rest, rest_len + 1);
            ck_assert(!dgemma_constraint_check(c, whole, half + rest_len, &m, &err));
            ck_assert_msg(m.verdict == DGEMMA_ACCEPTED, "%s: completed %s", list[i].constraint,
                          whole);
            free(whole);
            dgemma_free(rest);
            dgemma_free(text);
        }
        dgemma_constraint_free(c);
    }
}

typedef struct refusal {
    const char *constraint;
    dgemma_status status;
    const char *says;
} refusal;

static void check_refusals(dgemma_constraint_kind kind, const refusal *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dgemma_constraint *c;
        dgemma_error err = {0};
        dgemma_status st = make(&c, kind, list[i].constraint, &err);
        ck_assert_msg(st == list[i].status && strstr(err.msg, list[i].says), "%s: %d %s",
                      list[i].constraint, st, err.msg);
    }
}

/* ---- regular expressions ---- */

START_TEST(expressions)
{
    static const cases list[] = {
        {"a|bc|", "a\tbc\t", "b\tabc"},
        {"(?:a|b)*c{2,3}", "cc\tabccc\tbcc", "c\tcccc\tacb"},
        {"^x+?$", "x\txxx", "\txy"},
        {"[^a-c\\d]", "d\té\t€\t😀", "a\t5\tdd"},
        {"\\w+\\s\\S", "a_9 é", "é a\ta\ta "},
        {".", "a\té", "\tab"},
        {"[\\u00e9-\\u{20AC}]\\x41\\/\\.", "éA/.\t€A/.", "eA/."},
        {"(?<year>\\d{4})-(?:0[1-9]|1[0-2])", "2024-12", "2024-13\t202-12"},
        {"(^a|^b)c", "ac\tbc", "c"},
        {"a{0,3}{", "{\taaa{", "aaaa{\ta"},
        {"(?:a?){3}", "\ta\taaa", "aaaa"},
        {"(a{0,2}){0,2}b", "b\taaaab", "aaaaab"},
        {"(a*)*", "\taaaa", "b"},
    };
    check_cases(DGEMMA_CONSTRAINT_REGEX, list, DG_COUNT(list));
}
END_TEST

START_TEST(expressions_that_are_refused)
{
    static const refusal list[] = {
        {"(?=a)b", DGEMMA_E_UNSUPPORTED, "look-ahead"},
        {"(?<!a)b", DGEMMA_E_UNSUPPORTED, "look-behind"},
        {"(a)\\1", DGEMMA_E_UNSUPPORTED, "back-references"},
        {"\\p{L}", DGEMMA_E_UNSUPPORTED, "\\p"},
        {"a\\b", DGEMMA_E_UNSUPPORTED, "\\b"},
        {"a^b", DGEMMA_E_UNSUPPORTED, "beginning"},
        {"a$b", DGEMMA_E_UNSUPPORTED, "end"},
        {"(a", DGEMMA_E_ARG, "not closed"},
        {"a)", DGEMMA_E_ARG, "not opened"},
        {"[a", DGEMMA_E_ARG, "ends too soon"},
        {"*", DGEMMA_E_ARG, "nothing to repeat"},
        {"a{3,2}", DGEMMA_E_ARG, "backwards"},
        {"[z-a]", DGEMMA_E_ARG, "backwards"},
        {"a\xff", DGEMMA_E_ARG, "UTF-8"},
        {"[]", DGEMMA_E_UNSUPPORTED, "written \\]"},
        {"[^]a]", DGEMMA_E_UNSUPPORTED, "written \\]"},
        {"a{,2}", DGEMMA_E_UNSUPPORTED, "written {0,n}"},
        {"{,2}", DGEMMA_E_UNSUPPORTED, "written {0,n}"},
        {"a{,}", DGEMMA_E_UNSUPPORTED, "written {0,n}"},
        {"[^\\s\\S]", DGEMMA_E_ARG, "nothing satisfies"},
        {"(a{1000}){1000}", DGEMMA_E_LIMIT, "multiply"},
        {"a{5000}", DGEMMA_E_LIMIT, "4096"},
        {"[ab]*a[ab]{24}", DGEMMA_E_LIMIT, "too many ways"},
        {"(?:[ab]*a[ab]{12})*", DGEMMA_E_LIMIT, "too many ways"},
    };
    check_refusals(DGEMMA_CONSTRAINT_REGEX, list, DG_COUNT(list));
}
END_TEST

/* ---- schemas ---- */

START_TEST(schemas_of_plain_types)
{
    static const cases list[] = {
        {"{\"type\": \"null\"}", "null", "nul\t\"null\""},
        {"{\"type\": \"boolean\"}", "true\tfalse", "True\t1"},
        {"{\"type\": \"integer\"}", "0\t-7\t123456789012345", "-0\t01\t1.0\t1e3\t1234567890123456"},
        {"{\"type\": \"number\"}", "0\t-0.5\t1.25e-3\t2E+10", "-0\t.5\t1.\t1e1234\tNaN"},
        {"{\"type\": \"integer\", \"minimum\": -12, \"maximum\": 105}",
         "-12\t-1\t0\t9\t99\t100\t105", "-13\t106\t-100\t1000"},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 3, \"exclusiveMaximum\": 5}", "4", "3\t5"},
        {"{\"type\": \"integer\", \"minimum\": 2.5, \"maximum\": 4.5}", "3\t4", "2\t5"},
        {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": -21}", "-21\t0\t7\t700\t-14",
         "-28\t6\t71"},
        {"{\"type\": \"number\", \"minimum\": -0.5, \"exclusiveMaximum\": 1.25}",
         "-0.5\t-0.25\t0\t1\t1.2\t1.249\t0.0", "-0.51\t-1\t1.25\t1.3\t2\t1e0"},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0}", "0.001\t1", "0\t0.0\t-1"},
        {"{\"type\": \"number\", \"maximum\": -3}", "-3\t-3.5\t-4\t-30", "-2.9\t3\t0"},
        {"{\"type\": [\"string\", \"null\"]}", "null\t\"a\"", "1"},
        {"{\"type\": \"string\", \"nullable\": true}", "null\t\"a\"", "1"},
        {"{\"enum\": [\"a\", 1, null, {\"k\": [true, \"x\"]}, \"ab\"]}",
         "\"a\"\t\"ab\"\t1\tnull\t{\"k\": [true, \"x\"]}", "\"abc\"\t2\t{\"k\": []}"},
        {"{\"enum\": [\"a\", \"bcd\", 1], \"type\": \"string\", \"minLength\": 2}", "\"bcd\"",
         "\"a\"\t1"},
        {"{\"const\": \"x\\u0001\\n\\\"\"}", "\"x\\u0001\\n\\\"\"", "\"x\""},
        {"true", "1\tnull\t{\"a\": [1, {}]}", "\tx"},
        {"{}", "[]\t{}\t\"\"", "[1,2]"},
        {"{\"minimum\": 3}", "3\t\"a\"\tnull\t[]", "2"},
    };
    check_cases(DGEMMA_CONSTRAINT_JSON_SCHEMA, list, DG_COUNT(list));
}
END_TEST

START_TEST(schemas_of_strings)
{
    static const cases list[] = {
        {"{\"type\": \"string\"}", "\"\"\t\"a\\n\\\"\\\\/\"\t\"é😀\"",
         "\"a\t\"\\x\"\t\"\\u0041\"\t\"a\"b"},
        {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"ab\"\t\"é😀\\n\"",
         "\"a\"\t\"abcd\"\t\"😀\""},
        {"{\"type\": \"string\", \"pattern\": \"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
         "\"1.50\"\t\"-0\"\t\"+.5\"\t\"3.\"\t\"007\"",
         "\"\"\t\"-\"\t\".\"\t\"+.\"\t\"1.2.3\"\t\"1e5\""},
        {"{\"type\": \"string\", \"pattern\": \"b+\"}", "\"abbc\"\t\"b\"", "\"a\"\t\"\""},
        {"{\"type\": \"string\", \"pattern\": \"^[a-c]+$\", \"minLength\": 2, \"maxLength\": 3}",
         "\"ab\"\t\"cba\"", "\"a\"\t\"abca\"\t\"xy\""},
        {"{\"type\": \"string\", \"pattern\": \"^a\\\\nb|\\\"$\"}", "\"a\\nb and\"\t\"x\\\"\"",
         "\"anb\""},
        {"{\"type\": \"string\", \"format\": \"date\"}", "\"2024-02-29\"\t\"1999-12-31\"",
         "\"2023-02-29\"\t\"2024-13-01\"\t\"2024-04-31\"\t\"1900-02-29\""},
        {"{\"type\": \"string\", \"format\": \"date-time\"}",
         "\"2024-02-29T23:59:59Z\"\t\"2024-01-01T00:00:00.5+01:30\"",
         "\"2024-02-29\"\t\"2024-02-29T24:00:00Z\""},
        {"{\"type\": \"string\", \"format\": \"time\"}", "\"12:00:00Z\"", "\"12:00\""},
        {"{\"type\": \"string\", \"format\": \"duration\"}",
         "\"P1Y2M3DT4H5M6S\"\t\"P2W\"\t\"PT1M\"", "\"P\"\t\"P1\"\t\"PT\"\t\"P1YT\""},
        {"{\"type\": \"string\", \"format\": \"email\"}", "\"a.b@example.org\"", "\"a\"\t\"@b\""},
        {"{\"type\": \"string\", \"format\": \"hostname\"}", "\"a-b.example\"", "\"-a\"\t\"a..b\""},
        {"{\"type\": \"string\", \"format\": \"uri\"}",
         "\"http://a.b:80/c?d=e#f\"\t\"urn:x:y\"\t\"http://[::1]/\"\t\"a:/b/c\"\t\"a://\"\t"
         "\"https://user:word@some-long-name-of-a-machine.in-a-region.services.example.org/a\"\t"
         "\"https://example.org/one/two/three/four/five/six/seven/eight/nine.html\"\t"
         "\"urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"",
         "\"a b\"\t\"//x\"\t\"a:/ \"\t\"http://a/%4\"\t\"http://[::1\""},
        {"{\"type\": \"string\", \"format\": \"uri\", \"minLength\": 1, \"maxLength\": 2083}",
         "\"https://example.org/a/b?c=d#e\"\t\"a:\"\t"
         "\"https://some-long-name-of-a-machine.in-a-region.services.example.org/\"\t"
         "\"https://example.org/one/two/three/four/five/six/seven/eight/nine.html\"",
         "\"\"\t\"a b\""},
        {"{\"type\": \"string\", \"format\": \"ipv4\"}", "\"1.20.255.0\"",
         "\"256.1.1.1\"\t\"1.2.3\""},
        {"{\"type\": \"string\", \"format\": \"ipv6\"}",
         "\"::1\"\t\"1:2:3:4:5:6:7:8\"\t\"fe80::1:2\"", "\"1:2\"\t\":::\"\t\"1::2::3\""},
        {"{\"type\": \"string\", \"format\": \"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"",
         "\"123e4567\""},
        {"{\"type\": \"string\", \"format\": \"color\"}", "\"anything\"", "1"},
    };
    check_cases(DGEMMA_CONSTRAINT_JSON_SCHEMA, list, DG_COUNT(list));
}
END_TEST

#define AB                                                                                         \
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": "   \
    "\"null\"}}"

START_TEST(schemas_of_objects_and_arrays)
{
    static const cases list[] = {
        {AB "}",
         "{}\t{\"a\": 1}\t{\"b\": null}\t{\"a\": 1, \"b\": null}\t{\n  \"a\": 1,\n  \"b\": null\n}",
         "{\"b\": null, \"a\": 1}\t{\"c\": 1}\t{\"a\":1}\t{ }\t{\"a\": 1,\n  \"b\": null}\t{\"a\": "
         "1,}"},
        {AB ", \"required\": [\"b\", \"c\"]}", "{\"b\": null, \"c\": [1]}",
         "{\"a\": 1}\t{\"b\": null}"},
        {AB ", \"propertyOrdering\": [\"b\", \"a\"]}", "{\"b\": null, \"a\": 1}",
         "{\"a\": 1, \"b\": null}"},
        {AB ", \"additionalProperties\": {\"type\": \"boolean\"}}",
         "{\"a\": 1, \"c\": true, \"ab\": false}\t{\"\": true}\t{\"A\": true}",
         "{\"c\": 1}\t{\"a\": true}\t{\"c\": true, \"a\": 1}"},
        {"{\"type\": \"object\"}", "{}\t{\"x\": {\"y\": []}}", "[]\t{\"x\" : 1}"},
        {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}, "
         "\"minProperties\": 1, \"maxProperties\": 2}",
         "{\"x\": 1}\t{\"x\": 1, \"y\": 2}", "{}\t{\"x\": 1, \"y\": 2, \"z\": 3}"},
        {"{\"type\": \"object\", \"patternProperties\": {\"^n\\\\d$\": {\"type\": \"integer\"}}, "
         "\"additionalProperties\": false}",
         "{}\t{\"n1\": 1, \"n2\": 2}", "{\"n\": 1}\t{\"n1\": null}"},
        {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}",
         "[]\t[1]\t[1, 2]\t[\n  1,\n  2\n]", "[1,2]\t[null]\t[1, ]"},
        {"{\"type\": \"array\", \"items\": {\"type\": \"null\"}, \"minItems\": 1, \"maxItems\": 2}",
         "[null]\t[null, null]", "[]\t[null, null, null]"},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}], "
         "\"items\": false}",
         "[]\t[null]\t[null, true]", "[true]\t[null, true, 1]"},
        {"{\"type\": \"array\", \"items\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}], "
         "\"additionalItems\": {\"type\": \"integer\"}}",
         "[]\t[null]\t[null, true, 1, 2]", "[true]\t[null, 1]\t[null, true, null]"},
        {"{\"type\": \"array\", \"items\": [{\"type\": \"null\"}], \"additionalItems\": false}",
         "[]\t[null]", "[null, null]"},
        {"{\"type\": \"array\", \"items\": {\"type\": \"null\"}, \"additionalItems\": false}",
         "[null, null]", "[1]"},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"null\"}], \"minItems\": 2}",
         "[null, 1]\t[null, [], {}]", "[null]\t[1, 1]"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"object\", \"properties\": "
         "{\"b\": {\"type\": \"array\", \"items\": {\"type\": \"null\"}}}}}}",
         "{\n  \"a\": {\n    \"b\": [\n      null\n    ]\n  }\n}\t{\"a\": {\"b\": []}}",
         "{\n  \"a\": {\n  \"b\": []\n  }\n}\t{\n  \"a\": {\"b\": [null]}\n}"},
    };
    check_cases(DGEMMA_CONSTRAINT_JSON_SCHEMA, list, DG_COUNT(list));
}
END_TEST

START_TEST(schemas_that_are_combined)
{
    static const cases list[] = {
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\"}], \"maximum\": 3}",
         "3\t\"x\"", "4\tnull"},
        {AB ", \"anyOf\": [{\"required\": [\"a\"]}, {\"required\": [\"b\"]}]}",
         "{\"a\": 1}\t{\"b\": null}\t{\"a\": 1, \"b\": null}", "{}"},
        {"{\"allOf\": [{\"type\": \"integer\", \"minimum\": 3}, {\"maximum\": 5}]}", "3\t5",
         "2\t6\t\"x\""},
        {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"t\": {\"const\": \"x\"}, \"n\": "
         "{\"type\": \"integer\"}}, \"required\": [\"t\", \"n\"]}, {\"type\": \"object\", "
         "\"properties\": {\"t\": {\"enum\": [\"y\", \"z\"]}}, \"required\": [\"t\"]}]}",
         "{\"t\": \"x\", \"n\": 1}\t{\"t\": \"z\"}", "{\"t\": \"x\"}\t{\"t\": \"w\"}"},
        {"{\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"string\"}]}", "null\t\"\"", "1"},
        {"{\"$defs\": {\"p\": {\"type\": \"integer\"}}, \"type\": \"array\", \"items\": {\"$ref\": "
         "\"#/$defs/p\", \"minimum\": 2}}",
         "[2, 3]", "[1]"},
        {"{\"definitions\": {\"a/b~ c\": {\"type\": \"null\"}}, \"$ref\": "
         "\"#/definitions/a~1b~0%20c\"}",
         "null", "1"},
        {"{\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"integer\"}, \"next\": "
         "{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\"]}",
         "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}", "{\"v\": 1, \"next\": {}}"},
        {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", "[[], [[]]]", "[1]"},
    };
    check_cases(DGEMMA_CONSTRAINT_JSON_SCHEMA, list, DG_COUNT(list));
}
END_TEST

START_TEST(schemas_that_are_refused)
{
    static const refusal list[] = {
        {"{\"properties\": {\"t/g\": {\"uniqueItems\": true}}}", DGEMMA_E_UNSUPPORTED,
         "\"uniqueItems\" at #/properties/t~1g is not supported"},
        {"{\"anyOf\": [{}, {\"not\": {}}]}", DGEMMA_E_UNSUPPORTED, "\"not\" at #/anyOf/1"},
        {"{\"if\": {}}", DGEMMA_E_UNSUPPORTED, "\"if\" at #"},
        {"{\"contains\": {}}", DGEMMA_E_UNSUPPORTED, "\"contains\""},
        {"{\"propertyNames\": {}}", DGEMMA_E_UNSUPPORTED, "\"propertyNames\""},
        {"{\"dependentRequired\": {}}", DGEMMA_E_UNSUPPORTED, "\"dependentRequired\""},
        {"{\"unevaluatedProperties\": false}", DGEMMA_E_UNSUPPORTED, "\"unevaluatedProperties\""},
        {"{\"$dynamicRef\": \"#x\"}", DGEMMA_E_UNSUPPORTED, "\"$dynamicRef\""},
        {"{\"$anchor\": \"x\"}", DGEMMA_E_UNSUPPORTED, "\"$anchor\""},
        {"{\"$ref\": \"http://x/y\"}", DGEMMA_E_UNSUPPORTED, "\"$ref\""},
        {"{\"$ref\": \"#/nowhere\"}", DGEMMA_E_ARG, "leads to nothing"},
        {"{\"$ref\": \"#\"}", DGEMMA_E_UNSUPPORTED, "circle"},
        {"{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"string\"}]}", DGEMMA_E_UNSUPPORTED,
         "circle"},
        {"{\"oneOf\": [{\"minimum\": 1}, {\"maximum\": 2}]}", DGEMMA_E_UNSUPPORTED, "\"oneOf\""},
        {"{\"type\": \"number\", \"multipleOf\": 0.1}", DGEMMA_E_UNSUPPORTED, "\"multipleOf\""},
        {"{\"type\": \"string\", \"pattern\": \"(?=a)\"}", DGEMMA_E_UNSUPPORTED,
         "\"pattern\" at #"},
        {"{\"type\": \"string\", \"pattern\": \"ab\", \"maxLength\": 5}", DGEMMA_E_UNSUPPORTED,
         "\"maxLength\""},
        {AB ", \"maxProperties\": 1}", DGEMMA_E_UNSUPPORTED, "\"maxProperties\""},
        {AB ", \"patternProperties\": {\"^a\": {}}}", DGEMMA_E_UNSUPPORTED,
         "\"patternProperties\""},
        {"{\"type\": \"strin\"}", DGEMMA_E_ARG, "\"type\""},
        {"{\"type\": \"string\", \"minLength\": -1}", DGEMMA_E_ARG, "\"minLength\""},
        {"{\"type\": \"string\", \"minLength\": 100000}", DGEMMA_E_LIMIT, "\"minLength\""},
        {"{\"type\": \"array\", \"minItems\": 1e9}", DGEMMA_E_LIMIT, "\"minItems\""},
        {"false", DGEMMA_E_ARG, "nothing satisfies"},
        {"{\"enum\": []}", DGEMMA_E_ARG, "nothing satisfies"},
        {"{\"type\": \"integer\", \"minimum\": 4, \"maximum\": 3}", DGEMMA_E_ARG,
         "nothing satisfies"},
        {"{\"type\": \"object\", \"required\": [\"x\"], \"additionalProperties\": false}",
         DGEMMA_E_ARG, "nothing satisfies"},
        {"{\"type\": \"object\", \"properties\": {\"x\": {\"$ref\": \"#\"}}, \"required\": "
         "[\"x\"]}",
         DGEMMA_E_ARG, "nothing satisfies"},
        {"[1]", DGEMMA_E_ARG, "has to be an object"},
        {"{", DGEMMA_E_ARG, "the schema"},
    };
    check_refusals(DGEMMA_CONSTRAINT_JSON_SCHEMA, list, DG_COUNT(list));
}
END_TEST

START_TEST(what_a_lenient_schema_leaves_out)
{
    static const char schema[] =
        "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"string\", "
        "\"pattern\": \"(?=x)\"}}";
    dgemma_constraint_options opt = {.text = schema, .text_len = strlen(schema), .lenient = true};
    dgemma_constraint *c;
    dgemma_error err = {0};
    ck_assert(!dgemma_constraint_create(&c, &opt, &err));
    ck_assert_str_eq(dgemma_constraint_ignored(c), "uniqueItems at #\npattern at #/items\n");
    ck_assert(dg_test_judge(c, "[\"a\", \"a\"]") == DGEMMA_ACCEPTED);
    dgemma_constraint_free(c);
}
END_TEST

START_TEST(levels_end_at_thirty_two)
{
    dgemma_constraint_options opt = {.kind = DGEMMA_CONSTRAINT_JSON_OBJECT, .compact = true};
    dgemma_constraint *c;
    dgemma_error err = {0};
    ck_assert(!dgemma_constraint_create(&c, &opt, &err));
    char text[200] = "{\"a\":";
    size_t n = strlen(text);
    memset(text + n, '[', 31);
    memset(text + n + 31, ']', 31);
    strcpy(text + n + 62, "}");
    ck_assert(dg_test_judge(c, text) == DGEMMA_ACCEPTED);
    memset(text + n, '[', 32);
    memset(text + n + 32, ']', 32);
    strcpy(text + n + 64, "}");
    ck_assert(dg_test_judge(c, text) == DGEMMA_REJECTED);
    dgemma_constraint_free(c);
}
END_TEST

/* ---- grammars and choices ---- */

START_TEST(grammars)
{
    static const cases list[] = {
        {"root ::= \"a\" b? # comment\nb ::= [x-z]+ | \"\\n\" c{2}\nc ::= ( \"d\" | \".\" )",
         "a\tax\taxyz\ta\nd.", "a\nd\tb"},
        {"root ::= list\nlist ::= \"x\" list | \"x\"", "x\txxxx", "\ty"},
        {"root ::= .{2} [^a-z]", "éaA\tabA", "ab\taba"},
        {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9] | \"(\" e \")\"", "1+(2+(3))\t((((1))))",
         "(1\t1+\t()"},
    };
    check_cases(DGEMMA_CONSTRAINT_GRAMMAR, list, DG_COUNT(list));

    /* lists by recursion are as long as they like */
    dgemma_constraint *c;
    dgemma_error err = {0};
    char text[3001];
    memset(text, 'x', 3000);
    text[3000] = '\0';
    ck_assert(!make(&c, DGEMMA_CONSTRAINT_GRAMMAR, list[1].constraint, &err));
    ck_assert(dg_test_judge(c, text) == DGEMMA_ACCEPTED);
    dgemma_constraint_free(c);
}
END_TEST

START_TEST(grammars_that_are_refused)
{
    static const refusal list[] = {
        {"root ::= root \"a\" | \"b\"", DGEMMA_E_UNSUPPORTED, "\"root\" begins with itself"},
        {"root ::= x\nx ::= \"\" y \"b\"\ny ::= x | \"c\"", DGEMMA_E_UNSUPPORTED,
         "begins with itself"},
        {"root ::= \"a\" nothing", DGEMMA_E_ARG, "no rule \"nothing\""},
        {"other ::= \"a\"", DGEMMA_E_ARG, "\"root\""},
        {"root ::= \"a\nroot", DGEMMA_E_ARG, "not closed"},
        {"root ::= (\"a\"", DGEMMA_E_ARG, "not closed"},
        {"root ::= \"a\"\nroot ::= \"b\"", DGEMMA_E_ARG, "line 2"},
        {"root ::= \"a\"{2,1}", DGEMMA_E_ARG, "backwards"},
        {"root ::= (\"a\"{1000}){1000}", DGEMMA_E_LIMIT, "multiply"},
        {"root ::= \"a\" root", DGEMMA_E_ARG, "nothing satisfies"},
        {"root ::= \"\\q\"", DGEMMA_E_ARG, "escape"},
        {"", DGEMMA_E_ARG, "root"},
    };
    check_refusals(DGEMMA_CONSTRAINT_GRAMMAR, list, DG_COUNT(list));
}
END_TEST

START_TEST(special_tokens_are_no_text)
{
    static const char grammar[] = "root ::= \"a\" <[48]> <|x|> \"b\" | \"a<\"";
    dg_syntax *s;
    dg_language *l;
    dg_edges e;
    dgemma_error err = {0};
    dg_constraint_options opt = {
        .kind = DG_CONSTRAINT_GRAMMAR, .text = grammar, .len = strlen(grammar)};
    ck_assert(!dg_constraint_compile(&s, &opt, &err));
    ck_assert(!dg_language_create(&l, s, &err));
    dg_place at = dg_language_start(l);
    ck_assert(!dg_language_step(l, &at, 'a', &err));
    ck_assert(!dg_language_edges(l, at, &e, &err));
    ck_assert(e.n_symbols == 1 && e.n_bytes == 1 && s->symbol[e.symbols[0].symbol].id == 48);
    ck_assert(!dg_language_symbol(l, &at, e.symbols[0].symbol, &err));
    ck_assert(!dg_language_edges(l, at, &e, &err));
    ck_assert(e.n_symbols == 1 && e.n_bytes == 0);
    ck_assert_str_eq(s->symbol[e.symbols[0].symbol].name, "<|x|>");
    dg_language_free(l);
    dg_syntax_free(s);
}
END_TEST

START_TEST(choices)
{
    static const char *const words[] = {"yes", "no", "yesterday", "yes", "n\xc3\xa9"};
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_CHOICE, .choices = words, .n_choices = DG_COUNT(words)};
    dgemma_constraint *c;
    dgemma_match m;
    dgemma_error err = {0};
    ck_assert(!dgemma_constraint_create(&c, &opt, &err));
    for (size_t i = 0; i < DG_COUNT(words); i++)
        ck_assert(dg_test_judge(c, words[i]) == DGEMMA_ACCEPTED);
    ck_assert(dg_test_judge(c, "yest") == DGEMMA_PREFIX);
    ck_assert(!dgemma_constraint_check(c, "nx", 2, &m, &err));
    ck_assert(m.verdict == DGEMMA_REJECTED && m.n == 1 && m.next['o'] && m.next[0xC3] &&
              !m.next['x'] && !m.could_end);
    dgemma_constraint_free(c);
    opt.n_choices = 0;
    ck_assert_int_eq(dgemma_constraint_create(&c, &opt, &err), DGEMMA_E_ARG);
}
END_TEST

START_TEST(forgetting_changes_nothing)
{
    static const char schema[] = "{\"type\": \"array\", \"items\": {\"anyOf\": [{\"$ref\": \"#\"}, "
                                 "{\"type\": \"string\"}]}}";
    static const char text[] = "[\"a\", [[\"\\n\"], []], \"b\"]";
    dg_syntax *s;
    dg_language *l;
    dg_edges e;
    dgemma_error err = {0};
    dg_constraint_options opt = {.text = schema, .len = strlen(schema)};
    ck_assert(!dg_constraint_compile(&s, &opt, &err));
    ck_assert(!dg_language_create(&l, s, &err));
    dg_place at = dg_language_start(l);
    for (size_t i = 0; i < strlen(text); i++) {
        ck_assert(!dg_language_step(l, &at, (unsigned char)text[i], &err));
        ck_assert(at != DG_PLACE_DEAD);
        ck_assert(!dg_language_forget(l, &at, &err));
        ck_assert(dg_language_measure(l).n_place <= 2);
    }
    ck_assert(!dg_language_edges(l, at, &e, &err));
    ck_assert(e.accepts && !e.n_bytes);
    dg_language_free(l);
    dg_syntax_free(s);
}
END_TEST

START_TEST(memory_may_run_out_anywhere)
{
    static const struct {
        dgemma_constraint_kind kind;
        const char *text;
    } list[] = {
        {DGEMMA_CONSTRAINT_REGEX, "(a|[b-d]{2,3})*\\s"},
        {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= \"a\" (b | <x>)*\nb ::= [c-d] root?"},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA,
         "{\"$defs\": {\"x\": {\"enum\": [\"a\", 1, [2]], \"minimum\": 1}}, \"type\": \"object\", "
         "\"properties\": {\"a\": {\"$ref\": \"#/$defs/x\"}, \"b\": {\"type\": \"string\", "
         "\"pattern\": \"^a\"}, \"c\": {\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"integer\", "
         "\"multipleOf\": 3}]}}, \"patternProperties\": {\"^z\": true}}"},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA,
         "{\"properties\": {\"a\": {\"uniqueItems\": 1}}, \"additionalProperties\": {\"items\": "
         "{}}}"},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++)
        for (long n = 1; n < 100000; n++) {
            dgemma_constraint *c = NULL;
            dgemma_error err = {0};
            dgemma_constraint_options opt = {.kind = list[i].kind,
                                             .text = list[i].text,
                                             .text_len = strlen(list[i].text),
                                             .lenient = true};
            char *text = NULL;
            size_t len;
            dg_test_fail_alloc_at(n);
            dgemma_status st = dgemma_constraint_create(&c, &opt, &err);
            if (!st)
                st = dgemma_constraint_random(c, 1, 0, 20, &text, &len, &err);
            bool reached = dg_test_alloc_done();
            dgemma_free(text);
            dgemma_constraint_free(c);
            if (!reached) {
                ck_assert_msg(!st, "%s", err.msg);
                break;
            }
            ck_assert_msg(st != DGEMMA_OK || text, "case %zu, allocation %ld", i, n);
        }
}
END_TEST

typedef struct reader {
    dgemma_constraint *c; /* held */
    int n_wrong;
} reader;

static void *read_along(void *arg)
{
    reader *r = arg;
    char text[32];
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "{\"a\": %d}", i);
        dgemma_match m;
        r->n_wrong += dgemma_constraint_check(r->c, text, strlen(text), &m, NULL) ||
                      m.verdict != DGEMMA_ACCEPTED;
    }
    dgemma_constraint_free(r->c);
    return NULL;
}

START_TEST(a_constraint_is_shared)
{
    dgemma_constraint *c;
    dgemma_error err;
    ck_assert(!make(&c, DGEMMA_CONSTRAINT_JSON_SCHEMA,
                    "{\"properties\": {\"a\": {\"type\": \"integer\"}}}", &err));
    pthread_t thread[3];
    reader r[DG_COUNT(thread)];
    for (size_t i = 0; i < DG_COUNT(thread); i++) {
        r[i] = (reader){.c = dgemma_constraint_hold(c)};
        ck_assert(!pthread_create(&thread[i], NULL, read_along, &r[i]));
    }
    dgemma_constraint_free(c); /* the others have it still */
    for (size_t i = 0; i < DG_COUNT(thread); i++) {
        pthread_join(thread[i], NULL);
        ck_assert_int_eq(r[i].n_wrong, 0);
    }
}
END_TEST

Suite *constraint_suite(void)
{
    Suite *s = suite_create("constraint");
    TCase *c = tcase_create("constraint");
    tcase_add_test(c, expressions);
    tcase_add_test(c, expressions_that_are_refused);
    tcase_add_test(c, schemas_of_plain_types);
    tcase_add_test(c, schemas_of_strings);
    tcase_add_test(c, schemas_of_objects_and_arrays);
    tcase_add_test(c, schemas_that_are_combined);
    tcase_add_test(c, schemas_that_are_refused);
    tcase_add_test(c, what_a_lenient_schema_leaves_out);
    tcase_add_test(c, levels_end_at_thirty_two);
    tcase_add_test(c, grammars);
    tcase_add_test(c, grammars_that_are_refused);
    tcase_add_test(c, special_tokens_are_no_text);
    tcase_add_test(c, choices);
    tcase_add_test(c, forgetting_changes_nothing);
    tcase_add_test(c, memory_may_run_out_anywhere);
    tcase_add_test(c, a_constraint_is_shared);
    suite_add_tcase(s, c);
    return s;
}
