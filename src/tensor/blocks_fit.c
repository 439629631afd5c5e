#include "tensor/blocks_fit.h"
#include <assert.h>
#include <math.h>

/* Sums run in eight lanes, which compilers make vectors of; nothing here depends on how wide those
 * of the machine are. */
enum { LANES = 8 };

static float sum(const float lane[LANES])
{
    float pair[4];
    for (int i = 0; i < 4; i++)
        pair[i] = lane[i] + lane[i + 4];
    return (pair[0] + pair[2]) + (pair[1] + pair[3]);
}

static float largest(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

/* ---- a step ---- */

/* A step, and what it takes off the sum of squares: (Σ w q x)² / Σ w q², for the numbers q that
 * were tried and the step that is best for them. */
typedef struct fit {
    float step, gain;
} fit;

static fit better(fit a, fit b)
{
    return b.gain > a.gain ? b : a;
}

static fit fit_of(float with, float squares)
{
    if (!(squares > 0))
        return (fit){0};
    float step = with / squares;
    return (fit){step, step * with};
}

static fit try_step(const float *x, const float *w, int n, float per, float lo, float hi)
{
    float with[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float q = dg_nearest_in(x[i + k], per, lo, hi), wq = w[i + k] * q;
            with[k] += wq * x[i + k];
            squares[k] += wq * q;
        }
    return fit_of(sum(with), sum(squares));
}

float dg_fit_step(const float *x, const float *w, int n, int lo, int hi)
{
    /* The largest value is tried as each of these numbers, and its negative: a little beyond the
     * end is worth it where few values are cut. */
    enum { TRIES = 10, REFINED = 3 };
    const float most = largest(x, n);
    fit best = {0};
    assert(n % LANES == 0);
    if (!(fabsf(most) > 1e-30f))
        return 0;
    for (int k = -TRIES; k <= TRIES; k++) {
        float off = 0.15f * (float)k;
        best = better(best, try_step(x, w, n, ((float)lo + off) / most, (float)lo, (float)hi));
        best = better(best, try_step(x, w, n, ((float)hi + off) / most, (float)lo, (float)hi));
    }
    for (int k = 0; k < REFINED && best.step != 0; k++) {
        fit next = try_step(x, w, n, 1 / best.step, (float)lo, (float)hi);
        if (!(next.gain > best.gain))
            break;
        best = next;
    }
    return best.step;
}

/* ---- a step and a least value ---- */

typedef struct range_fit {
    dg_fitted_range r;
    float gain; /* what is taken off Σ w x² */
} range_fit;

/* Sums that do not depend on the numbers. */
typedef struct range_sums {
    float w, x;
} range_sums;

static range_fit try_range(const float *x, const float *w, int n, dg_fitted_range from, float hi,
                           bool below, range_sums s)
{
    float q1[LANES] = {0}, q2[LANES] = {0}, qx[LANES] = {0};
    const float per = 1 / from.step, shift = -from.least * per;
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float at = x[i + k] * per + shift;
            at = at < 0 ? 0 : at;
            at = at > hi ? hi : at;
            float q = dg_nearest(at), wq = w[i + k] * q;
            q1[k] += wq;
            q2[k] += wq * q;
            qx[k] += wq * x[i + k];
        }
    const float sq = sum(q1), sqq = sum(q2), sqx = sum(qx), det = s.w * sqq - sq * sq;
    range_fit out = {.gain = -1};
    if (!(det > 1e-6f * s.w * sqq)) /* all numbers are the same */
        return out;
    out.r.step = (s.w * sqx - sq * s.x) / det;
    out.r.least = (sqq * s.x - sq * sqx) / det;
    if (below && out.r.least > 0) {
        out.r.least = 0;
        out.r.step = sqx / sqq;
    }
    out.gain = out.r.step * sqx + out.r.least * s.x;
    if (!(out.r.step > 0))
        out.gain = -1;
    return out;
}

dg_fitted_range dg_fit_range(const float *x, const float *w, int n, int hi, bool below)
{
    enum { TRIES = 24, REFINED = 4 };
    float low = x[0], high = x[0];
    range_sums s = {0};
    assert(n % LANES == 0);
    for (int i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        s.w += w[i];
        s.x += w[i] * x[i];
    }
    if (below && low > 0)
        low = 0;
    if (!(high - low > 1e-30f))
        return (dg_fitted_range){0, low};
    range_fit best = {.r = {(high - low) / (float)hi, low}, .gain = -1};
    for (int k = 0; k < TRIES; k++) { /* the range as so many steps, from its low end */
        dg_fitted_range from = {(high - low) / ((float)hi - 1.2f + 0.1f * (float)k), low};
        range_fit next = try_range(x, w, n, from, (float)hi, below, s);
        best = next.gain > best.gain ? next : best;
    }
    for (int k = 0; k < REFINED; k++) {
        range_fit next = try_range(x, w, n, best.r, (float)hi, below, s);
        if (!(next.gain > best.gain))
            break;
        best = next;
    }
    return best.r;
}

/* ---- levels ---- */

const float dg_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

int dg_nearest_level(float x, const float level[16])
{
    int at = 0;
    for (int i = 0; i < 15; i++) /* in the middle: the lower one */
        at += x > 0.5f * (level[i] + level[i + 1]);
    return at;
}

static fit try_levels(const float *x, const float *w, int n, const float level[16], float per)
{
    float with[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        float at[LANES], q[LANES];
        for (int k = 0; k < LANES; k++) {
            at[k] = x[i + k] * per;
            q[k] = level[0];
        }
        for (int j = 0; j < 15; j++) { /* in the middle: the lower one */
            const float middle = 0.5f * (level[j] + level[j + 1]), above = level[j + 1];
            for (int k = 0; k < LANES; k++)
                q[k] = at[k] > middle ? above : q[k];
        }
        for (int k = 0; k < LANES; k++) {
            float wq = w[i + k] * q[k];
            with[k] += wq * x[i + k];
            squares[k] += wq * q[k];
        }
    }
    return fit_of(sum(with), sum(squares));
}

float dg_fit_levels(const float *x, const float *w, int n, const float level[16])
{
    enum { TRIES = 8, REFINED = 3 };
    const float most = largest(x, n);
    fit best = {0};
    assert(n % LANES == 0);
    if (!(fabsf(most) > 1e-30f))
        return 0;
    for (int k = -TRIES; k <= TRIES; k++) {
        float part = 1 + 0.02f * (float)k;
        best = better(best, try_levels(x, w, n, level, level[0] * part / most));
        best = better(best, try_levels(x, w, n, level, level[15] * part / most));
    }
    for (int k = 0; k < REFINED && best.step != 0; k++) {
        fit next = try_levels(x, w, n, level, 1 / best.step);
        if (!(next.gain > best.gain))
            break;
        best = next;
    }
    return best.step;
}
