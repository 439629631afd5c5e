/* check_kernels: each kernel of each instruction set this processor has, against the reference.
 *
 *   check_kernels [--seed N] [--set NAME] [--bench]
 *
 * The data are random from a seed that is printed; the same seed gives the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/check.h"

static const char *const sets[] = {"neon", "i8mm", "bf16", "avx2", "vnni", "amx"};

static void check_set(check *c, const char *name)
{
    unsigned flags = 0;
    if (!dg_cpu_flags_parse(&flags, name) || !flags || (flags & dg_cpu_flags()) != flags) {
        printf("%-5s skipped: this processor does not have it\n", name);
        c->skipped++;
        return;
    }
    dg_kernels opt;
    dg_kernels_init(&opt, flags);
    c->opt = &opt;
    c->set = name;
    if (c->bench) {
        c->peak = check_peak(name);
        printf("%-5s peak of one core: %.1f GFLOP/s\n", name, c->peak);
    }
    check_gemm(c);
    check_stored(c);
    check_rows(c);
    check_math(c);
    check_words(c);
    check_quantised(c);
    check_byte_products(c);
    check_bfloat(c);
    check_known(c, &opt, false);
    c->opt = NULL;
}

/* What sets do, with their instructions in plain C. */
static void check_plain(check *c)
{
    dg_kernels opt = dg_kernels_ref;
    opt.q = &check_plain_vnni;
    c->opt = &opt;
    c->set = "vnni, in plain C";
    c->few = true; /* slow, and slower with a sanitizer */
    check_quantised(c);
    opt.bytes = &check_plain_bytes_vnni;
    check_byte_products(c);
    opt.bytes = &check_plain_bytes_amx;
    opt.b = &check_plain_bfloat;
    c->set = "amx, in plain C";
    check_byte_products(c);
    check_bfloat(c);
    c->few = false;
    c->opt = NULL;
}

static void check_plain_floats(check *c)
{
    dg_kernels opt = dg_kernels_ref;
    opt.gemm_panel = check_plain_gemm;
    c->opt = &opt;
    c->set = "vnni, in plain C";
    check_gemm(c);
    c->opt = NULL;
}

/* The names of the sets, and what is none. */
static void check_flags(check *c)
{
    static const struct {
        const char *text, *best; /* best == NULL: not accepted */
        unsigned flags;
    } cases[] = {
        {"ref", "ref", 0},
        {"neon", "neon", DG_CPU_NEON},
        {"i8mm", "i8mm", DG_CPU_NEON | DG_CPU_I8MM},
        {"bf16", "bf16", DG_CPU_NEON | DG_CPU_I8MM | DG_CPU_BF16},
        {"avx2,ref", "avx2", DG_CPU_AVX2},
        {"vnni", "vnni", DG_CPU_AVX2 | DG_CPU_VNNI},
        {"amx", "amx", DG_CPU_AVX2 | DG_CPU_VNNI | DG_CPU_AMX | DG_CPU_BF16},
        {"neon,avx2", "avx2", DG_CPU_NEON | DG_CPU_AVX2},
        {"", NULL, 7},
        {"neo", NULL, 7},
        {"neon,", NULL, 7},
        {",neon", NULL, 7},
        {"NEON", NULL, 7},
    };
    c->set = "-";
    check_begin(c, "cpu_flags");
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        unsigned flags = 7;
        bool ok = dg_cpu_flags_parse(&flags, cases[i].text);
        if (ok != (cases[i].best != NULL) || flags != cases[i].flags)
            check_fail(c, "\"%s\" gives %u", cases[i].text, flags);
        else if (ok && strcmp(dg_cpu_flags_name(flags), cases[i].best) != 0)
            check_fail(c, "\"%s\" is called %s", cases[i].text, dg_cpu_flags_name(flags));
    }
    check_end(c);
}

/* What numerics with bytes are called: a set's own where its other products differ, too. */
static void check_profiles(check *c)
{
    static const struct {
        const char *text, *profile;
    } cases[] = {
#if defined(__x86_64__)
        {"avx2", NULL},
        {"vnni", "integer-bytes"},
        {"amx", "integer-bytes-amx"},
#elif defined(__aarch64__)
        {"i8mm", NULL},
        {"bf16", "integer-bytes-bfmmla"},
#endif
        {"ref", NULL},
    };
    check_begin(c, "profiles");
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        unsigned flags = 0;
        dg_kernels k;
        dg_cpu_flags_parse(&flags, cases[i].text);
        dg_kernels_init(&k, flags);
        const char *profile = k.bytes ? k.bytes->profile : NULL, *want = cases[i].profile;
        if (!profile != !want || (want && strcmp(profile, want) != 0))
            check_fail(c, "%s is called %s", cases[i].text, profile ? profile : "nothing");
    }
    check_end(c);
}

static int usage(void)
{
    fprintf(stderr, "usage: check_kernels [--seed N] [--set NAME] [--bench]\n");
    return 2;
}

int main(int argc, char **argv)
{
    check c = {.ref = &dg_kernels_ref, .seed = (uint64_t)time(NULL)};
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--bench") == 0)
            c.bench = true;
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            c.seed = strtoull(argv[++i], &end, 10);
            if (end == argv[i] || *end)
                return usage();
        } else
            return usage();
    }

    bool known = !only || strcmp(only, "ref") == 0; /* which is checked whatever is asked for */
    for (size_t i = 0; i < DG_COUNT(sets); i++)
        known = known || strcmp(only, sets[i]) == 0;
    if (!known) {
        fprintf(stderr, "there is no set \"%s\"\n", only);
        return usage();
    }

    printf("check_kernels --seed %llu\n", (unsigned long long)c.seed);
    check_flags(&c);
    check_profiles(&c);
    c.set = "ref";
    check_known(&c, &dg_kernels_ref, true);
    for (size_t i = 0; i < DG_COUNT(sets); i++)
        if (!only || strcmp(only, sets[i]) == 0)
            check_set(&c, sets[i]);
    if (!only) {
        check_plain_floats(&c);
        check_plain(&c);
    }
    printf("%d passed, %d failed, %d skipped\n", c.passed, c.failed, c.skipped);
    return c.failed ? 1 : 0;
}
