#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/real.h"
#include "engine/guide_internal.h"

/* A token that was not asked for, and is not among the likeliest, counts as so much less likely
 * than the last of those, in nats. */
static const double unknown = 5;

/* Tokens that are further below the best of their group, in nats, count as if they were no further:
 * those of a group weigh less than a millionth of it together. */
static const float negligible = -24;

/* ---- the question ---- */

static bool ask_for(dg_guide *g, int32_t id)
{
    if (g->slot_of[id])
        return true;
    if (g->asked.n_id == DG_ASKED_MAX)
        return false;
    g->id[g->asked.n_id++] = id;
    g->slot_of[id] = 1;
    return true;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void forget_question(dg_guide *g)
{
    for (int i = 0; i < g->asked.n_id; i++)
        g->slot_of[g->id[i]] = 0;
    g->asked.n_id = 0;
    g->version++;
    g->n_member = 0;
}

/* All places of the last step were in the last question, as far as there was room. */
static bool knows_all(const dg_guide *g)
{
    for (size_t i = 0; i < g->n_touched; i++)
        if (g->place[g->touched[i]].asked != g->version)
            return false;
    return g->n_touched > 0;
}

dgemma_status dg_guide_question(dg_guide *g, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    if (knows_all(g))
        return st;
    forget_question(g);
    ask_for(g, g->o.pad);
    for (int i = 0; i < g->o.n_stop; i++)
        ask_for(g, g->o.stop[i]);
    for (int i = 0; i < g->o.n_think_head; i++)
        ask_for(g, g->o.think_head[i]);
    if (g->o.think_open >= 0)
        ask_for(g, g->o.think_open);
    if (g->o.think_close >= 0)
        ask_for(g, g->o.think_close);
    bool room = true;
    for (size_t i = 0; i < g->n_touched && !st && room; i++) {
        const dg_group_edge *edge;
        size_t n, n_token;
        bool wide;
        st = dg_token_groups_edges(g->groups, g->touched[i], &edge, &n, &wide, err);
        g->place[g->touched[i]].asked = g->version;
        for (size_t k = 0; k < n && !st && room; k++) {
            if (edge[k].is_class)
                continue;
            const int32_t *token = dg_token_groups_tokens(g->groups, edge[k].group, &n_token);
            for (size_t m = 0; m < n_token && room; m++)
                room = ask_for(g, token[m]);
        }
    }
    qsort(g->id, (size_t)g->asked.n_id, sizeof *g->id, by_id);
    for (int i = 0; i < g->asked.n_id; i++)
        g->slot_of[g->id[i]] = (uint16_t)(i + 1);
    return st;
}

/* ---- single tokens ---- */

/* Where a token is among the likeliest of a row; -1: it is not. */
static int rank_of(const dg_guide *g, int row, int32_t token)
{
    const int32_t *top = g->asked.top_id + (size_t)row * DG_ASKED_TOP;
    for (int i = 0; i < DG_ASKED_TOP; i++)
        if (top[i] == token)
            return i;
    return -1;
}

double dg_guide_logprob(const dg_guide *g, int row, int32_t token)
{
    const float *top = g->asked.top_logprob + (size_t)row * DG_ASKED_TOP;
    unsigned slot = g->slot_of[token];
    if (slot)
        return (double)g->asked.logprob[(size_t)row * (size_t)g->asked.n_id + slot - 1];
    int rank = rank_of(g, row, token);
    if (rank >= 0)
        return (double)top[rank];
    int last = DG_ASKED_TOP - 1;
    while (last > 0 && g->asked.top_id[(size_t)row * DG_ASKED_TOP + (size_t)last] < 0)
        last--;
    return (double)top[last] - unknown;
}

/* ---- groups ---- */

/* Which of a group's tokens are asked for. */
static known_group *group_of(dg_guide *g, uint32_t group)
{
    dgemma_error ignored;
    size_t old = g->cap_group, n;
    if (GUIDE_GROW(g, group, (size_t)group + 1, &ignored)) {
        g->no_memory = true;
        return NULL;
    }
    if (g->cap_group > old)
        memset(g->group + old, 0, (g->cap_group - old) * sizeof *g->group);
    known_group *k = &g->group[group];
    if (k->version == g->version)
        return k;
    const int32_t *token = dg_token_groups_tokens(g->groups, group, &n);
    if (GUIDE_GROW(g, member, g->n_member + n, &ignored)) {
        g->no_memory = true;
        return NULL;
    }
    *k = (known_group){.version = g->version, .first = (uint32_t)g->n_member, .whole = true};
    for (size_t i = 0; i < n; i++) {
        unsigned slot = g->slot_of[token[i]];
        k->whole &= slot != 0;
        if (slot)
            g->member[k->first + k->n++] = (uint16_t)(slot - 1);
    }
    g->n_member += k->n;
    return k;
}

static bool in_group(const dg_guide *g, uint32_t group, int32_t id)
{
    size_t n;
    const int32_t *token = dg_token_groups_tokens(g->groups, group, &n);
    return bsearch(&id, token, n, sizeof id, by_id) != NULL;
}

/* Calls `take` with each token of a group that something is known of at a row, and its
 * log-probability; with its first token where nothing is. */
typedef void take_fn(void *user, int32_t token, double logprob);
static void each_token(dg_guide *g, int row, uint32_t group, take_fn *take, void *user)
{
    const known_group *k = group_of(g, group);
    const float *logprob = g->asked.logprob + (size_t)row * (size_t)g->asked.n_id;
    size_t n_token, n = 0;
    const int32_t *token = dg_token_groups_tokens(g->groups, group, &n_token);
    for (uint32_t i = 0; k && i < k->n; i++, n++)
        take(user, g->id[g->member[k->first + i]], (double)logprob[g->member[k->first + i]]);
    for (int i = 0; k && !k->whole && i < DG_ASKED_TOP; i++) {
        size_t at = (size_t)row * DG_ASKED_TOP + (size_t)i;
        int32_t id = g->asked.top_id[at];
        if (id < 0 || g->slot_of[id] || !in_group(g, group, id))
            continue;
        take(user, id, (double)g->asked.top_logprob[at]);
        n++;
    }
    if (!n)
        take(user, token[0], dg_guide_logprob(g, row, token[0]));
}

typedef struct best_token {
    int32_t token;
    double logprob;
} best_token;

static void take_best(void *user, int32_t token, double logprob)
{
    best_token *b = user;
    if (b->token < 0 || logprob > b->logprob)
        *b = (best_token){token, logprob};
}

/* e^x for -80 <= x <= 0, within 3e-7 of it: for sums of many. */
static inline float exp_below(float x)
{
    float y = x * 1.44269504f;
    int whole = (int)y - 1; /* what is left is from 0 to 1 */
    float f = (y - (float)whole) * 0.693147181f - 0.346573590f;
    float e =
        1 + f * (1 + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * 0.00833333333f))));
    union {
        uint32_t bits;
        float value;
    } power = {.bits = (uint32_t)(whole + 127) << 23};
    return e * 1.41421356f * power.value;
}

/* The largest of some, and what e^(x - largest) and its product with x sum up to; the order of the
 * sums is that of four columns. x is used up. */
typedef struct sums {
    float best;
    double mass, inner;
} sums;

static sums sum_exps(float *x, size_t n)
{
    float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, p[DG_ASKED_MAX + 4];
    double mass[4] = {0}, inner[4] = {0};
    for (; n % 4; n++)
        x[n] = -INFINITY; /* there is room */
    for (size_t i = 0; i < n; i += 4)
        for (int k = 0; k < 4; k++)
            top[k] = x[i + (size_t)k] > top[k] ? x[i + (size_t)k] : top[k];
    float best = top[0];
    for (int k = 1; k < 4; k++)
        best = top[k] > best ? top[k] : best;
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] > best + negligible ? x[i] : best + negligible;
        p[i] = exp_below(x[i] - best);
    }
    for (size_t i = 0; i < n; i += 4)
        for (int k = 0; k < 4; k++) {
            mass[k] += (double)p[i + (size_t)k];
            inner[k] += (double)(p[i + (size_t)k] * x[i + (size_t)k]);
        }
    return (sums){best, mass[0] + mass[1] + (mass[2] + mass[3]),
                  inner[0] + inner[1] + (inner[2] + inner[3])};
}

typedef struct known_tokens {
    float logprob[DG_ASKED_MAX + 4];
    size_t n;
} known_tokens;

static void take_known(void *user, int32_t token, double logprob)
{
    known_tokens *k = user;
    (void)token;
    if (k->n < DG_ASKED_MAX)
        k->logprob[k->n++] = (float)logprob;
}

static dg_word_weight weigh_token(double logprob)
{
    return (dg_word_weight){logprob, logprob, dg_exp(logprob), 0};
}

static dg_word_weight weigh_sums(double best, double mass, double inner)
{
    double scale = dg_exp(best), log_mass = best + dg_log(mass);
    return (dg_word_weight){best, log_mass, scale * mass, log_mass - inner / mass};
}

static dg_word_weight weigh_group(dg_guide *g, int row, uint32_t group)
{
    known_tokens k;
    k.n = 0;
    const known_group *known = group_of(g, group);
    const float *logprob = g->asked.logprob + (size_t)row * (size_t)g->asked.n_id;
    if (known && known->whole && known->n == 1)
        return weigh_token((double)logprob[g->member[known->first]]);
    if (known && known->whole)
        for (; k.n < known->n; k.n++)
            k.logprob[k.n] = logprob[g->member[known->first + k.n]];
    else
        each_token(g, row, group, take_known, &k);
    if (k.n == 1)
        return weigh_token((double)k.logprob[0]);
    sums s = sum_exps(k.logprob, k.n);
    if (!(s.best > -INFINITY))
        return weigh_token(-INFINITY);
    return weigh_sums((double)s.best, s.mass, s.inner);
}

/* By which token a turn ends is no uncertainty about the text: all of them count as one. */
static dg_word_weight weigh_end(dg_guide *g, int row)
{
    double best = -INFINITY, mass = 0;
    for (int i = 0; i < g->o.n_stop; i++)
        best = fmax(best, dg_guide_logprob(g, row, g->o.stop[i]));
    if (!(best > -INFINITY))
        return weigh_token(-INFINITY);
    for (int i = 0; i < g->o.n_stop; i++)
        mass += dg_exp(dg_guide_logprob(g, row, g->o.stop[i]) - best);
    return (dg_word_weight){best, best + dg_log(mass), dg_exp(best) * mass, 0};
}

static dg_word_weight weigh_class(const dg_class_finding *f)
{
    if (!(f->best > -INFINITY))
        return weigh_token(-INFINITY);
    double p = dg_exp(f->mass);
    return (dg_word_weight){f->best, f->mass, p, f->mass - f->inner / p};
}

dg_word_weight dg_guide_weigh(void *user, size_t position, uint32_t label)
{
    dg_guide *g = user;
    int row = g->first + (int)position;
    if (label >= FIRST_TOKEN)
        return weigh_token(dg_guide_logprob(g, row, (int32_t)(label - FIRST_TOKEN)));
    if (label >= FIRST_GROUP)
        return weigh_group(g, row, label - FIRST_GROUP);
    if (label == LABEL_END)
        return weigh_end(g, row);
    return weigh_class(&g->asked.found[(size_t)row * DG_ASKED_CLASSES + label]);
}

/* ---- from labels to tokens ---- */

bool dg_guide_has_token(const dg_guide *g, uint32_t label, int32_t token)
{
    bool stop = false;
    if (token < 0)
        return false;
    if (label >= FIRST_TOKEN)
        return label - FIRST_TOKEN == (uint32_t)token;
    if (label >= FIRST_GROUP)
        return in_group(g, label - FIRST_GROUP, token);
    for (int i = 0; i < g->o.n_stop; i++)
        stop |= g->o.stop[i] == token;
    return label == LABEL_END ? stop : g->asked.class_of[token] == label;
}

/* Those of an end, of a group or of a single token. */
static void each_of_label(dg_guide *g, int row, uint32_t label, take_fn *take, void *user)
{
    if (label >= FIRST_TOKEN) {
        int32_t token = (int32_t)(label - FIRST_TOKEN);
        take(user, token, dg_guide_logprob(g, row, token));
    } else if (label >= FIRST_GROUP) {
        each_token(g, row, label - FIRST_GROUP, take, user);
    } else {
        for (int i = 0; i < g->o.n_stop; i++)
            take(user, g->o.stop[i], dg_guide_logprob(g, row, g->o.stop[i]));
    }
}

int32_t dg_guide_best_token(dg_guide *g, int row, uint32_t label)
{
    if (label < DG_ASKED_CLASSES)
        return g->asked.found[(size_t)row * DG_ASKED_CLASSES + label].id;
    best_token best = {-1, -INFINITY};
    each_of_label(g, row, label, take_best, &best);
    return best.token;
}

/* ---- draws ---- */

/* A token that filters leave out is so much less likely to be drawn, in nats: as good as never
 * where there is another way, and yet the last way on. */
static const double left_out = 100;

void dg_guide_filter(dg_guide *g, int first, int n)
{
    const dg_draw_options *d = &g->draw;
    for (int row = first; row < first + n; row++) {
        const float *top = g->asked.top_logprob + (size_t)row * DG_ASKED_TOP;
        int most = d->top_k && d->top_k < DG_ASKED_TOP ? d->top_k : DG_ASKED_TOP, kept = 0;
        double mass = 0, least = -INFINITY;
        if (d->min_p > 0)
            least = (double)top[0] + dg_log((double)d->min_p) * (double)d->temperature;
        for (; kept < most && (double)top[kept] >= least && mass < (double)d->top_p; kept++)
            mass += dg_exp((double)top[kept]);
        bool filters = d->top_k || d->top_p < 1 || d->min_p > 0;
        g->least[row] = filters ? top[kept ? kept - 1 : 0] : -INFINITY;
    }
}

static double warm_logprob(const dg_guide *g, int row, double logprob)
{
    double warm = logprob / (double)g->draw.temperature;
    return logprob < (double)g->least[row] ? warm - left_out : warm;
}

/* Calls `take` with each token that a draw by this label can give; of a class those that filters
 * let be, if there are such. */
static bool each_drawn(dg_guide *g, int row, uint32_t label, take_fn *take, void *user)
{
    if (label >= DG_ASKED_CLASSES) {
        each_of_label(g, row, label, take, user);
        return true;
    }
    bool any = false;
    for (int i = 0; i < DG_ASKED_TOP && g->warms && g->least[row] > -INFINITY; i++) {
        size_t at = (size_t)row * DG_ASKED_TOP + (size_t)i;
        if (g->asked.top_id[at] < 0 || g->asked.top_logprob[at] < g->least[row] ||
            g->asked.class_of[g->asked.top_id[at]] != label)
            continue;
        take(user, g->asked.top_id[at], (double)g->asked.top_logprob[at]);
        any = true;
    }
    return any;
}

typedef struct draw {
    const dg_guide *g;
    int row;
    double most; /* what all are against */
    double left; /* of the label's mass */
    int32_t token;
    bool done;
} draw;

static double weight_of(const draw *d, double logprob)
{
    return d->g->warms ? warm_logprob(d->g, d->row, logprob) : logprob;
}

static void take_most(void *user, int32_t token, double logprob)
{
    draw *d = user;
    double weight = weight_of(d, logprob);
    if (d->token < 0 || weight > d->most) {
        d->most = weight;
        d->token = token;
    }
}

static void take_mass(void *user, int32_t token, double logprob)
{
    draw *d = user;
    (void)token;
    d->left += dg_exp(weight_of(d, logprob) - d->most);
}

static void take_draw(void *user, int32_t token, double logprob)
{
    draw *d = user;
    double p = dg_exp(weight_of(d, logprob) - d->most);
    if (d->done || !(p > 0))
        return;
    d->token = token;
    d->left -= p;
    d->done = d->left < 0;
}

/* What all tokens of a label weigh together in a draw; false: a class, which draws by itself. */
static bool sum_label(dg_guide *g, int row, uint32_t label, draw *d)
{
    *d = (draw){.g = g, .row = row, .most = -INFINITY, .token = -1};
    if (!each_drawn(g, row, label, take_most, d))
        return false;
    if (d->most > -INFINITY)
        each_drawn(g, row, label, take_mass, d);
    return true;
}

double dg_guide_warm(void *user, size_t position, uint32_t label)
{
    dg_guide *g = user;
    int row = g->first + (int)position;
    draw d;
    if (sum_label(g, row, label, &d))
        return d.most > -INFINITY ? d.most + dg_log(d.left) : -INFINITY;
    double warm = g->asked.found[(size_t)row * DG_ASKED_CLASSES + label].warm;
    return g->least[row] > -INFINITY ? warm - left_out : warm;
}

int32_t dg_guide_drawn_token(dg_guide *g, int row, uint32_t label, double uniform)
{
    draw d;
    if (!sum_label(g, row, label, &d))
        return g->asked.found[(size_t)row * DG_ASKED_CLASSES + label].drawn;
    if (label >= FIRST_TOKEN || !(d.most > -INFINITY))
        return d.token;
    d.left *= uniform;
    each_drawn(g, row, label, take_draw, &d);
    return d.token;
}
