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

/* jansson (2.14) does not look whether there was memory for the buffer of a token to grow, to a
 * power of two, and where the byte that is lost then ends a string it reads on past the buffer:
 * that growth never fails here. */
static void *malloc_for_jansson(size_t bytes)
{
    const bool grows = bytes >= 32 && (bytes & (bytes - 1)) == 0;
    return grows ? __real_malloc(bytes) : __wrap_malloc(bytes);
}

void dg_test_fail_alloc_at(long n)
{
    /* jansson is a shared library, out of the linker's reach; it can be told. */
    json_set_alloc_funcs(malloc_for_jansson, free);
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
