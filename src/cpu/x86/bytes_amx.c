/* Products on quantised weights as bytes with AMX: tiles of up to sixteen rows of x times sixteen
 * columns of a weight.
 *
 * Three things go on side by side, an eighth of each in turn: two panels are packed, tiles sum
 * those packed before them, and the sums before those are scaled. A tile's sums leave it through
 * memory and can be loaded only when they have reached the cache; and while another thread works on
 * the same core, a tile is often loaded only when the last product with it is done. With other work
 * between them both are waited for less, and with four tiles in use instead of eight a shared core
 * takes half of the time for tiles, though it loads a panel's anew for each tile of rows. */
#include <assert.h>
#include <string.h>
#include "base/common.h"
#include "cpu/byte_stream.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif
#define BYTE_UP 0
#include "cpu/x86/byte_columns.h"

enum {
    ROWS = 16,                /* of a tile at most */
    BYTES = 64,               /* along k that a tile takes … */
    STEPS = DG_QSLICE / BYTES /* … and such steps of a slice */
};

/* ---- turns ---- */

/* Sums as tiles store them, of the rows of a turn and the columns of two halves of a panel. */
typedef struct sums {
    _Alignas(64) int32_t of[2][2 * ROWS][DG_QCOLS];
} sums;

/* Rows that tiles sum together: one tile of them or two, which are as high as all tiles. The last
 * tile begins so early that it ends with the last row; what it sums once more is the same. */
typedef struct row_turn {
    const int8_t *x[2]; /* the first slice of each tile's first row */
    int n_tile;
    int second;        /* where the second tile's sums begin … */
    int at, n;         /* … where those that are new do, and how many these are … */
    const float *step; /* … of rows with these steps … */
    int row;           /* … from here on */
} row_turn;

/* A slice of a panel that meets the rows of a turn. */
typedef struct work {
    const row_turn *rows; /* NULL: nothing to do */
    const dg_byte_panel *panel;
    sums *to;
    int c, k; /* first column, first value */
} work;

/* Tiles along k in turn with parts, one tile of rows behind the other. Few tiles are in use: see
 * tiles_amx.h. */
INLINE void sum_part(const work *w, size_t stride, int n_step, int part)
{
    enum { APART = PARTS / STEPS }; /* a tile by itself takes every second part */
    const bool two = w->rows->n_tile == 2;
    const int i = two ? part / STEPS : 0, step = two ? part % STEPS : part / APART;
    if (!two && part % APART)
        return;
    if (step == 0) {
        tile_zero(0);
        tile_zero(1);
    }
    if (step < n_step) {
        const uint8_t *n = w->panel->n + BYTES * DG_QCOLS * step;
        tile_load(4, w->rows->x[i] + w->k + BYTES * step, stride);
        tile_load(6, n, 64);
        tile_dot_signed(0, 4, 6);
        tile_load(6, n + DG_QSLICE * DG_QCOLS, 64);
        tile_dot_signed(1, 4, 6);
    }
    if (step == STEPS - 1) {
        const int at = i ? w->rows->second : 0;
        tile_store(0, w->to->of[0][at], 64);
        tile_store(1, w->to->of[1][at], 64);
    }
}

/* Part `part` of the sums to results; `begins`, `ends`: the first slice, the last one. */
INLINE void scale_some(const dg_byte_args *a, const work *w, size_t stride, int part,
                       const bool begins, const bool ends)
{
    const row_turn *rows = w->rows;
    const int first = part * rows->n / PARTS, end = (part + 1) * rows->n / PARTS;
    const f16v step[2] = {f16v_load(w->panel->step), f16v_load(w->panel->step + DG_QCOLS)};
    const int n_col = a->n_col - w->c;
    const int8_t *row_step =
        (const int8_t *)(rows->step + w->k / DG_QSLICE) + (size_t)first * stride;
    float *held = a->sums + (rows->row + first) * DG_BYTE_COLS,
          *y = a->y + w->c + (size_t)(rows->row + first) * a->ldy;
    for (int r = first; r < end; r++) {
        const f16v by = f16v_set(*(const float *)row_step);
        UNROLL
        for (int i = 0; i < 2; i++) {
            const f16v s = f16v_mul(f16v_of_i32(v64_load(w->to->of[i][rows->at + r])), step[i]),
                       all = f16v_fma(s, by, begins ? f16v_zero() : f16v_load(held + i * DG_QCOLS));
            if (!ends)
                f16v_store(held + i * DG_QCOLS, all);
            else if (n_col >= DG_BYTE_COLS)
                f16v_store(y + i * DG_QCOLS, all);
            else
                f16v_store_first(y + i * DG_QCOLS, all,
                                 dg_max(0, dg_min(n_col - i * DG_QCOLS, DG_QCOLS)));
        }
        row_step += stride;
        held += DG_BYTE_COLS;
        y += a->ldy;
    }
}

INLINE void scale_part(const dg_byte_args *a, const work *w, size_t stride, int part)
{
    const bool begins = w->k == 0, ends = w->k + DG_QSLICE >= a->n_in;
    if (!begins && !ends)
        scale_some(a, w, stride, part, false, false);
    else if (begins && ends)
        scale_some(a, w, stride, part, true, true);
    else if (begins)
        scale_some(a, w, stride, part, true, false);
    else
        scale_some(a, w, stride, part, false, true);
}

/* ---- the product ---- */

/* The rows, in turns of two tiles; returns how many. */
INLINE int set_turns(row_turn *out, const dg_byte_args *a, int tile_rows, size_t stride)
{
    const int8_t *x = (const int8_t *)a->x + (size_t)a->first_row * stride;
    int n = 0;
    for (int row = 0; row < a->n_row; row += 2 * tile_rows, n++) {
        row_turn *t = &out[n];
        const int last = a->n_row - tile_rows, first = dg_min(row, last),
                  second = dg_min(row + tile_rows, last);
        *t = (row_turn){.n_tile = second > first ? 2 : 1,
                        .second = second - first,
                        .at = row - first,
                        .n = dg_min(a->n_row - row, 2 * tile_rows),
                        .row = row};
        t->x[0] = x + (size_t)first * stride;
        t->x[1] = x + (size_t)second * stride;
        t->step = dg_byte_steps((dg_qpair *)(x + (size_t)row * stride), a->n_in);
    }
    return n;
}

INLINE void multiply(const dg_byte_args *a, const dg_qkind kind, const int up, const int most,
                     dg_numbers_fn *row)
{
    assert(a->n_row >= 1 && a->n_row <= DG_BYTE_ROWS && a->n_col >= 1);
    const int n_slice = dg_ceil_div(a->n_in, DG_QSLICE),
              n_place = n_slice * dg_ceil_div(a->n_col, DG_BYTE_COLS),
              tile_rows = dg_ceil_div(a->n_row, dg_ceil_div(a->n_row, ROWS));
    const size_t stride = dg_qrow_room(a->n_in, DG_QWAY_BYTES) * sizeof *a->x;
    const size_t slice_bytes = dg_dtype_bytes((dg_dtype)a->type, DG_QSLICE);
    row_turn turns[DG_BYTE_ROWS / (2 * ROWS)];
    const int n_turn = set_turns(turns, a, tile_rows, stride);
    sums kept[2];
    work before = {.rows = NULL};
    packing p[2];
    few_columns few;
    place at = {0, 0};
    int which = 0;
    tiles_begin(tile_rows, BYTES);
    for (int part = 0; part < 2 * PARTS && !a->asked; part++)
        fetch_slice(a, part / PARTS * DG_QSLICE, slice_bytes, part % PARTS);
    dg_byte_stream soon = {NULL, NULL, 0};
    begin_packing(p, &few, a, at, slice_bytes, a->panel);
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < 2; i++)
            pack_part(&p[i], part, kind, up, most, row);
    for (int i = 0; i < n_place; i++) {
        const place here = at;
        const int n_step = dg_ceil_div(dg_min(DG_QSLICE, a->n_in - here.k), BYTES);
        const bool more = i + 1 < n_place;
        at = next_place(a, at);
        if (here.k == 0)
            soon = dg_stream_from(a, here.c + DG_BYTE_COLS, n_slice * PARTS);
        if (more)
            begin_packing(p, &few, a, at, slice_bytes, a->panel + (i + 1) % DG_BYTE_PANELS);
        for (int t = 0; t < n_turn; t++, which = !which) {
            const work now = {&turns[t], a->panel + i % DG_BYTE_PANELS, &kept[which], here.c,
                              here.k};
            const int from = PARTS * t / n_turn, end = PARTS * (t + 1) / n_turn;
            for (int part = 0; part < PARTS; part++) {
                sum_part(&now, stride, n_step, part);
                if (before.rows)
                    scale_part(a, &before, stride, part);
                if (part < from || part >= end)
                    continue;
                for (int h = 0; h < 2 && more; h++)
                    pack_part(&p[h], part, kind, up, most, row);
                dg_stream_fetch(&soon);
                if (at.c == 0 && !a->asked)
                    fetch_slice(a, at.k + DG_QSLICE, slice_bytes, part);
            }
            before = now;
        }
    }
    for (int part = 0; part < PARTS; part++)
        scale_part(a, &before, stride, part);
    tiles_end();
}

#include "cpu/byte_types_body.h"

const dg_byte_kernels dg_bytes_amx = {
    .profile = "integer-bytes-amx",
    .way = DG_QWAY_BYTES,
    .quantise = quantise,
    .product = product,
};
