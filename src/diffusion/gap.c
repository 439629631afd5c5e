#include "diffusion/gap.h"

static const float seen_weight = 0.1f; /* of doubt, for each time */

static void settle_on(dg_gap *g, int length)
{
    g->length = length;
    g->found = true;
}

void dg_gap_begin(dg_gap *g, int most)
{
    *g = (dg_gap){.length = 1, .most = most, .rung = 1};
    if (most == 1)
        settle_on(g, 1);
}

/* 1 2 3 4, then the powers of two and what is half-way between them. */
static int next_rung(int length)
{
    int power = 1;
    while (2 * power <= length)
        power *= 2;
    return power < 4 ? length + 1 : length == power ? power + power / 2 : 2 * power;
}

static float doubt_of(const dg_gap *g, int length)
{
    return g->doubt[length] - seen_weight * (float)g->seen[length];
}

/* Of equal ones the shortest. */
static int best_of(const dg_gap *g)
{
    int best = 0;
    for (int i = 1; i <= g->most; i++)
        if (g->tried[i] && (!best || doubt_of(g, i) < doubt_of(g, best)))
            best = i;
    return best;
}

/* The nearest length to the best that was not tried, the shorter one first; 0: there is none. */
static int neighbour(const dg_gap *g, int best)
{
    for (int d = 1; d <= DG_GAP_NEAR; d++) {
        if (best - d >= 1 && !g->tried[best - d])
            return best - d;
        if (best + d <= g->most && !g->tried[best + d])
            return best + d;
    }
    return 0;
}

void dg_gap_push(dg_gap *g, int wrong, float entropy, int seen)
{
    int next = 0;
    g->tried[g->length] = 1;
    g->doubt[g->length] = (float)wrong + entropy;
    if (seen >= 1 && seen <= g->most && g->seen[seen] < 255) {
        g->seen[seen]++;
        if (!g->tried[seen] && g->n_seen++ < DG_GAP_SEEN)
            next = seen;
    }
    while (!next && g->rung <= g->most) {
        g->rung = next_rung(g->rung);
        if (g->rung <= g->most && !g->tried[g->rung])
            next = g->rung;
    }
    int best = best_of(g);
    if (!next)
        next = neighbour(g, best);
    if (next)
        g->length = next;
    else
        settle_on(g, best);
}
