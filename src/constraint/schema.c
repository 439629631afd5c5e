#include "constraint/schema.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "constraint/numbers.h"
#include "constraint/points.h"
#include "constraint/schema_claims.h"

/* ---- any value ---- */

/* open item (, item)* close, or nothing between the brackets. */
static dg_node bracketed(dg_syntax *s, const char *open, dg_node item, const char *close)
{
    dg_node further[] = {dg_syntax_word(s, ","), dg_syntax_layout(s, DG_LAYOUT_COMMA), item};
    dg_node inside[] = {
        dg_syntax_layout(s, DG_LAYOUT_OPEN), item,
        dg_syntax_repeat(s, dg_syntax_sequence(s, further, DG_COUNT(further)), 0, DG_UNBOUNDED),
        dg_syntax_layout(s, DG_LAYOUT_CLOSE)};
    dg_node whole[] = {
        dg_syntax_word(s, open),
        dg_syntax_either(s, DG_NODE_EMPTY, dg_syntax_sequence(s, inside, DG_COUNT(inside))),
        dg_syntax_word(s, close)};
    return dg_syntax_nest(s, dg_syntax_sequence(s, whole, DG_COUNT(whole)));
}

/* *object: any object; the result: any value. */
static dg_node make_any(dg_syntax *s, bool call, dg_node *object)
{
    dg_node value = dg_syntax_rule(s), string = dg_notation_string(s, call);
    dg_node member[] = {dg_notation_any_key(s, call), dg_syntax_word(s, ":"),
                        dg_syntax_layout(s, DG_LAYOUT_COLON), value};
    *object = bracketed(s, "{", dg_syntax_sequence(s, member, DG_COUNT(member)), "}");
    dg_node ways[] = {string,
                      dg_number_node(s, &(dg_number_rule){0}),
                      *object,
                      bracketed(s, "[", value, "]"),
                      dg_syntax_word(s, "true"),
                      dg_syntax_word(s, "false"),
                      dg_syntax_word(s, "null")};
    dg_syntax_define(s, value, dg_syntax_choice(s, ways, DG_COUNT(ways)));
    return value;
}

static unsigned styles_or_default(unsigned styles)
{
    return styles ? styles : 1u << DG_STYLE_LINE | 1u << DG_STYLE_LINES;
}

dg_node dg_schema_any_object(dg_syntax *s, unsigned styles)
{
    dg_node object;
    make_any(s, false, &object);
    return dg_syntax_style(s, object, styles_or_default(styles));
}

dg_node dg_schema_any_arguments(dg_syntax *s)
{
    dg_node object;
    make_any(s, true, &object);
    return dg_syntax_style(s, object, 1u << DG_STYLE_COMPACT);
}

dg_node dg_schema_any_value(dg_schema *c)
{
    dg_node object;
    if (!c->any_value)
        c->any_value = make_any(c->syntax, c->options.call, &object);
    return c->any_value;
}

/* ---- numbers ---- */

static bool read_bound(dg_schema *c, const dg_claim *claim, const char *keyword, dg_decimal *d,
                       bool *there)
{
    const dg_json *v = dg_claim_get(claim, keyword);
    *there = v != NULL;
    if (!v)
        return true;
    if (v->kind != DG_JSON_INT && v->kind != DG_JSON_REAL)
        return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, keyword, "has to be a number");
    dg_decimal_parse(d, v->source.data, v->source.len);
    return true;
}

static bool read_multiple(dg_schema *c, const dg_claim *claim, uint32_t *multiple)
{
    dg_decimal d;
    bool there;
    if (!read_bound(c, claim, "multipleOf", &d, &there))
        return false;
    if (!there)
        return true;
    uint32_t n = d.beyond || strlen(d.whole) > 4 ? 0 : (uint32_t)strtoul(d.whole, NULL, 10);
    if (d.negative || d.fraction[0] || d.more || !n || n > DG_NUMBER_MAX_MULTIPLE)
        return dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, claim->schema, "multipleOf",
                                "is supported for whole numbers from 1 to 1000 only");
    uint32_t a = n, b = *multiple ? *multiple : n;
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    *multiple = *multiple ? *multiple / a * n : n; /* of both */
    return *multiple <= DG_NUMBER_MAX_MULTIPLE ||
           dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, claim->schema, "multipleOf",
                            "is not supported: with the others it is above 1000");
}

dg_node dg_schema_number(dg_schema *c, const dg_claims *list, bool integer)
{
    dg_number_rule rule = {.integer = integer};
    for (size_t i = 0; i < list->n; i++) {
        const dg_claim *claim = &list->at[i];
        dg_decimal d;
        bool there;
        for (int exclusive = 0; exclusive < 2; exclusive++) {
            if (!read_bound(c, claim, exclusive ? "exclusiveMinimum" : "minimum", &d, &there))
                return DG_NODE_NEVER;
            if (there)
                dg_bound_raise(&rule.lower, &d, exclusive);
            if (!read_bound(c, claim, exclusive ? "exclusiveMaximum" : "maximum", &d, &there))
                return DG_NODE_NEVER;
            if (there)
                dg_bound_lower(&rule.upper, &d, exclusive);
        }
        if (!read_multiple(c, claim, &rule.multiple))
            return DG_NODE_NEVER;
    }
    if (rule.multiple == 1 && integer)
        rule.multiple = 0;
    return dg_number_node(c->syntax, &rule);
}

/* ---- what is known ---- */

static uint64_t claims_hash(const dg_claim *at, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint64_t)(uintptr_t)at[i].schema ^ at[i].done) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static bool same_claims(const dg_known *k, const dg_claims *list)
{
    if (k->n != list->n)
        return false;
    for (size_t i = 0; i < k->n; i++)
        if (k->at[i].schema != list->at[i].schema || k->at[i].done != list->at[i].done)
            return false;
    return true;
}

static bool grow_known(dg_schema *c)
{
    if (c->n_known < c->cap_known)
        return true;
    size_t want = c->cap_known ? 2 * c->cap_known : 64;
    dg_known *known = dg_array_resize(c->known, want, sizeof *known);
    if (known)
        c->known = known;
    uint32_t *slot = known ? dg_calloc(4 * want, sizeof *slot) : NULL;
    if (!slot)
        return dg_schema_out_of_memory(c);
    c->cap_known = want;
    dg_free(c->slot);
    c->slot = slot;
    c->n_slot = 4 * want;
    for (size_t i = 0; i < c->n_known; i++) {
        size_t at = claims_hash(c->known[i].at, c->known[i].n) & (c->n_slot - 1);
        while (slot[at])
            at = (at + 1) & (c->n_slot - 1);
        slot[at] = (uint32_t)i + 1;
    }
    return true;
}

/* Where these claims are known; a new entry when they are not. NULL: out of memory. */
static dg_known *find_known(dg_schema *c, const dg_claims *list)
{
    if (!grow_known(c))
        return NULL;
    size_t at = claims_hash(list->at, list->n) & (c->n_slot - 1);
    for (; c->slot[at]; at = (at + 1) & (c->n_slot - 1))
        if (same_claims(&c->known[c->slot[at] - 1], list))
            return &c->known[c->slot[at] - 1];
    dg_known *k = &c->known[c->n_known];
    *k = (dg_known){.at = dg_array(list->n ? list->n : 1, sizeof *k->at), .n = list->n};
    if (!k->at) {
        dg_schema_out_of_memory(c);
        return NULL;
    }
    if (list->n)
        memcpy(k->at, list->at, list->n * sizeof *k->at);
    c->slot[at] = (uint32_t)++c->n_known;
    return k;
}

/* ---- branches ---- */

/* The claims with one branch of claim i's anyOf or oneOf, and without that keyword. */
static bool take_branch(dg_schema *c, const dg_claims *list, size_t i, uint8_t done,
                        const dg_json *branch, dg_claims *out)
{
    enum { MAX_WORK = 1 << 16 };
    c->work += list->n;
    if (c->work > MAX_WORK)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, list->at[i].schema,
                                done == DG_DONE_ANY_OF ? "anyOf" : "oneOf",
                                "makes too many combinations with the others");
    if (!dg_claims_copy(c, out, list))
        return false;
    out->at[i].done |= done;
    return dg_claims_add(c, out, branch, 0);
}

/* Of branches that could hold together, one alone would not be what oneOf means. */
static bool check_branches(dg_schema *c, const dg_claims *branch, size_t n, const dg_json *schema)
{
    if (n > 256)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, schema, "oneOf", "has more than 256 branches");
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            if (!dg_claims_disjoint(c, &branch[i], &branch[k], 0))
                return c->options.lenient
                           ? dg_schema_skip(c, schema, "oneOf")
                           : dg_schema_refuse(c, DGEMMA_E_UNSUPPORTED, schema, "oneOf",
                                              "is not supported: its branches are not told apart "
                                              "by type, by a required const or enum, or by "
                                              "required properties");
    return true;
}

static dg_node branches_node(dg_schema *c, const dg_claims *list, size_t i, uint8_t done,
                             const dg_json *branches)
{
    const char *keyword = done == DG_DONE_ANY_OF ? "anyOf" : "oneOf";
    const dg_json *schema = list->at[i].schema;
    size_t n = branches->kind == DG_JSON_ARRAY ? branches->n_child : 0, k = 0;
    dg_claims *branch = dg_calloc(n + 1, sizeof *branch);
    dg_node *way = dg_array(n + 1, sizeof *way), node = DG_NODE_NEVER;
    bool ok = branch && way ? true : dg_schema_out_of_memory(c);
    if (ok && !n)
        ok = dg_schema_refuse(c, DGEMMA_E_ARG, schema, keyword, "has to be a list of schemas");
    for (const dg_json *b = ok ? branches->child : NULL; b && ok; b = b->next, k++)
        ok = take_branch(c, list, i, done, b, &branch[k]);
    if (ok && done == DG_DONE_ONE_OF)
        ok = check_branches(c, branch, n, schema);
    for (k = 0; k < n && ok; k++) {
        way[k] = dg_claims_node(c, &branch[k]);
        ok = !c->status;
    }
    if (ok)
        node = dg_syntax_choice(c->syntax, way, n);
    for (k = 0; k < n && branch; k++)
        dg_claims_clear(&branch[k]);
    dg_free(branch);
    dg_free(way);
    return node;
}

/* ---- a value ---- */

static dg_node typed_node(dg_schema *c, const dg_claims *list)
{
    unsigned types;
    bool there;
    dg_node values;
    if (!dg_claims_types(c, list, &types) || !dg_schema_values(c, list, types, &there, &values))
        return DG_NODE_NEVER;
    if (there)
        return values;
    if (!list->n)
        return dg_schema_any_value(c);
    dg_syntax *s = c->syntax;
    dg_node way[8];
    size_t n = 0;
    if (types & DG_TYPE_OBJECT)
        way[n++] = dg_schema_object(c, list);
    if (types & DG_TYPE_ARRAY)
        way[n++] = dg_schema_array(c, list);
    if (types & DG_TYPE_STRING)
        way[n++] = dg_schema_string(c, list);
    if (types & (DG_TYPE_INTEGER | DG_TYPE_FRACTION))
        way[n++] = dg_schema_number(c, list, !(types & DG_TYPE_FRACTION));
    if (types & DG_TYPE_BOOLEAN) {
        way[n++] = dg_syntax_word(s, "true");
        way[n++] = dg_syntax_word(s, "false");
    }
    if (types & DG_TYPE_NULL)
        way[n++] = dg_syntax_word(s, "null");
    return dg_syntax_choice(s, way, n);
}

static dg_node body_node(dg_schema *c, const dg_claims *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const dg_json *any = dg_claim_get(&list->at[i], "anyOf");
        if (any)
            return branches_node(c, list, i, DG_DONE_ANY_OF, any);
        const dg_json *one = dg_claim_get(&list->at[i], "oneOf");
        if (one)
            return branches_node(c, list, i, DG_DONE_ONE_OF, one);
    }
    return typed_node(c, list);
}

dg_node dg_claims_node(dg_schema *c, const dg_claims *list)
{
    if (c->status || c->syntax->status || list->never)
        return DG_NODE_NEVER;
    dg_known *k = find_known(c, list);
    if (!k)
        return DG_NODE_NEVER;
    size_t index = (size_t)(k - c->known);
    if (k->made || k->node) {
        k->used |= !k->made;
        return k->node;
    }
    if (++c->depth > 100) {
        dg_schema_refuse(c, DGEMMA_E_LIMIT, list->n ? list->at[0].schema : c->root, "schema",
                         "is nested too deep");
        return DG_NODE_NEVER;
    }
    dg_node rule = dg_syntax_rule(c->syntax);
    k->node = rule;
    dg_node body = body_node(c, list);
    k = &c->known[index]; /* they may have moved */
    dg_syntax_define(c->syntax, rule, body);
    k->node = k->used ? rule : body;
    k->made = true;
    c->depth--;
    return k->node;
}

/* ---- the whole ---- */

static int depth_of(const dg_json *v, int depth)
{
    int deepest = depth;
    for (const dg_json *c = v->child; c; c = c->next)
        deepest = dg_max(deepest, depth_of(c, depth + 1));
    return deepest;
}

void dg_schema_release(dg_schema *c)
{
    for (size_t i = 0; i < c->n_known; i++)
        dg_free(c->known[i].at);
    dg_free(c->known);
    dg_free(c->slot);
}

/* Arguments are an object, whatever else the schema says. */
static bool claim_object(dg_schema *c, dg_claims *list, dg_json_tree *tree)
{
    static const char object[] = "{\"type\": \"object\"}";
    if (!c->options.call)
        return true;
    if (dg_json_read(tree, object, strlen(object), "the schema", c->err))
        return dg_schema_out_of_memory(c);
    return dg_claims_add(c, list, tree->root, 0);
}

static dg_node whole_node(dg_schema *c)
{
    dg_claims list = {0};
    dg_json_tree object = {0};
    dg_node node = DG_NODE_NEVER;
    if (dg_claims_add(c, &list, c->root, 0) && claim_object(c, &list, &object))
        node = dg_claims_node(c, &list);
    unsigned styles =
        c->options.call ? 1u << DG_STYLE_COMPACT : styles_or_default(c->options.styles);
    dg_claims_clear(&list);
    dg_json_tree_clear(&object);
    return dg_syntax_style(c->syntax, node, styles);
}

dgemma_status dg_schema_compile(dg_syntax *s, const char *json, size_t len,
                                const dg_schema_options *options, dg_node *out, dgemma_error *err)
{
    dg_json_tree tree;
    if (len > DG_SCHEMA_MAX_BYTES)
        return dg_fail(err, DGEMMA_E_LIMIT, "the schema is longer than %d bytes",
                       DG_SCHEMA_MAX_BYTES);
    dgemma_status st = dg_json_read(&tree, json, len, "the schema", err);
    if (st)
        return st;
    dg_schema c = {.syntax = s, .root = tree.root, .options = *options, .err = err};
    *out = DG_NODE_NEVER;
    if (depth_of(tree.root, 0) > DG_SCHEMA_MAX_DEPTH)
        c.status = dg_fail(err, DGEMMA_E_LIMIT, "the schema is nested deeper than %d",
                           DG_SCHEMA_MAX_DEPTH);
    else
        *out = whole_node(&c);
    dg_schema_release(&c);
    dg_json_tree_clear(&tree);
    if (!c.status && s->status)
        c.status = dg_fail(err, s->status, "the schema: %s", s->error.msg);
    return c.status;
}
