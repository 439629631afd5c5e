/* JSON Schema (Draft 2020-12, a part of it) to a syntax. What is generated is valid; not everything
 * that is valid can be generated: members come in the order of `properties`, white space in one of
 * two styles, numbers in plain forms. What cannot be held to is refused by name and place. */
#ifndef DG_CONSTRAINT_SCHEMA_H
#define DG_CONSTRAINT_SCHEMA_H

#include "base/buf.h"
#include "constraint/syntax.h"

enum {
    DG_SCHEMA_MAX_BYTES = 256 << 10,
    DG_SCHEMA_MAX_DEPTH = 64,
    DG_SCHEMA_MAX_PROPERTIES = 5000,
    DG_SCHEMA_MAX_VALUES = 10000, /* of enum */
    DG_SCHEMA_MAX_ITEMS = 1024,   /* that are counted; maxItems above that is taken for it */
    DG_SCHEMA_MAX_LENGTH = 4096,  /* of strings, likewise */
    DG_SCHEMA_LEVELS = 32         /* of objects and arrays in what is generated */
};

typedef struct dg_schema_options {
    unsigned styles;  /* of white space, a mask of 1 << dg_style; 0: one line or many */
    bool lenient;     /* keywords that are not supported are left out, and told */
    dg_buf *ignored;  /* lenient: lines 'KEYWORD at POINTER'; or NULL */
    bool call;        /* the arguments of a call, an object, in the notation of tool_calls.h */
    const char *base; /* in front of JSON pointers, "/0/function/parameters"; NULL: nothing */
} dg_schema_options;

/* The node of the schema's instances. DGEMMA_E_ARG: it is no schema, or nothing satisfies it;
 * DGEMMA_E_UNSUPPORTED: a keyword that is not supported, named with its JSON pointer;
 * DGEMMA_E_LIMIT: one of the limits. */
dgemma_status dg_schema_compile(dg_syntax *s, const char *json, size_t len,
                                const dg_schema_options *options, dg_node *out, dgemma_error *err);

/* Any JSON object. */
dg_node dg_schema_any_object(dg_syntax *s, unsigned styles);

/* Any arguments of a call. */
dg_node dg_schema_any_arguments(dg_syntax *s);

#endif
