/* Byte-pair encoding of one word: adjacent pieces are merged, lowest rank first and leftmost on
 * equal rank, until no two neighbours have a merge. */
#ifndef DG_TEXT_BPE_H
#define DG_TEXT_BPE_H

#include "text/merges.h"

typedef struct dg_pair_entry {
    uint64_t key; /* 0: free */
    uint32_t rank;
    int32_t merged;
} dg_pair_entry;

/* From a pair of numbers below 2^31; open addressing. */
typedef struct dg_pair_map {
    dg_pair_entry *entries; /* [2^bits] */
    int bits;
} dg_pair_map;

typedef struct dg_bpe {
    dg_pair_map merges; /* (left id, right id) */

    /* The characters at which merges join: (last of the left part, first of the right part).
     * Between two characters that are not here no piece can ever form, so a text may be cut there
     * without changing the result. That keeps words short: in Gemma's vocabulary it cuts before
     * single spaces and around runs. */
    dg_pair_map joins;
    uint64_t ascii_joins[128][2]; /* the same as bits, where both are ASCII */
} dg_bpe;

/* Merges with a special token among their parts or as their result are left out: no plain text
 * gives one. *b is zero before; clear it also after a failure. */
dgemma_status dg_bpe_init(dg_bpe *b, const dg_pieces *p, const dg_merges *m, const char *where,
                          dgemma_error *err);
void dg_bpe_clear(dg_bpe *b);

/* The merges, in the order of their rank. *m is zero before. False: out of memory. */
bool dg_bpe_merges(const dg_bpe *b, dg_merges *m);

/* Whether some merge joins left to right (code points). */
bool dg_bpe_joins(const dg_bpe *b, uint32_t left, uint32_t right);

/* A word on its way from characters to pieces, with the room that it needs; zero to begin with. */
typedef struct dg_bpe_link dg_bpe_link;

typedef struct dg_bpe_word {
    int32_t *ids; /* [n] */
    size_t n, cap;
    dg_bpe_link *links; /* [n_room], for long words only */
    uint64_t *heap;     /* [2 * n_room] */
    size_t n_room;
} dg_bpe_word;

void dg_bpe_word_clear(dg_bpe_word *w);
bool dg_bpe_word_push(dg_bpe_word *w, int32_t id); /* false: out of memory */

/* Replaces the ids of single characters by those of the merged pieces. False: out of memory. */
bool dg_bpe_merge(const dg_bpe *b, dg_bpe_word *w);

#endif
