#include "base/arena.h"
#include "base/alloc.h"

bool dg_arena_init(dg_arena *a, size_t cap)
{
    *a = (dg_arena){.base = dg_malloc_aligned(cap)};
    a->cap = a->base ? cap : 0;
    return a->base != NULL;
}

void dg_arena_clear(dg_arena *a)
{
    dg_free(a->base);
    *a = (dg_arena){0};
}

void *dg_arena_take(dg_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (!dg_size_mul(&bytes, n, size) || bytes > a->cap - a->used)
        return NULL;
    void *p = a->base + a->used;
    size_t rounded = (bytes + 63) / 64 * 64;
    a->used = rounded > a->cap - a->used ? a->cap : a->used + rounded;
    return p;
}
