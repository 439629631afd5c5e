/* The product of floats with AVX-512, its instructions in plain C. */
#define DG_PLAIN_LANES     1
#define dg_gemm_panel_vnni check_plain_gemm
#include "kernels/check.h"
#include "kernels/lanes_plain.h"
#include "cpu/x86/gemm_vnni.c"
