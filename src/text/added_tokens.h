/* Added tokens and where they stand in a text: the leftmost one, and the longest that starts there.
 */
#ifndef DG_TEXT_ADDED_TOKENS_H
#define DG_TEXT_ADDED_TOKENS_H

#include "text/pieces.h"

typedef struct dg_added {
    dg_piece piece; /* text in dg_pieces */
    int32_t id;
} dg_added;

typedef struct dg_added_tokens {
    dg_added *at; /* [n], sorted by text */
    size_t n;
    size_t first[257]; /* those whose first byte is b: [first[b], first[b + 1]) */
} dg_added_tokens;

/* Of the pieces that are marked as added, which must outlive *a. False: out of memory. */
bool dg_added_tokens_init(dg_added_tokens *a, const dg_pieces *p);
void dg_added_tokens_clear(dg_added_tokens *a);

/* Offset of the first added token in text[0 … len), which is put into *found; len when there is
 * none. */
size_t dg_added_tokens_find(const dg_added_tokens *a, const char *text, size_t len,
                            dg_added *found);

#endif
