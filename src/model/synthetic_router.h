/* Routers for models with random weights. A residual stream that nothing was learnt for soon points
 * the same way at every position, and every token would go to the same few experts. So some
 * channels are kept for the router: no layer adds to them (their weight in the norms behind
 * attention and feed-forward is zero), they hold what the embedding gave, and routers look at
 * nothing else. Self-conditioning has no norm behind it: the one before it is so small that hardly
 * anything is added. Tokens then spread over the experts as chance has it, in every step. */
#ifndef DG_MODEL_SYNTHETIC_ROUTER_H
#define DG_MODEL_SYNTHETIC_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

/* Channels [0, so many) are the router's. */
int dg_synthetic_router_channels(int n_embd);

/* A layer's router, bfloat16 [n_expert, n_embd]; layers differ. Of 256 tokens to 8 of 128 experts
 * the busiest gets about 30, where 16 is the mean; with `skewed` about 64. */
void dg_synthetic_router(uint16_t *router, int layer, int n_expert, int n_embd, bool skewed);

/* The weight of self-conditioning's norm; what is added goes with its square. */
#define DG_SYNTHETIC_SOFT_NORM 0.03125f

/* The weight of a norm whose result is added to the residual stream. */
void dg_synthetic_post_norm(float *norm, int n_embd);

#endif
