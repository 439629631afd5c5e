/* The block types, of GGUF files and those that other files are put into: what each block means, in
 * plain C. These are the definitions that faster kernels are checked against. */
#ifndef DG_TENSOR_BLOCKS_H
#define DG_TENSOR_BLOCKS_H

#include <stddef.h>
#include "tensor/dtype.h"

/* n values of a block type, a multiple of its block. No alignment is needed. */
void dg_blocks_widen(float *out, const void *in, dg_dtype type, size_t n);

/* n finite floats, a multiple of 32, to Q8_0: d = max |x| / 127 as a half, each value the nearest
 * multiple of it. */
void dg_blocks_narrow_q8_0(void *out, const float *in, size_t n);

#endif
