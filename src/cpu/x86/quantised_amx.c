/* Products on quantised weights with AMX: a tile of up to sixteen rows of x times one of sixteen
 * columns of a weight.
 *
 * Rows lie one by one here, a block in a cache line, so that a tile takes up to sixteen of them as
 * they lie. Panels are those of AVX-512, which is the order that a tile wants on its right side.
 *
 * Super-blocks are summed in tiles to their end: super_amx.h. The sums of a block of 32 go through
 * memory to where they are scaled, while tiles sum the blocks behind it. Where groups have sixteen
 * values that would be twice as many sums, and few rows do not wait for as long as that takes:
 * those products are dots of AVX-512, which take the same panels. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif

#define UP(kind) ((kind) == DG_Q_PLAIN || (kind) == DG_Q_HALVES ? 128 : 0)
enum { PLANES = 1 };
#include "cpu/x86/pack_avx512.h"

enum {
    ROWS = 16,    /* of a tile at most */
    ROUND = 4,    /* rows that are scaled are a multiple of it */
    PANELS = 2,   /* that rows meet in turn: more would not stay in the first-level cache */
    SLOTS = 8,    /* blocks whose sums are kept, a power of two … */
    AHEAD = 6,    /* … and how many of them are summed before the first is scaled */
    FEW_ROWS = 32 /* fewer have no use for tiles */
};

/* Hides from the compiler where a pointer came from: it would keep sixteen sums of pointer and
 * stride in memory and load them, and loads are what there are most of. */
#if defined(__GNUC__) && !defined(DG_PLAIN_LANES)
#define STEP_ON(p, by)                                                                             \
    do {                                                                                           \
        (p) += (by);                                                                               \
        __asm__("" : "+r"(p));                                                                     \
    } while (0)
#else
#define STEP_ON(p, by) ((p) += (by))
#endif

/* ---- rows ---- */

/* A block of one row. */
typedef struct line {
    int8_t n[DG_QBLOCK];
    float step, sum;
    int32_t bias[2], whole_bias, unused[3];
} line;
_Static_assert(2 * sizeof(line) == sizeof(dg_qpair), "two rows take the room of a pair");

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    (void)which; /* the only one */
    line *to = (line *)out;
    for (int b = 0; b < n_block; b++, to++) {
        dg_qpair p;
        QUANTISE(&p, 0, x + b * DG_QBLOCK, 1);
        for (int i = 0; i < DG_QBLOCK / 8; i++)
            memcpy(to->n + 8 * i, p.n[i][0], 8);
        to->step = p.step[0][0];
        to->sum = p.sum[0][0];
        for (int h = 0; h < 2; h++)
            to->bias[h] = p.bias[0][h];
        to->whole_bias = to->bias[0] + to->bias[1];
    }
}

static void copy(dg_qpair *to, int to_which, const dg_qpair *from, int from_which, size_t n_pair)
{
    (void)to_which;
    (void)from_which;
    memcpy(to, from, n_pair * sizeof *to);
}

/* ---- weights ---- */

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                       dg_numbers_fn *row)
{
    pack_columns(panel, a, type, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- dots ---- */

typedef struct dot_row {
    const line *x;
} dot_row;

INLINE dot_row dot_row_at(const dg_qgemm_args *a, int row)
{
    return (dot_row){(const line *)(a->x + (size_t)row * a->ldx)};
}

INLINE void dot_next(dot_row *r)
{
    r->x++;
}

INLINE v64 dot_four(const dot_row *r, int four)
{
    int32_t bytes;
    memcpy(&bytes, r->x->n + 4 * four, sizeof bytes);
    return v64_set32(bytes);
}

INLINE int32_t dot_bias(const dot_row *r, int half)
{
    return r->x->bias[half];
}

INLINE float dot_step(const dot_row *r)
{
    return r->x->step;
}

INLINE float dot_sum(const dot_row *r)
{
    return r->x->sum;
}

#include "cpu/x86/dots_avx512.h"

/* Panel after panel. */
INLINE void dot_panels(const dg_qgemm_args *a, const dg_qkind kind)
{
    fetch soon = fetch_of(&a->soon, dot_turns(a) * dg_ceil_div(a->n_col, DG_QCOLS));
    for (int c = 0; c < a->n_col; c += DG_QCOLS) {
        dg_qgemm_args one = *a;
        one.y += c;
        one.panel += c / DG_QCOLS;
        one.n_col = dg_min(DG_QCOLS, a->n_col - c);
        dot_all(&one, &soon, kind);
    }
}

/* ---- sums ----
 *
 * What a tile stores reaches those who load it only when it has arrived in the cache, long after.
 * So sums run ahead of scaling by AHEAD blocks, on into the columns and rows that come next. */

/* Rows and columns go by as units: sixteen rows and the columns of each panel, then the next rows.
 * n_row is less than sixteen for the last rows of a product, whose tiles are others. */
typedef struct stream {
    const dg_qgemm_args *a;
    size_t stride; /* bytes from row to row */
    int first, n_row, n_unit, n_panel;
} stream;

/* Where sums are: a unit and a block of it, which is even. */
typedef struct place {
    const line *x;
    const dg_qpanel *panel;
    int unit, block, slot;
} place;

typedef struct slots {
    _Alignas(64) int32_t sum[SLOTS][ROWS][DG_QCOLS];
} slots;

INLINE void set_unit(place *p, const stream *s)
{
    const int row = s->a->first_row + s->first + p->unit / s->n_panel * ROWS;
    p->x = (const line *)(s->a->x + (size_t)row * s->a->ldx);
    p->panel = s->a->panel + p->unit % s->n_panel;
}

INLINE place begin(const stream *s)
{
    place p = {.unit = 0};
    set_unit(&p, s);
    return p;
}

/* Past two blocks, or the one that is left. */
INLINE void step_on(place *p, const stream *s)
{
    p->slot = (p->slot + 2) % SLOTS;
    p->block += 2;
    if (p->block < s->a->n_block)
        return;
    p->block = 0;
    p->unit++;
    if (p->unit < s->n_unit)
        set_unit(p, s);
}

/* Sums of one block to a slot; a macro, since an instruction names its tiles. */
#define SUM_BLOCK(to, left, right, next)                                                           \
    do {                                                                                           \
        tile_zero(to);                                                                             \
        tile_load(left, p->x[p->block + (next)].n, s->stride);                                     \
        tile_load(right, p->panel->n + DG_QBLOCK * DG_QCOLS * (p->block + (next)), 64);            \
        tile_dot_unsigned(to, left, right);                                                        \
        tile_store(to, kept->sum[p->slot + (next)], 64);                                           \
    } while (0)

/* Sums of two blocks to their slots, and on to the next two; `rest`: of the last rows. */
INLINE void sum_two(place *p, const stream *s, slots *kept, const bool rest)
{
    if (p->unit >= s->n_unit)
        return;
    const bool two = p->block + 1 < s->a->n_block;
    if (rest) {
        SUM_BLOCK(2, 5, 6, 0);
        if (two)
            SUM_BLOCK(3, 5, 7, 1);
    } else {
        SUM_BLOCK(0, 4, 6, 0);
        if (two)
            SUM_BLOCK(1, 4, 7, 1);
    }
    step_on(p, s);
}

/* ---- scaling ---- */

/* Adds the sums of a block to the results of `rows` rows. */
INLINE void scale(f16v y[ROWS], const stream *s, const place *p, const slots *from, const int next,
                  const dg_qkind kind, const int rows)
{
    const int slot = p->slot + next, at = (p->block + next) * DG_QCOLS;
    const float *step = p->panel->step + at, *least = p->panel->least + at;
    const char *row = (const char *)(p->x + p->block + next);
    UNROLL
    for (int r = 0; r < rows; r++) {
        const line *x = (const line *)row;
        v64 sum = v64_load(from->sum[slot][r]);
        if (UP(kind))
            sum = v64_add32(sum, v64_set32(x->whole_bias));
        const f16v t = f16v_mul(f16v_of_i32(sum), f16v_load(step));
        y[r] = f16v_fma(t, f16v_set(x->step), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(x->sum), y[r]);
        STEP_ON(row, r + 1 <= rows - ROUND || r + 1 < s->n_row ? s->stride : 0);
    }
}

/* Where the results of a unit go; `nobody` takes those of rows that were not asked for. */
INLINE void results_of(float *to[ROWS], const stream *s, int unit, float *nobody)
{
    const int row = s->first + unit / s->n_panel * ROWS;
    float *y = s->a->y + unit % s->n_panel * DG_QCOLS;
    for (int i = 0; i < ROWS; i++)
        to[i] = i < s->n_row ? y + (size_t)(row + i) * s->a->ldy : nobody;
}

#include "cpu/x86/super_amx.h"

/* ---- the product ---- */

/* All units of a stream; `rows`, at least n_row, is a constant at every call. */
INLINE void multiply(const stream *s, fetch *soon, const dg_qkind kind, const int rows,
                     const bool rest)
{
    float nobody[DG_QCOLS] = {0}, *to[ROWS];
    slots kept;
    place ahead = begin(s), now = ahead;
    if (s->n_row % ROUND)
        memset(&kept, 0, sizeof kept); /* rows that no tile stores */
    for (int i = 0; i < AHEAD; i += 2)
        sum_two(&ahead, s, &kept, rest);
    for (int unit = 0; unit < s->n_unit; unit++) {
        const int n_col = dg_min(DG_QCOLS, s->a->n_col - unit % s->n_panel * DG_QCOLS);
        f16v y[ROWS];
        results_of(to, s, unit, nobody);
        UNROLL
        for (int r = 0; r < rows; r++)
            y[r] = s->a->add ? f16v_load_first(to[r], n_col) : f16v_zero();
        while (now.unit == unit) {
            fetch_some(soon);
            sum_two(&ahead, s, &kept, rest);
            scale(y, s, &now, &kept, 0, kind, rows);
            if (now.block + 1 < s->a->n_block)
                scale(y, s, &now, &kept, 1, kind, rows);
            step_on(&now, s);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            f16v_store_first(to[r], y[r], n_col);
    }
}

/* Sixteen rows at a time, then what is left. */
INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    if (dg_qkind_super(kind)) {
        super_all(a, kind);
        return;
    }
    if (kind == DG_Q_HALVES || a->n_row < FEW_ROWS) {
        dot_panels(a, kind);
        return;
    }
    const int whole = a->n_row / ROWS;
    stream s = {
        .a = a,
        .stride = a->ldx * sizeof *a->x,
        .n_row = ROWS,
        .n_panel = dg_ceil_div(a->n_col, DG_QCOLS),
    };
    s.n_unit = whole * s.n_panel;
    fetch soon =
        fetch_of(&a->soon, dg_ceil_div(a->n_row, ROWS) * s.n_panel * dg_ceil_div(a->n_block, 2));
    multiply(&s, &soon, kind, ROWS, false);
    s.first = whole * ROWS;
    s.n_row = a->n_row % ROWS;
    s.n_unit = s.n_panel;
    switch (dg_ceil_div(s.n_row, ROUND)) {
    case 0:
        break;
    case 1:
        multiply(&s, &soon, kind, ROUND, true);
        break;
    case 2:
        multiply(&s, &soon, kind, 2 * ROUND, true);
        break;
    case 3:
        multiply(&s, &soon, kind, 3 * ROUND, true);
        break;
    default:
        multiply(&s, &soon, kind, ROWS, true);
        break;
    }
}

DG_GEMM_OF_KINDS(multiply_all)

/* Setting tiles up takes as long as some products. */
static void begin_tiles(int first_row, int n_row, bool super)
{
    (void)first_row;
    const int rest = n_row % ROWS;
    if (super)
        tiles_begin(dg_min(n_row, ROWS), SUPER_BYTES);
    else if (n_row >= FEW_ROWS)
        tiles_begin_two(ROWS, rest ? rest : ROWS, DG_QBLOCK);
}

static void end_tiles(void)
{
    tiles_end();
}

static const dg_qorder lines = {
    .rows = 1,
    .panels = PANELS,
    .copy = copy,
    .begin = begin_tiles,
    .end = end_tiles,
};

const dg_qkernels dg_quantised_amx = {
    .order = &lines,
    .quantise = quantise,
    .quantise_super = quantise_super,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
