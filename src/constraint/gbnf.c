#include "constraint/gbnf.h"
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/common.h"
#include "base/utf8.h"
#include "constraint/points.h"

typedef struct rule {
    const char *name;
    size_t len;
    dg_node node;
    bool defined;
} rule;

/* A place where a rule is named. */
typedef struct site {
    dg_node node;    /* stands for it until all rules are known */
    uint32_t in, to; /* rules */
    bool last;       /* nothing of `in` comes after it */
} site;

typedef struct grammar {
    dg_syntax *syntax;
    const char *text;
    size_t at, len;
    rule *rule;
    site *site;
    size_t n_rule, cap_rule, n_site, cap_site;
    uint32_t own; /* the rule that is being read */
    int depth;
    dgemma_status status;
    dgemma_error *err;
} grammar;

/* What was read: its node, and how much its counts multiply to. */
typedef struct item {
    dg_node node;
    uint32_t product;
} item;

typedef struct items {
    dg_node *at;
    size_t n, cap;
} items;

static bool refuse(grammar *g, dgemma_status status, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < g->at && i < g->len; i++)
        line += g->text[i] == '\n';
    if (!g->status)
        g->status = dg_fail(g->err, status, "the grammar, line %zu: %s", line, what);
    return false;
}

static bool grow(grammar *g, void **array, size_t *cap, size_t n, size_t size, size_t max)
{
    if (n < *cap)
        return true;
    size_t want = *cap ? 2 * *cap : 16;
    void *p = n < max ? dg_array_resize(*array, want, size) : NULL;
    if (!p)
        return refuse(g, n < max ? DGEMMA_E_NOMEM : DGEMMA_E_LIMIT,
                      n < max ? "out of memory" : "the grammar is too long");
    *array = p;
    *cap = want;
    return true;
}

/* ---- characters ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static char next(const grammar *g)
{
    return (char)(g->at < g->len ? g->text[g->at] : 0);
}

static bool take(grammar *g, char c)
{
    bool there = g->at < g->len && g->text[g->at] == c;
    g->at += there;
    return there;
}

static void skip_blanks(grammar *g)
{
    for (; g->at < g->len; g->at++) {
        char c = g->text[g->at];
        if (c == '#')
            while (g->at + 1 < g->len && g->text[g->at + 1] != '\n')
                g->at++;
        else if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            break;
    }
}

/* A name and ::= begin here: the rule before it has ended. */
static bool at_rule(const grammar *g)
{
    size_t i = g->at;
    while (i < g->len && is_name(g->text[i]))
        i++;
    size_t end = i;
    while (i < g->len && (g->text[i] == ' ' || g->text[i] == '\t'))
        i++;
    return end > g->at && g->len - i >= 3 && !memcmp(g->text + i, "::=", 3);
}

static bool read_hex(grammar *g, int n, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < n; i++, g->at++) {
        char h = next(g);
        int v = h >= '0' && h <= '9'   ? h - '0'
                : h >= 'a' && h <= 'f' ? h - 'a' + 10
                : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                       : -1;
        if (v < 0)
            return refuse(g, DGEMMA_E_ARG, "a hexadecimal digit is missing");
        *c = *c << 4 | (uint32_t)v;
    }
    return (*c <= 0x10FFFF && (*c < 0xD800 || *c > 0xDFFF)) ||
           refuse(g, DGEMMA_E_ARG, "there is no such character");
}

static bool read_character(grammar *g, uint32_t *c)
{
    if (!take(g, '\\')) {
        size_t n = g->at < g->len ? dg_utf8_decode(g->text + g->at, g->len - g->at, c) : 0;
        g->at += n;
        return n || refuse(g, DGEMMA_E_ARG, "a literal or a class is not closed, or not in UTF-8");
    }
    char e = next(g);
    g->at++;
    switch (e) {
    case 'x':
        return read_hex(g, 2, c);
    case 'u':
        return read_hex(g, 4, c);
    case 'U':
        return read_hex(g, 8, c);
    case 'n':
        *c = '\n';
        return true;
    case 'r':
        *c = '\r';
        return true;
    case 't':
        *c = '\t';
        return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '.':
    case '/':
        *c = (unsigned char)e;
        return true;
    default:
        return refuse(g, DGEMMA_E_ARG, "this escape is unknown");
    }
}

static bool read_literal(grammar *g, item *out)
{
    dg_buf text;
    dg_buf_init(&text, 4 * DG_GBNF_MAX_BYTES);
    bool ok = true;
    while (ok && !take(g, '"')) {
        uint32_t c;
        char bytes[4];
        ok = read_character(g, &c);
        if (ok && !dg_buf_append(&text, bytes, dg_utf8_encode(bytes, c)))
            ok = refuse(g, DGEMMA_E_NOMEM, "out of memory");
    }
    if (ok)
        *out = (item){dg_syntax_literal(g->syntax, text.data ? text.data : "", text.len), 1};
    dg_buf_clear(&text);
    return ok;
}

static bool read_class(grammar *g, item *out)
{
    dg_points set = {0};
    bool negated = take(g, '^'), ok = true;
    while (ok && !take(g, ']')) {
        uint32_t lo, hi;
        ok = read_character(g, &lo);
        hi = lo;
        if (ok && next(g) == '-' && g->at + 1 < g->len && g->text[g->at + 1] != ']') {
            g->at++;
            ok = read_character(g, &hi);
        }
        if (ok && hi < lo)
            ok = refuse(g, DGEMMA_E_ARG, "the range of a class runs backwards");
        if (ok)
            dg_points_add(&set, lo, hi);
    }
    if (ok && negated)
        dg_points_negate(&set);
    if (ok)
        *out = (item){dg_points_node(g->syntax, &set, DG_SPELL_RAW), 1};
    dg_points_clear(&set);
    return ok;
}

/* ---- rules ---- */

static bool find_rule(grammar *g, const char *name, size_t len, uint32_t *out)
{
    for (size_t i = 0; i < g->n_rule; i++)
        if (g->rule[i].len == len && !memcmp(g->rule[i].name, name, len)) {
            *out = (uint32_t)i;
            return true;
        }
    if (!grow(g, (void **)&g->rule, &g->cap_rule, g->n_rule, sizeof *g->rule, DG_GBNF_MAX_RULES))
        return false;
    g->rule[g->n_rule] = (rule){.name = name, .len = len, .node = dg_syntax_rule(g->syntax)};
    *out = (uint32_t)g->n_rule++;
    return true;
}

static bool read_name(grammar *g, uint32_t *out)
{
    size_t from = g->at;
    while (is_name(next(g)))
        g->at++;
    if (g->at == from)
        return refuse(g, DGEMMA_E_ARG, "the name of a rule, a literal or a class was expected");
    return find_rule(g, g->text + from, g->at - from, out);
}

static bool read_reference(grammar *g, item *out)
{
    uint32_t to;
    if (!read_name(g, &to) ||
        !grow(g, (void **)&g->site, &g->cap_site, g->n_site, sizeof *g->site, DG_SYNTAX_MAX_NODES))
        return false;
    dg_node node = dg_syntax_rule(g->syntax);
    g->site[g->n_site++] = (site){.node = node, .in = g->own, .to = to, .last = true};
    *out = (item){node, 1};
    return true;
}

/* <[id]> or <name>, behind the bracket. */
static bool read_token(grammar *g, item *out)
{
    int32_t id = 0;
    if (take(g, '[')) {
        size_t from = g->at;
        for (; next(g) >= '0' && next(g) <= '9'; g->at++)
            id = id > 99999999 ? id : 10 * id + (next(g) - '0');
        if (g->at == from || !take(g, ']') || !take(g, '>'))
            return refuse(g, DGEMMA_E_ARG, "a token is written <[id]> or <name>");
        *out = (item){dg_syntax_symbol(g->syntax, id, NULL, 0), 1};
        return true;
    }
    size_t from = g->at - 1;
    while (g->at < g->len && next(g) != '>' && next(g) != '\n')
        g->at++;
    if (!take(g, '>') || g->at - from < 3)
        return refuse(g, DGEMMA_E_ARG, "a token is written <[id]> or <name>");
    *out = (item){dg_syntax_symbol(g->syntax, -1, g->text + from, g->at - from), 1};
    return true;
}

/* ---- counts, sequences, alternatives ---- */

static void not_last(grammar *g, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        g->site[i].last = false;
}

static bool read_number(grammar *g, uint32_t *n)
{
    size_t from = g->at;
    for (*n = 0; next(g) >= '0' && next(g) <= '9'; g->at++)
        *n = *n > DG_GBNF_MAX_COUNT ? *n : 10 * *n + (uint32_t)(next(g) - '0');
    return g->at > from;
}

static bool read_braces(grammar *g, uint32_t *min, uint32_t *max)
{
    skip_blanks(g);
    if (!read_number(g, min))
        return refuse(g, DGEMMA_E_ARG, "a count was expected behind {");
    *max = *min;
    skip_blanks(g);
    if (take(g, ',')) {
        skip_blanks(g);
        if (!read_number(g, max))
            *max = DG_UNBOUNDED;
        skip_blanks(g);
    }
    if (!take(g, '}'))
        return refuse(g, DGEMMA_E_ARG, "} was expected behind a count");
    if (*min > DG_GBNF_MAX_COUNT || (*max != DG_UNBOUNDED && *max > DG_GBNF_MAX_COUNT))
        return refuse(g, DGEMMA_E_LIMIT, "a count is above 4096");
    return *max >= *min || refuse(g, DGEMMA_E_ARG, "a count runs backwards");
}

static bool repeat(grammar *g, item *it, size_t first_site)
{
    for (;;) {
        uint32_t min = 0, max = DG_UNBOUNDED;
        skip_blanks(g);
        if (take(g, '+'))
            min = 1;
        else if (take(g, '?'))
            max = 1;
        else if (take(g, '{')) {
            if (!read_braces(g, &min, &max))
                return false;
        } else if (!take(g, '*'))
            return true;
        uint64_t product = (uint64_t)it->product * (max != DG_UNBOUNDED && max ? max
                                                    : min                      ? min
                                                                               : 1);
        if (product > 1 << 16)
            return refuse(g, DGEMMA_E_LIMIT,
                          "counts inside each other multiply to more than 65536");
        it->product = (uint32_t)product;
        it->node = dg_syntax_repeat(g->syntax, it->node, min, max);
        if (max != 1)
            not_last(g, first_site, g->n_site);
    }
}

static bool read_choice(grammar *g, item *out);

static bool read_item(grammar *g, item *out)
{
    if (take(g, '"'))
        return read_literal(g, out);
    if (take(g, '['))
        return read_class(g, out);
    if (take(g, '<'))
        return read_token(g, out);
    if (take(g, '.')) {
        *out = (item){dg_points_any(g->syntax, DG_SPELL_RAW), 1};
        return true;
    }
    if (next(g) == '!')
        return refuse(g, DGEMMA_E_UNSUPPORTED, "tokens that must not come are not supported");
    if (!take(g, '('))
        return read_reference(g, out);
    if (++g->depth > DG_GBNF_MAX_GROUPS)
        return refuse(g, DGEMMA_E_LIMIT, "groups are nested deeper than 100");
    if (!read_choice(g, out))
        return false;
    g->depth--;
    return take(g, ')') || refuse(g, DGEMMA_E_ARG, "a group is not closed");
}

static bool add_item(grammar *g, items *list, dg_node node)
{
    if (!grow(g, (void **)&list->at, &list->cap, list->n, sizeof *list->at, DG_SYNTAX_MAX_NODES))
        return false;
    list->at[list->n++] = node;
    return true;
}

static bool read_items(grammar *g, items *list, uint32_t *product)
{
    size_t from = g->n_site;
    *product = 1;
    for (;;) {
        skip_blanks(g);
        char c = next(g);
        if (g->at >= g->len || c == '|' || c == ')' || (!g->depth && at_rule(g)))
            return true;
        if (g->syntax->status)
            return refuse(g, g->syntax->status, g->syntax->error.msg);
        item it;
        size_t first_site = g->n_site;
        not_last(g, from, first_site);
        if (!read_item(g, &it) || !repeat(g, &it, first_site) || !add_item(g, list, it.node))
            return false;
        *product = it.product > *product ? it.product : *product;
    }
}

static bool read_sequence(grammar *g, item *out)
{
    items list = {0};
    bool ok = read_items(g, &list, &out->product);
    if (ok)
        out->node = dg_syntax_sequence(g->syntax, list.at, list.n);
    dg_free(list.at);
    return ok;
}

static bool read_choice(grammar *g, item *out)
{
    items way = {0};
    bool ok = true;
    *out = (item){.product = 1};
    do {
        item it;
        ok = read_sequence(g, &it) && add_item(g, &way, it.node);
        out->product = ok && it.product > out->product ? it.product : out->product;
    } while (ok && take(g, '|'));
    if (ok)
        out->node = dg_syntax_choice(g->syntax, way.at, way.n);
    dg_free(way.at);
    return ok;
}

static bool read_rule(grammar *g)
{
    item body;
    if (!at_rule(g))
        return refuse(g, DGEMMA_E_ARG, "a rule was expected: name ::= …");
    if (!read_name(g, &g->own))
        return false;
    while (next(g) == ' ' || next(g) == '\t')
        g->at++;
    g->at += 3; /* ::= */
    uint32_t own = g->own;
    if (g->rule[own].defined)
        return refuse(g, DGEMMA_E_ARG, "this rule is there already");
    g->rule[own].defined = true;
    if (!read_choice(g, &body))
        return false;
    dg_syntax_define(g->syntax, g->rule[own].node, body.node);
    return next(g) != ')' || refuse(g, DGEMMA_E_ARG, "a group is closed that was not opened");
}

/* ---- rules inside themselves ---- */

/* Marks the rules that this one leads to. */
static void reach(const grammar *g, const uint32_t *first, uint32_t from, bool *reached,
                  uint32_t *todo)
{
    size_t n = 0;
    memset(reached, 0, g->n_rule * sizeof *reached);
    todo[n++] = from;
    while (n) {
        uint32_t r = todo[--n];
        /* sites are in the order of the rules that they are in, each rule's together */
        for (size_t i = first[r]; i < g->n_site && g->site[i].in == r; i++)
            if (!reached[g->site[i].to]) {
                reached[g->site[i].to] = true;
                todo[n++] = g->site[i].to;
            }
    }
}

/* A rule inside itself is a level deeper, unless it is the last thing: then nothing is waiting for
 * its end, as in lists that are written by recursion. */
static bool link_sites(grammar *g)
{
    uint32_t *first = dg_array(g->n_rule + 1, sizeof *first);
    uint32_t *todo = dg_array(g->n_rule + 2, sizeof *todo);
    bool *reached = dg_array(g->n_rule + 1, sizeof *reached);
    bool ok = first && todo && reached;
    if (!ok)
        refuse(g, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < g->n_rule && ok; i++)
        first[i] = (uint32_t)g->n_site;
    for (size_t i = g->n_site; i-- > 0 && ok;)
        first[g->site[i].in] = (uint32_t)i;
    bool all = g->n_site * g->n_site > 4000000; /* too many to tell */
    for (size_t r = 0; r < g->n_rule && ok; r++) {
        for (size_t i = first[r]; i < g->n_site && g->site[i].in == r; i++) {
            site *s = &g->site[i];
            dg_node to = g->rule[s->to].node;
            if (!s->last && !all) {
                /* from here to there: is there a way back? */
                reach(g, first, s->to, reached, todo);
                if (reached[r] || s->to == r)
                    to = dg_syntax_nest(g->syntax, to);
            } else if (!s->last)
                to = dg_syntax_nest(g->syntax, to);
            dg_syntax_define(g->syntax, s->node, to);
        }
    }
    dg_free(first);
    dg_free(todo);
    dg_free(reached);
    return ok;
}

static bool read_grammar(grammar *g, dg_node *root)
{
    for (skip_blanks(g); g->at < g->len; skip_blanks(g))
        if (!read_rule(g))
            return false;
    bool found = false;
    for (size_t i = 0; i < g->n_rule; i++) {
        const rule *r = &g->rule[i];
        if (!r->defined) {
            g->status = dg_fail(g->err, DGEMMA_E_ARG, "the grammar has no rule \"%.*s\"",
                                (int)(r->len < 80 ? r->len : 80), r->name);
            return false;
        }
        if (r->len == 4 && !memcmp(r->name, "root", 4)) {
            *root = r->node;
            found = true;
        }
    }
    if (!found)
        return refuse(g, DGEMMA_E_ARG, "there is no rule \"root\", where it would start");
    return link_sites(g);
}

/* A failure of the whole, with the rule's name where it is one of a rule. */
static dgemma_status finish(grammar *g, dg_node root)
{
    dg_syntax *s = g->syntax;
    dgemma_status st = dg_syntax_finish(s, root, g->err);
    if (!st || !s->culprit)
        return st;
    const rule *r = NULL;
    for (size_t i = 0; i < g->n_rule; i++)
        if (g->rule[i].node == s->culprit)
            r = &g->rule[i];
    for (size_t i = 0; i < g->n_site && !r; i++)
        if (g->site[i].node == s->culprit)
            r = &g->rule[g->site[i].to];
    return r ? dg_fail(g->err, st,
                       "the grammar: rule \"%.*s\" begins with itself (left recursion), which is "
                       "not supported",
                       (int)(r->len < 80 ? r->len : 80), r->name)
             : st;
}

dgemma_status dg_gbnf_compile(dg_syntax *s, const char *text, size_t len, dgemma_error *err)
{
    if (len > DG_GBNF_MAX_BYTES)
        return dg_fail(err, DGEMMA_E_LIMIT, "the grammar is longer than %d bytes",
                       DG_GBNF_MAX_BYTES);
    grammar g = {.syntax = s, .text = text, .len = len, .err = err};
    dg_node root = DG_NODE_NEVER;
    dgemma_status st = read_grammar(&g, &root) ? finish(&g, root) : g.status;
    dg_free(g.rule);
    dg_free(g.site);
    return st;
}
