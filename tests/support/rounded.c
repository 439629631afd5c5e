#include "support/rounded.h"
#include <math.h>
#include "tensor/dtype.h"
#include "tensor/narrowed.h"

void round_to_fp8(float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    float factor = dg_fp8_factor(dg_narrowed_bits(most));
    for (size_t i = 0; i < n; i++)
        x[i] = dg_e4m3_to_float(dg_float_to_e4m3(x[i] / factor)) * factor;
}

void round_to_int4(float *x, size_t n)
{
    unsigned char block[DG_INT4_BYTES];
    for (size_t i = 0; i < n; i += DG_INT4_VALUES) {
        dg_int4_block(block, x + i);
        dg_widen(x + i, block, DG_INT4, DG_INT4_VALUES);
    }
}

/* Blocks with `most` steps of both signs, as Q5_0 (16), Q6_K (32) and Q8_0 (127) have them. */
static void to_blocks(float *x, size_t n, size_t block, float most)
{
    for (size_t b = 0; b < n; b += block) {
        float size = 0;
        for (size_t i = b; i < b + block; i++)
            size = fmaxf(size, fabsf(x[i]));
        for (size_t i = b; i < b + block && size > 0; i++)
            x[i] = rintf(x[i] / size * most) * (size / most);
    }
}

void round_to_q5_0(float *x, size_t n)
{
    to_blocks(x, n, 32, 16);
}

void round_to_q8_0(float *x, size_t n)
{
    to_blocks(x, n, 32, 127);
}

void round_to_q6_k(float *x, size_t n)
{
    to_blocks(x, n, 16, 32);
}

/* The step and the least value of 32 values, by least squares over trial steps. */
static void fit_group(const float *x, float *step, float *least)
{
    float low = 0, high = 0;
    double best = INFINITY;
    for (int i = 0; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    for (int t = 0; t < 20; t++) {
        double per = (13.5 + 0.15 * t) / (high - low), q1 = 0, q2 = 0, x1 = 0, qx = 0, off = 0;
        for (int i = 0; i < 32; i++) {
            double q = fmin(fmax(rint(per * (x[i] - low)), 0), 15);
            q1 += q;
            q2 += q * q;
            x1 += x[i];
            qx += q * x[i];
        }
        double slope = (32 * qx - q1 * x1) / (32 * q2 - q1 * q1), at = (x1 - slope * q1) / 32;
        for (int i = 0; i < 32; i++) {
            double q = fmin(fmax(rint((x[i] - at) / slope), 0), 15);
            off += (x[i] - at - slope * q) * (x[i] - at - slope * q);
        }
        if (off < best && at <= 0) {
            best = off;
            *step = (float)slope;
            *least = (float)-at;
        }
    }
}

/* 256 values: eight groups, whose steps and leasts are six-bit parts of two numbers. */
void round_to_q4_k(float *x, size_t n)
{
    for (size_t b = 0; b < n; b += 256) {
        float step[8], least[8], d = 0, dmin = 0;
        for (size_t g = 0; g < 8; g++) {
            fit_group(x + b + 32 * g, &step[g], &least[g]);
            d = fmaxf(d, step[g] / 63);
            dmin = fmaxf(dmin, least[g] / 63);
        }
        for (size_t i = 0; i < 256; i++) {
            float s = d * rintf(step[i / 32] / d), m = dmin * rintf(least[i / 32] / dmin);
            x[b + i] = s * fminf(fmaxf(rintf((x[b + i] + m) / s), 0), 15) - m;
        }
    }
}
