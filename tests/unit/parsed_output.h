/* Model output, written with its markers, and the events that the parser makes of it, written as
 * text: [thinking …][text …][call 0 name {…}][end turn]. For test_output_parser.c and
 * test_output_calls.c. */
#ifndef DG_TESTS_PARSED_OUTPUT_H
#define DG_TESTS_PARSED_OUTPUT_H

#include <check.h>
#include "base/buf.h"
#include "text/output_parser.h"

#define Q "<|\"|>"

/* A suite of tests that are run twice: as "gemma", with Gemma's vocabulary, and as "small", with
 * that of the pocket model. `of_gemma` runs in the first alone. */
Suite *parsed_suite(const char *name, void (*add_tests)(TCase *c), const TTest *of_gemma);

/* The vocabulary, while a test runs. */
extern dg_tokenizer *parsed_tokenizer;

typedef struct parsed_record {
    dg_buf text;
    int last;      /* kind of the event before, -1: none */
    int n_left;    /* events to take; -1: all */
    int n_refused; /* that came nevertheless */
} parsed_record;

/* A parser that writes its events into a new record, of which it takes n_left. */
dg_output_parser *parsed_open(parsed_record *r, const dg_output_options *options, int n_left);
void parsed_close(dg_output_parser *p, parsed_record *r);

void parsed_encode(const char *output, dg_tokens *tokens);

/* All tokens in one piece. */
void parsed_whole(const dg_tokens *tokens, dg_buf *out);

/* The output, in whatever pieces it comes, gives these events. */
void expect(const char *output, const char *want);
void expect_tokens(const dg_tokens *tokens, bool in_thought, const char *output,
                   const char *want); /* `output` is for the message */
void expect_from(bool in_thought, const char *output, const char *want);

#endif
