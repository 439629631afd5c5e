/* base/utf8: every code point, and every class of malformed sequence. */
#include "suites.h"
#include <stdbool.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "base/utf8.h"

static bool is_scalar(uint32_t c)
{
    return c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
}

START_TEST(every_code_point_comes_back)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (!is_scalar(c))
            continue;
        char text[4];
        size_t n = dg_utf8_encode(text, c);
        size_t want = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        uint32_t back = 0;
        if (n != want || dg_utf8_decode(text, n, &back) != n || back != c)
            ck_abort_msg("U+%04X: %zu bytes, read back as U+%04X", c, n, back);
        if (!dg_utf8_valid(text, n) || dg_utf8_partial(text, n) != 0)
            ck_abort_msg("U+%04X is not found whole", c);
        for (size_t cut = 1; cut < n; cut++)
            if (dg_utf8_decode(text, cut, NULL) != 0 || dg_utf8_partial(text, cut) != cut)
                ck_abort_msg("U+%04X cut after %zu bytes", c, cut);
    }
}
END_TEST

/* Exactly these sequences are well-formed, says the encoder; everything else must be refused. */
START_TEST(every_three_byte_string)
{
    static unsigned char well_formed[1 << 21];
    for (uint32_t c = 0; c <= 0xFFFF; c++) {
        char text[4];
        if (is_scalar(c) && dg_utf8_encode(text, c) == 3) {
            uint32_t key = (uint32_t)(unsigned char)text[0] << 16 |
                           (uint32_t)(unsigned char)text[1] << 8 | (unsigned char)text[2];
            well_formed[key >> 3] |= (unsigned char)(1u << (key & 7));
        }
    }
    for (uint32_t key = 0; key < 1u << 24; key++) {
        char text[3] = {(char)(key >> 16), (char)(key >> 8), (char)key};
        bool want = well_formed[key >> 3] >> (key & 7) & 1;
        if ((dg_utf8_decode(text, 3, NULL) == 3) != want)
            ck_abort_msg("%06x is %sone character", key, want ? "" : "not ");
    }
}
END_TEST

START_TEST(malformed_classes)
{
    static const struct {
        const char *what, *bytes;
    } cases[] = {
        {"continuation alone", "\x80"},
        {"last continuation alone", "\xBF"},
        {"overlong slash", "\xC0\xAF"},
        {"overlong, two bytes", "\xC1\xBF"},
        {"overlong, three bytes", "\xE0\x80\xAF"},
        {"highest overlong of three", "\xE0\x9F\xBF"},
        {"overlong, four bytes", "\xF0\x80\x80\xAF"},
        {"highest overlong of four", "\xF0\x8F\xBF\xBF"},
        {"first surrogate", "\xED\xA0\x80"},
        {"last surrogate", "\xED\xBF\xBF"},
        {"first past the end", "\xF4\x90\x80\x80"},
        {"lead F5", "\xF5\x80\x80\x80"},
        {"five bytes", "\xF8\x88\x80\x80\x80"},
        {"six bytes", "\xFC\x84\x80\x80\x80\x80"},
        {"FE", "\xFE"},
        {"FF", "\xFF"},
        {"lead then letter", "\xC3x"},
        {"lead then lead", "\xC3\xC3\xA9"},
        {"third byte missing", "\xE2\x82x"},
        {"fourth byte missing", "\xF0\x9F\x98x"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        size_t n = strlen(cases[i].bytes);
        ck_assert_msg(dg_utf8_decode(cases[i].bytes, n, NULL) == 0, "%s", cases[i].what);
        ck_assert_msg(!dg_utf8_valid(cases[i].bytes, n), "%s", cases[i].what);
    }
}
END_TEST

START_TEST(partial_at_the_end)
{
    static const struct {
        const char *bytes;
        size_t want;
    } cases[] = {
        {"", 0},
        {"abc", 0},
        {"\xC3", 1},
        {"ab\xE2", 1},
        {"ab\xE2\x82", 2},
        {"ab\xE2\x82\xAC", 0},
        {"ab\xF0\x9F\x98", 3},
        {"ab\xF0\x9F", 2},
        {"\xE2\x82\xAC\xF0", 1},
        {"\x80", 0}, /* no lead can come before it any more */
        {"\x80\x80\x80\x80", 0},
        {"\xE0\x80", 0}, /* already overlong */
        {"\xED\xA0", 0}, /* already a surrogate */
        {"\xF4\x90", 0}, /* already too large */
        {"\xC0", 0},
        {"\xFF", 0},
        {"\xC3\xC3", 1},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++)
        ck_assert_msg(dg_utf8_partial(cases[i].bytes, strlen(cases[i].bytes)) == cases[i].want,
                      "case %zu", i);
}
END_TEST

START_TEST(text_is_valid_when_each_piece_is)
{
    static const char text[] = "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
    ck_assert(dg_utf8_valid(text, sizeof text - 1));
    ck_assert(dg_utf8_valid(text, 0));
    ck_assert(dg_utf8_valid("a\0b", 3));
    ck_assert(!dg_utf8_valid(text, sizeof text - 2));

    /* random bytes: valid is the same as "decodes to its end" */
    dg_rng_key key = {.seed = 11};
    for (uint32_t round = 0; round < 20000; round++) {
        char s[8];
        uint64_t bits = dg_rng_bits(&key, round);
        for (size_t i = 0; i < sizeof s; i++)
            s[i] = (char)(bits >> 8 * i | (i % 2 ? 0x80 : 0));
        size_t at = 0, step = 1;
        while (at < sizeof s && (step = dg_utf8_decode(s + at, sizeof s - at, NULL)) > 0)
            at += step;
        if (dg_utf8_valid(s, sizeof s) != (step > 0))
            ck_abort_msg("round %u", round);
    }
}
END_TEST

Suite *utf8_suite(void)
{
    Suite *s = suite_create("utf8");
    TCase *c = tcase_create("utf8");
    tcase_add_test(c, every_code_point_comes_back);
    tcase_add_test(c, every_three_byte_string);
    tcase_add_test(c, malformed_classes);
    tcase_add_test(c, partial_at_the_end);
    tcase_add_test(c, text_is_valid_when_each_piece_is);
    suite_add_tcase(s, c);
    return s;
}
