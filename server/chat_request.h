/* A request for answers, whatever dialect it came in: what the engine is to be asked, how often,
 * and in what form the answers go out. A dialect's reader fills it, server/generation.c runs it. */
#ifndef DG_SERVER_CHAT_REQUEST_H
#define DG_SERVER_CHAT_REQUEST_H

#include <jansson.h>
#include "constraint_cache.h"
#include "dgemma.h"
#include "errors.h"

/* A prompt that is no conversation, or the end of one: a gap may be in the answer to it. */
typedef struct dg_raw_prompt {
    const char *text; /* or */
    int32_t *tokens;  /* owned; or */
    size_t n_token;
    char *before, *passage, *after; /* owned: a gap in a text, and what stood in it or NULL */
    size_t start, end;              /* of an edit: the passage's bytes in the text */
} dg_raw_prompt;

typedef struct dg_chat {
    json_t *root;                    /* owned: strings below are borrowed from it */
    dgemma_request_options options;  /* the prompt is set for each choice */
    char *messages, *tools, *prefix; /* owned; a conversation, or (for a gap, and) */
    dg_raw_prompt *prompts;          /* owned; prompts as they stand */
    size_t n_prompt;
    const char **stop;       /* owned */
    dgemma_logit_bias *bias; /* owned */
    int32_t *canvas;         /* owned: what the answers start from, and */
    uint8_t *pinned;         /* what of it stays */
    int n_choice;            /* answers for each prompt, with seeds counted up; 0: none is wanted,
                                only to know that the model is there */
    bool stream, include_usage;
    bool draft_ids; /* drafts say the tokens' ids too */
    bool hide_thinking;
    bool old_functions;            /* calls go out in the form from before there were tools */
    bool any_object;               /* the model is told that it is to be one */
    dgemma_constraint *constraint; /* owned: what answers are held to, or NULL */
    const json_t *schema;          /* that of the constraint, borrowed from the root, or NULL */
    bool logprobs;
    bool tokens_as_ids; /* tokens of log-probabilities are named "token_id:N" */

    /* A canvas that is read instead of an answer that is written; what the read points to is owned.
     */
    bool reads;
    dgemma_read read;
    int32_t *read_tokens, *read_ids, *stop_tokens;
    uint8_t *read_pinned;
} dg_chat;

void dg_chat_clear(dg_chat *c);

/* Once prompts were made of it: frees what was said, which may be large, and keeps the rest. */
void dg_chat_forget_prompt(dg_chat *c);

/* What a reader needs to know of the server. */
typedef struct dg_chat_limits {
    dgemma_request_options defaults;
    int n_vocab;
    int max_choices; /* of all prompts together */
    int max_images;
    dg_constraint_cache *constraints; /* those of requests before; NULL: nothing is kept */
} dg_chat_limits;

/* A dialect's reader. Takes `root`, a JSON object. False: *e says what is wrong, and *out is empty.
 * Fields that are not known are not looked at. Without a seed, `seed` is it. */
typedef bool dg_read_fn(dg_chat *out, json_t *root, const dg_chat_limits *limits, uint64_t seed,
                        dg_http_error *e);

#endif
