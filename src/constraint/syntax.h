/* What a language looks like: a graph of nodes over bytes that regular expressions, JSON Schemas
 * and grammars are compiled to. It is built once, finished, and never changes after that, so that
 * many automata (constraint/language.h) may walk it at the same time.
 *
 * Nodes are hash-consed: the same node made twice has one id. Making one never reports an error of
 * its own: the first failure is kept, everything after it gives DG_NODE_NEVER, and
 * dg_syntax_finish says what it was. */
#ifndef DG_CONSTRAINT_SYNTAX_H
#define DG_CONSTRAINT_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef uint32_t dg_node;
enum { DG_NODE_NEVER = 0, DG_NODE_EMPTY = 1 };

typedef enum dg_node_kind {
    DG_KIND_NEVER,    /* no word */
    DG_KIND_EMPTY,    /* the word of no bytes */
    DG_KIND_BYTES,    /* one byte of a set; a: the set */
    DG_KIND_LITERAL,  /* a: where its bytes begin, b: how many */
    DG_KIND_SEQUENCE, /* a: where its children begin, b: how many */
    DG_KIND_CHOICE,   /* likewise */
    DG_KIND_REPEAT,   /* a: the child, b to c times */
    DG_KIND_RULE,     /* a: the body, which may hold the rule again */
    DG_KIND_NEST,     /* a: the child, one level deeper */
    DG_KIND_STYLE,    /* a: the child, b: in one of these styles of white space (a mask) */
    DG_KIND_LAYOUT,   /* white space by the style and the level; a: dg_layout */
    DG_KIND_SYMBOL    /* one special token, which is no text; a: which of the syntax's symbols */
} dg_node_kind;

enum { DG_UNBOUNDED = 0xFFFFFFFFu };

/* Where in an object or an array white space stands. */
typedef enum dg_layout {
    DG_LAYOUT_OPEN,  /* behind the bracket */
    DG_LAYOUT_COMMA, /* behind a comma */
    DG_LAYOUT_CLOSE, /* before the bracket */
    DG_LAYOUT_COLON  /* behind a colon */
} dg_layout;

typedef enum dg_style {
    DG_STYLE_NONE,
    DG_STYLE_LINE,   /* {"a": 1, "b": 2} */
    DG_STYLE_LINES,  /* a line for each member, two blanks a level */
    DG_STYLE_COMPACT /* {"a":1,"b":2} */
} dg_style;

typedef struct dg_byte_set {
    uint64_t bit[4];
} dg_byte_set;

static inline bool dg_byte_set_has(const dg_byte_set *set, unsigned byte)
{
    return set->bit[byte >> 6] >> (byte & 63) & 1;
}

static inline void dg_byte_set_add(dg_byte_set *set, unsigned byte)
{
    set->bit[byte >> 6] |= UINT64_C(1) << (byte & 63);
}

/* A special token, by its id or, where id is -1, by its name. */
typedef struct dg_symbol {
    int32_t id;
    char *name; /* owned by the syntax; NULL: by its id */
} dg_symbol;

/* How a word of a node can be finished soonest. `shortest` is over all words, and `levels` says how
 * deep that one nests; `shallowest` is over those that nest least. Both in bytes, white space left
 * out. */
typedef struct dg_ending {
    uint32_t shortest, levels;
    uint32_t least_levels, shallowest;
} dg_ending;
enum { DG_ENDLESS = 0x3FFFFFFF };

typedef struct dg_syntax_node {
    uint8_t kind;
    bool starves; /* REPEAT: the child may be empty, so that a round without a byte is none */
    uint32_t a, b, c;
} dg_syntax_node;

/* Limits of one syntax; beyond them is DGEMMA_E_LIMIT. */
enum {
    DG_SYNTAX_MAX_NODES = 1 << 18,
    DG_SYNTAX_MAX_CHILDREN = 1 << 20,
    DG_SYNTAX_MAX_BYTES = 1 << 22,   /* of literals */
    DG_SYNTAX_MAX_SHORTEST = 1 << 16 /* of the shortest word */
};

typedef struct dg_syntax {
    dg_syntax_node *node;
    dg_ending *ending; /* of each node, once finished */
    dg_node *child;
    dg_byte_set *set;
    char *text;
    dg_symbol *symbol;
    size_t n_node, n_child, n_set, n_text, n_symbol;
    size_t cap_node, cap_child, cap_set, cap_text, cap_symbol;
    uint32_t *slot; /* hash table of node ids */
    size_t n_slot;
    dg_node root;
    dg_node culprit;    /* a rule that begins with itself, where that was the failure */
    unsigned max_level; /* NESTs inside each other */
    dgemma_status status;
    dgemma_error error;
} dg_syntax;

/* *out belongs to the caller (dg_syntax_free). max_level <= 250. */
dgemma_status dg_syntax_create(dg_syntax **out, unsigned max_level, dgemma_error *err);
void dg_syntax_free(dg_syntax *s); /* NULL is fine */

dg_node dg_syntax_bytes(dg_syntax *s, const dg_byte_set *set);
dg_node dg_syntax_range(dg_syntax *s, unsigned lo, unsigned hi);
dg_node dg_syntax_literal(dg_syntax *s, const char *text, size_t n);
dg_node dg_syntax_word(dg_syntax *s, const char *text); /* the same, up to the NUL */
dg_node dg_syntax_sequence(dg_syntax *s, const dg_node *child, size_t n);
dg_node dg_syntax_choice(dg_syntax *s, const dg_node *child, size_t n);
dg_node dg_syntax_pair(dg_syntax *s, dg_node first, dg_node second); /* a sequence */
dg_node dg_syntax_either(dg_syntax *s, dg_node one, dg_node other);
dg_node dg_syntax_repeat(dg_syntax *s, dg_node child, uint32_t min, uint32_t max);
dg_node dg_syntax_nest(dg_syntax *s, dg_node child);
dg_node dg_syntax_style(dg_syntax *s, dg_node child, unsigned styles);
dg_node dg_syntax_layout(dg_syntax *s, dg_layout layout);
dg_node dg_syntax_symbol(dg_syntax *s, int32_t id, const char *name, size_t len);

/* A rule is named before it is known: each call makes another. */
dg_node dg_syntax_rule(dg_syntax *s);
void dg_syntax_define(dg_syntax *s, dg_node rule, dg_node body);

/* One of the words. They are sorted in place; they share their beginnings, so that the automaton is
 * never in more than one of them. */
typedef struct dg_word_text {
    const char *data;
    size_t len;
} dg_word_text;
dg_node dg_syntax_words(dg_syntax *s, dg_word_text *words, size_t n);

/* The syntax is whole: looks for rules that begin with themselves, and finds for each node how its
 * words end soonest. DGEMMA_E_UNSUPPORTED: such a rule; DGEMMA_E_ARG: there is no word;
 * DGEMMA_E_LIMIT; DGEMMA_E_NOMEM. */
dgemma_status dg_syntax_finish(dg_syntax *s, dg_node root, dgemma_error *err);

/* Keeps the failure, if it is the first one. Returns it. */
dgemma_status dg_syntax_fail(dg_syntax *s, dgemma_status status, const char *fmt, ...)
    DG_PRINTF(3, 4);

#endif
