#include "base/real.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^n, -1022 <= n <= 1023. */
static double power_of_2(int n)
{
    return of_bits((uint64_t)(n + 1023) << 52);
}

/* ln 2 in two parts; the first has 32 bits, so that n times it is exact for every exponent n. */
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;

/* ---- e^x ---- */

/* e^x = 2^n (1 + q), |q| < 0.42, for |x| < 1000: returns q, leaves n in *n. */
static double exp_parts(double x, int *n)
{
    /* 1/2! … 1/13!, two by two; what follows is below 2^-57 of the sum. */
    static const double c[][2] = {
        {1.0 / 2, 1.0 / 6},
        {1.0 / 24, 1.0 / 120},
        {1.0 / 720, 1.0 / 5040},
        {1.0 / 40320, 1.0 / 362880},
        {1.0 / 3628800, 1.0 / 39916800},
        {1.0 / 479001600, 1.0 / 6227020800},
    };
    /* Adding it rounds to a whole number. */
    const double round = 0x1.8p52;
    double whole = (x * 0x1.71547652b82fep+0 + round) - round;
    double high = x - whole * ln2_high, low = whole * ln2_low, r = high - low, r2 = r * r;
    double p = 0;
    for (int i = 5; i >= 0; i--)
        p = p * r2 + (c[i][0] + c[i][1] * r);
    *n = (int)whole;
    return high - (low - r2 * p);
}

double dg_exp(double x)
{
    if (x != x)
        return x;
    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    int n;
    double e = 1 + exp_parts(x, &n);
    /* In two halves: the power itself may lie beyond what a double holds. */
    return e * power_of_2(n / 2) * power_of_2(n - n / 2);
}

/* With m = e^(-2|x|) - 1, whose relative error stays small near 0: tanh |x| = -m / (2 + m). */
double dg_tanh(double x)
{
    double size = fabs(x);
    if (x != x || size < 0x1p-28) /* the next term is x^3 / 3 */
        return x;
    if (size > 20) /* 1 - 2^-57 */
        return copysign(1, x);
    int n;
    double q = exp_parts(-2 * size, &n), scale = power_of_2(n);
    double m = scale * q + (scale - 1);
    return copysign(m / (2 + m), x);
}

/* ---- ln x ---- */

double dg_log(double x)
{
    /* 2/3, 2/5, …: ln((1 + s) / (1 - s)) = 2 s + s (2/3 s^2 + 2/5 s^4 + …); with s below 0.172 what
     * follows is below 2^-59 of the sum. */
    static const double c[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                               2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    if (x == 0)
        return -INFINITY;
    if (!(x > 0))
        return NAN;
    if (x > 0x1.fffffffffffffp1023)
        return x;
    int n = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        n = -54;
    }
    /* x = 2^n (1 + f) with 1 + f between the roots of 1/2 and 2 */
    const uint64_t root_half = UINT64_C(0x3FE6A09E667F3BCD);
    uint64_t above = bits_of(x) - root_half;
    n += (int)((int64_t)above >> 52);
    double f = of_bits((above & (~UINT64_C(0) >> 12)) + root_half) - 1;

    double s = f / (2 + f), s2 = s * s, tail = 0, half_square = 0.5 * f * f;
    for (int i = 9; i >= 0; i--)
        tail = (tail + c[i]) * s2;
    /* 2 s = f - (f^2 / 2 - s f^2 / 2): f is exact, and the largest part */
    double rest = half_square - (s * (half_square + tail) + n * ln2_low);
    return n * ln2_high + (f - rest);
}

double dg_pow(double x, double y)
{
    return dg_exp(y * dg_log(x));
}

/* ---- sine and cosine ---- */

/* The angle is m 2^e. Its quarter turns, modulo 4, are m times those bits of 2/pi that weigh at
 * most 2^(1 - e): an integer product of 24 by 96 bits, of which two bits are the quadrant and the
 * rest a fraction. Returns the distance from the nearest quarter turn, in radians. */
static double reduce(uint32_t m, int e, unsigned *quadrant)
{
    /* 2/pi behind 32 zeros, for angles below one. */
    static const uint32_t two_over_pi[] = {0,           0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                           0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};
    const int first = e - 2 + 32;
    uint32_t w[3];
    for (int i = 0; i < 3; i++) {
        const uint32_t *at = two_over_pi + first / 32 + i;
        w[i] = (uint32_t)(((uint64_t)at[0] << 32 | at[1]) << first % 32 >> 32);
    }
    uint64_t low = (uint64_t)m * w[2], middle = (uint64_t)m * w[1] + (low >> 32);
    uint64_t high = (uint64_t)m * w[0] + (middle >> 32);
    uint64_t turns = high << 32 | (middle & 0xFFFFFFFFu); /* quarters, times 2^62 */
    uint64_t nearest = (turns + (UINT64_C(1) << 61)) >> 62;
    *quadrant = (unsigned)nearest & 3;
    return (double)(int64_t)(turns - (nearest << 62)) * 0x1.921fb54442d18p-62; /* pi/2 */
}

/* Both for |r| <= pi/4; what follows the last terms is below 2^-44. */
static double sin_near(double r, double r2)
{
    double p = 1.0 / 6227020800;
    p = p * r2 - 1.0 / 39916800;
    p = p * r2 + 1.0 / 362880;
    p = p * r2 - 1.0 / 5040;
    p = p * r2 + 1.0 / 120;
    p = p * r2 - 1.0 / 6;
    return r + r * r2 * p;
}

static double cos_near(double r2)
{
    double p = -1.0 / 87178291200;
    p = p * r2 + 1.0 / 479001600;
    p = p * r2 - 1.0 / 3628800;
    p = p * r2 + 1.0 / 40320;
    p = p * r2 - 1.0 / 720;
    p = p * r2 + 1.0 / 24;
    p = p * r2 - 0.5;
    return 1 + r2 * p;
}

void dg_sin_cos(float angle, float *sine, float *cosine)
{
    uint32_t bits;
    memcpy(&bits, &angle, sizeof bits);
    const uint32_t exponent = bits >> 23 & 0xFF;
    if (exponent == 0xFF) {
        *sine = *cosine = NAN;
        return;
    }
    unsigned quadrant = 0;
    double r = fabs((double)angle);
    if (r > 0.785)
        r = reduce((bits & 0x7FFFFFu) | 0x800000u, (int)exponent - 150, &quadrant);
    double r2 = r * r, s = sin_near(r, r2), c = cos_near(r2), up = quadrant & 1 ? c : s;
    *cosine = (float)(quadrant & 1 ? (quadrant == 1 ? -s : s) : (quadrant == 0 ? c : -c));
    *sine = (float)copysign(1, (double)angle) * (float)(quadrant & 2 ? -up : up);
}
