/* Products of bfloat16 numbers with AMX: tiles of sixteen rows times sixteen columns, 32 values
 * along k. A panel is   [two of k][column] two numbers, rows of 64 bytes. */
#include <string.h>
#include "base/common.h"
#include "cpu/kernels.h"
#include "cpu/shares_body.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#include "cpu/x86/tiles_amx.h"
#endif
#include "cpu/x86/columns_avx512.h"

enum {
    STEP = DG_BFLOAT_STEP,    /* values of a tile along k */
    ROWS = 16,                /* of a tile */
    TILES = 4,                /* of rows, that meet a panel together */
    TILE_N = STEP * DG_PANEL, /* numbers of the panel's part of a step */
    STEP_BYTES = 2 * STEP     /* of a column */
};

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

/* ---- the product ---- */

static void place(uint16_t *to, int which, const uint16_t *from, int n)
{
    (void)which; /* rows lie by themselves */
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* Up to TILES tiles of rows: where their results are, and their rows of x. */
typedef struct group {
    float *y;
    size_t ldy; /* bytes */
    const uint16_t *x;
    size_t ldx; /* bytes */
    int n_tile;
} group;

/* Tile t of the results = those so far. A macro, since an instruction names its tiles. */
#define BEGIN_TILE(t)                                                                              \
    do {                                                                                           \
        if ((t) < g->n_tile && add)                                                                \
            tile_load(t, (const char *)g->y + (t)*ROWS * g->ldy, g->ldy);                          \
        else                                                                                       \
            tile_zero(t);                                                                          \
    } while (0)
#define ADD_TILE(t, left)                                                                          \
    do {                                                                                           \
        if ((t) < g->n_tile) {                                                                     \
            tile_load(left, (const char *)(g->x + k) + (t)*ROWS * g->ldx, g->ldx);                 \
            tile_dot_bfloat(t, left, 6);                                                           \
        }                                                                                          \
    } while (0)
#define END_TILE(t)                                                                                \
    do {                                                                                           \
        if ((t) < g->n_tile)                                                                       \
            tile_store(t, (char *)g->y + (t)*ROWS * g->ldy, g->ldy);                               \
    } while (0)

INLINE void multiply_group(const dg_bgemm_args *a, const group *g, bool add)
{
    BEGIN_TILE(0);
    BEGIN_TILE(1);
    BEGIN_TILE(2);
    BEGIN_TILE(3);
    for (int k = 0; k < a->n_k; k += STEP) {
        tile_load(6, a->panel + k * DG_PANEL, STEP_BYTES);
        ADD_TILE(0, 4);
        ADD_TILE(1, 5);
        ADD_TILE(2, 4);
        ADD_TILE(3, 5);
    }
    END_TILE(0);
    END_TILE(1);
    END_TILE(2);
    END_TILE(3);
}

/* Rows [r, r + n_row) with tiles of `rows` rows each; where not all columns are asked for, results
 * pass through a place of their own. */
static void multiply(const dg_bgemm_args *a, int r, int n_row, int rows)
{
    float spare[TILES * ROWS][DG_PANEL], *y = a->y + (size_t)r * a->ldy;
    const bool whole = a->n_col == DG_PANEL;
    const size_t bytes = (size_t)a->n_col * sizeof *y;
    if (!whole)
        memset(spare, 0, sizeof spare);
    for (int i = 0; i < n_row && !whole && a->add; i++)
        memcpy(spare[i], y + (size_t)i * a->ldy, bytes);
    const group g = {
        .y = whole ? y : spare[0],
        .ldy = whole ? a->ldy * sizeof *y : sizeof spare[0],
        .x = a->x + (size_t)r * a->ldx,
        .ldx = a->ldx * sizeof *a->x,
        .n_tile = n_row / rows,
    };
    multiply_group(a, &g, a->add);
    for (int i = 0; i < n_row && !whole; i++)
        memcpy(y + (size_t)i * a->ldy, spare[i], bytes);
}

static void gemm(const dg_bgemm_args *a)
{
    const int whole = a->n_row / ROWS * ROWS;
    if (whole)
        tiles_begin(ROWS, STEP_BYTES);
    for (int r = 0; r < whole; r += TILES * ROWS)
        multiply(a, r, dg_min(TILES * ROWS, whole - r), ROWS);
    if (whole < a->n_row) {
        tiles_begin(a->n_row - whole, STEP_BYTES);
        multiply(a, whole, a->n_row - whole, a->n_row - whole);
    }
    tiles_end();
}

const dg_bkernels dg_bfloat_amx = {
    .profile = "portable-amx",
    .block_profile = "integer-2-amx",
    .step = STEP,
    .rows = 1,
    .place = place,
    .pack_cols = pack_cols,
    .pack_rows = pack_rows,
    .gemm = gemm,
    .largest = largest_of,
    .shares = shares_of,
};
