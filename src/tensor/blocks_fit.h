/* The search behind blocks_narrow.h: steps whose multiples come nearest to some values. The error
 * is the sum of w (x - y)². Counts are multiples of 8. */
#ifndef DG_TENSOR_BLOCKS_FIT_H
#define DG_TENSOR_BLOCKS_FIT_H

#include <stdbool.h>

/* To the nearest whole number, ties to even, of what is below 2^22 in size. */
static inline float dg_nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

/* The whole number from lo to hi that is nearest to x times `per`. */
static inline float dg_nearest_in(float x, float per, float lo, float hi)
{
    float q = x * per;
    q = q > lo ? q : lo; /* what is no number, too */
    q = q < hi ? q : hi;
    return dg_nearest(q);
}

/* y = step q, q a whole number from lo, which is negative, to hi. The step may be negative. */
float dg_fit_step(const float *x, const float *w, int n, int lo, int hi);

/* y = step q + least, q from 0 to hi; where `below`, least is 0 or less. */
typedef struct dg_fitted_range {
    float step, least;
} dg_fitted_range;
dg_fitted_range dg_fit_range(const float *x, const float *w, int n, int hi, bool below);

/* y = step level[q], sixteen levels in rising order; those of IQ4_NL and IQ4_XS. */
extern const float dg_nl_levels[16];
float dg_fit_levels(const float *x, const float *w, int n, const float level[16]);

/* The level that is nearest to x. */
int dg_nearest_level(float x, const float level[16]);

#endif
