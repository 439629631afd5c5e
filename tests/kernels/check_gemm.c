#include "kernels/check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Operands of one product; the floats between the rows of y belong to nobody. */
typedef struct product {
    dg_gemm_args a; /* with y = NULL */
    const float *y; /* what stands in y before */
    int y_count;
} product;

static product make_product(check *c, int n_row, int n_k, int n_col, bool add)
{
    const int ldx = n_k + check_int(c, 0, 9), ldy = n_col + check_int(c, 0, 9);
    product p = {.y_count = (n_row - 1) * ldy + n_col};
    float *panel = check_normal(c, n_k * DG_PANEL, 1);
    for (int k = 0; k < n_k; k++)
        memset(panel + k * DG_PANEL + n_col, 0, (size_t)(DG_PANEL - n_col) * sizeof *panel);
    p.y = check_normal(c, p.y_count, 1);
    p.a = (dg_gemm_args){.x = check_normal(c, (n_row - 1) * ldx + n_k, 1),
                         .panel = panel,
                         .ldx = (size_t)ldx,
                         .ldy = (size_t)ldy,
                         .n_row = n_row,
                         .n_k = n_k,
                         .n_col = n_col,
                         .add = add};
    return p;
}

static float *run(check *c, dg_gemm_panel_fn *gemm, const product *p)
{
    dg_gemm_args a = p->a;
    a.y = check_copy(c, p->y, p->y_count);
    gemm(&a);
    return a.y;
}

/* The chain of fused multiply-adds that every fast version promises, and sum |x| |panel| beside it;
 * both equal p->y between the rows. */
static float *chains(check *c, const product *p, float *size)
{
    const dg_gemm_args *a = &p->a;
    float *y = check_copy(c, p->y, p->y_count);
    memset(size, 0, (size_t)p->y_count * sizeof *size);
    for (int r = 0; r < a->n_row; r++)
        for (int col = 0; col < a->n_col; col++) {
            size_t at = (size_t)r * a->ldy + (size_t)col;
            float sum = a->add ? y[at] : 0;
            double total = fabs((double)sum);
            for (int k = 0; k < a->n_k; k++) {
                float x = a->x[(size_t)r * a->ldx + (size_t)k], w = a->panel[k * DG_PANEL + col];
                sum = fmaf(x, w, sum);
                total += fabs((double)x * (double)w);
            }
            y[at] = sum;
            size[at] = (float)total;
        }
    return y;
}

/* The first k in one call, the rest added in a second one. */
static float *run_split(check *c, const product *p)
{
    dg_gemm_args a = p->a;
    const int first = check_int(c, 1, a.n_k - 1);
    a.y = check_copy(c, p->y, p->y_count);
    a.n_k = first;
    c->opt->gemm_panel(&a);
    a.n_k = p->a.n_k - first;
    a.x += first;
    a.panel += first * DG_PANEL;
    a.add = true;
    c->opt->gemm_panel(&a);
    return a.y;
}

static void check_product(check *c, int n_row, int n_k, int n_col, bool add)
{
    product p = make_product(c, n_row, n_k, n_col, add);
    float *size = check_floats(c, p.y_count);
    const float *chain = chains(c, &p, size);
    const float *got = run(c, c->opt->gemm_panel, &p);

    /* n_k roundings, each at most half a unit of a partial sum that is no larger than size */
    check_close(c, got, run(c, c->ref->gemm_panel, &p), p.y_count,
                (check_tol){.abs = (n_k + 1) * 0x1p-24, .size = size});
    check_same(c, "a chain of fmaf", got, chain, p.y_count);
    if (n_k > 1)
        check_same(c, "k in two parts", run_split(c, &p), chain, p.y_count);

    /* A row by itself, and a column by itself. */
    product one = p;
    const int r = check_int(c, 0, n_row - 1);
    one.a.n_row = 1;
    one.a.x += (size_t)r * p.a.ldx;
    one.y += (size_t)r * p.a.ldy;
    one.y_count = n_col;
    const float *row = run(c, c->opt->gemm_panel, &one);
    check_same(c, "a row alone", row, chain + (size_t)r * p.a.ldy, n_col);
    one.a.n_col = one.y_count = 1;
    check_same(c, "a column alone", run(c, c->opt->gemm_panel, &one), row, 1);
    check_release(c);
}

static void bench(check *c)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 8, 16, 64, 256, 512};
    enum { N_K = 256, WIDTH = 2816 };
    for (size_t i = 0; i < DG_COUNT(rows); i++) {
        const int n = (rows[i] - 1) * WIDTH;
        char label[32];
        snprintf(label, sizeof label, "n_row %d", rows[i]);
        dg_gemm_args a = {.y = check_normal(c, n + DG_PANEL, 1),
                          .x = check_normal(c, n + N_K, 1),
                          .panel = check_normal(c, N_K * DG_PANEL, 1),
                          .ldx = WIDTH,
                          .ldy = WIDTH,
                          .n_row = rows[i],
                          .n_k = N_K,
                          .n_col = DG_PANEL};
        BENCH(c, label, 2.0 * rows[i] * N_K * DG_PANEL, "GFLOP/s") c->opt->gemm_panel(&a);
        check_release(c);
    }
}

void check_gemm(check *c)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 32};
    static const int depths[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 64, 257};
    check_begin(c, "gemm_panel");
    for (size_t i = 0; i < DG_COUNT(rows); i++)
        for (size_t j = 0; j < DG_COUNT(depths); j++) {
            check_product(c, rows[i], depths[j], DG_PANEL, true);
            check_product(c, rows[i], depths[j], check_int(c, 1, DG_PANEL), false);
        }
    for (int n_col = 1; n_col <= DG_PANEL; n_col++)
        check_product(c, 7, 37, n_col, true);
    if (c->bench)
        bench(c);
    check_end(c);
}
