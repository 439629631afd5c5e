/* Texts made of sentences from a list of templates, in order. A grammar file has one template a
 * line,
 *
 *     # opening
 *     Once upon a time there was a {hero}.
 *     # middle
 *     The {hero} went to the {place}.
 *     # end
 *     And they were happy.
 *
 * A slot in braces stands for one to three words. A text follows the grammar when it is a sequence
 * of templates, at least one of each section, the sections in their order. Spaces and line breaks
 * do not matter; letters, case and punctuation do. */
#ifndef DG_TESTS_GRAMMAR_H
#define DG_TESTS_GRAMMAR_H

#include <stddef.h>
#include "base/error.h"

typedef struct grammar grammar;

/* DGEMMA_E_FORMAT: a template before the first section, an empty section, none at all. */
dgemma_status grammar_parse(grammar **out, const char *text, dgemma_error *err);
dgemma_status grammar_read(grammar **out, const char *path, dgemma_error *err);
void grammar_free(grammar *g); /* NULL is fine */

/* DGEMMA_E_ARG: the text does not follow the grammar; the message says from which word on. */
dgemma_status grammar_match(const grammar *g, const char *text, dgemma_error *err);

#endif
