/* dgemma verify: does this model compute what it should? */
#include <limits.h>
#include <string.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/kv_type.h"
#include "cli.h"
#include "dgemma_tools.h"

typedef struct verify_args {
    dgemma_engine_options engine;
    const char *reference, *kv_type;
    bool record, help;
} verify_args;

static void on_check(void *user, const dgemma_check *c)
{
    (void)user;
    printf("%-4s %s: off by %.3g, allowed %.3g\n", c->passed ? "ok" : "OFF", c->what, c->error,
           c->allowed);
    fflush(stdout);
}

static int record(const verify_args *a)
{
    dgemma_error err = {0};
    char *text;
    if (dgemma_verify_record(&a->engine, &text, &err))
        return cli_fail(&err);
    fputs(text, stdout);
    dgemma_free(text);
    return EXIT_OK;
}

static int verify(const verify_args *a)
{
    dgemma_error err = {0};
    dg_buf text;
    bool passed = false;
    dg_buf_init(&text, 64 << 20);
    int code = EXIT_OK;
    if (a->reference && dg_file_read(&text, a->reference, &err))
        code = cli_fail(&err);
    else if (dgemma_verify(&a->engine, a->reference ? (text.data ? text.data : "") : NULL, on_check,
                           NULL, &passed, &err))
        code = cli_fail(&err);
    else {
        puts(passed ? "passed" : "FAILED: the first line that is off says where to look");
        code = passed ? EXIT_OK : EXIT_FAILED;
    }
    dg_buf_clear(&text);
    return code;
}

/* model.gguf may have its own reference beside it, model.reference.json, as the pocket model does.
 */
static bool find_reference(const char *model, char *out, size_t size)
{
    static const char end[] = ".gguf";
    size_t n = strlen(model), stem = n - (sizeof end - 1);
    if (n < sizeof end || strcmp(model + stem, end) != 0)
        return false;
    int len = snprintf(out, size, "%.*s.reference.json", (int)stem, model);
    return len > 0 && (size_t)len < size && dg_file_exists(out);
}

static const char usage[] =
    "usage: dgemma verify [OPTION]... [MODEL]\n\n"
    "Replays values of a trusted implementation on a model and says whether it computes the same.\n"
    "Without --reference these are those in MODEL.reference.json beside MODEL.gguf, as the pocket\n"
    "model has one, or else the values published for the released checkpoint: first six layers\n"
    "alone, then all of them.\n\n"
    "  dgemma verify diffusiongemma-26B-A4B-it\n"
    "  dgemma verify --record good-model > good.json\n"
    "  dgemma verify --reference good.json converted.gguf\n";

int cmd_verify(int argc, char **argv)
{
    verify_args a = {.engine = dgemma_engine_defaults()};
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'r', "reference", "FILE", "hold it to this record instead", cli_set_string, &a.reference},
        {0, "record", NULL, "print what this model computes, as a reference for others",
         cli_set_switch, &a.record},
        {0, "device", "NAME", "what computes: cpu, cuda, cuda:N or auto (cpu)", cli_set_string,
         &a.engine.device},
        {0, "weights", "FORM",
         "made narrower on a GPU: experts fp8 or int4, the rest fp8 (as stored)", cli_set_string,
         &a.engine.weights},
        {'t', "threads", "N", "threads (one for each processor)", cli_set_int, &a.engine.n_threads},
        {0, "kv-type", "TYPE", "keys and values as " DG_KV_TYPES " (bf16)", cli_set_string,
         &a.kv_type},
        {0, "profile", "NAME", "products on quantised weights: integer or float (float)",
         cli_set_string, &a.engine.profile},
        {0, "cpu-flags", "NAME", "instruction set: neon, i8mm, bf16, avx2, vnni, amx or ref (best)",
         cli_set_string, &a.engine.cpu},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    const char *rest[1];
    if (!cli_parse("verify", options, n_option, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (!dg_kv_type_named(&a.engine.kv_type, a.kv_type)) {
        fprintf(stderr, "dgemma verify: --kv-type is " DG_KV_TYPES "\n");
        return EXIT_USAGE;
    }
    if (a.record && a.reference) {
        fprintf(stderr, "dgemma verify: --record makes a reference, --reference reads one\n");
        return EXIT_USAGE;
    }
    a.engine.model_path = n_rest ? rest[0] : NULL;
    if (!cli_model_or_default(&a.engine.model_path))
        return EXIT_FAILED;
    if (a.record)
        return record(&a);
    char beside[PATH_MAX + 64];
    if (!a.reference && find_reference(a.engine.model_path, beside, sizeof beside))
        a.reference = beside;
    if (a.reference)
        printf("held to %s\n", a.reference);
    return verify(&a);
}
