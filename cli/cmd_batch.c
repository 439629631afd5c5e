/* dgemma batch: a file of requests, answered into another one. */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "request_args.h"
#include "server/batch.h"

typedef struct batch_args {
    cli_request_args request; /* of which the machine and the model count */
    dg_batch_options batch;
    const char *name;
    int parallel, max_body_mb, kv_mb, gpu_mb;
    float decision_temperature;
    bool quiet, help;
} batch_args;

/* ---- signals ---- */

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

static bool is_told_to_stop(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

static bool loading(void *user, double fraction)
{
    (void)user;
    (void)fraction;
    return !is_told_to_stop();
}

/* What was asked for is done; the next signal ends the program at once, as nothing can be lost. */
static void take_signal(void)
{
    sigset_t set;
    stop_signals(&set);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        ;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* ---- how far it is ---- */

typedef struct reporter {
    double start, shown;
    bool terminal, quiet, drawn;
} reporter;

/* "3 h 05 min", "12 min", "40 s" */
static void print_time(char *out, size_t n, double seconds)
{
    if (seconds >= 3600)
        snprintf(out, n, "%.0f h %02d min", (double)(long)(seconds / 3600),
                 (int)(seconds / 60) % 60);
    else if (seconds >= 60)
        snprintf(out, n, "%d min", (int)(seconds / 60 + 0.5));
    else
        snprintf(out, n, "%d s", (int)(seconds + 0.5));
}

static void print_state(const reporter *r, const dg_batch_progress *p)
{
    double seconds = dg_clock_now() - r->start;
    uint64_t done = p->n_known + p->n_answer + p->n_failed;
    double rate = cli_per((double)(p->n_answer + p->n_failed), seconds);
    fprintf(stderr, "%llu", (unsigned long long)(p->n_known + p->n_answer));
    if (p->n_line)
        fprintf(stderr, " of %llu", (unsigned long long)p->n_line);
    fprintf(stderr, " answered");
    if (p->n_failed)
        fprintf(stderr, ", %llu failed", (unsigned long long)p->n_failed);
    fprintf(stderr, ", %.*f/s, %.0f tokens/s", rate < 10 ? 2 : 0, rate,
            cli_per((double)p->n_token, seconds));
    if (p->n_line > done && rate > 0) {
        char left[48];
        print_time(left, sizeof left, (double)(p->n_line - done) / rate);
        fprintf(stderr, ", %s left", left);
    }
}

static bool tick(void *user, const dg_batch_progress *p)
{
    reporter *r = user;
    double now = dg_clock_now();
    if (is_told_to_stop()) {
        take_signal();
        return false;
    }
    if (r->quiet || now - r->shown < (r->terminal ? 0.5 : 30))
        return true;
    r->shown = now;
    fputs(r->terminal ? "\r\033[K" : "dgemma: ", stderr);
    print_state(r, p);
    fputs(r->terminal ? "" : "\n", stderr);
    r->drawn = r->terminal;
    return true;
}

/* ---- running ---- */

static int report(const batch_args *a, const reporter *r, const dg_batch_progress *p,
                  dgemma_status st, dgemma_error *err)
{
    if (r->drawn)
        fputs("\r\033[K", stderr);
    if (!a->quiet) {
        char took[48];
        print_time(took, sizeof took, dg_clock_now() - r->start);
        fprintf(stderr, "dgemma: %llu line%s answered in %s, %llu before, %llu failed%s%s\n",
                (unsigned long long)p->n_answer, cli_plural((long)p->n_answer), took,
                (unsigned long long)p->n_known, (unsigned long long)p->n_failed,
                p->n_failed ? ": see " : "", p->n_failed ? a->batch.errors : "");
        if (p->n_foreign)
            fprintf(stderr, "dgemma: %s has %llu answers that no line of %s asks for\n",
                    a->batch.out, (unsigned long long)p->n_foreign, a->batch.in);
    }
    if (st == DGEMMA_E_CANCELLED) {
        if (!a->quiet)
            fputs("dgemma: stopped; the same command goes on from here\n", stderr);
        return EXIT_INTERRUPTED;
    }
    return st ? cli_fail(err) : p->n_failed ? EXIT_FAILED : EXIT_OK;
}

static int answer(batch_args *a, dg_batch *b, reporter *r)
{
    dgemma_error err = {0};
    dgemma_engine *engine = NULL;
    dgemma_model_info info;
    dg_batch_progress sum = {0};
    cli_progress progress;
    sigset_t set;
    stop_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL); /* for all threads to come */
    a->request.engine.on_progress = loading;
    cli_progress_attach(&progress, &a->request.engine);
    dgemma_status st = dgemma_engine_open(&engine, &a->request.engine, &err);
    cli_progress_end(&progress);
    if (st) {
        dg_batch_free(b);
        return st == DGEMMA_E_CANCELLED ? EXIT_INTERRUPTED : cli_fail(&err);
    }
    cli_guard_engine(engine);
    dgemma_engine_info(engine, &info);
    cli_warn_of_model(&a->request.engine, &info);
    r->start = dg_clock_now();
    r->shown = r->terminal ? 0 : r->start;
    st = dg_batch_run(b, engine, &sum, &err);
    int code = report(a, r, &sum, st, &err);
    dg_batch_free(b);
    cli_guard_engine(NULL);
    dgemma_engine_close(engine);
    return code;
}

/* out.jsonl has its errors in out.errors.jsonl. */
static char *errors_path(const char *out)
{
    static const char end[] = ".jsonl", errors[] = ".errors.jsonl";
    size_t n = strlen(out), n_end = sizeof end - 1;
    if (n > n_end && !strcmp(out + n - n_end, end))
        n -= n_end;
    char *path = dg_malloc(n + sizeof errors);
    if (path) {
        memcpy(path, out, n);
        memcpy(path + n, errors, sizeof errors);
    }
    return path;
}

static int run(batch_args *a)
{
    dgemma_error err = {0};
    dg_batch *b = NULL;
    reporter r = {.terminal = isatty(STDERR_FILENO), .quiet = a->quiet};
    char *errors = a->batch.errors ? NULL : errors_path(a->batch.out);
    char *path = dg_strdup(a->request.engine.model_path);
    int code = EXIT_FAILED;
    a->batch.errors = a->batch.errors ? a->batch.errors : errors;
    a->batch.tick = tick;
    a->batch.tick_user = &r;
    if (!a->batch.errors || !path) {
        fputs("dgemma: out of memory\n", stderr);
    } else {
        a->batch.model_name = a->name ? a->name : cli_model_name(path);
        code = dg_batch_open(&b, &a->batch, &err) ? cli_fail(&err) : answer(a, b, &r);
    }
    dg_free(errors);
    dg_free(path);
    return code;
}

/* What the numbers of the command line mean to the engine and to the batch. */
static void settle(batch_args *a)
{
    dgemma_engine_options *e = &a->request.engine;
    a->batch.max_line_bytes = (size_t)a->max_body_mb << 20;
    a->batch.n_ahead = 2 * a->parallel; /* the next ones wait already when one ends */
    a->batch.decision_temperature = (double)a->decision_temperature;
    e->max_running = a->parallel;
    e->queue_length = 64 * a->batch.n_ahead + /* a decision is many reads */
                      a->batch.max_choices + DGEMMA_MAX_READS;
    e->kv_bytes = (size_t)a->kv_mb << 20;
    e->gpu_bytes = (size_t)a->gpu_mb << 20;
}

static const char usage[] =
    "usage: dgemma batch [OPTION]... IN.jsonl OUT.jsonl\n\n"
    "Answers the requests of a file, a line each, as OpenAI's batches have them:\n\n"
    "  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",\n"
    "   \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}}\n\n"
    "Answers are appended to OUT as they come, in any order; what fails goes to a file of its "
    "own.\n"
    "Stopped or killed at any moment, the same command goes on where it was: what OUT answers is "
    "not\n"
    "asked again. IN may be -, standard input.\n";

int cmd_batch(int argc, char **argv)
{
    static batch_args a;
    a = (batch_args){
        .request = cli_request_defaults(),
        .batch = {.max_choices = 16, .max_images = 16},
        .parallel = 16,
        .max_body_mb = 32,
        .decision_temperature = 1,
    };
    const cli_option rows[] = {
        {'m', "model", "PATH", "GGUF file or Hugging Face checkpoint folder (the pocket model)",
         cli_set_string, &a.request.engine.model_path},
        {0, "name", "NAME", "what answers call it (the path's last part)", cli_set_string, &a.name},
        {0, "mmproj", "FILE", "GGUF file of the vision tower (mmproj*.gguf beside the model)",
         cli_set_string, &a.request.engine.mmproj},
        {0, "chat-template", "a|b", "revision of the chat format (the checkpoint's own)",
         cli_set_string, &a.request.engine.chat_template},
        {0, "lora", "[NAME=]PATH[:SCALE]", CLI_LORA_HELP, cli_add_lora, &a.request.lora},
        {0, "batch", NULL, NULL, NULL, NULL},
        {0, "errors", "FILE", "lines that failed, made anew by each run (OUT.errors.jsonl)",
         cli_set_string, &a.batch.errors},
        {0, "parallel", "N", "answers that run together (16)", cli_set_count, &a.parallel},
        {0, "max-body", "MB", "size of a line (32)", cli_set_count, &a.max_body_mb},
        {0, "max-images", "N", "pictures and videos in a request (16)", cli_set_int,
         &a.batch.max_images},
        {0, "max-choices", "N", "answers to one request (16)", cli_set_count, &a.batch.max_choices},
        {0, "decision-temperature", "T",
         "divides log-probabilities of labels in decisions (1; see dgemma decide --calibrate)",
         cli_set_float, &a.decision_temperature},
        {'q', "quiet", NULL, "say nothing of how far it is", cli_set_switch, &a.quiet},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    const cli_option memory[] = {
        {0, "gpu-memory", "MB", "memory of the GPU for all, weights included (what is free)",
         cli_set_int, &a.gpu_mb},
        {0, "kv-memory", "MB", "memory for keys and values of requests and prefix cache",
         cli_set_int, &a.kv_mb},
    };
    cli_options options = {0};
    cli_options_add(&options, rows, sizeof rows / sizeof rows[0]);
    cli_options_add_machine(&options, &a.request);
    cli_options_add(&options, memory, sizeof memory / sizeof memory[0]);
    size_t n_rest;
    const char *rest[2];
    int code;
    if (!cli_parse("batch", options.row, options.n, argc, argv, rest, 2, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    if (n_rest < 2) {
        fputs("dgemma batch: name the file of requests and the one for answers\n", stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(rest[1], "-")) {
        fputs("dgemma batch: answers have to be read back, so they go to a file, not to -\n",
              stderr);
        return EXIT_USAGE;
    }
    a.batch.in = rest[0];
    a.batch.out = rest[1];
    a.request.quiet = a.quiet;
    if (a.max_body_mb > 1024) {
        fputs("dgemma batch: --max-body is at most 1024\n", stderr);
        return EXIT_USAGE;
    }
    if (a.parallel > 4096 || a.batch.max_choices > 4096) {
        fputs("dgemma batch: --parallel and --max-choices are at most 4096\n", stderr);
        return EXIT_USAGE;
    }
    if (!cli_request_check("batch", &a.request, &code))
        return code;
    settle(&a);
    return run(&a);
}
