/* Model output, written with its markers, and the events that the parser makes of it, written as
 * text: [thinking …][text …][call 0 name {…}][end turn]. For test_output_parser.c and
 * test_output_calls.c. */
#ifndef DG_TESTS_PARSED_OUTPUT_H
#define DG_TESTS_PARSED_OUTPUT_H

#include "base/buf.h"
#include "text/output_parser.h"

#define Q "<|\"|>"

/* Fixtures: Gemma's vocabulary, or the small one of the pocket model. */
extern dg_tokenizer *parsed_tokenizer;
void parsed_setup(void);
void parsed_teardown(void);
void parsed_setup_small(void);
void parsed_teardown_small(void);

typedef struct parsed_record {
    dg_buf text;
    int last;   /* kind of the event before, -1: none */
    int n_left; /* events to take; -1: all */
} parsed_record;

/* A dg_output_fn that writes events into a record. */
bool parsed_event(void *user, const dg_output_event *e);

void parsed_encode(const char *output, dg_tokens *tokens);

/* The stream is cut after each token whose bit is set. */
void parsed_in_cuts(const dg_tokens *tokens, bool in_thought, const bool *cuts, dg_buf *out);

/* The output, in whatever pieces it comes, gives these events. */
void expect(const char *output, const char *want);
void expect_tokens(const dg_tokens *tokens, bool in_thought, const char *output,
                   const char *want); /* `output` is for the message */
void expect_from(bool in_thought, const char *output, const char *want);

#endif
