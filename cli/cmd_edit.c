/* dgemma edit: passages of a text written anew, all else as it was. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/error.h"
#include "passage.h"

enum { MAX_RANGES = 16 };

typedef struct edit_args {
    cli_request_args request;
    const char *file, *say;
    long start[MAX_RANGES], end[MAX_RANGES]; /* code points */
    size_t n_range;
    float strength;
    bool same_length, quiet, help;
} edit_args;

/* "120:180", in ascending order. */
static bool add_range(void *target, const char *text)
{
    edit_args *a = target;
    char *colon, *rest;
    long start = strtol(text, &colon, 10);
    if (colon == text || *colon != ':' || a->n_range == MAX_RANGES)
        return false;
    long end = strtol(colon + 1, &rest, 10);
    if (rest == colon + 1 || *rest || start < 0 || end < start ||
        (a->n_range && start < a->end[a->n_range - 1]))
        return false;
    a->start[a->n_range] = start;
    a->end[a->n_range++] = end;
    return true;
}

/* Bytes [start, end) of *text become what the model writes there. */
static dgemma_status write_anew(const edit_args *a, dgemma_engine *engine, dg_buf *text,
                                size_t start, size_t end, dgemma_stats *stats, dgemma_error *err)
{
    dgemma_request_options o = dgemma_request_defaults(engine);
    char *before = dg_calloc(start + 1, 1), *passage = dg_calloc(end - start + 1, 1);
    dg_buf whole;
    dg_buf_init(&whole, CLI_GAP_TEXT_MAX);
    if (!before || !passage || !dg_buf_append(&whole, text->data, start)) {
        dg_free(before);
        dg_free(passage);
        dg_buf_clear(&whole);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    memcpy(before, text->data, start);
    memcpy(passage, text->data + start, end - start);
    cli_request_apply(&a->request, &o);
    o.system = a->request.system;
    o.answer_prefix = before;
    o.passage = passage;
    o.suffix = text->data + end;
    o.instruction = a->say;
    o.strength = a->strength;
    o.keep_length = a->same_length || a->strength < 1;
    dgemma_status st = cli_gap_fill(engine, &o, &whole, stats, err);
    if (!st && !dg_buf_append(&whole, text->data + end, text->len - end))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(before);
    dg_free(passage);
    if (st) {
        dg_buf_clear(&whole);
        return st;
    }
    dg_buf_clear(text);
    *text = whole;
    return DGEMMA_OK;
}

/* The last passage first, so that the places of the others stay. At strength 0 nothing changes, and
 * nobody need be asked. */
static int edit(edit_args *a, dg_buf *text, const size_t *start, const size_t *end)
{
    dgemma_error err = {0};
    int code = EXIT_OK;
    dgemma_engine *engine = a->strength > 0 ? cli_gap_open(&a->request) : NULL;
    if (!engine && a->strength > 0)
        return EXIT_FAILED;
    for (size_t i = a->n_range; engine && !code && i-- > 0;) {
        dgemma_stats stats = {0};
        if (write_anew(a, engine, text, start[i], end[i], &stats, &err))
            code = cli_fail(&err);
        else if (!a->quiet)
            cli_gap_report(stderr, &stats);
    }
    if (!code)
        fwrite(text->data, 1, text->len, stdout);
    cli_guard_engine(NULL);
    dgemma_engine_close(engine);
    return code;
}

static int run(edit_args *a)
{
    dgemma_error err = {0};
    size_t start[MAX_RANGES], end[MAX_RANGES], at = 0;
    long seen = 0;
    dg_buf text;
    dg_buf_init(&text, CLI_GAP_TEXT_MAX);
    int code = EXIT_OK;
    if (cli_read_text(&text, a->file, &err))
        code = cli_fail(&err);
    else if (!text.data && !dg_buf_append(&text, "", 0))
        code = EXIT_FAILED;
    for (size_t i = 0; !code && i < a->n_range; i++) {
        bool ok = cli_gap_find(text.data, text.len, a->start[i], &at, &seen);
        start[i] = at;
        ok = ok && cli_gap_find(text.data, text.len, a->end[i], &at, &seen);
        end[i] = at;
        if (!ok) {
            fprintf(stderr, "dgemma edit: %ld:%ld is beyond the text, which has %ld characters\n",
                    a->start[i], a->end[i], seen);
            code = EXIT_USAGE;
        } else
            cli_gap_trim(text.data, &start[i], &end[i]);
    }
    if (!code)
        code = edit(a, &text, start, end);
    dg_buf_clear(&text);
    return code;
}

static const char usage[] =
    "usage: dgemma edit FILE --range START:END [OPTION]...\n\n"
    "Writes passages of a text anew and prints the whole; all else stays, byte for byte. Places\n"
    "are counted in characters (code points) from 0. The model was not trained for this: see\n"
    "docs/canvas.md.\n\n"
    "  dgemma edit -m MODEL letter.txt --range 120:180 --say \"Shorter.\"\n"
    "  dgemma edit -m MODEL poem.txt --range 0:40 --strength 0.6 --seed 3\n";

int cmd_edit(int argc, char **argv)
{
    edit_args a = {.request = cli_request_defaults(), .strength = 1};
    const cli_option head[] = {
        {0, "text and model", NULL, NULL, NULL, NULL},
        {0, "range", "A:B", "a passage: characters A up to B; may be repeated, in order", add_range,
         &a},
        {0, "say", "TEXT", "how it is to be written, in words (\"Use other words.\")",
         cli_set_string, &a.say},
        {0, "strength", "T", "how much becomes noise, 0 to 1; below 1 the length stays (1)",
         cli_set_float, &a.strength},
        {0, "same-length", NULL, "as many tokens as before; otherwise lengths are tried",
         cli_set_switch, &a.same_length},
    };
    const cli_option output[] = {
        {0, "output", NULL, NULL, NULL, NULL},
        {'q', "quiet", NULL, "only the text", cli_set_switch, &a.quiet},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {.n = 0};
    cli_options_add(&options, head, sizeof head / sizeof head[0]);
    cli_options_add_passage(&options, &a.request);
    cli_options_add(&options, output, sizeof output / sizeof output[0]);
    size_t n_rest;
    int code;
    if (!cli_parse("edit", options.row, options.n, argc, argv, &a.file, 1, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options.row, options.n);
        return EXIT_OK;
    }
    if (!n_rest || !a.n_range || !(a.strength >= 0 && a.strength <= 1)) {
        fputs(!n_rest      ? "dgemma edit: which file? (see dgemma edit --help)\n"
              : !a.n_range ? "dgemma edit: give --range START:END, at least one\n"
                           : "dgemma edit: --strength is 0 to 1\n",
              stderr);
        return EXIT_USAGE;
    }
    a.request.quiet = a.quiet;
    return cli_request_check("edit", &a.request, &code) ? run(&a) : code;
}
