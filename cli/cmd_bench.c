/* dgemma bench: how fast a model runs here, and how fast it could. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/kv_type.h"
#include "bench_report.h"
#include "constraint_args.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

typedef struct bench_watch {
    bench_report report;
    bool terminal, drawn;
} bench_watch;

static void wipe(bench_watch *w)
{
    if (w->drawn)
        fputs("\r\033[K", stderr);
    w->drawn = false;
}

static bool on_result(void *user, const dgemma_bench_result *found)
{
    bench_watch *w = user;
    wipe(w);
    bench_report_tell(&w->report, found);
    return !interrupted;
}

static bool on_watch(void *user, const char *what)
{
    bench_watch *w = user;
    if (w->terminal) {
        fprintf(stderr, "\r\033[K%s …", what);
        w->drawn = true;
    }
    return !interrupted;
}

/* "512,1024": numbers with commas in between. */
static bool set_list(void *target, const char *text)
{
    dgemma_bench_list *l = target;
    char one[16];
    l->n = 0;
    for (;; text++) {
        size_t n = strcspn(text, ",");
        if (!n || n >= sizeof one || l->n == DGEMMA_BENCH_MAX_LIST)
            return false;
        memcpy(one, text, n);
        one[n] = '\0';
        if (!cli_set_int(&l->at[l->n++], one))
            return false;
        text += n;
        if (!*text)
            return true;
    }
}

static const char usage[] = "usage: dgemma bench [OPTION]... [-m MODEL | --synthetic TYPE]\n\n"
                            "Measures denoise steps, a block, and the encoding of a prompt, beside "
                            "what this machine could\n"
                            "do at best, measured in the same run. Lists are gone through one at a "
                            "time, the others at the\n"
                            "most threads, the first context and the first batch. Contexts are "
                            "filled with keys and values\n"
                            "of a few tokens, again and again.\n";

static int measure(dgemma_bench_options *opt, bool json)
{
    dgemma_error err = {0};
    bench_watch w = {.terminal = isatty(STDERR_FILENO)};
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &act, NULL);
    opt->on_result = on_result;
    opt->on_watch = on_watch;
    opt->user = &w;
    if (opt->engine.model_path)
        cli_guard_model(opt->engine.model_path);
    bench_report_begin(&w.report, stdout, json);
    dgemma_status st = dgemma_bench(opt, &err);
    bench_report_end(&w.report);
    wipe(&w);
    if (st == DGEMMA_E_CANCELLED)
        return EXIT_INTERRUPTED;
    return st ? cli_fail(&err) : EXIT_OK;
}

int cmd_bench(int argc, char **argv)
{
    dgemma_bench_options opt = dgemma_bench_defaults();
    float temperature = NAN; /* not said */
    bool help = false, json = false;
    const char *kv_type = NULL;
    cli_constraint_args constraint = {0};
    const cli_option options[] = {
        {0, "what to measure", NULL, NULL, NULL, NULL},
        {'m', "model", "MODEL", "a model's file or folder (the one that comes with dgemma)",
         cli_set_string, &opt.engine.model_path},
        {0, "synthetic", "TYPE", "random weights of this type instead: see dgemma synth",
         cli_set_string, &opt.synthetic},
        {0, "shape", "NAME", "of the synthetic model: 26b-a4b or tiny (26b-a4b)", cli_set_string,
         &opt.shape},
        {'l', "layers", "N", "so many layers of the shape (all)", cli_set_count, &opt.n_layer},
        {0, "skew", NULL, "its busiest expert gets four times the mean of tokens", cli_set_switch,
         &opt.skewed},
        {'t', "threads", "LIST", "of the CPU (as many as processors)", set_list, &opt.threads},
        {'c', "context", "LIST", "tokens in front of the canvas (1024)", set_list, &opt.contexts},
        {'b', "batch", "LIST", "canvases in a step (1)", set_list, &opt.batches},
        {0, "chunk", "LIST", "tokens of the prompt in a pass (as the device likes)", set_list,
         &opt.chunks},
        {0, "prompt", "N", "tokens of the prompt (1024)", cli_set_count, &opt.prompt},
        {0, "picture", "N", "a picture of so many soft tokens through the vision tower (none)",
         cli_set_count, &opt.picture},
        {'n', "steps", "N", "steps to measure, and of the block (as take some seconds, 3 to 24)",
         cli_set_count, &opt.n_steps},
        {0, "stages", NULL, "where the time of a step goes", cli_set_switch, &opt.stages},
        {0, "answer", NULL, "canvases go on as an answer's do (random words in each step)",
         cli_set_switch, &opt.answer},
        {0, "temperature", "T",
         "that logits are divided by, 0.01 to 100: cold rows are sure of a word (0.6)",
         cli_set_float, &temperature},
        {0, "constrained", "SCHEMA", "steps held to a JSON Schema too: a file, or the schema",
         cli_set_string, &constraint.schema},
        {0, "no-rates", NULL, "do not measure what the machine could do", cli_set_switch,
         &opt.no_rates},
        {0, "json", NULL, "print JSON, times in seconds", cli_set_switch, &json},
        {0, "machine", NULL, NULL, NULL, NULL},
        {0, "device", "NAME", "cpu, cuda, cuda:N or auto (auto: a GPU where there is one)",
         cli_set_string, &opt.engine.device},
        {0, "weights", "FORM",
         "made narrower on a GPU: experts fp8 or int4, the rest fp8 (as stored)", cli_set_string,
         &opt.engine.weights},
        {0, "cpu-flags", "NAME", "instruction set: neon, i8mm, bf16, avx2, vnni, amx or ref (best)",
         cli_set_string, &opt.engine.cpu},
        {0, "profile", "NAME", "products on quantised weights: integer or float (integer)",
         cli_set_string, &opt.engine.profile},
        {0, "kv-type", "TYPE", "keys and values as " DG_KV_TYPES " (bf16)", cli_set_string,
         &kv_type},
        {'h', "help", NULL, "this text", cli_set_switch, &help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    if (!cli_parse("bench", options, n_option, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (temperature == 0) { /* which the library takes for the usual one */
        fputs("dgemma bench: a temperature of 0: 0.01 to 100 can be measured\n", stderr);
        return EXIT_USAGE;
    }
    if (!isnan(temperature))
        opt.temperature = temperature;
    if (help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (!dg_kv_type_named(&opt.engine.kv_type, kv_type)) {
        fprintf(stderr, "dgemma bench: --kv-type is " DG_KV_TYPES "\n");
        return EXIT_USAGE;
    }
    if (opt.synthetic && opt.engine.model_path) {
        fprintf(stderr, "dgemma bench: a model or --synthetic, not both\n");
        return EXIT_USAGE;
    }
    if (!opt.synthetic && !cli_model_or_default(&opt.engine.model_path))
        return EXIT_FAILED;
    dgemma_error err = {0};
    if (constraint.schema && cli_constraint_make(&opt.constraint, "bench", &constraint, &err))
        return cli_fail(&err);
    int code = measure(&opt, json);
    dgemma_constraint_free(opt.constraint);
    return code;
}
