/* Words turned for the soft embedding in plain C: the definition. */
#include "cpu/kernels.h"

#define float_of_f16 dg_f16_to_float
static void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    for (int i = 0; i < 16; i++)
        out[i] = table[n[i]];
}

static void i8_turn16(int8_t *out, size_t stride, const int8_t *in)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            out[(size_t)i * stride + (size_t)j] = in[16 * j + i];
}
#include "cpu/words_body.h"

dg_qturn_fn *const dg_turn_ref[DG_DTYPE_COMPUTE] = {DG_TURN_TYPES(DG_TURN_ENTRY)};
