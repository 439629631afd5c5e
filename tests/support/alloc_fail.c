#include "support/alloc_fail.h"
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The linker sends our calls to __wrap_X and leaves the library's own as __real_X (-Wl,--wrap). */
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);

static atomic_long chosen; /* 0: none */
static atomic_long seen;

static bool fails(void)
{
    long n = atomic_load(&chosen);
    return n && atomic_fetch_add(&seen, 1) + 1 == n;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return fails() ? NULL : __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void dg_test_fail_alloc_at(long n)
{
    /* jansson is a shared library, out of the linker's reach; it can be told. */
    json_set_alloc_funcs(__wrap_malloc, free);
    atomic_store(&seen, 0);
    atomic_store(&chosen, n);
}

bool dg_test_alloc_done(void)
{
    long n = atomic_exchange(&chosen, 0);
    return n && atomic_load(&seen) >= n;
}

long dg_test_alloc_count(void)
{
    return atomic_load(&seen);
}
