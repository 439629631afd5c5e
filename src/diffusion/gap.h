/* How long a gap in a text is. A canvas has a fixed number of positions, so the gap between two
 * pieces of text needs its length beforehand; with a token too many or too few, words double or
 * vanish. The model notices: where the length is wrong, what it would say in place of the pinned
 * text behind the gap is wrong more often, or it is less sure of it. So lengths are tried, each for
 * a few steps, and the one with the least doubt is kept.
 *
 *     1 2 3 4 6 8 12 16 …   as far as there is room, then
 *     up to 3 more and less than the best, until no neighbour is better
 *
 * In a gap that is too long the model often writes what follows by itself, and where that begins
 * is a length: it is tried next, and counts for more the more often it was seen. */
#ifndef DG_DIFFUSION_GAP_H
#define DG_DIFFUSION_GAP_H

#include <stdbool.h>

enum {
    DG_GAP_STEPS = 2, /* of a try: the second sees what the first made of the gap */
    DG_GAP_NEAR = 3,
    DG_GAP_SEEN = 8,  /* lengths that are tried for having been seen, at most */
    DG_GAP_MOST = 512 /* tokens; no canvas is longer */
};

typedef struct dg_gap {
    int length; /* to be tried, or the one that was found */
    bool found;

    int most;   /* tokens that there is room for */
    int rung;   /* of the ladder, the last that was tried */
    int n_seen; /* lengths that were tried for having been seen */
    unsigned char tried[DG_GAP_MOST + 1], seen[DG_GAP_MOST + 1];
    float doubt[DG_GAP_MOST + 1]; /* where it was tried */
} dg_gap;

/* Nothing is known of the length but that it is at most `most`, 1 to DG_GAP_MOST. */
void dg_gap_begin(dg_gap *g, int most);

/* Takes in what the canvas with g->length looked like: how many pinned tokens the model did not
 * agree with, and how uncertain it was; and at which place of the gap it wrote what follows, 0 for
 * nowhere. Sets the next length. */
void dg_gap_push(dg_gap *g, int wrong, float entropy, int seen);

#endif
