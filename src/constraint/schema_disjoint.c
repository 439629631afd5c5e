/* oneOf can be held to where no value satisfies two of its branches. That is proven, or not: what
 * is not looked at here counts as if it allowed anything. */
#include "constraint/schema_claims.h"

enum { MAX_DEPTH = 4 };

/* Whether the value is in all lists of values that the claims have; *lists: there are some. */
static bool allows(const dg_claims *claims, const dg_json *value, bool *lists)
{
    bool inside = true;
    for (size_t i = 0; i < claims->n; i++) {
        const dg_json *all = dg_claim_get(&claims->at[i], "enum");
        const dg_json *one = dg_claim_get(&claims->at[i], "const");
        *lists |= all || one;
        bool among = !all;
        for (const dg_json *m = all ? all->child : NULL; m && !among; m = m->next)
            among = dg_json_equal(m, value);
        inside = inside && among && (!one || dg_json_equal(one, value));
    }
    return inside;
}

/* None of a's values, in the first list that it has, is among b's, or of b's types. */
static bool values_exclude(const dg_claims *a, const dg_claims *b, unsigned types)
{
    for (size_t i = 0; i < a->n; i++) {
        const dg_json *all = dg_claim_get(&a->at[i], "enum");
        const dg_json *one = dg_claim_get(&a->at[i], "const");
        if (!all && !one)
            continue;
        for (const dg_json *m = one ? one : all->child; m; m = one ? NULL : m->next) {
            bool lists = false;
            if ((dg_json_types(m) & types) && allows(b, m, &lists))
                return false;
        }
        return true;
    }
    return false;
}

static bool requires(const dg_claims *claims, dg_text name)
{
    for (size_t i = 0; i < claims->n; i++) {
        const dg_json *r = dg_claim_get(&claims->at[i], "required");
        for (const dg_json *m = r && r->kind == DG_JSON_ARRAY ? r->child : NULL; m; m = m->next)
            if (m->kind == DG_JSON_STRING && dg_text_equal(m->text, name))
                return true;
    }
    return false;
}

/* An object that satisfies both would have this member, which a requires. */
static bool member_excludes(dg_schema *c, const dg_claims *a, const dg_claims *b, dg_text name,
                            int depth)
{
    dg_claims in_a = {0}, in_b = {0};
    bool out = false;
    if (dg_claims_member(c, a, name, &in_a) && dg_claims_member(c, b, name, &in_b))
        out = in_b.never || (requires(b, name) && dg_claims_disjoint(c, &in_a, &in_b, depth + 1));
    dg_claims_clear(&in_a);
    dg_claims_clear(&in_b);
    return out;
}

static bool has_patterns(const dg_claims *claims)
{
    for (size_t i = 0; i < claims->n; i++)
        if (dg_claim_get(&claims->at[i], "patternProperties"))
            return true;
    return false;
}

static bool members_exclude(dg_schema *c, const dg_claims *a, const dg_claims *b, int depth)
{
    if (has_patterns(a) || has_patterns(b))
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const dg_json *r = dg_claim_get(&a->at[i], "required");
        for (const dg_json *m = r && r->kind == DG_JSON_ARRAY ? r->child : NULL; m; m = m->next)
            if (m->kind == DG_JSON_STRING && member_excludes(c, a, b, m->text, depth))
                return true;
    }
    return false;
}

bool dg_claims_disjoint(dg_schema *c, const dg_claims *a, const dg_claims *b, int depth)
{
    unsigned types_a, types_b;
    if (a->never || b->never)
        return true;
    if (depth > MAX_DEPTH || !dg_claims_types(c, a, &types_a) || !dg_claims_types(c, b, &types_b))
        return false;
    unsigned both = types_a & types_b;
    if (!both || values_exclude(a, b, both) || values_exclude(b, a, both))
        return true;
    if (both != DG_TYPE_OBJECT || !a->n || !b->n)
        return false;
    return members_exclude(c, a, b, depth) || members_exclude(c, b, a, depth);
}
