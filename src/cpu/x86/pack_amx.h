/* Panels of quantised weights for AMX: columns as they are stored, 256 values of each one behind
 * the other, which is how a tile takes its left side. Nothing is turned around; a register holds 64
 * values of one column. Steps and least values lie by group, sixteen columns side by side. */
#ifndef DG_CPU_X86_PACK_AMX_H
#define DG_CPU_X86_PACK_AMX_H

#include "cpu/x86/columns_avx512.h"

/* How far the parts of a register are shifted, in 64 bits at a time. */
static const uint64_t upper_half_by_four[8] = {0, 0, 0, 0, 4, 4, 4, 4},
                      odd_quarters_by_four[8] = {0, 0, 4, 4, 0, 0, 4, 4},
                      four_then_two[8] = {4, 4, 4, 4, 2, 2, 2, 2},
                      nothing_then_two[8] = {0, 0, 0, 0, 2, 2, 2, 2};

/* 32 bytes have the numbers of a group in their lower halves, those of the next in the upper. */
INLINE void numbers_of_q4_k(uint8_t *n, const uint8_t *b)
{
    const v64 by = v64_load(upper_half_by_four);
    UNROLL
    for (int i = 0; i < 4; i++)
        v64_store(n + 64 * i, low_halves(v64_right64_each(v64_load_twice(b + 16 + 32 * i), by)));
}

/* In each half of a block 64 bytes have four bits of 128 numbers, and 32 bytes the upper two. */
INLINE void numbers_of_q6_k(uint8_t *n, const uint8_t *b)
{
    const v64 top = v64_set8(0x30), down = v64_set8(-32);
    UNROLL
    for (int half = 0; half < 2; half++) {
        const v64 four = v64_load(b + 64 * half), two = v64_load_twice(b + 128 + 32 * half);
        const v64 low = v64_and(v64_left64_each(two, v64_load(four_then_two)), top),
                  high = v64_and(v64_right64_each(two, v64_load(nothing_then_two)), top);
        v64_store(n + 128 * half, v64_add8(v64_or(low_halves(four), low), down));
        v64_store(n + 128 * half + 64, v64_add8(v64_or(high_halves(four), high), down));
    }
}

/* The steps of sixteen columns' blocks of 32, as they are stored. */
typedef struct stored_steps {
    _Alignas(64) uint16_t at[DG_QBLOCKS][DG_QCOLS];
} stored_steps;

INLINE void set_steps(dg_qpanel *panel, const stored_steps *d, int n_block, float scale)
{
    for (int b = 0; b < n_block; b++)
        f16v_store(panel->step + b * DG_QCOLS,
                   f16v_mul(f16v_of_f16(v64_widen16_first(d->at[b], DG_QCOLS)), f16v_set(scale)));
}

/* Two blocks at a time, numbers from -16 on: 16 is added where the fifth bit is set. The last of an
 * odd count is made twice. */
INLINE void numbers_of_q5_0(uint8_t *n, stored_steps *d, int c, const uint8_t *b, int n_block)
{
    enum { BYTES = 22 };
    const v64 by = v64_load(odd_quarters_by_four), top = v64_set8(0xF0), sixteen = v64_set8(16);
    for (int i = 0; i < n_block; i += 2) {
        const uint8_t *first = b + BYTES * i, *second = i + 1 < n_block ? first + BYTES : first;
        uint32_t low, high;
        memcpy(&low, first + 2, sizeof low);
        memcpy(&high, second + 2, sizeof high);
        memcpy(&d->at[i][c], first, 2);
        memcpy(&d->at[i | 1][c], second, 2);
        v64 v = low_halves(v64_right64_each(v64_load_two_twice(first + 6, second + 6), by));
        v64_store(n + 32 * i, v64_add8_where(v64_or(v, top), sixteen, (uint64_t)high << 32 | low));
    }
}

INLINE void numbers_of_q8_0(uint8_t *n, stored_steps *d, int c, const uint8_t *b, int n_block)
{
    for (int i = 0; i < n_block; i++, b += 34) {
        memcpy(&d->at[i][c], b, 2);
        memcpy(n + DG_QBLOCK * i, b + 2, DG_QBLOCK);
    }
}

/* Any type, by the functions that all instruction sets share. */
INLINE void numbers_of_any(dg_qpanel *panel, const columns *s, int n_block, const dg_qkind kind,
                           dg_numbers_fn *row)
{
    const int n_value = n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    for (int c = 0; c < DG_QCOLS; c++) {
        dg_numbers w;
        row(&w, s->at[c], n_value);
        memcpy(panel->n + c * DG_QSLICE, w.n, (size_t)n_value);
        for (int g = 0; g < n_group; g++) {
            panel->step[g * DG_QCOLS + c] = w.step[g] * s->scale;
            if (kind == DG_Q_LEAST || kind == DG_Q_HALVES_LEAST)
                panel->least[g * DG_QCOLS + c] = w.least[g] * s->scale;
        }
    }
}

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, const dg_qkind kind,
                       dg_numbers_fn *row)
{
    const columns s = columns_of(a);
    const bool blocks_of_32 = row == row_q8_0 || row == row_q5_0;
    panel->kind = kind;
    fetch_next(a, panel->stored);
    if (row == row_q4_k)
        steps_q4_k(panel, &s);
    else if (row == row_q6_k)
        steps_q6_k(panel, &s);
    else if (!blocks_of_32) {
        numbers_of_any(panel, &s, a->n_block, kind, row);
        return;
    }
    stored_steps d;
    for (int c = 0; c < DG_QCOLS; c++) {
        uint8_t *n = panel->n + c * DG_QSLICE;
        if (row == row_q4_k)
            numbers_of_q4_k(n, s.at[c]);
        else if (row == row_q6_k)
            numbers_of_q6_k(n, s.at[c]);
        else if (row == row_q5_0)
            numbers_of_q5_0(n, &d, c, s.at[c], a->n_block);
        else
            numbers_of_q8_0(n, &d, c, s.at[c], a->n_block);
    }
    if (blocks_of_32)
        set_steps(panel, &d, a->n_block, s.scale);
}

#endif
