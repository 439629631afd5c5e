/* Products on quantised weights with AVX-512 VNNI, of rows that lie in pairs. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif

#define UP(kind) ((kind) == DG_Q_PLAIN || (kind) == DG_Q_HALVES ? 128 : 0)
#include "cpu/x86/pack_avx512.h"

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                       dg_numbers_fn *row)
{
    pack_columns(panel, a, type, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* A row's blocks, and which row of the pair it is. */
typedef struct dot_row {
    const dg_qpair *x;
    int which;
} dot_row;

INLINE dot_row dot_row_at(const dg_qgemm_args *a, int row)
{
    return (dot_row){a->x + (size_t)(row / 2) * a->ldx, row % 2};
}

INLINE void dot_next(dot_row *r)
{
    r->x++;
}

INLINE v64 dot_four(const dot_row *r, int four)
{
    int32_t bytes;
    memcpy(&bytes, &r->x->n[four / 2][r->which][four % 2 * 4], sizeof bytes);
    return v64_set32(bytes);
}

INLINE int32_t dot_bias(const dot_row *r, int half)
{
    return r->x->bias[r->which][half];
}

INLINE float dot_step(const dot_row *r)
{
    return r->x->step[r->which][0];
}

INLINE float dot_sum(const dot_row *r)
{
    return r->x->sum[r->which][0];
}

#include "cpu/x86/dots_avx512.h"

/* ---- super-blocks ---- */

INLINE v64 sums_four(const int8_t x[3][2][8], int which, int four)
{
    int32_t bytes;
    memcpy(&bytes, &x[four / 2][which][four % 2 * 4], sizeof bytes);
    return v64_set32(bytes);
}

/* The sum over groups of their sums of numbers times `less`. */
INLINE v64 super_least(const dg_qsuper *x, int which, const uint8_t *less, const bool halves)
{
    v64 high = v64_set32(0), low = high;
    const int first = halves ? 2 : 0, count = halves ? 4 : 2;
    UNROLL
    for (int i = 0; i < count; i++) {
        const v64 w = v64_load(less + 64 * i);
        high = v64_dot(high, w, sums_four(x->high, which, first + i));
        low = v64_dot(low, w, sums_four(x->low, which, first + i));
    }
    return v64_add32(v64_left32(high, 6), low);
}

/* Four bytes of a row of a pair, `at` bytes on. */
INLINE v64 bytes_at(const uint8_t *row, ptrdiff_t at)
{
    int32_t bytes;
    memcpy(&bytes, row + at, sizeof bytes);
    return v64_set32(bytes);
}

/* sum[r] = the products of `fours` times four numbers from four `first` of 32 on; `bias`: how far
 * behind a row's numbers that is what sums start with. */
INLINE void super_products(v64 sum[DOT_ROWS], const uint8_t *const x[DOT_ROWS], const uint8_t *n,
                           const int first, const int fours, ptrdiff_t bias, const dg_qkind kind,
                           const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = kind == DG_Q_SUPER_HALVES ? bytes_at(x[r], bias + first) : v64_set32(0);
    UNROLL
    for (int i = first; i < first + fours; i++) {
        const v64 w = v64_load(n + 64 * i);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = v64_dot(sum[r], w, bytes_at(x[r], i / 2 * 16 + i % 2 * 4));
    }
}

/* `rows` rows from row `first` on; a constant at every call. What groups are scaled with is
 * multiplied in floats, which is faster than in words and exact for sums below 2^24: those of
 * `chain` times 32 values. Rows are gone through with a pointer each, so that distances from it
 * take a byte in an instruction. */
INLINE void super_rows(const dg_qgemm_args *a, fetch *soon, int first, const dg_qkind kind,
                       const int chain, const int rows)
{
    const dg_qpanel *p = a->panel;
    const bool halves = group_of(kind) == 16;
    const dg_qsuper *super[DOT_ROWS];
    const uint8_t *x[DOT_ROWS], *n = p->n;
    const float *times = p->lift;
    ptrdiff_t bias = offsetof(dg_qsuper, bias);
    v64 all[DOT_ROWS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int row = a->first_row + first + r;
        super[r] = (const dg_qsuper *)(a->x + (size_t)(row / 2) * a->ldx);
        x[r] = (const uint8_t *)super[r]->n[0][row % 2];
        all[r] = v64_set32(0);
    }
    for (int block = 0; block < DG_QBLOCKS; block += chain) {
        f16v part[DOT_ROWS];
        UNROLL
        for (int r = 0; r < rows; r++)
            part[r] = f16v_zero();
        for (int k = 0; k < chain; k++) {
            v64 sum[DOT_ROWS];
            super_products(sum, x, n, 0, halves ? 4 : 8, bias, kind, rows);
            UNROLL
            for (int r = 0; r < rows; r++)
                part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(times), part[r]);
            times += DG_QCOLS;
            if (halves) {
                super_products(sum, x, n, 4, 4, bias, kind, rows);
                UNROLL
                for (int r = 0; r < rows; r++)
                    part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(times), part[r]);
                times += DG_QCOLS;
            }
            n += DG_QBLOCK * DG_QCOLS;
            bias += (ptrdiff_t)sizeof super[0]->bias[0] - 2 * DG_QBLOCK;
            UNROLL
            for (int r = 0; r < rows; r++)
                x[r] += 2 * DG_QBLOCK;
            fetch_some(soon);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            all[r] = v64_add32(all[r], v64_of_f16v(part[r]));
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        float *y = a->y + (size_t)(first + r) * a->ldy;
        const int which = (a->first_row + first + r) % 2;
        f16v t = f16v_mul(f16v_of_i32(all[r]), f16v_load(p->step));
        if (has_least(kind))
            t = f16v_fnma(f16v_of_i32(super_least(super[r], which, p->less, halves)),
                          f16v_load(p->least), t);
        t = f16v_fma(t, f16v_set(super[r]->step[which][0]),
                     a->add ? f16v_load_first(y, a->n_col) : f16v_zero());
        f16v_store_first(y, t, a->n_col);
    }
}

INLINE void super_all(const dg_qgemm_args *a, fetch *soon, const dg_qkind kind, const int chain)
{
    int row = 0;
    for (; row + DOT_ROWS <= a->n_row; row += DOT_ROWS)
        super_rows(a, soon, row, kind, chain, DOT_ROWS);
    for (; row + 2 <= a->n_row; row += 2)
        super_rows(a, soon, row, kind, chain, 2);
    if (row < a->n_row)
        super_rows(a, soon, row, kind, chain, 1);
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    fetch soon = fetch_of(&a->soon, dot_turns(a));
    /* 4 * 32 * 15 * 127 * 63, 2 * 32 * 31 * 127 * 63 and 32 * 32 * 127 * 128 are less than 2^24 */
    if (kind == DG_Q_SUPER_LEAST && a->panel->most <= 15)
        super_all(a, &soon, kind, 4);
    else if (kind == DG_Q_SUPER_LEAST)
        super_all(a, &soon, kind, 2);
    else if (dg_qkind_super(kind))
        super_all(a, &soon, kind, 1);
    else
        dot_all(a, &soon, kind);
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_vnni = {
    .quantise = QUANTISE,
    .quantise_super = QUANTISE_SUPER,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
