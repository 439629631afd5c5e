#include "schema_check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "json_text.h"

enum {
    MAX_DEPTH = 200,
    MAX_WORK = 200000, /* keywords, members and pairs: some 50 ms */
    MAX_POINTER = 512
};

/* In the order in which they outweigh each other where all must hold. */
typedef enum verdict { HOLDS, UNKNOWN, VIOLATED } verdict;

typedef struct checker {
    const json_t *root;
    const char *base; /* its pointer */
    json_t **list;    /* NULL: nothing is reported */
    int work, depth;
} checker;

/* A schema, and how it is reached. */
typedef struct place {
    const json_t *schema;
    const char *pointer;
} place;

static verdict check(checker *c, place at, const json_t *value);

static verdict both(verdict a, verdict b)
{
    return a > b ? a : b;
}

static verdict held(bool holds)
{
    return holds ? HOLDS : VIOLATED;
}

/* ---- places ---- */

typedef struct step {
    char pointer[MAX_POINTER];
} step;

static void append_token(char *out, size_t cap, const char *token)
{
    size_t n = strlen(out);
    for (; *token && n + 3 < cap; token++) {
        if (*token == '~' || *token == '/') {
            out[n++] = '~';
            out[n++] = *token == '~' ? '0' : '1';
        } else {
            out[n++] = *token;
        }
    }
    out[n] = '\0';
}

/* The schema below a keyword, and below a name or number in it if there is one. */
static place below(place at, step *s, const char *keyword, const char *name, const json_t *schema)
{
    snprintf(s->pointer, sizeof s->pointer, "%s/%s", at.pointer, keyword);
    if (name && strlen(s->pointer) + 2 < sizeof s->pointer) {
        strcat(s->pointer, "/");
        append_token(s->pointer, sizeof s->pointer, name);
    }
    return (place){schema, s->pointer};
}

static const char *numbered(char out[24], size_t i)
{
    snprintf(out, 24, "%zu", i);
    return out;
}

/* What a local reference means; NULL: it is not in this document. */
static const json_t *resolve(const checker *c, const char *ref)
{
    const json_t *v = c->root;
    if (*ref++ != '#')
        return NULL;
    while (v && *ref == '/') {
        char name[256];
        size_t n = 0;
        for (ref++; *ref && *ref != '/' && n + 1 < sizeof name; ref++) {
            bool escape = *ref == '~' && (ref[1] == '0' || ref[1] == '1');
            name[n++] = (char)(escape ? (ref[1] == '0' ? '~' : '/') : *ref);
            ref += escape;
        }
        name[n] = '\0';
        char *end;
        size_t index = strtoul(name, &end, 10);
        v = json_is_array(v) ? (*end ? NULL : json_array_get(v, index)) : json_object_get(v, name);
    }
    return *ref ? NULL : v;
}

/* ---- values ---- */

static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return !(json_number_value(a) < json_number_value(b)) &&
               !(json_number_value(a) > json_number_value(b));
    return json_equal(a, b);
}

static bool is_whole(const json_t *v)
{
    return json_is_integer(v) || (json_is_real(v) && fmod(json_real_value(v), 1) == 0);
}

static bool is_of_type(const json_t *v, const char *type)
{
    return !strcmp(type, "null")      ? json_is_null(v)
           : !strcmp(type, "boolean") ? json_is_boolean(v)
           : !strcmp(type, "integer") ? is_whole(v)
           : !strcmp(type, "number")  ? json_is_number(v)
           : !strcmp(type, "string")  ? json_is_string(v)
           : !strcmp(type, "array")   ? json_is_array(v)
                                      : !strcmp(type, "object") && json_is_object(v);
}

static size_t count_characters(const json_t *text)
{
    const char *s = json_string_value(text);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(text); i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

/* How many of it there are, for the limits on sizes. */
static double size_of(const json_t *v)
{
    return (double)(json_is_string(v)  ? count_characters(v)
                    : json_is_array(v) ? json_array_size(v)
                                       : json_object_size(v));
}

/* ---- keywords ---- */

static verdict check_list(checker *c, const char *keyword, const json_t *said, const json_t *v)
{
    bool any = false, all = true;
    size_t i;
    const json_t *one;
    c->work += (int)json_array_size(said);
    json_array_foreach(said, i, one)
    {
        const char *word = json_string_value(one);
        bool is = keyword[0] == 't'   ? word && is_of_type(v, word)
                  : keyword[0] == 'e' ? equal(one, v)
                                      : word && json_object_get(v, word);
        any |= is;
        all &= is;
    }
    return held(keyword[0] == 'r' ? all || !json_is_object(v) : any);
}

/* Those that say something of the value itself, or of nothing. */
static verdict check_value(checker *c, const char *keyword, const json_t *said, const json_t *v)
{
    static const struct {
        const char *keyword;
        json_type type;
        int sign; /* of what is left when the limit is taken off */
    } sizes[] = {{"minLength", JSON_STRING, 1},     {"maxLength", JSON_STRING, -1},
                 {"minItems", JSON_ARRAY, 1},       {"maxItems", JSON_ARRAY, -1},
                 {"minProperties", JSON_OBJECT, 1}, {"maxProperties", JSON_OBJECT, -1}};
    double limit = json_number_value(said), x = json_number_value(v);
    for (size_t i = 0; i < DG_COUNT(sizes); i++)
        if (!strcmp(keyword, sizes[i].keyword))
            return held(json_typeof(v) != sizes[i].type ||
                        sizes[i].sign * (size_of(v) - limit) >= 0);
    if (!strcmp(keyword, "type") && json_is_string(said))
        return held(is_of_type(v, json_string_value(said)));
    if (!strcmp(keyword, "const"))
        return held(equal(said, v));
    if (!strcmp(keyword, "type") || !strcmp(keyword, "enum") || !strcmp(keyword, "required"))
        return check_list(c, keyword, said, v);
    if (!strcmp(keyword, "pattern") || !strcmp(keyword, "format"))
        return json_is_string(v) ? UNKNOWN : HOLDS;
    if (!json_is_number(v))
        return HOLDS;
    if (!strcmp(keyword, "minimum"))
        return held(x >= limit);
    if (!strcmp(keyword, "maximum"))
        return held(x <= limit);
    if (!strcmp(keyword, "exclusiveMinimum"))
        return json_is_number(said) ? held(x > limit) : UNKNOWN;
    if (!strcmp(keyword, "exclusiveMaximum"))
        return json_is_number(said) ? held(x < limit) : UNKNOWN;
    if (!strcmp(keyword, "multipleOf") && limit > 0) {
        double n = x / limit; /* in binary, 0.3 is no multiple of 0.1 */
        return held(fabs(n - nearbyint(n)) <= 1e-9 * fmax(1, fabs(n)));
    }
    return HOLDS;
}

static verdict silently(checker *c, place at, const json_t *value)
{
    json_t **list = c->list;
    c->list = NULL;
    verdict v = check(c, at, value);
    c->list = list;
    return v;
}

/* How many of some schemas, or of some values, hold. */
typedef struct count {
    int holds, unknown;
} count;

static void tell(count *n, verdict v)
{
    n->holds += v == HOLDS;
    n->unknown += v == UNKNOWN;
}

static verdict within(count n, double least, double most)
{
    if (n.holds + n.unknown < least || n.holds > most)
        return VIOLATED;
    return n.holds >= least && n.holds + n.unknown <= most ? HOLDS : UNKNOWN;
}

static verdict check_branches(checker *c, place at, const char *keyword, const json_t *said,
                              const json_t *v)
{
    size_t i;
    const json_t *one;
    step s;
    if (!strcmp(keyword, "not")) {
        verdict inner = silently(c, below(at, &s, keyword, NULL, said), v);
        return inner == HOLDS ? VIOLATED : inner == VIOLATED ? HOLDS : UNKNOWN;
    }
    if (!strcmp(keyword, "if")) {
        verdict yes = silently(c, below(at, &s, keyword, NULL, said), v);
        const char *then = yes == HOLDS ? "then" : "else";
        const json_t *next = json_object_get(at.schema, then);
        if (!next)
            return HOLDS;
        return yes == UNKNOWN ? UNKNOWN : silently(c, below(at, &s, then, NULL, next), v);
    }
    count n = {0, 0};
    json_array_foreach(said, i, one) tell(&n, silently(c, below(at, &s, keyword, NULL, one), v));
    return within(n, 1, !strcmp(keyword, "oneOf") ? 1 : INFINITY);
}

static verdict check_contains(checker *c, place at, const json_t *said, const json_t *v)
{
    const json_t *least = json_object_get(at.schema, "minContains"),
                 *most = json_object_get(at.schema, "maxContains"), *one;
    size_t i;
    step s;
    count n = {0, 0};
    if (!json_is_array(v))
        return HOLDS;
    json_array_foreach(v, i, one) tell(&n, silently(c, below(at, &s, "contains", NULL, said), one));
    return within(n, least ? json_number_value(least) : 1,
                  most ? json_number_value(most) : INFINITY);
}

static verdict check_unique(checker *c, const json_t *said, const json_t *v)
{
    size_t n = json_is_true(said) ? json_array_size(v) : 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            if (++c->work > MAX_WORK)
                return UNKNOWN;
            if (equal(json_array_get(v, i), json_array_get(v, k)))
                return VIOLATED;
        }
    return HOLDS;
}

static verdict check_dependent(checker *c, place at, const char *keyword, const json_t *said,
                               const json_t *v)
{
    const char *name;
    json_t *needs, *one;
    size_t i;
    step s;
    verdict all = HOLDS;
    json_object_foreach((json_t *)said, name, needs)
    {
        if (!json_object_get(v, name))
            continue;
        if (!json_is_array(needs))
            all = both(all, silently(c, below(at, &s, keyword, name, needs), v));
        json_array_foreach(needs, i, one) all =
            both(all, held(json_object_get(v, json_string_value(one)) != NULL));
    }
    return all;
}

static verdict check_names(checker *c, place at, const json_t *said, const json_t *v)
{
    const char *name;
    json_t *member;
    step s;
    verdict all = HOLDS;
    json_object_foreach((json_t *)v, name, member)
    {
        json_t *text = json_string(name);
        if (text)
            all = both(all, silently(c, below(at, &s, "propertyNames", NULL, said), text));
        json_decref(text);
    }
    return all;
}

/* ---- what is inside ---- */

static void report(checker *c, place at, const char *keyword)
{
    json_t *line = json_sprintf("%s at #%s", keyword, at.pointer), *known;
    size_t i;
    bool told = false;
    json_array_foreach(*c->list, i, known) told |= line && json_equal(line, known);
    if (told)
        json_decref(line);
    else
        dg_json_add(c->list, line);
}

/* The value of a member or an element; it reports for itself, unless it may not be there at all. */
static verdict check_inside(checker *c, place at, const char *keyword, const char *name,
                            const json_t *schema, const json_t *value)
{
    step s;
    if (json_is_false(schema) && c->list)
        report(c, at, keyword);
    return check(c, below(at, &s, keyword, name, schema), value);
}

static verdict check_members(checker *c, place at, const json_t *v)
{
    const json_t *known = json_object_get(at.schema, "properties"),
                 *patterns = json_object_get(at.schema, "patternProperties"),
                 *others = json_object_get(at.schema, "additionalProperties");
    const char *name;
    json_t *member;
    verdict all = HOLDS;
    json_object_foreach((json_t *)v, name, member)
    {
        const json_t *schema = json_object_get(known, name);
        if (json_object_size(patterns))
            all = both(all, UNKNOWN);
        if (schema)
            all = both(all, check_inside(c, at, "properties", name, schema, member));
        else if (others && !json_object_size(patterns))
            all = both(all, check_inside(c, at, "additionalProperties", NULL, others, member));
    }
    return all;
}

static verdict check_elements(checker *c, place at, const json_t *v)
{
    const json_t *items = json_object_get(at.schema, "items"),
                 *prefix = json_object_get(at.schema, "prefixItems"), *one;
    const char *first = "prefixItems", *rest = "items";
    size_t i;
    char number[24];
    verdict all = HOLDS;
    if (json_is_array(items)) { /* as it was written before 2020 */
        prefix = items;
        items = json_object_get(at.schema, "additionalItems");
        first = "items";
        rest = "additionalItems";
    }
    json_array_foreach(v, i, one)
    {
        const json_t *schema = json_array_get(prefix, i);
        if (schema)
            all = both(all, check_inside(c, at, first, numbered(number, i), schema, one));
        else if (items)
            all = both(all, check_inside(c, at, rest, NULL, items, one));
    }
    return all;
}

static verdict check_parts(checker *c, place at, const char *keyword, const json_t *said,
                           const json_t *v)
{
    size_t i;
    const json_t *one;
    char number[24];
    verdict all = HOLDS;
    json_array_foreach(said, i, one) all =
        both(all, check_inside(c, at, keyword, numbered(number, i), one, v));
    return all;
}

static verdict check_reference(checker *c, place at, const json_t *said, const json_t *v)
{
    const char *ref = json_string_value(said);
    const json_t *schema = ref ? resolve(c, ref) : NULL;
    char pointer[MAX_POINTER];
    snprintf(pointer, sizeof pointer, "%s%s", c->base, schema ? ref + 1 : "");
    if (json_is_false(schema) && c->list)
        report(c, at, "$ref");
    return schema ? check(c, (place){schema, pointer}, v) : UNKNOWN;
}

/* One keyword; *inside: who is to blame has been told. */
static verdict check_keyword(checker *c, place at, const char *keyword, const json_t *said,
                             const json_t *v, bool *inside)
{
    static const char *const branches[] = {"anyOf", "oneOf", "not", "if"};
    *inside = false;
    for (size_t i = 0; i < DG_COUNT(branches); i++)
        if (!strcmp(keyword, branches[i]))
            return check_branches(c, at, keyword, said, v);
    if (!strcmp(keyword, "contains"))
        return check_contains(c, at, said, v);
    if (!strcmp(keyword, "uniqueItems"))
        return check_unique(c, said, v);
    if (!strncmp(keyword, "dependen", 8))
        return check_dependent(c, at, keyword, said, v);
    if (!strcmp(keyword, "propertyNames"))
        return check_names(c, at, said, v);
    if (!strncmp(keyword, "unevaluated", 11) || !strcmp(keyword, "$dynamicRef"))
        return UNKNOWN;
    *inside = !strcmp(keyword, "allOf") || !strcmp(keyword, "$ref");
    if (*inside)
        return keyword[0] == 'a' ? check_parts(c, at, keyword, said, v)
                                 : check_reference(c, at, said, v);
    return check_value(c, keyword, said, v);
}

static verdict check(checker *c, place at, const json_t *value)
{
    const char *keyword;
    json_t *said;
    if (!json_is_object(at.schema))
        return held(!json_is_false(at.schema));
    c->work += (int)(1 + json_object_size(at.schema) + json_object_size(value));
    if (c->depth == MAX_DEPTH || c->work > MAX_WORK)
        return UNKNOWN;
    c->depth++;
    verdict all = both(json_is_object(value) ? check_members(c, at, value) : HOLDS,
                       json_is_array(value) ? check_elements(c, at, value) : HOLDS);
    json_object_foreach((json_t *)at.schema, keyword, said)
    {
        bool inside;
        verdict v = check_keyword(c, at, keyword, said, value, &inside);
        if (v == VIOLATED && !inside && c->list)
            report(c, at, keyword);
        all = both(all, v);
    }
    c->depth--;
    return all;
}

void dg_schema_check(json_t **list, const json_t *schema, const json_t *value, const char *base)
{
    checker c = {.root = schema, .base = base, .list = list};
    check(&c, (place){schema, base}, value);
}
