/* Words of an embedding table turned for a product that adds words up, written once for all
 * instruction sets: whoever includes this defines float_of_f16, i8_look_up and i8_turn16 first.
 * Everything but the steps is done in whole numbers, so the results are the same everywhere. */
#ifndef DG_CPU_WORDS_BODY_H
#define DG_CPU_WORDS_BODY_H

#include <math.h>
#include "base/common.h"
#include "cpu/kernels.h"
#include "cpu/numbers_body.h"

/* The types without least values; their numbers are at most `reach` in magnitude. */
#define DG_TURN_TYPES(X)                                                                           \
    X(Q8_0, q8_0, PLAIN, 128)                                                                      \
    X(Q4_0, q4_0, PLAIN, 8)                                                                        \
    X(Q5_0, q5_0, PLAIN, 16)                                                                       \
    X(Q3_K, q3_k, HALVES, 4)                                                                       \
    X(Q6_K, q6_k, HALVES, 32)                                                                      \
    X(IQ4_NL, iq4_nl, PLAIN, 128)                                                                  \
    X(IQ4_XS, iq4_xs, PLAIN, 128)                                                                  \
    X(MXFP4, mxfp4, PLAIN, 12)                                                                     \
    X(NVFP4, nvfp4, HALVES, 12)                                                                    \
    X(IQ1_S, iq1_s, PLAIN, 9)                                                                      \
    X(IQ1_M, iq1_m, HALVES, 9)                                                                     \
    X(IQ2_XXS, iq2_xxs, PLAIN, 43)                                                                 \
    X(IQ2_XS, iq2_xs, HALVES, 43)                                                                  \
    X(IQ2_S, iq2_s, HALVES, 43)                                                                    \
    X(IQ3_XXS, iq3_xxs, PLAIN, 62)                                                                 \
    X(IQ3_S, iq3_s, PLAIN, 15)                                                                     \
    X(TQ1_0, tq1_0, PLAIN, 1)                                                                      \
    X(TQ2_0, tq2_0, PLAIN, 2)                                                                      \
    X(E4M3, e4m3, PLAIN, 127)                                                                      \
    X(BYTES, bytes, PLAIN, 128)                                                                    \
    X(AFFINE8, affine8, PLAIN, 127)

/* The least step of twelve bits that is not below x: products with it lose nothing early. */
static inline float short_step(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xFFFu) & ~0xFFFu;
    return float_of_bits(bits);
}

/* One step for `group` of all words, and what each word's numbers are multiplied by, times 256. */
static inline float common_step(int16_t factor[DG_QBLOCK], const dg_numbers *w, int group,
                                int reach)
{
    float top = 0;
    bool finite = true;
    for (int v = 0; v < DG_QBLOCK; v++) {
        float size = fabsf(w[v].step[group]);
        top = size > top ? size : top;
        finite &= size < 0x1p100f;
    }
    bool some = finite && top >= 0x1p-100f;
    float step = short_step(top * (float)reach / 127), inverse = some ? 256 / step : 0;
    for (int v = 0; v < DG_QBLOCK; v++) {
        float f = some ? w[v].step[group] * inverse : 0;
        factor[v] = (int16_t)(f + (f < 0 ? -0.5f : 0.5f));
    }
    return some ? step : finite ? 0 : NAN;
}

/* Sixteen columns from column c on. */
static inline void turn_columns(dg_qmade *out, const dg_numbers *w, int c, float step,
                                const int16_t factor[DG_QBLOCK])
{
    int8_t n[DG_QBLOCK][16];
    for (int v = 0; v < DG_QBLOCK; v++)
        for (int i = 0; i < 16; i++) {
            int16_t product = (int16_t)(w[v].n[c + i] * factor[v]);
            n[v][i] = (int8_t)((int16_t)(product + 128) >> 8);
        }
    for (int i = 0; i < 16; i++)
        out[(c + i) * DG_QBLOCKS].step = step;
    for (int v = 0; v < DG_QBLOCK; v += 16)
        i8_turn16(out[c * DG_QBLOCKS].n + v, DG_QBLOCKS * sizeof *out, n[v]);
}

static inline __attribute__((always_inline)) void turn_words(dg_qmade *out, const dg_qturn_args *a,
                                                             dg_qkind kind, int reach,
                                                             dg_numbers_fn *row)
{
    dg_numbers w[DG_QBLOCK];
    const int group = group_of(kind);
    for (int b = 0; b * DG_QBLOCK < a->n_word; b++) {
        const int n_word = dg_min(DG_QBLOCK, a->n_word - b * DG_QBLOCK);
        const uint8_t *src = (const uint8_t *)a->src + (size_t)(b * DG_QBLOCK) * a->stride;
        for (int v = 0; v < n_word; v++)
            row(&w[v], src + (size_t)v * a->stride, a->n_col);
        if (n_word < DG_QBLOCK)
            memset(w + n_word, 0, (size_t)(DG_QBLOCK - n_word) * sizeof *w);
        for (int g = 0; g * group < a->n_col; g++) {
            int16_t factor[DG_QBLOCK];
            float step = common_step(factor, w, g, reach);
            for (int c = g * group; c < (g + 1) * group; c += 16)
                turn_columns(out + b, w, c, step, factor);
        }
    }
}

#define DG_TURN(type, name, kind, reach)                                                           \
    static void turn_##name(dg_qmade *out, const dg_qturn_args *a)                                 \
    {                                                                                              \
        turn_words(out, a, DG_Q_##kind, reach, row_##name);                                        \
    }
#define DG_TURN_ENTRY(type, name, kind, reach) [DG_##type] = turn_##name,

DG_TURN_TYPES(DG_TURN)

#endif
