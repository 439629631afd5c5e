/* Random bytes that are sensible weights of a type. */
#ifndef DG_MODEL_SYNTHETIC_TYPES_H
#define DG_MODEL_SYNTHETIC_TYPES_H

#include "tensor/dtype.h"

/* Fills `bytes`, whole blocks, of a weight; floats are aligned. Values of either sign that spread
 * by about 0.02, and none that is not a number. The same seed gives the same bytes. */
void dg_random_weights(void *data, dg_dtype type, size_t bytes, uint64_t seed);

#endif
