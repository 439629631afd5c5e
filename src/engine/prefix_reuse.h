/* What a running request takes from the prefix cache and leaves in it. Points are kept where
 * conversations are known to branch:
 *
 *     behind the first turn       instructions and tools that many conversations begin with
 *     in front of the last turn   the model's, which the prompt only opens: the next prompt of the
 *                                 conversation has it in another form (without its thoughts)
 *     behind the prompt           the same one again, with another seed
 *     behind the end              the next prompt, where the template renders the answer as it was
 *     where two have parted       anything else that two prompts had in common
 *
 * The last block of an answer was never encoded, so the point at the end is in front of it: the
 * next turn encodes it with what else is new, in the same pass. */
#ifndef DG_ENGINE_PREFIX_REUSE_H
#define DG_ENGINE_PREFIX_REUSE_H

#include "engine/prefix_cache.h"
#include "engine/block_loop.h"

enum { DG_PREFIX_MARKS = 8 };

typedef struct dg_prefix_reuse {
    dg_prefix_cache *cache; /* NULL: nothing is kept */
    const dg_pictures *pictures;
    const char *salt;
    int n_found;    /* tokens that were in the cache when it began */
    int32_t *token; /* [n] that the request has encoded or will: the prompt, then each block */
    int n, cap;
    int mark[DG_PREFIX_MARKS]; /* tokens in front of places to keep, ascending */
    int n_mark;
} dg_prefix_reuse;

/* Puts the longest prefix of the prompt that the cache has into the request, which was just made.
 * turn_token opens a turn; -1: there is none. The prompt's tokens are copied, pictures and
 * salt borrowed. Returns how many tokens were found. */
int dg_prefix_reuse_begin(dg_prefix_reuse *t, dg_prefix_cache *cache, dg_block_loop *loop,
                          const dg_prefix *prompt, int turn_token);
void dg_prefix_reuse_clear(dg_prefix_reuse *t);

/* Whether another prompt does well to wait for this one, which is being encoded: what they have in
 * common will be kept, and is worth it. */
bool dg_prefix_reuse_worth_waiting(dg_prefix_reuse *t, const dg_block_loop *loop,
                                   const dg_prefix *prompt);

/* After a pass that encoded `w` of the request, before dg_block_loop_take. */
void dg_prefix_reuse_pass(dg_prefix_reuse *t, const dg_block_loop *loop, const dg_work *w);

/* At the end of a request that did not fail. */
void dg_prefix_reuse_end(dg_prefix_reuse *t, const dg_block_loop *loop);

#endif
