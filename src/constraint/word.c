#include "constraint/word.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/real.h"
#include "constraint/word_internal.h"

/* Shares below it add nothing to an entropy that a double would keep. */
static const double negligible = 1e-18;

/* Beside a known sequence: ways with less than 1e-14 of its mass hardly count, and sums of
 * log-probabilities may be so far off. */
static const double log_hardly_any = -32.2, slack = 1e-9;

/* ---- memory ---- */

dgemma_status dg_word_grow(void **array, size_t *cap, size_t n, size_t size, size_t max,
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
        st = dg_word_forwards(w, graph, options, err);
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
        dg_word_scale_links(w, i, w->first_weight[i + 1]);
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
