/* Stop strings: which one ends the text, and where, is a matter of the text alone, however it is
 * cut into pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "text/stop_strings.h"

/* ---- what has to come out ---- */

/* Where the text ends, and by which string, from 1; 0 and its length when by none. */
static int first_stop(const char *text, const char *const *stop, size_t n, size_t *end)
{
    size_t len = strlen(text);
    for (*end = 0; *end < len; ++*end) {
        int best = 0;
        for (size_t i = 0; i < n; i++)
            if (!strncmp(text + *end, stop[i], strlen(stop[i])) &&
                (!best || strlen(stop[i]) < strlen(stop[best - 1])))
                best = (int)i + 1;
        if (best)
            return best;
    }
    return 0;
}

/* Where a stop string may have begun of which the rest is missing; the length when nowhere. */
static size_t first_open(const char *text, size_t len, const char *const *stop, size_t n)
{
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < n; i++)
            if (strlen(stop[i]) > len - at && !strncmp(text + at, stop[i], len - at))
                return at;
    return len;
}

/* ---- what does ---- */

typedef struct heard {
    dg_buf text;
    bool whole; /* each piece was UTF-8, and ended with a NUL */
} heard;

static bool hear(void *user, const char *text, size_t len)
{
    heard *h = user;
    h->whole = h->whole && len > 0 && dg_utf8_valid(text, len) && text[len] == '\0';
    return dg_buf_append(&h->text, text, len);
}

/* cuts[i]: a piece ends before byte i. */
static void expect(const char *text, const char *const *stop, size_t n, const bool *cuts)
{
    size_t end, len = strlen(text), from = 0;
    int want = first_stop(text, stop, n, &end);
    dg_stop_strings *s;
    ck_assert_int_eq(dg_stop_strings_create(&s, stop, n, NULL), DGEMMA_OK);
    heard h = {.whole = true};
    dg_buf_init(&h.text, 1 << 20);
    for (size_t i = 1; i <= len && !dg_stop_strings_found(s); i++) {
        if (i < len && !cuts[i])
            continue;
        ck_assert(dg_stop_strings_push(s, text + from, i - from, hear, &h));
        from = i;
        size_t open = first_open(text, i, stop, n), at;
        char so_far[256];
        snprintf(so_far, sizeof so_far, "%.*s", (int)i, text);
        if (first_stop(so_far, stop, n, &at) && at <= open) /* nothing can come before it */
            ck_assert(dg_stop_strings_found(s));
        if (!dg_stop_strings_found(s)) /* nothing is held longer than it has to be */
            ck_assert_msg(h.text.len == open - dg_utf8_partial(text, open),
                          "\"%s\": %zu of %zu bytes came", text, h.text.len, i);
    }
    dg_stop_strings_flush(s, hear, &h);
    ck_assert_msg(dg_stop_strings_found(s) == want, "\"%s\" ended by %d, not %d", text,
                  dg_stop_strings_found(s), want);
    ck_assert_uint_eq(h.text.len, end);
    ck_assert(!end || !memcmp(h.text.data, text, end));
    ck_assert(h.whole);

    /* after the end nothing comes */
    ck_assert(!want || dg_stop_strings_push(s, "more", 4, hear, &h));
    dg_stop_strings_flush(s, hear, &h);
    ck_assert_uint_eq(h.text.len, end);
    dg_buf_clear(&h.text);
    dg_stop_strings_free(s);
}

/* Whole, byte by byte, and cut at every byte once. */
static void expect_everywhere(const char *text, const char *const *stop, size_t n)
{
    bool cuts[256] = {0};
    size_t len = strlen(text);
    ck_assert_uint_lt(len, sizeof cuts);
    expect(text, stop, n, cuts);
    for (size_t i = 1; i < len; i++) {
        cuts[i] = true;
        expect(text, stop, n, cuts);
        cuts[i] = false;
    }
    memset(cuts, true, sizeof cuts);
    expect(text, stop, n, cuts);
}

#define STOPS(...) (const char *const[]){__VA_ARGS__}, DG_COUNT(((const char *[]){__VA_ARGS__}))

START_TEST(come_at_every_cut)
{
    expect_everywhere("one two three", STOPS("two"));
    expect_everywhere("one two three", STOPS("ee", "three"));
    expect_everywhere("one two three", STOPS("four"));
    expect_everywhere("one two three", STOPS("threefold"));
    expect_everywhere("two", STOPS("two"));
    expect_everywhere("x", STOPS("x"));
    expect_everywhere("aaaaab", STOPS("aaab"));
    expect_everywhere("ababac", STOPS("abac"));
    expect_everywhere("Grüße, 日本語 und 🦙 Ende", STOPS("本語", "🦙"));
    expect_everywhere("Grüße, 日本語 und 🦙 Ende", STOPS("日文", "🦊"));
    expect_everywhere("a\n\nHuman: b", STOPS("\n\nHuman:", "\nHuman"));
}
END_TEST

/* The one that starts first, of those the shortest, of equal ones the first given. */
START_TEST(overlapping_ones_have_an_order)
{
    expect_everywhere("xabcdefy", STOPS("cd", "abcdef"));
    expect_everywhere("xabcdefy", STOPS("abcdef", "cd"));
    expect_everywhere("xabcdy", STOPS("abcdef", "cd")); /* the longer one does not come */
    expect_everywhere("xabcdy", STOPS("abcdef", "bcd", "cd"));
    expect_everywhere("xabcd", STOPS("abcdef", "cd")); /* nor does it at the end */
    expect_everywhere("xabcdefy", STOPS("abcd", "ab", "abc"));
    expect_everywhere("xabab", STOPS("ba", "ab"));
    expect_everywhere("xab", STOPS("ab", "ab"));
}
END_TEST

START_TEST(any_strings_in_any_pieces)
{
    static const dg_rng_key key = {.seed = 12};
    uint32_t draw = 0;
    for (int round = 0; round < 4000; round++) {
        char text[16] = {0}, string[4][8];
        const char *stop[4];
        size_t n = 1 + dg_rng_below(&key, draw++, 4), len = dg_rng_below(&key, draw++, 15);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)('a' + dg_rng_below(&key, draw++, 2));
        for (size_t i = 0; i < n; i++) {
            size_t size = 1 + dg_rng_below(&key, draw++, 6);
            for (size_t k = 0; k < size; k++)
                string[i][k] = (char)('a' + dg_rng_below(&key, draw++, 2));
            string[i][size] = '\0';
            stop[i] = string[i];
        }
        bool cuts[16];
        for (size_t i = 0; i < DG_COUNT(cuts); i++)
            cuts[i] = dg_rng_below(&key, draw++, 3) == 0;
        expect(text, stop, n, cuts);
    }
}
END_TEST

/* A string need not be whole characters: what is passed on is, whatever it cuts. */
START_TEST(text_stays_whole_characters)
{
    static const char *const stop[] = {"\xA4"};
    for (size_t cut = 1; cut < 4; cut++) {
        dg_stop_strings *s;
        heard h = {.whole = true};
        dg_buf_init(&h.text, 64);
        ck_assert_int_eq(dg_stop_strings_create(&s, stop, 1, NULL), DGEMMA_OK);
        ck_assert(dg_stop_strings_push(s, "aä!", cut, hear, &h));
        ck_assert(dg_stop_strings_push(s, &"aä!"[cut], 4 - cut, hear, &h));
        ck_assert_int_eq(dg_stop_strings_found(s), 1);
        ck_assert_str_eq(h.text.data, "a");
        ck_assert(h.whole);
        dg_buf_clear(&h.text);
        dg_stop_strings_free(s);
    }
}
END_TEST

/* A flush in the middle: text before and after it does not make one string. */
START_TEST(flush_is_a_border)
{
    static const char *const stop[] = {"abcd", "bc!"};
    dg_stop_strings *s;
    heard h = {.whole = true};
    dg_buf_init(&h.text, 64);
    ck_assert_int_eq(dg_stop_strings_create(&s, stop, 2, NULL), DGEMMA_OK);
    ck_assert(dg_stop_strings_push(s, "xab", 3, hear, &h));
    ck_assert_str_eq(h.text.data, "x");
    dg_stop_strings_flush(s, hear, &h);
    ck_assert_str_eq(h.text.data, "xab");
    ck_assert(dg_stop_strings_push(s, "cd", 2, hear, &h));
    ck_assert_str_eq(h.text.data, "xabcd");
    ck_assert_int_eq(dg_stop_strings_found(s), 0);
    ck_assert(dg_stop_strings_push(s, "abc", 3, hear, &h));
    ck_assert(dg_stop_strings_push(s, "d", 1, hear, &h));
    ck_assert_int_eq(dg_stop_strings_found(s), 1);
    ck_assert_str_eq(h.text.data, "xabcd");
    dg_buf_clear(&h.text);
    dg_stop_strings_free(s);
}
END_TEST

START_TEST(bounds_and_memory)
{
    dgemma_error err;
    dg_stop_strings *s;
    const char *many[DG_STOP_MAX_STRINGS + 1];
    char *longest = malloc(DG_STOP_MAX_BYTES + 2);
    for (size_t i = 0; i < DG_COUNT(many); i++)
        many[i] = "x";
    memset(longest, 'a', DG_STOP_MAX_BYTES + 1);
    longest[DG_STOP_MAX_BYTES + 1] = '\0';
    ck_assert_int_eq(dg_stop_strings_create(&s, many, DG_COUNT(many), &err), DGEMMA_E_ARG);
    many[0] = "";
    ck_assert_int_eq(dg_stop_strings_create(&s, many, 1, &err), DGEMMA_E_ARG);
    many[0] = longest;
    ck_assert_int_eq(dg_stop_strings_create(&s, many, 1, &err), DGEMMA_E_ARG);
    many[0] = longest + 1;
    ck_assert_int_eq(dg_stop_strings_create(&s, many, DG_STOP_MAX_STRINGS, &err), DGEMMA_OK);
    heard h = {.whole = true};
    dg_buf_init(&h.text, 1 << 20);
    for (int i = 0; i < DG_STOP_MAX_BYTES; i++) { /* held to its last byte */
        ck_assert_int_eq(dg_stop_strings_found(s), 0);
        ck_assert(dg_stop_strings_push(s, "a", 1, hear, &h));
    }
    ck_assert_int_eq(dg_stop_strings_found(s), 1);
    ck_assert_uint_eq(h.text.len, 0);
    dg_stop_strings_free(s);

    for (long n = 1; n < 16; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_stop_strings_create(&s, many, 3, NULL);
        bool pushed = st || dg_stop_strings_push(s, "aaa", 3, hear, &h);
        bool reached = dg_test_alloc_done();
        ck_assert(reached ? st == DGEMMA_E_NOMEM || !pushed : !st && pushed);
        if (!st)
            dg_stop_strings_free(s);
        if (!reached)
            break;
    }
    dg_buf_clear(&h.text);
    free(longest);
}
END_TEST

Suite *stop_strings_suite(void)
{
    Suite *s = suite_create("stop_strings");
    TCase *t = tcase_create("stop_strings");
    tcase_add_test(t, come_at_every_cut);
    tcase_add_test(t, overlapping_ones_have_an_order);
    tcase_add_test(t, any_strings_in_any_pieces);
    tcase_add_test(t, text_stays_whole_characters);
    tcase_add_test(t, flush_is_a_border);
    tcase_add_test(t, bounds_and_memory);
    suite_add_tcase(s, t);
    return s;
}
