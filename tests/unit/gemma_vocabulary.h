/* The Gemma 4 vocabulary for tests, with merges and an encoder that follow the rules to the letter
 * and know nothing of the library's. */
#ifndef DG_TESTS_GEMMA_VOCABULARY_H
#define DG_TESTS_GEMMA_VOCABULARY_H

#include "base/buf.h"
#include "text/tokenizer.h"

typedef struct table table;

typedef struct gemma_vocabulary {
    dg_buf file; /* holds the text of the pieces */
    dg_piece *pieces;
    size_t n_piece;
    dg_added_token added[64];
    size_t n_added;
    int32_t (*merges)[2]; /* ids of left and right, best rank first */
    size_t n_merge;
    table *ids, *ranks;
} gemma_vocabulary;

/* Ends the test process when the files are not there. */
void gemma_vocabulary_init(gemma_vocabulary *g);
void gemma_vocabulary_clear(gemma_vocabulary *g);

/* Its tokenizer. Ends the test process when it cannot be made. */
dg_tokenizer *gemma_vocabulary_tokenizer(const gemma_vocabulary *g);

dg_vocabulary gemma_vocabulary_view(const gemma_vocabulary *g); /* without merges */

/* As a tokenizer.json in the manner of Gemma 4's; to be freed. */
char *gemma_vocabulary_write_json(const gemma_vocabulary *g, size_t *len);

/* BPE over the whole text at once: scan for the best pair, merge it, start again. No added tokens.
 */
void gemma_vocabulary_encode(const gemma_vocabulary *g, const char *text, size_t len,
                             dg_tokens *out);

#endif
