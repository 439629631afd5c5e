/* Rows as FP8 and as NVFP4: numbers, scales and ties, against what both formats say, worked out
 * here. */
#include <math.h>
#include "base/common.h"
#include "base/rng.h"
#include "convert/folder_rows.h"
#include "suites.h"

static float e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const float size = e ? ldexpf(8 + (float)m, e - 10) : ldexpf((float)m, -9);
    return b & 0x80 ? -size : size;
}

START_TEST(rows_of_fp8)
{
    static const float x[] = {-448, 224, 1, -0.5f, 0, 17, 19};
    static const uint8_t want[] = {0xFE, 0x76, 0x38, 0xB0, 0, 0x58, 0x5A}; /* 17 is 16, 19 is 20 */
    uint8_t number[DG_COUNT(x)];
    float back[DG_COUNT(x)], scale;
    dg_fp8_row(number, &scale, back, x, DG_COUNT(x));
    ck_assert(scale == 1);
    for (size_t i = 0; i < DG_COUNT(x); i++) {
        ck_assert_int_eq(number[i], want[i]);
        ck_assert(back[i] == e4m3(want[i]));
    }
    static const float none[4] = {0};
    dg_fp8_row(number, &scale, back, none, 4);
    ck_assert(scale > 0);
    for (int i = 0; i < 4; i++)
        ck_assert(number[i] == 0 && back[i] == 0);
}
END_TEST

START_TEST(divisors_of_nvfp4)
{
    ck_assert(dg_nvfp4_divisor(0) == 1);
    ck_assert(dg_nvfp4_divisor(2688) == 1);
    ck_assert(dg_nvfp4_divisor(21) == 128);
    ck_assert(isfinite(dg_nvfp4_divisor(1e-44f)));
}
END_TEST

static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

/* A group that wants the step 1, and in it one value between two numbers. */
START_TEST(the_nearest_number_is_taken)
{
    static const struct {
        float x;
        uint8_t code;
    } cases[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},   {2.5f, 4}, {3.5f, 6},
                 {5, 6},     {0.3f, 1},  {-0.7f, 9}, {-1.25f, 10}, {2.4f, 4}, {2.6f, 5},
                 {-5, 14},   {5.1f, 7},  {-0.2f, 8}, {4.9f, 6}};
    float x[DG_NVFP4_GROUP] = {cases[_i].x, 0.5f, 6, 6, 6, -6, -6, -6, 4, 4, -4, 3, -3, 2, -4, -6};
    float back[DG_NVFP4_GROUP];
    uint8_t packed[DG_NVFP4_GROUP / 2], scale;
    dg_nvfp4_row(packed, &scale, back, x, DG_NVFP4_GROUP, 1);
    ck_assert_int_eq(scale, 0x38);
    ck_assert_int_eq(packed[0], cases[_i].code | 1 << 4); /* the first is in the low half */
    ck_assert_int_eq(packed[7], 14 | 15 << 4);
    const float size = values[cases[_i].code & 7];
    ck_assert(back[0] == (cases[_i].code & 8 ? -size : size));
    for (int i = 1; i < DG_NVFP4_GROUP; i++)
        ck_assert(back[i] == x[i]);
}
END_TEST

static double off_by(float x, float step)
{
    double least = INFINITY;
    for (int k = 0; k < 8; k++) {
        const double off = fabs(fabs((double)x) - (double)values[k] * (double)step);
        least = off < least ? off : least;
    }
    return least;
}

static double error_with(const float *x, float step)
{
    double sum = 0;
    for (int i = 0; i < DG_NVFP4_GROUP; i++)
        sum += off_by(x[i], step) * off_by(x[i], step);
    return sum;
}

/* None of the scales about the one that the largest value asks for would have been better. */
START_TEST(the_best_scale_is_taken)
{
    const dg_rng_key key = {.seed = 7};
    int n_other = 0;
    for (int round = 0; round < 200; round++) {
        float x[DG_NVFP4_GROUP], back[DG_NVFP4_GROUP], most = 0;
        uint8_t packed[DG_NVFP4_GROUP / 2], scale;
        for (int i = 0; i < DG_NVFP4_GROUP; i++) {
            x[i] = (float)dg_rng_uniform(&key, (uint32_t)(round * DG_NVFP4_GROUP + i)) - 0.5f;
            most = fmaxf(most, fabsf(x[i]));
        }
        const float divisor = dg_nvfp4_divisor(0.75f);
        dg_nvfp4_row(packed, &scale, back, x, DG_NVFP4_GROUP, divisor);
        double off = 0;
        for (int i = 0; i < DG_NVFP4_GROUP; i++) {
            const int code = packed[i / 2] >> (i % 2 * 4) & 15;
            const float size = values[code & 7] * (e4m3(scale) / divisor);
            ck_assert(back[i] == (code & 8 ? -size : size));
            off += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
        }
        int asked = 0;
        while (fabsf(e4m3((uint8_t)(asked + 1)) - most * divisor / 6) <
               fabsf(e4m3((uint8_t)asked) - most * divisor / 6))
            asked++;
        for (int s = asked - 2; s <= asked + 5; s++)
            ck_assert(off <= error_with(x, e4m3((uint8_t)s) / divisor) * (1 + 1e-5));
        n_other += scale != asked;
    }
    ck_assert_int_gt(n_other, 50); /* or nothing was chosen */
}
END_TEST

Suite *folder_rows_suite(void)
{
    Suite *s = suite_create("folder_rows");
    TCase *t = tcase_create("folder_rows");
    tcase_add_test(t, rows_of_fp8);
    tcase_add_test(t, divisors_of_nvfp4);
    tcase_add_loop_test(t, the_nearest_number_is_taken, 0, 16);
    tcase_add_test(t, the_best_scale_is_taken);
    suite_add_tcase(s, t);
    return s;
}
