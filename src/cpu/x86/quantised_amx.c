/* Products on quantised weights with AMX: a tile of sixteen columns of a weight times one of
 * sixteen rows of x.
 *
 * Columns are the left side, as they are stored: 32 bytes of each. Rows are the right side, which
 * wants four values of each of them side by side; they are brought into that order when they are
 * quantised. Sums come out by column, sixteen rows side by side, so a column's step is one number
 * for all of them and a block of rows has its steps ready in a register.
 *
 * The sums of a block, or of half of one where groups have sixteen values, go through memory to
 * where they are scaled, while tiles sum the blocks behind it. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif
#include "cpu/x86/pack_amx.h"

enum {
    ROWS = 16,              /* of x in a tile */
    TILE = ROWS * DG_QCOLS, /* sums of one */
    PANELS = 2,             /* that rows meet in turn: the first-level cache holds them */
    SLOTS = 8,              /* groups whose sums are kept, a power of two … */
    AHEAD = 6               /* … and how many of them are summed before the first is scaled */
};

/* ---- rows ---- */

/* A block of sixteen rows. */
typedef struct sixteen {
    int8_t n[DG_QBLOCK / 4][ROWS][4];
    float step[ROWS], sum[ROWS], half_sum[2][ROWS];
} sixteen;
enum { ROOM = sizeof(sixteen) / sizeof(dg_qpair) };
_Static_assert(ROOM * sizeof(dg_qpair) == sizeof(sixteen), "sixteen rows take the room of pairs");

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    sixteen *to = (sixteen *)out;
    for (int b = 0; b < n_block; b++, to++) {
        dg_qpair p;
        QUANTISE(&p, 0, x + b * DG_QBLOCK, 1);
        for (int i = 0; i < DG_QBLOCK / 4; i++)
            memcpy(to->n[i][which], p.n[i / 2][0] + 4 * (i % 2), 4);
        to->step[which] = p.step[0][0];
        to->sum[which] = p.sum[0][0];
        for (int h = 0; h < 2; h++)
            to->half_sum[h][which] = p.half_sum[0][h];
    }
}

static void copy(dg_qpair *to, int to_which, const dg_qpair *from, int from_which, int n_block)
{
    sixteen *t = (sixteen *)to;
    const sixteen *f = (const sixteen *)from;
    for (int b = 0; b < n_block; b++, t++, f++) {
        for (int i = 0; i < DG_QBLOCK / 4; i++)
            memcpy(t->n[i][to_which], f->n[i][from_which], 4);
        t->step[to_which] = f->step[from_which];
        t->sum[to_which] = f->sum[from_which];
        for (int h = 0; h < 2; h++)
            t->half_sum[h][to_which] = f->half_sum[h][from_which];
    }
}

/* ---- weights ---- */

DG_NUMBER_TYPES(DG_PACK)

/* ---- sums ----
 *
 * What a tile stores reaches those who load it only when it has arrived in the cache, long after.
 * So sums run ahead of scaling by AHEAD groups, on into the columns and rows that come next. */

/* A product goes by as units: sixteen rows and the columns of each panel in turn, then the next
 * rows. */
typedef struct stream {
    const dg_qgemm_args *a;
    int n_unit, n_panel;
} stream;

/* Where sums are: a unit and a block of it, which is even. */
typedef struct place {
    const sixteen *x;
    const dg_qpanel *panel;
    int unit, block, slot;
} place;

typedef struct slots {
    _Alignas(64) int32_t sum[SLOTS][DG_QCOLS][ROWS];
} slots;

INLINE void set_unit(place *p, const stream *s)
{
    const dg_qgemm_args *a = s->a;
    const int sixteenth = a->first_row / ROWS + p->unit / s->n_panel;
    p->x = (const sixteen *)a->x + (size_t)sixteenth * a->ldx;
    p->panel = a->panel + p->unit % s->n_panel;
}

INLINE place begin(const stream *s)
{
    place p = {.unit = 0};
    set_unit(&p, s);
    return p;
}

/* Past two blocks, or the one that is left. */
INLINE void step_on(place *p, const stream *s, const int per_block)
{
    p->slot = (p->slot + 2 * per_block) % SLOTS;
    p->block += 2;
    if (p->block < s->a->n_block)
        return;
    p->block = 0;
    p->unit++;
    if (p->unit < s->n_unit)
        set_unit(p, s);
}

/* Sums of one group to a slot; macros, since an instruction names its tiles. */
#define SUM_GROUP(to, left, right, p, blk, group, slots, at, per_block)                            \
    do {                                                                                           \
        tile_zero(to);                                                                             \
        tile_load(left, (p)->panel->n + DG_QBLOCK * (blk) + DG_QBLOCK / (per_block) * (group),     \
                  DG_QSLICE);                                                                      \
        tile_load(right, (p)->x[blk].n[DG_QBLOCK / 4 / (per_block) * (group)], 64);                \
        tile_dot(to, left, right);                                                                 \
        tile_store(to, (slots)->sum[at], 64);                                                      \
    } while (0)

/* Sums of two blocks to their slots, and on to the next two. */
INLINE void sum_two(place *p, const stream *s, slots *to, const int per_block)
{
    if (p->unit >= s->n_unit)
        return;
    const int b = p->block;
    SUM_GROUP(0, 4, 6, p, b, 0, to, p->slot, per_block);
    if (per_block > 1)
        SUM_GROUP(1, 5, 7, p, b, 1, to, p->slot + 1, per_block);
    if (b + 1 < s->a->n_block) {
        SUM_GROUP(2, 5, 7, p, b + 1, 0, to, p->slot + per_block, per_block);
        if (per_block > 1)
            SUM_GROUP(3, 4, 6, p, b + 1, 1, to, p->slot + per_block + 1, per_block);
    }
    step_on(p, s, per_block);
}

/* ---- scaling ---- */

/* Adds the sums of a block to sixteen columns' results. */
INLINE void scale(f16v y[DG_QCOLS], const place *p, const slots *from, const int next,
                  const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int per_block = halves ? 2 : 1, slot = p->slot + next * per_block,
              at = (p->block + next) * per_block * DG_QCOLS;
    const float *step = p->panel->step + at, *least = p->panel->least + at;
    const sixteen *x = p->x + p->block + next;
    const f16v x_step = f16v_load(x->step), x_sum = f16v_load(x->sum);
    UNROLL
    for (int c = 0; c < DG_QCOLS; c++) {
        f16v t = f16v_mul(f16v_of_i32(v64_load(from->sum[slot][c])), f16v_set(step[c]));
        if (halves)
            t = f16v_fma(f16v_of_i32(v64_load(from->sum[slot + 1][c])),
                         f16v_set(step[DG_QCOLS + c]), t);
        y[c] = f16v_fma(t, x_step, y[c]);
        if (kind == DG_Q_LEAST)
            y[c] = f16v_fnma(f16v_set(least[c]), x_sum, y[c]);
        for (int h = 0; h < 2 && kind == DG_Q_HALVES_LEAST; h++)
            y[c] = f16v_fnma(f16v_set(least[h * DG_QCOLS + c]), f16v_load(x->half_sum[h]), y[c]);
    }
}

/* ---- results ----
 *
 * Held they lie as they are made: [sixteen rows][panel][column][row]. */

/* Rows of a tile's sums to where they belong; `row`, the first one's, may be before the first. */
INLINE void release_tile(float *y, size_t ldy, const float *sums, int row, int n_row, int n_col)
{
    columns s = {.scale = 1};
    for (int c = 0; c < DG_QCOLS; c++)
        s.at[c] = (const uint8_t *)(sums + c * ROWS);
    for (int i = 0; i < ROWS; i += 4) {
        v64 r[4];
        turn(r, &s, (size_t)i * sizeof *sums);
        for (int j = 0; j < 4; j++) {
            const int at = row + i + j;
            if (at >= 0 && at < n_row)
                f16v_store_first(y + (size_t)at * ldy, f16v_of_bits(r[j]), n_col);
        }
    }
}

static void release(const dg_qrelease_args *a)
{
    const int first = a->first_row / ROWS, end = dg_ceil_div(a->first_row + a->n_row, ROWS);
    for (int i = first; i < end; i++)
        for (int c = 0; c < a->n_col; c += DG_QCOLS)
            release_tile(a->y + c, a->ldy, a->sums + ((i - first) * PANELS + c / DG_QCOLS) * TILE,
                         i * ROWS - a->first_row, a->n_row, dg_min(DG_QCOLS, a->n_col - c));
}

/* The other way round, for results that are not held. */
static void take_tile(float *sums, const float *y, size_t ldy, int row, int n_row, int n_col)
{
    memset(sums, 0, TILE * sizeof *sums);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < n_col && row + r >= 0 && row + r < n_row; c++)
            sums[c * ROWS + r] = y[(size_t)(row + r) * ldy + (size_t)c];
}

/* ---- the product ---- */

/* One unit: its blocks are scaled while the tiles run ahead. */
INLINE void multiply_unit(const stream *s, float *sums, bool add, place *now, place *ahead,
                          slots *kept, const dg_qkind kind)
{
    const int per_block = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST ? 2 : 1,
              unit = now->unit;
    f16v y[DG_QCOLS];
    UNROLL
    for (int c = 0; c < DG_QCOLS; c++)
        y[c] = add ? f16v_load(sums + c * ROWS) : f16v_zero();
    while (now->unit == unit) {
        sum_two(ahead, s, kept, per_block);
        scale(y, now, kept, 0, kind);
        if (now->block + 1 < s->a->n_block)
            scale(y, now, kept, 1, kind);
        step_on(now, s, per_block);
    }
    UNROLL
    for (int c = 0; c < DG_QCOLS; c++)
        f16v_store(sums + c * ROWS, y[c]);
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int first = a->first_row / ROWS, end = dg_ceil_div(a->first_row + a->n_row, ROWS),
              per_block = halves ? 2 : 1;
    stream s = {.a = a, .n_panel = dg_ceil_div(a->n_col, DG_QCOLS)};
    s.n_unit = (end - first) * s.n_panel;
    slots sums;
    place ahead = begin(&s), now = ahead;
    for (int i = 2 * per_block; i <= AHEAD; i += 2 * per_block)
        sum_two(&ahead, &s, &sums, per_block);
    for (int unit = 0; unit < s.n_unit; unit++) {
        const int panel = unit % s.n_panel, group = unit / s.n_panel, col = panel * DG_QCOLS,
                  row = (first + group) * ROWS - a->first_row,
                  n_col = dg_min(DG_QCOLS, a->n_col - col);
        _Alignas(64) float mine[TILE];
        if (a->held) {
            multiply_unit(&s, a->y + (group * PANELS + panel) * TILE, a->add, &now, &ahead, &sums,
                          kind);
            continue;
        }
        if (a->add)
            take_tile(mine, a->y + col, a->ldy, row, a->n_row, n_col);
        multiply_unit(&s, mine, a->add, &now, &ahead, &sums, kind);
        release_tile(a->y + col, a->ldy, mine, row, a->n_row, n_col);
    }
}

DG_GEMM_OF_KINDS(multiply_all)

#define KIND_ENTRY(type, name, values, bytes, kind, low, most) [DG_##type] = DG_Q_##kind,

/* Setting tiles up takes as long as some products. */
static void begin_tiles(int type)
{
    static const dg_qkind kinds[DG_QTYPES] = {DG_NUMBER_TYPES(KIND_ENTRY)};
    tiles_begin(DG_QCOLS, group_of(kinds[type]));
}

static void end_tiles(void)
{
    tiles_end();
}

static const dg_qorder sixteens = {
    .rows = ROWS,
    .room = ROOM,
    .panels = PANELS,
    .copy = copy,
    .release = release,
    .begin = begin_tiles,
    .end = end_tiles,
};

const dg_qkernels dg_quantised_amx = {
    .order = &sixteens,
    .quantise = quantise,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
