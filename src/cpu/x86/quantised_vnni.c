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

#include "cpu/x86/dots_avx512.h"

/* ---- super-blocks ---- */

/* The sum over groups of row r's sums of numbers times `less`. */
INLINE v64 super_least(const dot_rows *x, int r, const uint8_t *less, const bool halves)
{
    v64 high = v64_set32(0), low = high;
    const int first = halves ? 2 : 0, count = halves ? 4 : 2;
    UNROLL
    for (int i = 0; i < count; i++) {
        const v64 w = v64_load(less + 64 * i);
        const size_t four = offset_of_four(first + i);
        high = v64_dot_four(high, w, dot_at(x, r, offsetof(dg_qsuper, high) + four));
        low = v64_dot_four(low, w, dot_at(x, r, offsetof(dg_qsuper, low) + four));
    }
    return v64_add32(v64_left32(high, 6), low);
}

/* sum[r] = the products of `fours` times four numbers from four `first` of 32 on; `bias`: how far
 * behind a row's numbers that is what sums start with. */
INLINE void super_products(v64 sum[DOT_ROWS], const dot_rows *x, const uint8_t *n, const int first,
                           const int fours, size_t bias, const dg_qkind kind, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = kind == DG_Q_SUPER_HALVES ? dot_word(x, r, bias + (size_t)first) : v64_set32(0);
    UNROLL
    for (int i = first; i < first + fours; i++) {
        const v64 w = v64_load(n + 64 * i);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = v64_dot_four(sum[r], w, dot_at(x, r, offset_of_four(i)));
    }
}

/* `rows` rows from row `first` on; a constant at every call. What groups are scaled with is
 * multiplied in floats, which is faster than in words and exact for sums below 2^24: those of
 * `chain` times 32 values. Addresses go through the blocks, so that distances from them take a byte
 * in an instruction. */
INLINE void super_rows(const dg_qgemm_args *a, fetch *soon, int first, const dg_qkind kind,
                       const int chain, const int rows)
{
    const dg_qpanel *p = a->panel;
    const bool halves = group_of(kind) == 16;
    const dot_results to = dot_results_of(a, first, rows);
    const dot_rows super = dot_rows_at(a, first, rows);
    dot_rows x = super;
    const size_t next = distance_of_next(a, first, rows);
    const uint8_t *n = p->n;
    const float *times = p->lift;
    size_t bias = offsetof(dg_qsuper, bias);
    v64 all[DOT_ROWS];
    UNROLL
    for (int r = 0; r < rows; r++)
        all[r] = v64_set32(0);
    for (int block = 0; block < DG_QBLOCKS; block += chain) {
        f16v part[DOT_ROWS];
        UNROLL
        for (int r = 0; r < rows; r++)
            part[r] = f16v_zero();
        for (int k = 0; k < chain; k++) {
            ask_for_next(&x, next, rows);
            if (block + k < DG_QBLOCKS / 2) /* what is behind their numbers */
                ask_for_next(&x, next ? next + DG_QSLICE * 2 : 0, rows);
            v64 sum[DOT_ROWS];
            super_products(sum, &x, n, 0, halves ? 4 : 8, bias, kind, rows);
            UNROLL
            for (int r = 0; r < rows; r++)
                part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(times), part[r]);
            times += DG_QCOLS;
            if (halves) {
                super_products(sum, &x, n, 4, 4, bias, kind, rows);
                UNROLL
                for (int r = 0; r < rows; r++)
                    part[r] = f16v_fma(f16v_of_i32(sum[r]), f16v_load(times), part[r]);
                times += DG_QCOLS;
            }
            n += DG_QBLOCK * DG_QCOLS;
            bias -= 2 * DG_QBLOCK - sizeof((dg_qsuper *)0)->bias[0];
            UNROLL
            for (int q = 0; q < (rows + 1) / 2; q++)
                x.pair[q] += 2 * DG_QBLOCK;
            fetch_some(soon);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            all[r] = v64_add32(all[r], v64_of_f16v(part[r]));
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        f16v t = f16v_mul(f16v_of_i32(all[r]), f16v_load(p->step));
        if (has_least(kind))
            t = f16v_fnma(f16v_of_i32(super_least(&super, r, p->less, halves)), f16v_load(p->least),
                          t);
        t = f16v_fma(t, dot_float(&super, r, offsetof(dg_qsuper, step)), dot_before(&to, r, rows));
        dot_store(&to, r, rows, t);
    }
}

/* `chain`: of super-blocks; 0: of others. */
INLINE void some_rows(const dg_qgemm_args *a, fetch *soon, int first, const dg_qkind kind,
                      const int chain, const int rows)
{
    if (chain)
        super_rows(a, soon, first, kind, chain, rows);
    else
        multiply_rows(a, soon, first, kind, rows);
}

/* All rows, in whole pairs behind the first one, and as many together as the others: few rows would
 * wait for their sums. */
INLINE void all_rows(const dg_qgemm_args *a, fetch *soon, const dg_qkind kind, const int chain)
{
    int row = a->first_row % 2;
    if (row)
        some_rows(a, soon, 0, kind, chain, 1);
    const int n = a->n_row - row, most = n > 0 ? dg_ceil_div(n, dg_ceil_div(n, DOT_ROWS)) : 0;
    for (; row < a->n_row; row += most + most % 2)
        switch (dg_ceil_div(dg_min(most, a->n_row - row), 2) * 2) {
        case 2:
            some_rows(a, soon, row, kind, chain, 2);
            break;
        case 4:
            some_rows(a, soon, row, kind, chain, 4);
            break;
        case 6:
            some_rows(a, soon, row, kind, chain, 6);
            break;
        case 8:
            some_rows(a, soon, row, kind, chain, 8);
            break;
        case 10:
            some_rows(a, soon, row, kind, chain, 10);
            break;
        default:
            some_rows(a, soon, row, kind, chain, DOT_ROWS);
        }
}

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    fetch soon = fetch_of(&a->soon, dot_turns(a));
    /* 4 * 32 * 15 * 127 * 63, 2 * 32 * 31 * 127 * 63 and 32 * 32 * 127 * 128 are less than 2^24 */
    if (kind == DG_Q_SUPER_LEAST && a->panel->most <= 15)
        all_rows(a, &soon, kind, 4);
    else if (kind == DG_Q_SUPER_LEAST)
        all_rows(a, &soon, kind, 2);
    else if (dg_qkind_super(kind))
        all_rows(a, &soon, kind, 1);
    else
        all_rows(a, &soon, kind, 0);
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_vnni = {
    .quantise = QUANTISE,
    .quantise_super = QUANTISE_SUPER,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
