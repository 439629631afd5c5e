#include "base/alloc.h"
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* From here on memory begins with a huge page: of less, small models want little and want it soon.
 */
static const size_t LARGE = (size_t)16 * DG_HUGE_PAGE;

void *dg_malloc_aligned(size_t bytes)
{
    const size_t unit = bytes < LARGE ? 64 : DG_HUGE_PAGE;
    if (bytes > SIZE_MAX - unit)
        return NULL;
    void *p = aligned_alloc(unit, (bytes + unit - 1) / unit * unit + (bytes ? 0 : unit));
    if (p && bytes >= LARGE)
        dg_prefer_huge_pages(p, bytes);
    return p;
}

void dg_prefer_huge_pages(void *p, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t first = ((uintptr_t)p + DG_HUGE_PAGE - 1) / DG_HUGE_PAGE * DG_HUGE_PAGE,
                    end = ((uintptr_t)p + bytes) / DG_HUGE_PAGE * DG_HUGE_PAGE;
    if (first < end)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
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

void dg_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
