/* Panels of quantised weights for AVX-512: a row of a panel, 64 bytes, holds four values along k of
 * each of sixteen columns; row j those from 4 j on. Whoever includes this defines first
 *     UP(kind)       what is added to every number of that kind
 * Steps and least values lie by group, sixteen columns side by side, and so does, as floats in
 * `lift`, what groups are scaled with; `less` lies by four groups.
 *
 * The types that most of a model is stored in are turned before they are unpacked: words of sixteen
 * columns' blocks side by side, and then shifts and masks on whole registers. */
#ifndef DG_CPU_X86_PACK_AVX512_H
#define DG_CPU_X86_PACK_AVX512_H

#include "cpu/x86/columns_avx512.h"

INLINE void put(dg_qpanel *panel, int j, v64 n, const dg_qkind kind)
{
    (void)kind; /* UP may not ask */
    if (UP(kind))
        n = v64_add8(n, v64_set8(UP(kind)));
    v64_store(panel->n + 64 * j, n);
}

/* ---- super-blocks ---- */

enum { SUPER_UP = 32 }; /* what is added to numbers that may be negative */

/* Row j as numbers that are `up` higher than they are. */
INLINE void put_super(dg_qpanel *panel, const int j, v64 n)
{
    v64_store(panel->n + 64 * j, n);
}

INLINE void set_super(dg_qpanel *panel, const super_scales *s, const dg_qkind kind)
{
    const int n_group = DG_QSLICE / group_of(kind);
    f16v_store(panel->step, s->step);
    UNROLL
    for (int g = 0; g < n_group; g++)
        f16v_store(panel->lift + g * DG_QCOLS, f16v_of_i32(times_of_group(s, g)));
    if (!has_least(kind))
        return;
    f16v_store(panel->least, s->least);
    UNROLL
    for (int i = 0; i < n_group / 4; i++)
        v64_store(panel->less + 64 * i, s->less[i]);
}

INLINE void columns_q4_k(dg_qpanel *panel, const columns *s)
{
    v64 head[4];
    turn(head, s, 0);
    const super_scales scales = scales_of_q4_k(head, s->scale);
    set_super(panel, &scales, DG_Q_SUPER_LEAST);
    UNROLL
    for (int m = 0; m < 8; m++) { /* sixteen bytes: of a pair of groups, the first or second half */
        const int j = 16 * (m / 2) + 4 * (m % 2);
        v64 w[4];
        turn(w, s, 16 + 16 * (size_t)m);
        for (int i = 0; i < 4; i++) {
            put_super(panel, j + i, low_halves(w[i]));
            put_super(panel, j + 8 + i, high_halves(w[i]));
        }
    }
}

INLINE void columns_q6_k(dg_qpanel *panel, const columns *s)
{
    v64 times[4];
    turn(times, s, 192);
    const super_scales scales =
        scales_of_q6_k(times, v64_gather(s->at[0] + 206, s->apart), s->scale);
    set_super(panel, &scales, DG_Q_SUPER_HALVES);
    UNROLL
    for (int m = 0; m < 4; m++) { /* sixteen of 32 in one half of the block */
        const size_t half = (size_t)m / 2, sixteen = (size_t)m % 2;
        v64 low[2][4], high[4];
        turn(high, s, 128 + 32 * half + 16 * sixteen);
        turn(low[0], s, 64 * half + 16 * sixteen);
        turn(low[1], s, 64 * half + 32 + 16 * sixteen);
        UNROLL
        for (int q = 0; q < 4; q++) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                v64 n = q < 2 ? low_halves(low[q][i]) : high_halves(low[q - 2][i]);
                n = v64_or(n, upper_bits(high[i], 2 * q));
                put_super(panel, 32 * (int)half + 8 * q + 4 * (int)sixteen + i, n);
            }
        }
    }
}

/* ---- blocks of 32 ---- */

INLINE void columns_q8_0(dg_qpanel *panel, const columns *s, int n_block)
{
    for (int b = 0; b < n_block; b++) {
        const size_t at = 34 * (size_t)b;
        step_of_block(panel, s, b, at);
        for (int m = 0; m < 2; m++) {
            v64 w[4];
            turn(w, s, at + 2 + 16 * (size_t)m);
            for (int i = 0; i < 4; i++)
                put(panel, 8 * b + 4 * m + i, w[i], DG_Q_PLAIN);
        }
    }
}

/* Numbers from -16 on: of those whose fifth bit is not set, 16 is taken. */
INLINE void columns_q5_0(dg_qpanel *panel, const columns *s, int n_block)
{
    const v64 sixteen = v64_set8(16);
    for (int b = 0; b < n_block; b++) {
        const size_t at = 22 * (size_t)b;
        step_of_block(panel, s, b, at);
        const v64 fifth = v64_gather(s->at[0] + at + 2, s->apart);
        v64 w[4];
        turn(w, s, at + 6);
        UNROLL
        for (int j = 0; j < 8; j++) {
            v64 n = j < 4 ? low_halves(w[j]) : high_halves(w[j - 4]);
            n = v64_sub8_where_clear(n, sixteen, fifth_byte(fifth, j), fifth_bits(j));
            put(panel, 8 * b + j, n, DG_Q_PLAIN);
        }
    }
}

/* ---- all of them ---- */

INLINE void columns_of_numbers(dg_qpanel *panel, const columns *from, int n_block,
                               const dg_qkind kind, dg_numbers_fn *row)
{
    const int n_value = n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    dg_numbers w[DG_QCOLS];
    columns s = *from;
    for (int c = 0; c < DG_QCOLS; c++) {
        row(&w[c], from->at[c], n_value);
        s.at[c] = (const uint8_t *)w[c].n;
    }
    for (int k = 0; k < n_value; k += 16) {
        v64 n[4];
        turn(n, &s, (size_t)k);
        for (int i = 0; i < 4; i++)
            put(panel, k / 4 + i, n[i], kind);
    }
    for (int g = 0; g < n_group; g++)
        for (int c = 0; c < DG_QCOLS; c++) {
            panel->step[g * DG_QCOLS + c] = w[c].step[g] * s.scale;
            if (kind == DG_Q_LEAST)
                panel->least[g * DG_QCOLS + c] = w[c].least[g] * s.scale;
        }
}

INLINE void columns_of_super(dg_qpanel *panel, const columns *from, int type, const dg_qkind kind,
                             dg_numbers_fn *row)
{
    const super_scales scales = scales_of_columns(from, type);
    const int up = has_least(kind) ? 0 : SUPER_UP;
    dg_numbers w[DG_QCOLS];
    columns s = *from;
    set_super(panel, &scales, kind);
    for (int c = 0; c < DG_QCOLS; c++) {
        row(&w[c], from->at[c], DG_QSLICE);
        s.at[c] = (const uint8_t *)w[c].n;
    }
    UNROLL
    for (int k = 0; k < DG_QSLICE; k += 16) {
        v64 n[4];
        turn(n, &s, (size_t)k);
        for (int i = 0; i < 4; i++)
            put_super(panel, k / 4 + i, up ? v64_add8(n[i], v64_set8(up)) : n[i]);
    }
}

INLINE void pack_columns(dg_qpanel *panel, const dg_qpack_args *a, int type, const dg_qkind kind,
                         dg_numbers_fn *row)
{
    const columns s = columns_of(a);
    panel->kind = kind;
    if (row == row_q4_k)
        columns_q4_k(panel, &s);
    else if (row == row_q6_k)
        columns_q6_k(panel, &s);
    else if (row == row_q8_0)
        columns_q8_0(panel, &s, a->n_block);
    else if (row == row_q5_0)
        columns_q5_0(panel, &s, a->n_block);
    else if (dg_qkind_super(kind))
        columns_of_super(panel, &s, type, kind, row);
    else
        columns_of_numbers(panel, &s, a->n_block, kind, row);
}

#endif
