/* The output parser: model output written with its markers, in every cut; tokenised with Gemma's
 * vocabulary, and once more in pieces of a letter or two. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "base/rng.h"
#include "gemma_vocabulary.h"
#include "support/alloc_fail.h"
#include "text/call_syntax.h"
#include "text/output_parser.h"

static gemma_vocabulary gemma;
static dg_tokenizer *tokenizer;

static void setup(void)
{
    gemma_vocabulary_init(&gemma);
    tokenizer = gemma_vocabulary_tokenizer(&gemma);
}

static void teardown(void)
{
    dg_tokenizer_free(tokenizer);
    gemma_vocabulary_clear(&gemma);
}

static void setup_small(void)
{
    dg_buf json;
    dgemma_error err = {0};
    dg_buf_init(&json, 1 << 20);
    ck_assert_int_eq(dg_file_read(&json, "models/pocket/tokenizer.json", &err), DGEMMA_OK);
    ck_assert_int_eq(dg_tokenizer_from_json(&tokenizer, json.data, json.len, "pocket", &err),
                     DGEMMA_OK);
    dg_buf_clear(&json);
}

static void teardown_small(void)
{
    dg_tokenizer_free(tokenizer);
}

/* ---- events as text: [thinking …][text …][call 0 name {…}][end turn] ---- */

typedef struct record {
    dg_buf text;
    int last;   /* kind of the event before, -1: none */
    int n_left; /* events to take; -1: all */
} record;

static const char *end_name(int32_t id)
{
    if (id < 0)
        return "cut";
    if (id == dg_tokenizer_added_id(tokenizer, "<turn|>"))
        return "turn";
    if (id == dg_tokenizer_added_id(tokenizer, "<|tool_response>"))
        return "response";
    return id == dg_tokenizer_added_id(tokenizer, "<eos>") ? "eos" : "other";
}

static bool on_event(void *user, const dg_output_event *e)
{
    static const char *const open[] = {[DG_OUTPUT_THINKING] = "[thinking ",
                                       [DG_OUTPUT_TEXT] = "[text ",
                                       [DG_OUTPUT_BROKEN_CALL] = "[broken "};
    record *r = user;
    char head[64];
    if (r->n_left == 0)
        return false;
    r->n_left -= r->n_left > 0;
    bool is_text = e->kind <= DG_OUTPUT_BROKEN_CALL;
    bool same = is_text && r->last == (int)e->kind;
    if (r->text.len && !same)
        dg_buf_puts(&r->text, "]");
    if (is_text) {
        dg_buf_puts(&r->text, same ? "" : open[e->kind]);
        dg_buf_append(&r->text, e->text.data, e->text.len);
    } else if (e->kind == DG_OUTPUT_TOOL_CALL) {
        snprintf(head, sizeof head, "[call %d ", e->index);
        dg_buf_puts(&r->text, head);
        dg_buf_append(&r->text, e->name.data, e->name.len);
        dg_buf_puts(&r->text, " ");
        dg_buf_append(&r->text, e->text.data, e->text.len);
    } else {
        snprintf(head, sizeof head, "[end %s]", end_name(e->end));
        dg_buf_puts(&r->text, head);
    }
    r->last = (int)e->kind;
    return true;
}

/* The stream is cut after each token whose bit is set. */
static void parse(const dg_tokens *tokens, bool in_thought, const bool *cuts, dg_buf *out)
{
    dgemma_error err = {0};
    record r = {.last = -1, .n_left = -1};
    dg_buf_init(&r.text, 1 << 24);
    dg_output_parser *p;
    dg_output_options options = {.in_thought = in_thought};
    ck_assert_int_eq(dg_output_parser_create(&p, tokenizer, &options, on_event, &r, &err), 0);
    size_t from = 0;
    for (size_t i = 0; i < tokens->n; i++) {
        if (!cuts[i] && i + 1 < tokens->n)
            continue;
        ck_assert_int_eq(dg_output_parser_push(p, tokens->ids + from, i + 1 - from, &err), 0);
        from = i + 1;
    }
    ck_assert_int_eq(dg_output_parser_finish(p, &err), 0);
    ck_assert_int_eq(dg_output_parser_finish(p, &err), 0);
    dg_output_parser_free(p);
    *out = r.text;
}

static void compare(const dg_tokens *tokens, bool in_thought, const bool *cuts, const char *output,
                    const char *want)
{
    dg_buf got;
    parse(tokens, in_thought, cuts, &got);
    ck_assert_msg(strcmp(got.data, want) == 0, "%s\n gave   %s\n wanted %s", output, got.data,
                  want);
    dg_buf_clear(&got);
}

static void expect_tokens(const dg_tokens *tokens, bool in_thought, const char *output,
                          const char *want)
{
    static const dg_rng_key key = {.seed = 7};
    bool *cuts = calloc(tokens->n + 1, sizeof *cuts);
    ck_assert_ptr_nonnull(cuts);
    compare(tokens, in_thought, cuts, output, want);
    for (size_t i = 0; i < tokens->n; i++) { /* at every border once */
        cuts[i] = true;
        compare(tokens, in_thought, cuts, output, want);
        cuts[i] = false;
    }
    for (uint32_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < tokens->n; i++)
            cuts[i] = dg_rng_below(&key, round * 4096 + (uint32_t)i, 2);
        compare(tokens, in_thought, cuts, output, want);
    }
    memset(cuts, true, tokens->n);
    compare(tokens, in_thought, cuts, output, want);
    free(cuts);
}

static void encode(const char *output, dg_tokens *tokens)
{
    dgemma_error err;
    dg_tokens_init(tokens, 1 << 20);
    ck_assert_int_eq(
        dg_tokenizer_encode(tokenizer, output, strlen(output), DG_ENCODE_ADDED, tokens, &err), 0);
}

/* The same with a token for each byte of text. */
static void spell(const dg_tokens *tokens, dg_tokens *out)
{
    dg_tokens_init(out, 1 << 20);
    for (size_t i = 0; i < tokens->n; i++) {
        int32_t id = tokens->ids[i];
        dg_buf text;
        dg_buf_init(&text, 1 << 12);
        ck_assert_int_eq(dg_tokenizer_decode(tokenizer, &id, 1, false, &text, NULL), DGEMMA_OK);
        bool is_byte = id >= 238 && id < 494;
        if (dg_tokenizer_is_special(tokenizer, id) || is_byte || !text.len)
            dg_tokens_push(out, id);
        else
            for (size_t k = 0; k < text.len; k++)
                dg_tokens_push(out, 238 + (unsigned char)text.data[k]);
        dg_buf_clear(&text);
    }
}

static void expect_from(bool in_thought, const char *output, const char *want)
{
    dg_tokens tokens, bytes;
    encode(output, &tokens);
    expect_tokens(&tokens, in_thought, output, want);
    spell(&tokens, &bytes);
    expect_tokens(&bytes, in_thought, output, want);
    dg_tokens_clear(&tokens);
    dg_tokens_clear(&bytes);
}

static void expect(const char *output, const char *want)
{
    expect_from(false, output, want);
}

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

#define Q "<|\"|>"

/* ---- text and thinking ---- */

START_TEST(gives_text)
{
    expect("Hello, world!<turn|>", "[text Hello, world!][end turn]");
    expect("Hello<eos>", "[text Hello][end eos]");
    expect("Hello", "[text Hello][end cut]");
    expect("", "[end cut]");
    expect("<turn|>", "[end turn]");
    expect("a\n\n b \n<turn|>", "[text a\n\n b \n][end turn]");
    expect("  Hi<turn|>", "[text   Hi][end turn]");
    expect("\n \n<turn|>", "[end turn]");
    expect("Ünïcode 日本語 🦙🏽 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80<turn|>",
           "[text Ünïcode 日本語 🦙🏽 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80][end "
           "turn]");
    expect("thoughts<turn|>", "[text thoughts][end turn]");
    expect("thought<turn|>", "[text thought][end turn]");
    expect("<thin air><turn|>", "[text <thin air>][end turn]");
    expect("He said " Q "no" Q "<turn|>", "[text He said \"no\"][end turn]");
}
END_TEST

START_TEST(drops_what_is_not_for_people)
{
    expect("Hi<turn|><pad><pad>more<turn|><|tool_call>call:f{}<tool_call|>", "[text Hi][end turn]");
    expect("<pad>H<pad>i<pad><turn|><pad>", "[text Hi][end turn]");
    expect("<bos>H<|image|>i<|think|><turn|>", "[text Hi][end turn]");
    expect("<|turn>model\nHi<turn|>", "[text Hi][end turn]");
    expect("\n<|turn>model\n<|channel>thought\nhm\n<channel|>Hi<turn|>",
           "[thinking hm][text Hi][end turn]");
    expect("Hi<|turn>user\nNo, you!", "[text Hi][end other]");
    expect("<channel|>Hi<tool_call|><channel|> there<tool_response|><turn|>",
           "[text Hi there][end turn]");
}
END_TEST

START_TEST(gives_thinking)
{
    expect("<|channel>thought\nLet me see.\n\nYes.\n<channel|>Hi<turn|>",
           "[thinking Let me see.\n\nYes.][text Hi][end turn]");
    expect("<|channel>thought\nhm<channel|>\nHi<turn|>", "[thinking hm][text \nHi][end turn]");
    expect("<|channel>thought\n<channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("<|channel>thought\n\n \n<channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("<|channel>thought<channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("<|channel><channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("<|channel>thought\na\n<channel|>b<|channel>thought\nc\n<channel|>d<turn|>",
           "[thinking a][text b][thinking c][text d][end turn]");
    expect("<|channel>thought\n<|channel>thought\nhm\n<channel|>Hi<turn|>",
           "[thinking hm][text Hi][end turn]");
    expect("<|channel>thought\nI say " Q "x" Q "\n<channel|>Hi<turn|>",
           "[thinking I say \"x\"][text Hi][end turn]");
}
END_TEST

START_TEST(leaves_open_thoughts_thinking)
{
    expect("<|channel>thought\nstill at it", "[thinking still at it][end cut]");
    expect("<|channel>thought\nstill at it<turn|>", "[thinking still at it][end turn]");
    expect("<|channel>thought", "[end cut]");
    expect("<|channel>thought\ncall it<|tool_call>call:f{}<tool_call|><|tool_response>",
           "[thinking call it][call 0 f {}][end response]");
    expect("<|channel><|tool_call>call:f{}<tool_call|>", "[call 0 f {}][end cut]");
}
END_TEST

START_TEST(knows_channels_by_any_name)
{
    expect("<|channel>analysis\nhm\n<channel|>Hi<turn|>", "[thinking hm][text Hi][end turn]");
    expect("<|channel>Let me think about it.\nYes.<channel|>Hi<turn|>",
           "[thinking Let me think about it.\nYes.][text Hi][end turn]");
    expect("<|channel>What is 2+2?<channel|>4<turn|>", "[thinking What is 2+2?][text 4][end turn]");
    expect("<|channel>a line without an end that is far too long to be the name of a channel of any"
           " kind<channel|>4<turn|>",
           "[thinking a line without an end that is far too long to be the name of a channel of any"
           " kind][text 4][end turn]");
}
END_TEST

START_TEST(finds_thoughts_without_their_token)
{
    expect("thought\nhm\n<channel|>Hi<turn|>", "[thinking hm][text Hi][end turn]");
    expect("\nthought\nhm<channel|>Hi<turn|>", "[thinking hm][text Hi][end turn]");
    expect("thought<channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("<think>\nhm, 1 < 2\n</think>\n\nHi<turn|>",
           "[thinking hm, 1 < 2][text \n\nHi][end turn]");
    expect("<think>\n\n</think>Hi<turn|>", "[text Hi][end turn]");
    expect("<think>日本語 </thin</think>Hi</think><turn|>",
           "[thinking 日本語 </thin][text Hi</think>][end turn]");
    expect("Well, <think>x</think><turn|>", "[text Well, <think>x</think>][end turn]");
    /* what follows closes it as well */
    expect("thought\nhm\n<|tool_call>call:f{}<tool_call|>", "[thinking hm][call 0 f {}][end cut]");
    expect("<think>hm\n<|tool_call>call:f{}<tool_call|>", "[thinking hm][call 0 f {}][end cut]");
    expect("<think> hm\n<channel|>Hi<turn|>", "[thinking hm][text Hi][end turn]");
    expect("thought\nhm<|channel>thought\nhm!<channel|>Hi<turn|>",
           "[thinking hmhm!][text Hi][end turn]");
    expect("thought\n\n \n<channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("thought\n <channel|>Hi<turn|>", "[text Hi][end turn]");
    expect("thought\n\n hm<channel|>Hi<turn|>", "[thinking \n hm][text Hi][end turn]");
}
END_TEST

/* An answer may begin like a thought: without a close it is all text, as it stands. */
START_TEST(gives_back_what_only_begins_like_a_thought)
{
    expect("thought\nis a word of seven letters.<turn|>",
           "[text thought\nis a word of seven letters.][end turn]");
    expect(" \nthought\nis a word.<eos>", "[text  \nthought\nis a word.][end eos]");
    expect("thought\n", "[text thought\n][end cut]");
    expect("thought\nhm<|turn>user\n", "[text thought\nhm][end other]");
    expect("thought\nhm<|tool_response>", "[text thought\nhm][end response]");
    expect("<think>hm</thi", "[text <think>hm</thi][end cut]");
    expect("<think><turn|>", "[text <think>][end turn]");
    expect("<think> is a tag, " Q "</think" Q " is none.\n<turn|>",
           "[text <think> is a tag, \"</think\" is none.\n][end turn]");
    expect("<think>hm<|turn>user\n", "[text <think>hm][end other]");
}
END_TEST

START_TEST(keeps_first_lines_that_are_no_header)
{
    expect("<|turn>Hello!<turn|>", "[text Hello!][end turn]");
    expect("<|turn>Yes<turn|>", "[text Yes][end turn]");
    expect("<|turn>model<turn|>", "[end turn]");
    expect("thou<|turn>user\nHi<turn|>", "[text thou][end other]"); /* somebody else's turn */
    expect("<|turn><turn|>", "[end turn]");
    expect("<|turn>assistant \nHi<turn|>", "[text Hi][end turn]");
    expect("<|turn>Dear all,\nHi<turn|>", "[text Dear all,\nHi][end turn]");
    expect("<|turn>\nHi<turn|>", "[text Hi][end turn]");
    expect("<|turn>model\nthought\nhm<channel|>Hi<turn|>", "[thinking hm][text Hi][end turn]");
}
END_TEST

START_TEST(starts_inside_a_thought)
{
    expect_from(true, "so 20C.\n<channel|>It is 20C.<turn|>",
                "[thinking so 20C.][text It is 20C.][end turn]");
    expect_from(true, "<channel|>It is 20C.<turn|>", "[text It is 20C.][end turn]");
    expect_from(true, "<|channel>thought\nhm<channel|>Hi<turn|>",
                "[thinking hm][text Hi][end turn]");
    expect_from(true, "thought\nhm", "[thinking thought\nhm][end cut]");
}
END_TEST

START_TEST(keeps_characters_whole)
{
    /* an emoji in byte tokens, and one that the end cuts */
    static const unsigned char bytes[] = {0xF0, 0x9F, 0xA6, 0x99, 'a', 0xF0, 0x9F};
    dg_tokens tokens;
    dg_tokens_init(&tokens, 64);
    for (size_t i = 0; i < sizeof bytes; i++)
        dg_tokens_push(&tokens, 238 + bytes[i]);
    expect_tokens(&tokens, false, "bytes", "[text 🦙a\uFFFD][end cut]");
    dg_tokens_push(&tokens, dg_tokenizer_added_id(tokenizer, "<turn|>"));
    expect_tokens(&tokens, false, "bytes", "[text 🦙a\uFFFD][end turn]");
    dg_tokens_clear(&tokens);
}
END_TEST

START_TEST(takes_any_ids)
{
    const int32_t ids[] = {-1, INT32_MIN, 9259, INT32_MAX, 262144, 1902, -7};
    dg_tokens tokens = {.ids = (int32_t *)ids, .n = DG_COUNT(ids)};
    expect_tokens(&tokens, false, "ids", "[text Hello world][end cut]");
}
END_TEST

/* The prompt holds the beginning of the answer: blanks and what looks like a thought go on with it.
 */
START_TEST(goes_on_with_a_text)
{
    static const char *const cases[][2] = {
        {" and more<turn|>", "[text  and more][end turn]"},
        {"\n\n<turn|>", "[text \n\n][end turn]"},
        {"thought\nhm<channel|>x", "[text thought\nhmx][end cut]"},
        {"<think>a</think>", "[text <think>a</think>][end cut]"},
        {" <|channel>thought\nhm\n<channel|>x", "[text  ][thinking hm][text x][end cut]"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        record r = {.last = -1, .n_left = -1};
        dg_buf_init(&r.text, 1 << 16);
        dg_tokens tokens;
        encode(cases[i][0], &tokens);
        dg_output_parser *p;
        dg_output_options options = {.in_text = true};
        ck_assert_int_eq(dg_output_parser_create(&p, tokenizer, &options, on_event, &r, NULL), 0);
        for (size_t k = 0; k < tokens.n; k++)
            ck_assert_int_eq(dg_output_parser_push(p, &tokens.ids[k], 1, NULL), 0);
        ck_assert_int_eq(dg_output_parser_finish(p, NULL), 0);
        ck_assert_str_eq(r.text.data, cases[i][1]);
        dg_output_parser_free(p);
        dg_tokens_clear(&tokens);
        dg_buf_clear(&r.text);
    }
}
END_TEST

/* ---- calls ---- */

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
    expect_call("call:f{s:" Q "\x01\r\x1f" Q "}", "f {\"s\":\"\\u0001\\u000d\\u001f\"}");
    expect_call("call:f{s:\"\\u00E4\\u00e4\\uABCD\"}", "f {\"s\":\"ää\uABCD\"}");
    expect_call("call:f{s:\"\\udd99\"}", "f {\"s\":\"\uFFFD\"}");
    char name[130], body[160], want[160];
    memset(name, 'n', sizeof name);
    snprintf(body, sizeof body, "call:%.128s{}", name);
    snprintf(want, sizeof want, "%.128s {}", name);
    expect_call(body, want);
    snprintf(body, sizeof body, "call:%.129s{}", name);
    expect_no_call(body, body);
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
        if (n == DG_CALL_MAX_NAME)
            expect_call(body, want);
        else
            expect_no_call(body, body);
        snprintf(body, sizeof body, "{\"name\":\"%.*s\"}", n, name);
        if (n == DG_CALL_MAX_NAME)
            expect_call(body, want);
        else
            expect_no_call(body, body);
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
    encode(output.data, &tokens);
    bool *cuts = calloc(tokens.n, sizeof *cuts);
    dg_buf got;
    parse(&tokens, false, cuts, &got);
    ck_assert_ptr_nonnull(strstr(got.data, "[broken call:f{a:[["));
    dg_buf_clear(&got);
    dg_buf_clear(&output);
    dg_buf_clear(&want);
    dg_tokens_clear(&tokens);
    free(cuts);

    /* more than a call may have: all of it comes out as text */
    size_t n = (DG_OUTPUT_MAX_CALL + 4096) / 4;
    dg_tokens_init(&tokens, 2 * n);
    dg_tokens_push(&tokens, dg_tokenizer_added_id(tokenizer, "<|tool_call>"));
    dg_tokens word;
    encode("aaaa", &word);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < word.n; k++)
            dg_tokens_push(&tokens, word.ids[k]);
    dg_tokens_push(&tokens, dg_tokenizer_added_id(tokenizer, "<tool_call|>"));
    cuts = calloc(tokens.n, sizeof *cuts);
    parse(&tokens, false, cuts, &got);
    ck_assert_uint_eq(got.len, strlen("[broken [text ") + 4 * n + strlen("][end cut]") + 1);
    dg_buf_clear(&got);
    dg_tokens_clear(&tokens);
    dg_tokens_clear(&word);
    free(cuts);
}
END_TEST

/* What is held back, because it might be something else, has an end: the events come before the
 * output is over. */
static void expect_early(const char *start, const char *unit, size_t n, const char *want)
{
    dg_tokens tokens, more;
    dgemma_error err;
    record r = {.last = -1, .n_left = -1};
    dg_output_parser *p;
    encode(start, &tokens);
    encode(unit, &more);
    dg_buf_init(&r.text, 1 << 24);
    ck_assert_int_eq(dg_output_parser_create(&p, tokenizer, NULL, on_event, &r, &err), 0);
    ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), 0);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(dg_output_parser_push(p, more.ids, more.n, &err), 0);
    ck_assert_msg(r.text.len >= strlen(want) && !strncmp(r.text.data, want, strlen(want)),
                  "%.100s gave %.100s", start, r.text.data ? r.text.data : "nothing");
    dg_output_parser_free(p);
    dg_buf_clear(&r.text);
    dg_tokens_clear(&tokens);
    dg_tokens_clear(&more);
}

START_TEST(holds_nothing_back_for_ever)
{
    expect_early("", " \n", 4096, "[text  \n \n");
    expect_early("Hi<|tool_call>call:f{}<tool_call|>", " \n", 4096,
                 "[text Hi][call 0 f {}][text  ");
    expect_early("<|channel>thought\n", " \n", 4096, "[thinking  \n \n");
    expect_early("<|channel>", "word ", 40, "[thinking word word");
    expect_early("<|turn>", "word ", 40, "[text word word");
    expect_early("<|channel>", "letters", 10, "[thinking letters"); /* too long for a name */
    expect_early("thought\n", "several words more than before ", DG_OUTPUT_MAX_CALL / 31 + 1,
                 "[text thought\nseveral");
    expect_early("<think>", "several words more than before ", DG_OUTPUT_MAX_CALL / 31 + 1,
                 "[text <think>several");
    expect("<|channel>abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrs\nhm"
           "<channel|>Hi",
           "[thinking abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrs\nhm]"
           "[text Hi][end cut]");
}
END_TEST

/* ---- the receiver, and memory ---- */

START_TEST(stops_when_told)
{
    dg_tokens tokens;
    dgemma_error err;
    encode("<|channel>thought\na\n<channel|>b<|tool_call>call:f{}<tool_call|><turn|>", &tokens);
    for (int n = 0; n < 4; n++) {
        record r = {.last = -1, .n_left = n};
        dg_buf_init(&r.text, 1 << 20);
        dg_output_parser *p;
        ck_assert_int_eq(dg_output_parser_create(&p, tokenizer, NULL, on_event, &r, &err), 0);
        ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), DGEMMA_E_CANCELLED);
        ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), DGEMMA_E_CANCELLED);
        ck_assert_int_eq(dg_output_parser_finish(p, &err), DGEMMA_E_CANCELLED);
        dg_output_parser_free(p);
        dg_buf_clear(&r.text);
    }
    dg_tokens_clear(&tokens);
}
END_TEST

static bool ignore(void *user, const dg_output_event *e)
{
    (void)user;
    (void)e;
    return true;
}

static dgemma_status run_once(const dg_tokens *tokens)
{
    dg_output_parser *p;
    dgemma_status st = dg_output_parser_create(&p, tokenizer, NULL, ignore, NULL, NULL);
    if (!st)
        st = dg_output_parser_push(p, tokens->ids, tokens->n, NULL);
    if (!st)
        st = dg_output_parser_finish(p, NULL);
    dg_output_parser_free(p);
    return st;
}

START_TEST(survives_without_memory)
{
    dg_tokens tokens;
    encode("<|channel>thought\na\n<channel|>b<|tool_call>call:f{a:" Q "x" Q
           "}<tool_call|><|tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}<tool_call|>"
           "<|tool_call>call:no<tool_call|>c<turn|>",
           &tokens);
    for (long n = 1;; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = run_once(&tokens);
        if (!dg_test_alloc_done()) {
            ck_assert_int_eq(st, DGEMMA_OK);
            ck_assert_int_gt((int)n, 8);
            break;
        }
        ck_assert_int_eq(st, DGEMMA_E_NOMEM);
    }
    dg_tokens_clear(&tokens);
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_test(c, gives_text);
    tcase_add_test(c, drops_what_is_not_for_people);
    tcase_add_test(c, gives_thinking);
    tcase_add_test(c, leaves_open_thoughts_thinking);
    tcase_add_test(c, knows_channels_by_any_name);
    tcase_add_test(c, finds_thoughts_without_their_token);
    tcase_add_test(c, gives_back_what_only_begins_like_a_thought);
    tcase_add_test(c, keeps_first_lines_that_are_no_header);
    tcase_add_test(c, starts_inside_a_thought);
    tcase_add_test(c, keeps_characters_whole);
    tcase_add_test(c, goes_on_with_a_text);
    tcase_add_test(c, gives_calls);
    tcase_add_test(c, gives_several_calls_and_text);
    tcase_add_test(c, ends_calls_by_any_marker);
    tcase_add_test(c, repairs_what_is_certain);
    tcase_add_test(c, takes_json_for_a_call);
    tcase_add_test(c, passes_on_what_is_not);
    tcase_add_test(c, repairs_nothing_that_is_not);
    tcase_add_test(c, reads_odd_characters);
    tcase_add_test(c, makes_no_half_calls);
    tcase_add_test(c, holds_nothing_back_for_ever);
    tcase_add_test(c, stops_when_told);
    tcase_add_test(c, survives_without_memory);
}

Suite *output_parser_suite(void)
{
    Suite *s = suite_create("output_parser");
    TCase *vocabulary = tcase_create("gemma");
    tcase_add_unchecked_fixture(vocabulary, setup, teardown);
    add_tests(vocabulary);
    tcase_add_test(vocabulary, takes_any_ids); /* of this vocabulary */
    tcase_add_test(vocabulary, bounds_depth_and_size);
    suite_add_tcase(s, vocabulary);

    TCase *small = tcase_create("small");
    tcase_add_unchecked_fixture(small, setup_small, teardown_small);
    add_tests(small);
    suite_add_tcase(s, small);
    return s;
}
