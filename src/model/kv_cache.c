#include "model/kv_cache.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Pages that were given back, chained through a list of their own: a page is the backend's memory,
 * which the host may not be able to write to. */
typedef struct page_pool {
    size_t page_bytes;
    void **idle;
    int n_idle, n_all; /* n_all: idle and in use; idle[] has room for all of them */
} page_pool;

struct dg_kv_cache {
    dg_backend *be;
    size_t max_bytes;
    int window; /* of the sliding layers */
    page_pool pool[DG_KV_GROUPS];
    int n_layer;
    dg_kv_layout layout[DG_MAX_LAYER];
};

dgemma_status dg_kv_cache_create(dg_kv_cache **out, const dg_config *cfg, dg_backend *be,
                                 dg_dtype type, size_t max_bytes, dgemma_error *err)
{
    dg_kv_cache *c = dg_calloc(1, sizeof *c);
    if (!c)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    c->be = be;
    c->max_bytes = max_bytes;
    c->n_layer = cfg->n_layer;
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *lc = &cfg->layer[i];
        dg_kv_group g = lc->sliding ? DG_KV_SLIDING : DG_KV_GLOBAL;
        c->layout[i] = (dg_kv_layout){type, g, lc->n_kv_head, lc->head_dim, c->pool[g].page_bytes};
        c->pool[g].page_bytes += dg_kv_layer_bytes(&c->layout[i]);
        if (lc->sliding)
            c->window = dg_max(c->window, lc->window);
    }
    *out = c;
    return DGEMMA_OK;
}

void dg_kv_cache_free(dg_kv_cache *c)
{
    if (!c)
        return;
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        for (int i = 0; i < c->pool[g].n_idle; i++)
            c->be->free(c->be, c->pool[g].idle[i]);
        dg_free(c->pool[g].idle);
    }
    dg_free(c);
}

const dg_kv_layout *dg_kv_layout_of(const dg_kv_cache *c, int layer)
{
    return &c->layout[layer];
}

size_t dg_kv_bytes_used(const dg_kv_cache *c)
{
    size_t bytes = 0;
    for (int g = 0; g < DG_KV_GROUPS; g++)
        bytes += (size_t)(c->pool[g].n_all - c->pool[g].n_idle) * c->pool[g].page_bytes;
    return bytes;
}

size_t dg_kv_bytes_for(const dg_kv_cache *c, int n_token, int step)
{
    size_t global = (size_t)dg_ceil_div(n_token, DG_PAGE);
    /* the window, the tokens being added, and a page cut at each end */
    size_t sliding = (size_t)(dg_ceil_div(c->window + step, DG_PAGE) + 1);
    sliding = sliding < global ? sliding : global;
    return global * c->pool[DG_KV_GLOBAL].page_bytes + sliding * c->pool[DG_KV_SLIDING].page_bytes;
}

/* ---- pages ---- */

static void *page_take(dg_kv_cache *c, dg_kv_group g, dgemma_error *err)
{
    page_pool *p = &c->pool[g];
    if (p->n_idle)
        return p->idle[--p->n_idle];
    if (c->max_bytes && p->page_bytes > c->max_bytes - dg_kv_bytes_used(c)) {
        dg_fail(err, DGEMMA_E_LIMIT, "the key/value cache is full (%zu MiB)", c->max_bytes >> 20);
        return NULL;
    }
    void **idle = dg_array_resize(p->idle, (size_t)p->n_all + 1, sizeof *idle);
    if (idle)
        p->idle = idle;
    void *page = idle ? c->be->alloc(c->be, p->page_bytes) : NULL;
    if (!page) {
        dg_fail(err, DGEMMA_E_NOMEM, "no memory for another %zu KiB of keys and values",
                p->page_bytes >> 10);
        return NULL;
    }
    p->n_all++;
    return page;
}

static void page_give(dg_kv_cache *c, dg_kv_group g, void *page)
{
    if (page)
        c->pool[g].idle[c->pool[g].n_idle++] = page;
}

/* ---- sequences ---- */

void dg_kv_seq_clear(dg_kv_cache *c, dg_kv_seq *seq)
{
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        for (int i = seq->table[g].first; i < seq->table[g].n; i++)
            page_give(c, g, seq->table[g].page[i]);
        dg_free(seq->table[g].page);
    }
    *seq = (dg_kv_seq){0};
}

/* Makes table g hold pages up to `end`. */
static dgemma_status grow(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int end, dgemma_error *err)
{
    if (end > seq->table[g].cap) {
        int cap = dg_max(end, 2 * seq->table[g].cap);
        void **page = dg_array_resize(seq->table[g].page, (size_t)cap, sizeof *page);
        if (!page)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        memset(page + seq->table[g].cap, 0, (size_t)(cap - seq->table[g].cap) * sizeof *page);
        seq->table[g].page = page;
        seq->table[g].cap = cap;
    }
    while (seq->table[g].n < end) {
        void *page = page_take(c, g, err);
        if (!page)
            return err ? err->status : DGEMMA_E_NOMEM;
        seq->table[g].page[seq->table[g].n++] = page;
    }
    return DGEMMA_OK;
}

static void shrink(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int end)
{
    while (seq->table[g].n > end) {
        void **slot = &seq->table[g].page[--seq->table[g].n];
        page_give(c, g, *slot);
        *slot = NULL;
    }
}

dgemma_status dg_kv_reserve(dg_kv_cache *c, dg_kv_seq *seq, int n, dgemma_error *err)
{
    dgemma_error local;
    if (!err)
        err = &local;
    int before[DG_KV_GROUPS];
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        before[g] = seq->table[g].n;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        if (!c->pool[g].page_bytes)
            continue; /* no layer of this kind */
        dgemma_status st = grow(c, seq, g, dg_ceil_div(seq->n_token + n, DG_PAGE), err);
        if (st) {
            for (dg_kv_group h = 0; h < DG_KV_GROUPS; h++)
                shrink(c, seq, h, before[h]);
            return st;
        }
    }
    return DGEMMA_OK;
}

void dg_kv_advance(dg_kv_cache *c, dg_kv_seq *seq, int n)
{
    seq->n_token += n;
    /* the next token's window starts here; a canvas's does too */
    int oldest = dg_max(0, seq->n_token - c->window + 1) / DG_PAGE;
    while (c->window &&
           seq->table[DG_KV_SLIDING].first < dg_min(oldest, seq->table[DG_KV_SLIDING].n)) {
        void **slot = &seq->table[DG_KV_SLIDING].page[seq->table[DG_KV_SLIDING].first++];
        page_give(c, DG_KV_SLIDING, *slot);
        *slot = NULL;
    }
}
