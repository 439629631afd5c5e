/* Products on quantised weights: the bits of every instruction set are those of the plain C, and
 * the plain C is what the blocks mean. */
#include "kernels/check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensor/blocks.h"

/* ---- activations ---- */

/* Rows with blocks of zeros, of tiny values, of one large one, and of what is no number. */
static float *odd_rows(check *c, int n, bool finite)
{
    float *x = check_normal(c, n, 1);
    for (int b = 0; b < n / DG_QBLOCK; b++) {
        float *block = x + b * DG_QBLOCK;
        int at = check_int(c, 0, DG_QBLOCK - 1);
        switch (check_int(c, 0, 11)) {
        case 0:
            memset(block, 0, DG_QBLOCK * sizeof *block);
            break;
        case 1:
            for (int i = 0; i < DG_QBLOCK; i++)
                block[i] *= 0x1p-99f;
            break;
        case 2:
            block[at] = 3e5f;
            break;
        case 3:
            block[at] = finite ? -1e-40f : INFINITY;
            break;
        case 4:
            block[at] = finite ? 3e30f : NAN;
            break;
        default:
            break;
        }
    }
    return x;
}

/* Floats may be NaN on both sides. */
static bool same_floats(const float *a, const float *b)
{
    for (int i = 0; i < 2; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && a[i] != b[i])
            return false;
    return true;
}

static bool same_pair(const dg_qpair *a, const dg_qpair *b)
{
    for (int w = 0; w < 2; w++) {
        if (memcmp(a->bias[w], b->bias[w], sizeof a->bias[w]) != 0 ||
            !same_floats(a->step[w], b->step[w]) || !same_floats(a->sum[w], b->sum[w]))
            return false;
        for (int k = 0; k < 4; k++)
            if (memcmp(a->n[k][w], b->n[k][w], 8) != 0)
                return false;
    }
    return true;
}

static bool same_super(const dg_qsuper *a, const dg_qsuper *b)
{
    return memcmp(a->n, b->n, sizeof a->n) == 0 && memcmp(a->high, b->high, sizeof a->high) == 0 &&
           memcmp(a->low, b->low, sizeof a->low) == 0 &&
           memcmp(a->bias, b->bias, sizeof a->bias) == 0 && same_floats(a->step[0], b->step[0]) &&
           same_floats(a->step[1], b->step[1]);
}

static bool same_rows(const dg_qpair *a, const dg_qpair *b, int n_block, bool super)
{
    for (int i = 0; i < n_block && !super; i++)
        if (!same_pair(&a[i], &b[i]))
            return false;
    for (int i = 0; i < n_block / DG_QBLOCKS && super; i++)
        if (!same_super((const dg_qsuper *)a + i, (const dg_qsuper *)b + i))
            return false;
    return true;
}

/* Number i of row `which` of the reference, and its step. */
static int number_at(const dg_qpair *row, int which, int i, bool super, float *step)
{
    const dg_qsuper *s = (const dg_qsuper *)row + i / DG_QSLICE;
    const dg_qpair *p = row + i / DG_QBLOCK;
    *step = super ? s->step[which][0] : p->step[which][0];
    return super ? s->n[i % DG_QSLICE / 8][which][i % 8] : p->n[i % DG_QBLOCK / 8][which][i % 8];
}

static dg_qway way_of(bool super)
{
    return super ? DG_QWAY_SUPER : DG_QWAY_BLOCKS;
}

/* Room for so many rows, of which none is there. */
static dg_qpair *no_rows(check *c, int n_row, int n_block, bool super)
{
    size_t n = (size_t)(n_row + 1) / 2 * dg_qrow_room(n_block * DG_QBLOCK, way_of(super));
    dg_qpair *pair = check_bytes(c, n * sizeof *pair);
    memset(pair, 0, n * sizeof *pair);
    return pair;
}

/* Rows of x as pairs, by `q`. */
static dg_qpair *quantised(check *c, const dg_qkernels *q, const float *x, int n_row, int n_block,
                           bool super)
{
    const size_t room = dg_qrow_room(n_block * DG_QBLOCK, way_of(super));
    dg_quantise_fn *quantise = super ? q->quantise_super : q->quantise;
    dg_qpair *pair = no_rows(c, n_row, n_block, super);
    for (int r = 0; r < n_row; r++)
        quantise(pair + (size_t)(r / 2) * room, r % 2, x + (size_t)r * (size_t)n_block * DG_QBLOCK,
                 n_block);
    return pair;
}

static void check_quantise_rows(check *c, int n_block, bool super)
{
    const int n = n_block * DG_QBLOCK;
    const float *x = odd_rows(c, 2 * n, n_block / DG_QBLOCKS % 2);
    const dg_qpair *got = quantised(c, c->opt->q, x, 2, n_block, super),
                   *want = quantised(c, c->ref->q, x, 2, n_block, super);
    if (!same_rows(got, want, n_block, super))
        check_fail(c, "%d blocks differ from the reference", n_block);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < n; i++) {
            float step, value = x[r * n + i];
            int number = number_at(want, r, i, super, &step);
            double off = (double)step * number - (double)value;
            if (isfinite(step) && fabs(off) > 0.5001 * (double)step + 0x1p-100)
                check_fail(c, "%g became %g", (double)value, off + (double)value);
        }
    check_release(c);
}

static void check_quantise(check *c)
{
    check_begin(c, "quantise");
    for (int n_block = 1; n_block <= 40; n_block++)
        check_quantise_rows(c, n_block, false);
    const float *x = check_normal(c, 2816, 1);
    dg_qpair *out = no_rows(c, 1, 88, false);
    BENCH(c, "n 2816", 2816, "Gelem/s") c->opt->q->quantise(out, 0, x, 88);
    check_end(c);

    check_begin(c, "quantise_super");
    for (int n_block = DG_QBLOCKS; n_block <= 12 * DG_QBLOCKS; n_block += DG_QBLOCKS)
        check_quantise_rows(c, n_block, true);
    x = check_normal(c, 2816, 1);
    out = no_rows(c, 1, 88, true);
    BENCH(c, "n 2816", 2816, "Gelem/s") c->opt->q->quantise_super(out, 0, x, 88);
    check_end(c);
}

/* ---- products ---- */

/* Values that whole numbers of a byte do not hold are rounded to them. */
static bool is_rounded(dg_dtype t)
{
    return t == DG_E4M3 || t == DG_AFFINE8;
}

/* Blocks of anything, with scales that are numbers, `n_row` rows `stride` apart on an odd address.
 */
unsigned char *check_blocks(check *c, dg_dtype t, int n_row, size_t row_bytes, size_t stride)
{
    static const struct {
        dg_dtype type;
        int at[2]; /* halves of a block that must be numbers of ordinary size; -1: none */
    } scales[] = {
        {DG_Q8_0, {0, -1}},    {DG_Q4_0, {0, -1}},    {DG_Q4_1, {0, 2}},    {DG_Q5_0, {0, -1}},
        {DG_Q5_1, {0, 2}},     {DG_Q2_K, {80, 82}},   {DG_Q3_K, {108, -1}}, {DG_Q4_K, {0, 2}},
        {DG_Q5_K, {0, 2}},     {DG_Q6_K, {208, -1}},  {DG_IQ4_NL, {0, -1}}, {DG_IQ4_XS, {0, -1}},
        {DG_IQ1_S, {0, -1}},   {DG_IQ2_XXS, {0, -1}}, {DG_IQ2_XS, {0, -1}}, {DG_IQ2_S, {0, -1}},
        {DG_IQ3_XXS, {0, -1}}, {DG_IQ3_S, {0, -1}},   {DG_TQ1_0, {52, -1}}, {DG_TQ2_0, {64, -1}}};
    const size_t block = dg_dtype_bytes(t, dg_dtype_block(t));
    unsigned char *p = check_bytes(c, (size_t)(n_row - 1) * stride + row_bytes + 1);
    for (size_t i = 0; i < (size_t)(n_row - 1) * stride + row_bytes + 1; i++)
        p[i] = (unsigned char)check_bits(c);
    p++;
    for (int r = 0; r < n_row; r++)
        for (size_t b = 0; b < row_bytes; b += block) {
            unsigned char *at = p + (size_t)r * stride + b;
            if (t == DG_IQ1_M) /* the top of its half: around 2^-9 */
                at[55] = (unsigned char)((at[55] & 0x8F) | 0x10);
            for (size_t i = 0; i < block && t == DG_E4M3; i++)
                at[i] = (at[i] & 0x7F) == 0x7F ? 0 : at[i];
            for (int k = 0; k < 1 + (t == DG_AFFINE4 || t == DG_AFFINE8) && t >= DG_DTYPE_GGUF;
                 k++) {
                float d = (float)check_uniform(c, -0.02, 0.02);
                memcpy(at + 4 * k, &d, sizeof d);
            }
            if (t == DG_MXFP4)
                at[0] = (unsigned char)check_int(c, 110, 130);
            for (size_t i = 0; i < DG_COUNT(scales); i++)
                for (int k = 0; k < 2 && scales[i].type == t; k++)
                    if (scales[i].at[k] >= 0) {
                        uint16_t half = dg_float_to_f16((float)check_uniform(c, -0.02, 0.02));
                        memcpy(at + scales[i].at[k], &half, sizeof half);
                    }
        }
    return p;
}

/* Panels of anything: what was not packed must not matter. */
static dg_qpanel *panels_of(check *c, int n)
{
    size_t bytes = (size_t)n * sizeof(dg_qpanel) + 64;
    unsigned char *p = check_bytes(c, bytes);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)check_bits(c);
    return (dg_qpanel *)(p + (64 - (uintptr_t)p % 64) % 64);
}

typedef struct product {
    dg_dtype type;
    int n_row, first_row, n_block, n_col;
    size_t ldy, stride;
    float scale;
    bool add;
    const float *x, *y; /* y: what stands there before */
    const unsigned char *w;
} product;

static int y_count(const product *p)
{
    return (int)((size_t)(p->n_row - 1) * p->ldy) + p->n_col;
}

/* Sixteen columns of the product in slices of k, as the backend cuts it. */
static void run_cols(const dg_qkernels *q, const product *p, dg_qpanel *panel, const dg_qpair *x,
                     int first, float *y)
{
    const bool super = dg_qtype_super(p->type);
    int n_col = dg_min(DG_QCOLS, p->n_col - first);
    for (int b = 0; b < p->n_block; b += DG_QBLOCKS) {
        int n_block = dg_min(DG_QBLOCKS, p->n_block - b);
        const unsigned char *w = p->w + dg_dtype_bytes(p->type, (size_t)b * DG_QBLOCK);
        q->pack[p->type](panel, &(dg_qpack_args){
                                    .src = w + (size_t)first * p->stride,
                                    .stride = p->stride,
                                    .n_block = n_block,
                                    .n_col = n_col,
                                    .scale = p->scale,
                                });
        q->gemm(&(dg_qgemm_args){
            .y = y + first,
            .ldy = p->ldy,
            .x = x + dg_qvalue_at(b * DG_QBLOCK, way_of(super)),
            .ldx = dg_qrow_room(p->n_block * DG_QBLOCK, way_of(super)),
            .panel = panel,
            .first_row = p->first_row,
            .n_row = p->n_row,
            .n_block = n_block,
            .n_col = n_col,
            .add = p->add || b,
            .soon = {w, p->stride, (int)dg_dtype_bytes(p->type, (size_t)n_block * DG_QBLOCK),
                     n_col},
        });
    }
}

static float *run(check *c, const dg_qkernels *q, const product *p)
{
    float *y = check_copy(c, p->y, y_count(p));
    const bool super = dg_qtype_super(p->type);
    const dg_qpair *x = quantised(c, q, p->x, p->first_row + p->n_row, p->n_block, super);
    dg_qpanel *panel = panels_of(c, 1);
    for (int col = 0; col < p->n_col; col += DG_QCOLS)
        run_cols(q, p, panel, x, col, y);
    return y;
}

static product make_product(check *c, dg_dtype t, int n_row, int n_block, int n_col)
{
    size_t row_bytes = dg_dtype_bytes(t, (size_t)n_block * DG_QBLOCK);
    product p = {.type = t,
                 .n_row = n_row,
                 .first_row = check_int(c, 0, 19),
                 .n_block = n_block,
                 .n_col = n_col,
                 .ldy = (size_t)(n_col + check_int(c, 0, 5)),
                 .stride = row_bytes + (size_t)check_int(c, 0, 3),
                 .scale = check_int(c, 0, 1) ? 1 : 0.37f,
                 .add = check_int(c, 0, 1)};
    p.x = odd_rows(c, (p.first_row + n_row) * n_block * DG_QBLOCK, true);
    p.y = check_normal(c, y_count(&p), 1);
    p.w = check_blocks(c, t, n_col, row_bytes, p.stride);
    return p;
}

/* What the product comes to in double, of the quantised x and the weights as src/tensor defines
 * them, and how much may have been added up: a number's share and the least value are each at most
 * twice the largest weight. */
static void true_product(check *c, const product *p, float *want, float *size)
{
    const int n = p->n_block * DG_QBLOCK;
    const bool super = dg_qtype_super(p->type);
    const size_t room = dg_qrow_room(n, way_of(super));
    float *w = check_floats(c, n);
    const dg_qpair *x = quantised(c, c->ref->q, p->x, p->first_row + p->n_row, p->n_block, super);
    memcpy(want, p->y, (size_t)y_count(p) * sizeof *want);
    memset(size, 0, (size_t)y_count(p) * sizeof *size);
    for (int col = 0; col < p->n_col; col++) {
        dg_blocks_widen(w, p->w + (size_t)col * p->stride, p->type, (size_t)n);
        double largest = 0;
        for (int k = 0; k < n; k++)
            largest = fmax(largest, fabs((double)w[k]));
        for (int r = 0; r < p->n_row; r++) {
            int row = p->first_row + r;
            const dg_qpair *from = x + (size_t)(row / 2) * room;
            size_t at = (size_t)r * p->ldy + (size_t)col;
            double sum = p->add ? (double)want[at] : 0, total = fabs(sum);
            for (int k = 0; k < n; k++) {
                float step;
                double number = number_at(from, row % 2, k, super, &step),
                       value = (double)step * number * (double)p->scale;
                sum += value * (double)w[k];
                total += fabs(value) * largest;
            }
            want[at] = (float)sum;
            size[at] = (float)total;
        }
    }
}

static void check_product(check *c, dg_dtype t, int n_row, int n_block, int n_col)
{
    product p = make_product(c, t, n_row, n_block, n_col);
    const float *want = run(c, c->ref->q, &p), *got = run(c, c->opt->q, &p);
    check_same(c, "the reference", got, want, y_count(&p));

    float *sum = check_floats(c, y_count(&p)), *size = check_floats(c, y_count(&p));
    true_product(c, &p, sum, size);
    /* four roundings for each block and two of the weights, of sums no larger than 4 * size; E4M3
     * and AFFINE8 become the nearest of 127 steps first */
    const double nearest = is_rounded(t) ? 0.501 / 127 : 0;
    check_close(c, want, sum, y_count(&p),
                (check_tol){.abs = 4 * (4 * n_block + 6) * 0x1p-24 + nearest, .size = size});

    /* A row by itself, and a column by itself. */
    product one = p;
    const int r = check_int(c, 0, n_row - 1);
    one.n_row = 1;
    one.first_row += r;
    one.y += (size_t)r * p.ldy;
    const float *row = run(c, c->opt->q, &one);
    check_same(c, "a row alone", row, got + (size_t)r * p.ldy, n_col);
    one.n_col = 1;
    check_same(c, "a column alone", run(c, c->opt->q, &one), row, 1);
    check_release(c);
}

static void bench(check *c, dg_dtype t)
{
    static const int rows[] = {1, 4, 16, 64, 256};
    enum { N_BLOCK = 88 };
    for (size_t i = 0; i < DG_COUNT(rows); i++) {
        char label[32];
        snprintf(label, sizeof label, "n_row %d", rows[i]);
        product p = make_product(c, t, rows[i], N_BLOCK, DG_QCOLS);
        dg_qpanel *panel = panels_of(c, 1);
        const dg_qpair *x =
            quantised(c, c->opt->q, p.x, rows[i] + p.first_row, N_BLOCK, dg_qtype_super(t));
        float *y = check_copy(c, p.y, y_count(&p));
        BENCH(c, label, 2.0 * rows[i] * N_BLOCK * DG_QBLOCK * DG_QCOLS, "GOP/s")
        run_cols(c->opt->q, &p, panel, x, 0, y);
        if (i == 0)
            BENCH(c, "pack", DG_QSLICE * DG_QCOLS, "Gelem/s")
        c->opt->q->pack[t](panel, &(dg_qpack_args){p.w, p.stride, DG_QBLOCKS, DG_QCOLS, 1, NULL});
        check_release(c);
    }
}

/* ---- words ---- */

/* y = x times made columns, by `q`. */
static float *made_product(check *c, const dg_qkernels *q, const dg_qmade *made, const float *x,
                           int n_block)
{
    enum { ROWS = 5 };
    float *y = check_floats(c, ROWS * DG_QCOLS);
    dg_qpanel *panel = panels_of(c, 1);
    const dg_qpair *rows = quantised(c, q, x, ROWS, n_block, false);
    q->pack[DG_QMADE](
        panel, &(dg_qpack_args){made, DG_QBLOCKS * sizeof *made, n_block, DG_QCOLS, 1, NULL});
    q->gemm(&(dg_qgemm_args){y,
                             DG_QCOLS,
                             rows,
                             dg_qrow_room(n_block * DG_QBLOCK, DG_QWAY_BLOCKS),
                             panel,
                             0,
                             ROWS,
                             n_block,
                             DG_QCOLS,
                             false,
                             {0}});
    return y;
}

static void check_turned(check *c, dg_dtype t, int n_word)
{
    enum { COLS = DG_QSLICE, SIZE = COLS * DG_QBLOCKS };
    const int n_block = dg_ceil_div(n_word, DG_QBLOCK);
    const size_t row_bytes = dg_dtype_bytes(t, COLS), stride = row_bytes + 3;
    const unsigned char *w = check_blocks(c, t, n_word, row_bytes, stride);
    dg_qmade *want = check_bytes(c, SIZE * sizeof *want), *got = check_bytes(c, SIZE * sizeof *got);
    memset(want, 0, SIZE * sizeof *want);
    memset(got, 0, SIZE * sizeof *got);
    c->ref->turn[t](want, &(dg_qturn_args){w, stride, n_word, COLS});
    c->opt->turn[t](got, &(dg_qturn_args){w, stride, n_word, COLS});
    if (memcmp(want, got, SIZE * sizeof *want) != 0)
        check_fail(c, "%d words differ from the reference", n_word);

    float *value = check_floats(c, COLS);
    for (int v = 0; v < n_block * DG_QBLOCK; v++) {
        memset(value, 0, COLS * sizeof *value);
        if (v < n_word)
            dg_blocks_widen(value, w + (size_t)v * stride, t, COLS);
        for (int i = 0; i < COLS; i++) {
            const dg_qmade *b = &want[i * DG_QBLOCKS + v / DG_QBLOCK];
            double off = (double)b->step * b->n[v % DG_QBLOCK] - (double)value[i];
            const double most = is_rounded(t) ? 1.2501 : 0.7501; /* rounded twice */
            if (fabs(off) > most * (double)b->step)
                check_fail(c, "%g became %g", (double)value[i], off + (double)value[i]);
        }
    }
    const float *x = check_normal(c, 5 * n_block * DG_QBLOCK, 1);
    if (c->opt->q)
        check_same(c, "the reference", made_product(c, c->opt->q, want, x, n_block),
                   made_product(c, c->ref->q, want, x, n_block), 5 * DG_QCOLS);
    check_release(c);
}

void check_words(check *c)
{
    static const int words[] = {1, 31, 32, 33, 100, 256};
    check_begin(c, "turned words");
    for (dg_dtype t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++)
        for (size_t k = 0; k < DG_COUNT(words) && c->ref->turn[t]; k++)
            check_turned(c, t, words[k]);
    const unsigned char *w = check_blocks(c, DG_Q6_K, DG_QSLICE, 210, 2310);
    dg_qmade *out = check_bytes(c, DG_QSLICE * DG_QBLOCKS * sizeof *out);
    BENCH(c, "Q6_K, 256 words", DG_QSLICE * DG_QSLICE, "Gelem/s")
    c->opt->turn[DG_Q6_K](out, &(dg_qturn_args){w, 2310, DG_QSLICE, DG_QSLICE});
    check_release(c);
    check_end(c);
}

void check_quantised(check *c)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 23, 33, 66};
    static const int depths[] = {1, 2, 3, 7, 8, 9, 16, 22};
    if (!c->opt->q) {
        printf("%-5s product          skipped: floats are faster there\n", c->set);
        c->skipped++;
        return;
    }
    check_quantise(c);
    for (dg_dtype t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++) {
        int least = (int)dg_dtype_block(t) / DG_QBLOCK;
        char name[32];
        snprintf(name, sizeof name, "product %s", dg_dtype_name(t));
        check_begin(c, name);
        for (size_t k = 0; k < DG_COUNT(rows); k++)
            for (size_t j = 0; j < DG_COUNT(depths); j++) {
                if (depths[j] % (least ? least : 1) || (c->few && (k + j) % 4 != 3))
                    continue;
                check_product(c, t, rows[k], depths[j], DG_QCOLS);
                check_product(c, t, rows[k], depths[j], check_int(c, 1, DG_QCOLS));
            }
        if (c->bench)
            bench(c, t);
        check_end(c);
    }
}
