/* What the files here offer to init_x86.c. */
#ifndef DG_CPU_X86_KERNELS_AVX2_H
#define DG_CPU_X86_KERNELS_AVX2_H

#include "cpu/kernels.h"

dg_gemm_panel_fn dg_gemm_panel_avx2, dg_gemm_panel_vnni;
void dg_vector_set_avx2(dg_kernels *k); /* all kernels but the matrix product */
void dg_vector_set_vnni(dg_kernels *k); /* and but those of block types */

/* Products on quantised weights. */
dg_quantise_fn dg_quantise_avx2, dg_quantise_super_avx2;
extern const dg_qkernels dg_quantised_avx2, dg_quantised_vnni;
extern const dg_byte_kernels dg_bytes_vnni, dg_bytes_amx;
extern const dg_bkernels dg_bfloat_amx;
extern dg_qturn_fn *const dg_turn_avx2[DG_DTYPE_COMPUTE];

#endif
