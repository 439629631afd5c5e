/* Functions of real numbers whose last bit C leaves to the system's library. What a seed gives
 * depends on such bits, so these are our own: additions, multiplications, divisions and integers
 * alone, each rounded as IEEE 754 says, none of them fused (the Makefile sees to that). The same
 * bits on every machine, for every compiler.
 *
 * Errors are in units of the last place of the exact result; tests/unit/test_real.c holds them. */
#ifndef DG_BASE_REAL_H
#define DG_BASE_REAL_H

/* e^x, within 1 unit, subnormal results too. Infinity from 709.79 on, 0 below -745.14. */
double dg_exp(double x);

/* The natural logarithm, within 1 unit. -infinity at either zero, NaN below. */
double dg_log(double x);

/* Within 3 units. */
double dg_tanh(double x);

/* x^y = e^(y ln x) for x > 0 and finite y: within 2 + 2 |y ln x| units, so for powers between
 * 2^-64 and 2^64 good for a float. */
double dg_pow(double x, double y);

/* Both of an angle in radians, each within 0.501 units, however large the angle; NaN for an
 * infinite one. */
void dg_sin_cos(float angle, float *sine, float *cosine);

#endif
