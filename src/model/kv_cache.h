/* Keys and values of encoded tokens, in pages that are made as sequences grow. Sliding layers
 * forget: pages that lie wholly behind the window go back to the pool. Written only by the
 * backend's kv_write stage; the canvas never enters.
 *
 * Sequences may share pages. Tokens are only ever appended, so whole pages never change again, and
 * of a page that is filled in part each holder looks at the slots it knows of: whoever filled it
 * goes on filling it. A sequence that came to the page by dg_kv_share gets a copy before it writes.
 *
 * One thread. */
#ifndef DG_MODEL_KV_CACHE_H
#define DG_MODEL_KV_CACHE_H

#include "backend/backend.h"
#include "model/config.h"

typedef struct dg_kv_cache dg_kv_cache;

/* What one sequence holds. The struct is the caller's; its pages belong to the cache. */
typedef struct dg_kv_seq {
    int n_token;      /* encoded so far: the position of the next one */
    bool kept;        /* it does not run: what it holds alone is not "used" (dg_kv_bytes_used) */
    bool shared_tail; /* the page of the next token is filled in part, by somebody else */
    struct {
        int32_t *page; /* [cap] numbers of pages; DG_NO_PAGE where nothing is kept */
        int first, n;  /* pages [first, n) are there */
        int cap;
    } table[DG_KV_GROUPS];
} dg_kv_seq;

/* `type` is how K and V are stored. max_bytes bounds all pages together; 0: no bound. */
dgemma_status dg_kv_cache_create(dg_kv_cache **out, const dg_config *cfg, dg_backend *be,
                                 dg_dtype type, size_t max_bytes, dgemma_error *err);
void dg_kv_cache_free(dg_kv_cache *c); /* after every sequence was cleared */

/* Sets another bound and finds the room for it. While pages are held it can only come down. */
dgemma_status dg_kv_cache_limit(dg_kv_cache *c, size_t max_bytes, dgemma_error *err);

/* How the layers lie in a page, and where the pages are: NULL before the first one was made. */
const dg_kv_config *dg_kv_config_of(const dg_kv_cache *c);
dg_kv_store *dg_kv_store_of(const dg_kv_cache *c);

void dg_kv_seq_clear(dg_kv_cache *c,
                     dg_kv_seq *seq); /* gives the pages back; a {0} sequence is empty */

/* Forgets what no later token can see, and makes pages for positions [seq->n_token, seq->n_token +
 * n). On failure no page was made. */
dgemma_status dg_kv_reserve(dg_kv_cache *c, dg_kv_seq *seq, int n, dgemma_error *err);

/* Drops the pages that no later token can see; dg_kv_reserve does it too. */
void dg_kv_forget(dg_kv_cache *c, dg_kv_seq *seq);

/* Bytes of the pages that dg_kv_reserve would take from what is left. */
size_t dg_kv_bytes_missing(const dg_kv_cache *c, const dg_kv_seq *seq, int n);

/* n more tokens are encoded. What they could see stays until the next dg_kv_reserve. */
void dg_kv_advance(dg_kv_seq *seq, int n);

/* *to, which is empty, becomes the first n_token tokens of *from, in the same pages. The pages in
 * the window of token n_token must still be there: not later than the dg_kv_advance that passed it.
 */
dgemma_status dg_kv_share(dg_kv_cache *c, dg_kv_seq *to, const dg_kv_seq *from, int n_token,
                          dgemma_error *err);

/* Pages [*first, *end) of a group are what a sequence of n_token tokens holds when it has forgotten
 * all that no later token can see; none where no layer is of that kind. */
void dg_kv_span(const dg_kv_cache *c, dg_kv_group g, int n_token, int *first, int *end);

/* *seq, which is empty, becomes a sequence of n_token tokens out of the pages of its spans: those
 * that page[g][0 …] names, or new ones in place of DG_NO_PAGE, whose numbers are put there and
 * whose content is yet to come (dg_kv_page_load). On failure it stays empty, and page[] is worth
 * nothing.
 */
dgemma_status dg_kv_restore(dg_kv_cache *c, dg_kv_seq *seq, int n_token,
                            int32_t *const page[DG_KV_GROUPS], dgemma_error *err);

/* What is in a page, dg_kv_page_size() bytes as the backend has them. */
size_t dg_kv_page_size(const dg_kv_cache *c, dg_kv_group g);
void dg_kv_page_save(const dg_kv_cache *c, dg_kv_group g, int32_t page, void *out);
void dg_kv_page_load(dg_kv_cache *c, dg_kv_group g, int32_t page, const void *from);

/* Whether pages can be relied on: what went wrong with the device, if anything did. */
dgemma_status dg_kv_check(const dg_kv_cache *c, dgemma_error *err);

/* Bytes of pages: of all that are held, of those that running sequences hold, of what one holds,
 * and what may still be taken (without a bound: SIZE_MAX). */
size_t dg_kv_bytes_held(const dg_kv_cache *c);
size_t dg_kv_bytes_used(const dg_kv_cache *c);
size_t dg_kv_seq_bytes(const dg_kv_cache *c, const dg_kv_seq *seq);
size_t dg_kv_bytes_left(const dg_kv_cache *c);

/* What a sequence of n tokens takes at most while it grows by `step` at a time. */
size_t dg_kv_bytes_for(const dg_kv_cache *c, int n_token, int step);

#endif
