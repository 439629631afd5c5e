/* Four tiles of sums with two of either operand, as a product would keep them. */
#include <immintrin.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 1000, ROWS = 16, ROW_BYTES = 64, PRODUCTS = 4 };

/* What ldtilecfg reads: palette 1, then bytes of a row and rows of each tile. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void configure(void)
{
    static const tile_config all = {
        .palette = 1,
        .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                      ROW_BYTES},
        .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
    };
    _tile_loadconfig(&all);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    static const uint8_t zero[ROWS][ROW_BYTES];
    _tile_loadd(4, zero, ROW_BYTES);
    _tile_loadd(5, zero, ROW_BYTES);
    _tile_loadd(6, zero, ROW_BYTES);
    _tile_loadd(7, zero, ROW_BYTES);
}

static float sum_of_tiles(void)
{
    int32_t out[ROWS][ROWS];
    int32_t sum = 0;
    _tile_stored(0, out, ROW_BYTES);
    sum += out[0][0];
    _tile_stored(3, out, ROW_BYTES);
    sum += out[0][0];
    _tile_release();
    return (float)sum;
}

static float run_int8(void)
{
    configure();
    for (int s = 0; s < STEPS; s++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    return sum_of_tiles();
}

static float run_bf16(void)
{
    configure();
    for (int s = 0; s < STEPS; s++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    return sum_of_tiles();
}

size_t dg_cpu_peaks_amx(dg_cpu_peak *out)
{
    const double values = 2.0 * ROWS * ROWS * PRODUCTS * STEPS; /* for each element along k */
    out[0] = (dg_cpu_peak){"bf16 AMX", false, 32 * values, run_bf16};
    out[1] = (dg_cpu_peak){"int8 AMX", true, 64 * values, run_int8};
    return 2;
}
