/* Floats to blocks of GGUF's types: the way back from blocks.h. Of all blocks that a type has, one
 * is looked for that comes near to the values in the sense of least squares, each weighted by how
 * much it matters. The same floats give the same bytes on every machine. */
#ifndef DG_TENSOR_BLOCKS_NARROW_H
#define DG_TENSOR_BLOCKS_NARROW_H

#include <stdbool.h>
#include <stddef.h>
#include "tensor/dtype.h"

/* Whether there is a way to this block type. */
bool dg_blocks_can_narrow(dg_dtype type);

/* n finite values, a multiple of the type's block. importance: the weight of each value's squared
 * error, positive and not all tiny; NULL: they are all the same. Q8_0 does without: each value is
 * the nearest multiple of max |x| / 127, as everybody writes it. A step beyond what halves can be
 * becomes infinite, which widening shows. */
void dg_blocks_narrow(void *out, dg_dtype type, const float *in, const float *importance, size_t n);

#endif
