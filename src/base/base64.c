#include "base/base64.h"
#include <stdint.h>

/* The value of a digit; -1: not one, -2: white space. The URL-safe alphabet is taken too. */
static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    if (c == '/' || c == '_')
        return 63;
    return c == '\n' || c == '\r' || c == ' ' || c == '\t' ? -2 : -1;
}

static dgemma_status append(dg_buf *out, const void *data, size_t n)
{
    if (dg_buf_append(out, data, n))
        return DGEMMA_OK;
    return n > out->max - out->len ? DGEMMA_E_LIMIT : DGEMMA_E_NOMEM;
}

dgemma_status dg_base64_decode(dg_buf *out, const char *text, size_t len)
{
    unsigned char chunk[3 * 1024] = {0};
    size_t n_chunk = 0, n_digit = 0, n_pad = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < len; i++) {
        int d = digit(text[i]);
        if (d == -2)
            continue;
        if (text[i] == '=') {
            n_pad++;
            continue;
        }
        if (d < 0 || n_pad)
            return DGEMMA_E_ARG;
        bits = bits << 6 | (uint32_t)d;
        if (++n_digit % 4)
            continue;
        chunk[n_chunk++] = (unsigned char)(bits >> 16);
        chunk[n_chunk++] = (unsigned char)(bits >> 8);
        chunk[n_chunk++] = (unsigned char)bits;
        if (n_chunk == sizeof chunk) {
            dgemma_status st = append(out, chunk, n_chunk);
            if (st)
                return st;
            n_chunk = 0;
        }
    }
    size_t left = n_digit % 4;
    if (left == 1 || n_pad > 2 || (n_pad && (left + n_pad) % 4))
        return DGEMMA_E_ARG;
    if (left >= 2)
        chunk[n_chunk++] = (unsigned char)(bits >> (left == 2 ? 4 : 10));
    if (left == 3)
        chunk[n_chunk++] = (unsigned char)(bits >> 2);
    return append(out, chunk, n_chunk);
}

bool dg_base64_encode(dg_buf *out, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (n > 2 ? (uint32_t)bytes[i + 2] : 0);
        char text[4];
        for (size_t d = 0; d < 4; d++)
            text[d] = d <= n ? digits[bits >> (18 - 6 * d) & 63] : '=';
        if (!dg_buf_append(out, text, sizeof text))
            return false;
    }
    return true;
}
