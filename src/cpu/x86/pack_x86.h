/* Panels of quantised weights for x86: four values along k of sixteen columns side by side, which
 * is what instructions that add up four products of bytes take.
 *     n      [four of 256][column] four bytes
 *     step   [group][column]; least alike
 *     times  [group][column] twice in 16 bits; less [four groups][column] four bytes */
#ifndef DG_CPU_X86_PACK_X86_H
#define DG_CPU_X86_PACK_X86_H

#include <immintrin.h>
#include <string.h>
#include "cpu/numbers_body.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- E4M3 ---- */

INLINE uint8_t largest_byte(__m256i a)
{
    __m128i m = _mm_max_epu8(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu8(m, _mm_srli_si128(m, 8));
    m = _mm_max_epu8(m, _mm_srli_si128(m, 4));
    m = _mm_max_epu8(m, _mm_srli_si128(m, 2));
    m = _mm_max_epu8(m, _mm_srli_si128(m, 1));
    return (uint8_t)_mm_cvtsi128_si32(m);
}

/* numbers_body.h's eight_e4m3, of 32. What an exponent is below the largest is looked up as the two
 * bytes of 2^(9 - that). */
INLINE __m256i numbers_of_e4m3(__m256i b, const dg_e4m3_scale *s)
{
    static const uint8_t lower[32] = {[6] = 1, 2, 4, 8, 16, 32, 64, 128}, upper[32] = {[14] = 1, 2};
    const __m256i zero = _mm256_setzero_si256(), four = _mm256_set1_epi8(15),
                  exponent = _mm256_and_si256(_mm256_srli_epi16(b, 3), four),
                  whole =
                      _mm256_andnot_si256(_mm256_cmpeq_epi8(exponent, zero), _mm256_set1_epi8(8)),
                  part = _mm256_or_si256(_mm256_and_si256(b, _mm256_set1_epi8(7)), whole),
                  at = _mm256_max_epu8(exponent, _mm256_set1_epi8(1)),
                  inverse = _mm256_set1_epi16((int16_t)s->inverse);
    const int from = 15 - s->top;
    const __m256i low = _mm256_shuffle_epi8(
                      _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(lower + from))),
                      at),
                  high = _mm256_shuffle_epi8(
                      _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(upper + from))),
                      at);
    const __m256i first = _mm256_mulhi_epu16(
                      _mm256_mullo_epi16(_mm256_unpacklo_epi8(part, zero), inverse),
                      _mm256_unpacklo_epi8(low, high)),
                  second = _mm256_mulhi_epu16(
                      _mm256_mullo_epi16(_mm256_unpackhi_epi8(part, zero), inverse),
                      _mm256_unpackhi_epi8(low, high));
    return _mm256_sign_epi8(
        _mm256_packus_epi16(_mm256_avg_epu16(first, zero), _mm256_avg_epu16(second, zero)), b);
}

/* row_e4m3 */
static inline void row_e4m3_avx2(dg_numbers *out, const uint8_t *b, int n_value)
{
    for (int k = 0; k < n_value; k += DG_QBLOCK) {
        const uint8_t *block = b + k / 64 * 68;
        float d;
        memcpy(&d, block, sizeof d);
        const __m256i v = _mm256_loadu_si256((const __m256i *)(block + sizeof d + k % 64));
        const dg_e4m3_scale s =
            e4m3_scale(largest_byte(_mm256_and_si256(v, _mm256_set1_epi8(0x7F))));
        _mm256_storeu_si256((__m256i *)(out->n + k), numbers_of_e4m3(v, &s));
        out->step[k / DG_QBLOCK] = d * s.step;
    }
}

/* ---- columns ---- */

/* Turns eight rows of eight words around: word j of row i becomes word i of row j. */
static inline void turn(__m256i r[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + 2 * k] = _mm256_unpacklo_epi64(a[i + k], a[i + 2 + k]);
            b[i + 2 * k + 1] = _mm256_unpackhi_epi64(a[i + k], a[i + 2 + k]);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Eight columns from `first` on; `up` is added to every number. */
static inline void set_numbers(dg_qpanel *panel, const dg_numbers w[8], int first, int n_value,
                               int up)
{
    const __m256i bits = _mm256_set1_epi8((char)up);
    for (int k = 0; k < n_value; k += 32) {
        __m256i r[8];
        for (int c = 0; c < 8; c++)
            r[c] = _mm256_add_epi8(_mm256_loadu_si256((const __m256i *)(w[c].n + k)), bits);
        turn(r);
        for (int i = 0; i < 8; i++)
            _mm256_store_si256((__m256i *)(panel->n + (k + 4 * i) * DG_QCOLS + 4 * first), r[i]);
    }
}

/* One column of super-blocks. */
static inline void set_scales(dg_qpanel *panel, const dg_scales *s, int c, float scale)
{
    panel->step[c] = s->step * scale;
    panel->least[c] = s->least * scale;
    for (int g = 0; g < DG_QGROUPS; g++) {
        const uint32_t half = (uint32_t)s->times[g] & 0xFFFF;
        panel->times[g * DG_QCOLS + c] = (int32_t)(half << 16 | half);
        panel->less[g / 4 * 4 * DG_QCOLS + 4 * c + g % 4] = s->less[g];
    }
}

INLINE void pack_columns(dg_qpanel *panel, const dg_qpack_args *a, int type, dg_qkind kind,
                         dg_numbers_fn *row, int up)
{
    const int n_value = a->n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    panel->kind = kind;
    for (int first = 0; first < a->n_col; first += 8) {
        dg_numbers w[8];
        for (int i = 0; i < 8; i++) { /* the last column stands in for those beyond it */
            int c = first + i < a->n_col ? first + i : a->n_col - 1;
            const uint8_t *from = (const uint8_t *)a->src + (size_t)c * a->stride;
            row(&w[i], from, n_value);
            if (dg_qkind_super(kind)) {
                dg_scales s = {0};
                scales_of_type(&s, type, from);
                set_scales(panel, &s, first + i, a->scale);
            }
        }
        set_numbers(panel, w, first, n_value, up);
        if (dg_qkind_super(kind))
            continue;
        for (int g = 0; g < n_group; g++)
            for (int i = 0; i < 8; i++)
                panel->step[g * DG_QCOLS + first + i] = w[i].step[g] * a->scale;
        if (kind == DG_Q_LEAST)
            for (int g = 0; g < n_group; g++)
                for (int i = 0; i < 8; i++)
                    panel->least[g * DG_QCOLS + first + i] = w[i].least[g] * a->scale;
    }
}

#endif
