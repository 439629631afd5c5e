/* The product of bytes with AMX, its instructions in plain C: what it does is checked everywhere.
 */
#define DG_PLAIN_LANES 1
#define dg_bytes_amx   check_plain_bytes_amx
#include "kernels/check.h"
#include "kernels/lanes_plain.h"
#include "kernels/tiles_plain.h"
#include "cpu/x86/bytes_amx.c"
