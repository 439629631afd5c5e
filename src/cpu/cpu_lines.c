/* Query lines against pages of keys, in ascending position, with a running maximum: softmax in one
 * pass. A page is the unit of summation for every line, whatever lines share the task, so a line's
 * result does not depend on them. */
#include <math.h>
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_internal.h"

void dg_cpu_lines_begin(dg_cpu_lines *l)
{
    for (int i = 0; i < l->n; i++) {
        l->against[i] = -INFINITY;
        l->sum[i] = 0;
    }
    memset(l->w->out, 0, (size_t)l->n * (size_t)(l->dim + LINE_ROOM) * sizeof *l->w->out);
}

void dg_cpu_lines_score(const dg_cpu_lines *l, const dg_cpu_page *keys)
{
    for (int c = 0; c < keys->n; c += DG_PANEL) {
        int n_col = dg_min(DG_PANEL, keys->n - c);
        l->cpu->k.pack_cols[keys->type](
            l->w->panel, (const unsigned char *)keys->data + (size_t)c * keys->stride, keys->stride,
            l->dim, n_col);
        l->cpu->k.gemm_panel(&(dg_gemm_args){
            .y = l->w->score + c,
            .x = l->w->q,
            .panel = l->w->panel,
            .ldy = DG_PAGE,
            .ldx = (size_t)l->dim,
            .n_row = l->n,
            .n_k = l->dim,
            .n_col = n_col,
        });
    }
}

void dg_cpu_lines_soften(dg_cpu_lines *l, int line, int lo, int hi, int n)
{
    float *s = l->w->score + (size_t)line * DG_PAGE;
    lo = dg_max(lo, 0);
    hi = dg_min(hi, n);
    if (lo >= hi) {
        memset(s, 0, (size_t)n * sizeof *s);
        return;
    }
    float top;
    l->cpu->k.argmax(s + lo, hi - lo, &top);
    if (top > l->against[line]) {
        /* 0 for the first keys, before which it is against -infinity */
        float shrink = (float)dg_exp((double)(l->against[line] - top));
        float *out = dg_cpu_line_sums(l, line);
        for (int i = 0; i < l->dim; i++)
            out[i] *= shrink;
        l->sum[line] *= shrink;
        l->against[line] = top;
    }
    l->cpu->k.exp_shift(s + lo, s + lo, hi - lo, l->against[line]);
    memset(s, 0, (size_t)lo * sizeof *s);
    memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    l->sum[line] += l->cpu->k.sum(s + lo, hi - lo);
}

void dg_cpu_lines_add(const dg_cpu_lines *l, const dg_cpu_page *values)
{
    const size_t value_bytes = dg_dtype_size(values->type);
    for (int c = 0; c < l->dim; c += DG_PANEL) {
        int n_col = dg_min(DG_PANEL, l->dim - c);
        l->cpu->k.pack_rows[values->type](
            l->w->panel, (const unsigned char *)values->data + (size_t)c * value_bytes,
            values->stride, values->n, n_col);
        l->cpu->k.gemm_panel(&(dg_gemm_args){
            .y = l->w->out + c,
            .x = l->w->score,
            .panel = l->w->panel,
            .ldy = (size_t)(l->dim + LINE_ROOM),
            .ldx = DG_PAGE,
            .n_row = l->n,
            .n_k = values->n,
            .n_col = n_col,
            .add = true,
        });
    }
}

void dg_cpu_lines_result(const dg_cpu_lines *l, int line, float *out)
{
    const float *from = dg_cpu_line_sums(l, line);
    float scale = (float)(1 / l->sum[line]);
    for (int i = 0; i < l->dim; i++)
        out[i] = from[i] * scale;
}
