#include "tensor/dtype.h"
#include <assert.h>

static const struct {
    const char *name;
    size_t size;
} info[DG_DTYPE_COUNT] = {
    [DG_F32] = {"F32", 4}, [DG_F16] = {"F16", 2}, [DG_BF16] = {"BF16", 2}, [DG_F64] = {"F64", 8},
    [DG_I64] = {"I64", 8}, [DG_I32] = {"I32", 4}, [DG_U8] = {"U8", 1},
};

const char *dg_dtype_name(dg_dtype type)
{
    return info[type].name;
}

size_t dg_dtype_size(dg_dtype type)
{
    return info[type].size;
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

void dg_widen(float *out, const void *in, dg_dtype type, size_t n)
{
    const unsigned char *src = in;
    if (type == DG_F32) {
        memcpy(out, src, n * sizeof *out);
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
