/* Arrays: what stands at each place, and how many. */
#include "base/alloc.h"
#include "base/common.h"
#include "constraint/schema_claims.h"

typedef struct array_rule {
    uint32_t min, max;
    size_t n_prefix;
} array_rule;

/* What a claim says of the first items, and of those behind them. Before 2020 a list of "items" was
 * what "prefixItems" is, and "additionalItems" the others. */
typedef struct array_items {
    const dg_json *first, *rest;
    const char *name; /* of the first */
} array_items;

static array_items items_of(const dg_claim *claim)
{
    const dg_json *items = dg_claim_get(claim, "items");
    const dg_json *prefix = dg_claim_get(claim, "prefixItems");
    if (!prefix && items && items->kind == DG_JSON_ARRAY)
        return (array_items){items, dg_claim_get(claim, "additionalItems"), "items"};
    return (array_items){prefix, items, "prefixItems"};
}

static bool read_array_claim(dg_schema *c, const dg_claim *claim, array_rule *r)
{
    array_items items = items_of(claim);
    const dg_json *prefix = items.first;
    uint32_t min = 0, max = DG_SCHEMA_MAX_ITEMS;
    if (prefix && prefix->kind != DG_JSON_ARRAY)
        return dg_schema_refuse(c, DGEMMA_E_ARG, claim->schema, items.name,
                                "has to be a list of schemas");
    if (prefix && prefix->n_child > DG_SCHEMA_MAX_ITEMS)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, claim->schema, items.name, "is above 1024");
    if (!dg_claims_count(c, claim, "minItems", DG_SCHEMA_MAX_ITEMS + 1, &min) ||
        !dg_claims_count(c, claim, "maxItems", DG_SCHEMA_MAX_ITEMS, &max))
        return false;
    if (min > DG_SCHEMA_MAX_ITEMS)
        return dg_schema_refuse(c, DGEMMA_E_LIMIT, claim->schema, "minItems", "is above 1024");
    r->min = min > r->min ? min : r->min;
    if (dg_claim_get(claim, "maxItems"))
        r->max = max < r->max ? max : r->max;
    if (prefix && prefix->n_child > r->n_prefix)
        r->n_prefix = prefix->n_child;
    return true;
}

/* The node of the item at this place; beyond all prefixes they are alike. */
static dg_node item_node(dg_schema *c, const dg_claims *list, size_t place)
{
    dg_claims item = {0};
    dg_node node = DG_NODE_NEVER;
    for (size_t i = 0; i < list->n; i++) {
        array_items items = items_of(&list->at[i]);
        const dg_json *own = items.first ? items.first->child : NULL;
        for (size_t k = 0; k < place && own; k++)
            own = own->next;
        if (!own)
            own = items.rest;
        if (own && !dg_claims_add(c, &item, own, 0))
            goto end;
    }
    node = dg_claims_node(c, &item);
end:
    dg_claims_clear(&item);
    return node;
}

static dg_node after_comma(dg_schema *c, dg_node item)
{
    dg_syntax *s = c->syntax;
    const dg_node parts[] = {dg_syntax_word(s, ","), dg_syntax_layout(s, DG_LAYOUT_COMMA), item};
    return dg_syntax_sequence(s, parts, DG_COUNT(parts));
}

/* All items, at least one; from the last place to the first. */
static dg_node items_node(dg_schema *c, const dg_claims *list, const array_rule *r)
{
    dg_syntax *s = c->syntax;
    size_t n = r->n_prefix < r->max ? r->n_prefix : r->max;
    dg_node other = r->max > n ? item_node(c, list, n) : DG_NODE_NEVER;
    uint32_t used = n ? (uint32_t)n : 1; /* items in front of the repeated ones */
    uint32_t min = r->min > used ? r->min - used : 0;
    uint32_t max = r->max == DG_UNBOUNDED ? DG_UNBOUNDED : r->max - used;
    dg_node tail = dg_syntax_repeat(s, after_comma(c, other), min, max);
    if (!n)
        return dg_syntax_pair(s, other, tail);
    for (size_t i = n; i-- > 1 && !c->status;) {
        tail = dg_syntax_pair(s, after_comma(c, item_node(c, list, i)), tail);
        if (i >= r->min)
            tail = dg_syntax_either(s, DG_NODE_EMPTY, tail);
    }
    return dg_syntax_pair(s, item_node(c, list, 0), tail);
}

dg_node dg_schema_array(dg_schema *c, const dg_claims *list)
{
    array_rule r = {.max = DG_UNBOUNDED};
    for (size_t i = 0; i < list->n; i++)
        if (!read_array_claim(c, &list->at[i], &r))
            return DG_NODE_NEVER;
    if (r.min > r.max)
        return DG_NODE_NEVER;
    dg_syntax *s = c->syntax;
    dg_node inside = DG_NODE_NEVER;
    if (r.max) {
        const dg_node parts[] = {dg_syntax_layout(s, DG_LAYOUT_OPEN), items_node(c, list, &r),
                                 dg_syntax_layout(s, DG_LAYOUT_CLOSE)};
        inside = dg_syntax_sequence(s, parts, DG_COUNT(parts));
    }
    if (!r.min)
        inside = dg_syntax_either(s, DG_NODE_EMPTY, inside);
    const dg_node whole[] = {dg_syntax_word(s, "["), inside, dg_syntax_word(s, "]")};
    return dg_syntax_nest(s, dg_syntax_sequence(s, whole, DG_COUNT(whole)));
}
