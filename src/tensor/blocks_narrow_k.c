#include "tensor/blocks_narrow_k.h"
#include <math.h>
#include <string.h>
#include "tensor/blocks_fit.h"
#include "tensor/dtype.h"

/* Each group is fitted by itself; its step is rounded to a multiple of the block's. Then turns are
 * taken: groups choose among scales near by, with the block's steps as they are stored, and those
 * are fitted to what the groups have chosen, as long as that helps. */

typedef unsigned char byte;

enum { BLOCK = 256, ROUNDS = 3 };

static float as_half(float v)
{
    return dg_f16_to_float(dg_float_to_f16(v));
}

/* A block's step, from which those of its groups follow. Halves as small as 2^-18 have six bits and
 * fewer, so that one that is rounded down cuts off the largest values, or all of them: it is
 * rounded up there. */
static float step_as_half(float v)
{
    const float half = as_half(v), unit = 0x1p-24f;
    return fabsf(v) < 0x1p-18f && fabsf(half) < fabsf(v) ? half + copysignf(unit, v) : half;
}

static void put_half(byte *out, float v)
{
    uint16_t bits = dg_float_to_f16(v);
    out[0] = (byte)(bits & 255);
    out[1] = (byte)(bits >> 8);
}

static float inverse(float step)
{
    return step != 0 && isfinite(step) ? 1 / step : 0;
}

/* ---- Q4_K, Q5_K: d scale n - dmin min, eight groups of 32 ---- */

enum { GROUPS = 8, GROUP = 32, TOP = 63 };

typedef struct ranges {
    float d, dmin; /* as halves have them */
    int scale[GROUPS], min[GROUPS];
} ranges;

/* The sum of squares of a group with a scale and a minimum. */
static float group_error(const float *x, const float *w, float step, float least, float most)
{
    float error[8] = {0}, total = 0;
    const float per = inverse(step);
    for (int i = 0; i < GROUP; i += 8)
        for (int k = 0; k < 8; k++) {
            float y = step * dg_nearest_in(x[i + k] + least, per, 0, most) - least;
            float off = x[i + k] - y;
            error[k] += w[i + k] * off * off;
        }
    for (int k = 0; k < 8; k++)
        total += error[k];
    return total;
}

/* The best of the scales and minima around those that it has; returns the error. */
static float choose_group(ranges *r, int g, const float *x, const float *w, float most)
{
    const int scale = r->scale[g], min = r->min[g];
    float least = INFINITY;
    for (int s = scale - 1; s <= scale + 1; s++)
        for (int m = min - 1; m <= min + 1; m++) {
            if (s < 0 || s > TOP || m < 0 || m > TOP)
                continue;
            float error = group_error(x, w, r->d * (float)s, r->dmin * (float)m, most);
            if (error < least) {
                least = error;
                r->scale[g] = s;
                r->min[g] = m;
            }
        }
    return least;
}

/* d and dmin for the scales, minima and numbers that there are, by least squares: x is d a - dmin b
 * with a = scale n and b = min. */
static bool fit_block(ranges *r, const float *x, const float *w, float most)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int g = 0; g < GROUPS; g++) {
        float per = inverse(r->d * (float)r->scale[g]), least = r->dmin * (float)r->min[g];
        double b = r->min[g];
        for (int i = GROUP * g; i < GROUP * (g + 1); i++) {
            double a = (double)r->scale[g] * (double)dg_nearest_in(x[i] + least, per, 0, most);
            double wa = (double)w[i] * a, wb = (double)w[i] * b;
            aa += wa * a;
            ab += wa * b;
            bb += wb * b;
            ax += wa * (double)x[i];
            bx += wb * (double)x[i];
        }
    }
    double det = aa * bb - ab * ab;
    if (!(det > 1e-9 * aa * bb)) { /* no minima, or all alike */
        if (!(aa > 0) || bb > 0)
            return false;
        r->d = as_half((float)(ax / aa));
        return r->d > 0;
    }
    r->d = as_half((float)((ax * bb - bx * ab) / det));
    r->dmin = as_half((float)((ax * ab - bx * aa) / det));
    return r->d > 0 && r->dmin >= 0;
}

static float choose_all(ranges *r, const float *x, const float *w, float most)
{
    float error = 0;
    for (int g = 0; g < GROUPS; g++)
        error += choose_group(r, g, x + GROUP * g, w + GROUP * g, most);
    return error;
}

static ranges fit_ranges(const float *x, const float *w, int most)
{
    dg_fitted_range each[GROUPS];
    float step = 0, least = 0;
    for (int g = 0; g < GROUPS; g++) {
        each[g] = dg_fit_range(x + GROUP * g, w + GROUP * g, GROUP, most, true);
        step = fmaxf(step, each[g].step);
        least = fmaxf(least, -each[g].least);
    }
    ranges r = {.d = step_as_half(step / TOP), .dmin = step_as_half(least / TOP)};
    for (int g = 0; g < GROUPS; g++) {
        r.scale[g] = (int)dg_nearest_in(each[g].step, inverse(r.d), 0, TOP);
        r.min[g] = (int)dg_nearest_in(-each[g].least, inverse(r.dmin), 0, TOP);
    }
    float error = choose_all(&r, x, w, (float)most);
    for (int k = 0; k < ROUNDS; k++) {
        ranges next = r;
        if (!fit_block(&next, x, w, (float)most))
            break;
        float with = choose_all(&next, x, w, (float)most);
        if (!(with < error))
            break;
        r = next;
        error = with;
    }
    return r;
}

/* Scales and minima of six bits in twelve bytes. */
static void put_scales(byte *out, const ranges *r)
{
    for (int g = 0; g < 4; g++) {
        out[g] = (byte)(r->scale[g] | (r->scale[g + 4] >> 4) << 6);
        out[g + 4] = (byte)(r->min[g] | (r->min[g + 4] >> 4) << 6);
        out[g + 8] = (byte)((r->scale[g + 4] & 15) | (r->min[g + 4] & 15) << 4);
    }
}

/* `high`: 32 bytes for the fifth bits, or NULL. */
static void narrow_groups(byte *out, byte *high, byte *q, const float *x, const float *w)
{
    const int most = high ? 31 : 15;
    const ranges r = fit_ranges(x, w, most);
    put_half(out, r.d);
    put_half(out + 2, r.dmin);
    put_scales(out + 4, &r);
    memset(q, 0, BLOCK / 2);
    if (high)
        memset(high, 0, GROUP);
    for (int g = 0; g < GROUPS; g++) {
        float per = inverse(r.d * (float)r.scale[g]), least = r.dmin * (float)r.min[g];
        for (int i = 0; i < GROUP; i++) {
            int n = (int)dg_nearest_in(x[GROUP * g + i] + least, per, 0, (float)most);
            q[GROUP * (g / 2) + i] |= (byte)((n & 15) << 4 * (g % 2));
            if (high)
                high[i] |= (byte)((n >> 4) << g);
        }
    }
}

void dg_narrow_q4_k(byte *out, const float *x, const float *w)
{
    narrow_groups(out, NULL, out + 16, x, w);
}

void dg_narrow_q5_k(byte *out, const float *x, const float *w)
{
    narrow_groups(out, out + 16, out + 48, x, w);
}

/* ---- Q6_K: d scale (n - 32), sixteen groups of 16 ---- */

enum { GROUPS_6 = 16, GROUP_6 = 16, LOW_6 = -32, HIGH_6 = 31 };

typedef struct steps {
    float d;
    int scale[GROUPS_6];
} steps;

static float step_error(const float *x, const float *w, float step)
{
    float error[8] = {0}, total = 0;
    const float per = inverse(step);
    for (int i = 0; i < GROUP_6; i += 8)
        for (int k = 0; k < 8; k++) {
            float off = x[i + k] - step * dg_nearest_in(x[i + k], per, LOW_6, HIGH_6);
            error[k] += w[i + k] * off * off;
        }
    for (int k = 0; k < 8; k++)
        total += error[k];
    return total;
}

static float choose_scales(steps *s, const float *x, const float *w)
{
    float total = 0;
    for (int g = 0; g < GROUPS_6; g++) {
        const int scale = s->scale[g];
        float least = INFINITY;
        for (int c = scale - 1; c <= scale + 1; c++) {
            float error = c < -128 || c > 127
                              ? INFINITY
                              : step_error(x + GROUP_6 * g, w + GROUP_6 * g, s->d * (float)c);
            if (error < least) {
                least = error;
                s->scale[g] = c;
            }
        }
        total += least;
    }
    return total;
}

static bool fit_step_of_block(steps *s, const float *x, const float *w)
{
    double with = 0, squares = 0;
    for (int i = 0; i < BLOCK; i++) {
        int scale = s->scale[i / GROUP_6];
        float per = inverse(s->d * (float)scale);
        double a = (double)scale * (double)dg_nearest_in(x[i], per, LOW_6, HIGH_6);
        with += (double)w[i] * a * (double)x[i];
        squares += (double)w[i] * a * a;
    }
    if (!(squares > 0))
        return false;
    s->d = as_half((float)(with / squares));
    return s->d != 0;
}

static steps fit_steps(const float *x, const float *w)
{
    float each[GROUPS_6], most = 0;
    for (int g = 0; g < GROUPS_6; g++) {
        each[g] = dg_fit_step(x + GROUP_6 * g, w + GROUP_6 * g, GROUP_6, LOW_6, HIGH_6);
        most = fabsf(each[g]) > fabsf(most) ? each[g] : most;
    }
    steps s = {.d = step_as_half(most / -128)};
    for (int g = 0; g < GROUPS_6; g++)
        s.scale[g] = (int)dg_nearest_in(each[g], inverse(s.d), -128, 127);
    float error = choose_scales(&s, x, w);
    for (int k = 0; k < ROUNDS; k++) {
        steps next = s;
        if (!fit_step_of_block(&next, x, w))
            break;
        float with = choose_scales(&next, x, w);
        if (!(with < error))
            break;
        s = next;
        error = with;
    }
    return s;
}

void dg_narrow_q6_k(byte *out, const float *x, const float *w)
{
    byte *low = out, *high = out + 128, *scale = out + 192;
    const steps s = fit_steps(x, w);
    memset(out, 0, 192);
    put_half(out + 208, s.d);
    for (int g = 0; g < GROUPS_6; g++) {
        const int half = g / 8, quarter = g % 8 / 2;
        const float per = inverse(s.d * (float)s.scale[g]);
        scale[g] = (byte)(s.scale[g] & 255);
        for (int i = GROUP_6 * g; i < GROUP_6 * (g + 1); i++) {
            int n = (int)dg_nearest_in(x[i], per, LOW_6, HIGH_6) - LOW_6, l = i % 32;
            low[64 * half + 32 * (quarter % 2) + l] |= (byte)((n & 15) << 4 * (quarter / 2));
            high[32 * half + l] |= (byte)((n >> 4) << 2 * quarter);
        }
    }
}

/* ---- IQ4_XS: d (scale - 32) level, eight groups of 32 ---- */

static float level_error(const float *x, const float *w, float step)
{
    const float per = inverse(step);
    float error = 0;
    for (int i = 0; i < GROUP; i++) {
        float off = x[i] - step * dg_nl_levels[dg_nearest_level(x[i] * per, dg_nl_levels)];
        error += w[i] * off * off;
    }
    return error;
}

static float choose_level_scales(float d, int scale[GROUPS], const float *x, const float *w)
{
    float total = 0;
    for (int g = 0; g < GROUPS; g++) {
        const int from = scale[g];
        float least = INFINITY;
        for (int s = from - 1; s <= from + 1; s++) {
            if (s < -32 || s > 31)
                continue;
            float error = level_error(x + GROUP * g, w + GROUP * g, d * (float)s);
            if (error < least) {
                least = error;
                scale[g] = s;
            }
        }
        total += least;
    }
    return total;
}

/* The block's step for the scales and levels that there are. */
static float fit_levels_of_block(float d, const int scale[GROUPS], const float *x, const float *w)
{
    double with = 0, squares = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float per = inverse(d * (float)scale[i / GROUP]);
        double a = (double)scale[i / GROUP] *
                   (double)dg_nl_levels[dg_nearest_level(x[i] * per, dg_nl_levels)];
        with += (double)w[i] * a * (double)x[i];
        squares += (double)w[i] * a * a;
    }
    return squares > 0 ? as_half((float)(with / squares)) : 0;
}

void dg_narrow_iq4_xs(byte *out, const float *x, const float *w)
{
    float each[GROUPS], most = 0;
    int scale[GROUPS], high = 0;
    for (int g = 0; g < GROUPS; g++) {
        each[g] = dg_fit_levels(x + GROUP * g, w + GROUP * g, GROUP, dg_nl_levels);
        most = fabsf(each[g]) > fabsf(most) ? each[g] : most;
    }
    float d = step_as_half(most / -32);
    for (int g = 0; g < GROUPS; g++)
        scale[g] = (int)dg_nearest_in(each[g], inverse(d), -32, 31);
    float error = choose_level_scales(d, scale, x, w);
    for (int k = 0; k < ROUNDS; k++) {
        int next[GROUPS];
        memcpy(next, scale, sizeof next);
        const float step = fit_levels_of_block(d, scale, x, w);
        const float with = step != 0 ? choose_level_scales(step, next, x, w) : INFINITY;
        if (!(with < error))
            break;
        d = step;
        error = with;
        memcpy(scale, next, sizeof next);
    }
    put_half(out, d);
    memset(out + 4, 0, 4);
    for (int g = 0; g < GROUPS; g++) {
        const float per = inverse(d * (float)scale[g]);
        byte *q = out + 8 + 16 * g;
        out[4 + g / 2] |= (byte)(((scale[g] + 32) & 15) << 4 * (g % 2));
        high |= ((scale[g] + 32) >> 4) << 2 * g;
        for (int i = 0; i < 16; i++) {
            int low = dg_nearest_level(x[GROUP * g + i] * per, dg_nl_levels),
                top = dg_nearest_level(x[GROUP * g + 16 + i] * per, dg_nl_levels);
            q[i] = (byte)(low | top << 4);
        }
    }
    out[2] = (byte)(high & 255);
    out[3] = (byte)(high >> 8);
}
