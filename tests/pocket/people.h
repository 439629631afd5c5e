/* Prompts as people type them, in a text of lines `typed => rule & rule`
 * (models/pocket/eval/people.txt says all of it), turned into the lines that prompts.h reads. */
#ifndef DG_TESTS_PEOPLE_H
#define DG_TESTS_PEOPLE_H

#include "base/buf.h"
#include "base/error.h"

/* Appends a line of JSON for each prompt of `text`. DGEMMA_E_FORMAT: a line cannot be read; the
 * message has its number. */
dgemma_status people_as_jsonl(dg_buf *out, const char *text, dgemma_error *err);

#endif
