/* Whether a person would accept an answer: the rules of models/pocket/eval/people.txt, which says
 * what each of them means. */
#ifndef DG_TESTS_PERSON_H
#define DG_TESTS_PERSON_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef struct person_check {
    const char *rule;   /* what is accepted */
    const char *typed;  /* its words are known ones */
    const char *folder; /* of words.txt and rhymes.txt */
} person_check;

/* *right: the answer is accepted; otherwise `why` (of n bytes) says what is wrong first.
 * DGEMMA_E_FORMAT and others: the rule or a list cannot be read. */
dgemma_status person_accepts(bool *right, char *why, size_t n, const person_check *check,
                             const char *answer, dgemma_error *err);

/* True when lines that end with these two words rhyme: other words, of one line of the list of
 * rhymes. */
bool person_rhymes(const char *list, const char *a, size_t a_len, const char *b, size_t b_len);

/* True when the list, a word a line, sorted by bytes, has the word, whatever its case. */
bool person_knows(const char *list, const char *text, size_t len);

#endif
