/* What the NEON files offer to init_arm.c. */
#ifndef DG_CPU_ARM_KERNELS_NEON_H
#define DG_CPU_ARM_KERNELS_NEON_H

#include "cpu/kernels.h"

dg_gemm_panel_fn dg_gemm_panel_neon;
void dg_vector_set_neon(dg_kernels *k); /* all kernels but the matrix product */

/* Products on quantised weights. */
extern dg_qturn_fn *const dg_turn_neon[DG_DTYPE_COMPUTE];
dg_quantise_fn dg_quantise_neon, dg_quantise_super_neon;
extern const dg_qkernels dg_quantised_i8mm;
extern const dg_byte_kernels dg_bytes_i8mm;

/* With the instructions for bfloat16 numbers. */
dg_narrow_fn dg_narrow_bf16;
extern const dg_bkernels dg_bfloat_neon;

#endif
