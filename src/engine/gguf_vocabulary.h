/* A tokenizer as a GGUF file's keys: the way back from gguf_tokenizer.h. */
#ifndef DG_ENGINE_GGUF_VOCABULARY_H
#define DG_ENGINE_GGUF_VOCABULARY_H

#include "format/gguf_write.h"
#include "text/tokenizer.h"

/* Pieces, merges and special ids, and the chat template where there is one (else NULL). Where the
 * embeddings have more rows, n_vocab, the rest of them are unused pieces, [PAD384] and so on:
 * llama.cpp wants as many pieces as rows. DGEMMA_E_UNSUPPORTED: a tokenizer that GGUF has no name
 * for. */
dgemma_status dg_gguf_vocabulary_put(dg_gguf_writer *w, const dg_tokenizer *t, int n_vocab,
                                     const char *chat_template, dgemma_error *err);

/* Whether a piece is such a one of number `id`. */
bool dg_gguf_is_padding(const char *text, size_t len, size_t id);

#endif
