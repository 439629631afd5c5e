/* Keys and values of a head in a byte each (--kv-type q8_0, fp8): numbers, and 16-bit factors that
 * make values of them. The definitions, for the host and for kernels alike.
 *
 * DG_Q8_0   numbers -127 ... 127; 32 values share a step, a half, as in GGUF files. It is rounded
 *           up to eight bits, which a bfloat16 has too: so kernels may multiply those. What is left
 *           of a head that 32 does not divide has a step of its own.
 * DG_FP8    E4M3 (narrowed.h); all values share a power of two, a bfloat16, that brings the largest
 *           to 224 ... 448. So a value has at most four bits: bfloat16 has it exactly.
 *
 * A head's factors follow from its own values alone. Values that are not finite make them NaN, and
 * in DG_Q8_0 those that need a step beyond the largest, 65,280: from about 8.29 million on. */
#ifndef DG_TENSOR_KV_NUMBERS_H
#define DG_TENSOR_KV_NUMBERS_H

#include "tensor/dtype.h"
#include "tensor/narrowed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DG_KV_BLOCK = 32 }; /* values that share a step of DG_Q8_0 */

DG_NARROWED bool dg_kv_in_bytes(dg_dtype type)
{
    return type == DG_Q8_0 || type == DG_FP8;
}

/* Factors of a head of n values. */
DG_NARROWED int dg_kv_factors(dg_dtype type, int n)
{
    return type == DG_Q8_0 ? (n + DG_KV_BLOCK - 1) / DG_KV_BLOCK : type == DG_FP8;
}

/* Bytes of a key, or a value, of a head of n numbers. */
DG_NARROWED size_t dg_kv_row_bytes(dg_dtype type, int n)
{
    return dg_kv_in_bytes(type) ? (size_t)n + 2 * (size_t)dg_kv_factors(type, n)
                                : (size_t)n * (type == DG_F32 ? 4 : 2);
}

/* How a canvas's own keys and values are held while it is denoised: they are never kept. */
DG_NARROWED dg_dtype dg_kv_canvas_type(dg_dtype type)
{
    return type == DG_F32 ? DG_F32 : DG_BF16;
}

/* What a step of DG_Q8_0 is made of, given the largest size: rounded to the nearest half, and on by
 * dg_kv_step. The smallest halves have so few bits that the nearest may be much too small: half of
 * their unit more makes it the next above, so that no number is beyond 127. */
DG_NARROWED float dg_kv_least_step(float largest)
{
    return largest / 127 + 0x1p-25f;
}

/* A step of DG_Q8_0: the next half from these bits on that a bfloat16 has, too. */
DG_NARROWED uint16_t dg_kv_step(uint32_t half)
{
    return (uint16_t)((half + 7u) & 0xFFF8u);
}

/* What a number is before its factor. 0x7F, which E4M3 calls NaN, is never stored. */
DG_NARROWED float dg_kv_number(dg_dtype type, uint8_t b)
{
    if (type == DG_Q8_0)
        return (float)(int8_t)b;
    /* the exponent's bias is 7 here and 127 there; a product is right for subnormals too */
    return dg_narrowed_float((uint32_t)(b & 0x7Fu) << 20 | (uint32_t)(b & 0x80u) << 24) * 0x1p120f;
}

/* A factor from its bits. A step is no negative half, and 0x7E00 where it is NaN. */
DG_NARROWED float dg_kv_factor(dg_dtype type, uint16_t bits)
{
    if (type != DG_Q8_0)
        return dg_narrowed_float((uint32_t)bits << 16);
    return bits < 0x7C00u ? dg_narrowed_float((uint32_t)bits << 13) * 0x1p112f
                          : dg_narrowed_float(0x7FC00000u);
}

/* A head of n values to numbers and factors, and back. */
void dg_kv_narrow(dg_dtype type, uint8_t *number, uint16_t *factor, const float *x, int n);
void dg_kv_widen(dg_dtype type, float *out, const uint8_t *number, const uint16_t *factor, int n);

#ifdef __cplusplus
}
#endif

#endif
