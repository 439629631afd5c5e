/* Whole words of a language: the rest of one, and one drawn at random; and how an automaton is
 * tried before it is used, and kept small. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "constraint/language_store.h"

/* ---- a short way to the end ---- */

typedef struct part {
    dg_node node;
    uint32_t count;
    uint8_t level, style;
} part;

typedef struct writer {
    const dg_syntax *syntax;
    dg_buf *out;
    dg_ending_fn *on_symbol;
    void *user;
    part *part; /* still to be written, the next one last */
    size_t n, cap;
} writer;

enum { MAX_PARTS = 1 << 18 };

static bool put(writer *w, part p)
{
    if (w->n == w->cap) {
        size_t want = w->cap ? 2 * w->cap : 64;
        part *grown = want <= MAX_PARTS ? dg_array_resize(w->part, want, sizeof *grown) : NULL;
        if (!grown)
            return false;
        w->part = grown;
        w->cap = want;
    }
    w->part[w->n++] = p;
    return true;
}

static bool put_child(writer *w, const part *p, dg_node child)
{
    return put(w, (part){child, 0, p->level, p->style});
}

/* The alternative that ends soonest; where that one nests too deep, the one that nests least. */
static dg_node best_child(const dg_syntax *s, const dg_syntax_node *n, dg_node id, unsigned level)
{
    bool short_way = s->ending[id].levels + level <= s->max_level;
    dg_node best = s->child[n->a];
    for (uint32_t i = 1; i < n->b; i++) {
        const dg_ending *e = &s->ending[s->child[n->a + i]], *b = &s->ending[best];
        if (short_way
                ? e->shortest < b->shortest || (e->shortest == b->shortest && e->levels < b->levels)
                : e->least_levels < b->least_levels ||
                      (e->least_levels == b->least_levels && e->shallowest < b->shallowest))
            best = s->child[n->a + i];
    }
    return best;
}

static bool write_byte(writer *w, const dg_byte_set *set)
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned b = (i + ' ') & 255; /* those that can be read come first */
        char c = (char)b;
        if (dg_byte_set_has(set, b))
            return dg_buf_append(w->out, &c, 1);
    }
    return false;
}

static bool write_layout(writer *w, const part *p, dg_layout layout)
{
    char c;
    uint32_t n = dg_layout_length(layout, p->style, p->level, &c);
    bool ok = true;
    for (uint32_t i = p->count; i < n; i++)
        ok = ok && dg_buf_append(w->out, i ? " " : &c, 1);
    return ok;
}

static bool write_part(writer *w, part p)
{
    const dg_syntax *s = w->syntax;
    const dg_syntax_node *n = &s->node[p.node];
    bool ok = true;
    switch (n->kind) {
    case DG_KIND_BYTES:
        return write_byte(w, &s->set[n->a]);
    case DG_KIND_LITERAL:
        return dg_buf_append(w->out, s->text + n->a + p.count, n->b - p.count);
    case DG_KIND_SYMBOL:
        if (w->on_symbol)
            w->on_symbol(w->user, n->a);
        return true;
    case DG_KIND_LAYOUT:
        return write_layout(w, &p, (dg_layout)n->a);
    case DG_KIND_SEQUENCE:
        for (uint32_t i = n->b; i > p.count && ok; i--)
            ok = put_child(w, &p, s->child[n->a + i - 1]);
        return ok;
    case DG_KIND_CHOICE:
        return put_child(w, &p, best_child(s, n, p.node, p.level));
    case DG_KIND_REPEAT:
        for (uint32_t i = p.count; i < n->b && ok; i++)
            ok = put_child(w, &p, n->a);
        return ok;
    case DG_KIND_NEST:
        p.level++;
        return p.count || put_child(w, &p, n->a);
    case DG_KIND_STYLE:
        p.style = (uint8_t)__builtin_ctz(n->b);
        return p.count || put_child(w, &p, n->a);
    case DG_KIND_RULE:
        return put_child(w, &p, n->a);
    default:
        return true;
    }
}

/* Bytes that are left of a piece, white space left out. */
static uint64_t left_of(const dg_syntax *s, const dg_cell *c)
{
    const dg_syntax_node *n = &s->node[c->node];
    uint64_t sum = 0;
    switch (n->kind) {
    case DG_KIND_LITERAL:
        return n->b - c->count;
    case DG_KIND_SEQUENCE:
        for (uint32_t i = c->count; i < n->b; i++)
            sum += s->ending[s->child[n->a + i]].shortest;
        return sum;
    case DG_KIND_REPEAT:
        return c->count < n->b ? (uint64_t)(n->b - c->count) * s->ending[n->a].shortest : 0;
    default:
        return c->count ? 0 : s->ending[c->node].shortest;
    }
}

static uint32_t best_stack(const dg_language *l, dg_place at)
{
    const dg_place_entry *p = &l->place[at];
    uint64_t least = UINT64_MAX;
    uint32_t best = DG_CELL_END;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t stack = l->stored[p->first + i];
        uint64_t sum = 0;
        for (uint32_t c = stack; c != DG_CELL_END; c = l->cell[c].rest)
            sum += left_of(l->syntax, &l->cell[c]);
        if (sum < least) {
            least = sum;
            best = stack;
        }
    }
    return best;
}

dgemma_status dg_language_ending(dg_language *l, dg_place at, dg_buf *out, dg_ending_fn *on_symbol,
                                 void *user, dgemma_error *err)
{
    writer w = {.syntax = l->syntax, .out = out, .on_symbol = on_symbol, .user = user};
    bool ok = true;
    for (uint32_t c = best_stack(l, at); c != DG_CELL_END && ok; c = l->cell[c].rest) {
        const dg_cell *cell = &l->cell[c];
        ok = put(&w, (part){cell->node, cell->count, l->cell[cell->rest].level,
                            l->cell[cell->rest].style});
        while (w.n && ok)
            ok = write_part(&w, w.part[--w.n]);
    }
    dg_free(w.part);
    if (ok)
        return DGEMMA_OK;
    /* nothing that is written at a time is half as long as a text may be */
    return out->len < out->max / 2
               ? dg_fail(err, DGEMMA_E_NOMEM, "no memory for the shortest text")
               : dg_fail(err, DGEMMA_E_LIMIT, "the shortest text is longer than there is room for");
}

/* ---- words at random ---- */

/* Mostly letters where they are allowed, since all else together has many more ways on. */
static bool step_at_random(const dg_edges *e, uint64_t bits, char *byte)
{
    size_t n_plain = 0;
    while (n_plain < e->n_bytes && e->bytes[n_plain].lo < 0x80)
        n_plain++;
    size_t n = n_plain && bits % 8 ? n_plain : e->n_bytes;
    if (!n)
        return false;
    bits >>= 3;
    const dg_edge *edge = &e->bytes[bits % n];
    *byte = (char)(edge->lo + (bits >> 20) % (uint64_t)(edge->hi - edge->lo + 1));
    return true;
}

/* Where both could come, a symbol once in four times. */
static bool takes_symbol(const dg_edges *e, uint64_t bits)
{
    return e->n_symbols && (!e->n_bytes || bits >> 60 < 4);
}

dgemma_status dg_language_draw(dg_language *l, const dg_rng_key *key, size_t length, dg_buf *out,
                               dg_ending_fn *on_symbol, void *user, dgemma_error *err)
{
    dg_place at = l->start;
    for (uint32_t i = 0; i < length; i++) {
        dg_edges e;
        char byte;
        dgemma_status st = dg_language_edges(l, at, &e, err);
        if (st)
            return st;
        uint64_t bits = dg_rng_bits(key, i);
        if (e.accepts && bits % 3 == 0)
            return DGEMMA_OK;
        if (takes_symbol(&e, bits)) {
            dg_symbol_edge taken = e.symbols[bits / 3 % e.n_symbols];
            if (on_symbol)
                on_symbol(user, taken.symbol);
            at = taken.to;
            continue;
        }
        if (!step_at_random(&e, bits / 3, &byte))
            break;
        if (!dg_buf_append(out, &byte, 1))
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        st = dg_language_step(l, &at, (unsigned char)byte, err);
        if (st)
            return st;
    }
    return dg_language_ending(l, at, out, on_symbol, user, err);
}

/* ---- symbols as text ---- */

bool dg_symbol_write(const dg_symbol *symbol, dg_buf *out)
{
    char id[24];
    snprintf(id, sizeof id, "<[%ld]>", (long)symbol->id);
    return dg_buf_puts(out, symbol->name ? symbol->name : id);
}

/* The symbol of the place whose name stands there, and how long that is; NULL: none does. */
static const dg_symbol_edge *named_at(const dg_language *l, const dg_edges *e, const char *text,
                                      size_t len, size_t *size)
{
    for (size_t i = 0; i < e->n_symbols; i++) {
        const dg_symbol *symbol = &l->syntax->symbol[e->symbols[i].symbol];
        char id[24];
        snprintf(id, sizeof id, "<[%ld]>", (long)symbol->id);
        const char *name = symbol->name ? symbol->name : id;
        *size = strlen(name);
        if (*size <= len && !memcmp(text, name, *size))
            return &e->symbols[i];
    }
    return NULL;
}

dgemma_status dg_language_walk_names(dg_language *l, dg_place *at, const char *text, size_t len,
                                     size_t *n, dgemma_error *err)
{
    for (*n = 0; *n < len;) {
        dg_edges e;
        dgemma_status st = dg_language_edges(l, *at, &e, err);
        if (st)
            return st;
        size_t size = 1;
        const dg_symbol_edge *named = named_at(l, &e, text + *n, len - *n, &size);
        dg_place next = named ? named->to : *at;
        if (!named) {
            size = 1;
            st = dg_language_step(l, &next, (unsigned char)text[*n], err);
        }
        if (st || next == DG_PLACE_DEAD)
            return st;
        *at = next;
        *n += size;
    }
    return DGEMMA_OK;
}

/* ---- trying, and keeping small ---- */

dgemma_status dg_language_probe(dg_language *l, dgemma_error *err)
{
    enum { PLACES = 2048, WORK = 100000 };
    size_t work = 0;
    dgemma_status st = DGEMMA_OK;
    /* Places get their ids in the order in which they are found, so this goes by distance. */
    for (dg_place at = 1; at < l->n_place && at <= PLACES && work < WORK && !st; at++) {
        dg_edges e;
        st = dg_language_edges(l, at, &e, err);
        work += 16 + l->n_leaf;
    }
    return st == DGEMMA_E_LIMIT && !l->hopeless ? DGEMMA_OK : st;
}

/* The stacks of a place, from their bottoms up. */
typedef struct saved {
    part *part;
    size_t *n;
    size_t n_stack;
} saved;

static void saved_clear(saved *s)
{
    dg_free(s->part);
    dg_free(s->n);
}

static bool save(saved *s, const dg_language *l, dg_place at)
{
    const dg_place_entry *p = &l->place[at];
    size_t total = 0;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t c = l->stored[p->first + i]; c != DG_CELL_END; c = l->cell[c].rest)
            total++;
    *s = (saved){.part = dg_array(total + 1, sizeof *s->part),
                 .n = dg_array(p->n + 1, sizeof *s->n),
                 .n_stack = p->n};
    if (!s->part || !s->n)
        return false;
    size_t end = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        size_t first = end;
        for (uint32_t c = l->stored[p->first + i]; c != DG_CELL_END; c = l->cell[c].rest)
            s->part[end++] = (part){.node = l->cell[c].node, .count = l->cell[c].count};
        for (size_t a = first, b = end; a + 1 < b; a++, b--) {
            part swap = s->part[a];
            s->part[a] = s->part[b - 1];
            s->part[b - 1] = swap;
        }
        s->n[i] = end - first;
    }
    return true;
}

static dg_place restore(dg_language *l, const saved *s)
{
    const part *p = s->part;
    l->n_target = 0;
    for (size_t i = 0; i < s->n_stack; i++) {
        uint32_t cell = DG_CELL_END;
        for (size_t k = 0; k < s->n[i] && !l->status; k++, p++)
            cell = dg_store_cell(l, p->node, p->count, cell);
        dg_store_add_target(l, cell);
    }
    return dg_store_place(l);
}

dgemma_status dg_language_forget(dg_language *l, dg_place *at, dgemma_error *err)
{
    saved here = {0}, start = {0};
    dgemma_status st = DGEMMA_OK;
    if (!save(&here, l, *at) || !save(&start, l, l->start))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    else {
        /* Room for all of it is there, so that nothing can fail from here on. */
        dg_store_forget(l);
        l->start = restore(l, &start);
        *at = restore(l, &here);
    }
    saved_clear(&here);
    saved_clear(&start);
    return st;
}
