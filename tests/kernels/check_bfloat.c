/* Products of bfloat16 numbers against the true ones. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/check.h"
#include "tensor/kv_numbers.h"

enum { MOST_PARTS = 4 };

typedef struct product {
    const uint16_t *x, *w; /* [n_row][ldx], [n_col][ldw] or, by rows, [n_k][ldw] */
    const float *y;        /* what stands there before */
    int n_row, n_k, n_col, ldx, ldw, ldy;
    int part_k; /* values along k of which panels lie together */
    bool add, by_rows;
} product;

static int y_count(const product *p)
{
    return (p->n_row - 1) * p->ldy + p->n_col;
}

static uint16_t *numbers(check *c, int n)
{
    uint16_t *out = check_bytes(c, (size_t)n * sizeof *out);
    c->ref->narrow[DG_BF16](out, check_normal(c, n, 1), n);
    return out;
}

static product make_product(check *c, int n_row, int n_k, int n_col)
{
    const int step = c->opt->b->step, padded = dg_ceil_div(n_k, step) * step;
    product p = {.n_row = n_row,
                 .n_k = n_k,
                 .n_col = n_col,
                 .ldx = padded + check_int(c, 0, 5),
                 .add = check_int(c, 0, 1),
                 .by_rows = check_int(c, 0, 1)};
    p.part_k = dg_ceil_div(padded, step * check_int(c, 1, MOST_PARTS)) * step;
    p.ldw = (p.by_rows ? n_col : n_k) + check_int(c, 0, 5);
    p.ldy = n_col + check_int(c, 0, 5);
    uint16_t *x = numbers(c, n_row * p.ldx);
    for (int r = 0; r < n_row; r++)
        memset(x + r * p.ldx + n_k, 0, (size_t)(padded - n_k) * sizeof *x);
    p.x = x;
    p.w = numbers(c, (p.by_rows ? n_k : n_col) * p.ldw);
    p.y = check_normal(c, y_count(&p), 1);
    return p;
}

/* Rows of x as the kernels take them. */
static uint16_t *placed(check *c, const product *p)
{
    const dg_bkernels *b = c->opt->b;
    const int padded = dg_ceil_div(p->n_k, b->step) * b->step;
    uint16_t *x = check_bytes(c, (size_t)((p->n_row + b->rows) * p->ldx) * sizeof *x);
    for (int r = 0; r < p->n_row; r++)
        b->place(x + (r - r % b->rows) * p->ldx, r % b->rows, p->x + r * p->ldx, padded);
    return x;
}

/* Columns [col, col + n) of a part of the weights, values along k from k on, as a panel. */
static void pack(const check *c, uint16_t *panel, const product *p, int k, int col)
{
    const size_t at = (size_t)(p->by_rows ? k * p->ldw + col : col * p->ldw + k);
    (p->by_rows ? c->opt->b->pack_rows : c->opt->b->pack_cols)(
        panel, p->w + at, (size_t)p->ldw * sizeof *p->w, dg_min(p->part_k, p->n_k - k),
        dg_min(DG_PANEL, p->n_col - col));
}

/* Panels of columns [first, end), values along k from k on. */
static const uint16_t *panels(check *c, const product *p, int k, int first, int end)
{
    const int here = dg_ceil_div(dg_min(p->part_k, p->n_k - k), c->opt->b->step) * c->opt->b->step;
    const size_t next = (size_t)(p->part_k * DG_PANEL),
                 n = (size_t)dg_ceil_div(end - first, DG_PANEL);
    uint16_t *w = check_bytes(c, ((n - 1) * next + (size_t)(here * DG_PANEL)) * sizeof *w);
    for (int col = first; col < end; col += DG_PANEL)
        pack(c, w + (size_t)((col - first) / DG_PANEL) * next, p, k, col);
    return w;
}

static float *multiply(check *c, const product *p, const uint16_t *const *part, int part_col)
{
    float *y = check_copy(c, p->y, y_count(p));
    c->opt->b->gemm(&(dg_bgemm_args){
        .y = y,
        .x = placed(c, p),
        .part = part,
        .ldy = (size_t)p->ldy,
        .ldx = (size_t)p->ldx,
        .next = (size_t)(p->part_k * DG_PANEL),
        .n_row = p->n_row,
        .n_k = p->n_k,
        .part_k = p->part_k,
        .n_col = p->n_col,
        .part_col = part_col,
        .add = p->add,
    });
    return y;
}

static float *run(check *c, const product *p)
{
    const uint16_t *part[MOST_PARTS];
    for (int k = 0; k < p->n_k; k += p->part_k)
        part[k / p->part_k] = panels(c, p, k, 0, p->n_col);
    return multiply(c, p, part, 0);
}

/* The same with weights in parts of some columns. */
static float *run_columns(check *c, const product *p)
{
    const int two = 2 * DG_PANEL,
              part_col = dg_ceil_div(p->n_col, two * check_int(c, 1, MOST_PARTS)) * two;
    const uint16_t *part[MOST_PARTS];
    product whole = *p;
    whole.part_k = dg_ceil_div(p->n_k, c->opt->b->step) * c->opt->b->step;
    for (int col = 0; col < p->n_col; col += part_col)
        part[col / part_col] = panels(c, &whole, 0, col, dg_min(col + part_col, p->n_col));
    return multiply(c, &whole, part, part_col);
}

static double value(const check *c, uint16_t bits)
{
    float f;
    c->ref->widen[DG_BF16](&f, &bits, 1);
    return (double)f;
}

/* In double, and the sum of magnitudes. */
static float *true_product(check *c, const product *p, float *size)
{
    float *y = check_copy(c, p->y, y_count(p));
    memset(size, 0, (size_t)y_count(p) * sizeof *size);
    for (int r = 0; r < p->n_row; r++)
        for (int col = 0; col < p->n_col; col++) {
            const int at = r * p->ldy + col;
            double sum = p->add ? (double)y[at] : 0, total = fabs(sum);
            for (int k = 0; k < p->n_k; k++) {
                double t = value(c, p->x[r * p->ldx + k]) *
                           value(c, p->w[p->by_rows ? k * p->ldw + col : col * p->ldw + k]);
                sum += t;
                total += fabs(t);
            }
            y[at] = (float)sum;
            size[at] = (float)total;
        }
    return y;
}

static void check_product(check *c, int n_row, int n_k, int n_col)
{
    product p = make_product(c, n_row, n_k, n_col);
    float *size = check_floats(c, y_count(&p));
    const float *want = true_product(c, &p, size), *got = run(c, &p);
    check_close(c, got, want, y_count(&p),
                (check_tol){.abs = (n_k + 2) * DG_BFLOAT_LOSS, .size = size});
    const float *columns = run_columns(c, &p);
    for (int r = 0; r < n_row; r++)
        check_same(c, "weights by columns", columns + r * p.ldy, got + r * p.ldy, n_col);

    /* A row by itself, and a column by itself. */
    product one = p;
    const int r = check_int(c, 0, n_row - 1);
    one.n_row = 1;
    one.x += r * p.ldx;
    one.y += r * p.ldy;
    const float *row = run(c, &one);
    check_same(c, "a row alone", row, got + r * p.ldy, n_col);
    one.n_col = 1;
    check_same(c, "a column alone", run(c, &one), row, 1);
    check_release(c);
}

static void check_shares(check *c, int n)
{
    float *z = check_normal(c, n, 40), top = -INFINITY;
    uint16_t *share = check_bytes(c, (size_t)n * sizeof *share);
    double sum = 0;
    for (int i = 0; i < n; i++)
        top = z[i] > top ? z[i] : top;
    if (memcmp(&(float){c->opt->b->largest(z, n)}, &top, sizeof top) != 0)
        check_fail(c, "the largest of %d is another", n);
    top -= (float)check_int(c, 0, (int)c->opt->b->slack);
    const double got = (double)c->opt->b->shares(share, z, n, top);
    for (int i = 0; i < n; i++) {
        const double want = exp((double)z[i] - (double)top), is = value(c, share[i]);
        if (fabs(is - want) > DG_SHARE_LOSS * want + 0x1p-126)
            check_fail(c, "exp(%g) became %g", (double)z[i] - (double)top, is);
        sum += is;
    }
    if (fabs(got - sum) > 1e-5 * sum)
        check_fail(c, "%d shares of %g are %g together", n, sum, got);
    check_release(c);
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The shares of a product's scores, and of its rows when they are spent, against the functions for
 * one row. */
static void check_rows_shares(check *c, const dg_bgemm_args *a, const uint16_t *share,
                              const float *top)
{
    const dg_bkernels *b = c->opt->b;
    const size_t n = (size_t)a->n_col, rows = (size_t)(dg_ceil_div(a->n_row, b->rows) * b->rows);
    uint16_t *want = check_bytes(c, rows * n * sizeof *want),
             *one = check_bytes(c, n * sizeof *one);
    float *sum = check_floats(c, a->n_row), *spent = check_floats(c, a->n_row * 2 * DG_PANEL);
    memset(want, 0xA5, rows * n * sizeof *want);
    b->gemm(&(dg_bgemm_args){
        .y = spent,
        .x = share,
        .part = &(const uint16_t *){numbers(c, a->n_col * 2 * DG_PANEL)},
        .ldy = 2 * DG_PANEL,
        .ldx = n,
        .next = n * DG_PANEL,
        .n_row = a->n_row,
        .n_k = a->n_col,
        .part_k = a->n_col,
        .n_col = check_int(c, 1, 2 * DG_PANEL),
        .sum = sum,
    });
    for (int r = 0; r < a->n_row; r++) {
        const float total = b->shares(one, a->y + (size_t)r * a->ldy, a->n_col, top[r]);
        b->place(want + (size_t)(r - r % b->rows) * n, r % b->rows, one, a->n_col);
        if (!same_bits(sum[r], total))
            check_fail(c, "row %d of %d: sum %g, not %g", r, a->n_row, (double)sum[r],
                       (double)total);
    }
    if (memcmp(share, want, rows * n * sizeof *want) != 0)
        check_fail(c, "%d rows have other shares beside a product", a->n_row);
}

/* Scores that become shares at once have the same bits as those that do so later. */
static void check_softening(check *c, int n_row, int n_k, int n_pair)
{
    const dg_bkernels *b = c->opt->b;
    product p = make_product(c, n_row, n_k, n_pair * 2 * DG_PANEL);
    p.add = false;
    p.part_k = dg_ceil_div(n_k, b->step) * b->step;
    const size_t n = (size_t)p.n_col, rows = (size_t)(dg_ceil_div(n_row, b->rows) * b->rows);
    const int two = 2 * DG_PANEL, part_col = dg_ceil_div(n_pair, check_int(c, 1, MOST_PARTS)) * two;
    const uint16_t *part[MOST_PARTS] = {NULL};
    for (int col = 0; col < p.n_col; col += part_col)
        part[col / part_col] = panels(c, &p, 0, col, dg_min(col + part_col, p.n_col));
    uint16_t *share = check_bytes(c, rows * n * sizeof *share);
    float *y = check_floats(c, n_row * p.n_col), *top = check_floats(c, n_row);
    const dg_bgemm_args a = {
        .y = y,
        .x = placed(c, &p),
        .part = part,
        .ldy = n,
        .ldx = (size_t)p.ldx,
        .next = (size_t)(p.part_k * DG_PANEL),
        .n_row = n_row,
        .n_k = n_k,
        .part_k = p.part_k,
        .n_col = p.n_col,
        .part_col = part_col,
        .soon = {part, (size_t)check_int(c, 0, 2) * 2 * DG_PANEL, check_int(c, 0, 1)},
    };
    b->gemm(&a);
    for (int r = 0; r < n_row; r++)
        top[r] =
            b->largest(y + (size_t)r * n, p.n_col) + (float)check_int(c, -(int)b->slack + 1, 40);
    memset(share, 0xA5, rows * n * sizeof *share);
    if (b->soften(&a, share, top))
        check_rows_shares(c, &a, share, top);
    else
        check_fail(c, "%d rows are said to be too far above their tops", n_row);
    const int r = check_int(c, 0, n_row - 1);
    top[r] = b->largest(y + (size_t)r * n, p.n_col) - b->slack - 1;
    if (b->soften(&a, share, top))
        check_fail(c, "row %d of %d is too far above its top", r, n_row);
    check_release(c);
}

/* One row of scores, whose columns are pairs of numbers, against top: what soften() says of it. The
 * other columns' scores are `top`. */
static bool soften_one(check *c, float top, const float (*column)[2], const int *at, int n)
{
    enum { N_K = 2, N_COL = 2 * DG_PANEL };
    const dg_bkernels *b = c->opt->b;
    product p = {
        .n_row = 1, .n_k = N_K, .n_col = N_COL, .ldx = b->step, .ldw = N_K, .part_k = b->step};
    uint16_t *x = check_bytes(c, (size_t)b->step * sizeof *x), *w = numbers(c, N_COL * N_K);
    memset(x, 0, (size_t)b->step * sizeof *x);
    c->ref->narrow[DG_BF16](x, (const float[]){1, 1}, N_K);
    for (int i = 0; i < N_COL; i++)
        c->ref->narrow[DG_BF16](w + i * N_K, (const float[]){top, 0}, N_K);
    for (int i = 0; i < n; i++)
        c->ref->narrow[DG_BF16](w + at[i] * N_K, column[i], N_K);
    p.x = x;
    p.w = w;
    const uint16_t *part = panels(c, &p, 0, 0, N_COL);
    uint16_t *share = check_bytes(c, (size_t)(b->rows * N_COL) * sizeof *share);
    return b->soften(
        &(dg_bgemm_args){
            .x = placed(c, &p),
            .part = &part,
            .ldx = (size_t)p.ldx,
            .next = (size_t)(p.part_k * DG_PANEL),
            .n_row = 1,
            .n_k = N_K,
            .part_k = p.part_k,
            .n_col = N_COL,
        },
        share, &top);
}

/* A score that is as far above its row's top as it may be, when the difference is a float: the sum
 * of top and slack is below it. */
static void check_edge(check *c)
{
    const float score = -36, top = score - c->opt->b->slack;
    for (int at = 0; at < 2 * DG_PANEL; at += 7) {
        if (!soften_one(c, top, &(const float[2]){score, 0x1p-18f}, &at, 1))
            check_fail(c, "a score in column %d is at the edge, not beyond it", at);
        if (soften_one(c, top, &(const float[2]){score, 0x1p-16f}, &at, 1))
            check_fail(c, "a score in column %d is beyond the edge", at);
    }
    check_release(c);
}

/* A score that is no number hides no other one that is too far above its row's top, wherever they
 * are. */
static void check_hidden(check *c)
{
    enum { N_COL = 2 * DG_PANEL };
    for (int first = 0; first < N_COL; first += 5)
        for (int second = 0; second < N_COL; second++) {
            const float column[2][2] = {{1000, 0}, {NAN, 0}};
            const int at[2] = {first, second};
            if (first != second && soften_one(c, -100, column, at, 2))
                check_fail(c, "a NaN in column %d hides column %d", second, first);
            check_release(c);
        }
}

/* Keys and values in bytes: each byte that there is, times the factor of its place. */
static void check_widen(check *c, dg_dtype type, int n, size_t room)
{
    const int line = DG_PANEL * c->opt->b->beside;
    const size_t stride = (size_t)line + room, all = (size_t)n * stride;
    uint8_t *in = check_bytes(c, all);
    uint16_t *out = check_bytes(c, all * sizeof *out), want;
    float *factor = check_normal(c, line, 1);
    for (size_t i = 0; i < all; i++) {
        const int most = type == DG_FP8 ? 0x7E : 0x7F; /* E4M3's 0x7F is never stored */
        in[i] = (uint8_t)(check_int(c, 0, most) | check_int(c, 0, 1) << 7);
        out[i] = 0xA5A5;
    }
    for (int i = 0; i < line; i++)
        factor[i] = type == DG_FP8 ? ldexpf(1, check_int(c, -60, 60)) : factor[i];
    factor[3] = NAN;
    c->opt->b->widen(out, in, type, factor, stride, n);
    for (size_t i = 0; i < all; i++) {
        const size_t place = i % stride;
        const float f = place < (size_t)line ? dg_kv_number(type, in[i]) * factor[place] : 0;
        c->ref->narrow[DG_BF16](&want, &f, 1);
        if (place >= (size_t)line ? out[i] != 0xA5A5
            : isnan(f)            ? !isnan(value(c, out[i]))
                                  : out[i] != want)
            check_fail(c, "byte %d times %g became %g", in[i], (double)factor[place % (size_t)line],
                       value(c, out[i]));
    }
    check_release(c);
}

/* A product of rows with n_col columns, panels of all k. */
static void bench_product(check *c, const char *what, int n_row, int n_k, int n_col, bool add)
{
    const int rows = dg_ceil_div(n_row, c->opt->b->rows) * c->opt->b->rows;
    char label[48];
    snprintf(label, sizeof label, "%s: %d x %d x %d", what, n_row, n_k, n_col);
    dg_bgemm_args a = {
        .y = check_normal(c, n_row * n_col, 1),
        .x = numbers(c, rows * n_k),
        .part = &(const uint16_t *){numbers(c, n_k * n_col)},
        .ldy = (size_t)n_col,
        .ldx = (size_t)n_k,
        .next = (size_t)(n_k * DG_PANEL),
        .n_row = n_row,
        .n_k = n_k,
        .part_k = n_k,
        .n_col = n_col,
        .add = add,
    };
    BENCH(c, label, 2.0 * n_row * n_k * n_col, "GFLOP/s") c->opt->b->gemm(&a);
    check_release(c);
}

/* A run of attention's lines: scores, with and without what makes shares of them, and sums of
 * values, with and without those of the shares. */
static void bench_run(check *c, int dim)
{
    const dg_bkernels *b = c->opt->b;
    const int n_key = b->keys, n_line = b->lines;
    bench_product(c, "scores", n_line, dim, n_key, false);
    bench_product(c, "sums of values", n_line, n_key, dim, true);
    if (!b->soften)
        return;
    char label[48];
    uint16_t *share = check_bytes(c, (size_t)(n_line * n_key) * sizeof *share);
    float *top = check_floats(c, n_line);
    for (int i = 0; i < n_line; i++)
        top[i] = 3 * sqrtf((float)dim); /* as large as the largest of some hundred scores */
    dg_bgemm_args a = {
        .x = numbers(c, n_line * dim),
        .part = &(const uint16_t *){numbers(c, dim * n_key)},
        .ldx = (size_t)dim,
        .next = (size_t)(dim * DG_PANEL),
        .n_row = n_line,
        .n_k = dim,
        .part_k = dim,
        .n_col = n_key,
    };
    snprintf(label, sizeof label, "scores, softened: %d x %d x %d", n_line, dim, n_key);
    BENCH(c, label, 2.0 * n_line * dim * n_key, "GFLOP/s") b->soften(&a, share, top);
    a = (dg_bgemm_args){
        .y = check_normal(c, n_line * dim, 1),
        .x = share,
        .part = &(const uint16_t *){numbers(c, n_key * dim)},
        .ldy = (size_t)dim,
        .ldx = (size_t)n_key,
        .next = (size_t)(n_key * DG_PANEL),
        .n_row = n_line,
        .n_k = n_key,
        .part_k = n_key,
        .n_col = dim,
        .add = true,
        .sum = check_floats(c, n_line),
    };
    snprintf(label, sizeof label, "sums of values and shares: %d x %d x %d", n_line, n_key, dim);
    BENCH(c, label, 2.0 * n_line * n_key * dim, "GFLOP/s") b->gemm(&a);
    check_release(c);
}

/* What attention of heads of 512 takes, among others. */
static void bench(check *c)
{
    enum { N_K = 256, WIDTH = 1152, RUN = 256, DIM = 512 };
    uint16_t *panel = check_bytes(c, N_K * DG_PANEL * sizeof *panel);
    const uint16_t *w = numbers(c, DG_PANEL * WIDTH);
    BENCH(c, "pack", N_K * DG_PANEL, "Gelem/s")
    c->opt->b->pack_cols(panel, w, WIDTH * sizeof *w, N_K, DG_PANEL);
    const float *z = check_normal(c, RUN, 1);
    uint16_t *share = check_bytes(c, RUN * sizeof *share);
    BENCH(c, "largest", RUN, "Gelem/s") share[0] = (uint16_t)c->opt->b->largest(z, RUN);
    BENCH(c, "shares", RUN, "Gelem/s") c->opt->b->shares(share, z, RUN, 5);
    uint8_t *bytes = check_bytes(c, DIM * DG_PANEL);
    uint16_t *keys = check_bytes(c, DIM * DG_PANEL * sizeof *keys);
    const int line = DG_PANEL * c->opt->b->beside;
    memset(bytes, 0x35, DIM * DG_PANEL);
    BENCH(c, "widen q8_0", DIM * DG_PANEL, "Gelem/s")
    c->opt->b->widen(keys, bytes, DG_Q8_0, z, (size_t)line, DIM * DG_PANEL / line);
    BENCH(c, "widen fp8", DIM * DG_PANEL, "Gelem/s")
    c->opt->b->widen(keys, bytes, DG_FP8, z, (size_t)line, DIM * DG_PANEL / line);
    check_release(c);
    static const int rows[] = {1, 16, 64, 256};
    for (size_t i = 0; i < DG_COUNT(rows); i++)
        bench_product(c, "product", rows[i], N_K, DG_PANEL, false);
    bench_run(c, DIM);
}

void check_bfloat(check *c)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 11, 16, 17, 33, 66};
    static const int depths[] = {1, 2, 4, 7, 8, 31, 32, 33, 72, 256, 523};
    if (!c->opt->b) {
        printf("%-5s bfloat           skipped: floats are as fast there\n", c->set);
        c->skipped++;
        return;
    }
    check_begin(c, "bfloat");
    for (size_t i = 0; i < DG_COUNT(rows); i++)
        for (size_t j = 0; j < DG_COUNT(depths); j++) {
            if (c->few && (i + j) % 4 != 3)
                continue;
            check_product(c, rows[i], depths[j], DG_PANEL);
            check_product(c, rows[i], depths[j], check_int(c, 1, 4 * DG_PANEL));
        }
    for (int n = 1; n <= 256; n += n < 40 ? 1 : 27)
        check_shares(c, n);
    for (int i = 0; i < 40 && c->opt->b->soften; i++)
        check_softening(c, check_int(c, 1, 40), check_int(c, 1, 523), check_int(c, 1, 9));
    if (c->opt->b->soften) {
        check_edge(c);
        check_hidden(c);
    }
    for (int n = 0; n < 40; n += n < 4 ? 1 : 9) {
        check_widen(c, DG_Q8_0, n, 0);
        check_widen(c, DG_FP8, n, (size_t)check_int(c, 0, 100));
    }
    if (c->bench)
        bench(c);
    check_end(c);
}
