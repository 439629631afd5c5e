/* dgemma run: one prompt in, one answer out. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli.h"

enum { PROMPT_MAX = 64 << 20, MAX_STOP = 16, MAX_MEDIA = 64 };

/* What the command line said. Numbers start at -1 or NaN, "not said", so that the model's own
 * defaults stay. */
typedef struct run_args {
    dgemma_engine_options engine;
    const char *prompt, *file, *tokens, *messages_file, *tools_file, *system, *kv_type;
    bool raw, think, hide_thinking, json, draft, quiet, help;
    uint64_t seed;
    int max_tokens, think_budget, steps, stability, canvas, top_k, settled;
    float t_min, t_max, entropy_bound, confidence, temperature, top_p, min_p;
    const char *stop[MAX_STOP];
    size_t n_stop;
    dgemma_media media[MAX_MEDIA];
    size_t n_media;
    int image_tokens;
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

/* The prompt's text from wherever it comes; NULL when there is none. */
static const char *read_prompt(const run_args *a, dg_buf *buf, dgemma_error *err)
{
    if (a->prompt)
        return a->prompt;
    const char *path = a->file ? a->file : "-";
    if (!a->file && isatty(STDIN_FILENO)) {
        dg_fail(err, DGEMMA_E_ARG,
                "there is no prompt: give it as a word, with --file, or through a pipe");
        return NULL;
    }
    if (dg_file_read(buf, path, err))
        return NULL;
    if (buf->len && memchr(buf->data, 0, buf->len)) {
        dg_fail(err, DGEMMA_E_ARG, "%s: the prompt has a NUL byte in it", path);
        return NULL;
    }
    return buf->len ? buf->data : "";
}

static void apply(const run_args *a, dgemma_request_options *o)
{
    o->seed = a->seed;
    o->system = a->system;
    o->thinking = a->think;
    o->thinking_budget = a->think_budget;
    o->stop = a->stop;
    o->n_stop = a->n_stop;
    o->drafts = a->draft;
    o->media = a->media;
    o->n_media = a->n_media;
    o->image_tokens = a->image_tokens;
    if (a->max_tokens >= 0)
        o->max_tokens = a->max_tokens;
    if (a->steps >= 0)
        o->max_denoise_steps = a->steps;
    if (a->stability >= 0)
        o->stability_threshold = a->stability;
    if (a->canvas >= 0)
        o->canvas_length = a->canvas;
    if (a->t_min >= 0)
        o->t_min = a->t_min;
    if (a->t_max >= 0)
        o->t_max = a->t_max;
    if (a->entropy_bound >= 0)
        o->entropy_bound = a->entropy_bound;
    if (a->confidence >= 0)
        o->confidence_threshold = a->confidence;
    if (!isnan(a->temperature))
        o->temperature = a->temperature;
    if (!isnan(a->top_p))
        o->top_p = a->top_p;
    o->top_k = a->top_k;
    o->min_p = a->min_p;
    o->settled_steps = a->settled;
}

/* ---- what comes out ---- */

/* The canvas as one line: newlines shown as a sign, so that a step is a line. */
static void print_draft(const run_state *s, const dgemma_event *e)
{
    int accepted = 0;
    for (size_t i = 0; i < e->n_tokens; i++)
        accepted += e->accepted[i];
    fprintf(stderr, "block %d step %2d  entropy %6.3f  kept %3d/%zu  ", e->block, e->step + 1,
            (double)e->mean_entropy, accepted, e->n_tokens);
    char *text = NULL;
    dgemma_error err;
    if (s->has_tokenizer &&
        dgemma_detokenize(s->engine, e->tokens, e->n_tokens, &text, NULL, &err) == DGEMMA_OK)
        for (const char *c = text; *c; c++)
            *c == '\n' ? fputs("\xE2\x8F\x8E", stderr)
                       : fputc((unsigned char)*c < 0x20 ? ' ' : *c, stderr);
    else
        for (size_t i = 0; i < e->n_tokens; i++)
            fprintf(stderr, "%d ", (int)e->tokens[i]);
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

static bool keep_call(run_state *s, const dgemma_event *e)
{
    call *calls = dg_array_resize(s->calls, s->n_call + 1, sizeof *calls);
    if (!calls)
        return false;
    s->calls = calls;
    calls[s->n_call++] = (call){dg_strdup(e->tool_name), dg_strndup(e->text, e->text_len)};
    if (shows_text(s))
        printf("%s%s(%s)\n", s->last == DGEMMA_EVENT_TEXT ? "\n" : "", e->tool_name, e->text);
    s->last = e->kind;
    return calls[s->n_call - 1].name && calls[s->n_call - 1].arguments;
}

/* Thoughts go to standard error: standard output is the answer alone. */
static bool keep_text(run_state *s, const dgemma_event *e)
{
    bool thinking = e->kind == DGEMMA_EVENT_THINKING;
    if (shows_text(s) && !(thinking && s->args->hide_thinking)) {
        if (s->last == DGEMMA_EVENT_THINKING && !thinking)
            fputs("\n\n", stderr);
        fwrite(e->text, 1, e->text_len, thinking ? stderr : stdout);
    }
    s->last = e->kind;
    return dg_buf_append(thinking ? &s->thinking : &s->text, e->text, e->text_len);
}

static bool on_event(void *user, const dgemma_event *e)
{
    run_state *s = user;
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
    case DGEMMA_EVENT_PROMPT:
    case DGEMMA_EVENT_END:
        break;
    }
    fflush(stdout);
    s->failed = s->failed || !kept;
    return kept && !interrupted;
}

static const char *end_name(dgemma_end end)
{
    static const char *const names[] = {"stop",       "length",    "context",
                                        "tool_calls", "cancelled", "failed"};
    return names[end];
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_stats(const dgemma_stats *st)
{
    double seconds = st->prompt_seconds + st->denoise_seconds;
    fprintf(stderr,
            "%d tokens in %d block%s and %d steps (%d of %d settled early), %.1f tokens/step, %.1f "
            "ms/step, "
            "%.1f tokens/s; prompt %d tokens; ended by %s\n",
            st->n_output, st->n_blocks, st->n_blocks == 1 ? "" : "s", st->n_steps, st->n_converged,
            st->n_blocks, per(st->n_output, st->n_steps),
            1e3 * per(st->denoise_seconds, st->n_steps), per(st->n_output, seconds), st->n_prompt,
            end_name(st->end));
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
           end_name(st->end), (unsigned long long)s->args->seed, st->n_prompt, st->n_output,
           st->n_thinking, st->n_blocks, st->n_converged, st->n_steps,
           per(st->n_output, st->n_steps), 1e3 * per(st->denoise_seconds, st->n_steps),
           st->prompt_seconds, st->denoise_seconds, st->first_text_seconds,
           per(st->n_output, seconds), st->kv_bytes);
}

/* The end of the output that people read: what was kept back, and a last newline. */
static void finish_text(const run_state *s)
{
    if (s->args->draft && s->text.len)
        fwrite(s->text.data, 1, s->text.len, stdout);
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

static int answer(const run_args *a, dgemma_engine *engine, dgemma_request_options *req)
{
    dgemma_model_info info;
    dgemma_engine_info(engine, &info);
    if (info.foreign_template && !a->engine.chat_template && !req->tokens && !req->raw_prompt)
        fprintf(stderr, "dgemma: the model's chat template is not one of DiffusionGemma's; "
                        "revision a is used (--chat-template)\n");
    run_state s = {
        .args = a, .engine = engine, .has_tokenizer = info.has_tokenizer, .last = DGEMMA_EVENT_END};
    dg_buf_init(&s.text, (size_t)1 << 30);
    dg_buf_init(&s.thinking, (size_t)1 << 30);
    apply(a, req);

    dgemma_error err = {0};
    dgemma_stats stats;
    signal(SIGINT, on_interrupt);
    dgemma_status st = dgemma_generate(engine, req, on_event, &s, &stats, &err);
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
        print_stats(&stats);
    state_clear(&s);
    return code;
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
    dgemma_request_options req = {0};
    cli_progress progress;
    const char *text = NULL;
    size_t n_tokens = 0;
    int code = EXIT_OK;

    cli_progress_attach(&progress, &a->engine);
    if (a->tokens && !cli_parse_ids("run", a->tokens, &tokens, &n_tokens))
        code = EXIT_USAGE;
    else if (!a->tokens && !a->messages_file && !(text = read_prompt(a, &prompt, &err)))
        code = cli_fail(&err);
    else if ((a->messages_file && dg_file_read(&messages, a->messages_file, &err)) ||
             (a->tools_file && dg_file_read(&tools, a->tools_file, &err)))
        code = cli_fail(&err);
    else if (dgemma_engine_open(&engine, &a->engine, &err)) {
        cli_progress_end(&progress);
        code = cli_fail(&err);
    } else {
        cli_progress_end(&progress);
        req = dgemma_request_defaults(engine);
        req.tokens = tokens;
        req.n_tokens = n_tokens;
        req.messages = a->messages_file ? (messages.data ? messages.data : "") : NULL;
        req.tools = a->tools_file ? (tools.data ? tools.data : "") : NULL;
        *(a->raw ? &req.raw_prompt : &req.chat_prompt) = text;
        code = answer(a, engine, &req);
    }
    dgemma_engine_close(engine);
    dg_buf_clear(&prompt);
    dg_buf_clear(&messages);
    dg_buf_clear(&tools);
    dg_free(tokens);
    return code;
}

static bool add_media(run_args *a, const char *path, bool video)
{
    if (a->n_media == MAX_MEDIA)
        return false;
    a->media[a->n_media++] = (dgemma_media){.path = path, .video = video};
    return true;
}

static bool add_image(void *target, const char *path)
{
    return add_media(target, path, false);
}

static bool add_video(void *target, const char *path)
{
    return add_media(target, path, true);
}

static bool set_image_attention(void *target, const char *text)
{
    static const char *const names[] = {"whole", "window", "causal"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *(dgemma_image_attention *)target = (dgemma_image_attention)i;
            return true;
        }
    return false;
}

static bool add_stop(void *target, const char *text)
{
    run_args *a = target;
    if (a->n_stop == MAX_STOP || !*text)
        return false;
    a->stop[a->n_stop++] = text;
    return true;
}

static const char usage[] =
    "usage: dgemma run -m MODEL [OPTION]... [PROMPT]\n\n"
    "Answers one prompt. The prompt is the last word, a file (--file) or what comes through a "
    "pipe. The answer goes to\n"
    "standard output, everything else to standard error.\n\n"
    "  dgemma run -m ~/models/diffusiongemma-26B-A4B-it \"Why is the sky blue?\"\n"
    "  dgemma run -m MODEL --draft --seed 7 \"Write a haiku.\"      watch the canvas settle\n"
    "  git diff | dgemma run -m MODEL --think --system \"You review code.\" --json > answer.json\n"
    "  dgemma run -m MODEL --image cat.jpg --image dog.jpg \"Which one is <|image|>, which "
    "<|image|>?\"\n"
    "  dgemma run -m MODEL --messages chat.json --tools tools.json\n";

/* Two ways of giving the prompt at once, or none that makes sense. */
static const char *prompt_mistake(const run_args *a)
{
    int n =
        (a->prompt != NULL) + (a->file != NULL) + (a->tokens != NULL) + (a->messages_file != NULL);
    if (n > 1)
        return "give the prompt once: as a word, with --file, --tokens or --messages";
    if (a->raw && (a->messages_file || a->tokens))
        return "--raw goes with a prompt that is text";
    if ((a->raw || a->tokens) && (a->system || a->tools_file || a->think))
        return "--system, --tools and --think go with a chat, not with --raw or --tokens";
    return NULL;
}

int cmd_run(int argc, char **argv)
{
    run_args a = {.engine = dgemma_engine_defaults(),
                  .max_tokens = -1,
                  .think_budget = -1,
                  .steps = -1,
                  .stability = -1,
                  .canvas = -1,
                  .t_min = -1,
                  .t_max = -1,
                  .entropy_bound = -1,
                  .confidence = -1,
                  .temperature = NAN,
                  .top_p = NAN};
    const cli_option options[] = {
        {0, "model and prompt", NULL, NULL, NULL, NULL},
        {'m', "model", "PATH", "GGUF file or Hugging Face checkpoint folder", cli_set_string,
         &a.engine.model_path},
        {'p', "prompt", "TEXT", "the prompt, as an option", cli_set_string, &a.prompt},
        {'f', "file", "FILE", "read the prompt from a file; - is standard input", cli_set_string,
         &a.file},
        {0, "system", "TEXT", "instructions in front of the conversation", cli_set_string,
         &a.system},
        {0, "image", "FILE",
         "a picture for the prompt, where it says <|image|> or in front; may be repeated",
         add_image, &a},
        {0, "video", "FILE", "a video likewise, at <|video|>", add_video, &a},
        {0, "image-tokens", "N", "what a picture may cost: 70, 140, 280, 560 or 1120 tokens (280)",
         cli_set_int, &a.image_tokens},
        {0, "image-attention", "RULE",
         "how a picture's tokens see each other: whole, window or causal (whole)",
         set_image_attention, &a.engine.image_attention},
        {0, "mmproj", "FILE", "GGUF file of the vision tower (mmproj*.gguf beside the model)",
         cli_set_string, &a.engine.mmproj},
        {0, "messages", "FILE", "a conversation: JSON in OpenAI's form", cli_set_string,
         &a.messages_file},
        {0, "tools", "FILE", "functions the model may call: JSON likewise", cli_set_string,
         &a.tools_file},
        {0, "tokens", "IDS", "the prompt as token ids: 2,105,2364", cli_set_string, &a.tokens},
        {0, "raw", NULL, "take the prompt as it stands: no turn markers, but those in it count",
         cli_set_switch, &a.raw},
        {0, "chat-template", "A|B", "revision of the chat format (the checkpoint's own)",
         cli_set_string, &a.engine.chat_template},
        {0, "answer", NULL, NULL, NULL, NULL},
        {0, "think", NULL, "let the model think first; thoughts go to standard error",
         cli_set_switch, &a.think},
        {0, "think-budget", "N", "tokens of thought before it must answer", cli_set_int,
         &a.think_budget},
        {0, "hide-thinking", NULL, "do not show thoughts", cli_set_switch, &a.hide_thinking},
        {'n', "max-tokens", "N", "longest answer, thoughts included (4096)", cli_set_int,
         &a.max_tokens},
        {0, "stop", "TEXT", "end where this appears in the answer; may be repeated", add_stop, &a},
        {'s', "seed", "N", "the same seed gives the same answer (0)", cli_set_seed, &a.seed},
        {0, "draws (the schedule's own by default)", NULL, NULL, NULL, NULL},
        {0, "temperature", "T", "on top of the schedule's; 0 draws the most likely token (1)",
         cli_set_float, &a.temperature},
        {0, "top-k", "N", "draw from the N most likely tokens", cli_set_int, &a.top_k},
        {0, "top-p", "P", "draw from as few tokens as have this probability together",
         cli_set_float, &a.top_p},
        {0, "min-p", "P", "draw from tokens this likely, compared with the most likely one",
         cli_set_float, &a.min_p},
        {0, "diffusion (defaults: the model's own)", NULL, NULL, NULL, NULL},
        {0, "steps", "N", "most denoising steps for a block", cli_set_int, &a.steps},
        {0, "t-min", "T", "temperature at the last step", cli_set_float, &a.t_min},
        {0, "t-max", "T", "temperature at the first step", cli_set_float, &a.t_max},
        {0, "entropy-bound", "NATS", "uncertainty that one step may accept", cli_set_float,
         &a.entropy_bound},
        {0, "stability", "N", "steps without a change before a block may end", cli_set_int,
         &a.stability},
        {0, "confidence", "NATS", "mean entropy below which a block may end", cli_set_float,
         &a.confidence},
        {0, "canvas", "N", "tokens in a block", cli_set_int, &a.canvas},
        {0, "settled", "N",
         "send the beginning of a block once it has held for N steps, and pin it", cli_set_int,
         &a.settled},
        {0, "output", NULL, NULL, NULL, NULL},
        {0, "json", NULL, "one JSON object: text, thinking, tool_calls, tokens, end, stats",
         cli_set_switch, &a.json},
        {0, "draft", NULL, "show the canvas after each step, on standard error", cli_set_switch,
         &a.draft},
        {'q', "quiet", NULL, "no statistics", cli_set_switch, &a.quiet},
        {0, "machine", NULL, NULL, NULL, NULL},
        {'t', "threads", "N", "threads (one for each processor)", cli_set_int, &a.engine.n_threads},
        {'c', "context", "N", "longest prompt and answer together (the model's)", cli_set_int,
         &a.engine.context_length},
        {0, "kv-type", "TYPE", "keys and values as bf16 or f32 (bf16)", cli_set_string, &a.kv_type},
        {0, "cpu-flags", "NAME", "instruction set: neon, avx2 or ref (the best)", cli_set_string,
         &a.engine.cpu},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    const char *rest[1];
    if (!cli_parse("run", options, n_option, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (n_rest && a.prompt) {
        fprintf(stderr, "dgemma run: there are two prompts\n");
        return EXIT_USAGE;
    }
    if (n_rest)
        a.prompt = rest[0];
    const char *mistake = prompt_mistake(&a);
    if (!mistake && !a.engine.model_path)
        mistake = "no model; name it with -m";
    if (!mistake && !cli_set_kv_type(&a.engine, a.kv_type))
        mistake = "--kv-type is bf16 or f32";
    if (mistake) {
        fprintf(stderr, "dgemma run: %s\n", mistake);
        return EXIT_USAGE;
    }
    return run(&a);
}
