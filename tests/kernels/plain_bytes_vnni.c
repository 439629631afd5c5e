/* The product of bytes with AVX-512 VNNI, its instructions in plain C: what it does is checked
 * everywhere.
 */
#define DG_PLAIN_LANES 1
#define dg_bytes_vnni  check_plain_bytes_vnni
#include "kernels/check.h"
#include "kernels/lanes_plain.h"
#include "cpu/x86/bytes_vnni.c"
