/* What products of bytes have in common on x86: rows, and the columns that are packed one behind
 * the other. Whoever includes this has defined BYTE_UP, as pack_bytes.h says. */
#ifndef DG_CPU_X86_BYTE_COLUMNS_H
#define DG_CPU_X86_BYTE_COLUMNS_H

#include <string.h>
#include "base/common.h"
#include "cpu/byte_stream.h"
#include "cpu/x86/pack_bytes.h"

enum { MOST_BYTES = 320 }; /* that a slice of a column is stored in */

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    (void)which; /* the only one */
    const int n_in = n_block * DG_QBLOCK;
    int8_t *n = (int8_t *)out;
    float *step = dg_byte_steps(out, n_in);
    int32_t *start = dg_byte_starts(out, n_in);
    for (int k = 0; k < n_in; k += DG_QSLICE) {
        const int n_value = dg_min(DG_QSLICE, n_in - k);
        float rest[DG_QSLICE];
        const float *from = x + k;
        if (n_value < DG_QSLICE) {
            memset(rest, 0, sizeof rest);
            from = memcpy(rest, from, (size_t)n_value * sizeof *rest);
        }
        dg_qsuper one;
        QUANTISE_SUPER((dg_qpair *)&one, 0, from, DG_QBLOCKS);
        for (int i = 0; i < DG_QSLICE / 8; i++)
            memcpy(n + k + 8 * i, one.n[i][0], 8);
        step[k / DG_QSLICE] = one.step[0][0];
        int32_t least = 0;
        for (int g = 0; g < DG_QGROUPS; g++)
            least += 4 * one.bias[g / 2][0][g % 2];
        start[k / DG_QSLICE] = least;
    }
}

/* A slice of the columns of a panel. */
typedef struct place {
    int c, k;
} place;

INLINE place next_place(const dg_byte_args *a, place p)
{
    p.k += DG_QSLICE;
    return p.k < a->n_in ? p : (place){p.c + DG_BYTE_COLS, 0};
}

/* Columns that are not sixteen, side by side; the last one stands in for those beyond it. */
typedef struct few_columns {
    uint8_t at[DG_QCOLS][MOST_BYTES];
} few_columns;

/* Both halves of a panel; where there are no columns for the second, the first one's again. So both
 * take the same few columns, or only the second does. */
INLINE void begin_packing(packing p[2], few_columns *few, const dg_byte_args *a, place at,
                          size_t slice_bytes, dg_byte_panel *panel)
{
    for (int i = 0; i < 2; i++) {
        const int c = at.c + i * DG_QCOLS < a->n_col ? at.c + i * DG_QCOLS : at.c,
                  n_block = dg_min(DG_QSLICE, a->n_in - at.k) / DG_QBLOCK;
        p[i].n_block = n_block;
        p[i].to = panel->n + i * DG_QSLICE * DG_QCOLS;
        p[i].step = panel->step + i * DG_QCOLS;
        p[i].scale = a->scale;
        p[i].at = (const uint8_t *)a->w + (size_t)c * a->stride +
                  (size_t)(at.k / DG_QSLICE) * slice_bytes;
        p[i].stride = a->stride;
        if (c + DG_QCOLS > a->n_col) {
            for (int k = 0; k < DG_QCOLS; k++)
                memcpy(few->at[k], p[i].at + (size_t)dg_min(k, a->n_col - c - 1) * a->stride,
                       slice_bytes * (size_t)n_block / DG_QBLOCKS);
            p[i].at = few->at[0];
            p[i].stride = sizeof few->at[0];
        }
    }
}

/* Asks for an eighth of a slice of the first columns, which are packed soon. */
INLINE void fetch_slice(const dg_byte_args *a, int k, size_t slice_bytes, int part)
{
    enum { SOME = DG_BYTE_COLS / PARTS };
    const int first = part * SOME;
    if (k >= a->n_in)
        return;
    const uint8_t *at =
        (const uint8_t *)a->w + (size_t)first * a->stride + (size_t)(k / DG_QSLICE) * slice_bytes;
    for (int c = first; c < dg_min(first + SOME, a->n_col); c++, at += a->stride)
        for (size_t i = 0; i < slice_bytes; i += 64)
            __builtin_prefetch(at + i, 0, 2);
}

#endif
