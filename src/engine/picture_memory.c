#include "engine/picture_memory.h"
#include <stdatomic.h>
#include "base/alloc.h"

struct dg_picture_memory {
    atomic_int n_holder;
    atomic_size_t used;
    size_t max_bytes;
};

dgemma_status dg_picture_memory_create(dg_picture_memory **out, size_t max_bytes, dgemma_error *err)
{
    dg_picture_memory *m = dg_calloc(1, sizeof *m);
    if (!m)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    atomic_init(&m->n_holder, 1);
    m->max_bytes = max_bytes;
    *out = m;
    return DGEMMA_OK;
}

dg_picture_memory *dg_picture_memory_hold(dg_picture_memory *m)
{
    atomic_fetch_add(&m->n_holder, 1);
    return m;
}

void dg_picture_memory_release(dg_picture_memory *m)
{
    if (m && atomic_fetch_sub(&m->n_holder, 1) == 1)
        dg_free(m);
}

dgemma_status dg_picture_memory_take(dg_picture_memory *m, size_t n, size_t n_own,
                                     dgemma_error *err)
{
    size_t used = atomic_load(&m->used);
    if (n > m->max_bytes || n_own > m->max_bytes - n)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "the pictures of the request take more than the %zu KiB that there are for "
                       "pictures: send fewer, or let them cost fewer tokens",
                       m->max_bytes >> 10);
    do {
        if (n > m->max_bytes - used)
            return dg_fail(err, DGEMMA_E_NOMEM,
                           "pictures of other requests hold %zu of %zu KiB: try again later",
                           (used - n_own) >> 10, m->max_bytes >> 10);
    } while (!atomic_compare_exchange_weak(&m->used, &used, used + n));
    return DGEMMA_OK;
}

void dg_picture_memory_give(dg_picture_memory *m, size_t n)
{
    atomic_fetch_sub(&m->used, n);
}

size_t dg_picture_memory_used(const dg_picture_memory *m)
{
    return atomic_load(&m->used);
}

size_t dg_picture_memory_total(const dg_picture_memory *m)
{
    return m->max_bytes;
}
