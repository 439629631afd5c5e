/* Keys and values of encoded tokens, in pages that are made as sequences grow. Sliding layers
 * forget: pages that lie wholly behind the window go back to the pool. Written only by the
 * backend's kv_write stage; the canvas never enters.
 *
 * One thread. */
#ifndef DG_MODEL_KV_CACHE_H
#define DG_MODEL_KV_CACHE_H

#include "backend/backend.h"
#include "model/config.h"

typedef struct dg_kv_cache dg_kv_cache;

/* What one sequence holds. The struct is the caller's; its pages belong to the cache. */
typedef struct dg_kv_seq {
    int n_token; /* encoded so far: the position of the next one */
    struct {
        void **page;  /* [cap]; NULL where nothing is kept */
        int first, n; /* pages [first, n) are there */
        int cap;
    } table[DG_KV_GROUPS];
} dg_kv_seq;

/* `type` is how K and V are stored. max_bytes bounds all pages together; 0: no bound. */
dgemma_status dg_kv_cache_create(dg_kv_cache **out, const dg_config *cfg, dg_backend *be,
                                 dg_dtype type, size_t max_bytes, dgemma_error *err);
void dg_kv_cache_free(dg_kv_cache *c); /* after every sequence was cleared */

const dg_kv_layout *dg_kv_layout_of(const dg_kv_cache *c, int layer);

void dg_kv_seq_clear(dg_kv_cache *c,
                     dg_kv_seq *seq); /* gives the pages back; a {0} sequence is empty */

/* Makes pages for positions [seq->n_token, seq->n_token + n). On failure the sequence is as it was.
 */
dgemma_status dg_kv_reserve(dg_kv_cache *c, dg_kv_seq *seq, int n, dgemma_error *err);

/* n more tokens are encoded; forgets what no later token can see. */
void dg_kv_advance(dg_kv_cache *c, dg_kv_seq *seq, int n);

/* Bytes of all pages in use, and what a sequence of n tokens takes at most while it grows by `step`
 * at a time. */
size_t dg_kv_bytes_used(const dg_kv_cache *c);
size_t dg_kv_bytes_for(const dg_kv_cache *c, int n_token, int step);

#endif
