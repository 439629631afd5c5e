/* Turns in which the model may, or must, call tools, as a language: Gemma's own syntax, not JSON.
 *
 *   turn  = text call*                      the model decides
 *         | answer | call+                  likewise, where its answer is held to something
 *         | call+                           a call is required
 *         | text                            none is wanted
 *   call  = <|tool_call> "call:" NAME "{" key ":" value "," … "}" <tool_call|>
 *   value = <|"|> text <|"|> | number | true | false | null | "[" … "]" | "{" … "}"
 *
 * Marks are special tokens, symbols of the syntax. Names are those of declared tools; arguments
 * obey the tool's schema, members sorted by name, without white space; text in strings stands as it
 * is. What the schema language cannot hold arguments to is left out, and where it cannot do
 * anything with the schema, any well-formed arguments are let be; both is told. A tool that is
 * `strict` is refused instead. */
#ifndef DG_CONSTRAINT_TOOL_CALLS_H
#define DG_CONSTRAINT_TOOL_CALLS_H

#include "base/buf.h"
#include "constraint/syntax.h"

#define DG_CALL_MARK_OPEN  "<|tool_call>"
#define DG_CALL_MARK_CLOSE "<tool_call|>"
#define DG_CALL_MARK_QUOTE "<|\"|>"

enum { DG_CALLS_MAX = 32, DG_CALLS_MAX_TOOLS = 1024 };

typedef enum dg_calls_mode { DG_CALLS_AUTO, DG_CALLS_NONE, DG_CALLS_REQUIRED } dg_calls_mode;

typedef struct dg_calls_options {
    const char *tools; /* JSON array in OpenAI's form: {type, function: {name, parameters, strict}},
                          or the inner object by itself; borrowed for the call */
    size_t len;
    const char *const *allowed; /* names of those that may be called; none: all */
    size_t n_allowed;
    dg_calls_mode mode;
    bool single;     /* at most one call */
    dg_buf *ignored; /* lines 'KEYWORD at POINTER', pointers into `tools`; or NULL */
    dg_node answer;  /* what a turn without calls is, or NEVER: any text */
} dg_calls_options;

/* The node of such turns. DGEMMA_E_ARG: malformed, or no tool can be called though one must;
 * DGEMMA_E_UNSUPPORTED, DGEMMA_E_LIMIT: the schema of a strict tool, as in schema.h. */
dgemma_status dg_calls_compile(dg_syntax *s, const dg_calls_options *options, dg_node *out,
                               dgemma_error *err);

#endif
