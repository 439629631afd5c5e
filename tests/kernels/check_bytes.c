/* Products on quantised weights as bytes: the bits of every instruction set are those of the plain
 * C, and the plain C is what cpu/bytes.h says. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/check.h"
#include "tensor/blocks.h"

typedef struct product {
    dg_dtype type;
    int n_row, first_row, n_in, n_col;
    size_t ldy, stride;
    float scale;
    const float *x;
    const unsigned char *w;
} product;

static int y_count(const product *p)
{
    return (int)((size_t)(p->n_row - 1) * p->ldy) + p->n_col;
}

static dg_qpair *rows_of(check *c, const dg_byte_kernels *k, const product *p)
{
    const int n_row = p->first_row + p->n_row;
    const size_t room = dg_qrow_room(p->n_in, k->way),
                 bytes =
                     dg_qrow_at(n_row - 1 + dg_qway_rows(k->way), room, k->way) * sizeof(dg_qpair);
    dg_qpair *rows = check_bytes(c, bytes);
    memset(rows, 0, bytes);
    for (int r = 0; r < n_row; r++)
        k->quantise(rows + dg_qrow_at(r, room, k->way), dg_qrow_which(r, k->way),
                    p->x + (size_t)r * (size_t)p->n_in, p->n_in / DG_QBLOCK);
    return rows;
}

/* Panels of anything: what was not packed must not matter. */
static dg_byte_panel *panels_of(check *c)
{
    size_t bytes = DG_BYTE_PANELS * sizeof(dg_byte_panel) + 64;
    unsigned char *p = check_bytes(c, bytes);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)check_bits(c);
    return (dg_byte_panel *)(p + (64 - (uintptr_t)p % 64) % 64);
}

static dg_byte_args args_of(check *c, const product *p, const dg_qpair *x, float *y)
{
    return (dg_byte_args){
        .y = y,
        .ldy = p->ldy,
        .x = x,
        .first_row = p->first_row,
        .n_row = p->n_row,
        .w = p->w,
        .stride = p->stride,
        .type = (int)p->type,
        .n_in = p->n_in,
        .n_col = p->n_col,
        .scale = p->scale,
        .panel = panels_of(c),
        .sums = check_floats(c, (p->n_row + 2) * DG_BYTE_COLS),
    };
}

static float *run(check *c, const dg_byte_kernels *k, const product *p)
{
    float *y = check_floats(c, y_count(p));
    for (int i = 0; i < y_count(p); i++)
        y[i] = 7; /* which is to stay between rows */
    const dg_byte_args a = args_of(c, p, rows_of(c, k, p), y);
    k->product(&a);
    return y;
}

static product make_product(check *c, dg_dtype t, int n_row, int n_block, int n_col)
{
    const size_t row_bytes = dg_dtype_bytes(t, (size_t)n_block * DG_QBLOCK);
    product p = {
        .type = t,
        .n_row = n_row,
        .first_row = check_int(c, 0, 19),
        .n_in = n_block * DG_QBLOCK,
        .n_col = n_col,
        .ldy = (size_t)(n_col + check_int(c, 0, 5)),
        .stride = row_bytes + (size_t)check_int(c, 0, 3),
        .scale = check_int(c, 0, 1) ? 1 : 0.37f,
    };
    p.x = check_normal(c, (p.first_row + n_row) * p.n_in, 1);
    p.w = check_blocks(c, t, n_col, row_bytes, p.stride);
    return p;
}

/* The product of the numbers of x with the weights as src/tensor defines them, and by how much it
 * may be missed: each weight by 0.76 of its column's step in the slice, which is at most three
 * times the largest weight there / 127: a type's numbers need not use all of their range. */
static void true_product(check *c, const product *p, float *want, float *miss)
{
    const dg_qpair *rows = rows_of(c, &dg_bytes_ref, p);
    const size_t room = dg_qrow_room(p->n_in, DG_QWAY_BYTES);
    float *w = check_floats(c, p->n_in);
    for (int col = 0; col < p->n_col; col++) {
        dg_blocks_widen(w, p->w + (size_t)col * p->stride, p->type, (size_t)p->n_in);
        for (int r = 0; r < p->n_row; r++) {
            const dg_qpair *row = rows + (size_t)(p->first_row + r) * room;
            double sum = 0, off = 0;
            for (int k = 0; k < p->n_in; k += DG_QSLICE) {
                const double step = (double)dg_byte_steps((dg_qpair *)row, p->n_in)[k / DG_QSLICE];
                const int n = dg_min(DG_QSLICE, p->n_in - k);
                double largest = 0, all = 0;
                for (int i = k; i < k + n; i++) {
                    const double x = step * ((const int8_t *)row)[i];
                    sum += x * (double)w[i] * (double)p->scale;
                    all += fabs(x);
                    largest = fmax(largest, fabs((double)w[i]));
                }
                off += all * largest * 0.76 * 3 / 127 * (double)p->scale;
            }
            want[(size_t)r * p->ldy + (size_t)col] = (float)sum;
            miss[(size_t)r * p->ldy + (size_t)col] = (float)off;
        }
    }
}

static void check_product(check *c, dg_dtype t, int n_row, int n_block, int n_col)
{
    product p = make_product(c, t, n_row, n_block, n_col);
    const float *want = run(c, &dg_bytes_ref, &p), *got = run(c, c->opt->bytes, &p);
    check_same(c, "the reference", got, want, y_count(&p));

    float *sum = check_floats(c, y_count(&p)), *miss = check_floats(c, y_count(&p));
    for (int i = 0; i < y_count(&p); i++) {
        sum[i] = 7;
        miss[i] = 0;
    }
    true_product(c, &p, sum, miss);
    check_close(c, want, sum, y_count(&p), (check_tol){.rel = 1e-5, .abs = 1.001, .size = miss});

    /* A row by itself, and a column by itself. */
    product one = p;
    const int r = check_int(c, 0, n_row - 1);
    one.n_row = 1;
    one.first_row += r;
    const float *row = run(c, c->opt->bytes, &one);
    check_same(c, "a row alone", row, got + (size_t)r * p.ldy, n_col);
    one.n_col = 1;
    check_same(c, "a column alone", run(c, c->opt->bytes, &one), row, 1);
    check_release(c);
}

/* Steps of any bits: zero, too small to count, infinite or no numbers. Results are the reference's,
 * or no number where it has none. */
static void check_any_steps(check *c, dg_dtype t)
{
    enum { N_BLOCK = 16, N_COL = 70 };
    product p = make_product(c, t, 5, N_BLOCK, N_COL);
    const size_t row_bytes = dg_dtype_bytes(t, (size_t)N_BLOCK * DG_QBLOCK);
    unsigned char *w = (unsigned char *)p.w;
    for (int col = 0; col < N_COL; col++)
        for (size_t i = 0; i < row_bytes; i++) /* or all but a few bits are 0 */
            w[(size_t)col * p.stride + i] =
                (unsigned char)(check_bits(c) & (col % 2 ? 0xFF : 0x11));
    const float *want = run(c, &dg_bytes_ref, &p), *got = run(c, c->opt->bytes, &p);
    check_same(c, "steps of any bits", got, want, y_count(&p));
    check_release(c);
}

/* The numbers and steps of a row by itself. */
typedef struct one_row {
    const int8_t *n;
    const float *step;
    const int32_t *start; /* or NULL */
} one_row;

static one_row row_at(check *c, const dg_qpair *rows, dg_qway way, int row, int n_in)
{
    const int n_slice = dg_ceil_div(n_in, DG_QSLICE), which = dg_qrow_which(row, way);
    dg_qpair *at = (dg_qpair *)rows + dg_qrow_at(row, dg_qrow_room(n_in, way), way);
    if (way == DG_QWAY_BYTES)
        return (one_row){(const int8_t *)at, dg_byte_steps(at, n_in), dg_byte_starts(at, n_in)};
    int8_t *n = check_bytes(c, (size_t)n_slice * DG_QSLICE);
    float *step = check_floats(c, n_slice);
    const float *steps = (const float *)((int8_t *)at + 2 * n_slice * DG_QSLICE);
    for (int i = 0; i < n_slice * DG_QSLICE / 8; i++)
        memcpy(n + 8 * i, (const int8_t *)at + 16 * i + 8 * which, 8);
    for (int i = 0; i < n_slice; i++)
        step[i] = steps[4 * i + 2 * which];
    return (one_row){n, step, NULL};
}

/* Rows with zeros, with one large value, and with what is no number. */
static void check_rows_of_bytes(check *c)
{
    for (int n_block = 1; n_block <= 24; n_block++) {
        product p = {.n_row = 3, .n_in = n_block * DG_QBLOCK};
        float *x = check_normal(c, 3 * p.n_in, 1);
        memset(x, 0, (size_t)p.n_in * sizeof *x);
        x[p.n_in + check_int(c, 0, p.n_in - 1)] = 3e5f;
        x[2 * p.n_in + check_int(c, 0, p.n_in - 1)] = n_block % 2 ? INFINITY : NAN;
        p.x = x;
        const dg_qpair *got = rows_of(c, c->opt->bytes, &p), *want = rows_of(c, &dg_bytes_ref, &p);
        for (int r = 0; r < 3; r++) {
            const one_row a = row_at(c, got, c->opt->bytes->way, r, p.n_in),
                          b = row_at(c, want, DG_QWAY_BYTES, r, p.n_in);
            const int n_slice = dg_ceil_div(n_block, DG_QBLOCKS);
            if (memcmp(a.n, b.n, (size_t)n_slice * DG_QSLICE) != 0)
                check_fail(c, "%d blocks differ from the reference", n_block);
            check_same(c, "the reference", a.step, b.step, n_slice);
            if (a.start && memcmp(a.start, b.start, (size_t)n_slice * sizeof *a.start) != 0)
                check_fail(c, "what sums of %d blocks start with differs", n_block);
        }
        check_release(c);
    }
}

static void bench(check *c, dg_dtype t)
{
    static const int rows[] = {1, 4, 16, 64, 256};
    for (size_t i = 0; i < DG_COUNT(rows); i++) {
        char label[32];
        snprintf(label, sizeof label, "n_row %d", rows[i]);
        product p = make_product(c, t, rows[i], 88, DG_BYTE_COLS);
        float *y = check_floats(c, y_count(&p));
        const dg_byte_args a = args_of(c, &p, rows_of(c, c->opt->bytes, &p), y);
        BENCH(c, label, 2.0 * rows[i] * p.n_in * DG_BYTE_COLS, "GOP/s") c->opt->bytes->product(&a);
        check_release(c);
    }
}

void check_byte_products(check *c)
{
    static const int rows[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 66};
    static const int depths[] = {1, 2, 3, 7, 8, 9, 16, 22};
    if (!c->opt->bytes)
        return;
    check_begin(c, "rows of bytes");
    check_rows_of_bytes(c);
    check_end(c);
    for (dg_dtype t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++) {
        const int least = dg_max(1, (int)dg_dtype_block(t) / DG_QBLOCK);
        char name[32];
        snprintf(name, sizeof name, "bytes %s", dg_dtype_name(t));
        check_begin(c, name);
        for (size_t k = 0; k < DG_COUNT(rows); k++)
            for (size_t j = 0; j < DG_COUNT(depths); j++) {
                if (depths[j] % least || (c->few && (k + j) % 4 != 3))
                    continue;
                check_product(c, t, rows[k], depths[j], check_int(c, 1, DG_BYTE_COLS));
                check_product(c, t, rows[k], depths[j], check_int(c, DG_BYTE_COLS, 90));
            }
        /* so long that what a row has behind its numbers makes it longer */
        check_product(c, t, 3, 17 * DG_QBLOCKS, 20);
        /* more turns of rows than parts of a slice, and all the rows there can be */
        check_product(c, t, 300, least, check_int(c, DG_BYTE_COLS + 1, 90));
        if (!c->few)
            check_product(c, t, DG_BYTE_ROWS, 2 * DG_QBLOCKS, check_int(c, DG_BYTE_COLS + 1, 90));
        check_any_steps(c, t);
        if (c->bench)
            bench(c, t);
        check_end(c);
    }
}
