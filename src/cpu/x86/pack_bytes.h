/* Panels of bytes for AMX and AVX-512 VNNI: a row of a panel's half, 64 bytes, holds four values
 * along k of each of sixteen columns; row j those from 4 j on. Numbers of sixteen columns lie side
 * by side in words, and are multiplied by A and rounded in the halves of these: cpu/bytes.h says
 * what that is. Whoever includes this has defined BYTE_UP, 0 or 128: what is added to each byte. */
#ifndef DG_CPU_X86_PACK_BYTES_H
#define DG_CPU_X86_PACK_BYTES_H

#include "cpu/bytes.h"
#include "cpu/x86/columns_avx512.h"
#include "cpu/x86/small_floats_avx512.h"

/* What is packed is cut into eighths, so that other work goes on between them. */
enum { PARTS = 8 };

/* Sixteen columns that are being packed: A and 128 - B of each group, in both halves of a word;
 * numbers are `up` higher than they are, and 128 - B is made so much lower. A byte is the upper one
 * of a half, and there BYTE_UP is added. */
typedef struct packing {
    const uint8_t *at; /* the slice in the first column … */
    size_t stride;     /* … and how far apart it is in the others */
    v64 times[DG_QGROUPS], lift[DG_QGROUPS];
    v64 kept[DG_QBLOCKS]; /* words for later parts: fifth bits of Q5_0, upper ones of Q6_K */
    e4m3_way way[DG_QBLOCKS];
    uint8_t *to;
    float *step, scale;
    int n_block;
} packing;

/* Sixteen bytes of each column, `from` bytes on. */
INLINE void turn_slice(v64 out[4], const packing *p, size_t from)
{
    turn_apart(out, p->at + from, p->stride);
}

#define HALVES(a) ((uint32_t)(a) << 16 | (uint32_t)(a))

INLINE v64 in_both_halves(v64 a)
{
    return v64_or(v64_left32(a, 16), v64_and(a, v64_set32(0xFFFF)));
}

/* 0, or NaN where a is not finite. */
INLINE f16v poison_of(f16v a)
{
    return f16v_sub(a, a);
}

/* From the steps and least values of the groups; `poison` as poison_of all of them. */
INLINE void set_bytes(packing *p, const f16v *a, const f16v *b, f16v poison, int n_group,
                      const bool least, const int up, const int most)
{
    f16v reach = f16v_zero();
    UNROLL
    for (int g = 0; g < n_group; g++) {
        f16v r;
        if (least) {
            const f16v low = f16v_abs(b[g]),
                       high = f16v_abs(f16v_fnma(f16v_set((float)most), a[g], b[g]));
            r = f16v_larger(low, high);
        } else
            r = f16v_mul(f16v_set((float)up), f16v_abs(a[g]));
        reach = f16v_larger(r, reach);
    }
    const f16v step = f16v_add(f16v_div(reach, f16v_set(127)), poison),
               ratio = f16v_where_least(reach, f16v_set(DG_BYTE_LEAST),
                                        f16v_div(f16v_set(DG_BYTE_FULL), reach));
    f16v_store(p->step, f16v_mul(step, f16v_set(p->scale)));
    UNROLL
    for (int g = 0; g < n_group; g++) {
        const v64 times = in_both_halves(v64_of_f16v(f16v_mul(a[g], ratio)));
        v64 lift = v64_set32((int32_t)HALVES(BYTE_UP << 8 | 128));
        if (least)
            lift = v64_sub16(lift, in_both_halves(v64_of_f16v(f16v_mul(b[g], ratio))));
        if (up)
            lift = v64_sub16(lift, v64_mul16(times, v64_set32(up << 16 | up)));
        p->times[g] = times;
        p->lift[g] = lift;
    }
}

/* Row j of numbers of group g. */
INLINE void put_bytes(const packing *p, int j, v64 n, int g)
{
    const v64 low = v64_set32(0x00FF00FF), high = v64_set32((int32_t)0xFF00FF00);
    const v64 even = v64_add16(v64_mul16(v64_and(n, low), p->times[g]), p->lift[g]),
              odd = v64_add16(v64_mul16(v64_byte_right16(n), p->times[g]), p->lift[g]);
    v64_store(p->to + 64 * j, v64_or(v64_byte_right16(even), v64_and(odd, high)));
}

/* ---- super-blocks ---- */

/* The same from what a super-block's groups are scaled with: small numbers, which no finite step
 * makes too large. */
INLINE void set_super(packing *p, const super_scales *s, const int n_group, const bool least,
                      const int up, const int most)
{
    f16v a[DG_QGROUPS], b[DG_QGROUPS];
    UNROLL
    for (int g = 0; g < n_group; g++) {
        a[g] = f16v_mul(s->step, f16v_of_i32(times_of_group(s, g)));
        b[g] = least ? f16v_mul(s->least, f16v_of_i32(less_of_group(s, g))) : f16v_zero();
    }
    const f16v poison = poison_of(s->step);
    set_bytes(p, a, b, least ? f16v_add(poison, poison_of(s->least)) : poison, n_group, least, up,
              most);
}

INLINE void part_q4_k(const packing *p, int part)
{
    const int m = part; /* sixteen bytes: of a pair of groups, the first or second half */
    const int j = 16 * (m / 2) + 4 * (m % 2), g = m / 2 * 2;
    v64 w[4];
    turn_slice(w, p, 16 + 16 * (size_t)m);
    UNROLL
    for (int i = 0; i < 4; i++)
        put_bytes(p, j + i, low_halves(w[i]), g);
    UNROLL
    for (int i = 0; i < 4; i++)
        put_bytes(p, j + 8 + i, high_halves(w[i]), g + 1);
}

/* Sixteen of 32 in one half of the block, and of four such runs the even or then the odd ones. */
INLINE void runs_q6_k(packing *p, int half, int sixteen, const int odd)
{
    v64 low[4], *high = p->kept;
    if (!odd)
        turn_slice(high, p, (size_t)(128 + 32 * half + 16 * sixteen));
    turn_slice(low, p, (size_t)(64 * half + 32 * odd + 16 * sixteen));
    UNROLL
    for (int q = odd; q < 4; q += 2) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const v64 n = q < 2 ? low_halves(low[i]) : high_halves(low[i]);
            put_bytes(p, 32 * half + 8 * q + 4 * sixteen + i, v64_or(n, upper_bits(high[i], 2 * q)),
                      8 * half + 2 * q + sixteen);
        }
    }
}

INLINE void part_q6_k(packing *p, int part)
{
    if (part % 2)
        runs_q6_k(p, part / 4, part / 2 % 2, 1);
    else
        runs_q6_k(p, part / 4, part / 2 % 2, 0);
}

/* ---- blocks of 32 ---- */

/* What the blocks begin with: steps, and in Q5_0 the fifth bits. */
INLINE void set_blocks(packing *p, const size_t bytes, const bool fifth, const int up)
{
    f16v a[DG_QBLOCKS], poison = f16v_zero();
    for (int b = 0; b < p->n_block; b++) {
        v64 w[4];
        turn_slice(w, p, bytes * (size_t)b);
        a[b] = f16v_of_f16(w[0]);
        poison = f16v_add(poison, poison_of(a[b]));
        if (fifth)
            p->kept[b] = v64_or(v64_right32(w[0], 16), v64_left32(w[1], 16));
    }
    set_bytes(p, a, a, poison, p->n_block, false, up, 0);
}

INLINE void part_q8_0(const packing *p, int b)
{
    UNROLL
    for (int m = 0; m < 2; m++) {
        v64 w[4];
        turn_slice(w, p, 34 * (size_t)b + 2 + 16 * (size_t)m);
        UNROLL
        for (int i = 0; i < 4; i++)
            put_bytes(p, 8 * b + 4 * m + i, v64_add8(w[i], v64_set8(128)), b);
    }
}

INLINE void part_q5_0(const packing *p, int b)
{
    const v64 sixteen = v64_set8(16);
    const size_t at = 22 * (size_t)b;
    const v64 fifth = p->kept[b];
    v64 w[4];
    turn_slice(w, p, at + 6);
    UNROLL
    for (int j = 0; j < 8; j++) {
        const v64 n = v64_or(j < 4 ? low_halves(w[j]) : high_halves(w[j - 4]), sixteen);
        put_bytes(p, 8 * b + j,
                  v64_sub8_where_clear(n, sixteen, fifth_byte(fifth, j), fifth_bits(j)), b);
    }
}

#include "cpu/x86/pack_bytes_fours.h"

/* ---- all of them ---- */

/* A type that is taken column by column. */
INLINE void pack_numbers(packing *p, const dg_qkind kind, const int up, const int most,
                         dg_numbers_fn *row)
{
    const int n_value = p->n_block * DG_QBLOCK, group = group_of(kind), n_group = n_value / group;
    dg_numbers w[DG_QCOLS];
    f16v a[DG_QGROUPS], b[DG_QGROUPS], poison = f16v_zero();
    for (int c = 0; c < DG_QCOLS; c++)
        row(&w[c], p->at + (size_t)c * p->stride, n_value);
    for (int g = 0; g < n_group; g++) {
        float step[DG_QCOLS], least[DG_QCOLS];
        for (int c = 0; c < DG_QCOLS; c++) {
            step[c] = w[c].step[g];
            least[c] = has_least(kind) ? w[c].least[g] : 0;
        }
        a[g] = f16v_load(step);
        b[g] = f16v_load(least);
        poison = f16v_add(poison, f16v_add(poison_of(a[g]), poison_of(b[g])));
    }
    set_bytes(p, a, b, poison, n_group, has_least(kind), up, most);
    for (int k = 0; k < n_value; k += 16) {
        v64 n[4];
        turn_apart(n, (const uint8_t *)w[0].n + k, sizeof w[0]);
        for (int i = 0; i < 4; i++)
            put_bytes(p, k / 4 + i, v64_add8(n[i], v64_set8(up)), k / group);
    }
}

/* Part after part, the first one first: it is in it that types without parts are packed. */
INLINE void pack_part(packing *p, int part, const dg_qkind kind, const int up, const int most,
                      dg_numbers_fn *row)
{
    if (row == row_q4_k) {
        if (part == 0) {
            v64 head[4];
            turn_slice(head, p, 0);
            const super_scales s = scales_of_q4_k(head, 1);
            set_super(p, &s, DG_QBLOCKS, true, up, most);
        }
        part_q4_k(p, part);
    } else if (row == row_q6_k) {
        if (part == 0) {
            v64 times[4], last[4];
            turn_slice(times, p, 192);
            turn_slice(last, p, 194);
            const super_scales s = scales_of_q6_k(times, last[3], 1);
            set_super(p, &s, DG_QGROUPS, false, up, most);
        }
        part_q6_k(p, part);
    } else if (row == row_q8_0 || row == row_q5_0) {
        if (part == 0)
            set_blocks(p, row == row_q8_0 ? 34 : 22, row == row_q5_0, up);
        if (part < p->n_block && row == row_q8_0)
            part_q8_0(p, part);
        else if (part < p->n_block)
            part_q5_0(p, part);
    } else if (row == row_q4_0 || row == row_iq4_nl || row == row_iq4_xs || row == row_q4_1 ||
               row == row_affine4 || row == row_mxfp4 || row == row_nvfp4) {
        if (part == 0)
            set_fours(p, up, most, row);
        if (part < p->n_block)
            part_of_fours(p, part, row);
    } else if (row == row_e4m3) {
        if (part == 0)
            set_e4m3(p, up);
        if (part < p->n_block)
            part_e4m3(p, part);
    } else if (part == 0)
        pack_numbers(p, kind, up, most, row);
}

#endif
