/* dgemma constrain: which texts a schema, an expression or a grammar allows, without a model. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cells.h"
#include "constraint_args.h"
#include "dgemma_tools.h"

enum { TEXT_MAX = 64 << 20 };

typedef struct constrain_args {
    cli_constraint_args constraint;
    const char *text, *file;
    int random, length;
    uint64_t seed;
    bool lines, json, size, help;
} constrain_args;

/* ---- what is said of a text ---- */

/* The bytes that could come next, in words: classes as a regular expression has them. */
static void describe_next(const dgemma_match *m, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned lo = 0, hi; lo < 256; lo = hi + 1) {
        hi = lo;
        if (!m->next[lo])
            continue;
        while (hi < 255 && m->next[hi + 1])
            hi++;
        for (int side = 0; side < 1 + (hi > lo); side++) {
            unsigned b = side ? hi : lo;
            const char *dash = side && hi > lo + 1 ? "-" : "";
            const char *form = b > ' ' && b < 0x7F ? "%s%c" : "%s\\x%02X";
            if (n + 8 < cap)
                n += (size_t)snprintf(out + n, cap - n, form, dash, b);
        }
    }
}

static const char *verdict_name(dgemma_verdict v)
{
    static const char *const names[] = {"accepted", "prefix", "rejected"};
    return names[v];
}

static void print_json(const dgemma_match *m, const char *next)
{
    printf("{\"verdict\": \"%s\", \"at\": %zu, \"could_end\": %s, \"tokens\": %zu, \"next\": ",
           verdict_name(m->verdict), m->n, m->could_end ? "true" : "false", m->n_tokens);
    cli_json_string(stdout, next, strlen(next));
    puts("}");
}

static void print_verdict(const dgemma_match *m, const char *next)
{
    fputs(verdict_name(m->verdict), stdout);
    if (m->verdict != DGEMMA_ACCEPTED) {
        printf(" at byte %zu: could go on with", m->n);
        if (next[0])
            printf(" [%s]", next);
        if (m->n_tokens)
            printf("%s a special token", next[0] ? " or" : "");
        if (m->could_end)
            printf("%s end there", next[0] || m->n_tokens ? ", or" : " nothing, only");
    }
    putchar('\n');
}

static int judge(const constrain_args *a, dgemma_constraint *c, const char *text, size_t len)
{
    dgemma_error err = {0};
    dgemma_match m;
    char next[1200];
    if (dgemma_constraint_check(c, text, len, &m, &err)) {
        cli_fail(&err);
        return EXIT_USAGE;
    }
    describe_next(&m, next, sizeof next);
    if (a->json)
        print_json(&m, next);
    else
        print_verdict(&m, next);
    return m.verdict == DGEMMA_ACCEPTED ? EXIT_OK : EXIT_FAILED;
}

static int judge_lines(const constrain_args *a, dgemma_constraint *c, const char *text, size_t len)
{
    int worst = EXIT_OK;
    for (size_t from = 0; from < len;) {
        const char *end = memchr(text + from, '\n', len - from);
        size_t n = end ? (size_t)(end - text) - from : len - from;
        int code = judge(a, c, text + from, n);
        worst = code > worst ? code : worst;
        from += n + 1;
    }
    return worst;
}

static int judge_all(const constrain_args *a, dgemma_constraint *c)
{
    if (a->text)
        return a->lines ? judge_lines(a, c, a->text, strlen(a->text))
                        : judge(a, c, a->text, strlen(a->text));
    dgemma_error err = {0};
    dg_buf text;
    dg_buf_init(&text, TEXT_MAX);
    int code;
    if (dg_file_read(&text, a->file ? a->file : "-", &err)) {
        cli_fail(&err);
        code = EXIT_USAGE;
    } else if (!a->file && !text.len) {
        fputs("dgemma constrain: there is no text on standard input\n", stderr);
        code = EXIT_USAGE;
    } else if (!a->file || a->lines)
        code = judge_lines(a, c, text.data ? text.data : "", text.len);
    else {
        /* the newline at a file's end is the file's */
        size_t len = text.len && text.data[text.len - 1] == '\n' ? text.len - 1 : text.len;
        code = judge(a, c, text.data ? text.data : "", len);
    }
    dg_buf_clear(&text);
    return code;
}

/* ---- texts at random ---- */

static int print_random(const constrain_args *a, dgemma_constraint *c)
{
    for (int i = 0; i < a->random; i++) {
        dgemma_error err = {0};
        char *text;
        size_t len;
        if (dgemma_constraint_random(c, a->seed, (uint32_t)i, (size_t)a->length, &text, &len,
                                     &err)) {
            cli_fail(&err);
            return EXIT_USAGE;
        }
        if (a->json)
            cli_json_string(stdout, text, len);
        else
            fwrite(text, 1, len, stdout);
        putchar('\n');
        dgemma_free(text);
    }
    return EXIT_OK;
}

static void print_size(dgemma_constraint *c)
{
    dgemma_constraint_size size = dgemma_constraint_measure(c);
    fprintf(stderr, "%zu nodes, %zu places and %zu edges looked at, %zu bytes\n", size.n_nodes,
            size.n_places, size.n_edges, size.bytes);
}

/* ---- the constraint ---- */

static int run(const constrain_args *a)
{
    dgemma_error err = {0};
    dgemma_constraint *c = NULL;
    if (cli_constraint_make(&c, "constrain", &a->constraint, &err)) {
        cli_fail(&err);
        return EXIT_USAGE;
    }
    int code = a->random ? print_random(a, c) : judge_all(a, c);
    if (a->size)
        print_size(c);
    dgemma_constraint_free(c);
    return code;
}

/* Options that contradict each other; NULL: none do. */
static const char *mistake(const constrain_args *a)
{
    const cli_constraint_args *c = &a->constraint;
    if (cli_constraint_count(c) != 1)
        return "give one of --json-schema, --json-object, --regex, --choice, --grammar, --tools";
    if (!c->tools && (c->tool_choice || c->n_allowed || c->one_call))
        return "--tool-choice, --allow-tool and --one-call go with --tools";
    if (a->text && a->file)
        return "give the text once: as a word, or with --file";
    if (a->random && (a->text || a->file || a->lines))
        return "--random makes texts of its own";
    return cli_constraint_mistake(c);
}

static const char usage[] =
    "usage: dgemma constrain CONSTRAINT [OPTION]... [TEXT]\n\n"
    "Says of a text whether a constraint allows it: accepted, prefix (it could become so) or\n"
    "rejected, and from which byte on. The text is the last word, a file, or each line of what\n"
    "comes through a pipe. Special tokens stand in it by their names. No model is needed. Exits\n"
    "with 0 when all texts are accepted, with 1 when some are not, with 2 when the constraint is\n"
    "refused.\n";

int cmd_constrain(int argc, char **argv)
{
    constrain_args a = {.length = 200};
    const cli_option schema = {
        0, "schema", "SCHEMA", "the same as --json-schema", cli_set_string, &a.constraint.schema};
    const cli_option rows[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {0, "text", "TEXT", "the text, in place of the last word", cli_set_string, &a.text},
        {'f', "file", "FILE", "read the text from a file; - is standard input", cli_set_string,
         &a.file},
        {0, "lines", NULL, "each line is a text of its own", cli_set_switch, &a.lines},
        {0, "random", "N", "print N texts drawn at random instead", cli_set_count, &a.random},
        {'s', "seed", "N", "of the random texts (0)", cli_set_seed, &a.seed},
        {0, "length", "N", "of the random texts, about (200)", cli_set_int, &a.length},
        {0, "json", NULL, "print JSON, a value for each text", cli_set_switch, &a.json},
        {0, "size", NULL, "say how large the automaton is, on standard error", cli_set_switch,
         &a.size},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {0};
    cli_options_add_constraint(&options, &a.constraint, "constraint, one of");
    cli_options_add(&options, &schema, 1);
    cli_options_add_tools(&options, &a.constraint);
    cli_options_add(&options, rows, sizeof rows / sizeof rows[0]);
    size_t n_rest;
    const char *rest[1];
    if (!cli_parse("constrain", options.row, options.n, argc, argv, rest, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    const char *wrong = n_rest && a.text ? "give the text once: as a word, or with --text" : NULL;
    if (n_rest && !a.text)
        a.text = rest[0];
    wrong = wrong ? wrong : mistake(&a);
    if (wrong) {
        fprintf(stderr, "dgemma constrain: %s\n", wrong);
        return EXIT_USAGE;
    }
    return run(&a);
}
