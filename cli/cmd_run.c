/* dgemma run: one prompt in, one answer out. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli.h"

enum { PROMPT_MAX = 64 << 20, TOKENS_MAX = 1 << 22 };

/* What the command line said. Numbers start as "not said": -1, or NAN-free negatives, so that the
 * model's own defaults stay. */
typedef struct run_args {
    dgemma_engine_options engine;
    const char *prompt, *file, *tokens, *kv_type;
    bool raw, json, draft, quiet, help;
    uint64_t seed;
    int max_tokens, steps, stability, canvas;
    float t_min, t_max, entropy_bound, confidence;
} run_args;

/* What is collected while the answer comes. */
typedef struct run_state {
    const run_args *args;
    dgemma_engine *engine;
    dg_buf text;
    int32_t *ids;
    size_t n_ids;
    bool failed, has_tokenizer;
} run_state;

/* Set by Ctrl-C; the answer so far is kept. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- the prompt ---- */

/* "1, 2 3" to ids. */
static bool parse_tokens(const char *text, int32_t **out, size_t *n)
{
    size_t cap = strlen(text) / 2 + 1;
    *n = 0;
    *out = dg_array(cap, sizeof **out);
    while (*out) {
        text += strspn(text, " ,\t\r\n[]");
        if (!*text)
            return true;
        char *end;
        errno = 0;
        long v = strtol(text, &end, 10);
        if (end == text || errno || v < 0 || v > INT32_MAX)
            break;
        (*out)[(*n)++] = (int32_t)v;
        text = end;
    }
    fprintf(stderr, "dgemma run: --tokens: expected numbers at \"%.20s\"\n", text);
    return false;
}

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

/* ---- the answer ---- */

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

static bool keep(run_state *s, const dgemma_event *e)
{
    int32_t *ids = dg_array_resize(s->ids, s->n_ids + e->n_tokens, sizeof *ids);
    if (!ids || (e->text && !dg_buf_append(&s->text, e->text, e->text_len)))
        s->failed = true;
    if (!ids)
        return false;
    s->ids = ids;
    if (e->n_tokens)
        memcpy(ids + s->n_ids, e->tokens, e->n_tokens * sizeof *ids);
    s->n_ids += e->n_tokens;
    return !s->failed;
}

static bool on_event(void *user, const dgemma_event *e)
{
    run_state *s = user;
    if (e->kind == DGEMMA_EVENT_DRAFT && s->args->draft)
        print_draft(s, e);
    if (e->kind == DGEMMA_EVENT_BLOCK) {
        if (!keep(s, e))
            return false;
        if (!s->args->json && !s->args->draft && e->text)
            fwrite(e->text, 1, e->text_len, stdout);
        for (size_t i = 0; !s->args->json && !e->text && i < e->n_tokens; i++)
            printf("%d ", (int)e->tokens[i]);
        fflush(stdout);
    }
    return !interrupted;
}

static const char *end_name(dgemma_end end)
{
    static const char *const names[] = {"stop", "length", "context", "cancelled"};
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

static void print_json(const run_state *s, const dgemma_stats *st)
{
    printf("{\"text\": ");
    if (s->has_tokenizer)
        cli_json_string(stdout, s->text.data ? s->text.data : "", s->text.len);
    else
        printf("null");
    printf(", \"tokens\": [");
    for (size_t i = 0; i < s->n_ids; i++)
        printf("%s%d", i ? ", " : "", (int)s->ids[i]);
    double seconds = st->prompt_seconds + st->denoise_seconds;
    printf("], \"end\": \"%s\", \"seed\": %llu, \"stats\": {\"prompt_tokens\": %d, "
           "\"output_tokens\": %d, "
           "\"blocks\": %d, \"blocks_settled\": %d, \"steps\": %d, \"tokens_per_step\": %.3f, "
           "\"ms_per_step\": %.3f, "
           "\"prompt_seconds\": %.6f, \"denoise_seconds\": %.6f, \"tokens_per_second\": %.3f, "
           "\"kv_bytes\": %zu}}\n",
           end_name(st->end), (unsigned long long)s->args->seed, st->n_prompt, st->n_output,
           st->n_blocks, st->n_converged, st->n_steps, per(st->n_output, st->n_steps),
           1e3 * per(st->denoise_seconds, st->n_steps), st->prompt_seconds, st->denoise_seconds,
           per(st->n_output, seconds), st->kv_bytes);
}

/* ---- the command ---- */

static void apply(const run_args *a, dgemma_request_options *o)
{
    o->seed = a->seed;
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
}

static int answer(const run_args *a, dgemma_engine *engine, const char *prompt,
                  const int32_t *tokens, size_t n_tokens)
{
    dgemma_model_info info;
    dgemma_engine_info(engine, &info);
    run_state s = {.args = a, .engine = engine, .has_tokenizer = info.has_tokenizer};
    dg_buf_init(&s.text, (size_t)1 << 30);

    dgemma_request_options req = dgemma_request_defaults(engine);
    apply(a, &req);
    req.tokens = tokens;
    req.n_tokens = n_tokens;
    if (!tokens && a->raw)
        req.raw_prompt = prompt;
    else if (!tokens)
        req.chat_prompt = prompt;

    dgemma_error err = {0};
    dgemma_stats stats;
    signal(SIGINT, on_interrupt);
    dgemma_status st = dgemma_generate(engine, &req, on_event, &s, &stats, &err);
    signal(SIGINT, SIG_DFL);
    int code = st ? cli_fail(&err) : interrupted ? EXIT_INTERRUPTED : EXIT_OK;
    if (!st && s.failed) {
        fprintf(stderr, "dgemma: out of memory\n");
        code = EXIT_FAILED;
    }
    if (!st && a->json)
        print_json(&s, &stats);
    else if (!st) {
        if (a->draft && s.text.len) /* kept back, so that it does not stand between the drafts */
            fwrite(s.text.data, 1, s.text.len, stdout);
        if (!s.text.len || s.text.data[s.text.len - 1] != '\n')
            putchar('\n');
    }
    fflush(stdout);
    if (!st && !a->quiet)
        print_stats(&stats);
    dg_buf_clear(&s.text);
    dg_free(s.ids);
    return code;
}

static int run(run_args *a)
{
    dgemma_error err = {0};
    dg_buf text;
    dg_buf_init(&text, PROMPT_MAX);
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    const char *prompt = NULL;
    dgemma_engine *engine = NULL;
    int code = EXIT_OK;

    if (a->tokens && !parse_tokens(a->tokens, &tokens, &n_tokens))
        code = EXIT_USAGE;
    else if (!a->tokens && !(prompt = read_prompt(a, &text, &err)))
        code = cli_fail(&err);
    else if (dgemma_engine_open(&engine, &a->engine, &err))
        code = cli_fail(&err);
    else
        code = answer(a, engine, prompt, tokens, n_tokens);
    dgemma_engine_close(engine);
    dg_buf_clear(&text);
    dg_free(tokens);
    return code;
}

static const char usage[] =
    "usage: dgemma run -m MODEL [OPTION]... [PROMPT]\n\n"
    "Answers one prompt. The prompt is the last word, a file (--file) or what comes through a "
    "pipe. The answer goes to\n"
    "standard output, everything else to standard error.\n\n"
    "  dgemma run -m ~/models/diffusiongemma-26B-A4B-it \"Why is the sky blue?\"\n"
    "  dgemma run -m MODEL --draft --seed 7 \"Write a haiku.\"      watch the canvas settle\n"
    "  git diff | dgemma run -m MODEL --json > answer.json\n";

int cmd_run(int argc, char **argv)
{
    run_args a = {.engine = dgemma_engine_defaults(),
                  .max_tokens = -1,
                  .steps = -1,
                  .stability = -1,
                  .canvas = -1,
                  .t_min = -1,
                  .t_max = -1,
                  .entropy_bound = -1,
                  .confidence = -1};
    const cli_option options[] = {
        {0, "model and prompt", NULL, NULL, NULL, NULL},
        {'m', "model", "PATH", "Hugging Face checkpoint folder", cli_set_string,
         &a.engine.model_path},
        {'p', "prompt", "TEXT", "the prompt, as an option", cli_set_string, &a.prompt},
        {'f', "file", "FILE", "read the prompt from a file; - is standard input", cli_set_string,
         &a.file},
        {0, "tokens", "IDS", "the prompt as token ids: 2,105,2364", cli_set_string, &a.tokens},
        {0, "raw", NULL, "take the prompt as it stands: no turn markers, but those in it count",
         cli_set_switch, &a.raw},
        {0, "answer", NULL, NULL, NULL, NULL},
        {'n', "max-tokens", "N", "longest answer (4096)", cli_set_int, &a.max_tokens},
        {'s', "seed", "N", "the same seed gives the same answer (0)", cli_set_seed, &a.seed},
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
        {0, "output", NULL, NULL, NULL, NULL},
        {0, "json", NULL, "one JSON object: text, tokens, end, statistics", cli_set_switch,
         &a.json},
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
        fputs(usage, stdout);
        cli_print_options(stdout, options, n_option);
        return EXIT_OK;
    }
    if (n_rest && a.prompt) {
        fprintf(stderr, "dgemma run: there are two prompts\n");
        return EXIT_USAGE;
    }
    if (n_rest)
        a.prompt = rest[0];
    if ((a.prompt != NULL) + (a.file != NULL) + (a.tokens != NULL) > 1) {
        fprintf(stderr,
                "dgemma run: give the prompt once: as a word, with --file or with --tokens\n");
        return EXIT_USAGE;
    }
    if (!a.engine.model_path) {
        fprintf(stderr, "dgemma run: no model; name its folder with -m\n");
        return EXIT_USAGE;
    }
    if (a.kv_type && strcmp(a.kv_type, "bf16") && strcmp(a.kv_type, "f32")) {
        fprintf(stderr, "dgemma run: --kv-type is bf16 or f32\n");
        return EXIT_USAGE;
    }
    a.engine.kv_type = a.kv_type && !strcmp(a.kv_type, "f32") ? DGEMMA_KV_F32 : DGEMMA_KV_BF16;
    return run(&a);
}
