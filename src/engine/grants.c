#include "engine/grants.h"
#include <assert.h>
#include "base/common.h"

static bool wants_something(const dg_want *w)
{
    return w->n_token > 0 || w->n_canvas > 0;
}

static bool has_prompt(const dg_want *w)
{
    return w->prompt && w->n_token > 0;
}

/* The most tokens up to `most` that end in front of a picture or behind one. */
static int cut(const dg_want *w, int most)
{
    if (most >= w->n_token)
        return w->n_token;
    if (!w->picture || most <= 0)
        return dg_max(0, most);
    int picture = w->picture[most].first - w->first;
    return dg_max(0, dg_min(most, picture));
}

/* Tokens of the picture that comes next; 0: text does. */
static int next_picture(const dg_want *w)
{
    if (!w->picture || w->n_token < 1)
        return 0; /* behind the last token there is nothing to look at */
    bool text = w->picture[0].end - w->picture[0].first == 1;
    return text ? 0 : w->picture[0].end - w->first;
}

/* Out of `rows` rows, `most` tokens; or the picture that comes next and is longer than that. */
static dg_grant grant_one(const dg_want *w, int rows, int most)
{
    assert(rows >= 0);
    dg_grant g = {.n_token = cut(w, dg_min(rows, most))};
    int picture = next_picture(w);
    if (!g.n_token && most > 0 && picture <= rows)
        g.n_token = picture;
    bool all = g.n_token == w->n_token;
    g.n_canvas = all && w->n_canvas <= rows - g.n_token ? w->n_canvas : 0;
    return g;
}

dg_grant dg_grant_alone(const dg_want *want, int max_row)
{
    return grant_one(want, max_row, max_row);
}

/* Rows of all prompts together, and in *share those of one. */
static int prompt_room(const dg_want *want, int n, const dg_grant_rule *rule, int *share)
{
    int n_prompt = 0, canvases = 0, room = rule->max_row;
    for (int i = 0; i < n; i++) {
        n_prompt += has_prompt(&want[i]);
        canvases += has_prompt(&want[i]) ? 0 : want[i].n_canvas;
    }
    if (canvases)
        room = dg_min(room, dg_max(canvases, rule->min_prompt_room));
    *share = dg_min(rule->max_prompt, dg_max(rule->min_prompt_share, room / dg_max(1, n_prompt)));
    return room;
}

int dg_grants(dg_grant *grant, const dg_want *want, int n, int turn, const dg_grant_rule *rule)
{
    int share, rows = rule->max_row, room = prompt_room(want, n, rule, &share), next = -1;
    for (int k = 0; k < n; k++) {
        int i = (turn + k) % n;
        const dg_want *w = &want[i];
        dg_grant *g = &grant[i];
        *g = grant_one(w, rows, has_prompt(w) ? dg_min(share, room) : rows);
        rows -= g->n_token + g->n_canvas;
        room = has_prompt(w) ? dg_max(0, room - g->n_token) : room;
        if (next < 0 && wants_something(w) && !g->n_token && !g->n_canvas)
            next = i;
    }
    return next < 0 ? turn : next;
}
