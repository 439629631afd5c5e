/* Products on super-blocks with AMX. Numbers of a weight are multiplied by what their group is
 * scaled with when they are packed, and lie in two planes of bytes, so that tiles sum a whole
 * super-block: 256 values in four steps of 64. What leaves the tiles is two sums for each result.
 *
 * Every tile has sixteen rows, or all that there are; the last one begins so early that it ends
 * with the last row, and of what it gives only the rows are kept that are new. */
#ifndef DG_CPU_X86_SUPER_AMX_H
#define DG_CPU_X86_SUPER_AMX_H

enum { SUPER_BYTES = 64, SUPER_STEPS = DG_QSLICE / SUPER_BYTES };

/* A super-block of one row. */
typedef struct super_line {
    int8_t n[DG_QSLICE];
    int8_t high[3 * DG_QBLOCKS], low[3 * DG_QBLOCKS];
    float step;
    int32_t unused[19];
} super_line;
_Static_assert(2 * sizeof(super_line) == sizeof(dg_qsuper), "a row takes half of a pair's room");

static void quantise_super(dg_qpair *out, int which, const float *x, int n_block)
{
    (void)which; /* the only one */
    super_line *to = (super_line *)out;
    for (int b = 0; b < n_block; b += DG_QBLOCKS, to++) {
        dg_qsuper p;
        QUANTISE_SUPER((dg_qpair *)&p, 0, x + b * DG_QBLOCK, DG_QBLOCKS);
        for (int i = 0; i < DG_QSLICE / 8; i++)
            memcpy(to->n + 8 * i, p.n[i][0], 8);
        for (int i = 0; i < 3; i++) {
            memcpy(to->high + 8 * i, p.high[i][0], 8);
            memcpy(to->low + 8 * i, p.low[i][0], 8);
        }
        to->step = p.step[0][0];
    }
}

/* Some rows and the columns of one panel, and where the results of rows from `first` on go. */
typedef struct super_unit {
    const super_line *x;
    const dg_qpanel *panel;
    float *y;
    int first, n_col;
} super_unit;

/* Sums of two units, of both planes. */
typedef struct super_sums {
    _Alignas(64) int32_t of[2][2][ROWS][DG_QCOLS];
} super_sums;

/* 64 values of a unit; a macro, since an instruction names its tiles. */
#define SUPER_LEFT(tile, u, step) tile_load(tile, (u)->x->n + SUPER_BYTES * (step), stride)
#define SUPER_RIGHT(u, step)                                                                       \
    do {                                                                                           \
        tile_load(6, (u)->panel->n + SUPER_BYTES * DG_QCOLS * (step), 64);                         \
        tile_load(7, (u)->panel->high + SUPER_BYTES * DG_QCOLS * (step), 64);                      \
    } while (0)
#define SUPER_DOT(low, high, left)                                                                 \
    do {                                                                                           \
        tile_dot_unsigned(low, left, 6);                                                           \
        tile_dot_signed(high, left, 7);                                                            \
    } while (0)

/* Sums of one unit or two, which have the same panel or the same rows. */
INLINE void super_sum(super_sums *to, const super_unit u[2], int n, size_t stride)
{
    tile_zero(0);
    tile_zero(1);
    if (n == 2) {
        tile_zero(2);
        tile_zero(3);
    }
    const bool same_panel = n == 2 && u[0].panel == u[1].panel;
    UNROLL
    for (int i = 0; i < SUPER_STEPS; i++) {
        SUPER_LEFT(4, &u[0], i);
        SUPER_RIGHT(&u[0], i);
        SUPER_DOT(0, 1, 4);
        if (same_panel) {
            SUPER_LEFT(5, &u[1], i);
            SUPER_DOT(2, 3, 5);
        } else if (n == 2) {
            SUPER_RIGHT(&u[1], i);
            SUPER_DOT(2, 3, 4);
        }
    }
    tile_store(0, to->of[0][0], 64);
    tile_store(1, to->of[0][1], 64);
    if (n == 2) {
        tile_store(2, to->of[1][0], 64);
        tile_store(3, to->of[1][1], 64);
    }
}

INLINE v64 four_sums(const int8_t *x, int four)
{
    int32_t bytes;
    memcpy(&bytes, x + 4 * four, sizeof bytes);
    return v64_set32(bytes);
}

/* The sum over groups of their sums of numbers times `less`. */
INLINE v64 least_of_row(const super_line *x, const uint8_t *less, const bool halves)
{
    v64 high = v64_set32(0), low = high;
    const int first = halves ? 2 : 0, count = halves ? 4 : 2;
    UNROLL
    for (int i = 0; i < count; i++) {
        const v64 w = v64_load(less + 64 * i);
        high = v64_dot(high, w, four_sums(x->high, first + i));
        low = v64_dot(low, w, four_sums(x->low, first + i));
    }
    return v64_add32(v64_left32(high, 6), low);
}

/* Sums to results. */
INLINE void super_scale(const super_unit *u, const int32_t sum[2][ROWS][DG_QCOLS],
                        const dg_qgemm_args *a, int n_row, const dg_qkind kind)
{
    const dg_qpanel *p = u->panel;
    const f16v step = f16v_load(p->step), least = f16v_load(p->least);
    for (int r = u->first; r < n_row; r++) {
        const super_line *x = (const super_line *)((const dg_qpair *)u->x + (size_t)r * a->ldx);
        float *y = u->y + (size_t)r * a->ldy;
        const v64 all = v64_add32(v64_load(sum[0][r]), v64_left32(v64_load(sum[1][r]), 8));
        f16v t = f16v_mul(f16v_of_i32(all), step);
        if (has_least(kind))
            t = f16v_fnma(f16v_of_i32(least_of_row(x, p->less, group_of(kind) == 16)), least, t);
        t = f16v_fma(t, f16v_set(x->step), a->add ? f16v_load_first(y, u->n_col) : f16v_zero());
        f16v_store_first(y, t, u->n_col);
    }
}

/* Rows of tile t and panel c. */
INLINE super_unit super_unit_at(const dg_qgemm_args *a, int t, int c)
{
    const int row = dg_max(0, dg_min(t * ROWS, a->n_row - ROWS));
    return (super_unit){
        .x = (const super_line *)(a->x + (size_t)(a->first_row + row) * a->ldx),
        .panel = a->panel + c,
        .y = a->y + (size_t)row * a->ldy + c * DG_QCOLS,
        .first = t * ROWS - row,
        .n_col = dg_min(DG_QCOLS, a->n_col - c * DG_QCOLS),
    };
}

/* Two units at a time: two tiles of rows and a panel, then the last tile and two panels. While two
 * are summed, those before them are scaled. */
INLINE void super_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    const int n_tile = dg_ceil_div(a->n_row, ROWS), n_panel = dg_ceil_div(a->n_col, DG_QCOLS),
              pairs = n_tile / 2 * n_panel, n_turn = pairs + n_tile % 2 * dg_ceil_div(n_panel, 2),
              n_row = dg_min(a->n_row, ROWS);
    const size_t stride = a->ldx * sizeof *a->x;
    fetch soon = fetch_of(&a->soon, n_turn);
    super_unit u[2][2];
    super_sums sums[2];
    int n[2] = {0, 0};
    for (int turn = 0; turn <= n_turn; turn++) {
        const int now = turn % 2;
        n[now] = 0;
        if (turn < pairs) {
            for (int i = 0; i < 2; i++)
                u[now][i] = super_unit_at(a, turn / n_panel * 2 + i, turn % n_panel);
            n[now] = 2;
        } else if (turn < n_turn) {
            const int c = (turn - pairs) * 2;
            for (int i = 0; i < 2; i++)
                u[now][i] = super_unit_at(a, n_tile - 1, dg_min(c + i, n_panel - 1));
            n[now] = dg_min(2, n_panel - c);
        }
        if (n[now])
            super_sum(&sums[now], u[now], n[now], stride);
        fetch_some(&soon);
        for (int i = 0; i < n[!now]; i++)
            super_scale(&u[!now][i], sums[!now].of[i], a, n_row, kind);
    }
}

#endif
