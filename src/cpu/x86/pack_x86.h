/* Panels of quantised weights for x86: four values along k of sixteen columns side by side, which
 * is what instructions that add up four products of bytes take.
 *     n      [four of 256][column] four bytes
 *     step   [group][column]; least alike */
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

static inline __attribute__((always_inline)) void pack_columns(dg_qpanel *panel,
                                                               const dg_qpack_args *a,
                                                               dg_qkind kind, dg_numbers_fn *row,
                                                               int up)
{
    const int n_value = a->n_block * DG_QBLOCK, n_group = n_value / group_of(kind);
    panel->kind = kind;
    for (int first = 0; first < a->n_col; first += 8) {
        dg_numbers w[8];
        for (int i = 0; i < 8; i++) { /* the last column stands in for those beyond it */
            int c = first + i < a->n_col ? first + i : a->n_col - 1;
            row(&w[i], (const uint8_t *)a->src + (size_t)c * a->stride, n_value);
        }
        set_numbers(panel, w, first, n_value, up);
        for (int g = 0; g < n_group; g++)
            for (int i = 0; i < 8; i++)
                panel->step[g * DG_QCOLS + first + i] = w[i].step[g] * a->scale;
        if (kind == DG_Q_LEAST || kind == DG_Q_HALVES_LEAST)
            for (int g = 0; g < n_group; g++)
                for (int i = 0; i < 8; i++)
                    panel->least[g * DG_QCOLS + first + i] = w[i].least[g] * a->scale;
    }
}

#endif
