/* A tokenizer whose pieces are the 256 bytes and, after them, the given markers as special tokens.
 */
#ifndef DG_TESTS_BYTE_TOKENIZER_H
#define DG_TESTS_BYTE_TOKENIZER_H

#include "text/tokenizer.h"

enum { DG_TEST_N_BYTE = 256, DG_TEST_MAX_MARKERS = 32 };

/* keep_spaces: a space is a space, so that decoding gives the text back. Aborts when it cannot. */
dg_tokenizer *dg_test_byte_tokenizer(const char *const *markers, int n_marker, bool keep_spaces);

#endif
