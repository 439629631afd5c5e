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
    g->n_touched = 0;
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

/* A short ending from a place, in tokens; symbols as -1 - symbol. */
static dgemma_status spell_ending(dg_guide *g, dg_place at, dgemma_error *err)
{
    g->ending.len = g->spelled.n = g->n_symbol_at = 0;
    dgemma_status st = dg_language_ending(g->language, at, &g->ending, note_symbol, g, err);
    if (!st && g->n_symbol_at == SIZE_MAX)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    size_t from = 0;
    for (size_t i = 0; !st && i <= g->n_symbol_at; i++) {
        size_t to = i < g->n_symbol_at ? g->symbol_at[i] : g->ending.len;
        if (to > from)
            st = dg_token_trie_spell(g->o.trie, g->ending.data + from, to - from, &g->spelled, err);
        from = to;
        if (!st && i < g->n_symbol_at &&
            !dg_tokens_push(&g->spelled, -1 - (int32_t)g->symbol_id[i]))
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    return st;
}

static dgemma_status step_on(dg_guide *g, dg_place *at, int32_t token, dgemma_error *err)
{
    if (token < 0)
        return dg_language_symbol(g->language, at, (uint32_t)(-1 - token), err);
    return dg_token_step(g->o.trie, g->language, at, token, err);
}

/* Walks an ending's tokens from `at`, and notes at each place on the way how far it is from there,
 * and what comes next. A place whose way is known already may have a shorter one: so what is noted
 * only ever falls, and behind each place there is one that is nearer to the end. */
static dgemma_status find_way(dg_guide *g, dg_place at, dgemma_error *err)
{
    known_place *p;
    dgemma_status st = spell_ending(g, at, err);
    uint32_t n = (uint32_t)g->spelled.n;
    for (uint32_t i = 0; i <= n && !st; i++) {
        st = place_of(g, at, &p, err);
        uint32_t need = n - i + 1;
        if (st || (p->need && p->need <= need))
            break;
        int32_t token = i < n ? g->spelled.ids[i] : 0;
        p->need = need;
        p->token = token < 0 ? g->symbol[-1 - token] : token;
        p->listed = -1;
        if (i < n)
            st = step_on(g, &at, token, err);
        if (!st && at == DG_PLACE_DEAD)
            st = dg_fail(err, DGEMMA_E_INTERNAL, "a constraint's ending is not part of it");
        p->to = at;
    }
    return st;
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

static dgemma_status add(dg_guide *g, uint32_t to, int32_t token, bool is_class, dgemma_error *err)
{
    dgemma_status st = GUIDE_GROW(g, edge, g->n_edge + 1, err);
    if (!st)
        g->edge[g->n_edge++] = (dg_word_edge){to, token, is_class};
    return st;
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
            st = add(g, at + FIRST_PLACE, top[i], false, err);
    }
    return st;
}

static dgemma_status add_place(dg_guide *g, dg_place at, size_t position, dgemma_error *err)
{
    const dg_group_edge *edge;
    size_t n;
    bool wide;
    uint32_t need;
    dg_edges bytes;
    dgemma_status st = need_of_place(g, at, &need, err);
    if (!st)
        st = touch(g, at, err);
    if (!st)
        st = dg_token_groups_edges(g->groups, at, &edge, &n, &wide, err);
    if (st)
        return st;
    for (size_t i = 0; i < n && !st; i++)
        st = add(g, edge[i].to + FIRST_PLACE,
                 (int32_t)edge[i].group + (edge[i].is_class ? 0 : FIRST_GROUP), true, err);
    bool free_text = n && edge->is_class;
    known_place *p = &g->place[at];
    if (p->listed < 0)
        p->listed = !need || lists_way(g, p, edge, n);
    if (!st && !p->listed)
        st = add(g, p->to + FIRST_PLACE, p->token, false, err);
    if (!st && wide)
        st = add_likely(g, at, position, p->listed ? -1 : p->token, free_text, err);
    if (!st)
        st = dg_language_edges(g->language, at, &bytes, err);
    for (int i = 0; !st && bytes.accepts && i < g->o.n_stop; i++)
        st = add(g, STATE_DONE, g->o.stop[i], false, err);
    return st;
}

static dgemma_status add_thought(dg_guide *g, uint32_t state, dgemma_error *err)
{
    uint32_t done = state == STATE_THOUGHT ? (uint32_t)g->o.n_think_head : state - STATE_HEAD;
    if (done < (uint32_t)g->o.n_think_head)
        return add(g, state + 1, g->o.think_head[done], false, err);
    dgemma_status st = DGEMMA_OK;
    if (state == STATE_THOUGHT || g->o.thinks)
        for (int c = DG_TOKEN_CLASS_PLAIN; c < DG_TOKEN_N_CLASS && !st; c++)
            st = add(g, STATE_THOUGHT, c, true, err);
    uint32_t start = dg_language_start(g->language) + FIRST_PLACE;
    return st ? st : add(g, start, g->o.think_close, false, err);
}

dgemma_status dg_guide_edges(void *user, uint32_t state, size_t position,
                             const dg_word_edge **edges, size_t *n, dgemma_error *err)
{
    dg_guide *g = user;
    dg_place at = dg_guide_place(g, state);
    dgemma_status st = DGEMMA_OK;
    g->n_edge = 0;
    if (state == STATE_DONE)
        st = add(g, STATE_DONE, g->o.pad, false, err);
    else if (at == DG_PLACE_DEAD)
        st = add_thought(g, state, err);
    else
        st = add_place(g, at, position, err);
    if (!st && state == STATE_START && g->may_think)
        st = add(g, STATE_HEAD, g->o.think_open, false, err);
    *edges = g->edge;
    *n = g->n_edge;
    return st;
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
