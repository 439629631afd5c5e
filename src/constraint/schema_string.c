/* Strings: lengths, patterns, formats; keys of objects. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/utf8.h"
#include "constraint/formats.h"
#include "constraint/points.h"
#include "constraint/regex.h"
#include "constraint/schema_claims.h"

/* ---- a key that is none of some ---- */

typedef struct others {
    dg_syntax *syntax;
    bool call;        /* names stand bare, of few characters */
    dg_node text;     /* any, then the quote */
    dg_node but[128]; /* any character but this one, then `text`; 0: not made yet */
} others;

/* Any other character than those, and whatever follows. Mostly there is one. */
static dg_node another(others *o, dg_points *points)
{
    bool one = points->n == 1 && points->span[0].lo < 128;
    dg_node *known = one ? &o->but[points->span[0].lo] : NULL;
    if (known && *known)
        return *known;
    if (o->call) { /* those that names do not have are left out too */
        dg_points foreign = {0};
        dg_notation_add_key_points(&foreign);
        dg_points_negate(&foreign);
        dg_points_add_all(points, &foreign);
        dg_points_clear(&foreign);
    }
    dg_points_negate(points);
    dg_node id = dg_syntax_pair(
        o->syntax, dg_points_node(o->syntax, points, dg_notation_spelling(o->call)), o->text);
    if (known)
        *known = id;
    return id;
}

/* names[0 … n), sorted, have their first `from` bytes in common, and so has the key. */
static dg_node other_from(others *o, const dg_word_text *names, size_t n, size_t from)
{
    dg_syntax *s = o->syntax;
    dg_points rest = {0};
    dg_node way[3];
    dg_node *branch = dg_array(n + 2, sizeof *branch);
    if (!branch) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return DG_NODE_NEVER;
    }
    size_t i = 0, n_branch = 0;
    while (i < n && names[i].len == from)
        i++;
    if (o->call)
        way[0] = i || !from ? DG_NODE_NEVER : DG_NODE_EMPTY;
    else
        way[0] = i ? DG_NODE_NEVER : dg_syntax_word(s, "\"");
    while (i < n && !s->status) {
        uint32_t point;
        size_t size = dg_utf8_decode(names[i].data + from, names[i].len - from, &point);
        size_t end = i + 1;
        while (end < n && names[end].len >= from + size &&
               !memcmp(names[end].data + from, names[i].data + from, size))
            end++;
        dg_points_add(&rest, point, point);
        dg_points one = {0};
        dg_points_add(&one, point, point);
        branch[n_branch++] =
            dg_syntax_pair(s, dg_points_node(s, &one, dg_notation_spelling(o->call)),
                           other_from(o, names + i, end - i, from + size));
        dg_points_clear(&one);
        i = end;
    }
    way[1] = dg_syntax_choice(s, branch, n_branch);
    way[2] = another(o, &rest);
    dg_points_clear(&rest);
    dg_free(branch);
    return dg_syntax_choice(s, way, DG_COUNT(way));
}

static int compare_names(const void *x, const void *y)
{
    const dg_word_text *a = x, *b = y;
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->data, b->data, n) : 0;
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

dg_node dg_schema_other_key(dg_schema *c, dg_word_text *names, size_t n)
{
    dg_syntax *s = c->syntax;
    size_t n_bare = 0;
    for (size_t i = 0; i < n && c->options.call; i++)
        if (dg_notation_stands_bare((dg_text){names[i].data, names[i].len}))
            names[n_bare++] = names[i];
    n = c->options.call ? n_bare : n; /* a bare name is none in quotes */
    for (size_t i = 0; i < n; i++)
        if (names[i].len > 1024) {
            dg_schema_refuse(c, DGEMMA_E_LIMIT, c->root, "additionalProperties",
                             "is not supported beside names of more than 1024 bytes");
            return DG_NODE_NEVER;
        }
    others o = {.syntax = s, .call = c->options.call};
    o.text = o.call ? dg_syntax_either(s, DG_NODE_EMPTY, dg_notation_any_key(s, true))
                    : dg_syntax_pair(s, dg_points_text(s, DG_SPELL_JSON), dg_syntax_word(s, "\""));
    if (n)
        qsort(names, n, sizeof *names, compare_names);
    dg_node name = other_from(&o, names, n, 0);
    return o.call ? name : dg_syntax_pair(s, dg_syntax_word(s, "\""), name);
}

/* ---- lengths, patterns, formats ---- */

typedef struct string_rule {
    uint32_t min, max;
    const dg_claim *who; /* who has the pattern or the format; NULL: nobody */
    const char *keyword;
    const char *regex;
    size_t len;
    bool search;
} string_rule;

static bool read_lengths(dg_schema *c, const dg_claim *claim, string_rule *r)
{
    uint32_t min = 0, max = DG_UNBOUNDED;
    if (!dg_claims_count(c, claim, "minLength", DG_SCHEMA_MAX_LENGTH + 1, &min) ||
        !dg_claims_count(c, claim, "maxLength", DG_SCHEMA_MAX_LENGTH, &max))
        return false;
    if (min > DG_SCHEMA_MAX_LENGTH)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, claim->schema, "minLength", "is above 4096");
    r->min = min > r->min ? min : r->min;
    r->max = max < r->max ? max : r->max;
    return true;
}

/* A pattern or a format; a second one that is not the same cannot be held to together. */
static bool set_regex(dg_schema *c, string_rule *r, const string_rule *found)
{
    if (r->who && (r->len != found->len || memcmp(r->regex, found->regex, r->len) ||
                   r->search != found->search))
        return dg_schema_skip(c, found->who->schema, found->keyword);
    if (!r->who) {
        r->who = found->who;
        r->keyword = found->keyword;
        r->regex = found->regex;
        r->len = found->len;
        r->search = found->search;
    }
    return true;
}

static bool read_string_claim(dg_schema *c, const dg_claim *claim, string_rule *r)
{
    const dg_json *pattern = dg_claim_get(claim, "pattern"), *f = dg_claim_get(claim, "format");
    if (!read_lengths(c, claim, r))
        return false;
    if (pattern && pattern->kind != DG_JSON_STRING)
        return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, "pattern", "has to be a string");
    string_rule own = {.who = claim, .keyword = "pattern", .regex = "", .search = true};
    if (pattern && pattern->text.len) {
        const char *other = dg_pattern_reworded(pattern->text.data, pattern->text.len);
        own.regex = other ? other : pattern->text.data;
        own.len = other ? strlen(other) : pattern->text.len;
    }
    if (pattern && !set_regex(c, r, &own))
        return false;
    const char *format = f && f->kind == DG_JSON_STRING && f->text.len
                             ? dg_format_regex(f->text.data, f->text.len, r->max != DG_UNBOUNDED)
                             : NULL;
    return !format || set_regex(c, r,
                                &(string_rule){.who = claim,
                                               .keyword = "format",
                                               .regex = format,
                                               .len = strlen(format)});
}

static dg_node plain_string(dg_schema *c, const string_rule *r)
{
    dg_node any = dg_points_any(c->syntax, dg_notation_spelling(c->options.call));
    return dg_notation_between(c->syntax, c->options.call,
                               dg_syntax_repeat(c->syntax, any, r->min, r->max));
}

/* Lengths beside an expression: they say nothing new, or the expression is one class repeated. */
static bool fit_lengths(dg_schema *c, const string_rule *r, const dg_regex_facts *f, dg_node *node)
{
    if (f->min >= r->min && (r->max == DG_UNBOUNDED || f->max <= r->max))
        return true;
    if (f->only != DG_NODE_NEVER) {
        uint32_t min = f->only_min > r->min ? f->only_min : r->min;
        uint32_t max = f->only_max < r->max ? f->only_max : r->max;
        *node = dg_syntax_repeat(c->syntax, f->only, min, max);
        return true;
    }
    const char *keyword = f->min < r->min ? "minLength" : "maxLength";
    return c->options.lenient ? dg_schema_skip(c, r->who->schema, keyword)
                              : dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, r->who->schema, keyword,
                                                 "is not supported beside this pattern or format");
}

static dg_node matching_string(dg_schema *c, const string_rule *r)
{
    dgemma_error why = {0};
    dg_regex_facts facts;
    dg_node node;
    dg_regex_options options = {.spelling = dg_notation_spelling(c->options.call),
                                .search = r->search};
    dgemma_status st = dg_regex_compile(c->syntax, r->regex, r->len, &options, &node, &facts, &why);
    if (st) {
        if (st == DGEMMA_E_UNSUPPORTED && c->options.lenient)
            return dg_schema_skip(c, r->who->schema, r->keyword) ? plain_string(c, r)
                                                                 : DG_NODE_NEVER;
        dg_schema_refuse(c, st, r->who->schema, r->keyword, why.msg);
        return DG_NODE_NEVER;
    }
    return fit_lengths(c, r, &facts, &node) ? dg_notation_between(c->syntax, c->options.call, node)
                                            : DG_NODE_NEVER;
}

dg_node dg_schema_string(dg_schema *c, const dg_claims *list)
{
    string_rule r = {.max = DG_UNBOUNDED};
    for (size_t i = 0; i < list->n; i++)
        if (!read_string_claim(c, &list->at[i], &r))
            return DG_NODE_NEVER;
    return r.who ? matching_string(c, &r) : plain_string(c, &r);
}
