/* The tokenizer out of a GGUF file's keys. */
#ifndef DG_ENGINE_GGUF_TOKENIZER_H
#define DG_ENGINE_GGUF_TOKENIZER_H

#include "format/gguf.h"
#include "text/tokenizer.h"

/* *out is NULL when the file has no tokens. tokenizer.ggml.model other than gemma4 is refused: its
 * pieces would be put together by other rules. `where` names the file in messages. */
dgemma_status dg_gguf_tokenizer(dg_tokenizer **out, const dg_gguf *g, const char *where,
                                dgemma_error *err);

#endif
