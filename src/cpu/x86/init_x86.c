#include "cpu/x86/kernels_avx2.h"

void dg_kernels_init_x86(dg_kernels *k, unsigned flags)
{
    if (flags & DG_CPU_AVX2) {
        dg_vector_set_avx2(k);
        k->gemm_panel = dg_gemm_panel_avx2;
        k->turn = dg_turn_avx2;
        k->q = &dg_quantised_avx2;
    }
    if (flags & DG_CPU_VNNI) {
        dg_vector_set_vnni(k);
        k->gemm_panel = dg_gemm_panel_vnni;
        k->q = &dg_quantised_vnni;
        k->bytes = &dg_bytes_vnni;
    }
    if (flags & DG_CPU_AMX)
        k->bytes = &dg_bytes_amx;
    if (flags & DG_CPU_BF16)
        k->b = &dg_bfloat_amx;
}
