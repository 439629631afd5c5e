/* The server's pure parts: keys and origins, bodies, answers that are written, the metrics page. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "server/auth.h"
#include "server/exchange.h"
#include "server/fetch.h"
#include "server/json_body.h"
#include "server/json_text.h"
#include "server/gpu.h"
#include "server/metrics.h"
#include "server/openai_request.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/chat_limits.h"
#include "support/judge.h"

static bool read_chat(dg_chat *c, const char *body, dg_http_error *e)
{
    json_t *root = dg_json_body(body, strlen(body), e);
    return root && dg_openai_read_chat(c, root, &dg_test_chat_limits, 7, e);
}

/* ---- who may ask ---- */

START_TEST(test_keys)
{
    const char *words[] = {"alpha", "beta"};
    dg_words keys = {words, 2};
    ck_assert_int_eq(dg_auth_key((dg_words){0}, NULL, NULL), 0);
    ck_assert_int_eq(dg_auth_key((dg_words){0}, "Bearer x", NULL), 0);
    ck_assert_int_eq(dg_auth_key(keys, NULL, NULL), -1);
    ck_assert_int_eq(dg_auth_key(keys, "Bearer alpha", NULL), 1);
    ck_assert_int_eq(dg_auth_key(keys, "bearer beta", NULL), 2);
    ck_assert_int_eq(dg_auth_key(keys, NULL, "beta"), 2);
    ck_assert_int_eq(dg_auth_key(keys, "Bearer nothing", "alpha"), 1);
    ck_assert_int_eq(dg_auth_key((dg_words){(const char *[]){"a", "a", "b"}, 3}, NULL, "a"), 1);
    static const char *const wrong[] = {
        "Bearer alph",   "Bearer alphaalpha", "Bearer ", "alpha",
        "Bearer  alpha", "Bearer alphb",      "",        "Basic= alpha"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(dg_auth_key(keys, wrong[i], NULL) < 0, "\"%s\" was let in", wrong[i]);
}
END_TEST

START_TEST(test_origins)
{
    const char *words[] = {"https://a.example"};
    dg_words some = {words, 1}, none = {0};
    ck_assert(dg_origin_allows(none, NULL, "localhost:1"));
    ck_assert(dg_origin_allows(none, "http://localhost:1", "localhost:1"));
    ck_assert(!dg_origin_allows(none, "http://localhost:2", "localhost:1"));
    ck_assert(!dg_origin_allows(none, "null", "null"));
    ck_assert(!dg_origin_allows(none, "http://x", NULL));
    ck_assert(dg_origin_allows(some, "https://a.example", "localhost:1"));
    ck_assert(dg_origin_allows(some, "HTTPS://A.Example", "localhost:1"));
    ck_assert(!dg_origin_listed(some, "https://b.example"));
    ck_assert(!dg_origin_listed(some, NULL));
    const char *star[] = {"*"};
    ck_assert(dg_origin_listed((dg_words){star, 1}, "https://b.example"));
}
END_TEST

START_TEST(test_hosts)
{
    const char *words[] = {"https://a.example", "http://b.example:99"};
    dg_words some = {words, 2}, none = {0};
    static const char *const own[] = {
        "localhost", "LocalHost:8080", "127.0.0.1:1", "10.0.0.1",
        "[::1]:80",  "[fe80::1]",      "box:1",       "host.docker.internal:8080",
        "box.local", "a.b.localhost",
    };
    static const char *const others[] = {
        "evil.example",
        "localhost.evil.example:80",
        "",
        ":80",
        "127.0.0.1.evil.example",
        "[::1",
        "[",
        "[x]",
        "[box]",
        "a.example.evil",
        "aa.example",
        "local.evil.example",
        ".internal",
        "evillocal.example",
        "localhost.",
    };
    ck_assert(dg_host_allows(none, NULL));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        ck_assert_msg(dg_host_allows(none, own[i]), "%s", own[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!dg_host_allows(some, others[i]), "%s", others[i]);
    ck_assert(!dg_host_allows(none, "a.example"));
    ck_assert(dg_host_allows(some, "a.example"));
    ck_assert(dg_host_allows(some, "A.example:8080"));
    ck_assert(dg_host_allows(some, "b.example"));
    char longer[600];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ck_assert(!dg_host_allows(some, longer));
    const char *star[] = {"*"};
    ck_assert(dg_host_allows((dg_words){star, 1}, "anything"));
}
END_TEST

/* ---- where pictures may be fetched ---- */

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return dg_address_is_public((const struct sockaddr *)&v4);
    ck_assert_int_eq(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return dg_address_is_public((const struct sockaddr *)&v6);
}

START_TEST(test_public_addresses)
{
    static const char *const open[] = {
        "1.1.1.1",         "9.255.255.255", "11.0.0.0",     "100.63.255.255",  "100.128.0.0",
        "126.255.255.255", "128.0.0.0",     "172.15.0.1",   "172.32.0.0",      "192.0.1.0",
        "192.169.0.0",     "198.17.0.1",    "198.20.0.0",   "223.255.255.255", "2606:4700::1111",
        "2a00:1450::1",    "2001:4860::1",  "3fff:ffff::1",
    };
    static const char *const closed[] = {
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.1.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:1.1.1.1",
        "::1.1.1.1",
        "64:ff9b::101:101",
        "fc00::1",
        "fe80::1",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "2002:7f00:1::",
    };
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        ck_assert_msg(is_public(open[i]), "%s", open[i]);
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        ck_assert_msg(!is_public(closed[i]), "%s", closed[i]);
    ck_assert(!dg_address_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}
END_TEST

/* ---- bodies ---- */

START_TEST(test_chat_fields)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":2,\"seed\":-1,"
                        "\"temperature\":0,\"top_k\":-1,\"top_p\":0.5,\"min_p\":0.1,"
                        "\"max_tokens\":9,\"max_completion_tokens\":8,\"stop\":\"end\","
                        "\"logit_bias\":{\"7\":-2.5},\"logprobs\":true,\"top_logprobs\":3,"
                        "\"stream\":true,\"reasoning_effort\":\"high\",\"thinking_budget\":50,"
                        "\"diffusion\":{\"steps\":4,\"settled_steps\":2,\"drafts\":true}}",
                        &e));
    const dgemma_request_options *o = &c.options;
    ck_assert_int_eq(c.n_choice, 2);
    ck_assert(o->seed == UINT64_MAX);
    ck_assert_float_eq(o->temperature, 0);
    ck_assert_int_eq(o->top_k, 0);
    ck_assert_float_eq(o->top_p, 0.5f);
    ck_assert_float_eq(o->min_p, 0.1f);
    ck_assert_int_eq(o->max_tokens, 8);
    ck_assert_uint_eq(o->n_stop, 1);
    ck_assert_str_eq(o->stop[0], "end");
    ck_assert_int_eq(o->logit_bias[0].token, 7);
    ck_assert_float_eq(o->logit_bias[0].bias, -2.5f);
    ck_assert_int_eq(o->n_logprobs, 3);
    ck_assert(o->thinking && o->thinking_budget == 50);
    ck_assert_int_eq(o->max_denoise_steps, 4);
    ck_assert_int_eq(o->settled_steps, 2);
    ck_assert(c.stream && o->drafts);
    dg_chat_clear(&c);
}
END_TEST

START_TEST(test_chat_defaults)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &e));
    ck_assert_uint_eq(c.options.seed, 7);
    ck_assert_int_eq(c.options.max_tokens, 4096);
    ck_assert_float_eq(c.options.temperature, 1);
    ck_assert_int_eq(c.options.n_logprobs, -1);
    ck_assert(!c.stream && !c.options.thinking && !c.options.tools);
    dg_chat_clear(&c);
}
END_TEST

/* Text without turns need not end. */
START_TEST(test_completion_length)
{
    static const struct {
        const char *body;
        int n;
    } cases[] = {
        {"{\"prompt\":\"x\"}", 256},
        {"{\"prompt\":\"x\",\"max_tokens\":null}", 256},
        {"{\"prompt\":\"x\",\"diffusion\":{\"canvas_length\":8}}", 256},
        {"{\"prompt\":\"x\",\"max_tokens\":500}", 500},
        {"{\"prompt\":\"x\",\"max_tokens\":-1}", 4096},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_chat c;
        dg_http_error e;
        json_t *root = dg_json_body(cases[i].body, strlen(cases[i].body), &e);
        ck_assert(dg_openai_read_completion(&c, root, &dg_test_chat_limits, 7, &e));
        ck_assert_int_eq(c.options.max_tokens, cases[i].n);
        dg_chat_clear(&c);
    }
}
END_TEST

/* The explicit switch beats the effort, whatever their order. */
START_TEST(test_thinking)
{
    static const struct {
        const char *fields;
        bool on;
    } cases[] = {
        {"\"reasoning_effort\":\"none\"", false},
        {"\"reasoning_effort\":\"low\"", true},
        {"\"chat_template_kwargs\":{\"enable_thinking\":true}", true},
        {"\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":\"high\"",
         false},
        {"\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dg_chat c;
        dg_http_error e;
        char body[256];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                 cases[i].fields);
        ck_assert(read_chat(&c, body, &e));
        ck_assert_msg(c.options.thinking == cases[i].on, "%s", cases[i].fields);
        dg_chat_clear(&c);
    }
}
END_TEST

#define TOOLS                                                                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"                                        \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"               \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":0.1}}}}}]"

/* The answer is a call of `one`, never of `other` and never text; nothing is put into the model's
 * mouth. */
static void check_forced(const dg_chat *c, const char *one, const char *other)
{
    char call[64];
    snprintf(call, sizeof call, "<|tool_call>call:%s{}<tool_call|>", one);
    ck_assert_int_eq(dg_test_judge(c->constraint, call), DGEMMA_ACCEPTED);
    snprintf(call, sizeof call, "<|tool_call>call:%s", other);
    ck_assert_int_eq(dg_test_judge(c->constraint, call), DGEMMA_REJECTED);
    ck_assert_int_eq(dg_test_judge(c->constraint, "H"), DGEMMA_REJECTED);
    ck_assert_int_eq(c->options.tool_choice, DGEMMA_TOOLS_AUTO);
}

START_TEST(test_tools)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c, "{" TOOLS "}", &e));
    ck_assert_int_eq(c.options.tool_choice, DGEMMA_TOOLS_AUTO);
    ck_assert_ptr_nonnull(strstr(c.options.tools, "{\"minimum\":0.1}")); /* as it was written */
    ck_assert_int_eq(dg_test_judge(c.constraint, "Hello"), DGEMMA_ACCEPTED);
    dg_chat_clear(&c);
    ck_assert(read_chat(&c, "{" TOOLS ",\"tool_choice\":\"none\"}", &e));
    ck_assert_ptr_null(c.options.tools);
    dg_chat_clear(&c);
    ck_assert(read_chat(
        &c, "{" TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false}", &e));
    ck_assert(c.options.single_tool_call);
    check_forced(&c, "f", "g");
    dg_chat_clear(&c);
    ck_assert(read_chat(
        &c, "{" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}",
        &e));
    check_forced(&c, "f", "g");
    dg_chat_clear(&c);
    ck_assert(!read_chat(
        &c, "{" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
        &e));
    ck_assert_int_eq(e.status, 400);
    ck_assert_str_eq(e.param, "tool_choice");
}
END_TEST

#define TWO_TOOLS                                                                                  \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"                                        \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"
#define ALLOW_G(mode)                                                                              \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode              \
    "\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}},"                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}"

START_TEST(test_some_tools)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c, "{" TWO_TOOLS ",\"tool_choice\":\"required\"}", &e));
    check_forced(&c, "f", "h");
    check_forced(&c, "g", "h");
    dg_chat_clear(&c);
    ck_assert(read_chat(&c, "{" TWO_TOOLS "," ALLOW_G("auto") "}", &e));
    ck_assert_int_eq(c.options.tool_choice, DGEMMA_TOOLS_AUTO);
    ck_assert_str_eq(c.options.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]");
    ck_assert_int_eq(dg_test_judge(c.constraint, "<|tool_call>call:g{"), DGEMMA_PREFIX);
    ck_assert_int_eq(dg_test_judge(c.constraint, "<|tool_call>call:f{"), DGEMMA_REJECTED);
    dg_chat_clear(&c);
    ck_assert(read_chat(&c, "{" TWO_TOOLS "," ALLOW_G("required") "}", &e));
    check_forced(&c, "g", "f");
    dg_chat_clear(&c);
    ck_assert(!read_chat(&c, "{" TOOLS "," ALLOW_G("auto") "}", &e));
    ck_assert_str_eq(e.param, "tool_choice");
}
END_TEST

#define FUNCTIONS                                                                                  \
    "\"functions\":[{\"name\":\"f\"}],\"function_call\":{\"name\":\"f\"},"                         \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","                 \
    "\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},"                                    \
    "{\"role\":\"function\",\"name\":\"f\",\"content\":\"y\"}]"

START_TEST(test_functions)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c, "{" FUNCTIONS "}", &e));
    ck_assert(c.old_functions && c.options.single_tool_call);
    check_forced(&c, "f", "g");
    ck_assert_str_eq(c.options.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
    ck_assert_ptr_nonnull(strstr(c.messages, "\"tool_calls\":[{\"id\":\"call_1\","));
    ck_assert_ptr_nonnull(strstr(c.messages, "\"role\":\"tool\""));
    ck_assert_ptr_nonnull(strstr(c.messages, "\"tool_call_id\":\"call_1\""));
    dg_chat_clear(&c);
}
END_TEST

/* The wish for JSON goes where instructions are looked for; the answer's beginning leaves the
 * conversation. */
START_TEST(test_messages)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_chat(&c,
                        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                        "{\"role\":\"user\",\"content\":\"x\"}],"
                        "\"response_format\":{\"type\":\"json_object\"}}",
                        &e));
    ck_assert(c.any_object);
    ck_assert_int_eq(dg_test_judge(c.constraint, "{}"), DGEMMA_ACCEPTED);
    ck_assert_ptr_nonnull(strstr(c.messages, "Be brief.\\n\\nAnswer with one JSON object"));
    dg_chat_clear(&c);
    ck_assert(read_chat(&c,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                        "\"response_format\":{\"type\":\"json_object\"}}",
                        &e));
    ck_assert_ptr_nonnull(strstr(c.messages, "[{\"role\":\"system\",\"content\":\"Answer with"));
    dg_chat_clear(&c);
    ck_assert(read_chat(&c,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                        "{\"role\":\"assistant\",\"content\":\"Once\"}],"
                        "\"continue_final_message\":true}",
                        &e));
    ck_assert_str_eq(c.options.answer_prefix, "Once");
    ck_assert_ptr_null(strstr(c.messages, "Once"));
    dg_chat_clear(&c);
}
END_TEST

START_TEST(test_no_memory)
{
    static const char *const bodies[] = {
        "{" TOOLS ",\"stop\":[\"a\"],\"logit_bias\":{\"1\":1},"
        "\"response_format\":{\"type\":\"json_object\"}}",
        "{" TWO_TOOLS "," ALLOW_G("required") "}",
        "{" FUNCTIONS "}",
    };
    const char *body = bodies[_i];
    for (long n = 1;; n++) {
        dg_chat c;
        dg_http_error e = {0};
        dg_test_fail_alloc_at(n);
        bool ok = read_chat(&c, body, &e);
        bool reached = dg_test_alloc_done();
        if (ok)
            dg_chat_clear(&c);
        ck_assert(ok || e.status >= 400);
        if (!reached) {
            ck_assert(ok);
            break;
        }
    }
}
END_TEST

/* ---- text ---- */

START_TEST(test_json_text)
{
    json_t *t = dg_json_text("a\xFF\xC3\xA4\xE2\x82z", 7);
    ck_assert_str_eq(json_string_value(t), "a\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBDz");
    json_decref(t);
    t = dg_json_text("", 0);
    ck_assert_str_eq(json_string_value(t), "");
    json_decref(t);
}
END_TEST

/* What clients send and a strict parser refuses. */
START_TEST(test_json_mended)
{
    static const struct {
        const char *text, *mended;
    } cases[] = {
        {"[\"a\\u0000b\"]", "[\"a\xEF\xBF\xBD"
                            "b\"]"},
        {"[\"\\ud83d\"]", "[\"\xEF\xBF\xBD\"]"},
        {"[\"\\ud83dx\\ude00\"]", "[\"\xEF\xBF\xBDx\xEF\xBF\xBD\"]"},
        {"[\"\\ud83d\\ud83d\\ude00\"]", "[\"\xEF\xBF\xBD\xF0\x9F\x98\x80\"]"},
        {"[\"\\ud83d\\u0041\\\\ud83d\"]", "[\"\xEF\xBF\xBD"
                                          "A\\\\ud83d\"]"},
        {"[18446744073709551616,-9999999999999999999,7]",
         "[1.84467440737095e19,-9.99999999999999e18,7]"},
        {"{\"12345678901234567890\":\"12345678901234567890 \\u0000\"}",
         "{\"12345678901234567890\":\"12345678901234567890 \xEF\xBF\xBD\"}"},
        {"[1234567890123456789012.5,18446744073709551616]",
         "[1.23456789012346e21,1.84467440737095e19]"},
        {"{\"seed\" : 18446744073709551615,\"a\":18446744073709551615}",
         "{\"seed\":-1,\"a\":1.84467440737095e19}"},
        {"{\"options\":{\"seed\":9223372036854775808},\"b\":7}",
         "{\"options\":{\"seed\":-9223372036854775808},\"b\":7}"},
        {"[9223372036854775807,-9223372036854775808,9223372036854775808]",
         "[9223372036854775807,-9223372036854775808,9.22337203685477e18]"},
        {"{\"seed\":18446744073709551616}", "{\"seed\":1.84467440737095e19}"},
        {"{\"a\":[{\"seed\":18446744073709551615}]}", "{\"a\":[{\"seed\":1.84467440737095e19}]}"},
        {"{\"a\":\"\\\"seed\\\":18446744073709551615 \\u0000\"}",
         "{\"a\":\"\\\"seed\\\":18446744073709551615 \xEF\xBF\xBD\"}"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        json_error_t why;
        json_t *value = dg_json_load(cases[i].text, strlen(cases[i].text), &why);
        ck_assert_msg(value, "%s: %s", cases[i].text, why.text);
        char *text = dg_json_dump(value, NULL);
        ck_assert_str_eq(text, cases[i].mended);
        dg_free(text);
        json_decref(value);
    }
    static const char *const broken[] = {
        "[\"\\u00",   "[\"\\ud83d\\u",         "[\"\\", "[12345678901234567890", "",
        "[\"\xFF\"]", "[01234567890123456789]"};
    for (size_t i = 0; i < DG_COUNT(broken); i++)
        ck_assert_ptr_null(dg_json_load(broken[i], strlen(broken[i]), NULL));
}
END_TEST

/* ---- answers on their way out ---- */

static void count_wakes(void *n)
{
    ++*(int *)n;
}

START_TEST(test_exchange)
{
    dg_exchange x;
    char out[64];
    int n_wake = 0;
    ck_assert(dg_exchange_init(&x, count_wakes, &n_wake));
    dg_exchange_write(&x, "early", 5); /* nobody said yet what it will be */
    dg_exchange_open(&x, "text/event-stream");
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), 0);
    dg_exchange_line(&x, json_array());
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), 3);
    ck_assert_mem_eq(out, "[]\n", 3);
    dg_exchange_event(&x, json_pack("{s:i}", "a", 1));
    ck_assert_int_gt(n_wake, 1);
    ck_assert_int_eq(dg_exchange_take(&x, out, 6), 6);
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), 9);
    ck_assert_mem_eq(out, "{\"a\":1}\n\n", 9);
    dg_exchange_reply(&x, 500, json_object()); /* too late: it is a stream */
    ck_assert_int_eq(x.status, 200);
    dg_exchange_close(&x);
    dg_exchange_write(&x, "late", 4);
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), -1);
    dg_exchange_clear(&x);

    ck_assert(dg_exchange_init(&x, NULL, NULL));
    dg_http_error e;
    dg_refuse(&e, 404, NULL, NULL, "no");
    dg_exchange_refuse(&x, &e);
    ck_assert_int_eq(x.status, 404);
    ck_assert_int_eq(x.retry_after, -1);
    dg_exchange_open(&x, "text/event-stream"); /* too late: it is a reply */
    ck_assert_int_eq(x.status, 404);
    ck_assert_str_eq(x.content_type, "application/json");
    ck_assert_int_gt(dg_exchange_take(&x, out, sizeof out), 0);
    dg_exchange_clear(&x);
}
END_TEST

START_TEST(test_exchange_full)
{
    dg_exchange x;
    char out[256], text[300] = {0};
    ck_assert(dg_exchange_init(&x, NULL, NULL));
    x.out.max = 200;
    dg_exchange_reply_text(&x, 200, "text/plain", text, sizeof text);
    ck_assert_int_eq(x.status, 503); /* not 200 and nothing */
    ck_assert_int_gt(dg_exchange_take(&x, out, sizeof out), 0);
    ck_assert_ptr_nonnull(strstr(out, "out_of_memory"));
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), -1);
    dg_exchange_clear(&x);

    ck_assert(dg_exchange_init(&x, NULL, NULL));
    x.out.max = 200;
    dg_exchange_open(&x, "text/plain");
    dg_exchange_write(&x, text, sizeof text);
    dg_exchange_close(&x);
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), -2); /* not as if that were all */
    dg_exchange_clear(&x);
}
END_TEST

/* Who reads slowly, but does read, never has the buffer empty. */
START_TEST(test_exchange_slow_reader)
{
    dg_exchange x;
    char out[100], text[100] = {0};
    ck_assert(dg_exchange_init(&x, NULL, NULL));
    dg_exchange_open(&x, "text/plain");
    for (size_t n = 0; n < DG_OUT_CROWDED; n += 64) {
        ck_assert(!dg_exchange_crowded(&x));
        dg_exchange_write(&x, text, 64);
    }
    ck_assert(!dg_exchange_crowded(&x));
    dg_exchange_write(&x, text, 64);
    ck_assert(dg_exchange_crowded(&x));
    while (dg_exchange_take(&x, out, 64) > 0)
        ;
    ck_assert(!dg_exchange_crowded(&x));
    x.out.max = 1000;
    dg_exchange_write(&x, "first", 5);
    for (int i = 0; i < 100; i++) {
        memset(text, 'a' + i % 26, sizeof text);
        dg_exchange_write(&x, text, sizeof text);
        ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), sizeof out);
        ck_assert(!x.full);
        ck_assert_mem_eq(out + 5, text, 95);
    }
    dg_exchange_close(&x);
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), 5);
    ck_assert_mem_eq(out, text, 5);
    ck_assert_int_eq(dg_exchange_take(&x, out, sizeof out), -1);
    dg_exchange_clear(&x);
}
END_TEST

/* ---- the GPU's own library, in our place ---- */

static int nvml_open;

static int nvml_init(void)
{
    nvml_open++;
    return 0;
}

static int nvml_shutdown(void)
{
    nvml_open--;
    return 0;
}

static int nvml_by_bus(const char *bus_id, void **device)
{
    *device = &nvml_open;
    return strcmp(bus_id, "0000:1b:00.0") != 0;
}

static int nvml_memory(void *device, unsigned long long out[3])
{
    ck_assert_ptr_eq(device, &nvml_open);
    out[0] = 1000;
    out[1] = 400;
    out[2] = 600;
    return 0;
}

static int nvml_utilization(void *device, unsigned out[2])
{
    (void)device;
    out[0] = 37;
    out[1] = 5;
    return 0;
}

static int nvml_temperature(void *device, int sensor, unsigned *celsius)
{
    (void)device;
    *celsius = 61;
    return sensor;
}

/* Power is what this card does not tell. */
static void *find_nvml(void *library, const char *name)
{
    const struct {
        const char *name;
        void *function;
    } all[] = {{"nvmlInit_v2", (void *)nvml_init},
               {"nvmlShutdown", (void *)nvml_shutdown},
               {"nvmlDeviceGetHandleByPciBusId_v2", (void *)nvml_by_bus},
               {"nvmlDeviceGetMemoryInfo", (void *)nvml_memory},
               {"nvmlDeviceGetUtilizationRates", (void *)nvml_utilization},
               {"nvmlDeviceGetTemperature", (void *)nvml_temperature}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (library && strcmp(all[i].name, name) == 0)
            return all[i].function;
    return NULL;
}

START_TEST(test_gpu)
{
    char library = 0;
    dg_gpu_state state;
    ck_assert_ptr_null(dg_gpu_open_with(find_nvml, NULL, "0000:1b:00.0"));
    ck_assert_ptr_null(dg_gpu_open_with(find_nvml, &library, "0000:00:00.0"));
    ck_assert_int_eq(nvml_open, 0);
    dg_gpu_read(NULL, &state);
    ck_assert(state.used_bytes < 0 && state.celsius < 0);
    dg_gpu *g = dg_gpu_open_with(find_nvml, &library, "0000:1b:00.0");
    ck_assert_ptr_nonnull(g);
    dg_gpu_read(g, &state);

    dg_buf out;
    dg_buf_init(&out, 1 << 20);
    dg_metrics *m = dg_metrics_create();
    dg_metrics_context context = {.model = "m", .gpu = state};
    ck_assert(dg_metrics_print_model(m, &context, &out) &&
              dg_metrics_print_server(m, &context, &out));
    ck_assert_ptr_nonnull(
        strstr(out.data, "\ndgemma:gpu_memory_used_bytes{model_name=\"m\"} 600\n"));
    ck_assert_ptr_nonnull(
        strstr(out.data, "\ndgemma:gpu_memory_limit_bytes{model_name=\"m\"} 1000\n"));
    ck_assert_ptr_nonnull(
        strstr(out.data, "\ndgemma:gpu_utilization_ratio{model_name=\"m\"} 0.37"));
    ck_assert_ptr_nonnull(
        strstr(out.data, "\ndgemma:gpu_temperature_celsius{model_name=\"m\"} 61\n"));
    ck_assert_ptr_null(strstr(out.data, "dgemma:gpu_power_watts"));
    dg_metrics_free(m);
    dg_buf_clear(&out);
    dg_gpu_close(g);
    dg_gpu_close(NULL);
    ck_assert_int_eq(nvml_open, 0);
}
END_TEST

/* ---- metrics ---- */

START_TEST(test_metrics)
{
    dg_metrics *m = dg_metrics_create();
    dgemma_stats st = {.end = DGEMMA_END_CONTEXT,
                       .n_prompt = 30,
                       .n_prompt_cached = 10,
                       .n_output = 20,
                       .n_blocks = 2,
                       .n_steps = 8,
                       .n_positions = 128,
                       .denoise_seconds = 2,
                       .first_text_seconds = 0.3};
    dg_metrics_request(m, &st, 1.5);
    dg_metrics_block(m,
                     &(dgemma_event){.seconds = 0.03, .step = 3, .n_tokens = 10, .n_canvas = 16});
    dg_metrics_http(m, 200);
    dg_buf out, small;
    dg_buf_init(&out, 1 << 20);
    dg_buf_init(&small, 100);
    dg_metrics_context context = {.model = "a\"b\\c\nd"};
    ck_assert(dg_metrics_print_model(m, &context, &out) &&
              dg_metrics_print_server(m, &context, &out));
    ck_assert(!dg_metrics_print_model(m, &context, &small));
    static const char *const lines[] = {
        "vllm:prompt_tokens_total{model_name=\"a\\\"b\\\\c d\"} 30\n",
        "vllm:prefix_cache_hits_total{model_name=\"a\\\"b\\\\c d\"} 10\n",
        "llamacpp:prompt_tokens_total{model_name=\"a\\\"b\\\\c d\"} 20\n",
        "vllm:diffusion_num_canvas_positions_total{model_name=\"a\\\"b\\\\c d\"} 128\n",
        "finished_reason=\"length\"} 1\n",
        "dgemma:block_seconds_bucket{model_name=\"a\\\"b\\\\c d\",le=\"0.025\"} 0\n",
        "dgemma:block_seconds_bucket{model_name=\"a\\\"b\\\\c d\",le=\"0.05\"} 1\n",
        "dgemma:steps_per_block_bucket{model_name=\"a\\\"b\\\\c d\",le=\"4\"} 1\n",
        "llamacpp:diffusion_canvas_tokens_total{model_name=\"a\\\"b\\\\c d\"} 16\n",
        "vllm:diffusion_num_committed_tokens_total{model_name=\"a\\\"b\\\\c d\"} 10\n",
        "status=\"200\"} 1\n",
        "vllm:e2e_request_latency_seconds_sum{model_name=\"a\\\"b\\\\c d\"} 1.5\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(out.data, lines[i]), "no %s", lines[i]);
    dg_buf_clear(&out);
    dg_buf_clear(&small);
    dg_metrics_free(m);
}
END_TEST

Suite *server_suite(void)
{
    Suite *s = suite_create("server");
    TCase *c = tcase_create("server");
    tcase_add_test(c, test_keys);
    tcase_add_test(c, test_origins);
    tcase_add_test(c, test_hosts);
    tcase_add_test(c, test_public_addresses);
    tcase_add_test(c, test_chat_fields);
    tcase_add_test(c, test_chat_defaults);
    tcase_add_test(c, test_completion_length);
    tcase_add_test(c, test_thinking);
    tcase_add_test(c, test_tools);
    tcase_add_test(c, test_some_tools);
    tcase_add_test(c, test_functions);
    tcase_add_test(c, test_messages);
    tcase_add_loop_test(c, test_no_memory, 0, 3);
    tcase_add_test(c, test_json_text);
    tcase_add_test(c, test_json_mended);
    tcase_add_test(c, test_exchange);
    tcase_add_test(c, test_exchange_full);
    tcase_add_test(c, test_exchange_slow_reader);
    tcase_add_test(c, test_metrics);
    tcase_add_test(c, test_gpu);
    suite_add_tcase(s, c);
    return s;
}
