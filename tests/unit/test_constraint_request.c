/* What answers are held to, in the words of every API, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dgemma_tools.h"
#include "server/anthropic_request.h"
#include "server/json_body.h"
#include "server/ollama_request.h"
#include "server/openai_request.h"
#include "server/responses_request.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/chat_limits.h"
#include "support/judge.h"

/* JSON is written with ' for " here. */
static bool read_body(const dg_chat_limits *limits, dg_chat *c, dg_http_error *e, dg_read_fn *read,
                      const char *body)
{
    char *text = strdup(body);
    for (char *p = text; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *root = dg_json_body(text, strlen(text), e);
    free(text);
    return root && read(c, root, limits, 7, e);
}

static bool read_with(dg_constraint_cache *cache, dg_chat *c, dg_http_error *e, dg_read_fn *read,
                      const char *body)
{
    dg_chat_limits limits = dg_test_chat_limits;
    limits.constraints = cache;
    return read_body(&limits, c, e, read, body);
}

#define CHAT(fields)  dg_openai_read_chat, "{'messages':[{'role':'user','content':'Q'}]," fields "}"
#define RAW(fields)   dg_openai_read_completion, "{'prompt':'Q'," fields "}"
#define ITEMS(fields) dg_responses_read, "{'input':'Q'," fields "}"
#define CLAUDE(fields)                                                                             \
    dg_anthropic_read, "{'max_tokens':9,'messages':[{'role':'user','content':'Q'}]," fields "}"
#define OLLAMA(fields)                                                                             \
    dg_ollama_read_chat, "{'messages':[{'role':'user','content':'Q'}]," fields "}"
#define SCHEMA      "{'type':'object','properties':{'a':{'type':'integer'}},'required':['a']}"
#define SCHEMA_TEXT "'{\\'type\\':\\'integer\\'}'"
#define UNIQUE      "{'properties':{'a b':{'uniqueItems':true}}}"

typedef struct held {
    dg_read_fn *read;
    const char *body, *good, *bad;
} held;

static const held helds[] = {
    {CHAT("'response_format':{'type':'json_schema','json_schema':{'name':'x','schema':" SCHEMA
          ",'strict':true}}"),
     "{\"a\": 1}", "{\"a\": \"\"}"},
    {CHAT("'response_format':{'type':'json_schema','schema':" SCHEMA "}"), "{\"a\": 1}", "{}"},
    {CHAT("'response_format':{'type':'json_object','schema':" SCHEMA "}"), "{\"a\": 1}", "{}"},
    {CHAT("'response_format':{'type':'json_schema','json_schema':{'schema':" UNIQUE
          ",'strict':false}}"),
     "{\"a b\": [1, 1]}", "{\"c\": 1}"},
    {CHAT("'structured_outputs':{'json':" SCHEMA "}"), "{\"a\": 1}", "{}"},
    {CHAT("'structured_outputs':{'json':" SCHEMA_TEXT "}"), "1", "{}"},
    {CHAT("'structured_outputs':{'regex':'a+'}"), "aa", "b"},
    {CHAT("'structured_outputs':{'choice':['yes','no']}"), "no", "n"},
    {CHAT("'structured_outputs':{'grammar':'root ::= [ab]'}"), "b", "c"},
    {CHAT("'guided_json':" SCHEMA), "{\"a\": 1}", "{}"},
    {CHAT("'guided_regex':'a+'"), "aa", "b"},
    {CHAT("'guided_choice':['yes']"), "yes", "no"},
    {CHAT("'guided_grammar':'root ::= [ab]'"), "a", "c"},
    {CHAT("'json_schema':" SCHEMA ",'grammar':''"), "{\"a\": 1}", "{}"},
    {CHAT("'json_schema':" SCHEMA_TEXT), "1", "{}"},
    {CHAT("'grammar':'root ::= [ab]','json_schema':null"), "a", "c"},
    {CHAT("'ebnf':'root ::= [ab]'"), "a", "c"},
    {CHAT("'regex':'a+'"), "a", "c"},
    {CHAT("'guided_json':" SCHEMA ",'whitespace':'compact'"), "{\"a\":1}", "{\"a\": 1}"},
    {RAW("'guided_choice':['yes']"), "yes", "no"},
    {RAW("'response_format':{'type':'json_schema','json_schema':{'schema':" SCHEMA "}}"),
     "{\"a\": 1}", "{}"},
    {ITEMS("'text':{'format':{'type':'json_schema','name':'x','schema':" SCHEMA ",'strict':true}}"),
     "{\"a\": 1}", "{}"},
    {CLAUDE("'output_config':{'format':{'type':'json_schema','schema':" SCHEMA "}}"), "{\"a\": 1}",
     "{}"},
    {CLAUDE("'output_format':{'type':'json_schema','schema':" SCHEMA "}"), "{\"a\": 1}", "{}"},
    {OLLAMA("'format':" SCHEMA), "{\"a\": 1}", "{}"},
    {dg_ollama_read_generate, "{'prompt':'Q','format':" SCHEMA "}", "{\"a\": 1}", "{}"},
    {dg_ollama_read_generate, "{'prompt':'Q','raw':true,'format':" SCHEMA "}", "{\"a\": 1}", "{}"},
};

START_TEST(test_every_dialect)
{
    const held *h = &helds[_i];
    dg_chat c;
    dg_http_error e = {0};
    ck_assert_msg(read_with(NULL, &c, &e, h->read, h->body), "%s: %s", h->body, e.message);
    ck_assert_msg(c.constraint && c.options.constraint == c.constraint, "%s", h->body);
    ck_assert_msg(dg_test_judge(c.constraint, h->good) == DGEMMA_ACCEPTED, "%s: %s", h->body,
                  h->good);
    ck_assert_msg(dg_test_judge(c.constraint, h->bad) != DGEMMA_ACCEPTED, "%s: %s", h->body,
                  h->bad);
    dg_chat_clear(&c);
}
END_TEST

typedef struct refused {
    dg_read_fn *read;
    const char *body, *code, *param, *says;
} refused;

static const refused refusals[] = {
    {CHAT("'response_format':{'type':'json_schema','json_schema':{'schema':" UNIQUE "}}"),
     "unsupported_schema", "/response_format/json_schema/schema/properties/a b",
     "response_format.json_schema.schema: \"uniqueItems\" at #/properties/a%20b is not supported"},
    {ITEMS("'text':{'format':{'type':'json_schema','schema':" UNIQUE "}}"), "unsupported_schema",
     "/text/format/schema/properties/a b", "text.format.schema: \"uniqueItems\""},
    {CLAUDE("'output_config':{'format':{'type':'json_schema','schema':" UNIQUE "}}"),
     "unsupported_schema", "/output_config/format/schema/properties/a b",
     "output_config.format.schema: \"uniqueItems\""},
    {CLAUDE("'output_format':{'type':'json_schema','schema':" UNIQUE "}"), "unsupported_schema",
     "/output_format/schema/properties/a b", "output_format.schema: \"uniqueItems\""},
    {OLLAMA("'format':" UNIQUE), "unsupported_schema", "/format/properties/a b",
     "format: \"uniqueItems\""},
    {CHAT("'guided_json':{'not':{}}"), "unsupported_schema", "/guided_json", "\"not\" at #"},
    {CHAT("'guided_regex':'(?=a)'"), "unsupported_schema", "/guided_regex", "look-ahead"},
    {CHAT("'guided_regex':'[ab]*a[ab]{24}'"), "schema_too_complex", "/guided_regex", "too many"},
    {CHAT("'regex':'('"), "invalid_value", "/regex", "regex: "},
    {CHAT("'grammar':'root ::= root'"), "unsupported_schema", "/grammar", "grammar: "},
    {CHAT("'json_schema':false"), "invalid_value", "/json_schema", "nothing satisfies"},
    {CHAT("'json_schema':[]"), "invalid_type", "/json_schema", "wanted a schema"},
    {CHAT("'json_schema':'{'"), "invalid_value", "/json_schema", "json_schema: "},
    {CHAT("'guided_choice':[]"), "invalid_value", "/guided_choice", "wanted a list"},
    {CHAT("'guided_choice':[1]"), "invalid_type", "/guided_choice", "wanted a list"},
    {CHAT("'structured_outputs':{'structural_tag':{}}"), "unsupported",
     "/structured_outputs/structural_tag", "not supported"},
    {CHAT("'structured_outputs':7"), "invalid_type", "structured_outputs", "structured_outputs"},
    {CHAT("'response_format':{'type':'json_object'},'regex':'a'"), "invalid_value", "/regex",
     "response_format and regex"},
    {CHAT("'structured_outputs':{'json':{},'regex':'a'}"), "invalid_value",
     "/structured_outputs/regex", "structured_outputs.json and structured_outputs.regex"},
    {CLAUDE("'output_config':{'format':{'type':'json_schema','schema':{}}},"
            "'output_format':{'type':'json_schema','schema':{}}"),
     "invalid_value", "output_format", "one of them"},
    {CHAT("'response_format':{'type':'json_schema','json_schema':{'schema':{},'strict':'no'}}"),
     "invalid_type", "/response_format/json_schema/strict", "wanted true or false"},
    {CHAT("'response_format':{'type':'json_schema','schema':{},'strict':0}"), "invalid_type",
     "/response_format/strict", "response_format.strict: wanted true or false"},
    {ITEMS("'text':{'format':{'type':'json_schema','schema':{},'strict':1}}"), "invalid_type",
     "/text/format/strict", "text.format.strict: wanted true or false"},
    {CHAT("'tools':[{'type':'function','function':{'name':'f','strict':'true'}}]"), "invalid_type",
     "tools", "tools[0], strict"},
    {CLAUDE("'tools':[{'name':'g'},{'name':'f','strict':1}]"), "invalid_type", "tools",
     "tools[1], strict"},
    {CHAT("'schema_in_prompt':1"), "invalid_type", "schema_in_prompt", "true or false"},
    {CHAT("'whitespace':'much'"), "invalid_value", "whitespace", "usual and compact"},
};

START_TEST(test_refusals)
{
    const refused *r = &refusals[_i];
    dg_chat c;
    dg_http_error e = {0};
    ck_assert_msg(!read_with(NULL, &c, &e, r->read, r->body), "%s", r->body);
    ck_assert_int_eq(e.status, 400);
    ck_assert_str_eq(e.code, r->code);
    ck_assert_str_eq(e.param, r->param);
    ck_assert_msg(strstr(e.message, r->says), "%s: %s", r->body, e.message);
}
END_TEST

/* ---- tools ---- */

#define TOOL           "{'type':'function','function':{'name':'f','parameters':" SCHEMA "}}"
#define STRICT(schema) "'strict':true,'" schema "':" UNIQUE

typedef struct turn {
    dg_read_fn *read;
    const char *body, *good, *bad;
} turn;

#define CALL(name, arguments) "<|tool_call>call:" name arguments "<tool_call|>"

static const turn turns[] = {
    {CHAT("'tools':[" TOOL "]"), "Hello", CALL("g", "{}")},
    {CHAT("'tools':[" TOOL "]"), "So: " CALL("f", "{a:1}"), CALL("f", "{a:true}")},
    {CHAT("'tools':[" TOOL "],'tool_choice':'required'"), CALL("f", "{a:1}") CALL("f", "{a:2}"),
     "Hello"},
    {CHAT("'tools':[" TOOL ",{'type':'function','function':{'name':'g'}}],'tool_choice':"
          "{'type':'function','function':{'name':'g'}}"),
     CALL("g", "{}"), CALL("f", "{a:1}")},
    {CHAT("'tools':[" TOOL ",{'type':'function','function':{'name':'g'}}],'tool_choice':"
          "{'type':'allowed_tools','allowed_tools':{'mode':'required','tools':[{'type':'function',"
          "'function':{'name':'g'}}]}}"),
     CALL("g", "{}"), CALL("f", "{a:1}")},
    {CHAT("'tools':[" TOOL "],'tool_choice':'none'"), "Hello", "\xff"},
    {CHAT("'tools':[" TOOL "],'json_schema':{'type':'integer'}"), "17", "Hello"},
    {CHAT("'tools':[" TOOL "],'json_schema':{'type':'integer'}"), CALL("f", "{a:1}"), "1 "},
    {CHAT("'tools':[" TOOL "],'tool_choice':'none','json_schema':{'type':'integer'}"), "17", "a"},
    {CHAT("'response_format':{'type':'json_object'}"), "{\"b\": []}", "[]"},
    {ITEMS("'tools':[{'type':'function','name':'f','parameters':" SCHEMA "}],'tool_choice':"
           "'required'"),
     CALL("f", "{a:1}"), "Hello"},
    {CLAUDE("'tools':[{'name':'f','input_schema':" SCHEMA "}],'tool_choice':{'type':'any'}"),
     CALL("f", "{a:1}"), "Hello"},
    {CLAUDE("'tools':[{'name':'f','input_schema':" SCHEMA "},{'name':'g'}],'tool_choice':{'type':"
            "'tool','name':'g','disable_parallel_tool_use':true}"),
     CALL("g", "{}"), CALL("f", "{a:1}")},
    {OLLAMA("'tools':[" TOOL "]"), CALL("f", "{a:1}"), CALL("f", "{}")},
};

START_TEST(test_turns)
{
    const turn *t = &turns[_i];
    dg_chat c;
    dg_http_error e = {0};
    ck_assert_msg(read_with(NULL, &c, &e, t->read, t->body), "%s: %s", t->body, e.message);
    ck_assert_msg(c.constraint && c.options.constraint == c.constraint, "%s", t->body);
    ck_assert_msg(dg_test_judge(c.constraint, t->good) == DGEMMA_ACCEPTED, "%s: %s", t->body,
                  t->good);
    ck_assert_msg(dg_test_judge(c.constraint, t->bad) != DGEMMA_ACCEPTED, "%s: %s", t->body,
                  t->bad);
    /* nothing is put into the model's mouth */
    ck_assert(c.options.tool_choice <= DGEMMA_TOOLS_NONE);
    dg_chat_clear(&c);
}
END_TEST

START_TEST(test_turns_that_are_free)
{
    static const turn list[] = {
        {CHAT("'n':1"), "", ""},
        {CHAT("'tool_choice':'none'"), "", ""},
        {CHAT("'tools':[]"), "", ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        dg_chat c;
        dg_http_error e = {0};
        ck_assert(read_with(NULL, &c, &e, list[i].read, list[i].body));
        ck_assert_msg(!c.constraint && !c.options.constraint, "%s", list[i].body);
        dg_chat_clear(&c);
    }
}
END_TEST

START_TEST(test_tools_that_are_refused)
{
    static const refused list[] = {
        {CHAT("'tools':[" TOOL
              ",{'type':'function','function':{'name':'g'," STRICT("parameters") "}}]"),
         "unsupported_schema", "/tools/1/function/parameters/properties/a b",
         "tools: g: \"uniqueItems\" at #/1/function/parameters/properties/a%20b is not supported"},
        {ITEMS("'tools':[{'type':'function','name':'g'," STRICT("parameters") "}]"),
         "unsupported_schema", "/tools/0/parameters/properties/a b", "uniqueItems"},
        {CLAUDE("'tools':[{'name':'g'," STRICT("input_schema") "}]"), "unsupported_schema",
         "/tools/0/input_schema/properties/a b", "uniqueItems"},
        {CHAT("'tools':[{'type':'function','function':{'name':'two words'}}],'tool_choice':"
              "'required'"),
         "invalid_value", "/tools", "no tool can be called"},
        {CHAT("'tools':[" TOOL "],'grammar':'root ::= [ab]'"), "unsupported_schema", "/tools",
         "a grammar goes with no tools"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        dg_chat c;
        dg_http_error e = {0};
        ck_assert_msg(!read_with(NULL, &c, &e, list[i].read, list[i].body), "%s", list[i].body);
        ck_assert_str_eq(e.code, list[i].code);
        ck_assert_str_eq(e.param, list[i].param);
        ck_assert_msg(strstr(e.message, list[i].says), "%s", e.message);
    }
}
END_TEST

/* The model is told the schema, in the system turn, unless it is not to be. */
START_TEST(test_prompts)
{
    dg_chat c;
    dg_http_error e = {0};
    ck_assert(read_with(NULL, &c, &e, dg_openai_read_chat,
                        "{'messages':[{'role':'system','content':'Be brief.'},{'role':'user',"
                        "'content':'Q'}],'json_schema':{'type' : 'integer'}}"));
    ck_assert_ptr_nonnull(strstr(c.messages, "Be brief.\\n\\nAnswer with JSON that this schema"));
    ck_assert_ptr_nonnull(strstr(c.messages, "{\\\"type\\\":\\\"integer\\\"}"));
    dg_chat_clear(&c);
    static const char *const silent[] = {
        "{'messages':[{'role':'user','content':'Q'}],'json_schema':{},'schema_in_prompt':false}",
        "{'messages':[{'role':'user','content':'Q'}],'guided_json':'{}','schema_in_prompt':false}",
        "{'messages':[{'role':'user','content':'Q'}],'regex':'a'}",
        "{'messages':[{'role':'user','content':'Q'}],'response_format':{'type':'text'}}",
        ("{'messages':[{'role':'user','content':'Q'}],'response_format':{'type':'json_object'},"
         "'schema_in_prompt':false}"),
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        ck_assert_msg(read_with(NULL, &c, &e, dg_openai_read_chat, silent[i]), "%s", e.message);
        ck_assert_str_eq(c.messages, "[{\"role\":\"user\",\"content\":\"Q\"}]");
        dg_chat_clear(&c);
    }
    /* of a long one, the names */
    char long_body[9000];
    int n = snprintf(long_body, sizeof long_body,
                     "{'messages':[{'role':'user','content':'Q'}],'json_schema':{'properties':"
                     "{'first':{},'second':{}},'description':'");
    memset(long_body + n, 'x', 7000);
    strcpy(long_body + n + 7000, "'}}");
    ck_assert(read_with(NULL, &c, &e, dg_openai_read_chat, long_body));
    ck_assert_ptr_nonnull(strstr(c.messages, "Its members are called first, second."));
    ck_assert_ptr_null(strstr(c.messages, "xxx"));
    dg_chat_clear(&c);
    /* but for those that are too long themselves */
    static char long_name[31000];
    n = snprintf(long_name, sizeof long_name,
                 "{'messages':[{'role':'user','content':'Q'}],'json_schema':{'properties':"
                 "{'first':{},'");
    memset(long_name + n, 'x', 30000);
    strcpy(long_name + n + 30000, "':{}}}}");
    ck_assert_msg(read_with(NULL, &c, &e, dg_openai_read_chat, long_name), "%s", e.message);
    ck_assert_ptr_nonnull(strstr(c.messages, "Its members are called first."));
    dg_chat_clear(&c);
}
END_TEST

/* The same schema again is the same constraint; another, or another way to hold to it, is not. */
START_TEST(test_cache)
{
    static const struct {
        dg_read_fn *read;
        const char *body;
        bool same;
    } list[] = {
        {CHAT("'json_schema':" SCHEMA), true},
        {RAW("'guided_json':" SCHEMA), true},
        {OLLAMA("'format':" SCHEMA), true},
        {CHAT("'json_schema':{'type':'object'}"), false},
        {CHAT("'json_schema':" SCHEMA ",'whitespace':'compact'"), false},
        {CHAT("'response_format':{'type':'json_schema','json_schema':{'schema':" SCHEMA
              ",'strict':false}}"),
         false},
        {CHAT("'regex':'a'"), false},
    };
    dg_constraint_cache *cache = dg_constraint_cache_create();
    dg_chat first, c;
    dg_http_error e = {0};
    unsigned long long asked, found;
    ck_assert(read_with(cache, &first, &e, CHAT("'json_schema':" SCHEMA)));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ck_assert(read_with(cache, &c, &e, list[i].read, list[i].body));
        ck_assert_msg((c.constraint == first.constraint) == list[i].same, "%s", list[i].body);
        dg_chat_clear(&c);
    }
    dg_constraint_cache_count(cache, &asked, &found);
    ck_assert(asked == 8 && found == 3);
    /* those that were not asked for lately go; who holds one keeps it */
    for (int i = 0; i < DG_CONSTRAINTS_KEPT + 1; i++) {
        char body[120];
        snprintf(body, sizeof body, "{'prompt':'Q','regex':'a{%d}'}", i);
        ck_assert(read_with(cache, &c, &e, dg_openai_read_completion, body));
        dg_chat_clear(&c);
    }
    ck_assert(dg_test_judge(first.constraint, "{\"a\": 1}") == DGEMMA_ACCEPTED);
    ck_assert(read_with(cache, &c, &e, CHAT("'json_schema':" SCHEMA)));
    ck_assert(c.constraint != first.constraint);
    dg_chat_clear(&c);
    dg_chat_clear(&first);
    dg_constraint_cache_free(cache);
}
END_TEST

START_TEST(test_no_memory)
{
    static const held list[] = {
        {CHAT("'response_format':{'type':'json_schema','json_schema':{'schema':" SCHEMA "}}"), "",
         ""},
        {CLAUDE("'output_format':{'type':'json_schema','schema':" SCHEMA "}"), "", ""},
        {CHAT("'guided_choice':['yes','no']"), "", ""},
    };
    for (long n = 1;; n++) {
        dg_constraint_cache *cache = dg_constraint_cache_create();
        dg_chat c;
        dg_http_error e = {0};
        dg_test_fail_alloc_at(n);
        bool ok = read_with(cache, &c, &e, list[_i].read, list[_i].body);
        bool reached = dg_test_alloc_done();
        if (ok)
            dg_chat_clear(&c);
        dg_constraint_cache_free(cache);
        ck_assert(ok || e.status >= 400);
        if (!reached) {
            ck_assert(ok);
            break;
        }
    }
}
END_TEST

Suite *answer_form_suite(void)
{
    Suite *s = suite_create("answer_form");
    TCase *c = tcase_create("answer_form");
    tcase_add_loop_test(c, test_every_dialect, 0, sizeof helds / sizeof *helds);
    tcase_add_loop_test(c, test_refusals, 0, sizeof refusals / sizeof *refusals);
    tcase_add_loop_test(c, test_turns, 0, sizeof turns / sizeof *turns);
    tcase_add_test(c, test_turns_that_are_free);
    tcase_add_test(c, test_tools_that_are_refused);
    tcase_add_test(c, test_prompts);
    tcase_add_test(c, test_cache);
    tcase_add_loop_test(c, test_no_memory, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
