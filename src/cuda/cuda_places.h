/* Where pages lie: both groups share one slab, so that memory serves whichever is needed.
 *
 * The slab is a row of chunks, each as large as a page of the group with the larger pages ("big").
 * A chunk holds one big page, or as many small ones as fit. When no chunk is free for a big page
 * although there is room, small pages of the emptiest chunk move into gaps of others: where a page
 * lies is known here alone, and page tables are translated when a pass begins. */
#ifndef DG_CUDA_CUDA_PLACES_H
#define DG_CUDA_CUDA_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/backend.h"

enum { DG_CUDA_PLACE = 256 }; /* bytes: pages begin at multiples of it */

typedef struct dg_cuda_places {
    dg_kv_group big;
    size_t page_bytes[DG_KV_GROUPS], chunk_bytes;
    int n_page[DG_KV_GROUPS];  /* numbers below are pages */
    int n_chunk, per_chunk;    /* small pages of a chunk */
    int *n_small;              /* [n_chunk] of them that are there; -1: a big page */
    int32_t *owner;            /* [n_chunk][per_chunk] small page, or -1 */
    int32_t *at[DG_KV_GROUPS]; /* [n_page] place of a page: big: chunk; small: chunk * per_chunk +
                                  gap; -1: none */
} dg_cuda_places;

/* Moves a page of `bytes` from one offset in the slab to another. */
typedef void dg_cuda_move_fn(void *arg, size_t to, size_t from, size_t bytes);

/* Room for any mixture of pages that has at most `bytes` together. */
bool dg_cuda_places_init(dg_cuda_places *p, const size_t page_bytes[DG_KV_GROUPS], size_t bytes);
void dg_cuda_places_clear(dg_cuda_places *p);
size_t dg_cuda_places_bytes(const dg_cuda_places *p); /* of the slab */

/* false: the slab is full. */
bool dg_cuda_place_take(dg_cuda_places *p, dg_kv_group g, int32_t page, dg_cuda_move_fn *move,
                        void *arg);
void dg_cuda_place_give(dg_cuda_places *p, dg_kv_group g, int32_t page);

/* Bytes from the slab's begin. */
size_t dg_cuda_place_of(const dg_cuda_places *p, dg_kv_group g, int32_t page);

#endif
