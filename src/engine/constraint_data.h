/* The struct behind the public handle of a constraint: a syntax, which never changes and which
 * requests walk with automata of their own, and one automaton for whoever looks at it without a
 * model. */
#ifndef DG_ENGINE_CONSTRAINT_DATA_H
#define DG_ENGINE_CONSTRAINT_DATA_H

#include <pthread.h>
#include <stdatomic.h>
#include "constraint/constraint.h"
#include "constraint/language.h"
#include "dgemma.h"

/* All that use it hold it; whoever lets go last frees it. */
struct dgemma_constraint {
    atomic_int n_holder;
    dg_syntax *syntax;
    dg_buf ignored;
    pthread_mutex_t lock; /* for the next */
    dg_language *language;
};

dgemma_constraint *dg_constraint_hold(dgemma_constraint *c); /* returns c */
void dg_constraint_release(dgemma_constraint *c);            /* NULL is fine */

#endif
