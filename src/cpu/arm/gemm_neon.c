/* The matrix product over NEON registers. Each result is one chain of fused multiply-adds in
 * ascending k, whatever the tile, so a row has the same bits alone and in any batch. */
#include "cpu/arm/kernels_neon.h"
#include <arm_neon.h>
#include <string.h>
#include "base/common.h"

/* Before it hands out registers, gcc moves loads far ahead of their use, and accumulators spill: 61
 * instead of 79 GFLOP/s for five rows (gcc 12, Neoverse-V1). The processor reorders well enough. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

enum {
    ROWS = 5, /* of a tile: 20 accumulators and 5 registers of x leave 7 of 32 for the panel */
    QUADS = DG_PANEL / 4 /* registers in a row of the panel */
};

/* The first n_col columns of a row of y; the others are 0 and never stored. */
static inline void load_row(float32x4_t acc[QUADS], const float *y, int n_col)
{
    float row[DG_PANEL] = {0};
    if (n_col < DG_PANEL) {
        memcpy(row, y, (size_t)n_col * sizeof *y);
        y = row;
    }
    for (int q = 0; q < QUADS; q++)
        acc[q] = vld1q_f32(y + 4 * q);
}

static inline void store_row(float *y, const float32x4_t acc[QUADS], int n_col)
{
    float row[DG_PANEL];
    float *out = n_col < DG_PANEL ? row : y;
    for (int q = 0; q < QUADS; q++)
        vst1q_f32(out + 4 * q, acc[q]);
    if (n_col < DG_PANEL)
        memcpy(y, row, (size_t)n_col * sizeof *y);
}

/* acc[r] += x[r][lane] * panel[lane]; a macro because the lane is part of the instruction. */
#define STEP(lane)                                                                                 \
    for (int q = 0; q < QUADS; q++) {                                                              \
        float32x4_t b = vld1q_f32(panel + (lane)*DG_PANEL + 4 * q);                                \
        for (int r = 0; r < rows; r++)                                                             \
            acc[r][q] = vfmaq_laneq_f32(acc[r][q], b, xs[r], lane);                                \
    }

/* `rows` rows from r0 on; a constant at every call, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile(const dg_gemm_args *a, int r0,
                                                       const int rows)
{
    float32x4_t acc[ROWS][QUADS], xs[ROWS];
    const float *x[ROWS], *panel = a->panel;
    float *y = a->y + (size_t)r0 * a->ldy;
    const int n_k = a->n_k;

    for (int r = 0; r < rows; r++) {
        x[r] = a->x + (size_t)(r0 + r) * a->ldx;
        for (int q = 0; q < QUADS; q++)
            acc[r][q] = vdupq_n_f32(0);
    }
    if (a->add)
        for (int r = 0; r < rows; r++)
            load_row(acc[r], y + (size_t)r * a->ldy, a->n_col);

    int k = 0;
    for (; k <= n_k - 4; k += 4, panel += 4 * DG_PANEL) {
        for (int r = 0; r < rows; r++)
            xs[r] = vld1q_f32(x[r] + k);
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
    }
    for (; k < n_k; k++, panel += DG_PANEL) {
        for (int r = 0; r < rows; r++)
            xs[r] = vdupq_n_f32(x[r][k]);
        STEP(0)
    }

    for (int r = 0; r < rows; r++)
        store_row(y + (size_t)r * a->ldy, acc[r], a->n_col);
}

void dg_gemm_panel_neon(const dg_gemm_args *a)
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
        default:
            tile(a, r, ROWS);
        }
}
