/* What the model writes, taken apart while it comes: thinking, text, tool calls, the end. Structure
 * is seen by token id, so text that looks like a marker stays text; only at the very start a
 * thought is known by its spelling too ("thought" on a line of its own, "<think>"), since models
 * now and then leave its token out. Such a one is held back until something closes it, and is the
 * answer's text if nothing does. Push style, one parser a request; how the tokens are cut into
 * pushes changes nothing but the places where a run of text is cut into events. */
#ifndef DG_TEXT_OUTPUT_PARSER_H
#define DG_TEXT_OUTPUT_PARSER_H

#include "text/conversation.h"
#include "text/tokenizer.h"

typedef enum dg_output_kind {
    DG_OUTPUT_THINKING,    /* more of the reasoning: `text` */
    DG_OUTPUT_TEXT,        /* more of the answer: `text` */
    DG_OUTPUT_BROKEN_CALL, /* what was to be a call and cannot be read as one: `text` */
    DG_OUTPUT_TOOL_CALL,   /* a whole call: `name`, `text` is the JSON object of its arguments */
    DG_OUTPUT_END          /* nothing comes after it; once */
} dg_output_kind;

/* Strings are UTF-8 and valid during the call. */
typedef struct dg_output_event {
    dg_output_kind kind;
    dg_text text; /* never empty in THINKING, TEXT and BROKEN_CALL */
    dg_text name; /* TOOL_CALL */
    int index;    /* TOOL_CALL: from 0. END: how many calls there were */
    int32_t end;  /* END: the token that ended the turn, -1 when the output just stopped */
} dg_output_event;

/* Return false to stop: the push returns DGEMMA_E_CANCELLED. */
typedef bool dg_output_fn(void *user, const dg_output_event *event);

typedef struct dg_output_options {
    bool in_thought; /* the prompt left a thought open (dg_prompt.in_thought) */
    bool in_text;    /* the prompt holds the beginning of the answer's text: what comes goes on from
                        there */
} dg_output_options;

enum { DG_OUTPUT_MAX_CALL = 1 << 22 }; /* bytes of a call; a longer one is broken */

typedef struct dg_output_parser dg_output_parser;

/* Borrows the tokenizer; options may be NULL. *out belongs to the caller. */
dgemma_status dg_output_parser_create(dg_output_parser **out, const dg_tokenizer *t,
                                      const dg_output_options *options, dg_output_fn *on_event,
                                      void *user, dgemma_error *err);
void dg_output_parser_free(dg_output_parser *p); /* NULL is fine */

/* First of all, tokens at the prompt's end that open a call for the model. A call to which it adds
 * nothing is a broken one. */
dgemma_status dg_output_parser_open(dg_output_parser *p, const int32_t *ids, size_t n,
                                    dgemma_error *err);

/* Any ids; padding and what follows the end are dropped. Text that may still turn out to be
 * structure is held back. */
dgemma_status dg_output_parser_push(dg_output_parser *p, const int32_t *ids, size_t n,
                                    dgemma_error *err);

/* No more tokens come: gives out what was held back. An open thought stays thinking; an open call
 * becomes a call when its arguments are complete, a broken one otherwise: half a call must not be
 * made. The END event follows unless it has been sent. */
dgemma_status dg_output_parser_finish(dg_output_parser *p, dgemma_error *err);

#endif
