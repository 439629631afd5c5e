/* Shared by the files of the canvas's words: word.c solves and tells what was found,
 * word_forwards.c finds the states that sequences come to and the mass that comes there. */
#ifndef DG_CONSTRAINT_WORD_INTERNAL_H
#define DG_CONSTRAINT_WORD_INTERNAL_H

#include "constraint/word.h"

typedef struct node {
    uint32_t state;
    uint32_t first_link, n_link;     /* those that lead from it */
    uint32_t back_node, back_weight; /* the best way here: from which node, by which weight */
    bool fits, gone;
    double best;    /* log-probability of that way */
    double forward; /* mass of all ways here, against the largest of the position */
    double rest;    /* mass of all ways from here to an end, likewise */
} node;

typedef struct link {
    uint32_t to, weight;
} link;

/* Nodes and weights of all positions one after the other; those of position i are
 * node[first_node[i] … first_node[i + 1]) and weight[first_weight[i] … first_weight[i + 1]). What a
 * position thinks of a label is asked for once, however many links have it. */
struct dg_word {
    size_t n;
    node *node;
    link *link;
    dg_word_share *weight;
    size_t *first_node, *first_weight;
    size_t n_node, cap_node, n_link, cap_link, n_weight, cap_weight, cap_first_node,
        cap_first_weight;
    /* Where a state's node and a label's weight may be; whoever looks sees whether they are. */
    uint32_t *node_of, *weight_of;
    size_t cap_node_of, cap_weight_of;
    double *value; /* scratch of the beam */
    uint32_t *renamed;
    size_t cap_value, cap_renamed;
    dg_word_edge *path;
    double *entropy;
    double *unfit; /* [n + 1] log-probability of the best way to a state that does not fit */
    double *least; /* [n + 1] of a way that can still be better than what is known */
    size_t cap_path, cap_entropy, cap_unfit, cap_least;
    double least_mass; /* logarithm of the mass that counts */
    double score, log_mass;
    bool cut, bounded;
};

/* ---- memory ---- */

enum { MAX_NODES = 1 << 22, MAX_LINKS = 1 << 24, MAX_TABLE = 1 << 24 };

/* Room for n elements; new ones are zero. DGEMMA_E_LIMIT: more than max. */
dgemma_status dg_word_grow(void **array, size_t *cap, size_t n, size_t size, size_t max,
                           dgemma_error *err);

#define GROW(w, name, n, max, err)                                                                 \
    ((n) <= (w)->cap_##name                                                                        \
         ? DGEMMA_OK                                                                               \
         : dg_word_grow((void **)&(w)->name, &(w)->cap_##name, n, sizeof *(w)->name, max, err))

/* ---- word_forwards.c ---- */

/* Fills nodes, links and weights of all positions; masses of the last position's nodes are against
 * log_mass. */
dgemma_status dg_word_forwards(dg_word *w, const dg_word_graph *g, const dg_word_options *o,
                               dgemma_error *err);

/* Probabilities of a position's labels against the largest that a link still has: the beam has left
 * none of the others. The position's weights are those before `end`. Returns the logarithm of what
 * they are against. */
double dg_word_scale_links(dg_word *w, size_t position, size_t end);

#endif
