/* From what a caller asks to what the model reads: conversations rendered, text tokenised, pictures
 * in their places. On the caller's thread. */
#ifndef DG_ENGINE_PROMPT_H
#define DG_ENGINE_PROMPT_H

#include <stdatomic.h>
#include "dgemma.h"
#include "engine/pictures.h"
#include "text/tokenizer.h"

/* The struct behind the public handle. Nothing in it changes once it is made; all requests that
 * were made of it hold it, whoever lets go last frees it. */
struct dgemma_prompt {
    atomic_int n_holder;
    const dgemma_engine *engine; /* to know it again, no more */
    dg_tokens tokens;
    dg_pictures pictures; /* pictures.salt is the next */
    char *salt;           /* NULL: none */
    bool in_thought;      /* the prompt ends inside a thought */
    bool in_text;         /* it ends with the beginning of the answer's text */
    size_t n_opening;     /* tokens at its end that open a tool call */
};

/* Exactly one of the options' prompts is there, and none that was made before. DGEMMA_E_CONTEXT: it
 * has more than max_tokens; what is beyond them is not tokenised. */
dgemma_status dg_prompt_build(dgemma_prompt **out, const dgemma_engine *e,
                              const dgemma_request_options *o, int max_tokens, dgemma_error *err);
dgemma_prompt *dg_prompt_hold(dgemma_prompt *p); /* returns p */
void dg_prompt_release(dgemma_prompt *p);        /* NULL is fine */

/* DGEMMA_E_UNSUPPORTED when the model has no tokenizer. */
dgemma_status dg_need_tokenizer(const dgemma_engine *e, dgemma_error *err);

#endif
