/* Token edges of places, put together: tokens that lead from a place to the same place are a group,
 * and places with the same tokens, such as those inside strings, share their groups. What a
 * position thinks of a group is then found once, however many states have it.
 *
 * Found once for each place, and kept. One thread at a time. */
#ifndef DG_CONSTRAINT_TOKEN_GROUPS_H
#define DG_CONSTRAINT_TOKEN_GROUPS_H

#include "constraint/tokens.h"

typedef struct dg_token_groups dg_token_groups;

/* Beyond these is DGEMMA_E_LIMIT. */
enum { DG_TOKEN_MAX_GROUPS = 1 << 16, DG_TOKEN_MAX_GROUPED = 1 << 23 };

typedef struct dg_group_edge {
    uint32_t group; /* or a class, DG_TOKEN_CLASS_… */
    bool is_class;
    dg_place to;
} dg_group_edge;

/* All are borrowed for as long as it lives; symbol as in dg_token_edges_find. *out belongs to the
 * caller (dg_token_groups_free). */
dgemma_status dg_token_groups_create(dg_token_groups **out, const dg_token_trie *trie,
                                     dg_language *language, const int32_t *symbol,
                                     dgemma_error *err);
void dg_token_groups_free(dg_token_groups *g); /* NULL is fine */

/* The edges of a place: its class first, if it has one, then groups by where they lead. They live
 * until the next call. *wide: the place has others too (dg_token_edges_find). */
dgemma_status dg_token_groups_edges(dg_token_groups *g, dg_place at, const dg_group_edge **edges,
                                    size_t *n, bool *wide, dgemma_error *err);

/* The tokens of a group, ascending. */
const int32_t *dg_token_groups_tokens(const dg_token_groups *g, uint32_t group, size_t *n);
size_t dg_token_groups_count(const dg_token_groups *g);

/* The language has forgotten its places (dg_language_forget); groups keep their numbers. */
void dg_token_groups_forget(dg_token_groups *g);

#endif
