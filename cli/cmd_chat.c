/* dgemma chat: a conversation on a terminal, or line by line from a pipe. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "chat.h"
#include "line_input.h"
#include "terminal.h"

enum { MESSAGE_MAX = 16 << 20, ANSWER_MAX = 1 << 28, PACE_MS = 30 };

typedef enum color_choice { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color_choice;

typedef struct chat_args {
    const char *prompt;
    color_choice color;
    bool no_live, no_history, help;
} chat_args;

/* ---- one answer ---- */

/* What is collected while it comes. */
typedef struct answer {
    dg_buf text, thinking;
    bool failed; /* memory, or the terminal is gone */
    bool stopped;
    bool gap; /* it fills a gap: shown when it is whole, and of the canvas no mere tries */
    int killed_by;
} answer;

static void take_event(cli_chat *c, answer *a, const dgemma_event *e)
{
    dg_buf *kept = e->kind == DGEMMA_EVENT_TEXT       ? &a->text
                   : e->kind == DGEMMA_EVENT_THINKING ? &a->thinking
                                                      : NULL;
    if (kept && !dg_buf_append(kept, e->text, e->text_len))
        a->failed = true;
    bool shown = !a->gap || (e->kind == DGEMMA_EVENT_DRAFT && !e->trying);
    if (!a->failed && shown && !cli_draw_event(&c->draw, e))
        a->failed = true;
}

static void take_signal(cli_chat *c, answer *a, int number)
{
    if (number == SIGWINCH)
        a->failed = !cli_draw_keep_up(&c->draw) || a->failed;
    else if (number == SIGTSTP) {
        cli_terminal_suspend();
        a->failed = !cli_draw_resized(&c->draw) || a->failed;
    } else {
        a->stopped = true;
        if (number != SIGINT || !c->interactive)
            a->killed_by = number;
    }
}

/* Events until the last one, which is left in *end. */
static void follow(cli_chat *c, dgemma_request *request, answer *a, dgemma_event *end)
{
    dgemma_event e;
    double pause = 0; /* a step that was drawn stays for a while; the engine does not wait for it */
    for (;;) {
        int number = cli_terminal_wait(-1, pause);
        if (number)
            take_signal(c, a, number);
        pause = 0;
        if (a->stopped || a->failed)
            dgemma_request_cancel(request);
        if (!dgemma_request_wait(request, &e, 0.03))
            continue;
        if (e.kind == DGEMMA_EVENT_END)
            break;
        if (a->stopped && e.kind == DGEMMA_EVENT_DRAFT)
            continue; /* Ctrl-C stops the picture too */
        take_event(c, a, &e);
        if (c->draw.live && e.kind == DGEMMA_EVENT_DRAFT)
            pause = c->pace_ms / 1e3;
    }
    *end = e;
}

static void count(cli_chat *c, const dgemma_stats *st)
{
    c->last = *st;
    c->n_answer++;
    c->n_output += st->n_output;
    c->seconds += st->prompt_seconds + st->denoise_seconds;
}

/* Why the answer ends where it does, when that is not for the model to say. */
static void explain_end(cli_chat *c, const dgemma_event *end)
{
    if (end->status)
        cli_chat_fail(c, "dgemma: %s", end->text ? end->text : "the request failed");
    else if (end->stats.end == DGEMMA_END_CANCELLED)
        cli_chat_say(c, "[stopped]");
    else if (end->stats.end == DGEMMA_END_LENGTH)
        cli_chat_say(c, "[cut at %d tokens, see --max-tokens]", end->stats.n_output);
    else if (end->stats.end == DGEMMA_END_CONTEXT)
        cli_chat_say(c, "[the context is full; /clear makes room]");
}

/* An answer of which something came is part of the conversation. Without one the question is taken
 * back: a conversation alternates. */
static void keep_answer(cli_chat *c, const answer *a)
{
    dgemma_error err;
    if (!a->text.len && !a->thinking.len)
        cli_log_drop_last(&c->log, true);
    else if (cli_log_add_assistant(&c->log, &a->text, &a->thinking, &err))
        cli_chat_fail(c, "dgemma: %s", err.msg);
}

/* Functions that may answer return what ends the program: 0, nothing; the number of a signal that
 * came; or this, when the terminal or the memory is gone. */
enum { BROKEN = -1 };

static void begin_answer(cli_chat *c, dgemma_request *request, answer *a, dgemma_event *end)
{
    dg_buf_init(&a->text, ANSWER_MAX);
    dg_buf_init(&a->thinking, ANSWER_MAX);
    cli_terminal_begin_answer(c->draw.live);
    cli_draw_begin(&c->draw);
    follow(c, request, a, end);
}

/* Frees the request. */
static int end_answer(cli_chat *c, dgemma_request *request, answer *a, const dgemma_event *end)
{
    if (!a->failed && !cli_draw_end(&c->draw))
        a->failed = true;
    cli_terminal_end_answer();
    count(c, &end->stats);
    if (!a->gap)
        keep_answer(c, a);
    explain_end(c, end);
    dgemma_request_free(request);
    dg_buf_clear(&a->text);
    dg_buf_clear(&a->thinking);
    return a->killed_by ? a->killed_by : a->failed ? BROKEN : 0;
}

/* Answers the last message. */
static int answer_last(cli_chat *c)
{
    dgemma_error err = {0};
    dgemma_request *request = NULL;
    dgemma_request_options o = dgemma_request_defaults(c->engine);
    char *messages = cli_log_text(&c->log);
    cli_request_apply(&c->args, &o);
    o.messages = messages;
    o.drafts = c->draw.live;
    dgemma_status st = messages ? dgemma_request_submit(&request, c->engine, &o, &err)
                                : dg_fail(&err, DGEMMA_E_NOMEM, "out of memory");
    free(messages);
    if (st) {
        cli_name_options(&err);
        cli_chat_fail(c, "dgemma: %s", err.msg);
        cli_log_drop_last(&c->log, false); /* a broken picture would spoil the next one too */
        return 0;
    }
    answer a = {.failed = false};
    dgemma_event end;
    begin_answer(c, request, &a, &end);
    return end_answer(c, request, &a, &end);
}

/* ---- passages written anew ---- */

/* Shows the answer with its new passage, which takes the old one's place in the conversation. */
static void keep_rewritten(cli_chat *c, answer *a, const char *before, const char *after)
{
    dgemma_error err = {0};
    dg_buf whole;
    dg_buf_init(&whole, ANSWER_MAX);
    bool ok = dg_buf_puts(&whole, before) &&
              dg_buf_append(&whole, a->text.data ? a->text.data : "", a->text.len) &&
              dg_buf_puts(&whole, after);
    if (!ok || !cli_draw_event(&c->draw, &(dgemma_event){.kind = DGEMMA_EVENT_TEXT,
                                                         .text = whole.data,
                                                         .text_len = whole.len}))
        a->failed = true;
    else if (cli_log_set_answer(&c->log, &whole, &err))
        cli_chat_fail(c, "dgemma: %s", err.msg);
    dg_buf_clear(&whole);
}

/* Fills the gap that the passage leaves in the last answer; `before` and `after` are around it. */
static int fill_gap(cli_chat *c, const char *messages, const char *before, const char *after)
{
    dgemma_error err = {0};
    dgemma_request *request = NULL;
    dgemma_request_options o = dgemma_request_defaults(c->engine);
    cli_request_apply(&c->args, &o);
    o.thinking = false;
    o.messages = messages;
    o.answer_prefix = before;
    o.suffix = after;
    o.drafts = c->draw.live;
    if (dgemma_request_submit(&request, c->engine, &o, &err)) {
        cli_name_options(&err);
        cli_chat_fail(c, "dgemma: %s", err.msg);
        return 0;
    }
    answer a = {.gap = true};
    dgemma_event end;
    begin_answer(c, request, &a, &end);
    if (!a.failed && !end.status && end.stats.end == DGEMMA_END_STOP)
        keep_rewritten(c, &a, before, after);
    return end_answer(c, request, &a, &end);
}

static int rewrite_passage(cli_chat *c)
{
    const char *said = cli_log_last_answer(&c->log), *at = strstr(said, c->passage);
    char *messages = cli_log_text_before(&c->log, c->how), *before = dg_strdup(said);
    char *after = dg_strdup(at + strlen(c->passage));
    int ended_by = 0;
    if (messages && before && after) {
        before[at - said] = '\0';
        ended_by = fill_gap(c, messages, before, after);
    } else
        cli_chat_fail(c, "dgemma: out of memory");
    free(messages);
    dg_free(before);
    dg_free(after);
    dg_free(c->passage);
    dg_free(c->how);
    c->passage = c->how = NULL;
    return ended_by;
}

/* ---- the conversation ---- */

static int say_message(cli_chat *c, const char *text, size_t len)
{
    dgemma_error err;
    if (cli_log_add_user(&c->log, text, len, &err)) {
        cli_chat_fail(c, "dgemma: %s", err.msg);
        return 0;
    }
    return answer_last(c);
}

/* A message or a command. */
static int take_line(cli_chat *c, const char *line, size_t len)
{
    if (!line[strspn(line, " \t\n")])
        return 0;
    if (line[0] != '/')
        return say_message(c, line, len);
    if (line[1] == '/')
        return say_message(c, line + 1, len - 1);
    cli_chat_command(c, line);
    if (c->passage)
        return rewrite_passage(c);
    bool again = c->ask_again;
    c->ask_again = false;
    return again ? answer_last(c) : 0;
}

static int converse(cli_chat *c, cli_line_input *in, const char *first)
{
    dg_buf line;
    int ended_by = first ? say_message(c, first, strlen(first)) : 0;
    dg_buf_init(&line, MESSAGE_MAX);
    while (!ended_by && !c->leave) {
        cli_line_end end = cli_line_read(in, &line, &ended_by);
        if (end == CLI_LINE_EOF)
            break;
        if (end == CLI_LINE_NOTHING && c->interactive)
            cli_chat_say(c, "Ctrl-D or /exit leaves.");
        if ((end == CLI_LINE_NOTHING || end == CLI_LINE_INTERRUPTED) && c->interactive)
            ended_by = 0;
        else if (end == CLI_LINE_TOO_LONG)
            cli_chat_fail(c, "dgemma: a message has at most %d bytes", MESSAGE_MAX);
        else if (end == CLI_LINE_OK && line.data)
            ended_by = take_line(c, line.data, line.len);
    }
    dg_buf_clear(&line);
    return ended_by;
}

/* ---- the command ---- */

static bool want_color(color_choice choice)
{
    const char *none = getenv("NO_COLOR");
    if (choice != COLOR_AUTO)
        return choice == COLOR_ALWAYS;
    return isatty(STDOUT_FILENO) && !(none && *none) && cli_terminal_moves();
}

static void set_up_drawing(cli_chat *c, const chat_args *a)
{
    cli_draw_init(&c->draw, c->engine);
    c->draw.terminal = isatty(STDOUT_FILENO);
    c->draw.plain = !cli_terminal_moves();
    c->draw.live = c->draw.terminal && !c->draw.plain && !a->no_live;
    c->draw.color = c->draw.terminal && want_color(a->color);
    c->draw.hide_thinking = c->args.hide_thinking;
}

/* The system message and the pictures of the command line. */
static dgemma_status set_up_log(cli_chat *c, dgemma_error *err)
{
    if (!cli_log_init(&c->log))
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = cli_log_set_system(&c->log, c->args.system, err);
    for (size_t i = 0; !st && i < c->args.n_media; i++)
        st = cli_log_add_picture(&c->log, c->args.media[i].path, err);
    return st;
}

/* What the smallest model answers as well as the largest; tests/pocket/test_prompts.sh asks it. */
static const char try_first[] =
    "What is the capital of France? What is 17 + 25? Tell me a story about a fox.";

/* With a model that is loaded. */
static int run(cli_chat *c, const chat_args *a)
{
    dgemma_error err = {0};
    if (!c->info.has_tokenizer) {
        dg_fail(&err, DGEMMA_E_UNSUPPORTED,
                "the model has no tokenizer, so it cannot be talked to");
        return cli_fail(&err);
    }
    if (!cli_terminal_open()) {
        dg_fail(&err, DGEMMA_E_IO, "the terminal cannot be set up");
        return cli_fail(&err);
    }
    int code = EXIT_OK, ended_by = 0;
    c->interactive = cli_terminal_interactive();
    set_up_drawing(c, a);
    cli_line_input *in = cli_line_open(!a->no_history, c->draw.color);
    if (!in)
        dg_fail(&err, DGEMMA_E_NOMEM, "the line editor cannot be set up");
    if (!in || set_up_log(c, &err))
        code = cli_fail(&err);
    else {
        if (c->interactive)
            cli_chat_say(c, "Try: %s\n/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.",
                         try_first);
        ended_by = converse(c, in, a->prompt);
    }
    cli_line_close(in);
    cli_log_clear(&c->log);
    dg_free(c->saved);
    c->saved = NULL;
    cli_draw_clear(&c->draw);
    cli_terminal_close();
    if (ended_by > 0 && ended_by != SIGINT) { /* whoever sent it shall see that it worked */
        cli_guard_engine(NULL);
        dgemma_engine_close(c->engine);
        c->engine = NULL;
        raise(ended_by);
    }
    if (ended_by == BROKEN) {
        fprintf(stderr, "dgemma: the answer cannot be shown: no memory, or no output\n");
        return EXIT_FAILED;
    }
    if (!c->interactive && c->failed)
        code = EXIT_FAILED;
    return ended_by ? EXIT_INTERRUPTED : code;
}

static bool set_color(void *target, const char *text)
{
    static const char *const names[] = {"auto", "always", "never"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *(color_choice *)target = (color_choice)i;
            return true;
        }
    return false;
}

static const char usage[] =
    "usage: dgemma chat [OPTION]...\n\n"
    "Talks with a model. On a terminal the canvas is drawn while it settles: what is certain is\n"
    "bright, what is still noise is dim. The finished answer stays as plain text. /help lists "
    "what\n"
    "can be said beside messages.\n\n"
    "  dgemma chat\n"
    "  dgemma chat -m MODEL --think -p \"What is 47 + 85?\"\n"
    "  printf '%s\\n' \"Hello.\" \"And in French?\" | dgemma chat -m MODEL\n";

int cmd_chat(int argc, char **argv)
{
    cli_chat c = {.args = cli_request_defaults(), .pace_ms = PACE_MS};
    chat_args a = {.prompt = NULL};
    const cli_option head[] = {
        {0, "model and conversation", NULL, NULL, NULL, NULL},
        {'p', "prompt", "TEXT", "the first message", cli_set_string, &a.prompt},
    };
    const cli_option output[] = {
        {0, "output", NULL, NULL, NULL, NULL},
        {0, "color", "WHEN", "on a terminal: auto, always or never; NO_COLOR is respected (auto)",
         set_color, &a.color},
        {0, "no-live", NULL, "do not draw the canvas, only what is finished", cli_set_switch,
         &a.no_live},
        {0, "pace", "MS", "how long a step stays on the screen, at least (30)", cli_set_int,
         &c.pace_ms},
        {0, "no-history", NULL, "neither read nor keep what was typed", cli_set_switch,
         &a.no_history},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {.n = 0};
    cli_options_add(&options, head, sizeof head / sizeof head[0]);
    cli_options_add_request(&options, &c.args);
    cli_options_add(&options, output, sizeof output / sizeof output[0]);

    size_t n_rest;
    int code;
    if (!cli_parse("chat", options.row, options.n, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    if (!cli_request_check("chat", &c.args, &code))
        return code;

    dgemma_error err = {0};
    cli_progress progress;
    cli_progress_attach(&progress, &c.args.engine);
    dgemma_status st = dgemma_engine_open(&c.engine, &c.args.engine, &err);
    cli_progress_end(&progress);
    if (st)
        return cli_fail(&err);
    cli_guard_engine(c.engine);
    dgemma_engine_info(c.engine, &c.info);
    cli_warn_of_model(&c.args.engine, &c.info);
    code = run(&c, &a);
    cli_guard_engine(NULL);
    dgemma_engine_close(c.engine);
    return code;
}
