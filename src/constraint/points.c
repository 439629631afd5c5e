#include "constraint/points.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/utf8.h"

enum { LAST = 0x10FFFF, MAX_SPANS = 1 << 16 };

void dg_points_clear(dg_points *p)
{
    dg_free(p->span);
    *p = (dg_points){0};
}

void dg_points_add(dg_points *p, uint32_t lo, uint32_t hi)
{
    if (p->failed)
        return;
    if (p->n == p->cap) {
        size_t want = p->cap ? 2 * p->cap : 16;
        dg_span *span = want <= MAX_SPANS ? dg_array_resize(p->span, want, sizeof *span) : NULL;
        if (!span) {
            p->failed = true;
            p->no_memory |= want <= MAX_SPANS;
            return;
        }
        p->span = span;
        p->cap = want;
    }
    p->span[p->n++] = (dg_span){lo, hi};
}

void dg_points_add_all(dg_points *p, const dg_points *other)
{
    for (size_t i = 0; i < other->n; i++)
        dg_points_add(p, other->span[i].lo, other->span[i].hi);
    p->failed |= other->failed;
    p->no_memory |= other->no_memory;
}

static int compare_spans(const void *x, const void *y)
{
    const dg_span *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* In ascending order, none touching the next. */
static void settle(dg_points *p)
{
    if (!p->n)
        return;
    qsort(p->span, p->n, sizeof *p->span, compare_spans);
    size_t n = 1;
    for (size_t i = 1; i < p->n; i++) {
        dg_span *last = &p->span[n - 1];
        if (p->span[i].lo <= last->hi + 1) {
            if (p->span[i].hi > last->hi)
                last->hi = p->span[i].hi;
        } else
            p->span[n++] = p->span[i];
    }
    p->n = n;
}

void dg_points_negate(dg_points *p)
{
    settle(p);
    dg_points out = {.failed = p->failed, .no_memory = p->no_memory, .blanks = p->blanks};
    uint32_t from = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->span[i].lo > from)
            dg_points_add(&out, from, p->span[i].lo - 1);
        from = p->span[i].hi + 1;
    }
    if (from <= LAST)
        dg_points_add(&out, from, LAST);
    dg_free(p->span);
    *p = out;
}

bool dg_points_has(const dg_points *p, uint32_t c)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->span[i].lo <= c && c <= p->span[i].hi)
            return true;
    return false;
}

void dg_points_add_class(dg_points *p, char letter)
{
    static const dg_span digits[] = {{'0', '9'}},
                         words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                         blanks[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                                     {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                     {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                     {0xFEFF, 0xFEFF}};
    char lower = (char)(letter | 0x20);
    const dg_span *span = lower == 'd' ? digits : lower == 'w' ? words : blanks;
    size_t n = lower == 'd' ? DG_COUNT(digits) : lower == 'w' ? DG_COUNT(words) : DG_COUNT(blanks);
    dg_points own = {0};
    for (size_t i = 0; i < n; i++)
        dg_points_add(&own, span[i].lo, span[i].hi);
    if (letter != lower)
        dg_points_negate(&own);
    dg_points_add_all(p, &own);
    p->blanks |= lower == 's';
    dg_points_clear(&own);
}

/* ---- in bytes ---- */

/* Alternatives that are gathered for a choice. */
typedef struct ways {
    dg_syntax *syntax;
    dg_node *way;
    size_t n, cap;
} ways;

static void add_way(ways *w, dg_node node)
{
    if (w->n == w->cap) {
        size_t want = w->cap ? 2 * w->cap : 32;
        dg_node *grown = dg_array_resize(w->way, want, sizeof *grown);
        if (!grown) {
            dg_syntax_fail(w->syntax, DGEMMA_E_NOMEM, "out of memory");
            return;
        }
        w->way = grown;
        w->cap = want;
    }
    w->way[w->n++] = node;
}

/* Characters whose bytes are one range at each place. */
static void add_block(ways *w, uint32_t lo, uint32_t hi)
{
    char first[4], last[4];
    size_t n = dg_utf8_encode(first, lo);
    dg_utf8_encode(last, hi);
    dg_node byte[4];
    for (size_t i = 0; i < n; i++)
        byte[i] = dg_syntax_range(w->syntax, (unsigned char)first[i], (unsigned char)last[i]);
    add_way(w, dg_syntax_sequence(w->syntax, byte, n));
}

/* Cuts at the lengths of encodings and where a continuation byte would not run over its whole
 * range. */
static void add_span(ways *w, uint32_t lo, uint32_t hi)
{
    static const uint32_t length_end[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < DG_COUNT(length_end); i++)
        if (lo <= length_end[i] && hi > length_end[i]) {
            add_span(w, lo, length_end[i]);
            add_span(w, length_end[i] + 1, hi);
            return;
        }
    for (int i = 1; i < 4 && lo > 0x7F; i++) {
        uint32_t mask = (UINT32_C(1) << 6 * i) - 1;
        if ((lo & ~mask) == (hi & ~mask))
            break;
        if (lo & mask) {
            add_span(w, lo, lo | mask);
            add_span(w, (lo | mask) + 1, hi);
            return;
        }
        if ((hi & mask) != mask) {
            add_span(w, lo, (hi & ~mask) - 1);
            add_span(w, hi & ~mask, hi);
            return;
        }
    }
    add_block(w, lo, hi);
}

static const struct {
    char c, escape;
} escapes[] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'},
               {'\t', 't'}, {'\b', 'b'},  {'\f', 'f'}};

size_t dg_points_escape(char out[6], uint32_t c)
{
    for (size_t i = 0; i < DG_COUNT(escapes); i++)
        if ((unsigned char)escapes[i].c == c) {
            out[0] = '\\';
            out[1] = escapes[i].escape;
            return 2;
        }
    if (c >= ' ')
        return dg_utf8_encode(out, c);
    static const char digits[] = "0123456789abcdef";
    memcpy(out, "\\u00", 4);
    out[4] = digits[c >> 4];
    out[5] = digits[c & 15];
    return 6;
}

/* The part of the span that lies in lo … hi. */
static void add_part(ways *w, dg_span span, uint32_t lo, uint32_t hi)
{
    if (span.lo > lo)
        lo = span.lo;
    if (span.hi < hi)
        hi = span.hi;
    if (lo <= hi)
        add_span(w, lo, hi);
}

static void add_spelled(ways *w, const dg_points *p, dg_spelling spelling)
{
    for (size_t i = 0; i < p->n; i++) {
        if (spelling == DG_SPELL_JSON) {
            add_part(w, p->span[i], ' ', '!');
            add_part(w, p->span[i], '#', '[');
            add_part(w, p->span[i], ']', 0xD7FF);
        } else if (spelling == DG_SPELL_CALL) {
            add_part(w, p->span[i], '\t', '\n');
            add_part(w, p->span[i], '\r', '\r');
            add_part(w, p->span[i], ' ', 0xD7FF);
        } else
            add_part(w, p->span[i], 0, 0xD7FF);
        add_part(w, p->span[i], 0xE000, LAST);
    }
    dg_byte_set letters = {{0}};
    for (size_t i = 0; i < DG_COUNT(escapes) && spelling == DG_SPELL_JSON; i++)
        if (dg_points_has(p, (unsigned char)escapes[i].c))
            dg_byte_set_add(&letters, (unsigned char)escapes[i].escape);
    dg_node letter = dg_syntax_bytes(w->syntax, &letters);
    if (letter != DG_NODE_NEVER)
        add_way(w, dg_syntax_pair(w->syntax, dg_syntax_literal(w->syntax, "\\", 1), letter));
}

static dg_node one_point(dg_syntax *s, uint32_t c, dg_spelling spelling)
{
    char text[6];
    bool control = c < ' ' && c != '\t' && c != '\n' && c != '\r';
    if ((c >= 0xD800 && c < 0xE000) || (control && spelling == DG_SPELL_CALL))
        return DG_NODE_NEVER;
    size_t n = spelling == DG_SPELL_JSON ? dg_points_escape(text, c) : dg_utf8_encode(text, c);
    return n == 6 ? DG_NODE_NEVER : dg_syntax_literal(s, text, n);
}

/* U+FEFF and U+0085 are blanks for some and not for others: neither \s nor \S has them. */
static void drop_disputed(dg_points *p)
{
    dg_points_negate(p);
    dg_points_add(p, 0x1C, 0x1F);
    dg_points_add(p, 0x85, 0x85);
    dg_points_add(p, 0xFEFF, 0xFEFF);
    dg_points_negate(p);
}

dg_node dg_points_node(dg_syntax *s, dg_points *p, dg_spelling spelling)
{
    if (p->blanks)
        drop_disputed(p);
    if (p->no_memory) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return DG_NODE_NEVER;
    }
    if (p->failed) {
        dg_syntax_fail(s, DGEMMA_E_LIMIT, "a set of characters is too long");
        return DG_NODE_NEVER;
    }
    settle(p);
    if (p->n == 1 && p->span[0].lo == p->span[0].hi)
        return one_point(s, p->span[0].lo, spelling);
    ways w = {.syntax = s};
    add_spelled(&w, p, spelling);
    dg_node id = s->status ? DG_NODE_NEVER : dg_syntax_choice(s, w.way, w.n);
    dg_free(w.way);
    return id;
}

dg_node dg_points_any(dg_syntax *s, dg_spelling spelling)
{
    dg_span all = {0, LAST};
    dg_points p = {.span = &all, .n = 1, .cap = 1};
    return dg_points_node(s, &p, spelling);
}

dg_node dg_points_text(dg_syntax *s, dg_spelling spelling)
{
    return dg_syntax_repeat(s, dg_points_any(s, spelling), 0, DG_UNBOUNDED);
}
