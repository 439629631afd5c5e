#include <string.h>
#include "engine/guide_internal.h"

/* Places that are looked at before the model has said anything. */
enum { EXPLORED = 256 };

/* ---- what is known of places ---- */

static dgemma_status place_of(dg_guide *g, dg_place at, known_place **out, dgemma_error *err)
{
    size_t old = g->cap_place;
    dgemma_status st = GUIDE_GROW(g, place, (size_t)at + 1, err);
    if (st)
        return st;
    if (g->cap_place > old)
        memset(g->place + old, 0, (g->cap_place - old) * sizeof *g->place);
    *out = &g->place[at];
    return DGEMMA_OK;
}

void dg_guide_forget_places(dg_guide *g)
{
    if (g->cap_place)
        memset(g->place, 0, g->cap_place * sizeof *g->place);
    g->n_touched = g->n_kept = 0;
}

static dgemma_status touch(dg_guide *g, dg_place at, dgemma_error *err)
{
    known_place *p;
    dgemma_status st = place_of(g, at, &p, err);
    if (st || p->seen == g->step)
        return st;
    p->seen = g->step;
    st = GUIDE_GROW(g, touched, g->n_touched + 1, err);
    if (!st)
        g->touched[g->n_touched++] = at;
    return st;
}

/* ---- the way to the end ---- */

static void note_symbol(void *user, uint32_t symbol)
{
    dg_guide *g = user;
    dgemma_error ignored;
    if (GUIDE_GROW(g, symbol_at, g->n_symbol_at + 1, &ignored) ||
        GUIDE_GROW(g, symbol_id, g->n_symbol_at + 1, &ignored)) {
        g->n_symbol_at = SIZE_MAX; /* said below */
        return;
    }
    if (g->n_symbol_at == SIZE_MAX)
        return;
    g->symbol_at[g->n_symbol_at] = g->ending.len;
    g->symbol_id[g->n_symbol_at++] = symbol;
}

/* The next token of the ending, from byte *from and symbol *symbol on, and where it leads. */
static dgemma_status step_on(dg_guide *g, size_t *from, size_t *symbol, int32_t *token,
                             dg_place *at, dgemma_error *err)
{
    size_t to = *symbol < g->n_symbol_at ? g->symbol_at[*symbol] : g->ending.len;
    if (*from == to) {
        uint32_t id = g->symbol_id[(*symbol)++];
        *token = g->symbol[id];
        return dg_language_symbol(g->language, at, id, err);
    }
    size_t len = dg_token_trie_longest(g->o.trie, g->ending.data + *from, to - *from, token);
    if (!len)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the vocabulary has no token for byte 0x%02X",
                       (unsigned char)g->ending.data[*from]);
    *from += len;
    return dg_token_step(g->o.trie, g->language, at, *token, err);
}

/* The automaton has no room for the way from `at`, nor from the n places that it came through. They
 * are not tried again, which would take as long each time. */
static dgemma_status note_lost(dg_guide *g, dg_place at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!g->place[g->way[i]].need)
            g->place[g->way[i]].need = NEED_LOST;
    g->place[at].need = NEED_LOST;
    return DGEMMA_OK;
}

/* Goes along a short ending from `at` as far as a place whose way is known, and notes at each place
 * how far it is to the end, and what comes next: so behind each there is one that is nearer. Stops
 * where no answer could follow. */
static dgemma_status find_way(dg_guide *g, dg_place at, dgemma_error *err)
{
    known_place *p;
    dg_place first = at;
    size_t from = 0, symbol = 0;
    uint32_t n = 0;
    g->ending.len = g->n_symbol_at = 0;
    dgemma_status st = place_of(g, at, &p, err);
    if (st)
        return st;
    st = dg_language_ending(g->language, at, &g->ending, note_symbol, g, err);
    if (!st && g->n_symbol_at == SIZE_MAX)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    while (!st && !p->need && n <= g->n_most && (from < g->ending.len || symbol < g->n_symbol_at)) {
        int32_t token;
        dg_place to = at;
        st = step_on(g, &from, &symbol, &token, &to, err);
        if (!st && to == DG_PLACE_DEAD)
            st = dg_fail(err, DGEMMA_E_INTERNAL, "a constraint's ending is not part of it");
        if (!st)
            st = GUIDE_GROW(g, way, n + 1, err);
        if (st)
            break;
        g->place[at].token = token;
        g->place[at].to = to;
        g->way[n++] = at;
        at = to;
        st = place_of(g, at, &p, err);
    }
    bool lost = st == DGEMMA_E_LIMIT || st == DGEMMA_E_UNSUPPORTED;
    if (lost)
        return note_lost(g, first, n);
    if (st)
        return st;
    if (n > g->n_most || p->need >= NEED_FAR) {
        g->place[first].need = p->need == NEED_LOST ? NEED_LOST : NEED_FAR;
        return DGEMMA_OK;
    }
    p->need = p->need ? p->need : 1;
    for (uint32_t i = n, need = p->need; i-- > 0;)
        if (!g->place[g->way[i]].need)
            g->place[g->way[i]].need = need + n - i;
    return DGEMMA_OK;
}

static dgemma_status need_of_place(dg_guide *g, dg_place at, uint32_t *need, dgemma_error *err)
{
    known_place *p;
    dgemma_status st = place_of(g, at, &p, err);
    if (!st && !p->need) {
        st = find_way(g, at, err);
        if (!st)
            st = place_of(g, at, &p, err);
    }
    *need = st ? 0 : p->need - 1;
    return st;
}

dgemma_status dg_guide_need_of(dg_guide *g, uint32_t state, uint32_t *need, dgemma_error *err)
{
    *need = 0;
    if (state == STATE_DONE)
        return DGEMMA_OK;
    dg_place at = state >= FIRST_PLACE ? state - FIRST_PLACE : dg_language_start(g->language);
    dgemma_status st = need_of_place(g, at, need, err);
    /* a thought that is closed for the model takes a line's end and a marker */
    if (state == STATE_THOUGHT)
        *need += 2;
    else if (state >= STATE_HEAD && state < FIRST_PLACE)
        *need += 2 + (uint32_t)g->o.n_think_head - (state - STATE_HEAD);
    return st;
}

/* ---- edges ---- */

static dgemma_status add(dg_guide *g, uint32_t to, uint32_t label, dgemma_error *err)
{
    dgemma_status st = GUIDE_GROW(g, edge, g->n_edge + 1, err);
    if (!st)
        g->edge[g->n_edge++] = (dg_word_edge){to, label};
    return st;
}

static dgemma_status add_token(dg_guide *g, uint32_t to, int32_t token, dgemma_error *err)
{
    return add(g, to, FIRST_TOKEN + (uint32_t)token, err);
}

/* Whether the first token of the way to the end is one of the place's edges. */
static bool lists_way(dg_guide *g, const known_place *p, const dg_group_edge *edge, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (edge[i].to != p->to)
            continue;
        if (edge[i].is_class) {
            if (dg_token_trie_classes(g->o.trie)[p->token] == edge[i].group)
                return true;
            continue;
        }
        size_t n_token;
        const int32_t *token = dg_token_groups_tokens(g->groups, edge[i].group, &n_token);
        for (size_t k = 0; k < n_token; k++)
            if (token[k] == p->token)
                return true;
    }
    return false;
}

/* A wide place: the likeliest tokens of this position, whose single bytes are there already. */
static dgemma_status add_likely(dg_guide *g, dg_place from, size_t position, int32_t but,
                                bool free_text, dgemma_error *err)
{
    const uint8_t *class_of = dg_token_trie_classes(g->o.trie);
    const int32_t *top = g->asked.top_id + ((size_t)g->first + position) * DG_ASKED_TOP;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; i < DG_ASKED_TOP && !st && top[i] >= 0; i++) {
        size_t len;
        dg_place at = from;
        if (!dg_token_trie_text(g->o.trie, top[i], &len) || len < 2 || top[i] == but ||
            (free_text && class_of[top[i]] == DG_TOKEN_CLASS_PLAIN))
            continue;
        st = dg_token_step(g->o.trie, g->language, &at, top[i], err);
        if (!st && at != DG_PLACE_DEAD)
            st = add_token(g, at + FIRST_PLACE, top[i], err);
    }
    return st;
}

/* What may follow at a place whatever the position, into the scratch. */
static dgemma_status find_edges(dg_guide *g, dg_place at, dgemma_error *err)
{
    const dg_group_edge *edge;
    size_t n;
    bool wide;
    uint32_t need;
    dg_edges bytes;
    dgemma_status st = need_of_place(g, at, &need, err);
    if (!st)
        st = dg_token_groups_edges(g->groups, at, &edge, &n, &wide, err);
    if (st)
        return st;
    for (size_t i = 0; i < n && !st; i++)
        st = add(g, edge[i].to + FIRST_PLACE, edge[i].group + (edge[i].is_class ? 0 : FIRST_GROUP),
                 err);
    known_place *p = &g->place[at];
    p->wide = wide;
    p->free_text = n && edge->is_class;
    p->listed = !need || lists_way(g, p, edge, n);
    if (!st && !p->listed)
        st = add_token(g, p->to + FIRST_PLACE, p->token, err);
    if (!st)
        st = dg_language_edges(g->language, at, &bytes, err);
    if (!st && bytes.accepts)
        st = add(g, STATE_DONE, LABEL_END, err);
    return st;
}

/* Edges of a place are found once; a way to the end that has become shorter since is not needed. */
static dgemma_status keep_edges(dg_guide *g, dg_place at, dgemma_error *err)
{
    size_t first = g->n_edge;
    dgemma_status st = find_edges(g, at, err);
    size_t n = g->n_edge - first;
    if (!st)
        st = GUIDE_GROW(g, kept, g->n_kept + n + 1, err);
    if (st)
        return st;
    memcpy(g->kept + g->n_kept, g->edge + first, n * sizeof *g->kept);
    g->n_edge = first;
    g->place[at].first_edge = (uint32_t)g->n_kept;
    g->place[at].n_edge = (uint32_t)n;
    g->n_kept += n;
    return DGEMMA_OK;
}

static dgemma_status add_thought(dg_guide *g, uint32_t state, dgemma_error *err)
{
    uint32_t done = state == STATE_THOUGHT ? (uint32_t)g->o.n_think_head : state - STATE_HEAD;
    if (done < (uint32_t)g->o.n_think_head)
        return add_token(g, state + 1, g->o.think_head[done], err);
    dgemma_status st = DGEMMA_OK;
    if (state == STATE_THOUGHT || g->o.thinks)
        for (int c = DG_TOKEN_CLASS_PLAIN; c < DG_TOKEN_N_CLASS && !st; c++)
            st = add(g, STATE_THOUGHT, (uint32_t)c, err);
    uint32_t start = dg_language_start(g->language) + FIRST_PLACE;
    return st ? st : add_token(g, start, g->o.think_close, err);
}

/* What a position adds to a place's own edges. */
static dgemma_status add_own(dg_guide *g, uint32_t state, dg_place at, size_t position,
                             dgemma_error *err)
{
    const known_place *p = &g->place[at];
    int32_t but = p->listed ? -1 : p->token;
    bool wide = p->wide, free_text = p->free_text;
    size_t n = p->n_edge;
    dgemma_status st = GUIDE_GROW(g, edge, n, err);
    if (st)
        return st;
    memcpy(g->edge, g->kept + p->first_edge, n * sizeof *g->edge);
    g->n_edge = n;
    if (wide)
        st = add_likely(g, at, position, but, free_text, err);
    if (!st && state == STATE_START && g->may_think)
        st = add_token(g, STATE_HEAD, g->o.think_open, err);
    return st;
}

dgemma_status dg_guide_edges(void *user, uint32_t state, size_t position,
                             const dg_word_edge **edges, size_t *n, dgemma_error *err)
{
    dg_guide *g = user;
    dg_place at = dg_guide_place(g, state);
    if (state >= FIRST_PLACE && at < g->cap_place && g->place[at].seen == g->step &&
        g->place[at].n_edge && !g->place[at].wide) { /* most are of this kind */
        *edges = g->kept + g->place[at].first_edge;
        *n = g->place[at].n_edge;
        return DGEMMA_OK;
    }
    dgemma_status st = at == DG_PLACE_DEAD ? DGEMMA_OK : touch(g, at, err);
    g->n_edge = 0;
    if (!st && at != DG_PLACE_DEAD && !g->place[at].n_edge)
        st = keep_edges(g, at, err);
    if (st)
        return st;
    if (at != DG_PLACE_DEAD && state != STATE_START && !g->place[at].wide) {
        *edges = g->kept + g->place[at].first_edge;
        *n = g->place[at].n_edge;
        return DGEMMA_OK;
    }
    if (state == STATE_DONE)
        st = add_token(g, STATE_DONE, g->o.pad, err);
    else if (at == DG_PLACE_DEAD)
        st = add_thought(g, state, err);
    else
        st = add_own(g, state, at, position, err);
    *edges = g->edge;
    *n = g->n_edge;
    return st;
}

bool dg_guide_is_passing(const dg_guide *g, uint32_t state, uint32_t label)
{
    dg_place at = dg_guide_place(g, state);
    return at != DG_PLACE_DEAD && g->place[at].wide && label >= FIRST_TOKEN;
}

dgemma_status dg_guide_explore(dg_guide *g, dgemma_error *err)
{
    dg_place at = dg_guide_place(g, g->path[0]);
    g->step++;
    g->n_touched = 0;
    dgemma_status st = touch(g, at == DG_PLACE_DEAD ? dg_language_start(g->language) : at, err);
    for (size_t i = 0; i < g->n_touched && g->n_touched < EXPLORED && !st; i++) {
        const dg_group_edge *edge;
        size_t n;
        bool wide;
        st = dg_token_groups_edges(g->groups, g->touched[i], &edge, &n, &wide, err);
        for (size_t k = 0; k < n && !st; k++)
            st = touch(g, edge[k].to, err);
    }
    return st;
}
