/* dgemma inspect: what is in a model file, and what running it takes. */
#include <stdlib.h>
#include <string.h>
#include "base/kv_type.h"
#include "cells.h"
#include "cli.h"
#include "dgemma_tools.h"

typedef struct inspect_args {
    dgemma_engine_options engine;
    bool tensors, json, help;
    int width, height; /* of --picture; 0: not asked */
} inspect_args;

/* Bytes by element type. */
typedef struct type_sum {
    const char *type;
    size_t n, bytes;
} type_sum;
enum { MAX_TYPES = 32 };

static size_t sum_types(const dgemma_file *file, type_sum *sums)
{
    size_t n_type = 0;
    for (size_t i = 0; i < dgemma_file_count(file); i++) {
        dgemma_tensor_info t;
        size_t k = 0;
        dgemma_file_tensor(file, i, &t);
        while (k < n_type && strcmp(sums[k].type, t.type) != 0)
            k++;
        if (k == MAX_TYPES)
            continue;
        if (k == n_type)
            sums[n_type++] = (type_sum){.type = t.type};
        sums[k].n++;
        sums[k].bytes += t.bytes;
    }
    return n_type;
}

/* Of weights that a folder keeps in parts. */
static size_t sum_made(const dgemma_file *file)
{
    size_t bytes = 0;
    for (size_t i = 0; i < dgemma_file_count(file); i++) {
        dgemma_tensor_info t;
        dgemma_file_tensor(file, i, &t);
        bytes += t.made ? t.bytes : 0;
    }
    return bytes;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void print_shape(const dgemma_tensor_info *t)
{
    for (int i = 0; i < t->n_dim; i++)
        printf("%s%lld", i ? " x " : "", (long long)t->shape[i]);
}

/* In a column of its own. A name is whatever the file says, and a terminal obeys what it is sent.
 */
static void print_name(const char *name)
{
    enum { WIDTH = 60 };
    size_t len = strlen(name);
    cli_safe_write(stdout, name, len);
    printf("%*s ", len < WIDTH ? (int)(WIDTH - len) : 0, "");
}

static void print_tensors(const dgemma_file *file)
{
    for (size_t i = 0; i < dgemma_file_count(file); i++) {
        dgemma_tensor_info t;
        dgemma_file_tensor(file, i, &t);
        printf("  %-8s %10.2f MiB  ", t.type, mib(t.bytes));
        print_name(t.name);
        print_shape(&t);
        putchar('\n');
    }
}

/* Layers in runs of the same shape: "0-4 sliding 1024 …". */
static void print_layers(const dgemma_file *file, int n_layer)
{
    for (int i = 0, end; i < n_layer; i = end) {
        dgemma_layer_info a, b;
        dgemma_file_layer(file, i, &a);
        for (end = i + 1; end < n_layer; end++) {
            dgemma_file_layer(file, end, &b);
            if (a.sliding != b.sliding || a.window != b.window || a.n_kv_head != b.n_kv_head ||
                a.head_dim != b.head_dim)
                break;
        }
        char range[32], kind[32];
        snprintf(range, sizeof range, end - i == 1 ? "%d" : "%d-%d", i, end - 1);
        snprintf(kind, sizeof kind, a.sliding ? "sliding, window %d" : "global", a.window);
        printf("  layer %-7s %-22s %d query heads, %d key/value heads of %d\n", range, kind,
               a.n_head, a.n_kv_head, a.head_dim);
    }
}

static const int budgets[] = {70, 140, 280, 560, 1120};
enum { N_BUDGET = 5 };

static void print_vision(const inspect_args *a, const dgemma_file *file)
{
    dgemma_vision_info v;
    dgemma_file_vision(file, &v);
    if (!v.n_layer) {
        puts("\nvision\n  none: the model does not look at pictures");
        if (v.ignored) {
            fputs("  not used: ", stdout);
            cli_safe_write(stdout, v.ignored, strlen(v.ignored));
            putchar('\n');
        }
        return;
    }
    printf("\nvision\n  %d layers, %d wide, %d heads; patches of %d pixels, %d x %d of them to a "
           "token; at most %d tokens a "
           "picture by default, which see each other %s\n",
           v.n_layer, v.n_embd, v.n_head, v.patch, v.pool, v.pool, v.max_soft_tokens,
           v.bidirectional ? "both ways" : "causally");
    for (int i = 0; a->width && i < N_BUDGET; i++) {
        dgemma_error err;
        int w, h, n;
        if (dgemma_file_picture(file, a->width, a->height, budgets[i], &w, &h, &n, &err))
            printf("  a picture of %d x %d with a budget of %4d: %s\n", a->width, a->height,
                   budgets[i], err.msg);
        else
            printf("  a picture of %d x %d with a budget of %4d: %4d tokens, seen as %d x %d\n",
                   a->width, a->height, budgets[i], n, w, h);
    }
}

static bool set_size(void *target, const char *text)
{
    inspect_args *a = target;
    char end;
    return sscanf(text, "%7dx%7d%c", &a->width, &a->height, &end) == 2 && a->width > 0 &&
           a->height > 0;
}

static void print_text(const inspect_args *a, const dgemma_file *file, const dgemma_model_info *m)
{
    printf("%s: %s, %zu tensors, %.1f MiB of weights\n\n", a->engine.model_path,
           dgemma_file_format(file), dgemma_file_count(file), mib(m->weight_bytes));
    printf("model\n  %d layers, %d wide, %d words, %d experts of which %d work on a token\n"
           "  context %d tokens, canvas %d; tokenizer: %s; chat template: %s%s\n",
           m->n_layer, m->n_embd, m->n_vocab, m->n_expert, m->n_expert_used, m->context_length,
           m->canvas_length, m->has_tokenizer ? "yes" : "no",
           m->has_chat_template ? "revision " : "none",
           m->has_chat_template ? m->chat_template : "");
    printf("  runs here on %s kernels, numerics: %s\n\n", m->backend, m->numerics);
    if (m->foreign_template)
        puts("  the checkpoint's template is neither revision a nor b\n");
    print_layers(file, m->n_layer);

    print_vision(a, file);

    type_sum sums[MAX_TYPES];
    size_t n_type = sum_types(file, sums);
    puts("\nweights by type");
    for (size_t i = 0; i < n_type; i++)
        printf("  %-8s %5zu tensors %12.1f MiB\n", sums[i].type, sums[i].n, mib(sums[i].bytes));

    double request = mib(m->request_bytes) + mib(m->kv_bytes_full);
    const size_t made = sum_made(file);
    printf("\nmemory with a context of %d tokens\n  %12.1f MiB weights, ", m->context_length,
           mib(m->weight_bytes));
    if (made)
        printf("%.1f of them put together when the model is loaded, %.1f ", mib(made),
               mib(m->weight_bytes - made));
    printf("mapped from the file\n  %12.1f MiB for passes\n"
           "  %12.1f MiB for each request: %.1f keys and values when it fills the context, %.1f "
           "canvas\n"
           "  %12.1f MiB in all with %d such request%s\n",
           mib(m->work_bytes), request, mib(m->kv_bytes_full), mib(m->request_bytes),
           mib(m->weight_bytes) + mib(m->work_bytes) + a->engine.max_running * request,
           a->engine.max_running, cli_plural(a->engine.max_running));
    if (a->tensors) {
        puts("\ntensors");
        print_tensors(file);
    }
}

static void print_json(const inspect_args *a, const dgemma_file *file, const dgemma_model_info *m)
{
    type_sum sums[MAX_TYPES];
    size_t n_type = sum_types(file, sums);
    printf("{\"format\": \"%s\", \"n_tensors\": %zu, \"n_layers\": %d, \"n_embd\": %d, "
           "\"n_vocab\": %d, \"n_experts\": %d, "
           "\"n_experts_used\": %d, \"context_length\": %d, \"canvas_length\": %d, "
           "\"has_tokenizer\": %s, "
           "\"chat_template\": \"%s\", \"weight_bytes\": %zu, \"work_bytes\": %zu, "
           "\"request_bytes\": %zu, "
           "\"kv_bytes_full\": %zu, \"numerics\": \"%s\", \"types\": {",
           dgemma_file_format(file), dgemma_file_count(file), m->n_layer, m->n_embd, m->n_vocab,
           m->n_expert, m->n_expert_used, m->context_length, m->canvas_length,
           m->has_tokenizer ? "true" : "false", m->chat_template, m->weight_bytes, m->work_bytes,
           m->request_bytes, m->kv_bytes_full, m->numerics);
    for (size_t i = 0; i < n_type; i++)
        printf("%s\"%s\": {\"tensors\": %zu, \"bytes\": %zu}", i ? ", " : "", sums[i].type,
               sums[i].n, sums[i].bytes);
    printf("}");
    for (size_t i = 0; a->tensors && i < dgemma_file_count(file); i++) {
        dgemma_tensor_info t;
        dgemma_file_tensor(file, i, &t);
        printf("%s{\"name\": ", i ? ", " : ", \"tensors\": [");
        cli_json_string(stdout, t.name, strlen(t.name));
        printf(", \"type\": \"%s\", \"bytes\": %zu, \"shape\": [", t.type, t.bytes);
        for (int d = 0; d < t.n_dim; d++)
            printf("%s%lld", d ? ", " : "", (long long)t.shape[d]);
        printf("]}");
    }
    printf("%s}\n", a->tensors ? "]" : "");
}

static const char usage[] = "usage: dgemma inspect [OPTION]... [MODEL]\n\n"
                            "Says what is in a model file and how much memory running it takes, "
                            "and fails when its tensors\n"
                            "are not those that its config asks for. Only headers are read.\n\n"
                            "  dgemma inspect model.gguf --context 32768 --batch 4\n";

int cmd_inspect(int argc, char **argv)
{
    inspect_args a = {.engine = dgemma_engine_defaults()};
    a.engine.max_running = 1;
    const char *kv_type = NULL;
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'c', "context", "N", "tokens of a request, for the memory it takes (the model's)",
         cli_set_int, &a.engine.context_length},
        {'b', "batch", "N", "requests at the same time, likewise (1)", cli_set_count,
         &a.engine.max_running},
        {0, "kv-type", "TYPE", "keys and values as " DG_KV_TYPES " (bf16)", cli_set_string,
         &kv_type},
        {0, "picture", "WxH", "what a picture of this size costs in tokens", set_size, &a},
        {0, "tensors", NULL, "list every tensor", cli_set_switch, &a.tensors},
        {0, "json", NULL, "print JSON", cli_set_switch, &a.json},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    const char *rest[1];
    if (!cli_parse("inspect", options, n_option, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (!dg_kv_type_named(&a.engine.kv_type, kv_type)) {
        fprintf(stderr, "dgemma inspect: --kv-type is " DG_KV_TYPES "\n");
        return EXIT_USAGE;
    }
    if (a.json && a.width) {
        fprintf(stderr, "dgemma inspect: --picture is not told in JSON\n");
        return EXIT_USAGE;
    }
    a.engine.model_path = n_rest ? rest[0] : NULL;
    if (!cli_model_or_default(&a.engine.model_path))
        return EXIT_FAILED;

    dgemma_error err = {0};
    dgemma_file *file;
    dgemma_model_info info;
    if (dgemma_file_open(&file, a.engine.model_path, &err))
        return cli_fail(&err);
    int code = EXIT_OK;
    if (dgemma_model_estimate(&info, &a.engine, &err))
        code = cli_fail(&err);
    else if (a.json)
        print_json(&a, file, &info);
    else
        print_text(&a, file, &info);
    if (!code && dgemma_file_check(file, &err)) {
        fflush(stdout); /* what was found comes before what is wrong with it */
        code = cli_fail(&err);
    }
    dgemma_file_close(file);
    return code;
}
