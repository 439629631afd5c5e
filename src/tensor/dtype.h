/* Element types of stored tensors and their conversion to and from float. Each conversion here is
 * the definition; faster ones are checked against it. */
#ifndef DG_TENSOR_DTYPE_H
#define DG_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum dg_dtype {
    DG_F32,
    DG_F16,
    DG_BF16,
    DG_DTYPE_COMPUTE, /* types below this one can be weights, keys or values */

    /* only seen in traces and index tensors */
    DG_F64 = DG_DTYPE_COMPUTE,
    DG_I64,
    DG_I32,
    DG_U8,
    DG_DTYPE_COUNT
} dg_dtype;

const char *dg_dtype_name(dg_dtype type); /* "F32", as safetensors writes it */
size_t dg_dtype_size(dg_dtype type);      /* bytes of one element */

static inline float dg_bf16_to_float(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t dg_float_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float dg_f16_to_float(uint16_t h);
uint16_t dg_float_to_f16(float f); /* nearest, ties to even; overflow gives infinity */

/* n elements of a compute type to floats, and back. No alignment is needed. */
void dg_widen(float *out, const void *in, dg_dtype type, size_t n);
void dg_narrow(void *out, dg_dtype type, const float *in, size_t n);

#endif
