/* A canvas around a gap: the answer is what stands between two texts that are given.
 *
 *     the text before it, pinned | gap | the text behind it, pinned | the end of the turn and
 *     padding, pinned
 *
 * Where not all of the text before it fits, the rest is the end of the prompt; where not all of the
 * text behind it does, the canvas ends with the part that fits. */
#ifndef DG_ENGINE_INFILL_H
#define DG_ENGINE_INFILL_H

#include "diffusion/gap.h"
#include "diffusion/pins.h"

typedef struct dg_infill {
    const int32_t *before; /* [n_before] pinned in front of the gap; borrowed */
    int n_before;
    const int32_t *after; /* [n_after] pinned behind the gap; borrowed */
    int n_after;
    bool whole;           /* nothing comes behind that: the turn ends */
    int32_t close, pad;   /* the tokens for it; -1: none, and the canvas ends earlier */
    int most;             /* tokens of the gap, at most */
    int length;           /* of the gap; 0: to be found */
    const int32_t *known; /* [length] what the gap starts with; NULL: noise. Borrowed */
    float strength;       /* of that start */
} dg_infill;

/* Positions of a canvas of up to n_canvas whose gap has `length` tokens. */
int dg_infill_positions(const dg_infill *f, int length, int n_canvas);

/* What a canvas of n positions starts with; the two arrays have room for them. */
dg_start dg_infill_start(const dg_infill *f, int length, int n, int32_t *token, uint8_t *pinned);

/* Where in a gap's text, [length] from the gap's first place on, the model wrote what follows it,
 * as far as that can be told from the beginning of it; 0: nowhere. */
int dg_infill_seen(const dg_infill *f, const int32_t *text, int length);

/* How much of the text around the gap the model agrees with, 0 to 1. */
float dg_infill_agreement(const dg_infill *f, const dg_pins *pins);

#endif
