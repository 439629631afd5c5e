#include "constraint/token_groups.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

typedef struct range {
    uint32_t first, n;
    bool known, wide;
} range;

struct dg_token_groups {
    const dg_token_trie *trie;
    dg_language *language;
    const int32_t *symbol;
    range *place; /* edges of each place */
    size_t n_place, cap_place;
    dg_group_edge *edge;
    size_t n_edge, cap_edge;
    range *group; /* tokens of each group */
    size_t n_group, cap_group;
    int32_t *token;
    size_t n_token, cap_token;
    uint32_t *slot; /* hash table of groups, + 1 */
    size_t n_slot;
    dg_token_edges found;
};

static dgemma_status grow(void **array, size_t *cap, size_t n, size_t size, size_t max,
                          dgemma_error *err)
{
    if (n <= *cap)
        return DGEMMA_OK;
    if (n > max)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "the constraint is too complex: it has too many tokens");
    size_t want = *cap * 2 > n ? *cap * 2 : n + 64;
    void *p = dg_array_resize(*array, want, size);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *array = p;
    *cap = want;
    return DGEMMA_OK;
}

#define GROW(g, name, n, max, err)                                                                 \
    grow((void **)&(g)->name, &(g)->cap_##name, n, sizeof *(g)->name, max, err)

dgemma_status dg_token_groups_create(dg_token_groups **out, const dg_token_trie *trie,
                                     dg_language *language, const int32_t *symbol,
                                     dgemma_error *err)
{
    dg_token_groups *g = dg_calloc(1, sizeof *g);
    if (!g)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    g->trie = trie;
    g->language = language;
    g->symbol = symbol;
    g->n_slot = 2 * DG_TOKEN_MAX_GROUPS;
    g->slot = dg_calloc(g->n_slot, sizeof *g->slot);
    if (!g->slot) {
        dg_token_groups_free(g);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    *out = g;
    return DGEMMA_OK;
}

void dg_token_groups_free(dg_token_groups *g)
{
    if (!g)
        return;
    dg_free(g->place);
    dg_free(g->edge);
    dg_free(g->group);
    dg_free(g->token);
    dg_free(g->slot);
    dg_token_edges_clear(&g->found);
    dg_free(g);
}

void dg_token_groups_forget(dg_token_groups *g)
{
    g->n_place = g->n_edge = 0;
}

/* ---- groups ---- */

static uint64_t hash_tokens(const int32_t *token, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint32_t)token[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

/* The group of token[n_token … n_token + n), which is kept when it is new. */
static dgemma_status intern(dg_token_groups *g, size_t n, uint32_t *out, dgemma_error *err)
{
    const int32_t *token = g->token + g->n_token;
    size_t at = hash_tokens(token, n) & (g->n_slot - 1);
    for (; g->slot[at]; at = (at + 1) & (g->n_slot - 1)) {
        const range *r = &g->group[g->slot[at] - 1];
        if (r->n == n && !memcmp(g->token + r->first, token, n * sizeof *token)) {
            *out = g->slot[at] - 1;
            return DGEMMA_OK;
        }
    }
    dgemma_status st = GROW(g, group, g->n_group + 1, DG_TOKEN_MAX_GROUPS, err);
    if (st)
        return st;
    g->group[g->n_group] = (range){(uint32_t)g->n_token, (uint32_t)n, true, false};
    g->n_token += n;
    *out = (uint32_t)g->n_group++;
    g->slot[at] = (uint32_t)g->n_group;
    return DGEMMA_OK;
}

static int compare_edges(const void *x, const void *y)
{
    const dg_token_edge *a = x, *b = y;
    if (a->is_class != b->is_class)
        return a->is_class ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* ---- places ---- */

static dgemma_status add_group(dg_token_groups *g, const dg_token_edge *edge, size_t n,
                               dgemma_error *err)
{
    dgemma_status st = GROW(g, token, g->n_token + n, DG_TOKEN_MAX_GROUPED, err);
    if (!st)
        st = GROW(g, edge, g->n_edge + 1, DG_TOKEN_MAX_GROUPED, err);
    if (st)
        return st;
    uint32_t group = (uint32_t)edge->token;
    if (!edge->is_class) {
        for (size_t i = 0; i < n; i++)
            g->token[g->n_token + i] = edge[i].token;
        st = intern(g, n, &group, err);
    }
    if (!st)
        g->edge[g->n_edge++] = (dg_group_edge){group, edge->is_class, edge->to};
    return st;
}

static dgemma_status find_place(dg_token_groups *g, dg_place at, dgemma_error *err)
{
    dg_token_edges *e = &g->found;
    size_t first = g->n_edge;
    bool wide = false;
    dgemma_status st = dg_token_edges_find(g->trie, g->language, at, g->symbol, e, &wide, err);
    if (!st && e->n)
        qsort(e->at, e->n, sizeof *e->at, compare_edges);
    for (size_t i = 0, n; i < e->n && !st; i += n) {
        n = 1;
        while (!e->at[i].is_class && i + n < e->n && e->at[i + n].to == e->at[i].to)
            n++;
        st = add_group(g, e->at + i, n, err);
    }
    if (st) {
        g->n_edge = first;
        return st;
    }
    g->place[at] = (range){(uint32_t)first, (uint32_t)(g->n_edge - first), true, wide};
    return DGEMMA_OK;
}

dgemma_status dg_token_groups_edges(dg_token_groups *g, dg_place at, const dg_group_edge **edges,
                                    size_t *n, bool *wide, dgemma_error *err)
{
    dgemma_status st = GROW(g, place, (size_t)at + 1, DG_LANGUAGE_MAX_PLACES, err);
    if (st)
        return st;
    for (; g->n_place <= at; g->n_place++)
        g->place[g->n_place] = (range){0};
    if (!g->place[at].known)
        st = find_place(g, at, err);
    if (st)
        return st;
    *n = g->place[at].n;
    *wide = g->place[at].wide;
    *edges = *n ? g->edge + g->place[at].first : NULL;
    return DGEMMA_OK;
}

const int32_t *dg_token_groups_tokens(const dg_token_groups *g, uint32_t group, size_t *n)
{
    *n = g->group[group].n;
    return g->token + g->group[group].first;
}

size_t dg_token_groups_count(const dg_token_groups *g)
{
    return g->n_group;
}
