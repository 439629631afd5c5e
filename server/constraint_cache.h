/* Constraints that were compiled before, found by what they were made of, for requests that ask for
 * the same again. Bounded; any thread. */
#ifndef DG_SERVER_CONSTRAINT_CACHE_H
#define DG_SERVER_CONSTRAINT_CACHE_H

#include "dgemma.h"

typedef struct dg_constraint_cache dg_constraint_cache;

enum {
    DG_CONSTRAINTS_KEPT = 64,
    DG_CONSTRAINTS_KEPT_BYTES = 4 << 20 /* of the texts that they were made of */
};

/* NULL: out of memory. */
dg_constraint_cache *dg_constraint_cache_create(void);
void dg_constraint_cache_free(dg_constraint_cache *cache); /* NULL is fine */

/* One that is kept, or a new one, made on this thread; the caller owns it (dgemma_constraint_free).
 * Without a cache it is always new. Errors as dgemma_constraint_create has them. */
dgemma_status dg_constraint_cache_get(dg_constraint_cache *cache, dgemma_constraint **out,
                                      const dgemma_constraint_options *options, dgemma_error *err);

/* How many were asked for, and how many of them were there. */
void dg_constraint_cache_count(dg_constraint_cache *cache, unsigned long long *asked,
                               unsigned long long *found);

#endif
