/* The product of bfloat16 numbers with AMX, its instructions in plain C. */
#define DG_PLAIN_LANES 1
#define dg_bfloat_amx  check_plain_bfloat
#include "kernels/check.h"
#include "kernels/lanes_plain.h"
#include "kernels/tiles_plain.h"
#include "cpu/x86/bfloat_amx.c"
