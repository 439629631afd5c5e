/* One block of text on its way out of noise. The canvas starts as random tokens; each step the
 * model looks at all of it at once, and then
 *
 *     draw      one token per position from what the model predicts at this step's temperature
 *     accept    the positions it is sure of (sampler.h), everything else becomes noise again
 *     stop      when the arg-max tokens settle and are certain (stopping.h), or the steps are used
 * up
 *
 * Nothing is frozen: a position accepted now can become noise later. What is kept in the end is the
 * arg-max of the last step, not the canvas. Two exceptions, when asked for: tokens that were given
 * beforehand and pinned (pins.h), and a beginning that has settled (settle.h). There drawn, arg-max
 * and canvas hold the pinned tokens. The model itself is not known here: a step's outcome comes in
 * as three small arrays. */
#ifndef DG_DIFFUSION_CANVAS_H
#define DG_DIFFUSION_CANVAS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "diffusion/draws.h"
#include "diffusion/pins.h"
#include "diffusion/schedule.h"
#include "diffusion/settle.h"
#include "diffusion/stopping.h"

typedef struct dg_canvas {
    dg_diffusion_options opt;
    int block, n; /* which block; tokens in it */
    int step;     /* the coming one; the first is 0, or later after a start */
    int first_step;
    bool finished, converged; /* converged: by the stop rule, not by running out of steps */

    int32_t *token; /* [n] what goes into the next step */

    /* the last step's outcome */
    int32_t *argmax;   /* [n] the block's text, once finished */
    int32_t *drawn;    /* [n] */
    float *entropy;    /* [n] */
    uint8_t *forced;   /* [n] nothing else could stand there: it says nothing of how sure the model
                          is. Set where a token is pinned, and by who holds the canvas to a
                          language; 0 otherwise */
    uint8_t *accepted; /* [n] */
    float mean_entropy;

    /* the coming step's draw per position; filled by dg_canvas_begin and dg_canvas_advance */
    double *uniform; /* [n] */

    dg_pins pins;
    dg_settle settle; /* settle.n: how many positions are pinned at the beginning */
    dg_stability stability;
    int32_t *previous;    /* [n] the last step's arg-max */
    int32_t *noise;       /* [n] of the coming step, */
    double *next_uniform; /* [n] and the draws of the one after it: */
    bool prepared;        /* are there */
    int *order;           /* [2 n] scratch */
    int capacity;
} dg_canvas;

/* Room for canvases of up to `capacity` tokens. */
dgemma_status dg_canvas_init(dg_canvas *c, int capacity, dgemma_error *err);
void dg_canvas_clear(dg_canvas *c);

/* Starts block number `block` with n <= capacity random tokens. */
void dg_canvas_begin(dg_canvas *c, const dg_diffusion_options *opt, const dg_draws *draws,
                     int block, int n);

/* Right after that: begins with what is known in place of noise. */
void dg_canvas_start(dg_canvas *c, const dg_draws *draws, const dg_start *start);

/* Puts what is pinned into the canvas of the coming step, should somebody have moved it. */
void dg_canvas_hold(dg_canvas *c);

/* The temperature of the coming step. */
float dg_canvas_temperature(const dg_canvas *c);

/* Random numbers that dg_canvas_advance is going to want, while a device works at the coming step.
 * Who leaves this out has them made there. */
void dg_canvas_prepare(dg_canvas *c, const dg_draws *draws);

/* Takes in what the model made of the canvas: the caller has filled argmax, drawn and entropy. Sets
 * accepted, and either finishes the block or prepares the next step. */
void dg_canvas_advance(dg_canvas *c, const dg_draws *draws);

/* The reader has seen all it needs in the settled beginning: the block ends with this step. */
void dg_canvas_end(dg_canvas *c);

#endif
