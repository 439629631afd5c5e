#include "constraint/language_store.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

/* ---- memory ---- */

bool dg_store_fail(dg_language *l, dgemma_status status, const char *why)
{
    if (!l->status)
        l->status = dg_fail(&l->error, status, "%s", why);
    return false;
}

bool dg_store_grow(dg_language *l, void **array, size_t *cap, size_t n, size_t size, size_t max)
{
    if (n < *cap)
        return true;
    if (n >= max)
        return dg_store_fail(l, DGEMMA_E_LIMIT,
                             "the constraint is too complex: too much is possible");
    size_t want = *cap ? *cap * 2 : 64;
    want = want < max ? want : max;
    void *p = dg_array_resize(*array, want, size);
    if (!p)
        return dg_store_fail(l, DGEMMA_E_NOMEM, "out of memory");
    *array = p;
    *cap = want;
    return true;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

/* ---- pieces of stacks ---- */

static uint64_t cell_hash(const dg_cell *c)
{
    return mix(mix(mix(0, c->node), c->count), c->rest);
}

static bool rehash_cells(dg_language *l)
{
    size_t n = l->n_cell_slot ? l->n_cell_slot * 2 : 256;
    uint32_t *slot = dg_calloc(n, sizeof *slot);
    if (!slot)
        return dg_store_fail(l, DGEMMA_E_NOMEM, "out of memory");
    for (uint32_t i = 1; i < l->n_cell; i++) {
        size_t at = cell_hash(&l->cell[i]) & (n - 1);
        while (slot[at])
            at = (at + 1) & (n - 1);
        slot[at] = i;
    }
    dg_free(l->cell_slot);
    l->cell_slot = slot;
    l->n_cell_slot = n;
    return true;
}

static uint32_t intern_cell(dg_language *l, dg_cell c)
{
    if (l->status || !DG_STORE_GROW(l, cell, DG_LANGUAGE_MAX_CELLS) ||
        (l->n_cell * 2 >= l->n_cell_slot && !rehash_cells(l)))
        return DG_CELL_END;
    size_t at = cell_hash(&c) & (l->n_cell_slot - 1);
    for (; l->cell_slot[at]; at = (at + 1) & (l->n_cell_slot - 1)) {
        const dg_cell *o = &l->cell[l->cell_slot[at]];
        if (o->node == c.node && o->count == c.count && o->rest == c.rest)
            return l->cell_slot[at];
    }
    l->cell[l->n_cell] = c;
    l->cell_slot[at] = (uint32_t)l->n_cell;
    return (uint32_t)l->n_cell++;
}

uint32_t dg_store_cell(dg_language *l, dg_node node, uint32_t count, uint32_t rest)
{
    const dg_syntax_node *n = &l->syntax->node[node];
    dg_cell c = {node, count, rest, l->cell[rest].level, l->cell[rest].style};
    if (n->kind == DG_KIND_NEST && count)
        c.level++;
    if (n->kind == DG_KIND_STYLE && count)
        c.style = (uint8_t)count;
    return intern_cell(l, c);
}

/* ---- places ---- */

static uint64_t place_hash(const uint32_t *cells, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = mix(h, cells[i]);
    return h;
}

static bool rehash_places(dg_language *l)
{
    size_t n = l->n_place_slot ? l->n_place_slot * 2 : 256;
    uint32_t *slot = dg_calloc(n, sizeof *slot);
    if (!slot)
        return dg_store_fail(l, DGEMMA_E_NOMEM, "out of memory");
    for (uint32_t i = 1; i < l->n_place; i++) {
        size_t at = place_hash(l->stored + l->place[i].first, l->place[i].n) & (n - 1);
        while (slot[at])
            at = (at + 1) & (n - 1);
        slot[at] = i;
    }
    dg_free(l->place_slot);
    l->place_slot = slot;
    l->n_place_slot = n;
    return true;
}

/* Where sets of stacks outnumber the stacks themselves by far, the syntax is one whose subsets
 * explode, as those of [ab]*a[ab]{24} do. */
static bool explodes(const dg_language *l)
{
    return l->n_place > 1000 + 8 * l->n_cell;
}

/* ---- targets ---- */

static int compare_cells(const void *x, const void *y, void *user)
{
    const dg_cell *cells = user;
    const dg_cell *a = &cells[*(const uint32_t *)x], *b = &cells[*(const uint32_t *)y];
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->rest != b->rest)
        return a->rest < b->rest ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count);
}

/* Of rounds of one REPEAT that all may end, the fewest allow whatever the others allow. */
static bool is_covered(const dg_language *l, uint32_t cell, uint32_t by)
{
    const dg_cell *a = &l->cell[cell], *b = &l->cell[by];
    const dg_syntax_node *n = &l->syntax->node[a->node];
    return cell != DG_CELL_END && by != DG_CELL_END && n->kind == DG_KIND_REPEAT &&
           a->node == b->node && a->rest == b->rest && b->count >= n->b;
}

static void settle_targets(dg_language *l)
{
    if (l->n_target < 2)
        return;
    qsort_r(l->target, l->n_target, sizeof *l->target, compare_cells, l->cell);
    size_t n = 1;
    for (size_t i = 1; i < l->n_target; i++) {
        uint32_t last = l->target[n - 1], cell = l->target[i];
        if (cell != last && !is_covered(l, cell, last))
            l->target[n++] = cell;
    }
    l->n_target = n;
}

dg_place dg_store_place(dg_language *l)
{
    settle_targets(l);
    size_t n = l->n_target;
    if (l->status || !n)
        return DG_PLACE_DEAD;
    if (l->n_place * 2 >= l->n_place_slot && !rehash_places(l))
        return DG_PLACE_DEAD;
    size_t at = place_hash(l->target, n) & (l->n_place_slot - 1);
    for (; l->place_slot[at]; at = (at + 1) & (l->n_place_slot - 1)) {
        const dg_place_entry *o = &l->place[l->place_slot[at]];
        if (o->n == n && !memcmp(l->stored + o->first, l->target, n * sizeof *l->target))
            return l->place_slot[at];
    }
    if (!DG_STORE_GROW(l, place, DG_LANGUAGE_MAX_PLACES))
        return DG_PLACE_DEAD;
    if (explodes(l)) {
        l->hopeless = true;
        dg_store_fail(l, DGEMMA_E_LIMIT,
                      "the constraint is too complex: it can be read in too many ways");
        return DG_PLACE_DEAD;
    }
    uint32_t first = (uint32_t)l->n_stored;
    for (size_t i = 0; i < n; i++) {
        if (!DG_STORE_GROW(l, stored, DG_LANGUAGE_MAX_STORED))
            return DG_PLACE_DEAD;
        l->stored[l->n_stored++] = l->target[i];
    }
    l->place[l->n_place] = (dg_place_entry){.first = first, .n = (uint32_t)n};
    l->place_slot[at] = (uint32_t)l->n_place;
    return (dg_place)l->n_place++;
}

void dg_store_add_target(dg_language *l, uint32_t cell)
{
    if (DG_STORE_GROW(l, target, DG_LANGUAGE_MAX_WIDTH))
        l->target[l->n_target++] = cell;
    else
        l->hopeless = true;
}

bool dg_store_mark(dg_language *l)
{
    if (l->n_cell <= l->cap_mark)
        return true;
    struct dg_mark *mark = dg_array_resize(l->mark, l->cap_cell, sizeof *mark);
    if (!mark)
        return dg_store_fail(l, DGEMMA_E_NOMEM, "out of memory");
    memset(mark + l->cap_mark, 0, (l->cap_cell - l->cap_mark) * sizeof *mark);
    l->mark = mark;
    l->cap_mark = l->cap_cell;
    return true;
}

bool dg_store_begin(dg_language *l)
{
    l->status = DGEMMA_OK;
    if (!DG_STORE_GROW(l, cell, DG_LANGUAGE_MAX_CELLS) ||
        !DG_STORE_GROW(l, place, DG_LANGUAGE_MAX_PLACES))
        return false;
    l->cell[DG_CELL_END] = (dg_cell){0};
    l->place[DG_PLACE_DEAD] = (dg_place_entry){.expanded = true};
    l->n_cell = l->n_place = 1;
    return rehash_cells(l) && rehash_places(l);
}

void dg_store_clear(dg_language *l)
{
    dg_free(l->cell);
    dg_free(l->cell_slot);
    dg_free(l->mark);
    dg_free(l->place);
    dg_free(l->place_slot);
    dg_free(l->stored);
    dg_free(l->edge);
    dg_free(l->symbol);
    dg_free(l->todo);
    dg_free(l->leaf);
    dg_free(l->target);
}

void dg_store_forget(dg_language *l)
{
    l->status = DGEMMA_OK;
    l->n_cell = l->n_place = 1;
    l->n_stored = l->n_edge = l->n_symbol = 0;
    l->round = 0;
    memset(l->cell_slot, 0, l->n_cell_slot * sizeof *l->cell_slot);
    memset(l->place_slot, 0, l->n_place_slot * sizeof *l->place_slot);
    if (l->mark)
        memset(l->mark, 0, l->cap_mark * sizeof *l->mark);
}
