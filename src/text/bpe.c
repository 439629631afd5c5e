#include "text/bpe.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

enum {
    MAX_PROBES = 512, /* as in pieces.c: a table made to collide is refused, not walked through */
    SHORT_WORD = 48,  /* up to here scanning for the lowest rank beats keeping a heap */
    NO_LINK = -1
};
#define NO_RANK UINT32_MAX

/* ---- pairs ---- */

static bool pair_map_init(dg_pair_map *map, size_t n)
{
    map->bits = 1;
    while ((size_t)1 << map->bits < 2 * n)
        map->bits++;
    map->entries = dg_calloc((size_t)1 << map->bits, sizeof *map->entries);
    return map->entries != NULL;
}

static dg_pair_entry *pair_slot(const dg_pair_map *map, uint64_t key, size_t probe)
{
    size_t home = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - map->bits));
    return &map->entries[(home + probe) & (((size_t)1 << map->bits) - 1)];
}

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) + 1; /* never 0, which marks a free slot */
}

static const dg_pair_entry *pair_find(const dg_pair_map *map, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);
    for (size_t probe = 0; probe <= MAX_PROBES; probe++) {
        const dg_pair_entry *e = pair_slot(map, key, probe);
        if (e->key == key)
            return e;
        if (!e->key)
            break;
    }
    return NULL;
}

/* The last of two equal pairs wins, as in the reference. */
static bool pair_set(dg_pair_map *map, dg_pair_entry entry)
{
    for (size_t probe = 0; probe <= MAX_PROBES; probe++) {
        dg_pair_entry *e = pair_slot(map, entry.key, probe);
        if (!e->key || e->key == entry.key) {
            *e = entry;
            return true;
        }
    }
    return false;
}

/* ---- tables ---- */

static uint32_t first_char(dg_piece piece)
{
    uint32_t c = 0;
    dg_utf8_decode(piece.text, piece.len, &c);
    return c;
}

static uint32_t last_char(dg_piece piece)
{
    size_t i = piece.len - 1;
    while (i > 0 && ((unsigned char)piece.text[i] & 0xC0) == 0x80)
        i--;
    return first_char((dg_piece){piece.text + i, piece.len - i});
}

static bool add_merge(dg_bpe *b, const dg_pieces *p, const dg_merge_ids *m, uint32_t rank)
{
    if ((p->kinds[m->left] | p->kinds[m->right] | p->kinds[m->merged]) & DG_PIECE_SPECIAL)
        return true;
    uint32_t left = last_char(dg_pieces_at(p, m->left));
    uint32_t right = first_char(dg_pieces_at(p, m->right));
    if ((left | right) < 128)
        b->ascii_joins[left][right / 64] |= UINT64_C(1) << right % 64;
    else if (!pair_set(&b->joins, (dg_pair_entry){.key = pair_key(left, right)}))
        return false;
    return pair_set(&b->merges,
                    (dg_pair_entry){.key = pair_key((uint32_t)m->left, (uint32_t)m->right),
                                    .rank = rank,
                                    .merged = m->merged});
}

dgemma_status dg_bpe_init(dg_bpe *b, const dg_pieces *p, const dg_merges *m, const char *where,
                          dgemma_error *err)
{
    if (!pair_map_init(&b->merges, m->n) || !pair_map_init(&b->joins, m->n))
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory for %zu merges", where, m->n);
    for (size_t i = 0; i < m->n; i++)
        if (!add_merge(b, p, &m->at[i], (uint32_t)i))
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: more than %d merges were made to share a hash", where, MAX_PROBES);
    return DGEMMA_OK;
}

void dg_bpe_clear(dg_bpe *b)
{
    dg_free(b->merges.entries);
    dg_free(b->joins.entries);
    *b = (dg_bpe){0};
}

static int by_rank(const void *a, const void *b)
{
    const dg_pair_entry *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

bool dg_bpe_merges(const dg_bpe *b, dg_merges *m)
{
    const size_t n_slot = (size_t)1 << b->merges.bits;
    size_t n = 0;
    dg_pair_entry *used = dg_array(n_slot, sizeof *used);
    m->at = dg_array(n_slot, sizeof *m->at);
    if (used && m->at) {
        for (size_t i = 0; i < n_slot; i++)
            if (b->merges.entries[i].key)
                used[n++] = b->merges.entries[i];
        qsort(used, n, sizeof *used, by_rank);
        for (size_t i = 0; i < n; i++) {
            uint64_t pair = used[i].key - 1; /* as pair_key has it */
            m->at[i] =
                (dg_merge_ids){(int32_t)(pair >> 32), (int32_t)(pair & 0xFFFFFFFF), used[i].merged};
        }
        m->n = m->cap = n;
    }
    bool ok = used && m->at;
    dg_free(used);
    return ok;
}

bool dg_bpe_joins(const dg_bpe *b, uint32_t left, uint32_t right)
{
    if ((left | right) < 128)
        return b->ascii_joins[left][right / 64] >> right % 64 & 1;
    return pair_find(&b->joins, left, right) != NULL;
}

/* ---- words ---- */

struct dg_bpe_link {
    int32_t prev, next; /* positions of the neighbours */
    uint32_t rank; /* of the merge with next; NO_RANK when there is none, or when merged away */
    int32_t merged;
};

void dg_bpe_word_clear(dg_bpe_word *w)
{
    dg_free(w->ids);
    dg_free(w->links);
    dg_free(w->heap);
    *w = (dg_bpe_word){0};
}

bool dg_bpe_word_push(dg_bpe_word *w, int32_t id)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 64;
        int32_t *ids = dg_array_resize(w->ids, cap, sizeof *ids);
        if (!ids)
            return false;
        w->ids = ids;
        w->cap = cap;
    }
    w->ids[w->n++] = id;
    return true;
}

static const dg_pair_entry *find_merge(const dg_bpe *b, int32_t left, int32_t right)
{
    static const dg_pair_entry none = {.rank = NO_RANK};
    const dg_pair_entry *e = pair_find(&b->merges, (uint32_t)left, (uint32_t)right);
    return e ? e : &none;
}

static void merge_short(const dg_bpe *b, dg_bpe_word *w)
{
    const dg_pair_entry *pairs[SHORT_WORD]; /* [i]: of ids i and i + 1 */
    for (size_t i = 0; i + 1 < w->n; i++)
        pairs[i] = find_merge(b, w->ids[i], w->ids[i + 1]);
    while (w->n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < w->n; i++)
            if (pairs[i]->rank < pairs[best]->rank)
                best = i;
        if (pairs[best]->rank == NO_RANK)
            break;
        w->ids[best] = pairs[best]->merged;
        w->n--;
        for (size_t i = best + 1; i < w->n; i++) {
            w->ids[i] = w->ids[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best + 1 < w->n)
            pairs[best] = find_merge(b, w->ids[best], w->ids[best + 1]);
        if (best > 0)
            pairs[best - 1] = find_merge(b, w->ids[best - 1], w->ids[best]);
    }
}

/* A heap entry is rank and position in one number, so that the smallest is the lowest rank,
 * leftmost. An entry whose link has meanwhile another rank is stale, and passed over when it comes
 * up. */

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t entry = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= entry)
            break;
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    return top;
}

/* Looks up what the piece at pos and its right neighbour merge to; true when they do. */
static bool refresh_link(const dg_bpe *b, dg_bpe_word *w, int32_t pos)
{
    if (pos == NO_LINK)
        return false;
    dg_bpe_link *link = &w->links[pos];
    link->rank = NO_RANK;
    if (link->next == NO_LINK)
        return false;
    const dg_pair_entry *e = find_merge(b, w->ids[pos], w->ids[link->next]);
    link->rank = e->rank;
    link->merged = e->merged;
    return e->rank != NO_RANK;
}

static uint64_t heap_entry(const dg_bpe_word *w, int32_t pos)
{
    return (uint64_t)w->links[pos].rank << 32 | (uint32_t)pos;
}

static bool reserve_links(dg_bpe_word *w)
{
    if (w->n <= w->n_room)
        return true;
    dg_free(w->links);
    dg_free(w->heap);
    w->n_room = 0;
    w->links = dg_array(w->n, sizeof *w->links);
    w->heap =
        dg_array(w->n, 2 * sizeof *w->heap); /* each merge takes one entry and puts at most two */
    if (!w->links || !w->heap)
        return false;
    w->n_room = w->n;
    return true;
}

static bool merge_long(const dg_bpe *b, dg_bpe_word *w)
{
    if (!reserve_links(w))
        return false;
    dg_bpe_link *links = w->links;
    int32_t n = (int32_t)w->n;
    size_t n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        links[i] = (dg_bpe_link){.prev = i - 1, .next = i + 1 < n ? i + 1 : NO_LINK};
        if (refresh_link(b, w, i))
            w->heap[n_heap++] = heap_entry(w, i);
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(w->heap, n_heap, i);

    while (n_heap) {
        uint64_t entry = heap_pop(w->heap, &n_heap);
        int32_t pos = (int32_t)(uint32_t)entry;
        if (links[pos].rank != entry >> 32)
            continue;
        dg_bpe_link *gone = &links[links[pos].next];
        w->ids[pos] = links[pos].merged;
        gone->rank = NO_RANK;
        links[pos].next = gone->next;
        if (gone->next != NO_LINK)
            links[gone->next].prev = pos;
        if (refresh_link(b, w, pos))
            heap_push(w->heap, &n_heap, heap_entry(w, pos));
        if (refresh_link(b, w, links[pos].prev))
            heap_push(w->heap, &n_heap, heap_entry(w, links[pos].prev));
    }

    w->n = 0;
    for (int32_t i = 0; i != NO_LINK; i = links[i].next)
        w->ids[w->n++] = w->ids[i];
    return true;
}

bool dg_bpe_merge(const dg_bpe *b, dg_bpe_word *w)
{
    if (w->n > SHORT_WORD)
        return merge_long(b, w);
    merge_short(b, w);
    return true;
}
