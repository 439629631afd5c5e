/* Rows of a matrix in the forms that quantised folders have. */
#ifndef DG_CONVERT_FOLDER_ROWS_H
#define DG_CONVERT_FOLDER_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum { DG_NVFP4_GROUP = 16 };

/* n values as E4M3: *scale times each is nearest to the value. `back`, n floats, is what they are
 * then. */
void dg_fp8_row(uint8_t *out, float *scale, float *back, const float *x, size_t n);

/* What NVFP4's scales are divided by where the largest size is `most`. */
float dg_nvfp4_divisor(float most);

/* n values, a multiple of DG_NVFP4_GROUP, as nibbles of E2M1, the low one first, and a scale of
 * E4M3 for each group: of some around the one that the largest value asks for, that with the least
 * squared error. */
void dg_nvfp4_row(uint8_t *packed, uint8_t *scale, float *back, const float *x, size_t n,
                  float divisor);

#endif
