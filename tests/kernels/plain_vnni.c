/* The product with AVX-512 VNNI, its instructions in plain C: what it does is checked everywhere.
 */
#define DG_PLAIN_LANES    1
#define dg_quantised_vnni check_plain_vnni
#include "kernels/check.h"
#include "kernels/lanes_plain.h"
#include "cpu/x86/quantised_vnni.c"
