#include "base/utf8.h"

/* How many bytes a character has that starts with `lead`; 0 when none does. */
static size_t length_from_lead(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    if (lead >= 0xF0 && lead <= 0xF4)
        return 4;
    return 0;
}

/* The second byte is where overlong forms, surrogates and too large values show. */
static bool second_fits(unsigned char lead, unsigned char b)
{
    unsigned char lo = 0x80, hi = 0xBF;
    if (lead == 0xE0)
        lo = 0xA0;
    else if (lead == 0xED)
        hi = 0x9F;
    else if (lead == 0xF0)
        lo = 0x90;
    else if (lead == 0xF4)
        hi = 0x8F;
    return b >= lo && b <= hi;
}

/* How many of the bytes at s fit together as the start of one character of `len` bytes. */
static size_t matching(const unsigned char *s, size_t n, size_t len)
{
    size_t i = 1;
    for (; i < len && i < n; i++)
        if (i == 1 ? !second_fits(s[0], s[1]) : (s[i] & 0xC0) != 0x80)
            break;
    return i;
}

size_t dg_utf8_decode(const char *text, size_t n, uint32_t *out)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t len = length_from_lead(s[0]);
    if (!len || matching(s, n, len) != len)
        return 0;
    if (out) {
        static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
        uint32_t c = s[0] & lead_mask[len];
        for (size_t i = 1; i < len; i++)
            c = c << 6 | (s[i] & 0x3Fu);
        *out = c;
    }
    return len;
}

size_t dg_utf8_partial(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t len = length_from_lead(s[n - back]);
        if (len > back)
            return matching(s + n - back, back, len) == back ? back : 0;
        if (len)
            return 0;
    }
    return 0;
}

size_t dg_utf8_encode(char out[4], uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return n;
}

bool dg_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = dg_utf8_decode(s + i, n - i, NULL)))
            return false;
    return true;
}
