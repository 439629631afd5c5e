/* From the first position to the last: which states sequences come to, the best way to each, and
 * the mass of all ways. What can be in no result is left out on the way, and so is what the beam
 * has no room for. */
#include <math.h>
#include "base/real.h"
#include "constraint/word_internal.h"

/* Where no mass is above it, others may have become nothing. */
static const double hardly = 1e-100;

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

double dg_word_scale_links(dg_word *w, size_t position, size_t end)
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
        scale = dg_word_scale_links(w, position, w->n_weight);
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

dgemma_status dg_word_forwards(dg_word *w, const dg_word_graph *g, const dg_word_options *o,
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
