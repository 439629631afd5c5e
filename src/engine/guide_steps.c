#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "engine/guide_internal.h"

enum {
    ENDING_MAX = 1 << 22, /* bytes, and tokens */
    MANY_PLACES = 20000,  /* from which on an automaton forgets those of past blocks */
    NARROW_BEAM = 4       /* of a canvas whose language has too many places for another */
};

/* Less uncertainty than this comes from the language alone. */
static const double certain = 1e-12;

dgemma_status dg_guide_grow(void **array, size_t *cap, size_t n, size_t size, dgemma_error *err)
{
    if (n <= *cap)
        return DGEMMA_OK;
    size_t want = *cap * 2 > n ? *cap * 2 : n + 64;
    void *p = dg_array_resize(*array, want, size);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    *array = p;
    *cap = want;
    return DGEMMA_OK;
}

/* ---- life cycle ---- */

/* Tokens with which an answer, or what is in front of it, ends: no text goes on behind them. */
static bool is_reserved(const dg_guide *g, int32_t token)
{
    bool stop = token == g->o.pad || token == g->o.think_open || token == g->o.think_close;
    for (int i = 0; i < g->o.n_stop; i++)
        stop |= token == g->o.stop[i];
    return token >= 0 && stop;
}

/* Special tokens that the language names, by their ids. */
static dgemma_status find_symbols(dg_guide *g, dgemma_error *err)
{
    const dg_syntax *s = g->o.syntax;
    for (size_t i = 0; i < s->n_symbol; i++) {
        const dg_symbol *symbol = &s->symbol[i];
        g->symbol[i] =
            symbol->name ? dg_tokenizer_added_id(g->o.tokenizer, symbol->name) : symbol->id;
        if (is_reserved(g, g->symbol[i]))
            return dg_fail(err, DGEMMA_E_ARG,
                           "the constraint names token %d, which ends a turn or marks a thought",
                           (int)g->symbol[i]);
        if (g->symbol[i] < 0 || (size_t)g->symbol[i] >= dg_token_trie_count(g->o.trie))
            return symbol->name ? dg_fail(err, DGEMMA_E_ARG,
                                          "the vocabulary has no special token %s", symbol->name)
                                : dg_fail(err, DGEMMA_E_ARG, "the vocabulary has no token %d",
                                          (int)symbol->id);
    }
    return DGEMMA_OK;
}

static bool allocate(dg_guide *g)
{
    size_t n = (size_t)g->o.n_canvas;
    dg_asked *a = &g->asked;
    dg_buf_init(&g->ending, ENDING_MAX);
    g->symbol = dg_calloc(g->o.syntax->n_symbol + 1, sizeof *g->symbol);
    g->id = dg_array(DG_ASKED_MAX, sizeof *g->id);
    g->slot_of = dg_calloc(dg_token_trie_count(g->o.trie), sizeof *g->slot_of);
    g->drawn = dg_array(n, sizeof *g->drawn);
    g->path = dg_array(n + 1, sizeof *g->path);
    g->known = dg_array(n, sizeof *g->known);
    g->most = dg_array(n, sizeof *g->most);
    g->least = dg_array(n, sizeof *g->least);
    *a = (dg_asked){
        .id = g->id,
        .class_of = dg_token_trie_classes(g->o.trie),
        .logprob = dg_array(n * DG_ASKED_MAX, sizeof *a->logprob),
        .found = dg_calloc(n * DG_ASKED_CLASSES, sizeof *a->found),
        .top_id = dg_array(n * DG_ASKED_TOP, sizeof *a->top_id),
        .top_logprob = dg_array(n * DG_ASKED_TOP, sizeof *a->top_logprob),
    };
    return g->symbol && g->least && g->id && g->slot_of && g->drawn && g->path && g->known &&
           g->most && a->logprob && a->found && a->top_id && a->top_logprob;
}

dgemma_status dg_guide_create(dg_guide **out, const dg_guide_options *options, dgemma_error *err)
{
    dg_guide *g = dg_calloc(1, sizeof *g);
    if (!g)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    g->o = *options;
    g->version = 1; /* no place was in a question yet */
    if (g->o.n_think_head > MAX_HEAD)
        g->o.n_think_head = MAX_HEAD;
    g->may_think = g->o.think_open >= 0 && g->o.think_close >= 0;
    dgemma_status st =
        allocate(g) ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "no memory for a constraint");
    if (!st)
        st = find_symbols(g, err);
    if (!st)
        st = dg_language_create(&g->language, g->o.syntax, err);
    if (!st)
        st = dg_token_groups_create(&g->groups, g->o.trie, g->language, g->symbol, err);
    if (!st)
        st = dg_word_create(&g->word, err);
    if (!st) {
        int need; /* its number is told where it is too large */
        g->path[0] = g->o.in_thought ? STATE_THOUGHT : STATE_START;
        g->n_most = UINT32_MAX;
        st = dg_guide_need(g, &need, err);
        g->n_most = (uint32_t)(g->o.n_most > 0 ? g->o.n_most : 0);
    }
    if (!st)
        st = dg_guide_explore(g, err);
    if (!st)
        st = dg_guide_question(g, err);
    if (st)
        dg_guide_free(g);
    else
        *out = g;
    return st;
}

void dg_guide_free(dg_guide *g)
{
    if (!g)
        return;
    dg_word_free(g->word);
    dg_token_groups_free(g->groups);
    dg_language_free(g->language);
    void *list[] = {g->symbol,        g->place,        g->touched,
                    g->symbol_at,     g->symbol_id,    g->id,
                    g->slot_of,       g->group,        g->member,
                    g->way,           g->kept,         g->edge,
                    g->drawn,         g->path,         g->known,
                    g->most,          g->least,        g->asked.found,
                    g->asked.logprob, g->asked.top_id, g->asked.top_logprob};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        dg_free(list[i]);
    dg_buf_clear(&g->ending);
    dg_free(g);
}

dgemma_status dg_guide_need(dg_guide *g, int *need, dgemma_error *err)
{
    uint32_t n;
    dgemma_status st = dg_guide_need_of(g, g->path[0], &n, err);
    if (!st && n + 1 >= NEED_FAR)
        st = dg_fail(err, DGEMMA_E_LIMIT, "the constraint is too complex for the vocabulary");
    *need = st ? 0 : (int)n;
    return st;
}

/* ---- a step ---- */

/* The draw is from other probabilities than the model's. */
static bool is_warm(const dg_draw_options *d)
{
    return d && d->temperature > 0 &&
           (d->temperature < 1 || d->temperature > 1 || d->top_k || d->top_p < 1 || d->min_p > 0);
}

const dg_asked *dg_guide_ask(dg_guide *g, const double *uniform, int n, const dg_draw_options *draw)
{
    bool thought = g->path[0] == STATE_THOUGHT || g->path[0] == STATE_START ||
                   (g->path[0] >= STATE_HEAD && g->path[0] < FIRST_PLACE);
    g->asked.classes = 1u << DG_TOKEN_CLASS_PLAIN;
    g->asked.power = is_warm(draw) ? 1 / draw->temperature : 1;
    if (thought && (g->o.thinks || g->o.in_thought))
        g->asked.classes |= 1u << DG_TOKEN_CLASS_OTHER;
    /* the lower bits of a number decide inside a class, where the higher ones have led to it */
    for (int i = 0; i < n; i++)
        for (int c = 0; c < DG_ASKED_CLASSES; c++) {
            double whole, low = modf(uniform[i] * 0x1p24, &whole);
            g->asked.found[i * DG_ASKED_CLASSES + c].uniform = low;
        }
    return &g->asked;
}

static bool fits(void *user, uint32_t state, size_t position)
{
    dg_guide *g = user;
    dgemma_error ignored;
    uint32_t need = 0;
    if (state == STATE_DONE)
        return true;
    if (state >= FIRST_PLACE && state - FIRST_PLACE < g->cap_place)
        need = g->place[state - FIRST_PLACE].need;
    if (need && need < NEED_FAR) { /* known of most */
        need--;
    } else {
        dgemma_status st = dg_guide_need_of(g, state, &need, &ignored);
        g->no_memory |= st == DGEMMA_E_NOMEM;
        if (st || need + 1 >= NEED_LOST) {
            g->unfit = true;
            return false;
        }
    }
    return (int64_t)need <= g->room - (int64_t)position;
}

/* What no token of a position exceeds. Sums over classes are in double, likeliest tokens are not.
 */
static void find_most(dg_guide *g, size_t n)
{
    const float *top = g->asked.top_logprob + (size_t)g->first * DG_ASKED_TOP;
    for (size_t i = 0; i < n; i++)
        g->most[i] = fmin((double)top[i * DG_ASKED_TOP] + 1e-5, 0);
}

/* The edge of a state by this token, and how it may be taken. */
typedef enum way { WAY_NONE, WAY_WITHOUT_ROOM, WAY_OPEN } way;

static dgemma_status find_edge(dg_guide *g, uint32_t state, size_t position, int32_t token,
                               dg_word_edge *out, way *found, dgemma_error *err)
{
    const dg_word_edge *edge;
    size_t n, i = 0;
    *found = WAY_NONE;
    dgemma_status st = dg_guide_edges(g, state, position, &edge, &n, err);
    if (st)
        return st;
    while (i < n && !dg_guide_has_token(g, edge[i].label, token))
        i++;
    if (i == n)
        return DGEMMA_OK;
    *out = edge[i];
    *found = fits(g, out->to, position + 1) ? WAY_OPEN : WAY_WITHOUT_ROOM;
    return DGEMMA_OK;
}

static bool is_thought(uint32_t state)
{
    return state == STATE_THOUGHT || (state >= STATE_HEAD && state < FIRST_PLACE);
}

/* A thought is free, and where it ends is the model's own affair: a text that it does not like to
 * write would otherwise be put off by thinking on. As far as the model says where, the text keeps
 * to its thought.
 *
 * Where a token was accepted, and the model has seen it and wants one that cannot be there, it will
 * not come round: what it says behind is about another text. Then the text keeps, from the left, to
 * what the model says as far as that may be, and otherwise to what was accepted, which is what the
 * model was told; from the first place that has neither it is the most probable one. */
static dgemma_status hold_beginning(dg_guide *g, const dg_guide_step *s, dgemma_error *err)
{
    uint32_t state = g->path[s->first], was = state;
    bool knew_path = g->knows_path, insists = false;
    int n_thought = 0; /* with what closes it */
    g->n_held = 0;
    g->knows_path = false; /* until the known edges are whole again */
    for (int i = s->first; i < s->n; i++) {
        size_t position = (size_t)(i - s->first);
        dg_word_edge edge = {0};
        way found;
        dgemma_status st = find_edge(g, state, position, s->argmax[i], &edge, &found, err);
        g->bounded |= found == WAY_WITHOUT_ROOM; /* the model would have gone on */
        if (!st && found != WAY_OPEN && s->accepted && s->accepted[i]) {
            st = find_edge(g, state, position, s->canvas[i], &edge, &found, err);
            insists |= found == WAY_OPEN;
            if (edge.label != LABEL_END)
                edge.label = FIRST_TOKEN + (uint32_t)s->canvas[i];
        }
        if (st)
            return st;
        if (found != WAY_OPEN)
            break;
        was = g->known[i].to;
        if (is_thought(state) || is_thought(edge.to))
            n_thought = g->n_held + 1;
        g->known[i] = edge;
        state = edge.to;
        g->n_held++;
    }
    if (!insists)
        g->n_held = is_thought(state) ? 0 : n_thought;
    g->knows_path = knew_path && was == state; /* what is known goes on from there */
    return DGEMMA_OK;
}

static dgemma_status held_edges(void *user, uint32_t state, size_t position,
                                const dg_word_edge **edges, size_t *n, dgemma_error *err)
{
    const dg_guide *g = user;
    if (position >= (size_t)g->n_held)
        return dg_guide_edges(user, state, position, edges, n, err);
    *edges = &g->known[(size_t)g->first + position];
    *n = 1;
    return DGEMMA_OK;
}

static dgemma_status solve(dg_guide *g, const dg_guide_step *s, size_t beam, dgemma_error *err)
{
    size_t n = (size_t)(s->n - s->first);
    dg_word_graph graph = {g, held_edges, dg_guide_weigh, fits};
    g->step++;
    g->n_touched = 0;
    g->no_memory = g->unfit = g->bounded = false;
    dgemma_status st = hold_beginning(g, s, err);
    dg_word_options o = {.n = n,
                         .start = g->path[g->first],
                         .beam = beam,
                         .known = g->knows_path && !g->warms ? g->known + g->first : NULL,
                         .most = g->most};
    find_most(g, n);
    if (!st)
        st = dg_word_solve(g->word, &graph, &o, err);
    if (g->no_memory)
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for a constraint");
    if (st == DGEMMA_E_ARG && g->unfit)
        st = dg_fail(err, DGEMMA_E_LIMIT, "the constraint is too complex for the canvas");
    return st;
}

/* Another automaton with nothing in it but where the canvas begins. */
static dgemma_status forget(dg_guide *g, uint32_t *state, dgemma_error *err)
{
    dg_place at = dg_guide_place(g, *state), start = dg_language_start(g->language);
    bool own = *state < FIRST_PLACE; /* the start has another id then */
    dgemma_status st = dg_language_forget(g->language, own ? &start : &at, err);
    if (!st && !own)
        *state = at + FIRST_PLACE;
    dg_token_groups_forget(g->groups);
    dg_guide_forget_places(g);
    g->knows_path = false;
    return st;
}

/* One position where the text holds another token than the model's own. */
static void overrule(dg_guide *g, const dg_guide_step *s, int i)
{
    uint32_t label = g->known[i].label;
    bool cold = s->draw && s->draw->temperature == 0;
    double whole, low = modf(s->uniform[i] * 0x1p24, &whole);
    double entropy = dg_word_entropy(g->word, (size_t)(i - s->first));
    s->argmax[i] = dg_guide_best_token(g, i, label);
    s->drawn[i] =
        cold ? s->argmax[i] : dg_guide_drawn_token(g, i, g->drawn[i - s->first].label, low);
    s->entropy[i] = (float)entropy;
    s->forced[i] = entropy < certain || g->path[i] == STATE_DONE;
    if (s->logprob)
        s->logprob[i] =
            (float)(label < DG_ASKED_CLASSES ? dg_guide_weigh(g, (size_t)(i - s->first), label).best
                                             : dg_guide_logprob(g, i, s->argmax[i]));
}

/* The path of the word in states and tokens, and a draw. Where the model says the same by itself,
 * what it thinks of the position stays as it is. */
static void read_word(dg_guide *g, const dg_guide_step *s)
{
    const dg_word_edge *edge = dg_word_path(g->word);
    g->knows_path = true;
    if (g->warms)
        dg_word_reweigh(g->word, dg_guide_warm, g);
    dg_word_draw(g->word, s->uniform + s->first, g->drawn);
    for (int i = s->first; i < s->n; i++) {
        g->known[i] = edge[i - s->first];
        g->path[i + 1] = g->known[i].to;
        g->knows_path &= !dg_guide_is_passing(g, g->path[i], g->known[i].label);
        s->forced[i] = false;
        if (dg_guide_best_token(g, i, g->known[i].label) != s->argmax[i])
            overrule(g, s, i);
    }
}

dgemma_status dg_guide_take(dg_guide *g, const dg_guide_step *s, dgemma_error *err)
{
    g->first = s->first;
    g->room = s->room - s->first;
    g->warms = is_warm(s->draw);
    g->resistance = 0;
    if (g->warms) {
        g->draw = *s->draw;
        dg_guide_filter(g, s->first, s->n - s->first);
    }
    if (s->n == s->first)
        return DGEMMA_OK;
    dgemma_error why = {0};
    dgemma_status st = solve(g, s, DG_WORD_BEAM, &why);
    if (st == DGEMMA_E_LIMIT) {
        st = forget(g, &g->path[s->first], &why);
        if (!st)
            st = solve(g, s, NARROW_BEAM, &why);
    }
    if (st)
        return dg_fail(err, st, "%s", why.msg);
    g->bounded |= dg_word_bounded(g->word);
    g->resistance = (float)fmax(-dg_word_log_mass(g->word) / (s->n - s->first), 0);
    read_word(g, s);
    return dg_guide_question(g, err);
}

/* ---- blocks ---- */

dgemma_status dg_guide_commit(dg_guide *g, int n, bool thought_closed, dgemma_error *err)
{
    uint32_t state = g->path[n];
    dgemma_status st = DGEMMA_OK;
    g->knows_path = false;
    if (dg_language_measure(g->language).n_place > MANY_PLACES)
        st = forget(g, &state, err);
    if (thought_closed) {
        state = dg_language_start(g->language) + FIRST_PLACE;
        g->may_think = false;
    }
    g->path[0] = state;
    if (!st && !g->n_touched)
        st = dg_guide_explore(g, err);
    return st ? st : dg_guide_question(g, err);
}

dgemma_status dg_guide_complete(dg_guide *g, bool *complete, dgemma_error *err)
{
    dg_place at = dg_guide_place(g, g->path[0]);
    *complete = g->path[0] == STATE_DONE;
    if (at == DG_PLACE_DEAD)
        return DGEMMA_OK;
    dg_edges e;
    dgemma_status st = dg_language_edges(g->language, at, &e, err);
    *complete = !st && e.accepts;
    return st;
}

bool dg_guide_bounded(const dg_guide *g)
{
    return g->bounded;
}

float dg_guide_resistance(const dg_guide *g)
{
    return g->resistance;
}
