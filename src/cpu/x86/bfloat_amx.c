/* Products of bfloat16 numbers with AMX: tiles of sixteen rows times sixteen columns, 32 values
 * along k. A panel is   [two of k][column] two numbers, rows of 64 bytes. Rows of x lie sixteen
 * together,   [32 of k][row] 32 numbers, so that a tile of either side is a KiB in one piece. */
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cpu/kernels.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif
#include "cpu/x86/columns_avx512.h"

enum {
    STEP = DG_BFLOAT_STEP,    /* values of a tile along k */
    ROWS = 16,                /* of a tile */
    TWO = 2 * DG_PANEL,       /* columns of two panels */
    TILE_N = STEP * DG_PANEL, /* numbers of a tile */
    STEP_BYTES = 2 * STEP,    /* of a column */
    LINE = 2 * DG_PANEL,      /* numbers of widen()'s lines … */
    CACHE_LINE = 32,          /* … and of one of the cache */
    SLACK = 64                /* e^64 is 2^92: sums have room for the rest */
};

#include "cpu/bfloat_bytes_body.h"

/* ---- weights ---- */

/* Of sixteen columns the numbers of a step, words side by side. */
INLINE void turn_step(uint16_t *to, const columns *s, size_t from)
{
    for (size_t m = 0; m < 4; m++) {
        v64 w[4];
        turn(w, s, from + 16 * m);
        for (size_t i = 0; i < 4; i++)
            v64_store(to + (4 * m + i) * 2 * DG_PANEL, w[i]);
    }
}

static void pack_cols(uint16_t *panel, const void *src, size_t stride, int n_k, int n_col)
{
    columns s = columns_of(&(dg_qpack_args){.src = src, .stride = stride, .n_col = n_col});
    int k = 0;
    for (; k + STEP <= n_k; k += STEP)
        turn_step(panel + k * DG_PANEL, &s, 2 * (size_t)k);
    if (k == n_k)
        return;
    uint8_t last[DG_PANEL][STEP_BYTES] = {{0}};
    for (int c = 0; c < DG_PANEL; c++) {
        memcpy(last[c], s.at[c] + 2 * k, 2 * (size_t)(n_k - k));
        s.at[c] = last[c];
    }
    turn_step(panel + k * DG_PANEL, &s, 0);
}

/* Row k's numbers in the lower halves of words; 0 behind the last row. */
INLINE v64 row_of(const void *src, size_t stride, int k, int n_k, int n_col)
{
    return k < n_k ? v64_widen16_first((const uint8_t *)src + (size_t)k * stride, n_col)
                   : v64_set32(0);
}

static void pack_rows(uint16_t *panel, const void *src, size_t stride, int n_k, int n_col)
{
    const int end = dg_ceil_div(n_k, STEP) * STEP;
    for (int k = 0; k < end; k += 2) {
        const v64 even = row_of(src, stride, k, n_k, n_col),
                  odd = row_of(src, stride, k + 1, n_k, n_col);
        v64_store(panel + k * DG_PANEL, v64_or(even, v64_left32(odd, 16)));
    }
}

/* ---- softmax ---- */

enum { LANES = 16, SOME = 2 * LANES };

static float largest(const float *z, int n)
{
    f16v most = f16v_set(-INFINITY), other = most;
    int i = 0;
    for (; i + SOME <= n; i += SOME) {
        most = f16v_max(f16v_load(z + i), most);
        other = f16v_max(f16v_load(z + i + LANES), other);
    }
    float all = f16v_largest(f16v_max(most, other));
    for (; i < n; i++)
        all = z[i] > all ? z[i] : all;
    return all;
}

/* 2^t to 2^-13 of itself, t being far from 128; at most 2^-126 for all that is less. With t = n +
 * f, |f| <= 1/2, the power of f is a polynomial; adding 1.5 * 2^23 leaves n in the low bits, from
 * where it goes to the exponent. */
INLINE f16v power_of(f16v t)
{
    const f16v shift = f16v_set(0x1.8p23f);
    t = f16v_max(t, f16v_set(-126));
    const f16v rounded = f16v_add(t, shift), f = f16v_sub(t, f16v_sub(rounded, shift));
    f16v p = f16v_fma(f, f16v_set(0.05517134f), f16v_set(0.24261117f));
    p = f16v_fma(f, p, f16v_set(0.69326103f));
    p = f16v_fma(f, p, f16v_set(0.99992807f));
    return f16v_of_bits(v64_add32(bits_of_f16v(p), v64_left32(bits_of_f16v(rounded), 23)));
}

/* SOME of them as bfloat16 numbers. */
INLINE v64 some_shares(const float *z, f16v top)
{
    const f16v log2e = f16v_set(0x1.715476p0f), a = f16v_mul(f16v_sub(f16v_load(z), top), log2e),
               b = f16v_mul(f16v_sub(f16v_load(z + LANES), top), log2e);
    return v64_of_bfloats(power_of(a), power_of(b));
}

static float shares(uint16_t *out, const float *z, int n, float top)
{
    const f16v most = f16v_set(top);
    f16v sum = f16v_zero();
    int i = 0;
    for (; i + SOME <= n; i += SOME) {
        const v64 some = some_shares(z + i, most);
        v64_store(out + i, some);
        sum = f16v_add_bfloats(sum, some);
    }
    if (i < n) {
        float last[SOME] = {0};
        uint16_t number[SOME];
        memcpy(last, z + i, (size_t)(n - i) * sizeof *last);
        v64_store(number, some_shares(last, most));
        memset(number + (n - i), 0, (size_t)(SOME - (n - i)) * sizeof *number);
        memcpy(out + i, number, (size_t)(n - i) * sizeof *number);
        sum = f16v_add_bfloats(sum, v64_load(number));
    }
    return f16v_total(sum);
}

/* Rows of scores of two panels, TWO apart, that become shares while others are multiplied. */
typedef struct softened {
    const float *z, *top; /* of the next row … */
    uint16_t *to;
    int left, some; /* … of so many; rows that are taken with each step */
    f16v above;     /* the most that a score was above its top */
} softened;

INLINE void soften_row(softened *s)
{
    const f16v top = f16v_set(*s->top++);
    /* each half by itself: where the first operand is NaN a maximum is the second one */
    s->above = f16v_max(f16v_sub(f16v_load(s->z), top), s->above);
    s->above = f16v_max(f16v_sub(f16v_load(s->z + LANES), top), s->above);
    v64_store(s->to, some_shares(s->z, top));
    s->z += TWO;
    s->to += STEP;
    s->left--;
}

/* A row of shares that is added up while others are multiplied. */
typedef struct summed {
    const uint16_t *at; /* NULL: none */
    f16v sum;
} summed;

INLINE void add_some(summed *s)
{
    s->sum = f16v_add_bfloats(s->sum, v64_load(s->at));
    s->at += TILE_N;
}

/* ---- the product ---- */

static void place(uint16_t *to, int which, const uint16_t *from, int n)
{
    for (int k = 0; k < n; k += STEP)
        v64_store(to + k * ROWS + which * STEP, v64_load(from + k));
}

/* Results that the next strip adds to, of so many rows. */
typedef struct results {
    const float *y; /* NULL: none */
    int n_row;
} results;

/* A tile of rows times two panels, or one. Four of the eight tiles are in use, two of them with
 * sums, and panels take turns in one: a core that is shared has room for little more (tiles_amx.h).
 * Two tiles of rows have a third fewer loads and take all eight: such a core is 1.7 times as slow
 * with them, and a free one no faster. The tiles that the macros name are constants of the
 * instructions. */
typedef struct strip {
    char *y; /* results, ldy bytes apart */
    results soon;
    size_t ldy;
    const uint16_t *x;
    const uint16_t *const *part;
    size_t panel; /* where the first one begins in each part */
} strip;

/* What is asked for while rows pass by: of each part `lines` lines of the cache from `panel` on, in
 * the order of memory, some with every step. */
typedef struct asked {
    const uint16_t *const *part;
    size_t panel, lines, line; /* line: the next one of the first part */
    int n_part, some;
} asked;

INLINE void ask_for_some(asked *s)
{
    for (int i = 0; i < s->some && s->n_part; i++) {
        __builtin_prefetch(*s->part + s->panel + s->line * CACHE_LINE, 0, 2);
        if (++s->line < s->lines)
            continue;
        s->line = 0;
        s->part++;
        s->n_part--;
    }
}

/* `two`: panels, a constant at every call. `rows`: softened meanwhile, some with each step; `row`:
 * added up; NULL: none. Products leave the rest of the processor idle for most of the time. */
INLINE void multiply_strip(const dg_bgemm_args *a, const strip *s, const bool add, const bool two,
                           asked *soon, softened *rows, summed *row)
{
    enum { PANEL_BYTES = DG_PANEL * sizeof(float) };
    const uint16_t *x = s->x;
    const char *y_soon = (const char *)s->soon.y;
    int y_left = s->soon.n_row;
    asked ask = *soon;
    tile_zero(0);
    tile_zero(1);
    if (add)
        tile_load(0, s->y, s->ldy);
    if (add && two)
        tile_load(1, s->y + PANEL_BYTES, s->ldy);
    const uint16_t *const *part = s->part;
    for (int left = a->n_k; left > 0; left -= a->part_k, part++) {
        const uint16_t *w = *part + s->panel, *end = x + dg_min(a->part_k, left) * ROWS;
        for (; x < end; x += TILE_N, w += TILE_N) {
            tile_load_once(4, x, STEP_BYTES);
            tile_load(6, w, STEP_BYTES);
            ask_for_some(&ask);
            for (int i = 0; i < 2 && y_left > 0; i++, y_left--, y_soon += s->ldy) {
                __builtin_prefetch(y_soon, 1, 3);
                __builtin_prefetch(y_soon + PANEL_BYTES, 1, 3);
            }
            tile_dot_bfloat(0, 4, 6);
            for (int i = 0; rows && i < rows->some && rows->left; i++)
                soften_row(rows);
            if (row && row->at)
                add_some(row);
            if (two) {
                tile_load(6, w + a->next, STEP_BYTES);
                tile_dot_bfloat(1, 4, 6);
            }
        }
    }
    tile_store(0, s->y, s->ldy);
    if (two)
        tile_store(1, s->y + PANEL_BYTES, s->ldy);
    *soon = ask;
}

/* Panels from column c on: their part, and where they begin in it. */
INLINE const uint16_t *const *part_of(const dg_bgemm_args *a, int c)
{
    return a->part + (a->part_col ? c / a->part_col : 0);
}

INLINE size_t place_in_part(const dg_bgemm_args *a, int c)
{
    return (size_t)((a->part_col ? c % a->part_col : c) / DG_PANEL) * a->next;
}

/* What is multiplied after two panels, from memory that no cache may have, while n rows pass by. */
INLINE asked next_of(const dg_bgemm_args *a, int c, int n)
{
    const int n_strip = dg_ceil_div(n, ROWS), n_step = dg_ceil_div(a->n_k, STEP),
              n_panel = dg_min(2, dg_ceil_div(a->n_col - c - TWO, DG_PANEL));
    asked s = {.part = a->soon.part, .lines = a->soon.each / CACHE_LINE, .n_part = a->soon.n};
    if (n_panel > 0)
        s = (asked){.part = part_of(a, c + TWO),
                    .panel = place_in_part(a, c + TWO),
                    .lines = ((size_t)(n_panel - 1) * a->next +
                              (size_t)dg_min(a->part_k, a->n_k) * DG_PANEL) /
                             CACHE_LINE,
                    .n_part = a->part_col ? 1 : dg_ceil_div(a->n_k, a->part_k)};
    s.some = dg_ceil_div((int)s.lines * s.n_part, n_strip * n_step);
    return s;
}

/* What a product does besides: it asks for what comes next, and adds up rows from `row` on. */
typedef struct aside {
    asked soon;
    int row;
} aside;

INLINE summed row_of_x(const dg_bgemm_args *a, int row)
{
    return (summed){a->x + (size_t)(row - row % ROWS) * a->ldx + row % ROWS * STEP, f16v_zero()};
}

/* Rows from r on, at most a tile, of columns [c, c + n_col), at most TWO; results, in whole panels,
 * to y. */
INLINE void multiply_to(const dg_bgemm_args *a, float *y, size_t ldy, results soon, int r, int c,
                        int n_col, aside *by)
{
    const strip s = {
        .y = (char *)y,
        .soon = soon,
        .ldy = ldy * sizeof *y,
        .x = a->x + (size_t)r * a->ldx,
        .part = part_of(a, c),
        .panel = place_in_part(a, c),
    };
    if (n_col <= DG_PANEL) {
        multiply_strip(a, &s, a->add, false, &by->soon, NULL, NULL);
        return;
    }
    const bool sums = a->sum && by->row < a->n_row;
    summed row = sums ? row_of_x(a, by->row) : (summed){NULL, f16v_zero()};
    multiply_strip(a, &s, a->add, true, &by->soon, NULL, &row);
    if (sums)
        a->sum[by->row++] = f16v_total(row.sum);
}

/* The same where a panel's columns are not all asked for: results pass through a place of their
 * own. */
static void multiply_some(const dg_bgemm_args *a, float *y, int r, int n_row, int c, int n_col,
                          aside *by)
{
    float spare[ROWS][TWO] = {{0}}, *to = spare[0];
    const size_t bytes = (size_t)n_col * sizeof *y;
    __asm__("" : "+r"(to)); /* tiles read less than their macros tell the compiler */
    for (int i = 0; i < n_row && a->add; i++)
        memcpy(to + i * TWO, y + (size_t)i * a->ldy, bytes);
    multiply_to(a, to, TWO, (results){NULL, 0}, r, c, n_col, by);
    for (int i = 0; i < n_row; i++)
        memcpy(y + (size_t)i * a->ldy, to + i * TWO, bytes);
}

/* Of rows [r, end), those of the strip after row i's with columns from c on. */
INLINE results results_after(const dg_bgemm_args *a, int i, int c, int r, int end)
{
    const bool below = i + ROWS < end;
    const int row = below ? i + ROWS : r, col = below ? c : c + TWO;
    if (!a->add || col >= a->n_col)
        return (results){NULL, 0};
    return (results){a->y + (size_t)row * a->ldy + col, dg_min(ROWS, end - row)};
}

/* All columns of rows [r, end), a tile at a time: panels stay in the first-level cache while rows
 * pass by, which are loaded past it. */
static void multiply_rows(const dg_bgemm_args *a, int r, int end, aside *by)
{
    for (int c = 0; c < a->n_col; c += TWO) {
        by->soon = next_of(a, c, end - r);
        for (int i = r; i < end; i += ROWS) {
            float *y = a->y + (size_t)i * a->ldy + c;
            const int n_row = dg_min(ROWS, end - i), n_col = dg_min(TWO, a->n_col - c);
            if (n_col % DG_PANEL)
                multiply_some(a, y, i, n_row, c, n_col, by);
            else
                multiply_to(a, y, a->ldy, results_after(a, i, c, r, end), i, c, n_col, by);
        }
    }
}

static void gemm(const dg_bgemm_args *a)
{
    const int whole = a->n_row / ROWS * ROWS, left = a->n_row - whole;
    aside by = {.row = 0};
    if (whole) {
        tiles_begin(ROWS, STEP_BYTES);
        multiply_rows(a, 0, whole, &by);
    }
    if (left) {
        tiles_begin(left, STEP_BYTES);
        multiply_rows(a, whole, a->n_row, &by);
    }
    tiles_end();
    for (; a->sum && by.row < a->n_row; by.row++) {
        summed row = row_of_x(a, by.row);
        for (int k = 0; k < a->n_k; k += STEP)
            add_some(&row);
        a->sum[by.row] = f16v_total(row.sum);
    }
}

/* ---- scores that become shares ---- */

/* All columns of rows [r, end); a tile's scores are softened while the next one's are made. Returns
 * the most that one was above its row's top. */
static float soften_rows(const dg_bgemm_args *a, uint16_t *share, const float *top, int r, int end)
{
    float score[2][ROWS][TWO] __attribute__((aligned(64)));
    const int some = dg_ceil_div(ROWS, dg_ceil_div(a->n_k, STEP));
    softened rows = {.some = some, .above = f16v_set(-INFINITY)};
    int turn = 0;
    for (int c = 0; c < a->n_col; c += TWO) {
        asked soon = next_of(a, c, end - r);
        for (int i = r; i < end; i += ROWS, turn = !turn) {
            const strip t = {
                .y = (char *)score[turn],
                .ldy = sizeof score[0][0],
                .x = a->x + (size_t)i * a->ldx,
                .part = part_of(a, c),
                .panel = place_in_part(a, c),
            };
            multiply_strip(a, &t, false, true, &soon, &rows, NULL);
            rows.z = score[turn][0];
            rows.top = top + i;
            rows.to = share + (size_t)i * (size_t)a->n_col + c * ROWS;
            rows.left = dg_min(ROWS, end - i);
        }
    }
    while (rows.left)
        soften_row(&rows);
    return f16v_largest(rows.above);
}

static bool soften(const dg_bgemm_args *a, uint16_t *share, const float *top)
{
    const int whole = a->n_row / ROWS * ROWS, left = a->n_row - whole;
    float above = -INFINITY;
    if (whole) {
        tiles_begin(ROWS, STEP_BYTES);
        above = soften_rows(a, share, top, 0, whole);
    }
    if (left) {
        tiles_begin(left, STEP_BYTES);
        above = fmaxf(above, soften_rows(a, share, top, whole, a->n_row));
    }
    tiles_end();
    return above <= SLACK;
}

const dg_bkernels dg_bfloat_amx = {
    .profile = "portable-amx",
    .block_profile = "integer-2-amx",
    .step = STEP,
    .rows = ROWS,
    .beside = 2,
    .block = 96,
    .keys = 256,
    .lines = 256,
    .slack = SLACK,
    .place = place,
    .pack_cols = pack_cols,
    .pack_rows = pack_rows,
    .gemm = gemm,
    .soften = soften,
    .largest = largest,
    .shares = shares,
    .widen = widen_lines,
};
