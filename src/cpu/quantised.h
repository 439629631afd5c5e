/* Products on quantised weights in whole numbers: what docs/quantised-products.md explains, and the
 * contract of the kernels that do it.
 *
 * Activations become whole numbers once per row, with a step for each 32 of them or for each 256,
 * as the blocks of the weight are; weights keep the numbers, steps and least values that their
 * blocks have. A sum of products of whole numbers is exact in any order, and what is done to it in
 * floats has one order, written below. So every instruction set gives the bits of the plain C, and
 * a row's result depends on that row alone. */
#ifndef DG_CPU_QUANTISED_H
#define DG_CPU_QUANTISED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/dtype.h"

enum {
    DG_QBLOCK = 32,                     /* activations that share a step … */
    DG_QSLICE = 256,                    /* … or these do, which is what a panel holds at most */
    DG_QBLOCKS = DG_QSLICE / DG_QBLOCK, /* of a panel */
    DG_QCOLS = 16,                      /* columns of a panel */
    DG_QGROUPS = DG_QSLICE / 16         /* runs of weights with a step of their own, at most */
};

/* ---- activations ----
 *
 * Rows lie in pairs, since a matrix instruction takes two at a time: row r is number r % 2 of pair
 * r / 2. The step of 32 values is max |x| / 127 and a number the nearest even of x * (127 / max
 * |x|). Below 2^-100 a maximum counts as 0. Where a value is not finite the step is NaN, and so is
 * everything that is made of it. */
typedef struct dg_qpair {
    int8_t n[4][2][8];  /* [eight of 32][row][value] -127 … 127 */
    float step[2][2];   /* [row], twice */
    float sum[2][2];    /* [row], twice: the step times the sum of the numbers */
    int32_t bias[2][2]; /* [row][half]: -128 times the sum of sixteen numbers */
    int32_t unused[2][2];
} dg_qpair;

/* The same of 256 values with one step, for weights in super-blocks. Sums of groups are at most
 * 4,064: they lie as 64 * high + low, so that they are multiplied like numbers, first those of each
 * 32 values, then those of each sixteen. */
typedef struct dg_qsuper {
    int8_t n[DG_QSLICE / 8][2][8];
    int8_t high[3][2][8], low[3][2][8];
    float step[2][2];
    int32_t bias[DG_QGROUPS / 2][2]
                [2]; /* [two of sixteen groups][row]: -32 times sums of sixteen */
    int32_t unused[2][2];
} dg_qsuper;
enum { DG_QSUPER = sizeof(dg_qsuper) / sizeof(dg_qpair) /* pairs whose place it takes */ };
_Static_assert(sizeof(dg_qsuper) == 6 * sizeof(dg_qpair), "both lie in lines of the cache");

/* Row `which` of n_block consecutive blocks of a pair, from 32 * n_block floats. Of super-blocks:
 * whole ones. */
typedef void dg_quantise_fn(dg_qpair *out, int which, const float *x, int n_block);

/* How rows lie: in pairs as above, or as bytes.h says, one by one or in pairs. */
typedef enum dg_qway { DG_QWAY_BLOCKS, DG_QWAY_SUPER, DG_QWAY_BYTES, DG_QWAY_BYTE_PAIRS } dg_qway;

/* ---- weights ---- */

/* How a type's values follow from their numbers: value k is n[k] * step[k / group], less least[k /
 * group] where there are least values. */
typedef enum dg_qkind {
    DG_Q_PLAIN,  /* groups of 32 */
    DG_Q_LEAST,  /* groups of 32 with least values */
    DG_Q_HALVES, /* groups of 16 */

    /* In super-blocks of 256 a step is a whole number of the super-block's, and so are least
     * values: value k is n[k] * times[k / group] * step - less[k / group] * least. */
    DG_Q_SUPER_LEAST,       /* groups of 32 with least values */
    DG_Q_SUPER_HALVES,      /* groups of 16 */
    DG_Q_SUPER_HALVES_LEAST /* groups of 16 with least values */
} dg_qkind;

static inline bool dg_qkind_super(dg_qkind kind)
{
    return kind >= DG_Q_SUPER_LEAST;
}

/* Which types these are: their products take rows with a step for 256 values. */
static inline bool dg_qtype_super(dg_dtype type)
{
    return type == DG_Q2_K || type == DG_Q3_K || type == DG_Q4_K || type == DG_Q5_K ||
           type == DG_Q6_K;
}

/* Whose steps are any floats. */
static inline bool dg_qtype_long_steps(int type)
{
    return type >= DG_DTYPE_GGUF && type < DG_DTYPE_COMPUTE;
}

/* Blocks that the backend makes itself have a place behind the stored types. Their steps have at
 * most twelve bits, so that no product with them is rounded before its time. */
typedef struct dg_qmade {
    float step;
    int8_t n[DG_QBLOCK];
} dg_qmade;
enum { DG_QMADE = DG_DTYPE_COMPUTE, DG_QTYPES };

/* DG_QCOLS columns of a weight, up to DG_QSLICE values of each. The order inside is that of the
 * instruction set whose kernel packed it. */
typedef struct dg_qpanel {
    _Alignas(64) uint8_t n[DG_QSLICE * DG_QCOLS];
    _Alignas(64) float step[2 * DG_QGROUPS * DG_QCOLS];
    _Alignas(64) float least[2 * DG_QGROUPS * DG_QCOLS];
    union {
        _Alignas(64) float lift[2 * DG_QGROUPS * DG_QCOLS]; /* for the instruction set … */
        _Alignas(64) int32_t times[2 * DG_QGROUPS * DG_QCOLS];
    };
    _Alignas(64) uint8_t less[DG_QGROUPS * DG_QCOLS];
    _Alignas(64) uint8_t high[DG_QSLICE * DG_QCOLS]; /* … as are this … */
    dg_qkind kind;
    bool lifted; /* … and this */
    int stored;  /* bytes of a column, as it was stored */
    int up;      /* a power of two, or 0: with it added, no number is below 0 … */
    int most;    /* … and none above this; 256: bytes with a sign */
} dg_qpanel;

/* Packs n_block times 32 values of n_col rows of a matrix, `stride` bytes apart, which become
 * columns; steps and least values are multiplied by `scale`. src needs no alignment. 1 <= n_col <=
 * DG_QCOLS; 1 <= n_block <= DG_QBLOCKS, whole blocks of the type. */
typedef struct dg_qpack_args {
    const void *src;
    size_t stride;
    int n_block, n_col;
    float scale;
    const void *next; /* what will be packed soon, its rows alike; NULL: not known */
} dg_qpack_args;
typedef void dg_qpack_fn(dg_qpanel *panel, const dg_qpack_args *a);

/* y[i][c] = (add ? y[i][c] : 0) + the product of row first_row + i of x with column c, for i <
 * n_row, c < n_col. `x` is the first block that the panel meets of the first pair of rows; the next
 * pair's is ldx blocks on.
 *
 * For each block in ascending order, t being the exact sum of products of numbers (t0 and t1: of
 * each half), w the weight's step and x the activation's:
 *
 *     plain     y = fma(t * w, x.step, y)
 *     halves    y = fma(fma(t1, w1, t0 * w0), x.step, y)
 *     least     then y = fma(-least, x.sum, y)
 *
 * For each super-block, p being the sum over its groups of t times their `times`, and m that of
 * their sums of numbers times `less`, both exact in 32 bits and then rounded to the nearest float:
 *
 *     super     y = fma(p * w, x.step, y)
 *     least     y = fma(fma(-m, least, p * w), x.step, y) */
typedef struct dg_qsoon { /* rows of a weight that will be packed next; at NULL: not known */
    const void *at;
    size_t stride;
    int bytes, n_col;
} dg_qsoon;

typedef struct dg_qgemm_args {
    float *y;
    size_t ldy;
    const dg_qpair *x;
    size_t ldx;
    const dg_qpanel *panel;
    int first_row, n_row, n_block, n_col;
    bool add;
    dg_qsoon soon; /* the same: a set may ask for it here or when it packs */
} dg_qgemm_args;
typedef void dg_qgemm_fn(const dg_qgemm_args *a);

/* ---- words ----
 *
 * A sum of words runs along k over words, and a word's steps run along its columns. So 32 words get
 * one step for each group of columns, of at least the largest one's reach / 127, and a number
 * becomes the nearest whole number of common steps. It is off by at most 0.5 + reach / 512 of them,
 * reach being the largest number that the type has: an eighth of the largest step in Q6_K, three
 * quarters of one in Q8_0.
 *
 * n_word rows of a matrix, `stride` bytes apart, their n_col values from src on, whole blocks of
 * the type and at most DG_QSLICE of each, become n_col rows of DG_QBLOCKS made blocks; the words
 * behind the last of a block are 0. */
typedef struct dg_qturn_args {
    const void *src;
    size_t stride;
    int n_word, n_col;
} dg_qturn_args;
typedef void dg_qturn_fn(dg_qmade *out, const dg_qturn_args *a);

/* What an instruction set offers; a panel goes to the product of the set that packed it. */
typedef struct dg_qkernels {
    dg_quantise_fn *quantise, *quantise_super;
    dg_qpack_fn *pack[DG_QTYPES]; /* NULL for what is not a block type */
    dg_qgemm_fn *gemm;
} dg_qkernels;

/* ---- where rows are ---- */

/* Rows that lie together. */
static inline int dg_qway_rows(dg_qway way)
{
    return way == DG_QWAY_BYTES ? 1 : 2;
}

/* Where the numbers of values from k on start in rows that lie in pairs; k is a multiple of
 * DG_QSLICE. */
static inline size_t dg_qvalue_at(int k, dg_qway way)
{
    return (size_t)(k / DG_QSLICE * (way == DG_QWAY_SUPER ? DG_QSUPER : DG_QBLOCKS));
}

/* What rows of n_in values take that lie together, in pairs. It is odd: rows that are a power of
 * two apart would drive each other out of the caches. */
static inline size_t dg_qrow_room(int n_in, dg_qway way)
{
    const size_t n_slice = ((size_t)n_in + DG_QSLICE - 1) / DG_QSLICE;
    switch (way) {
    case DG_QWAY_SUPER:
        return n_slice * DG_QSUPER | 1;
    case DG_QWAY_BYTES:
        return (n_slice * (DG_QSLICE + sizeof(float) + sizeof(int32_t)) + sizeof(dg_qpair) - 1) /
                   sizeof(dg_qpair) |
               1;
    case DG_QWAY_BYTE_PAIRS: /* two rows' steps, twice */
        return (n_slice * (2 * DG_QSLICE + 4 * sizeof(float)) + sizeof(dg_qpair) - 1) /
                   sizeof(dg_qpair) |
               1;
    default:
        return (size_t)(n_in / DG_QBLOCK) | 1;
    }
}

/* Where `row` starts among rows that take so much room; which one it is of those that lie together
 * there. */
static inline size_t dg_qrow_at(int row, size_t room, dg_qway way)
{
    return (size_t)(row / dg_qway_rows(way)) * room;
}

static inline int dg_qrow_which(int row, dg_qway way)
{
    return row % dg_qway_rows(way);
}

/* The rest of a row of a super-block, from the sums of each sixteen of its numbers. */
static inline void dg_qsuper_sums(dg_qsuper *out, int which, const int sum[DG_QGROUPS], float step)
{
    for (int g = 0; g < DG_QGROUPS; g++) {
        const int high = (sum[g] + 32) >> 6;
        out->high[1 + g / 8][which][g % 8] = (int8_t)high;
        out->low[1 + g / 8][which][g % 8] = (int8_t)(sum[g] - 64 * high);
        out->bias[g / 2][which][g % 2] = -32 * sum[g];
    }
    for (int g = 0; g < DG_QBLOCKS; g++) {
        const int both = sum[2 * g] + sum[2 * g + 1], high = (both + 32) >> 6;
        out->high[0][which][g] = (int8_t)high;
        out->low[0][which][g] = (int8_t)(both - 64 * high);
    }
    for (int i = 0; i < 2; i++)
        out->step[which][i] = step;
}

extern const dg_qkernels dg_quantised_ref;
extern dg_qturn_fn *const dg_turn_ref[DG_DTYPE_COMPUTE];

#endif
