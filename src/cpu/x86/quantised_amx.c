/* Products on quantised weights with AMX: a tile of sixteen rows of bytes times one of sixteen
 * columns.
 *
 * Pairs of rows lie as eight values of one, eight of the other. A tile takes a block of sixteen
 * pairs as it lies there, and the weights stand over the values of one row with zeros over those of
 * the other: two products, for even rows and odd ones, without rearranging anything. Zeros and
 * weights take turns in a panel, two rows of each, so that both right sides are the same memory:
 *     n   [eight of 256] two rows of zeros, two of weights; then two of zeros
 * The sums of a block, or of half of one where groups have sixteen values, go through memory to
 * where they are scaled, while tiles sum the blocks behind it. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif

#define PANEL_ROW(j) (4 * ((j) / 2) + 2 + (j) % 2)
#define UP(kind)     0
#include "cpu/x86/pack_avx512.h"

enum {
    PAIRS = 16, /* of rows in a tile */
    ROUND = 4,  /* rows that are scaled are a multiple of it */
    SLOTS = 8,  /* groups whose sums are kept, a power of two … */
    AHEAD = 6   /* … and how many of them are summed before the first is scaled */
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

/* ---- weights ---- */

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    const v64 zero = v64_set32(0);
    for (int eight = 0; eight <= 4 * a->n_block; eight++)
        for (int i = 0; i < 2; i++)
            v64_store(panel->n + 64 * (4 * eight + i), zero);
    pack_columns(panel, a, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* ---- sums ----
 *
 * What a tile stores reaches those who load it only when it has arrived in the cache, long after.
 * So sums run ahead of scaling by AHEAD groups, on into the rows that come next. */

/* A product's rows go by as units: even rows of sixteen pairs, their odd rows, those of the next
 * pairs. n_pair is less than sixteen for one couple of units alone, the last of a product. */
typedef struct stream {
    const dg_qgemm_args *a;
    size_t stride; /* bytes from pair to pair */
    int first, n_pair, n_unit;
    int n_group; /* along k */
} stream;

INLINE const dg_qpair *unit_x(const stream *s, int unit)
{
    return s->a->x + (size_t)(s->first + unit / 2 * PAIRS) * s->a->ldx;
}

/* Where sums are: a unit and a group of it, which is even. */
typedef struct place {
    const dg_qpair *x;
    const uint8_t *n; /* the panel's numbers, zeros over the rows that are not the unit's */
    int unit, group, slot;
} place;

typedef struct slots {
    _Alignas(64) int32_t sum[SLOTS][PAIRS][DG_QCOLS];
} slots;

INLINE place begin(const stream *s)
{
    return (place){.x = unit_x(s, 0), .n = s->a->panel->n + 128};
}

INLINE void step_on(place *p, const stream *s)
{
    p->slot = (p->slot + 2) % SLOTS;
    p->group += 2;
    if (p->group < s->n_group)
        return;
    p->group = 0;
    p->unit++;
    p->n = s->a->panel->n + (p->unit % 2 ? 0 : 128);
    if (p->unit < s->n_unit)
        p->x = unit_x(s, p->unit);
}

/* Where a group's values lie in x, and its weights in the panel. */
INLINE const int8_t *left_of(const place *p, int group, const bool halves)
{
    return halves ? p->x[group / 2].n[2 * (group % 2)][0] : p->x[group].n[0][0];
}

INLINE const uint8_t *right_of(const place *p, int group, const bool halves)
{
    return p->n + 64 * (halves ? 8 : 16) * group;
}

/* Sums of two groups to two slots, and on to the next two. */
INLINE void sum_two(place *p, const stream *s, slots *to, const bool halves)
{
    if (p->unit >= s->n_unit)
        return;
    tile_zero(0);
    tile_load(4, left_of(p, p->group, halves), s->stride);
    tile_load(6, right_of(p, p->group, halves), 64);
    tile_dot(0, 4, 6);
    if (p->group + 1 < s->n_group) {
        tile_zero(1);
        tile_load(5, left_of(p, p->group + 1, halves), s->stride);
        tile_load(7, right_of(p, p->group + 1, halves), 64);
        tile_dot(1, 5, 7);
    }
    tile_store(0, to->sum[p->slot], 64);
    if (p->group + 1 < s->n_group)
        tile_store(1, to->sum[p->slot + 1], 64);
    step_on(p, s);
}

/* ---- scaling ---- */

/* Adds the sums of a group, or of both groups of a block, to `rows` results. */
INLINE void scale(f16v y[PAIRS], const stream *s, const place *p, const slots *from, const int next,
                  const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int group = p->group + next, slot = p->slot + next, which = p->unit % 2;
    const float *step = s->a->panel->step + group * DG_QCOLS,
                *least = s->a->panel->least + group * DG_QCOLS;
    const char *at = (const char *)(p->x + (halves ? group / 2 : group));
    UNROLL
    for (int r = 0; r < rows; r++) {
        const dg_qpair *x = (const dg_qpair *)at;
        f16v t = f16v_mul(f16v_of_i32(v64_load(from->sum[slot][r])), f16v_load(step));
        if (halves)
            t = f16v_fma(f16v_of_i32(v64_load(from->sum[slot + 1][r])), f16v_load(step + DG_QCOLS),
                         t);
        y[r] = f16v_fma(t, f16v_set(x->step[which][0]), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(x->sum[which][0]), y[r]);
        for (int h = 0; h < 2 && kind == DG_Q_HALVES_LEAST; h++)
            y[r] =
                f16v_fnma(f16v_load(least + h * DG_QCOLS), f16v_set(x->half_sum[which][h]), y[r]);
        STEP_ON(at, r + 1 <= rows - ROUND || r + 1 < s->n_pair ? s->stride : 0);
    }
}

/* Where the results of a unit go; `nobody` takes those of rows that were not asked for. */
INLINE void results_of(float *to[PAIRS], const stream *s, int unit, float *nobody)
{
    const int row = 2 * (s->first + unit / 2 * PAIRS) + unit % 2 - s->a->first_row;
    for (int i = 0; i < PAIRS; i++)
        to[i] = row + 2 * i >= 0 && row + 2 * i < s->a->n_row
                    ? s->a->y + (ptrdiff_t)(row + 2 * i) * (ptrdiff_t)s->a->ldy
                    : nobody;
}

/* ---- the product ---- */

/* All units of a stream; `rows`, at least n_pair, is a constant at every call. */
INLINE void multiply(const stream *s, const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    float nobody[DG_QCOLS] = {0}, *to[PAIRS];
    slots sums;
    place ahead = begin(s), now = ahead;
    if (s->n_pair % ROUND)
        memset(&sums, 0, sizeof sums); /* rows that no tile stores */
    tiles_begin(s->n_pair, halves ? 32 : 64);
    for (int i = 0; i < AHEAD; i += 2)
        sum_two(&ahead, s, &sums, halves);
    for (int unit = 0; unit < s->n_unit; unit++) {
        f16v y[PAIRS];
        results_of(to, s, unit, nobody);
        UNROLL
        for (int r = 0; r < rows; r++)
            y[r] = s->a->add ? f16v_load_first(to[r], s->a->n_col) : f16v_zero();
        while (now.unit == unit) {
            sum_two(&ahead, s, &sums, halves);
            scale(y, s, &now, &sums, 0, kind, rows);
            if (!halves && now.group + 1 < s->n_group)
                scale(y, s, &now, &sums, 1, kind, rows);
            step_on(&now, s);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            f16v_store_first(to[r], y[r], s->a->n_col);
    }
}

INLINE void multiply_stream(const stream *s, const dg_qkind kind)
{
    switch (dg_ceil_div(s->n_pair, ROUND)) {
    case 1:
        multiply(s, kind, ROUND);
        break;
    case 2:
        multiply(s, kind, 2 * ROUND);
        break;
    case 3:
        multiply(s, kind, 3 * ROUND);
        break;
    default:
        multiply(s, kind, PAIRS);
        break;
    }
}

/* Sixteen pairs at a time, then what is left. */
INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int first = a->first_row / 2, end = dg_ceil_div(a->first_row + a->n_row, 2),
              whole = (end - first) / PAIRS;
    stream s = {
        .a = a,
        .stride = a->ldx * sizeof *a->x,
        .first = first,
        .n_pair = PAIRS,
        .n_unit = 2 * whole,
        .n_group = a->n_block * (halves ? 2 : 1),
    };
    if (whole)
        multiply(&s, kind, PAIRS);
    s.first += whole * PAIRS;
    s.n_pair = end - s.first;
    s.n_unit = 2;
    if (s.n_pair)
        multiply_stream(&s, kind);
    tiles_end();
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_amx = {
    .quantise = QUANTISE,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
