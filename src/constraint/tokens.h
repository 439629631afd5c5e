/* From bytes to tokens: which tokens of a vocabulary may come next at a place of a language.
 *
 * Any way to spell a word in tokens is allowed, but for two that would only add choices: inside an
 * escape (behind a backslash) tokens are single bytes, and of two tokens with the same bytes one is
 * used. Special tokens, and rows that the vocabulary keeps free, are never text. */
#ifndef DG_CONSTRAINT_TOKENS_H
#define DG_CONSTRAINT_TOKENS_H

#include "constraint/language.h"
#include "text/tokenizer.h"

/* Classes of tokens. A place from which all of a class lead to one place, which then stays where it
 * is, has one edge for it. */
enum {
    DG_TOKEN_CLASS_NONE,
    DG_TOKEN_CLASS_PLAIN, /* whole characters, none of them ", \ or a control character */
    DG_TOKEN_CLASS_OTHER, /* all other text */
    DG_TOKEN_N_CLASS
};

typedef struct dg_token_trie dg_token_trie;

/* The bytes of all text tokens, as a tree. It never changes, and may be shared. n_row: ids that a
 * model may know beyond those of the tokenizer count as well. *out belongs to the caller
 * (dg_token_trie_free). */
dgemma_status dg_token_trie_create(dg_token_trie **out, const dg_tokenizer *tokenizer, size_t n_row,
                                   dgemma_error *err);
void dg_token_trie_free(dg_token_trie *t); /* NULL is fine */

const uint8_t *dg_token_trie_classes(const dg_token_trie *t); /* of each id */
size_t dg_token_trie_count(const dg_token_trie *t);           /* ids */

/* The bytes of a token; NULL where it is no text. */
const char *dg_token_trie_text(const dg_token_trie *t, int32_t id, size_t *len);

typedef struct dg_token_trie_size {
    size_t n_token, n_node, n_plain, bytes;
} dg_token_trie_size;
dg_token_trie_size dg_token_trie_measure(const dg_token_trie *t);

/* A token, or a class when `is_class`, that leads to a place. */
typedef struct dg_token_edge {
    int32_t token;
    bool is_class;
    dg_place to;
} dg_token_edge;

/* A growing list of edges; a zeroed one is empty. */
typedef struct dg_token_edges {
    dg_token_edge *at; /* owned */
    size_t n, cap;
} dg_token_edges;
void dg_token_edges_clear(dg_token_edges *e);

/* Places with more edges than this are wide. */
enum { DG_TOKEN_WIDE = 1024 };

/* The edges of a place, in a fixed order, into *out, which they replace. symbol: ids of the
 * syntax's symbols (-1: it has none), or NULL. Of a wide place only those of single bytes and
 * symbols are found; what a longer token leads to, dg_token_step says. */
dgemma_status dg_token_edges_find(const dg_token_trie *t, dg_language *l, dg_place at,
                                  const int32_t *symbol, dg_token_edges *out, bool *wide,
                                  dgemma_error *err);

/* *at moves on by a token of text; DG_PLACE_DEAD where no word goes on so. */
dgemma_status dg_token_step(const dg_token_trie *t, dg_language *l, dg_place *at, int32_t token,
                            dgemma_error *err);

/* The longest token with which these bytes begin, and its length; 0: there is none. */
size_t dg_token_trie_longest(const dg_token_trie *t, const char *bytes, size_t n, int32_t *token);

/* Appends tokens whose bytes are these: the longest that fits, again and again. */
dgemma_status dg_token_trie_spell(const dg_token_trie *t, const char *bytes, size_t n,
                                  dg_tokens *out, dgemma_error *err);

#endif
