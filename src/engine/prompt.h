/* From what a caller asks to what the model reads: conversations rendered, text tokenised, pictures
 * in their places. On the caller's thread. */
#ifndef DG_ENGINE_PROMPT_H
#define DG_ENGINE_PROMPT_H

#include "engine/engine.h"

typedef struct dg_prompt_tokens {
    dg_tokens tokens;
    dg_pictures pictures;
    bool in_thought;  /* the prompt ends inside a thought */
    bool in_text;     /* it ends with the beginning of the answer's text */
    size_t n_opening; /* tokens at its end that open a tool call */
} dg_prompt_tokens;

/* Exactly one of the options' prompts is there. DGEMMA_E_CONTEXT: it has more than max_tokens; what
 * is beyond them is not tokenised. */
dgemma_status dg_prompt_build(dg_prompt_tokens *out, const dgemma_engine *e,
                              const dgemma_request_options *o, int max_tokens, dgemma_error *err);
void dg_prompt_tokens_clear(dg_prompt_tokens *p);

/* DGEMMA_E_UNSUPPORTED when the model has no tokenizer. */
dgemma_status dg_need_tokenizer(const dgemma_engine *e, dgemma_error *err);

#endif
