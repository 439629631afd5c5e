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
#include "cpu/x86/small_floats_avx512.h"

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

/* Four bits that are places in a table, or numbers themselves where it is NULL; `bytes` from block
 * to block and the first ones at `from`. */
INLINE void columns_of_fours(dg_qpanel *panel, const columns *s, int n_block, const size_t bytes,
                             const size_t from, const int8_t *table, const dg_qkind kind)
{
    const v64 numbers = table ? table_of(table) : v64_set8(0);
    for (int b = 0; b < n_block; b++) {
        v64 w[4];
        turn(w, s, bytes * (size_t)b + from);
        UNROLL
        for (int j = 0; j < 8; j++) {
            const v64 n = j < 4 ? low_halves(w[j]) : high_halves(w[j - 4]);
            put(panel, 8 * b + j, table ? v64_shuffle8(numbers, n) : n, kind);
        }
    }
}

INLINE void put_step(dg_qpanel *panel, const columns *s, int group, f16v step)
{
    f16v_store(panel->step + group * DG_QCOLS, f16v_mul(step, f16v_set(s->scale)));
}

INLINE void put_least(dg_qpanel *panel, const columns *s, int group, f16v least)
{
    f16v_store(panel->least + group * DG_QCOLS, f16v_mul(least, f16v_set(s->scale)));
}

static const int8_t from_minus_eight[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

/* Q4_0, IQ4_NL: a half for the step. */
INLINE void columns_with_half(dg_qpanel *panel, const columns *s, int n_block, const int8_t *table)
{
    for (int b = 0; b < n_block; b++)
        step_of_block(panel, s, b, 18 * (size_t)b);
    columns_of_fours(panel, s, n_block, 18, 2, table, DG_Q_PLAIN);
}

/* A second half is the least value with another sign. */
INLINE void columns_q4_1(dg_qpanel *panel, const columns *s, int n_block)
{
    for (int b = 0; b < n_block; b++) {
        const v64 w = v64_gather(s->at[0] + 20 * b, s->apart);
        put_step(panel, s, b, f16v_of_f16(w));
        put_least(panel, s, b, f16v_sub(f16v_zero(), f16v_of_f16(v64_right32(w, 16))));
    }
    columns_of_fours(panel, s, n_block, 20, 4, NULL, DG_Q_LEAST);
}

INLINE void columns_affine4(dg_qpanel *panel, const columns *s, int n_block)
{
    for (int b = 0; b < n_block; b++) {
        put_step(panel, s, b, f16v_of_bits(v64_gather(s->at[0] + 24 * b, s->apart)));
        put_least(panel, s, b, f16v_of_bits(v64_gather(s->at[0] + 24 * b + 4, s->apart)));
    }
    columns_of_fours(panel, s, n_block, 24, 8, NULL, DG_Q_LEAST);
}

INLINE void columns_mxfp4(dg_qpanel *panel, const columns *s, int n_block)
{
    for (int b = 0; b < n_block; b++)
        put_step(panel, s, b, steps_of_mxfp4(v64_gather(s->at[0] + 17 * b, s->apart)));
    columns_of_fours(panel, s, n_block, 17, 1, twice_e2m1, DG_Q_PLAIN);
}

INLINE void columns_nvfp4(dg_qpanel *panel, const columns *s, int n_block)
{
    const v64 numbers = table_of(twice_e2m1);
    for (int b = 0; b < n_block; b++) {
        const size_t at = 36 * (size_t)(b / 2);
        if (b % 2 == 0) {
            const v64 four = v64_gather(s->at[0] + at, s->apart);
            UNROLL
            for (int g = 0; g < 4; g++)
                put_step(panel, s, 2 * b + g, step_of_nvfp4(four, g));
        }
        v64 w[4];
        turn(w, s, at + 4 + 16 * (size_t)(b % 2));
        UNROLL
        for (int j = 0; j < 8; j++)
            put(panel, 8 * b + j, v64_shuffle8(numbers, row_of_nvfp4(w, j)), DG_Q_HALVES);
    }
}

INLINE void columns_e4m3(dg_qpanel *panel, const columns *s, int n_block)
{
    const v64 low = v64_set32(0x00FF00FF);
    for (int b = 0; b < n_block; b++) {
        const size_t at = 68 * (size_t)(b / 2), from = at + 4 + 32 * (size_t)(b % 2);
        const f16v d = f16v_of_bits(v64_gather(s->at[0] + at, s->apart));
        e4m3_way way;
        v64 w[8];
        turn(w, s, from);
        turn(w + 4, s, from + 16);
        put_step(panel, s, b, f16v_mul(d, scale_of_e4m3(&way, largest_e4m3(w))));
        UNROLL
        for (int j = 0; j < 8; j++) {
            v64 n[2];
            numbers_of_e4m3(n, w[j], &way);
            put(panel, 8 * b + j, v64_or(v64_and(n[0], low), v64_left32(v64_and(n[1], low), 8)),
                DG_Q_PLAIN);
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
    else if (row == row_q4_0)
        columns_with_half(panel, &s, a->n_block, from_minus_eight);
    else if (row == row_iq4_nl)
        columns_with_half(panel, &s, a->n_block, nl_levels);
    else if (row == row_q4_1)
        columns_q4_1(panel, &s, a->n_block);
    else if (row == row_affine4)
        columns_affine4(panel, &s, a->n_block);
    else if (row == row_mxfp4)
        columns_mxfp4(panel, &s, a->n_block);
    else if (row == row_nvfp4)
        columns_nvfp4(panel, &s, a->n_block);
    else if (row == row_e4m3)
        columns_e4m3(panel, &s, a->n_block);
    else if (dg_qkind_super(kind))
        columns_of_super(panel, &s, type, kind, row);
    else
        columns_of_numbers(panel, &s, a->n_block, kind, row);
}

#endif
