#include "model/synthetic_types.h"
#include <string.h>
#include "base/common.h"

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void put_f16(unsigned char *at, float v)
{
    uint16_t h = dg_float_to_f16(v);
    memcpy(at, &h, sizeof h);
}

/* Where a block keeps its scales, as halves, and what makes random bits beside them values around
 * zero: the second is that of the minima. */
static const struct {
    dg_dtype type;
    int at[2];
    float scale[2];
} scales[] = {
    {DG_Q8_0, {0, -1}, {2.6e-4f, 0}},       {DG_Q4_0, {0, -1}, {4.1e-3f, 0}},
    {DG_Q4_1, {0, 2}, {4.3e-3f, -3.2e-2f}}, {DG_Q5_0, {0, -1}, {2.05e-3f, 0}},
    {DG_Q5_1, {0, 2}, {2.1e-3f, -3.3e-2f}}, {DG_Q2_K, {80, 82}, {1.6e-3f, 2.4e-3f}},
    {DG_Q3_K, {108, -1}, {4.6e-4f, 0}},     {DG_Q4_K, {0, 2}, {1.0e-4f, 7.5e-4f}},
    {DG_Q5_K, {0, 2}, {4.9e-5f, 7.6e-4f}},  {DG_Q6_K, {208, -1}, {1.5e-5f, 0}},
    {DG_IQ4_NL, {0, -1}, {2.9e-4f, 0}},     {DG_IQ4_XS, {0, -1}, {1.6e-5f, 0}},
    {DG_IQ1_S, {0, -1}, {3.2e-3f, 0}},      {DG_IQ2_XXS, {0, -1}, {4.1e-4f, 0}},
    {DG_IQ2_XS, {0, -1}, {4.1e-4f, 0}},     {DG_IQ2_S, {0, -1}, {4.1e-4f, 0}},
    {DG_IQ3_XXS, {0, -1}, {1.6e-4f, 0}},    {DG_IQ3_S, {0, -1}, {1.45e-4f, 0}},
    {DG_TQ1_0, {52, -1}, {3.0e-2f, 0}},     {DG_TQ2_0, {64, -1}, {3.5e-2f, 0}},
};

/* The same of blocks made of published checkpoints' parts, which have floats. */
static const struct {
    dg_dtype type;
    float scale[2]; /* where the second is 0 there is one float */
} floats[] = {
    {DG_E4M3, {1.5e-4f, 0}},
    {DG_BYTES, {2.6e-4f, 0}},
    {DG_AFFINE4, {4.3e-3f, 3.2e-2f}},
    {DG_AFFINE8, {2.6e-4f, 1.0e-3f}},
};

/* The half of IQ1_M: four bits of it on top of each of four words. */
static void spread_half(unsigned char *words, uint16_t h)
{
    for (int k = 0; k < 4; k++)
        words[2 * k + 1] = (unsigned char)((words[2 * k + 1] & 15) | (h >> 4 * k & 15) << 4);
}

static void set_scales(unsigned char *b, dg_dtype type, uint64_t r)
{
    float jitter = 0.75f + (float)(r & 0xFF) / 512;
    for (size_t i = 0; i < DG_COUNT(scales); i++)
        for (int k = 0; k < 2 && scales[i].type == type; k++)
            if (scales[i].at[k] >= 0)
                put_f16(b + scales[i].at[k], scales[i].scale[k] * jitter);
    for (size_t i = 0; i < DG_COUNT(floats); i++)
        for (int k = 0; k < 2 && floats[i].type == type; k++) {
            const float v = floats[i].scale[k] * jitter;
            if (v != 0)
                memcpy(b + sizeof v * (size_t)k, &v, sizeof v);
        }
    for (int i = 4; i < 68 && type == DG_E4M3; i++) /* 127 stands for no number */
        b[i] = (unsigned char)(b[i] - ((b[i] & 0x7F) == 0x7F));
    if (type == DG_MXFP4)
        b[0] = (unsigned char)(119 + (r & 1)); /* a power of two */
    if (type == DG_IQ1_M)
        spread_half(b + 48, dg_float_to_f16(3.2e-3f * jitter));
    for (int i = 0; i < 64 && type == DG_TQ2_0; i++) /* 3 stands for 2: it becomes 0 */
        b[i] = (unsigned char)(b[i] & ~((b[i] & b[i] >> 1 & 0x55) << 1));
}

/* Sign and mantissa stay random; the exponent is one of the four around 2^-6. */
static void tame_halves(uint16_t *v, size_t n, dg_dtype type)
{
    for (size_t i = 0; i < n; i++) {
        unsigned r = v[i];
        r = type == DG_BF16 ? (r & 0x807F) | (119 + (r >> 7 & 3)) << 7
                            : (r & 0x83FF) | (7 + (r >> 10 & 3)) << 10;
        v[i] = (uint16_t)r;
    }
}

static void tame_floats(uint32_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (v[i] & 0x807FFFFF) | (119 + (v[i] >> 23 & 3)) << 23;
}

void dg_random_weights(void *data, dg_dtype type, size_t bytes, uint64_t seed)
{
    uint64_t state = seed, r = 0;
    unsigned char *to = data;
    for (size_t i = 0; i < bytes; i += sizeof r) {
        r = mix(&state);
        memcpy(to + i, &r, bytes - i < sizeof r ? bytes - i : sizeof r);
    }
    if (type == DG_F32)
        tame_floats(data, bytes / sizeof(float));
    if (type == DG_F16 || type == DG_BF16)
        tame_halves(data, bytes / 2, type);
    if (!dg_dtype_is_block(type))
        return;
    size_t block = dg_dtype_bytes(type, dg_dtype_block(type));
    for (size_t i = 0; i + block <= bytes; i += block)
        set_scales(to + i, type, mix(&state));
}
