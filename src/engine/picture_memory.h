/* How many bytes of pictures there may be in prompts at a time, of requests that wait or run and of
 * prompts that somebody keeps. Taken before a picture is scaled, given back with its prompt, so
 * that a small file cannot become more memory than was set aside for all. Any thread. */
#ifndef DG_ENGINE_PICTURE_MEMORY_H
#define DG_ENGINE_PICTURE_MEMORY_H

#include "base/error.h"

/* Lives as long as anybody holds it: a prompt may be freed after its engine. */
typedef struct dg_picture_memory dg_picture_memory;

dgemma_status dg_picture_memory_create(dg_picture_memory **out, size_t max_bytes,
                                       dgemma_error *err);
dg_picture_memory *dg_picture_memory_hold(dg_picture_memory *m); /* returns m */
void dg_picture_memory_release(dg_picture_memory *m);            /* NULL is fine */

/* n bytes for a prompt that has n_own already. DGEMMA_E_LIMIT: it could never have them;
 * DGEMMA_E_NOMEM: others have them now. */
dgemma_status dg_picture_memory_take(dg_picture_memory *m, size_t n, size_t n_own,
                                     dgemma_error *err);
void dg_picture_memory_give(dg_picture_memory *m, size_t n);

size_t dg_picture_memory_used(const dg_picture_memory *m);
size_t dg_picture_memory_total(const dg_picture_memory *m);

#endif
