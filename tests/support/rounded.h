/* Weights as narrower forms have them: what is left of floats, as floats. Rows of a multiple of 256
 * values, one after the other; of E4M3 a matrix, which has one factor. */
#ifndef DG_TEST_ROUNDED_H
#define DG_TEST_ROUNDED_H

#include <stddef.h>

typedef void rounding_fn(float *x, size_t n);

rounding_fn round_to_fp8, round_to_int4, round_to_q4_k, round_to_q5_0, round_to_q6_k, round_to_q8_0;

#endif
