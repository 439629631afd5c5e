/* A tokenizer as a GGUF file's keys: the way back from gguf_tokenizer.h. */
#ifndef DG_ENGINE_GGUF_VOCABULARY_H
#define DG_ENGINE_GGUF_VOCABULARY_H

#include "format/gguf_write.h"
#include "text/tokenizer.h"

/* Pieces, merges and special ids, and the chat template where there is one (else NULL).
 * DGEMMA_E_UNSUPPORTED: a tokenizer that GGUF has no name for. */
dgemma_status dg_gguf_vocabulary_put(dg_gguf_writer *w, const dg_tokenizer *t,
                                     const char *chat_template, dgemma_error *err);

#endif
