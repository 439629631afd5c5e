/* Products on quantised weights as bytes with AMX: tiles of sixteen rows of x times sixteen columns
 * of a weight.
 *
 * Three things go on side by side, an eighth of each in turn: two panels are packed, tiles sum
 * those packed before them, and the sums before those are scaled. A tile's sums leave it through
 * memory and can be loaded only when they have reached the cache; and while another thread works on
 * the same core, a tile is often loaded only when the last product with it is done. With other work
 * between them both are waited for less. */
#include <string.h>
#include "base/common.h"
#include "cpu/byte_stream.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif
#include "cpu/x86/pack_bytes.h"

enum {
    ROWS = 16,       /* of a tile at most */
    BYTES = 64,      /* along k that a tile takes */
    MOST_BYTES = 320 /* that a slice of a column is stored in */
};

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    (void)which; /* the only one */
    const int n_in = n_block * DG_QBLOCK;
    int8_t *n = (int8_t *)out;
    float *step = dg_byte_steps(out, n_in);
    for (int k = 0; k < n_in; k += DG_QSLICE) {
        const int n_value = dg_min(DG_QSLICE, n_in - k);
        float rest[DG_QSLICE];
        const float *from = x + k;
        if (n_value < DG_QSLICE) {
            memset(rest, 0, sizeof rest);
            from = memcpy(rest, from, (size_t)n_value * sizeof *rest);
        }
        dg_qsuper one;
        QUANTISE_SUPER((dg_qpair *)&one, 0, from, DG_QBLOCKS);
        for (int i = 0; i < DG_QSLICE / 8; i++)
            memcpy(n + k + 8 * i, one.n[i][0], 8);
        step[k / DG_QSLICE] = one.step[0][0];
    }
}

/* ---- turns ---- */

/* Sums as tiles store them, of two tiles of rows and the columns of two halves of a panel. */
typedef struct sums {
    _Alignas(64) int32_t of[2][2][ROWS][DG_QCOLS];
} sums;

/* Sixteen rows, or all that there are; the last ones begin so early that they end with the last
 * row, and of what they give only rows from `first` on are new. */
typedef struct unit {
    const int8_t *x; /* the slice, in the first row */
    const float *step;
    int row, first;
} unit;

/* Rows and a panel that tiles sum together, and what becomes of the sums. */
typedef struct work {
    unit u[2];
    int n_unit, n_row; /* rows of each unit; no unit: nothing to do */
    size_t stride;     /* bytes from row to row */
    const dg_byte_panel *panel;
    sums *to;
    int n_step;        /* tiles along k */
    bool begins, ends; /* the first slice, the last one */
    float *held;       /* [row][DG_BYTE_COLS] results between slices */
    float *y;          /* where they go at last */
    size_t ldy;
    int n_col;
} work;

/* Tiles along k with every other part; all that they need is loaded first. */
INLINE void sum_part(const work *w, int part)
{
    const bool two = w->n_unit == 2;
    const int step = part / 2;
    const uint8_t *n = w->panel->n + BYTES * DG_QCOLS * step;
    if (part == 0) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    if (part % 2 == 0 && step < w->n_step) {
        tile_load(6, n, 64);
        tile_load(7, n + DG_QSLICE * DG_QCOLS, 64);
        tile_load(4, w->u[0].x + BYTES * step, w->stride);
        if (two)
            tile_load(5, w->u[1].x + BYTES * step, w->stride);
        tile_dot_signed(0, 4, 6);
        tile_dot_signed(1, 4, 7);
        if (two) {
            tile_dot_signed(2, 5, 6);
            tile_dot_signed(3, 5, 7);
        }
    }
    if (part == PARTS - 1) {
        tile_store(0, w->to->of[0][0], 64);
        tile_store(1, w->to->of[0][1], 64);
        if (two) {
            tile_store(2, w->to->of[1][0], 64);
            tile_store(3, w->to->of[1][1], 64);
        }
    }
}

/* Sums of rows [r, end) of unit u to results; `begins`, `ends`: as in w, constants. */
INLINE void scale_some(const work *w, int u, int r, int end, const bool begins, const bool ends)
{
    const unit *t = &w->u[u];
    const f16v step[2] = {f16v_load(w->panel->step), f16v_load(w->panel->step + DG_QCOLS)};
    const int n_col[2] = {dg_min(w->n_col, DG_QCOLS),
                          dg_max(0, dg_min(w->n_col - DG_QCOLS, DG_QCOLS))};
    const int8_t *x = (const int8_t *)t->step + (size_t)r * w->stride;
    float *held = w->held + (t->row + r) * DG_BYTE_COLS, *y = w->y + (size_t)(t->row + r) * w->ldy;
    for (; r < end; r++, x += w->stride, held += DG_BYTE_COLS, y += w->ldy) {
        const f16v by = f16v_set(*(const float *)x);
        UNROLL
        for (int i = 0; i < 2; i++) {
            const f16v s = f16v_mul(f16v_of_i32(v64_load(w->to->of[u][i][r])), step[i]),
                       all = f16v_fma(s, by, begins ? f16v_zero() : f16v_load(held + i * DG_QCOLS));
            if (!ends)
                f16v_store(held + i * DG_QCOLS, all);
            else if (n_col[1] == DG_QCOLS)
                f16v_store(y + i * DG_QCOLS, all);
            else
                f16v_store_first(y + i * DG_QCOLS, all, n_col[i]);
        }
    }
}

/* Part `part` of it: of two units one after the other. */
INLINE void scale_part(const work *w, int part)
{
    const int n = w->n_unit * ROWS / PARTS, at = part * n, u = at / ROWS,
              r = dg_max(at % ROWS, w->u[u].first), end = dg_min(at % ROWS + n, w->n_row);
    if (!w->begins && !w->ends)
        scale_some(w, u, r, end, false, false);
    else if (w->begins && w->ends)
        scale_some(w, u, r, end, true, true);
    else if (w->begins)
        scale_some(w, u, r, end, true, false);
    else
        scale_some(w, u, r, end, false, true);
}

/* Part `part` of what tiles do, and of scaling what they did before. */
INLINE void do_part(const work *now, const work *before, int part)
{
    if (now->n_unit)
        sum_part(now, part);
    if (before->n_unit)
        scale_part(before, part);
}

/* ---- the product ---- */

/* A slice of the columns of a panel. */
typedef struct place {
    int c, k;
} place;

INLINE place next_place(const dg_byte_args *a, place p)
{
    p.k += DG_QSLICE;
    return p.k < a->n_in ? p : (place){p.c + DG_BYTE_COLS, 0};
}

/* Columns that are not sixteen, side by side; the last one stands in for those beyond it. */
typedef struct few_columns {
    uint8_t at[DG_QCOLS][MOST_BYTES];
} few_columns;

/* Both halves of a panel; where there are no columns for the second, the first one's again. */
INLINE void begin_packing(packing p[2], few_columns few[2], const dg_byte_args *a, place at,
                          size_t slice_bytes, dg_byte_panel *panel)
{
    for (int i = 0; i < 2; i++) {
        const int c = at.c + i * DG_QCOLS < a->n_col ? at.c + i * DG_QCOLS : at.c,
                  n_block = dg_min(DG_QSLICE, a->n_in - at.k) / DG_QBLOCK;
        p[i].n_block = n_block;
        p[i].to = panel->n + i * DG_QSLICE * DG_QCOLS;
        p[i].step = panel->step + i * DG_QCOLS;
        p[i].scale = a->scale;
        p[i].at = (const uint8_t *)a->w + (size_t)c * a->stride +
                  (size_t)(at.k / DG_QSLICE) * slice_bytes;
        p[i].stride = a->stride;
        if (c + DG_QCOLS > a->n_col) {
            for (int k = 0; k < DG_QCOLS; k++)
                memcpy(few[i].at[k], p[i].at + (size_t)dg_min(k, a->n_col - c - 1) * a->stride,
                       slice_bytes * (size_t)n_block / DG_QBLOCKS);
            p[i].at = few[i].at[0];
            p[i].stride = sizeof few[i].at[0];
        }
    }
}

/* Tiles [first, first + n) of rows, of the slice at k. */
INLINE void set_units(work *w, const dg_byte_args *a, int k, int first, int n, size_t room)
{
    w->n_unit = n;
    for (int i = 0; i < n; i++) {
        const int begin = (first + i) * ROWS, row = dg_max(0, dg_min(begin, a->n_row - ROWS));
        dg_qpair *x = (dg_qpair *)a->x + (size_t)(a->first_row + row) * room;
        w->u[i] = (unit){(const int8_t *)x + k, dg_byte_steps(x, a->n_in) + k / DG_QSLICE, row,
                         begin - row};
    }
}

/* Asks for an eighth of a slice of the columns from p.c on, which are packed soon. */
INLINE void fetch_slice(const dg_byte_args *a, place p, size_t slice_bytes, int part)
{
    enum { SOME = DG_BYTE_COLS / PARTS };
    const int first = p.c + part * SOME;
    if (p.k >= a->n_in)
        return;
    const uint8_t *at =
        (const uint8_t *)a->w + (size_t)first * a->stride + (size_t)(p.k / DG_QSLICE) * slice_bytes;
    for (int c = first; c < dg_min(first + SOME, a->n_col); c++, at += a->stride)
        for (size_t i = 0; i < slice_bytes; i += 64)
            __builtin_prefetch(at + i, 0, 2);
}

INLINE void multiply(const dg_byte_args *a, const dg_qkind kind, const int up, const int most,
                     dg_numbers_fn *row)
{
    const int n_tile = dg_ceil_div(a->n_row, ROWS), n_turn = dg_ceil_div(n_tile, 2),
              n_slice = dg_ceil_div(a->n_in, DG_QSLICE),
              n_place = n_slice * dg_ceil_div(a->n_col, DG_BYTE_COLS);
    const size_t room = dg_qrow_room(a->n_in, DG_QWAY_BYTES);
    const size_t slice_bytes = dg_dtype_bytes((dg_dtype)a->type, DG_QSLICE);
    sums kept[2];
    work turn[2] = {{.n_unit = 0}, {.n_unit = 0}};
    packing p[2] = {{.stride = 0}, {.stride = 0}};
    few_columns few[2];
    place at = {0, 0};
    int which = 0;
    tiles_begin(dg_min(a->n_row, ROWS), BYTES);
    for (int part = 0; part < 2 * PARTS && !a->asked; part++)
        fetch_slice(a, (place){0, part / PARTS * DG_QSLICE}, slice_bytes, part % PARTS);
    dg_byte_stream soon = {NULL, NULL, 0};
    begin_packing(p, few, a, at, slice_bytes, a->panel);
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < 2; i++)
            pack_part(&p[i], part, kind, up, most, row);
    for (int i = 0; i < n_place; i++) {
        const place here = at;
        const int n_value = p[0].n_block * DG_QBLOCK;
        const bool more = i + 1 < n_place;
        at = next_place(a, at);
        if (here.k == 0)
            soon = dg_stream_from(a, here.c + DG_BYTE_COLS, n_slice * PARTS);
        if (more)
            begin_packing(p, few, a, at, slice_bytes, a->panel + (i + 1) % DG_BYTE_PANELS);
        for (int t = 0; t < n_turn; t++, which = !which) {
            work *now = &turn[which];
            *now = (work){
                .n_row = dg_min(ROWS, a->n_row),
                .stride = room * sizeof *a->x,
                .panel = a->panel + i % DG_BYTE_PANELS,
                .to = &kept[which],
                .n_step = dg_ceil_div(n_value, BYTES),
                .begins = here.k == 0,
                .ends = here.k + DG_QSLICE >= a->n_in,
                .held = a->sums,
                .y = a->y + here.c,
                .ldy = a->ldy,
                .n_col = a->n_col - here.c,
            };
            set_units(now, a, here.k, 2 * t, dg_min(2, n_tile - 2 * t), room);
            const int from = PARTS * t / n_turn, end = PARTS * (t + 1) / n_turn;
            for (int part = 0; part < PARTS; part++) {
                do_part(now, &turn[!which], part);
                if (part < from || part >= end)
                    continue;
                for (int h = 0; h < 2 && more; h++)
                    pack_part(&p[h], part, kind, up, most, row);
                dg_stream_fetch(&soon);
                if (at.c == 0 && !a->asked)
                    fetch_slice(a, (place){0, at.k + DG_QSLICE}, slice_bytes, part);
            }
        }
    }
    turn[which].n_unit = 0;
    for (int part = 0; part < PARTS; part++)
        do_part(&turn[which], &turn[!which], part);
    tiles_end();
}

#include "cpu/byte_types_body.h"

const dg_byte_kernels dg_bytes_amx = {
    .profile = "integer-bytes-amx",
    .way = DG_QWAY_BYTES,
    .quantise = quantise,
    .product = product,
};
