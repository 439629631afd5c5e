#include "pocket/grammar.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "pocket/words.h"

enum { MAX_SECTIONS = 30, MAX_TEMPLATES = 4096, MAX_GRAMMAR_BYTES = 1 << 20, SLOT_WORDS = 3 };

typedef struct template
{
    word *words;
    size_t n;
    int section; /* from 1: how many sections have begun */
}
template;

struct grammar {
    char *text; /* templates point into it */
    template *templates;
    size_t n_template;
    int n_section;
};

static dgemma_status add_template(grammar *g, const char *line, int *in_section, dgemma_error *err)
{
    if (!g->n_section)
        return dg_fail(err, DGEMMA_E_FORMAT, "a template before the first section: %.60s", line);
    if (g->n_template == MAX_TEMPLATES)
        return dg_fail(err, DGEMMA_E_LIMIT, "more than %d templates", MAX_TEMPLATES);
    template *more = dg_array_resize(g->templates, g->n_template + 1, sizeof *more);
    if (!more)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a grammar");
    g->templates = more;
    template *t = &more[g->n_template];
    *t = (template){.section = g->n_section};
    t->words = words_split(line, &t->n);
    if (!t->words)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a grammar");
    g->n_template++;
    ++*in_section;
    return DGEMMA_OK;
}

static dgemma_status end_section(const grammar *g, int in_section, dgemma_error *err)
{
    if (g->n_section && !in_section)
        return dg_fail(err, DGEMMA_E_FORMAT, "section %d has no template", g->n_section);
    return DGEMMA_OK;
}

static dgemma_status read_lines(grammar *g, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    int in_section = 0;
    char *rest = g->text;
    for (char *line; !st && (line = strsep(&rest, "\n"));) {
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (line[0] != '#') {
            st = add_template(g, line, &in_section, err);
            continue;
        }
        st = end_section(g, in_section, err);
        in_section = 0;
        if (!st && ++g->n_section > MAX_SECTIONS)
            st = dg_fail(err, DGEMMA_E_LIMIT, "more than %d sections", MAX_SECTIONS);
    }
    if (!st && !g->n_section)
        st = dg_fail(err, DGEMMA_E_FORMAT, "the grammar has no section");
    return st ? st : end_section(g, in_section, err);
}

dgemma_status grammar_parse(grammar **out, const char *text, dgemma_error *err)
{
    grammar *g = dg_calloc(1, sizeof *g);
    if (g)
        g->text = dg_strdup(text);
    dgemma_status st = g && g->text ? read_lines(g, err)
                                    : dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a grammar");
    if (st)
        grammar_free(g);
    else
        *out = g;
    return st;
}

dgemma_status grammar_read(grammar **out, const char *path, dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, MAX_GRAMMAR_BYTES);
    dgemma_status st = dg_file_read(&text, path, err);
    if (!st)
        st = grammar_parse(out, text.data ? text.data : "", err);
    if (st == DGEMMA_E_FORMAT)
        dg_fail_prefix(err, st, path);
    dg_buf_clear(&text);
    return st;
}

void grammar_free(grammar *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_template; i++)
        dg_free(g->templates[i].words);
    dg_free(g->templates);
    dg_free(g->text);
    dg_free(g);
}

/* ---- matching ---- */

/* The text's words, and for each place between them the sections that may have been reached there:
 * bit s says that templates of sections 1 … s cover all words before. */
typedef struct cover {
    const word *words;
    size_t n;
    uint32_t *reached;  /* [n + 1] */
    uint8_t *at, *next; /* [n + 1] scratch: where a template's first elements may end */
} cover;

static bool is_slot(const word *w)
{
    return w->len > 2 && w->text[0] == '{' && w->text[w->len - 1] == '}';
}

/* From each place in c->at over one element of a template; false: there is no way on. */
static bool step(cover *c, const word *element, size_t from, size_t to)
{
    memset(c->next + from, 0, c->n + 1 - from);
    for (size_t p = from; p <= to && p < c->n; p++) {
        if (!c->at[p])
            continue;
        if (!is_slot(element)) {
            if (words_equal(&c->words[p], element, false))
                c->next[p + 1] = 1;
            continue;
        }
        for (size_t k = 0; k < SLOT_WORDS && p + k < c->n && !c->words[p + k].mark; k++)
            c->next[p + k + 1] = 1;
    }
    uint8_t *swap = c->at;
    c->at = c->next;
    c->next = swap;
    return memchr(c->at + from, 1, c->n + 1 - from) != NULL;
}

static void apply(cover *c, const template *t, size_t from)
{
    memset(c->at + from, 0, c->n + 1 - from);
    c->at[from] = 1;
    for (size_t i = 0; i < t->n; i++)
        if (!step(c, &t->words[i], from, from + i * SLOT_WORDS))
            return;
    for (size_t p = from + 1; p <= c->n; p++)
        if (c->at[p])
            c->reached[p] |= 1u << t->section;
}

static dgemma_status follow(const grammar *g, cover *c, dgemma_error *err)
{
    size_t furthest = 0;
    c->reached[0] = 1; /* no section yet */
    for (size_t p = 0; p < c->n; p++) {
        if (!c->reached[p])
            continue;
        furthest = p;
        for (size_t i = 0; i < g->n_template; i++) {
            /* one more of the same section, or the first of the next */
            uint32_t before = 1u << g->templates[i].section | 1u << (g->templates[i].section - 1);
            if (c->reached[p] & before)
                apply(c, &g->templates[i], p);
        }
    }
    if (c->reached[c->n] & 1u << g->n_section)
        return DGEMMA_OK;
    if (c->reached[c->n])
        return dg_fail(err, DGEMMA_E_ARG, "the last sections are missing");
    return dg_fail(err, DGEMMA_E_ARG, "no template fits from word %zu on: %.60s", furthest + 1,
                   c->words[furthest].text);
}

dgemma_status grammar_match(const grammar *g, const char *text, dgemma_error *err)
{
    cover c = {0};
    word *words = words_split(text, &c.n);
    if (words && !c.n) {
        dg_free(words);
        return dg_fail(err, DGEMMA_E_ARG, "the text is empty");
    }
    c.words = words;
    c.reached = dg_calloc(c.n + 1, sizeof *c.reached);
    c.at = dg_calloc(c.n + 1, 1);
    c.next = dg_calloc(c.n + 1, 1);
    dgemma_status st = words && c.reached && c.at && c.next
                           ? follow(g, &c, err)
                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(words);
    dg_free(c.reached);
    dg_free(c.at);
    dg_free(c.next);
    return st;
}
