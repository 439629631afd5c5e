/* The matrix product over AVX2 registers. Each result is one chain of fused multiply-adds in
 * ascending k, whatever the tile, so a row has the same bits alone and in any batch. */
#include "cpu/x86/kernels_avx2.h"
#include <immintrin.h>
#include <string.h>
#include "base/common.h"

enum {
    ROWS = 6,             /* of a tile: 12 accumulators leave 4 of 16 registers for the operands */
    HALVES = DG_PANEL / 8 /* registers in a row of the panel */
};

/* The first n_col columns of a row of y; the others are 0 and never stored. */
static inline void load_row(__m256 acc[HALVES], const float *y, int n_col)
{
    float row[DG_PANEL] = {0};
    if (n_col < DG_PANEL) {
        memcpy(row, y, (size_t)n_col * sizeof *y);
        y = row;
    }
    for (int h = 0; h < HALVES; h++)
        acc[h] = _mm256_loadu_ps(y + 8 * h);
}

static inline void store_row(float *y, const __m256 acc[HALVES], int n_col)
{
    float row[DG_PANEL];
    float *out = n_col < DG_PANEL ? row : y;
    for (int h = 0; h < HALVES; h++)
        _mm256_storeu_ps(out + 8 * h, acc[h]);
    if (n_col < DG_PANEL)
        memcpy(y, row, (size_t)n_col * sizeof *y);
}

/* `rows` rows from r0 on; a constant at every call, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile(const dg_gemm_args *a, int r0,
                                                       const int rows)
{
    __m256 acc[ROWS][HALVES];
    const float *x = a->x + (size_t)r0 * a->ldx, *panel = a->panel;
    float *y = a->y + (size_t)r0 * a->ldy;
    const size_t ldx = a->ldx;
    const int n_k = a->n_k;

    for (int r = 0; r < rows; r++)
        for (int h = 0; h < HALVES; h++)
            acc[r][h] = _mm256_setzero_ps();
    if (a->add)
        for (int r = 0; r < rows; r++)
            load_row(acc[r], y + (size_t)r * a->ldy, a->n_col);

    for (int k = 0; k < n_k; k++, x++, panel += DG_PANEL) {
        __m256 low = _mm256_loadu_ps(panel), high = _mm256_loadu_ps(panel + 8);
        for (int r = 0; r < rows; r++) {
            __m256 v = _mm256_broadcast_ss(x + (size_t)r * ldx);
            acc[r][0] = _mm256_fmadd_ps(v, low, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(v, high, acc[r][1]);
        }
    }

    for (int r = 0; r < rows; r++)
        store_row(y + (size_t)r * a->ldy, acc[r], a->n_col);
}

void dg_gemm_panel_avx2(const dg_gemm_args *a)
{
    for (int r = 0; r < a->n_row; r += ROWS)
        switch (dg_min(a->n_row - r, ROWS)) {
        case 1:
            tile(a, r, 1);
            break;
        case 2:
            tile(a, r, 2);
            break;
        case 3:
            tile(a, r, 3);
            break;
        case 4:
            tile(a, r, 4);
            break;
        case 5:
            tile(a, r, 5);
            break;
        default:
            tile(a, r, ROWS);
        }
}
