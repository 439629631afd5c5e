#include "constraint/word.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/real.h"

typedef struct node {
    uint32_t state;
    uint32_t first_link, n_link;     /* those that lead from it */
    uint32_t back_node, back_weight; /* the best way here: from which node, by which weight */
    bool fits, gone;
    double best;    /* log-probability of that way */
    double forward; /* mass of all ways here, against the largest of the position */
    double rest;    /* mass of all ways from here to an end, likewise */
} node;

typedef struct link {
    uint32_t to, weight;
} link;

/* Nodes and weights of all positions one after the other; those of position i are
 * node[first_node[i] … first_node[i + 1]) and weight[first_weight[i] … first_weight[i + 1]). What a
 * position thinks of a label is asked for once, however many links have it. */
struct dg_word {
    size_t n;
    node *node;
    link *link;
    dg_word_share *weight;
    size_t *first_node, *first_weight;
    size_t n_node, cap_node, n_link, cap_link, n_weight, cap_weight, cap_first_node,
        cap_first_weight;
    /* Where a state's node and a label's weight may be; whoever looks sees whether they are. */
    uint32_t *node_of, *weight_of;
    size_t cap_node_of, cap_weight_of;
    double *value; /* scratch of the beam */
    uint32_t *renamed;
    size_t cap_value, cap_renamed;
    dg_word_edge *path;
    double *entropy;
    double *unfit; /* [n + 1] log-probability of the best way to a state that does not fit */
    double *least; /* [n + 1] of a way that can still be better than what is known */
    size_t cap_path, cap_entropy, cap_unfit, cap_least;
    double least_mass; /* logarithm of the mass that counts */
    double score, log_mass;
    bool cut, bounded;
};

enum { MAX_NODES = 1 << 22, MAX_LINKS = 1 << 24, MAX_TABLE = 1 << 24 };

/* Shares below it add nothing to an entropy that a double would keep. */
static const double negligible = 1e-18;

/* Where no mass is above it, others may have become nothing. */
static const double hardly = 1e-100;

/* Beside a known sequence: ways with less than 1e-14 of its mass hardly count, and sums of
 * log-probabilities may be so far off. */
static const double log_hardly_any = -32.2, slack = 1e-9;

/* ---- memory ---- */

static dgemma_status grow(void **array, size_t *cap, size_t n, size_t size, size_t max,
                          dgemma_error *err)
{
    if (n <= *cap)
        return DGEMMA_OK;
    if (n > max)
        return dg_fail(err, DGEMMA_E_LIMIT, "the constraint is too complex for the canvas");
    size_t want = *cap * 2 > n ? *cap * 2 : n + 64;
    unsigned char *p = dg_array_resize(*array, want, size);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    memset(p + *cap * size, 0, (want - *cap) * size);
    *array = p;
    *cap = want;
    return DGEMMA_OK;
}

#define GROW(w, name, n, max, err)                                                                 \
    ((n) <= (w)->cap_##name                                                                        \
         ? DGEMMA_OK                                                                               \
         : grow((void **)&(w)->name, &(w)->cap_##name, n, sizeof *(w)->name, max, err))

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
    dg_free(w->weight);
    dg_free(w->first_node);
    dg_free(w->first_weight);
    dg_free(w->node_of);
    dg_free(w->weight_of);
    dg_free(w->value);
    dg_free(w->renamed);
    dg_free(w->path);
    dg_free(w->entropy);
    dg_free(w->unfit);
    dg_free(w->least);
    dg_free(w);
}

/* ---- forwards ---- */

/* The node of a state behind `position`, whose nodes begin at `first`; a new one where there is
 * none. One that does not fit is there until the beam has seen it. */
static dgemma_status find_node(dg_word *w, const dg_word_graph *g, size_t position, size_t first,
                               uint32_t state, uint32_t *out, dgemma_error *err)
{
    if (state < w->cap_node_of) {
        uint32_t at = w->node_of[state];
        if (at >= first && at < w->n_node && w->node[at].state == state) {
            *out = at;
            return DGEMMA_OK;
        }
    }
    dgemma_status st = GROW(w, node_of, (size_t)state + 1, MAX_TABLE, err);
    if (!st)
        st = GROW(w, node, w->n_node + 1, MAX_NODES, err);
    if (st)
        return st;
    w->node[w->n_node] =
        (node){.state = state, .best = -INFINITY, .fits = g->fits(g->user, state, position + 1)};
    *out = w->node_of[state] = (uint32_t)w->n_node++;
    return DGEMMA_OK;
}

/* What a position thinks of a label. */
static dgemma_status find_weight(dg_word *w, const dg_word_graph *g, size_t position,
                                 uint32_t label, uint32_t *out, dgemma_error *err)
{
    if (label < w->cap_weight_of) {
        uint32_t at = w->weight_of[label];
        if (at >= w->first_weight[position] && at < w->n_weight && w->weight[at].label == label) {
            *out = at;
            return DGEMMA_OK;
        }
    }
    dgemma_status st = GROW(w, weight_of, (size_t)label + 1, MAX_TABLE, err);
    if (!st)
        st = GROW(w, weight, w->n_weight + 1, MAX_LINKS, err);
    if (st)
        return st;
    w->weight[w->n_weight] =
        (dg_word_share){.label = label, .weight = g->weigh(g->user, position, label)};
    *out = w->weight_of[label] = (uint32_t)w->n_weight++;
    return DGEMMA_OK;
}

static dgemma_status follow(dg_word *w, const dg_word_graph *g, size_t position, uint32_t from,
                            dgemma_error *err)
{
    const dg_word_edge *edge;
    size_t n, first = w->first_node[position + 1];
    double best = w->node[from].best;
    dgemma_status st = g->edges(g->user, w->node[from].state, position, &edge, &n, err);
    if (!st)
        st = GROW(w, link, w->n_link + n, MAX_LINKS, err);
    if (st)
        return st;
    link *l = w->link + w->n_link;
    for (size_t i = 0; i < n; i++) {
        uint32_t to, weight;
        st = find_weight(w, g, position, edge[i].label, &weight, err);
        if (st)
            return st;
        double v = best + w->weight[weight].weight.best;
        if (!(v > -INFINITY))
            continue;
        st = find_node(w, g, position, first, edge[i].to, &to, err);
        if (st)
            return st;
        *l++ = (link){to, weight};
        node *t = &w->node[to];
        if (v > t->best) {
            t->best = v;
            t->back_node = from;
            t->back_weight = weight;
        }
    }
    w->node[from].first_link = (uint32_t)w->n_link;
    w->n_link = (size_t)(l - w->link);
    w->node[from].n_link = (uint32_t)w->n_link - w->node[from].first_link;
    return DGEMMA_OK;
}

/* The k-th largest of n values, 1 <= k <= n, which change places. */
static double select_value(double *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        double pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi - 1;
        for (;;) {
            while (v[i] > pivot)
                i++;
            while (pivot > v[j])
                j--;
            if (i >= j)
                break;
            double swap = v[i];
            v[i++] = v[j];
            v[j--] = swap;
        }
        /* those before i are at least as large as those from it on; i == j: it is the pivot */
        if (k <= i)
            hi = i;
        else if (i == j && k == i + 1)
            return v[i];
        else
            lo = i + (i == j);
    }
    return v[lo];
}

/* Probabilities of a position's labels; against the largest where they are too small for a double.
 * Returns the logarithm of what they are against. */
static double scale_weights(dg_word_share *s, size_t n)
{
    double most = -INFINITY, largest = 0;
    for (size_t i = 0; i < n; i++) {
        most = s[i].weight.mass > most ? s[i].weight.mass : most;
        largest = s[i].weight.p > largest ? s[i].weight.p : largest;
    }
    if (largest > 0 && most < dg_log(largest) + 1e-6) /* who is missing is of no account */
        return 0;
    for (size_t i = 0; i < n; i++)
        s[i].weight.p = dg_exp(s[i].weight.mass - most);
    return most;
}

/* The same against the largest that a link still has: the beam has left none of the others. The
 * position's weights are those before `end`. */
static double scale_links(dg_word *w, size_t position, size_t end)
{
    double most = -INFINITY;
    for (size_t k = w->first_node[position]; k < w->first_node[position + 1]; k++)
        for (uint32_t i = 0; i < w->node[k].n_link; i++) {
            double mass = w->weight[w->link[w->node[k].first_link + i].weight].weight.mass;
            most = mass > most ? mass : most;
        }
    for (size_t i = w->first_weight[position]; i < end; i++) {
        dg_word_weight *x = &w->weight[i].weight;
        x->p = x->mass > most ? 0 : dg_exp(x->mass - most);
    }
    return most;
}

static void sum_forward(dg_word *w, size_t position)
{
    for (size_t i = w->first_node[position + 1]; i < w->n_node; i++)
        w->node[i].forward = 0;
    for (size_t k = w->first_node[position]; k < w->first_node[position + 1]; k++) {
        const node *from = &w->node[k];
        const link *l = w->link + from->first_link;
        for (uint32_t i = 0; i < from->n_link; i++)
            w->node[l[i].to].forward += from->forward * w->weight[l[i].weight].weight.p;
    }
}

static double most_forward(const dg_word *w, size_t position)
{
    double most = 0;
    for (size_t i = w->first_node[position + 1]; i < w->n_node; i++)
        most = w->node[i].forward > most ? w->node[i].forward : most;
    return most;
}

/* Marks nodes behind a position that can be in no result: those that do not fit, and those that
 * lead to nothing better than what is known, and to hardly any mass. Returns how many are left. */
static size_t mark_hopeless(dg_word *w, size_t position, double scale)
{
    double least = w->least[position + 1], least_mass = dg_exp(w->least_mass - scale);
    size_t n = 0;
    for (size_t i = w->first_node[position + 1]; i < w->n_node; i++) {
        node *k = &w->node[i];
        if (!k->fits)
            w->unfit[position + 1] = fmax(w->unfit[position + 1], k->best);
        k->gone = !k->fits || (k->best < least && k->forward < least_mass);
        n += !k->gone;
    }
    return n;
}

/* Of n nodes that are left the best `beam` stay, and the state that is known; of those that are
 * equally good the first. */
static dgemma_status mark_beam(dg_word *w, size_t first, size_t n, size_t beam,
                               const dg_word_edge *known, dgemma_error *err)
{
    dgemma_status st = GROW(w, value, n, MAX_NODES, err);
    if (st)
        return st;
    w->cut = true;
    n = 0;
    for (size_t i = first; i < w->n_node; i++)
        if (!w->node[i].gone)
            w->value[n++] = w->node[i].best;
    double least = select_value(w->value, n, beam);
    for (size_t i = first; i < w->n_node; i++)
        beam -= !w->node[i].gone && w->node[i].best > least;
    for (size_t i = first; i < w->n_node; i++) {
        node *k = &w->node[i];
        bool equal = !k->gone && k->best == least && beam;
        beam -= equal;
        k->gone |= !equal && !(k->best > least) && !(known && k->state == known->to);
    }
    return DGEMMA_OK;
}

/* Leaves the others behind a position, in the order in which they were found; links to those that
 * are gone go too. */
static dgemma_status sweep(dg_word *w, size_t position, dgemma_error *err)
{
    size_t first = w->first_node[position + 1], end = first;
    dgemma_status st = GROW(w, renamed, w->n_node - first, MAX_NODES, err);
    if (st)
        return st;
    for (size_t i = first; i < w->n_node; i++) {
        w->renamed[i - first] = w->node[i].gone ? 0 : (uint32_t)end + 1;
        if (!w->node[i].gone)
            w->node[end++] = w->node[i];
    }
    w->n_node = end;
    link *l = w->link + w->node[w->first_node[position]].first_link;
    for (size_t k = w->first_node[position]; k < first; k++) {
        node *from = &w->node[k];
        const link *old = w->link + from->first_link;
        from->first_link = (uint32_t)(l - w->link);
        for (uint32_t i = 0; i < from->n_link; i++) {
            uint32_t to = w->renamed[old[i].to - first];
            if (to)
                *l++ = (link){to - 1, old[i].weight};
        }
        from->n_link = (uint32_t)(l - w->link) - from->first_link;
    }
    w->n_link = (size_t)(l - w->link);
    return DGEMMA_OK;
}

/* Mass of the nodes behind a position, from that of those in front; of the nodes those that count
 * stay. */
static dgemma_status pass_on(dg_word *w, size_t position, const dg_word_options *o,
                             dgemma_error *err)
{
    size_t first = w->first_weight[position], n_found = w->n_node - w->first_node[position + 1];
    double scale = scale_weights(w->weight + first, w->n_weight - first);
    dgemma_status st = DGEMMA_OK;
    sum_forward(w, position);
    size_t n = mark_hopeless(w, position, w->log_mass + scale);
    if (o->beam && n > o->beam) {
        st = mark_beam(w, w->first_node[position + 1], n, o->beam,
                       o->known ? &o->known[position] : NULL, err);
        n = 0;
    }
    if (!st && n < n_found)
        st = sweep(w, position, err);
    double most = most_forward(w, position);
    if (most < hardly) {
        scale = scale_links(w, position, w->n_weight);
        sum_forward(w, position);
        most = most_forward(w, position);
    }
    if (most > 0)
        scale += dg_log(most);
    for (size_t i = w->first_node[position + 1]; i < w->n_node && most > 0; i++)
        w->node[i].forward /= most;
    w->log_mass += scale;
    return st;
}

static dgemma_status forwards(dg_word *w, const dg_word_graph *g, const dg_word_options *o,
                              dgemma_error *err)
{
    dgemma_status st = GROW(w, node, 1, MAX_NODES, err);
    if (st)
        return st;
    w->node[0] = (node){.state = o->start, .fits = true, .forward = 1};
    w->log_mass = 0;
    w->n_node = 1;
    w->first_node[0] = 0;
    for (size_t i = 0; i < w->n && !st; i++) {
        w->first_node[i + 1] = w->n_node;
        w->first_weight[i] = w->n_weight;
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1] && !st; k++)
            st = follow(w, g, i, (uint32_t)k, err);
        if (!st && w->first_node[i] < w->first_node[i + 1])
            st = pass_on(w, i, o, err);
    }
    w->first_node[w->n + 1] = w->n_node;
    w->first_weight[w->n] = w->n_weight;
    return st;
}

/* ---- backwards ---- */

/* Of a position's shares, which sum up to `total`: they are made to sum up to one. */
static double weigh_shares(dg_word_share *s, size_t n, double total)
{
    double sum = 0;
    for (size_t i = 0; i < n && total > 0; i++) {
        s[i].q /= total;
        if (s[i].q > negligible)
            sum += s[i].q * (s[i].weight.spread - dg_log(s[i].q));
    }
    return sum > 0 ? sum : 0;
}

/* Mass from each node of a position to the end, and what of it goes by each label. */
static void pass_back(dg_word *w, size_t position)
{
    double most = 0, total = 0;
    for (size_t k = w->first_node[position]; k < w->first_node[position + 1]; k++) {
        node *from = &w->node[k];
        const link *l = w->link + from->first_link;
        double rest = 0, forward = from->forward;
        for (uint32_t i = 0; i < from->n_link; i++) {
            dg_word_share *s = &w->weight[l[i].weight];
            double mass = s->weight.p * w->node[l[i].to].rest;
            rest += mass;
            s->q += forward * mass;
        }
        from->rest = rest;
        total += forward * rest;
        most = rest > most ? rest : most;
    }
    for (size_t k = w->first_node[position]; k < w->first_node[position + 1] && most > 0; k++)
        w->node[k].rest /= most;
    size_t first = w->first_weight[position];
    w->entropy[position] =
        weigh_shares(w->weight + first, w->first_weight[position + 1] - first, total);
}

static void backwards(dg_word *w)
{
    double total = 0;
    for (size_t k = w->first_node[w->n]; k < w->n_node; k++) {
        w->node[k].rest = 1; /* who does not fit at the end is not there */
        total += w->node[k].forward;
    }
    w->log_mass += dg_log(total);
    for (size_t i = w->n; i-- > 0;)
        pass_back(w, i);
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
        const node *k = &w->node[best];
        w->bounded |= w->unfit[i + 1] > k->best;
        w->path[i] = (dg_word_edge){k->state, w->weight[k->back_weight].label};
        best = k->back_node;
    }
}

/* What a way must have at each position to be better than the known one: no more than the most of
 * each position can be added to it; and the mass that counts beside that of the known one. */
static void set_bounds(dg_word *w, const dg_word_graph *g, const dg_word_options *o)
{
    double best = 0, rest = 0;
    w->least_mass = 0;
    for (size_t i = 0; i < w->n && o->known; i++) {
        dg_word_weight x = g->weigh(g->user, i, o->known[i].label);
        best += x.best;
        w->least_mass += x.mass;
    }
    if (!o->known || !(best > -INFINITY))
        best = w->least_mass = -INFINITY;
    w->least_mass += log_hardly_any;
    for (size_t i = w->n + 1; i-- > 0;) {
        rest += i < w->n && o->most ? o->most[i] : 0;
        w->least[i] = best - rest - slack;
    }
}

dgemma_status dg_word_solve(dg_word *w, const dg_word_graph *graph, const dg_word_options *options,
                            dgemma_error *err)
{
    w->n = options->n;
    w->n_link = w->n_node = w->n_weight = 0;
    w->cut = false;
    dgemma_status st = GROW(w, first_node, w->n + 2, MAX_NODES, err);
    if (!st)
        st = GROW(w, first_weight, w->n + 1, MAX_NODES, err);
    if (!st)
        st = GROW(w, path, w->n + 1, MAX_NODES, err);
    if (!st)
        st = GROW(w, entropy, w->n + 1, MAX_NODES, err);
    if (!st)
        st = GROW(w, unfit, w->n + 1, MAX_NODES, err);
    if (!st)
        st = GROW(w, least, w->n + 1, MAX_NODES, err);
    for (size_t i = 0; i <= w->n && !st; i++)
        w->unfit[i] = -INFINITY;
    if (!st)
        set_bounds(w, graph, options);
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

const dg_word_share *dg_word_shares(const dg_word *w, size_t position, size_t *n)
{
    *n = w->first_weight[position + 1] - w->first_weight[position];
    return w->weight + w->first_weight[position];
}

double dg_word_entropy(const dg_word *w, size_t position)
{
    return w->entropy[position];
}

void dg_word_reweigh(dg_word *w, double (*weigh)(void *user, size_t position, uint32_t label),
                     void *user)
{
    for (size_t i = w->n; i-- > 0;) {
        double most = 0;
        for (size_t k = w->first_weight[i]; k < w->first_weight[i + 1]; k++)
            w->weight[k].weight.mass = weigh(user, i, w->weight[k].label);
        scale_links(w, i, w->first_weight[i + 1]);
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1]; k++) {
            node *from = &w->node[k];
            const link *l = w->link + from->first_link;
            from->rest = 0;
            for (uint32_t j = 0; j < from->n_link; j++)
                from->rest += w->weight[l[j].weight].weight.p * w->node[l[j].to].rest;
            most = from->rest > most ? from->rest : most;
        }
        for (size_t k = w->first_node[i]; k < w->first_node[i + 1] && most > 0; k++)
            w->node[k].rest /= most;
    }
}

void dg_word_draw(const dg_word *w, const double *uniform, dg_word_edge *edges)
{
    const node *at = w->node;
    for (size_t i = 0; i < w->n; i++) {
        const link *l = w->link + at->first_link, *chosen = NULL;
        double left = 0;
        for (uint32_t k = 0; k < at->n_link; k++)
            left += w->weight[l[k].weight].weight.p * w->node[l[k].to].rest;
        left *= uniform[i];
        for (uint32_t k = 0; k < at->n_link; k++) {
            double p = w->weight[l[k].weight].weight.p * w->node[l[k].to].rest;
            if (!(p > 0))
                continue;
            chosen = &l[k];
            left -= p;
            if (left < 0)
                break;
        }
        if (!chosen) { /* at the first: all of them are too improbable for a number */
            memcpy(edges + i, w->path + i, (w->n - i) * sizeof *edges);
            return;
        }
        at = &w->node[chosen->to];
        edges[i] = (dg_word_edge){at->state, w->weight[chosen->weight].label};
    }
}
