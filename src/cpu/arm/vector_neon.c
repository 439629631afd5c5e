/* The vector kernels over NEON registers. */
#include "cpu/arm/kernels_neon.h"
#include "cpu/arm/lanes_neon.h"
#include "cpu/vector_body.h"
#include "cpu/blocks_body.h"

void dg_vector_set_neon(dg_kernels *k)
{
    set_vector_kernels(k);
    set_block_kernels(k);
}
