#include "cuda/cuda_places.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"

static dg_kv_group small_group(const dg_cuda_places *p)
{
    return p->big == DG_KV_SLIDING ? DG_KV_GLOBAL : DG_KV_SLIDING;
}

static bool make_tables(dg_cuda_places *p)
{
    size_t n = (size_t)p->n_chunk, gaps = n * (size_t)p->per_chunk;
    p->n_small = dg_array(n + 1, sizeof *p->n_small);
    p->owner = dg_array(gaps + 1, sizeof *p->owner);
    if (!p->n_small || !p->owner)
        return false;
    memset(p->n_small, 0, n * sizeof *p->n_small);
    memset(p->owner, 0xFF, gaps * sizeof *p->owner);
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        size_t pages = (size_t)p->n_page[g];
        p->at[g] = dg_array(pages + 1, sizeof *p->at[g]);
        if (!p->at[g])
            return false;
        memset(p->at[g], 0xFF, pages * sizeof *p->at[g]);
    }
    return true;
}

bool dg_cuda_places_init(dg_cuda_places *p, const size_t page_bytes[DG_KV_GROUPS], size_t bytes)
{
    *p = (dg_cuda_places){.big = page_bytes[DG_KV_SLIDING] >= page_bytes[DG_KV_GLOBAL]
                                     ? DG_KV_SLIDING
                                     : DG_KV_GLOBAL};
    size_t large = page_bytes[p->big], little = page_bytes[small_group(p)];
    memcpy(p->page_bytes, page_bytes, sizeof p->page_bytes);
    p->chunk_bytes = large;
    p->per_chunk = little ? (int)(large / little) : 0;
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        size_t n = page_bytes[g] ? bytes / page_bytes[g] : 0;
        p->n_page[g] = n < INT32_MAX / 2 ? (int)n : INT32_MAX / 2;
    }
    /* All small pages, or all big ones, or a mixture with one chunk begun of small ones. */
    int n_chunk = p->n_page[p->big];
    if (p->per_chunk) {
        int for_small = (p->n_page[small_group(p)] + p->per_chunk - 1) / p->per_chunk;
        n_chunk = (n_chunk > for_small ? n_chunk : for_small) + (p->n_page[p->big] > 0);
    }
    p->n_chunk = n_chunk;
    if (make_tables(p))
        return true;
    dg_cuda_places_clear(p);
    return false;
}

void dg_cuda_places_clear(dg_cuda_places *p)
{
    dg_free(p->n_small);
    dg_free(p->owner);
    for (int g = 0; g < DG_KV_GROUPS; g++)
        dg_free(p->at[g]);
    memset(p, 0, sizeof *p);
}

size_t dg_cuda_places_bytes(const dg_cuda_places *p)
{
    return (size_t)p->n_chunk * p->chunk_bytes;
}

size_t dg_cuda_place_of(const dg_cuda_places *p, dg_kv_group g, int32_t page)
{
    int32_t at = p->at[g][page];
    assert(page < p->n_page[g] && at >= 0);
    if (g == p->big)
        return (size_t)at * p->chunk_bytes;
    return (size_t)(at / p->per_chunk) * p->chunk_bytes +
           (size_t)(at % p->per_chunk) * p->page_bytes[g];
}

/* ---- chunks ---- */

/* The fullest chunk of small pages that has a gap, `but` not counted; else a free one if that may
 * be; -1: none. */
static int chunk_with_gap(const dg_cuda_places *p, int but, bool may_be_free)
{
    int best = -1;
    for (int i = 0; i < p->n_chunk; i++)
        if (i != but && p->n_small[i] >= (may_be_free ? 0 : 1) && p->n_small[i] < p->per_chunk &&
            (best < 0 || p->n_small[i] > p->n_small[best]))
            best = i;
    return best;
}

static int free_chunk(const dg_cuda_places *p)
{
    for (int i = 0; i < p->n_chunk; i++)
        if (p->n_small[i] == 0)
            return i;
    return -1;
}

static int emptiest_chunk(const dg_cuda_places *p)
{
    int best = -1;
    for (int i = 0; i < p->n_chunk; i++)
        if (p->n_small[i] > 0 && (best < 0 || p->n_small[i] < p->n_small[best]))
            best = i;
    return best;
}

static void put_small(dg_cuda_places *p, int32_t page, int chunk)
{
    int32_t first = (int32_t)chunk * p->per_chunk, gap = first;
    while (p->owner[gap] >= 0)
        gap++;
    assert(gap < first + p->per_chunk);
    p->owner[gap] = page;
    p->n_small[chunk]++;
    p->at[small_group(p)][page] = gap;
}

/* Moves all pages of the emptiest chunk into gaps of others; false: there are too few. */
static bool empty_chunk(dg_cuda_places *p, dg_cuda_move_fn *move, void *arg)
{
    dg_kv_group g = small_group(p);
    int chunk = emptiest_chunk(p), gaps = 0;
    for (int i = 0; i < p->n_chunk; i++)
        gaps += i != chunk && p->n_small[i] > 0 ? p->per_chunk - p->n_small[i] : 0;
    if (chunk < 0 || gaps < p->n_small[chunk])
        return false;
    for (int i = 0; i < p->per_chunk; i++) {
        int32_t page = p->owner[chunk * p->per_chunk + i];
        if (page < 0)
            continue;
        size_t from = dg_cuda_place_of(p, g, page);
        dg_cuda_place_give(p, g, page);
        put_small(p, page, chunk_with_gap(p, chunk, false));
        move(arg, dg_cuda_place_of(p, g, page), from, p->page_bytes[g]);
    }
    return true;
}

/* ---- pages ---- */

bool dg_cuda_place_take(dg_cuda_places *p, dg_kv_group g, int32_t page, dg_cuda_move_fn *move,
                        void *arg)
{
    if (page >= p->n_page[g])
        return false;
    if (g != p->big) {
        int chunk = chunk_with_gap(p, -1, true);
        if (chunk >= 0)
            put_small(p, page, chunk);
        return chunk >= 0;
    }
    if (free_chunk(p) < 0 && !empty_chunk(p, move, arg))
        return false;
    int chunk = free_chunk(p);
    p->n_small[chunk] = -1;
    p->at[g][page] = chunk;
    return true;
}

void dg_cuda_place_give(dg_cuda_places *p, dg_kv_group g, int32_t page)
{
    int32_t at = p->at[g][page];
    assert(at >= 0);
    p->at[g][page] = -1;
    if (g == p->big) {
        p->n_small[at] = 0;
        return;
    }
    p->owner[at] = -1;
    p->n_small[at / p->per_chunk]--;
}
