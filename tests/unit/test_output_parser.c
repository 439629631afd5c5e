/* The output parser: model output written with its markers, in every cut; tokenised with Gemma's
 * vocabulary, and once more in pieces of a letter or two. Calls of tools: test_output_calls.c. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "parsed_output.h"
#include "support/alloc_fail.h"
#include "support/byte_tokenizer.h"

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
    /* nothing but blanks is no thought, wherever it stands, and none behind one is an answer */
    expect("Hi<|channel>thought\n \n\n<channel|>, you<turn|>", "[text Hi, you][end turn]");
    expect("<|channel>thought\nhm\n<channel|> \n<|tool_call>call:f{}<tool_call|>",
           "[thinking hm][call 0 f {}][end cut]");
    expect("<|channel>thought\nhm\n<channel|> \n<turn|>", "[thinking hm][end turn]");
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
    expect("<|channel>42\nhm<channel|>Hi<turn|>", "[thinking 42\nhm][text Hi][end turn]");
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
    dg_tokens_push(&tokens, dg_tokenizer_added_id(parsed_tokenizer, "<turn|>"));
    expect_tokens(&tokens, false, "bytes", "[text 🦙a\uFFFD][end turn]");
    tokens.n--; /* or a quote cuts it */
    dg_tokens_push(&tokens, dg_tokenizer_added_id(parsed_tokenizer, Q));
    dg_tokens_push(&tokens, 238 + 'b');
    expect_tokens(&tokens, false, "bytes", "[text 🦙a\uFFFD\"b][end cut]");
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
        parsed_record r;
        dg_tokens tokens;
        parsed_encode(cases[i][0], &tokens);
        dg_output_parser *p = parsed_open(&r, &(dg_output_options){.in_text = true}, -1);
        for (size_t k = 0; k < tokens.n; k++)
            ck_assert_int_eq(dg_output_parser_push(p, &tokens.ids[k], 1, NULL), 0);
        ck_assert_int_eq(dg_output_parser_finish(p, NULL), 0);
        ck_assert_str_eq(r.text.data, cases[i][1]);
        parsed_close(p, &r);
        dg_tokens_clear(&tokens);
    }
}
END_TEST

static size_t longest_event;

static bool measure(void *user, const dg_output_event *e)
{
    (void)user;
    longest_event = e->text.len > longest_event ? e->text.len : longest_event;
    return true;
}

/* Many tokens at once come in events of a bounded length. */
START_TEST(events_are_bounded)
{
    enum { N = 200000, MOST = 1 << 16 };
    dg_tokens word;
    dg_output_parser *p;
    parsed_encode("a", &word);
    int32_t *ids = dg_array(N, sizeof *ids);
    for (int i = 0; i < N; i++)
        ids[i] = word.ids[word.n - 1];
    ck_assert_int_eq(dg_output_parser_create(&p, parsed_tokenizer, NULL, measure, NULL, NULL), 0);
    longest_event = 0;
    ck_assert_int_eq(dg_output_parser_push(p, ids, N, NULL), 0);
    ck_assert_uint_le(longest_event, MOST);
    ck_assert_uint_gt(longest_event, MOST / 2);
    dg_output_parser_free(p);
    dg_tokens_clear(&word);
    dg_free(ids);
}
END_TEST

static bool hear_text(void *user, const dg_output_event *e)
{
    if (e->kind == DG_OUTPUT_TEXT)
        *(size_t *)user += e->text.len;
    return true;
}

/* A tokenizer without markers has none that could close or open anything. */
START_TEST(markers_may_be_missing)
{
    static const char *const said[] = {"thought\nhm", "<think>hm"};
    dg_tokenizer *bytes = dg_test_byte_tokenizer(NULL, 0, true);
    for (size_t i = 0; i < DG_COUNT(said); i++) {
        dg_output_parser *p;
        size_t n_text = 0;
        ck_assert_int_eq(dg_output_parser_create(&p, bytes, NULL, hear_text, &n_text, NULL), 0);
        for (const char *c = said[i]; *c; c++)
            ck_assert_int_eq(dg_output_parser_push(p, &(int32_t){(unsigned char)*c}, 1, NULL), 0);
        ck_assert_int_eq(dg_output_parser_finish(p, NULL), 0);
        ck_assert_uint_eq(n_text, strlen(said[i]));
        dg_output_parser_free(p);
    }
    dg_tokenizer_free(bytes);
}
END_TEST

START_TEST(names_are_read_as_they_come)
{
    expect("<|channel>Thought\nhm\n<channel|>x", "[thinking hm][text x][end cut]");
    expect("<|channel> thought \nhm\n<channel|>x", "[thinking hm][text x][end cut]");
    expect("<|turn>tool\nx", "[text x][end cut]");
    expect("<|turn>tools\nx", "[text tools\nx][end cut]");
}
END_TEST

START_TEST(blanks_of_all_kinds_are_blanks)
{
    expect(" \t\n\v\f\r<|tool_call>call:f{}<tool_call|>", "[call 0 f {}][end cut]");
}
END_TEST

/* What is held back, because it might be something else, has an end: the events come before the
 * output is over. */
static void expect_early(const char *start, const char *unit, size_t n, const char *want)
{
    dg_tokens tokens, more;
    dgemma_error err;
    parsed_record r;
    parsed_encode(start, &tokens);
    parsed_encode(unit, &more);
    dg_output_parser *p = parsed_open(&r, NULL, -1);
    ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), 0);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(dg_output_parser_push(p, more.ids, more.n, &err), 0);
    ck_assert_msg(r.text.len >= strlen(want) && !strncmp(r.text.data, want, strlen(want)),
                  "%.100s gave %.100s", start, r.text.data ? r.text.data : "nothing");
    parsed_close(p, &r);
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
    parsed_encode("<|channel>thought\na\n<channel|>b<|tool_call>call:f{}<tool_call|><turn|>",
                  &tokens);
    for (int n = 0; n < 4; n++) {
        parsed_record r;
        dg_output_parser *p = parsed_open(&r, NULL, n);
        ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), DGEMMA_E_CANCELLED);
        ck_assert_int_eq(dg_output_parser_push(p, tokens.ids, tokens.n, &err), DGEMMA_E_CANCELLED);
        ck_assert_int_eq(dg_output_parser_finish(p, &err), DGEMMA_E_CANCELLED);
        ck_assert_int_eq(r.n_refused, 1); /* told once, it says nothing more */
        parsed_close(p, &r);
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
    dgemma_status st = dg_output_parser_create(&p, parsed_tokenizer, NULL, ignore, NULL, NULL);
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
    parsed_encode("<|channel>thought\na\n<channel|>b<|tool_call>call:f{a:" Q "x" Q
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
    tcase_add_test(c, holds_nothing_back_for_ever);
    tcase_add_test(c, events_are_bounded);
    tcase_add_test(c, markers_may_be_missing);
    tcase_add_test(c, names_are_read_as_they_come);
    tcase_add_test(c, blanks_of_all_kinds_are_blanks);
    tcase_add_test(c, stops_when_told);
    tcase_add_test(c, survives_without_memory);
}

Suite *output_parser_suite(void)
{
    return parsed_suite("output_parser", add_tests, takes_any_ids);
}
