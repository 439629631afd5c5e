/* A constraint on text, in whatever form it was written: its syntax, finished and tried. It never
 * changes, and may be shared; each user has an automaton of its own (constraint/language.h). */
#ifndef DG_CONSTRAINT_CONSTRAINT_H
#define DG_CONSTRAINT_CONSTRAINT_H

#include "base/buf.h"
#include "constraint/tool_calls.h"

typedef enum dg_constraint_kind {
    DG_CONSTRAINT_JSON_SCHEMA,
    DG_CONSTRAINT_JSON_OBJECT, /* any object; no text */
    DG_CONSTRAINT_REGEX,       /* of the whole text */
    DG_CONSTRAINT_CHOICE,      /* one of `choices` */
    DG_CONSTRAINT_GRAMMAR,
    DG_CONSTRAINT_TOOLS /* calls of the tools in `text`, or of those in `choices` (tool_calls.h) */
} dg_constraint_kind;

typedef struct dg_constraint_options {
    dg_constraint_kind kind;
    const char *text; /* borrowed for the call */
    size_t len;
    const char *const *choices;
    size_t n_choice;
    bool compact;    /* JSON without white space */
    bool lenient;    /* a schema's keywords that are not supported are left out */
    dg_buf *ignored; /* which they were, a line each; or NULL */
    dg_calls_mode calls;
    bool single_call;
    const struct dg_constraint_options *answer; /* TOOLS: of a turn without calls; NULL: any text */
} dg_constraint_options;

/* *out belongs to the caller (dg_syntax_free). Errors as in schema.h, regex.h, gbnf.h. */
dgemma_status dg_constraint_compile(dg_syntax **out, const dg_constraint_options *options,
                                    dgemma_error *err);

#endif
