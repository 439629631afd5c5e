/* dgemma run: one prompt in, one answer out. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cells.h"
#include "constraint_args.h"
#include "terminal.h"

enum { PROMPT_MAX = 64 << 20 };

/* What the command line said. */
typedef struct run_args {
    cli_request_args request;
    cli_constraint_args constraint;
    const char *prompt, *file, *tokens, *messages_file, *tools_file;
    const char *cache_file; /* of keys and values */
    bool raw, cache_read_only, json, draft, quiet, help;
} run_args;

typedef struct call {
    char *name, *arguments;
} call;

/* What is collected while the answer comes. */
typedef struct run_state {
    const run_args *args;
    dgemma_engine *engine;
    bool has_tokenizer, failed;
    dg_buf text, thinking;
    int32_t *ids;
    size_t n_ids;
    call *calls;
    size_t n_call;
    dgemma_event_kind last; /* what was printed last, to set thoughts off from the answer */
} run_state;

/* Set by Ctrl-C; the answer so far is kept. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- what goes in ---- */

/* A text that asks something, or stands beside a picture that does; in a conversation white space
 * around it does not count. */
static const char *need_words(const run_args *a, const char *text, dgemma_error *err)
{
    if (text[a->raw ? 0 : strspn(text, " \t\r\n")] || a->request.n_media)
        return text;
    dg_fail(err, DGEMMA_E_ARG, "there is no prompt: its text is empty");
    return NULL;
}

/* A pipe or a file: not a terminal, nor /dev/null or another device. Somebody who waits for a pipe
 * that stays silent is told what for. */
static bool stdin_has_text(void)
{
    struct stat info;
    if (fstat(STDIN_FILENO, &info) || S_ISCHR(info.st_mode) || S_ISDIR(info.st_mode))
        return false;
    if (!cli_terminal_readable(2))
        fputs("dgemma: waiting for the text on standard input (</dev/null: there is none)\n",
              stderr);
    return true;
}

/* How many options are to be read from standard input. */
static int count_stdin(const run_args *a)
{
    const char *const path[] = {a->file, a->messages_file, a->tools_file, a->constraint.schema,
                                a->constraint.grammar};
    int n = 0;
    for (size_t i = 0; i < sizeof path / sizeof path[0]; i++)
        n += path[i] && strcmp(path[i], "-") == 0;
    return n;
}

/* The text that a file or a pipe has for the prompt, into *buf. False: it cannot be read. */
static bool read_text(const run_args *a, dg_buf *buf, dgemma_error *err)
{
    const char *path = a->file ? a->file : "-";
    if (!a->file && (count_stdin(a) || !stdin_has_text()))
        return true;
    return !cli_read_text(buf, path, err);
}

/* The prompt from wherever it comes; NULL when there is none. What a file or a pipe has stands in
 * front of the words that were typed: first the text, then what is to be done with it. */
static const char *read_prompt(const run_args *a, dg_buf *buf, dgemma_error *err)
{
    if ((a->prompt && !need_words(a, a->prompt, err)) || !read_text(a, buf, err))
        return NULL;
    if (!a->prompt && !buf->len && !a->file && isatty(STDIN_FILENO)) {
        dg_fail(err, DGEMMA_E_ARG,
                "there is no prompt: give it as a word, with --file, or through a pipe");
        return NULL;
    }
    if (!a->prompt || !buf->len)
        return need_words(a, a->prompt ? a->prompt : buf->len ? buf->data : "", err);
    if (!dg_buf_puts(buf, buf->data[buf->len - 1] == '\n' ? "\n" : "\n\n") ||
        !dg_buf_puts(buf, a->prompt)) {
        dg_fail(err, DGEMMA_E_LIMIT, "a prompt has at most %d bytes", PROMPT_MAX);
        return NULL;
    }
    return buf->data;
}

static void apply(const run_args *a, dgemma_request_options *o)
{
    cli_request_apply(&a->request, o);
    o->system = a->request.system;
    o->drafts = a->draft;
    o->media = a->request.media;
    o->n_media = a->request.n_media;
}

/* ---- what comes out ---- */

/* Text of the model's: a terminal gets no control characters from it. */
static void print_text(FILE *out, const char *text, size_t len)
{
    if (isatty(fileno(out)))
        cli_safe_write(out, text, len);
    else
        fwrite(text, 1, len, out);
}

/* The canvas as one line: newlines shown as a sign, so that a step is a line. */
static void print_canvas(const char *text, size_t len)
{
    cli_cell cell;
    for (size_t i = 0; i < len;) {
        i += cli_cell_next(text + i, len - i, &cell);
        if (cell.newline)
            fputs("\xE2\x8F\x8E", stderr);
        else if (cell.tab)
            fputc(' ', stderr);
        else
            fwrite(cell.text, 1, cell.len, stderr);
    }
}

/* How many tokens there are with what the canvas ends in, mostly padding, counted once. */
static size_t count_unlike(const int32_t *tokens, size_t n)
{
    while (n > 1 && tokens[n - 2] == tokens[n - 1])
        n--;
    return n;
}

static void print_draft(const run_state *s, const dgemma_event *e)
{
    int accepted = 0;
    size_t n = count_unlike(e->tokens, e->n_tokens);
    for (size_t i = 0; i < e->n_tokens; i++)
        accepted += e->accepted[i];
    fprintf(stderr, "block %d step %2d  entropy %6.3f  kept %3d/%zu  ", e->block, e->step + 1,
            (double)e->mean_entropy, accepted, e->n_tokens);
    char *text = NULL;
    size_t len;
    dgemma_error err;
    if (s->has_tokenizer &&
        dgemma_detokenize(s->engine, e->tokens, n, &text, &len, &err) == DGEMMA_OK)
        print_canvas(text, len);
    else
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, "%d ", (int)e->tokens[i]);
    if (n < e->n_tokens)
        fprintf(stderr, " \xC3\x97%zu", e->n_tokens - n + 1);
    fputc('\n', stderr);
    dgemma_free(text);
}

/* Shown as it comes, unless it would stand between drafts or inside JSON. */
static bool shows_text(const run_state *s)
{
    return !s->args->json && !s->args->draft;
}

static bool keep_ids(run_state *s, const dgemma_event *e)
{
    int32_t *ids = dg_array_resize(s->ids, s->n_ids + e->n_tokens, sizeof *ids);
    if (!ids)
        return false;
    s->ids = ids;
    if (e->n_tokens)
        memcpy(ids + s->n_ids, e->tokens, e->n_tokens * sizeof *ids);
    s->n_ids += e->n_tokens;
    if (!s->has_tokenizer && shows_text(s))
        for (size_t i = 0; i < e->n_tokens; i++)
            printf("%d ", (int)e->tokens[i]);
    return true;
}

static void print_call(const run_state *s, const dgemma_event *e)
{
    if (s->last == DGEMMA_EVENT_TEXT)
        putchar('\n');
    print_text(stdout, e->tool_name, strlen(e->tool_name));
    putchar('(');
    print_text(stdout, e->text, e->text_len);
    puts(")");
}

static bool keep_call(run_state *s, const dgemma_event *e)
{
    call *calls = dg_array_resize(s->calls, s->n_call + 1, sizeof *calls);
    if (!calls)
        return false;
    s->calls = calls;
    calls[s->n_call++] = (call){dg_strdup(e->tool_name), dg_strndup(e->text, e->text_len)};
    if (shows_text(s))
        print_call(s, e);
    s->last = e->kind;
    return calls[s->n_call - 1].name && calls[s->n_call - 1].arguments;
}

/* Thoughts go to standard error: standard output is the answer alone. */
static bool keep_text(run_state *s, const dgemma_event *e)
{
    bool thinking = e->kind == DGEMMA_EVENT_THINKING;
    if (shows_text(s) && !(thinking && s->args->request.hide_thinking)) {
        if (s->last == DGEMMA_EVENT_THINKING && !thinking)
            fputs("\n\n", stderr);
        print_text(thinking ? stderr : stdout, e->text, e->text_len);
    }
    s->last = e->kind;
    return dg_buf_append(thinking ? &s->thinking : &s->text, e->text, e->text_len);
}

static void take_event(run_state *s, const dgemma_event *e)
{
    bool kept = true;
    switch (e->kind) {
    case DGEMMA_EVENT_DRAFT:
        print_draft(s, e);
        break;
    case DGEMMA_EVENT_BLOCK:
        kept = keep_ids(s, e);
        break;
    case DGEMMA_EVENT_TEXT:
    case DGEMMA_EVENT_THINKING:
        kept = keep_text(s, e);
        break;
    case DGEMMA_EVENT_TOOL_CALL:
        kept = keep_call(s, e);
        break;
    case DGEMMA_EVENT_READ:
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_END:
        break;
    }
    fflush(stdout);
    s->failed = s->failed || !kept;
}

static void print_json_text(const run_state *s, const char *key, const dg_buf *text)
{
    printf("\"%s\": ", key);
    if (s->has_tokenizer)
        cli_json_string(stdout, text->data ? text->data : "", text->len);
    else
        printf("null");
}

static void print_json(const run_state *s, const dgemma_stats *st)
{
    printf("{");
    print_json_text(s, "text", &s->text);
    printf(", ");
    print_json_text(s, "thinking", &s->thinking);
    printf(", \"tool_calls\": [");
    for (size_t i = 0; i < s->n_call; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        cli_json_string(stdout, s->calls[i].name, strlen(s->calls[i].name));
        printf(", \"arguments\": %s}", s->calls[i].arguments);
    }
    printf("], \"tokens\": [");
    for (size_t i = 0; i < s->n_ids; i++)
        printf("%s%d", i ? ", " : "", (int)s->ids[i]);
    double seconds = st->prompt_seconds + st->denoise_seconds;
    printf("], \"end\": \"%s\", \"seed\": %llu, \"stats\": {\"prompt_tokens\": %d, "
           "\"output_tokens\": %d, "
           "\"thinking_tokens\": %d, \"blocks\": %d, \"blocks_settled\": %d, \"steps\": %d, "
           "\"tokens_per_step\": %.3f, "
           "\"ms_per_step\": %.3f, \"prompt_seconds\": %.6f, \"denoise_seconds\": %.6f, "
           "\"first_text_seconds\": %.6f, "
           "\"tokens_per_second\": %.3f, \"kv_bytes\": %zu}}\n",
           cli_end_name(st->end), (unsigned long long)s->args->request.seed, st->n_prompt,
           st->n_output, st->n_thinking, st->n_blocks, st->n_converged, st->n_steps,
           cli_per(st->n_output, st->n_steps), 1e3 * cli_per(st->denoise_seconds, st->n_steps),
           st->prompt_seconds, st->denoise_seconds, st->first_text_seconds,
           cli_per(st->n_output, seconds), st->kv_bytes);
}

/* The end of the output that people read: what was kept back, and a last newline. */
static void finish_text(const run_state *s)
{
    if (s->args->draft && s->text.len)
        print_text(stdout, s->text.data, s->text.len);
    if (s->last != DGEMMA_EVENT_TOOL_CALL &&
        (!s->text.len || s->text.data[s->text.len - 1] != '\n'))
        putchar('\n');
}

/* ---- the command ---- */

static void state_clear(run_state *s)
{
    for (size_t i = 0; i < s->n_call; i++) {
        dg_free(s->calls[i].name);
        dg_free(s->calls[i].arguments);
    }
    dg_free(s->calls);
    dg_free(s->ids);
    dg_buf_clear(&s->text);
    dg_buf_clear(&s->thinking);
}

/* The first Ctrl-C ends the answer after the step that is running; a second one kills. */
static void catch_interrupt(void)
{
    struct sigaction act = {.sa_handler = on_interrupt,
                            .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What is wrong with a conversation or with tools is wrong in a file; one may have both. */
static void name_file(const run_args *a, dgemma_error *err)
{
    bool tools = begins(err->msg, "tools");
    const char *path =
        tools && a->tools_file ? a->tools_file
        : tools || begins(err->msg, "messages") || begins(err->msg, "the conversation")
            ? a->messages_file
            : NULL;
    if (path)
        cli_name_file(err, path);
}

/* Events until the last one, whose statistics go into *stats. A block may take minutes in which no
 * event comes, so Ctrl-C is looked for in between. */
static dgemma_status generate(run_state *s, const dgemma_request_options *req, dgemma_stats *stats,
                              dgemma_error *err)
{
    dgemma_request *request;
    dgemma_event e = {.kind = DGEMMA_EVENT_PROMPT};
    dgemma_status st = dgemma_request_submit(&request, s->engine, req, err);
    if (st) {
        name_file(s->args, err);
        return st;
    }
    while (e.kind != DGEMMA_EVENT_END) {
        if (interrupted || s->failed)
            dgemma_request_cancel(request);
        if (dgemma_request_wait(request, &e, 0.1))
            take_event(s, &e);
    }
    *stats = e.stats;
    if (e.status)
        st = dg_fail(err, e.status, "%s", e.text ? e.text : "the request failed");
    dgemma_request_free(request);
    return st;
}

static int answer(const run_args *a, dgemma_engine *engine, dgemma_request_options *req)
{
    dgemma_model_info info;
    dgemma_engine_info(engine, &info);
    if (!req->tokens && !req->raw_prompt)
        cli_warn_of_model(&a->request.engine, &info);
    run_state s = {
        .args = a, .engine = engine, .has_tokenizer = info.has_tokenizer, .last = DGEMMA_EVENT_END};
    dg_buf_init(&s.text, (size_t)1 << 30);
    dg_buf_init(&s.thinking, (size_t)1 << 30);
    apply(a, req);

    dgemma_error err = {0};
    dgemma_stats stats = {0};
    catch_interrupt();
    dgemma_status st = generate(&s, req, &stats, &err);
    signal(SIGINT, SIG_DFL);
    int code = interrupted ? EXIT_INTERRUPTED : EXIT_OK;
    if (!st && s.failed)
        st = dg_fail(&err, DGEMMA_E_NOMEM, "out of memory");
    if (st)
        code = cli_fail(&err);
    else if (a->json)
        print_json(&s, &stats);
    else
        finish_text(&s);
    fflush(stdout);
    if (!st && !a->quiet)
        cli_print_stats(stderr, &stats);
    state_clear(&s);
    return code;
}

/* ---- keys and values of the last time ---- */

static int recall(const run_args *a, dgemma_engine *engine)
{
    dgemma_error err = {0};
    if (!a->cache_file || (!dg_file_exists(a->cache_file) && !a->cache_read_only) ||
        !dgemma_prefix_restore(engine, a->cache_file, NULL, NULL, &err))
        return EXIT_OK;
    return cli_fail(&err);
}

static int remember(const run_args *a, dgemma_engine *engine)
{
    dgemma_error err = {0};
    if (!a->cache_file || a->cache_read_only ||
        !dgemma_prefix_save(engine, a->cache_file, 0, NULL, NULL, &err))
        return EXIT_OK;
    return cli_fail(&err);
}

/* Reads what the options name, opens the model, answers. */
static int run(run_args *a)
{
    dgemma_error err = {0};
    dg_buf prompt, messages, tools;
    dg_buf_init(&prompt, PROMPT_MAX);
    dg_buf_init(&messages, PROMPT_MAX);
    dg_buf_init(&tools, PROMPT_MAX);
    int32_t *tokens = NULL;
    dgemma_engine *engine = NULL;
    dgemma_constraint *constraint = NULL;
    dgemma_request_options req = {0};
    cli_progress progress;
    const char *text = NULL;
    size_t n_tokens = 0;
    int code = EXIT_OK;

    cli_progress_attach(&progress, &a->request.engine);
    if (a->tokens && !cli_parse_ids("run", a->tokens, &tokens, &n_tokens))
        code = EXIT_USAGE;
    else if (!a->tokens && !a->messages_file && !(text = read_prompt(a, &prompt, &err)))
        code = cli_fail(&err);
    else if ((a->messages_file && dg_file_read(&messages, a->messages_file, &err)) ||
             (a->tools_file && dg_file_read(&tools, a->tools_file, &err)))
        code = cli_fail(&err);
    else if (cli_constraint_count(&a->constraint) &&
             cli_constraint_make(&constraint, "run", &a->constraint, &err))
        code = cli_fail(&err);
    else if (dgemma_engine_open(&engine, &a->request.engine, &err)) {
        cli_progress_end(&progress);
        code = cli_fail(&err);
    } else {
        cli_progress_end(&progress);
        cli_guard_engine(engine);
        req = dgemma_request_defaults(engine);
        req.tokens = tokens;
        req.n_tokens = n_tokens;
        req.constraint = constraint;
        req.messages = a->messages_file ? (messages.data ? messages.data : "") : NULL;
        req.tools = a->tools_file ? (tools.data ? tools.data : "") : NULL;
        *(a->raw ? &req.raw_prompt : &req.chat_prompt) = text;
        code = recall(a, engine);
        if (code == EXIT_OK)
            code = answer(a, engine, &req);
        if (code == EXIT_OK)
            code = remember(a, engine);
    }
    cli_guard_engine(NULL);
    dgemma_engine_close(engine);
    dgemma_constraint_free(constraint);
    dg_buf_clear(&prompt);
    dg_buf_clear(&messages);
    dg_buf_clear(&tools);
    dg_free(tokens);
    return code;
}

static bool add_video(void *target, const char *path)
{
    return cli_request_add_media(target, path, true);
}

static const char usage[] =
    "usage: dgemma run [OPTION]... [PROMPT]\n\n"
    "Answers one prompt: the last word, a file (--file), what comes through a pipe, or text and\n"
    "words together. The answer goes to standard output, everything else to standard error.\n\n"
    "  dgemma run -m ~/models/diffusiongemma-26B-A4B-it \"What is the capital of France?\"\n"
    "  dgemma run -m MODEL --draft --seed 7 \"Tell me a story about a fox.\"   watch the canvas "
    "settle\n"
    "  cat notes.txt | dgemma run -m MODEL \"Summarise this.\"\n"
    "  git diff | dgemma run -m MODEL --think --system \"You review code.\" --json > answer.json\n"
    "  dgemma run -m MODEL --image cat.jpg --image dog.jpg \"Which one is <|image|>, which "
    "<|image|>?\"\n"
    "  dgemma run -m MODEL --messages examples/chat.json --tools examples/tools.json\n"
    "  dgemma run -m MODEL --json-schema examples/person.json \\\n"
    "      \"Turn this into JSON: Ada is 36 years old and lives in Paris.\"\n";

/* Two ways of giving the prompt at once, or none that makes sense. */
static const char *prompt_mistake(const run_args *a)
{
    int n = (a->prompt || a->file) + (a->tokens != NULL) + (a->messages_file != NULL);
    if (n > 1)
        return "give the prompt once: as text (words, --file), with --tokens or with --messages";
    if (a->raw && (a->messages_file || a->tokens))
        return "--raw goes with a prompt that is text";
    if ((a->raw || a->tokens) && (a->request.system || a->tools_file || a->request.think))
        return "--system, --tools and --think go with a chat, not with --raw or --tokens";
    if (cli_constraint_count(&a->constraint) > 1)
        return "give one of --json-schema, --json-object, --regex, --choice, --grammar, not two";
    if (a->cache_read_only && !a->cache_file)
        return "--prompt-cache-ro goes with --prompt-cache";
    if (a->cache_file && a->request.n_media)
        return "--prompt-cache keeps text alone, no pictures";
    if (a->cache_file && a->request.lora.n)
        return "--prompt-cache keeps what the model itself makes of a text, without --lora";
    if (count_stdin(a) > 1)
        return "two options ask for standard input";
    return cli_constraint_mistake(&a->constraint);
}

int cmd_run(int argc, char **argv)
{
    run_args a = {.request = cli_request_defaults()};
    const cli_option prompt[] = {
        {0, "model and prompt", NULL, NULL, NULL, NULL},
        {'p', "prompt", "TEXT", "the prompt, as an option", cli_set_string, &a.prompt},
        {'f', "file", "FILE", "text from a file, in front of the words; - is standard input",
         cli_set_string, &a.file},
        {0, "messages", "FILE", "a conversation: JSON in OpenAI's form", cli_set_string,
         &a.messages_file},
        {0, "tools", "FILE", "functions the model may call: JSON likewise", cli_set_string,
         &a.tools_file},
        {0, "tokens", "IDS", "the prompt as token ids: 2,105,2364", cli_set_string, &a.tokens},
        {0, "raw", NULL, "take the prompt as it stands: no turn markers, but those in it count",
         cli_set_switch, &a.raw},
        {0, "video", "FILE", "a video, like --image, at <|video|>", add_video, &a.request},
        {0, "prompt-cache", "FILE",
         "keep the prompt's keys and values there, and go on from what was kept", cli_set_string,
         &a.cache_file},
        {0, "prompt-cache-ro", NULL, "only read that file", cli_set_switch, &a.cache_read_only},
    };
    const cli_option output[] = {
        {0, "output", NULL, NULL, NULL, NULL},
        {0, "json", NULL, "one JSON object: text, thinking, tool_calls, tokens, end, stats",
         cli_set_switch, &a.json},
        {0, "draft", NULL, "show the canvas after each step, on standard error", cli_set_switch,
         &a.draft},
        {'q', "quiet", NULL, "only the answer: no statistics, no word about the default model",
         cli_set_switch, &a.quiet},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {.n = 0};
    cli_options_add(&options, prompt, sizeof prompt / sizeof prompt[0]);
    cli_options_add_model(&options, &a.request);
    cli_options_add_answer(&options, &a.request);
    cli_options_add_constraint(&options, &a.constraint, "what the answer is held to, one of");
    cli_options_add_draws(&options, &a.request);
    cli_options_add_diffusion(&options, &a.request);
    cli_options_add_machine(&options, &a.request);
    cli_options_add(&options, output, sizeof output / sizeof output[0]);

    size_t n_rest;
    const char *rest[1];
    int code;
    if (!cli_parse("run", options.row, options.n, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    if (n_rest && a.prompt) {
        fprintf(stderr, "dgemma run: there are two prompts\n");
        return EXIT_USAGE;
    }
    if (n_rest)
        a.prompt = rest[0];
    const char *mistake = prompt_mistake(&a);
    if (mistake) {
        fprintf(stderr, "dgemma run: %s\n", mistake);
        return EXIT_USAGE;
    }
    a.request.quiet = a.quiet;
    return cli_request_check("run", &a.request, &code) ? run(&a) : code;
}
