/* The vector kernels over AVX2 registers. */
#include "cpu/x86/kernels_avx2.h"
#include "cpu/x86/doubles_avx2.h"
#include "cpu/vector_body.h"
#include "cpu/blocks_body.h"

void dg_vector_set_avx2(dg_kernels *k)
{
    set_vector_kernels(k);
    set_block_kernels(k);
}
