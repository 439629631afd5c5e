/* Products on quantised weights in plain C: the definition. A panel holds column after column, its
 * numbers as they come, steps and least values by group. */
#include <math.h>
#include "base/common.h"
#include "cpu/quantised.h"

#define float_of_f16 dg_f16_to_float
static void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    for (int i = 0; i < 16; i++)
        out[i] = table[n[i]];
}
#include "cpu/numbers_body.h"

/* ---- activations ---- */

static void set_block(dg_qpair *out, int which, const float x[DG_QBLOCK])
{
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < DG_QBLOCK; i++) {
        finite &= (bool)isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    bool some = finite && largest >= 0x1p-100f;
    float inverse = some ? 127 / largest : 0, step = some ? largest / 127 : finite ? 0 : NAN;
    int sum[2] = {0, 0};
    for (int i = 0; i < DG_QBLOCK; i++) {
        int n = some ? (int)rintf(x[i] * inverse) : 0;
        out->n[i / 8][which][i % 8] = (int8_t)n;
        sum[i / 16] += n;
    }
    for (int i = 0; i < 2; i++) {
        out->step[which][i] = step;
        out->sum[which][i] = step * (float)(sum[0] + sum[1]);
        out->half_sum[which][i] = step * (float)sum[i];
        out->bias[which][i] = -128 * sum[i];
    }
}

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b++)
        set_block(&out[b], which, x + b * DG_QBLOCK);
}

/* ---- weights ---- */

static void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    int n_value = a->n_block * DG_QBLOCK;
    panel->kind = kind;
    for (int c = 0; c < a->n_col; c++) {
        dg_numbers w = {0};
        row(&w, (const uint8_t *)a->src + (size_t)c * a->stride, n_value);
        memcpy(panel->n + c * DG_QSLICE, w.n, sizeof w.n);
        for (int g = 0; g < DG_QGROUPS; g++) {
            panel->step[c * DG_QGROUPS + g] = w.step[g] * a->scale;
            panel->least[c * DG_QGROUPS + g] = w.least[g] * a->scale;
        }
    }
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- the product ---- */

/* The sum of sixteen products. */
static float half_sum(const dg_qpair *x, int which, const uint8_t *n, int half)
{
    int sum = 0;
    for (int i = 16 * half; i < 16 * half + 16; i++)
        sum += x->n[i / 8][which][i % 8] * (int8_t)n[i];
    return (float)sum;
}

/* One block of one row and one column: numbers n, step and least value(s) from `step` and `least`
 * on. */
static float add_block(float y, const dg_qpair *x, int which, const dg_qpanel *p, int at, int g)
{
    float t0 = half_sum(x, which, p->n + at, 0), t1 = half_sum(x, which, p->n + at, 1);
    const float *w = p->step + g, *least = p->least + g;
    bool halves = group_of(p->kind) == 16;
    float t = halves ? fmaf(t1, w[1], t0 * w[0]) : (t0 + t1) * w[0];
    y = fmaf(t, x->step[which][0], y);
    if (p->kind == DG_Q_LEAST)
        y = fmaf(-least[0], x->sum[which][0], y);
    for (int i = 0; i < 2 && p->kind == DG_Q_HALVES_LEAST; i++)
        y = fmaf(-least[i], x->half_sum[which][i], y);
    return y;
}

static void gemm(const dg_qgemm_args *a)
{
    const dg_qpanel *p = a->panel;
    int per_block = DG_QBLOCK / group_of(p->kind);
    for (int i = 0; i < a->n_row; i++)
        for (int c = 0; c < a->n_col; c++) {
            int row = a->first_row + i;
            const dg_qpair *x = a->x + (size_t)(row / 2) * a->ldx;
            float *y = a->y + (size_t)i * a->ldy + c, sum = a->add ? *y : 0;
            for (int b = 0; b < a->n_block; b++)
                sum = add_block(sum, &x[b], row % 2, p, c * DG_QSLICE + b * DG_QBLOCK,
                                c * DG_QGROUPS + b * per_block);
            *y = sum;
        }
}

const dg_qkernels dg_quantised_ref = {
    .quantise = quantise,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
