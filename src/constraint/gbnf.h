/* Grammars in llama.cpp's GBNF: rules `name ::= …` of literals, classes, `.`, groups, alternatives,
 * * + ? {m,n}, other rules, and special tokens as <[id]> or <name>. The start is `root`. */
#ifndef DG_CONSTRAINT_GBNF_H
#define DG_CONSTRAINT_GBNF_H

#include "constraint/syntax.h"

enum {
    DG_GBNF_MAX_BYTES = 256 << 10,
    DG_GBNF_MAX_RULES = 4096,
    DG_GBNF_MAX_GROUPS = 100,
    DG_GBNF_MAX_COUNT = 4096,
    DG_GBNF_LEVELS = 120 /* of rules inside themselves, other than at their ends */
};

/* Makes the syntax of the grammar's texts, and finishes it. DGEMMA_E_ARG: malformed, with the line,
 * or without a text; DGEMMA_E_UNSUPPORTED: a rule that begins with itself; DGEMMA_E_LIMIT. */
dgemma_status dg_gbnf_compile(dg_syntax *s, const char *text, size_t len, dgemma_error *err);

#endif
