#include "constraint/constraint.h"
#include <string.h>
#include "base/alloc.h"
#include "constraint/gbnf.h"
#include "constraint/language.h"
#include "constraint/regex.h"
#include "constraint/schema.h"

enum { MAX_CHOICES = 10000, MAX_CHOICE_BYTES = 1 << 20, MAX_REGEX_BYTES = 64 << 10 };

static unsigned styles_of(const dg_constraint_options *o)
{
    return o->compact ? 1u << DG_STYLE_COMPACT : 1u << DG_STYLE_LINE | 1u << DG_STYLE_LINES;
}

static dgemma_status compile_choices(dg_syntax *s, const dg_constraint_options *o, dg_node *out,
                                     dgemma_error *err)
{
    if (!o->n_choice)
        return dg_fail(err, DGEMMA_E_ARG, "there is nothing to choose from");
    if (o->n_choice > MAX_CHOICES)
        return dg_fail(err, DGEMMA_E_LIMIT, "there are more than %d choices", MAX_CHOICES);
    dg_word_text *word = dg_array(o->n_choice, sizeof *word);
    if (!word)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    size_t total = 0;
    for (size_t i = 0; i < o->n_choice; i++) {
        word[i] = (dg_word_text){o->choices[i], strlen(o->choices[i])};
        total += word[i].len;
    }
    dgemma_status st =
        total > MAX_CHOICE_BYTES
            ? dg_fail(err, DGEMMA_E_LIMIT, "the choices are longer than %d bytes", MAX_CHOICE_BYTES)
            : DGEMMA_OK;
    if (!st)
        *out = dg_syntax_words(s, word, o->n_choice);
    dg_free(word);
    return st;
}

static dgemma_status compile_regex(dg_syntax *s, const dg_constraint_options *o, dg_node *out,
                                   dgemma_error *err)
{
    if (o->len > MAX_REGEX_BYTES)
        return dg_fail(err, DGEMMA_E_LIMIT, "the regular expression is longer than %d bytes",
                       MAX_REGEX_BYTES);
    return dg_regex_compile(s, o->text, o->len, &(dg_regex_options){0}, out, NULL, err);
}

static dgemma_status root_of(dg_syntax *s, const dg_constraint_options *o, dg_node *root,
                             dgemma_error *err);

static dgemma_status compile_tools(dg_syntax *s, const dg_constraint_options *o, dg_node *out,
                                   dgemma_error *err)
{
    dg_calls_options options = {.tools = o->text,
                                .len = o->len,
                                .allowed = o->choices,
                                .n_allowed = o->n_choice,
                                .mode = o->calls,
                                .single = o->single_call,
                                .ignored = o->ignored,
                                .answer = DG_NODE_NEVER};
    dgemma_status st = DGEMMA_OK;
    if (o->answer && o->answer->kind >= DG_CONSTRAINT_GRAMMAR)
        st = dg_fail(err, DGEMMA_E_UNSUPPORTED, "a grammar goes with no tools");
    else if (o->answer)
        st = root_of(s, o->answer, &options.answer, err);
    return st ? st : dg_calls_compile(s, &options, out, err);
}

static dgemma_status root_of(dg_syntax *s, const dg_constraint_options *o, dg_node *root,
                             dgemma_error *err)
{
    dg_schema_options schema = {
        .styles = styles_of(o), .lenient = o->lenient, .ignored = o->ignored};
    switch (o->kind) {
    case DG_CONSTRAINT_JSON_SCHEMA:
        return dg_schema_compile(s, o->text, o->len, &schema, root, err);
    case DG_CONSTRAINT_JSON_OBJECT:
        *root = dg_schema_any_object(s, styles_of(o));
        return DGEMMA_OK;
    case DG_CONSTRAINT_REGEX:
        return compile_regex(s, o, root, err);
    case DG_CONSTRAINT_CHOICE:
        return compile_choices(s, o, root, err);
    case DG_CONSTRAINT_TOOLS:
        return compile_tools(s, o, root, err);
    case DG_CONSTRAINT_GRAMMAR:
        break;
    }
    return dg_fail(err, DGEMMA_E_INTERNAL, "a grammar is read as a whole");
}

static dgemma_status compile(dg_syntax *s, const dg_constraint_options *o, dgemma_error *err)
{
    dg_node root = DG_NODE_NEVER;
    if (o->kind == DG_CONSTRAINT_GRAMMAR)
        return dg_gbnf_compile(s, o->text, o->len, err);
    dgemma_status st = root_of(s, o, &root, err);
    return st ? st : dg_syntax_finish(s, root, err);
}

/* What would explode is found before anybody relies on it. */
static dgemma_status probe(const dg_syntax *s, dgemma_error *err)
{
    dg_language *l;
    dgemma_status st = dg_language_create(&l, s, err);
    if (st)
        return st;
    st = dg_language_probe(l, err);
    dg_language_free(l);
    return st;
}

dgemma_status dg_constraint_compile(dg_syntax **out, const dg_constraint_options *options,
                                    dgemma_error *err)
{
    dg_syntax *s;
    unsigned levels = options->kind == DG_CONSTRAINT_GRAMMAR ? DG_GBNF_LEVELS : DG_SCHEMA_LEVELS;
    dgemma_status st = dg_syntax_create(&s, levels, err);
    if (st)
        return st;
    st = compile(s, options, err);
    if (!st)
        st = probe(s, err);
    if (st)
        dg_syntax_free(s);
    else
        *out = s;
    return st;
}
