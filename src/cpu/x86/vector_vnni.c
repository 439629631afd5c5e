/* The vector kernels with eight doubles in one register. */
#include "cpu/x86/doubles_avx512.h"
#include "cpu/x86/kernels_avx2.h"
#include "cpu/vector_body.h"

void dg_vector_set_vnni(dg_kernels *k)
{
    set_vector_kernels(k);
}
