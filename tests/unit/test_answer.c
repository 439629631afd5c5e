/* From passes to events, without a model: a block loop whose state the tests write themselves. */
#include <string.h>
#include "engine/answer.h"
#include "model/model.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/byte_tokenizer.h"

enum {
    CHANNEL_OPEN = DG_TEST_N_BYTE,
    CHANNEL_CLOSE,
    CALL_OPEN,
    CALL_CLOSE,
    TURN_CLOSE,
    QUOTE,
    N_VOCAB,
    MOST = 64
};
static const char *const markers[] = {"<|channel>",   "<channel|>", "<|tool_call>",
                                      "<tool_call|>", "<turn|>",    "<|\"|>"};

static dg_tokenizer *tokenizer;
static dg_model model;
static dg_block_loop loop;
static dg_answer answer;
static dg_stream *stream;
static int32_t argmax[MOST], token[MOST];
static float entropy[MOST];
static uint8_t accepted[MOST];

static void setup(void)
{
    tokenizer = dg_test_byte_tokenizer(markers, N_VOCAB - CHANNEL_OPEN, true);
    ck_assert_int_eq(dg_stream_create(&stream, NULL), DGEMMA_OK);
    model.cfg.n_vocab = N_VOCAB;
    loop = (dg_block_loop){.model = &model, .cfg = {.n_prompt = 10, .think_close = CHANNEL_CLOSE}};
    loop.canvas = (dg_canvas){
        .argmax = argmax, .token = token, .entropy = entropy, .accepted = accepted, .n = 12};
}

static void teardown(void)
{
    dg_answer_clear(&answer);
    dg_stream_free(stream);
    dg_tokenizer_free(tokenizer);
}

static void begin(dg_answer_config cfg)
{
    cfg.tokenizer = tokenizer;
    ck_assert_int_eq(dg_answer_init(&answer, &cfg, &loop, stream, NULL), DGEMMA_OK);
}

/* ---- passes ---- */

static bool pass(double seconds)
{
    bool go_on;
    dgemma_error err = {0};
    ck_assert_msg(dg_answer_pass(&answer, &loop, seconds, &go_on, &err) == DGEMMA_OK, "%s",
                  err.msg);
    return go_on;
}

static void encode(int n_token, int n_encoded)
{
    loop.n_token_in_pass = n_token;
    loop.seq.n_token = n_encoded;
}

/* A step after which the block begins with these words; markers are written as themselves. */
static void step(const char *says)
{
    int n = 0;
    while (*says) {
        size_t i = 0, n_marker = sizeof markers / sizeof *markers;
        while (i < n_marker && strncmp(says, markers[i], strlen(markers[i])) != 0)
            i++;
        argmax[n++] = i < n_marker ? CHANNEL_OPEN + (int)i : (unsigned char)*says;
        says += i < n_marker ? strlen(markers[i]) : 1;
    }
    loop.canvas_in_pass = loop.canvas_open = true;
    loop.block_done = false;
    loop.canvas.step++;
    loop.n_read = n;
}

/* The block is over with what the last step said. */
static void finish(dg_block_loop_end end)
{
    loop.block_done = loop.canvas.finished = true;
    loop.canvas_open = false;
    loop.n_block_token = loop.n_read;
    loop.n_output += loop.n_read;
    loop.n_block++;
    loop.end = end;
    loop.stop_token = TURN_CLOSE;
}

static void say(const char *says, dg_block_loop_end end)
{
    step(says);
    finish(end);
    pass(0);
}

/* ---- events ---- */

static bool next(dgemma_event *event)
{
    return dg_stream_wait(stream, event, 0);
}

static void expect_none(void)
{
    dgemma_event event;
    ck_assert(!next(&event));
}

static dgemma_event expect(dgemma_event_kind kind)
{
    dgemma_event event = {0};
    ck_assert(next(&event));
    ck_assert_int_eq(event.kind, kind);
    return event;
}

static void expect_text(dgemma_event_kind kind, const char *text)
{
    dgemma_event event = expect(kind);
    ck_assert_str_eq(event.text, text);
    ck_assert_uint_eq(event.text_len, strlen(text));
    ck_assert(!event.broken_call);
}

static dgemma_stats end(dgemma_status st, bool cancelled)
{
    dgemma_error err = {.msg = "what went wrong"};
    dg_answer_end(&answer, st, &err, cancelled);
    dgemma_event event = expect(DGEMMA_EVENT_END);
    ck_assert_int_eq(event.status, st);
    if (st)
        ck_assert_str_eq(event.text, err.msg);
    return event.stats;
}

/* ---- tests ---- */

START_TEST(prompts_and_steps_have_their_time)
{
    begin((dg_answer_config){0});
    encode(6, 6);
    ck_assert(pass(1));
    dgemma_event event = expect(DGEMMA_EVENT_PROMPT);
    ck_assert(event.n_done == 6 && event.n_total == 10);
    expect_none();

    encode(4, 10); /* and the first step with it */
    step("");
    pass(1.6);
    event = expect(DGEMMA_EVENT_PROMPT);
    ck_assert(event.n_done == 10 && event.n_total == 10);
    encode(0, 10);
    step("one");
    finish(DG_END_NONE);
    pass(1);
    event = expect(DGEMMA_EVENT_BLOCK);
    ck_assert_double_eq_tol(event.seconds, 2.2, 1e-9);
    expect_text(DGEMMA_EVENT_TEXT, "one");

    encode(12, 22); /* the block is encoded, with a step of the next: no prompt */
    step(" two");
    finish(DG_END_STOP);
    pass(3);
    event = expect(DGEMMA_EVENT_BLOCK);
    ck_assert_double_eq_tol(event.seconds, 3, 1e-9);
    expect_text(DGEMMA_EVENT_TEXT, " two");
    dgemma_stats s = end(DGEMMA_OK, false);
    ck_assert_double_eq_tol(s.prompt_seconds, 1.4, 1e-9);
    ck_assert_double_eq_tol(s.denoise_seconds, 5.2, 1e-9);
    ck_assert_uint_eq(s.n_positions, 36);
    ck_assert_int_eq(s.n_prompt, 10);
    ck_assert_int_eq(s.n_output, 7);
    ck_assert_int_eq(s.n_blocks, 2);
}
END_TEST

START_TEST(blocks_tell_what_became_of_them)
{
    begin((dg_answer_config){0});
    loop.canvas.block = 3;
    loop.canvas.mean_entropy = 0.25f;
    for (int i = 0; i < 2; i++) {
        loop.canvas.converged = i;
        say("yes", DG_END_NONE);
        dgemma_event event = expect(DGEMMA_EVENT_BLOCK);
        ck_assert_int_eq(event.block, 3);
        ck_assert_int_eq(event.step, i);
        ck_assert_int_eq(event.n_canvas, 12);
        ck_assert_uint_eq(event.n_tokens, 3);
        ck_assert_int_eq(event.tokens[2], 's');
        ck_assert_float_eq(event.mean_entropy, 0.25f);
        ck_assert_int_eq(event.converged, i);
        ck_assert(!event.logprobs && !event.top_tokens);
        expect_text(DGEMMA_EVENT_TEXT, "yes");
    }
}
END_TEST

START_TEST(drafts_come_when_asked_for)
{
    for (int asked = 0; asked < 2; asked++) {
        begin((dg_answer_config){.drafts = asked});
        encode(2, 2);
        loop.canvas_in_pass = false;
        pass(0);
        expect(DGEMMA_EVENT_PROMPT);
        expect_none();
        encode(0, 2);
        step("");
        argmax[1] = 77;
        token[1] = 78;
        entropy[1] = 0.5f;
        accepted[1] = 1;
        pass(0);
        if (asked) {
            dgemma_event event = expect(DGEMMA_EVENT_DRAFT);
            ck_assert_int_eq(event.step, loop.canvas.step - 1);
            ck_assert_uint_eq(event.n_tokens, 12);
            ck_assert_int_eq(event.tokens[1], 77);
            ck_assert(event.accepted[1] && event.entropy[1] == 0.5f);
        }
        expect_none();
        dg_answer_clear(&answer);
    }
}
END_TEST

static dgemma_step seen;

static bool look(void *user, const dgemma_step *s)
{
    seen = *s;
    return *(const bool *)user;
}

START_TEST(a_callback_may_end_it)
{
    bool go_on = true;
    dgemma_error err = {0};
    begin((dg_answer_config){.on_step = look, .step_user = &go_on});
    step("");
    ck_assert(pass(0));
    ck_assert(seen.step == 0 && seen.n == 12 && !seen.finished && seen.canvas == token);
    step("yes");
    finish(DG_END_NONE);
    go_on = false;
    ck_assert(!pass(0));
    ck_assert(seen.step == 1 && seen.finished);
    expect_none(); /* the block is not told */
    static const int32_t bad[] = {-1, N_VOCAB};
    for (int i = 0; i < 2; i++) {
        token[11] = bad[i];
        ck_assert_int_eq(dg_answer_pass(&answer, &loop, 0, &go_on, &err), DGEMMA_E_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, "block 0, step 1"));
    }
    token[11] = 0;
    ck_assert_int_eq(end(DGEMMA_OK, true).end, DGEMMA_END_CANCELLED);
}
END_TEST

START_TEST(kinds_are_told_apart)
{
    begin((dg_answer_config){0});
    say("<|channel>thought\nhm\n<channel|>a<|tool_call>call:f{}<tool_call|>b<|tool_call>call:g{}"
        "<tool_call|>",
        DG_END_NONE);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_THINKING, "hm");
    expect_text(DGEMMA_EVENT_TEXT, "a");
    for (int i = 0; i < 2; i++) {
        dgemma_event event = expect(DGEMMA_EVENT_TOOL_CALL);
        ck_assert_str_eq(event.tool_name, i ? "g" : "f");
        ck_assert_str_eq(event.text, "{}");
        ck_assert_uint_eq(event.text_len, 2);
        ck_assert_int_eq(event.tool_index, i);
        if (!i)
            expect_text(DGEMMA_EVENT_TEXT, "b");
    }
    double first = answer.stats.first_text_seconds;
    ck_assert(first > 0);
    say("c<|tool_call>nonsense<tool_call|>d", DG_END_STOP);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_TEXT, "c");
    dgemma_event broken = expect(DGEMMA_EVENT_TEXT);
    ck_assert(broken.broken_call);
    ck_assert_str_eq(broken.text, "nonsense");
    expect_text(DGEMMA_EVENT_TEXT, "d");
    dgemma_stats s = end(DGEMMA_OK, false);
    ck_assert_int_eq(s.end, DGEMMA_END_TOOL_CALLS);
    ck_assert(s.first_text_seconds == first);
}
END_TEST

/* What the prompt has opened. */
START_TEST(an_answer_begins_where_the_prompt_ends)
{
    begin((dg_answer_config){.in_thought = true});
    say("hm<channel|>yes", DG_END_STOP);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_THINKING, "hm");
    expect_text(DGEMMA_EVENT_TEXT, "yes");
    dg_answer_clear(&answer);
    begin((dg_answer_config){.in_text = true});
    say("thought\nx<channel|>y", DG_END_STOP);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_TEXT, "thought\nxy");
}
END_TEST

START_TEST(a_thought_that_was_cut_is_closed)
{
    begin((dg_answer_config){0});
    step("<|channel>thought\nhm");
    finish(DG_END_NONE);
    loop.thought_closed = true;
    loop.n_thought = 30;
    pass(0);
    loop.thought_closed = false;
    say("yes", DG_END_STOP);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_THINKING, "hm");
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_TEXT, "yes");
    dgemma_stats s = end(DGEMMA_OK, false);
    ck_assert_int_eq(s.n_output, 14);
    ck_assert_int_eq(s.n_thinking, 14); /* no more than there is */
}
END_TEST

/* The end of the turn closes a call; the end of the answer does not. */
START_TEST(the_stop_token_is_told)
{
    static const dg_block_loop_end ends[] = {DG_END_STOP, DG_END_LENGTH, DG_END_CONTEXT};
    static const dgemma_end reasons[] = {DGEMMA_END_TOOL_CALLS, DGEMMA_END_LENGTH,
                                         DGEMMA_END_CONTEXT};
    for (int i = 0; i < 3; i++) {
        begin((dg_answer_config){0});
        say("a<|tool_call>call:f{x:1", ends[i]);
        expect(DGEMMA_EVENT_BLOCK);
        expect_text(DGEMMA_EVENT_TEXT, "a");
        dgemma_event event = {0};
        ck_assert(next(&event));
        ck_assert_int_eq(event.kind == DGEMMA_EVENT_TOOL_CALL, i == 0);
        ck_assert_int_eq(event.broken_call, i > 0);
        ck_assert_int_eq(end(DGEMMA_OK, false).end, reasons[i]);
        dg_answer_clear(&answer);
        dg_stream_free(stream);
        ck_assert_int_eq(dg_stream_create(&stream, NULL), DGEMMA_OK);
    }
}
END_TEST

/* A word that was named as an end is no text, and completes no stop string. */
START_TEST(a_word_that_ends_the_answer_is_not_told)
{
    static const int32_t words[] = {'x', QUOTE};
    char *stop[] = {"cx", "c\""};
    for (int i = 0; i < 2; i++) {
        begin((dg_answer_config){.stop = stop, .n_stop = 2});
        step("abc");
        finish(DG_END_STOP);
        argmax[3] = loop.stop_token = words[i];
        loop.stop_named = true;
        pass(0);
        dgemma_event event = expect(DGEMMA_EVENT_BLOCK);
        ck_assert(event.stop_token && event.n_tokens == 3 && event.tokens[3] == words[i]);
        expect_text(DGEMMA_EVENT_TEXT, "abc");
        expect_none();
        dg_answer_clear(&answer);
    }
    begin((dg_answer_config){0}); /* what closes something does so all the same */
    step("a<|tool_call>call:f{x:1");
    finish(DG_END_STOP);
    loop.stop_token = CALL_CLOSE;
    pass(0);
    expect(DGEMMA_EVENT_BLOCK);
    expect_text(DGEMMA_EVENT_TEXT, "a");
    expect(DGEMMA_EVENT_TOOL_CALL);
}
END_TEST

/* Where a stop string comes first, the token behind it has ended nothing. */
START_TEST(a_stop_string_comes_before_the_token)
{
    char *stop[] = {"b"};
    begin((dg_answer_config){.stop = stop, .n_stop = 1});
    step("abc");
    finish(DG_END_STOP);
    argmax[3] = loop.stop_token = 'x';
    loop.stop_named = true;
    pass(0);
    dgemma_event event = expect(DGEMMA_EVENT_BLOCK);
    ck_assert(!event.stop_token && event.n_tokens == 2);
    expect_text(DGEMMA_EVENT_TEXT, "a");
    expect_none();
}
END_TEST

/* A canvas that begins with what was given is told from behind it on. */
START_TEST(drafts_begin_behind_what_was_given)
{
    begin((dg_answer_config){.drafts = true});
    step("abcde");
    loop.n_given = 2;
    loop.n_read = 0;
    for (int i = 0; i < loop.canvas.n; i++) {
        entropy[i] = (float)i;
        accepted[i] = i == 2;
    }
    pass(0);
    dgemma_event event = expect(DGEMMA_EVENT_DRAFT);
    ck_assert_uint_eq(event.n_tokens, (size_t)loop.canvas.n - 2);
    ck_assert_int_eq(event.tokens[0], 'c');
    ck_assert_float_eq(event.entropy[0], 2);
    ck_assert(event.accepted[0] && !event.accepted[1]);
}
END_TEST

/* What has settled is told at once, and once; the block comes when it is over. */
START_TEST(settled_text_does_not_wait)
{
    begin((dg_answer_config){0});
    step("on");
    pass(0);
    expect_text(DGEMMA_EVENT_TEXT, "on");
    step("on");
    pass(0);
    expect_none();
    step("one");
    finish(DG_END_NONE);
    pass(0);
    ck_assert_uint_eq(expect(DGEMMA_EVENT_BLOCK).n_tokens, 3);
    expect_text(DGEMMA_EVENT_TEXT, "e");
    step("two");
    pass(0);
    expect_text(DGEMMA_EVENT_TEXT, "two"); /* from the beginning of its block */

    /* what was told of a block that is never finished counts */
    dgemma_stats s = end(DGEMMA_OK, true);
    ck_assert_int_eq(s.end, DGEMMA_END_CANCELLED);
    ck_assert_int_eq(s.n_output, 6);
    ck_assert_int_eq(s.n_blocks, 2);
}
END_TEST

/* Of two stop strings one was complete and waited for the other, which cannot come any more. */
START_TEST(nothing_follows_a_stop_string)
{
    char *stop[] = {"abcd", "bc"};
    begin((dg_answer_config){.stop = stop, .n_stop = 2});
    say("abc<|tool_call>call:f{}<tool_call|>d", DG_END_NONE);
    ck_assert_uint_eq(expect(DGEMMA_EVENT_BLOCK).n_tokens, 13);
    expect_text(DGEMMA_EVENT_TEXT, "a");
    expect_none(); /* what stood behind it was read before that was certain */
    dgemma_stats s = end(DGEMMA_OK, false);
    ck_assert_int_eq(s.end, DGEMMA_END_STOP);
    ck_assert_int_eq(s.stop_string, 2);
    ck_assert_int_eq(s.n_output, 13);
}
END_TEST

/* A stop string that is found while the block goes on ends the block with it. */
START_TEST(a_stop_string_ends_the_block)
{
    char *stop[] = {"x", "bc"};
    begin((dg_answer_config){.stop = stop, .n_stop = 2});
    step("abcd");
    ck_assert(pass(0));
    ck_assert_uint_eq(expect(DGEMMA_EVENT_BLOCK).n_tokens, 3);
    expect_text(DGEMMA_EVENT_TEXT, "a");
    dgemma_stats s = end(DGEMMA_OK, false);
    ck_assert_int_eq(s.end, DGEMMA_END_STOP);
    ck_assert_int_eq(s.n_output, 3);
    ck_assert_int_eq(s.n_blocks, 1);
}
END_TEST

/* Memory that is out is told as that, though the parser was only told to stop. */
START_TEST(memory_runs_out)
{
    for (long n = 1;; n++) {
        bool go_on;
        dgemma_error err = {0};
        begin((dg_answer_config){0});
        step("<|channel>thought\nhm\n<channel|>a<|tool_call>call:f{}<tool_call|>b");
        finish(DG_END_STOP);
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_answer_pass(&answer, &loop, 0, &go_on, &err);
        bool reached = dg_test_alloc_done();
        dg_answer_clear(&answer);
        if (!reached) {
            ck_assert_int_gt(n, 5);
            break;
        }
        ck_assert_msg(st == DGEMMA_E_NOMEM, "allocation %ld: %d", n, st);
    }
}
END_TEST

START_TEST(why_it_ends)
{
    static const struct {
        dgemma_status st;
        bool cancelled, stop_found, waits;
        dg_block_loop_end end;
        dgemma_end want;
    } cases[] = {
        {DGEMMA_E_NOMEM, true, true, true, DG_END_STOP, DGEMMA_END_FAILED},
        {0, true, true, false, DG_END_NONE, DGEMMA_END_STOP},
        {0, true, true, true, DG_END_NONE, DGEMMA_END_TOOL_CALLS},
        {0, true, false, false, DG_END_STOP, DGEMMA_END_CANCELLED},
        {0, false, false, false, DG_END_NONE, DGEMMA_END_CANCELLED},
        {0, false, false, false, DG_END_STOP, DGEMMA_END_STOP},
        {0, false, false, true, DG_END_STOP, DGEMMA_END_TOOL_CALLS},
        {0, false, false, true, DG_END_LENGTH, DGEMMA_END_LENGTH},
        {0, false, false, true, DG_END_CONTEXT, DGEMMA_END_CONTEXT},
    };
    begin((dg_answer_config){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answer.stop_found = cases[i].stop_found;
        answer.waits_for_tools = cases[i].waits;
        loop.end = cases[i].end;
        ck_assert_int_eq(dg_answer_reason(&answer, cases[i].st, cases[i].cancelled), cases[i].want);
    }
    answer.stop_found = false;
    end(DGEMMA_E_NOMEM, false);
}
END_TEST

Suite *answer_suite(void)
{
    Suite *s = suite_create("answer");
    TCase *t = tcase_create("answer");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, prompts_and_steps_have_their_time);
    tcase_add_test(t, blocks_tell_what_became_of_them);
    tcase_add_test(t, drafts_come_when_asked_for);
    tcase_add_test(t, a_callback_may_end_it);
    tcase_add_test(t, kinds_are_told_apart);
    tcase_add_test(t, an_answer_begins_where_the_prompt_ends);
    tcase_add_test(t, a_thought_that_was_cut_is_closed);
    tcase_add_test(t, the_stop_token_is_told);
    tcase_add_test(t, a_word_that_ends_the_answer_is_not_told);
    tcase_add_test(t, a_stop_string_comes_before_the_token);
    tcase_add_test(t, drafts_begin_behind_what_was_given);
    tcase_add_test(t, settled_text_does_not_wait);
    tcase_add_test(t, nothing_follows_a_stop_string);
    tcase_add_test(t, a_stop_string_ends_the_block);
    tcase_add_test(t, memory_runs_out);
    tcase_add_test(t, why_it_ends);
    suite_add_tcase(s, t);
    return s;
}
