/* Blocks whose numbers or steps are small floats, as bytes: for pack_bytes_i8mm.h. */
#ifndef DG_CPU_ARM_PACK_BYTES_FLOATS_I8MM_H
#define DG_CPU_ARM_PACK_BYTES_FLOATS_I8MM_H

/* ---- E2M1: MXFP4, NVFP4 ----
 *
 * Eight numbers and the same ones below 0: of the products of eight, a table takes the sums with
 * 128 and the differences from it. Nothing is lifted, and the factors of two groups lie together.
 */

/* Of two groups, from the first one on. */
INLINE void set_times(factors *by, int g, int32x4_t first, int32x4_t second)
{
    vst1q_u16(by->of[g / 2],
              vuzp1q_u16(vreinterpretq_u16_s32(first), vreinterpretq_u16_s32(second)));
}

INLINE uint16x8_t times_of_two(const factors *by, int g)
{
    return vld1q_u16(by->of[g / 2]);
}

INLINE int8x16_t above_and_below(uint16x8_t product)
{
    const uint16x8_t half = vdupq_n_u16(128);
    return vreinterpretq_s8_u8(vsubhn_high_u16(vaddhn_u16(product, half), half, product));
}

/* The tables of a group of each column: the second of two where `second` is 4, a constant. */
#define E2M1_TABLES(table, times, second)                                                          \
    do {                                                                                           \
        const uint16x8_t n_ = vreinterpretq_u16_s16(vmovl_s8(vld1_s8(twice_e2m1)));                \
        (table)[0] = above_and_below(vmulq_laneq_u16(n_, times, (second)));                        \
        (table)[1] = above_and_below(vmulq_laneq_u16(n_, times, (second) + 1));                    \
        (table)[2] = above_and_below(vmulq_laneq_u16(n_, times, (second) + 2));                    \
        (table)[3] = above_and_below(vmulq_laneq_u16(n_, times, (second) + 3));                    \
    } while (0)

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
    const float32x4_t ratio = set_steps(p, c, reach_of(&s, DG_QBLOCKS, false, up, 0));
    for (int b = 0; b < DG_QBLOCKS; b += 2)
        set_times(by, b, nearest(vmulq_f32(s.a[b], ratio)), nearest(vmulq_f32(s.a[b + 1], ratio)));
}

/* A block of each column. */
INLINE void look_up_mxfp4(const four_columns *f, int b, const int8x16_t table[FOUR])
{
    uint8x16_t q[FOUR];
    for (int i = 0; i < FOUR; i++)
        q[i] = vld1q_u8(f->at[i] + 1 + b * 17);
    look_up(f, q, table, table, 32 * b, 32 * b + 16);
}

INLINE void pack_mxfp4(const four_columns *f, const factors *by, int n_block)
{
    for (int b = 0; b < n_block; b++) {
        const uint16x8_t times = times_of_two(by, b);
        int8x16_t table[FOUR];
        E2M1_TABLES(table, times, 0);
        look_up_mxfp4(f, b, table);
        if (++b == n_block)
            break;
        E2M1_TABLES(table, times, 4);
        look_up_mxfp4(f, b, table);
    }
}

/* ---- NVFP4 ---- */

/* The largest byte of each word. */
INLINE uint32x4_t largest_bytes(uint8x16_t a)
{
    const uint8x16_t two = vpmaxq_u8(a, a), one = vpmaxq_u8(two, two);
    return vmovl_u16(vget_low_u16(vmovl_u8(vget_low_u8(one))));
}

/* Halves of E4M3 numbers without sign: put where a float has its exponent, they are 2^-119 of that,
 * and the largest has the largest bits. So that a group takes one multiplication, the ratio is
 * 2^100 of itself, and products are 2^-19 of themselves, as is the float that makes whole numbers
 * of them. */
INLINE void factors_of_nvfp4(factors *by, const packing *p, int c, const four_columns *f,
                             const int up)
{
    const uint32x4_t none = vdupq_n_u32(0x7F);
    const int last = p->n_value / 64 - 1;
    uint8x16_t all[DG_QSLICE / 64], most = vdupq_n_u8(0);
    for (int b = 0; b < DG_QSLICE / 64; b++) {
        const uint8x16_t s = vreinterpretq_u8_u32(words_at(f, dg_min(b, last) * 36));
        all[b] = vbicq_u8(vandq_u8(s, vdupq_n_u8(0x7F)), vceqq_u8(s, vdupq_n_u8(0x7F)));
        most = vmaxq_u8(most, all[b]);
    }
    const float32x4_t largest = vreinterpretq_f32_u32(vshlq_n_u32(largest_bytes(most), 20)),
                      reach = vmulq_n_f32(largest, 0x1p119f * (float)up),
                      ratio = vmulq_n_f32(set_steps(p, c, reach), 0x1p100f);
    for (int b = 0; b < DG_QSLICE / 64; b++) {
        const uint32x4_t w = vreinterpretq_u32_u8(all[b]),
                         bits[4] = {vshlq_n_u32(vandq_u32(w, none), 20),
                                    vshlq_n_u32(vandq_u32(w, vdupq_n_u32(0x7F << 8)), 12),
                                    vshlq_n_u32(vandq_u32(w, vdupq_n_u32(0x7F << 16)), 4),
                                    vshlq_n_u32(vshrq_n_u32(w, 24), 20)};
        int32x4_t times[4];
        for (int g = 0; g < 4; g++)
            times[g] = vreinterpretq_s32_f32(
                vaddq_f32(vmulq_f32(vreinterpretq_f32_u32(bits[g]), ratio), vdupq_n_f32(0x1.8p4f)));
        set_times(by, 4 * b, times[0], times[1]);
        set_times(by, 4 * b + 2, times[2], times[3]);
    }
}

/* Sixteen bytes are two groups: eight low halves of one, eight of the other, and the high ones. */
INLINE void pack_two_groups(const four_columns *f, int8_t *to, int at, uint16x8_t times)
{
    int8x16_t first[FOUR], second[FOUR];
    E2M1_TABLES(first, times, 0);
    E2M1_TABLES(second, times, 4);
    for (int i = 0; i < FOUR; i++) {
        const uint8x16_t q = vld1q_u8(f->at[i] + at);
        const uint64x2_t low = vreinterpretq_u64_u8(vandq_u8(q, vdupq_n_u8(15))),
                         high = vreinterpretq_u64_u8(vshrq_n_u8(q, 4));
        first[i] = vqtbl1q_s8(first[i], vreinterpretq_u8_u64(vzip1q_u64(low, high)));
        second[i] = vqtbl1q_s8(second[i], vreinterpretq_u8_u64(vzip2q_u64(low, high)));
    }
    set_numbers(to, 0, first);
    set_numbers(to, 16, second);
}

INLINE void pack_nvfp4(const four_columns *f, const factors *by, int n_value)
{
    int8_t *to = f->n;
    for (int k = 0, at = 4; k < n_value; k += 64, at += 36, to += 8 * PAIRS * 16) {
        pack_two_groups(f, to, at, times_of_two(by, k / 16));
        pack_two_groups(f, to + 4 * PAIRS * 16, at + 16, times_of_two(by, k / 16 + 2));
    }
}

/* ---- E4M3 ---- */

/* The largest sizes of each 32 of 64 numbers of each column: those of the first 32 first. */
INLINE uint16x8_t largest_e4m3(const four_columns *f, int at)
{
    const uint8x16_t sign = vdupq_n_u8(0x80);
    uint8x16_t m[2][FOUR];
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < FOUR; i++)
            m[h][i] = vmaxq_u8(vbicq_u8(vld1q_u8(f->at[i] + at + 32 * h), sign),
                               vbicq_u8(vld1q_u8(f->at[i] + at + 32 * h + 16), sign));
    const uint8x16_t first = vpmaxq_u8(vpmaxq_u8(m[0][0], m[0][1]), vpmaxq_u8(m[0][2], m[0][3])),
                     second = vpmaxq_u8(vpmaxq_u8(m[1][0], m[1][1]), vpmaxq_u8(m[1][2], m[1][3])),
                     two = vpmaxq_u8(first, second);
    return vmovl_u8(vget_low_u8(vpmaxq_u8(two, two)));
}

/* Blocks of 64 with a float: each 32 of them have a step that follows from the largest, as
 * numbers_body.h's e4m3_scale has it. Factors of a block are followed, DG_QBLOCKS on, by how its
 * numbers are made, of each column. */
INLINE void factors_of_e4m3(factors *by, const packing *p, int c, const four_columns *f,
                            const int up)
{
    const uint8x16x2_t inverses = {{vreinterpretq_u8_u16(vld1q_u16(e4m3_inverses)),
                                    vreinterpretq_u8_u16(vld1q_u16(e4m3_inverses + 8))}};
    const int last = p->n_value / 64 - 1;
    uint16x8_t zero[DG_QBLOCKS / 2];
    group_steps s;
    for (int k = 0; k < DG_QBLOCKS / 2; k++) { /* behind the last one it is the last again */
        const int at = dg_min(k, last) * 68;
        const float32x4_t d = floats_at(f, at);
        const uint16x8_t most = largest_e4m3(f, at + 4),
                         top = vmaxq_u16(vshrq_n_u16(most, 3), vdupq_n_u16(1)),
                         part = vmlsq_n_u16(vaddq_u16(most, vdupq_n_u16(8)), top, 8),
                         place = vmlaq_n_u16(vdupq_n_u16(0x0100), part, 0x0202),
                         inverse = vreinterpretq_u16_u8(
                             vqtbl2q_u8(inverses, vreinterpretq_u8_u16(place))),
                         half = vreinterpretq_u16_f16(vcvtq_f16_u16(inverse));
        zero[k] = vaddq_u16(vshlq_n_u16(top, E4M3_TOP_AT), vdupq_n_u16(E4M3_ZERO));
        vst1q_u16(by->of[DG_QBLOCKS + 2 * k], vzip1q_u16(half, zero[k]));
        vst1q_u16(by->of[DG_QBLOCKS + 2 * k + 1], vzip2q_u16(half, zero[k]));
        /* put where a float has its exponent, they are 2^-120 of themselves */
        const uint32x4_t first = vshll_n_u16(vget_low_u16(most), 16),
                         second = vshll_high_n_u16(most, 16);
        const float unit = 0x1p120f * (1.0f / 127);
        s.a[2 * k] = vmulq_f32(d, vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(first, 4)), unit));
        s.a[2 * k + 1] =
            vmulq_f32(d, vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(second, 4)), unit));
    }
    const float32x4_t ratio = set_steps(p, c, reach_of(&s, DG_QBLOCKS, false, up, 0));
    for (int k = 0; k < DG_QBLOCKS / 2; k++) {
        const int32x4_t first = nearest(vmulq_f32(s.a[2 * k], ratio)),
                        second = nearest(vmulq_f32(s.a[2 * k + 1], ratio));
        const uint16x8_t times = vuzp1q_u16(vreinterpretq_u16_s32(first),
                                            vreinterpretq_u16_s32(second)),
                         lift = vmlsq_u16(vdupq_n_u16(128), times, zero[k]);
        vst1q_u16(by->of[2 * k], vzip1q_u16(times, lift));
        vst1q_u16(by->of[2 * k + 1], vzip2q_u16(times, lift));
    }
}

/* Sixteen values, `at` bytes on. */
INLINE void pack_sixteen_e4m3(const four_columns *f, int8_t *to, int at, uint16x8_t by,
                              float16x8_t ways)
{
    int8x16_t v[FOUR];
    for (int i = 0; i < FOUR; i++)
        v[i] = vld1q_s8((const int8_t *)f->at[i] + at);
    const sixteen n[FOUR] = {SIXTEEN_E4M3(v[0], ways, 0), SIXTEEN_E4M3(v[1], ways, 1),
                             SIXTEEN_E4M3(v[2], ways, 2), SIXTEEN_E4M3(v[3], ways, 3)};
    all_upper_bytes(v, by, n);
    set_numbers(to, 0, v);
}

INLINE void pack_e4m3(const four_columns *f, const factors *by, int n_block)
{
    int8_t *to = f->n;
    for (int b = 0, at = 4; b < n_block; b += 2, at += 68)
        for (int h = 0; h < 2; h++) {
            const uint16x8_t times = group_factors(by, b + h);
            const float16x8_t ways = vreinterpretq_f16_u16(group_factors(by, DG_QBLOCKS + b + h));
            for (int m = 0; m < 2; m++, to += 2 * PAIRS * 16)
                pack_sixteen_e4m3(f, to, at + 32 * h + 16 * m, times, ways);
        }
}

#endif
