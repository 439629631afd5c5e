/* The words of a canvas: over n positions, each with its own probabilities of tokens, the most
 * probable sequence that a graph lets be, and the distribution over all of them.
 *
 * The graph is a deterministic automaton over tokens and classes of tokens; what its states mean is
 * the caller's business. Sums are in double and in a fixed order, so that the same numbers give the
 * same result whatever else runs. One thread at a time. */
#ifndef DG_CONSTRAINT_WORD_H
#define DG_CONSTRAINT_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

/* From a state to the next. A label is a token, or several that the caller takes for one edge;
 * states and labels are small numbers, for there are tables of them. */
typedef struct dg_word_edge {
    uint32_t to, label;
} dg_word_edge;

/* What a position thinks of a label. */
typedef struct dg_word_weight {
    double best;   /* log-probability of its likeliest token */
    double mass;   /* log of the probability of all its tokens together */
    double p;      /* e^mass, where whoever weighs has it anyway; 0: too small, or not known */
    double spread; /* entropy among them, in nats; 0: one token, or all the same to the caller */
} dg_word_weight;

typedef struct dg_word_graph {
    void *user;
    /* The edges of a state at a position, always in the same order, at most one for a label. They
     * live until the next call. */
    dgemma_status (*edges)(void *user, uint32_t state, size_t position, const dg_word_edge **edges,
                           size_t *n, dgemma_error *err);
    dg_word_weight (*weigh)(void *user, size_t position, uint32_t label);
    /* A sequence may be at this state behind `position` tokens: at the end of the canvas, that what
     * is missing fits behind it; before it, that it fits at all. */
    bool (*fits)(void *user, uint32_t state, size_t position);
} dg_word_graph;

enum { DG_WORD_BEAM = 64 };

typedef struct dg_word_options {
    size_t n; /* positions */
    uint32_t start;
    size_t beam; /* states at a position, by the best way to them; 0: all */
    /* [n], or NULL: a sequence that the graph has, such as the path of the step before. It is never
     * cut off; and what is seen to be less probable, and to have less than 1e-14 of its mass, is
     * left out. That changes no result by 1e-9. */
    const dg_word_edge *known;
    const double *most; /* [n], or NULL: log-probability that no token of a position exceeds */
} dg_word_options;

typedef struct dg_word dg_word;

/* *out belongs to the caller (dg_word_free) and may be solved again and again: it keeps its memory.
 */
dgemma_status dg_word_create(dg_word **out, dgemma_error *err);
void dg_word_free(dg_word *w); /* NULL is fine */

/* DGEMMA_E_ARG: no sequence of n tokens fits. */
dgemma_status dg_word_solve(dg_word *w, const dg_word_graph *graph, const dg_word_options *options,
                            dgemma_error *err);

/* ---- of the last one that was solved ---- */

/* The most probable sequence: its edges, [n], and the state behind each, and its log-probability.
 */
const dg_word_edge *dg_word_path(const dg_word *w);
double dg_word_score(const dg_word *w);

double dg_word_log_mass(const dg_word *w); /* log of the probability of all sequences, ln Z */
bool dg_word_cut(const dg_word *w);        /* the beam has left something out */

/* Something that did not fit was more probable, as far as it went, than the most probable sequence
 * is that far. */
bool dg_word_bounded(const dg_word *w);

/* The distribution at a position: labels that came up there, and how probable each is. */
typedef struct dg_word_share {
    uint32_t label;
    double q;
    dg_word_weight weight;
} dg_word_share;
const dg_word_share *dg_word_shares(const dg_word *w, size_t position, size_t *n);

/* Entropy of the distribution at a position, in nats; inside a label it is that of the model. */
double dg_word_entropy(const dg_word *w, size_t position);

/* Other weights, logarithms, for the draws that follow; path, shares and entropies stay. A sequence
 * was not known then: what it left out may count now. */
void dg_word_reweigh(dg_word *w, double (*weigh)(void *user, size_t position, uint32_t label),
                     void *user);

/* Draws one sequence: uniform[i] in [0, 1) decides at position i. Inside a label the choice is the
 * caller's. */
void dg_word_draw(const dg_word *w, const double *uniform, dg_word_edge *edges);

#endif
