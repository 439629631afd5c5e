/* From what a caller asks to what the model reads: conversations rendered, text tokenised, pictures
 * in their places. On the caller's thread. */
#ifndef DG_ENGINE_PROMPT_H
#define DG_ENGINE_PROMPT_H

#include "engine/prompt_data.h"

/* Exactly one of the options' prompts is there, and none that was made before. DGEMMA_E_CONTEXT: it
 * has more than max_tokens; what is beyond them is not tokenised. */
dgemma_status dg_prompt_build(dgemma_prompt **out, const dgemma_engine *e,
                              const dgemma_request_options *o, int max_tokens, dgemma_error *err);

/* DGEMMA_E_UNSUPPORTED when the model has no tokenizer. */
dgemma_status dg_need_tokenizer(const dgemma_engine *e, dgemma_error *err);

#endif
