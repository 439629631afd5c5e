/* The matrix product of floats over AVX-512 registers, a row of the panel in each. Each result is
 * one chain of fused multiply-adds in ascending k, as with AVX2 and NEON: the bits are the same. */
#include "base/common.h"
#include "cpu/kernels.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif

enum { ROWS = 12 }; /* of a tile: two multiply-adds a cycle take eight sums to keep busy */
enum { STEPS = 4 }; /* along k, for which each row has an address of its own … */

/* … that compilers must not make out of another row's and a distance: with two registers in its
 * address a multiply-add is two operations instead of one. */
#ifndef DG_PLAIN_LANES
#define OWN(address) __asm__("" : "+r"(address))
#else
#define OWN(address) (void)(address)
#endif

/* One step along k, of values `at` behind each row's. */
INLINE void step(f16v sum[ROWS], const float *const x[ROWS], const int at, const float *panel,
                 const int rows)
{
    const f16v b = f16v_load(panel + at * DG_PANEL);
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = f16v_fma(f16v_set(x[r][at]), b, sum[r]);
}

/* `rows` rows from r0 on; a constant at every call, so that the sums are registers. */
INLINE void tile(const dg_gemm_args *a, int r0, const int rows)
{
    const float *x[ROWS], *panel = a->panel;
    float *y = a->y + (size_t)r0 * a->ldy;
    f16v sum[ROWS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        x[r] = a->x + (size_t)(r0 + r) * a->ldx;
        OWN(x[r]);
        sum[r] = a->add ? f16v_load_first(y + (size_t)r * a->ldy, a->n_col) : f16v_zero();
    }
    int k = a->n_k;
    for (; k >= STEPS; k -= STEPS, panel += STEPS * DG_PANEL) {
        UNROLL
        for (int i = 0; i < STEPS; i++)
            step(sum, x, i, panel, rows);
        UNROLL
        for (int r = 0; r < rows; r++)
            x[r] += STEPS;
    }
    for (int i = 0; i < k; i++)
        step(sum, x, i, panel, rows);
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
