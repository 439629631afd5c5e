#include "cpu/arm/kernels_neon.h"

void dg_kernels_init_arm(dg_kernels *k, unsigned flags)
{
    if (flags & DG_CPU_NEON) {
        dg_vector_set_neon(k);
        k->gemm_panel = dg_gemm_panel_neon;
        k->turn = dg_turn_neon;
        k->q = NULL;
    }
    if (flags & DG_CPU_I8MM)
        k->q = &dg_quantised_i8mm;
    if (flags & DG_CPU_BF16) {
        k->narrow[DG_BF16] = dg_narrow_bf16;
        k->b = &dg_bfloat_neon;
    }
    if (flags & DG_CPU_I8MM && flags & DG_CPU_BF16) /* one alone keeps the bits of all machines */
        k->bytes = &dg_bytes_i8mm;
}
