#include "tensor/dtype.h"
#include <assert.h>
#include "tensor/blocks.h"
#include "tensor/narrowed.h"

static const struct {
    const char *name;
    size_t block, bytes; /* elements of a block, and what it takes */
} info[DG_DTYPE_COUNT] = {
    [DG_F32] = {"F32", 1, 4},
    [DG_F16] = {"F16", 1, 2},
    [DG_BF16] = {"BF16", 1, 2},
    [DG_Q8_0] = {"Q8_0", 32, 34},
    [DG_Q4_0] = {"Q4_0", 32, 18},
    [DG_Q4_1] = {"Q4_1", 32, 20},
    [DG_Q5_0] = {"Q5_0", 32, 22},
    [DG_Q5_1] = {"Q5_1", 32, 24},
    [DG_Q2_K] = {"Q2_K", 256, 84},
    [DG_Q3_K] = {"Q3_K", 256, 110},
    [DG_Q4_K] = {"Q4_K", 256, 144},
    [DG_Q5_K] = {"Q5_K", 256, 176},
    [DG_Q6_K] = {"Q6_K", 256, 210},
    [DG_IQ4_NL] = {"IQ4_NL", 32, 18},
    [DG_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DG_MXFP4] = {"MXFP4", 32, 17},
    [DG_NVFP4] = {"NVFP4", 64, 36},
    [DG_IQ1_S] = {"IQ1_S", 256, 50},
    [DG_IQ1_M] = {"IQ1_M", 256, 56},
    [DG_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [DG_IQ2_XS] = {"IQ2_XS", 256, 74},
    [DG_IQ2_S] = {"IQ2_S", 256, 82},
    [DG_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [DG_IQ3_S] = {"IQ3_S", 256, 110},
    [DG_TQ1_0] = {"TQ1_0", 256, 54},
    [DG_TQ2_0] = {"TQ2_0", 256, 66},
    [DG_E4M3] = {"E4M3", 64, 68},
    [DG_BYTES] = {"BYTES", 64, 68},
    [DG_AFFINE4] = {"AFFINE4", 32, 24},
    [DG_AFFINE8] = {"AFFINE8", 32, 40},
    [DG_F64] = {"F64", 1, 8},
    [DG_I64] = {"I64", 1, 8},
    [DG_I32] = {"I32", 1, 4},
    [DG_I16] = {"I16", 1, 2},
    [DG_I8] = {"I8", 1, 1},
    [DG_U64] = {"U64", 1, 8},
    [DG_U32] = {"U32", 1, 4},
    [DG_U16] = {"U16", 1, 2},
    [DG_U8] = {"U8", 1, 1},
    [DG_F8_E4M3] = {"F8_E4M3", 1, 1},
    [DG_F8_E5M2] = {"F8_E5M2", 1, 1},
    [DG_F8_E8M0] = {"F8_E8M0", 1, 1},
    [DG_FP8] = {"FP8", 1, 1},
    [DG_INT4] = {"INT4", DG_INT4_VALUES, DG_INT4_BYTES},
};

const char *dg_dtype_name(dg_dtype type)
{
    return info[type].name;
}

size_t dg_dtype_block(dg_dtype type)
{
    return info[type].block;
}

size_t dg_dtype_size(dg_dtype type)
{
    assert(info[type].block == 1);
    return info[type].bytes;
}

size_t dg_dtype_bytes(dg_dtype type, size_t n)
{
    assert(n % info[type].block == 0);
    return n / info[type].block * info[type].bytes;
}

float dg_f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 0x1Fu, frac = h & 0x3FFu;
    uint32_t bits;
    if (exp == 0x1F)
        bits = 0x7F800000u | frac << 13;
    else if (exp)
        bits = (exp + 112) << 23 | frac << 13;
    else {
        /* zero or subnormal: frac * 2^-24 is exact */
        float f = (float)frac * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
    }
    bits |= sign;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t dg_float_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t mag = bits & 0x7FFFFFFFu;
    if (mag > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (mag >= 0x477FF000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (mag < 0x38800000u) { /* below 2^-14: a subnormal, in units of 2^-24 */
        float m;
        memcpy(&m, &mag, sizeof m);
        m += 0.5f; /* one unit in the last place of [0.5, 1) is 2^-24: the addition rounds for us */
        memcpy(&mag, &m, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3F000000u));
    }
    mag += 0xFFFu + (mag >> 13 & 1u);
    return (uint16_t)(sign | ((mag >> 13) - (112u << 10)));
}

static void widen_narrowed(float *out, const unsigned char *in, dg_dtype type, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char *block = in + i / DG_INT4_VALUES * DG_INT4_BYTES;
        out[i] = type == DG_FP8
                     ? dg_e4m3_to_float(in[i])
                     : (float)dg_int4_at(block, (int)(i % DG_INT4_VALUES)) * dg_int4_step(block);
    }
}

void dg_widen(float *out, const void *in, dg_dtype type, size_t n)
{
    const unsigned char *src = in;
    if (type == DG_F32) {
        memcpy(out, src, n * sizeof *out);
        return;
    }
    if (dg_dtype_is_block(type)) {
        dg_blocks_widen(out, src, type, n);
        return;
    }
    if (type >= DG_DTYPE_FILE) {
        widen_narrowed(out, src, type, n);
        return;
    }
    assert(type == DG_F16 || type == DG_BF16);
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, src + 2 * i, sizeof bits);
        out[i] = type == DG_BF16 ? dg_bf16_to_float(bits) : dg_f16_to_float(bits);
    }
}

void dg_narrow(void *out, dg_dtype type, const float *in, size_t n)
{
    unsigned char *dst = out;
    if (type == DG_F32) {
        memcpy(dst, in, n * sizeof *in);
        return;
    }
    assert(type == DG_F16 || type == DG_BF16);
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = type == DG_BF16 ? dg_float_to_bf16(in[i]) : dg_float_to_f16(in[i]);
        memcpy(dst + 2 * i, &bits, sizeof bits);
    }
}
