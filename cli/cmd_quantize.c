/* dgemma quantize: a model's weights in other types, as a GGUF file. */
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cells.h"
#include "lora_args.h"
#include "dgemma_tools.h"
#include "write_progress.h"

typedef struct quantize_watch {
    write_progress progress;
    bool quiet, dry_run, headed, compared;
} quantize_watch;

#define USAGE "usage: dgemma quantize [OPTION]... IN OUT"

static const char usage[] = USAGE
    "\n\n"
    "Writes a model, in any form that dgemma reads, as a GGUF file with weights of other types,\n"
    "mixed as llama.cpp mixes them under the same names without an importance file; Q4_K_D is our\n"
    "own. Norms and routers stay F32; a vision tower is a file of its own, with --mmproj. FP8 and\n"
    "NVFP4 make a Hugging Face folder, and so does BF16 where OUT is no *.gguf.\n"
    "For each matrix its type, bits a weight, and how far its values are off: the root of their\n"
    "squared errors over that of their squares.\n";

static bool on_progress(void *user, double fraction)
{
    quantize_watch *watch = user;
    return write_progress_show(&watch->progress, fraction);
}

static void on_tensor(void *user, const dgemma_quantized *t)
{
    quantize_watch *watch = user;
    double n = 1;
    char shape[64] = "";
    if (watch->quiet || t->n_dim < 2 || strcmp(t->type, "F32") == 0)
        return;
    for (int i = 0; i < t->n_dim; i++) {
        size_t at = strlen(shape);
        n *= (double)t->shape[i];
        snprintf(shape + at, sizeof shape - at, "%s%lld", i ? " x " : "", (long long)t->shape[i]);
    }
    write_progress_hide(&watch->progress);
    if (!watch->headed)
        printf("%-32s %-18s %-7s    %-7s %6s %8s%s\n", "tensor", "shape", "from", "to", "bits",
               "MB", watch->dry_run ? "" : "  error");
    watch->headed = true;
    cli_safe_write(stdout, t->name, strlen(t->name));
    int pad = 32 - (int)strlen(t->name);
    printf("%*s %-18s %-7s -> %-7s %6.2f %8.2f", pad > 0 ? pad : 0, "", shape, t->from, t->type,
           8 * (double)t->bytes / n, (double)t->bytes * 1e-6);
    if (!watch->dry_run)
        printf(" %5.2f %%", 100 * t->error);
    putchar('\n');
}

static void print_total(const dgemma_quantize_options *opt, const dgemma_quantize_result *r,
                        double seconds)
{
    if (opt->path)
        cli_safe_write(stdout, opt->path, strlen(opt->path));
    else
        fputs("OUT", stdout);
    printf(": %s, %zu tensors, %.1f MB of %.1f, %.2f bits a weight", r->type, r->n_tensors,
           (double)r->bytes * 1e-6, (double)r->source_bytes * 1e-6,
           8 * (double)r->tensor_bytes / (double)r->n_weights);
    if (opt->dry_run)
        puts("; nothing was written");
    else
        printf(", error %.2f %%, in %.1f s\n", 100 * r->error, seconds);
    if (opt->importance_path)
        printf("%zu %s weighted by the importance file\n", r->n_weighted,
               r->n_weighted == 1 ? "matrix" : "matrices");
    fflush(stdout);
    if (r->n_left_out > r->n_unknown && !opt->mmproj_path)
        fprintf(stderr,
                "dgemma quantize: %zu tensors of other parts (a vision tower) are left out\n",
                r->n_left_out - r->n_unknown);
    if (r->n_unknown)
        fprintf(stderr, "dgemma quantize: %zu tensors that the model does not use are left out\n",
                r->n_unknown);
    if (r->requantized)
        fputs("dgemma quantize: weights were quantised before; what they lost then stays lost\n",
              stderr);
}

/* ---- --check ---- */

static void print_compared(const char *name, const dgemma_compared *c)
{
    enum { WIDTH = 52 };
    size_t n = strlen(name);
    for (n = n > WIDTH ? WIDTH : n; n && ((unsigned char)name[n] & 0xC0) == 0x80;)
        n--; /* whole characters */
    cli_safe_write(stdout, name, n);
    printf("%*s %7.2f %% %9.4f %9.1f %% %7.2f %7.2f\n", WIDTH - (int)n, "", 100 * c->error,
           c->divergence, 100 * c->agreement, c->steps, c->source_steps);
}

static void on_prompt(void *user, const dgemma_compared *one)
{
    quantize_watch *watch = user;
    write_progress_hide(&watch->progress);
    if (!watch->compared)
        printf("%-52s %9s %9s %11s %7s %7s\n", "prompt", "logits", "KL, nats", "same word", "steps",
               "of IN");
    watch->compared = true;
    if (!watch->quiet)
        print_compared(one->prompt, one);
}

/* The prompts of --check, a line each; none: those that are built in. */
typedef struct check_prompts {
    dg_buf text; /* cut up into */
    char **line;
    int n;
} check_prompts;

static void clear_prompts(check_prompts *p)
{
    dg_free(p->line);
    dg_buf_clear(&p->text);
}

/* Lines that are not empty. */
static dgemma_status cut_lines(check_prompts *p, dgemma_error *err)
{
    size_t most = 1;
    for (size_t i = 0; i < p->text.len; i++)
        most += p->text.data[i] == '\n' || p->text.data[i] == '\r';
    p->line = dg_array(most, sizeof *p->line);
    if (!p->line)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (char *rest = NULL, *at = p->text.len ? strtok_r(p->text.data, "\r\n", &rest) : NULL; at;
         at = strtok_r(NULL, "\r\n", &rest))
        p->line[p->n++] = at;
    if (!p->n)
        return dg_fail(err, DGEMMA_E_ARG, "the file of prompts is empty");
    if (p->n > DGEMMA_MAX_COMPARED)
        return dg_fail(err, DGEMMA_E_ARG, "the file has %d prompts; at most %d are compared", p->n,
                       DGEMMA_MAX_COMPARED);
    return DGEMMA_OK;
}

/* Clear *p also after a failure. */
static dgemma_status read_prompts(check_prompts *p, const char *path, dgemma_error *err)
{
    *p = (check_prompts){0};
    dg_buf_init(&p->text, 16 << 20);
    if (!path)
        return DGEMMA_OK;
    dgemma_status st = cli_read_text(&p->text, path, err);
    if (!st && p->text.len && !dg_utf8_valid(p->text.data, p->text.len))
        st = dg_fail(err, DGEMMA_E_ARG, "%s: it is not UTF-8", path);
    return st ? st : cut_lines(p, err);
}

static int compare(const dgemma_quantize_options *opt, const check_prompts *prompts)
{
    quantize_watch *watch = opt->user;
    dgemma_error err = {0};
    dgemma_compared total;
    dgemma_compare_options how = {.model_path = opt->model_path,
                                  .other_path = opt->path,
                                  .prompts = (const char *const *)prompts->line,
                                  .n_prompts = prompts->n,
                                  .n_threads = opt->n_threads,
                                  .on_prompt = on_prompt,
                                  .on_progress = on_progress,
                                  .user = watch};
    cli_guard_model(opt->model_path);
    write_progress_begin(&watch->progress, "comparing");
    dgemma_status st = dgemma_compare(&how, &total, &err);
    write_progress_hide(&watch->progress);
    if (st == DGEMMA_E_CANCELLED) {
        fputs("dgemma quantize: interrupted while the models were compared\n", stderr);
        return EXIT_INTERRUPTED;
    }
    if (st)
        return cli_fail(&err);
    print_compared("all", &total);
    return EXIT_OK;
}

static int quantize(const dgemma_quantize_options *opt)
{
    quantize_watch *watch = opt->user;
    dgemma_error err = {0};
    dgemma_quantize_result result;
    cli_guard_model(opt->model_path);
    write_progress_begin(&watch->progress, "writing");
    dgemma_status st = dgemma_quantize(opt, &result, &err);
    write_progress_hide(&watch->progress);
    if (st == DGEMMA_E_CANCELLED) {
        write_progress_interrupted("quantize", opt->path);
        if (opt->mmproj_path)
            fputs("dgemma quantize: the vision tower was not begun\n", stderr);
        return EXIT_INTERRUPTED;
    }
    if (st)
        return cli_fail(&err);
    print_total(opt, &result, dg_clock_now() - watch->progress.start);
    return EXIT_OK;
}

int cmd_quantize(int argc, char **argv)
{
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    quantize_watch watch = {0};
    cli_lora_args lora = {0};
    bool help = false, check = false;
    const char *prompts_path = NULL, *type = NULL;
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {0, "type", "TYPE",
         "BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_K_D, Q4_0, Q4_1, IQ4_NL, IQ4_XS, MXFP4_MOE "
         "(Q4_K_M); FP8, NVFP4 and BF16 as a folder",
         cli_set_string, &type},
        {0, "imatrix", "FILE", "an importance file, by which errors weigh", cli_set_string,
         &opt.importance_path},
        {0, "mmproj", "FILE", "write the vision tower too, as a file beside the model",
         cli_set_string, &opt.mmproj_path},
        {0, "lora", "PATH[:SCALE]",
         "an adapter that becomes part of the weights, and its strength, from -1000 to 1000 (1); "
         "may be repeated",
         cli_add_lora, &lora},
        {'t', "threads", "N", "threads (as many as there are processors)", cli_set_count,
         &opt.n_threads},
        {'n', "dry-run", NULL, "print what each tensor would be, and write nothing", cli_set_switch,
         &opt.dry_run},
        {'f', "force", NULL, "replace a file that is there", cli_set_switch, &opt.replace},
        {0, "check", NULL,
         "compare OUT with IN: as it is where it is there, else with --type, when it is written",
         cli_set_switch, &check},
        {0, "prompts", "FILE", "with --check: these prompts, one a line (six that are built in)",
         cli_set_string, &prompts_path},
        {'q', "quiet", NULL, "print the sum alone", cli_set_switch, &watch.quiet},
        {'h', "help", NULL, "this text", cli_set_switch, &help},
    };
    const char *path[2] = {0};
    size_t n_option = sizeof options / sizeof options[0], n_path;
    if (!cli_parse("quantize", options, n_option, argc, argv, path, 2, &n_path))
        return EXIT_USAGE;
    if (help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (n_path < 1 || (n_path < 2 && !opt.dry_run)) {
        fputs("dgemma quantize: say what to read and which file to write\n" USAGE "\n", stderr);
        return EXIT_USAGE;
    }
    if (prompts_path && !check) {
        fputs("dgemma quantize: --prompts goes with --check\n", stderr);
        return EXIT_USAGE;
    }
    if (check && lora.n) {
        fputs("dgemma quantize: --check compares with IN as it is, so it goes with no --lora\n",
              stderr);
        return EXIT_USAGE;
    }
    if (type)
        opt.type = type;
    opt.adapters = lora.list;
    opt.n_adapters = lora.n;
    opt.model_path = path[0];
    opt.path = path[1];
    opt.on_tensor = on_tensor;
    opt.on_progress = on_progress;
    opt.user = &watch;
    watch.dry_run = opt.dry_run;
    const bool there = check && opt.path && !opt.replace && dg_file_exists(opt.path);
    if (there && (opt.mmproj_path || opt.importance_path)) {
        fprintf(stderr,
                "dgemma quantize: OUT is there, and is only compared: --%s would do nothing\n",
                opt.mmproj_path ? "mmproj" : "imatrix");
        return EXIT_USAGE;
    }
    /* who names no type means a file that is there: nothing is written under its name */
    if (check && !there && !type && !opt.dry_run) {
        fprintf(stderr,
                "dgemma quantize: %s: to compare a file it has to be there; "
                "with --type it is written first\n" USAGE "\n",
                opt.path);
        return EXIT_USAGE;
    }
    check_prompts prompts;
    dgemma_error err = {0};
    /* first, since nobody wants to wait for a model to hear that they are not there */
    int code = read_prompts(&prompts, prompts_path, &err) ? cli_fail(&err) : EXIT_OK;
    if (code == EXIT_OK && there && !watch.quiet)
        fprintf(stderr, "dgemma quantize: OUT is there, and is compared as it is\n");
    if (code == EXIT_OK && !there)
        code = quantize(&opt);
    if (code == EXIT_OK && check && !opt.dry_run)
        code = compare(&opt, &prompts);
    clear_prompts(&prompts);
    return code;
}
