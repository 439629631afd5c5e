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
    LINE = 2 * DG_PANEL
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

/* 2^t for t <= 0, to 2^-13 of itself; at most 2^-126 for all that is less. With t = n + f, |f| <=
 * 1/2, the power of f is a polynomial; adding 1.5 * 2^23 leaves n in the low bits, from where it
 * goes to the exponent. */
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

/* A line of a product's scores to be softened on the way. */
typedef struct softened {
    const float *z, *end, *next; /* next: another line, of which the largest is found as well */
    uint16_t *to;
    f16v top, sum, most, other;
} softened;

INLINE void soften_some(softened *s)
{
    const v64 some = some_shares(s->z, s->top);
    v64_store(s->to, some);
    s->sum = f16v_add_bfloats(s->sum, some);
    s->most = f16v_max(f16v_load(s->next), s->most);
    s->other = f16v_max(f16v_load(s->next + LANES), s->other);
    s->z += SOME;
    s->next += SOME;
    s->to += TILE_N;
}

/* ---- the product ---- */

static void place(uint16_t *to, int which, const uint16_t *from, int n)
{
    for (int k = 0; k < n; k += STEP)
        v64_store(to + k * ROWS + which * STEP, v64_load(from + k));
}

/* A tile of rows times two panels, or one. Four of the eight tiles are in use, two of them with
 * sums, and panels take turns in one: a core that is shared has room for little more (tiles_amx.h).
 * Two tiles of rows have a third fewer loads and take all eight: such a core is 1.7 times as slow
 * with them, and a free one no faster. The tiles that the macros name are constants of the
 * instructions. */
typedef struct strip {
    char *y; /* results, ldy bytes apart */
    size_t ldy;
    const uint16_t *x;
    const uint16_t *const *part;
    size_t panel;         /* where the first one begins in each part */
    const uint16_t *soon; /* panels that come next; NULL: the next ones of each part */
    int ask, ask_end;     /* lines of their tiles that are asked for here */
} strip;

/* `two`: panels, a constant at every call. `line`: softened meanwhile, some of it with each step;
 * NULL: none. Products leave the rest of the processor idle for most of the time. */
INLINE void multiply_strip(const dg_bgemm_args *a, const strip *s, const bool two, softened *line)
{
    enum { PANEL_BYTES = DG_PANEL * sizeof(float) };
    const uint16_t *x = s->x;
    tile_zero(0);
    tile_zero(1);
    if (a->add)
        tile_load(0, s->y, s->ldy);
    if (a->add && two)
        tile_load(1, s->y + PANEL_BYTES, s->ldy);
    const uint16_t *const *part = s->part;
    for (int left = a->n_k; left > 0; left -= a->part_k, part++) {
        const uint16_t *w = *part + s->panel, *end = x + dg_min(a->part_k, left) * ROWS,
                       *soon = s->soon ? s->soon : w + 2 * a->next;
        for (; x < end; x += TILE_N, w += TILE_N, soon += TILE_N) {
            tile_load_once(4, x, STEP_BYTES);
            tile_load(6, w, STEP_BYTES);
            for (int i = s->ask; i < s->ask_end; i++) {
                __builtin_prefetch(soon + i * STEP, 0, 2);
                __builtin_prefetch(soon + a->next + i * STEP, 0, 2);
            }
            tile_dot_bfloat(0, 4, 6);
            if (line && line->z < line->end)
                soften_some(line);
            if (two) {
                tile_load(6, w + a->next, STEP_BYTES);
                tile_dot_bfloat(1, 4, 6);
            }
        }
    }
    tile_store(0, s->y, s->ldy);
    if (two)
        tile_store(1, s->y + PANEL_BYTES, s->ldy);
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

/* What is multiplied after these columns, from memory that no cache may have: each pass of rows
 * asks for its share. */
INLINE void ask_for_next(strip *s, const dg_bgemm_args *a, int r, int n_row, int c)
{
    if (c + TWO >= a->n_col)
        return;
    if (a->part_col)
        s->soon = *part_of(a, c + TWO) + place_in_part(a, c + TWO);
    s->ask = ROWS * r / a->n_row;
    s->ask_end = ROWS * (r + n_row) / a->n_row;
}

/* The same of two panels, with the next of the lines to soften. `top`: the largest of its scores,
 * and then of the next one's. */
static void multiply_softening(const dg_bgemm_args *a, const strip *s, float *top)
{
    dg_bsoften *all = a->soften;
    const int line = all->done++, which = line % ROWS;
    const float *z = all->z + (size_t)line * all->ldz;
    float *max = &all->max[line];
    *max = *top > *max ? *top : *max;
    softened l = {
        .z = z,
        .end = z + all->n,
        .next = all->done < all->n_line ? z + all->ldz : z,
        .to = all->out + (size_t)(line - which) * (size_t)all->n + which * STEP,
        .top = f16v_set(*max),
        .sum = f16v_zero(),
        .most = f16v_set(-INFINITY),
        .other = f16v_set(-INFINITY),
    };
    multiply_strip(a, s, true, &l);
    while (l.z < l.end)
        soften_some(&l);
    all->sum[line] = f16v_total(l.sum);
    *top = f16v_largest(f16v_max(l.most, l.other));
}

/* Rows [r, r + n_row), at most a tile, of columns [c, c + n_col), at most TWO; results, in whole
 * panels, to y. */
static void multiply_to(const dg_bgemm_args *a, float *y, size_t ldy, int r, int n_row, int c,
                        int n_col, float *top)
{
    strip s = {
        .y = (char *)y,
        .ldy = ldy * sizeof *y,
        .x = a->x + (size_t)r * a->ldx,
        .part = part_of(a, c),
        .panel = place_in_part(a, c),
    };
    ask_for_next(&s, a, r, n_row, c);
    if (n_col <= DG_PANEL)
        multiply_strip(a, &s, false, NULL);
    else if (a->soften && a->soften->done < a->soften->n_line)
        multiply_softening(a, &s, top);
    else
        multiply_strip(a, &s, true, NULL);
}

/* The same where a panel's columns are not all asked for: results pass through a place of their
 * own. */
static void multiply_some(const dg_bgemm_args *a, float *y, int r, int n_row, int c, int n_col,
                          float *top)
{
    float spare[ROWS][TWO] = {{0}};
    const size_t bytes = (size_t)n_col * sizeof *y;
    for (int i = 0; i < n_row && a->add; i++)
        memcpy(spare[i], y + (size_t)i * a->ldy, bytes);
    multiply_to(a, spare[0], TWO, r, n_row, c, n_col, top);
    for (int i = 0; i < n_row; i++)
        memcpy(y + (size_t)i * a->ldy, spare[i], bytes);
}

/* All columns of rows [r, end), a tile at a time: panels stay in the first-level cache while rows
 * pass by, which are loaded past it. */
static void multiply_rows(const dg_bgemm_args *a, int r, int end, float *top)
{
    for (int c = 0; c < a->n_col; c += TWO)
        for (int i = r; i < end; i += ROWS) {
            float *y = a->y + (size_t)i * a->ldy + c;
            const int n_row = dg_min(ROWS, end - i), n_col = dg_min(TWO, a->n_col - c);
            if (n_col % DG_PANEL)
                multiply_some(a, y, i, n_row, c, n_col, top);
            else
                multiply_to(a, y, a->ldy, i, n_row, c, n_col, top);
        }
}

static void gemm(const dg_bgemm_args *a)
{
    const int whole = a->n_row / ROWS * ROWS, left = a->n_row - whole;
    float top = a->soften ? largest(a->soften->z, a->soften->n) : 0;
    if (whole) {
        tiles_begin(ROWS, STEP_BYTES);
        multiply_rows(a, 0, whole, &top);
    }
    if (left) {
        tiles_begin(left, STEP_BYTES);
        multiply_rows(a, whole, a->n_row, &top);
    }
    tiles_end();
}

const dg_bkernels dg_bfloat_amx = {
    .profile = "portable-amx",
    .block_profile = "integer-2-amx",
    .step = STEP,
    .rows = ROWS,
    .beside = 2,
    .block = 96,
    .keys = 512,
    .place = place,
    .pack_cols = pack_cols,
    .pack_rows = pack_rows,
    .gemm = gemm,
    .largest = largest,
    .shares = shares,
    .widen = widen_lines,
};
