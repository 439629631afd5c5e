/* JSON as a tree that keeps numbers the way they were written and each value's place in the
 * document. Conversations need both: a template prints 1.0 and a 30-digit integer as Python would,
 * where a library that turns numbers into machine ones has already rounded or refused them. */
#ifndef DG_TEXT_JSON_TREE_H
#define DG_TEXT_JSON_TREE_H

#include "text/conversation.h"

typedef enum dg_json_kind {
    DG_JSON_NULL,
    DG_JSON_FALSE,
    DG_JSON_TRUE,
    DG_JSON_INT,
    DG_JSON_REAL,
    DG_JSON_STRING,
    DG_JSON_ARRAY,
    DG_JSON_OBJECT
} dg_json_kind;

typedef struct dg_json {
    dg_json_kind kind;
    dg_text source; /* the value as it stands in the document */
    dg_text text;   /* STRING: its characters, escapes resolved */
    dg_text key; /* of a member of an object; keys in an object are unique, the last value stays */
    struct dg_json *child, *next; /* first element or member; next sibling */
    size_t n_child;
} dg_json;

enum {
    DG_JSON_MAX_BYTES = 1 << 28,
    DG_JSON_MAX_VALUES = 1 << 20,
    DG_JSON_MAX_DEPTH = 128,
    DG_JSON_MAX_DIGITS = 4300 /* of a number; Python's own limit for integers */
};

typedef struct dg_json_tree {
    dg_json *root;
    dg_json *values; /* owned */
    char *strings;   /* owned: the characters of all strings */
} dg_json_tree;

/* Strict JSON in UTF-8 (no surrogates by themselves). The document is borrowed for as long as the
 * tree lives. `where` names it in messages, which give line and column. DGEMMA_E_ARG: malformed,
 * DGEMMA_E_LIMIT: one of the limits above. */
dgemma_status dg_json_read(dg_json_tree *out, const char *json, size_t len, const char *where,
                           dgemma_error *err);
void dg_json_tree_clear(dg_json_tree *t);

/* The member with this key; NULL when there is none or v is no object. v may be NULL. */
const dg_json *dg_json_get(const dg_json *v, const char *key);

bool dg_text_is(dg_text text, const char *literal);
bool dg_text_equal(dg_text a, dg_text b);

#endif
