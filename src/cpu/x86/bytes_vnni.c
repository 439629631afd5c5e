/* Products on quantised weights as bytes with AVX-512's VPDPBUSD, which adds four products of an
 * unsigned and a signed byte to 32 bits: up to twelve rows of x times 32 columns of a weight. The
 * columns' bytes are 128 higher than they are, and sums start with what that adds. */
#include <assert.h>
#include <string.h>
#include "base/common.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif
#define BYTE_UP 128
#include "cpu/x86/byte_columns.h"

/* Rows that meet the columns together, at most, in halves of a panel: 24 sums, the columns and four
 * numbers of a row leave a few registers to spare, and each four are loaded once for two
 * instructions. */
enum { ROWS = 12, HALVES = 2, FOURS = 4 };

/* A slice of 32 columns, and the rows that it meets. */
typedef struct slice {
    const dg_byte_panel *panel;
    const int8_t *x;    /* the slice in the first row … */
    size_t stride;      /* … how far apart it is in the others … */
    size_t step, start; /* … and how far behind it its step is, and what its sums start with */
    int n_value;
    float *held; /* [row][DG_BYTE_COLS], from the first slice to the last */
    float *y;
    size_t ldy;
    int n_col;
    bool begins, ends;
} slice;

/* Rows by few addresses, of each third one: there are not enough registers for all. */
typedef struct rows_at {
    const int8_t *third[ROWS / 3];
    size_t stride;
} rows_at;

INLINE const int8_t *row_of(const rows_at *x, int r)
{
    return x->third[r / 3] + (size_t)(r % 3) * x->stride;
}

INLINE v64 word_at(const int8_t *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return v64_set32(word);
}

INLINE f16v before(const slice *s, int row, const int half)
{
    return s->begins ? f16v_zero() : f16v_load(s->held + row * DG_BYTE_COLS + half * DG_QCOLS);
}

INLINE void put_result(const slice *s, int row, const int half, f16v all)
{
    if (!s->ends)
        f16v_store(s->held + row * DG_BYTE_COLS + half * DG_QCOLS, all);
    else
        f16v_store_first(s->y + (size_t)row * s->ldy + half * DG_QCOLS, all,
                         dg_max(0, dg_min(s->n_col - half * DG_QCOLS, DG_QCOLS)));
}

/* `rows` rows from row `first` on; a constant at every call. */
INLINE void multiply_rows(const slice *s, int first, const int rows)
{
    const int8_t *from = s->x + (size_t)first * s->stride;
    const uint8_t *n = s->panel->n;
    rows_at x = {.stride = s->stride};
    v64 sum[ROWS][HALVES];
    UNROLL
    for (int i = 0; i < (rows + 2) / 3; i++)
        x.third[i] = from + (size_t)(3 * i) * s->stride;
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = word_at(row_of(&x, r) + s->start);
    for (int k = 0; k < s->n_value; k += 4 * FOURS, n += 64 * FOURS) {
        UNROLL
        for (int i = 0; i < FOURS; i++) {
            const v64 w0 = v64_load(n + 64 * i), w1 = v64_load(n + 64 * i + DG_QSLICE * DG_QCOLS);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const v64 four = word_at(row_of(&x, r) + 4 * i);
                sum[r][0] = v64_dot_bytes(sum[r][0], w0, four);
                sum[r][1] = v64_dot_bytes(sum[r][1], w1, four);
            }
        }
        UNROLL
        for (int i = 0; i < (rows + 2) / 3; i++)
            x.third[i] += 4 * FOURS;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        float step;
        memcpy(&step, from + (size_t)r * s->stride + s->step, sizeof step);
        UNROLL
        for (int half = 0; half < HALVES; half++) {
            const f16v scale = f16v_load(s->panel->step + half * DG_QCOLS),
                       t = f16v_mul(f16v_of_i32(sum[r][half]), scale);
            put_result(s, first + r, half, f16v_fma(t, f16v_set(step), before(s, first + r, half)));
        }
    }
}

/* All rows, as many together as the others. */
static void multiply_slice(const slice *s, int n_row)
{
    const int most = dg_ceil_div(n_row, dg_ceil_div(n_row, ROWS));
    for (int row = 0; row < n_row; row += most)
        switch (dg_min(most, n_row - row)) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        multiply_rows(s, row, n);                                                                  \
        break
            CASE(1);
            CASE(2);
            CASE(3);
            CASE(4);
            CASE(5);
            CASE(6);
            CASE(7);
            CASE(8);
            CASE(9);
            CASE(10);
            CASE(11);
        default:
            multiply_rows(s, row, ROWS);
        }
}

INLINE void multiply(const dg_byte_args *a, const dg_qkind kind, const int up, const int most,
                     dg_numbers_fn *row)
{
    assert(a->n_row >= 1 && a->n_row <= DG_BYTE_ROWS && a->n_col >= 1);
    const int n_slice = dg_ceil_div(a->n_in, DG_QSLICE);
    const size_t stride = dg_qrow_room(a->n_in, DG_QWAY_BYTES) * sizeof *a->x,
                 slice_bytes = dg_dtype_bytes((dg_dtype)a->type, DG_QSLICE);
    const int8_t *x = (const int8_t *)a->x + (size_t)a->first_row * stride;
    dg_byte_stream soon = {NULL, NULL, 0};
    packing p[2];
    few_columns few;
    for (int part = 0; part < PARTS && !a->asked; part++)
        fetch_slice(a, 0, slice_bytes, part);
    for (place at = {0, 0}; at.c < a->n_col; at = next_place(a, at)) {
        const size_t which = (size_t)(at.k / DG_QSLICE);
        if (at.k == 0)
            soon = dg_stream_from(a, at.c + DG_BYTE_COLS, n_slice * PARTS * 2);
        begin_packing(p, &few, a, at, slice_bytes, a->panel);
        for (int part = 0; part < PARTS; part++) {
            for (int half = 0; half < 2; half++) {
                pack_part(&p[half], part, kind, up, most, row);
                dg_stream_fetch(&soon);
            }
            if (at.c == 0 && !a->asked)
                fetch_slice(a, at.k + DG_QSLICE, slice_bytes, part);
        }
        const size_t behind = (size_t)(n_slice * DG_QSLICE - at.k);
        multiply_slice(
            &(slice){.panel = a->panel,
                     .x = x + at.k,
                     .stride = stride,
                     .step = behind + which * sizeof(float),
                     .start = behind + (size_t)n_slice * sizeof(float) + which * sizeof(int32_t),
                     .n_value = dg_min(DG_QSLICE, a->n_in - at.k),
                     .held = a->sums,
                     .y = a->y + at.c,
                     .ldy = a->ldy,
                     .n_col = a->n_col - at.c,
                     .begins = at.k == 0,
                     .ends = at.k + DG_QSLICE >= a->n_in},
            a->n_row);
    }
}

#include "cpu/byte_types_body.h"

const dg_byte_kernels dg_bytes_vnni = {
    .profile = "integer-bytes",
    .way = DG_QWAY_BYTES,
    .quantise = quantise,
    .product = product,
};
