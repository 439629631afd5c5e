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
    DG_TOKEN_N_CLASS
};

typedef struct dg_token_trie dg_token_trie;

/* The bytes of all text tokens, as a tree. It never changes, and may be shared. *out belongs to the
 * caller (dg_token_trie_free). */
dgemma_status dg_token_trie_create(dg_token_trie **out, const dg_tokenizer *tokenizer,
                                   dgemma_error *err);
void dg_token_trie_free(dg_token_trie *t); /* NULL is fine */

const uint8_t *dg_token_trie_classes(const dg_token_trie *t); /* of each id */
size_t dg_token_trie_count(const dg_token_trie *t);           /* ids */

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

/* The edges of a place, in a fixed order, into *out, which they replace. */
dgemma_status dg_token_edges_find(const dg_token_trie *t, dg_language *l, dg_place at,
                                  dg_token_edges *out, dgemma_error *err);

/* Appends tokens whose bytes are these: the longest that fits, again and again. */
dgemma_status dg_token_trie_spell(const dg_token_trie *t, const char *bytes, size_t n,
                                  dg_tokens *out, dgemma_error *err);

#endif
