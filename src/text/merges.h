/* The merges of a vocabulary as ids, in the order of their rank. */
#ifndef DG_TEXT_MERGES_H
#define DG_TEXT_MERGES_H

#include "text/pieces.h"

typedef struct dg_merge_ids {
    int32_t left, right, merged;
} dg_merge_ids;

typedef struct dg_merges {
    dg_merge_ids *at; /* [n] */
    size_t n, cap;
} dg_merges;

/* *m is zero before; clear it also after a failure. */

/* Looks up the merges that are written in v. */
dgemma_status dg_merges_resolve(dg_merges *m, const dg_pieces *p, const dg_vocabulary *v,
                                dgemma_error *err);

/* Finds the merges from the pieces alone: one for each split of a piece into two others. Learned
 * pieces, which lie between the byte tokens and the run of tabs, come in the order of their ids,
 * longest left part first. Before them stand the pieces defined by hand (everything outside that
 * range), all sorted together by the length of the left part and then of the right one, longest
 * first. Lengths are in characters. For the Gemma vocabulary this gives the merges that Google
 * published, in their order. */
dgemma_status dg_merges_derive(dg_merges *m, const dg_pieces *p, const char *where,
                               dgemma_error *err);

void dg_merges_clear(dg_merges *m);

#endif
