/* dg_bwiden_fn for lines of LINE numbers. */
#include "tensor/kv_numbers.h"

/* A NaN, which is 0x7FC00000 here, stays one. */
static inline uint16_t nearest_bfloat(float f)
{
    const uint32_t bits = dg_narrowed_bits(f);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

static void widen_lines(uint16_t *restrict out, const uint8_t *restrict in, dg_dtype type,
                        const float *restrict factor, size_t stride, int n)
{
    for (; n > 0; n--, out += stride, in += stride)
        if (type == DG_Q8_0)
            for (int i = 0; i < LINE; i++)
                out[i] = nearest_bfloat(dg_kv_number(DG_Q8_0, in[i]) * factor[i]);
        else
            for (int i = 0; i < LINE; i++) /* exact: the other bits are 0 */
                out[i] =
                    (uint16_t)(dg_narrowed_bits(dg_kv_number(DG_FP8, in[i]) * factor[i]) >> 16);
}
