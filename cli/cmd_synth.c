/* dgemma synth: a model file with random weights of a published shape, to measure speed with. */
#include <string.h>
#include "base/clock.h"
#include "cells.h"
#include "cli.h"
#include "dgemma_tools.h"
#include "write_progress.h"

static bool show_progress(void *user, double fraction)
{
    return write_progress_show(user, fraction);
}

static const char usage[] =
    "usage: dgemma synth [OPTION]... -o FILE\n\n"
    "Writes a GGUF file with seeded random weights in the shape and the types of a published one,\n"
    "with a tokenizer and a chat template in it: to measure speed and memory without the "
    "checkpoint.\n"
    "It loads and runs like any other model; what it says means nothing.\n";

static int write_model(const dgemma_synth_options *opt)
{
    dgemma_error err = {0};
    uint64_t bytes;
    write_progress *p = opt->progress_user;
    write_progress_begin(p, "writing");
    dgemma_status st = dgemma_synth(opt, &bytes, &err);
    write_progress_hide(p);
    if (st == DGEMMA_E_CANCELLED) {
        write_progress_interrupted("synth", opt->path);
        return EXIT_INTERRUPTED;
    }
    if (st)
        return cli_fail(&err);
    double seconds = dg_clock_now() - p->start;
    cli_safe_write(stdout, opt->path, strlen(opt->path));
    printf(": %s, %s, %.1f MB in %.1f s\n", opt->shape, opt->type, (double)bytes * 1e-6, seconds);
    return EXIT_OK;
}

int cmd_synth(int argc, char **argv)
{
    dgemma_synth_options opt = dgemma_synth_defaults();
    bool help = false;
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'o', "output", "FILE", "the file to write", cli_set_string, &opt.path},
        {0, "shape", "NAME", "26b-a4b, as published, or tiny, for tests (26b-a4b)", cli_set_string,
         &opt.shape},
        {0, "type", "TYPE",
         "BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_K_D, Q4_0, Q4_1, IQ4_NL, IQ4_XS, MXFP4_MOE, "
         "Q2_K, "
         "IQ3_XXS, IQ2_S, IQ2_XXS, IQ1_S (Q4_K_M)",
         cli_set_string, &opt.type},
        {'l', "layers", "N", "so many layers (all of the shape's)", cli_set_count, &opt.n_layer},
        {'s', "seed", "N", "the same seed gives the same file (0)", cli_set_seed, &opt.seed},
        {0, "skew", NULL, "the busiest expert gets four times the mean of tokens", cli_set_switch,
         &opt.skewed},
        {0, "tokenizer", "PATH",
         "take it from a tokenizer.json, a folder with one, or a GGUF file (made up)",
         cli_set_string, &opt.tokenizer},
        {'f', "force", NULL, "replace a file that is there", cli_set_switch, &opt.replace},
        {'h', "help", NULL, "this text", cli_set_switch, &help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    if (!cli_parse("synth", options, n_option, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (!opt.path) {
        fputs("dgemma synth: say which file to write: -o FILE\n", stderr);
        return EXIT_USAGE;
    }
    write_progress p;
    opt.on_progress = show_progress;
    opt.progress_user = &p;
    return write_model(&opt);
}
