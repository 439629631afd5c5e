#include "text/python_text.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "text/letter_case.h"

/* ---- white space ---- */

static bool is_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Length of the white space character that begins (ends) the text; 0 when none does. */
static size_t space_at_start(dg_text text)
{
    uint32_t c;
    size_t n = text.len ? dg_utf8_decode(text.data, text.len, &c) : 0;
    return n && is_space(c) ? n : 0;
}

static size_t space_at_end(dg_text text)
{
    for (size_t n = 1; n <= 3 && n <= text.len; n++) {
        uint32_t c;
        if (dg_utf8_decode(text.data + text.len - n, n, &c) == n)
            return is_space(c) ? n : 0;
    }
    return 0;
}

dg_text dg_python_strip(dg_text text)
{
    for (size_t n; (n = space_at_start(text));)
        text.data += n, text.len -= n;
    for (size_t n; (n = space_at_end(text));)
        text.len -= n;
    return text;
}

/* ---- letters ---- */

/* The character at the front of text in upper case; its length there. */
static size_t put_upper(dg_buf *out, dg_text text, bool *ok)
{
    uint32_t c;
    char bytes[4];
    size_t n = dg_utf8_decode(text.data, text.len, &c);
    if (!n) {
        *ok = dg_buf_append(out, text.data, 1);
        return 1;
    }
    if (c == 0xDF) /* sharp s; its upper-case letter is not what Python takes */
        *ok = dg_buf_puts(out, "SS");
    else
        *ok = dg_buf_append(out, bytes, dg_utf8_encode(bytes, dg_letter_upper(c)));
    return n;
}

bool dg_python_upper(dg_buf *out, dg_text text)
{
    bool ok = true;
    while (text.len && ok) {
        size_t n = put_upper(out, text, &ok);
        text.data += n;
        text.len -= n;
    }
    return ok;
}

/* The next character in lower case; past all characters for a byte that is none. */
static uint32_t next_lower(dg_text text, size_t *at)
{
    uint32_t c;
    size_t n = dg_utf8_decode(text.data + *at, text.len - *at, &c);
    if (!n)
        return 0x110000u + (unsigned char)text.data[(*at)++];
    *at += n;
    return dg_letter_lower(c);
}

int dg_python_compare_lower(dg_text a, dg_text b)
{
    size_t i = 0, k = 0;
    while (i < a.len && k < b.len) {
        uint32_t ca = next_lower(a, &i), cb = next_lower(b, &k);
        if (ca != cb)
            return ca < cb ? -1 : 1;
    }
    return (i < a.len) - (k < b.len);
}

/* ---- numbers ---- */

/* As the C library of this process writes and reads numbers, whatever its locale. */
static double read_double(dg_text number)
{
    char copy[DG_JSON_MAX_DIGITS + 16];
    const char *point = localeconv()->decimal_point;
    size_t n = 0, n_point = strlen(point);
    for (size_t i = 0; i < number.len && n + n_point < sizeof copy; i++) {
        if (number.data[i] != '.') {
            copy[n++] = number.data[i];
            continue;
        }
        memcpy(copy + n, point, n_point);
        n += n_point;
    }
    copy[n < sizeof copy ? n : sizeof copy - 1] = '\0';
    return strtod(copy, NULL);
}

enum { DOUBLE_DIGITS = 17 }; /* tell any two doubles apart */

/* Adds one to the last digit of "d.ddde…" below `end`. A carry out of the first one cannot be asked
 * for here: fewer digits would have done. */
static void next_decimal(char *text, char *end)
{
    for (char *s = end - 1; s >= text; s--) {
        if (*s < '0' || *s > '9')
            continue;
        if (*s < '9') {
            ++*s;
            return;
        }
        *s = '0';
    }
}

/* Whether "%.*e" of x > 0, or the decimal just above it, is read back as x. A power of two has more
 * room above than below, so that the nearest decimal can miss it and the next one not. */
static bool write_decimal(char text[64], double x, int precision)
{
    snprintf(text, 64, "%.*e", precision, x);
    double back = strtod(text, NULL);
    if (back < x) {
        next_decimal(text, strchr(text, 'e'));
        back = strtod(text, NULL);
    }
    return back == x;
}

/* The fewest digits that are read back as x > 0, which is 0.DIGITS times ten to the power *point.
 */
static size_t shortest_digits(double x, char digits[DOUBLE_DIGITS + 1], int *point)
{
    char text[64];
    int precision = 0;
    while (!write_decimal(text, x, precision) && precision + 1 < DOUBLE_DIGITS)
        precision++;
    size_t n = 0;
    const char *exponent = strchr(text, 'e');
    for (const char *s = text; s < exponent; s++)
        if (*s >= '0' && *s <= '9')
            digits[n++] = *s;
    *point = (int)strtol(exponent + 1, NULL, 10) + 1;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return n;
}

/* repr(float): plain from 1e-4 up to 1e16, with an exponent otherwise. */
static bool put_double(dg_buf *out, double x)
{
    char digits[DOUBLE_DIGITS + 1], text[64];
    if (x == 0 || x > 1.7976931348623157e308)
        return dg_buf_puts(out, x == 0 ? "0.0" : "inf");
    int point;
    int n = (int)shortest_digits(x, digits, &point);
    if (point > 16 || point < -3)
        snprintf(text, sizeof text, "%.1s%s%se%+03d", digits, n > 1 ? "." : "", digits + 1,
                 point - 1);
    else if (point <= 0)
        snprintf(text, sizeof text, "0.%.*s%s", -point, "000", digits);
    else if (point >= n)
        snprintf(text, sizeof text, "%s%.*s.0", digits, point - n, "0000000000000000");
    else
        snprintf(text, sizeof text, "%.*s.%s", point, digits, digits + point);
    return dg_buf_puts(out, text);
}

static bool put_real(dg_buf *out, dg_text number)
{
    double x = read_double(number);
    if (number.data[0] == '-' && !dg_buf_puts(out, "-"))
        return false;
    return put_double(out, x < 0 ? -x : x);
}

/* JSON integers are already as Python prints them, but for one. */
static bool put_int(dg_buf *out, dg_text number)
{
    return dg_text_is(number, "-0") ? dg_buf_puts(out, "0")
                                    : dg_buf_append(out, number.data, number.len);
}

/* ---- any value ---- */

bool dg_python_truth(const dg_json *v)
{
    if (!v)
        return false;
    switch (v->kind) {
    case DG_JSON_NULL:
    case DG_JSON_FALSE:
        return false;
    case DG_JSON_TRUE:
        return true;
    case DG_JSON_INT:
    case DG_JSON_REAL:
        return read_double(v->source) != 0;
    case DG_JSON_STRING:
        return v->text.len > 0;
    case DG_JSON_ARRAY:
    case DG_JSON_OBJECT:
        return v->n_child > 0;
    }
    return false;
}

/* Marks of direction and width; there are more, in scripts of their own. */
static bool is_invisible(uint32_t c)
{
    return (c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
}

static bool put_repr_char(dg_buf *out, const char *s, size_t n, uint32_t c, char quote)
{
    char text[16];
    if (c == '\n')
        return dg_buf_puts(out, "\\n");
    if (c == '\r')
        return dg_buf_puts(out, "\\r");
    if (c == '\t')
        return dg_buf_puts(out, "\\t");
    if (c == '\\' || c == (unsigned char)quote)
        return dg_buf_puts(out, "\\") && dg_buf_append(out, s, n);
    if (c < ' ' || (c >= 0x7F && c <= 0xA0) || c == 0xAD)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)c);
    else if ((is_space(c) && c > ' ') || is_invisible(c))
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        return dg_buf_append(out, s, n);
    return dg_buf_puts(out, text);
}

static bool put_repr_string(dg_buf *out, dg_text s)
{
    bool single = s.len && memchr(s.data, '\'', s.len), twice = s.len && memchr(s.data, '"', s.len);
    char quote = single && !twice ? '"' : '\'';
    if (!dg_buf_append(out, &quote, 1))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t c = 0;
        n = dg_utf8_decode(s.data + i, s.len - i, &c);
        n = n ? n : 1;
        if (!put_repr_char(out, s.data + i, n, c, quote))
            return false;
    }
    return dg_buf_append(out, &quote, 1);
}

static bool put_repr(dg_buf *out, const dg_json *v);

static bool put_repr_members(dg_buf *out, const dg_json *v)
{
    bool keyed = v->kind == DG_JSON_OBJECT;
    if (!dg_buf_puts(out, keyed ? "{" : "["))
        return false;
    for (const dg_json *m = v->child; m; m = m->next) {
        if (keyed && !(put_repr_string(out, m->key) && dg_buf_puts(out, ": ")))
            return false;
        if (!put_repr(out, m) || (m->next && !dg_buf_puts(out, ", ")))
            return false;
    }
    return dg_buf_puts(out, keyed ? "}" : "]");
}

static bool put_repr(dg_buf *out, const dg_json *v)
{
    switch (v->kind) {
    case DG_JSON_NULL:
        return dg_buf_puts(out, "None");
    case DG_JSON_FALSE:
        return dg_buf_puts(out, "False");
    case DG_JSON_TRUE:
        return dg_buf_puts(out, "True");
    case DG_JSON_INT:
        return put_int(out, v->source);
    case DG_JSON_REAL:
        return put_real(out, v->source);
    case DG_JSON_STRING:
        return put_repr_string(out, v->text);
    case DG_JSON_ARRAY:
    case DG_JSON_OBJECT:
        return put_repr_members(out, v);
    }
    return true;
}

bool dg_python_str(dg_buf *out, const dg_json *v)
{
    if (!v)
        return true;
    return v->kind == DG_JSON_STRING ? dg_buf_append(out, v->text.data, v->text.len)
                                     : put_repr(out, v);
}
