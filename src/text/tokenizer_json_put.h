/* A tokenizer as Hugging Face folders have it: the way back from dg_tokenizer_from_json. */
#ifndef DG_TEXT_TOKENIZER_JSON_PUT_H
#define DG_TEXT_TOKENIZER_JSON_PUT_H

#include "text/tokenizer.h"

/* tokenizer.json. DGEMMA_E_UNSUPPORTED: a piece cannot stand in it. */
dgemma_status dg_tokenizer_json(dg_buf *out, const dg_tokenizer *t, dgemma_error *err);

/* tokenizer_config.json: which tokens are the special ones. */
dgemma_status dg_tokenizer_config_json(dg_buf *out, const dg_tokenizer *t, dgemma_error *err);

#endif
