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
        out->bias[which][i] = -128 * sum[i];
    }
}

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b++)
        set_block(&out[b], which, x + b * DG_QBLOCK);
}

static void set_super(dg_qsuper *out, int which, const float x[DG_QSLICE])
{
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < DG_QSLICE; i++) {
        finite &= (bool)isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    bool some = finite && largest >= 0x1p-100f;
    float inverse = some ? 127 / largest : 0;
    int sum[DG_QGROUPS] = {0};
    for (int i = 0; i < DG_QSLICE; i++) {
        int n = some ? (int)rintf(x[i] * inverse) : 0;
        out->n[i / 8][which][i % 8] = (int8_t)n;
        sum[i / 16] += n;
    }
    dg_qsuper_sums(out, which, sum, some ? largest / 127 : finite ? 0 : NAN);
}

static void quantise_super(dg_qpair *out, int which, const float *x, int n_block)
{
    for (int b = 0; b < n_block; b += DG_QBLOCKS, out += DG_QSUPER)
        set_super((dg_qsuper *)out, which, x + b * DG_QBLOCK);
}

/* ---- weights ---- */

static void pack_super(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_numbers_fn *row)
{
    for (int c = 0; c < a->n_col; c++) {
        const uint8_t *from = (const uint8_t *)a->src + (size_t)c * a->stride;
        dg_numbers w = {0};
        dg_scales s = {0};
        row(&w, from, DG_QSLICE);
        scales_of_type(&s, type, from);
        memcpy(panel->n + c * DG_QSLICE, w.n, sizeof w.n);
        memcpy(panel->less + c * DG_QGROUPS, s.less, sizeof s.less);
        for (int g = 0; g < DG_QGROUPS; g++)
            panel->times[c * DG_QGROUPS + g] = s.times[g];
        panel->step[c] = s.step * a->scale;
        panel->least[c] = s.least * a->scale;
    }
}

static void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                       dg_numbers_fn *row)
{
    if (dg_qkind_super(kind)) {
        panel->kind = kind;
        pack_super(panel, a, type, row);
        return;
    }
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
static int half_sum(const int8_t (*x)[2][8], int which, const uint8_t *n, int half)
{
    int sum = 0;
    for (int i = 16 * half; i < 16 * half + 16; i++)
        sum += x[i / 8][which][i % 8] * (int8_t)n[i];
    return sum;
}

/* One block of one row and one column: numbers n, step and least value(s) from `step` and `least`
 * on. */
static float add_block(float y, const dg_qpair *x, int which, const dg_qpanel *p, int at, int g)
{
    float t0 = (float)half_sum(x->n, which, p->n + at, 0),
          t1 = (float)half_sum(x->n, which, p->n + at, 1);
    const float *w = p->step + g;
    float t = group_of(p->kind) == 16 ? fmaf(t1, w[1], t0 * w[0]) : (t0 + t1) * w[0];
    y = fmaf(t, x->step[which][0], y);
    return p->kind == DG_Q_LEAST ? fmaf(-p->least[g], x->sum[which][0], y) : y;
}

/* One super-block of one row and column c. */
static float add_super(float y, const dg_qsuper *x, int which, const dg_qpanel *p, int c)
{
    const int per = group_of(p->kind) / 16, sums = per == 2 ? 0 : 1;
    int32_t product = 0, least = 0;
    for (int i = 0; i < DG_QGROUPS; i++) {
        int times = p->times[c * DG_QGROUPS + i / per];
        product += half_sum(x->n, which, p->n + c * DG_QSLICE, i) * times;
    }
    for (int g = 0; g < DG_QGROUPS / per && has_least(p->kind); g++) {
        int high = x->high[sums + g / 8][which][g % 8], low = x->low[sums + g / 8][which][g % 8];
        least += (64 * high + low) * p->less[c * DG_QGROUPS + g];
    }
    float t = (float)product * p->step[c];
    if (has_least(p->kind))
        t = fmaf(-(float)least, p->least[c], t);
    return fmaf(t, x->step[which][0], y);
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
            for (int b = 0; b < a->n_block && !dg_qkind_super(p->kind); b++)
                sum = add_block(sum, &x[b], row % 2, p, c * DG_QSLICE + b * DG_QBLOCK,
                                c * DG_QGROUPS + b * per_block);
            *y =
                dg_qkind_super(p->kind) ? add_super(sum, (const dg_qsuper *)x, row % 2, p, c) : sum;
        }
}

const dg_qkernels dg_quantised_ref = {
    .quantise = quantise,
    .quantise_super = quantise_super,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
