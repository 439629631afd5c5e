#include "model/kv_cache.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Beside the page itself, which is the backend's memory. */
typedef struct kv_page {
    int n_running, n_kept; /* sequences that hold it */
    int32_t next;          /* in the list that it is in */
} kv_page;

typedef struct page_pool {
    size_t page_bytes;
    int n_max;                 /* pages that the store has */
    kv_page *page;             /* [n_made] */
    int n_made;                /* numbers below were used once */
    int32_t idle;              /* list of pages with memory that nobody holds */
    int32_t bare;              /* list of pages whose memory was given back */
    int n_all, n_idle, n_used; /* pages with memory; used: held by a running sequence */
} page_pool;

struct dg_kv_cache {
    dg_backend *be;
    size_t max_bytes;
    int window; /* of the sliding layers */
    page_pool pool[DG_KV_GROUPS];
    dg_kv_store *store;
    dg_kv_config cfg;
    dg_kv_layer layer[DG_MAX_LAYER];
};

dgemma_status dg_kv_cache_create(dg_kv_cache **out, const dg_config *cfg, dg_backend *be,
                                 dg_dtype type, size_t max_bytes, dgemma_error *err)
{
    dg_kv_cache *c = dg_calloc(1, sizeof *c);
    if (!c)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    c->be = be;
    c->max_bytes = max_bytes;
    c->cfg = (dg_kv_config){type, cfg->n_layer, c->layer};
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *lc = &cfg->layer[i];
        dg_kv_group g = lc->sliding ? DG_KV_SLIDING : DG_KV_GLOBAL;
        c->layer[i] = (dg_kv_layer){g, lc->n_kv_head, lc->head_dim};
        if (lc->sliding)
            c->window = dg_max(c->window, lc->window);
    }
    size_t bytes[DG_KV_GROUPS];
    dg_kv_page_bytes(bytes, &c->cfg);
    for (int g = 0; g < DG_KV_GROUPS; g++)
        c->pool[g] = (page_pool){.page_bytes = bytes[g], .idle = DG_NO_PAGE, .bare = DG_NO_PAGE};
    *out = c;
    return DGEMMA_OK;
}

/* Gives the memory of one idle page back to the backend. */
static void page_free(dg_kv_cache *c, dg_kv_group g)
{
    page_pool *p = &c->pool[g];
    int32_t i = p->idle;
    p->idle = p->page[i].next;
    p->page[i].next = p->bare;
    p->bare = i;
    p->n_idle--;
    p->n_all--;
    c->be->kv_give(c->be, c->store, g, i);
}

static void close_store(dg_kv_cache *c)
{
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        page_pool *p = &c->pool[g];
        while (p->idle != DG_NO_PAGE)
            page_free(c, g);
        dg_free(p->page);
        *p = (page_pool){.page_bytes = p->page_bytes, .idle = DG_NO_PAGE, .bare = DG_NO_PAGE};
    }
    c->be->kv_close(c->be, c->store);
    c->store = NULL;
}

static dgemma_status open_store(dg_kv_cache *c, dgemma_error *err)
{
    int n_page[DG_KV_GROUPS] = {0};
    if (c->store)
        return DGEMMA_OK;
    dgemma_status st = c->be->kv_open(c->be, &c->store, &c->cfg, c->max_bytes, n_page, err);
    for (int g = 0; !st && g < DG_KV_GROUPS; g++)
        c->pool[g].n_max = n_page[g];
    return st;
}

void dg_kv_cache_free(dg_kv_cache *c)
{
    if (!c)
        return;
    close_store(c);
    dg_free(c);
}

dgemma_status dg_kv_cache_limit(dg_kv_cache *c, size_t max_bytes, dgemma_error *err)
{
    bool held = dg_kv_bytes_held(c) > 0;
    if (held && c->max_bytes && (!max_bytes || max_bytes > c->max_bytes))
        return dg_fail(err, DGEMMA_E_ARG, "a key/value cache that is in use cannot grow");
    c->max_bytes = max_bytes;
    if (held)
        return DGEMMA_OK;
    close_store(c);
    return open_store(c, err);
}

const dg_kv_config *dg_kv_config_of(const dg_kv_cache *c)
{
    return &c->cfg;
}

dg_kv_store *dg_kv_store_of(const dg_kv_cache *c)
{
    return c->store;
}

/* ---- bytes ---- */

size_t dg_kv_bytes_held(const dg_kv_cache *c)
{
    size_t bytes = 0;
    for (int g = 0; g < DG_KV_GROUPS; g++)
        bytes += (size_t)(c->pool[g].n_all - c->pool[g].n_idle) * c->pool[g].page_bytes;
    return bytes;
}

size_t dg_kv_bytes_used(const dg_kv_cache *c)
{
    size_t bytes = 0;
    for (int g = 0; g < DG_KV_GROUPS; g++)
        bytes += (size_t)c->pool[g].n_used * c->pool[g].page_bytes;
    return bytes;
}

size_t dg_kv_seq_bytes(const dg_kv_cache *c, const dg_kv_seq *seq)
{
    size_t bytes = 0;
    for (int g = 0; g < DG_KV_GROUPS; g++)
        bytes += (size_t)(seq->table[g].n - seq->table[g].first) * c->pool[g].page_bytes;
    return bytes;
}

size_t dg_kv_bytes_left(const dg_kv_cache *c)
{
    size_t held = dg_kv_bytes_held(c);
    if (!c->max_bytes)
        return SIZE_MAX;
    return held < c->max_bytes ? c->max_bytes - held : 0;
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

/* Idle pages of the other kind are given up before all together would be more than max_bytes. */
static bool room_for_page(dg_kv_cache *c, dg_kv_group g)
{
    size_t bytes = 0;
    if (!c->max_bytes)
        return true;
    if (dg_kv_bytes_left(c) < c->pool[g].page_bytes)
        return false;
    for (int h = 0; h < DG_KV_GROUPS; h++)
        bytes += (size_t)c->pool[h].n_all * c->pool[h].page_bytes;
    for (dg_kv_group h = 0; h < DG_KV_GROUPS; h++)
        while (bytes + c->pool[g].page_bytes > c->max_bytes && c->pool[h].idle != DG_NO_PAGE) {
            bytes -= c->pool[h].page_bytes;
            page_free(c, h);
        }
    return true;
}

/* A number that has no memory yet, or DG_NO_PAGE. */
static int32_t bare_page(page_pool *p)
{
    int32_t i = p->bare;
    if (i != DG_NO_PAGE) {
        p->bare = p->page[i].next;
        return i;
    }
    if (p->n_made >= p->n_max)
        return DG_NO_PAGE;
    if (p->n_made % 64 == 0) {
        kv_page *page = dg_array_resize(p->page, (size_t)p->n_made + 64, sizeof *page);
        if (!page)
            return DG_NO_PAGE;
        p->page = page;
    }
    return p->n_made++;
}

static int32_t page_take(dg_kv_cache *c, dg_kv_group g, dgemma_error *err)
{
    page_pool *p = &c->pool[g];
    int32_t i = p->idle;
    if (i != DG_NO_PAGE) {
        p->idle = p->page[i].next;
        p->n_idle--;
        p->page[i] = (kv_page){.next = DG_NO_PAGE};
        return i;
    }
    if (!room_for_page(c, g)) {
        dg_fail(err, DGEMMA_E_LIMIT, "the key/value cache is full (%zu MiB)", c->max_bytes >> 20);
        return DG_NO_PAGE;
    }
    i = bare_page(p);
    if (i != DG_NO_PAGE && !c->be->kv_take(c->be, c->store, g, i)) {
        p->page[i].next = p->bare;
        p->bare = i;
        i = DG_NO_PAGE;
    }
    if (i == DG_NO_PAGE) {
        dg_fail(err, DGEMMA_E_NOMEM, "no memory for another %zu KiB of keys and values",
                p->page_bytes >> 10);
        return DG_NO_PAGE;
    }
    p->page[i] = (kv_page){.next = DG_NO_PAGE};
    p->n_all++;
    return i;
}

static void page_hold(page_pool *p, int32_t i, bool kept)
{
    if (kept)
        p->page[i].n_kept++;
    else if (p->page[i].n_running++ == 0)
        p->n_used++;
}

static void page_drop(page_pool *p, int32_t i, bool kept)
{
    kv_page *page = &p->page[i];
    if (kept)
        page->n_kept--;
    else if (--page->n_running == 0)
        p->n_used--;
    assert(page->n_kept >= 0 && page->n_running >= 0);
    if (page->n_kept || page->n_running)
        return;
    page->next = p->idle;
    p->idle = i;
    p->n_idle++;
}

/* ---- sequences ---- */

static void put_page(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int i, int32_t page)
{
    page_hold(&c->pool[g], page, seq->kept);
    seq->table[g].page[i] = page;
}

static void drop_page(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int i)
{
    page_drop(&c->pool[g], seq->table[g].page[i], seq->kept);
    seq->table[g].page[i] = DG_NO_PAGE;
}

void dg_kv_seq_clear(dg_kv_cache *c, dg_kv_seq *seq)
{
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        for (int i = seq->table[g].first; i < seq->table[g].n; i++)
            drop_page(c, seq, g, i);
        dg_free(seq->table[g].page);
    }
    *seq = (dg_kv_seq){0};
}

/* Room in table g for pages up to `end`. */
static dgemma_status widen(dg_kv_seq *seq, dg_kv_group g, int end, dgemma_error *err)
{
    int old = seq->table[g].cap, cap = dg_max(end, 2 * old);
    if (end <= old)
        return DGEMMA_OK;
    int32_t *page = dg_array_resize(seq->table[g].page, (size_t)cap, sizeof *page);
    if (!page)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = old; i < cap; i++)
        page[i] = DG_NO_PAGE;
    seq->table[g].page = page;
    seq->table[g].cap = cap;
    return DGEMMA_OK;
}

/* Makes table g hold pages up to `end`. */
static dgemma_status grow(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int end, dgemma_error *err)
{
    dgemma_status st = widen(seq, g, end, err);
    while (!st && seq->table[g].n < end) {
        int32_t page = page_take(c, g, err);
        if (page == DG_NO_PAGE)
            return err->status;
        put_page(c, seq, g, seq->table[g].n++, page);
    }
    return st;
}

static void shrink(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, int end)
{
    while (seq->table[g].n > end)
        drop_page(c, seq, g, --seq->table[g].n);
}

/* The first page that a token at position n, or a canvas that starts there, can see. */
static int oldest_page(const dg_kv_cache *c, dg_kv_group g, int n)
{
    return g == DG_KV_SLIDING ? dg_max(0, n - c->window + 1) / DG_PAGE : 0;
}

void dg_kv_forget(dg_kv_cache *c, dg_kv_seq *seq)
{
    int oldest = oldest_page(c, DG_KV_SLIDING, seq->n_token);
    while (seq->table[DG_KV_SLIDING].first < dg_min(oldest, seq->table[DG_KV_SLIDING].n))
        drop_page(c, seq, DG_KV_SLIDING, seq->table[DG_KV_SLIDING].first++);
}

/* The page that the next token goes to is somebody else's too: the sequence may not write there. */
static bool needs_copy(const dg_kv_cache *c, const dg_kv_seq *seq, dg_kv_group g)
{
    int i = seq->n_token / DG_PAGE;
    if (!seq->shared_tail || i >= seq->table[g].n)
        return false;
    const kv_page *page = &c->pool[g].page[seq->table[g].page[i]];
    return page->n_running + page->n_kept > 1;
}

static dgemma_status own_tail(dg_kv_cache *c, dg_kv_seq *seq, dg_kv_group g, dgemma_error *err)
{
    int i = seq->n_token / DG_PAGE;
    if (!needs_copy(c, seq, g))
        return DGEMMA_OK;
    int32_t page = page_take(c, g, err);
    if (page == DG_NO_PAGE)
        return err->status;
    c->be->kv_copy(c->be, c->store, g, page, seq->table[g].page[i]);
    drop_page(c, seq, g, i);
    put_page(c, seq, g, i, page);
    return DGEMMA_OK;
}

dgemma_status dg_kv_reserve(dg_kv_cache *c, dg_kv_seq *seq, int n, dgemma_error *err)
{
    dgemma_error local;
    if (!err)
        err = &local;
    dg_kv_forget(c, seq);
    int before[DG_KV_GROUPS];
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        before[g] = seq->table[g].n;
    dgemma_status st = open_store(c, err);
    for (dg_kv_group g = 0; !st && n && g < DG_KV_GROUPS; g++) {
        if (!c->pool[g].page_bytes)
            continue; /* no layer of this kind */
        st = own_tail(c, seq, g, err);
        if (!st)
            st = grow(c, seq, g, dg_ceil_div(seq->n_token + n, DG_PAGE), err);
    }
    for (dg_kv_group g = 0; st && g < DG_KV_GROUPS; g++)
        shrink(c, seq, g, before[g]);
    if (!st && n)
        seq->shared_tail = false;
    return st;
}

size_t dg_kv_bytes_missing(const dg_kv_cache *c, const dg_kv_seq *seq, int n)
{
    size_t bytes = 0;
    for (dg_kv_group g = 0; n && g < DG_KV_GROUPS; g++) {
        int more = dg_max(0, dg_ceil_div(seq->n_token + n, DG_PAGE) - seq->table[g].n);
        bytes += (size_t)(more + needs_copy(c, seq, g)) * c->pool[g].page_bytes;
    }
    return bytes;
}

void dg_kv_advance(dg_kv_seq *seq, int n)
{
    seq->n_token += n;
}

dgemma_status dg_kv_share(dg_kv_cache *c, dg_kv_seq *to, const dg_kv_seq *from, int n_token,
                          dgemma_error *err)
{
    assert(!to->n_token && n_token <= from->n_token);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        if (!c->pool[g].page_bytes)
            continue;
        int first = oldest_page(c, g, n_token), end = dg_ceil_div(n_token, DG_PAGE);
        assert(first >= from->table[g].first && end <= from->table[g].n);
        dgemma_status st = widen(to, g, end, err);
        if (st) {
            dg_kv_seq_clear(c, to);
            return st;
        }
        for (int i = first; i < end; i++)
            put_page(c, to, g, i, from->table[g].page[i]);
        to->table[g].first = first;
        to->table[g].n = end;
    }
    to->n_token = n_token;
    to->shared_tail = n_token % DG_PAGE != 0;
    return DGEMMA_OK;
}

/* ---- sequences from elsewhere ---- */

void dg_kv_span(const dg_kv_cache *c, dg_kv_group g, int n_token, int *first, int *end)
{
    *end = c->pool[g].page_bytes ? dg_ceil_div(n_token, DG_PAGE) : 0;
    *first = dg_min(oldest_page(c, g, n_token), *end);
}

dgemma_status dg_kv_restore(dg_kv_cache *c, dg_kv_seq *seq, int n_token,
                            int32_t *const page[DG_KV_GROUPS], dgemma_error *err)
{
    assert(!seq->n_token);
    dgemma_status st = open_store(c, err);
    for (dg_kv_group g = 0; !st && g < DG_KV_GROUPS; g++) {
        int first, end;
        dg_kv_span(c, g, n_token, &first, &end);
        st = widen(seq, g, end, err);
        seq->table[g].first = seq->table[g].n = st ? 0 : first;
        for (int i = first; !st && i < end; i++) {
            int32_t *at = &page[g][i - first];
            if (*at == DG_NO_PAGE)
                *at = page_take(c, g, err);
            if (*at == DG_NO_PAGE)
                st = err->status;
            else
                put_page(c, seq, g, seq->table[g].n++, *at);
        }
    }
    if (st) {
        const bool kept = seq->kept;
        dg_kv_seq_clear(c, seq);
        seq->kept = kept;
        return st;
    }
    seq->n_token = n_token;
    seq->shared_tail = n_token % DG_PAGE != 0;
    return DGEMMA_OK;
}

size_t dg_kv_page_size(const dg_kv_cache *c, dg_kv_group g)
{
    return c->pool[g].page_bytes;
}

void dg_kv_page_save(const dg_kv_cache *c, dg_kv_group g, int32_t page, void *out)
{
    c->be->kv_save(c->be, c->store, g, page, out);
}

void dg_kv_page_load(dg_kv_cache *c, dg_kv_group g, int32_t page, const void *from)
{
    c->be->kv_load(c->be, c->store, g, page, from);
}

dgemma_status dg_kv_check(const dg_kv_cache *c, dgemma_error *err)
{
    return c->be->check ? c->be->check(c->be, err) : DGEMMA_OK;
}
