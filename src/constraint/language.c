#include "constraint/language.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "constraint/language_store.h"

/* ---- what can come next ---- */

uint32_t dg_layout_length(dg_layout layout, unsigned style, unsigned level, char *first)
{
    *first = ' ';
    if (style == DG_STYLE_COMPACT)
        return 0;
    if (layout == DG_LAYOUT_COLON)
        return 1;
    if (style == DG_STYLE_LINE)
        return layout == DG_LAYOUT_COMMA;
    *first = '\n';
    return 1 + 2 * (level - (layout == DG_LAYOUT_CLOSE));
}

static void push_cell(dg_language *l, uint32_t cell)
{
    if (l->status)
        return;
    if (cell == DG_CELL_END) {
        l->accepts = true;
        return;
    }
    if (!dg_store_mark(l) || l->mark[cell].seen == l->round ||
        !DG_STORE_GROW(l, todo, DG_LANGUAGE_MAX_CELLS))
        return;
    l->mark[cell].seen = l->round;
    l->todo[l->n_todo++] = cell;
}

/* The node in front of `rest`, unless it cannot end within the levels that are left. */
static void push(dg_language *l, dg_node node, uint32_t rest)
{
    if (node == DG_NODE_EMPTY) {
        push_cell(l, rest);
        return;
    }
    const dg_syntax *s = l->syntax;
    if (l->cell[rest].level + s->ending[node].least_levels > s->max_level)
        return;
    uint32_t cell = dg_store_cell(l, node, 0, rest);
    if (!l->status)
        push_cell(l, cell);
}

static void add_leaf(dg_language *l, dg_node_kind kind, uint32_t what, uint32_t to)
{
    if (l->status)
        return;
    if (DG_STORE_GROW(l, leaf, DG_LANGUAGE_MAX_WIDTH))
        l->leaf[l->n_leaf++] = (dg_leaf){(uint8_t)kind, what, to};
    else
        l->hopeless = true;
}

static void expand_sequence(dg_language *l, const dg_syntax_node *n, const dg_cell *c)
{
    uint32_t next = c->count + 1;
    uint32_t rest = next < n->b ? dg_store_cell(l, c->node, next, c->rest) : c->rest;
    if (!l->status)
        push(l, l->syntax->child[n->a + c->count], rest);
}

/* Of a child that may be empty, a further round that comes without a byte adds nothing. */
static bool met_with_fewer(dg_language *l, const dg_cell *c)
{
    uint32_t base = dg_store_cell(l, c->node, 0, c->rest);
    if (l->status || !dg_store_mark(l))
        return true;
    struct dg_mark *m = &l->mark[base];
    if (m->met == l->round && m->fewest < c->count)
        return true;
    m->met = l->round;
    m->fewest = c->count;
    return false;
}

/* One more round, or on. */
static void expand_repeat(dg_language *l, const dg_syntax_node *n, const dg_cell *c)
{
    bool counted = n->c != DG_UNBOUNDED;
    if (n->starves && counted && met_with_fewer(l, c))
        return;
    if (c->count >= n->b)
        push_cell(l, c->rest);
    if (counted && c->count >= n->c)
        return;
    uint32_t count = counted || c->count < n->b ? c->count + 1 : n->b;
    uint32_t again = dg_store_cell(l, c->node, count, c->rest);
    if (!l->status)
        push(l, n->a, again);
}

static void expand_literal(dg_language *l, const dg_syntax_node *n, const dg_cell *c)
{
    uint32_t next = c->count + 1;
    uint32_t to = next < n->b ? dg_store_cell(l, c->node, next, c->rest) : c->rest;
    add_leaf(l, DG_KIND_LITERAL, (unsigned char)l->syntax->text[n->a + c->count], to);
}

static void expand_layout(dg_language *l, const dg_syntax_node *n, const dg_cell *c)
{
    char first;
    uint32_t length = dg_layout_length((dg_layout)n->a, c->style, c->level, &first);
    if (c->count >= length) {
        push_cell(l, c->rest);
        return;
    }
    uint32_t next = c->count + 1;
    uint32_t to = next < length ? dg_store_cell(l, c->node, next, c->rest) : c->rest;
    add_leaf(l, DG_KIND_LITERAL, (unsigned char)(c->count ? ' ' : first), to);
}

static void expand_style(dg_language *l, const dg_syntax_node *n, const dg_cell *c)
{
    if (c->count) {
        push_cell(l, c->rest);
        return;
    }
    for (unsigned style = DG_STYLE_LINE; style <= DG_STYLE_COMPACT; style++) {
        if (!(n->b >> style & 1))
            continue;
        uint32_t rest = dg_store_cell(l, c->node, style, c->rest);
        if (!l->status)
            push(l, n->a, rest);
    }
}

static void expand_cell(dg_language *l, uint32_t id)
{
    const dg_cell cell = l->cell[id], *c = &cell; /* the array may move */
    const dg_syntax_node *n = &l->syntax->node[c->node];
    switch (n->kind) {
    case DG_KIND_BYTES:
        add_leaf(l, DG_KIND_BYTES, n->a, c->rest);
        break;
    case DG_KIND_SYMBOL:
        add_leaf(l, DG_KIND_SYMBOL, n->a, c->rest);
        break;
    case DG_KIND_LITERAL:
        expand_literal(l, n, c);
        break;
    case DG_KIND_SEQUENCE:
        expand_sequence(l, n, c);
        break;
    case DG_KIND_CHOICE:
        for (uint32_t i = 0; i < n->b && !l->status; i++)
            push(l, l->syntax->child[n->a + i], c->rest);
        break;
    case DG_KIND_REPEAT:
        expand_repeat(l, n, c);
        break;
    case DG_KIND_RULE:
        push(l, n->a, c->rest);
        break;
    case DG_KIND_NEST:
        if (c->count)
            push_cell(l, c->rest);
        else {
            uint32_t inside = dg_store_cell(l, c->node, 1, c->rest);
            if (!l->status)
                push(l, n->a, inside);
        }
        break;
    case DG_KIND_STYLE:
        expand_style(l, n, c);
        break;
    case DG_KIND_LAYOUT:
        expand_layout(l, n, c);
        break;
    default:
        push_cell(l, c->rest);
        break;
    }
}

/* All leaves that the place's stacks have on top once everything in front of a byte is resolved. */
static void collect_leaves(dg_language *l, dg_place at)
{
    l->round++;
    l->n_todo = l->n_leaf = 0;
    l->accepts = false;
    for (uint32_t i = 0; i < l->place[at].n; i++)
        push_cell(l, l->stored[l->place[at].first + i]);
    while (l->n_todo && !l->status)
        expand_cell(l, l->todo[--l->n_todo]);
}

static bool leaf_has(const dg_language *l, const dg_leaf *f, unsigned byte)
{
    return f->kind == DG_KIND_LITERAL ? f->what == byte
           : f->kind == DG_KIND_BYTES ? dg_byte_set_has(&l->syntax->set[f->what], byte)
                                      : false;
}

/* Bytes at which some leaf begins or ceases to allow them: between two of them all are alike. */
static void find_borders(const dg_language *l, bool border[257])
{
    memset(border, 0, 257 * sizeof *border);
    border[0] = true;
    for (size_t i = 0; i < l->n_leaf; i++) {
        const dg_leaf *f = &l->leaf[i];
        if (f->kind == DG_KIND_LITERAL)
            border[f->what] = border[f->what + 1] = true;
        else if (f->kind == DG_KIND_BYTES)
            for (unsigned b = 1; b < 256; b++)
                border[b] |= leaf_has(l, f, b) != leaf_has(l, f, b - 1);
    }
}

static void add_edge(dg_language *l, size_t first, unsigned lo, unsigned hi, dg_place to)
{
    if (l->n_edge > first) {
        dg_edge *last = &l->edge[l->n_edge - 1];
        if (last->to == to && last->hi + 1u == lo) {
            last->hi = (uint8_t)hi;
            return;
        }
    }
    if (DG_STORE_GROW(l, edge, DG_LANGUAGE_MAX_EDGES))
        l->edge[l->n_edge++] = (dg_edge){(uint8_t)lo, (uint8_t)hi, to};
}

static void add_byte_edges(dg_language *l)
{
    bool border[257];
    find_borders(l, border);
    size_t first = l->n_edge;
    for (unsigned lo = 0, hi; lo < 256 && !l->status; lo = hi) {
        for (hi = lo + 1; hi < 256 && !border[hi]; hi++)
            ;
        l->n_target = 0;
        for (size_t i = 0; i < l->n_leaf; i++)
            if (leaf_has(l, &l->leaf[i], lo))
                dg_store_add_target(l, l->leaf[i].to);
        dg_place to = dg_store_place(l);
        if (to && !l->status)
            add_edge(l, first, lo, hi - 1, to);
    }
}

static void add_symbol_edges(dg_language *l)
{
    for (uint32_t symbol = 0; symbol < l->syntax->n_symbol && !l->status; symbol++) {
        l->n_target = 0;
        for (size_t i = 0; i < l->n_leaf; i++)
            if (l->leaf[i].kind == DG_KIND_SYMBOL && l->leaf[i].what == symbol)
                dg_store_add_target(l, l->leaf[i].to);
        dg_place to = dg_store_place(l);
        if (to && !l->status && DG_STORE_GROW(l, symbol, DG_LANGUAGE_MAX_EDGES))
            l->symbol[l->n_symbol++] = (dg_symbol_edge){symbol, to};
    }
}

static dgemma_status expand(dg_language *l, dg_place at, dgemma_error *err)
{
    l->status = DGEMMA_OK;
    size_t n_edge = l->n_edge, n_symbol = l->n_symbol;
    collect_leaves(l, at);
    bool accepts = l->accepts;
    add_byte_edges(l);
    add_symbol_edges(l);
    if (l->status) {
        l->n_edge = n_edge;
        l->n_symbol = n_symbol;
        return dg_fail(err, l->status, "%s", l->error.msg);
    }
    dg_place_entry *p = &l->place[at];
    p->edge = (uint32_t)n_edge;
    p->n_edge = (uint32_t)(l->n_edge - n_edge);
    p->symbol = (uint32_t)n_symbol;
    p->n_symbol = (uint32_t)(l->n_symbol - n_symbol);
    p->accepts = accepts;
    p->expanded = true;
    return DGEMMA_OK;
}

/* ---- the automaton ---- */

dgemma_status dg_language_edges(dg_language *l, dg_place at, dg_edges *out, dgemma_error *err)
{
    if (!l->place[at].expanded) {
        dgemma_status st = expand(l, at, err);
        if (st)
            return st;
    }
    const dg_place_entry *p = &l->place[at];
    *out = (dg_edges){.bytes = p->n_edge ? l->edge + p->edge : NULL,
                      .n_bytes = p->n_edge,
                      .symbols = p->n_symbol ? l->symbol + p->symbol : NULL,
                      .n_symbols = p->n_symbol,
                      .accepts = p->accepts};
    return DGEMMA_OK;
}

dgemma_status dg_language_step(dg_language *l, dg_place *at, unsigned char byte, dgemma_error *err)
{
    dg_edges e;
    dgemma_status st = dg_language_edges(l, *at, &e, err);
    if (st)
        return st;
    size_t lo = 0, hi = e.n_bytes;
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (e.bytes[middle].hi < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    *at = lo < e.n_bytes && e.bytes[lo].lo <= byte ? e.bytes[lo].to : DG_PLACE_DEAD;
    return DGEMMA_OK;
}

dgemma_status dg_language_symbol(dg_language *l, dg_place *at, uint32_t symbol, dgemma_error *err)
{
    dg_edges e;
    dgemma_status st = dg_language_edges(l, *at, &e, err);
    if (st)
        return st;
    *at = DG_PLACE_DEAD;
    for (size_t i = 0; i < e.n_symbols; i++)
        if (e.symbols[i].symbol == symbol)
            *at = e.symbols[i].to;
    return DGEMMA_OK;
}

dgemma_status dg_language_walk(dg_language *l, dg_place *at, const char *text, size_t len,
                               size_t *n, dgemma_error *err)
{
    for (*n = 0; *n < len; ++*n) {
        dg_place next = *at;
        dgemma_status st = dg_language_step(l, &next, (unsigned char)text[*n], err);
        if (st)
            return st;
        if (next == DG_PLACE_DEAD)
            break;
        *at = next;
    }
    return DGEMMA_OK;
}

static void enter_start(dg_language *l)
{
    uint32_t cell = l->syntax->root == DG_NODE_EMPTY
                        ? DG_CELL_END
                        : dg_store_cell(l, l->syntax->root, 0, DG_CELL_END);
    l->n_target = 0;
    if (!l->status)
        dg_store_add_target(l, cell);
    l->start = dg_store_place(l);
}

dgemma_status dg_language_create(dg_language **out, const dg_syntax *syntax, dgemma_error *err)
{
    dg_language *l = dg_calloc(1, sizeof *l);
    if (!l)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    l->syntax = syntax;
    if (dg_store_begin(l))
        enter_start(l);
    if (l->status) {
        dgemma_status st = dg_fail(err, l->status, "%s", l->error.msg);
        dg_language_free(l);
        return st;
    }
    *out = l;
    return DGEMMA_OK;
}

void dg_language_free(dg_language *l)
{
    if (!l)
        return;
    dg_store_clear(l);
    dg_free(l);
}

dg_place dg_language_start(const dg_language *l)
{
    return l->start;
}

bool dg_language_has_symbols(const dg_language *l)
{
    return l->syntax->n_symbol > 0;
}

dg_language_size dg_language_measure(const dg_language *l)
{
    size_t bytes = l->cap_cell * sizeof *l->cell + l->cap_mark * sizeof *l->mark +
                   (l->n_cell_slot + l->n_place_slot + l->cap_stored) * sizeof(uint32_t) +
                   l->cap_place * sizeof *l->place + l->cap_edge * sizeof *l->edge +
                   l->cap_symbol * sizeof *l->symbol + l->cap_todo * sizeof *l->todo +
                   l->cap_leaf * sizeof *l->leaf + l->cap_target * sizeof *l->target;
    return (dg_language_size){l->n_place - 1, l->n_cell - 1, l->n_edge, bytes};
}
