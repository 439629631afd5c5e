/* Every unit test gives back what it took: a block that is still there when it ends, or one that
 * was given back twice, fails it, in every build and without a sanitizer. Counted are the blocks
 * of base/alloc.h. Nobody calls this file: the linker puts it in the way (-Wl,--wrap). */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "base/alloc.h"

/* The linker sends calls from other files to __wrap_X (-Wl,--wrap). */
void *__wrap_dg_malloc(size_t bytes);
void *__wrap_dg_calloc(size_t n, size_t size);
void *__wrap_dg_array(size_t n, size_t size);
void *__wrap_dg_array_resize(void *p, size_t n, size_t size);
void *__wrap_dg_malloc_aligned(size_t bytes);
char *__wrap_dg_strdup(const char *s);
char *__wrap_dg_strndup(const char *s, size_t n);
void __wrap_dg_free(void *p);
TCase *__wrap_tcase_create(const char *name);
void *__real_dg_malloc(size_t bytes);
void *__real_dg_calloc(size_t n, size_t size);
void *__real_dg_array(size_t n, size_t size);
void *__real_dg_array_resize(void *p, size_t n, size_t size);
void *__real_dg_malloc_aligned(size_t bytes);
char *__real_dg_strdup(const char *s);
char *__real_dg_strndup(const char *s, size_t n);
void __real_dg_free(void *p);
TCase *__real_tcase_create(const char *name);

static atomic_long n_block, n_before;

static void *counted(void *p)
{
    atomic_fetch_add(&n_block, p != NULL);
    return p;
}

void *__wrap_dg_malloc(size_t bytes)
{
    return counted(__real_dg_malloc(bytes));
}

void *__wrap_dg_calloc(size_t n, size_t size)
{
    return counted(__real_dg_calloc(n, size));
}

void *__wrap_dg_array(size_t n, size_t size)
{
    return counted(__real_dg_array(n, size));
}

void *__wrap_dg_array_resize(void *p, size_t n, size_t size)
{
    void *bigger = __real_dg_array_resize(p, n, size);
    return p ? bigger : counted(bigger);
}

void *__wrap_dg_malloc_aligned(size_t bytes)
{
    return counted(__real_dg_malloc_aligned(bytes));
}

char *__wrap_dg_strdup(const char *s)
{
    return counted(__real_dg_strdup(s));
}

char *__wrap_dg_strndup(const char *s, size_t n)
{
    return counted(__real_dg_strndup(s, n));
}

void __wrap_dg_free(void *p)
{
    atomic_fetch_sub(&n_block, p != NULL);
    __real_dg_free(p);
}

/* ---- around every test ---- */

static void begin(void)
{
    atomic_store(&n_before, atomic_load(&n_block));
}

static void end(void)
{
    long more = atomic_load(&n_block) - atomic_load(&n_before);
    ck_assert_msg(more == 0, "%ld blocks of memory are %s than before the test", labs(more),
                  more > 0 ? "more" : "fewer");
}

TCase *__wrap_tcase_create(const char *name)
{
    TCase *t = __real_tcase_create(name);
    tcase_add_checked_fixture(t, begin, end); /* the first to begin and the last to end */
    return t;
}
