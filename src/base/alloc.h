/* Memory from the system. Every size that is a product goes through a checked function; the caller
 * owns what is returned and gives it back with dg_free. All return NULL when there is no memory or
 * the size overflows. */
#ifndef DG_BASE_ALLOC_H
#define DG_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *dg_malloc(size_t bytes);
void *dg_calloc(size_t n, size_t size);
void *dg_array(size_t n, size_t size);                 /* uninitialised, n * size checked */
void *dg_array_resize(void *p, size_t n, size_t size); /* p stays valid when NULL is returned */
void *dg_malloc_aligned(
    size_t bytes); /* on a 64-byte boundary; large pieces: dg_prefer_huge_pages */
char *dg_strdup(const char *s);
char *dg_strndup(const char *s, size_t n);
void dg_free(void *p);

/* After much was freed: gives back to the system what the allocator would keep for allocations to
 * come, of which there may be none. */
void dg_give_back(void);

/* Asks the system to back this memory with huge pages, whole ones of it, before it is touched:
 * weights, keys and values are read from end to end, and with small pages the processor's tables of
 * them are too short for that. A hint: where there are none, nothing changes. */
enum { DG_HUGE_PAGE = 2 << 20 };
void dg_prefer_huge_pages(void *p, size_t bytes);

/* *out = a * b (a + b); false on overflow, *out untouched. */
bool dg_size_mul(size_t *out, size_t a, size_t b);
bool dg_size_add(size_t *out, size_t a, size_t b);

#endif
