/* The block types of GGUF files as whole numbers with their steps and least values, written once
 * for all instruction sets: whoever includes this defines float_of_f16 and i8_look_up first.
 * src/tensor/blocks.c says what the blocks mean, and tests hold these against it: n * step - least
 * are the same bits, except of E4M3 and AFFINE8, which are rounded. The loops are plain, and
 * compilers turn them into vectors. */
#ifndef DG_CPU_NUMBERS_BODY_H
#define DG_CPU_NUMBERS_BODY_H

#include <string.h>
#include "cpu/quantised.h"

/* Part of one row of a weight. */
typedef struct dg_numbers {
    int8_t n[DG_QSLICE];
    float step[DG_QGROUPS], least[DG_QGROUPS];
} dg_numbers;

static inline float stored_half(const uint8_t *p)
{
    return float_of_f16((uint16_t)(p[0] | p[1] << 8));
}

/* The low halves of `count` bytes, 32 at most, then the high ones, less by so much. They go
 * through places of their own: compilers would take care that bytes may be the same as numbers. */
static inline __attribute__((always_inline)) void halves_less(int8_t *n, const uint8_t *q,
                                                              const int count, const int by)
{
    uint8_t from[32];
    int8_t low[32], high[32];
    memcpy(from, q, (size_t)count);
    for (int i = 0; i < count; i++) {
        low[i] = (int8_t)((from[i] & 15) - by);
        high[i] = (int8_t)((from[i] >> 4) - by);
    }
    memcpy(n, low, (size_t)count);
    memcpy(n + count, high, (size_t)count);
}

static inline __attribute__((always_inline)) void low_and_high(int8_t *n, const uint8_t *q,
                                                               const int count)
{
    halves_less(n, q, count, 0);
}

/* ---- blocks of 32 ---- */

static inline void numbers_q8_0(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    memcpy(n, b + 2, 32);
    *step = stored_half(b);
}

static inline void numbers_q4_0(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    halves_less(n, b + 2, 16, 8);
    *step = stored_half(b);
}

static inline void numbers_q4_1(int8_t *n, float *step, float *least, const uint8_t *b)
{
    low_and_high(n, b + 4, 16);
    *step = stored_half(b);
    *least = -stored_half(b + 2);
}

/* Adds bit i of h to number i as its fifth bit, eight at a time: each byte of a word takes its bit,
 * which a sum carries to the top of the byte. */
static inline void fifth_bits_of(int8_t n[32], const uint8_t *h)
{
    for (int k = 0; k < 4; k++) {
        uint64_t eight, bits = h[k] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        memcpy(&eight, n + 8 * k, sizeof eight);
        eight |= (bits + UINT64_C(0x7F7F7F7F7F7F7F7F)) >> 3 & UINT64_C(0x1010101010101010);
        memcpy(n + 8 * k, &eight, sizeof eight);
    }
}

static inline void numbers_q5_0(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    low_and_high(n, b + 6, 16);
    fifth_bits_of(n, b + 2);
    for (int i = 0; i < 32; i++)
        n[i] = (int8_t)(n[i] - 16);
    *step = stored_half(b);
}

static inline void numbers_q5_1(int8_t *n, float *step, float *least, const uint8_t *b)
{
    low_and_high(n, b + 8, 16);
    fifth_bits_of(n, b + 4);
    *step = stored_half(b);
    *least = -stored_half(b + 2);
}

/* ---- types whose numbers are places in a table ---- */

static const int8_t nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t twice_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void from_table(int8_t *n, const uint8_t *q, int count, const int8_t table[16])
{
    low_and_high(n, q, count);
    for (int i = 0; i < 2 * count; i += 16)
        i8_look_up(n + i, n + i, table);
}

static inline void numbers_iq4_nl(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    from_table(n, b + 2, 16, nl_levels);
    *step = stored_half(b);
}

static inline float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The step is 2^(b - 128), below 2^-126 a subnormal number. */
static inline void numbers_mxfp4(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    from_table(n, b + 1, 16, twice_e2m1);
    *step = float_of_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
}

/* Half of an unsigned float of eight bits: four of exponent with bias 7, three of mantissa. */
static inline float half_of_e4m3(uint8_t s)
{
    const uint32_t exponent = s >> 3 & 15u, some = exponent != 0,
                   part = ((s & 7u) | some << 3) * (s != 127);
    return (float)(int32_t)part * float_of_bits((exponent + !some + 116) << 23);
}

/* Sixteen bytes are two groups: eight low halves of one, eight of the other, and the high ones. */
static inline void numbers_nvfp4(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    for (int g = 0; g < 4; g++)
        step[g] = half_of_e4m3(b[g]);
    for (int k = 0; k < 2; k++, n += 32) {
        int8_t two[32];
        from_table(two, b + 4 + 16 * k, 16, twice_e2m1);
        memcpy(n, two, 8);
        memcpy(n + 8, two + 16, 8);
        memcpy(n + 16, two + 8, 8);
        memcpy(n + 24, two + 24, 8);
    }
}

static inline void numbers_iq4_xs(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    const int high = b[2] | b[3] << 8;
    const float d = stored_half(b);
    for (int g = 0; g < 8; g++) {
        int scale = (b[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
        from_table(n + 32 * g, b + 8 + 16 * g, 16, nl_levels);
        step[g] = d * (float)(scale - 32);
    }
}

/* ---- super-blocks of 256 ---- */

/* How the steps and least values of a super-block's groups follow from its own. */
typedef struct dg_scales {
    float step, least;
    int8_t times[DG_QGROUPS];
    uint8_t less[DG_QGROUPS];
} dg_scales;

/* Eight groups of Q4_K and Q5_K: six bits each, in twelve bytes. */
static inline void six_bit_scales(dg_scales *out, const uint8_t *b)
{
    const uint8_t *s = b + 4;
    out->step = stored_half(b);
    out->least = stored_half(b + 2);
    for (int g = 0; g < 4; g++) {
        out->times[g] = (int8_t)(s[g] & 63);
        out->less[g] = (uint8_t)(s[g + 4] & 63);
        out->times[g + 4] = (int8_t)((s[g + 8] & 15) | s[g] >> 6 << 4);
        out->less[g + 4] = (uint8_t)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
    }
}

static inline void scales_q2_k(dg_scales *out, const uint8_t *b)
{
    out->step = stored_half(b + 80);
    out->least = stored_half(b + 82);
    for (int g = 0; g < 16; g++) {
        out->times[g] = (int8_t)(b[g] & 15);
        out->less[g] = (uint8_t)(b[g] >> 4);
    }
}

static inline void scales_q3_k(dg_scales *out, const uint8_t *b)
{
    const uint8_t *s = b + 96;
    out->step = stored_half(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = s[8 + g % 4] >> g / 4 * 2 & 3;
        out->times[g] = (int8_t)((low | high << 4) - 32);
    }
}

static inline void scales_q6_k(dg_scales *out, const uint8_t *b)
{
    out->step = stored_half(b + 208);
    memcpy(out->times, b + 192, sizeof out->times);
}

/* Those of a type that has them. */
static inline void scales_of_type(dg_scales *out, int type, const uint8_t *b)
{
    if (type == DG_Q2_K)
        scales_q2_k(out, b);
    else if (type == DG_Q3_K)
        scales_q3_k(out, b);
    else if (type == DG_Q6_K)
        scales_q6_k(out, b);
    else
        six_bit_scales(out, b);
}

static inline void steps_of(float *step, float *least, const dg_scales *s, int n_group)
{
    for (int g = 0; g < n_group; g++) {
        step[g] = s->step * (float)s->times[g];
        least[g] = s->least * (float)s->less[g];
    }
}

/* The 16 two-bit numbers of group g: 32 bytes hold 128 of them, one bit pair after the other. */
static inline void bit_pairs(int8_t n[16], const uint8_t *q, int g)
{
    const uint8_t *from = q + 32 * (g / 8) + 16 * (g % 2);
    const int shift = g % 8 / 2 * 2;
    for (int i = 0; i < 16; i++)
        n[i] = (int8_t)(from[i] >> shift & 3);
}

static inline void numbers_q2_k(int8_t *n, float *step, float *least, const uint8_t *b)
{
    dg_scales s;
    scales_q2_k(&s, b);
    steps_of(step, least, &s, 16);
    for (int g = 0; g < 16; g++)
        bit_pairs(n + 16 * g, b + 16, g);
}

static inline void numbers_q3_k(int8_t *n, float *step, float *least, const uint8_t *b)
{
    dg_scales s = {0};
    scales_q3_k(&s, b);
    steps_of(step, least, &s, 16);
    for (int g = 0; g < 16; g++) {
        const uint8_t *mask = b + 16 * (g % 2);
        int8_t *to = n + 16 * g;
        bit_pairs(to, b + 32, g);
        for (int i = 0; i < 16; i++)
            to[i] = (int8_t)(to[i] - 4 + (mask[i] >> g / 2 & 1) * 4);
    }
}

static inline void numbers_q4_k(int8_t *n, float *step, float *least, const uint8_t *b)
{
    dg_scales s;
    six_bit_scales(&s, b);
    steps_of(step, least, &s, 8);
    for (int pair = 0; pair < 4; pair++)
        low_and_high(n + 64 * pair, b + 16 + 32 * pair, 32);
}

static inline void numbers_q5_k(int8_t *n, float *step, float *least, const uint8_t *b)
{
    const uint8_t *high = b + 16;
    dg_scales s;
    six_bit_scales(&s, b);
    steps_of(step, least, &s, 8);
    for (int pair = 0; pair < 4; pair++) {
        int8_t *to = n + 64 * pair;
        low_and_high(to, b + 48 + 32 * pair, 32);
        for (int i = 0; i < 32; i++) {
            to[i] = (int8_t)(to[i] | (high[i] >> 2 * pair & 1) << 4);
            to[32 + i] = (int8_t)(to[32 + i] | (high[i] >> (2 * pair + 1) & 1) << 4);
        }
    }
}

static inline void numbers_q6_k(int8_t *n, float *step, float *least, const uint8_t *b)
{
    dg_scales s = {0};
    scales_q6_k(&s, b);
    steps_of(step, least, &s, 16);
    for (int quarter = 0; quarter < 8; quarter++) {
        const uint8_t *low = b + 64 * (quarter / 4) + 32 * (quarter % 2);
        const uint8_t *high = b + 128 + 32 * (quarter / 4);
        const int by = quarter % 4 / 2 * 4, pair = quarter % 4 * 2;
        for (int i = 0; i < 32; i++)
            n[32 * quarter + i] = (int8_t)(((low[i] >> by & 15) | (high[i] >> pair & 3) << 4) - 32);
    }
}

/* ---- types of one to three bits ---- */

#include "cpu/low_numbers_body.h"

/* ---- E4M3, whose values are no multiples of a step ---- */

/* An E4M3 number without its sign: `part` (up to 15) times 2^(exponent - 10); what is none counts
 * as 480. */
static inline int e4m3_exponent(uint8_t b)
{
    const int exponent = b >> 3 & 15;
    return exponent | (exponent == 0);
}

static inline int e4m3_part(uint8_t b)
{
    return (b & 7) | ((b & 0x78) != 0) << 3;
}

/* Eight numbers in whole steps: part * inverse / 256, less by powers of two where an exponent is
 * below the largest, to the nearest. All of it fits 16 bits: at its most, part * inverse is 15 / 8
 * * 127 * 256. */
static inline void eight_e4m3(int8_t n[8], const uint8_t b[8], const uint8_t exponent[8],
                              const int8_t factor[8], uint16_t top, uint16_t inverse)
{
    for (int i = 0; i < 8; i++) {
        const uint16_t part = (uint16_t)((uint16_t)e4m3_part(b[i]) * inverse),
                       less = (uint16_t)((uint8_t)factor[i] << 1 | (exponent[i] == top) << 9),
                       twice = (uint16_t)((uint32_t)part * less >> 16),
                       size = (uint16_t)((twice + 1) >> 1), minus = (uint16_t)(0 - (b[i] >> 7));
        n[i] = (int8_t)(uint16_t)((size ^ minus) - minus);
    }
}

/* How 32 of them become whole steps: the step is what makes their largest 127, and a number is off
 * by at most half of it. */
typedef struct dg_e4m3_scale {
    uint16_t top, inverse;
    const uint8_t *power; /* of each exponent 2^(8 - how far it is below the largest); of the
                             largest itself 0, as 256 is no byte */
    float step;           /* of numbers that nothing multiplies */
} dg_e4m3_scale;

/* 127 * 256 over the part of the largest, to the eleven bits that a half has. */
#define DG_E4M3_INVERSES(X)                                                                        \
    X(0), X(32512), X(16256), X(10840), X(8128), X(6504), X(5420), X(4644), X(4064), X(3612),      \
        X(3252), X(2956), X(2710), X(2500), X(2322), X(2168)
#define DG_WHOLE(n) (n)
static const uint16_t e4m3_inverses[16] = {DG_E4M3_INVERSES(DG_WHOLE)};

static inline dg_e4m3_scale e4m3_scale(uint8_t most)
{
    static const uint8_t powers[32] = {[7] = 1, 2, 4, 8, 16, 32, 64, 128};
    const int top = e4m3_exponent(most), part = e4m3_part(most);
    return (dg_e4m3_scale){
        .top = (uint16_t)top,
        .inverse = e4m3_inverses[part],
        .power = powers + 15 - top,
        .step = float_of_bits((uint32_t)(top + 117) << 23) * (float)part * (1.0f / 127),
    };
}

static inline void numbers_e4m3(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    float d;
    memcpy(&d, b, sizeof d);
    for (int g = 0; g < 2; g++) {
        uint8_t byte[32], exponent[32], most = 0;
        int8_t power[16], factor[32], number[32];
        memcpy(byte, b + sizeof d + 32 * g, sizeof byte);
        for (int i = 0; i < 32; i++) {
            const uint8_t size = byte[i] & 0x7F;
            most = size > most ? size : most;
            exponent[i] = (uint8_t)e4m3_exponent(byte[i]);
        }
        const dg_e4m3_scale s = e4m3_scale(most);
        memcpy(power, s.power, sizeof power);
        for (int i = 0; i < 32; i += 16)
            i8_look_up(factor + i, (const int8_t *)exponent + i, power);
        for (int i = 0; i < 32; i += 8)
            eight_e4m3(number + i, byte + i, exponent + i, factor + i, s.top, s.inverse);
        memcpy(n + 32 * g, number, sizeof number);
        step[g] = d * s.step;
    }
}

/* ---- bytes and nibbles with floats beside them ---- */

static inline void numbers_bytes(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    memcpy(step, b, sizeof *step);
    step[1] = step[0];
    memcpy(n, b + sizeof *step, 64);
}

static inline void numbers_affine4(int8_t *n, float *step, float *least, const uint8_t *b)
{
    memcpy(step, b, sizeof *step);
    memcpy(least, b + sizeof *step, sizeof *least);
    low_and_high(n, b + 8, 16);
}

/* Bytes with a least value are more than a byte: they become the nearest of 127 steps, as E4M3
 * does. */
static inline void numbers_affine8(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    float d[2], v[32];
    uint32_t most = 0; /* bits of magnitudes are ordered like the numbers */
    memcpy(d, b, sizeof d);
    for (int i = 0; i < 32; i++) {
        const float product = (float)(b[8 + i] - 128) * d[0];
        v[i] = product - d[1];
    }
    for (int i = 0; i < 32; i++) {
        uint32_t size;
        memcpy(&size, &v[i], sizeof size);
        size &= 0x7FFFFFFF;
        most = size > most ? size : most;
    }
    const float largest = float_of_bits(most), inverse = largest > 0x1p-100f ? 127 / largest : 0;
    *step = largest / 127 + (d[0] - d[0]) + (d[1] - d[1]); /* NaN where one is not finite */
    int8_t number[32];
    for (int i = 0; i < 32; i++) {
        const float at = v[i] * inverse + 12582912.0f; /* to the nearest whole number: */
        uint32_t bits;                                 /* its last byte */
        memcpy(&bits, &at, sizeof bits);
        number[i] = (int8_t)(uint8_t)bits;
    }
    memcpy(n, number, sizeof number);
}

/* ---- what the backend makes itself ---- */

static inline void numbers_made(int8_t *n, float *step, float *least, const uint8_t *b)
{
    (void)least;
    memcpy(step, b, sizeof *step);
    memcpy(n, b + sizeof *step, DG_QBLOCK);
}

/* ---- all of them ---- */

/* Type, name, values and bytes of a block, kind, a power of two that makes every number positive
 * (0: they are), and the largest one then; 256: too large to be added up in 16 bits, multiplied as
 * bytes with a sign. */
#define DG_NUMBER_TYPES(X)                                                                         \
    X(Q8_0, q8_0, 32, 34, PLAIN, 128, 256)                                                         \
    X(Q4_0, q4_0, 32, 18, PLAIN, 8, 15)                                                            \
    X(Q4_1, q4_1, 32, 20, LEAST, 0, 15)                                                            \
    X(Q5_0, q5_0, 32, 22, PLAIN, 16, 31)                                                           \
    X(Q5_1, q5_1, 32, 24, LEAST, 0, 31)                                                            \
    X(Q2_K, q2_k, 256, 84, SUPER_HALVES_LEAST, 0, 3)                                               \
    X(Q3_K, q3_k, 256, 110, SUPER_HALVES, 4, 7)                                                    \
    X(Q4_K, q4_k, 256, 144, SUPER_LEAST, 0, 15)                                                    \
    X(Q5_K, q5_k, 256, 176, SUPER_LEAST, 0, 31)                                                    \
    X(Q6_K, q6_k, 256, 210, SUPER_HALVES, 32, 63)                                                  \
    X(IQ4_NL, iq4_nl, 32, 18, PLAIN, 128, 256)                                                     \
    X(IQ4_XS, iq4_xs, 256, 136, PLAIN, 128, 256)                                                   \
    X(MXFP4, mxfp4, 32, 17, PLAIN, 16, 28)                                                         \
    X(NVFP4, nvfp4, 64, 36, HALVES, 16, 28)                                                        \
    X(IQ1_S, iq1_s, 256, 50, PLAIN, 16, 25)                                                        \
    X(IQ1_M, iq1_m, 256, 56, HALVES, 16, 25)                                                       \
    X(IQ2_XXS, iq2_xxs, 256, 66, PLAIN, 64, 256)                                                   \
    X(IQ2_XS, iq2_xs, 256, 74, HALVES, 64, 256)                                                    \
    X(IQ2_S, iq2_s, 256, 82, HALVES, 64, 256)                                                      \
    X(IQ3_XXS, iq3_xxs, 256, 98, PLAIN, 64, 256)                                                   \
    X(IQ3_S, iq3_s, 256, 110, PLAIN, 16, 31)                                                       \
    X(TQ1_0, tq1_0, 256, 54, PLAIN, 1, 2)                                                          \
    X(TQ2_0, tq2_0, 256, 66, PLAIN, 2, 4)                                                          \
    X(E4M3, e4m3, 64, 68, PLAIN, 128, 256)                                                         \
    X(BYTES, bytes, 64, 68, PLAIN, 128, 256)                                                       \
    X(AFFINE4, affine4, 32, 24, LEAST, 0, 15)                                                      \
    X(AFFINE8, affine8, 32, 40, PLAIN, 128, 256)                                                   \
    X(QMADE, made, 32, 36, PLAIN, 128, 256)

static inline int group_of(dg_qkind kind)
{
    return kind == DG_Q_HALVES || kind >= DG_Q_SUPER_HALVES ? 16 : 32;
}

/* There are least values. */
static inline bool has_least(dg_qkind kind)
{
    return kind == DG_Q_LEAST || kind == DG_Q_SUPER_LEAST || kind == DG_Q_SUPER_HALVES_LEAST;
}

/* A pack function of each type over pack_panel(panel, args, type, kind, numbers function), which
 * the file that includes this defines, and the table's entries. The numbers function takes n_value
 * values from b on. */
typedef void dg_numbers_fn(dg_numbers *out, const uint8_t *b, int n_value);
#define DG_NUMBERS(type, name, values, bytes, kind, low, most)                                     \
    static inline void row_##name(dg_numbers *out, const uint8_t *b, int n_value)                  \
    {                                                                                              \
        for (int i = 0; i < n_value; i += (values), b += (bytes)) {                                \
            int g = i / group_of(DG_Q_##kind);                                                     \
            numbers_##name(out->n + i, out->step + g, out->least + g, b);                          \
        }                                                                                          \
    }
DG_NUMBER_TYPES(DG_NUMBERS)

#define DG_PACK(type, name, values, bytes, kind, low, most_)                                       \
    static void pack_##name(dg_qpanel *panel, const dg_qpack_args *a)                              \
    {                                                                                              \
        panel->up = (low);                                                                         \
        panel->stored = DG_QBLOCK * a->n_block / (values) * (bytes);                               \
        panel->most = (most_);                                                                     \
        pack_panel(panel, a, DG_##type, DG_Q_##kind, row_##name);                                  \
    }
#define DG_PACK_ENTRY(type, name, values, bytes, kind, low, most) [DG_##type] = pack_##name,

/* gemm(), over multiply(args, kind) with a constant kind. */
#define DG_GEMM_OF_KINDS(multiply)                                                                 \
    static void gemm(const dg_qgemm_args *a)                                                       \
    {                                                                                              \
        switch (a->panel->kind) {                                                                  \
        case DG_Q_PLAIN:                                                                           \
            multiply(a, DG_Q_PLAIN);                                                               \
            break;                                                                                 \
        case DG_Q_LEAST:                                                                           \
            multiply(a, DG_Q_LEAST);                                                               \
            break;                                                                                 \
        case DG_Q_HALVES:                                                                          \
            multiply(a, DG_Q_HALVES);                                                              \
            break;                                                                                 \
        case DG_Q_SUPER_LEAST:                                                                     \
            multiply(a, DG_Q_SUPER_LEAST);                                                         \
            break;                                                                                 \
        case DG_Q_SUPER_HALVES:                                                                    \
            multiply(a, DG_Q_SUPER_HALVES);                                                        \
            break;                                                                                 \
        case DG_Q_SUPER_HALVES_LEAST:                                                              \
            multiply(a, DG_Q_SUPER_HALVES_LEAST);                                                  \
            break;                                                                                 \
        }                                                                                          \
    }

#endif
