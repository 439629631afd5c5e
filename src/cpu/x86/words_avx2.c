/* Words turned for the soft embedding, over AVX2 registers. */
#include "cpu/x86/kernels_avx2.h"
#include "cpu/x86/lanes_avx2.h"
#include "cpu/words_body.h"

dg_qturn_fn *const dg_turn_avx2[DG_DTYPE_COMPUTE] = {DG_TURN_TYPES(DG_TURN_ENTRY)};
