#include "json_body.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/utf8.h"

/* Counts values and depth without building anything. Malformed text may be counted wrongly: the
 * parser will refuse it. */
static bool within_bounds(const char *text, size_t len, dg_http_error *e)
{
    size_t n = 0;
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        in_string = c == '"';
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        n += c == ',' || c == '[' || c == '{';
        if (depth > DG_BODY_MAX_DEPTH)
            return dg_refuse(e, 400, "json_too_deep", NULL,
                             "the body is nested deeper than %d levels", DG_BODY_MAX_DEPTH);
        if (n > DG_BODY_MAX_VALUES)
            return dg_refuse(e, 400, "json_too_large", NULL, "the body has more than %d values",
                             DG_BODY_MAX_VALUES);
    }
    return true;
}

/* The value of "\\uXXXX"; -1: it is none. */
static long escaped(const char *text, size_t len)
{
    char digits[5] = {0};
    if (len < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    memcpy(digits, text + 2, 4);
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)digits[i]))
            return -1;
    return strtol(digits, NULL, 16);
}

/* Mends the escape at `at` if the parser would refuse it; returns its length. */
static size_t mend_escape(char *at, size_t len)
{
    long unit = escaped(at, len);
    if (unit < 0)
        return 2;
    bool high = unit >= 0xd800 && unit < 0xdc00, low = unit >= 0xdc00 && unit < 0xe000;
    long next = high ? escaped(at + 6, len - 6) : -1;
    if (next >= 0xdc00 && next < 0xe000)
        return 12;
    if (!unit || high || low)
        memcpy(at, "\\ufffd", 6);
    return 6;
}

/* A whole number of n digits that 64 bits do not hold, as a real one in the same room. */
static void mend_number(char *digits, size_t n)
{
    char exponent[8];
    int room = snprintf(exponent, sizeof exponent, "e%zu", n - 1);
    memmove(digits + 2, digits + 1, n - 2 - (size_t)room);
    digits[1] = '.';
    memcpy(digits + n - room, exponent, (size_t)room);
}

static size_t count_digits(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && isdigit((unsigned char)text[n]))
        n++;
    return n;
}

static bool fits_in_64_bits(const char *digits, size_t n, bool is_negative)
{
    char copy[24] = {0};
    if (n > 19)
        return false;
    memcpy(copy, digits, n);
    return strtoull(copy, NULL, 10) <= (uint64_t)INT64_MAX + is_negative;
}

/* Where JSON may be what the parser does not take, in place. */
static void mend(char *text, size_t len)
{
    enum { MOST_DIGITS = 300 }; /* doubles end there */
    bool in_string = false;
    for (size_t i = 0; i < len;) {
        size_t n = in_string ? 0 : count_digits(text + i, len - i);
        if (in_string && text[i] == '\\') {
            i += mend_escape(text + i, len - i);
        } else if (n) {
            bool whole = i + n == len || !strchr(".eE", text[i + n]);
            bool fraction = i && strchr(".eE+", text[i - 1]);
            bool fits = fits_in_64_bits(text + i, n, i && text[i - 1] == '-');
            if (!fits && n < MOST_DIGITS && whole && !fraction && text[i] != '0')
                mend_number(text + i, n);
            i += n;
        } else {
            in_string ^= text[i++] == '"';
        }
    }
}

/* Behind the key "seed", a whole number that only unsigned 64 bits hold: where it is, how many
 * digits it has, or 0, and its bits. */
static size_t find_seed(const char *text, size_t len, size_t *at, int64_t *bits)
{
    static const char key[] = "\"seed\"";
    size_t i = sizeof key - 1;
    if (len < i || memcmp(text, key, i) != 0)
        return 0;
    while (i < len && strchr(" \t\r\n:", text[i]) && text[i])
        i++;
    char digits[24] = {0};
    size_t n = count_digits(text + i, len - i);
    if (n < 19 || n > 20 || text[i] == '0' || (i + n < len && strchr(".eE", text[i + n])))
        return 0;
    memcpy(digits, text + i, n);
    errno = 0;
    *at = i;
    uint64_t value = strtoull(digits, NULL, 10);
    *bits = (int64_t)value;
    return value > INT64_MAX && !errno ? n : 0;
}

/* The text with seeds, of the request or of its options, as the signed numbers of the same bits:
 * all bits of a seed count, and a real number has too few. */
static bool copy_with_seeds(dg_buf *out, const char *text, size_t len)
{
    int depth = 0;
    size_t from = 0;
    bool in_string = false;
    int64_t bits = 0;
    for (size_t i = 0, at = 0; i < len; i++) {
        char c = text[i], number[24];
        size_t n = in_string || depth > 2 ? 0 : find_seed(text + i, len - i, &at, &bits);
        if (n) {
            snprintf(number, sizeof number, "%" PRId64, bits);
            if (!dg_buf_append(out, text + from, i + at - from) || !dg_buf_puts(out, number))
                return false;
            from = i + at + n;
            i = from - 1;
        } else if (in_string && c == '\\') {
            i++;
        } else {
            in_string ^= c == '"';
            depth += in_string ? 0 : (c == '[' || c == '{') - (c == ']' || c == '}');
        }
    }
    return dg_buf_append(out, text + from, len - from);
}

json_t *dg_json_load(const char *text, size_t len, json_error_t *why)
{
    json_t *root = json_loadb(text, len, 0, why);
    dg_buf copy;
    dg_buf_init(&copy, 2 * len + 64);
    if (!root && copy_with_seeds(&copy, text, len)) {
        mend(copy.data, copy.len);
        root = json_loadb(copy.data, copy.len, 0, NULL); /* if it fails too, the first one's reason
                                                            holds */
    }
    dg_buf_clear(&copy);
    return root;
}

json_t *dg_json_body(const char *text, size_t len, dg_http_error *e)
{
    if (!within_bounds(text, len, e))
        return NULL;
    json_error_t why;
    json_t *root = dg_json_load(text, len, &why);
    if (!root && (!why.text[0] || json_error_code(&why) == json_error_out_of_memory)) {
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the request");
        e->retry_after = 5;
        return NULL;
    }
    if (!root) {
        dg_refuse(e, 400, "invalid_json", NULL, "the body is not JSON: %s at line %d, column %d",
                  why.text, why.line, why.column);
        return NULL;
    }
    if (!json_is_object(root)) {
        dg_refuse(e, 400, "invalid_json", NULL, "the body is no JSON object");
        json_decref(root);
        return NULL;
    }
    return root;
}
