/* dgemma tokenize: text to token ids, and back. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli.h"

enum { TEXT_MAX = 64 << 20 };

typedef struct tokenize_args {
    dgemma_engine_options engine;
    const char *file, *decode, *text;
    bool markers, pieces, count, help;
} tokenize_args;

static int print_ids(const tokenize_args *a, const dgemma_engine *engine, const int32_t *ids,
                     size_t n)
{
    if (a->count) {
        printf("%zu\n", n);
        return EXIT_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (!a->pieces) {
            printf("%s%d", i ? " " : "", (int)ids[i]);
            continue;
        }
        dgemma_error err = {0};
        char *piece;
        size_t len;
        if (dgemma_detokenize(engine, ids + i, 1, &piece, &len, &err))
            return cli_fail(&err);
        printf("%7d ", (int)ids[i]);
        cli_json_string(stdout, piece, len);
        putchar('\n');
        dgemma_free(piece);
    }
    if (!a->pieces)
        putchar('\n');
    return EXIT_OK;
}

static int encode(const tokenize_args *a, const dgemma_engine *engine, const char *text, size_t len)
{
    dgemma_error err = {0};
    size_t n = 0, cap = len + 16; /* a token is at least a byte */
    int32_t *ids = dg_array(cap, sizeof *ids);
    if (!ids) {
        fprintf(stderr, "dgemma: out of memory\n");
        return EXIT_FAILED;
    }
    int code = dgemma_tokenize(engine, text, len, a->markers, ids, cap, &n, &err)
                   ? cli_fail(&err)
                   : print_ids(a, engine, ids, n);
    dg_free(ids);
    return code;
}

/* The model has a token for each. */
static bool are_known(const dgemma_engine *engine, const int32_t *ids, size_t n)
{
    dgemma_model_info info;
    dgemma_engine_info(engine, &info);
    if (!n)
        fprintf(stderr, "dgemma tokenize: expected token ids, there are none\n");
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= info.n_vocab) {
            fprintf(stderr, "dgemma tokenize: %d is not a token: 0 to %d are\n", (int)ids[i],
                    info.n_vocab - 1);
            return false;
        }
    return n > 0;
}

static int decode(const dgemma_engine *engine, const char *list)
{
    dgemma_error err = {0};
    int32_t *ids;
    size_t n, len;
    char *text;
    if (!cli_parse_ids("tokenize", list, &ids, &n))
        return EXIT_USAGE;
    int code = EXIT_OK;
    if (!are_known(engine, ids, n))
        code = EXIT_USAGE;
    else if (dgemma_detokenize(engine, ids, n, &text, &len, &err))
        code = cli_fail(&err);
    else {
        fwrite(text, 1, len, stdout);
        putchar('\n');
        dgemma_free(text);
    }
    dg_free(ids);
    return code;
}

/* Options that contradict each other; NULL: none do. */
static const char *mistake(const tokenize_args *a)
{
    if ((a->text != NULL) + (a->file != NULL) + (a->decode != NULL) > 1)
        return "give the text once: as a word, with --file, or as ids with --decode";
    if (a->decode && (a->markers || a->pieces || a->count))
        return "--markers, --pieces and --count go with a text, not with --decode";
    if (a->pieces && a->count)
        return "give --pieces or --count, not both";
    return NULL;
}

static const char usage[] =
    "usage: dgemma tokenize [OPTION]... [TEXT]\n\n"
    "Prints the token ids of a text: the last word, a file, or what comes through a pipe.\n";

int cmd_tokenize(int argc, char **argv)
{
    tokenize_args a = {.engine = dgemma_engine_defaults()};
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'m', "model", "PATH", "the model whose tokenizer to use (the pocket model)",
         cli_set_string, &a.engine.model_path},
        {'f', "file", "FILE", "read the text from a file; - is standard input", cli_set_string,
         &a.file},
        {0, "markers", NULL, "special tokens written in the text (<|turn>) count as such",
         cli_set_switch, &a.markers},
        {0, "pieces", NULL, "a line for each token, with its text", cli_set_switch, &a.pieces},
        {0, "count", NULL, "only how many there are", cli_set_switch, &a.count},
        {'d', "decode", "IDS", "the other way: the text of ids", cli_set_string, &a.decode},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    const char *rest[1];
    if (!cli_parse("tokenize", options, n_option, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    a.text = n_rest ? rest[0] : NULL;
    const char *wrong = mistake(&a);
    if (wrong) {
        fprintf(stderr, "dgemma tokenize: %s\n", wrong);
        return EXIT_USAGE;
    }
    if (!cli_model_or_default(&a.engine.model_path))
        return EXIT_FAILED;
    dgemma_error err = {0};
    dgemma_engine *engine = NULL;
    dg_buf text;
    dg_buf_init(&text, TEXT_MAX);
    int code;
    if (!a.decode && !a.text && dg_file_read(&text, a.file ? a.file : "-", &err))
        code = cli_fail(&err);
    else if (dgemma_engine_open(&engine, &a.engine, &err))
        code = cli_fail(&err);
    else if (a.decode)
        code = decode(engine, a.decode);
    else
        code = encode(&a, engine,
                      a.text      ? a.text
                      : text.data ? text.data
                                  : "",
                      a.text ? strlen(a.text) : text.len);
    dgemma_engine_close(engine);
    dg_buf_clear(&text);
    return code;
}
