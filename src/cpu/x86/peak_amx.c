/* Tiles as products would keep them: four of sums with two of either operand, or two of sums with
 * one of either. Of eight tiles in use a core that is shared makes less than half of what it makes
 * of four (tiles_amx.h); a free one does not care. Operands are numbers of no order, as products
 * have them: those of zeros take a sixth less time. */
#include "cpu/cpu_peak.h"
#include "cpu/x86/tiles_amx.h"

enum { STEPS = 1000, ROWS = 16, ROW_BYTES = 64, PRODUCTS = 4 };

/* Numbers that change from one to the next: any halves of words; and of bfloat16 those from 1 to 2
 * of either sign, whose sums stay far from the largest. */
#define HASH(i)           ((uint16_t)(2654435761u * (i) >> 12))
#define ANY(i)            HASH(i)
#define NEAR_ONE(i)       ((HASH(i) & 0x807F) | 0x3F80)
#define FOUR(of, i)       of(i), of((i) + 1), of((i) + 2), of((i) + 3)
#define SIXTEEN(of, i)    FOUR(of, i), FOUR(of, (i) + 4), FOUR(of, (i) + 8), FOUR(of, (i) + 12)
#define HALF_A_ROW(of, i) SIXTEEN(of, i), SIXTEEN(of, (i) + 16)
#define FOUR_ROWS(of, i)                                                                           \
    HALF_A_ROW(of, i), HALF_A_ROW(of, (i) + 32), HALF_A_ROW(of, (i) + 64), HALF_A_ROW(of, (i) + 96)
#define TILE(of, i)                                                                                \
    {                                                                                              \
        FOUR_ROWS(of, i), FOUR_ROWS(of, (i) + 128), FOUR_ROWS(of, (i) + 256),                      \
            FOUR_ROWS(of, (i) + 384)                                                               \
    }

typedef uint16_t operands[2][ROWS * ROW_BYTES / sizeof(uint16_t)];
static const operands any_bytes = {TILE(ANY, 1u), TILE(ANY, 1001u)},
                      any_numbers = {TILE(NEAR_ONE, 1u), TILE(NEAR_ONE, 1001u)};

/* One of either operand, or two. */
static void begin(const operands o, bool both)
{
    const uint16_t *first = o[0], *second = o[1];
    __asm__("" : "+r"(first), "+r"(second)); /* tiles read less than their macros say */
    tiles_begin(ROWS, ROW_BYTES);
    tile_load(4, first, ROW_BYTES);
    tile_load(6, second, ROW_BYTES);
    if (!both)
        return;
    tile_load(5, second, ROW_BYTES);
    tile_load(7, first, ROW_BYTES);
}

static float end(void)
{
    uint32_t out[ROWS][ROWS], sum;
    tile_store(0, out, ROW_BYTES);
    sum = out[0][0];
    tile_store(1, out, ROW_BYTES);
    sum += out[0][0];
    tiles_end();
    return (float)sum;
}

#define LOOPS(name, dot, operands)                                                                 \
    static float run_##name##_two(void)                                                            \
    {                                                                                              \
        begin(operands, false);                                                                    \
        for (int s = 0; s < STEPS; s++) {                                                          \
            dot(0, 4, 6);                                                                          \
            dot(1, 4, 6);                                                                          \
            dot(0, 4, 6);                                                                          \
            dot(1, 4, 6);                                                                          \
        }                                                                                          \
        return end();                                                                              \
    }                                                                                              \
    static float run_##name##_four(void)                                                           \
    {                                                                                              \
        begin(operands, true);                                                                     \
        for (int s = 0; s < STEPS; s++) {                                                          \
            dot(0, 4, 6);                                                                          \
            dot(1, 4, 7);                                                                          \
            dot(2, 5, 6);                                                                          \
            dot(3, 5, 7);                                                                          \
        }                                                                                          \
        return end();                                                                              \
    }
LOOPS(bf16, tile_dot_bfloat, any_numbers)
LOOPS(int8, tile_dot_signed, any_bytes)

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
