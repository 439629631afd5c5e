/* Four tiles of sums with two of either operand, as a product would keep them. Operands are numbers
 * of no order, as products have them: those of zeros take a sixth less time. */
#include <immintrin.h>
#include <string.h>
#include "cpu/cpu_peak.h"

enum { STEPS = 1000, ROWS = 16, ROW_BYTES = 64, PRODUCTS = 4, OPERANDS = 4 };

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
}

/* As many bytes as four tiles take, the same each time. */
typedef struct operands {
    uint8_t tile[OPERANDS][ROWS * ROW_BYTES];
} operands;

static operands any_bytes, any_numbers; /* filled when peaks are listed */

static void load(const operands *o)
{
    _tile_loadd(4, o->tile[0], ROW_BYTES);
    _tile_loadd(5, o->tile[1], ROW_BYTES);
    _tile_loadd(6, o->tile[2], ROW_BYTES);
    _tile_loadd(7, o->tile[3], ROW_BYTES);
}

static uint32_t next_of(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Any bytes; of bfloat16 numbers those in [-2, -1) and [1, 2), whose sums stay far from the
 * largest. */
static void fill(operands *o, bool bfloat)
{
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof o->tile; i += 2) {
        const uint32_t bits = next_of(&state);
        const uint16_t number = (uint16_t)(bfloat ? (bits & 0x807F) | 0x3F80 : bits);
        memcpy((uint8_t *)o->tile + i, &number, sizeof number);
    }
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
    load(&any_bytes);
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
    load(&any_numbers);
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
    fill(&any_bytes, false);
    fill(&any_numbers, true);
    const double values = 2.0 * ROWS * ROWS * PRODUCTS * STEPS; /* for each element along k */
    out[0] = (dg_cpu_peak){"bf16 AMX", false, 32 * values, run_bf16};
    out[1] = (dg_cpu_peak){"int8 AMX", true, 64 * values, run_int8};
    return 2;
}
