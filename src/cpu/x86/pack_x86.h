/* Panels of quantised weights for x86: four values along k of sixteen columns side by side, which
 * is what instructions that add up four products of bytes take.
 *     n      [four of 256][column] four bytes
 *     step   [group][column]; least alike
 *     times  [group][column] twice in 16 bits; less [four groups][column] four bytes */
#ifndef DG_CPU_X86_PACK_X86_H
#define DG_CPU_X86_PACK_X86_H

#include <immintrin.h>
#include "cpu/numbers_body.h"

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

static inline __attribute__((always_inline)) void pack_columns(dg_qpanel *panel,
                                                               const dg_qpack_args *a, int type,
                                                               dg_qkind kind, dg_numbers_fn *row,
                                                               int up)
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
