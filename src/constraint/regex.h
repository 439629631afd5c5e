/* Regular expressions, the part of ECMAScript's that describes regular languages and nothing else:
 * characters, classes, \d \w \s, groups, alternatives, counts, and anchors at the ends.
 * Look-around, back-references, \b and \p are refused. Lazy counts are the same language as others.
 */
#ifndef DG_CONSTRAINT_REGEX_H
#define DG_CONSTRAINT_REGEX_H

#include "constraint/points.h"

typedef struct dg_regex_options {
    dg_spelling spelling; /* how the text is written that has to match */
    bool search;          /* an expression without anchors matches anywhere in the text */
} dg_regex_options;

/* The length of matches in characters, as far as the expression alone says. */
typedef struct dg_regex_facts {
    uint32_t min, max; /* max: DG_UNBOUNDED */
    dg_node only;      /* the expression is this node, only_min to only_max times; or NEVER */
    uint32_t only_min, only_max;
} dg_regex_facts;

enum { DG_REGEX_MAX_COUNT = 4096, DG_REGEX_MAX_PRODUCT = 1 << 16, DG_REGEX_MAX_GROUPS = 100 };

/* The node of the expression. facts may be NULL. DGEMMA_E_ARG: malformed; DGEMMA_E_UNSUPPORTED: one
 * of those above; DGEMMA_E_LIMIT: counts that multiply to too much, or groups too deep. Messages
 * give the byte. */
dgemma_status dg_regex_compile(dg_syntax *s, const char *text, size_t len,
                               const dg_regex_options *options, dg_node *out, dg_regex_facts *facts,
                               dgemma_error *err);

#endif
