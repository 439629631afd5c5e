#include "diffusion/gap.h"

static void settle_on(dg_gap *g, int length)
{
    g->length = length;
    g->found = true;
}

void dg_gap_begin(dg_gap *g, int most)
{
    *g = (dg_gap){.length = 1, .most = most};
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

/* The nearest length to the best that was not tried, the shorter one first; 0: there is none. */
static int neighbour(const dg_gap *g)
{
    for (int d = 1; d <= DG_GAP_NEAR; d++) {
        if (g->best - d >= 1 && !g->tried[g->best - d])
            return g->best - d;
        if (g->best + d <= g->most && !g->tried[g->best + d])
            return g->best + d;
    }
    return 0;
}

void dg_gap_push(dg_gap *g, int wrong, float entropy)
{
    g->tried[g->length] = 1;
    if (!g->best || wrong < g->best_wrong ||
        (wrong == g->best_wrong && entropy < g->best_entropy)) {
        g->best = g->length;
        g->best_wrong = wrong;
        g->best_entropy = entropy;
    }
    int next = g->near ? 0 : next_rung(g->length);
    if (!next || next > g->most) {
        g->near = true;
        next = neighbour(g);
    }
    if (next)
        g->length = next;
    else
        settle_on(g, g->best);
}
