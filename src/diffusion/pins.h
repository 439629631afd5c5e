/* What a canvas is told beforehand. A start is a text, or parts of one, that takes the place of the
 * noise a canvas begins with; of its tokens some may be pinned.
 *
 * A pinned token never changes: it stands in every canvas and in the block, whatever the model
 * makes of it. It is not renoised, and costs no uncertainty: acceptance has its bound for the
 * others, and the block ends when the others are certain. What the model would have said in its
 * place is not lost, though: how often that is the pinned token tells how well the rest fits. */
#ifndef DG_DIFFUSION_PINS_H
#define DG_DIFFUSION_PINS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dg_start {
    const int32_t *token;  /* [n] -1: nothing is known of the position, it starts as noise */
    const uint8_t *pinned; /* [n] where a token is known; NULL: nowhere */
    int n;                 /* what is behind these starts as noise */
    int n_padding;         /* the last of these: what the model makes of them tells nothing */
    float strength; /* 0 to 1: how likely a known token that is not pinned starts as noise all the
                       same. At 0 all known tokens are pinned */
} dg_start;

typedef struct dg_pins {
    int n;          /* how many positions are pinned */
    int n_agree;    /* at how many of them the last step's arg-max was the pinned token */
    int end;        /* of those that are not padding */
    float doubt;    /* the entropy that the last step had at those, together */
    uint8_t *at;    /* 1 where pinned */
    int32_t *token; /* what stands there */
} dg_pins;

/* A canvas of n positions without pins; `at` has room for them, `token` too. */
void dg_pins_begin(dg_pins *p, int n);

/* Puts a start into a canvas of n positions of noise, and pins what is to be. A token that is not
 * pinned stays noise where its number in `u`, in [0, 1), is below the strength. True: every
 * position had a known token. */
bool dg_pins_start(dg_pins *p, const dg_start *start, const double *u, int32_t *canvas, int n);

/* How many of max_steps a canvas that is known throughout need not take at this strength: with a
 * part of the noise comes a part of the way. At least one step is left. */
int dg_pins_skipped_steps(float strength, int max_steps);

/* Puts the pinned tokens in their places. */
void dg_pins_hold(const dg_pins *p, int32_t *canvas, int n);

/* Takes in a step: counts the arg-max tokens that agree, adds up the entropies, puts the pinned
 * tokens in their places in argmax and drawn, and makes them certain. */
void dg_pins_take(dg_pins *p, int32_t *argmax, int32_t *drawn, float *entropy, int n);

#endif
