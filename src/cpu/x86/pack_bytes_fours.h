/* Blocks of four bits and of E4M3 as bytes: for pack_bytes.h. */
#ifndef DG_CPU_X86_PACK_BYTES_FOURS_H
#define DG_CPU_X86_PACK_BYTES_FOURS_H

/* ---- four bits ---- */

/* Where 32 values begin. */
INLINE size_t fours_at(int b, dg_numbers_fn *row)
{
    return row == row_mxfp4     ? 17 * (size_t)b
           : row == row_q4_1    ? 20 * (size_t)b
           : row == row_affine4 ? 24 * (size_t)b
           : row == row_iq4_xs  ? 16 * (size_t)b
           : row == row_nvfp4   ? 36 * (size_t)(b / 2)
                                : 18 * (size_t)b;
}

/* Steps of IQ4_XS, from the first words of its blocks: numbers_body.h's numbers_iq4_xs. */
INLINE void steps_of_iq4_xs(f16v a[DG_QBLOCKS], const v64 w[4])
{
    const f16v d = f16v_of_f16(w[0]);
    UNROLL
    for (int g = 0; g < DG_QBLOCKS; g++) {
        const v64 low = v64_and(v64_right32(w[1], 4 * g), v64_set32(15)),
                  high = v64_and(v64_right32(w[0], 16 + 2 * g), v64_set32(3)),
                  scale = v64_add32(v64_or(low, v64_left32(high, 4)), v64_set32(-32));
        a[g] = f16v_mul(d, f16v_of_i32(scale));
    }
}

/* Steps and least values. */
INLINE void set_fours(packing *p, const int up, const int most, dg_numbers_fn *row)
{
    const bool least = row == row_q4_1 || row == row_affine4, halves = row == row_nvfp4;
    const int n_group = halves ? 2 * p->n_block : p->n_block;
    f16v a[DG_QGROUPS] = {0}, b[DG_QGROUPS] = {0}, poison = f16v_zero();
    for (int k = 0; k < (row == row_iq4_xs ? 1 : p->n_block); k += halves ? 2 : 1) {
        v64 w[4];
        turn_slice(w, p, fours_at(k, row));
        if (row == row_iq4_xs)
            steps_of_iq4_xs(a, w);
        else if (row == row_mxfp4)
            a[k] = steps_of_mxfp4(w[0]);
        else if (row == row_affine4)
            a[k] = f16v_of_bits(w[0]);
        else if (!halves)
            a[k] = f16v_of_f16(w[0]);
        for (int g = 0; g < 4 && halves; g++)
            a[2 * k + g] = step_of_nvfp4(w[0], g);
        if (row == row_q4_1)
            b[k] = f16v_sub(f16v_zero(), f16v_of_f16(v64_right32(w[0], 16)));
        else if (row == row_affine4)
            b[k] = f16v_of_bits(w[1]);
        poison = f16v_add(poison, poison_of(halves ? a[2 * k] : a[k]));
        if (least)
            poison = f16v_add(poison, poison_of(b[k]));
    }
    set_bytes(p, a, b, poison, n_group, least, up, most);
}

/* The numbers of a table, `up` higher than they are. */
INLINE v64 higher(const int8_t numbers[16], const int up)
{
    return v64_add8(table_of(numbers), v64_set8(up));
}

INLINE void part_of_fours(const packing *p, int b, dg_numbers_fn *row)
{
    const bool two = row == row_nvfp4, floats = two || row == row_mxfp4,
               levels = row == row_iq4_nl || row == row_iq4_xs;
    const size_t from = two                  ? 4 + 16 * (size_t)(b % 2)
                        : row == row_mxfp4   ? 1
                        : row == row_q4_1    ? 4
                        : row == row_affine4 ? 8
                        : row == row_iq4_xs  ? 8
                                             : 2;
    const v64 numbers = floats ? higher(twice_e2m1, 16) : higher(nl_levels, 128);
    v64 w[4];
    turn_slice(w, p, fours_at(b, row) + from);
    UNROLL
    for (int j = 0; j < 8; j++) {
        const v64 n = two ? row_of_nvfp4(w, j) : j < 4 ? low_halves(w[j]) : high_halves(w[j - 4]);
        put_bytes(p, 8 * b + j, floats || levels ? v64_shuffle8(numbers, n) : n,
                  two ? 2 * b + j / 4 : b);
    }
}

/* ---- E4M3 ---- */

/* Numbers are turned once: they lie where their bytes will, until their part comes. */
INLINE void set_e4m3(packing *p, const int up)
{
    f16v a[DG_QBLOCKS], poison = f16v_zero(), d = f16v_zero();
    for (int b = 0; b < p->n_block; b++) {
        const size_t at = 68 * (size_t)(b / 2);
        v64 w[8];
        if (b % 2 == 0) {
            turn_slice(w, p, at);
            d = f16v_of_bits(w[0]);
        }
        turn_slice(w, p, at + 4 + 32 * (size_t)(b % 2));
        turn_slice(w + 4, p, at + 20 + 32 * (size_t)(b % 2));
        UNROLL
        for (int j = 0; j < 8; j++)
            v64_store(p->to + 64 * (8 * b + j), w[j]);
        a[b] = f16v_mul(d, scale_of_e4m3(&p->way[b], largest_e4m3(w)));
        poison = f16v_add(poison, poison_of(a[b]));
    }
    set_bytes(p, a, a, poison, p->n_block, false, up, 0);
}

/* A is 254 at most, and (n * A + 128) >> 8 the nearest of n * (A << 7) over 2^15. */
INLINE void part_e4m3(const packing *p, int b)
{
    const v64 low = v64_set32(0x00FF00FF),
              times = v64_mul16(p->times[b], v64_set32(128 << 16 | 128));
    UNROLL
    for (int j = 8 * b; j < 8 * b + 8; j++) {
        v64 n[2];
        numbers_of_e4m3(n, v64_load(p->to + 64 * j), &p->way[b]);
        const v64 even = v64_mul_round16(n[0], times), odd = v64_mul_round16(n[1], times);
        const v64 both = v64_or(v64_and(even, low), v64_left32(v64_and(odd, low), 8));
        v64_store(p->to + 64 * j, BYTE_UP ? v64_add8(both, v64_set8(BYTE_UP)) : both);
    }
}

#endif
