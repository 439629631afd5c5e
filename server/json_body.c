#include "json_body.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
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

/* A whole number of n digits that 64 bits may not hold, as a real one in the same room. */
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

/* Where JSON may be what the parser does not take, in place. */
static void mend(char *text, size_t len)
{
    enum { SAFE_DIGITS = 18, MOST_DIGITS = 300 }; /* doubles end there */
    bool in_string = false;
    for (size_t i = 0; i < len;) {
        size_t n = in_string ? 0 : count_digits(text + i, len - i);
        if (in_string && text[i] == '\\') {
            i += mend_escape(text + i, len - i);
        } else if (n) {
            bool whole = i + n == len || !strchr(".eE", text[i + n]);
            bool fraction = i && strchr(".eE+", text[i - 1]);
            if (n > SAFE_DIGITS && n < MOST_DIGITS && whole && !fraction && text[i] != '0')
                mend_number(text + i, n);
            i += n;
        } else {
            in_string ^= text[i++] == '"';
        }
    }
}

json_t *dg_json_load(const char *text, size_t len, json_error_t *why)
{
    json_t *root = json_loadb(text, len, 0, why);
    char *copy = root ? NULL : dg_malloc(len + 1);
    if (!copy)
        return root;
    memcpy(copy, text, len);
    mend(copy, len);
    root = json_loadb(copy, len, 0, NULL); /* if it fails too, the first one's reason holds */
    dg_free(copy);
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
