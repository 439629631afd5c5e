/* Element types of stored tensors and their conversion to and from float. Each conversion here and
 * in blocks.h is the definition; faster ones are checked against it. */
#ifndef DG_TENSOR_DTYPE_H
#define DG_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dg_dtype {
    DG_F32,
    DG_F16,
    DG_BF16,
    DG_DTYPE_FLOAT, /* types below this one store each value by itself: weights, keys or values */

    /* blocks of GGUF files, for weights only: runs of a row that share their scales */
    DG_Q8_0 = DG_DTYPE_FLOAT,
    DG_Q4_0,
    DG_Q4_1,
    DG_Q5_0,
    DG_Q5_1,
    DG_Q2_K,
    DG_Q3_K,
    DG_Q4_K,
    DG_Q5_K,
    DG_Q6_K,
    DG_IQ4_NL,
    DG_IQ4_XS,
    DG_MXFP4,
    DG_NVFP4,
    DG_IQ1_S,
    DG_IQ1_M,
    DG_IQ2_XXS,
    DG_IQ2_XS,
    DG_IQ2_S,
    DG_IQ3_XXS,
    DG_IQ3_S,
    DG_TQ1_0,
    DG_TQ2_0,
    DG_DTYPE_GGUF, /* types below this one can be in GGUF files */

    /* blocks that are made of published checkpoints' parts: see matrix_pieces.h */
    DG_E4M3 = DG_DTYPE_GGUF,
    DG_BYTES,
    DG_AFFINE4,
    DG_AFFINE8,
    DG_DTYPE_COMPUTE, /* types below this one can be weights */

    /* only seen in traces, index tensors and parts of quantised matrices */
    DG_F64 = DG_DTYPE_COMPUTE,
    DG_I64,
    DG_I32,
    DG_I16,
    DG_I8,
    DG_U64,
    DG_U32,
    DG_U16,
    DG_U8,
    DG_F8_E4M3,
    DG_F8_E5M2,
    DG_F8_E8M0,
    DG_DTYPE_FILE, /* types below this one can be in files */

    /* weights made narrower when a device loads them: see narrowed.h */
    DG_FP8 = DG_DTYPE_FILE,
    DG_INT4,
    DG_DTYPE_COUNT
} dg_dtype;

const char *dg_dtype_name(dg_dtype type); /* "F32", as safetensors and GGUF tools write it */

static inline bool dg_dtype_is_block(dg_dtype type)
{
    return type >= DG_DTYPE_FLOAT && type < DG_DTYPE_COMPUTE;
}

/* Elements that are stored together: 1, or 32, 64, 256 for a block type. All divide 256. */
size_t dg_dtype_block(dg_dtype type);

/* Bytes of one element; not for block types. */
size_t dg_dtype_size(dg_dtype type);

/* Bytes of n elements, n a multiple of the block. The caller knows that it fits a size_t. */
size_t dg_dtype_bytes(dg_dtype type, size_t n);

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

/* n elements of a compute type or one made when loading, a multiple of its block, to floats; and
 * back, to a float type. No alignment is needed. */
void dg_widen(float *out, const void *in, dg_dtype type, size_t n);
void dg_narrow(void *out, dg_dtype type, const float *in, size_t n);

#ifdef __cplusplus
}
#endif

#endif
