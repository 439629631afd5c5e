/* Words turned for the soft embedding, over NEON registers. */
#include "cpu/arm/kernels_neon.h"
#include "cpu/arm/lanes_neon.h"
#include "cpu/words_body.h"

dg_qturn_fn *const dg_turn_neon[DG_DTYPE_COMPUTE] = {DG_TURN_TYPES(DG_TURN_ENTRY)};
