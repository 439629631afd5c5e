/* How long a gap in a text is. A canvas has a fixed number of positions, so the gap between two
 * pieces of text needs its length beforehand; with a token too many or too few, words double or
 * vanish. The model notices: where the length is wrong, what it would say in place of the pinned
 * text behind the gap is wrong more often. So lengths are tried, each for a few steps, and the one
 * with the fewest such places is kept; of equal ones the more certain.
 *
 *     1 2 3 4 6 8 12 16 …   as far as there is room, then
 *     up to 3 more and less than the best, until no neighbour is better */
#ifndef DG_DIFFUSION_GAP_H
#define DG_DIFFUSION_GAP_H

#include <stdbool.h>

enum {
    DG_GAP_STEPS = 2, /* of a try: the second sees what the first made of the gap */
    DG_GAP_NEAR = 3,
    DG_GAP_MOST = 512 /* tokens; no canvas is longer */
};

typedef struct dg_gap {
    int length; /* to be tried, or the one that was found */
    bool found;

    int most;  /* tokens that there is room for */
    bool near; /* the ladder was climbed: neighbours of the best are tried */
    int best;  /* 0: none yet */
    int best_wrong;
    float best_entropy;
    unsigned char tried[DG_GAP_MOST + 1];
} dg_gap;

/* Nothing is known of the length but that it is at most `most`, 1 to DG_GAP_MOST. */
void dg_gap_begin(dg_gap *g, int most);

/* Takes in what the canvas with g->length looked like: how many pinned tokens the model did not
 * agree with, and how uncertain it was in the gap. Sets the next length. */
void dg_gap_push(dg_gap *g, int wrong, float entropy);

#endif
