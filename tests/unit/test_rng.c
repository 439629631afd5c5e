/* base/rng: the published answers of Philox-4x32-10, and that draws spread as they should. */
#include "suites.h"
#include <math.h>
#include "base/common.h"
#include "base/rng.h"

/* Known answers of the authors' Random123 library: counter, key, first two words of the result. */
START_TEST(known_answers)
{
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t want[2];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627E8D5u, 0xE169C58Du}},
        {{0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu},
         {0xFFFFFFFFu, 0xFFFFFFFFu},
         {0x408F276Du, 0x41C83B0Eu}},
        {{0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u},
         {0xA4093822u, 0x299F31D0u},
         {0xD16CFE09u, 0x94FDCCEBu}},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        const uint32_t *c = cases[i].counter;
        dg_rng_key key = {
            .seed = (uint64_t)cases[i].key[1] << 32 | cases[i].key[0],
            .stream = c[3],
            .block = c[2],
            .step = c[1],
        };
        uint64_t want = (uint64_t)cases[i].want[1] << 32 | cases[i].want[0];
        ck_assert_uint_eq(dg_rng_bits(&key, c[0]), want);
    }
}
END_TEST

/* All 53 bits of a draw, and the whole product: for large n the low half carries. */
START_TEST(draws_use_all_their_bits)
{
    dg_rng_key key = {.seed = 9, .stream = 1};
    bool low_bit = false;
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t bits = dg_rng_bits(&key, i);
        ck_assert(dg_rng_uniform(&key, i) == ldexp((double)(bits >> 11), -53));
        low_bit |= bits >> 11 & 1;
        for (uint32_t n = 1; n; n = n < UINT32_MAX / 3 ? 3 * n : n < UINT32_MAX ? UINT32_MAX : 0)
            ck_assert_uint_eq(dg_rng_below(&key, i, n),
                              (uint32_t)((unsigned __int128)bits * n >> 64));
    }
    ck_assert(low_bit);
}
END_TEST

START_TEST(uniform_stays_in_range_and_spreads)
{
    enum { N = 1 << 18, BINS = 64 };
    int bin[BINS] = {0};
    double sum = 0, squares = 0;
    dg_rng_key key = {.seed = 42, .stream = 1};
    for (uint32_t i = 0; i < N; i++) {
        double u = dg_rng_uniform(&key, i);
        if (!(u >= 0 && u < 1))
            ck_abort_msg("draw %u is %a", i, u);
        bin[(int)(u * BINS)]++;
        sum += u;
        squares += u * u;
    }
    /* six standard deviations around the mean and the mean square of a uniform draw */
    ck_assert_double_lt(fabs(sum / N - 0.5), 6 * sqrt(1.0 / 12 / N));
    ck_assert_double_lt(fabs(squares / N - 1.0 / 3), 6 * sqrt(4.0 / 45 / N));
    double chi2 = 0, expected = (double)N / BINS;
    for (int i = 0; i < BINS; i++)
        chi2 += (bin[i] - expected) * (bin[i] - expected) / expected;
    ck_assert_double_lt(chi2, 63 + 6 * sqrt(2.0 * 63));
}
END_TEST

START_TEST(below_covers_its_range_evenly)
{
    static const uint32_t ns[] = {1, 2, 3, 7, 100, 262144};
    for (size_t k = 0; k < DG_COUNT(ns); k++) {
        enum { DRAWS = 40000 };
        uint32_t n = ns[k], low = 0;
        dg_rng_key key = {.seed = 5, .block = n};
        for (uint32_t i = 0; i < DRAWS; i++) {
            uint32_t draw = dg_rng_below(&key, i, n);
            if (draw >= n)
                ck_abort_msg("draw %u of %u", draw, n);
            low += draw < (n + 1) / 2;
        }
        double p = (double)((n + 1) / 2) / n;
        ck_assert_double_le(fabs(low - p * DRAWS), 6 * sqrt(p * (1 - p) * DRAWS));
    }
    dg_rng_key key = {.seed = 5};
    for (uint32_t i = 0; i < 100; i++)
        ck_assert_uint_lt(dg_rng_below(&key, i, UINT32_MAX), UINT32_MAX);
}
END_TEST

/* Each part of the key and the position matter: a change of one bit changes about half of the draw.
 */
START_TEST(every_input_bit_matters)
{
    const dg_rng_key base = {.seed = 0x0123456789ABCDEFu, .stream = 2, .block = 3, .step = 4};
    uint64_t draw = dg_rng_bits(&base, 5);
    for (int bit = 0; bit < 64 + 4 * 32; bit++) {
        dg_rng_key key = base;
        uint32_t position = 5, flip = 1u << (bit % 32);
        if (bit < 64)
            key.seed ^= (uint64_t)1 << bit;
        else if (bit < 96)
            key.stream ^= flip;
        else if (bit < 128)
            key.block ^= flip;
        else if (bit < 160)
            key.step ^= flip;
        else
            position ^= flip;
        int changed = __builtin_popcountll(draw ^ dg_rng_bits(&key, position));
        ck_assert_msg(changed > 8 && changed < 56, "bit %d changes %d bits", bit, changed);
    }
}
END_TEST

Suite *rng_suite(void)
{
    Suite *s = suite_create("rng");
    TCase *c = tcase_create("rng");
    tcase_add_test(c, known_answers);
    tcase_add_test(c, draws_use_all_their_bits);
    tcase_add_test(c, uniform_stays_in_range_and_spreads);
    tcase_add_test(c, below_covers_its_range_evenly);
    tcase_add_test(c, every_input_bit_matters);
    suite_add_tcase(s, c);
    return s;
}
