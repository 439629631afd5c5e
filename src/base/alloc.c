#include "base/alloc.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool dg_size_mul(size_t *out, size_t a, size_t b)
{
    if (b && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool dg_size_add(size_t *out, size_t a, size_t b)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

void *dg_malloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void *dg_calloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1);
}

void *dg_array(size_t n, size_t size)
{
    size_t bytes;
    return dg_size_mul(&bytes, n, size) ? dg_malloc(bytes) : NULL;
}

void *dg_array_resize(void *p, size_t n, size_t size)
{
    size_t bytes;
    return dg_size_mul(&bytes, n, size) ? realloc(p, bytes ? bytes : 1) : NULL;
}

void *dg_malloc_aligned(size_t bytes)
{
    if (bytes > SIZE_MAX - 64)
        return NULL;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes ? 0 : 64));
}

char *dg_strndup(const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? dg_malloc(n + 1) : NULL;
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

char *dg_strdup(const char *s)
{
    return dg_strndup(s, strlen(s));
}

void dg_free(void *p)
{
    free(p);
}
