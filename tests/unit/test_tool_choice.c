/* Answers whose beginning the caller decides: forced calls, a prefix; and those that end after one
 * call. The model's part is played by tokens of ours. */
#include <stdlib.h>
#include <string.h>
#include "engine/answer.h"
#include "engine/engine.h"
#include "engine/prompt.h"
#include "suites.h"
#include "support/cpu_engine.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";
static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"w\"}},"
    " {\"name\": \"time\", \"description\": \"t\"}]";

static dgemma_engine *open_engine(const char *chat_template)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = model_path;
    opt.n_threads = 1;
    opt.chat_template = chat_template;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

static dgemma_request_options asking(const dgemma_engine *e)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "How is it?";
    opt.tools = tools;
    opt.max_tokens = 20;
    return opt;
}

/* The prompt as text, in memory of the caller's. */
static char *prompt_text(dgemma_engine *e, const dgemma_request_options *opt, dgemma_prompt **out)
{
    dgemma_error err = {0};
    char *text;
    ck_assert_msg(dg_prompt_build(out, e, opt, e->n_context, &err) == DGEMMA_OK, "%s", err.msg);
    const dgemma_prompt *p = *out;
    ck_assert_int_eq(dgemma_detokenize(e, p->tokens.ids, p->tokens.n, &text, NULL, NULL),
                     DGEMMA_OK);
    return text;
}

/* The prompt is that of `base` and then `more`. */
static void goes_on_with(dgemma_engine *e, const dgemma_request_options *opt,
                         const dgemma_request_options *base, const char *more, size_t n_opening)
{
    dgemma_prompt *p, *q;
    char *with = prompt_text(e, opt, &p), *without = prompt_text(e, base, &q);
    size_t n = strlen(without);
    ck_assert_msg(!strncmp(with, without, n) && !strcmp(with + n, more), "%s", with);
    ck_assert_int_eq(p->n_opening > 0, n_opening > 0);
    ck_assert(!p->in_thought);
    dgemma_free(with);
    dgemma_free(without);
    dg_prompt_release(p);
    dg_prompt_release(q);
}

static const char *const templates[] = {"a", "b"};

START_TEST(the_prompt_opens_the_answer)
{
    dgemma_engine *e = open_engine(templates[_i]);
    dgemma_request_options base = asking(e), opt = base, bare = base;
    opt.tool_choice = DGEMMA_TOOLS_REQUIRED;
    goes_on_with(e, &opt, &base, "<|tool_call>call:", 1);
    opt.thinking = true; /* makes no difference then */
    goes_on_with(e, &opt, &base, "<|tool_call>call:", 1);
    opt.tool_choice = DGEMMA_TOOLS_NAMED;
    opt.tool_name = "time";
    goes_on_with(e, &opt, &base, "<|tool_call>call:time{", 1);
    opt.answer_prefix = "Let me see. <turn|>";
    goes_on_with(e, &opt, &base, "Let me see. <turn|><|tool_call>call:time{", 1);

    opt = base;
    bare.tools = NULL;
    opt.tool_choice = DGEMMA_TOOLS_NONE;
    goes_on_with(e, &opt, &bare, "", 0);
    opt.answer_prefix = "So <|tool_call>";
    goes_on_with(e, &opt, &bare, "So <|tool_call>", 0);

    /* the markers that people write are text */
    dgemma_prompt *p;
    dgemma_free(prompt_text(e, &opt, &p));
    for (size_t i = p->tokens.n - 10; i < p->tokens.n; i++)
        ck_assert_int_ne(p->tokens.ids[i], 12);
    ck_assert(p->in_text);
    dg_prompt_release(p);
    opt = base;
    opt.thinking = true;
    opt.answer_prefix = "";
    dgemma_prompt *q;
    opt.chat_prompt = NULL; /* after a tool's result the thought is open */
    opt.messages = "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":"
                   "[{\"id\":\"1\",\"function\":{\"name\":\"time\",\"arguments\":\"{}\"}}]},"
                   "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"noon\"}]";
    dgemma_free(prompt_text(e, &opt, &q));
    ck_assert(!q->in_text);
    bool was_open = q->in_thought;
    dg_prompt_release(q);
    opt.answer_prefix = "It is";
    dgemma_free(prompt_text(e, &opt, &q));
    ck_assert(q->in_text && !q->in_thought);
    ck_assert(was_open || _i == 0);
    dg_prompt_release(q);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(choices_are_checked)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options good = asking(e), opt;
    dgemma_error err = {0};
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        opt = good;                                                                                \
        change;                                                                                    \
        ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_E_ARG);          \
        ck_assert_int_gt((int)strlen(err.msg), 8);                                                 \
    } while (0)
    REFUSED((opt.tool_choice = DGEMMA_TOOLS_NAMED, opt.tool_name = "nobody"));
    ck_assert_ptr_nonnull(strstr(err.msg, "nobody"));
    REFUSED(opt.tool_choice = DGEMMA_TOOLS_NAMED);
    REFUSED((opt.tool_choice = DGEMMA_TOOLS_REQUIRED, opt.tools = NULL));
    REFUSED((opt.tool_choice = DGEMMA_TOOLS_REQUIRED, opt.tools = "[]"));
    REFUSED((opt.tool_choice = DGEMMA_TOOLS_REQUIRED, opt.tools = "[1"));
    REFUSED(opt.tool_choice = (dgemma_tool_choice)9);
    REFUSED(
        (opt.chat_prompt = NULL, opt.tools = NULL, opt.raw_prompt = "x", opt.answer_prefix = "y"));
    REFUSED((opt.chat_prompt = NULL, opt.tools = NULL, opt.raw_prompt = "x",
             opt.tool_choice = DGEMMA_TOOLS_NONE));
#undef REFUSED
    opt = good; /* tools may come with the messages */
    opt.chat_prompt = opt.tools = NULL;
    opt.messages = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": "
                   "[{\"name\": \"time\", \"description\": \"t\"}]}";
    opt.tool_choice = DGEMMA_TOOLS_NAMED;
    opt.tool_name = "time";
    ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_OK);
    dgemma_engine_close(e);
}
END_TEST

/* ---- the way out, with a scripted model ---- */

typedef struct script {
    const char *says; /* one block, markers and all */
    bool ends;        /* with the end of its turn */
    int settles;      /* tokens in one step; 0: all at once */
} script;

typedef struct heard {
    char text[4096], calls[4096];
    char order[4096]; /* all of it as it came; runs of text joined */
    int n_token;      /* in the BLOCK events */
    dgemma_end end;
    dgemma_stats stats;
} heard;

static void hear(heard *h, dgemma_event_kind last, const dgemma_event *event)
{
    if (event->kind == DGEMMA_EVENT_TEXT || event->kind == DGEMMA_EVENT_THINKING) {
        if (last != event->kind)
            strcat(h->order, event->kind == DGEMMA_EVENT_TEXT ? "[text]" : "[thinking]");
        strncat(h->order, event->text, event->text_len);
    }
    if (event->kind == DGEMMA_EVENT_TEXT)
        strncat(h->text, event->text, event->text_len);
    if (event->kind == DGEMMA_EVENT_TOOL_CALL) {
        strcat(h->calls, event->tool_name);
        strcat(h->calls, event->text);
        strcat(h->order, "[call]");
        strcat(h->order, event->tool_name);
    }
    if (event->kind == DGEMMA_EVENT_BLOCK)
        h->n_token += (int)event->n_tokens;
    if (event->kind == DGEMMA_EVENT_END) {
        h->end = event->stats.end;
        h->stats = event->stats;
    }
}

/* Plays one block through the answer, as the engine does. */
static void play(dgemma_engine *e, const dg_answer_config *cfg, const script *s, heard *h)
{
    dgemma_error err = {0};
    int32_t ids[512];
    size_t n;
    ck_assert_int_eq(dgemma_tokenize(e, s->says, strlen(s->says), true, ids, 512, &n, &err),
                     DGEMMA_OK);
    dg_block_loop loop = {.canvas_in_pass = true, .canvas_open = true};
    loop.canvas = (dg_canvas){.n = (int)n, .argmax = ids, .token = ids, .step = 1};
    dg_stream *stream;
    dg_answer answer;
    ck_assert_int_eq(dg_stream_create(&stream, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_answer_init(&answer, cfg, &loop, stream, &err), DGEMMA_OK);
    int step = s->settles ? s->settles : (int)n;
    bool go_on = true;
    while (!answer.stop_found && !loop.block_done) {
        loop.n_read = loop.n_read + step < (int)n ? loop.n_read + step : (int)n;
        loop.block_done = loop.n_read == (int)n;
        if (loop.block_done) {
            loop.n_output = loop.n_block_token = loop.n_read;
            loop.canvas_open = false;
            loop.end = s->ends ? DG_END_STOP : DG_END_LENGTH;
            loop.stop_token = 7;
        }
        ck_assert_msg(dg_answer_pass(&answer, &loop, 0, &go_on, &err) == DGEMMA_OK, "%s", err.msg);
    }
    dg_answer_end(&answer, DGEMMA_OK, &err, !go_on);
    memset(h, 0, sizeof *h);
    dgemma_event_kind last = DGEMMA_EVENT_END;
    for (dgemma_event event; dg_stream_wait(stream, &event, 0);) {
        hear(h, last, &event);
        last = event.kind == DGEMMA_EVENT_BLOCK ? last : event.kind;
    }
    dg_answer_clear(&answer);
    dg_stream_free(stream);
}

/* However the tokens come: all at once, or settled in pieces. */
START_TEST(calls_come_out_whole)
{
    static const int pieces[] = {0, 1, 2, 5};
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = asking(e);
    opt.tool_choice = DGEMMA_TOOLS_NAMED;
    opt.tool_name = "time";
    dgemma_prompt *p;
    dgemma_error err = {0};
    ck_assert_int_eq(dg_prompt_build(&p, e, &opt, e->n_context, &err), DGEMMA_OK);
    dg_answer_config named = {.tokenizer = e->loaded.tokenizer,
                              .opening = p->tokens.ids + p->tokens.n - p->n_opening,
                              .n_opening = p->n_opening},
                     single = named, prefixed = {.tokenizer = e->loaded.tokenizer, .in_text = true};
    single.single_call = true;
    static heard h;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        script s = {
            .says = "zone:<|\"|>here<|\"|>}<tool_call|>", .ends = true, .settles = pieces[i]};
        play(e, &named, &s, &h);
        ck_assert_str_eq(h.calls, "time{\"zone\":\"here\"}");
        ck_assert_str_eq(h.text, "");
        ck_assert_int_eq(h.end, DGEMMA_END_TOOL_CALLS);

        s.says = "}<tool_call|><|tool_call>call:weather{city:1}<tool_call|> and more";
        play(e, &named, &s, &h);
        ck_assert_str_eq(h.calls, "time{}weather{\"city\":1}");
        s.ends = false;
        play(e, &single, &s, &h);
        ck_assert_str_eq(h.calls, "time{}");
        ck_assert_str_eq(h.text, "");
        ck_assert_int_eq(h.end, DGEMMA_END_TOOL_CALLS);

        /* what the prompt wrote is no call of the model's */
        static const char *const nothing[] = {"<tool_call|>", " \n<tool_call|>", "<turn|>", "\n"};
        for (size_t k = 0; k < sizeof nothing / sizeof *nothing; k++) {
            s = (script){.says = nothing[k], .ends = true, .settles = pieces[i]};
            play(e, &named, &s, &h);
            ck_assert_str_eq(h.calls, "");
            ck_assert_int_eq(h.end, DGEMMA_END_STOP);
        }

        /* an answer that goes on: a name that would be a thought at its start is none here, and the
         * blank belongs to it */
        s = (script){.says = "thought\nof you", .ends = true, .settles = pieces[i]};
        play(e, &prefixed, &s, &h);
        ck_assert_str_eq(h.text, "thought\nof you");
        s.says = " and more";
        play(e, &prefixed, &s, &h);
        ck_assert_str_eq(h.text, " and more");
        ck_assert_int_eq(h.end, DGEMMA_END_STOP);
    }
    dg_prompt_release(p);
    dgemma_engine_close(e);
}
END_TEST

/* Text that a stop string holds back is sent before the one call that ends the answer. */
START_TEST(text_before_the_only_call_is_kept)
{
    dgemma_engine *e = open_engine(NULL);
    char *stop[] = {"see that"};
    dg_answer_config cfg = {
        .tokenizer = e->loaded.tokenizer, .single_call = true, .stop = stop, .n_stop = 1};
    static heard h;
    script s = {
        .says = "I see <|tool_call>call:time{}<tool_call|>that", .ends = true, .settles = 3};
    play(e, &cfg, &s, &h);
    ck_assert_str_eq(h.text, "I see ");
    ck_assert_str_eq(h.calls, "time{}");
    ck_assert_int_eq(h.end, DGEMMA_END_TOOL_CALLS);
    dgemma_engine_close(e);
}
END_TEST

/* Whatever is held back for a stop string comes out before what follows it. */
START_TEST(events_keep_their_order)
{
    static const int pieces[] = {0, 1, 2, 3, 5};
    dgemma_engine *e = open_engine(NULL);
    char *stop[] = {"see that", "ee <"};
    dg_answer_config cfg = {.tokenizer = e->loaded.tokenizer, .stop = stop, .n_stop = 2};
    static heard h;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        script s = {.says = "I see <|tool_call>call:time{}<tool_call|>that I see "
                            "<|channel>thought\nhm\n<channel|>that",
                    .ends = true,
                    .settles = pieces[i]};
        play(e, &cfg, &s, &h);
        ck_assert_str_eq(h.order, "[text]I see [call]time[text]that I see [thinking]hm[text]that");
        ck_assert_int_eq(h.end, DGEMMA_END_TOOL_CALLS);
        ck_assert_int_eq(h.stats.stop_string, 0);
    }
    dgemma_engine_close(e);
}
END_TEST

/* What stands behind a stop string, or behind the only call that was asked for, is not part of the
 * answer: it is neither counted nor among the block's tokens. */
START_TEST(tokens_behind_the_end_do_not_count)
{
    static const int pieces[] = {0, 1, 2, 3, 5};
    static const struct {
        const char *says, *order, *upto;
        bool single;
    } cases[] = {
        {"one END two three four", "[text]one ", "one END", false},
        {"one two three END", "[text]one two three ", "one two three END", false},
        {"<|channel>thought\nhm END\n<channel|>one END two", "[thinking]hm END[text]one ",
         "<|channel>thought\nhm END\n<channel|>one END", false},
        {"one END<|tool_call>call:time{}<tool_call|>", "[text]one ", "one END", false},
        {"one <|tool_call>call:time{}<tool_call|> two END", "[text]one [call]time",
         "one <|tool_call>call:time{}<tool_call|>", true},
        {"no such thing", "[text]no such thing", "no such thing", false},
    };
    dgemma_engine *e = open_engine(NULL);
    char *stop[] = {"END"};
    static heard h;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            dg_answer_config cfg = {.tokenizer = e->loaded.tokenizer,
                                    .single_call = cases[k].single,
                                    .stop = stop,
                                    .n_stop = 1};
            script s = {.says = cases[k].says, .settles = pieces[i]};
            int32_t ids[64];
            size_t n;
            ck_assert_int_eq(
                dgemma_tokenize(e, cases[k].upto, strlen(cases[k].upto), true, ids, 64, &n, NULL),
                DGEMMA_OK);
            play(e, &cfg, &s, &h);
            ck_assert_str_eq(h.order, cases[k].order);
            ck_assert_int_eq(h.stats.n_output, (int)n);
            ck_assert_int_eq(h.n_token, (int)n);
        }
    dgemma_engine_close(e);
}
END_TEST

Suite *tool_choice_suite(void)
{
    Suite *s = suite_create("tool_choice");
    TCase *t = tcase_create("tool_choice");
    tcase_add_loop_test(t, the_prompt_opens_the_answer, 0, 2);
    tcase_add_test(t, choices_are_checked);
    tcase_add_test(t, calls_come_out_whole);
    tcase_add_test(t, text_before_the_only_call_is_kept);
    tcase_add_test(t, events_keep_their_order);
    tcase_add_test(t, tokens_behind_the_end_do_not_count);
    suite_add_tcase(s, t);
    return s;
}
