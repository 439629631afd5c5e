/* Blocks of sixteen columns of a quantised weight, side by side, with AVX-512: words that are
 * turned around, and steps and least values, which lie by group, sixteen columns side by side. */
#ifndef DG_CPU_X86_COLUMNS_AVX512_H
#define DG_CPU_X86_COLUMNS_AVX512_H

#include "cpu/numbers_body.h"

/* Sixteen columns' blocks; the last one stands in for those beyond it. */
typedef struct columns {
    const uint8_t *at[DG_QCOLS];
    v64 apart; /* bytes from the first one's place */
    float scale;
} columns;

INLINE columns columns_of(const dg_qpack_args *a)
{
    columns s = {.scale = a->scale};
    int32_t apart[DG_QCOLS];
    for (int c = 0; c < DG_QCOLS; c++) {
        apart[c] = (int32_t)a->stride * (c < a->n_col ? c : a->n_col - 1);
        s.at[c] = (const uint8_t *)a->src + apart[c];
    }
    s.apart = v64_load(apart);
    return s;
}

/* Word i of all columns in out[i], from four columns in each of r. */
INLINE void turn_quarters(v64 out[4], const v64 r[4])
{
    v64 low[2], high[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        low[i] = v64_low32(r[2 * i], r[2 * i + 1]);
        high[i] = v64_high32(r[2 * i], r[2 * i + 1]);
    }
    out[0] = v64_low64(low[0], low[1]);
    out[1] = v64_high64(low[0], low[1]);
    out[2] = v64_low64(high[0], high[1]);
    out[3] = v64_high64(high[0], high[1]);
}

/* Sixteen bytes of each column, `from` bytes on: word i of all of them in out[i]. */
INLINE void turn(v64 out[4], const columns *s, size_t from)
{
    v64 r[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = v64_load_quarters(s->at[i] + from, s->at[4 + i] + from, s->at[8 + i] + from,
                                 s->at[12 + i] + from);
    turn_quarters(out, r);
}

/* The same of columns that are `apart` bytes from each other. */
INLINE void turn_apart(v64 out[4], const uint8_t *at, size_t apart)
{
    const uint8_t *p[4] = {at, at + 4 * apart, at + 8 * apart, at + 12 * apart};
    v64 r[4];
    UNROLL
    for (size_t i = 0; i < 4; i++)
        r[i] = v64_load_quarters(p[0] + i * apart, p[1] + i * apart, p[2] + i * apart,
                                 p[3] + i * apart);
    turn_quarters(out, r);
}

INLINE v64 low_halves(v64 a)
{
    return v64_and(a, v64_set8(15));
}

INLINE v64 high_halves(v64 a)
{
    return low_halves(v64_right32(a, 4));
}

/* Of two bits in each byte of `high`, counted from `pair` on, the fifth and sixth of a number. */
INLINE v64 upper_bits(v64 high, int pair)
{
    const v64 moved = pair < 4 ? v64_left32(high, 4 - pair) : v64_right32(high, pair - 4);
    return v64_and(moved, v64_set8(0x30));
}

/* Orders of v64_shuffle8 that give byte p of each word to all four of it. */
#define WORD(p)    (p), (p), (p), (p)
#define QUARTER(p) WORD(p), WORD(4 + (p)), WORD(8 + (p)), WORD(12 + (p))
#define FOURFOLD(p)                                                                                \
    {                                                                                              \
        QUARTER(p), QUARTER(p), QUARTER(p), QUARTER(p)                                             \
    }
static const uint8_t fourfold[4][64] = {FOURFOLD(0), FOURFOLD(1), FOURFOLD(2), FOURFOLD(3)};

/* Where eight words of 32 numbers have their fifth bits, which lie together: of word j the byte
 * that has those of its four numbers, in each byte, and the bit of each. */
INLINE v64 fifth_byte(v64 fifth, const int j)
{
    return v64_shuffle8(fifth, v64_load(fourfold[j / 2]));
}

INLINE v64 fifth_bits(const int j)
{
    static const uint32_t bits[2] = {0x08040201, 0x80402010};
    return v64_set32((int32_t)bits[j % 2]);
}

/* ---- steps and least values ---- */

/* What the groups of a super-block are scaled with, four to a word, and its own step and least
 * value. */
typedef struct super_scales {
    v64 times[4], less[4];
    f16v step, least;
} super_scales;

/* numbers_body.h's six_bit_scales, of all columns, from the first sixteen bytes of their blocks. */
INLINE super_scales scales_of_q4_k(const v64 head[4], float scale)
{
    const v64 six = v64_set8(63), four = v64_set8(15), top = v64_set8(48);
    const v64 a = head[1], b = head[2], c = head[3];
    return (super_scales){
        .times = {v64_and(a, six), v64_or(v64_and(c, four), v64_and(v64_right32(a, 2), top))},
        .less = {v64_and(b, six),
                 v64_or(v64_and(v64_right32(c, 4), four), v64_and(v64_right32(b, 2), top))},
        .step = f16v_mul(f16v_of_f16(head[0]), f16v_set(scale)),
        .least = f16v_mul(f16v_of_f16(v64_right32(head[0], 16)), f16v_set(scale)),
    };
}

/* From the sixteen bytes from 192 on, and the last four. */
INLINE super_scales scales_of_q6_k(const v64 times[4], v64 last, float scale)
{
    return (super_scales){
        .times = {times[0], times[1], times[2], times[3]},
        .step = f16v_mul(f16v_of_f16(v64_right32(last, 16)), f16v_set(scale)),
    };
}

/* Of a type that is taken column by column. */
INLINE super_scales scales_of_columns(const columns *s, int type)
{
    uint8_t times[4][4 * DG_QCOLS], less[4][4 * DG_QCOLS];
    float step[DG_QCOLS], least[DG_QCOLS];
    super_scales out;
    for (int c = 0; c < DG_QCOLS; c++) {
        dg_scales one = {0};
        scales_of_type(&one, type, s->at[c]);
        for (int g = 0; g < DG_QGROUPS; g++) {
            times[g / 4][4 * c + g % 4] = (uint8_t)one.times[g];
            less[g / 4][4 * c + g % 4] = one.less[g];
        }
        step[c] = one.step * s->scale;
        least[c] = one.least * s->scale;
    }
    for (int i = 0; i < 4; i++) {
        out.times[i] = v64_load(times[i]);
        out.less[i] = v64_load(less[i]);
    }
    out.step = f16v_load(step);
    out.least = f16v_load(least);
    return out;
}

/* What group g is scaled with, in words. */
INLINE v64 times_of_group(const super_scales *s, const int g)
{
    return v64_right_signed32(v64_left32(s->times[g / 4], 24 - 8 * (g % 4)), 24);
}

/* Of its least value. */
INLINE v64 less_of_group(const super_scales *s, const int g)
{
    return v64_and(v64_right32(s->less[g / 4], 8 * (g % 4)), v64_set32(255));
}

INLINE void step_of_block(dg_qpanel *panel, const columns *s, int b, size_t at)
{
    const f16v d = f16v_of_f16(v64_gather(s->at[0] + at, s->apart));
    f16v_store(panel->step + b * DG_QCOLS, f16v_mul(d, f16v_set(s->scale)));
}

/* ---- what comes next ----
 *
 * Columns are far apart, and what is read of one at a time is short: without asking for it, every
 * panel waits for memory. Asked for all at once, it keeps what is needed now waiting. */

typedef struct fetch {
    const uint8_t *at;
    size_t stride;
    int bytes, line;
    int n_col; /* that are left */
    int some;  /* lines at a time */
} fetch;

/* All of it in n_turn turns. */
INLINE fetch fetch_of(const dg_qsoon *s, int n_turn)
{
    const int lines = s->n_col * (s->bytes / 64 + 2);
    return (fetch){
        .at = s->at,
        .stride = s->stride,
        .bytes = s->bytes,
        .n_col = s->at ? s->n_col : 0,
        .some = (lines + n_turn - 1) / (n_turn > 0 ? n_turn : 1),
    };
}

INLINE void fetch_some(fetch *f)
{
    for (int i = 0; i < f->some && f->n_col > 0; i++) {
        __builtin_prefetch(f->at + f->line);
        f->line += 64;
        if (f->line >= f->bytes + 63) {
            f->line = 0;
            f->at += f->stride;
            f->n_col--;
        }
    }
}

#endif
