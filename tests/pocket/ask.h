/* Asks a model all prompts, several at a time, and collects what it says. */
#ifndef DG_TESTS_ASK_H
#define DG_TESTS_ASK_H

#include "pocket/checks.h"
#include "pocket/held.h"
#include "pocket/prompts.h"

typedef struct ask_options {
    int parallel;   /* requests in flight; at least 1 */
    int max_tokens; /* of an answer */
    int settled;    /* settled_steps of the request */
    held_to held;
} ask_options;

typedef struct asked {
    const pocket_prompt *prompt;
    const json_t *messages; /* as they were sent: with the conversation that they follow */
    pocket_answer answer;
    const int32_t *tokens; /* all of them, markers and thoughts included, without the last one */
    size_t n_tokens;
    dgemma_stats stats;
    int n_first; /* steps that were made when its first words came */
} asked;

/* Takes an answer in; it lives until the function returns. A status ends the run. */
typedef dgemma_status asked_fn(void *user, const asked *a, dgemma_error *err);

/* Answers come in the order of the prompts; one that follows is asked behind the answer before it.
 * A request that fails ends the run. */
dgemma_status ask_all(dgemma_engine *e, const pocket_prompts *p, const ask_options *opt,
                      asked_fn *on_answer, void *user, dgemma_error *err);

/* The options of the request that sends `sent` for a prompt; *messages and *tools hold its JSON
 * (free). */
dgemma_status ask_prepare(dgemma_request_options *o, dgemma_engine *e, const pocket_prompt *p,
                          const json_t *sent, const ask_options *opt, char **messages, char **tools,
                          dgemma_error *err);

#endif
