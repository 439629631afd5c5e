#include "constraint/word.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/real.h"

typedef struct node {
    uint32_t state;
    uint32_t back;  /* the link of the best way here */
    double best;    /* log-probability of that way */
    double forward; /* mass of all ways here, against the largest of the position */
    double rest;    /* mass of all ways from here to an end, likewise */
} node;

typedef struct link {
    uint32_t from, to; /* nodes */
    dg_word_edge edge;
    dg_word_weight weight; /* its p against the largest of the position, if that has none */
} link;

/* Nodes and links of all positions one after the other; those of position i are
 * node[first_node[i] … first_node[i + 1]), and link[first_link[i] … first_link[i + 1]) lead from
 * them to the next. */
struct dg_word {
    size_t n;
    node *node;
    link *link;
    size_t *first_node, *first_link;
    size_t n_node, cap_node, n_link, cap_link, cap_first;
    uint32_t *slot; /* hash table of the nodes of the position that is being made, id + 1 */
    size_t n_slot;
    uint32_t *order;
    size_t cap_order;
    dg_word_edge *path;
    dg_word_share *share;
    double *unfit; /* [n + 1] log-probability of the best way to a state that does not fit */
    size_t cap_path, cap_share, cap_unfit;
    double score, log_mass;
    bool cut, bounded;
};

enum { MAX_NODES = 1 << 22, MAX_LINKS = 1 << 24 };

/* ---- memory ---- */

static dgemma_status grow(void **array, size_t *cap, size_t n, size_t size, size_t max,
                          dgemma_error *err)
{
    if (n <= *cap)
        return DGEMMA_OK;
    if (n > max)
        return dg_fail(err, DGEMMA_E_LIMIT, "the constraint is too complex for the canvas");
    size_t want = *cap * 2 > n ? *cap * 2 : n + 64;
    void *p = dg_array_resize(*array, want, size);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *array = p;
    *cap = want;
    return DGEMMA_OK;
}

#define GROW(w, name, n, max, err)                                                                 \
    grow((void **)&(w)->name, &(w)->cap_##name, n, sizeof *(w)->name, max, err)

dgemma_status dg_word_create(dg_word **out, dgemma_error *err)
{
    *out = dg_calloc(1, sizeof **out);
    return *out ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

void dg_word_free(dg_word *w)
{
    if (!w)
        return;
    dg_free(w->node);
    dg_free(w->link);
    dg_free(w->first_node);
    dg_free(w->first_link);
    dg_free(w->slot);
    dg_free(w->order);
    dg_free(w->path);
    dg_free(w->share);
    dg_free(w->unfit);
    dg_free(w);
}

/* ---- states of one position ---- */

static size_t slot_of(const dg_word *w, uint32_t state)
{
    size_t at = (state * UINT32_C(2654435769)) >> 7 & (w->n_slot - 1);
    while (w->slot[at] && w->node[w->slot[at] - 1].state != state)
        at = (at + 1) & (w->n_slot - 1);
    return at;
}

/* An empty table, large enough for n nodes. */
static dgemma_status clear_slots(dg_word *w, size_t n, dgemma_error *err)
{
    size_t want = w->n_slot ? w->n_slot : 256;
    while (want < 2 * n + 2)
        want *= 2;
    if (want != w->n_slot) {
        uint32_t *slot = dg_array_resize(w->slot, want, sizeof *slot);
        if (!slot)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        w->slot = slot;
        w->n_slot = want;
    }
    memset(w->slot, 0, w->n_slot * sizeof *w->slot);
    return DGEMMA_OK;
}

static dgemma_status enter_all(dg_word *w, size_t first, dgemma_error *err)
{
    dgemma_status st = clear_slots(w, 2 * (w->n_node - first), err);
    for (size_t i = first; i < w->n_node && !st; i++)
        w->slot[slot_of(w, w->node[i].state)] = (uint32_t)i + 1;
    return st;
}

/* The node of a state at the position that begins at `first`; a new one where there is none. */
static dgemma_status find_node(dg_word *w, size_t first, uint32_t state, uint32_t *out,
                               dgemma_error *err)
{
    size_t at = slot_of(w, state);
    if (!w->slot[at]) {
        dgemma_status st = GROW(w, node, w->n_node + 1, MAX_NODES, err);
        if (st)
            return st;
        w->node[w->n_node++] = (node){.state = state, .best = -INFINITY};
        w->slot[at] = (uint32_t)w->n_node;
        *out = (uint32_t)w->n_node - 1;
        if (2 * (w->n_node - first) >= w->n_slot)
            return enter_all(w, first, err);
        return DGEMMA_OK;
    }
    *out = w->slot[at] - 1;
    return DGEMMA_OK;
}

/* ---- forwards ---- */

static dgemma_status follow(dg_word *w, const dg_word_graph *g, size_t position, uint32_t from,
                            dgemma_error *err)
{
    const dg_word_edge *edge;
    size_t n, first = w->first_node[position + 1];
    dgemma_status st = g->edges(g->user, w->node[from].state, position, &edge, &n, err);
    for (size_t i = 0; i < n && !st; i++) {
        dg_word_weight weight = g->weigh(g->user, position, &edge[i]);
        if (!(weight.mass > -INFINITY))
            continue;
        if (!g->fits(g->user, edge[i].to, position + 1)) {
            w->unfit[position + 1] = fmax(w->unfit[position + 1], w->node[from].best + weight.best);
            continue;
        }
        uint32_t to;
        st = find_node(w, first, edge[i].to, &to, err);
        if (!st)
            st = GROW(w, link, w->n_link + 1, MAX_LINKS, err);
        if (st)
            break;
        w->link[w->n_link] = (link){from, to, edge[i], weight};
        double v = w->node[from].best + weight.best;
        if (v > w->node[to].best) {
            w->node[to].best = v;
            w->node[to].back = (uint32_t)w->n_link;
        }
        w->n_link++;
    }
    return st;
}

/* Whether a is better than b: by its way, then by which was found first. */
static bool is_better(const node *nodes, uint32_t a, uint32_t b)
{
    return nodes[a].best != nodes[b].best ? nodes[a].best > nodes[b].best : a < b;
}

/* Puts the k best of n in front, in any order. */
static void select_best(const node *nodes, uint32_t *order, size_t n, size_t k)
{
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        uint32_t pivot = order[lo + (hi - lo) / 2];
        size_t i = lo, j = hi - 1;
        for (;;) {
            while (is_better(nodes, order[i], pivot))
                i++;
            while (is_better(nodes, pivot, order[j]))
                j--;
            if (i >= j)
                break;
            uint32_t swap = order[i];
            order[i++] = order[j];
            order[j--] = swap;
        }
        /* those before i are better than those from it on; i == j: it is the pivot */
        if (k < i)
            hi = i;
        else if (k > i)
            lo = i + (i == j);
        else
            return;
    }
}

/* Leaves the best `beam` nodes of a position, and the one that is kept, in the order in which they
 * were found; links to the others go too. */
static dgemma_status prune(dg_word *w, size_t position, size_t beam, const uint32_t *keep,
                           dgemma_error *err)
{
    size_t first = w->first_node[position + 1], n = w->n_node - first;
    if (!beam || n <= beam)
        return DGEMMA_OK;
    dgemma_status st = GROW(w, order, 2 * n, 2 * (size_t)MAX_NODES, err);
    if (st)
        return st;
    uint32_t *order = w->order, *renamed = w->order + n;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)(first + i);
    select_best(w->node, order, n, beam);
    memset(renamed, 0, n * sizeof *renamed);
    for (size_t i = 0; i < n; i++)
        if (i < beam || (keep && w->node[order[i]].state == keep[position + 1]))
            renamed[order[i] - first] = 1;
    size_t end = first;
    for (size_t i = 0; i < n; i++)
        if (renamed[i]) {
            w->node[end] = w->node[first + i];
            renamed[i] = (uint32_t)++end; /* id + 1 */
        }
    w->n_node = end;
    w->cut = true;
    size_t kept = w->first_link[position];
    for (size_t i = kept; i < w->n_link; i++) {
        uint32_t to = renamed[w->link[i].to - first];
        if (!to)
            continue;
        if (w->node[to - 1].back == i)
            w->node[to - 1].back = (uint32_t)kept;
        w->link[kept] = w->link[i];
        w->link[kept++].to = to - 1;
    }
    w->n_link = kept;
    return DGEMMA_OK;
}

/* Probabilities of a position's links; against the largest where they are too small for a double.
 * Returns the logarithm of what they are against. */
static double weigh_links(link *l, size_t n)
{
    double most = -INFINITY, largest = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, l[i].weight.mass);
        largest = fmax(largest, l[i].weight.p);
    }
    if (largest > 0 && most < dg_log(largest) + 1e-6) /* who is missing is of no account */
        return 0;
    for (size_t i = 0; i < n; i++)
        l[i].weight.p = dg_exp(l[i].weight.mass - most);
    return most;
}

/* Mass of the nodes behind a position's links, from that of those in front. Returns the logarithm
 * of what it is against. */
static double pass_on(dg_word *w, size_t position)
{
    size_t first = w->first_link[position], n = w->n_link - first;
    double scale = weigh_links(w->link + first, n), most = 0;
    for (size_t i = first; i < first + n; i++)
        w->node[w->link[i].to].forward += w->node[w->link[i].from].forward * w->link[i].weight.p;
    for (size_t i = w->first_node[position + 1]; i < w->n_node; i++)
        most = fmax(most, w->node[i].forward);
    if (!(most > 0))
        return scale;
    for (size_t i = w->first_node[position + 1]; i < w->n_node; i++)
        w->node[i].forward /= most;
    return scale + dg_log(most);
}

static dgemma_status forwards(dg_word *w, const dg_word_graph *g, const dg_word_options *o,
                              dgemma_error *err)
{
    dgemma_status st = GROW(w, node, 1, MAX_NODES, err);
    if (st)
        return st;
    w->node[0] = (node){.state = o->start, .forward = 1};
    w->log_mass = 0;
    w->n_node = 1;
    w->first_node[0] = w->first_link[0] = 0;
    w->first_node[1] = 1;
    for (size_t i = 0; i < w->n && !st; i++) {
        w->first_node[i + 1] = w->n_node;
        st = clear_slots(w, 64, err);
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1] && !st; k++)
            st = follow(w, g, i, (uint32_t)k, err);
        if (!st)
            st = prune(w, i, o->beam, o->keep, err);
        w->first_link[i + 1] = w->n_link;
        if (!st)
            w->log_mass += pass_on(w, i);
    }
    w->first_node[w->n + 1] = w->n_node;
    return st;
}

/* ---- backwards ---- */

static void backwards(dg_word *w)
{
    double total = 0;
    for (size_t k = w->first_node[w->n]; k < w->n_node; k++) {
        w->node[k].rest = 1; /* who does not fit at the end is not there */
        total += w->node[k].forward;
    }
    w->log_mass += dg_log(total);
    for (size_t i = w->n; i-- > 0;) {
        double most = 0;
        for (size_t k = w->first_link[i]; k < w->first_link[i + 1]; k++) {
            const link *l = &w->link[k];
            w->node[l->from].rest += l->weight.p * w->node[l->to].rest;
        }
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1]; k++)
            most = fmax(most, w->node[k].rest);
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1] && most > 0; k++)
            w->node[k].rest /= most;
    }
}

static void trace(dg_word *w)
{
    size_t best = w->first_node[w->n];
    for (size_t k = best + 1; k < w->n_node; k++)
        if (w->node[k].best > w->node[best].best)
            best = k;
    w->score = w->node[best].best;
    w->bounded = false;
    for (size_t i = w->n; i-- > 0;) {
        w->bounded |= w->unfit[i + 1] > w->node[best].best;
        const link *l = &w->link[w->node[best].back];
        w->path[i] = l->edge;
        best = l->from;
    }
}

dgemma_status dg_word_solve(dg_word *w, const dg_word_graph *graph, const dg_word_options *options,
                            dgemma_error *err)
{
    w->n = options->n;
    w->n_link = w->n_node = 0;
    w->cut = false;
    size_t cap_link = w->cap_first;
    dgemma_status st =
        grow((void **)&w->first_node, &cap_link, w->n + 2, sizeof *w->first_node, MAX_NODES, err);
    if (!st)
        st = grow((void **)&w->first_link, &w->cap_first, w->n + 2, sizeof *w->first_link,
                  MAX_NODES, err);
    if (!st)
        st = GROW(w, path, w->n + 1, MAX_NODES, err);
    if (!st)
        st = GROW(w, unfit, w->n + 1, MAX_NODES, err);
    for (size_t i = 0; i <= w->n && !st; i++)
        w->unfit[i] = -INFINITY;
    if (!st)
        st = forwards(w, graph, options, err);
    if (st)
        return st;
    if (w->first_node[w->n] == w->n_node)
        return dg_fail(err, DGEMMA_E_ARG, "no text of %zu tokens fits", w->n);
    backwards(w);
    trace(w);
    return DGEMMA_OK;
}

/* ---- what was found ---- */

const dg_word_edge *dg_word_path(const dg_word *w)
{
    return w->path;
}

double dg_word_score(const dg_word *w)
{
    return w->score;
}

double dg_word_log_mass(const dg_word *w)
{
    return w->log_mass;
}

bool dg_word_cut(const dg_word *w)
{
    return w->cut;
}

bool dg_word_bounded(const dg_word *w)
{
    return w->bounded;
}

static int compare_shares(const void *x, const void *y)
{
    const dg_word_share *a = x, *b = y;
    if (a->is_class != b->is_class)
        return a->is_class - b->is_class;
    return (a->token > b->token) - (a->token < b->token);
}

/* The share of an edge's token at the position; edges of several states may have the same. */
static dg_word_share *share_of(dg_word *w, const dg_word_edge *edge, size_t *n)
{
    uint32_t key = (uint32_t)edge->token * 2 + edge->is_class;
    size_t at = (key * UINT32_C(2654435769)) >> 7 & (w->n_slot - 1);
    for (; w->slot[at]; at = (at + 1) & (w->n_slot - 1)) {
        dg_word_share *s = &w->share[w->slot[at] - 1];
        if (s->token == edge->token && s->is_class == edge->is_class)
            return s;
    }
    w->share[*n] = (dg_word_share){.token = edge->token, .is_class = edge->is_class};
    w->slot[at] = (uint32_t)++ * n;
    return &w->share[*n - 1];
}

/* Shares at a position in the order in which they are met; a link without mass has none. */
static dgemma_status sum_shares(dg_word *w, size_t position, size_t *n, dgemma_error *err)
{
    size_t first = w->first_link[position], n_link = w->first_link[position + 1] - first;
    dgemma_status st = GROW(w, share, n_link + 1, MAX_LINKS + 1, err);
    if (!st)
        st = clear_slots(w, n_link, err);
    if (st)
        return st;
    double total = 0;
    *n = 0;
    for (size_t i = first; i < first + n_link; i++) {
        const link *l = &w->link[i];
        double q = w->node[l->from].forward * l->weight.p * w->node[l->to].rest;
        if (!(q > 0))
            continue;
        dg_word_share *s = share_of(w, &l->edge, n);
        s->q += q;
        s->weight = l->weight;
        total += q;
    }
    for (size_t i = 0; i < *n; i++)
        w->share[i].q /= total;
    return DGEMMA_OK;
}

dgemma_status dg_word_shares(dg_word *w, size_t position, const dg_word_share **shares, size_t *n,
                             dgemma_error *err)
{
    dgemma_status st = sum_shares(w, position, n, err);
    if (!st)
        qsort(w->share, *n, sizeof *w->share, compare_shares);
    *shares = w->share;
    return st;
}

dgemma_status dg_word_entropy(dg_word *w, size_t position, double *entropy, dgemma_error *err)
{
    size_t n;
    dgemma_status st = sum_shares(w, position, &n, err);
    if (st)
        return st;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double q = w->share[i].q;
        const dg_word_weight *c = &w->share[i].weight;
        if (!w->share[i].is_class)
            sum -= q * dg_log(q);
        else
            sum += q * (c->mass - dg_log(q)) - q / dg_exp(c->mass) * c->inner;
    }
    *entropy = sum > 0 ? sum : 0;
    return DGEMMA_OK;
}

void dg_word_draw(const dg_word *w, const double *uniform, dg_word_edge *edges)
{
    uint32_t at = 0;
    for (size_t i = 0; i < w->n; i++) {
        const link *chosen = NULL;
        double left = 0;
        for (size_t k = w->first_link[i]; k < w->first_link[i + 1]; k++)
            if (w->link[k].from == at)
                left += w->link[k].weight.p * w->node[w->link[k].to].rest;
        left *= uniform[i];
        for (size_t k = w->first_link[i]; k < w->first_link[i + 1]; k++) {
            const link *l = &w->link[k];
            double p = l->weight.p * w->node[l->to].rest;
            if (l->from != at || !(p > 0))
                continue;
            chosen = l;
            left -= p;
            if (left < 0)
                break;
        }
        if (!chosen) { /* at the first: all of them are too improbable for a number */
            memcpy(edges + i, w->path + i, (w->n - i) * sizeof *edges);
            return;
        }
        edges[i] = chosen->edge;
        at = chosen->to;
    }
}
