/* dgemma infill: the text between two others. */
#include <string.h>
#include "passage.h"

typedef struct infill_args {
    cli_request_args request;
    const char *prefix_file, *suffix_file, *say;
    bool whole, quiet, help;
} infill_args;

static int fill(infill_args *a, const dg_buf *prefix, const dg_buf *suffix)
{
    dgemma_error err = {0};
    dgemma_stats stats = {0};
    dgemma_engine *engine = cli_gap_open(&a->request);
    if (!engine)
        return EXIT_FAILED;
    dg_buf gap;
    dg_buf_init(&gap, CLI_GAP_TEXT_MAX);
    dgemma_request_options o = dgemma_request_defaults(engine);
    cli_request_apply(&a->request, &o);
    o.system = a->request.system;
    o.answer_prefix = prefix->data ? prefix->data : "";
    o.suffix = suffix->data ? suffix->data : "";
    o.instruction = a->say;
    int code = cli_gap_fill(engine, &o, &gap, &stats, &err) ? cli_fail(&err) : EXIT_OK;
    if (!code) {
        if (a->whole)
            fwrite(o.answer_prefix, 1, prefix->len, stdout);
        fwrite(gap.data ? gap.data : "", 1, gap.len, stdout);
        if (a->whole)
            fwrite(o.suffix, 1, suffix->len, stdout);
        else
            putchar('\n');
        fflush(stdout);
    }
    if (!code && !a->quiet)
        cli_gap_report(stderr, &stats);
    dg_buf_clear(&gap);
    cli_guard_engine(NULL);
    dgemma_engine_close(engine);
    return code;
}

static int run(infill_args *a)
{
    dgemma_error err = {0};
    dg_buf prefix, suffix;
    dg_buf_init(&prefix, CLI_GAP_TEXT_MAX);
    dg_buf_init(&suffix, CLI_GAP_TEXT_MAX);
    int code;
    if ((a->prefix_file && cli_read_text(&prefix, a->prefix_file, &err)) ||
        (a->suffix_file && cli_read_text(&suffix, a->suffix_file, &err)))
        code = cli_fail(&err);
    else
        code = fill(a, &prefix, &suffix);
    dg_buf_clear(&prefix);
    dg_buf_clear(&suffix);
    return code;
}

static const char usage[] =
    "usage: dgemma infill --prefix FILE --suffix FILE [OPTION]...\n\n"
    "Writes what is missing between two texts. The canvas holds the gap and what stands behind,\n"
    "so the model sees both sides; the gap's length is found by trying some. The model was not\n"
    "trained for this: see docs/canvas.md.\n\n"
    "  dgemma infill -m MODEL --prefix before.txt --suffix after.txt\n"
    "  dgemma infill -m MODEL --prefix a.c --suffix b.c --say \"The body of the loop.\" --whole\n";

int cmd_infill(int argc, char **argv)
{
    infill_args a = {.request = cli_request_defaults()};
    const cli_option head[] = {
        {0, "texts and model", NULL, NULL, NULL, NULL},
        {0, "prefix", "FILE", "what stands before the gap; - is standard input", cli_set_string,
         &a.prefix_file},
        {0, "suffix", "FILE", "what stands behind it; - is standard input", cli_set_string,
         &a.suffix_file},
        {0, "say", "TEXT", "what belongs there, in words", cli_set_string, &a.say},
    };
    const cli_option output[] = {
        {0, "output", NULL, NULL, NULL, NULL},
        {0, "whole", NULL, "print the text around the gap too", cli_set_switch, &a.whole},
        {'q', "quiet", NULL, "only the text", cli_set_switch, &a.quiet},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {.n = 0};
    cli_options_add(&options, head, sizeof head / sizeof head[0]);
    cli_options_add_passage(&options, &a.request);
    cli_options_add(&options, output, sizeof output / sizeof output[0]);
    size_t n_rest;
    int code;
    if (!cli_parse("infill", options.row, options.n, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    if (!a.prefix_file && !a.suffix_file) {
        fputs("dgemma infill: give --prefix, --suffix or both (see dgemma infill --help)\n",
              stderr);
        return EXIT_USAGE;
    }
    if (a.prefix_file && a.suffix_file && !strcmp(a.prefix_file, "-") &&
        !strcmp(a.suffix_file, "-")) {
        fputs("dgemma infill: two options ask for standard input\n", stderr);
        return EXIT_USAGE;
    }
    a.request.quiet = a.quiet;
    return cli_request_check("infill", &a.request, &code) ? run(&a) : code;
}
