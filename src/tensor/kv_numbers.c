#include "tensor/kv_numbers.h"
#include <math.h>
#include "base/common.h"

/* The bits of the largest size; those of numbers that are not finite are larger. */
static uint32_t largest_of(const float *x, int n)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t mag = dg_narrowed_bits(x[i]) & 0x7FFFFFFFu;
        most = mag > most ? mag : most;
    }
    return most;
}

static void narrow_steps(uint8_t *number, uint16_t *factor, const float *x, int n)
{
    for (int at = 0; at < n; at += DG_KV_BLOCK) {
        const int end = dg_min(at + DG_KV_BLOCK, n);
        const float most = dg_narrowed_float(largest_of(x + at, end - at));
        const uint16_t bits = dg_kv_step(dg_float_to_f16(dg_kv_least_step(most)));
        const bool finite = (bits & 0x7C00u) != 0x7C00u;
        const float step = dg_f16_to_float(bits);
        for (int i = at; i < end; i++)
            number[i] = (uint8_t)(finite && step > 0 ? (int8_t)rintf(x[i] / step) : 0);
        factor[at / DG_KV_BLOCK] = finite ? bits : 0x7E00u;
    }
}

static void narrow_e4m3(uint8_t *number, uint16_t *factor, const float *x, int n)
{
    const uint32_t most = largest_of(x, n);
    const float f = dg_fp8_factor(most), per = 1 / f;
    for (int i = 0; i < n; i++)
        number[i] = most < 0x7F800000u ? dg_float_to_e4m3(x[i] * per) : 0;
    *factor = dg_float_to_bf16(f);
}

void dg_kv_narrow(dg_dtype type, uint8_t *number, uint16_t *factor, const float *x, int n)
{
    if (type == DG_Q8_0)
        narrow_steps(number, factor, x, n);
    else
        narrow_e4m3(number, factor, x, n);
}

void dg_kv_widen(dg_dtype type, float *out, const uint8_t *number, const uint16_t *factor, int n)
{
    const int block = type == DG_Q8_0 ? DG_KV_BLOCK : n;
    for (int at = 0; at < n; at += block) {
        const float f = dg_kv_factor(type, factor[at / block]);
        const int end = dg_min(at + block, n);
        if (type == DG_Q8_0)
            for (int i = at; i < end; i++)
                out[i] = dg_kv_number(DG_Q8_0, number[i]) * f;
        else
            for (int i = at; i < end; i++)
                out[i] = dg_kv_number(DG_FP8, number[i]) * f;
    }
}
