/* Products on quantised weights as bytes with the matrix instruction of 8-bit integers (SMMLA).
 *
 * Nothing is scaled before the end of a slice, so what the inner loop does is load and multiply: a
 * tile of six pairs of rows and four pairs of columns is 24 registers of sums, for which ten are
 * loaded each time. A panel of 32 columns stays in the first-level cache and meets all rows. */
#include "cpu/arm/pack_bytes_i8mm.h"
#include "cpu/byte_stream.h"

enum {
    TILE = 6,                      /* pairs of rows that are multiplied together, at most */
    PANEL_PAIRS = DG_BYTE_COLS / 2 /* of columns */
};

/* Rows lie in pairs: eight numbers of one, eight of the other; behind them the steps of each slice,
 * those of each row twice. */
static float *steps_of_pair(dg_qpair *pair, int n_in)
{
    return (float *)((int8_t *)pair + dg_ceil_div(n_in, DG_QSLICE) * 2 * DG_QSLICE);
}

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    const int n_in = n_block * DG_QBLOCK;
    int8_t *n = (int8_t *)out + 8 * which;
    float *step = steps_of_pair(out, n_in) + 2 * which;
    for (int k = 0; k < n_in; k += DG_QSLICE, n += 2 * DG_QSLICE, step += 4) {
        const int n_value = dg_min(DG_QSLICE, n_in - k);
        float rest[DG_QSLICE];
        const float *from = x + k;
        if (n_value < DG_QSLICE) {
            memset(rest, 0, sizeof rest);
            from = memcpy(rest, from, (size_t)n_value * sizeof *rest);
        }
        dg_qsuper one;
        dg_quantise_super_neon((dg_qpair *)&one, 0, from, DG_QBLOCKS);
        for (int i = 0; i < DG_QSLICE / 8; i++)
            memcpy(n + 16 * i, one.n[i][0], 8);
        step[0] = step[1] = one.step[0][0];
    }
}

/* ---- a tile ---- */

/* See gemm_neon.c; packing is better left to the compiler. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-schedule-insns")
#endif

/* Pairs of rows and a slice of a panel's columns. */
typedef struct slice {
    const int8_t *x; /* the slice in the first pair … */
    const float *by; /* … its rows' steps … */
    size_t stride;   /* … and the bytes to the next pair */
    const dg_byte_panel *panel;
    int n_pair, n_eight, n_col;
    float *held; /* [pair][PANEL_PAIRS] four sums each: row 0 with both columns, then row 1 */
} slice;

enum { HELD = PANEL_PAIRS * 4 /* floats of a pair of rows */ };

/* Sums are counted from the bits of 1.5 * 2^23 on, where a float's unit is 1: what is left of a
 * conversion is a subtraction. 256 * 127 * 127 is less than 2^22. */
#define COUNT_ZERO 0x1.8p23f

INLINE int32x4_t start_count(void)
{
    return vreinterpretq_s32_f32(vdupq_n_f32(COUNT_ZERO));
}

/* The steps of both columns of a pair, twice. */
INLINE float32x4_t both_twice(const float *step)
{
    const float32x2_t both = vld1_f32(step);
    return vcombine_f32(both, both);
}

/* `rows` pairs of rows times eight columns of the panel, from c on. */
INLINE void multiply_eight(const slice *s, const int8_t *x, const int8_t *ahead, const float *by,
                           float *restrict held, int c, const int rows)
{
    const int8_t *n = (const int8_t *)s->panel->n + c / HALF * HALF_N,
                 *end = n + s->n_eight * PAIRS * 16;
    const size_t stride = s->stride;
    int32x4_t sum[TILE][PAIRS];
    UNROLL
    for (int p = 0; p < rows; p++)
        UNROLL
    for (int i = 0; i < PAIRS; i++)
        sum[p][i] = start_count();
    _Pragma("GCC unroll 2") for (; n < end; n += 4 * PAIRS * 16, x += 64, ahead += 64)
    { /* a block */
        __builtin_prefetch(ahead, 0, 3);
        __builtin_prefetch(ahead + 4 * stride, 0, 3);
        UNROLL
        for (int e = 0; e < 4; e++) {
            int8x16_t w[PAIRS];
            UNROLL
            for (int i = 0; i < PAIRS; i++)
                w[i] = vld1q_s8(n + (e * PAIRS + i) * 16);
            UNROLL
            for (int p = 0; p < rows; p++) {
                const int8x16_t both = vld1q_s8(x + (size_t)p * stride + 16 * e);
                UNROLL
                for (int i = 0; i < PAIRS; i++)
                    sum[p][i] = add_products(sum[p][i], both, w[i]);
            }
        }
    }
    float32x4_t steps[PAIRS];
    UNROLL
    for (int i = 0; i < PAIRS; i++)
        steps[i] = both_twice(s->panel->step + c + 2 * i);
    UNROLL
    for (int p = 0; p < rows; p++) {
        const float32x4_t xs = vld1q_f32((const float *)((const int8_t *)by + (size_t)p * stride));
        float *y = held + p * HELD + 2 * c;
        UNROLL
        for (int i = 0; i < PAIRS; i++) {
            const float32x4_t t = vmulq_f32(
                vsubq_f32(vreinterpretq_f32_s32(sum[p][i]), vdupq_n_f32(COUNT_ZERO)), steps[i]);
            vst1q_f32(y + 4 * i, vfmaq_f32(vld1q_f32(y + 4 * i), t, xs));
        }
    }
}

/* `rows` pairs of rows from `pair` on, all columns. */
INLINE void multiply_rows(const slice *s, int pair, const int rows)
{
    const int8_t *x = s->x + (size_t)pair * s->stride;
    const float *by = (const float *)((const int8_t *)s->by + (size_t)pair * s->stride);
    /* What comes next is on its way from the second-level cache meanwhile, two pairs with each
     * eight columns: the next rows, behind the last ones the first rows' next slice. */
    const int8_t *ahead =
        pair + rows < s->n_pair ? x + (size_t)rows * s->stride : s->x + 2 * DG_QSLICE;
    for (int c = 0; c < s->n_col; c += HALF, ahead += s->stride)
        multiply_eight(s, x, ahead, by, s->held + (size_t)pair * HELD, c, rows);
}

/* All pairs of rows, in tiles of about the same size. */
static void multiply_slice(const slice *s)
{
    int pair = 0;
    for (int left = dg_ceil_div(s->n_pair, TILE); left > 0; left--) {
        const int rows = dg_ceil_div(s->n_pair - pair, left);
        switch (rows) {
        case 1:
            multiply_rows(s, pair, 1);
            break;
        case 2:
            multiply_rows(s, pair, 2);
            break;
        case 3:
            multiply_rows(s, pair, 3);
            break;
        case 4:
            multiply_rows(s, pair, 4);
            break;
        case 5:
            multiply_rows(s, pair, 5);
            break;
        default:
            multiply_rows(s, pair, TILE);
            break;
        }
        pair += rows;
    }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* ---- the product ---- */

/* The sums of columns from c on, n_col of them, to where they belong. */
static void store_sums(const dg_byte_args *a, int c, int n_col)
{
    for (int i = 0; i < a->n_row; i++) {
        const int row = a->first_row % 2 + i;
        const float *held = a->sums + row / 2 * HELD + row % 2 * 2;
        float spare[DG_BYTE_COLS], *y = a->y + (size_t)i * a->ldy + c,
                                   *to = n_col == DG_BYTE_COLS ? y : spare;
        for (int k = 0; k < DG_BYTE_COLS; k += 2)
            memcpy(to + k, held + 2 * k, 2 * sizeof *to);
        if (to == spare)
            memcpy(y, spare, (size_t)n_col * sizeof *y);
    }
}

INLINE void multiply(const dg_byte_args *a, const dg_qkind kind, const int up, const int most,
                     dg_numbers_fn *row)
{
    const size_t slice_bytes = dg_dtype_bytes((dg_dtype)a->type, DG_QSLICE),
                 room = dg_qrow_room(a->n_in, DG_QWAY_BYTE_PAIRS);
    const int n_slice = dg_ceil_div(a->n_in, DG_QSLICE), first = a->first_row / 2,
              n_pair = dg_ceil_div(a->first_row + a->n_row, 2) - first;
    dg_qpair *x = (dg_qpair *)a->x + (size_t)first * room;
    for (int c = 0; c < a->n_col; c += DG_BYTE_COLS) {
        const int n_col = dg_min(DG_BYTE_COLS, a->n_col - c);
        dg_byte_stream soon =
            dg_stream_from(a, c + DG_BYTE_COLS, n_slice * dg_ceil_div(n_col, FOUR));
        memset(a->sums, 0, (size_t)n_pair * HELD * sizeof *a->sums);
        for (int k = 0; k < n_slice; k++) {
            const packing p = {
                .panel = a->panel,
                .src = (const uint8_t *)a->w + (size_t)c * a->stride + (size_t)k * slice_bytes,
                .stride = a->stride,
                .n_value = dg_min(DG_QSLICE, a->n_in - k * DG_QSLICE),
                .n_col = n_col,
                .scale = a->scale,
            };
            factors by[DG_BYTE_COLS / FOUR];
            for (int i = 0; i < n_col; i += FOUR)
                set_four(&by[i / FOUR], &p, i, up, most, row);
            for (int i = 0; i < n_col; i += FOUR) {
                pack_four(&by[i / FOUR], &p, i, kind, up, most, row);
                dg_stream_fetch(&soon);
            }
            const slice s = {
                .x = (const int8_t *)x + (size_t)k * 2 * DG_QSLICE,
                .by = steps_of_pair(x, a->n_in) + 4 * k,
                .stride = room * sizeof *x,
                .panel = a->panel,
                .n_pair = n_pair,
                .n_eight = p.n_value / 8,
                .n_col = n_col,
                .held = a->sums,
            };
            multiply_slice(&s);
        }
        store_sums(a, c, n_col);
    }
}

#include "cpu/byte_types_body.h"

const dg_byte_kernels dg_bytes_i8mm = {
    .profile = "integer-bytes-bfmmla",
    .way = DG_QWAY_BYTE_PAIRS,
    .quantise = quantise,
    .product = product,
};
