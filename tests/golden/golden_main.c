/* dgemma-golden: replays traces of the reference implementation and holds every value to them.
 *
 *     dgemma-golden [--device NAME] [--cpu-flags LIST] [--threads N] [--chunk N] [--as-served]
 *                   [--weights FORM] DIR…
 *
 * A DIR is a fixture (it has a trace.json) or a folder of them. One line a fixture, with its worst
 * errors. With --weights these are what weights of fp8, int4, Q4_K_M or Q8_0 cost. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "base/pool.h"
#include "cpu/kernels.h"
#include "fixture.h"

typedef struct tally {
    int passed, failed, skipped;
} tally;

static const struct {
    const char *kind;
    dgemma_status (*run)(fixture *fx, dgemma_error *err);
} kinds[] = {
    {"forward", golden_forward},
    {"generate", golden_generate},
    {"sampler", golden_sampler},
    {"vision", golden_vision},
};

static dgemma_status run_kind(fixture *fx, dgemma_error *err)
{
    for (size_t i = 0; i < DG_COUNT(kinds); i++)
        if (strcmp(kinds[i].kind, fx->kind) == 0)
            return kinds[i].run(fx, err);
    return dg_fail(err, DGEMMA_E_FORMAT, "trace.json says kind \"%s\", which is unknown", fx->kind);
}

static void run_fixture(const char *dir, const golden_options *opt, tally *sum)
{
    dgemma_error err = {0};
    fixture fx;
    const char *slash = strrchr(dir, '/');
    printf("%-18s ", slash ? slash + 1 : dir);
    dgemma_status st = fixture_open(&fx, dir, opt, &err);
    if (!st && !fx.be->vision_plan && dg_safetensors_find(&fx.trace, "pixel_values")) {
        printf("skipped: the backend %s has no vision tower\n", fx.be->name);
        fixture_close(&fx);
        sum->skipped++;
        return;
    }
    if (!st && opt->as_served && fx.tol_logits <= 0) {
        printf("skipped: it does not say what bfloat16 may cost\n");
        fixture_close(&fx);
        sum->skipped++;
        return;
    }
    if (!st)
        st = run_kind(&fx, &err);
    if (!st && !fx.n_compared)
        st = dg_fail(&err, DGEMMA_E_FORMAT, "nothing was compared");
    if (st)
        printf("FAILED  %s\n", err.msg);
    else
        printf("ok  %-8s worst: encoder and cache %.1e, logits %.1e, entropy %.1e; %d "
               "comparisons%s%s\n",
               fx.kind, fx.worst_encoder, fx.worst_logits, fx.worst_entropy, fx.n_compared,
               fx.note[0] ? "; " : "", fx.note);
    fixture_close(&fx);
    *(st ? &sum->failed : &sum->passed) += 1;
}

static void run_images(const char *dir, tally *sum)
{
    dgemma_error err = {0};
    golden_images found;
    const char *slash = strrchr(dir, '/');
    dgemma_status st = golden_images_run(dir, &found, &err);
    printf("%-18s ", slash ? slash + 1 : dir);
    if (st)
        printf("FAILED  %s\n", err.msg);
    else
        printf("ok  images   worst: %.1e of a picture's bytes differ, by one; %d pictures\n",
               found.worst_share, found.n_picture);
    *(st ? &sum->failed : &sum->passed) += 1;
}

/* Runs what a folder is: a trace or a set of pictures. False: neither. */
static bool run_one(const char *dir, const golden_options *opt, tally *sum)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/trace.json", dir);
    bool trace = dg_file_exists(path);
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    if (trace)
        run_fixture(dir, opt, sum);
    else if (dg_file_exists(path))
        run_images(dir, sum);
    else
        return false;
    return true;
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void run_folder(const char *dir, const golden_options *opt, tally *sum)
{
    char path[2048];
    if (run_one(dir, opt, sum))
        return;
    struct dirent **entry;
    int n = scandir(dir, &entry, is_visible, alphasort), before = sum->passed + sum->failed;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, entry[i]->d_name);
        if (dg_file_is_dir(path) && !run_one(path, opt, sum)) {
            printf("%-18s skipped: there is no trace.json and no expected.safetensors\n",
                   entry[i]->d_name);
            sum->skipped++;
        }
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    if (sum->passed + sum->failed == before) {
        printf("%s: no fixture there\n", dir);
        sum->failed++;
    }
}

int main(int argc, char **argv)
{
    golden_options opt = {.device = "cpu", .cpu_flags = dg_cpu_flags(), .n_thread = dg_cpu_count()};
    tally sum = {0};
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--as-served") == 0) {
            opt.as_served = true;
            i--;
        } else if (strcmp(argv[i], "--threads") == 0)
            opt.n_thread = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--device") == 0)
            opt.device = argv[i + 1];
        else if (strcmp(argv[i], "--weights") == 0)
            opt.weights = argv[i + 1];
        else if (strcmp(argv[i], "--chunk") == 0)
            opt.chunk = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--cpu-flags") != 0 ||
                 !dg_cpu_flags_parse(&opt.cpu_flags, argv[i + 1])) {
            fprintf(stderr, "dgemma-golden: unknown option %s %s\n", argv[i], argv[i + 1]);
            return 2;
        }
    }
    if (i == argc || opt.n_thread < 1 || opt.chunk < 0) {
        fprintf(stderr, "usage: dgemma-golden [--device NAME] [--cpu-flags LIST] [--threads N] "
                        "[--chunk N] [--as-served] [--weights FORM] DIR...\n");
        return 2;
    }
    for (; i < argc; i++)
        run_folder(argv[i], &opt, &sum);
    printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
    return sum.failed ? 1 : 0;
}
