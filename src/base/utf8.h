/* UTF-8 by the standard: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef DG_BASE_UTF8_H
#define DG_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes (1 to 4) of the well-formed character at s, its code point in *out (may be NULL);
 * 0 when the bytes there are not one: malformed, or cut off by the end. n >= 1. */
size_t dg_utf8_decode(const char *s, size_t n, uint32_t *out);

/* How many bytes at the end of s are the beginning of a character that could still be completed (0
 * to 3). */
size_t dg_utf8_partial(const char *s, size_t n);

/* Writes code point c, 1 to 4 bytes; returns the count. */
size_t dg_utf8_encode(char out[4], uint32_t c);

bool dg_utf8_valid(const char *s, size_t n);

#endif
