/* Which beginning of a canvas may be read before the block is done. A position is settled when the
 * model has held the same token there, sure of it, for a number of steps in a row; the settled
 * beginning reaches up to the first position that is not. What was settled once is pinned: it stays
 * in every canvas that follows and in the block, whatever the model makes of it later. So nothing
 * that was read is taken back, and nothing in it can be mended: an approximation, off by default.
 */
#ifndef DG_DIFFUSION_SETTLE_H
#define DG_DIFFUSION_SETTLE_H

#include <stdint.h>

typedef struct dg_settle {
    int n;          /* positions [0, n) are pinned */
    int32_t *token; /* what they hold; behind them the last step's arg-max */
    int *run;       /* for how many steps in a row, sure of it; unread where pinned */
} dg_settle;

/* A new canvas of n positions; `token` and `run` have room for them. */
void dg_settle_begin(dg_settle *s, int n);

/* Takes in one step: arg-max and entropy of each of n positions. Those whose entropy has been below
 * `confidence`, strictly, for `steps` steps with the same arg-max are settled. Returns s->n, which
 * never falls. */
int dg_settle_push(dg_settle *s, const int32_t *argmax, const float *entropy, int n, int steps,
                   float confidence);

/* Puts the pinned tokens in their places. */
void dg_settle_hold(const dg_settle *s, int32_t *canvas);

#endif
