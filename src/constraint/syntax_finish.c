/* What is found out about a whole syntax: how each node's words end soonest, and whether a rule
 * begins with itself. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "constraint/syntax.h"

static const dg_ending endless = {DG_ENDLESS, DG_ENDLESS, DG_ENDLESS, DG_ENDLESS};

static uint32_t add(uint32_t a, uint32_t b)
{
    return a + b < DG_ENDLESS ? a + b : DG_ENDLESS;
}

static uint32_t times(uint32_t a, uint32_t n)
{
    uint64_t v = (uint64_t)a * n;
    return v < DG_ENDLESS ? (uint32_t)v : DG_ENDLESS;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- endings ---- */

static dg_ending ending_of_sequence(const dg_syntax *s, const dg_syntax_node *n)
{
    dg_ending e = {0, 0, 0, 0};
    for (uint32_t i = 0; i < n->b; i++) {
        const dg_ending *c = &s->ending[s->child[n->a + i]];
        e.shortest = add(e.shortest, c->shortest);
        e.levels = larger(e.levels, c->levels);
        e.least_levels = larger(e.least_levels, c->least_levels);
        e.shallowest = add(e.shallowest, c->shallowest);
    }
    return e;
}

static dg_ending ending_of_choice(const dg_syntax *s, const dg_syntax_node *n)
{
    dg_ending e = endless;
    for (uint32_t i = 0; i < n->b; i++) {
        const dg_ending *c = &s->ending[s->child[n->a + i]];
        if (c->shortest < e.shortest || (c->shortest == e.shortest && c->levels < e.levels)) {
            e.shortest = c->shortest;
            e.levels = c->levels;
        }
        if (c->least_levels < e.least_levels ||
            (c->least_levels == e.least_levels && c->shallowest < e.shallowest)) {
            e.least_levels = c->least_levels;
            e.shallowest = c->shallowest;
        }
    }
    return e;
}

static dg_ending ending_of(const dg_syntax *s, const dg_syntax_node *n)
{
    dg_ending e = {0, 0, 0, 0};
    switch (n->kind) {
    case DG_KIND_NEVER:
        return endless;
    case DG_KIND_EMPTY:
    case DG_KIND_LAYOUT:
        return e;
    case DG_KIND_BYTES:
    case DG_KIND_SYMBOL:
        e.shortest = e.shallowest = 1;
        return e;
    case DG_KIND_LITERAL:
        e.shortest = e.shallowest = n->b;
        return e;
    case DG_KIND_SEQUENCE:
        return ending_of_sequence(s, n);
    case DG_KIND_CHOICE:
        return ending_of_choice(s, n);
    case DG_KIND_REPEAT:
        if (!n->b)
            return e;
        e = s->ending[n->a];
        e.shortest = times(e.shortest, n->b);
        e.shallowest = times(e.shallowest, n->b);
        return e;
    case DG_KIND_NEST:
        e = s->ending[n->a];
        e.levels = add(e.levels, 1);
        e.least_levels = add(e.least_levels, 1);
        return e;
    default: /* RULE, STYLE */
        return s->ending[n->a];
    }
}

/* The i-th child; false: there is none. */
static bool child_at(const dg_syntax *s, dg_node id, uint32_t i, dg_node *out)
{
    const dg_syntax_node *n = &s->node[id];
    switch (n->kind) {
    case DG_KIND_SEQUENCE:
    case DG_KIND_CHOICE:
        if (i >= n->b)
            return false;
        *out = s->child[n->a + i];
        return true;
    case DG_KIND_REPEAT:
    case DG_KIND_RULE:
    case DG_KIND_NEST:
    case DG_KIND_STYLE:
        *out = n->a;
        return i == 0;
    default:
        return false;
    }
}

/* Who holds whom: parent[first[x] … first[x + 1]) hold x. */
typedef struct holders {
    uint32_t *first, *parent;
    uint32_t *queue; /* a ring of nodes to look at again */
    bool *queued;
} holders;

static void holders_clear(holders *h)
{
    dg_free(h->first);
    dg_free(h->parent);
    dg_free(h->queue);
    dg_free(h->queued);
}

static bool holders_init(holders *h, const dg_syntax *s)
{
    size_t n = s->n_node, n_edge = s->n_child + n;
    *h = (holders){.first = dg_calloc(n + 2, sizeof *h->first),
                   .parent = dg_array(n_edge + 1, sizeof *h->parent),
                   .queue = dg_array(n, sizeof *h->queue),
                   .queued = dg_calloc(n, sizeof *h->queued)};
    if (!h->first || !h->parent || !h->queue || !h->queued)
        return false;
    dg_node child;
    for (uint32_t id = 0; id < n; id++)
        for (uint32_t i = 0; child_at(s, id, i, &child); i++)
            h->first[child + 2]++;
    for (size_t id = 2; id < n + 2; id++)
        h->first[id] += h->first[id - 1];
    for (uint32_t id = 0; id < n; id++)
        for (uint32_t i = 0; child_at(s, id, i, &child); i++)
            h->parent[h->first[child + 1]++] = id;
    return true;
}

/* Endings only become shorter, so going over whoever holds a changed node comes to an end; a syntax
 * made to take long is given up. */
static dgemma_status relax(dg_syntax *s, holders *h)
{
    size_t n = s->n_node, head = 0, n_queued = n;
    size_t budget = 64 * (n + s->n_child) + 4096;
    for (uint32_t id = 0; id < n; id++) {
        h->queue[id] = id;
        h->queued[id] = true;
    }
    for (; n_queued; n_queued--) {
        uint32_t id = h->queue[head];
        head = head + 1 == n ? 0 : head + 1;
        h->queued[id] = false;
        bool list = s->node[id].kind == DG_KIND_SEQUENCE || s->node[id].kind == DG_KIND_CHOICE;
        size_t work = 1 + (list ? s->node[id].b : 0);
        if (work > budget)
            return dg_syntax_fail(s, DGEMMA_E_LIMIT, "the constraint is too complex");
        budget -= work;
        dg_ending e = ending_of(s, &s->node[id]);
        if (!memcmp(&e, &s->ending[id], sizeof e))
            continue;
        s->ending[id] = e;
        for (uint32_t i = h->first[id]; i < h->first[id + 1]; i++) {
            uint32_t parent = h->parent[i];
            if (h->queued[parent])
                continue;
            h->queued[parent] = true;
            h->queue[(head + n_queued - 1) % n] = parent;
            n_queued++;
        }
    }
    return DGEMMA_OK;
}

static dgemma_status find_endings(dg_syntax *s)
{
    s->ending = dg_array(s->n_node, sizeof *s->ending);
    if (!s->ending)
        return dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < s->n_node; i++)
        s->ending[i] = endless;
    holders h;
    dgemma_status st =
        holders_init(&h, s) ? relax(s, &h) : dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
    holders_clear(&h);
    return st;
}

/* ---- rules that begin with themselves ---- */

typedef struct visit {
    dg_node node;
    uint32_t next;
} visit;

/* The i-th node that a word of this one may begin in. */
static bool beginning_at(const dg_syntax *s, dg_node id, uint32_t i, dg_node *out)
{
    const dg_syntax_node *n = &s->node[id];
    if (n->kind == DG_KIND_SEQUENCE && i && i < n->b && s->ending[s->child[n->a + i - 1]].shortest)
        return false;
    return child_at(s, id, i, out);
}

static dgemma_status complain_of_circle(dg_syntax *s, const visit *path, size_t n, dg_node again)
{
    while (n && path[n - 1].node != again)
        if (s->node[path[--n].node].kind == DG_KIND_RULE)
            s->culprit = path[n].node;
    if (s->node[again].kind == DG_KIND_RULE)
        s->culprit = again;
    return dg_syntax_fail(s, DGEMMA_E_UNSUPPORTED,
                          "a rule begins with itself (left recursion), which is not supported");
}

static dgemma_status walk_beginnings(dg_syntax *s, visit *path, uint8_t *state)
{
    enum { NEW, OPEN, DONE };
    for (dg_node root = 0; root < s->n_node; root++) {
        size_t n = 0;
        if (state[root] == NEW) {
            path[n++] = (visit){root, 0};
            state[root] = OPEN;
        }
        while (n) {
            dg_node child;
            visit *v = &path[n - 1];
            if (!beginning_at(s, v->node, v->next++, &child)) {
                state[v->node] = DONE;
                n--;
            } else if (state[child] == OPEN)
                return complain_of_circle(s, path, n, child);
            else if (state[child] == NEW) {
                path[n++] = (visit){child, 0};
                state[child] = OPEN;
            }
        }
    }
    return DGEMMA_OK;
}

static dgemma_status refuse_circles(dg_syntax *s)
{
    visit *path = dg_array(s->n_node, sizeof *path);
    uint8_t *state = dg_calloc(s->n_node, sizeof *state);
    dgemma_status st = path && state ? walk_beginnings(s, path, state)
                                     : dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
    dg_free(path);
    dg_free(state);
    return st;
}

/* A round that may be without a byte can always be added, so that the least number is none. */
static void mark_starving_repeats(dg_syntax *s)
{
    for (size_t i = 0; i < s->n_node; i++) {
        dg_syntax_node *n = &s->node[i];
        if (n->kind == DG_KIND_REPEAT && s->ending[n->a].shortest == 0) {
            n->b = 0;
            n->starves = true;
        }
    }
}

static dgemma_status finish(dg_syntax *s, dg_node root)
{
    s->root = root;
    if (s->status || find_endings(s) || refuse_circles(s))
        return s->status;
    mark_starving_repeats(s);
    const dg_ending *e = &s->ending[root];
    if (e->least_levels > s->max_level)
        return dg_syntax_fail(s, DGEMMA_E_ARG, "nothing satisfies the constraint");
    if (e->shortest > DG_SYNTAX_MAX_SHORTEST)
        return dg_syntax_fail(s, DGEMMA_E_LIMIT,
                              "the constraint is too complex: the shortest text has %u bytes",
                              e->shortest);
    return DGEMMA_OK;
}

dgemma_status dg_syntax_finish(dg_syntax *s, dg_node root, dgemma_error *err)
{
    dgemma_status st = finish(s, root);
    return st ? dg_fail(err, st, "%s", s->error.msg) : DGEMMA_OK;
}
