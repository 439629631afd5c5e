/* Objects: declared members in their order, those that are not required skipped one by one; then
 * others, where the schema lets them be. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "constraint/language.h"
#include "constraint/points.h"
#include "constraint/regex.h"
#include "constraint/schema_claims.h"
#include "text/python_text.h"

typedef struct member {
    dg_text name;
    bool required;
    const dg_json *own; /* its schema in the `properties` where it was found first, or NULL */
    const dg_json *in;  /* and that claim's schema */
} member;

typedef struct object_rule {
    member *member; /* in the order in which they are written */
    size_t n, cap;
    uint32_t min, max;    /* members */
    bool declared;        /* some claim has `properties` */
    bool open, closed;    /* some claim has additionalProperties, other than or being false */
    const dg_claim *keys; /* who has patternProperties; NULL: nobody */
    const dg_claim *counts;
} object_rule;

/* ---- who the members are ---- */

static bool add_member(dg_schema *c, object_rule *r, member m)
{
    if (r->n == r->cap) {
        size_t want = r->cap ? 2 * r->cap : 16;
        member *grown = dg_array_resize(r->member, want, sizeof *grown);
        if (!grown)
            return dg_schema_out_of_memory(c);
        r->member = grown;
        r->cap = want;
    }
    if (++c->n_property > 2 * DG_SCHEMA_MAX_PROPERTIES)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, c->root, "properties",
                                "are more than 5000 in all");
    r->member[r->n++] = m;
    return true;
}

static int compare_texts(dg_text a, dg_text b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int compare_members(const void *x, const void *y)
{
    const member *const *a = x, *const *b = y;
    int c = compare_texts((*a)->name, (*b)->name);
    return c ? c : (*a > *b) - (*a < *b); /* the first one first */
}

/* A name that was added twice stays where it was first; required if it is so anywhere. */
static bool join_members(dg_schema *c, object_rule *r)
{
    member **order = dg_array(r->n + 1, sizeof *order);
    if (!order)
        return dg_schema_out_of_memory(c);
    for (size_t i = 0; i < r->n; i++)
        order[i] = &r->member[i];
    qsort(order, r->n, sizeof *order, compare_members);
    member *first = NULL;
    for (size_t i = 0; i < r->n; i++) {
        if (first && !compare_texts(first->name, order[i]->name)) {
            first->required |= order[i]->required;
            if (!first->own) {
                first->own = order[i]->own;
                first->in = order[i]->in;
            }
            order[i]->name.data = NULL; /* to be dropped */
        } else
            first = order[i];
    }
    dg_free(order);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->member[i].name.data)
            r->member[n++] = r->member[i];
    r->n = n;
    return true;
}

static dg_text name_of(dg_text text)
{
    return text.data ? text : DG_TEXT("");
}

static bool add_names(dg_schema *c, const dg_claim *claim, const char *keyword, bool required,
                      object_rule *r)
{
    const dg_json *v = dg_claim_get(claim, keyword);
    if (!v)
        return true;
    bool list = strcmp(keyword, "properties") != 0;
    if (v->kind != (list ? DG_JSON_ARRAY : DG_JSON_OBJECT))
        return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, keyword,
                                list ? "has to be a list of names" : "has to be an object");
    for (const dg_json *m = v->child; m; m = m->next) {
        if (list && m->kind != DG_JSON_STRING)
            return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, keyword,
                                    "has to be a list of names");
        member found = {name_of(list ? m->text : m->key), required, list ? NULL : m,
                        list ? NULL : claim->schema};
        if (!add_member(c, r, found))
            return false;
    }
    return true;
}

static bool has_property(const dg_claims *list, dg_text name)
{
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *p = dg_claim_get(&list->at[i], "properties");
        for (const dg_json *m = p ? p->child : NULL; m; m = m->next)
            if (!compare_texts(name_of(m->key), name))
                return true;
    }
    return false;
}

/* propertyOrdering puts names first that are properties; others in it mean nothing. */
static bool add_ordering(dg_schema *c, const dg_claims *list, object_rule *r)
{
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *v = dg_claim_get(&list->at[i], "propertyOrdering");
        for (const dg_json *m = v && v->kind == DG_JSON_ARRAY ? v->child : NULL; m; m = m->next)
            if (m->kind == DG_JSON_STRING && has_property(list, name_of(m->text)) &&
                !add_member(c, r, (member){.name = name_of(m->text)}))
                return false;
    }
    return true;
}

static bool read_object_claim(dg_schema *c, const dg_claim *claim, object_rule *r)
{
    const dg_json *more = dg_claim_get(claim, "additionalProperties");
    uint32_t min = 0, max = DG_UNBOUNDED;
    if (!dg_claims_count(c, claim, "minProperties", DG_SCHEMA_MAX_PROPERTIES + 1, &min) ||
        !dg_claims_count(c, claim, "maxProperties", DG_SCHEMA_MAX_PROPERTIES + 1, &max))
        return false;
    if (dg_claim_get(claim, "minProperties") || dg_claim_get(claim, "maxProperties"))
        r->counts = claim;
    r->min = min > r->min ? min : r->min;
    r->max = max < r->max ? max : r->max;
    r->declared |= dg_claim_get(claim, "properties") != NULL;
    r->open |= more && more->kind != DG_JSON_FALSE;
    r->closed |= more && more->kind == DG_JSON_FALSE;
    if (dg_claim_get(claim, "patternProperties")) {
        if (r->keys)
            return dg_schema_skip(c, claim->schema, "patternProperties");
        r->keys = claim;
    }
    return true;
}

/* As the model has learnt to write them: by name, upper and lower case alike. */
static int compare_in_calls(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int order = dg_python_compare_lower(a->name, b->name);
    return order ? order : compare_texts(a->name, b->name);
}

static bool read_rule(dg_schema *c, const dg_claims *list, object_rule *r)
{
    *r = (object_rule){.max = DG_UNBOUNDED};
    if (!add_ordering(c, list, r))
        return false;
    for (size_t i = 0; i < list->n; i++)
        if (!read_object_claim(c, &list->at[i], r) ||
            !add_names(c, &list->at[i], "properties", false, r))
            return false;
    for (size_t i = 0; i < list->n; i++)
        if (!add_names(c, &list->at[i], "required", true, r))
            return false;
    if (!join_members(c, r))
        return false;
    if (c->options.call && r->n)
        qsort(r->member, r->n, sizeof *r->member, compare_in_calls);
    return true;
}

/* ---- keys by pattern ---- */

/* Whether the name has a match of the pattern in it. */
static bool key_matches(dg_schema *c, const dg_json *pattern, dg_text name, bool *matches)
{
    dg_syntax *s = NULL;
    dg_language *l = NULL;
    dg_node node;
    size_t n = 0;
    dg_edges e = {0};
    dgemma_error why = {0};
    dg_regex_options options = {.search = true};
    dgemma_status st = dg_syntax_create(&s, 1, &why);
    if (!st)
        st = dg_regex_compile(s, pattern->key.data, pattern->key.len, &options, &node, NULL, &why);
    if (!st)
        st = dg_syntax_finish(s, node, &why);
    if (!st)
        st = dg_language_create(&l, s, &why);
    dg_place at = st ? DG_PLACE_DEAD : dg_language_start(l);
    if (!st)
        st = dg_language_walk(l, &at, name.data, name.len, &n, &why);
    if (!st)
        st = dg_language_edges(l, at, &e, &why);
    *matches = !st && n == name.len && e.accepts;
    dg_language_free(l);
    dg_syntax_free(s);
    return !st || dg_schema_refuse(c, st, pattern, "patternProperties", why.msg);
}

static const dg_json *patterns_of(const dg_claim *claim)
{
    const dg_json *p = dg_claim_get(claim, "patternProperties");
    return p && p->kind == DG_JSON_OBJECT ? p->child : NULL;
}

/* Keys that match and are none of the declared; two patterns, or a declared name that matches one,
 * would need both schemas at once. */
static bool check_patterns(dg_schema *c, const object_rule *r)
{
    const dg_json *first = patterns_of(r->keys);
    if (first && first->next)
        return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, r->keys->schema, "patternProperties",
                                "is supported with one pattern only");
    for (size_t i = 0; i < r->n && first; i++) {
        bool matches;
        if (!key_matches(c, first, r->member[i].name, &matches))
            return false;
        if (matches)
            return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, r->keys->schema, "patternProperties",
                                    "is not supported where it matches a name in \"properties\" "
                                    "or \"required\"");
    }
    return true;
}

/* ---- members ---- */

static const dg_json *property_named(const dg_claim *claim, dg_text name)
{
    const dg_json *p = dg_claim_get(claim, "properties");
    for (const dg_json *m = p ? p->child : NULL; m; m = m->next)
        if (m->key.len == name.len && !memcmp(m->key.data, name.data, name.len))
            return m;
    return NULL;
}

/* What has to hold for the value of this member; NULL: for that of any other. */
static bool claims_of(dg_schema *c, const dg_claims *list, const member *m, dg_claims *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const dg_claim *claim = &list->at[i];
        const dg_json *own = !m                       ? NULL
                             : m->in == claim->schema ? m->own
                                                      : property_named(claim, m->name);
        if (!own)
            own = dg_claim_get(claim, "additionalProperties");
        if (own && !dg_claims_add(c, out, own, 0))
            return false;
    }
    return true;
}

bool dg_claims_member(dg_schema *c, const dg_claims *list, dg_text name, dg_claims *out)
{
    return claims_of(c, list, &(member){.name = name_of(name)}, out);
}

static dg_node value_of(dg_schema *c, const dg_claims *list, const member *m)
{
    dg_claims value = {0};
    dg_node node = claims_of(c, list, m, &value) ? dg_claims_node(c, &value) : DG_NODE_NEVER;
    dg_claims_clear(&value);
    return node;
}

static dg_node key_and_value(dg_schema *c, dg_node key, dg_node value)
{
    dg_syntax *s = c->syntax;
    const dg_node parts[] = {key, dg_syntax_word(s, ":"), dg_syntax_layout(s, DG_LAYOUT_COLON),
                             value};
    return dg_syntax_sequence(s, parts, DG_COUNT(parts));
}

static dg_node after_comma(dg_schema *c, dg_node node)
{
    dg_syntax *s = c->syntax;
    const dg_node parts[] = {dg_syntax_word(s, ","), dg_syntax_layout(s, DG_LAYOUT_COMMA), node};
    return dg_syntax_sequence(s, parts, DG_COUNT(parts));
}

static dg_node pattern_member(dg_schema *c, const object_rule *r)
{
    const dg_json *p = patterns_of(r->keys);
    if (!p)
        return DG_NODE_NEVER;
    dg_syntax *s = c->syntax;
    dgemma_error why = {0};
    dg_node key;
    dg_claims value = {0};
    bool call = c->options.call;
    dg_regex_options options = {.spelling = dg_notation_spelling(call), .search = true};
    dgemma_status st =
        dg_regex_compile(s, p->key.data ? p->key.data : "", p->key.len, &options, &key, NULL, &why);
    if (st) {
        dg_schema_refuse(c, st, r->keys->schema, "patternProperties", why.msg);
        return DG_NODE_NEVER;
    }
    dg_node node = DG_NODE_NEVER;
    if (dg_claims_add(c, &value, p, 0))
        node = key_and_value(c, dg_notation_between(s, call, key), dg_claims_node(c, &value));
    dg_claims_clear(&value);
    return node;
}

/* A member that is not declared; NEVER: there are none. */
static dg_node other_member(dg_schema *c, const dg_claims *list, const object_rule *r)
{
    if (r->keys)
        return pattern_member(c, r);
    if (r->closed || (r->declared && !r->open))
        return DG_NODE_NEVER;
    dg_word_text *names = dg_array(r->n + 1, sizeof *names);
    if (!names) {
        dg_schema_out_of_memory(c);
        return DG_NODE_NEVER;
    }
    for (size_t i = 0; i < r->n; i++)
        names[i] = (dg_word_text){r->member[i].name.data, r->member[i].name.len};
    dg_node key = dg_schema_other_key(c, names, r->n);
    dg_free(names);
    return key_and_value(c, key, value_of(c, list, NULL));
}

/* How many others there may be. False: the counts cannot be held to. */
static bool count_others(dg_schema *c, const object_rule *r, bool others, uint32_t *min,
                         uint32_t *max)
{
    size_t n_required = 0;
    for (size_t i = 0; i < r->n; i++)
        n_required += r->member[i].required;
    *min = 0;
    *max = DG_UNBOUNDED;
    bool no_min = r->min <= (n_required ? n_required : 1); /* 1: it is not empty, see below */
    bool no_max = r->max == DG_UNBOUNDED || (!others && r->max >= r->n);
    if (no_min && no_max)
        return true;
    const char *keyword = no_min ? "maxProperties" : "minProperties";
    if (n_required < r->n)
        return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, r->counts->schema, keyword,
                                "is not supported where not all properties are required");
    *min = r->min > r->n ? r->min - (uint32_t)r->n : 0;
    *max = r->max == DG_UNBOUNDED ? DG_UNBOUNDED : r->max >= r->n ? r->max - (uint32_t)r->n : 0;
    /* the same key twice would count once */
    if (others && *min > 1)
        return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, r->counts->schema, "minProperties",
                                "is not supported with more than one undeclared property");
    return true;
}

/* All members, at least one. `first`: nothing is in front of them; both lists from the end on. */
static dg_node members_node(dg_schema *c, const dg_claims *list, const object_rule *r,
                            dg_node other, uint32_t min, uint32_t max)
{
    dg_syntax *s = c->syntax;
    dg_node more = dg_syntax_repeat(s, after_comma(c, other), min, max);
    dg_node first = DG_NODE_NEVER;
    if (max)
        first = dg_syntax_pair(s, other,
                               dg_syntax_repeat(s, after_comma(c, other), min ? min - 1 : 0,
                                                max == DG_UNBOUNDED ? max : max - 1));
    for (size_t i = r->n; i-- > 0 && !c->status && !s->status;) {
        const member *m = &r->member[i];
        dg_node own = key_and_value(c, dg_schema_key(c, m->name), value_of(c, list, m));
        dg_node here = dg_syntax_pair(s, own, more);
        dg_node later = after_comma(c, here);
        first = m->required ? here : dg_syntax_either(s, here, first);
        more = m->required ? later : dg_syntax_either(s, later, more);
    }
    return first;
}

static dg_node object_node(dg_schema *c, const dg_claims *list, const object_rule *r)
{
    dg_syntax *s = c->syntax;
    uint32_t min, max;
    if (r->keys && !check_patterns(c, r))
        return DG_NODE_NEVER;
    dg_node other = other_member(c, list, r);
    if (c->status || !count_others(c, r, other != DG_NODE_NEVER, &min, &max) || r->max < r->min)
        return DG_NODE_NEVER;
    bool empty = r->min == 0;
    size_t n_required = 0;
    for (size_t i = 0; i < r->n; i++)
        n_required += r->member[i].required;
    if (n_required > r->max || (other == DG_NODE_NEVER && min))
        return DG_NODE_NEVER;
    const dg_node parts[] = {dg_syntax_layout(s, DG_LAYOUT_OPEN),
                             members_node(c, list, r, other, min, max),
                             dg_syntax_layout(s, DG_LAYOUT_CLOSE)};
    dg_node inside = dg_syntax_sequence(s, parts, DG_COUNT(parts));
    if (empty && !n_required)
        inside = dg_syntax_either(s, DG_NODE_EMPTY, inside);
    const dg_node whole[] = {dg_syntax_word(s, "{"), inside, dg_syntax_word(s, "}")};
    return dg_syntax_nest(s, dg_syntax_sequence(s, whole, DG_COUNT(whole)));
}

dg_node dg_schema_object(dg_schema *c, const dg_claims *list)
{
    object_rule r;
    dg_node node = DG_NODE_NEVER;
    if (read_rule(c, list, &r))
        node = object_node(c, list, &r);
    dg_free(r.member);
    return node;
}
