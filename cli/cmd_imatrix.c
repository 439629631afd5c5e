/* dgemma imatrix: which inputs of a model's matrices matter, from a text, as a file for quantize.
 */
#include <string.h>
#include "base/clock.h"
#include "cells.h"
#include "cli.h"
#include "dgemma_tools.h"
#include "write_progress.h"

static const char usage[] =
    "usage: dgemma imatrix [OPTION]... FILE\n\n"
    "Lets a model read and denoise a text, and writes how large the inputs of each matrix were: "
    "an\n"
    "importance file for dgemma quantize --imatrix, in llama.cpp's form. The text is taken in\n"
    "canvases, each of them once as a prompt and in four steps from noise to text; some hundred "
    "are\n"
    "enough. Write it as the model will see it: conversations with their markers of turns.\n";

static bool on_progress(void *user, double fraction)
{
    return write_progress_show(user, fraction);
}

static int measure(const dgemma_imatrix_options *opt)
{
    write_progress *progress = opt->user;
    dgemma_error err = {0};
    dgemma_imatrix_result r;
    cli_guard_model(opt->model_path);
    write_progress_begin(progress, "reading");
    dgemma_status st = dgemma_imatrix(opt, &r, &err);
    write_progress_hide(progress);
    if (st == DGEMMA_E_CANCELLED) {
        write_progress_interrupted("imatrix", opt->path);
        return EXIT_INTERRUPTED;
    }
    if (st)
        return cli_fail(&err);
    cli_safe_write(stdout, opt->path, strlen(opt->path));
    printf(": %zu matrices, from %d canvas%s of %d tokens, in %.1f s\n", r.n_matrices, r.n_chunks,
           r.n_chunks == 1 ? "" : "es", r.chunk_tokens, dg_clock_now() - progress->start);
    fflush(stdout);
    if (r.n_unused)
        fprintf(stderr,
                "dgemma imatrix: the text did not reach %zu of the experts' matrices; more of it "
                "would\n",
                r.n_unused);
    return EXIT_OK;
}

int cmd_imatrix(int argc, char **argv)
{
    dgemma_imatrix_options opt = {0};
    write_progress progress = {0};
    bool help = false;
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'m', "model", "PATH", "the model (the pocket model)", cli_set_string, &opt.model_path},
        {'o', "output", "OUT", "the file to write: GGUF, or the older form if it ends in .dat",
         cli_set_string, &opt.path},
        {0, "chunks", "N", "canvases of text to take at most (all)", cli_set_count, &opt.n_chunks},
        {'t', "threads", "N", "threads (as many as there are processors)", cli_set_count,
         &opt.n_threads},
        {'f', "force", NULL, "replace a file that is there", cli_set_switch, &opt.replace},
        {'h', "help", NULL, "this text", cli_set_switch, &help},
    };
    const char *path[1] = {0};
    size_t n_option = sizeof options / sizeof options[0], n_path;
    if (!cli_parse("imatrix", options, n_option, argc, argv, path, 1, &n_path))
        return EXIT_USAGE;
    if (help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (n_path < 1 || !opt.path) {
        fputs("dgemma imatrix: say which text to read and which file to write: FILE -o OUT\n",
              stderr);
        return EXIT_USAGE;
    }
    if (!cli_model_or_default(&opt.model_path))
        return EXIT_FAILED;
    opt.text_path = path[0];
    opt.on_progress = on_progress;
    opt.user = &progress;
    return measure(&opt);
}
