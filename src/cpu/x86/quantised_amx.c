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
    SLOTS = 4,  /* groups that are on their way: tiles 0 to 3 */
    ROUND = 4   /* rows that are scaled are a multiple of it */
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

/* ---- sums ---- */

/* Even or odd rows of up to sixteen pairs, and what they meet. */
typedef struct lines {
    const dg_qpair *x; /* the first pair's first block */
    size_t stride;     /* bytes from pair to pair */
    const uint8_t *n;  /* the panel's numbers, with zeros over the rows that are not these */
    const float *step, *least;
    int which;   /* rows of a pair */
    int n_pair;  /* as many as tiles_begin was told */
    int n_group; /* along k */
    bool more;   /* sixteen pairs stand behind these sixteen */
    float *to[PAIRS];
} lines;

typedef struct slots {
    _Alignas(64) int32_t sum[SLOTS][PAIRS][DG_QCOLS];
} slots;

/* Where a group's values lie in x, and its weights in the panel. */
INLINE const int8_t *left_of(const lines *l, int group, const bool halves)
{
    return halves ? l->x[group / 2].n[2 * (group % 2)][0] : l->x[group].n[0][0];
}

INLINE const uint8_t *right_of(const lines *l, int group, const bool halves)
{
    return l->n + 64 * (halves ? 8 : 16) * group;
}

/* Tile `slot` = the sums of a group, if there is such a group; a macro, since instructions name
 * their tiles. */
#define SUM_GROUP(slot, left, right, group)                                                        \
    do {                                                                                           \
        if ((group) < l->n_group) {                                                                \
            tile_zero(slot);                                                                       \
            tile_load(left, left_of(l, group, halves), l->stride);                                 \
            tile_load(right, right_of(l, group, halves), 64);                                      \
            tile_dot(slot, left, right);                                                           \
        }                                                                                          \
    } while (0)

/* Asks for a block of the pairs behind these: rows lie far apart, in memory that other cores wrote.
 * Even rows come first, so odd ones find everything there. */
INLINE void fetch_pairs(const lines *l, int block)
{
    const char *next = (const char *)(l->x + block) + PAIRS * l->stride;
    for (int i = 0; i < PAIRS; i++, next += l->stride) {
        __builtin_prefetch(next);
        __builtin_prefetch(next + sizeof(int8_t[64]));
    }
}

/* ---- scaling ---- */

/* Adds the sums of a group, or of both groups of a block, to `rows` results. */
INLINE void scale(f16v y[PAIRS], const lines *l, const slots *s, int slot, int group,
                  const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const float *step = l->step + group * DG_QCOLS, *least = l->least + group * DG_QCOLS;
    const char *at = (const char *)(l->x + (halves ? group / 2 : group));
    UNROLL
    for (int r = 0; r < rows; r++) {
        const dg_qpair *x = (const dg_qpair *)at;
        f16v t = f16v_mul(f16v_of_i32(v64_load(s->sum[slot][r])), f16v_load(step));
        if (halves)
            t = f16v_fma(f16v_of_i32(v64_load(s->sum[slot + 1][r])), f16v_load(step + DG_QCOLS), t);
        y[r] = f16v_fma(t, f16v_set(x->step[l->which][0]), y[r]);
        if (kind == DG_Q_LEAST)
            y[r] = f16v_fnma(f16v_load(least), f16v_set(x->sum[l->which][0]), y[r]);
        for (int h = 0; h < 2 && kind == DG_Q_HALVES_LEAST; h++)
            y[r] = f16v_fnma(f16v_load(least + h * DG_QCOLS), f16v_set(x->half_sum[l->which][h]),
                             y[r]);
        STEP_ON(at, r + 1 <= rows - ROUND || r + 1 < l->n_pair ? l->stride : 0);
    }
}

/* Two slots, which hold two groups from `group` on. */
INLINE void scale_two(f16v y[PAIRS], const lines *l, const slots *s, int slot, int group,
                      const dg_qkind kind, const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    if (l->more)
        fetch_pairs(l, halves ? group / 2 : group);
    scale(y, l, s, slot, group, kind, rows);
    if (halves || group + 1 >= l->n_group)
        return;
    if (l->more)
        fetch_pairs(l, group + 1);
    scale(y, l, s, slot + 1, group + 1, kind, rows);
}

/* ---- the product ---- */

/* `rows` results, at least n_pair, a constant at every call. Two groups are summed while the two
 * before them are scaled. */
INLINE void multiply(const dg_qgemm_args *a, const lines *l, slots *s, const dg_qkind kind,
                     const int rows)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    f16v y[PAIRS];
    SUM_GROUP(0, 4, 6, 0);
    SUM_GROUP(1, 5, 7, 1);
    UNROLL
    for (int r = 0; r < rows; r++)
        y[r] = a->add ? f16v_load_first(l->to[r], a->n_col) : f16v_zero();
    for (int g = 0; g < l->n_group; g += SLOTS) {
        SUM_GROUP(2, 4, 6, g + 2);
        SUM_GROUP(3, 5, 7, g + 3);
        tile_store(0, s->sum[0], 64);
        tile_store(1, s->sum[1], 64);
        scale_two(y, l, s, 0, g, kind, rows);
        if (g + 2 >= l->n_group)
            break;
        SUM_GROUP(0, 4, 6, g + 4);
        SUM_GROUP(1, 5, 7, g + 5);
        tile_store(2, s->sum[2], 64);
        tile_store(3, s->sum[3], 64);
        scale_two(y, l, s, 2, g + 2, kind, rows);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        f16v_store_first(l->to[r], y[r], a->n_col);
}

INLINE void multiply_lines(const dg_qgemm_args *a, const lines *l, slots *s, const dg_qkind kind)
{
    switch (dg_ceil_div(l->n_pair, ROUND)) {
    case 1:
        multiply(a, l, s, kind, ROUND);
        break;
    case 2:
        multiply(a, l, s, kind, 2 * ROUND);
        break;
    case 3:
        multiply(a, l, s, kind, 3 * ROUND);
        break;
    default:
        multiply(a, l, s, kind, PAIRS);
        break;
    }
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    const bool halves = kind == DG_Q_HALVES || kind == DG_Q_HALVES_LEAST;
    const int end = dg_ceil_div(a->first_row + a->n_row, 2);
    float nobody[DG_QCOLS] = {0}; /* results of rows that were not asked for */
    slots s;
    lines l = {
        .stride = a->ldx * sizeof *a->x,
        .step = a->panel->step,
        .least = a->panel->least,
        .n_group = a->n_block * (halves ? 2 : 1),
    };
    int shaped = 0;
    for (int pair = a->first_row / 2; pair < end; pair += PAIRS) {
        l.x = a->x + (size_t)pair * a->ldx;
        l.n_pair = dg_min(PAIRS, end - pair);
        if (l.n_pair != shaped) {
            tiles_begin(l.n_pair, halves ? 32 : 64);
            if (l.n_pair % ROUND)
                memset(&s, 0, sizeof s); /* rows that no tile stores */
        }
        shaped = l.n_pair;
        for (l.which = 0; l.which < 2; l.which++) {
            for (int i = 0; i < PAIRS; i++) {
                const int row = 2 * (pair + i) + l.which - a->first_row;
                l.to[i] = row >= 0 && row < a->n_row ? a->y + (size_t)row * a->ldy : nobody;
            }
            l.n = a->panel->n + (l.which ? 0 : 128);
            l.more = l.which == 0 && pair + 2 * PAIRS <= end;
            multiply_lines(a, &l, &s, kind);
        }
    }
    tiles_end();
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_amx = {
    .quantise = QUANTISE,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
