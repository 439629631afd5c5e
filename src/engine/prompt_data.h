/* A prompt as the model reads it: tokens, and pictures in their places. prompt.h makes it. */
#ifndef DG_ENGINE_PROMPT_DATA_H
#define DG_ENGINE_PROMPT_DATA_H

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
    dgemma_prompt *base;  /* held: whose pictures these are, if it goes on from another; or NULL */
    dg_pictures pictures; /* pictures.salt is the next */
    char *salt;           /* NULL: none */
    bool in_thought;      /* the prompt ends inside a thought */
    bool thinks;          /* the model was told to think */
    bool in_text;         /* it ends with the beginning of the answer's text */
    int n_prefix;         /* tokens at its end that are the beginning of the answer's text */
    int n_blank;          /* that answer_prefix has at its end beyond what the tokens say */
    size_t n_opening;     /* tokens at its end that open a tool call */
};

/* A prompt that goes on with n more tokens. */
dgemma_status dg_prompt_extend(dgemma_prompt **out, dgemma_prompt *base, const int32_t *tokens,
                               size_t n, dgemma_error *err);

dgemma_prompt *dg_prompt_hold(dgemma_prompt *p); /* returns p */
void dg_prompt_release(dgemma_prompt *p);        /* NULL is fine */

#endif
