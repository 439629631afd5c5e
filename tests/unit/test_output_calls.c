/* Calls of tools in what the model writes: well formed, to be mended, and not to be. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "parsed_output.h"
#include "text/call_syntax.h"

/* The body of a call, between its markers, gives this name and these arguments. */
static void expect_call(const char *body, const char *want)
{
    char output[2048], event[2048];
    snprintf(output, sizeof output, "<|tool_call>%s<tool_call|><|tool_response>", body);
    snprintf(event, sizeof event, "[call 0 %s][end response]", want);
    expect(output, event);
}

/* The body is passed on as what it is, its quotes in plain form. */
static void expect_no_call(const char *body, const char *want)
{
    char output[2048], event[2048];
    snprintf(output, sizeof output, "<|tool_call>%s<tool_call|><turn|>", body);
    snprintf(event, sizeof event, "[broken %s][end turn]", want);
    expect(output, event);
}

static void expect_either(bool is_call, const char *body, const char *want)
{
    if (is_call)
        expect_call(body, want);
    else
        expect_no_call(body, body);
}

START_TEST(gives_calls)
{
    expect_call(
        "call:get_weather{city:" Q "Paris" Q ",days:2,opts:{wind:true},tags:[" Q "a" Q "," Q "b" Q
        "],unit:null}",
        "get_weather {\"city\":\"Paris\",\"days\":2,\"opts\":{\"wind\":true},\"tags\":[\"a\","
        "\"b\"],\"unit\":null}");
    expect_call("call:f{}", "f {}");
    expect_call("call:f{a:-1.5e-3,b:false,c:[],d:{},e:" Q Q "}",
                "f {\"a\":-1.5e-3,\"b\":false,\"c\":[],\"d\":{},\"e\":\"\"}");
    expect_call("call:f{s:" Q "a \"quoted\" \\ thing,\n{x:[1]} \t" Q "}",
                "f {\"s\":\"a \\\"quoted\\\" \\\\ thing,\\n{x:[1]} \\t\"}");
    expect_call("call:f{s:" Q "日本語 🦙" Q "}", "f {\"s\":\"日本語 🦙\"}");
    expect_call("call:f{s:\"\\u00E4\\u00e4\\uABCD\"}", "f {\"s\":\"ää\uABCD\"}");
    expect_call(" call: f { a : 1 , b : " Q "x" Q " } ", "f {\"a\":1,\"b\":\"x\"}");
    expect_call("call:my-tool.v2{user-id:1,@type:2,x.y:3}",
                "my-tool.v2 {\"user-id\":1,\"@type\":2,\"x.y\":3}");
    expect_call("call:f{n:12345678901234567890123,z:007,v:1.}",
                "f {\"n\":12345678901234567890123,\"z\":\"007\",\"v\":\"1.\"}");
    expect_call("call:f{" Q "k" Q ":1," Q "l" Q ":{" Q "m" Q ":2}}", "f {\"k\":1,\"l\":{\"m\":2}}");
}
END_TEST

START_TEST(gives_several_calls_and_text)
{
    expect("<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_response>",
           "[call 0 f {\"a\":1}][call 1 g {}][end response]");
    expect("I will look.\n<|tool_call>call:f{}<tool_call|>\n<|tool_call>call:g{}<tool_call|>\n",
           "[text I will look.\n][call 0 f {}][call 1 g {}][end cut]");
    expect("<|channel>thought\nhm\n<channel|>Wait.<|tool_call>call:f{}<tool_call|>Done.<turn|>",
           "[thinking hm][text Wait.][call 0 f {}][text Done.][end turn]");
    expect("<|tool_call>call:f{}call:g{a:1}<tool_call|>",
           "[call 0 f {}][call 1 g {\"a\":1}][end cut]");
    expect("<|tool_call>call:f{}, call:g{}}<tool_call|>", "[call 0 f {}][call 1 g {}][end cut]");
    expect("<|tool_call>call:f{} and now?<tool_call|>", "[call 0 f {}][text and now?][end cut]");
    expect("<|tool_call>call:f{} call:g{b}<tool_call|>",
           "[call 0 f {}][broken call:g{b}][end cut]");
    expect("<|tool_call><tool_call|>Hi<turn|>", "[text Hi][end turn]");
}
END_TEST

START_TEST(ends_calls_by_any_marker)
{
    expect("<|tool_call>call:f{a:1}<turn|>", "[call 0 f {\"a\":1}][end turn]");
    expect("<|tool_call>call:f{a:1}<eos>", "[call 0 f {\"a\":1}][end eos]");
    expect("<|tool_call>call:f{a:1}<|tool_response>", "[call 0 f {\"a\":1}][end response]");
    expect("<|tool_call>call:f{a:1}<|tool_call>call:g{}<tool_call|><tool_call|>",
           "[call 0 f {\"a\":1}][call 1 g {}][end cut]");
    expect("<|tool_call>call:f{a:1}<|channel>thought\nhm\n<channel|>Hi<turn|>",
           "[call 0 f {\"a\":1}][thinking hm][text Hi][end turn]");
    expect("<|tool_call>call:f{<channel|>a:1<pad>}<tool_call|>", "[call 0 f {\"a\":1}][end cut]");
}
END_TEST

START_TEST(repairs_what_is_certain)
{
    /* the word is missing */
    expect_call(":get_weather{city:" Q "Paris" Q "}", "get_weather {\"city\":\"Paris\"}");
    expect_call("get_weather{city:" Q "Paris" Q "}", "get_weather {\"city\":\"Paris\"}");
    /* round brackets */
    expect_call("call:f(k: \"v\")", "f {\"k\":\"v\"}");
    expect_call("call:f(k=\"v\", n=2, l=[1, 'x'])", "f {\"k\":\"v\",\"n\":2,\"l\":[1,\"x\"]}");
    expect_call("call:f()", "f {}");
    expect_call("call:f({\"k\": 1})", "f {\"k\":1}");
    expect_call("call:f{k:1)", "f {\"k\":1}");
    expect_call("call:f(k:1}", "f {\"k\":1}");
    expect("<|tool_call>call:f(k: \"v\")<tool_call|><|tool_call>call:g{a:1}<tool_call|>",
           "[call 0 f {\"k\":\"v\"}][call 1 g {\"a\":1}][end cut]");
    /* other quotes */
    expect_call("call:f{k:\"v\",l:'w'}", "f {\"k\":\"v\",\"l\":\"w\"}");
    expect_call("call:f{k:'it's fine'}", "f {\"k\":\"it's fine\"}");
    expect_call("call:f{k:\"say \"hi\" now\"}", "f {\"k\":\"say \\\"hi\\\" now\"}");
    expect_call("call:f{\"k\": \"a\\n\\u00e4\\ud83e\\udd99\\q\\\"\"}",
                "f {\"k\":\"a\\nä🦙\\\\q\\\"\"}");
    expect_call("call:f{k:\"\\ud83e\"}", "f {\"k\":\"\uFFFD\"}");
    expect_call("call:f{k:\"v" Q "}", "f {\"k\":\"v\"}");
    expect_call("call:f{k:\"v\\" Q "}", "f {\"k\":\"v\\\\\"}");
    /* a last string that is not closed */
    expect_call("call:f{a:1,k:" Q "Paris}", "f {\"a\":1,\"k\":\"Paris\"}");
    expect_call("call:f{k:" Q "Paris\"}", "f {\"k\":\"Paris\"}");
    expect_call("call:f{k:\"Paris}", "f {\"k\":\"Paris\"}");
    expect_call("call:f{o:{k:" Q "int main() {}}}", "f {\"o\":{\"k\":\"int main() {}\"}}");
    expect_call("call:f{k:" Q "Paris", "f {\"k\":\"Paris\"}");
    /* brackets are missing at the end, or too many */
    expect_call("call:f{k:1", "f {\"k\":1}");
    expect_call("call:f{o:{l:[1,2", "f {\"o\":{\"l\":[1,2]}}");
    expect_call("call:f{k:" Q "v" Q, "f {\"k\":\"v\"}");
    expect_call("call:f{k:1}}", "f {\"k\":1}");
    expect_call("call:f{k:1,}", "f {\"k\":1}");
    expect_call("call:f", "f {}");
    /* bare text and Python's words */
    expect_call("call:f{q:hello world,u:https://a.b/c?d=1,t:12:30}",
                "f {\"q\":\"hello world\",\"u\":\"https://a.b/c?d=1\",\"t\":\"12:30\"}");
    expect_call("call:f{a:True,b:False,c:None,d:NaN}",
                "f {\"a\":true,\"b\":false,\"c\":null,\"d\":\"NaN\"}");
}
END_TEST

START_TEST(takes_json_for_a_call)
{
    expect_call("{\"name\": \"f\", \"arguments\": {\"k\": [1, {\"x\": null}]}}",
                "f {\"k\":[1,{\"x\":null}]}");
    expect_call("call:{\"name\": \"f\", \"parameters\": {}}", "f {}");
    expect_call("{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\": "
                "1}\"}}",
                "f {\"k\": 1}");
    expect_call("{\"name\":\"f\"}", "f {}");
    expect_call("{name:" Q "f" Q ",arguments:{k:" Q "v" Q "}}", "f {\"k\":\"v\"}");
    expect_no_call("{\"arguments\":{}}", "{\"arguments\":{}}");
    expect_no_call("{\"name\":\"f\",\"arguments\":[1]}", "{\"name\":\"f\",\"arguments\":[1]}");
    expect_no_call("{\"name\":\"f\",\"arguments\":\"[]\"}",
                   "{\"name\":\"f\",\"arguments\":\"[]\"}");
}
END_TEST

START_TEST(passes_on_what_is_not)
{
    expect_no_call("call:f{hello}", "call:f{hello}");
    expect_no_call("call:f{q:hello, world}", "call:f{q:hello, world}");
    expect_no_call("call:f{a:" Q "x,b:" Q "y" Q "}", "call:f{a:\"x,b:\"y\"}");
    expect_no_call("call:f{a:,b:1}", "call:f{a:,b:1}");
    expect_no_call("call:f{a:[1}", "call:f{a:[1}");
    expect_no_call("call:{}", "call:{}");
    expect_no_call("call: two words{}", "call: two words{}");
    expect_no_call("I cannot do that.", "I cannot do that.");
    expect_no_call("f", "f");
}
END_TEST

/* Brackets and quotes at the end of a string that is not closed: its own, or the call's? */
START_TEST(repairs_nothing_that_is_not)
{
    /* there is one way to give each its pair */
    expect_call("call:f{k:" Q "if (x) { y(); }", "f {\"k\":\"if (x) { y(); }\"}");
    expect_call("call:f{k:" Q "if (x) { y(); }}", "f {\"k\":\"if (x) { y(); }\"}");
    expect_call("call:f{l:[" Q "a[0]", "f {\"l\":[\"a[0]\"]}");
    expect_call("call:f{l:[" Q "a[0]]", "f {\"l\":[\"a[0]\"]}");
    expect_call("call:f{l:[" Q "a[0]]}", "f {\"l\":[\"a[0]\"]}");
    expect_call("call:f{o:{k:" Q "x }", "f {\"o\":{\"k\":\"x\"}}");
    expect_call("call:f{k:" Q "Hello :)", "f {\"k\":\"Hello :)\"}");
    expect_call("call:f{k:" Q "Hello :)}", "f {\"k\":\"Hello :)\"}");
    expect_call("call:f(k=" Q "g(x)", "f {\"k\":\"g(x)\"}");
    expect_call("call:f(k=" Q "g(x))", "f {\"k\":\"g(x)\"}");
    expect_call("call:f{k:" Q "say \"hi\"}", "f {\"k\":\"say \\\"hi\\\"\"}");
    expect_call("call:f{k:" Q "say \"hi\"\"}", "f {\"k\":\"say \\\"hi\\\"\"}");
    expect_call("call:f{k:" Q "the dogs'}", "f {\"k\":\"the dogs'\"}");
    /* there is none */
    expect_no_call("call:f{k:" Q "if (x) { y();", "call:f{k:\"if (x) { y();");
    expect_no_call("call:f{k:" Q "x}}", "call:f{k:\"x}}");
    expect_no_call("call:f{l:[" Q "a}", "call:f{l:[\"a}");
    expect_no_call("call:f{k:" Q "x] }", "call:f{k:\"x] }");
    expect_no_call("call:f{k:" Q "x { ] }", "call:f{k:\"x { ] }");
    expect_no_call("call:f{k:" Q "a" Q " b:2}", "call:f{k:\"a\" b:2}");
    expect_no_call("call:f{l:[" Q "a" Q Q "b" Q "]}", "call:f{l:[\"a\"\"b\"]}");
    expect_no_call("call:f(k=" Q "x :))", "call:f(k=\"x :))");
    /* another member may be inside */
    expect_no_call("call:f{a:" Q "x,b:2}", "call:f{a:\"x,b:2}");
    expect_no_call("call:f{a:" Q "x, b:2}", "call:f{a:\"x, b:2}");
    expect_no_call("call:f(a=" Q "x, b=2)", "call:f(a=\"x, b=2)");
    expect_no_call("call:f{l:[" Q "x,y]}", "call:f{l:[\"x,y]}");
    expect_call("call:f{a:" Q "Yes, I do}", "f {\"a\":\"Yes, I do\"}");
    expect_call("call:f{a:" Q "x, y=2}", "f {\"a\":\"x, y=2\"}");
    /* a quote that may close a string or be part of it */
    expect_no_call("call:f{k:\"C:\\\"}", "call:f{k:\"C:\\\"}");
    expect_no_call("call:f{k:\"{x \"y\"}\"}", "call:f{k:\"{x \"y\"}\"}");
    expect_call("call:f{k:\"print(\"hi\")\"}", "f {\"k\":\"print(\\\"hi\\\")\"}");
    expect_call("call:f{k:\"v\")", "f {\"k\":\"v\"}");
    expect_call("call:f{k:\"a {\",b:1}", "f {\"k\":\"a {\",\"b\":1}");
    expect("<|tool_call>call:f{k:\"v\"} call:g{k:\"w\"} it's done<tool_call|>",
           "[call 0 f {\"k\":\"v\"}][call 1 g {\"k\":\"w\"}][text it's done][end cut]");
    /* a round bracket of a bare text */
    expect_call("call:f{q:hello (world)", "f {\"q\":\"hello (world)\"}");
    expect_call("call:f{q:hello (world)}", "f {\"q\":\"hello (world)\"}");
    expect_call("call:f(q=hello (world))", "f {\"q\":\"hello (world)\"}");
    expect_no_call("call:f{q:hello :)", "call:f{q:hello :)");
}
END_TEST

START_TEST(reads_odd_characters)
{
    char body[512], want[512], name[160];
    /* halves of pairs, alone or with the wrong neighbour */
    expect_call("call:f{k:\"\\udd99\\udd99\"}", "f {\"k\":\"\uFFFD\uFFFD\"}");
    expect_call("call:f{k:\"\\ud83e\\ud83e\\udd99\"}", "f {\"k\":\"\uFFFD🦙\"}");
    expect_call("call:f{k:\"\\ud83e\\ue000\"}", "f {\"k\":\"\uFFFD\uE000\"}");
    expect_call("call:f{k:\"\\u00e\"}", "f {\"k\":\"\\\\u00e\"}");
    expect_call("call:f{k:\"\\u00\"}", "f {\"k\":\"\\\\u00\"}");
    expect_call("call:f{k:\"\\u0000\\b\\/\"}", "f {\"k\":\"\\u0000\\u0008/\"}");
    /* controls, as they stand */
    expect_call("call:f{k:" Q "a\x01\x1f\x7f\rb" Q "}",
                "f {\"k\":\"a\\u0001\\u001f\x7f\\u000db\"}");
    /* names */
    expect_call("call:dir/ns:tool-1.x{}", "dir/ns:tool-1.x {}");
    expect_call("call:wetter_für_🦙{}", "wetter_für_🦙 {}");
    memset(name, 'n', sizeof name);
    for (int n = DG_CALL_MAX_NAME; n <= DG_CALL_MAX_NAME + 1; n++) {
        snprintf(body, sizeof body, "call:%.*s{}", n, name);
        snprintf(want, sizeof want, "%.*s {}", n, name);
        expect_either(n == DG_CALL_MAX_NAME, body, want);
        snprintf(body, sizeof body, "{\"name\":\"%.*s\"}", n, name);
        expect_either(n == DG_CALL_MAX_NAME, body, want);
    }
    /* brackets of the wrong kind, inside */
    expect_no_call("call:f{o:{k:" Q "x" Q ")}", "call:f{o:{k:\"x\")}");
    expect_no_call("call:f{l:[1)}", "call:f{l:[1)}");
    expect_no_call("call:f{k:" Q "{a]}", "call:f{k:\"{a]}");
    expect_no_call(" I cannot do that.\n", "I cannot do that.");
    expect("<|tool_call>call:f{}<tool_call|>\n<tool_call|>Hi<turn|>",
           "[call 0 f {}][text \nHi][end turn]");
    expect("<|tool_call>call:f{};call:g{}<tool_call|>", "[call 0 f {}][call 1 g {}][end cut]");
    expect("<|tool_call>call:f{} g{}<tool_call|>", "[call 0 f {}][text g{}][end cut]");
}
END_TEST

START_TEST(makes_no_half_calls)
{
    expect("<|tool_call>call:f{a:1}", "[call 0 f {\"a\":1}][end cut]");
    expect("<|tool_call>call:f{a:" Q "x}", "[broken call:f{a:\"x}][end cut]");
    expect("<|tool_call>call:f{a:1", "[broken call:f{a:1][end cut]");
    expect("<|tool_call>call:f{a:" Q "x" Q, "[broken call:f{a:\"x\"][end cut]");
    expect("<|tool_call>call:f{a:" Q "x", "[broken call:f{a:\"x][end cut]");
    expect("<|tool_call>call:f{a:\"x", "[broken call:f{a:\"x][end cut]");
    expect("<|tool_call>call:f", "[broken call:f][end cut]");
    expect("<|tool_call>", "[end cut]");
}
END_TEST

/* The prompt opened a call: it is the model's once it says something of it, and the next is one
 * like any. */
START_TEST(goes_on_with_a_call)
{
    static const char given[] = "<|tool_call>call:get_weather{";
    static const char *const cases[][2] = {
        {"city:1}<tool_call|><|tool_call>call:f{}<tool_call|>",
         "[call 0 get_weather {\"city\":1}][call 1 f {}][end cut]"},
        {"}<turn|>", "[call 0 get_weather {}][end turn]"},
        {"<turn|>", "[broken call:get_weather{][end turn]"},
        {" \n<turn|>", "[broken call:get_weather{][end turn]"},
        {"<|tool_call>call:f{}<tool_call|>", "[broken call:get_weather{][call 0 f {}][end cut]"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        parsed_record r;
        dg_tokens opening, tokens;
        parsed_encode(given, &opening);
        parsed_encode(cases[i][0], &tokens);
        dg_output_parser *p = parsed_open(&r, NULL, -1);
        ck_assert_int_eq(dg_output_parser_open(p, opening.ids, opening.n, NULL), 0);
        for (size_t k = 0; k < tokens.n; k++)
            ck_assert_int_eq(dg_output_parser_push(p, &tokens.ids[k], 1, NULL), 0);
        ck_assert_int_eq(dg_output_parser_finish(p, NULL), 0);
        ck_assert_str_eq(r.text.data, cases[i][1]);
        parsed_close(p, &r);
        dg_tokens_clear(&opening);
        dg_tokens_clear(&tokens);
    }
}
END_TEST

/* n levels of lists around a number, as a call and as the arguments it should give. */
static void nest(int n, dg_buf *output, dg_buf *want)
{
    dg_buf_init(output, 1 << 20);
    dg_buf_init(want, 1 << 20);
    dg_buf_puts(output, "<|tool_call>call:f{a:");
    dg_buf_puts(want, "[call 0 f {\"a\":");
    for (int i = 0; i < n; i++) {
        dg_buf_puts(output, "[");
        dg_buf_puts(want, "[");
    }
    dg_buf_puts(output, "1");
    dg_buf_puts(want, "1");
    for (int i = 0; i < n; i++) {
        dg_buf_puts(output, "]");
        dg_buf_puts(want, "]");
    }
    dg_buf_puts(output, "}<tool_call|>");
    dg_buf_puts(want, "}][end cut]");
}

START_TEST(bounds_depth_and_size)
{
    dg_buf output, want;
    nest(63, &output, &want);
    expect(output.data, want.data);
    dg_buf_clear(&output);
    dg_buf_clear(&want);
    nest(64, &output, &want);
    dg_tokens tokens;
    parsed_encode(output.data, &tokens);
    dg_buf got;
    parsed_whole(&tokens, &got);
    ck_assert_ptr_nonnull(strstr(got.data, "[broken call:f{a:[["));
    dg_buf_clear(&got);
    dg_buf_clear(&output);
    dg_buf_clear(&want);
    dg_tokens_clear(&tokens);

    /* more than a call may have: all of it comes out as text */
    size_t n = (DG_OUTPUT_MAX_CALL + 4096) / 4;
    dg_tokens_init(&tokens, 2 * n);
    dg_tokens_push(&tokens, dg_tokenizer_added_id(parsed_tokenizer, "<|tool_call>"));
    dg_tokens word;
    parsed_encode("aaaa", &word);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < word.n; k++)
            dg_tokens_push(&tokens, word.ids[k]);
    dg_tokens_push(&tokens, dg_tokenizer_added_id(parsed_tokenizer, "<tool_call|>"));
    parsed_whole(&tokens, &got);
    ck_assert_uint_eq(got.len, strlen("[broken [text ") + 4 * n + strlen("][end cut]") + 1);
    dg_buf_clear(&got);
    dg_tokens_clear(&tokens);
    dg_tokens_clear(&word);
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_test(c, gives_calls);
    tcase_add_test(c, gives_several_calls_and_text);
    tcase_add_test(c, ends_calls_by_any_marker);
    tcase_add_test(c, repairs_what_is_certain);
    tcase_add_test(c, takes_json_for_a_call);
    tcase_add_test(c, passes_on_what_is_not);
    tcase_add_test(c, repairs_nothing_that_is_not);
    tcase_add_test(c, reads_odd_characters);
    tcase_add_test(c, makes_no_half_calls);
    tcase_add_test(c, goes_on_with_a_call);
}

Suite *output_calls_suite(void)
{
    return parsed_suite("output_calls", add_tests, bounds_depth_and_size);
}
