/* When a canvas is done: its arg-max tokens have not changed for a number of steps, and the model
 * is sure of them. */
#ifndef DG_DIFFUSION_STOPPING_H
#define DG_DIFFUSION_STOPPING_H

#include <stdbool.h>
#include <stdint.h>

/* For how many steps in a row the arg-max canvas has been the same. Start each canvas with {0}. */
typedef struct dg_stability {
    int n_seen;  /* steps seen */
    int n_equal; /* canvases before the current one that equal it, without a gap */
} dg_stability;

/* Takes in one step's arg-max canvas; `previous` is the last step's (unread on the first step). */
void dg_stability_push(dg_stability *s, const int32_t *argmax, const int32_t *previous, int n);

/* Mean of the entropies, in nats, of the positions that are not forced (NULL: none is); 0 where all
 * are. */
float dg_mean_entropy(const float *entropy, const uint8_t *forced, int n);

/* True when `stability` earlier canvases equal the current one and the mean entropy is below
 * `confidence` (strictly). */
bool dg_stopping_reached(const dg_stability *s, int stability, float mean_entropy,
                         float confidence);

#endif
