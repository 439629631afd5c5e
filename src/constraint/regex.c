#include "constraint/regex.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/utf8.h"

/* What has been read: its node, how long matches are, and how much its counts multiply to. */
typedef struct piece {
    dg_node node;
    uint32_t min, max; /* characters */
    uint32_t product;
    bool starts, ends; /* anchored there */
    dg_regex_facts only;
} piece;

typedef struct reader {
    dg_syntax *syntax;
    const char *text;
    size_t at, len;
    dg_regex_options options;
    int depth;
    dgemma_status status;
    dgemma_error *err;
} reader;

static const piece nothing = {.node = DG_NODE_EMPTY, .product = 1};

static bool refuse(reader *r, dgemma_status status, const char *what)
{
    if (!r->status)
        r->status = dg_fail(r->err, status, "the regular expression, at byte %zu: %s", r->at, what);
    return false;
}

static bool is_next(const reader *r, char c)
{
    return r->at < r->len && r->text[r->at] == c;
}

static bool take(reader *r, char c)
{
    bool there = is_next(r, c);
    r->at += there;
    return there;
}

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a == DG_UNBOUNDED || b == DG_UNBOUNDED || a + b < a ? DG_UNBOUNDED : a + b;
}

static uint32_t by(uint32_t a, uint32_t n)
{
    if (!a || !n)
        return 0;
    uint64_t v = (uint64_t)a * n;
    return a == DG_UNBOUNDED || n == DG_UNBOUNDED || v >= DG_UNBOUNDED ? DG_UNBOUNDED : (uint32_t)v;
}

/* ---- characters ---- */

static bool read_character(reader *r, uint32_t *c)
{
    size_t n = r->at < r->len ? dg_utf8_decode(r->text + r->at, r->len - r->at, c) : 0;
    r->at += n;
    return n || refuse(r, DGEMMA_E_ARG,
                       r->at < r->len ? "this is no character of UTF-8" : "it ends too soon");
}

static bool read_hex(reader *r, int n, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < n; i++, r->at++) {
        char h = (char)(r->at < r->len ? r->text[r->at] : 0);
        int v = h >= '0' && h <= '9'   ? h - '0'
                : h >= 'a' && h <= 'f' ? h - 'a' + 10
                : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                       : -1;
        if (v < 0)
            return refuse(r, DGEMMA_E_ARG, "a hexadecimal digit is missing");
        *c = *c << 4 | (uint32_t)v;
    }
    return true;
}

static bool read_unicode_escape(reader *r, uint32_t *c)
{
    if (take(r, '{')) {
        int n = 0;
        while (r->at + (size_t)n < r->len && r->text[r->at + (size_t)n] != '}' && n < 7)
            n++;
        if (n < 1 || n > 6)
            return refuse(r, DGEMMA_E_ARG, "\\u{…} has one to six digits");
        return read_hex(r, n, c) &&
               (take(r, '}') || refuse(r, DGEMMA_E_ARG, "\\u{…} is not closed")) &&
               (*c <= 0x10FFFF || refuse(r, DGEMMA_E_ARG, "there is no such character"));
    }
    uint32_t low;
    if (!read_hex(r, 4, c))
        return false;
    if (*c >= 0xD800 && *c < 0xDC00 && r->len - r->at >= 6 && r->text[r->at] == '\\' &&
        r->text[r->at + 1] == 'u') {
        r->at += 2;
        if (!read_hex(r, 4, &low))
            return false;
        *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    }
    return *c <= 0x10FFFF || refuse(r, DGEMMA_E_ARG, "there is no such character");
}

/* Behind a backslash: one character, or a class, which is added to *set (then *is_class). */
static bool read_escape(reader *r, dg_points *set, uint32_t *c, bool *is_class)
{
    static const struct {
        char letter;
        uint32_t c;
    } controls[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'0', 0}};
    *is_class = false;
    if (!read_character(r, c))
        return false;
    if (*c < 0x80 && strchr("dDwWsS", (int)*c) && *c) {
        dg_points_add_class(set, (char)*c);
        *is_class = true;
        return true;
    }
    for (size_t i = 0; i < DG_COUNT(controls); i++)
        if (*c == (unsigned char)controls[i].letter) {
            *c = controls[i].c;
            return true;
        }
    if (*c == 'x')
        return read_hex(r, 2, c);
    if (*c == 'u')
        return read_unicode_escape(r, c);
    if (*c == 'c' && r->at < r->len) {
        *c = (unsigned char)r->text[r->at++] & 31;
        return true;
    }
    if ((*c >= '1' && *c <= '9') || *c == 'k')
        return refuse(r, DGEMMA_E_UNSUPPORTED, "back-references are not supported");
    if (*c == 'p' || *c == 'P')
        return refuse(r, DGEMMA_E_UNSUPPORTED, "\\p is not supported");
    if (*c == 'b' || *c == 'B')
        return refuse(r, DGEMMA_E_UNSUPPORTED, "\\b is not supported");
    if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z'))
        return refuse(r, DGEMMA_E_UNSUPPORTED, "this escape is not supported");
    return true;
}

/* One member of a class; false at a mistake. */
static bool read_member(reader *r, dg_points *set, uint32_t *c, bool *is_class)
{
    *is_class = false;
    if (!take(r, '\\'))
        return read_character(r, c);
    if (is_next(r, 'b')) { /* in a class it is a character */
        r->at++;
        *c = '\b';
        return true;
    }
    return read_escape(r, set, c, is_class);
}

static bool read_members(reader *r, dg_points *set)
{
    while (!take(r, ']')) {
        uint32_t lo, hi;
        bool is_class;
        if (!read_member(r, set, &lo, &is_class))
            return false;
        bool range = is_next(r, '-') && r->at + 1 < r->len && r->text[r->at + 1] != ']';
        if (is_class) {
            if (range) {
                r->at++;
                dg_points_add(set, '-', '-');
            }
            continue;
        }
        hi = lo;
        if (range) {
            r->at++;
            if (!read_member(r, set, &hi, &is_class))
                return false;
            if (is_class) {
                dg_points_add(set, '-', '-');
                hi = lo;
            }
        }
        if (hi < lo)
            return refuse(r, DGEMMA_E_ARG, "the range of a class runs backwards");
        dg_points_add(set, lo, hi);
    }
    return true;
}

static piece one_of(reader *r, dg_points *set)
{
    piece p = {.min = 1, .max = 1, .product = 1};
    p.node = dg_points_node(r->syntax, set, r->options.spelling);
    p.only = (dg_regex_facts){.only = p.node, .only_min = 1, .only_max = 1};
    return p;
}

static bool read_class(reader *r, piece *out)
{
    dg_points set = {0};
    bool negated = take(r, '^');
    if (is_next(r, ']')) /* to some the class ends here, to others this is its first member */
        return refuse(r, DGEMMA_E_UNSUPPORTED, "] as the first in a class is written \\]");
    bool ok = read_members(r, &set);
    if (ok) {
        if (negated)
            dg_points_negate(&set);
        *out = one_of(r, &set);
    }
    dg_points_clear(&set);
    return ok;
}

/* ---- counts ---- */

static bool read_number(reader *r, uint32_t *n)
{
    size_t from = r->at;
    for (*n = 0; r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        *n = *n > DG_REGEX_MAX_COUNT ? *n : *n * 10 + (uint32_t)(r->text[r->at] - '0');
    return r->at > from;
}

/* {m}, {m,}, {m,n}; false where a brace begins none of them: then it is a character. */
static bool read_braces(reader *r, uint32_t *min, uint32_t *max)
{
    size_t from = r->at;
    if (take(r, '{') && take(r, ',')) { /* a count to some, text to others */
        read_number(r, max);
        const bool counts = take(r, '}');
        r->at = from;
        if (counts)
            return refuse(r, DGEMMA_E_UNSUPPORTED, "{,n} is written {0,n}");
    }
    r->at = from;
    if (take(r, '{') && read_number(r, min)) {
        *max = *min;
        if (take(r, ',') && !read_number(r, max))
            *max = DG_UNBOUNDED;
        if (take(r, '}'))
            return true;
    }
    r->at = from;
    return false;
}

static bool read_count(reader *r, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = DG_UNBOUNDED;
    if (take(r, '*'))
        return true;
    if (take(r, '+')) {
        *min = 1;
        return true;
    }
    if (take(r, '?')) {
        *max = 1;
        return true;
    }
    return read_braces(r, min, max);
}

static bool repeat(reader *r, piece *p)
{
    uint32_t min, max;
    if (!read_count(r, &min, &max))
        return !r->status;
    take(r, '?'); /* lazy */
    if (p->starts || p->ends)
        return refuse(r, DGEMMA_E_UNSUPPORTED, "an anchor with a count is not supported");
    if (max < min)
        return refuse(r, DGEMMA_E_ARG, "a count runs backwards");
    if (min > DG_REGEX_MAX_COUNT || (max != DG_UNBOUNDED && max > DG_REGEX_MAX_COUNT))
        return refuse(r, DGEMMA_E_LIMIT, "a count is above 4096");
    p->product = by(p->product, max != DG_UNBOUNDED ? (max ? max : 1) : min ? min : 1);
    if (p->product > DG_REGEX_MAX_PRODUCT)
        return refuse(r, DGEMMA_E_LIMIT, "counts inside each other multiply to more than 65536");
    bool one = p->min == 1 && p->max == 1;
    p->only =
        (dg_regex_facts){.only = one ? p->node : DG_NODE_NEVER, .only_min = min, .only_max = max};
    p->node = dg_syntax_repeat(r->syntax, p->node, min, max);
    p->min = by(p->min, min);
    p->max = by(p->max, max);
    int twice = r->at < r->len ? r->text[r->at] : 0;
    if (twice == '*' || twice == '+' || twice == '?')
        return refuse(r, DGEMMA_E_ARG, "there is nothing to repeat");
    return true;
}

/* ---- groups ---- */

static bool read_choice(reader *r, piece *out);

static bool read_group(reader *r, piece *out)
{
    if (take(r, '?')) {
        if (is_next(r, '=') || is_next(r, '!'))
            return refuse(r, DGEMMA_E_UNSUPPORTED, "look-ahead is not supported");
        bool name = take(r, '<') || (is_next(r, 'P') && r->at + 1 < r->len &&
                                     r->text[r->at + 1] == '<' && (r->at += 2));
        if (name) {
            if (is_next(r, '=') || is_next(r, '!'))
                return refuse(r, DGEMMA_E_UNSUPPORTED, "look-behind is not supported");
            while (r->at < r->len && r->text[r->at] != '>')
                r->at++;
            if (!take(r, '>'))
                return refuse(r, DGEMMA_E_ARG, "the name of a group is not closed");
        } else if (!take(r, ':'))
            return refuse(r, DGEMMA_E_UNSUPPORTED, "this kind of group is not supported");
    }
    if (++r->depth > DG_REGEX_MAX_GROUPS)
        return refuse(r, DGEMMA_E_LIMIT, "groups are nested deeper than 100");
    bool ok =
        read_choice(r, out) && (take(r, ')') || refuse(r, DGEMMA_E_ARG, "a group is not closed"));
    r->depth--;
    return ok;
}

static bool read_atom(reader *r, piece *out)
{
    dg_points set = {0};
    uint32_t c, min, max;
    bool is_class = false, ok = true;
    if (take(r, '('))
        return read_group(r, out);
    if (take(r, '['))
        return read_class(r, out);
    if (is_next(r, '*') || is_next(r, '+') || is_next(r, '?'))
        return refuse(r, DGEMMA_E_ARG, "there is nothing to repeat");
    size_t brace = r->at;
    if (is_next(r, '{') && read_braces(r, &min, &max)) {
        r->at = brace;
        return refuse(r, DGEMMA_E_ARG, "there is nothing to repeat");
    }
    if (r->status)
        return false;
    if (take(r, '.')) {
        dg_points_add(&set, '\n', '\n');
        dg_points_add(&set, '\r', '\r');
        dg_points_add(&set, 0x2028, 0x2029);
        dg_points_negate(&set);
    } else {
        ok = take(r, '\\') ? read_escape(r, &set, &c, &is_class) : read_character(r, &c);
        if (ok && !is_class)
            dg_points_add(&set, c, c);
    }
    if (ok)
        *out = one_of(r, &set);
    dg_points_clear(&set);
    return ok;
}

/* ---- alternatives ---- */

/* The nodes of one alternative, or of all. */
typedef struct nodes {
    dg_node *at;
    size_t n, cap;
} nodes;

static bool add_node(reader *r, nodes *list, dg_node node)
{
    if (list->n == list->cap) {
        size_t want = list->cap ? 2 * list->cap : 16;
        dg_node *grown = dg_array_resize(list->at, want, sizeof *grown);
        if (!grown)
            return refuse(r, DGEMMA_E_NOMEM, "out of memory");
        list->at = grown;
        list->cap = want;
    }
    list->at[list->n++] = node;
    return true;
}

static void join(piece *whole, const piece *next, bool first)
{
    whole->only = first ? next->only : (dg_regex_facts){.only = DG_NODE_NEVER};
    whole->min = plus(whole->min, next->min);
    whole->max = plus(whole->max, next->max);
    whole->product = next->product > whole->product ? next->product : whole->product;
}

static bool read_pieces(reader *r, piece *out, nodes *list)
{
    *out = nothing;
    while (r->at < r->len && !is_next(r, '|') && !is_next(r, ')') && !r->syntax->status) {
        bool first = list->n == 0;
        if (take(r, '^')) {
            if (!first)
                return refuse(r, DGEMMA_E_UNSUPPORTED, "^ is supported at the beginning only");
            out->starts = true;
            continue;
        }
        if (take(r, '$')) {
            out->ends = true;
            continue;
        }
        piece p;
        if (out->ends)
            return refuse(r, DGEMMA_E_UNSUPPORTED, "$ is supported at the end only");
        if (!read_atom(r, &p) || !repeat(r, &p))
            return false;
        if (p.starts && !first)
            return refuse(r, DGEMMA_E_UNSUPPORTED, "^ is supported at the beginning only");
        out->starts |= p.starts;
        out->ends |= p.ends;
        join(out, &p, first);
        if (!add_node(r, list, p.node))
            return false;
    }
    return true;
}

static bool read_sequence(reader *r, piece *out)
{
    nodes list = {0};
    bool ok = read_pieces(r, out, &list);
    if (ok)
        out->node = dg_syntax_sequence(r->syntax, list.at, list.n);
    dg_free(list.at);
    return ok;
}

/* Outside of any group each alternative has its own anchors. */
static dg_node with_surroundings(reader *r, const piece *p)
{
    if (!r->options.search || r->depth)
        return p->node;
    dg_node text = dg_points_text(r->syntax, r->options.spelling);
    const dg_node parts[] = {p->starts ? DG_NODE_EMPTY : text, p->node,
                             p->ends ? DG_NODE_EMPTY : text};
    return dg_syntax_sequence(r->syntax, parts, DG_COUNT(parts));
}

static bool read_choice(reader *r, piece *out)
{
    nodes way = {0};
    bool ok = true;
    do {
        piece p;
        ok = read_sequence(r, &p);
        if (!ok)
            break;
        if (!way.n)
            *out = p;
        else if (r->depth && (p.starts != out->starts || p.ends != out->ends))
            ok = refuse(r, DGEMMA_E_UNSUPPORTED,
                        "alternatives of a group with different anchors are not supported");
        else {
            out->min = p.min < out->min ? p.min : out->min;
            out->max = p.max > out->max ? p.max : out->max;
            out->product = p.product > out->product ? p.product : out->product;
            out->only.only = DG_NODE_NEVER;
            out->starts &= p.starts;
            out->ends &= p.ends;
        }
        ok = ok && add_node(r, &way, with_surroundings(r, &p));
    } while (ok && take(r, '|'));
    if (ok)
        out->node = dg_syntax_choice(r->syntax, way.at, way.n);
    dg_free(way.at);
    return ok;
}

dgemma_status dg_regex_compile(dg_syntax *s, const char *text, size_t len,
                               const dg_regex_options *options, dg_node *out, dg_regex_facts *facts,
                               dgemma_error *err)
{
    reader r = {.syntax = s, .text = text, .len = len, .options = *options, .err = err};
    piece p = nothing;
    if (read_choice(&r, &p) && r.at < r.len && !s->status)
        refuse(&r, DGEMMA_E_ARG, "a group is closed that was not opened");
    if (r.status)
        return r.status;
    if (s->status)
        return dg_fail(err, s->status, "%s", s->error.msg);
    bool whole = !options->search || (p.starts && p.ends);
    if (facts)
        *facts = (dg_regex_facts){.min = p.min,
                                  .max = whole ? p.max : DG_UNBOUNDED,
                                  .only = whole ? p.only.only : DG_NODE_NEVER,
                                  .only_min = p.only.only_min,
                                  .only_max = p.only.only_max};
    *out = p.node;
    return DGEMMA_OK;
}
