/* Products of tiles whose operands come from the first-level cache, as those of a matrix do: four
 * sums with two tiles of either operand, or two sums with one of rows and, in turn, two of columns.
 * On a free core both take as long as products by themselves. Of eight tiles in use a core that is
 * shared makes less than half of what it makes of four (tiles_amx.h), and of those half of what a
 * free one does. Operands are numbers of no order, as products have them: those of zeros take a
 * sixth less time. */
#include "cpu/cpu_peak.h"
#include "cpu/x86/tiles_amx.h"

enum { STEPS = 1000, PRODUCTS = 4 };
enum { ROWS = 16, ROW_BYTES = 64, NUMBERS = ROWS * ROW_BYTES / 2 };

typedef uint16_t operands[4 * NUMBERS]; /* two tiles of rows, and two of columns */

/* Numbers that change from one to the next: any halves of words; of bfloat16 (`keep` and `set`)
 * those from 1 to 2 of either sign, whose sums stay far from the largest. */
static const uint16_t *begin(operands o, uint16_t keep, uint16_t set)
{
    for (unsigned i = 0; i < 4 * NUMBERS; i++)
        o[i] = (uint16_t)((2654435761u * i >> 12 & keep) | set);
    __asm__("" : "+r"(o)); /* tiles read less than their macros say */
    tiles_begin(ROWS, ROW_BYTES);
    return o;
}

static float end(void)
{
    uint32_t out[4][ROWS][ROWS];
    tile_store(0, out[0], ROW_BYTES);
    tile_store(1, out[1], ROW_BYTES);
    tile_store(2, out[2], ROW_BYTES);
    tile_store(3, out[3], ROW_BYTES);
    tiles_end();
    return (float)(out[0][0][0] + out[1][0][0] + out[2][0][0] + out[3][0][0]);
}

#define LOAD(tile, which) tile_load(tile, from + (which)*NUMBERS, ROW_BYTES)
#define LOOPS(name, dot, keep, set)                                                                \
    static float run_##name##_two(void)                                                            \
    {                                                                                              \
        operands o __attribute__((aligned(64)));                                                   \
        const uint16_t *from = begin(o, keep, set);                                                \
        for (int s = 0; s < 2 * STEPS; s++) {                                                      \
            LOAD(4, 0);                                                                            \
            LOAD(6, 2);                                                                            \
            dot(0, 4, 6);                                                                          \
            LOAD(6, 3);                                                                            \
            dot(1, 4, 6);                                                                          \
        }                                                                                          \
        return end();                                                                              \
    }                                                                                              \
    static float run_##name##_four(void)                                                           \
    {                                                                                              \
        operands o __attribute__((aligned(64)));                                                   \
        const uint16_t *from = begin(o, keep, set);                                                \
        for (int s = 0; s < STEPS; s++) {                                                          \
            LOAD(4, 0);                                                                            \
            LOAD(6, 2);                                                                            \
            LOAD(5, 1);                                                                            \
            LOAD(7, 3);                                                                            \
            dot(0, 4, 6);                                                                          \
            dot(1, 4, 7);                                                                          \
            dot(2, 5, 6);                                                                          \
            dot(3, 5, 7);                                                                          \
        }                                                                                          \
        return end();                                                                              \
    }
LOOPS(bf16, tile_dot_bfloat, 0x807F, 0x3F80)
LOOPS(int8, tile_dot_signed, 0xFFFF, 0)

size_t dg_cpu_peaks_amx(dg_cpu_peak *out)
{
    static const char bf16[] = "bf16 AMX", int8[] = "int8 AMX";
    const double values = 2.0 * ROWS * ROWS * PRODUCTS * STEPS; /* for each element along k */
    out[0] = (dg_cpu_peak){bf16, false, 32 * values, run_bf16_two};
    out[1] = (dg_cpu_peak){bf16, false, 32 * values, run_bf16_four};
    out[2] = (dg_cpu_peak){int8, true, 64 * values, run_int8_two};
    out[3] = (dg_cpu_peak){int8, true, 64 * values, run_int8_four};
    return 4;
}
