/* Which positions of a canvas to believe: the entropy bound. Pure functions of small arrays. */
#ifndef DG_DIFFUSION_SAMPLER_H
#define DG_DIFFUSION_SAMPLER_H

#include <stdint.h>

/* Sorted by entropy, a position is accepted as long as the sum over all more certain positions is
 * at most `bound`. So the most certain one always is, and the first that carries the sum over the
 * bound still is. That sum bounds how much the accepted tokens, drawn independently, can depend on
 * each other (arXiv 2505.24857). Equal entropies: the lower position first. `order` is scratch for
 * 2 n numbers, whose first n are left holding the positions by rank. Returns how many were
 * accepted. */
int dg_sampler_accept(uint8_t *accepted, int *order, const float *entropy, int n, float bound);

/* The next canvas: what was drawn where it was accepted, fresh noise everywhere else. */
void dg_sampler_renoise(int32_t *canvas, const uint8_t *accepted, const int32_t *drawn,
                        const int32_t *noise, int n);

#endif
