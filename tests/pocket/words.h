/* A text as words and punctuation marks, which is how answers are compared where their layout does
 * not matter. */
#ifndef DG_TESTS_WORDS_H
#define DG_TESTS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

enum { MAX_WORDS = 8192 }; /* in one text */

typedef struct word {
    const char *text; /* into the text that was split */
    size_t len;
    bool mark; /* one punctuation mark; otherwise letters, digits, and ' or - between them */
} word;

/* The words of `text`, at most MAX_WORDS; the rest is left out. *n is how many; give the array back
 * with dg_free. NULL: out of memory. Braces, for templates, belong to words. */
word *words_split(const char *text, size_t *n);

bool words_equal(const word *a, const word *b, bool ignore_case);

/* True when the words of `phrase` stand in `text` one after the other, whatever their case. An
 * empty phrase stands nowhere. */
bool words_contain(const char *text, const char *phrase);

#endif
