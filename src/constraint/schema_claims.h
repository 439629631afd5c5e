/* What the parts of the schema's compiler share. A value is described by claims: schemas all of
 * which have to hold. `$ref` and `allOf` add claims, `anyOf` and `oneOf` are tried branch by branch
 * beside the others. */
#ifndef DG_CONSTRAINT_SCHEMA_CLAIMS_H
#define DG_CONSTRAINT_SCHEMA_CLAIMS_H

#include "constraint/points.h"
#include "constraint/schema.h"
#include "text/json_tree.h"

/* Parts of a schema that are dealt with elsewhere. */
enum { DG_DONE_ANY_OF = 1, DG_DONE_ONE_OF = 2, DG_DONE_VALUES = 4 };

typedef struct dg_claim {
    const dg_json *schema;
    uint8_t done;
    bool open; /* its own references are being followed */
} dg_claim;

typedef struct dg_claims {
    dg_claim *at; /* owned */
    size_t n, cap;
    bool never; /* one of them is `false` */
} dg_claims;

/* What is known of claims that were seen before. */
typedef struct dg_known {
    dg_claim *at; /* owned */
    size_t n;
    dg_node node;
    bool made, used; /* used: while it was being made */
} dg_known;

typedef struct dg_schema {
    dg_syntax *syntax;
    const dg_json *root;
    dg_schema_options options;
    dg_known *known;
    uint32_t *slot; /* hash table of known */
    size_t n_known, cap_known, n_slot;
    dg_node any_value; /* 0: not made yet */
    size_t n_property, n_value;
    size_t work; /* claims that were copied for branches */
    int depth;
    dgemma_status status;
    dgemma_error *err;
} dg_schema;

enum {
    DG_TYPE_NULL = 1,
    DG_TYPE_BOOLEAN = 2,
    DG_TYPE_INTEGER = 4,
    DG_TYPE_FRACTION = 8, /* a number that is no integer */
    DG_TYPE_STRING = 16,
    DG_TYPE_ARRAY = 32,
    DG_TYPE_OBJECT = 64,
    DG_TYPE_ALL = 127
};

/* ---- schema_claims.c ---- */

/* Keeps the first failure, with the keyword and the place of the schema in the document. False. */
bool dg_schema_refuse(dg_schema *c, dgemma_status status, const dg_json *schema,
                      const char *keyword, const char *why);
bool dg_schema_out_of_memory(dg_schema *c);

/* A keyword that is not supported: refused, or noted where the options say so (then true). */
bool dg_schema_skip(dg_schema *c, const dg_json *schema, const char *keyword);

/* The member of the claim's schema; NULL: it has none, or that part was dealt with. */
const dg_json *dg_claim_get(const dg_claim *claim, const char *keyword);

void dg_claims_clear(dg_claims *list);
bool dg_claims_put(dg_schema *c, dg_claims *list, const dg_json *schema, uint8_t done);

/* Adds a schema with everything that it refers to. */
bool dg_claims_add(dg_schema *c, dg_claims *list, const dg_json *schema, uint8_t done);
bool dg_claims_copy(dg_schema *c, dg_claims *out, const dg_claims *from);

/* Whole numbers of keywords such as minLength; false at a mistake. *out stays when the keyword is
 * not there. */
bool dg_claims_count(dg_schema *c, const dg_claim *claim, const char *keyword, uint32_t most,
                     uint32_t *out);

/* Types that all claims allow. */
bool dg_claims_types(dg_schema *c, const dg_claims *list, unsigned *types);

unsigned dg_json_types(const dg_json *value); /* of this value: one bit */
bool dg_json_equal(const dg_json *a, const dg_json *b);

/* ---- schema.c ---- */

/* The node of values that all claims hold for. Takes nothing; NEVER after a failure too. */
dg_node dg_claims_node(dg_schema *c, const dg_claims *list);
dg_node dg_schema_any_value(dg_schema *c);
void dg_schema_release(dg_schema *c); /* what it owns; not itself */

/* ---- the types ---- */

dg_node dg_schema_object(dg_schema *c, const dg_claims *list);
/* What has to hold for the value of this member of an object. */
bool dg_claims_member(dg_schema *c, const dg_claims *list, dg_text name, dg_claims *out);

dg_node dg_schema_array(dg_schema *c, const dg_claims *list);
dg_node dg_schema_string(dg_schema *c, const dg_claims *list);
dg_node dg_schema_number(dg_schema *c, const dg_claims *list, bool integer);

/* schema_values.c: the value as compact JSON. */
bool dg_json_write(dg_buf *out, const dg_json *value);

/* schema_values.c: enum and const. *there: there are some, and *out is their node. */
bool dg_schema_values(dg_schema *c, const dg_claims *list, unsigned types, bool *there,
                      dg_node *out);

/* schema_notation.c: how things are written, as JSON or as in a call. The mark around strings; any
 * string; this one; the name of a member, and that of any. */
dg_spelling dg_notation_spelling(bool call);
dg_node dg_notation_quote(dg_syntax *s, bool call);
dg_node dg_notation_between(dg_syntax *s, bool call, dg_node inside);
dg_node dg_notation_string(dg_syntax *s, bool call);
dg_node dg_notation_any_key(dg_syntax *s, bool call);
dg_node dg_schema_quoted(dg_schema *c, dg_text text);
dg_node dg_schema_key(dg_schema *c, dg_text name);

/* schema_notation.c: characters that names of undeclared members have in a call; and whether a name
 * is understood there without quotes. */
void dg_notation_add_key_points(dg_points *p);
bool dg_notation_stands_bare(dg_text name);

/* schema_string.c: the name of a member that is none of these, which are put in order. */
dg_node dg_schema_other_key(dg_schema *c, dg_word_text *names, size_t n);

/* schema_disjoint.c: no value can hold for both. */
bool dg_claims_disjoint(dg_schema *c, const dg_claims *a, const dg_claims *b, int depth);

#endif
