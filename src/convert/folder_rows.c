#include "convert/folder_rows.h"
#include <float.h>
#include <math.h>
#include "tensor/narrowed.h"

void dg_fp8_row(uint8_t *out, float *scale, float *back, const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    *scale = fmaxf(most / 448, FLT_MIN); /* a row of zeros has zeros with any */
    for (size_t i = 0; i < n; i++) {
        out[i] = dg_float_to_e4m3(x[i] / *scale);
        back[i] = dg_e4m3_to_float(out[i]) * *scale;
    }
}

float dg_nvfp4_divisor(float most)
{
    return most > 0 ? fminf(448.0f * 6.0f / most, FLT_MAX) : 1;
}

static const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

/* Nearest; of two as near the even one. */
static uint8_t nearest(float x)
{
    static const float below[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    const float size = fabsf(x);
    uint8_t code = 0;
    for (int i = 0; i < 7; i++)
        code = size > below[i] || (size == below[i] && i % 2) ? (uint8_t)(i + 1) : code;
    return (uint8_t)(code | (signbit(x) ? 8 : 0));
}

/* One group with one scale; returns its squared error. */
static double try_scale(uint8_t *code, float *back, const float *x, uint8_t scale, float divisor)
{
    const float step = dg_e4m3_to_float(scale) / divisor;
    double off = 0;
    for (int i = 0; i < DG_NVFP4_GROUP; i++) {
        code[i] = step > 0 ? nearest(x[i] / step) : 0;
        back[i] = e2m1[code[i] & 7] * (code[i] & 8 ? -step : step);
        const double d = (double)back[i] - (double)x[i];
        off += d * d;
    }
    return off;
}

/* The largest value becomes 6 with the scale that it asks for, and 4 with one five numbers on. */
static uint8_t group_scale(const float *x, float divisor)
{
    enum { BEFORE = 2, BEHIND = 5, LARGEST = 0x7E };
    float most = 0, back[DG_NVFP4_GROUP];
    uint8_t code[DG_NVFP4_GROUP], best = 0;
    double least = DBL_MAX;
    for (int i = 0; i < DG_NVFP4_GROUP; i++)
        most = fmaxf(most, fabsf(x[i]));
    const int asked = dg_float_to_e4m3(most * divisor / 6);
    for (int s = asked - BEFORE; s <= asked + BEHIND; s++) {
        if (s < 0 || s > LARGEST)
            continue;
        const double off = try_scale(code, back, x, (uint8_t)s, divisor);
        if (off < least) {
            least = off;
            best = (uint8_t)s;
        }
    }
    return best;
}

void dg_nvfp4_row(uint8_t *packed, uint8_t *scale, float *back, const float *x, size_t n,
                  float divisor)
{
    uint8_t code[DG_NVFP4_GROUP];
    for (size_t at = 0; at < n; at += DG_NVFP4_GROUP) {
        const uint8_t s = group_scale(x + at, divisor);
        try_scale(code, back + at, x + at, s, divisor);
        scale[at / DG_NVFP4_GROUP] = s;
        for (size_t i = 0; i < DG_NVFP4_GROUP; i += 2)
            packed[(at + i) / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
    }
}
