/* Blocks whose numbers or steps are small floats, as bytes: for pack_bytes_i8mm.h. */
#ifndef DG_CPU_ARM_PACK_BYTES_FLOATS_I8MM_H
#define DG_CPU_ARM_PACK_BYTES_FLOATS_I8MM_H

/* ---- MXFP4 ---- */

/* Steps 2^(byte - 128), below 2^-126 subnormal numbers. */
INLINE void factors_of_mxfp4(factors *by, const packing *p, int c, const four_columns *f,
                             const int up)
{
    const int last = p->n_value / DG_QBLOCK - 1;
    group_steps s;
    for (int b = 0; b < DG_QBLOCKS; b++) {
        const int at = dg_min(b, last) * 17;
        uint32_t bits[FOUR];
        for (int i = 0; i < FOUR; i++) {
            const uint32_t e = f->at[i][at];
            bits[i] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
        }
        s.a[b] = vreinterpretq_f32_u32(vld1q_u32(bits));
    }
    set_factors(by, p, c, &s, DG_QBLOCKS, false, up, 0);
}

/* ---- NVFP4 ---- */

/* Halves of E4M3 numbers without sign: put where a float has its exponent, they are 2^-119 of that.
 */
INLINE void factors_of_nvfp4(factors *by, const packing *p, int c, const four_columns *f,
                             const int up)
{
    const int last = p->n_value / 64 - 1;
    group_steps s;
    for (int b = 0; b < DG_QSLICE / 64; b++) {
        uint32_t w[FOUR];
        for (int i = 0; i < FOUR; i++)
            memcpy(&w[i], f->at[i] + dg_min(b, last) * 36, sizeof w[i]);
        const uint8x16_t all = vreinterpretq_u8_u32(vld1q_u32(w));
        uint32x4_t four = vreinterpretq_u32_u8(vbicq_u8(all, vceqq_u8(all, vdupq_n_u8(0x7F))));
        for (int g = 0; g < 4; g++) {
            const uint32x4_t bits = vshlq_n_u32(vandq_u32(four, vdupq_n_u32(0x7F)), 20);
            s.a[4 * b + g] = vmulq_n_f32(vreinterpretq_f32_u32(bits), 0x1p119f);
            four = vshrq_n_u32(four, 8);
        }
    }
    set_factors(by, p, c, &s, DG_QGROUPS, false, up, 0);
}

/* Sixteen bytes are two groups: eight low halves of one, eight of the other, and the high ones. */
INLINE void pack_nvfp4(const four_columns *f, const factors *by, int n_value, const int up)
{
    const sixteen n = as_halves(higher(twice_e2m1, up));
    for (int k = 0; k < n_value; k += 32) {
        int8x16_t first[FOUR], second[FOUR];
        set_tables(first, group_factors(by, k / 16), n);
        set_tables(second, group_factors(by, k / 16 + 1), n);
        for (int i = 0; i < FOUR; i++) {
            const uint8x16_t q = vld1q_u8(f->at[i] + k / 64 * 36 + 4 + k % 64 / 2);
            const uint64x2_t low = vreinterpretq_u64_u8(vandq_u8(q, vdupq_n_u8(15))),
                             high = vreinterpretq_u64_u8(vshrq_n_u8(q, 4));
            first[i] = vqtbl1q_s8(first[i], vreinterpretq_u8_u64(vzip1q_u64(low, high)));
            second[i] = vqtbl1q_s8(second[i], vreinterpretq_u8_u64(vzip2q_u64(low, high)));
        }
        set_numbers(f->n, k, first);
        set_numbers(f->n, k + 16, second);
    }
}

/* ---- E4M3 ---- */

/* The largest size of 32 numbers of each column, as words. */
INLINE uint32x4_t largest_e4m3(const four_columns *f, int at)
{
    const uint8x16_t sign = vdupq_n_u8(0x80);
    uint8x16_t m[FOUR];
    for (int i = 0; i < FOUR; i++)
        m[i] = vmaxq_u8(vbicq_u8(vld1q_u8(f->at[i] + at), sign),
                        vbicq_u8(vld1q_u8(f->at[i] + at + 16), sign));
    const uint8x16_t four = vpmaxq_u8(vpmaxq_u8(m[0], m[1]), vpmaxq_u8(m[2], m[3])),
                     two = vpmaxq_u8(four, four), one = vpmaxq_u8(two, two);
    return vmovl_u16(vget_low_u16(vmovl_u8(vget_low_u8(one))));
}

/* numbers_body.h's e4m3_scale, of four columns: their steps, and what sixteen_e4m3 takes. */
INLINE float32x4_t scales_e4m3(e4m3_way way[FOUR], uint32x4_t most)
{
    const uint32x4_t top = vmaxq_u32(vshrq_n_u32(most, 3), vdupq_n_u32(1)),
                     whole = vandq_u32(vcgtq_u32(most, vdupq_n_u32(7)), vdupq_n_u32(8)),
                     part = vorrq_u32(vandq_u32(most, vdupq_n_u32(7)), whole);
    uint32_t tops[FOUR], parts[FOUR];
    vst1q_u32(tops, top);
    vst1q_u32(parts, part);
    for (int i = 0; i < FOUR; i++)
        way[i] = (e4m3_way){e4m3_inverses[parts[i]], (uint8_t)(tops[i] + 8)};
    const float32x4_t unit =
        vreinterpretq_f32_u32(vshlq_n_u32(vaddq_u32(top, vdupq_n_u32(117)), 23));
    return vmulq_n_f32(vmulq_f32(unit, vcvtq_f32_u32(part)), 1.0f / 127);
}

/* Blocks of 64 with a float: each 32 of them have a step that follows from the largest. */
INLINE void pack_e4m3(const packing *p, int c, const four_columns *f, const int up)
{
    const int n_block = p->n_value / DG_QBLOCK;
    e4m3_way way[DG_QBLOCKS][FOUR];
    group_steps s;
    factors by;
    for (int b = 0; b < n_block; b++) {
        const int at = b / 2 * 68;
        const uint32x4_t most = largest_e4m3(f, at + 4 + b % 2 * DG_QBLOCK);
        s.a[b] = vmulq_f32(floats_at(f, at), scales_e4m3(way[b], most));
    }
    for (int b = n_block; b < DG_QBLOCKS; b++)
        s.a[b] = vdupq_n_f32(0);
    set_factors(&by, p, c, &s, DG_QBLOCKS, false, up, 0);
    for (int b = 0; b < n_block; b++) {
        uint8x16_t first[FOUR], second[FOUR];
        int8x16_t v[FOUR], w[FOUR];
        for (int i = 0; i < FOUR; i++) {
            const uint8_t *from = f->at[i] + b / 2 * 68 + 4 + b % 2 * DG_QBLOCK;
            const uint8x16_t more = vdupq_n_u8((uint8_t)up);
            first[i] = vaddq_u8(vreinterpretq_u8_s8(sixteen_e4m3(vld1q_u8(from), way[b][i])), more);
            second[i] =
                vaddq_u8(vreinterpretq_u8_s8(sixteen_e4m3(vld1q_u8(from + 16), way[b][i])), more);
        }
        to_bytes(v, group_factors(&by, b), first);
        to_bytes(w, group_factors(&by, b), second);
        set_numbers(f->n, b * DG_QBLOCK, v);
        set_numbers(f->n, b * DG_QBLOCK + 16, w);
    }
}

#endif
