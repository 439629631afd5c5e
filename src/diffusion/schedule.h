/* How hot each denoising step samples. Steps count down, as in the reference: the first of N steps
 * has N left. */
#ifndef DG_DIFFUSION_SCHEDULE_H
#define DG_DIFFUSION_SCHEDULE_H

/* All that steers the denoising of a block. */
typedef struct dg_diffusion_options {
    int max_steps;       /* N; at least 1 */
    float t_min, t_max;  /* the temperature falls from t_max towards t_min */
    float entropy_bound; /* how much joint uncertainty one step may accept, in nats */
    int stability;     /* equal arg-max canvases before the current one; 0: any canvas is stable */
    float confidence;  /* mean entropy below which a canvas is certain enough, in nats */
    int settled_steps; /* steps after which the beginning is pinned (settle.h); 0: never */
} dg_diffusion_options;

/* T = t_min + (t_max - t_min) * n_left / max_steps, in float as the reference computes it. */
float dg_schedule_temperature(const dg_diffusion_options *opt, int n_left);

#endif
