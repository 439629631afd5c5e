/* Where an automaton keeps what it knows: stacks and sets of them, each once. Only language.c and
 * language_words.c look in here. */
#ifndef DG_CONSTRAINT_LANGUAGE_STORE_H
#define DG_CONSTRAINT_LANGUAGE_STORE_H

#include "constraint/language.h"

/* One piece of a stack: a node of which `count` has happened, and what comes after it. */
typedef struct dg_cell {
    dg_node node;
    uint32_t count;
    uint32_t rest;        /* 0: nothing comes after it */
    uint8_t level, style; /* inside of this piece */
} dg_cell;

typedef struct dg_place_entry {
    uint32_t first, n; /* its stacks, in `stored` */
    uint32_t edge, n_edge;
    uint32_t symbol, n_symbol;
    bool expanded, accepts;
} dg_place_entry;

/* A way on: by these bytes, or by a symbol, to a stack. */
typedef struct dg_leaf {
    uint8_t kind; /* dg_node_kind: LITERAL (one byte), BYTES, SYMBOL */
    uint32_t what;
    uint32_t to;
} dg_leaf;

/* In which round a cell was looked at; and, at the first round of a REPEAT, the fewest rounds that
 * were met of it. */
struct dg_mark {
    uint32_t seen, met, fewest;
};

struct dg_language {
    const dg_syntax *syntax;

    dg_cell *cell;
    uint32_t *cell_slot;
    struct dg_mark *mark; /* for each cell */
    size_t n_cell, cap_cell, n_cell_slot, cap_mark;

    dg_place_entry *place;
    uint32_t *place_slot;
    uint32_t *stored;
    dg_edge *edge;
    dg_symbol_edge *symbol;
    size_t n_place, cap_place, n_place_slot, n_stored, cap_stored;
    size_t n_edge, cap_edge, n_symbol, cap_symbol;

    /* while a place is expanded */
    uint32_t round;
    uint32_t *todo;
    dg_leaf *leaf;
    uint32_t *target;
    size_t n_todo, cap_todo, n_leaf, cap_leaf, n_target, cap_target;
    bool accepts;

    dg_place start;
    bool hopeless;        /* the limit that was met is not one that forgetting helps against */
    dgemma_status status; /* the first failure of a call */
    dgemma_error error;
};

enum { DG_CELL_END = 0 }; /* the stack of nothing */

/* Keeps the first failure of a call. False. */
bool dg_store_fail(dg_language *l, dgemma_status status, const char *why);

bool dg_store_grow(dg_language *l, void **array, size_t *cap, size_t n, size_t size, size_t max);

/* Room for one more at the end of an array of the automaton. */
#define DG_STORE_GROW(l, name, max)                                                                \
    dg_store_grow(l, (void **)&(l)->name, &(l)->cap_##name, (l)->n_##name, sizeof *(l)->name, max)

/* Knows nothing but the empty stack and the dead place. */
bool dg_store_begin(dg_language *l);
void dg_store_clear(dg_language *l);
void dg_store_forget(dg_language *l); /* keeps the memory */

/* A stack with this on top. It has the level and the style of what is under it, unless the piece is
 * what changes them. */
uint32_t dg_store_cell(dg_language *l, dg_node node, uint32_t count, uint32_t rest);

/* Marks for as many cells as there are. */
bool dg_store_mark(dg_language *l);

/* The place of l->target[0 … n_target), which are put in order. */
void dg_store_add_target(dg_language *l, uint32_t cell);
dg_place dg_store_place(dg_language *l);

#endif
