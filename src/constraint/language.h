/* The automaton of a syntax, over bytes and symbols, built as far as somebody walks.
 *
 * A configuration is a set of stacks of what is still to come. Stacks and sets are hash-consed, so
 * that the same place has one id, and what follows a place is found out once. Every configuration
 * is live: some word of the language ends from it. A way that could not end within the allowed
 * nesting is never taken. One thread at a time; several automata may share a syntax. */
#ifndef DG_CONSTRAINT_LANGUAGE_H
#define DG_CONSTRAINT_LANGUAGE_H

#include "base/buf.h"
#include "base/rng.h"
#include "constraint/syntax.h"

typedef struct dg_language dg_language;
typedef uint32_t dg_place; /* a configuration */
enum { DG_PLACE_DEAD = 0 };

/* Limits of one automaton; beyond them is DGEMMA_E_LIMIT. */
enum {
    DG_LANGUAGE_MAX_PLACES = 50000,
    DG_LANGUAGE_MAX_EDGES = 200000,
    DG_LANGUAGE_MAX_CELLS = 400000,  /* pieces of stacks */
    DG_LANGUAGE_MAX_WIDTH = 16384,   /* stacks in a place */
    DG_LANGUAGE_MAX_STORED = 1 << 20 /* stacks of all places */
};

/* These bytes lead there. */
typedef struct dg_edge {
    uint8_t lo, hi;
    dg_place to;
} dg_edge;

typedef struct dg_symbol_edge {
    uint32_t symbol; /* of the syntax */
    dg_place to;
} dg_symbol_edge;

/* The edges of a place, in ascending order of their bytes. They live until the next call. */
typedef struct dg_edges {
    const dg_edge *bytes;
    size_t n_bytes;
    const dg_symbol_edge *symbols;
    size_t n_symbols;
    bool accepts; /* a word ends here */
} dg_edges;

/* The syntax is borrowed for as long as the automaton lives; it has to be finished. */
dgemma_status dg_language_create(dg_language **out, const dg_syntax *syntax, dgemma_error *err);
void dg_language_free(dg_language *l); /* NULL is fine */

dg_place dg_language_start(const dg_language *l);
bool dg_language_has_symbols(const dg_language *l); /* somewhere in it */

/* DGEMMA_E_LIMIT, DGEMMA_E_NOMEM. */
dgemma_status dg_language_edges(dg_language *l, dg_place at, dg_edges *out, dgemma_error *err);

/* *at moves on by a byte or by a symbol of the syntax; DG_PLACE_DEAD where no word goes on so. */
dgemma_status dg_language_step(dg_language *l, dg_place *at, unsigned char byte, dgemma_error *err);
dgemma_status dg_language_symbol(dg_language *l, dg_place *at, uint32_t symbol, dgemma_error *err);

/* Walks over the text as far as the language goes: *n bytes of it, to *at. */
dgemma_status dg_language_walk(dg_language *l, dg_place *at, const char *text, size_t len,
                               size_t *n, dgemma_error *err);

/* Appends the rest of a word that ends from here, a short one: the shortest but for white space,
 * and but for where that would nest too deep. A symbol in it is told to on_symbol (or NULL) when
 * the bytes in front of it have been appended. */
typedef void dg_ending_fn(void *user, uint32_t symbol);
dgemma_status dg_language_ending(dg_language *l, dg_place at, dg_buf *out, dg_ending_fn *on_symbol,
                                 void *user, dgemma_error *err);

/* Appends a word drawn at random, of about `length` bytes where the language lets it be: from there
 * on it takes a short way to the end. Symbols are told as above. */
dgemma_status dg_language_draw(dg_language *l, const dg_rng_key *key, size_t length, dg_buf *out,
                               dg_ending_fn *on_symbol, void *user, dgemma_error *err);

/* ---- symbols as text ----  For those who look at a language without a vocabulary. */

/* Appends the name of a symbol, or <[id]>. */
bool dg_symbol_write(const dg_symbol *symbol, dg_buf *out);

/* As walk, but where a symbol could come and the text has its name, it is that symbol. */
dgemma_status dg_language_walk_names(dg_language *l, dg_place *at, const char *text, size_t len,
                                     size_t *n, dgemma_error *err);

/* Looks at the places nearest to the start, some thousands, and finds what would make the automaton
 * explode: DGEMMA_E_LIMIT. */
dgemma_status dg_language_probe(dg_language *l, dgemma_error *err);

/* Forgets all places but *at, which gets another id: so that an automaton that a long text is
 * walked over stays within its limits. The start gets another id too. */
dgemma_status dg_language_forget(dg_language *l, dg_place *at, dgemma_error *err);

typedef struct dg_language_size {
    size_t n_place, n_cell, n_edge, bytes;
} dg_language_size;
dg_language_size dg_language_measure(const dg_language *l);

/* Bytes of white space there, of which all but the first are blanks: the first is *first. */
uint32_t dg_layout_length(dg_layout layout, unsigned style, unsigned level, char *first);

#endif
