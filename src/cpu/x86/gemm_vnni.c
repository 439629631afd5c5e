/* The matrix product of floats over AVX-512 registers, a row of the panel in each. Each result is
 * one chain of fused multiply-adds in ascending k, as with AVX2 and NEON: the bits are the same. */
#include "base/common.h"
#include "cpu/kernels.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif

enum { ROWS = 12 }; /* of a tile: two multiply-adds a cycle take eight sums to keep busy */

/* `rows` rows from r0 on; a constant at every call, so that the sums are registers. */
INLINE void tile(const dg_gemm_args *a, int r0, const int rows)
{
    const float *x = a->x + (size_t)r0 * a->ldx, *panel = a->panel;
    float *y = a->y + (size_t)r0 * a->ldy;
    f16v sum[ROWS];
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = a->add ? f16v_load_first(y + (size_t)r * a->ldy, a->n_col) : f16v_zero();
    for (int k = 0; k < a->n_k; k++, x++, panel += DG_PANEL) {
        f16v b = f16v_load(panel);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = f16v_fma(f16v_set(x[(size_t)r * a->ldx]), b, sum[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        f16v_store_first(y + (size_t)r * a->ldy, sum[r], a->n_col);
}

void dg_gemm_panel_vnni(const dg_gemm_args *a)
{
    int r = 0;
    for (; a->n_row - r >= ROWS; r += ROWS)
        tile(a, r, ROWS);
    if (a->n_row - r >= 8) {
        tile(a, r, 8);
        r += 8;
    }
    if (a->n_row - r >= 4) {
        tile(a, r, 4);
        r += 4;
    }
    for (; r < a->n_row; r++)
        tile(a, r, 1);
}
