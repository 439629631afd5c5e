/* One block of memory handed out front to back: what a step needs is planned when the engine opens,
 * so the denoise loop allocates nothing. Objects start on 64-byte boundaries. */
#ifndef DG_BASE_ARENA_H
#define DG_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dg_arena {
    unsigned char *base;
    size_t used, cap;
} dg_arena;

bool dg_arena_init(dg_arena *a, size_t cap); /* false: out of memory */
void dg_arena_clear(dg_arena *a);

/* NULL when the arena is full. */
void *dg_arena_take(dg_arena *a, size_t n, size_t size);

static inline size_t dg_arena_mark(const dg_arena *a)
{
    return a->used;
}

static inline void dg_arena_rewind(dg_arena *a, size_t mark)
{
    a->used = mark;
}

#endif
