/* Packing for the matrix instruction of 8-bit integers: see quantised_i8mm.c for a panel's order.
 * The types that models mostly have go from blocks to the panel without a stop in memory. */
#ifndef DG_CPU_ARM_PACK_I8MM_H
#define DG_CPU_ARM_PACK_I8MM_H

/* Integers are counted from the bits of 1.5 * 2^23 on, where a float's unit is 1: then the sum is a
 * float already, counted(t) = 1.5 * 2^23 + t. Sums are less than 2^22. */
#define COUNT_ZERO 0x1.8p23f

enum { HALF_STEPS = DG_QGROUPS * PAIRS * 4 }; /* floats of half a panel's steps */

/* Where those of column c begin in step, lift and least. */
INLINE int step_of(int c)
{
    return c / HALF * HALF_STEPS + c % HALF / 2 * 4;
}

INLINE int8x16_t twice(float32x4_t both, const int which)
{
    int64x2_t x = vreinterpretq_s64_f32(both);
    return vreinterpretq_s8_s64(which ? vzip2q_s64(x, x) : vzip1q_s64(x, x));
}

/* Four groups' steps of each column times `scale`: both columns of a pair, twice. */
INLINE void set_steps(float *to, const float32x4_t v[FOUR], float scale)
{
    float32x4_t x[FOUR];
    for (int i = 0; i < FOUR; i++)
        x[i] = vmulq_n_f32(v[i], scale);
    for (int i = 0; i < 2; i++, to += 2 * PAIRS * 4) {
        float32x4_t a = i ? vzip2q_f32(x[0], x[1]) : vzip1q_f32(x[0], x[1]),
                    b = i ? vzip2q_f32(x[2], x[3]) : vzip1q_f32(x[2], x[3]);
        store_two(to, twice(a, 0), twice(b, 0));
        store_two(to + PAIRS * 4, twice(a, 1), twice(b, 1));
    }
}

/* t * step is fma(counted(t), step, lift) with a lift of -1.5 * 2^23 * step, to the same bits where
 * the lift is exact: where a step has at most 22 bits. Those of GGUF files have up to 19; only a
 * scale makes more, or a float that is stored. Steps that are no numbers, or huge, go the long way
 * too. */
INLINE bool fit_for_lift(const float *step, int n_group)
{
    bool fits = true;
    for (int g = 0; g < n_group; g++)
        fits &= fabsf(step[g]) < 0x1p100f;
    return fits;
}

/* ---- scales of super-blocks ---- */

/* Columns i and i + 1 of a super-block's floats: both, twice. */
INLINE void set_both(float *to, const float v[FOUR], const int i, float scale)
{
    const float both[4] = {v[i] * scale, v[i + 1] * scale, v[i] * scale, v[i + 1] * scale};
    vst1q_f32(to, vld1q_f32(both));
}

/* What eight groups from g on of columns a and b are scaled with, as words: both columns', twice.
 */
INLINE void set_times(int32_t *to, int8x8_t a, int8x8_t b)
{
    const int8x8x2_t both = vzip_s8(a, b);
    for (int i = 0; i < 4; i++) {
        const int16x8_t four = vmovl_s8(both.val[i / 2]);
        const int64x2_t two =
            vreinterpretq_s64_s32(vmovl_s16(i % 2 ? vget_high_s16(four) : vget_low_s16(four)));
        vst1q_s32(to + 2 * i * PAIRS * 4, vreinterpretq_s32_s64(vzip1q_s64(two, two)));
        vst1q_s32(to + (2 * i + 1) * PAIRS * 4, vreinterpretq_s32_s64(vzip2q_s64(two, two)));
    }
}

INLINE void set_scales(dg_qpanel *panel, const four_columns *f, int c, int type, dg_qkind kind,
                       float scale)
{
    dg_scales s[FOUR];
    float step[FOUR], least[FOUR];
    for (int i = 0; i < FOUR; i++) {
        s[i] = (dg_scales){0};
        scales_of_type(&s[i], type, f->at[i]);
        step[i] = s[i].step;
        least[i] = s[i].least;
    }
    uint8_t *less = panel->less + c / HALF * (HALF * DG_QGROUPS) + c % HALF / 2 * 16;
    for (int i = 0; i < FOUR; i += 2) {
        set_both(panel->step + step_of(c) + 2 * i, step, i, scale);
        set_both(panel->least + step_of(c) + 2 * i, least, i, scale);
        for (int g = 0; g < DG_QSLICE / group_of(kind); g += 8) {
            set_times(panel->times + step_of(c) + g * PAIRS * 4 + 2 * i, vld1_s8(s[i].times + g),
                      vld1_s8(s[i + 1].times + g));
            vst1q_u8(less + g / 8 * PAIRS * 16 + 8 * i,
                     vcombine_u8(vld1_u8(s[i].less + g), vld1_u8(s[i + 1].less + g)));
        }
    }
}

/* ---- Q4_K ---- */

static void pack_straight_q4_k(dg_qpanel *panel, const dg_qpack_args *a)
{
    panel->kind = DG_Q_SUPER_LEAST;
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        for (int i = 0; i < 8; i++) { /* 32 bytes are 32 low halves, then 32 high ones */
            const int k = i / 2 * 64 + i % 2 * 16;
            int8x16_t low[FOUR], high[FOUR];
            for (int j = 0; j < FOUR; j++) {
                uint8x16_t x = vld1q_u8(f.at[j] + 16 + 16 * i);
                low[j] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(15)));
                high[j] = vreinterpretq_s8_u8(vshrq_n_u8(x, 4));
            }
            set_numbers(f.n, k, low);
            set_numbers(f.n, k + 32, high);
        }
        set_scales(panel, &f, c, DG_Q4_K, DG_Q_SUPER_LEAST, a->scale);
    }
}

/* ---- blocks of 32 values without a least value: their step, then what `numbers` makes them of
 * ----
 */

INLINE void pack_straight(dg_qpanel *panel, const dg_qpack_args *a, const int bytes,
                          numbers_of_fn *numbers)
{
    float32x4_t most = vdupq_n_f32(0);
    panel->kind = DG_Q_PLAIN;
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        for (int b = 0; b < a->n_block; b++) {
            int8x16_t first[FOUR], second[FOUR];
            for (int i = 0; i < FOUR; i++) {
                int8x16x2_t x = numbers(f.at[i] + b * bytes);
                first[i] = x.val[0];
                second[i] = x.val[1];
            }
            set_numbers(f.n, b * DG_QBLOCK, first);
            set_numbers(f.n, b * DG_QBLOCK + 16, second);
        }
        for (int b = 0; b < a->n_block; b += 4) {
            float32x4_t step[FOUR];
            for (int i = 0; i < FOUR; i++) {
                step[i] = four_steps(f.at[i], b, a->n_block, bytes);
                most = vmaxq_f32(most, vabsq_f32(step[i]));
            }
            set_steps(panel->step + step_of(c) + b * PAIRS * 4, step, a->scale);
            set_steps(panel->lift + step_of(c) + b * PAIRS * 4, step, -COUNT_ZERO);
        }
    }
    panel->lifted = a->scale == 1 && isfinite(vmaxvq_f32(most)); /* NaN is the largest */
}

/* ---- Q6_K ---- */

/* 128 values have 64 bytes of low halves and 32 of upper bits. */
INLINE void numbers_of_q6_k(const four_columns *f)
{
    const uint8x16_t low = vdupq_n_u8(15);
    for (int i = 0; i < 4; i++) {
        const int at = i / 2 * 64 + i % 2 * 16, top = 128 + i * 16, k = i / 2 * 128 + i % 2 * 16;
        int8x16_t v[4][FOUR];
        for (int j = 0; j < FOUR; j++) {
            uint8x16_t a = vld1q_u8(f->at[j] + at), b = vld1q_u8(f->at[j] + at + 32),
                       h = vld1q_u8(f->at[j] + top);
            v[0][j] = six_bits(vandq_u8(a, low), h, 0);
            v[1][j] = six_bits(vandq_u8(b, low), h, 2);
            v[2][j] = six_bits(vshrq_n_u8(a, 4), h, 4);
            v[3][j] = six_bits(vshrq_n_u8(b, 4), h, 6);
        }
        for (int m = 0; m < 4; m++)
            set_numbers(f->n, k + 32 * m, v[m]);
    }
}

static void pack_straight_q6_k(dg_qpanel *panel, const dg_qpack_args *a)
{
    panel->kind = DG_Q_SUPER_HALVES;
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        numbers_of_q6_k(&f);
        set_scales(panel, &f, c, DG_Q6_K, DG_Q_SUPER_HALVES, a->scale);
    }
}

INLINE void set_groups(float *to, const float *const v[FOUR], int n_group, float scale)
{
    for (int g = 0; g < n_group; g += 4) {
        const float32x4_t x[FOUR] = {vld1q_f32(v[0] + g), vld1q_f32(v[1] + g), vld1q_f32(v[2] + g),
                                     vld1q_f32(v[3] + g)};
        set_steps(to + g * PAIRS * 4, x, scale);
    }
}

/* ---- NVFP4 ---- */

static void pack_straight_nvfp4(dg_qpanel *panel, const dg_qpack_args *a)
{
    const int8x16_t table = vld1q_s8(twice_e2m1);
    panel->kind = DG_Q_HALVES;
    panel->lifted = a->scale == 1;
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        float steps[FOUR][DG_QGROUPS];
        for (int b = 0; b < a->n_block / 2; b++)
            for (int g = 0; g < 4; g++) {
                int8x16_t v[FOUR];
                for (int i = 0; i < FOUR; i++) {
                    const uint8_t *block = f.at[i] + b * 36;
                    const uint8x8_t q = vld1_u8(block + 4 + 8 * g);
                    const uint8x16_t n = vcombine_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4));
                    v[i] = vqtbl1q_s8(table, n);
                    if (g == 0)
                        vst1q_f32(steps[i] + 4 * b, steps_of_nvfp4(block));
                }
                set_numbers(f.n, 64 * b + 16 * g, v);
            }
        const float *step[FOUR] = {steps[0], steps[1], steps[2], steps[3]};
        set_groups(panel->step + step_of(c), step, 2 * a->n_block, a->scale);
        set_groups(panel->lift + step_of(c), step, 2 * a->n_block, -COUNT_ZERO);
    }
}

/* ---- E4M3 ---- */

INLINE int8x16_t straight_e4m3(uint8x16_t b, const e4m3_way *way)
{
    uint32_t bits;
    memcpy(&bits, way, sizeof bits);
    const float16x8_t ways = vreinterpretq_f16_u32(vdupq_n_u32(bits));
    const sixteen n = SIXTEEN_E4M3(vreinterpretq_s8_u8(b), ways, 0);
    return vuzp1q_s8(vreinterpretq_s8_u16(n.n[0]), vreinterpretq_s8_u16(n.n[1]));
}

static void pack_straight_e4m3(dg_qpanel *panel, const dg_qpack_args *a)
{
    panel->kind = DG_Q_PLAIN;
    panel->lifted = false; /* steps are any floats */
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        float steps[FOUR][DG_QBLOCKS] = {{0}};
        for (int b = 0; b < a->n_block; b++) {
            int8x16_t first[FOUR], second[FOUR];
            for (int i = 0; i < FOUR; i++) {
                const uint8_t *block = f.at[i] + b / 2 * 68, *at = block + 4 + b % 2 * DG_QBLOCK;
                const uint8x16_t x = vld1q_u8(at), y = vld1q_u8(at + 16), sign = vdupq_n_u8(0x80);
                const dg_e4m3_scale s =
                    e4m3_scale(vmaxvq_u8(vmaxq_u8(vbicq_u8(x, sign), vbicq_u8(y, sign))));
                float d;
                memcpy(&d, block, sizeof d);
                const e4m3_way way = {(float16_t)s.inverse,
                                      (uint16_t)(E4M3_ZERO + (s.top << E4M3_TOP_AT))};
                first[i] = straight_e4m3(x, &way);
                second[i] = straight_e4m3(y, &way);
                steps[i][b] = d * s.step;
            }
            set_numbers(f.n, b * DG_QBLOCK, first);
            set_numbers(f.n, b * DG_QBLOCK + 16, second);
        }
        const float *step[FOUR] = {steps[0], steps[1], steps[2], steps[3]};
        set_groups(panel->step + step_of(c), step, a->n_block, a->scale);
    }
}

/* ---- all the others ---- */

INLINE void pack_numbers(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                         dg_numbers_fn *row)
{
    const int n_value = a->n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    panel->kind = kind;
    panel->lifted = a->scale == 1 && !dg_qtype_long_steps(type);
    for (int c = 0; c < a->n_col; c += FOUR) {
        const four_columns f = columns_from(panel->n, a->src, a->stride, a->n_col, c);
        dg_numbers w[FOUR];
        for (int i = 0; i < FOUR; i++) {
            row(&w[i], f.at[i], n_value);
            panel->lifted = panel->lifted && fit_for_lift(w[i].step, n_group);
        }
        for (int k = 0; k < n_value; k += 16) {
            const int8x16_t v[FOUR] = {vld1q_s8(w[0].n + k), vld1q_s8(w[1].n + k),
                                       vld1q_s8(w[2].n + k), vld1q_s8(w[3].n + k)};
            set_numbers(f.n, k, v);
        }
        if (dg_qkind_super(kind)) {
            set_scales(panel, &f, c, type, kind, a->scale);
            continue;
        }
        const float *step[FOUR] = {w[0].step, w[1].step, w[2].step, w[3].step},
                    *least[FOUR] = {w[0].least, w[1].least, w[2].least, w[3].least};
        set_groups(panel->step + step_of(c), step, n_group, a->scale);
        set_groups(panel->lift + step_of(c), step, n_group, -COUNT_ZERO);
        if (kind == DG_Q_LEAST)
            set_groups(panel->least + step_of(c), least, n_group, a->scale);
    }
}

/* Columns are far apart, and what is read of one at a time is short: without asking for what comes
 * behind it, every panel waits for memory. */
INLINE void fetch_next(const dg_qpack_args *a, int bytes)
{
    const uint8_t *p = a->next;
    for (int c = 0; p && c < a->n_col; c++, p += a->stride)
        for (int at = 0; at < bytes + 63; at += 64)
            __builtin_prefetch(p + at);
}

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                       dg_numbers_fn *row)
{
    fetch_next(a, panel->stored);
    if (row == row_q4_k)
        pack_straight_q4_k(panel, a);
    else if (row == row_q8_0)
        pack_straight(panel, a, 34, straight_q8_0);
    else if (row == row_q4_0)
        pack_straight(panel, a, 18, straight_q4_0);
    else if (row == row_q5_0)
        pack_straight(panel, a, 22, straight_q5_0);
    else if (row == row_q6_k)
        pack_straight_q6_k(panel, a);
    else if (row == row_nvfp4)
        pack_straight_nvfp4(panel, a);
    else if (row == row_e4m3)
        pack_straight_e4m3(panel, a);
    else
        pack_numbers(panel, a, type, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

#endif
